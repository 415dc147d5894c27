#!/bin/sh
# What is installed can be built against and loaded, in C and in C++.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch

# Installed into a folder of the test's own, whatever the prefix is.
if ! (cd "${builddir:?}" && MAKEFLAGS='' ${MAKE:-make} install \
    DESTDIR="$scratch/root") > "$scratch/install.log" 2>&1; then
    ok 1 "make install works"
    tail -n 20 "$scratch/install.log" | diag
    done_testing
fi
ok 0 "make install works"

library=$(cd "$scratch/root" && find . -name libgraphhooks.so.0)
pc=$(cd "$scratch/root" && find . -name graphhooks.pc)
header=$(cd "$scratch/root" && find . -name graphhooks.h)
libdir=$scratch/root/$(dirname "$library")
include=$scratch/root/$(dirname "$header")

# builds NAME COMPILER FLAGS...: makes $scratch/program.
builds()
{
    name=$1
    shift
    "$@" "$srcdir/tests/abi/consumer.c" $late -o "$scratch/program" \
        > "$scratch/out" 2>&1
    status=$?
    ok $status "$name is built"
    [ $status -eq 0 ] || diag < "$scratch/out"
}

runs()
{
    said=$(LD_LIBRARY_PATH=$libdir "$scratch/program" 2>&1)
    ok $? "$1 runs"
    diag "$said"
    rm -f "$scratch/program"
}

strict="-Wall -Wextra -Werror -pedantic ${sanitize-}"

# shellcheck disable=SC2086 # flags are words
try()
{
    late="$flags -ldl"
    builds "$1 in C99" ${CC:-cc} -std=c99 $strict $cflags $define
    runs "$1 in C99"
    if have "${CXX:-c++}"; then
        late="-x none $flags -ldl"
        builds "$1 in C++11" "$CXX" -std=c++11 $strict $cflags $define -x c++
        runs "$1 in C++11"
    else
        skip "$1 in C++11: no C++ compiler"
        skip "$1 in C++11: no C++ compiler"
    fi
}

define=-DBY_DLOPEN
cflags=-I$include
flags=
try "a host that loads the library by dlopen"

PKG_CONFIG=${PKG_CONFIG:-pkg-config}
if have "$PKG_CONFIG"; then
    PKG_CONFIG_PATH=$scratch/root/$(dirname "$pc")
    PKG_CONFIG_SYSROOT_DIR=$scratch/root
    PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1
    PKG_CONFIG_ALLOW_SYSTEM_LIBS=1
    export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR
    export PKG_CONFIG_ALLOW_SYSTEM_CFLAGS PKG_CONFIG_ALLOW_SYSTEM_LIBS

    define=
    cflags=$("$PKG_CONFIG" --cflags graphhooks)
    flags=$("$PKG_CONFIG" --libs graphhooks)
    try "a host that links by pkg-config"

    plugindir=$("$PKG_CONFIG" --variable=plugindir graphhooks)
    case $plugindir in
    */graphhooks) ok 0 "pkg-config knows plugindir" ;;
    *) ok 1 "pkg-config knows plugindir" ;;
    esac
    version=$("$PKG_CONFIG" --modversion graphhooks)
    [ "$version" = "$(sed -n 's/^VERSION = //p' "$builddir/Makefile")" ]
    ok $? "pkg-config's version is the package's"
else
    skip "a host that links by pkg-config: no pkg-config"
fi

installed=$(cd "$include" && ls graphhooks.h graphhooks/*.h)
public=$(cd "$srcdir/include" && {
    ls graphhooks.h graphhooks/*.h
    echo graphhooks/softcuda.h
} | sort)
[ "$installed" = "$public" ]
ok $? "every public header is installed, the software device's, and no other"

done_testing
