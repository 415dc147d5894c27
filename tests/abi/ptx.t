#!/bin/sh
# PTX that comes with the sources was made of these sources.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch
cd "$srcdir" || exit 99

# Makefile.am's lists, the .cu of each first, separated by colons.
printf '%s\n' "${ptx_sources:?}" | tr ':' '\n' | sed 's/^ *//' \
    > "$scratch/made"

while read -r source others; do
    ptx=${source%.cu}.ptx
    # shellcheck disable=SC2086 # a list of files
    said=$(sh build-aux/ptx.sh --check "$ptx" $source $others 2>&1)
    empty "$said" "$ptx was made of $source as it is"
    late=$(awk '/^\.version/ { if ($2 > 7.4) print FILENAME ": " $0 }
                /^\.target/ { if ($2 != "sm_75") print FILENAME ": " $0 }' \
        "$ptx")
    empty "$late" "$ptx asks for no more than PTX 7.4 and sm_75"
done < "$scratch/made"

unchecked=$(find . -name '*.ptx' ! -name fresh.ptx ! -path './build/*' \
    ! -path './graphhooks-*' |
    sed 's|^\./||' | while read -r ptx; do
    grep -q "^${ptx%.ptx}\.cu " "$scratch/made" || echo "$ptx"
done)
empty "$unchecked" "every PTX file is checked here"

done_testing
