#!/usr/bin/env bash
# torch-matrix.sh - the tests of tests/torch/attach on several torch versions.
#
#     build-aux/torch-matrix.sh [--core | --megatron] BUILD [VERSION...]
#
# BUILD is the folder in which make ran.  A VERSION is such as 2.12.1, or
# newest; without one, the newest of each minor release from 2.11 on that pip
# finds.  Each version gets a virtual environment of its own, into which pip
# installs it: 6 GB and a minute or two.  Where torch sees no GPU,
# tests/torch/attach/softtorch.py stands in for one.
#
# --core runs those files alone that tell most about a version, and of each test
# three cases at most (MOST=3): a sixth of the time.
#
# --megatron runs those of tests/megatron, with the Megatron-Core of
# hosts/pytorch/graphhooks/megatron/names.py, of which pip installs the Python
# code alone.  Where pip cannot, they are skipped.
#
# A line for each version has its counts, and the last line adds them up; it
# exits 0 when something passed and nothing failed.  What pytest says is in
# LOGS/torch-VERSION.log.
#
#     CACHE=DIR    where the environments are (default: BUILD/torch-versions, as
#                  a folder named torch would hide the package); one that is
#                  there is used as it is
#     LOGS=DIR     default: BUILD
#     PYTHON=      the interpreter (python3), of 3.10 or later
#     JOBS=N       tests at once (every core, 8 at most)
#     MOST=N       of each test, N of its cases at most
#
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail

first=2.11
core="training accumulation arguments checkpoint chunk compiled ddp
    gradients hooks library modes off options order part random replay
    threads versions"

usage()
{
    sed -n '2,/^# SPDX/{/SPDX/d;s/^# \{0,1\}//;p}' "$0"
}

die()
{
    echo "torch-matrix.sh: $*" >&2
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
}

# ---- versions --------------------------------------------------------------

# Prints those that pip finds, the newest first, one a line.
all_versions()
{
    "$python" -m pip --disable-pip-version-check index versions torch \
        2> "$logs/pip-index.log" |
        sed -n 's/^Available versions: //p' | tr -d ' ' | tr ',' '\n'
}

# Prints the newest of each minor release, the oldest first.
one_of_each_minor()
{
    all_versions | awk -F. -v first="$first" '
        BEGIN { split(first, least, ".") }
        $1 < least[1] || ($1 == least[1] && $2 < least[2]) { next }
        !seen[$1 "." $2]++' | sort -V
}

# ---- one version -----------------------------------------------------------

# install VERSION FOLDER: an environment that has it and what runs the tests.
# uv takes a third of pip's time, which is a minute; where it cannot, pip does.
install()
{
    local version=$1 folder=$2
    local packages=("torch==$version" numpy pytest pytest-xdist)
    local pip=("$folder/bin/python" -m pip --disable-pip-version-check
        install -q)

    [ ! -e "$folder/complete" ] || return 0
    rm -rf "$folder"
    "$python" -m venv "$folder" && {
        { "${pip[@]}" uv && "$folder/bin/uv" pip install -q --no-cache \
            --compile-bytecode --python "$folder/bin/python" \
            "${packages[@]}"; } || "${pip[@]}" "${packages[@]}"
    } && touch "$folder/complete"
}

# install_megatron FOLDER: Megatron-Core, into that environment.  Its wheel is
# made for an interpreter of its own, and what it needs is for a GPU; the
# layers are in Python, and need two packages.
install_megatron()
{
    local folder=$1 version
    local names=$top/hosts/pytorch/graphhooks/megatron/names.py

    [ ! -e "$folder/megatron/complete" ] || return 0
    version=$(sed -n 's/^CHECKED = .*"\([0-9.]*\)",*)$/\1/p' "$names")
    rm -rf "$folder/megatron"
    "$folder/bin/python" -m pip --disable-pip-version-check install \
        -q --retries 1 packaging einops &&
        "$folder/bin/python" -m pip --disable-pip-version-check install \
            -q --retries 1 --target "$folder/megatron" --no-deps \
            --python-version 3.12 --ignore-requires-python \
            --only-binary=:all: "megatron-core==$version" &&
        touch "$folder/megatron/complete"
}

# run_tests FOLDER SCRATCH: in words of pytest.
run_tests()
{
    local folder=$1 scratch=$2

    env -u PYTHONPATH ${megatron:+PYTHONPATH="$folder/megatron"} \
        PYTHONDONTWRITEBYTECODE=1 builddir="$build" \
        "$folder/bin/python" -m pytest -q -rfEs --tb=short -n "$jobs" \
        -p no:cacheprovider -c /dev/null --rootdir "$root" \
        ${MOST:+--most "$MOST"} \
        --basetemp "$scratch/tmp" "${tests[@]}"
}

# Prints the line in which pytest adds up, if it came to that.
summary()
{
    grep -E '^[0-9]+ [a-z]+.* in [0-9.]+s' "$1" | tail -n 1
}

# count WORD LINE: how many tests that line says to have done so.
count()
{
    grep -o -E "[0-9]+ $1" <<< "$2" | cut -d ' ' -f 1 || echo 0
}

# miss WHY: of Megatron-Core a machine without an index says nothing.
miss()
{
    echo "$1${megatron:+, so tests/megatron is skipped}"
    if [ -n "$megatron" ]; then
        skipped=$((skipped + 1))
    else
        failed=$((failed + 1))
    fi
}

# check VERSION: its tests, and its line.
check()
{
    local version=$1 folder=$cache/$1 start=$SECONDS
    local log=$logs/torch-$1${megatron:+-megatron}.log
    local good bad missed scratch line

    if ! install "$version" "$folder" > "$log" 2>&1; then
        tail -n 5 "$log"
        miss "torch $version: it could not be installed"
        return
    fi
    if [ -n "$megatron" ] && ! install_megatron "$folder" >> "$log" 2>&1; then
        tail -n 5 "$log"
        miss "torch $version: pip could not install megatron-core for it"
        return
    fi
    scratch=$(mktemp -d)
    run_tests "$folder" "$scratch" >> "$log" 2>&1
    rm -rf "$scratch"

    line=$(summary "$log")
    good=$(count passed "$line")
    bad=$(($(count failed "$line") + $(count 'errors?' "$line")))
    missed=$(count skipped "$line")
    if [ -z "$line" ]; then
        tail -n 20 "$log"
        bad=1 # it did not come to its end
    fi
    sed -n 's/^SKIPPED \[\([0-9]*\)\] [^ ]* /  skipped \1 x /p' "$log"
    grep -E '^(FAILED|ERROR) ' "$log"
    echo "torch $version: $good passed, $bad failed, $missed skipped," \
        "$((SECONDS - start)) s"
    passed=$((passed + good))
    failed=$((failed + bad))
    skipped=$((skipped + missed))
}

# ---- main ------------------------------------------------------------------

tests=()
megatron=
top=$(cd "$(dirname "$0")/.." && pwd)
root=$top/tests/torch/attach
case ${1-} in
--megatron)
    shift
    megatron=yes root=$top/tests/megatron
    tests=("$root")
    ;;
--core)
    shift
    MOST=${MOST:-3}
    for name in $core; do
        tests+=("$top/tests/torch/attach/test_$name.py")
    done
    ;;
-*)
    usage
    exit 2
    ;;
*)
    tests=("$top/tests/torch/attach")
    ;;
esac
if [ $# -lt 1 ]; then
    usage
    exit 2
fi

python=${PYTHON:-python3}
build=$(cd "$1" 2> /dev/null && pwd) || die "there is no folder $1"
shift
[ -e "$build/.libs/libgraphhooks.so.0" ] ||
    die "$build has no library: run make there first"
cache=${CACHE:-$build/torch-versions}
logs=${LOGS:-$build}
mkdir -p "$cache" "$logs" || exit 1
cache=$(cd "$cache" && pwd)
jobs=${JOBS:-$(nproc)}
[ -n "${JOBS-}" ] || [ "$jobs" -le 8 ] || jobs=8

if [ $# -eq 0 ]; then
    # shellcheck disable=SC2046 # a list of numbers
    set -- $(one_of_each_minor)
    [ $# -gt 0 ] || set -- newest # of which it is said
fi

passed=0 failed=0 skipped=0
for version in "$@"; do
    if [ "$version" = newest ]; then
        version=$(all_versions | head -n 1)
        if [ -z "$version" ]; then
            miss "pip finds no torch; $logs/pip-index.log says why"
            continue
        fi
    fi
    check "$version"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ -z "$megatron" ] || passed=$((passed + skipped)) # without an index
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
