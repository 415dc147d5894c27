#!/bin/sh
# PTX that comes with the sources was made of these sources.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch
cd "$srcdir" || exit 99

# Lists of the build, the .cu of each first, separated by colons.
printf '%s\n' "${ptx_sources:?}" | tr ':' '\n' | sed 's/^ *//' \
    > "$scratch/made"

while read -r source others; do
    ptx=${source%.cu}.ptx
    if [ -e "$ptx.gz" ]; then
        gzip -dc "$ptx.gz" > "$scratch/kernels.ptx"
        ptx=$scratch/kernels.ptx
    fi
    # shellcheck disable=SC2086 # a list of files
    said=$(sh build-aux/ptx.sh --check "$ptx" $source $others 2>&1)
    empty "$said" "the PTX of $source was made of it as it is"
    late=$(awk '/^\.version/ { if ($2 > 7.4) print FILENAME ": " $0 }
                /^\.target/ { if ($2 != "sm_75") print FILENAME ": " $0 }' \
        "$ptx")
    empty "$late" "the PTX of $source asks for no more than PTX 7.4 and sm_75"
done < "$scratch/made"

unchecked=$(find . '(' -name '*.ptx' -o -name '*.ptx.gz' ')' \
    ! -name fresh.ptx ! -path './build/*' ! -path './graphhooks-*' |
    sed 's|^\./||; s|\.gz$||' | while read -r ptx; do
    grep -q "^${ptx%.ptx}\.cu " "$scratch/made" || echo "$ptx"
done)
empty "$unchecked" "every PTX file is checked here"

done_testing
