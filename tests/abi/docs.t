#!/bin/sh
# What the documents say is so: tables, examples, links.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch
cd "$srcdir" || exit 99

# Files of ours: those that git knows, or all that a tarball brought.
files()
{
    if git -C . rev-parse --show-toplevel 2> /dev/null |
        grep -qx "$(pwd -P)"; then
        git ls-files
    else
        find . -type f | sed 's|^\./||'
    fi | grep -v -E '(^|/)(\.git|build|_build|_inst|autom4te\.cache|graphhooks-[0-9][^/]*)/' |
        grep -v -E '^(configure|aclocal\.m4|Makefile\.in|config\.h\.in)$' |
        grep -v -E '^(build-aux/(ar-lib|compile|config\.|depcomp|install-sh|ltmain|missing|tap-driver)|m4/(lt|libtool))'
}
files > "$scratch/files"

# The rules of scopes.
if [ -x "${builddir:?}/graphhooks" ]; then
    "$builddir/graphhooks" plan --table > "$scratch/table"
    sed -n '/^<!-- graphhooks plan --table -->$/,/^<!-- end -->$/p' \
        doc/scopes.md | sed '1d; $d' > "$scratch/scopes"
    cmp -s "$scratch/table" "$scratch/scopes"
    ok $? "the tables of doc/scopes.md are graphhooks plan --table"
    diff "$scratch/table" "$scratch/scopes" | diag
else
    skip "the tables of doc/scopes.md: the graphhooks command was not built"
fi

# The families.
sed -n 's/^| `\([a-z0-9_]*\)` | .*/\1/p' doc/families.md | sort \
    > "$scratch/table"
for family in plugins/*.c; do basename "$family" .c; done > "$scratch/families"
missing=$(diff "$scratch/families" "$scratch/table")
empty "$missing" "doc/families.md has a row for each plugins/*.c"

# The C of what a host's author reads.
for page in README.md doc/hosts-c.md; do
    awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' $page \
        > "$scratch/example.c"
    # shellcheck disable=SC2086 # CC is words
    said=$(${CC:-cc} -std=c11 -Wall -Wextra -Werror -I"$srcdir/include" -c \
        -o "$scratch/example.o" "$scratch/example.c" 2>&1)
    empty "$said" "the C of $page compiles"
    grep -q gh_run_pass "$scratch/example.c"
    ok $? "the C of $page has the hooks in it"
done

# What those pages name in parentheses is there: a file, or a word in one.
# named PAGE DIRECTORY...: the names of the page that none of them has.
named()
{
    page=$1
    shift
    grep -o '(`[^)]*`[^)]*)' "$page" | grep -o '`[^`]*`' | tr -d '`()' |
        sort -u | while read -r name; do
        case $name in
        *.c | *.py) find "$@" -name "$name" ;;
        *) grep -rhow -e "${name##*.}" "$@" ;;
        esac | grep -q . || echo "$page: $name"
    done
}
gone=$(named doc/hosts-c.md hosts/engine tests/engine
    named doc/hosts-frameworks.md hosts/pytorch tests/torch/attach)
empty "$gone" "every file and name that the pages for hosts give is there"

# The two commands come first.
head -n 12 README.md | grep -q '^./quickstart demo' &&
    head -n 12 README.md | grep -q '^./quickstart check'
ok $? "README begins with its two commands"

# The pictures, of the measured figures in their archive.
if have python3; then
    export PYTHONDONTWRITEBYTECODE=1
    raw=$scratch/results
    python3 -m tarfile -e bench/results/raw.tar.xz "$raw"
    while read -r script figures picture; do
        python3 "bench/$script.py" "$raw/$figures" \
            > "$scratch/picture.svg"
        cmp -s "$scratch/picture.svg" "bench/results/$picture.svg"
        ok $? "$picture.svg is what bench/$script.py draws"
    done << 'EOF'
banks_picture h200 h200/banks
offload_picture h200/offload.json h200/offload
overlap_picture h200/overlap.json h200/overlap
exchange_picture h200x2/exchange.json h200x2/exchange
scale_picture h200/scale.json h200/scale
picture h200/peers h200/step
picture h100/te h100/te
EOF
    python3 bench/timeline.py "$scratch/ranks.svg" \
        "$raw"/h200x2/megatron/trace/*.json
    cmp -s "$scratch/ranks.svg" bench/results/h200x2/megatron.svg
    ok $? "h200x2/megatron.svg is what bench/timeline.py draws"
    mkdir "$scratch/part"
    cp "$raw/h200/peers/peers_h1024s256m1.json" "$scratch/part"
    sed 's|"torch/layer"|"torch/later"|' \
        "$raw/h200/peers/peers_h1024s256m4.json" \
        > "$scratch/part/peers_h1024s256m4.json"
    said=$(python3 bench/picture.py "$scratch/part" 2>&1)
    [ $? -eq 2 ] && [ "${said#*lacks a measurement of torch/layer; }" != "$said" ]
    ok $? "without a row it draws nothing, and names the row"
else
    skip "no python3 to draw seven pictures with"
fi
grep -q '^!\[[^]]*\](bench/results/h200/step.svg)$' README.md
ok $? "README shows the picture"
[ "$(wc -l < README.md)" -le 200 ]
ok $? "README has at most 200 lines"

# Prints each name of the glossary that no public header has: a type, a value,
# a function, or a field as gh_struct.field.
unknown_words()
{
    sed -n 's/.*| `\([A-Za-z_.]*\)` |$/\1/p' doc/words.md |
        while read -r word; do
            type=${word%%.*}
            if ! grep -qw "$type" include/graphhooks/*.h; then
                echo "$word"
            elif [ "$type" != "$word" ]; then
                awk -v type="$type" -v field="${word#*.}" '
                    $0 ~ "^typedef struct " type " {" { on = 1 }
                    on && $0 ~ "[ *]" field "[;,[]" { found = 1 }
                    /^}/ { on = 0 }
                    END { exit !found }' include/graphhooks/*.h ||
                    echo "$word"
            fi
        done
}
empty "$(unknown_words)" "the headers have each name of doc/words.md"
[ "$(grep -c '| `[A-Za-z_.]*` |$' doc/words.md)" -ge 40 ]
ok $? "which are at least 40"

# Links and paths.
broken=$(grep '\.md$' "$scratch/files" | while read -r page; do
    grep -o ']([^)]*)' "$page" | sed 's/^](//; s/[)#].*//' |
        grep -v -e '^http' -e '^$' | while read -r target; do
        [ -e "$(dirname "$page")/$target" ] || echo "$page: $target"
    done
done)
empty "$broken" "every link between documents leads to a file"
# A file that a page names is below the page, or below a folder whose files it
# is about; a program of tests has a source of its name.  Capitals are holes.
gone=$(grep '\.md$' "$scratch/files" | while read -r page; do
    grep -o '`[a-z_./-]*/[a-z0-9_]*\.\(c\|h\|py\|t\|sh\|md\|def\|txt\|mk\)`' \
        "$page" | tr -d '`' | sort -u | while read -r file; do
        for dir in . "$(dirname "$page")" include hosts/engine \
            hosts/pytorch hosts/pytorch/graphhooks \
            hosts/pytorch/graphhooks/torch bench; do
            [ -e "$dir/$file" ] || [ -e "$dir/${file%.t}.c" ] && continue 2
        done
        echo "$page: $file"
    done
done)
empty "$gone" "every file that a document names is there"
# Names of C; one that ends in _ stands for all that begin so.
cat configure.ac include/graphhooks.h include/graphhooks/*.h kernels/*.h \
    lib/*/*.[ch] lib/*/*/*.[ch] | grep -oE '\b(gh|GH)_[A-Za-z0-9_]*[A-Za-z0-9]\b' |
    sort -u > "$scratch/names"
gone=$(grep '\.md$' "$scratch/files" | while read -r page; do
    grep -oE '`(gh|GH)_[A-Za-z0-9_]*[A-Za-z0-9]\b' "$page" | tr -d '`' |
        sort -u | comm -23 - "$scratch/names" | sed "s|^|$page: |"
done)
empty "$gone" "every gh_ and GH_ name that a document has is one of C"
absent=$(sed -n '/^## Layout/,$p' README.md |
    sed -n 's/^| `\([^`]*\)`.*/\1/p' | while read -r dir; do
    [ -d "$dir" ] || echo "$dir"
done)
empty "$absent" "every directory in README's layout is there"

# shellcheck disable=SC2046 # no name has a space
local_paths=$(grep -nIE '(^|[^a-z./$}_-])/(work|home|root|Users)/' \
    $(cat "$scratch/files") | grep -v '^tests/abi/docs\.t:')
empty "$local_paths" "no file names a place on one machine"

unlicensed=$(grep -E '\.(c|h|cu|def|t|sh|m4|awk|am|ac|map)$' "$scratch/files" |
    while read -r file; do
        head -n 60 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' ||
            echo "$file"
    done)
empty "$unlicensed" "every source file has its licence line"

# shellcheck disable=SC2046
loose=$(grep -nIE '(\bTODO\b|\bFIXME\b|\bXXX\b)' $(cat "$scratch/files") |
    grep -v '^tests/abi/docs\.t:')
empty "$loose" "no file has a note to come back to"
# shellcheck disable=SC2046
blanks=$(grep -nI ' $' $(grep -v -E '(\.ptx|\.txt)$|^LICENSE$' \
    "$scratch/files") | head -n 20)
empty "$blanks" "no line ends in a blank"

done_testing
