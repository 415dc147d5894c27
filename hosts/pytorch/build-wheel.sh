#!/bin/sh
# build-wheel.sh - the Python package with the library inside.
#
#     hosts/pytorch/build-wheel.sh BUILD OUT
#
# Takes the library, the families and the software device from a build tree
# and leaves graphhooks-VERSION-py3-none-linux_ARCH.whl in OUT; its name is the
# last line.  Needs setuptools, and wheel where setuptools is older than 70.1;
# nothing is downloaded.  PYTHON is the interpreter, python3 by default.
#
# SPDX-License-Identifier: Apache-2.0
set -eu

if [ $# -ne 2 ]; then
    echo "usage: build-wheel.sh BUILD OUT" >&2
    exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
build=$1
out=$2
python=${PYTHON:-python3}

die()
{
    echo "build-wheel.sh: $*" >&2
    exit 1
}

[ -e "$build/.libs/libgraphhooks.so.0" ] ||
    die "$build/.libs has no libgraphhooks.so.0; run make there first"
mkdir -p "$out"
out=$(cd "$out" && pwd)

stage=$(mktemp -d "${TMPDIR:-/tmp}/graphhooks.XXXXXX")
trap 'rm -rf "$stage"' EXIT
trap 'exit 1' HUP INT TERM

# The source tree may be read-only, and stays clean.
mkdir -p "$stage/graphhooks/lib/graphhooks"
cp "$here/pyproject.toml" "$here/README.md" "$stage"
cp "$here"/graphhooks/*.py "$stage/graphhooks"
mkdir "$stage/graphhooks/torch"
cp "$here"/graphhooks/torch/*.py "$stage/graphhooks/torch"
chmod -R u+w "$stage"

# As installed: what belongs to the library is in graphhooks/ beside it.
lib=$stage/graphhooks/lib
cp -L "$build/.libs/libgraphhooks.so.0" "$lib"
cp -L "$build/.libs/libgraphhooks-softcuda.so" "$lib/graphhooks"
for family in "$build"/plugins/.libs/*.so; do
    [ -e "$family" ] || die "$build/plugins has no families; run make there"
    cp -L "$family" "$lib/graphhooks"
done
if command -v strip > /dev/null 2>&1; then
    strip --strip-unneeded "$lib"/*.so.* "$lib"/graphhooks/*.so
fi

# No part of it is for one Python, yet it is for one kind of machine.
printf '[bdist_wheel]\nplat_name = linux_%s\n' "$(uname -m)" \
    > "$stage/setup.cfg"
(cd "$stage" && "$python" -c 'import sys
from setuptools import build_meta
print(build_meta.build_wheel(sys.argv[1]))' "$out") > "$stage/log" 2>&1 || {
    tail -n 20 "$stage/log" >&2
    die "$python could not build the wheel; it needs setuptools, and wheel" \
        "where setuptools is older than 70.1"
}
echo "$out/$(tail -n 1 "$stage/log")"
