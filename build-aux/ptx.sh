#!/bin/sh
# ptx.sh - compiles device code to PTX that every supported driver takes.
#
#     ptx.sh NVCC OUT SOURCE [DEPENDENCY...] [-- NVCC OPTIONS]
#
# nvcc writes the newest PTX version it knows, which an older driver refuses
# even where nothing new is used.  So the version line is lowered, and ptxas
# has to assemble the result for the oldest and for a current architecture.
# The first line has the checksum of everything that it was made of: without
# nvcc, --check says whether a PTX that came with the sources is theirs.
#
#     ptx.sh --check PTX SOURCE [DEPENDENCY...]
#
# SPDX-License-Identifier: Apache-2.0
set -eu

version=7.4 # of CUDA 11.4, the oldest driver that driver/load.c takes
arch=75

checksum()
{
    cat "$@" | cksum | tr ' ' '-'
}

if [ "${1-}" = --check ]; then
    ptx=$2
    shift 2
    if [ "$(head -n 1 "$ptx")" != "// sources $(checksum "$@")" ]; then
        echo "ptx.sh: $ptx was made of other sources; run make ptx" >&2
        exit 1
    fi
    exit 0
fi

if [ $# -lt 3 ]; then
    echo "usage: ptx.sh NVCC OUT SOURCE [DEPENDENCY...] [-- OPTIONS]" >&2
    exit 2
fi

nvcc=$1
out=$2
shift 2

source=$1
sum=$(
    for file; do
        [ "$file" = -- ] && break
        cat "$file"
    done | cksum | tr ' ' '-'
)
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    shift
done
[ $# -eq 0 ] || shift

raw=$out.raw$$
trap 'rm -f "$raw" "$raw.cubin"' EXIT
"$nvcc" -ptx -arch=compute_$arch "$@" -o "$raw" "$source"

{
    echo "// sources $sum"
    sed -e "s/^\.version .*/.version $version/" "$raw"
} > "$out.tmp$$"

ptxas=$(dirname "$nvcc")/ptxas
if [ -x "$ptxas" ]; then
    for sm in $arch 90; do
        if ! "$ptxas" -arch="sm_$sm" -o "$raw.cubin" "$out.tmp$$"; then
            rm -f "$out.tmp$$"
            echo "ptx.sh: $source needs more than PTX $version" >&2
            exit 1
        fi
    done
fi
mv "$out.tmp$$" "$out"
