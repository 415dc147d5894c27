#!/bin/sh
# report.sh - adds up the points of a make check.
#
#     build-aux/report.sh BUILD
#
# Prints why points were skipped, what failed, and as the last line
# "N passed, N failed, N skipped".  Exits 0 when something passed and nothing
# failed.  quickstart, CI and gpu-check.sh call it.
#
# SPDX-License-Identifier: Apache-2.0
set -eu

build=${1:?usage: report.sh BUILD}
results=$(mktemp)
trap 'rm -f "$results"' EXIT

# "RESULT: PROGRAM" for each point, from the .trs files, which the harness
# alone writes: in a log, words of the program may stand in the middle of the
# harness's lines.  A program that reports a failed point also exits with a
# failure, which is the same failure and counts once.
find "$build/tests" -name '*.trs' | sort | while read -r trs; do
    name=${trs#"$build/"}
    name=${name%.trs}
    exited=$(grep -c '^ERROR: [^ ]* - exited with status' "$build/$name.log" \
        2> /dev/null) || :
    awk -v name="$name.t" -v exited="${exited:-0}" '
        $1 != ":test-result:" { next }
        $2 == "ERROR" && failed && exited-- > 0 { next }
        { failed = failed || $2 == "FAIL"; print $2 ": " name }' "$trs"
done > "$results"

count()
{
    grep -c -E "^($1): " "$results" || :
}

passed=$(count 'PASS|XFAIL')
failed=$(count 'FAIL|XPASS|ERROR')
skipped=$(count 'SKIP')

# The programs that have such points.
programs()
{
    grep -E "^($1): " "$results" | cut -d ' ' -f 2 | uniq
}

if [ "$skipped" -gt 0 ]; then
    echo "skipped, and why:"
    programs 'SKIP' | while read -r name; do
        sed -n 's/^SKIP: \([^ ]*\).*# *[Ss][Kk][Ii][Pp]\S* */\1: /p;t
                s/^SKIP: \([^ ]*\) *-* */\1: /p' "$build/${name%.t}.log"
    done | sort | uniq -c | sed 's/^ *\([0-9]*\) /  \1 x /'
fi

if [ "$failed" -gt 0 ]; then
    echo "failed:"
    programs 'FAIL|XPASS|ERROR' | while read -r name; do
        printf '\n== %s\n' "$name"
        # Points that failed with the remarks after them, then the end.
        awk '/^not ok/ { on = 1; print; next }
             /^(PASS|FAIL|SKIP|ERROR): / { if (/^ERROR/) print; next }
             /^#/ && on { print; next }
             { on = 0 }' "$build/${name%.t}.log" | head -n 60
        grep -vE '^(ok|not ok|[A-Z]+:|# |1\.\.)' "$build/${name%.t}.log" |
            tail -n 15
    done
    echo
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
