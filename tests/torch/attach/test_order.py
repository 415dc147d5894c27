"""The order of passes in a pool, where each layer has a loss of its own.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import random

import pytest
from models import COUNTS, Model, torch

from graphhooks import Error

# What a step does: backwards at once, in the order of layers, or the reverse.
NOW, FIRST_TO_LAST, LAST_TO_FIRST = "now", "first to last", "last to first"


class Local(Model):
    """Nothing goes back from one layer to another."""

    how = NOW

    def run_layers(self, x):
        self.losses = []
        for layer in self.layers:
            x = layer(x.detach())
            loss = x.square().mean()
            if self.how != NOW:
                self.losses.append(loss)
            elif torch.is_grad_enabled():
                loss.backward()
        return x.detach()


def train(run, ways, count):
    for how in ways:
        run.model.how = how
        run.zero()
        for _ in range(count):
            loss = run.loss()
            losses = run.model.losses
            for each in losses if how == FIRST_TO_LAST else losses[::-1]:
                each.backward()
            loss.backward()
        run.optimizer.step()


@pytest.mark.parametrize("how", [NOW, FIRST_TO_LAST, LAST_TO_FIRST])
@pytest.mark.parametrize("count", [1, 3])
def test_any_order_that_stays(pair, how, count):
    pair(lambda run: train(run, [how] * 4, count), model=Local)


@pytest.mark.parametrize("count", [1, 2])
def test_forwards_that_come_before_backwards_are_eager(pair, count):
    """In the memory that those have left."""
    pair(lambda run: train(run, [NOW, NOW, NOW, LAST_TO_FIRST, FIRST_TO_LAST,
                                 NOW, LAST_TO_FIRST], count),
         model=Local, eager=["order"])


@pytest.mark.parametrize("count", [1, 2])
def test_backwards_in_another_order_are_eager(pair, count):
    pair(lambda run: train(run, [LAST_TO_FIRST] * 3 + [FIRST_TO_LAST] * 2
                           + [LAST_TO_FIRST] * 2, count),
         model=Local, refused="backwards come in another order",
         eager=["backward"])


@pytest.mark.parametrize("count", [1, 2])
def test_backwards_that_had_memory_of_their_own_may_turn(pair, count):
    pair(lambda run: train(run, [FIRST_TO_LAST] * 3 + [LAST_TO_FIRST], count),
         model=Local)


def test_what_goes_back_no_more_is_in_nobodys_way(pair):
    """Losses of layers that are kept, and left."""
    def some(run):
        kept = []
        for _ in range(4):
            run.model.how = LAST_TO_FIRST
            run.zero()
            loss = run.loss()
            kept.append(run.model.losses)
            for each in run.model.losses[1::-1]:
                each.backward()
            loss.backward()
            run.optimizer.step()

    pair(some, model=Local)


def test_the_usual_order_is_never_refused(pair):
    pair(lambda run: run.steps(COUNTS + COUNTS, in_flight=3))


class Drops(Model):
    """Leaves out layers, as LayerDrop does."""

    def __init__(self, make) -> None:
        super().__init__(make)
        self.plan: list = []

    def run_layers(self, x):
        for i in self.plan.pop(0):
            x = self.layers[int(i)](x)
        return x


@pytest.mark.parametrize("grain", ["layer", "part"])
@pytest.mark.parametrize("steps", ["012,012 02,12,01", "012,012 02,02,12,01",
                                   "012,012 12,01", "012,012 02,1,01",
                                   "012,012 02,12,01 12,02,0,012",
                                   "012 02 12 01 02 01"])
def test_layers_that_are_left_out(pair, grain, steps):
    """What stands for them in memory is another's: not while it is in use."""
    def train(run):
        for step in steps.split():
            run.model.plan = step.split(",")
            run.zero()
            for _ in step.split(","):
                run.backward(1)
                for p in run.model.parameters():
                    if p.grad is not None:
                        run.note(p.grad, "gradient")
            run.optimizer.step()

    pair(train, grain=grain, model=Drops, replays=None, eager=None)


class LongDrops(Drops):
    def __init__(self, make) -> None:
        super().__init__(make)
        self.layers.extend(make() for _ in range(5))


@pytest.mark.parametrize("in_flight", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_layers_that_are_left_out_at_random(pair, seed, in_flight):
    def train(run):
        left = random.Random(seed)
        for _ in range(6):
            run.model.plan = [[i for i in range(len(run.model.layers))
                               if left.random() < 0.8] for _ in range(4)]
            run.step(4, in_flight)

    pair(train, model=LongDrops, eager=None)
