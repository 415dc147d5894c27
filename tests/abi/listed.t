#!/bin/sh
# The layouts have every struct, field and value of the headers they are of.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch

# declared HEADER...: what they declare, one name a line.
declared()
{
    # Without comments, one declaration a line.
    cat "$@" | tr '\n' ' ' |
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
    ' "$scratch/flat" | sort
}

# listed LAYOUT: the names that it lists.
listed()
{
    sed -n -e 's/^STRUCT(\([a-z_]*\),.*/\1/p' \
        -e 's/^FIELD(\([a-z_]*\), \([a-z_]*\),.*/\1.\2/p' \
        -e 's/^VALUE(\([A-Z_0-9]*\),.*/\1/p' "$1" | sort
}

# agree LAYOUT HEADER...: it lists what they declare, and nothing else.
agree()
{
    name=$(basename "$1")
    listed "$1" > "$scratch/listed"
    shift
    declared "$@" > "$scratch/declared"
    missing=$(comm -23 "$scratch/declared" "$scratch/listed")
    empty "$missing" "$name lists every struct, field and enumerated value"
    [ "$(wc -l < "$scratch/declared")" -gt 100 ]
    ok $? "the headers of $name were read: they declare more than 100 of these"
    gone=$(comm -13 "$scratch/declared" "$scratch/listed" | grep -v -E \
        '^GH_(ABI_MAJOR|ABI_MINOR|ABI_VERSION|MAX_[A-Z]*|SLOT_NONE|MODULE_NAMED|VARIANTS|REASON_COUNT)$')
    empty "$gone" "$name lists nothing that its headers do not declare"
}

agree "$srcdir/tests/abi/layout.def" "$srcdir"/include/graphhooks/*.h
for layout in "$srcdir"/tests/abi/old/layout-*.def; do
    release=${layout##*/layout-}
    agree "$layout" "${layout%/*}/graphhooks-${release%.def}.h"
done

# What is made from rows has one for each value of the headers.
sed -n 's/^ *GH_MODULE_\([A-Z0-9_]*\) = 1u <<.*/\1/p' \
    "$srcdir/include/graphhooks/model.h" > "$scratch/declared"
sed -n 's/^GH_MODULE_ROW(\([A-Z0-9_]*\),.*/\1/p' \
    "$srcdir/lib/plan/modules.def" > "$scratch/rows"
missing=$(diff "$scratch/declared" "$scratch/rows")
empty "$missing" "lib/plan/modules.def has a row for each GH_MODULE_*, in order"
[ "$(wc -l < "$scratch/rows")" -ge 11 ]
ok $? "they were read"

# A kind of exchange: its value, its row, its ops, and what users read of it.
sed -n '/^typedef .* gh_exchange_kind;/,/^};/s/^ *GH_EXCHANGE_\([A-Z]*\) = .*/\1/p' \
    "$srcdir/include/graphhooks/exchange.h" > "$scratch/declared"
sed -n 's/^ *ROW(\([A-Z]*\), [a-z]*).*/\1/p' "$srcdir/words/exchange.h" \
    > "$scratch/rows"
missing=$(diff "$scratch/declared" "$scratch/rows")
empty "$missing" "words/exchange.h has a row for each GH_EXCHANGE_*, in order"
[ "$(wc -l < "$scratch/rows")" -ge 3 ]
ok $? "they were read, too"
sed -n '/^GH_ENV(EP_EXCHANGE,/,/)$/p' "$srcdir/lib/config/env.def" \
    > "$scratch/meaning"
missing=$(sed -n 's/^ *ROW([A-Z]*, \([a-z]*\)).*/\1/p' \
    "$srcdir/words/exchange.h" | while read -r word; do
    grep -qw "$word" "$scratch/meaning" || echo "$word"
done)
empty "$missing" "EP_EXCHANGE's meaning in env.def names each kind"

# An option that nothing reads does nothing.
# read_by ID FIELD: whether the library or the Python package uses the row.
read_by()
{
    grep -rqE "(\.|->)$2\b|GH_ENV_$1\b" "$srcdir"/lib/*/ --include='*.c' \
        --exclude-dir=config ||
        grep -rqE "\"$2\"|GRAPHHOOKS_$1\b" \
            "$srcdir/hosts/pytorch/graphhooks/torch"
}
sed -n 's/^GH_ENV(\([A-Z_]*\), \([a-z_]*\),.*/\1 \2/p' \
    "$srcdir/lib/config/env.def" > "$scratch/options"
missing=$(while read -r id field; do
    read_by "$id" "$field" || echo "$id"
done < "$scratch/options")
empty "$missing" "each row of lib/config/env.def is read outside lib/config"
[ "$(wc -l < "$scratch/options")" -ge 29 ]
ok $? "those were read, and are at least 29"

# The page that a user reads names each module.
sed -n '/^The modules are/,/^$/p' "$srcdir/doc/scopes.md" | tr -d '\n' |
    sed 's/, which stands.*//' | grep -o '`[a-z0-9_]*`' | tr -d '`' \
    > "$scratch/named"
sed -n 's/^GH_MODULE_ROW([A-Z0-9_]*, "\([a-z0-9_]*\)".*/\1/p' \
    "$srcdir/lib/plan/modules.def" > "$scratch/rows"
missing=$(diff "$scratch/rows" "$scratch/named")
empty "$missing" "doc/scopes.md lists the modules of modules.def, in order"

# Words of C, and the tables of pages that explain them.
# words_of FILE ARRAY: the words of a table in C.
words_of()
{
    awk -v start="$2[" 'index($0, start) && /= \{$/ { on = 1 }
        on { n = split($0, word, "\"")
            for (i = 2; i < n; i += 2) print word[i] }
        on && /};/ { exit }' "$srcdir/$1"
}
# explained PAGE HEAD: those of the first column of the table below that head.
explained()
{
    awk -v head="$2" 'on && !/^\|/ { exit }
        on { print }
        index($0, head) == 1 { on = 1 }' "$srcdir/$1" | cut -d '|' -f 2 |
        grep -o '`[a-z0-9_+-]*`' | tr -d '`' | sort
}
# same PAGE HEAD FILE ARRAY
same()
{
    words_of "$3" "$4" | sort > "$scratch/rows"
    explained "$1" "$2" > "$scratch/named"
    missing=$(diff "$scratch/rows" "$scratch/named")
    empty "$missing" "$1 explains each word of $4 in $3"
    [ "$(wc -l < "$scratch/rows")" -ge 5 ]
    ok $? "which are at least 5"
}
same doc/scopes.md '| feature | means |' lib/plan/kinds.c gh_feature_names
same doc/scopes.md '| kind of layer | parts |' lib/plan/kinds.c gh_kind_names
sed '1,/^A layer:$/d' "$srcdir/doc/scopes.md" > "$scratch/layer.md"
words_of bin/describe.c layer_fields | sort > "$scratch/rows"
awk '/^\| feature/ { exit } /^\| `/' "$scratch/layer.md" | cut -d '|' -f 2 |
    tr -d '` ' | sort > "$scratch/named"
missing=$(diff "$scratch/rows" "$scratch/named")
empty "$missing" "doc/scopes.md explains each field of a layer of bin/describe.c"
words_of bin/describe.c top_fields | sort > "$scratch/rows"
explained doc/scopes.md '| field | value | meaning |' > "$scratch/named"
missing=$(diff "$scratch/rows" "$scratch/named")
empty "$missing" "and each field of a description"
same hosts/engine/README.md '| mode | how' hosts/engine/cli/command.c mode_names
sed -n 's/.*"--model", KIND_MODEL, .*"\([a-z|]*\)",$/\1/p' \
    "$srcdir/hosts/engine/cli/command.c" | tr '|' '\n' | sort > "$scratch/rows"
explained hosts/engine/README.md '| `--model` | its layers |' > "$scratch/named"
missing=$(diff "$scratch/rows" "$scratch/named")
empty "$missing" "hosts/engine/README.md explains each word of --model"

# Words of options whose page has a table of them.
for table in 'overlap.md|order|overlap_words' 'verify.md|looks at|verify_words'
do
    head=${table#*|}
    words_of lib/config/env.c "${table##*|}" | sort > "$scratch/rows"
    explained "doc/${table%%|*}" "| value | ${head%|*} |" > "$scratch/named"
    missing=$(diff "$scratch/rows" "$scratch/named")
    empty "$missing" "doc/${table%%|*} explains ${table##*|} of lib/config/env.c"
done
{
    echo auto
    sed -n 's/^ *ROW([A-Z]*, \([a-z]*\)).*/\1/p' "$srcdir/words/exchange.h"
} | sort > "$scratch/rows"
explained doc/overlap.md '| value | how |' > "$scratch/named"
missing=$(diff "$scratch/rows" "$scratch/named")
empty "$missing" "doc/overlap.md explains each kind of exchange"

# Words that stand for values of model.h.
for list in LAYER:kind DISPATCHER:dispatcher BACKEND:backend FEATURE:feature
do
    sed -n "s/^ *GH_${list%:*}_\([A-Z0-9_]*\) = .*/\1/p" \
        "$srcdir/include/graphhooks/model.h" | tr '[:upper:]' '[:lower:]' \
        > "$scratch/declared"
    words_of lib/plan/kinds.c "gh_${list#*:}_names" > "$scratch/rows"
    missing=$(diff "$scratch/declared" "$scratch/rows")
    empty "$missing" "each GH_${list%:*}_* has its word in lib/plan/kinds.c, in order"
    [ "$(wc -l < "$scratch/rows")" -ge 3 ]
    ok $? "which are at least 3"
done

sed -n 's/^ *\(GH_REASON_[A-Z_]*\) = [0-9].*/\1/p' \
    "$srcdir/include/graphhooks/session.h" > "$scratch/reasons"
sed -n 's/^ *\[\(GH_REASON_[A-Z_]*\)\] = .*/\1/p' \
    "$srcdir/lib/plan/kinds.c" > "$scratch/rows"
missing=$(diff "$scratch/reasons" "$scratch/rows")
empty "$missing" "each GH_REASON_* has a name in lib/plan/kinds.c, in order"

done_testing
