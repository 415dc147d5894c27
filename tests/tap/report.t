#!/bin/sh
# build-aux/report.sh adds up what the harness wrote, whatever the programs
# said meanwhile.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch

# ran NAME RESULT...: what the harness leaves of a program; its log is the
# standard input.
ran()
{
    mkdir -p "$scratch/tests"
    cat > "$scratch/tests/$1.log"
    trs=$scratch/tests/$1.trs
    shift
    printf ':test-result: %s\n' "$@" > "$trs"
    # As the harness has them for make, which are no points.
    printf ':%s: no\n' global-test-result recheck copy-in-global-log >> "$trs"
}

# report NAME STATUS LINE: what it exits with and says last.
report()
{
    sh "$srcdir/build-aux/report.sh" "$scratch" > "$scratch/said" 2>&1
    status=$?
    last=$(tail -n 1 "$scratch/said")
    [ "$status" -eq "$2" ] && [ "$last" = "$3" ]
    rc=$?
    ok "$rc" "$1: $3"
    [ "$rc" -eq 0 ] || {
        diag "exited with $status"
        diag < "$scratch/said"
    }
}

says()
{
    grep -qF "$1" "$scratch/said"
    ok $? "$2"
}

report "nothing has run" 1 "0 passed, 0 failed, 0 skipped"

# The harness's lines come in blocks, and the program's between them.
ran split PASS SKIP PASS << 'end'
ok 1 - a
PASSgraphhooks: warning: of the program
: tests/split.t 1 - a
ok 2 # SKIP no GPU
SKIP: tests/split.t 2 # SKIP no GPU
PASS: tests/split.t 3 - c
end
report "a line in two parts" 0 "2 passed, 0 failed, 1 skipped"
says "  1 x tests/split.t: no GPU" "it says why points were skipped"

ran crash PASS ERROR << 'end'
PASS: tests/crash.t 1 - a
ERROR: tests/crash.t - exited with status 139 (terminated by signal 11?)
end
report "a program that crashed" 1 "3 passed, 1 failed, 1 skipped"

ran crash PASS FAIL ERROR << 'end'
PASS: tests/crash.t 1 - a
not ok 2 - b
# expected 1
FAgraphhooks: warning: of the program
IL: tests/crash.t 2 - b
ERROR: tests/crash.t - exited with status 1
end
report "a failed point and its exit" 1 "3 passed, 1 failed, 1 skipped"
says "# expected 1" "it shows the remarks of a failed point"

ran crash PASS FAIL ERROR ERROR << 'end'
FAIL: tests/crash.t 2 - b
ERROR: tests/crash.t - too few tests run (expected 9, got 2)
ERROR: tests/crash.t - exited with status 1
end
report "points that are missing too" 1 "3 passed, 2 failed, 1 skipped"

done_testing
