"""Parameters that ranks share: FSDP's, which are gathered for each call, and
what an optimizer has of its state (ZeRO-1), which graphs need not know.

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
import models
from models import HAS_GPU, torch

from graphhooks.torch.base import gathered

if HAS_GPU:
    pytest.skip("its ranks share a simulated GPU", allow_module_level=True)
if not torch.distributed.is_available():
    pytest.skip("torch has no torch.distributed", allow_module_level=True)

from torch.distributed import fsdp  # noqa: E402


def run(folder: Path, *cases: str) -> list:
    """What each of two ranks has left of each case, with its name."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    outs = [folder / f"{rank}.json" for rank in range(2)]
    ranks = [subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("sharded_worker.py")),
         ",".join(cases), str(out)], stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
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
    return [{"case": case, **found} for out in outs
            for case, found in zip(cases, json.loads(out.read_text()))]


STEPS, LAYERS = 6, 3
# What one layer has, as the graphs read it and as they leave gradients.
SHARED = 2 * 4 * sum(p.numel() for p in models.Block().parameters())
FSDP = "layers.0 and 2 more are sharded by FSDP (fully_shard)"


def check_replays(found) -> None:
    """Eager's bits, and no call is eager but in the first step, where what is
    checkpointed runs twice."""
    assert found["equal"], found
    assert found["replays"] > 0 and not found["refused"], found
    assert set(found["eager"]) <= {"warmup", *(
        why for word, why in (("checkpoint", "checkpoint"),
                              ("evaluate", "forward_only"),
                              ("stop", "input"))
        if word in found["case"])}, found
    assert FSDP in found["explain"]


def test_a_sharded_optimizer_leaves_the_graphs(tmp_path):
    for found in run(tmp_path, "zero layer", "zero chunk"):
        assert found["equal"] and found["replays"] > 0


@pytest.mark.parametrize("cases", [
    ("layer", "chunk", "part", "bf16", "keep", "root", "twice"),
    ("sync", "tied", "hand", "always", "bf16 sync keep", "checkpoint"),
    ("grouped", "host", "evaluate", "prefetch clip", "stay", "stop",
     "nested part")])
def test_what_FSDP_shards_replays(tmp_path, cases):
    """FSDP's own hooks gather and reduce as ever, around graphs that read
    copies, in memory that layers share."""
    if not hasattr(fsdp.FSDPModule, "reset_iter_state"):  # before torch 2.12
        cases = [case for case in cases if case != "stop"]
    for found in run(tmp_path, *(f"after {case}" for case in cases)):
        check_replays(found)
        assert found["verify"]["differences"] == {}
        assert found["verify"]["backwards"] > 0
        if found["case"] == "after layer":
            assert found["shared"] == SHARED


def test_llama_that_FSDP_shards_replays(tmp_path):
    pytest.importorskip("transformers")
    for found in run(tmp_path, *(f"after llama {case}" for case in (
            "layer", "bf16", "checkpoint", "part"))):
        assert found["equal"] and not found["refused"], found
        assert found["replays"] > 0, found


def test_what_FSDP_shards_after_the_attach_replays(tmp_path):
    """After an attach anew; and so do weights that are frozen later."""
    for found in run(tmp_path, "before", "after freeze"):
        assert found["equal"] and found["replays"] > 0, found
        assert found["eager"]["replaced"] > 0


def test_what_graphs_do_not_do_beside_FSDP_is_named(tmp_path):
    for found in run(tmp_path, "after apart keep", "after nested",
                     "after eval"):
        if "eval" in found["case"]:
            assert found["error"] == (
                "eval is not for layers that are sharded by FSDP "
                "(fully_shard): graphs of evaluation read parameters in "
                "place, and FSDP moves them; leave eval out")
            continue
        assert found["equal"] and len(found["refused"]) == LAYERS, found
        if "apart" in found["case"]:
            assert found["replays"] > 0
            assert "set_unshard_in_backward(False)" in found["explain"]
        else:
            assert "mlp has hooks, which a replay would not call, as FSDP " \
                "shards it by itself" in found["explain"]


class Stream:
    """Notes for which others it waits."""

    def __init__(self) -> None:
        self.waited: list = []

    def wait_stream(self, other) -> None:
        self.waited.append(other)


def test_who_has_the_shared_memory_next_waits_for_who_had_it(monkeypatch):
    """On another stream alone."""
    one, other = Stream(), Stream()
    at = iter([one, one, other, other, one])
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: next(at))
    pool = gathered.Pool()
    for _ in range(5):
        pool.take()
    assert other.waited == [one] and one.waited == [other]
