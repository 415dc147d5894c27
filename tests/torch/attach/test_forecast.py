"""What graphs will take is foretold before there is one.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import gc
import weakref

import pytest
from graphhooks.torch.base import memory
from models import COUNTS, GRAINS, LAYERS, WHOLE, Block, Model, differing, torch

import graphhooks

GRAIN = pytest.mark.parametrize("grain", GRAINS)


class Masked(Model):
    """Each layer is given a mask, and what the first was given."""

    def run_layers(self, x):
        mask, first = torch.ones(x.shape[1], device=x.device), x
        for layer in self.layers:
            x = layer(x, mask, first)
        return x


class TakesMasks(Block):
    def forward(self, x, mask, first):
        return super().forward(x * mask[:, None] + first)


class Paired(Model):
    def run_layers(self, x):
        y = x * 2
        for layer in self.layers:
            x, y = layer(x, y)
        return x + y


class Pair(Block):
    def forward(self, x, y):
        return super().forward(x + y), y * 1.5


class Residual(Model):
    """What goes from layer to layer is made between them."""

    def run_layers(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x


class Outside(Model):
    """What leaves the first layer is used at the end, too."""

    def run_layers(self, x):
        first = x = self.layers[0](x)
        for layer in self.layers[1:]:
            x = layer(x)
        return x + first


class Biased(Model):
    """As T5 does: what the first layer makes goes through all of them, and out
    of the last, where nobody uses it."""

    def run_layers(self, x):
        bias = mask = None
        for layer in self.layers:
            x, bias, mask = layer(x, bias, mask)
        return x


class TakesBias(Block):
    def forward(self, x, bias=None, mask=None):
        if bias is None:
            bias = self.norm1.weight * x.mean(-1, keepdim=True)
            mask = torch.ones_like(x[..., :1]).detach()
        return super().forward((x + bias) * mask), bias, mask


class Inner(Model):
    """Nobody uses what else a layer returns, of which its result is made."""

    def run_layers(self, x):
        for layer in self.layers:
            x, _ = layer(x)
        return x


class InnerOutside(Model):
    """Somebody does, of one layer."""

    def run_layers(self, x):
        x, inner = self.layers[0](x)
        for layer in self.layers[1:]:
            x, _ = layer(x)
        return x + inner


class GivesInner(Block):
    def forward(self, x):
        inner = x + self.attn(self.norm1(x))
        return inner + self.mlp(self.norm2(inner)), inner


MODELS = {"biased": (Biased, TakesBias), "inner": (Inner, GivesInner),
          "inner outside": (InnerOutside, GivesInner), "plain": (Model, Block), "masked": (Masked, TakesMasks),
          "paired": (Paired, Pair), "residual": (Residual, Block),
          "outside": (Outside, Block)}


def told(run, count: int, in_flight: int) -> dict:
    """After the first step, or, of a chunk that was taken apart, the next."""
    while not run.attached.forecast():
        run.step(count, in_flight=in_flight)
    assert run.attached.stats()["recordings"] == 0
    return run.attached.forecast()


@pytest.mark.parametrize("kind, grain", [
    (kind, grain) for kind in MODELS for grain in GRAINS
    if grain != "part" or kind in {"plain", "residual", "outside"}])
@pytest.mark.parametrize("in_flight", [1, 3])
@pytest.mark.parametrize("count", [1, 4])
def test_inputs_are_foretold_to_the_byte(runs, kind, grain, in_flight, count):
    """Also of several inputs, slots, and layers that hand on more than one."""
    model, make = MODELS[kind]
    run = runs(grain=grain, model=model, make=make)
    assert run.attached.forecast() == {}
    count = max(count, in_flight)
    found = told(run, count, in_flight)
    run.steps([count] * 4, in_flight=in_flight)
    has = run.attached.memory()
    assert found["slots"] == in_flight
    assert found["input_bytes"] == has["slot_bytes"] + has["bank_bytes"] > 0
    assert found["input_bytes"] == found["slots"] * sum(
        s["input_bytes"] for s in found["segments"].values())
    assert has["forecast_bytes"] == found["input_bytes"]
    assert run.attached.forecast()["input_bytes"] == found["input_bytes"]


def of_lengths(run, lengths, in_flight: int) -> None:
    """A step: first in, first out."""
    waiting: list = []
    run.zero()
    for length in lengths:
        waiting.append(run.loss(length=length))
        if len(waiting) == in_flight:
            waiting.pop(0).backward()
    for loss in waiting:
        loss.backward()
    run.optimizer.step()


@GRAIN
@pytest.mark.parametrize("in_flight", [1, 2])
@pytest.mark.parametrize("lengths, grows", [
    ((32, 16), False), ((16, 32), True), ((16, 32, 24), True),
    ((24, 16, 32), True), ((8, 16, 24, 32), True)], ids=str)
def test_shapes_share_blocks_in_the_order_in_which_they_come(
        runs, monkeypatch, grain, lengths, grows, in_flight):
    """A larger one that comes later finds no block of its size."""
    lengths = [n for n in lengths for _ in range(in_flight)]
    run = runs(grain=grain)
    of_lengths(run, lengths, in_flight)
    found = run.attached.forecast()
    for _ in range(4):
        of_lengths(run, lengths, in_flight)
    has = run.attached.memory()
    assert found["slots"] == in_flight
    assert found["input_bytes"] == has["slot_bytes"] + has["bank_bytes"]
    assert (has["bank_bytes"] > 0) == grows
    monkeypatch.setenv("GRAPHHOOKS_MEMORY_LIMIT", str(found["input_bytes"]))
    run = runs(grain=grain)
    for _ in range(4):
        of_lengths(run, lengths, in_flight)
    assert run.attached.stats()["refused"] == {}
    assert "device" not in run.attached.stats()["eager_calls"]


@pytest.mark.parametrize("lengths, of", [
    ((16, 32), (32,)), ((32, 16), (32,)), ((8, 16, 24), (16, 24))], ids=str)
def test_of_more_shapes_than_have_graphs_one_gives_way(runs, lengths, of):
    found = []
    for some in lengths, of:
        run = runs(grain="layer", max_banks=len(of))
        of_lengths(run, some, 1)
        found.append(run.attached.forecast()["input_bytes"])
    assert found[0] == found[1]


def test_each_slot_is_counted_with_all_shapes(runs):
    """Also with those that have come to others alone."""
    run = runs(grain="layer")
    of_lengths(run, (32, 16), 2)
    found = run.attached.forecast()
    for lengths in ((32, 16), (16, 32)) * 3:
        of_lengths(run, lengths, 2)
    has = run.attached.memory()
    assert found["input_bytes"] == has["slot_bytes"] + has["bank_bytes"]


def test_max_slots_bounds_it(runs):
    run = runs(grain="layer", max_slots=2)
    assert told(run, 3, 3)["slots"] == 2


@pytest.fixture
def without_collector():
    gc.disable()
    yield
    gc.enable()


def test_what_a_pass_keeps(runs, monkeypatch, without_collector):
    """Gradients that are made anew take the place of what is free by then."""
    now = iter(range(0, 1 << 40, 1 << 20))
    monkeypatch.setattr(memory, "allocated", lambda _: next(now))
    run = runs(grain="layer")
    found = told(run, 1, 1)
    segments = found["segments"]
    assert len(segments) == LAYERS
    weights = sum(p.nbytes for p in run.model.layers[0].parameters())
    assert all(s["kept_bytes"] == 1 << 20 and s["gradient_bytes"] == weights
               for s in segments.values())
    hidden = found["input_bytes"] // 2
    # Each backward leaves gradients of weights and of its input.
    assert found["pool_bytes"] == (LAYERS << 20) + weights + hidden
    assert found["bytes"] == found["pool_bytes"] + found["input_bytes"]
    run = runs(grain="layer")
    assert told(run, 2, 2)["pool_bytes"] == 2 * ((LAYERS << 20) + hidden)


class Garbage:
    """In a cycle, as models are that were trained before."""

    def __init__(self, collected):
        self.own = self
        weakref.finalize(self, collected)


def test_what_is_collected_in_a_pass_was_there_before(runs, monkeypatch):
    nbytes = 1 << 30

    def collected():
        nonlocal nbytes
        nbytes -= 1 << 30

    def allocate(*_):
        nonlocal nbytes
        nbytes += 1 << 20
        gc.collect()

    monkeypatch.setattr(memory, "allocated", lambda _: nbytes)
    run = runs(grain="chunk")
    handle = run.model.layers[1].register_forward_hook(allocate)
    gc.disable()
    try:
        Garbage(collected)
        run.step(1)
    finally:
        gc.enable()
    handle.remove()
    assert nbytes == 1 << 20
    kept = run.attached.forecast()["segments"].values()
    assert [s["kept_bytes"] for s in kept] == [1 << 20]


def test_nobody_listens_to_the_collector_after_a_pass_that_has_failed(runs):
    before = [*gc.callbacks]
    run = runs(grain="chunk")
    handle = run.model.layers[1].register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run.loss()
    handle.remove()
    assert len(gc.callbacks) == len(before) + 1
    run.attached.step()
    assert gc.callbacks == before


def test_the_log_says_it(runs, capfd, monkeypatch):
    monkeypatch.setenv("GRAPHHOOKS_LOG", "info")
    run = runs(grain="layer").steps([2, 2])
    total = run.attached.memory()["forecast_bytes"]
    lines = [line for line in capfd.readouterr().err.splitlines()
             if "memory:" in line]
    assert len(lines) == 1
    assert f"will take {total} bytes" in lines[0]


@pytest.mark.parametrize("missing", [0, 1])
def test_a_limit_that_is_enough_is_not_warned_of(runs, capfd, caplog, missing,
                                                 monkeypatch):
    run = runs(grain="layer")
    limit = told(run, 2, 1)["input_bytes"] - missing
    monkeypatch.setenv("GRAPHHOOKS_MEMORY_LIMIT", str(limit))
    capfd.readouterr()
    runs(grain="layer").steps([2, 2])
    said = f"would take {limit + missing} bytes" in caplog.text
    assert said == bool(missing)
    assert "would take" not in capfd.readouterr().err


def test_a_layer_whose_backward_does_not_fit_is_eager_as_a_whole(
        runs, monkeypatch):
    """Else each pass would run its modules once more."""
    run = runs(grain="layer")
    most = told(run, 1, 1)["input_bytes"] // 2
    eager = runs(grain=None).steps([1] * 6).state()
    monkeypatch.setenv("GRAPHHOOKS_MEMORY_LIMIT", str(most))
    run = runs(grain="layer").steps([1] * 6)
    assert differing(eager, run.state()) == []
    refused = run.attached.stats()["refused"]
    assert refused and all("MEMORY_LIMIT" in why for why in refused.values())
    has = run.attached.memory()
    assert has["slot_bytes"] + has["bank_bytes"] <= most


def test_what_a_limit_refuses_is_foretold_still(runs, monkeypatch):
    """As that is what the limit should be."""
    run = runs(grain="layer")
    found = told(run, 1, 1)
    monkeypatch.setenv("GRAPHHOOKS_MEMORY_LIMIT",
                       str(found["input_bytes"] // 2))
    run = runs(grain="layer").steps([1] * 6)
    assert len(run.attached.stats()["refused"]) == LAYERS
    now = run.attached.forecast()
    assert now["input_bytes"] == found["input_bytes"]
    assert now["segments"].keys() == found["segments"].keys()
    assert run.attached.memory()["forecast_bytes"] == found["input_bytes"]


class TwiceBack(Model):
    """A second backward goes through a layer's forward, which no graph
    serves."""

    def run_layers(self, x):
        for layer in self.layers[:2]:
            x = layer(x)
        x.float().sum().backward(retain_graph=True)
        return self.layers[2](x)


def test_layers_without_graphs_take_nothing(runs):
    """What they return to the next is an input that it copies."""
    run = runs(grain="layer", model=TwiceBack)
    run.step(1)
    found = run.attached.forecast()
    assert [*found["segments"]] == ["layers.2"]
    run.steps([1] * 3)
    has = run.attached.memory()
    assert found["input_bytes"] == has["slot_bytes"] > 0
    run = runs(grain="layer", model=TwiceBack,
               layers=["layers.0", "layers.1"])
    run.step(1)
    found = run.attached.forecast()
    assert found["segments"] == {} and found["bytes"] == 0


def test_when_there_is_nothing_to_foretell(runs):
    run = runs(grain="layer").steps(COUNTS)
    run.attached.detach()
    assert run.attached.forecast() == {}
    attached = graphhooks.attach(torch.nn.Linear(1, 1), enable=False)
    assert attached.forecast() == {}
