"""hosts/pytorch/examples/megatron_ranks.py, where there is no GPU.

What FAILS names, fails on rank 1.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

import conftest  # noqa: F401 - the device

warnings.simplefilter("ignore")

import softmegatron

softmegatron.install()
softmegatron.take_any_transformer_engine()

sys.path.insert(0, str(Path(__file__).resolve().parents[2]
                       / "hosts/pytorch/examples"))
import megatron_model  # noqa: E402
import megatron_ranks  # noqa: E402

# Where a rank is to fail, the other one does not wait long; else the machine
# may be busy.
megatron_ranks.SECONDS = 5 if "FAILS" in os.environ else 60


class Fails(megatron_model.Hooked):
    def make(self, count: int = 0) -> None:
        if os.environ["RANK"] == "1":
            raise ValueError("by design")
        super().make(count)


if "FAILS" in os.environ:
    megatron_model._GRAPHS[os.environ["FAILS"]] = Fails
sys.exit(megatron_ranks.main(sys.argv[1:]))
