"""graphhooks.exchange: an all-to-all by copies into other processes' memory.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from models import HAS_GPU, torch

if HAS_GPU:
    pytest.skip("a GPU for each of several ranks is asked of nobody",
                allow_module_level=True)
if not torch.distributed.is_gloo_available():
    pytest.skip("torch has no gloo", allow_module_level=True)

WORKER = Path(__file__).with_name("exchange_worker.py")
REACHED = "rank {last} does not reach the memory of rank 0, as copy needs"


@pytest.fixture
def ranks(tmp_path):
    """What each rank came to in some cases."""
    def run(size, *cases, lost=0):
        folder = tmp_path
        processes = [subprocess.Popen([
            sys.executable, str(WORKER), str(folder), str(rank), str(size),
            *cases], stderr=subprocess.PIPE, text=True)
            for rank in range(size)]
        try:
            said = [p.communicate(timeout=120)[1] for p in processes]
        finally:
            for process in processes:
                process.kill()
        found = [json.loads((folder / f"{rank}.json").read_text())
                 for rank in range(size - lost)]
        for each in found:
            assert [r["error"] for r in each.values() if "error" in r] == []
        return found, said

    return run


def check_exact(kind, found, others) -> None:
    """Of torch.distributed's bits, there and back."""
    assert found["reason"] is None
    assert found["kind"] == ("copy" if kind == "auto" else kind)
    if kind != "nccl":
        assert found["peers_ipc"] == others and found["copied_bytes"] > 0
        by_kernel = found["calls"] if kind != "copy" else 0
        assert found["kernel_calls"] == by_kernel


def check_not_reached(found, said) -> None:
    """All ranks have torch's, where one does not reach another."""
    last = len(found) - 1
    for each, text in zip(found, said):
        assert each["not reached"] == {
            "kind": "nccl", "reason": REACHED.format(last=last)}
        assert text.count(f"exchange of {last + 1} ranks by "
                          "torch.distributed") == 1


def check_too_large(found, said) -> None:
    """Both ends of a part know its size, and nobody else is asked."""
    for rank, (each, text) in enumerate(zip(found, said)):
        one = each["too large"]
        assert one["before"] > 0 and one["calls"] == 24 + 16 + 2
        assert one["there and back"] == 2 * (1 if rank else len(found) - 1)
        assert one["most"] >= 9 * 16
        assert text.count("part_bytes is 32: what is larger goes by "
                          "torch.distributed") == 1
        assert "give part_bytes=" in text


def test_two_ranks(ranks):
    found, said = ranks(2, "copy", "kernel", "auto", "nccl", "not reached",
                        "not reached, copy", "too large", "captured", "reads late",
                        "other kinds", "other sizes")
    check_not_reached(found, said)
    check_too_large(found, said)
    for each in found:
        for kind in "copy", "kernel", "auto", "nccl":
            check_exact(kind, each[kind], 1)
        assert each["not reached, copy"] == {
            "said": "exchange: " + REACHED.format(last=1),
            "name": "GH_ERR_UNSUPPORTED"}
        assert each["captured"]["calls"] == 4  # the graph has torch's
        assert each["other kinds"]["name"] == "GH_ERR_CONFIG"
        assert each["other kinds"]["said"].startswith("kind is ")
        assert each["other sizes"] == {"part_bytes": 40}


def test_four_ranks(ranks):
    found, said = ranks(4, "copy", "kernel", "not reached", "too large")
    check_not_reached(found, said)
    check_too_large(found, said)
    for each in found:
        for kind in "copy", "kernel":
            check_exact(kind, each[kind], 3)


def test_a_rank_that_has_given_up_is_named(ranks):
    """What it has sent since is no part."""
    (first, *others), _ = ranks(3, "a rank gives up")
    assert "no part has come from rank 2 in 6 s" \
        in first["a rank gives up"]["said"]
    for each in others:
        found = each["a rank gives up"]
        assert "rank 0 has given the exchange up" in found["said"]
        assert found["after"] < 4


def test_a_rank_that_hangs_is_named_by_who_has_a_large_part_of_it(ranks):
    found, _ = ranks(3, "a rank hangs, too large", lost=1)
    for each in found:
        ended = each["a rank hangs, too large"]
        assert ended["name"] == "GH_ERR_RANKS"
        assert "rank 2" in ended["said"], ended
        # The time is 6 s, also where a part by the window has taken it.
        assert ended["after"] < 11 and ended["closed"] < 20


def test_a_rank_that_ends_is_named_in_time(ranks):
    """While the host waits for the device."""
    found, _ = ranks(3, "a rank ends", lost=1)
    for each in found:
        ended = each["a rank ends"]
        assert ended["name"] == "GH_ERR_RANKS"
        assert "no part has come from rank 2 in 6 s" in ended["said"]
        assert ended["after"] < 20 and ended["closed"] < 20
