#!/bin/sh
# layout.def has every struct, field and value of the public headers.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch

# The headers without comments, one declaration a line.
cat "$srcdir"/include/graphhooks/*.h | tr '\n' ' ' |
    sed 's|/\*|\n/*|g; s|\*/|*/\n|g' | grep -v '^/\*' | tr '\n' ' ' |
    sed 's/}/\n}/g; s/[;{},]/&\n/g; s/  */ /g' > "$scratch/flat"

awk '
    /typedef struct [a-z_]+ \{$/ { type = $(NF - 1); print type; next }
    / enum \{$/ { values = 1; next }
    /^ *\}/ { type = ""; values = 0; next }
    values && $1 ~ /^GH_/ { sub(/,/, "", $1); print $1; next }
    type != "" && depth == 0 {
        line = $0
        if (line ~ /\(\*[a-z_]+\)\(/) {
            match(line, /\(\*[a-z_]+\)\(/)
            print type "." substr(line, RSTART + 2, RLENGTH - 4)
            depth = line ~ /;$/ ? 0 : 1
            next
        }
        sub(/ *[;,]$/, "", line)
        sub(/\[.*/, "", line)
        sub(/.*[ *]/, "", line)
        if (line != "") {
            print type "." line
        }
        next
    }
    depth == 1 && /;$/ { depth = 0 }
' "$scratch/flat" | sort > "$scratch/declared"

sed -n -e 's/^STRUCT(\([a-z_]*\),.*/\1/p' \
    -e 's/^FIELD(\([a-z_]*\), \([a-z_]*\),.*/\1.\2/p' \
    -e 's/^VALUE(\([A-Z_0-9]*\),.*/\1/p' "$srcdir/tests/abi/layout.def" |
    sort > "$scratch/listed"

missing=$(comm -23 "$scratch/declared" "$scratch/listed")
empty "$missing" "layout.def lists every struct, field and enumerated value"
[ "$(wc -l < "$scratch/declared")" -gt 100 ]
ok $? "the headers were read: they declare more than 100 of these"
gone=$(comm -13 "$scratch/declared" "$scratch/listed" |
    grep -v -E '^GH_(ABI_MAJOR|ABI_MINOR|MAX_[A-Z]*|SLOT_NONE|VARIANTS|REASON_COUNT)$')
empty "$gone" "layout.def lists nothing that the headers do not declare"

done_testing
