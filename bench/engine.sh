# engine.sh - how the benches of whole training steps run gh-engine.
#
# A script sources it with its own arguments, OUTDIR [cuda|soft], and then has
# $out, $driver and engine().  It is run in the build directory, or with
# ENGINE set.
#
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2034 # what is set here is for the script

out=${1:?usage: $(basename "$0") OUTDIR [cuda|soft]}
driver=${2:-cuda}
mkdir -p "$out"

# engine NAME MODES STEPS OPTION...: writes OUTDIR/NAME.json.
engine()
{
    name=$1
    modes=$2
    steps=$3
    shift 3
    echo "${ENGINE:-./gh-engine} $* --compare $modes --steps $steps" >&2
    "${ENGINE:-./gh-engine}" --driver "$driver" --compare "$modes" --quiet \
        --steps "$steps" --json "$out/$name.json" "$@" >&2
}
