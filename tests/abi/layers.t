#!/bin/sh
# lib/ and softcuda/ include as their layers.txt allow, and lib/ calls so, too.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch

# Prints a line for each include of directory $2 in tree $1 that the
# directory's layers.txt forbids.
violations()
{
    (cd "$1" && find "$2" -name '*.[ch]' -exec grep -n '^ *# *include *"' \
        /dev/null {} +) |
        awk -v layers="$1/$2/layers.txt" -f "$srcdir/build-aux/layers.awk"
}

empty "$(violations "$srcdir" lib)" "every include follows lib/layers.txt"
empty "$(violations "$srcdir" softcuda)" \
    "every include follows softcuda/layers.txt"

empty "$(violations "$srcdir" softnccl)" \
    "every include follows softnccl/layers.txt"

# Prints the objects in folder $1 of a build whose sources are there: a file
# that has moved leaves its object behind.
objects_of()
{
    find "$1" -name 'lib*_la-*.o' | while read -r object; do
        source=$(echo "$object" |
            sed 's,.*/lib/,lib/,; s,\.libs/,,; s,lib[a-z]*_la-,,; s,\.o$,.c,')
        [ ! -f "$srcdir/$source" ] || echo "$object"
    done
}

# Prints a line for each call of the objects in folder $1 that goes up or
# leads back.
calls()
{
    objects_of "$1" | xargs nm -A 2> /dev/null |
        awk -v layers="$srcdir/lib/layers.txt" -f "$srcdir/build-aux/calls.awk"
}

objects=${builddir:-.}/lib
if ! have nm; then
    skip "no nm to read calls with"
elif [ -z "$(find "$objects" -name 'lib*_la-*.o' | head -n 1)" ]; then
    skip "no objects of the library"
else
    empty "$(calls "$objects")" "calls go down lib/layers.txt, without a circle"
    [ "$(find "$objects" -name 'libcore_la-*.o' -exec nm -A {} + 2> /dev/null |
        grep -c ' T gh_')" -gt 500 ]
    ok $? "the objects were read"
fi

# Prints each layer of list $1 that may include one further up.
upward()
{
    awk '/^#/ || !/:/ { next }
        {
            n = split($0, word, /[ :]+/)
            for (i = 2; i <= n; i++) {
                if (word[i] in above) {
                    print word[1], word[i]
                }
            }
            above[word[1]] = 1
        }' "$1"
}

[ "$(upward "$srcdir/softcuda/layers.txt")" = "capture stream" ]
ok $? "softcuda/layers.txt has one ring: a capture and its streams"

[ "$(upward "$srcdir/softnccl/layers.txt")" = "move match
report state" ]
ok $? "softnccl/layers.txt has two: a match moves, a communicator reports"

# Prints FILE:LINE:TEXT of what matches $1 in lib/, comment lines left out.
code_with()
{
    (cd "$srcdir" && find lib -name '*.[ch]' -exec grep -nE "$1" {} +) |
        grep -vE '^[^:]*:[0-9]+: *(/?\*|/\*)' | grep -v '/\*.*\*/ *$'
}

foreign=$(code_with '\b(CU[a-z]+ |cu[A-Z][A-Za-z]+ *\()' |
    grep -v '^lib/device/')
empty "$foreign" "no driver type or call is named outside lib/device"
foreign=$(code_with '\bnccl[A-Z]' | grep -v '^lib/comm/')
empty "$foreign" "and none of NCCL outside lib/comm"

# By <> a header of lib/ would pass the check of includes.
angled=$(cd "$srcdir" && for room in lib/*/; do
    find lib -name '*.[ch]' -exec \
        grep -nE "^ *# *include *<$(basename "$room")/" {} +
done)
empty "$angled" "no header of lib/ is included by <>"

reads=$(code_with '\b(secure_)?getenv *\(|\benviron\b' | grep -v '^lib/config/')
empty "$reads" "only lib/config reads the environment"

unlisted=$(cd "$srcdir/lib" && find . -mindepth 1 -type d ! -path '*/.*' |
    while read -r dir; do
        grep -q "^${dir#./} *:" layers.txt || echo "$dir"
    done)
empty "$unlisted" "every directory of lib/ is in lib/layers.txt"

strange=$(for dir in "$srcdir"/tests/unit/*/; do
    dir=$(basename "$dir")
    [ -d "$srcdir/lib/$dir" ] || [ "$dir" = kernels ] ||
        [ "$dir" = softnccl ] || echo "$dir"
done)
empty "$strange" "tests/unit has the rooms of lib/, kernels and softnccl"

# The check itself, on a tree that breaks the rules.
mkdir -p "$scratch/lib/base" "$scratch/lib/plan"
cp "$srcdir/lib/layers.txt" "$scratch/lib"
echo '#include "plan/plan.h"' > "$scratch/lib/base/up.c"
echo '#include "driver/driver.h"' > "$scratch/lib/plan/driver.c"
echo '#include "device/private.h"' > "$scratch/lib/plan/private.c"
mkdir "$scratch/lib/memory"
echo '#include "device/private.h"' > "$scratch/lib/memory/private.c"
mkdir -p "$scratch/lib/offload/groups"
echo '#include "offload/move/move.h"' > "$scratch/lib/plan/part.c"
echo '#include "offload/move/move.h"' > "$scratch/lib/offload/groups/up.c"
[ "$(violations "$scratch" lib | wc -l)" -eq 6 ]
ok $? "includes against the flow, of the driver and of what is a room's own are found"
mkdir "$scratch/softcuda"
cp "$srcdir/softcuda/layers.txt" "$scratch/softcuda"
echo '#include "softcuda/engine.h"' > "$scratch/softcuda/race.h"
echo '#include "softcuda/soft.h"' > "$scratch/softcuda/new.c"
[ "$(violations "$scratch" softcuda | wc -l)" -eq 2 ]
ok $? "an include against the flow and a file without a layer are both found"

printf '%s\n' 'lib/base/up.o: U gh_plan' 'lib/plan/plan.o: 0 T gh_plan' \
    'lib/plan/plan.o: U gh_rule' 'lib/plan/rules.o: 0 T gh_rule' \
    'lib/plan/rules.o: U gh_plan' \
    'lib/offload/move/.libs/x_la-back.o: 0 T gh_back' \
    'lib/offload/groups/.libs/x_la-up.o: U gh_back' \
    'lib/capture/.libs/x_la-down.o: U gh_back' > "$scratch/calls"
[ "$(awk -v layers="$srcdir/lib/layers.txt" -f "$srcdir/build-aux/calls.awk" \
    "$scratch/calls" | wc -l)" -eq 4 ]
ok $? "calls up, of a room or its part, and a circle are found"

done_testing
