"""When gradients go to their places; needs no GPU.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import weakref

import pytest
from models import torch

from graphhooks.torch.base import private
from graphhooks.torch.grad import staged_gradients


class Backward:
    """Gradients of sizes come to leaves, with the numbers that they have."""

    def __init__(self, sizes, first=None):
        self.leaves = [torch.zeros(n, requires_grad=True) for n in sizes]
        self.places = [torch.full((n,), 100.) for n in sizes]
        self.kept: list = []  # for each that came, whether memory is in use
        for leaf in self.leaves:
            leaf.register_post_accumulate_grad_hook(
                lambda leaf: self.kept.append(weakref.ref(leaf.grad)))
        self.landing = staged_gradients.Landing(
            dict(enumerate(self.leaves)), dict(enumerate(self.places)), first)

    def come(self, leaf: int, number: float) -> None:
        (self.leaves[leaf] * number).sum().backward()
        assert self.leaves[leaf].grad is None
        self.kept[-1] = self.kept[-1]() is not None

    def go(self, numbers):
        """Who came, and what is where."""
        for leaf, number in numbers:
            self.come(leaf, number)
        self.landing.close()
        return self.landing.end(), self.found()

    def found(self) -> list:
        assert all((p == p[0]).all() for p in self.places)
        return [p[0].item() for p in self.places]


@pytest.fixture
def sizes(monkeypatch):
    """Large is from 64 floats on."""
    monkeypatch.setattr(staged_gradients, "LARGE", 256)
    return [64, 63, 8, 65, 8]


@pytest.fixture
def launches(monkeypatch):
    """How many gradients go to their places with each that is for several."""
    counts = []
    add = private.foreach_add

    def launch(places, grads):
        counts.append(len(grads))
        return add(places, grads)

    monkeypatch.setattr(private, "foreach_add", launch)
    return counts


ONCE = [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_gradients_are_added_in_their_places(sizes):
    assert Backward(sizes).go(ONCE) == ({0, 1, 2, 3},
                                        [101, 102, 103, 104, 100])


def test_what_comes_again_is_added(sizes):
    twice = [(n, 1) for n in range(5)] + [(n, 2) for n in range(5)]
    assert Backward(sizes).go(twice)[1] == [103] * 5


def test_what_comes_again_is_added_second(sizes):
    """In float32, (1e8 + -1e8) + 1 is another number than 1e8 + (-1e8 + 1)."""
    backward = Backward(sizes)
    for place in backward.places:
        place.fill_(1e8)
    again = [(n, -1e8) for n in range(5)] + [(n, 1) for n in range(5)]
    assert backward.go(again)[1] == [1] * 5


class First:
    """Writes gradients of so many numbers."""

    def __init__(self, *sizes):
        self._sizes = sizes

    def add(self, place, grad) -> bool:
        if grad.numel() not in self._sizes:
            return False
        place.copy_(grad)
        return True


def test_a_first_gradient_is_written(sizes):
    backward = Backward(sizes, First(63, 65))
    assert backward.go(ONCE)[1] == [101, 102, 103, 4, 100]
    assert backward.landing.taken == {3}


def test_what_comes_again_is_added_to_that(sizes):
    backward = Backward(sizes, First(64, 63, 65, 8))
    twice = [(n, 1) for n in range(5)] + [(n, 2) for n in range(5)]
    assert backward.go(twice)[1] == [3, 103, 103, 3, 103]
    assert backward.landing.taken == {0, 3}


def test_the_memory_of_a_large_one_is_free_at_once(sizes):
    backward = Backward(sizes)
    backward.go(ONCE)
    assert backward.kept == [False, True, True, False]


def test_the_small_ones_go_together(sizes, launches):
    Backward(sizes).go(ONCE)
    assert launches == [2]


def test_those_go_first_that_one_comes_again_of(sizes, launches):
    Backward(sizes).go([(1, 1), (2, 1), (1, 2), (4, 1)])
    assert launches == [2, 2]


def test_nothing_listens_after_the_end(sizes):
    backward = Backward(sizes)
    backward.go(ONCE)
    (backward.leaves[4] * 7).sum().backward()
    assert backward.leaves[4].grad is not None and backward.found()[4] == 100
