#!/bin/sh
# The Python package: hosts/pytorch/tests, each test a point.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"

# A python3 of the user's own may lack the pytest that apt has installed.
python=
found=no
for candidate in ${PYTHON:+"$PYTHON"} python3 /usr/bin/python3; do
    have "$candidate" || continue
    found=yes
    if "$candidate" -c 'import sys, pytest
sys.exit(sys.version_info < (3, 9))' 2> /dev/null; then
        python=$candidate
        break
    fi
done
[ $found = yes ] || skip_all "no python3 to run the package's tests with"
[ -n "$python" ] || skip_all "python3 has no pytest, or is older than 3.9"
[ -z "${sanitize-}" ] ||
    skip_all "python3 cannot load a library that is built with a sanitizer"

# The source tree stays as it is, and nothing is left behind.
scratch
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
"$python" -m pytest --tap -p no:terminal -p no:cacheprovider \
    -c /dev/null --rootdir "$srcdir/hosts/pytorch" --basetemp "$scratch/tmp" \
    "$srcdir/hosts/pytorch/tests"
