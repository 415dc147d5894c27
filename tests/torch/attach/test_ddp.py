"""DistributedDataParallel: its buckets see finished gradients.

All cases run once, in ddp_worker.py, by NCCL: two ranks where there are two
GPUs, or where NCCL lets them share one (NCCL_MULTI_RANK_GPU_ENABLE=1, from
2.30 on), else one.  And once by gloo, whose threads copy gradients to the host.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from models import need_gpu, torch

need_gpu()
if not torch.distributed.is_available():
    pytest.skip("torch has no ranks", allow_module_level=True)

from ddp_worker import CASES  # noqa: E402


@pytest.fixture(scope="module", params=["nccl", "gloo"])
def results(request, tmp_path_factory):
    if not torch.distributed.is_backend_available(request.param):
        pytest.skip(f"torch has no {request.param}")
    out = tmp_path_factory.mktemp("ddp") / "results.json"
    shared = request.param == "gloo" \
        or os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1"
    ranks = 2 if shared else min(torch.cuda.device_count(), 2)
    ran = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone",
         f"--nproc-per-node={ranks}",
         str(Path(__file__).with_name("ddp_worker.py")), str(out),
         request.param],
        text=True, capture_output=True, timeout=900)
    assert out.exists(), ran.stdout + ran.stderr
    return json.loads(out.read_text())


@pytest.mark.parametrize("case", CASES)
def test_ranks_train_as_they_do_eagerly(results, case):
    for rank, result in enumerate(results):
        assert case in result, f"rank {rank} did not get to it"
        found = result[case]
        assert found["error"] is None, found["error"]
        assert found["differing"] == [], f"on rank {rank}"
        assert found["refused"] == {}
        assert found["replays"] > 0
