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
qemu-user (Debian: qemu-user, libc6-arm64-cross) its gh-engine trains with its
library, and the programs of tests/unit and tests/session run, in a quarter of
an hour on two cores.

ROOTS are other systems of this machine, in which its wheel is tried too, by
root.  Each is a folder with python3 and its venv, as this makes:

    mmdebstrap --variant=minbase --include=python3,python3-venv bullseye DIR

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
roots=
for root in ${ROOTS-}; do
    root=$(cd "$root" && pwd) || exit 2
    roots="$roots $root"
done
python=${PYTHON:-python3}
jobs=${JOBS:-$(nproc 2> /dev/null || echo 1)}
passed=0 failed=0 skipped=0
runs='' others=
to_a_second=tests/session/ranks/lost.t # its ranks have so long to come

scratch=$(mktemp -d "${TMPDIR:-/tmp}/graphhooks.XXXXXX")
trap 'rm -rf "$scratch" "$others"' EXIT
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

# in_root COMMAND...: in a system of ROOTS with its /proc, else here.
in_root()
{
    if [ -n "$root" ]; then
        # shellcheck disable=SC2016 # it is for the other shell
        unshare --mount sh -c \
            'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"' "$root" "$@"
    else
        "$@"
    fi
}

# natively WHEEL [ROOT]
natively()
{
    root=${2-}
    what=$arch
    place=$scratch
    with=$python
    if [ -n "$root" ]; then
        what="$arch, $(. "$root/etc/os-release" && echo "$PRETTY_NAME")"
        others=$(mktemp -d "$root/tmp/graphhooks.XXXXXX") || return 1
        place=${others#"$root"}
        with=python3
    fi
    cp "$1" "$top/tests/torch/package/softdevice.py" "$root$place" || return 1
    fresh=$place/venv/bin/python
    point "$what: python3 makes a fresh environment" \
        in_root "$with" -m venv "$place/venv"
    cd "$scratch" || return 1 # where no graphhooks is
    point "$what: pip installs the wheel there" in_root "$fresh" -m pip \
        --disable-pip-version-check install -q --no-index \
        "$place/$(basename "$1")"
    point "$what: python -m graphhooks info finds a device" \
        in_root sh -c "$fresh -m graphhooks info | grep 'soft  *usable'"
    point "$what: the demo trains to the same bits with graphs" \
        in_root "$fresh" -m graphhooks demo --driver soft --quiet
    point "$what: a training in Python on the software device replays" \
        in_root "$fresh" -c "$train" "$place"
    rm -rf "$others"
    cd "$top" || return 1
}

# The tests are of the build that the wheel was made of; the engine and the
# library of the demo are the wheel's.
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
    "$python" -m zipfile -e "$1" "$scratch/$arch" || return 1
    engine=$scratch/$arch/graphhooks/bin/gh-engine
    chmod +x "$engine" # which zipfile forgets, and pip does not
    point "$arch: gh-engine trains to the same bits with graphs and offload" \
        "qemu-$arch" -L "$root" "$engine" --driver soft --quiet \
        --steps 6 --microbatches 2,3 --compare eager,graph,graph+offload
    start=$(date +%s)
    programs=${TESTS:-$(make -s -C "$build" print-programs |
        grep -E '^tests/(unit|session)/' | grep -vxF "$to_a_second" |
        tr '\n' ' ')}
    # shellcheck disable=SC2086 # a list of names
    make -s -C "$build" -j"$jobs" -k all $programs > "$scratch/log" 2>&1
    for program in $programs; do
        if [ -e "$build/$program" ]; then
            runs="$runs $program"
        elif make -s -C "$build" "$program" 2>&1 | grep -q 'flag: -z muldefs'
        then # it replaces functions of the library, which zig does not link
            echo "$arch: $program is skipped: zig does not link it"
            skipped=$((skipped + 1))
        else
            point "$arch: $program builds" make -s -C "$build" "$program"
        fi
    done
    make -s -C "$build" -j"$jobs" -k check TESTS="$runs" \
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
        for other in $roots; do
            natively "$wheel" "$other" || failed=$((failed + 1))
        done
    else
        under_qemu "$wheel" || failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
