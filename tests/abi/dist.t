#!/bin/sh
# The tarball has every file that git knows.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch

git -C "$srcdir" rev-parse --show-toplevel 2> /dev/null |
    grep -qx "$(cd "$srcdir" && pwd -P)" ||
    skip_all "this is not a git checkout"

(cd "${builddir:?}" && MAKEFLAGS='' ${MAKE:-make} -s print-distfiles) |
    tr ' ' '\n' | sed "s|^$srcdir/||; s|^\./||" | sort -u > "$scratch/dist"
[ "$(wc -l < "$scratch/dist")" -gt 100 ]
ok $? "make knows what it distributes"

git -C "$srcdir" ls-files | grep -v '^\.gitignore$' | sort > "$scratch/known"
left_out=$(comm -23 "$scratch/known" "$scratch/dist")
empty "$left_out" "every file that git knows is in the tarball"

done_testing
