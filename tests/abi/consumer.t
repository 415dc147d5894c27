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
[ "$(find "$scratch/root" -path '*/doc/*' \( -name example.c \
    -o -name families.md -o -name llama3-8b.json \) | wc -l)" -eq 3 ]
ok $? "documents, descriptions and the family to copy are installed"

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

# A family outside of the tree, against what is installed: the example, as a
# gpt of the user's own.
bindir=$scratch/root/$(dirname "$(cd "$scratch/root" &&
    find . -name graphhooks-conform)")
mkdir "$scratch/mine"
sed 's/"example"/"gpt"/' "$srcdir/plugins/example.c" > "$scratch/mine/gpt.c"
# shellcheck disable=SC2086 # CC and flags are words
${CC:-cc} -std=c99 $strict -I"$include" -shared -fPIC -fvisibility=hidden \
    -o "$scratch/mine/gpt.so" "$scratch/mine/gpt.c" > "$scratch/out" 2>&1
ok $? "a family is built against the installed headers in C99"
diag < "$scratch/out"
"$bindir/graphhooks-conform" "$scratch/mine/gpt.so" > "$scratch/out" 2>&1
status=$?
ok $status "and conforms, says the installed graphhooks-conform"
[ $status -eq 0 ] || diag < "$scratch/out"

# engine NAME ARGUMENT...: the installed engine, telling what it finds.
engine()
{
    name=$1
    shift
    GRAPHHOOKS_LOG=info "$bindir/gh-engine" --driver soft --layers 2 \
        --hidden 8 --heads 2 --seq 4 --batch 1 --steps 3 --quiet "$@" \
        > "$scratch/out" 2>&1
    status=$?
    ok $status "$name"
    [ $status -eq 0 ] || diag < "$scratch/out"
}
engine "an installed host runs with the installed families"
grep -q "family gpt: $scratch/root/.*/graphhooks/gpt\.so" "$scratch/out"
ok $? "gpt is that beside the installed library"
GRAPHHOOKS_PLUGIN_PATH=$scratch/mine
export GRAPHHOOKS_PLUGIN_PATH
engine "an installed host runs with a user's gpt"
grep -qF "family gpt: $scratch/mine/gpt.so" "$scratch/out"
ok $? "which stands in for ours"
"$bindir/graphhooks" info > "$scratch/out" 2>&1
grep -qF "gpt, $scratch/mine/gpt.so" "$scratch/out" &&
    grep -q "mla, .*/graphhooks/mla\.so" "$scratch/out"
ok $? "graphhooks info lists the user's, and of ours those it does not hide"
unset GRAPHHOOKS_PLUGIN_PATH

if have "${CXX:-c++}"; then
    cat > "$scratch/mine/cxx.cc" << 'EOF'
#include <graphhooks/family.h>
static gh_status open(const gh_family_model *model, void **ctx, gh_error *)
{
    *ctx = const_cast<gh_family_model *>(model);
    return GH_OK;
}
static void close(void *) {}
static gh_status layer(void *ctx, uint32_t i, gh_family_layer *layer,
                       gh_error *err)
{
    if (static_cast<gh_family_model *>(ctx)->layers[i]->kind !=
        GH_LAYER_ATTN_ONLY) {
        err->text[0] = '?';
        err->text[1] = 0;
        return GH_ERR_UNSUPPORTED;
    }
    layer->n_parts = 1;
    layer->parts[0] = GH_PART_ATTN;
    layer->capturable = 1u << GH_PART_ATTN;
    return GH_OK;
}
GH_FAMILY_DEFINE = { sizeof(gh_family), 0, "cxx", open, close, layer, nullptr };
EOF
    # Linked by cc: it needs nothing of C++'s library.
    # shellcheck disable=SC2086
    "$CXX" -std=c++11 $strict -I"$include" -fPIC -fvisibility=hidden -c \
        -o "$scratch/mine/cxx.o" "$scratch/mine/cxx.cc" > "$scratch/out" 2>&1 &&
        ${CC:-cc} ${sanitize-} -shared -o "$scratch/mine/cxx.so" \
            "$scratch/mine/cxx.o" >> "$scratch/out" 2>&1 &&
        "$bindir/graphhooks-conform" "$scratch/mine/cxx.so" \
            >> "$scratch/out" 2>&1
    status=$?
    ok $status "a family in C++11 is built, and conforms"
    [ $status -eq 0 ] || diag < "$scratch/out"
else
    skip "a family in C++11: no C++ compiler"
fi

installed=$(cd "$include" && ls graphhooks.h graphhooks/*.h)
public=$(cd "$srcdir/include" && {
    ls graphhooks.h graphhooks/*.h
    echo graphhooks/softcuda.h
    echo graphhooks/softnccl.h
} | sort)
[ "$installed" = "$public" ]
ok $? "every public header is installed, those of the stand-ins, and no other"

done_testing
