"""The order of passes in a pool, where each layer has a loss of its own.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

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
def test_backwards_in_another_order_are_refused(runs, count):
    run = runs(grain="layer", model=Local)
    train(run, [LAST_TO_FIRST] * 3, count)
    with pytest.raises(Error, match="backwards come in another order"):
        train(run, [FIRST_TO_LAST], count)
    run.zero()
    train(run, [LAST_TO_FIRST] * 2, count)


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
