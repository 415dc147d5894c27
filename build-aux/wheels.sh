#!/bin/sh
# wheels.sh - the wheels of a release, for all machines; --help says how.
#
# zig is the compiler, as it has the headers and stubs of each glibc, and of
# each machine.  build-wheel.sh checks what comes out.
#
# SPDX-License-Identifier: Apache-2.0
set -eu

usage()
{
    cat << 'END'
usage: build-aux/wheels.sh OUT [ARCH...]

Leaves a wheel for glibc 2.28 or later and any Python 3 in OUT for each ARCH,
x86_64 and aarch64 by default: graphhooks-VERSION-py3-none-manylinux_2_28_ARCH.whl.
The names are the last lines.  A minute for each on one core.

PYTHON is the interpreter, python3 by default.  If it lacks ziglang, which is
the compiler, or setuptools, pip installs both into WORK/tools.  WORK is where
it builds (default: build/wheels), and is kept: a second call compiles what has
changed.  JOBS goes to make.  Wheels of one commit are equal, byte by byte.
END
}

die()
{
    echo "wheels.sh: $*" >&2
    exit 1
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
out=$1
shift
[ $# -gt 0 ] || set -- x86_64 aarch64
for arch in "$@"; do
    case $arch in
    x86_64 | aarch64) ;;
    *) die "there is no wheel for $arch: x86_64 and aarch64 are known" ;;
    esac
done

glibc=2.28
zig=0.17.1 # of which the wheels were checked
top=$(cd "$(dirname "$0")/.." && pwd)
work=${WORK:-$top/build/wheels}
python=${PYTHON:-python3}
mkdir -p "$out" "$work"
out=$(cd "$out" && pwd)
work=$(cd "$work" && pwd)
log=$work/wheels.log
: > "$log"

# logged COMMAND...: shows the end of what a command said when it fails.
logged()
{
    "$@" >> "$log" 2>&1 < /dev/null || {
        tail -n 20 "$log" >&2
        die "failed: $* (all of it: $log)"
    }
}

(cd / && "$python" -W ignore -c 'import setuptools.command.bdist_wheel, ziglang'
) > /dev/null 2>&1 || {
    "$work/tools/bin/python" -c "import ziglang" > /dev/null 2>&1 || {
        logged "$python" -m venv "$work/tools"
        logged "$work/tools/bin/python" -m pip --disable-pip-version-check \
            install -q "ziglang==$zig" "setuptools>=70.1"
    }
    python=$work/tools/bin/python
}
python=$(command -v "$python")

[ -e "$top/configure" ] || (cd "$top" && logged autoreconf -fi)
[ ! -e "$top/config.status" ] ||
    die "the source tree itself is configured; make distclean there first"

# Of a file in a wheel the time is part of it.
if [ -z "${SOURCE_DATE_EPOCH-}" ]; then
    SOURCE_DATE_EPOCH=$(git -C "$top" log -1 --format=%ct 2> /dev/null ||
        date -r "$top/configure.ac" +%s)
fi
export SOURCE_DATE_EPOCH

for arch in "$@"; do
    build=$work/$arch
    mkdir -p "$build"
    # libtool and configure want one word.  Where nothing asks for -O, zig adds
    # 4 MB of a sanitizer to each file.
    printf '#!/bin/sh\nexec "%s" -m ziglang cc -target %s-linux-gnu.%s %s "$@"\n' \
        "$python" "$arch" "$glibc" -fno-sanitize=undefined > "$build/cc.new"
    chmod +x "$build/cc.new"
    if ! cmp -s "$build/cc.new" "$build/cc" || [ ! -e "$build/Makefile" ]; then
        mv "$build/cc.new" "$build/cc"
        # A strip of this machine knows no other's files, so the linker strips.
        (cd "$build" && logged "$top/configure" -q --host="$arch-linux-gnu" \
            --without-cuda --without-jansson CC="$build/cc" CFLAGS=-O2 \
            LDFLAGS=-s)
    fi
    rm -f "$build/cc.new"
    logged "${MAKE:-make}" -s -C "$build" \
        -j"${JOBS:-$(nproc 2> /dev/null || echo 1)}" in-wheel
done
for arch in "$@"; do
    STRIP=none PYTHON=$python sh "$top/hosts/pytorch/build-wheel.sh" \
        "$work/$arch" "$out" "manylinux_$(echo "$glibc" | tr . _)_$arch"
done
