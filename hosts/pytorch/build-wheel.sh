#!/bin/sh
# build-wheel.sh - the Python package with the library inside; --help says how.
#
# The wheel is built in a temporary copy: the source tree may be read-only, and
# stays clean.  Nothing is downloaded.
#
# SPDX-License-Identifier: Apache-2.0
set -eu

usage()
{
    cat << 'END'
usage: hosts/pytorch/build-wheel.sh BUILD OUT [PLATFORM]

Takes the library, the families, the software device and gh-engine, which is the
demo, from the build tree BUILD and leaves graphhooks-VERSION-py3-none-PLATFORM.whl in OUT; its name is
the last line.

PLATFORM is linux_ARCH of this machine by default.  Of one like
manylinux_2_28_x86_64 it is checked with readelf that all of these are for that
machine, and need libc alone, of that release or an older one.
build-aux/wheels.sh builds such.

PYTHON is the interpreter, python3 by default.  It needs setuptools of 70.1 or
later, or of 61 or later and wheel:

    python3 -m pip install -U setuptools wheel
    PYTHON=/path/to/venv/bin/python hosts/pytorch/build-wheel.sh BUILD OUT

STRIP is what strips them, strip by default.
END
}

die()
{
    echo "build-wheel.sh: $*" >&2
    exit 1
}

case ${1-} in
-h | --help)
    usage
    exit 0
    ;;
esac
if [ $# -ne 2 ] && [ $# -ne 3 ]; then
    usage >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
build=$1
out=$2
platform=${3:-linux_$(uname -m)}
strip=${STRIP:-strip}
python=${PYTHON:-python3}
case $python in
/*) ;;
*/*) python=$PWD/$python ;; # it is called from other folders
esac

# check_glibc FILE: that it is what a manylinux_X_Y_ARCH has to be, of which
# tags are no promise.
check_glibc()
{
    name=$(basename "$1")
    most=$(echo "$platform" | sed 's/^manylinux_\([0-9]*\)_\([0-9]*\)_.*/\1.\2/')
    arch=${platform#manylinux_*_*_}
    machine=$(readelf -h "$1" | sed -n 's/^ *Machine: *//p')
    case $arch:$machine in
    x86_64:*X86-64 | aarch64:AArch64) ;;
    *) die "$name is for $machine, and the wheel would say $arch" ;;
    esac
    needs=$(readelf -W --dyn-syms "$1" |
        sed -n 's/.* UND \([^@ ]*\)@\(GLIBC_[0-9.]*\).*/\2 \1/p' |
        sort -V | tail -n 1)
    newest=$(printf '%s\nGLIBC_%s\n' "${needs% *}" "$most" | sort -V | tail -n 1)
    [ "$newest" = "GLIBC_$most" ] ||
        die "$name needs ${needs#* } of ${needs% *}, and $platform promises" \
            "$most at most; build-aux/wheels.sh builds for an older glibc"
    other=$(readelf -d "$1" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' |
        grep -v -E '^(lib(c|m|dl|pthread|rt)\.so\.[0-9]|ld-linux)' |
        paste -s -d ' ' -)
    [ -z "$other" ] || die "$name needs $other, which $platform does not promise"
}

# Before anything is made; elsewhere, where no folder is named like a module.
(cd / && "$python" -W ignore -c '
import sys
from importlib.util import find_spec
if not find_spec("setuptools"):
    sys.exit(1)
import setuptools
own = find_spec("setuptools.command.bdist_wheel") or find_spec("wheel")
sys.exit(int(setuptools.__version__.split(".")[0]) < 61 or not own)
') > /dev/null 2>&1 ||
    die "$python cannot build a wheel: python3 -m pip install -U setuptools" \
        "wheel, or PYTHON=... build-wheel.sh"

[ -e "$build/.libs/libgraphhooks.so.0" ] ||
    die "$build/.libs has no libgraphhooks.so.0; run make there first"
[ -e "$build/gh-engine" ] ||
    die "$build has no gh-engine, which is the demo; run make there first"

stage=$(mktemp -d "${TMPDIR:-/tmp}/graphhooks.XXXXXX")
trap 'rm -rf "$stage"' EXIT
trap 'exit 1' HUP INT TERM

mkdir -p "$stage/graphhooks/lib/graphhooks"
cp "$here/pyproject.toml" "$here/README.md" "$stage"
cp "$here"/graphhooks/*.py "$stage/graphhooks"
(cd "$here" && find graphhooks/*/ -name "*.py") | while read -r file; do
    mkdir -p "$stage/$(dirname "$file")"
    cp "$here/$file" "$stage/$file"
done
chmod -R u+w "$stage"

# As in a prefix: gh-engine looks for the others from where it is.
mkdir -p "$stage/graphhooks/bin" "$stage/graphhooks/share/graphhooks/text"
cp -L "$build/gh-engine" "$stage/graphhooks/bin"
cp "$here/../engine/data/shakespeare.txt" \
    "$stage/graphhooks/share/graphhooks/text"
lib=$stage/graphhooks/lib
cp -L "$build/.libs/libgraphhooks.so.0" "$lib"
cp -L "$build/.libs/libgraphhooks-softcuda.so" "$lib/graphhooks"
for family in "$build"/plugins/.libs/*.so; do
    [ -e "$family" ] || die "$build/plugins has no families; run make there"
    cp -L "$family" "$lib/graphhooks"
done
if command -v "$strip" > /dev/null 2>&1; then
    "$strip" --strip-unneeded "$lib"/*.so.* "$lib"/graphhooks/*.so \
        "$stage/graphhooks/bin/gh-engine"
fi

case $platform in
manylinux_*)
    command -v readelf > /dev/null 2>&1 ||
        die "there is no readelf to check a wheel for $platform with:" \
            "apt-get install binutils"
    for file in "$lib"/*.so.* "$lib"/graphhooks/*.so \
        "$stage/graphhooks/bin/gh-engine"; do
        check_glibc "$file"
    done
    ;;
esac

# No part of it is for one Python, yet it is for one kind of machine.
printf '[bdist_wheel]\nplat_name = %s\n' "$platform" \
    > "$stage/setup.cfg"
mkdir "$stage/made"
(cd "$stage" && "$python" -W ignore -c 'from setuptools import build_meta
build_meta.build_wheel("made")') > "$stage/log" 2>&1 || {
    tail -n 20 "$stage/log" >&2
    die "$python could not build the wheel"
}
mkdir -p "$out"
cp "$stage"/made/*.whl "$out"
out=$(cd "$out" && pwd)
echo "$out/$(basename "$stage"/made/*.whl)"
