#!/bin/sh
# The headers still declare the functions and structs of each release that
# tests/abi/old/ keeps, as abidiff of libabigail sees them.
#
# It compares shared objects, by their debug information.  They are made here,
# of headers alone: a variable has the type of each function and struct.
#
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch

have abidiff || skip_all "no abidiff (abigail-tools)"
cc=${CC:-cc}

# object NAME HEADER...: makes NAME.so of them.
object()
{
    name=$scratch/$1
    shift
    {
        for header; do
            echo "#include \"$header\""
        done
        cat "$@" | tr '\n' ' ' | grep -o 'GH_API [a-z][^;(]*([^;]*;' |
            sed 's/^[^(]*[ *]\(gh_[a-z0-9_]*\)(.*/__typeof__(\1) *function_\1;/'
        sed -n \
            's/^typedef struct \(gh_[a-z0-9_]*\) {.*/struct \1 *struct_\1;/p' "$@"
    } > "$name.c"
    # shellcheck disable=SC2086 # words
    $cc -g -w -shared -fPIC -I"$srcdir/include" "$name.c" -o "$name.so" \
        2> "$name.log" || diag "$(cat "$name.log")"
}

# A struct that begins with its size may grow at its end.
awk '
    name != "" && /^ *[a-z].*;/ {
        if ($0 ~ /uint32_t struct_size;/) {
            printf "[suppress_type]\ntype_kind = struct\nname = %s\n", name
            printf "has_data_member_inserted_at = end\n"
        }
        name = ""
    }
    /^typedef struct [a-z0-9_]+ [{]/ { name = $3 }' \
    "$srcdir"/include/graphhooks/*.h > "$scratch/suppressions"
[ "$(grep -c inserted_at "$scratch/suppressions")" -gt 30 ]
ok $? "structs that may grow are found in the headers"

# compare OLD NEW: what the new object has another way, or lacks.
compare()
{
    abidiff --no-added-syms --suppressions "$scratch/suppressions" \
        "$scratch/$1.so" "$scratch/$2.so" > "$scratch/changes" 2>&1
}

object now "$srcdir"/include/graphhooks/*.h
functions=$(grep -c '^ *gh_[a-z0-9_]*;' "$srcdir/lib/graphhooks.map")
[ "$(grep -c ' \*function_gh_' "$scratch/now.c")" -eq "$functions" ] &&
    [ "$(grep -c ' \*struct_gh_' "$scratch/now.c")" -gt 40 ]
ok $? "all $functions functions are compared, and more than 40 structs"
for old in "$srcdir"/tests/abi/old/graphhooks-*.h; do
    release=$(basename "$old" .h)
    object "$release" "$old"
    compare "$release" now
    differs=$?
    ok $differs "what $release declares is declared so now"
    [ $differs -eq 0 ] || diag "$(cat "$scratch/changes")"
done

# seen NAME WHAT SED: that a change of the headers' text is found.
seen()
{
    rm -rf "$scratch/include"
    cp -r "$srcdir/include" "$scratch"
    chmod -R u+w "$scratch/include"
    sed -i "$3" "$scratch"/include/graphhooks/*.h
    (
        srcdir=$scratch
        object changed "$scratch"/include/graphhooks/*.h
    )
    [ -e "$scratch/changed.so" ] && ! compare "$release" changed &&
        grep -q "$1" "$scratch/changes"
    ok $? "$2 is found"
    rm -f "$scratch/changed.so"
}

seen gh_stats "a field that has moved" \
    's/^    uint64_t iterations;/    uint32_t moved;\n    uint64_t iterations;/'
seen gh_buffer "a frozen struct that has grown" \
    's/^} gh_buffer;/    uint64_t more;\n} gh_buffer;/'
seen gh_layer_enter "a function with another argument" \
    's/^GH_API gh_status gh_layer_enter(/&int first, /'
seen gh_layer_exit "a function that is gone" \
    's/\(GH_API.*\)gh_layer_exit(/\1gh_layer_left(/'

done_testing
