"""scope="auto": the largest scope that a model can have, and what graphs make
slower is left out of it.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import pytest

pytest.importorskip("megatron.core",
                    reason="megatron-core is not installed")

import training  # noqa: E402
from softclock import Clock  # noqa: E402
from training import (MOE, Training, build_hybrid, compare,  # noqa: E402
                      differing)

COUNTS = [2, 3, 2, 3, 2, 3, 2, 3]
WHOLE, ROUTED = "whole layers", "attn,moe_router,moe_preprocess"


pytestmark = pytest.mark.usefixtures("world")


def trained(kind, times: dict, **how):
    """`times`: of eager passes and of replays, by scope."""
    eager, two = (Training(kind, scope, **how) for scope in (None, "auto"))
    with Clock({n: t[0] for n, t in times.items()},
               {n: t[1] for n, t in times.items()}):
        for each in eager, two:
            training.seed()
            each.steps(COUNTS)
        two.stats = two.end()
    assert differing(eager.state(), two.state()) == []
    return two


def rows(two) -> dict:
    return {r["scope"]: (r["segments"], r["kept"])
            for r in two.stats["measured"]}


@pytest.mark.parametrize("kind, scope", [
    ("dense", WHOLE), ("moe", ROUTED), ("shared", ROUTED), ("padded", WHOLE),
    ("mla", WHOLE)])
@pytest.mark.parametrize("wins", [False, True], ids=["loses", "wins"])
def test_the_largest_scope_of_a_model(kind, scope, wins):
    two = trained(kind, {scope: (2.0, 1.0 if wins else 3.0)})
    assert rows(two) == {scope: (2, wins)}
    assert len(two.stats["refused"]) == (0 if wins else 2)
    if wins:
        assert two.stats["replays"] == 2 * 2 * sum(COUNTS[4:])


def test_kinds_of_layers_go_by_themselves():
    two = trained("hybrid", {"mamba": (2.0, 1.0), "attn": (2.0, 5.0),
                             "mlp": (2.0, 1.0),
                             "moe_router,moe_preprocess": (2.0, 5.0)},
                  make=build_hybrid, pattern="M*E-", **MOE)
    found = rows(two)
    assert found.pop("mamba") == (1, True)
    assert found.pop("attn") == (1, False)
    assert found.pop("moe_router,moe_preprocess") == (1, False)
    assert all(kept for _, kept in found.values())
    assert sorted(two.stats["refused"]) == ["decoder.layers.1",
                                            "decoder.layers.2"]


def test_all_layers_in_one_segment():
    two = trained("dense", {"all layers": (2.0, 3.0)},
                  attach={"granularity": "chunk"})
    assert rows(two) == {"all layers": (1, False)}
    assert "all layers" in two.explained and "dropped" in two.explained


def test_a_config_that_allows_no_more():
    """Megatron refuses an MLP's word in a model of experts alone, and shapes
    of expert parallelism that need the host."""
    two = compare(lambda t: t.steps(COUNTS), "moe", "auto",
                  moe_expert_capacity_factor=1.0)
    assert rows(two).keys() == {"attn,moe_router"}
