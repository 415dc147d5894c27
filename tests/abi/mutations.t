#!/bin/sh
# The lists of mutations keep up with the sources that they break.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch
check=$srcdir/build-aux/check-mutations.sh

for list in "$srcdir"/tests/mutations/*.txt; do
    empty "$("$check" "$list" 2>&1)" \
        "every mutation of ${list##*/} changes its file"
done

# told LINE TEXT NAME: the check refuses a list of that line, with the text.
told()
{
    printf '# a list\n%s\n' "$1" > "$scratch/list"
    if said=$("$check" "$scratch/list" 2>&1); then
        ok 1 "$3"
        return
    fi
    case $said in
    "list:2: $2"*) ok 0 "$3" ;;
    *)
        ok 1 "$3"
        diag "$said"
        ;;
    esac
}
told 'lib/none.c|s/a/b/|x' 'there is no file lib/none.c' \
    "a mutation of no file is told by its list and line"
told 'NEWS|s/@no such text@/b/|x' 'it changes nothing in NEWS' \
    "a mutation that changes nothing is told"
told 'NEWS|s/a/b|x' 'sed refused it' "an expression that sed refuses is told"
told 'NEWS|s/a/b/' 'FILE|SED-EXPRESSION|NOTE' "a line without a note is told"

done_testing
