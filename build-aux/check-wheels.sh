#!/bin/sh
# check-wheels.sh - whether the wheels of wheels.sh work; --help says how.
# SPDX-License-Identifier: Apache-2.0
set -u

usage()
{
    cat << 'END'
usage: build-aux/check-wheels.sh OUT

Takes the wheels that build-aux/wheels.sh has left in OUT.  That of this machine
is installed in a fresh environment, where the package says what it has and
trains on the software device.  That of another machine is unpacked, and under
qemu-user (Debian: qemu-user, libc6-arm64-cross) gh-engine trains with its
library, and the programs of tests/unit and tests/session run, in a quarter of
an hour on two cores.

PYTHON is the interpreter, python3 by default; WORK that of wheels.sh, and JOBS.
TESTS are the programs that run instead, as make check takes them.

The last line says "N passed, N failed, N skipped".
END
}

case ${1-} in
-h | --help)
    usage
    exit 0
    ;;
'' | -*)
    usage >&2
    exit 2
    ;;
esac
top=$(cd "$(dirname "$0")/.." && pwd)
work=${WORK:-$top/build/wheels}
out=$(cd "$1" && pwd) || exit 2
python=${PYTHON:-python3}
jobs=${JOBS:-$(nproc 2> /dev/null || echo 1)}
passed=0 failed=0 skipped=0
to_a_second=tests/session/ranks/lost.t # its ranks have so long to come

scratch=$(mktemp -d "${TMPDIR:-/tmp}/graphhooks.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM

# Nothing of the caller's leads elsewhere.
unset PYTHONPATH PYTHONHOME LD_LIBRARY_PATH
for name in $(env | sed -n 's/^\(GRAPHHOOKS_[A-Z0-9_]*\)=.*/\1/p'); do
    unset "$name"
done

# point NAME COMMAND...: shows what a command says when it fails.
point()
{
    point=$1
    shift
    if "$@" > "$scratch/log" 2>&1 < /dev/null; then
        echo "ok - $point"
        passed=$((passed + 1))
    else
        tail -n 20 "$scratch/log"
        echo "not ok - $point"
        failed=$((failed + 1))
    fi
}

# Says where the library is from, and replays passes.
train='
import os, sys
sys.path.append(sys.argv[1])  # softdevice.py
import graphhooks
from graphhooks import _library
from softdevice import SoftDevice, Toy, beside
path = _library.load().path
assert path.startswith(sys.prefix + os.sep), path
device = SoftDevice(beside(path))
toy = Toy(device)
for step, count in enumerate((4, 6, 8, 3)):
    toy.step(count, seed=100 * step)
stats = toy.session.stats()
toy.close()
device.close()
assert stats["replays"] > stats["recordings"] > 0, stats
assert device.left_over() == {} and device.races() == []
'

natively()
{
    "$python" -m venv "$scratch/venv" || return 1
    fresh=$scratch/venv/bin/python
    point "$arch: pip installs the wheel in a fresh environment" \
        "$fresh" -m pip install -q --no-index --disable-pip-version-check "$1"
    cd "$scratch" || return 1 # where no graphhooks is
    point "$arch: python -m graphhooks info finds a device" \
        sh -c "$fresh -m graphhooks info | grep 'soft  *usable'"
    point "$arch: a training on the software device replays" \
        "$fresh" -c "$train" "$top/tests/torch/package"
    cd "$top" || return 1
}

# The engine and the tests are of the build that the wheel was made of; the
# library of the demo is the wheel's.
under_qemu()
{
    root=/usr/$arch-linux-gnu
    if ! command -v "qemu-$arch" > "$scratch/log" || [ ! -d "$root" ]; then
        echo "$arch: there is no qemu-$arch with a libc in $root:" \
            "apt-get install qemu-user libc6-arm64-cross"
        skipped=$((skipped + 1))
        return
    fi
    build=$work/$arch
    point "$arch: gh-engine builds" make -s -C "$build" -j"$jobs"
    "$python" -m zipfile -e "$1" "$scratch/$arch" || return 1
    point "$arch: gh-engine trains to the same bits with graphs and offload" \
        env LD_LIBRARY_PATH="$scratch/$arch/graphhooks/lib" \
        "qemu-$arch" -L "$root" "$build/gh-engine" --driver soft --quiet \
        --steps 6 --microbatches 2,3 --compare eager,graph,graph+offload
    start=$(date +%s)
    make -s -C "$build" -j"$jobs" -k check \
        TESTS="${TESTS:-$(make -s -C "$build" print-programs |
            grep -E '^tests/(unit|session)/' | grep -vxF "$to_a_second" |
            tr '\n' ' ')}" \
        T_LOG_COMPILER="sh ./libtool --mode=execute qemu-$arch -L $root" \
        > "$scratch/tests" 2>&1
    grep -E '^(FAIL|ERROR):' "$scratch/tests"
    line=$(grep -E '^# (PASS|FAIL|ERROR|SKIP|XPASS):' "$scratch/tests" |
        tr -d '#:' | tr '\n' ' ')
    echo "$arch: tests under qemu: $line$(($(date +%s) - start)) s"
    passed=$((passed + $(number PASS)))
    failed=$((failed + $(number FAIL) + $(number ERROR)))
    skipped=$((skipped + $(number SKIP)))
    if [ "$(number PASS)" -eq 0 ]; then
        tail -n 20 "$scratch/tests"
        failed=$((failed + 1))
    fi
}

# number WORD: of automake's summary.
number()
{
    found=$(sed -n "s/^# $1: *//p" "$scratch/tests" | head -n 1)
    echo "${found:-0}"
}

for wheel in "$out"/graphhooks-*-manylinux_*.whl; do
    [ -e "$wheel" ] || {
        echo "there is no wheel in $out; build-aux/wheels.sh builds them"
        failed=$((failed + 1))
        break
    }
    arch=$(basename "$wheel" .whl | sed 's/.*-manylinux_[0-9]*_[0-9]*_//')
    if [ "$arch" = "$(uname -m)" ]; then
        natively "$wheel" || failed=$((failed + 1))
    else
        under_qemu "$wheel" || failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
