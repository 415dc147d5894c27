"""hosts/pytorch/examples/megatron_ranks.py, small.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from models import HAS_GPU, torch

pytest.importorskip("megatron.core",
                    reason="megatron-core is not installed")
if HAS_GPU:
    pytest.skip("a GPU for each of two ranks is asked of nobody",
                allow_module_level=True)
if not torch.distributed.is_gloo_available():
    pytest.skip("torch has no gloo", allow_module_level=True)

_SMALL = ("--device cpu --spec local --dtype fp32 --layers 4 --hidden 32 "
          "--heads 4 --sequence 16 --batch 2 --steps 3 --microbatches 2 "
          "--experts 4").split()
STARTER = Path(__file__).with_name("ranks.py")


@pytest.fixture
def ranks(tmp_path):
    """Its status, what it says, and the lines of results that are whole."""
    out = tmp_path / "out.jsonl"

    def run(*arguments, starts=0, size=2, **environment):
        process = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--standalone",
             "--nproc-per-node", str(size), "--max-restarts", str(starts),
             str(STARTER), "--out", str(out), *_SMALL, *arguments],
            env={**os.environ, **environment}, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            said, _ = process.communicate(timeout=200)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        lines = [json.loads(line) for line in out.read_text().splitlines()] \
            if out.exists() else []
        return process.returncode, said, {
            (each["row"], each["mode"]): each for each in lines
            if "begun" not in each}

    return run


def test_rows_are_equal_and_replay_and_are_not_run_again(ranks):
    status, said, found = ranks(
        "--only", "PP2 VPP2,EP2 overlap,DP2 overlap", "--modes",
        "layer+chunk+scope@auto+scope@auto,exchange+scope:attn,moe_router")
    assert status == 0, said
    assert found.keys() == {
        *(("PP2 VPP2", m) for m in ("off", "layer", "chunk")),
        *(("EP2 overlap", m) for m in ("off", "scope@auto",
                                       "scope@auto,exchange",
                                       "scope:attn,moe_router")),
        *(("DP2 overlap", m) for m in ("off", "layer", "chunk"))}
    for (row, mode), one in found.items():
        assert one["equal"] and one["tokens_per_s"] > 0
        sizes = [c["losses"] for c in one["compared"]]
        assert sizes == ([0, 6] if row == "PP2 VPP2" else [6, 6])
        if mode == "off":
            continue
        assert all(one["replays"]) and one["refused"] == [{}, {}]
        assert all(e.keys() == {"warmup"} for e in one["eager_calls"])
    assert all(o["runs"] for o in found["EP2 overlap", "scope@auto"]["order"])
    assert found["EP2 overlap", "scope@auto,exchange"]["exchange"] \
        == [["copy"]] * 2
    assert found["EP2 overlap", "scope@auto"]["exchange"] == [[], []]
    assert found["PP2 VPP2", "chunk"]["slots"] == [[2, 2], [2, 1]]
    assert "bitwise equal: 7 of 7 trainings in 3 rows" in said

    status, said, again = ranks("--only", "PP2 VPP2", "--modes", "layer")
    assert status == 0 and "bitwise equal: 7 of 7" in said
    assert again == found


def test_a_long_training_records_no_more_and_is_told_apart(ranks):
    """That of EP2, whose tokens go by the exchange, too."""
    modes = "scope+scope@exchange"
    long = "--only", "EP2", "--steps", "12", "--steady"
    status, said, found = ranks(*long, "4", "--modes", modes)
    assert status == 0, said
    for mode in modes.split("+"):
        one = found["EP2", mode]
        assert one["equal"] and one["compared"][0]["losses"] == 12 * 2
        for rank, steady in enumerate(one["steady"]):
            assert steady["grows"] == [] and steady["mib"] == []
            (step, recorded), = steady["recorded"]
            assert 1 < step <= 4 and recorded == one["recordings"][rank]
        assert f"{mode}; rank 0: last recording in step {step}; rank 1" in said
    assert [one["recorded"] for one in found["EP2", "off"]["steady"]] \
        == [[], []]


@pytest.mark.parametrize("recorded, last, grows", [
    (2, (100.5, 900.0, 15.0), []),
    (5, (100.5, 900.0, 15.0), ["recordings in step 5"]),
    (2, (102.0, 400.0, 10.0),
     ["allocated 100.0 MiB after step 4 and 102.0 after step 12"]),
    (2, (100.0, 400.0, 30.0),
     ["of the driver 10.0 MiB after step 4 and 30.0 after step 12"])])
def test_what_grows_is_told_apart(monkeypatch, recorded, last, grows):
    monkeypatch.setattr(sys, "path", [str(
        STARTER.parents[2] / "hosts/pytorch/examples"), *sys.path])
    import types

    import common
    import megatron_ranks

    run = common.Run("scope", "scope", recorded=[(recorded, 8)],
                     memory=[(100.0, 400.0, 10.0), last])
    args = types.SimpleNamespace(steady=4, steps=12)
    assert megatron_ranks.unsteady(args, run) == grows

    # It is said, and the program does not end well.
    found = {"equal": True, "steady": [
        {"recorded": run.recorded, "mib": run.memory, "grows": grows}]}
    said = megatron_ranks.steady_words(found)
    assert said.startswith(f"; rank 0: last recording in step {recorded}")
    assert said.endswith("GROWS: " + grows[0]) if grows \
        else "GROWS" not in said
    assert megatron_ranks.verdict({"PP2": {"layer": found}}) == (
        "bitwise equal: 1 of 1 trainings in 1 rows", not grows)


def test_a_mode_that_fails_on_one_rank_ends_no_other(ranks):
    status, said, found = ranks("--only", "PP2,TP2 SP EP2,PP2 MLA MoE",
                                starts=1, FAILS="layer")
    assert "waited 5 s for the others" in said
    # The eager one once more, by the processes that came after.
    assert found.keys() == {("PP2", "off"), ("PP2", "chunk")}
    assert found["PP2", "chunk"]["equal"]
    assert "layer, all: the processes ended, or some waited" in said
    assert "bitwise equal: 1 of 2 trainings" in said
    # What all ranks refuse.
    assert "TP2 SP EP2: left out: Megatron's local spec" in said
    assert "PP2 MLA MoE: left out: Megatron's local spec" in said


def test_the_distributed_optimizer_under_a_pipeline(ranks):
    """Parameters are gathered, and gradients scattered, beside the others."""
    row = "PP2 VPP2 DP2 distributed optimizer"
    status, said, found = ranks("--only", row, size=4)
    assert status == 0, said
    for mode in "layer", "chunk":
        one = found[row, mode]
        assert one["equal"] and one["refused"] == [{}] * 4
        assert all(e.keys() == {"warmup"} for e in one["eager_calls"])
        assert all(one["replays"])
