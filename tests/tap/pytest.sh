# shellcheck shell=sh
# pytest.sh - tests in Python, each a point; sourced after tap.sh.
#
# SPDX-License-Identifier: Apache-2.0

# Prints each python3 that is there, one a line: the one that is asked for,
# the user's own, and the system's, for which apt installs.
pythons()
{
    for candidate in ${PYTHON:+"$PYTHON"} python3 /usr/bin/python3; do
        ! have "$candidate" || printf '%s\n' "$candidate"
    done
}

# python_for_pytest CODE prints the first of them that is of 3.9 or later,
# has pytest and runs the code; nothing when there is none.
python_for_pytest()
{
    pythons | while read -r candidate; do
        if "$candidate" -c "import sys, pytest
if sys.version_info < (3, 9):
    sys.exit(1)
$1" < /dev/null > /dev/null 2>&1; then
            printf '%s\n' "$candidate"
            break
        fi
    done
}

# The source tree stays as it is, and nothing is left behind.
before_pytest()
{
    [ -z "${sanitize-}" ] ||
        skip_all "python3 cannot load a library that is built with a sanitizer"
    scratch
    PYTHONDONTWRITEBYTECODE=1
    export PYTHONDONTWRITEBYTECODE
}

# run_pytest ROOT TESTS [OPTION...], by $python: folders of the source tree.
# Several tests at once where pytest can: one waits most of its time, for a
# GPU, for the disk or for another process.
run_pytest()
{
    root=${srcdir:?}/$1
    tests=$srcdir/$2
    shift 2
    if "${python:?}" -c 'import xdist' 2> /dev/null; then
        jobs=4
        [ "$(nproc)" -lt 16 ] || jobs=8
        set -- "$@" -n "$jobs"
    fi
    "$python" -m pytest --tap "$@" -p no:terminal -p no:cacheprovider \
        -c /dev/null --rootdir "$root" --basetemp "${scratch:?}/tmp" "$tests"
}
