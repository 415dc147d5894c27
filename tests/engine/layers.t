#!/bin/sh
# The folders of hosts/engine include each other as its layers.txt allows.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch

# Prints FILE:LINE:TEXT for each include of engine $1.  The files of kernels/
# are one source and name each other without the folder: it is put there.
includes()
{
    (cd "$1" && grep -n '^ *# *include *"' ./*/*.[ch]*) |
        sed -e 's|^\./||' -e 's|^\(kernels/[^"]*"\)\([^/"]*"\)|\1kernels/\2|'
}

# Prints a line for each include of engine $1 that its layers.txt forbids.
violations()
{
    includes "$1" |
        awk -v layers="$1/layers.txt" -f "$srcdir/build-aux/layers.awk"
}

# Prints the rules of file $1 that do not lead down its list.
upward()
{
    awk -F '[ :]+' '!/^#/ { line[$1] = NR; rule[NR] = $0 }
        END {
            for (n in rule) {
                count = split(rule[n], name, /[ :]+/)
                for (i = 2; i <= count; i++) {
                    if (name[i] in line && line[name[i]] <= n + 0) {
                        print name[1] " reads " name[i]
                    }
                }
            }
        }' "$1"
}

# Prints the rings that modules of engine $1 form: a header with its source.
rings()
{
    includes "$1" |
        sed 's/^\([^.]*\)\.[^"]*"\([^."]*\).*/\1 \2/' | awk '$1 != $2' |
        { tsort > /dev/null; } 2>&1
}

engine=$srcdir/hosts/engine

empty "$(violations "$engine")" "every include follows layers.txt"
empty "$(upward "$engine/layers.txt")" "layers.txt leads down its list only"
empty "$(rings "$engine")" "no modules include each other in a ring"

loose=$(cd "$engine" && ls ./*.[ch]* 2> /dev/null)
empty "$loose" "every source lies in a folder"
unlisted=$(cd "$engine" && for source in ./*/*.[ch]*; do
    dir=$(basename "$(dirname "$source")")
    grep -q "^$dir *:" layers.txt || echo "$dir"
done)
empty "$unlisted" "every folder of sources is in layers.txt"
hooks=$(cd "$engine" && grep -n '^ *# *include *<graphhooks' ./*/*.[ch]* |
    grep -v '^\./step/')
empty "$hooks" "only step/ includes the library's headers"

# The checks themselves, on a tree that breaks the rules.
wrong=$scratch/engine
mkdir -p "$wrong/model" "$wrong/step" "$wrong/other"
printf 'step : model\nmodel : device\ndevice : step\n' > "$wrong/layers.txt"
echo '#include "step/train.h"' > "$wrong/model/up.c"
echo '#include "beside.h"' > "$wrong/step/bare.c"
echo '#include "model/up.h"' > "$wrong/other/other.c"
violations "$wrong" > "$scratch/found"
grep -q '^model/up.c:1: model may not include step/train.h$' \
    "$scratch/found" &&
    grep -q '^step/bare.c:1: step may not include beside.h$' \
        "$scratch/found" &&
    grep -q '^other/other.c:1: other is not in layers.txt$' "$scratch/found"
ok $? "an include upwards, a bare name and an unknown folder are found"
[ "$(upward "$wrong/layers.txt")" = "device reads step" ]
ok $? "a rule that leads upwards is found"

echo '#include "step/b.h"' > "$wrong/step/a.c"
echo '#include "step/a.h"' > "$wrong/step/b.h"
rings "$wrong" | grep -q 'step/b'
ok $? "a ring of two modules is found"

done_testing
