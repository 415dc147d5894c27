"""Autocast's cache, which casts a weight once for all its uses in a region:
eager adds up their gradients in the type of the cast.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib

import pytest
from models import DEVICE, WHOLE, Block, Model, torch

GRAIN = pytest.mark.parametrize("grain", WHOLE)


@contextlib.contextmanager
def region(cached):
    """With what the key of a call has, too, where the device is a CPU."""
    with torch.autocast("cuda", torch.bfloat16, cache_enabled=cached), \
            torch.autocast(DEVICE, torch.bfloat16, cache_enabled=cached):
        yield


class UsesTwice(Block):
    def forward(self, x):
        x = x + 0.5 * self.mlp(self.norm1(x))
        x = x + self.attn(self.norm2(x))
        return x + 0.5 * self.mlp(self.norm2(x))


class CastsItself(Block):
    """Once for two uses, in a recording as eagerly."""

    def forward(self, x):
        weight = self.mlp.up.weight.to(torch.float64)
        y = torch.tanh((x.double() @ weight.t()) @ weight)
        return super().forward(x) + y.to(x.dtype)


class Loops(Model):
    def run_layers(self, x):
        return super().run_layers(super().run_layers(x))


class Tied(Model):
    def __init__(self, make) -> None:
        super().__init__(make)
        self.layers[2].mlp.up.weight = self.layers[0].mlp.up.weight


class Head(Model):
    """The layers' weight is used by the head, which is none of them."""

    def run_layers(self, x):
        weight = self.layers[0].mlp.up.weight
        y = torch.nn.functional.linear(super().run_layers(x), weight)
        return torch.nn.functional.linear(y, weight.t())


class Views(Model):
    def run_layers(self, x):
        return super().run_layers(x) - super().run_layers(x.flip(0))


CASES = {"inside": {"make": UsesTwice}, "loops": {"model": Loops},
         "tied": {"model": Tied}, "head": {"model": Head},
         "views": {"model": Views}}


def train(cached, count=2):
    def go(run):
        forward = run.model.forward

        def call(tokens):
            with region(cached):
                return forward(tokens)

        run.model.forward = call
        run.steps([count] * 5)

    return go


@GRAIN
@pytest.mark.parametrize("case", CASES)
def test_one_cast_for_several_uses_is_refused(pair, grain, case):
    pair(train(True), grain=grain, **CASES[case], replays=None,
         refused="weight is cast by autocast once for several uses")


@GRAIN
@pytest.mark.parametrize("case", CASES)
def test_a_cast_for_each_use_is_not(pair, grain, case):
    pair(train(False), grain=grain, **CASES[case])


@GRAIN
@pytest.mark.parametrize("make", [Block, CastsItself])
@pytest.mark.parametrize("cached", [True, False])
def test_one_use_in_a_region_is_as_ever(pair, grain, make, cached):
    pair(train(cached), grain=grain, make=make)


@GRAIN
def test_backwards_of_their_own_in_one_region(pair, grain):
    """Of two that share a cast, and none adds to what comes to it."""
    def go(run):
        for _ in range(5):
            run.zero()
            with region(True):
                losses = [run.loss() for _ in range(2)]
            for loss in losses:
                loss.backward()
            run.optimizer.step()

    pair(go, grain=grain)


class Drops(Block):
    def __init__(self) -> None:
        super().__init__(0.1, 0.1)


@GRAIN
def test_what_a_region_leaves_alone_stays_as_it_is(pair, grain):
    """Attention that computes in float32 within a region, as with dropout on
    a CPU: a replay in the region casts nothing that the recording has not."""
    def train(run):
        for _ in range(5):
            with region(True):
                loss = run.loss()
            loss.backward()
            run.optimizer.step()
            run.zero()

    pair(train, grain=grain, make=Drops)
