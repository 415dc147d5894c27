"""Microbatches in flight: as many as there are slots, and more.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import pytest
from models import COUNTS, GRAINS, SEGMENTS, Block

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

    pair(train, grain=grain)
