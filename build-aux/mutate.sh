#!/bin/sh
# mutate.sh - breaks the sources one line at a time, and sees who notices.
#
#     build-aux/mutate.sh LIST TEST...
#
# LIST is a file such as those in tests/mutations/: one mutation a line,
#
#     FILE|SED-EXPRESSION|NOTE
#
# with the FILE from the top of the tree.  The first and the last | end
# FILE and begin NOTE; those between belong to the expression.  An empty
# line, and one that begins with #, says nothing.  Each TEST is one of make
# check's, such as tests/unit/base/json.t: name the fast ones first, as the
# first that fails ends a mutation.
#
# The tree that holds this script is copied, without a build, to a scratch
# directory and built there; the tests have to pass before the first
# mutation.  Each mutation is then applied, built, tested and taken back.
# All is done in the copy, so the tree may be edited meanwhile.  For each one
# a line says
#
#     killed            which test failed, or ran out of time
#     survived          all tests passed
#     does-not-compile  make refused it
#     no-change         the expression changed nothing: mend the list, as
#                       build-aux/check-mutations.sh asks for too
#
# and the totals come last.  It exits 0 when none survived.
#
#     JOBS=N       make's jobs (1)
#     LIMIT=N      seconds that the tests of one mutation may take (120); a
#                  hang counts as killed
#     SCRATCH=DIR  work there and leave it, so that the next run builds
#                  little; by default a new directory, removed at the end
#     CONFIGURE=   options for configure: --enable-sanitizer sees leaks
#
# SPDX-License-Identifier: Apache-2.0
set -eu

usage='usage: build-aux/mutate.sh LIST TEST...'
list=${1:?$usage}
shift
: "${1:?$usage}"

jobs=${JOBS:-1}
limit=${LIMIT:-120}
top=$(cd "$(dirname "$0")/.." && pwd -P)
if [ -n "${SCRATCH:-}" ]; then
    mkdir -p "$SCRATCH"
    scratch=$(cd "$SCRATCH" && pwd -P)
    trap 'take_back' EXIT
else
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
fi
trap 'exit 130' INT TERM
tree=$scratch/tree
build=$scratch/build
file=

die()
{
    echo "mutate.sh: $*" >&2
    exit 2
}

# What git knows or would add; a file that is as it was keeps its time, so
# that make does not build it again.
copy_tree()
{
    git -C "$top" ls-files -co --exclude-standard | while read -r name; do
        if [ -f "$top/$name" ] && ! cmp -s "$top/$name" "$tree/$name"; then
            mkdir -p "$(dirname "$tree/$name")"
            cp "$top/$name" "$tree/$name"
        fi
    done
}

# Assertions and warnings are configure's defaults: a mutation that leaves a
# variable unused still compiles.
prepare()
{
    mkdir -p "$tree" "$build"
    copy_tree
    if [ ! -f "$tree/configure" ]; then
        (cd "$tree" && autoreconf -fi) || die "autoreconf: it failed"
    fi
    if [ ! -f "$build/Makefile" ]; then
        # shellcheck disable=SC2086  # several options
        (cd "$build" && "$tree/configure" -q ${CONFIGURE:-}) ||
            die "configure: it failed"
    fi
    build
}

build()
{
    make -s -C "$build" -j"$jobs" all
}

# tests_pass SECONDS TEST...: run them until one fails; $blame says which.
# Make's own rule builds the program and runs it under the harness.
tests_pass()
{
    ends=$(($(date +%s) + $1))
    shift
    for blame; do
        log=${blame%.t}.log
        rm -f "$build/$log" "$build/${log%.log}.trs"
        left=$((ends - $(date +%s)))
        if [ "$left" -le 0 ] ||
            ! timeout -k 5 "$left" make -s -C "$build" -j"$jobs" "$log"; then
            if [ "$(date +%s)" -ge "$ends" ]; then
                blame="$blame (ran out of time)"
            fi
            return 1
        fi
        grep -qE '^:global-test-result: (PASS|SKIP)' \
            "$build/${log%.log}.trs" || return 1
    done
}

take_back()
{
    if [ -n "$file" ]; then
        cp "$scratch/whole" "$tree/$file"
        file=
    fi
}

# What becomes of the tree as $file stands: $verdict, and $blame.
judge()
{
    if cmp -s "$scratch/whole" "$tree/$file"; then
        verdict=no-change blame=
    elif ! build; then
        verdict=does-not-compile blame=
    elif tests_pass "$limit" "$@"; then
        verdict=survived blame=
    else
        verdict=killed
    fi
} > "$scratch/output" 2>&1

prepare > "$scratch/output" 2>&1 ||
    die "the tree as it is does not build: see $(cat "$scratch/output")"
tests_pass 3600 "$@" > "$scratch/output" 2>&1 ||
    die "$blame: it fails without a mutation; mend that first"

cp "$list" "$scratch/list" # it may be edited meanwhile
killed=0 survived=0 refused=0 unchanged=0
while IFS= read -r line <&3; do
    case $line in
    '' | '#'*) continue ;;
    *'|'*'|'*) ;;
    *) die "$line: FILE|SED-EXPRESSION|NOTE is the form of a line" ;;
    esac
    name=${line%%|*}
    rest=${line#*|}
    note=${rest##*|}
    [ -f "$tree/$name" ] || die "$name: there is no such file"
    cp "$tree/$name" "$scratch/whole"
    file=$name
    sed -e "${rest%|*}" "$scratch/whole" > "$tree/$file" ||
        die "$line: sed refused the expression"
    judge "$@"
    echo "$verdict: $file: $note${blame:+ [$blame]}"
    take_back
    case $verdict in
    killed) killed=$((killed + 1)) ;;
    survived) survived=$((survived + 1)) ;;
    does-not-compile) refused=$((refused + 1)) ;;
    no-change) unchanged=$((unchanged + 1)) ;;
    esac
done 3< "$scratch/list"

echo "$killed killed, $survived survived, $refused did not compile," \
    "$unchanged changed nothing"
[ "$survived" -eq 0 ] && [ "$unchanged" -eq 0 ]
