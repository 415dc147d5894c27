#!/bin/sh
# The directories of lib/ include each other as lib/layers.txt allows.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch

# Prints a line for each include of tree $1 that its layers.txt forbids.
violations()
{
    (cd "$1" && grep -n '^ *# *include *"' lib/*/*.[ch]) |
        awk -v layers="$1/lib/layers.txt" -f "$srcdir/build-aux/layers.awk"
}

empty "$(violations "$srcdir")" "every include follows lib/layers.txt"

# Prints FILE:LINE:TEXT of what matches $1 in lib/, comment lines left out.
code_with()
{
    (cd "$srcdir" && grep -nE "$1" lib/*/*.[ch]) |
        grep -vE '^[^:]*:[0-9]+: *(/?\*|/\*)' | grep -v '/\*.*\*/ *$'
}

foreign=$(code_with '\b(CU[a-z]+ |cu[A-Z][A-Za-z]+ *\(|nccl[A-Z])' |
    grep -v '^lib/device/')
empty "$foreign" "no driver type or call is named outside lib/device"

reads=$(code_with '\b(secure_)?getenv *\(|\benviron\b' | grep -v '^lib/config/')
empty "$reads" "only lib/config reads the environment"

unlisted=$(for dir in "$srcdir"/lib/*/; do
    dir=$(basename "$dir")
    grep -q "^$dir *:" "$srcdir/lib/layers.txt" || echo "$dir"
done)
empty "$unlisted" "every directory of lib/ is in lib/layers.txt"

# The check itself, on a tree that breaks the rules.
mkdir -p "$scratch/lib/base" "$scratch/lib/plan"
cp "$srcdir/lib/layers.txt" "$scratch/lib"
echo '#include "plan/plan.h"' > "$scratch/lib/base/up.c"
echo '#include "driver/driver.h"' > "$scratch/lib/plan/driver.c"
[ "$(violations "$scratch" | wc -l)" -eq 2 ]
ok $? "an include against the flow and one of the driver are both found"

done_testing
