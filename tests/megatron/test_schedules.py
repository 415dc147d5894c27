"""Megatron's schedules of several processes, with graphs and without.

The cases are in worker.py: the processes of a test run several of them, one
after the other, as it takes them long to start.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from models import HAS_GPU, torch

pytest.importorskip("megatron.core",
                    reason="megatron-core is not installed")
if HAS_GPU:
    pytest.skip("a GPU for each of four ranks is asked of nobody",
                allow_module_level=True)
if not torch.distributed.is_gloo_available():
    pytest.skip("torch has no gloo", allow_module_level=True)

SECONDS = 300
# What each rank's chunks have in flight at most, as the schedule has it.
SLOTS = {
    "1F1B": [[2], [1]], "1F1B, MoE": [[2], [1]], "1F1B, packed": [[2], [1]],
    "interleaved": [[4, 2], [3, 1]],
    "interleaved, MoE": [[4, 2], [3, 1]],
    "interleaved, MoE, gathered": [[4, 2], [3, 1]],
    "1F1B, whole chunks": [[2], [1]],
    "interleaved, whole chunks": [[4, 2], [3, 1]],
    "interleaved by threes": [[6, 3], [4, 2]],
    **{f"1F1B, {each}": [[2], [1]] for each in (
        "dense: attn", "dense: mlp", "dense: attn,mlp", "moe: attn",
        "moe: moe_router", "moe: attn,moe_router",
        "moe: moe_router,moe_preprocess",
        "shared: attn,moe_router,moe_preprocess",
        "padded: attn,moe", "mla: attn", "packed, whole chunks",
        "a capacity, whole chunks")},
    **{f"by threes, {each}": [[6, 3], [4, 2]] for each in (
        "dense: mlp", "moe: moe_router", "moe: attn,moe_router",
        "moe: attn,moe_router,moe_preprocess", "padded: attn,moe")},
    **{f"interleaved, {each}, whole chunks": [[4, 2], [3, 1]]
       for each in ("packed", "a capacity")},
    "no overlap": [[1]] * 2,
    "capacity, layer": [[1]] * 2, "capacity, chunk": [[1]] * 2,
    "slower on one rank": [[1]] * 2,
    "faster on all": [[1]] * 2, "columns and rows": [[1]] * 2,
    "columns and rows, computed again": [[1]] * 2,
    "packed": [[1]] * 2, "contexts of several sizes": [[1]] * 2,
    "contexts, each by its own group": [[1]] * 2,
    "contexts, kept by the attention": [[1]] * 2,
    **{f"contexts, kept for later{grain}": [[1]] * 2
       for grain in ("", ", whole chunks")},
    "contexts, slower on one": [[1]] * 2,
    "contexts, by no argument": [[1]] * 2,
    "five partitions": [[1]] * 4, "too few banks": [[1]] * 4,
    **{f"padded sequences{each}": [[1]] * 4
       for each in ("", " of experts", " of latent attention")},
    "overlap of padded sequences": [[2]] * 4, "overlap of all": [[2]] * 4,
    "uneven, tied": [[2], [1]], "uneven, tied, whole chunks": [[2], [1]],
    **{f"interleaved, uneven, tied, {what}": [[4, 2], [3, 1]]
       for what in ("parts", "layers", "whole chunks")},
    "too few slots": [[1]] * 2,
    "parts of a sequence, dense ": [[1]] * 2,
    "parts of a sequence, dense attn,mlp": [[1]] * 2,
    "parts of a sequence, moe attn,moe_router,moe_preprocess": [[1]] * 2,
    "four stages": [[4], [3], [2], [1]],
    "four stages, uneven, tied": [[4], [3], [2], [1]],
    "four stages, interleaved by sixes, whole chunks":
        [[12, 6], [11, 5], [9, 4], [7, 3]],
    "a hook on one rank": [[2]] * 2 + [[1]] * 2,
    "a hook on one rank, experts": [[4, 2]] * 2 + [[3, 1]] * 2,
    "two stages, parts of a sequence": [[4, 2]] * 2 + [[3, 1]] * 2,
    # A forward begins before the backward beside it.
    "overlap, attn": [[2]] * 2, "overlap, attn,moe_router": [[2]] * 2,
    "overlap, attn,moe_router,moe_preprocess": [[2]] * 2,
    "overlap, moe_router": [[2]] * 2,
    "overlap, moe_router,moe_preprocess": [[2]] * 2,
    "overlap of dense layers and experts": [[2]] * 2,
    "overlap of shared experts": [[2]] * 2,
    "overlap of a sigmoid router": [[2]] * 2,
    "overlap of several tokens ahead": [[2]] * 2,
    "overlap of latent attention": [[2]] * 2,
    "overlap of buckets": [[2]] * 2,
    "overlap, hooks that nobody hears": [[2]] * 2,
    **{f"overlap, and the model beside it, {each}": [[2]] * 2 for each in (
        "attn", "attn,moe_router", "attn,moe_router,moe_preprocess",
        "delayed weights")},
    **{f"overlap, delayed weights, {scope}": [[2]] * 2 for scope in (
        "attn", "attn,moe_router", "moe_router", "moe_router,moe_preprocess",
        "attn,moe_router,moe_preprocess")},
    "overlap of contexts, each by its own group": [[2]] * 2,
    "overlap of contexts, attn": [[2]] * 2,
    "overlap of contexts, attn,moe_router,moe_preprocess": [[2]] * 2,
    "overlap of contexts, delayed weights": [[2]] * 2,
    "offload, 1F1B": [[2], [1]], "offload, more stays behind": [[2], [1]],
    "offload, interleaved": [[4, 2], [3, 1]],
    "offload, overlap": [[2]] * 2,
    "all at once": [[4, 2]] * 4,
    "two lengths, 1F1B": [[2], [1]], "two lengths, whole chunks": [[2], [1]],
    "two lengths, interleaved": [[4, 2], [3, 1]],
    "two lengths, experts": [[1]] * 2,
    "saved by two": [[1]] * 2, "saved by stages": [[2], [1]],
    "saved by experts": [[1]] * 2,
    "order off": [[1]] * 2, "order fixed": [[2]] * 2, "order auto": [[2]] * 2,
    "order auto, delayed weights": [[2]] * 2,
    "order auto, dense layers between": [[2]] * 2,
    "order auto, interleaved": [[4, 2]] * 4,
    "overlap, interleaved": [[4, 2]] * 4,
}


# A start takes as long as two or three cases.
CASES_OF_ONE = 2


@pytest.fixture
def most(pytestconfig) -> int:
    """Cases of a set that run, where not all of a test do; 0: all."""
    return CASES_OF_ONE * (pytestconfig.getoption("--most") or 0)


def ran(folder: Path, cases: str, size: int, lost: int = -1,
        most: int = 0) -> dict:
    """What each rank has found, by case; nothing of one that is lost.
    An error fails the test, with the texts of all ranks."""
    worker = Path(__file__).with_name("worker.py")
    logs = [folder / f"{rank}.log" for rank in range(size)]
    processes = [subprocess.Popen(
        [sys.executable, str(worker), str(folder), str(rank), str(size),
         cases, str(most)], stdout=log.open("w"), stderr=subprocess.STDOUT)
        for rank, log in enumerate(logs)]
    end = time.monotonic() + SECONDS
    try:
        for rank, process in enumerate(processes):
            if rank == lost:  # which may hang
                process.kill()
            process.wait(end - time.monotonic())
    except subprocess.TimeoutExpired:
        pytest.fail("it hangs: " + "".join(log.read_text() for log in logs))
    finally:
        for process in processes:
            process.kill()
            process.wait()
    found: dict = {}
    for rank, log in enumerate(logs):
        left = folder / f"{rank}.json"
        if rank == lost:
            assert not left.exists() and processes[rank].returncode < 0
            continue
        assert left.exists(), log.read_text()
        for case, result in json.loads(left.read_text()).items():
            found.setdefault(case, []).append(result)
    errors = [f"{case}: {rank['error']}" for case, ranks in found.items()
              for rank in ranks if "error" in rank]
    assert not errors, "\n".join(errors)
    return found


@pytest.mark.parametrize("cases, size, count", [
    ("pipeline", 2, 9), ("scopes", 2, 19), ("experts", 2, 8),
    ("overlap", 2, 22), ("pieces", 2, 10), ("partitions", 4, 2),
    ("lengths", 4, 5),
    ("stages", 2, 16), ("offload", 2, 4), ("order", 2, 5), ("four", 4, 9)])
def test_all_microbatches_of_a_schedule_replay(tmp_path, cases, size, count,
                                               most):
    found = ran(tmp_path, cases, size, most=most)
    for case, ranks in found.items():
        for rank in ranks:
            assert rank["replays"] == rank["passes"] - rank["warmup"], case
        assert [rank["slots"] for rank in ranks] == SLOTS[case], case
        # Which was known before.
        known = [rank["schedule"] for rank in ranks if "schedule" in rank]
        if case == "too few slots":
            assert known == [[2], [1]]
            assert [("max_slots is 1, and the schedule has up to 2" in
                     rank["explained"]) for rank in ranks] == [True, False]
            continue
        assert known in (SLOTS[case], []) or case == "order off", case
    assert len(found) == min(count, most or count)
    for case, kept in ("slower on one rank", False), ("faster on all", True):
        for rank in found.get(case, ()):
            assert rank["kept"] is kept, case
            assert rank["refused"] == (0 if kept else 2)
    several = found.get("contexts of several sizes", ())
    assert all(rank["banks"] == [2] for rank in several)
    of_own_groups(found)
    for case, ranks in found.items():
        assert not case.startswith("two lengths") or all(
            set(rank["banks"]) == {2} for rank in ranks), case
    if cases == "lengths":
        assert all(rank["banks"] == [4] for ranks in found.values()
                   for rank in ranks)
    for case, ranks in found.items() if cases == "scopes" else ():
        for rank in ranks:
            # Eager is the first step, and a graph is recorded once a slot.
            assert rank["warmup"] == rank["first"], case
            assert rank["recordings"] == 2 * sum(rank["slots"]) \
                * rank["layers"] // len(rank["slots"]), case
    for case in [case for case in found if case.startswith("order")]:
        one, *others = (rank["overlap"] for rank in found[case])
        assert one["runs"] and (one["waits"] > 0) == (case != "order off")
        assert (one["predicted_ns"] > 0) == ("auto" in case)
        # All ranks that exchange tokens take one order.
        assert others[0]["predicted_ns"] == one["predicted_ns"]
    for case in "offload, 1F1B", "offload, interleaved", "offload, overlap", \
            "all at once":
        assert all(rank["moved"][0] > 0 for rank in found.get(case, ()))
    behind = found.get("offload, more stays behind")
    if behind:  # in the last stage, as the delta says
        first, last = (rank["moved"][0] for rank in behind)
        assert first > last
    for case in "a hook on one rank", "a hook on one rank, experts":
        for rank, one in enumerate(found.get(case, ())):
            # The others of its group go along, and nobody else.
            why, = one["refused"].values() if rank > 1 else ("",)
            assert ("rank 3 runs it eagerly" in why, "has hooks" in why) \
                == (rank == 2, rank == 3)
            # Each layer in 20 microbatches, the first four of which warm up,
            # and one that is eager from the third step on.
            layers = 4 if "experts" in case else 2
            assert one["replays"] == 32 * layers - (0 if rank < 2 else 2 * 12)


def of_own_groups(found) -> None:
    """A rank has banks for as many groups as it meets."""
    for case in "contexts, each by its own group", "five partitions":
        for rank in found.get(case, ()):
            assert rank["banks"] == [rank["groups"]], case
            # The first step alone is eager, whoever has more microbatches.
            assert 5 * rank["warmup"] <= rank["passes"], case
    for rank in found.get("too few banks", ()):
        assert rank["replays"] > 0
        assert "for several process groups: attach with max_banks=4" \
            in rank["explained"]
    ranks = found.get("contexts, slower on one", ())
    for rank, whys in enumerate(r["refused"] for r in ranks):
        assert len(whys) == 2
        assert all(("do not pay" if rank == 0 else
                    "rank 0 runs it eagerly") in why for why in whys)
    for rank in found.get("contexts, by no argument", ()):
        assert "packed_seq_params.group has no other rank" \
            in rank["explained"]


@pytest.mark.parametrize("cases, size, banks, count", [
    ("schedule", 2, 3, 3), ("schedule", 4, 4, 3), ("schedule, more", 2, 3, 4)])
def test_a_schedule_of_several_context_sizes_replays(tmp_path, cases, size,
                                                     banks, count, most):
    """Megatron's own, its loader and its groups: banks of each group that a
    rank is in, and of each length of a piece."""
    found = ran(tmp_path, cases, size, most=most)
    assert len(found) == min(count, most or count)
    for case, ranks in found.items():
        for rank in ranks:
            assert rank["replays"] == rank["passes"] - rank["warmup"], case
            assert rank["banks"] == [banks], case
            # All lengths come in three steps; the second time they are
            # recorded.
            assert len(set(rank["recordings"][5:])) == 1, case
            assert rank["recordings"][5] == 2 * banks * rank["layers"]
            # Ranks agree on what to verify, whatever each has looked at.
            assert rank["verified"] > 0, case
    if size == 4:  # of which some have more microbatches than others
        assert len({rank["passes"] for rank in ranks}) == 2


@pytest.mark.parametrize("case, said", [
    ("killed", "decoder.layers.0, microbatch 1: "),
    ("killed, interleaved", "chunk 0: decoder.layers.0, microbatch 2: "),
    ("killed, overlap", ""),
    ("killed, its schedule", "decoder.layers.0, microbatch 0: ")])
def test_a_killed_rank_ends_the_others(tmp_path, case, said):
    """Those of its graphs, and those of the other stage."""
    others = ran(tmp_path, case, 4, lost=3)[case]
    assert len(others) == 3
    for one in others:
        assert one["said"]
        assert one["after"] < 15
    # The one that was in its graphs, or waits for it in an exchange.
    one = others[2]["said"]
    assert one.startswith(f"rank 0 of 2 (rank 2 of all), step 2, {said}") \
        or not said


def test_a_rank_that_hangs_ends_those_of_its_graphs(tmp_path):
    one, = ran(tmp_path, "stopped", 2, lost=1)["stopped"]
    assert one["said"].startswith(
        "rank 0 of 2, step 2, decoder.layers.0, microbatch 0: rank 1 has "
        "not come: Timed out")
    assert 5 < one["after"] < 12  # GRAPHHOOKS_TIMEOUT is 6
