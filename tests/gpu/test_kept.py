"""Tensors that were `.grad` stay as they are for who keeps them, though graphs
write the gradients of all steps to one place; who keeps outputs is warned.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import logging

import pytest
from models import COUNTS, WHOLE, Block, Model, torch

from graphhooks.torch.grad.home import Home

GRAIN = pytest.mark.parametrize("grain", WHOLE)


def keep(run, kept: list) -> None:
    kept += [p.grad for layer in run.model.layers
             for p in layer.parameters()]


def steps(run, counts, zero_within=False):
    """All are noted at the end, when graphs have run often."""
    kept: list = []
    for count in counts:
        run.zero()
        for _ in range(count):
            run.loss().backward()
            if zero_within:
                keep(run, kept)
                run.zero()
        if not zero_within:
            keep(run, kept)
            run.optimizer.step()
        else:
            run.attached and run.attached.step()
    for gradient in kept:
        run.note(gradient, "kept")


@GRAIN
@pytest.mark.parametrize("counts", [[1] * 5, [2] * 5, COUNTS[:3]], ids=str)
@pytest.mark.parametrize("options", [{}, {"max_slots": 1}], ids=str)
def test_gradients_that_are_kept(pair, grain, counts, options):
    pair(lambda run: steps(run, counts), grain=grain, make=lambda: Block(0.1),
         eager=None, **options)


@GRAIN
def test_gradients_of_each_microbatch_that_are_kept(pair, grain):
    pair(lambda run: steps(run, [3] * 4, zero_within=True), grain=grain,
         eager=None)


@GRAIN
@pytest.mark.parametrize("how", [{}, {"in_flight": 2},
                                 {"set_to_none": False}], ids=str)
@pytest.mark.parametrize("counts", [[1] * 5, [3, 2, 3]], ids=str)
def test_nothing_is_copied_for_nobody(runs, monkeypatch, grain, how, counts):
    copied = []
    copy_out = Home.copy_out
    monkeypatch.setattr(Home, "copy_out", lambda home, lists: copied.append(
        copy_out(home, lists)) or copied[-1])
    run = runs(grain=grain)
    run.steps(counts, **how)
    assert copied and not any(copied)


class Piles(Model):
    """Keeps something of what comes out of a layer."""

    of: str = "nothing"

    def __init__(self, make) -> None:
        super().__init__(make)
        self.kept: list = []

    def run_layers(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if i == 1:
                self.kept += {"nothing": [], "it": [x], "a view": [x[:1]],
                              "detached": [x.detach()],
                              "the last": [x.detach()],
                              "a copy": [x.detach().clone()]}[self.of]
        if self.of == "the last":
            del self.kept[:-1]
        return x


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("of", ["it", "a view", "detached", "nothing",
                                "the last", "a copy"])
def test_outputs_that_pile_up_are_named_once(runs, caplog, of, count):
    with caplog.at_level(logging.WARNING, "graphhooks"):
        run = runs(grain="layer", model=type("Own", (Piles,), {"of": of}))
        run.steps([count] * 9)
        run.attached.stats()
    said = [r.getMessage() for r in caplog.records]
    piles = of in ("it", "a view", "detached")
    assert len(said) == piles
    assert not piles or said[0].startswith(
        "layers.1: somebody keeps what comes out of it")


def test_one_that_is_still_grad_is_written_in_place(runs):
    """As autograd adds to it."""
    run = runs(grain="layer")
    run.steps([2, 2])
    run.zero(set_to_none=False)
    weight = run.model.layers[0].norm1.weight
    kept = weight.grad
    address = kept.data_ptr()
    run.backward(2)
    run.optimizer.step()
    run.zero(set_to_none=False)
    run.backward(2)
    assert weight.grad is kept and kept.data_ptr() == address
    assert bool(kept.abs().sum() > 0)
    torch.cuda.synchronize()
