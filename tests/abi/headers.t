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

all=$(cd "$srcdir/include" && printf '#include <%s>\n' graphhooks/*.h)
[ "$all" = "$(grep '^#include' "$srcdir/include/graphhooks.h")" ]
ok $? "graphhooks.h includes every public header, in order"

done_testing
