"""Microbatches in flight: as many as there are slots, and more.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import pytest
from models import COUNTS, GRAINS, LAYERS, SEGMENTS, Block, Model, collect

from graphhooks import Error

GRAIN = pytest.mark.parametrize("grain", GRAINS)


def in_flight(count, last_first):
    """Steps with so many forwards before the first backward."""
    def train(run):
        for _ in range(6):
            run.zero()
            losses = [run.loss() for _ in range(count)]
            for loss in reversed(losses) if last_first else losses:
                loss.backward()
            run.optimizer.step()

    return train


@GRAIN
@pytest.mark.parametrize("last_first", [False, True], ids=["fifo", "lifo"])
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_two_slots_and_in_flight(pair, grain, last_first, count):
    train = in_flight(count, last_first)
    run = pair(train, grain=grain, max_slots=2,
               eager=["busy"] if count > 2 else [])
    stats = run.attached.stats()
    assert stats["slots"] == min(count, 2)
    said = "more microbatches are under way than it has slots: attach with"
    assert (said in run.attached.explain()) is (count > 2)
    if count > 2:
        assert stats["eager_calls"]["busy"] == \
            SEGMENTS[grain] * 5 * (count - 2)


@GRAIN
def test_dropout_beyond_the_slots(pair, grain):
    pair(in_flight(4, False), grain=grain, max_slots=2, eager=["busy"],
         make=lambda: Block(dropout=0.1))


@GRAIN
def test_as_many_as_there_are_slots_by_default(pair, grain):
    run = pair(in_flight(8, False), grain=grain)
    assert run.attached.stats()["slots"] == 8


@GRAIN
def test_backwards_that_never_come(pair, grain):
    """Their slots are free again with the next step."""
    def train(run):
        run.steps(COUNTS[:3])
        for _ in range(20):
            run.loss()
        run.optimizer.step()
        run.steps()

    run = pair(train, grain=grain, eager=["busy"])
    busy = run.attached.stats()["eager_calls"]["busy"]
    run.steps()
    assert run.attached.stats()["eager_calls"]["busy"] == busy


@GRAIN
def test_some_backwards_that_never_come(pair, grain):
    def train(run):
        for count in COUNTS + COUNTS:
            run.zero()
            losses = [run.loss() for _ in range(count)]
            for loss in losses[::2]:
                loss.backward()
            run.optimizer.step()
            del loss, losses  # by which somebody has what layers returned

    pair(train, grain=grain)


def biases(make):
    """Only what no backward reads is trained: a step spoils none."""
    model = Model(make)
    for name, p in model.named_parameters():
        p.requires_grad_(name.endswith("bias") and "norm" not in name)
    return model


def pipeline(run):
    """Each backward comes after the next forward."""
    before = run.loss()
    for _ in range(6):
        loss = run.loss()
        run.zero()
        before.backward()
        for p in run.model.parameters():
            if p.requires_grad:
                run.note(p.grad)
        run.optimizer.step()
        before = loss


@GRAIN
def test_a_backward_after_the_step_is_eager(pair, grain):
    """All numbers are those of eager, which can go back."""
    pair(pipeline, grain=grain, model=biases, replays=None, eager=None,
         refused="after the step of its forward has ended")


@GRAIN
@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("count", [1, 2])
def test_a_late_backward_leaves_the_training_alone(pair, grain, late, count):
    def train(run):
        run.steps(in_flight=2)
        run.zero()
        losses = [run.loss(), run.loss()]
        losses[1 - late].backward()
        run.optimizer.step()
        run.zero()
        flight = [run.loss() for _ in range(count)]
        if run.attached is not None:
            with pytest.raises(Error, match="after the step"):
                losses[late].backward()
            assert all(p.grad is None
                       for p in run.model.layers.parameters())
            run.zero()
        for loss in flight:
            loss.backward()
        run.optimizer.step()
        run.steps()

    pair(train, grain=grain, model=biases, eager=None)


class Ordered(Model):
    order = tuple(range(LAYERS))

    def run_layers(self, x):
        for i in self.order:
            x = self.layers[i](x) * 1.0
        return x


@pytest.mark.parametrize("order", [(2, 1, 0), (0, 2, 1)], ids=str)
@pytest.mark.parametrize("in_flight", [1, 2])
def test_layers_that_are_called_in_another_order(pair, order, in_flight):
    def train(run):
        run.steps(COUNTS[:3], in_flight=in_flight)
        run.model.order = order
        run.steps(COUNTS[:2], in_flight=in_flight)
        run.model.order = Ordered.order
        run.steps(COUNTS[:2], in_flight=in_flight)

    pair(train, model=Ordered, eager=["order"])


def test_a_forward_that_is_let_go_leaves_no_node(runs):
    """What a segment was given has the node of the one before it, and nobody
    holds that any longer than autograd."""
    run = runs(grain="layer")
    run.steps([2, 2, 2])
    loss = run.loss()
    instances = [i for segment in run.attached.segments
                 for i in segment.instances.values()]
    assert any(i.node is not None and i.node() is not None for i in instances)
    del loss
    run.notes.clear()
    collect()
    assert not any(i.node is not None and i.node() is not None
                   for i in instances)
