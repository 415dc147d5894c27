#!/bin/sh
# Every public header compiles alone, in C99 and in C++11, without CUDA.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch

strict="-Wall -Wextra -Werror -pedantic -fsyntax-only"

compiles()
{
    "$@" > "$scratch/out" 2>&1
    status=$?
    [ $status -eq 0 ] || diag < "$scratch/out"
    return $status
}

headers=$(cd "$srcdir/include" && ls graphhooks.h graphhooks/*.h)
for header in $headers; do
    printf '#include <%s>\n#include <%s>\ntypedef int nonempty;\n' \
        "$header" "$header" > "$scratch/one.c"
    cp "$scratch/one.c" "$scratch/one.cc"

    # shellcheck disable=SC2086 # CC and flags are words
    compiles ${CC:-cc} -std=c99 $strict -I"$srcdir/include" "$scratch/one.c"
    ok $? "$header compiles alone in C99"
    if have "${CXX:-c++}"; then
        # shellcheck disable=SC2086
        compiles "${CXX:-c++}" -std=c++11 $strict -I"$srcdir/include" \
            "$scratch/one.cc"
        ok $? "$header compiles alone in C++11"
    else
        skip "$header in C++11: no C++ compiler"
    fi
done

empty "$(grep -n '#include' "$srcdir"/include/graphhooks/*.h |
    grep -v -e '<graphhooks/' -e '<stddef.h>' -e '<stdint.h>')" \
    "public headers include nothing but themselves, stddef.h and stdint.h"

# What each comment has to say, and when each name came.  NAME SINCE a line.
awk '
    function lacks(what) { print file ": " name " lacks " what > "/dev/stderr" }
    FNR == 1 { file = FILENAME; sub(/.*\//, "", file); comment = "" }
    inside || /^\/\*/ {
        comment = inside ? comment "\n" $0 : $0
        inside = !/\*\//
        next
    }
    /^GH_API / || /^typedef / {
        name = $0
        sub(/ [{]$/, "", name)
        sub(/[(;].*/, "", name)
        sub(/.*[ *]/, "", name)
        opaque = /^typedef struct [a-z_]+ [a-z_]+;/
        if (!opaque && comment !~ /[^ ] +Since:? [01]\.[0-9]/ &&
            comment !~ /\* Since:? [01]\.[0-9]/) {
            lacks("Since")
        }
        if (/^GH_API/ && comment !~ /Blocks[:,]/) { lacks("Blocks") }
        if (/^GH_API gh_status/ && comment !~ /@return/) { lacks("@return") }
        if (match(comment, /Since:? [01]\.[0-9]+/)) {
            since = substr(comment, RSTART, RLENGTH)
            sub(/.* /, "", since)
            split(since, of, ".")
            print name, 100 * of[1] + of[2]
        }
    }
    # One comment is for all functions that follow it without another.
    !/^GH_API/ && !/^ / { comment = "" }
' "$srcdir"/include/graphhooks/*.h > "$scratch/since" 2> "$scratch/lacks"
empty "$(cat "$scratch/lacks")" \
    "each function and type says since when, and each call what it blocks for"
[ "$(wc -l < "$scratch/since")" -gt 100 ]
ok $? "those are more than 100"
# No header of 0.3 is kept: v0.3.0 had none of these.
wrong=$(awk '/^gh_offload|^gh_recording |^gh_session_reasons / && $2 < 4' \
    "$scratch/since")
empty "$wrong" "what 0.4 has brought says so"

# What a kept release has is as old as that, and nothing else is.
for old in "$srcdir"/tests/abi/old/graphhooks-*.h; do
    release=${old##*/graphhooks-}
    release=${release%.h}
    grep -o 'gh_[a-z0-9_]*' "$old" | sort -u > "$scratch/old"
    last=$((100 * ${release%.*} + ${release#*.}))
    wrong=$(while read -r name since; do
        there=$(grep -cx "$name" "$scratch/old")
        [ "$there" -eq "$((since <= last))" ] ||
            echo "$name: since $((since / 100)).$((since % 100))"
    done < "$scratch/since")
    empty "$wrong" "what says since $release or before was in $release"
done

all=$(cd "$srcdir/include" && printf '#include <%s>\n' graphhooks/*.h)
[ "$all" = "$(grep '^#include' "$srcdir/include/graphhooks.h")" ]
ok $? "graphhooks.h includes every public header, in order"

done_testing
