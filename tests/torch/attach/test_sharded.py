"""Parameters that ranks share: FSDP's, which graphs cannot have, and what an
optimizer has of its state (ZeRO-1), which they need not know.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from models import HAS_GPU, torch

if HAS_GPU:
    pytest.skip("its ranks share a simulated GPU", allow_module_level=True)
if not torch.distributed.is_available():
    pytest.skip("torch has no torch.distributed", allow_module_level=True)

SAID = "layers.0 is sharded by FSDP (fully_shard), whose parameters come " \
    "and go, and graphs need them in place: use DistributedDataParallel, " \
    "and ZeroRedundancyOptimizer of torch.distributed.optim"


def run(case: str, folder: Path) -> list:
    """What two ranks have left."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    outs = [folder / f"{rank}.json" for rank in range(2)]
    ranks = [subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("sharded_worker.py")),
         case, str(out)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2",
                        "MASTER_ADDR": "127.0.0.1",
                        "MASTER_PORT": str(port)})
        for rank, out in enumerate(outs)]
    try:
        said = [rank.communicate(timeout=240)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert all(out.exists() for out in outs), "\n".join(said)
    return [json.loads(out.read_text()) for out in outs]


@pytest.mark.parametrize("grain", ["layer", "chunk"])
def test_a_sharded_optimizer_leaves_the_graphs(tmp_path, grain):
    for rank in run(f"zero {grain}", tmp_path):
        assert rank["equal"] and rank["replays"] > 0


def test_what_FSDP_has_sharded_is_refused_by_its_name(tmp_path):
    for rank in run("after", tmp_path):
        assert rank["error"].startswith(SAID)


def test_what_FSDP_shards_after_the_attach_is_eager(tmp_path):
    """And nothing is raised in the middle of a training."""
    for rank in run("before", tmp_path):
        assert rank["equal"] and rank["replays"] == 0
        assert "could not be attached anew, so all layers run eagerly from " \
            f"now on: {SAID}" in rank["explain"]
