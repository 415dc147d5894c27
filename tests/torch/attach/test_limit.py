"""Under GRAPHHOOKS_MEMORY_LIMIT as many layers and microbatches have graphs as
there is memory for.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import pytest
import softtorch
from graphhooks.torch.base import memory
from models import HAS_GPU, LAYERS, WHOLE, Block, Model, differing, torch

_STEPS = 5


def limit(monkeypatch, nbytes) -> None:
    monkeypatch.setenv("GRAPHHOOKS_MEMORY_LIMIT", str(nbytes))


def most_of(runs, grain, in_flight=1, **options) -> int:
    """What inputs of all graphs take."""
    run = runs(grain=grain, **options)
    run.step(4, in_flight=in_flight)
    return run.attached.forecast()["input_bytes"]


def taken(run) -> int:
    has = run.attached.memory()
    return has["slot_bytes"] + has["bank_bytes"]


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("missing", [0, 1])
@pytest.mark.parametrize("in_flight, room", [
    (1, 0), (2, 1), (3, 1)])
def test_as_many_slots_have_graphs_as_fit(runs, monkeypatch, caplog, grain,
                                          in_flight, room, missing):
    """One byte too little costs a slot, and not all of them."""
    slot = most_of(runs, grain, in_flight) // in_flight
    eager = runs(grain=None).steps([6] * _STEPS, in_flight=in_flight).state()
    all_of = runs(grain=grain).steps([6] * _STEPS, in_flight=in_flight)
    limit(monkeypatch, (room + 1) * slot - missing)
    run = runs(grain=grain).steps([6] * _STEPS, in_flight=in_flight)
    assert differing(eager, run.state()) == []
    room += not missing
    told = run.attached.forecast()
    assert taken(run) == room * slot
    assert told["input_bytes"] == in_flight * slot
    stats = run.attached.stats()
    assert len(stats["refused"]) == (
        0 if room else LAYERS if grain == "layer" else 1)
    full = all_of.attached.stats()["replays"]
    assert stats["replays"] == full * room // in_flight
    assert "backward" not in stats["eager_calls"]
    assert ("all graphs would take" in caplog.text) == (room < in_flight)


class Given(Model):
    """Each layer is given something of its own besides."""

    def run_layers(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x, torch.full((x.shape[1], 1), 1. + i, device=x.device))
        return x


class TakesFactor(Block):
    def forward(self, x, factor):
        return super().forward(x * factor)


def test_layers_in_a_row_have_graphs(runs, monkeypatch, caplog):
    """What goes between them needs no memory."""
    options = {"model": Given, "make": TakesFactor}
    most = most_of(runs, "layer", **options)
    eager = runs(grain=None, **options).steps([2] * _STEPS).state()
    limit(monkeypatch, most - 1)
    run = runs(grain="layer", **options).steps([2] * _STEPS)
    assert differing(eager, run.state()) == []
    stats = run.attached.stats()
    assert [*stats["refused"]] == [f"layers.{LAYERS - 1}"]
    assert f"all graphs would take {most}, in 1 slot" in \
        stats["refused"][f"layers.{LAYERS - 1}"]
    assert stats["replays"] > 0 and taken(run) < most
    assert f"{LAYERS - 1} of {LAYERS} layers" in caplog.text


@pytest.mark.parametrize("in_flight", [1, 2, 3])
def test_a_backward_without_memory_closes_its_slot(runs, monkeypatch,
                                                   in_flight):
    """Nothing has foretold it."""
    eager = runs(grain=None).steps(
        [4] + [6] * _STEPS, in_flight=in_flight).state()
    slot = most_of(runs, "layer")
    limit(monkeypatch, in_flight * slot - 1)
    run = runs(grain="layer")
    run.step(4)  # one at a time
    run.steps([6] * _STEPS, in_flight=in_flight)
    assert differing(eager, run.state()) == []
    stats = run.attached.stats()
    if in_flight > 1:
        assert not stats["refused"]
        few = runs(grain="layer", max_slots=in_flight - 1).steps(
            [4] * (1 + _STEPS), in_flight=in_flight)
        assert stats["replays"] > few.attached.stats()["replays"] // 2
        # Of the pass that has found it, and none after that.
        assert stats["eager_calls"]["backward"] <= LAYERS
    assert taken(run) < in_flight * slot


def test_of_two_shapes_each_has_its_slots(runs, monkeypatch):
    """A long one that comes later does not fit, and the short one stays."""
    def train(run):
        for step in range(12):
            run.zero()
            for length in (16, 16) if step < 3 else (16, 32):
                run.loss(length=length).backward()
            run.optimizer.step()
        return run

    eager = train(runs(grain=None)).state()
    run = train(runs(grain="layer"))
    assert run.attached.stats()["eager_calls"].get("refused", 0) == 0
    few = runs(grain="layer")
    few.loss(length=16).backward()
    few.optimizer.step()
    limit(monkeypatch, few.attached.forecast()["input_bytes"])
    run = train(runs(grain="layer"))
    assert differing(eager, run.state()) == []
    stats = run.attached.stats()
    assert stats["replays"] > 0 and not stats["refused"]


def test_a_share_of_the_device(runs, monkeypatch):
    most = most_of(runs, "layer", 2)
    monkeypatch.setattr(memory, "total", lambda _: 100 * most - 100)
    limit(monkeypatch, "1%")
    run = runs(grain="layer").steps([4] * 3, in_flight=2)
    assert taken(run) == most // 2


def test_an_option_is_a_limit(runs):
    most = most_of(runs, "layer", 2)
    run = runs(grain="layer", memory_limit=most - 1).steps([4] * 3,
                                                           in_flight=2)
    assert taken(run) == most // 2


@pytest.mark.skipif(HAS_GPU, reason="a GPU has no allocation that fails")
def test_one_allocation_that_fails(runs):
    """Without a limit, too: bits are eager's."""
    eager = runs(grain=None).steps([2] * _STEPS).state()
    for at in range(1, 2 * LAYERS):
        run = runs(grain="layer")
        run.step(2)
        softtorch.configure(f"FAIL=cuMemAlloc:{at}:2")
        try:
            run.steps([2] * (_STEPS - 1))
        finally:
            softtorch.configure("FAIL=")
        assert differing(eager, run.state()) == []
        assert all(why.startswith("the driver has no graph for its backward")
                   for why in run.attached.stats()["refused"].values())


class Unused(Block):
    """Nobody uses what it returns besides."""

    def forward(self, x):
        return super().forward(x), x * 2


class Leaves(Model):
    def run_layers(self, x):
        for layer in self.layers:
            x, _ = layer(x)
        return x


@pytest.mark.parametrize("in_flight", [1, 2])
def test_nothing_is_chosen_before_a_backward(runs, monkeypatch, in_flight):
    """Which shows what comes back."""
    options = {"model": Leaves, "make": Unused, "grain": "layer"}
    most = most_of(runs, in_flight=in_flight, **options)
    limit(monkeypatch, most)
    run = runs(**options)
    run.loss()
    run.attached.step()
    run.steps([4] * _STEPS, in_flight=in_flight)
    stats = run.attached.stats()
    assert not stats["refused"] and "device" not in stats["eager_calls"]
    assert taken(run) == most and stats["replays"] > 0


def test_the_limit_is_that_of_the_attach(runs, monkeypatch):
    most = most_of(runs, "layer")
    run = runs(grain="layer")
    limit(monkeypatch, most - 1)
    run.steps([2] * _STEPS)
    assert taken(run) == most and not run.attached.stats()["refused"]
