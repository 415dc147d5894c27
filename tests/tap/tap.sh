# shellcheck shell=sh
# tap.sh - the Test Anything Protocol for tests in shell; sourced by them.
#
# The harness sets srcdir and builddir, the tops of both trees.  A point's
# name is a sentence that is true when read alone in a log.
#
# SPDX-License-Identifier: Apache-2.0
: "${srcdir:?run this by make check}" "${builddir:?run this by make check}"

# One order of sorting, one spelling of messages, whoever runs this.
LC_ALL=C
export LC_ALL

tap_n=0
tap_failed=0

# ok STATUS NAME, as in: cmp -s a b; ok $? "a and b are the same"
ok()
{
    tap_n=$((tap_n + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $tap_n - $2"
    else
        tap_failed=$((tap_failed + 1))
        echo "not ok $tap_n - $2"
    fi
}

# Remarks come as arguments or, without any, from the standard input.
diag()
{
    if [ $# -gt 0 ]; then
        printf '%s\n' "$*"
    else
        cat
    fi | sed 's/^/# /'
}

# empty TEXT NAME: holds when TEXT is empty, and shows it otherwise.
empty()
{
    [ -z "$1" ]
    ok $? "$2"
    [ -z "$1" ] || diag "$1"
}

skip()
{
    tap_n=$((tap_n + 1))
    echo "ok $tap_n # SKIP $1"
}

skip_all()
{
    echo "1..0 # SKIP $1"
    exit 0
}

done_testing()
{
    echo "1..$tap_n"
    [ "$tap_failed" -eq 0 ]
    exit $?
}

# A folder of the test's own, gone when it ends.
scratch()
{
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/graphhooks.XXXXXX") || exit 99
    trap 'rm -rf "$scratch"' EXIT
    trap 'exit 99' HUP INT TERM
}

# build_fixture DIRECTORY NAME [FLAG...]: makes NAME.so of the families that
# are wrong, each in one way.
build_fixture()
{
    directory=$1
    fixture=$2
    shift 2
    # shellcheck disable=SC2086 # CC and flags are words
    ${CC:-cc} -shared -fPIC -fvisibility=hidden -Wall -Werror \
        -Wno-unused ${sanitize-} -I"$srcdir/include" \
        -DFIXTURE_"$fixture" -DNAME="\"$fixture\"" "$@" \
        -o "$directory/$fixture.so" "$srcdir/tests/plugin/fixture.c"
}

have()
{
    command -v "$1" > /dev/null 2>&1
}
