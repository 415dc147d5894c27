"""Layers with collectives: ranks record, replay and fall back together.

The cases are in ranks_worker.py, of which two processes run.  Those in which
no rank leaves run in one pair, one after the other; where ranks part, each has
a pair of its own.  On a GPU both are on one where there is one: NCCL allows
that with NCCL_MULTI_RANK_GPU_ENABLE=1, from 2.30 on.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import graphhooks
import pytest
from graphhooks import Error
from graphhooks.torch.base import private
from graphhooks.torch.group.arrivals import Arrivals
from graphhooks.torch.group.ranks import all_gather
from models import GRAINS, HAS_GPU, LAYERS, WIDTH, Block, Model, torch

if not torch.distributed.is_available() \
        or not torch.distributed.is_gloo_available():
    pytest.skip("torch has no gloo", allow_module_level=True)
if HAS_GPU and torch.cuda.device_count() < 2 \
        and os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") != "1":
    pytest.skip("one GPU, and NCCL_MULTI_RANK_GPU_ENABLE is not 1",
                allow_module_level=True)

TOGETHER = [*GRAINS, "dropout", "a sequence", "in flight", "too few slots",
            "summed", "penalized on one", "checkpointed", "given", "offload",
            "an evaluation", "another batch", "a setting, everywhere",
            "hooks, everywhere", "verified", "verified in a chunk",
            "suspended"]
ON_ONE = ["an argument with overlaps on one", "a recording fails on one",
          "a backward's recording fails on one",
          "a backward is refused on one", "counts on one",
          "a backward that one cannot run again",
          "hooks on one at the attach"]
OTHERS = ["a group of one", "nobody has told", "in the backward alone",
          "CHECK=ranks", "other settings", "other packed", "other layers",
          "late without threads"]
PACKED = ["packed on one", "packed on one, in a chunk",
          "packed otherwise on one", "no trial on one",
          "packed on one, later", "packed otherwise on one, later",
          "packed, cut short in a chunk"]
SAME_LENGTHS = ["lengths", "lengths in a chunk", "lengths of parts",
                "lengths in flight", "lengths, offloaded"]
GIVING_WAY = ["one gives way", "one of two gives way",
              "none gives way in flight", "one gives way with gradients",
              "one holds on to what would give way",
              "all hold on to what would give way"]
LENGTHS = [*SAME_LENGTHS, *GIVING_WAY, "one sees a shape first",
           "a shape of each microbatch on one", "more than there is room for",
           "each comes twice, soon after the others",
           "each alone, beside what all have",
           "each gives way and comes back", "one shape",
           "one shape, of several",
           "a setting of each shape, everywhere"]
VERIFIED = ["another on one", "another on one, in a chunk"]
LATER = ["hooks on one, later", "hooks on one, for a microbatch",
         "scaled on one, for a microbatch"]
NOT_VERIFIED = pytest.mark.skipif(
    bool(os.environ.get("GRAPHHOOKS_VERIFY")),
    reason="GRAPHHOOKS_VERIFY: replays that are verified ask, too")
SECONDS = 10  # GRAPHHOOKS_TIMEOUT, and a little for what comes with it
BOUND = SECONDS + 5


def ran(folder: Path, *cases, size=2, **environment) -> list:
    """What each rank has found, and what it has printed."""
    worker = Path(__file__).with_name("ranks_worker.py")
    logs = [folder / f"{rank}.log" for rank in range(size)]
    processes = [subprocess.Popen(
        [sys.executable, str(worker), str(folder), str(rank), str(size),
         *cases],
        env={**os.environ, **environment}, stdout=log.open("w"), stderr=subprocess.STDOUT)
        for rank, log in enumerate(logs)]
    end = time.monotonic() + 300
    try:
        for process in processes:
            process.wait(end - time.monotonic())
    except subprocess.TimeoutExpired:
        pytest.fail("it hangs: " + "".join(log.read_text() for log in logs))
    finally:
        for process in processes:
            process.kill()
            process.wait()
    found = [folder / f"{rank}.json" for rank in range(size)]
    return [(json.loads(path.read_text()) if path.exists() else {},
             log.read_text()) for path, log in zip(found, logs)]


def by_case(ranks):
    """Of all ranks, none of which has parted."""
    def of(case):
        for results, said in ranks:
            assert case in results, said
        return [results[case] for results, _ in ranks]

    of.said = [said for _, said in ranks]
    return of


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    return by_case(ran(tmp_path_factory.mktemp("ranks"), *TOGETHER, *ON_ONE,
                       *OTHERS, *PACKED, *LENGTHS, *LATER, *VERIFIED))


@pytest.fixture(scope="module")
def of_three(tmp_path_factory):
    return by_case(ran(tmp_path_factory.mktemp("three"), "layer", *PACKED,
                       *LENGTHS, *LATER, *VERIFIED, size=3))


@pytest.fixture(params=["together", "of_three"])
def group(request):
    """Two ranks, or three."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def parted(tmp_path):
    return lambda case: [{**results.get(case, {}), "said": said}
                         for results, said in ran(tmp_path, case)]


def are_equal(ranks) -> None:
    for rank, found in enumerate(ranks):
        assert found["error"] is None, f"rank {rank}: {found['error']}"
        assert found["differing"] == [], f"rank {rank}"


# ---- together ---------------------------------------------------------------


@pytest.mark.parametrize("case", TOGETHER)
def test_ranks_train_as_they_do_eagerly(together, case):
    ranks = together(case)
    are_equal(ranks)
    assert all(found["replays"] > 0 for found in ranks)
    assert ranks[0]["eager_calls"] == ranks[1]["eager_calls"]
    if case != "hooks, everywhere":
        assert [found["refused"] for found in ranks] == [{}, {}]


@pytest.mark.parametrize("case", [*GRAINS, "dropout", "a sequence", "in flight",
                                  "offload"])
def test_a_replay_asks_nobody(together, case):
    for found in together(case):
        assert found["agreements"] == 2 * found["recordings"]


def test_an_argument_that_one_cannot_record_is_eager_on_both(together):
    ranks = together("an argument with overlaps on one")
    are_equal(ranks)
    assert [found["replays"] for found in ranks] == [0, 0]
    assert set(ranks[0]["eager_calls"]) == {"warmup", "ranks"}
    assert set(ranks[1]["eager_calls"]) == {"input"}


@pytest.mark.parametrize("case, why", [
    ("a recording fails on one", "no room"),
    ("a backward's recording fails on one", "no room for a backward"),
    ("a backward that one cannot run again", "no room for a backward"),
    ("a backward is refused on one", "the main_grad of a parameter"),
    ("counts on one", "it changes an attribute, calls")])
def test_a_recording_that_fails_on_one_is_given_up_on_both(together, case,
                                                           why):
    ranks = together(case)
    are_equal(ranks)
    assert ranks[0]["replays"] == ranks[1]["replays"]
    assert ranks[0]["recordings"] == ranks[1]["recordings"]
    assert ranks[0]["refused"]
    assert all("here or on another rank" in w
               for w in ranks[0]["refused"].values())
    assert ranks[0]["refused"].keys() == ranks[1]["refused"].keys()
    assert all(why in w for w in ranks[1]["refused"].values())
    # The layers that none has failed in have their graphs.
    assert ranks[0]["replays"] > 0 or len(ranks[0]["refused"]) == LAYERS


def test_what_one_refuses_at_the_attach_both_refuse(together):
    ranks = together("hooks on one at the attach")
    are_equal(ranks)
    assert [*ranks[0]["refused"]] == [*ranks[1]["refused"]] == ["layers.1"]
    assert ranks[0]["refused"]["layers.1"] == \
        "rank 1 runs it eagerly: " + ranks[1]["refused"]["layers.1"]
    assert all(found["replays"] > 0 for found in ranks)


def test_a_group_of_one_needs_nobody(together):
    ranks = together("a group of one")
    are_equal(ranks)
    for found in ranks:
        assert found["refused"] == {}
        assert found["replays"] > 0 and found["agreements"] == 0


@pytest.mark.parametrize("case, recordings", [("nobody has told", 0),
                                              ("in the backward alone", 3)])
def test_a_collective_that_nobody_has_told_of_is_refused(together, case,
                                                         recordings):
    ranks = together(case)
    are_equal(ranks)
    for found in ranks:
        assert found["recordings"] == recordings  # of forwards
        if recordings == 0:  # nor tried: it was seen in the first call
            assert found["eager_calls"]["warmup"] == LAYERS
        assert len(found["refused"]) == LAYERS
        for why in found["refused"].values():
            assert "a collective of torch.distributed runs in it" in why
            assert "attach with group=" in why


def test_the_check_names_who_differs(together):
    ranks = together("CHECK=ranks")
    are_equal(ranks)
    for found, said in zip(ranks, together.said):
        assert found["check_failures"] == 4
        assert found["replays"] > 0
        assert "the ranks of bank 0 part in step 3 at layers.1 attn..mlp " \
            "forward, slot 0, microbatch 0 of this one: rank 0 replays " \
            "(none), rank 1 runs eagerly (input)" in said
    assert ranks[1]["eager_calls"]["attributes"] == 4


def test_ranks_attach_alike(together):
    ranks = together("other settings")
    for rank, found in enumerate(ranks):
        assert found["name"] == "GH_ERR_CONFIG"
        assert f"on rank {1 - rank}, and " in found["error"]
        assert "gradients is" in found["error"]
    for found in together("other packed"):
        assert found["name"] == "GH_ERR_CONFIG"
        assert "packed is {'cu_seqlens': " in found["error"]
    for found in together("other layers"):
        assert found["name"] == "GH_ERR_CONFIG"
        assert "the plan is" in found["error"]


# ---- verify -----------------------------------------------------------------


@pytest.mark.parametrize("case", ["verified", "verified in a chunk"])
def test_ranks_verify_the_same_replays(together, case):
    """Each eager run holds collectives, in which all have to be."""
    first, second = (found["verify"] for found in together(case))
    assert first == second
    assert first["forwards"] > 0 and first["backwards"] > 0
    assert first["differences"] == first["failures"] == {}
    assert first["cannot_tell"] == 0


@pytest.mark.parametrize("case", VERIFIED)
def test_what_differs_on_one_counts_on_all(group, case):
    """One of them reads something else: none has a graph from then on."""
    ranks = group(case)
    are_equal(ranks)
    assert ranks[0]["replays"] > 0
    for found in ranks:
        differences = found["verify"]["differences"]
        assert differences.keys() == ranks[0]["verify"]["differences"].keys()
        assert found["refused"].keys() == differences.keys()
    said = [*ranks[0]["verify"]["differences"].values()]
    assert "something on another rank" in str(said)
    assert "something on another rank" not in str(
        [*ranks[-1]["verify"]["differences"].values()])


# ---- packed arguments -------------------------------------------------------


@pytest.mark.parametrize("case", PACKED[:2])
def test_a_rank_whose_arguments_differ_is_not_tried_alone(group, case):
    """It would wait in a collective that no other rank is in."""
    ranks = group(case)
    are_equal(ranks)
    for found in ranks:
        assert found["refused"] == {}
        assert found["replays"] > 0 and set(found["eager_calls"]) == {
            "warmup"}


def test_what_a_trial_shows_on_one_rank_no_rank_has_a_graph_of(group):
    ranks = group("packed otherwise on one")
    are_equal(ranks)
    assert all(found["replays"] == 0 for found in ranks)
    assert len(ranks[-1]["refused"]) == LAYERS
    for why in ranks[-1]["refused"].values():
        assert "its result is another with cu_seqlens for 4 sequences " \
            "instead of 3" in why


def test_a_trial_that_a_rank_cannot_make_is_made_by_none(group):
    ranks = group("no trial on one")
    are_equal(ranks)
    for found in ranks:
        assert found["replays"] == 0
    assert all("iterator" in why for why in ranks[0]["refused"].values())


def test_a_trial_that_comes_late_makes_the_microbatch_eager_on_all(group):
    """On the other ranks there are graphs by then, and they are not left
    alone."""
    ranks = group("packed on one, later")
    are_equal(ranks)
    of_warmup = group("packed on one")[0]["eager_calls"]["warmup"]
    for found in ranks:
        assert found["refused"] == {} and found["replays"] > 0
        assert found["eager_calls"] == {"warmup": of_warmup + LAYERS}
    last = len(ranks) - 1
    for found in ranks[:-1]:
        assert f"rank {last} is given less of a packed argument than its " \
            "room for the first time, and all ranks try it" in found["said"]


def test_a_layer_of_a_chunk_that_was_not_tried_waits_for_a_trial(group):
    """It could not be tried once the chunk's graph has run."""
    ranks = group("packed, cut short in a chunk")
    are_equal(ranks)
    alike(ranks, "eager_calls", "replays")
    assert ranks[0]["replays"] > 0


def test_what_a_late_trial_shows_all_hear(group):
    ranks = group("packed otherwise on one, later")
    are_equal(ranks)
    last = len(ranks) - 1
    for rank, found in enumerate(ranks):
        assert len(found["refused"]) == LAYERS and found["replays"] > 0
        for why in found["refused"].values():
            assert "its result is another with cu_seqlens" in why \
                if rank == last else why == \
                f"rank {last} runs it eagerly: its log says why"


# ---- several shapes ---------------------------------------------------------


def alike(ranks, *names) -> None:
    for name in names:
        assert all(found[name] == ranks[0][name] for found in ranks), name


@pytest.mark.parametrize("case", SAME_LENGTHS)
def test_a_length_replays_from_its_second_time_on(group, case):
    ranks = group(case)
    are_equal(ranks)
    alike(ranks, "banks", "eager_calls", "meetings", "agreements")
    assert [b["shape"] for b in ranks[0]["banks"]] == [
        f"(2, {length}, {WIDTH})" for length in (32, 24, 16)]
    assert all(b["replays"] > 0 for b in ranks[0]["banks"])
    assert set(ranks[0]["eager_calls"]) <= {"warmup", "input",
                                            "gradients_moved"}
    assert ranks[0]["agreements"] == 2 * ranks[0]["recordings"]


@NOT_VERIFIED
def test_a_microbatch_asks_once(group):
    """A replay does not.  A backward that is recorded does, and the first of
    its kind twice: whether it is, and what its forward gives again."""
    found = group("layer")[0]
    assert found["meetings"] == 11 + found["recordings"] // 2 + 1
    assert found["agreements"] == 2 * found["recordings"]


@NOT_VERIFIED
def test_with_one_shape_no_microbatch_asks(group):
    found = group("one shape")[0]
    are_equal(group("one shape"))
    assert found["meetings"] == found["recordings"] // 2 + 1
    ranks = group("one shape, of several")
    are_equal(ranks)
    alike(ranks, "banks", "eager_calls")
    assert len(ranks[0]["banks"]) == 1 and ranks[0]["banks"][0]["replays"] > 0


def test_a_bank_is_of_what_all_ranks_are_given(group):
    """Whoever sees a shape first, and beside which one."""
    ranks = group("one sees a shape first")
    are_equal(ranks)
    alike(ranks, "eager_calls", "replays", "recordings")
    assert [b["shape"] for b in ranks[0]["banks"]] == [
        f"(2, {length}, {WIDTH})" for length in (32, 24, 24, 32)]
    assert [b["shape"] for b in ranks[1]["banks"]] == [
        f"(2, {length}, {WIDTH})" for length in (32, 32, 24, 24)]
    for found in ranks:
        assert all(b["replays"] > 0 for b in found["banks"])
    assert "rank 1: its shape 2" in ranks[0]["banks"][2]["besides"]


def test_the_rank_that_differs_is_named(group):
    ranks = group("a shape of each microbatch on one")
    are_equal(ranks)
    for found in ranks:
        assert found["eager_calls"]["input"] == 10 * LAYERS
        assert found["replays"] > 0
    assert "what rank 1 is given is of another shape" in ranks[0]["said"]
    assert f"x.shape is (2, 15, {WIDTH}) in it and (2, 32, {WIDTH}) in those" \
        in ranks[1]["said"]


@pytest.mark.parametrize("case", GIVING_WAY)
def test_all_let_the_same_bank_go(group, case):
    ranks = group(case)
    are_equal(ranks)
    alike(ranks, "banks", "eager_calls", "replays")
    banks = ranks[0]["banks"]
    assert sum(b["graphs"] > 0 for b in banks) == (
        1 if case == "one gives way with gradients" else 2)
    assert sum(b["evictions"] for b in banks) > 0
    assert all(b["recordings"] for b in banks)


def test_gradients_in_the_memory_of_what_goes_are_copied_out(group):
    for found in group("one gives way with gradients"):
        assert found["eager_calls"]["gradients_moved"] == 1


def test_all_leave_the_graphs_of_a_bank_together(group):
    ranks = group("a setting of each shape, everywhere")
    are_equal(ranks)
    alike(ranks, "eager_calls", "banks")
    assert ranks[0]["eager_calls"]["attributes"] == 6


def test_no_bank_goes_that_one_rank_may_go_back_through(group):
    before = group("one gives way")[0]["eager_calls"]["banks"]
    for case in ("one holds on to what would give way",
                 "all hold on to what would give way"):
        for found in group(case):
            assert found["eager_calls"]["banks"] == before + 2 * LAYERS
            assert "rank 0 cannot let another shape's graphs go for it now" \
                in found["said"]


def test_no_bank_goes_that_this_step_has_used(group):
    """The one that has gone did so before the first microbatch of a step."""
    for found in group("none gives way in flight"):
        assert sum(b["evictions"] for b in found["banks"]) == 1
        assert "cannot let another shape's graphs" not in found["said"]


def test_shapes_that_do_not_have_room_do_not_drive_each_other_out(group):
    ranks = group("more than there is room for")
    are_equal(ranks)
    alike(ranks, "banks", "eager_calls")
    assert [b["evictions"] for b in ranks[0]["banks"]] == [0, 0]


def test_they_soon_keep_what_they_have(group):
    """And do not record again and again, for each other's next place."""
    ranks = group("each comes twice, soon after the others")
    are_equal(ranks)
    alike(ranks, "banks", "eager_calls", "replays")
    assert 0 < sum(b["evictions"] for b in ranks[0]["banks"]) <= 4


def test_what_has_given_way_once_does_not_do_so_again(group):
    """When others are recorded, after it has graphs again."""
    ranks = group("each gives way and comes back")
    are_equal(ranks)
    alike(ranks, "banks", "eager_calls", "replays")
    assert sum(b["evictions"] for b in ranks[0]["banks"]) == 3


def test_what_others_have_lets_nobody_go(group):
    """Where each rank is alone, graphs give way to those of its own that come
    more often, however long those of all have not been used."""
    for rank in group("each alone, beside what all have"):
        assert rank["error"] is None and rank["differing"] == []
        both, *alone = rank["banks"]
        assert both["evictions"] == 0 and both["replays"] > 0
        assert sum(b["recordings"] for b in alone) <= 3 * 2 * LAYERS
        assert alone[-1]["replays"] >= 2 * 4 * LAYERS  # has come to stay


# ---- what one rank finds where a microbatch begins --------------------------


def test_what_one_rank_refuses_later_all_refuse(group):
    ranks = group("hooks on one, later")
    are_equal(ranks)
    alike(ranks, "replays")
    last = len(ranks) - 1
    for found in ranks[:-1]:
        assert found["refused"] == {
            "layers.0": f"rank {last} runs it eagerly: its log says why"}
    assert "mlp has hooks" in ranks[-1]["refused"]["layers.0"]
    # Two steps of two microbatches have graphs, and of three two layers.
    assert ranks[0]["replays"] > 2 * 3 * 2 * (LAYERS - 1)


@pytest.mark.parametrize("case, rank, reason, count", [
    ("hooks on one, for a microbatch", -1, "hooks", 1),
    ("scaled on one, for a microbatch", 0, "attributes", 1)])
def test_a_microbatch_that_one_runs_eagerly_all_do(group, case, rank, reason,
                                                   count):
    ranks = group(case)
    are_equal(ranks)
    alike(ranks, "replays")
    rank %= len(ranks)
    for i, found in enumerate(ranks):
        assert found["refused"] == {}
        if i != rank:
            assert found["eager_calls"]["ranks"] == count * LAYERS
            assert f"rank {rank} runs a microbatch eagerly ({reason}), so " \
                "all ranks do" in found["said"]
        else:
            assert found["eager_calls"][reason] == count


# ---- apart ------------------------------------------------------------------


@pytest.mark.parametrize("case, where, why", [
    ("a setting on one", "step 3, layers.1 attn..mlp forward, microbatch 0",
     "scale was not there when it was recorded and is 0.5"),
    ("an evaluation on one", "step 3, layers.0", "forward_only"),
    ("an evaluation on one, of one shape", "step 3, layers.0",
     "forward_only"),
    ("another shape on one, of one shape", "step 3, layers.0", "input"),
    ("a hook on one in a backward",
     "step 3, layers.1 attn..mlp backward, microbatch 0", "")])
def test_a_rank_that_leaves_alone_is_an_error(parted, case, where, why):
    ranks = parted(case)
    for rank, found in enumerate(ranks):
        assert found.get("error"), found["said"]
        assert found["parted"] < BOUND, found
    assert ranks[1]["aborted"] > 0
    assert ranks[1]["graphs"] == 0
    assert ranks[1]["name"] == "GH_ERR_RANKS"
    error = ranks[1]["error"]
    assert error.startswith("rank 1 of 2, ")
    assert where in error and why in error
    if not HAS_GPU:  # whose replays block
        assert ranks[0]["name"] == "GH_ERR_RANKS", ranks[0]


def test_a_rank_that_dies_ends_the_other(parted):
    found = parted("a rank dies")[0]
    assert found.get("error"), found["said"]
    assert found["parted"] < BOUND, found
    assert found["name"] == "GH_ERR_RANKS"
    assert "rank 0 of 2, step 3, layers.0" in found["error"]


def is_named_alone(ranks, case: str, bound: int) -> None:
    """The last of three, by the others."""
    for rank, (results, said) in enumerate(ranks[:2]):
        found = results.get(case, {"error": said})
        assert found.get("name") == "GH_ERR_RANKS", found
        assert found["error"].startswith(f"rank {rank} of 3, step 3, "
                                         "layers.0, microbatch 0: rank 2 has "
                                         "not come: "), found
        assert found["parted"] < bound, found


@pytest.mark.parametrize("case, debug", [
    ("a rank does not suspend", "OFF"),
    # In which the call of a collective waits, and raises.
    ("a rank does not suspend", "DETAIL"),
    ("a rank does not suspend, attached in vain on one", "OFF")])
def test_a_rank_that_does_not_suspend_is_named(tmp_path, case, debug):
    """And none that has come late."""
    is_named_alone(ran(tmp_path, case, size=3,
                       TORCH_DISTRIBUTED_DEBUG=debug), case, BOUND + 5)


def test_a_rank_that_is_busy_when_another_dies_is_not_named(tmp_path):
    case = "a rank dies, and none suspends"
    is_named_alone(ran(tmp_path, case, size=3), case, SECONDS)


def test_ranks_without_threads_go_on(together):
    """And do not say who has not come."""
    ranks = together("late without threads")
    are_equal(ranks)
    said = [[line for line in rank["log"] if "ulimit -u" in line]
            for rank in ranks]
    assert [len(lines) for lines in said] == [1, 0]
    assert said[0][0].startswith("group=: can't start new thread, ")


def test_a_rank_is_noted_before_a_call_that_waits(monkeypatch):
    """Others give up while it is there, and have to find it then."""
    noted = []
    arrivals = types.SimpleNamespace(note=lambda: noted.append("noted"))
    monkeypatch.setattr(
        torch.distributed, "all_gather",
        lambda *_, **__: noted.append("called") or types.SimpleNamespace(
            wait=lambda *_: None))
    before = torch.distributed.get_debug_level()
    try:
        for level in "OFF", "DETAIL":
            torch.distributed.set_debug_level(
                getattr(torch.distributed.DebugLevel, level))
            all_gather([], None, None, arrivals)
    finally:
        torch.distributed.set_debug_level(before)
    assert noted == ["called", "noted", "called"]


def test_a_store_that_does_not_answer_is_not_waited_for_long(monkeypatch):
    """As where its process is stopped: a note is not waited for, and who is
    absent is asked once."""
    store = torch.distributed.HashStore()
    monkeypatch.setattr(private, "default_store", lambda: store)
    arrivals = Arrivals("two", [0, 1], 0)
    answers = threading.Event()
    monkeypatch.setattr(private, "default_store", answers.wait)
    start = time.monotonic()
    arrivals.note()
    assert time.monotonic() - start < 1
    assert arrivals.whoever_is_absent() == ""
    assert 1 < time.monotonic() - start < 3
    answers.set()


def test_a_rank_that_does_not_attach_is_not_waited_for(parted):
    found = parted("a rank does not attach")[0]
    assert found.get("name") == "GH_ERR_RANKS", found
    assert found["error"].startswith("group: ")


# ---- bad input --------------------------------------------------------------


@pytest.mark.parametrize("group", [3, "nccl", [0, 1], torch.nn.Linear(1, 1)])
def test_a_group_is_one_of_torch_distributed(group):
    with pytest.raises(Error, match="group is .*; it is a process group of "
                                    "torch.distributed, .*, or None"):
        graphhooks.attach(Model(Block).cuda(), group=group)


def test_a_check_of_ranks_needs_some():
    with pytest.raises(Error, match="compares what ranks do, .* give it "
                                    "group="):
        graphhooks.attach(Model(Block).cuda(), check="ranks")
