"""A process of its own, in which Megatron finds a device (softmegatron.py).

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

_TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(_TOP / "tests" / "torch" / "attach"),
                str(_TOP / "tests" / "torch" / "package")]
# Functions that Megatron has torch compile: there is no GPU to do so for.
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")

from harness import (  # noqa: E402
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_configure,
)

import pytest  # noqa: E402

try:
    import torch
except ModuleNotFoundError:  # which the tests say
    pass
else:
    import softtorch

    if torch.cuda.device_count() == 0:
        softtorch.install()


@pytest.fixture(scope="module")
def world():
    """One rank, in groups of its own."""
    import training

    training.begin()
    training.divide()
    yield
    training.end()


__all__ = ["pytest_addoption", "pytest_collection_modifyitems",
           "pytest_configure"]
