#!/bin/sh
# What is built has a guarded stack, and tables that nothing writes to.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch

for tool in nm readelf; do
    have $tool || skip_all "no $tool"
done
libs=${builddir:?}/.libs

# The file behind libtool's wrapper.
real()
{
    if [ -f "$libs/$1" ]; then
        echo "$libs/$1"
    else
        echo "$builddir/$1"
    fi
}

set -- "$libs/libgraphhooks.so" "$libs/libgraphhooks-softcuda.so" \
    "$libs/libsoftnccl.so" "$(real gh-engine)" "$(real graphhooks)" \
    "$(real graphhooks-conform)"
for family in "$srcdir"/plugins/*.c; do
    set -- "$@" "$builddir/plugins/.libs/$(basename "$family" .c).so"
done
for file; do
    name=$(basename "$file")
    readelf -W -d -l "$file" > "$scratch/read"
    grep -q 'GNU_RELRO' "$scratch/read" && grep -q -w 'NOW' "$scratch/read"
    ok $? "$name: its table of functions is read-only when it runs"
    grep 'GNU_STACK' "$scratch/read" | grep -q ' RW  '
    ok $? "$name: its stack cannot be executed"
    ! grep -q 'TEXTREL' "$scratch/read"
    ok $? "$name: the loader writes into no code"
done
for file in "$1" "$2" "$3" "$4" "$5"; do
    nm -D --undefined-only "$file" | grep -q '__stack_chk_fail'
    ok $? "$(basename "$file"): arrays on the stack are guarded"
done

done_testing
