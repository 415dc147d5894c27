#!/bin/sh
# quickstart demo installs what it needs, trains, and says what to try next;
# quickstart check shows what runs.
# It runs in a tree of its own, where configure, the engine and apt are stubs.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch

tree=$scratch/tree
STUBS=$scratch/stubs
export STUBS
mkdir -p "$tree/doc/models" "$tree/build-aux" "$STUBS" || exit 99
cp "$srcdir/quickstart" "$tree" || exit 99
cp "$srcdir/build-aux/report.sh" "$tree/build-aux" || exit 99
cp "$srcdir/doc/models/llama3-8b.json" "$tree/doc/models" || exit 99
: > "$tree/Makefile.in"
: > "$STUBS/calls"

# program FILE: from standard input.
program()
{
    cat > "$1"
    chmod +x "$1"
}

program "$tree/configure" << 'EOF'
#!/bin/sh
echo configured >> "$STUBS/calls"
printf 'all:\n\tcp $(STUBS)/gh-engine $(STUBS)/graphhooks .\n' > Makefile
printf 'build-tests: all\n\techo built >> $(STUBS)/calls\n' >> Makefile
printf 'clean:\n' >> Makefile
printf 'check:\n\t$(STUBS)/tests\n' >> Makefile
touch config.status
EOF
program "$STUBS/gh-engine" << 'EOF'
#!/bin/sh
echo progress
echo "bitwise equal: yes"
exit "${ENGINE_STATUS:-0}"
EOF
program "$STUBS/tests" << 'EOF'
#!/bin/sh
echo run >> "$STUBS/calls"
mkdir -p tests/unit
printf ':test-result: PASS\n:test-result: SKIP\n' > tests/one.trs
sleep "${TESTS_WAIT:-0}"
printf ':test-result: PASS\n:test-result: %s\n' "${SECOND:-PASS}" \
    > tests/unit/two.trs
: > tests/one.log
: > tests/unit/two.log
touch "$STUBS/tests-ended"
[ -z "$SECOND" ]
EOF
program "$STUBS/graphhooks" << 'EOF'
#!/bin/sh
[ -e "$STUBS/jansson" ] && [ "$1" = plan ] && [ -e "$2" ]
EOF
program "$STUBS/pkg-config" << 'EOF'
#!/bin/sh
[ "$*" != "--exists jansson" ] || [ -e "$STUBS/jansson" ]
EOF
program "$STUBS/apt-get" << 'EOF'
#!/bin/sh
echo "apt-get $*" >> "$STUBS/calls"
[ -z "$OFFLINE" ] || exit 100
case $* in *libjansson-dev*) touch "$STUBS/jansson" ;; esac
EOF
program "$STUBS/sudo" << 'EOF'
#!/bin/sh
exit 1
EOF
program "$STUBS/id" << 'EOF'
#!/bin/sh
echo "${USER_ID:-0}"
EOF
# As find ends when a directory that it is about to read is gone.
program "$STUBS/find" << EOF
#!/bin/sh
$(command -v find) "\$@" && [ -z "\$GONE" ]
EOF
PATH=$STUBS:$PATH
export PATH
unset BUILD CC CONFIGURE_FLAGS GONE OFFLINE USER_ID

# demo: from the tree, without a terminal.
demo()
{
    (cd "$tree" && ./quickstart demo) > "$scratch/out" 2>&1 < /dev/null
}

# calls TEXT: how often a stub was called so.
calls()
{
    grep -c -e "$1" "$STUBS/calls"
}

(
    USER_ID=1000
    export USER_ID
    demo
)
ok $? "without jansson and without root the demo goes on"
grep -q 'going on without .*libjansson-dev' "$scratch/out"
ok $? "and says so"
tail -n 1 "$scratch/out" | grep -qx 'quickstart: try next: build/graphhooks info'
ok $? "with something to try that works without it"

(
    OFFLINE=1
    export OFFLINE
    demo
)
ok $? "so it does when apt cannot install it"
grep -q 'going on without .*libjansson-dev.*: apt could not' "$scratch/out"
ok $? "which it says"

demo
ok $? "with root the demo ends well"
[ "$(tail -n 2 "$STUBS/calls" | grep -c '^apt-get install .*libjansson-dev')" \
    -eq 1 ]
ok $? "jansson is installed"
[ "$(calls '^configured')" -eq 2 ]
ok $? "and configure looks again"
tail -n 3 "$scratch/out" > "$scratch/tail"
cat > "$scratch/wanted" << 'EOF'
bitwise equal: yes
quickstart: the graphhooks command is build/graphhooks
quickstart: try next: build/graphhooks plan doc/models/llama3-8b.json
EOF
cmp -s "$scratch/wanted" "$scratch/tail"
ok $? "it ends with the verdict, the command and a plan to try"
diff "$scratch/wanted" "$scratch/tail" | diag
grep -q progress "$scratch/out"
ok $? "the steps of the training are shown"
grep -q 'quickstart: building the library, .*gh-engine' "$scratch/out"
ok $? "and what is built is said"

before=$(cat "$STUBS/calls")
demo
[ "$(cat "$STUBS/calls")" = "$before" ]
ok $? "a second demo neither installs nor configures"
asked=$(calls '^apt-get')
(
    CC="env gcc"
    export CC
    demo
)
[ "$(calls '^apt-get')" -eq "$asked" ]
ok $? "of a compiler of several words nothing is installed that is there"
(
    ENGINE_STATUS=1
    export ENGINE_STATUS
    demo
)
[ $? -eq 1 ]
ok $? "the demo's status is that of the training"

# ---- check -----------------------------------------------------------------

# check: from the tree, without a terminal.
check()
{
    (cd "$tree" && ./quickstart check) > "$scratch/out" 2>&1 < /dev/null
}

TESTS_WAIT=3
export TESTS_WAIT
check
ok $? "check ends well"
[ "$(tail -n 2 "$STUBS/calls" | tr '\n' ' ')" = "built run " ]
ok $? "and has built all tests before it runs one"
grep -e ' tests/' "$scratch/out" > "$scratch/shown"
[ "$(wc -l < "$scratch/shown")" -eq 2 ] &&
    grep -q '^quickstart: tests/one.t: 2; [0-9]* s$' "$scratch/shown" &&
    grep -q '^quickstart: tests/unit/two.t: 2; [0-9]* s$' "$scratch/shown"
ok $? "each program is shown once, with its points and the seconds so far"
tail -n 1 "$scratch/out" | grep -qx '3 passed, 0 failed, 1 skipped'
ok $? "the last line adds them up"
if have python3; then
    (cd "$tree" && python3 -c \
        'import pty; pty.spawn(["./quickstart", "check"])' < /dev/null) \
        > "$scratch/out"
    ! grep -q '^quickstart: tests/one' "$scratch/out" &&
        tr '\r' '\n' < "$scratch/out" | grep -q 'quickstart: tests/one.t: 2; '
    ok $? "on a terminal in one line"
else
    skip "no python3 to make a terminal with"
fi
(
    GONE=1
    export GONE
    check
)
tail -n 1 "$scratch/out" | grep -qx '3 passed, 0 failed, 1 skipped'
ok $? "a directory that a test removes meanwhile changes nothing"

# interrupted SIGNAL: check, which gets it once the tests run.
interrupted()
{
    rm -f "$STUBS/tests-ended" "$tree/build/tests/one.trs"
    # In the background a shell would ignore SIGINT; env lets it in again.
    (cd "$tree" && exec env --default-signal=INT ./quickstart check) \
        > "$scratch/out" 2>&1 < /dev/null &
    until [ -e "$tree/build/tests/one.trs" ]; do
        sleep 0.1
    done
    kill -s "$1" $!
    wait $!
    status=$?
    sleep "$TESTS_WAIT"
    [ $status -gt 128 ] && [ ! -e "$STUBS/tests-ended" ]
}

interrupted TERM
ok $? "the tests end with a check that is ended"
interrupted INT
ok $? "and with one that is interrupted"

SECOND=FAIL
export SECOND
check
[ $? -eq 1 ]
ok $? "a point that fails fails the check"
grep -q '^quickstart: tests/unit/two.t: 2, 1 failed; [0-9]* s$' "$scratch/out"
ok $? "and is shown with its program"

done_testing
