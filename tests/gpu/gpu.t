#!/bin/sh
# Training with graphs in PyTorch: tests/gpu, each test a point.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"

# A python3 of the user's own may have torch, and the system's may not.
python=
found=no
for candidate in ${PYTHON:+"$PYTHON"} python3 /usr/bin/python3; do
    have "$candidate" || continue
    "$candidate" -c 'import sys, pytest
sys.exit(sys.version_info < (3, 9))' 2> /dev/null || continue
    found=yes
    if "$candidate" -c 'import torch' 2> /dev/null; then
        python=$candidate
        break
    fi
done
[ $found = yes ] || skip_all "no python3 with pytest, of 3.9 or later"
[ -n "$python" ] || skip_all "torch is not installed"
[ -z "${sanitize-}" ] ||
    skip_all "python3 cannot load a library that is built with a sanitizer"

# The source tree stays as it is, and nothing is left behind.
scratch
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE
# A test waits for the host most of its time.
jobs=
if "$python" -c 'import torch, xdist
raise SystemExit(torch.cuda.device_count() == 0)' 2> /dev/null; then
    jobs='-n 4'
fi
# shellcheck disable=SC2086 # two words or none
"$python" -m pytest --tap $jobs -p no:terminal -p no:cacheprovider \
    -c /dev/null --rootdir "$srcdir/tests/gpu" --basetemp "$scratch/tmp" \
    "$srcdir/tests/gpu"
