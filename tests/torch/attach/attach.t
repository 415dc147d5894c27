#!/bin/sh
# Training with graphs in PyTorch: tests/torch/attach, each test a point.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
. "$srcdir/tests/tap/pytest.sh"

# A python3 of the user's own may have torch, and the system's may not.
python=$(python_for_pytest 'import torch')
[ -n "$python" ] || [ -n "$(python_for_pytest '')" ] ||
    skip_all "no python3 with pytest, of 3.9 or later"
[ -n "$python" ] || skip_all "torch is not installed"

before_pytest
run_pytest tests/torch/attach tests/torch/attach
