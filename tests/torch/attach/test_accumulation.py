"""Gradients add up in `.grad`, whatever is there.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import pytest
from models import (BATCH, COUNTS, GRAINS, LENGTH, WHOLE, WIDTH, Block, Model,
                    nn, torch)

GRAIN = pytest.mark.parametrize("grain", GRAINS)
ZERO = pytest.mark.parametrize("set_to_none", [True, False, None],
                               ids=["none", "zeros", "kept"])


@GRAIN
@ZERO
@pytest.mark.parametrize("in_flight", [1, 3])
def test_zero_grad(pair, grain, set_to_none, in_flight):
    pair(lambda r: r.steps(COUNTS + COUNTS, in_flight=in_flight,
                           set_to_none=set_to_none), grain=grain)


@pytest.mark.parametrize("grain", WHOLE)
@ZERO
@pytest.mark.parametrize("counts", [
    [1, 1, 1, 3, 1, 4], [1, 4, 1, 1, 3], [4, 1, 1, 4], [2, 2, 7, 1],
    [3, 1, 1, 3]], ids=str)
def test_counts_that_change(pair, grain, set_to_none, counts):
    """Also from one microbatch to more than were ever expected."""
    pair(lambda r: r.steps(counts, set_to_none=set_to_none), grain=grain)


@GRAIN
def test_zero_grad_by_turns(pair, grain):
    def train(run):
        for i, count in enumerate(COUNTS + COUNTS):
            run.step(count, set_to_none=(True, False, None)[i % 3])

    pair(train, grain=grain)


@GRAIN
@pytest.mark.parametrize("counts", [COUNTS, [1] * 6])
def test_gradients_that_the_user_has_set(pair, grain, counts):
    def train(run):
        for i, count in enumerate(counts):
            run.zero()
            for j, p in enumerate(run.model.parameters()):
                if (i + j) % 2:
                    p.grad = torch.full_like(p, 0.125 * (i + 1))
            run.backward(count)
            run.optimizer.step()

    pair(train, grain=grain)


@GRAIN
def test_gradients_that_change_between_microbatches(pair, grain):
    def train(run):
        for count in COUNTS:
            run.zero()
            for m in range(count):
                run.loss().backward()
                for j, p in enumerate(run.model.parameters()):
                    if (m + j) % 3 == 0:
                        p.grad = p.grad * 0.5
                    elif (m + j) % 3 == 1:
                        p.grad.mul_(0.5)
            run.optimizer.step()

    pair(train, grain=grain)


@GRAIN
@pytest.mark.parametrize("after", [0, 2], ids=["all", "half"])
def test_data_of_gradients_that_is_replaced(pair, grain, after):
    """As masks of gradients do it, also before the last microbatches."""
    def train(run):
        for count in COUNTS:
            run.zero()
            run.backward(count - after)
            for p in run.model.parameters():
                p.grad.data = torch.where(p.detach() > 0, p.grad.data, 0)
            run.backward(after)
            run.optimizer.step()

    pair(train, grain=grain)


@GRAIN
@pytest.mark.parametrize("other", [
    torch.Tensor.detach, lambda g: g.data, lambda g: g.view_as(g)],
    ids=["detach", "data", "view"])
@pytest.mark.parametrize("counts", [[1, 1, 1, 3, 3], [3, 3, 3]], ids=str)
def test_gradients_that_are_other_tensors_of_the_same_memory(
        pair, grain, counts, other):
    def train(run):
        for count in counts:
            run.zero()
            for _ in range(count):
                run.loss().backward()
                for p in run.model.layers.parameters():
                    p.grad = other(p.grad)
            run.optimizer.step()

    pair(train, grain=grain)


@GRAIN
def test_gradients_that_are_clipped(pair, grain):
    def train(run):
        for count in COUNTS:
            run.zero()
            run.backward(count)
            run.note(torch.nn.utils.clip_grad_norm_(
                run.model.parameters(), 0.1))
            run.optimizer.step()

    pair(train, grain=grain)


@GRAIN
@ZERO
def test_eager_microbatches_between(pair, grain, set_to_none):
    """Of another shape, first in a step, in the middle, and alone."""
    shapes = [[BATCH] * 4, [BATCH] * 2, [BATCH] * 4, [1, BATCH, BATCH],
              [BATCH, 1, BATCH], [1], [1, 1], [BATCH], [BATCH, BATCH, 1]]

    def train(run):
        for batches in shapes:
            run.zero(set_to_none)
            for batch in batches:
                run.loss(batch).backward()
            run.optimizer.step()

    pair(train, grain=grain, eager=["input"])


@GRAIN
@pytest.mark.parametrize("count", [1, 3])
def test_zeros_keep_their_signs(pair, grain, count):
    """Gradients that are zeros: 0 * -1 is not 0 * 1."""
    def train(run):
        for sign in (1, 1, -1, 1, -1):
            run.zero()
            for _ in range(count):
                (run.loss() * 0.0 * sign).backward()
            for p in run.model.parameters():
                run.note(p.grad)
            run.optimizer.step()

    pair(train, grain=grain)


def test_a_count_that_was_not_expected_is_told(runs):
    run = runs(grain="layer").steps([1, 1, 1])
    assert "gradients_moved" not in run.attached.stats()["eager_calls"]
    run.step(3)
    assert run.attached.stats()["eager_calls"]["gradients_moved"] > 0


@GRAIN
def test_several_in_flight_are_expected_to_add(pair, grain):
    """Though the step before had one microbatch, and there is no gradient
    when the first backward is recorded."""
    run = pair(lambda r: r.step(1) or r.steps([3, 3], in_flight=3),
               grain=grain)
    assert "gradients_moved" not in run.attached.stats()["eager_calls"]


def kept(run):
    run.loss().backward()


def set_to_zero(run):
    run.zero(set_to_none=False)
    run.loss().backward()


def dropped_late(run):
    loss = run.loss()
    run.zero()
    loss.backward()


LATE = pytest.mark.parametrize("late", [kept, set_to_zero, dropped_late])


def train_late(run, late, before):
    run.steps([1] * before)
    for _ in range(4):
        late(run)
        for p in run.model.parameters():
            run.note(p.grad)
        run.optimizer.step()


@GRAIN
@LATE
def test_gradients_that_outlast_a_forward(pair, grain, late):
    """They lie where the forward writes."""
    run = pair(lambda run: train_late(run, late, 3), grain=grain)
    assert run.attached.stats()["eager_calls"]["gradients_moved"] > 0


@GRAIN
@LATE
def test_gradients_that_always_do_lie_apart(pair, grain, late):
    run = pair(lambda run: train_late(run, late, 0), grain=grain)
    assert "gradients_moved" not in run.attached.stats()["eager_calls"]


@GRAIN
@pytest.mark.parametrize("skips", [(), (2, 3)], ids=str)
def test_data_of_gradients_that_is_replaced_in_steps_that_are_skipped(
        pair, grain, skips):
    """And while another microbatch is in flight, which is recorded later."""
    def train(run):
        for i, count in enumerate(COUNTS):
            run.zero()
            for in_flight in (1, 2):
                run.backward(count, in_flight)
                for p in run.model.parameters():
                    p.grad.data = p.grad.data * 0.5
            if i not in skips:
                run.optimizer.step()

    pair(train, grain=grain)


class Latents(Model):
    """Begins with weights of its own, as a perceiver does."""

    def __init__(self, make=Block) -> None:
        super().__init__(make)
        self.latents = nn.Parameter(torch.randn(LENGTH, WIDTH))

    def run_layers(self, x):
        return super().run_layers(self.latents[None])


class Positions(Latents):
    def run_layers(self, x):
        positions = self.latents.view(1, *x.shape[1:])
        return Model.run_layers(self, x[:1] + positions)


@GRAIN
@pytest.mark.parametrize("model", [Latents, Positions])
@pytest.mark.parametrize("in_flight", [1, 3])
def test_a_weight_that_goes_into_the_stack_by_a_view(pair, grain, model,
                                                     in_flight):
    """Autograd takes a view of what the stack gives back for its `.grad`,
    which lasts for several steps of the stack here."""
    def train(run):
        for i, count in enumerate([1, 1, 1, 3, 1, 1, 3]):
            run.model.layers.zero_grad()
            if i % 3 == 0:
                run.model.latents.grad = None
            waiting = []
            for _ in range(count):
                x = run.model.embed(run.tokens()[:, :-1])
                waiting.append(run.model.run_layers(x).square().mean())
                if len(waiting) == in_flight:
                    waiting.pop(0).backward()
            for loss in waiting:
                loss.backward()
            run.optimizer.step()

    pair(train, grain=grain, model=model)


@pytest.mark.parametrize("count", [1, 2])
def test_zeros_are_made_where_somebody_adds_to_them(pair, count):
    run = pair(lambda r: r.steps([count] * 3), grain="layer",
               before=lambda run: run.model.double())
    assert bool(run.attached.nothing._zeros) is (count > 1)
