#!/bin/sh
# The library exports its map, which is its headers, and needs only libc.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch

library=$builddir/.libs/libgraphhooks.so
softcuda=$builddir/.libs/libgraphhooks-softcuda.so
softnccl=$builddir/.libs/libsoftnccl.so
engine=$builddir/gh-engine
map=$srcdir/lib/graphhooks.map

for tool in nm readelf strip; do
    have $tool || skip_all "no $tool"
done

# NAME@@VERSION of every exported function and object.
nm -D --defined-only "$library" | awk '$2 != "A" { print $3 }' |
    sort > "$scratch/exported"
awk '/^[A-Z_0-9.]+ [{]/ { version = $1 }
     /^ +gh_[a-z0-9_]+;/ { sub(";", "", $1); print $1 "@@" version }' \
    "$map" | sort > "$scratch/mapped"
cat "$srcdir"/include/graphhooks/*.h | tr '\n' ' ' |
    grep -o 'GH_API [a-z][^;(]*([^;]*;' | sed 's/^[^(]*[ *]\(gh_[a-z0-9_]*\)(.*/\1/' |
    sort > "$scratch/declared"
sed 's/@@.*//' "$scratch/exported" > "$scratch/exported.names"

differs=$(diff "$scratch/mapped" "$scratch/exported")
empty "$differs" "the library exports exactly what graphhooks.map lists"
differs=$(diff "$scratch/declared" "$scratch/exported.names")
empty "$differs" "the library exports exactly what the public headers declare"
[ "$(wc -l < "$scratch/exported")" -ge 21 ]
ok $? "the library exports at least the 21 functions of ABI 0.1"
[ "$(readelf -d "$library" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')" = \
    libgraphhooks.so.0 ]
ok $? "the library's SONAME is libgraphhooks.so.0"

# A host that is linked asks for a function by its version too.
for old in "$srcdir"/tests/abi/old/graphhooks-*.h; do
    release=${old##*/graphhooks-}
    release=${release%.h}
    tr '\n' ' ' < "$old" | grep -o 'GH_API [a-z][^;(]*([^;]*;' |
        sed 's/^[^(]*[ *]\(gh_[a-z0-9_]*\)(.*/\1/' | sort > "$scratch/then"
    [ "$(wc -l < "$scratch/then")" -ge 21 ]
    ok $? "the functions of $release were read"
    awk -F '@@GRAPHHOOKS_|[.]' -v last="$release" '
        BEGIN { split(last, of, ".") }
        $2 < of[1] || $2 == of[1] && $3 <= of[2] { print $1 }' \
        "$scratch/exported" > "$scratch/stanzas"
    differs=$(diff "$scratch/then" "$scratch/stanzas")
    empty "$differs" "versions up to $release have the functions of $release"
done

foreign=$(nm -D --undefined-only "$library" | awk '{ print $NF }' |
    grep -E '^(cu[A-Z]|cuda|nccl|nvrtc|nvml)')
empty "$foreign" "the library refers to no CUDA or NCCL symbol"
streams=$(nm -D --undefined-only "$library" | awk '{ print $NF }' |
    grep -E '^(abort|exit|_exit|puts|printf|putchar|stdout|signal|sigaction|atexit|getenv|secure_getenv)(@|$)')
empty "$streams" "the library cannot abort, exit, print to stdout, install a handler or call getenv"

needed()
{
    readelf -d "$1" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p'
}

if [ -n "${sanitize-}" ]; then
    skip "a sanitized library needs its runtime"
    skip "a sanitized library is larger"
else
    more=$(needed "$library" |
        grep -v -e '^libc\.so' -e '^libdl\.so' -e '^ld-linux')
    empty "$more" "the library needs libc and libdl only"
    cp "$library" "$scratch/stripped"
    strip "$scratch/stripped"
    size=$(wc -c < "$scratch/stripped")
    [ "$size" -lt 524288 ]
    ok $? "the stripped library is under 512 KiB"
    diag "$size bytes"
fi

if [ -e "$softcuda" ]; then
    other=$(nm -D --defined-only "$softcuda" | awk '$2 != "A" { print $3 }' |
        grep -v -E '^(cu[A-Z]|softcuda_)')
    empty "$other" "the software device exports cu* and softcuda_* only"
    inside=$(nm "$softcuda" 2> /dev/null | awk '{ print $NF }' |
        grep '^gh_')
    empty "$inside" "the software device has nothing of the library in it"
fi
if [ -e "$softnccl" ]; then
    other=$(nm -D --defined-only "$softnccl" | awk '$2 != "A" { print $3 }' |
        grep -v -E '^(nccl[A-Z]|softnccl_)')
    empty "$other" "softnccl exports nccl* and softnccl_* only"
    more=$(needed "$softnccl" |
        grep -v -e '^libc\.so' -e '^libdl\.so' -e '^ld-linux')
    if [ -n "${sanitize-}" ]; then
        skip "a sanitized softnccl needs its runtime"
    else
        empty "$more" "softnccl needs libc only"
    fi
fi
for family in "$srcdir"/plugins/*.c; do
    family=$(basename "$family" .c)
    [ "$(nm -D --defined-only "$builddir/plugins/.libs/$family.so" |
        awk '$2 != "A" { print $3 }')" = graphhooks_family_v1 ]
    ok $? "$family exports its table and nothing else"
done
if [ -x "$engine" ]; then
    [ -e "$builddir/.libs/gh-engine" ] && engine=$builddir/.libs/gh-engine
    linked=$(needed "$engine" | grep -E 'graphhooks|cuda')
    empty "$linked" "the engine links neither the library nor a driver"
fi

done_testing
