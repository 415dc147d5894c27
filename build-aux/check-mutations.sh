#!/bin/sh
# check-mutations.sh - every mutation still changes its file.
#
#     build-aux/check-mutations.sh [LIST...]
#
# LIST is a file such as those in tests/mutations/, all of which are looked
# at by default; build-aux/mutate.sh says what a line is.  Each expression is
# applied to its file, which stays as it is.  A line is said, with its list
# and number, where it names no file, has not three fields, is refused by sed
# or changes nothing: the code it broke has moved.  It exits 0 when no line
# is said.
#
# SPDX-License-Identifier: Apache-2.0
set -eu

top=$(cd "$(dirname "$0")/.." && pwd -P)
if [ $# -eq 0 ]; then
    set -- "$top"/tests/mutations/*.txt
fi
changed=$(mktemp)
trap 'rm -f "$changed"' EXIT
trap 'exit 130' INT TERM

# What is wrong with $line: $wrong, empty where it changes its file.
look_at()
{
    wrong=
    case $line in
    *'|'*'|'*) ;;
    *)
        wrong="FILE|SED-EXPRESSION|NOTE is the form of a line"
        return
        ;;
    esac
    name=${line%%|*}
    rest=${line#*|}
    if [ ! -f "$top/$name" ]; then
        wrong="there is no file $name; name the one the code is in now"
    elif ! sed -e "${rest%|*}" "$top/$name" > "$changed" 2>&1; then
        wrong="sed refused it: $(cat "$changed")"
    elif cmp -s "$top/$name" "$changed"; then
        wrong="it changes nothing in $name; mend the expression"
    fi
}

bad=0
for list; do
    number=0
    while IFS= read -r line; do
        number=$((number + 1))
        case $line in
        '' | '#'*) continue ;;
        esac
        look_at
        if [ -n "$wrong" ]; then
            echo "${list##*/}:$number: $wrong"
            bad=$((bad + 1))
        fi
    done < "$list"
done
[ "$bad" -eq 0 ]
