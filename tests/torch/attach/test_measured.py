"""scope="auto": what graphs make slower has none.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import graphhooks
import pytest
from models import GRAINS, LAYERS, Run, differing, torch
from softclock import Clock

from graphhooks.torch.attach import measured

STEPS = [3] * 9
SCOPES = {"layer": "Block", "chunk": "Block", "part": "Mlp"}
# One after which nothing is measured any more, as nothing waits.
DECIDED = measured._EAGER + 4


def trained(grain, eager: dict, replay: dict, busy=0, steps=STEPS,
            **options):
    """With graphs; the same bits as without."""
    plain = Run().steps(steps)
    with Clock(eager, replay, busy), \
            Run(grain=grain, scope="auto", **options) as run:
        run.steps(steps)
        stats, text = run.attached.stats(), run.attached.explain()
        segments = run.attached.segments
        assert differing(plain.state(), run.state()) == []
        run.count = len(segments)
        run.clean = not any({"lead", "follow"} & vars(s).keys()
                            for s in segments)
    return run, stats, text


@pytest.mark.parametrize("grain", GRAINS)
def test_what_loses_has_no_graphs_any_more(grain, caplog):
    scope = SCOPES[grain]
    run, stats, text = trained(grain, {scope: 1.0}, {scope: 7.0})
    losers = [name for name in stats["refused"]]
    row, = [row for row in stats["measured"] if row["scope"] == scope]
    sites = LAYERS if grain == "chunk" else 1
    assert row["kept"] is False and row["replay_us"] == 7000
    assert row["eager_us"] == 1000 * sites
    assert len(losers) == row["segments"]
    # Of the first module in the stack, one call is the end of a step.
    assert stats["eager_calls"]["refused"] \
        == sum(STEPS[DECIDED - 1:]) * len(losers) - (grain != "part")
    said = [line for line in caplog.messages if "do not pay" in line]
    assert len(said) == 1 and f"{scope} takes 7.000 ms as graphs" in said[0]
    assert "dropped" in text and run.clean


@pytest.mark.parametrize("grain", GRAINS)
def test_what_wins_stays(grain):
    scope = SCOPES[grain]
    run, stats, text = trained(grain, {scope: 3.0}, {scope: 2.0})
    assert stats["refused"] == {} and run.clean
    row, = [row for row in stats["measured"] if row["scope"] == scope]
    assert row["kept"] is True
    assert "kept" in text and "dropped" not in text
    # The last step of warm-up is the last that is eager.
    passes = 2 * sum(STEPS[measured._EAGER + 1:])
    assert stats["replays"] == passes * run.count


def test_each_scope_goes_by_itself():
    _, stats, text = trained("part", {"Attention": 5.0, "Mlp": 1.0},
                             {"Attention": 4.0, "Mlp": 2.0})
    assert {row["scope"]: row["kept"] for row in stats["measured"]} \
        == {"Attention": True, "Mlp": False}
    assert sorted(stats["refused"]) == [f"layers.{i}.mlp"
                                        for i in range(LAYERS)]
    lines = [line.split() for line in text.splitlines()]
    assert ["Attention", "3", "5.000", "4.000"] in [w[:4] for w in lines]
    assert ["Mlp", "3", "1.000", "2.000"] in [w[:4] for w in lines]


def test_noise_costs_no_graph():
    _, stats, _ = trained("layer", {"Block": 100.0}, {"Block": 100.9})
    assert stats["measured"][0]["kept"] is True


def test_nothing_is_waited_for():
    """The numbers of a step come in when the device has done it."""
    _, stats, text = trained("layer", {"Block": 1.0}, {"Block": 7.0}, busy=1,
                             steps=STEPS * 2)
    assert stats["measured"][0]["kept"] is False
    _, stats, text = trained("layer", {"Block": 1.0}, {"Block": 7.0},
                             busy=90)
    assert stats["measured"] == [] and stats["refused"] == {}
    assert "not decided yet" in text


def test_too_few_replays_decide_nothing():
    """Of a shape of its own in each step."""
    def train(run):
        for length in range(2, 4 + measured._PATIENCE + measured._EAGER):
            run.zero()
            run.loss(length=length).backward()
            run.optimizer.step()
        return run

    plain = train(Run())
    with Clock({"Block": 1.0}, {"Block": 9.0}), \
            Run(grain="layer", scope="auto", max_banks=64) as run:
        train(run)
        stats, text = run.attached.stats(), run.attached.explain()
        assert differing(plain.state(), run.state()) == []
    assert stats["measured"] == [] and stats["refused"] == {}
    assert "not measured: too few passes replayed" in text


def test_shapes_are_compared_with_themselves():
    """A long one is eager at first, and short ones are replayed."""
    def train(run):
        for lengths in [(32, 8)] * 5 + [(8, 8)] * 4:
            run.zero()
            for length in lengths:
                run.loss(length=length).backward()
            run.optimizer.step()
        return run

    class Eager(dict):
        def get(self, scope, _):
            return self.clock.length

    class Clocked(Run):
        def loss(self, **how):
            costs.clock.length = how["length"]
            return super().loss(**how)

    costs = Eager()
    costs.clock = Clock(costs, {"Block": 20.0})
    plain = train(Run())
    with costs.clock, Clocked(grain="layer", scope="auto") as run:
        train(run)
        row, = run.attached.stats()["measured"]
        assert differing(plain.state(), run.state()) == []
    # Not the mean of what is eager, which is as much.
    assert row["eager_us"] == 8000 and row["replay_us"] == 20000
    assert row["kept"] is False


def test_a_layer_without_gradients_before_it():
    """Its backward ends with autograd's pass."""
    def freeze(run):
        run.model.embed.requires_grad_(False)

    plain = Run(before=freeze).steps(STEPS)
    with Clock({"Block": 1.0}, {"Block": 7.0}), \
            Run(grain="layer", scope="auto", before=freeze) as run:
        run.steps(STEPS)
        assert differing(plain.state(), run.state()) == []
        assert len(run.attached.stats()["refused"]) == LAYERS


def test_checkpointing_and_evaluation_are_no_passes_to_measure():
    from torch.utils.checkpoint import checkpoint

    def train(run):
        layers = run.model.layers
        run.model.run_layers = lambda x: checkpoint(
            layers[1], layers[0](x), use_reentrant=False)
        for _ in STEPS:
            run.step(3)
            with torch.no_grad():
                run.note(run.model(run.tokens()))
        return run

    plain = train(Run())
    with Clock({"Block": 1.0}, {"Block": 7.0}), \
            Run(grain="layer", scope="auto") as run:
        train(run)
        row, = run.attached.stats()["measured"]
        assert differing(plain.state(), run.state()) == []
    assert row["kept"] is False and 1000 <= row["eager_us"] <= 2000


def test_a_detach_while_it_measures():
    plain = Run().steps(STEPS)
    with Run(grain="layer", scope="auto") as run:
        run.steps(STEPS[:5])
        segments = run.attached.segments
        run.detach()
        assert not any("lead" in vars(s) for s in segments)
        run.steps(STEPS[5:])
        assert differing(plain.state(), run.state()) == []


@pytest.mark.parametrize("warmup", [0, 1])
def test_eager_steps_are_needed(warmup, monkeypatch):
    why = f"warmup_steps is {warmup}, and scope \"auto\" measures"
    with pytest.raises(graphhooks.Error, match=why):
        Run(grain="layer", scope="auto", warmup_steps=warmup)
    monkeypatch.setenv("GRAPHHOOKS_WARMUP_STEPS", str(warmup))
    with pytest.raises(graphhooks.Error, match=why):
        Run(grain="layer", scope="auto")


def test_who_does_not_ask_is_not_measured():
    with Run(grain="layer") as run:
        assert not any("lead" in vars(s) for s in run.attached.segments)
        run.steps([2, 2, 2])
        assert "measured" not in run.attached.stats()
