"""Packed offsets that are written where torch does not see it, as by a kernel
of somebody's own: graphs read what is there at each call, whatever has come
before it.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import graphhooks
import pytest
from models import LAYERS, WHOLE, torch
from test_packed import PACKED, TOKENS, Packing, Texts, offsets

GRAIN = pytest.mark.parametrize("grain", WHOLE)


class Static(Texts):
    """One buffer for all microbatches, and which layers are called."""

    length = None

    def __init__(self, make=Packing) -> None:
        super().__init__(make)
        self.buffer = self.make()
        self.which = range(LAYERS)

    def make(self):
        return offsets([16] * 4)

    def write(self, at) -> None:
        self.buffer.data.copy_(at)

    def run_layers(self, x):
        at = sorted(self.chance.sample(range(1, TOKENS), 3))
        self.write(torch.tensor([0, *at, TOKENS]))
        shape, x = x.shape, x.flatten(0, 1)
        for i in self.which:
            x = self.layers[i](x, self.buffer, self.length or TOKENS)
        return x.view(shape)


class Inference(Static):
    """No version tells that it is written."""

    def make(self):
        with torch.inference_mode():
            return super().make()

    def write(self, at) -> None:
        with torch.inference_mode():
            self.buffer.copy_(at)


STATIC = pytest.mark.parametrize("model", [Static, Inference])


def trained(pair, train, **how):
    return pair(train, make=Packing, packed=PACKED, **how)


def evaluate(run) -> None:
    with torch.no_grad():
        run.loss()


@GRAIN
@STATIC
def test_steps_that_the_caller_ends(pair, grain, model):
    """Without an optimizer of torch's."""
    def train(run):
        weights = [*run.model.parameters()]
        for _ in range(8):
            run.loss().backward()
            with torch.no_grad():
                for p in weights:
                    p.sub_(p.grad, alpha=0.1)
                    p.grad = None
            if run.attached is not None:
                run.attached.step()

    trained(pair, train, grain=grain, model=model)


@STATIC
def test_layers_that_are_left_out(pair, model):
    """Of one microbatch another layer is called than of the one before."""
    def train(run):
        run.step(2)
        for _ in range(4):
            run.zero()
            for which in ([0], [1], [2, 0]):
                run.model.which = which
                run.loss().backward()
            run.optimizer.step()

    trained(pair, train, model=model)


@GRAIN
@STATIC
@pytest.mark.parametrize("graphs", [False, True])
def test_evaluations_before_the_first_step_and_between(pair, grain, model,
                                                       graphs):
    """A layer is tried with the offsets of its own call."""
    def train(run):
        evaluate(run)
        for count in (2, 1, 2, 2):
            run.step(count)
            evaluate(run)
            evaluate(run)

    trained(pair, train, grain=grain, model=model, eval=graphs,
            eager=[] if graphs else ["forward_only"])


@GRAIN
@STATIC
def test_passes_that_end_early(pair, grain, model):
    """What was made for a call that had no last layer is not the next one's."""
    def train(run):
        run.step(2)
        for _ in range(4):
            run.model.which = [0]
            run.loss()
            run.model.which = range(LAYERS)
            run.step(1)

    trained(pair, train, grain=grain, model=model)


def test_offsets_that_change_within_a_chunk(pair):
    """Where torch sees it."""
    class Halves(Static):
        def run_layers(self, x):
            at = sorted(self.chance.sample(range(1, TOKENS), 3))
            self.write(torch.tensor([0, *at, TOKENS]))
            shape, x = x.shape, x.flatten(0, 1)
            for layer in self.layers:
                x = layer(x, self.buffer, TOKENS)
                self.buffer[1:-1] //= 2
            return x.view(shape)

    trained(pair, lambda run: run.steps([2, 2, 2]), grain="chunk",
            model=Halves, replays=None, eager=None, apart="reads a tensor")


@GRAIN
@STATIC
def test_a_step_that_begins_with_a_call_over_the_room(pair, grain, model):
    """What is offloaded of it ends the step before."""
    def train(run):
        run.steps([2, 2])
        for _ in range(3):
            run.zero()
            for length in (2 * TOKENS, TOKENS):
                run.model.length = length
                run.loss().backward()
            run.optimizer.step()

    trained(pair, train, grain=grain, model=model, offload=True,
            offload_min_bytes=64, eager=["packed"])


@GRAIN
def test_nothing_is_kept_of_a_call(runs, grain, monkeypatch):
    """However many are evaluated."""
    made = []
    padded = graphhooks.torch.shapes.packed._padded

    class Kept(torch.Tensor):
        alive = 0

        def __del__(self):
            Kept.alive -= 1

    def count(*args):
        made.append(padded(*args).as_subclass(Kept))
        Kept.alive += 1
        return made.pop()

    monkeypatch.setattr(graphhooks.torch.shapes.packed, "_padded", count)
    run = runs(grain=grain, make=Packing, model=Texts, packed=PACKED)
    for _ in range(3):
        evaluate(run)
        assert Kept.alive == 0
