#!/bin/sh
# The Python package: tests/torch/package, each test a point.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
. "$srcdir/tests/tap/pytest.sh"

# A python3 of the user's own may lack the pytest that apt has installed.
[ -n "$(pythons)" ] || skip_all "no python3 to run the package's tests with"
python=$(python_for_pytest '')
[ -n "$python" ] || skip_all "python3 has no pytest, or is older than 3.9"

before_pytest
run_pytest tests/torch/package tests/torch/package
