#!/bin/sh
# Megatron-Core's models with graphs: tests/megatron, each test a point.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
. "$srcdir/tests/tap/pytest.sh"

python=$(python_for_pytest 'import torch, megatron.core')
[ -n "$python" ] || skip_all "torch and megatron-core are not both installed"

before_pytest
run_pytest tests/megatron tests/megatron
