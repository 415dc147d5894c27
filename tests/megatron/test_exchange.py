"""exchange=: tokens by the library's exchange, in the place of the dispatcher's
all-to-alls.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import copy

import pytest

pytest.importorskip("megatron.core",
                    reason="megatron-core is not installed")

import graphhooks  # noqa: E402
from megatron.core.transformer.moe import token_dispatcher  # noqa: E402
from test_schedules import most, ran  # noqa: E402, F401
from training import COUNTS, Training, compare  # noqa: E402

REASON = "rank 1 does not reach the memory of rank 0, as copy needs"


def is_whole(case: str) -> bool:
    """Its all-to-alls are in graphs."""
    return case.startswith("exchange, captured")


def is_own(case: str) -> bool:
    return case in ("exchange by nccl", "exchange, not reached")


@pytest.mark.parametrize("cases, size, count", [
    ("exchange", 2, 12), ("exchange, overlap", 2, 8),
    ("exchange, four", 4, 7)])
def test_bits_are_those_of_megatrons_own(tmp_path, cases, size, count,
                                         most):  # noqa: F811
    found = ran(tmp_path, cases, size, most=most)
    assert len(found) == min(count, most or count)
    for case, ranks in found.items():
        for rank in ranks:
            assert rank["replays"] == rank["passes"] - rank["warmup"], case
            if is_whole(case):
                assert rank["exchange"] == []
                assert "these stay Megatron's" in rank["explained"]
                continue
            each, = rank["exchange"]
            group = 4 if case.startswith("exchange of four") else 2
            assert each["ranks"] == group
            assert each["reason"] == (REASON if "not reached" in case
                                      else None)
            assert f"exchange of tokens by {each['kind']}, {group} ranks" \
                in rank["explained"]
            if is_own(case):
                assert each["kind"] == "nccl"
                continue
            assert each["kind"] == ("kernel" if "kernel" in case else "copy")
            # As many as eager has by Megatron's; gradients go back.
            if "own" in rank:
                assert each["calls"] == 2 * rank["own"]
            by_kernel = "kernel" in case or case == "exchange by auto"
            assert each["kernel_calls"] == by_kernel * each["calls"]
            assert each["peers_ipc"] == group - 1
    for rank in found.get("exchange, more room", ()):
        # Two turns of two parts: 64 tokens, at two experts, of 32 floats.
        assert rank["exchange"][0]["window_bytes"] == 4 * 64 * 2 * 128
    for i, rank in enumerate(found.get("exchange of four, larger", ())):
        # Parts go to and from each of the others, which have none else.
        assert rank["exchange"][0]["large_parts"] > (0 if i else 40)
    for rank in found.get("exchange, a capacity", ()):
        # 16 tokens of each of two experts, and one more; whole 512 bytes.
        assert rank["exchange"][0]["window_bytes"] == 4 * 9 * 512
    for rank in found.get("exchange, all in one place", ()):
        assert rank["exchange"][0]["copied_bytes"] > 0


def test_a_rank_that_is_killed_in_an_exchange_is_named(tmp_path):
    one, = ran(tmp_path, "killed, exchange", 2, lost=1)["killed, exchange"]
    assert "no part has come from rank 1 in 6 s" in one["said"]
    assert one["after"] < 30


def test_more_tokens_than_there_is_room_for_go_by_torch(
        tmp_path, most):  # noqa: F811
    """On one rank alone: there and back, as the other knows what comes."""
    found = ran(tmp_path, "exchange, larger", 2, most=most)
    assert len(found) == min(6, most or 6)
    for case, ranks in found.items():
        for rank in ranks:
            assert rank["replays"] == rank["passes"] - rank["warmup"] > 0
            each, = rank["exchange"]
            assert each["calls"] == 2 * rank["own"]
            if "there is room" in case:
                assert each["large_parts"] == 0
                assert "exchange_tokens=" not in rank["explained"]
                continue
            # Tokens, what experts make of them, and the gradients of both;
            # 5 of 18 microbatches, and 2 layers.
            assert each["large_parts"] == 5 * 2 * 4, case
            room = 2 * 32 * 32 * (2 if "overlap" in case else 4)
            assert room < each["largest_bytes"] <= 4 * room
            assert f"room of {room} bytes" in rank["explained"]
        if "there is room" not in case:
            assert "in a microbatch, here 128" in ranks[0]["explained"]
            assert "in a microbatch, here " in ranks[1]["explained"]


# ---- of one rank -----------------------------------------------------------

one_rank = pytest.mark.usefixtures("world")


@one_rank
@pytest.mark.parametrize("kind, options, says", [
    ("moe", {"exchange": "fast"}, "exchange is 'fast'; there are auto, copy"),
    ("moe", {"exchange_tokens": 64}, "exchange=, which is not given"),
    ("moe", {"exchange": "copy", "exchange_tokens": 0}, "exchange_tokens is"),
    ("moe", {"exchange": "copy", "more": {
        "moe_token_dispatcher_type": "allgather"}},
     "the config has 'allgather': leave exchange out")])
def test_bad_input_is_named(kind, options, says):
    more = options.get("more", {})
    attach = {n: v for n, v in options.items() if n != "more"}
    with pytest.raises(graphhooks.Error, match=says):
        Training(kind, "attn", attach=attach, **more)


@one_rank
def test_dispatchers_are_given_back_and_copies_have_their_own():
    two = Training("moe", "attn", attach={"exchange": "auto"})
    own = [layer.mlp.token_dispatcher for layer in two.core.decoder.layers]
    assert all("token_dispatch" in vars(d) for d in own)
    for other in map(copy.copy, own):
        assert not {"token_dispatch", "token_combine"} & vars(other).keys()
    two.end()
    for each in own:
        assert not {"token_dispatch", "token_combine",
                    "__reduce_ex__"} & vars(each).keys()


@one_rank
@pytest.mark.parametrize("kind", ["moe", "dense"])
def test_one_rank_exchanges_nothing(kind):
    own = token_dispatcher.all_to_all
    two = compare(lambda t: t.steps(COUNTS), kind, "attn",
                  attach={"exchange": "auto"})
    assert two.stats["exchange"] == []
    assert token_dispatcher.all_to_all is own
