#!/bin/sh
# graphhooks-conform is green on our families and red on every fixture, each
# for its own reason.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch

conform=${builddir:?}/graphhooks-conform
if [ -n "${sanitize-}" ]; then
    # A fixture that leaks is to be found out by the program, too.
    ASAN_OPTIONS=detect_leaks=1
    export ASAN_OPTIONS
fi

build()
{
    build_fixture "$scratch" "$@"
}

# The families of the project.
for family in "$srcdir"/plugins/*.c; do
    family=$(basename "$family" .c)
    "$conform" "$builddir/plugins/.libs/$family.so" > "$scratch/out" 2>&1
    status=$?
    ok $status "$family conforms"
    [ $status -eq 0 ] || diag < "$scratch/out"
    grep -q '^# 0 layers described' "$scratch/out"
    [ $? -eq 1 ]
    ok $? "$family describes layers"
done

# A right fixture, so that what is red below is so for what is wrong with it.
build right > "$scratch/out" 2>&1
ok $? "the fixture is built"
diag < "$scratch/out"
"$conform" "$scratch/right.so" > "$scratch/out" 2>&1
status=$?
ok $status "the fixture conforms where nothing is wrong with it"
[ $status -eq 0 ] || diag < "$scratch/out"

echo "This is a text, and no object." > "$scratch/text.so"
: > "$scratch/empty.so"
head -c 3000 "$scratch/right.so" > "$scratch/truncated.so"

mkfifo "$scratch/pipe.so"
timeout 60 "$conform" "$scratch/pipe.so" > "$scratch/out" 2>&1
[ $? -eq 1 ] && grep -q 'it is no regular file' "$scratch/out"
ok $? "a pipe is refused, and not waited for"

grep -v '^#' "$srcdir/tests/plugin/fixtures.txt" > "$scratch/fixtures"
while IFS='|' read -r name _ says; do
    if [ ! -e "$scratch/$name.so" ] && ! build "$name" > "$scratch/log" 2>&1
    then
        ok 1 "$name is built"
        diag < "$scratch/log"
        continue
    fi
    if [ -n "${sanitize-}" ]; then
        case $name:$sanitize in
        constructor:* | constructor_crashes:* | unresolved:*)
            skip "$name: a sanitizer has constructors of its own"
            skip "$name: and symbols of its own"
            continue
            ;;
        leaks:*thread*)
            skip "$name: this sanitizer looks for no leaks"
            skip "$name: and its allocator counts nothing"
            continue
            ;;
        leaks:* | writes_behind:*)
            # It reports on its own, and ends the program.
            "$conform" "$scratch/$name.so" > "$scratch/out" 2>&1
            [ $? -ne 0 ]
            ok $? "$name does not conform"
            skip "$name: the sanitizer says why"
            continue
            ;;
        esac
    fi
    "$conform" "$scratch/$name.so" > "$scratch/out" 2>&1
    status=$?
    [ $status -eq 1 ] && grep -q '^not ok' "$scratch/out"
    ok $? "$name does not conform"
    grep -qF -e "$says" "$scratch/out"
    held=$?
    ok $held "and the reason is that: $says"
    [ $status -eq 1 ] && [ $held -eq 0 ] || diag < "$scratch/out"
done < "$scratch/fixtures"

# What a family ends is a child.
ulimit -c 0
for name in open_crashes layer_crashes; do
    build "$name" > "$scratch/log" 2>&1 || diag < "$scratch/log"
    "$conform" "$scratch/$name.so" > "$scratch/out" 2>&1
    [ $? -eq 1 ]
    ok $? "$name does not conform"
    [ "$(tail -n 1 "$scratch/out")" = \
        "Bail out! $scratch/$name.so: it crashed: signal 6, Aborted" ]
    ok $? "$name: the last line has its file and the signal"
done

# What a table of another size has wrong is that alone.
for name in older longer; do
    "$conform" "$scratch/$name.so" > "$scratch/out" 2>&1
    [ "$(grep -c '^not ok' "$scratch/out")" -eq 1 ]
    ok $? "$name breaks one rule and no other"
done

# A table that ends before a slot is not read there.
GRAPHHOOKS_PLUGIN_PATH=$scratch "$builddir/graphhooks" info > "$scratch/out" \
    2>&1
grep -q "older, $scratch/older.so" "$scratch/out"
ok $? "info lists a family with an older table"
grep -q 'behind its end' "$scratch/out"
[ $? -eq 1 ]
ok $? "and reads nothing behind that table's end"
grep -q 'short, not usable: .*its table has 24 bytes' "$scratch/out"
ok $? "and says what is wrong with one that is too short"

# Every file is named, whether or not it is there.
"$conform" > "$scratch/out" 2>&1
[ $? -eq 2 ] && grep -q '^usage: graphhooks-conform FILE.so' "$scratch/out"
ok $? "no file is refused with the usage"
"$conform" --help > "$scratch/out" 2> /dev/null &&
    grep -q '^usage: graphhooks-conform FILE.so' "$scratch/out"
ok $? "--help is the usage on stdout"
"$conform" right > "$scratch/out" 2>&1
[ $? -eq 1 ] && grep -q '^# it is called right; give' "$scratch/out" &&
    grep -q '^# stopped: the name of a family' "$scratch/out"
ok $? "a bare name is refused, with the reason"
"$conform" "$scratch/text.so" > "$scratch/out" 2>&1
[ $? -eq 1 ] && grep -q '^# stopped: such a file is not loaded$' "$scratch/out"
ok $? "after a point that ends the run it says so"
grep -q 'conform\.c' "$scratch/out"
[ $? -eq 1 ]
ok $? "and names no source file"
"$conform" "$scratch/nowhere.so" > "$scratch/out" 2>&1
[ $? -eq 1 ] && grep -q 'the file cannot be read: No such file' "$scratch/out"
ok $? "a file that is not there does not conform, for that reason"
cp "$scratch/right.so" "$scratch/right.so.1"
"$conform" "$scratch/right.so.1" > "$scratch/out" 2>&1
[ $? -eq 1 ]
ok $? "a file that is not called NAME.so does not conform"
(cd "$scratch" && "$conform" right.so) > "$scratch/out" 2>&1
ok $? "a file is looked for where it is said to be, not where libraries are"

# Cut off anywhere, a file is refused and the program lives on.
crashed=
size=$(wc -c < "$scratch/right.so")
for part in 1 17 63 64 100 500 1000 4097 8200 $((size - 1)); do
    [ "$part" -lt "$size" ] || continue
    head -c "$part" "$scratch/right.so" > "$scratch/cut.so"
    "$conform" "$scratch/cut.so" > "$scratch/out" 2>&1
    [ $? -eq 1 ] || crashed="$crashed $part"
done
empty "$crashed" "a file that is cut off anywhere is refused"

done_testing
