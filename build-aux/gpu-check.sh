#!/usr/bin/env bash
# gpu-check.sh - everything that only a machine with a GPU can answer.
#
#     build-aux/gpu-check.sh OUT [PHASE...]
#
# Phases, all of these by default, in this order:
#
#     build      unpacks the dist tarball, configures and makes it
#     check      GRAPHHOOKS_TEST_DRIVER=cuda make check
#     demo       gh-engine, eager against graph; and with its memory given
#                back now and then, with times
#     bench      bench/run.sh
#     sanitizer  compute-sanitizer --tool memcheck on gh-engine
#
# And two that run only when they are named, as they take 2 and 20 minutes
# and need torch; PYTHONPATH has megatron-core, for what is of it:
#
#     examples   those of PyTorch, eager against graphs, by torchrun where
#                there are two GPUs
#     peers      bench/peers/run.py; PEERS has its options, such as --quick
#
# Each phase leaves OUT/PHASE.log, its results beside it, and a line in
# OUT/summary.json.  A phase that fails or runs out of time does not stop the
# next.  Needs gcc, make and awk, and none of autoconf, libtool and nvcc.
#
# TARBALL is the tarball (default: the newest graphhooks-*.tar.gz here, in
# build/, or else this very tree when it has a configure); WORK is where it
# is built (build/gpu); LIMIT_BUILD, LIMIT_CHECK and so on are seconds.
#
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail

if [ $# -lt 1 ]; then
    sed -n '2,/^# SPDX/{/SPDX/d;s/^# \{0,1\}//;p}' "$0"
    exit 2
fi

mkdir -p "$1" || exit 2
out=$(cd "$1" && pwd)
shift
[ $# -gt 0 ] || set -- build check demo bench sanitizer

work=${WORK:-build/gpu}
mkdir -p "$work" || exit 2
work=$(cd "$work" && pwd)
tree=$work/tree
build=$work/build
export tree build out
jobs=$(nproc)
export jobs

# ---- phases: each runs in a shell of its own, from $build ------------------

phase_build()
{
    local tarball=${TARBALL-}

    if [ -z "$tarball" ]; then
        # shellcheck disable=SC2012 # newest first; the names are ours
        tarball=$(ls -t "$from"/graphhooks-*.tar.gz \
            "$from"/build/graphhooks-*.tar.gz \
            "$from"/build/*/graphhooks-*.tar.gz 2> /dev/null | head -n 1)
    fi
    rm -rf "$tree" "$build"
    mkdir -p "$tree" "$build" || return 1
    if [ -n "$tarball" ]; then
        echo "tarball: $tarball"
        tar xzf "$tarball" -C "$tree" --strip-components=1 || return 1
    elif [ -x "$from/configure" ]; then
        echo "tree: $from"
        rmdir "$tree" && ln -s "$from" "$tree" || return 1
    else
        echo "no tarball: make dist first, or set TARBALL"
        return 1
    fi
    nvidia-smi || echo "no nvidia-smi"
    cd "$build" || return 1
    # shellcheck disable=SC2086 # a list of flags
    "$tree/configure" -q ${CONFIGURE_FLAGS-} && make -j"$jobs"
}

phase_check()
{
    local rc=0

    cd "$build" || return 1
    find . -name '*.trs' -exec rm -f {} +
    GRAPHHOOKS_TEST_DRIVER=cuda make -j4 check || rc=1
    cp test-suite.log "$out/test-suite.log" 2> /dev/null
    sh "$tree/build-aux/report.sh" . | tee "$out/check.count"
    return "$rc"
}

phase_demo()
{
    cd "$build" || return 1
    ./gh-engine --driver cuda --model gpt --steps 20 \
        --microbatches 4,6,8,3 --compare eager,graph --json "$out/demo.json" \
        --trace "$out/demo.trace.json" &&
        ./gh-engine --driver cuda --model gpt --layers 6 --hidden 512 \
            --heads 8 --seq 256 --steps 8 --suspend 1 \
            --compare eager,graph,graph+offload --json "$out/suspend.json"
}

phase_bench()
{
    cd "$build" || return 1
    if [ ! -e "$tree/bench/run.sh" ]; then
        echo "no bench/run.sh in the tarball"
        return 1
    fi
    mkdir -p "$out/bench"
    builddir=$build bash "$tree/bench/run.sh" "$out/bench"
}

# Sets python, and what it needs; 77 without torch.
with_torch()
{
    python=${PYTHON:-python3}
    if ! "$python" -c 'import torch' 2> /dev/null; then
        echo "$python has no torch"
        return 77
    fi
    export PYTHONPATH=$tree/hosts/pytorch${PYTHONPATH:+:$PYTHONPATH}
    export GRAPHHOOKS_LIBRARY=$build/.libs/libgraphhooks.so.0
}

# example NAME FILE OPTION...: one program, in all modes.
example()
{
    local name=$1 file=$2
    shift 2

    # shellcheck disable=SC2086 # words or none
    "$python" ${launcher-} "$tree/hosts/pytorch/examples/$name.py" \
        --compare off,layer,chunk --steps 50 --microbatches 4,6,8,3 "$@" \
        --json "$out/examples/$file.json"
}

phase_examples()
{
    local python launcher='' suffix='' names=train_gpt name rc=0

    with_torch || return
    mkdir -p "$out/examples"
    if "$python" -c 'import torch, sys
sys.exit(torch.cuda.device_count() < 2)'; then
        launcher='-m torch.distributed.run --standalone --nproc-per-node 2'
        suffix=_ddp
    elif "$python" -c 'import megatron.core' 2> /dev/null; then
        names='train_gpt megatron_gpt'
    fi
    for name in $names; do
        example "$name" "$name$suffix" --dropout 0 --in-flight 1 || rc=1
        example "$name" "$name${suffix}_dropout" \
            --dropout 0.1 --in-flight 3 || rc=1
    done
    return "$rc"
}

phase_peers()
{
    local python

    with_torch || return
    cd "$build" || return 1
    mkdir -p "$out/peers"
    # shellcheck disable=SC2086 # a list of words
    "$python" "$tree/bench/peers/run.py" "$out/peers" ${PEERS-}
}

phase_sanitizer()
{
    local tool

    tool=$(command -v compute-sanitizer ||
        ls /usr/local/cuda/bin/compute-sanitizer 2> /dev/null)
    if [ -z "$tool" ]; then
        echo "no compute-sanitizer here"
        return 77
    fi
    cd "$build" || return 1
    "$tool" --tool memcheck --error-exitcode 9 --leak-check full \
        ./gh-engine --driver cuda --model gpt --steps 4 --microbatches 4,3 \
        --compare eager,graph --json "$out/sanitizer.json"
}

# ---- main ----------------------------------------------------------------

from=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export from
export -f phase_build phase_check phase_demo phase_bench phase_peers
export -f phase_sanitizer phase_examples with_torch example
declare -A limit=([build]=180 [check]=420 [demo]=60 [bench]=420
    [examples]=400 [peers]=1500 [sanitizer]=240)
summary=""
failed=0

for phase; do
    if [ -z "${limit[$phase]-}" ]; then
        echo "gpu-check.sh: no phase $phase" >&2
        exit 2
    fi
    override=LIMIT_${phase^^}
    start=$SECONDS
    timeout -k 10 "${!override:-${limit[$phase]}}" \
        bash -uo pipefail -c "phase_$phase" > "$out/$phase.log" 2>&1 < /dev/null
    rc=$?
    seconds=$((SECONDS - start))

    case $rc in
    0) said=ok ;;
    77) said=skipped ;;
    124 | 137) said="out of time" ;;
    *) said="failed ($rc)" ;;
    esac
    printf '%-10s %-12s %4d s\n' "$phase" "$said" "$seconds"
    if [ $rc -ne 0 ] && [ $rc -ne 77 ]; then
        failed=1
        tail -n 25 "$out/$phase.log" | sed 's/^/    /'
    fi
    summary+="${summary:+,}
  {\"phase\": \"$phase\", \"result\": \"$said\", \"seconds\": $seconds}"
    printf '[%s\n]\n' "$summary" > "$out/summary.json"
done
exit $failed
