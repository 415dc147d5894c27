"""The streams that gradients go to their places on; needs no GPU.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import weakref
from types import SimpleNamespace

import pytest
from models import torch

from graphhooks.torch import landing


class Stream:
    """Notes how much of another's work comes before its own."""

    def __init__(self):
        self.done = 0  # pieces of work so far
        self.after: dict = {}  # by the other stream

    def wait_stream(self, other) -> None:
        self.wait_event(other.record_event())

    def record_event(self):
        return SimpleNamespace(of=self, done=self.done)

    def wait_event(self, event) -> None:
        before = self.after.get(event.of, 0)
        self.after[event.of] = max(before, event.done)

    def __enter__(self) -> None:
        Stream.current, self._before = self, Stream.current

    def __exit__(self, *_) -> None:
        assert self.after.get(self._before) == self._before.done
        self.done += 1
        Stream.current = self._before


@pytest.fixture
def streams(monkeypatch):
    """The backward's and the one beside it."""
    main, beside = Stream(), Stream()
    Stream.current = main
    monkeypatch.setattr(torch.cuda, "current_stream",
                        lambda *_: Stream.current)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: stream)
    return main, beside


class Backward:
    """Gradients come to leaves; a large one is freed when it may be."""

    def __init__(self, streams, numbers, adds, sizes):
        self.main, self.beside = streams
        self.numbers = numbers
        self.leaves = [torch.zeros(n, requires_grad=True) for n in sizes]
        self.places = [torch.full((n,), 100.) for n in sizes]
        self.came: list = []  # those that go beside, and when they are there
        self.waited: list = []  # for how much of that, gradient by gradient
        for leaf in self.leaves:
            leaf.register_post_accumulate_grad_hook(self.note)
        self.landing = landing.Landing(
            dict(enumerate(self.leaves)), dict(enumerate(self.places)),
            adds, self.beside)

    def note(self, leaf) -> None:
        if 256 <= leaf.nbytes <= 512:
            self.came.append((weakref.ref(leaf.grad), self.beside.done + 1))

    def go(self):
        """Who came, and what is where."""
        for leaf, number in self.numbers:
            self.main.done += 1
            (self.leaves[leaf] * number).sum().backward()
            assert self.leaves[leaf].grad is None
            self.waited.append(self.look())
        self.landing.close()
        came = self.landing.end()
        assert self.main.after.get(self.beside, 0) == self.beside.done
        self.look()
        return came, [p[0].item() for p in self.places]

    def look(self) -> int:
        """What is put beside stays until that has been waited for."""
        waited = self.main.after.get(self.beside, 0)
        for grad, done in self.came:
            assert grad() is not None or waited >= done
        return waited


@pytest.fixture
def sizes(monkeypatch):
    """Large is from 64 floats on, and 128 may be on their way."""
    monkeypatch.setattr(landing, "LARGE", 256)
    monkeypatch.setattr(landing, "HELD", 512)
    return [64, 64, 8, 64, 8, 256]


ONCE = [(5, 6), (0, 1), (1, 2), (2, 3), (3, 4)]


@pytest.mark.parametrize("adds, found", [
    (False, [1, 2, 3, 4, 100, 6]), (True, [101, 102, 103, 104, 100, 106])])
def test_gradients_lie_in_their_places(streams, sizes, adds, found):
    came, places = Backward(streams, ONCE, adds, sizes).go()
    assert came == {0, 1, 2, 3, 5} and places == found


@pytest.mark.parametrize("adds, found", [(False, 3), (True, 103)])
def test_what_comes_again_is_added(streams, sizes, adds, found):
    twice = [(n, 1) for n in range(6)] + [(n, 2) for n in range(6)]
    assert Backward(streams, twice, adds, sizes).go()[1] == [found] * 6


def test_the_backward_waits_for_half_when_much_is_held(streams, sizes):
    backward = Backward(streams, ONCE, True, sizes)
    backward.go()
    assert backward.waited == [0, 0, 0, 0, 2]
    assert streams[1].done == 3


def test_a_backward_that_fails_waits_for_the_stream_beside(streams, sizes):
    """Else its capture could not be ended, and torch kept the pool."""
    main, beside = streams
    backward = Backward(streams, ONCE, False, sizes)
    (backward.leaves[0] * 1).sum().backward()
    backward.landing.close()
    backward.landing.give_up()
    assert beside.done == 1 and main.after.get(beside) == 1


def test_the_small_and_the_very_large_go_nowhere_else(streams, sizes):
    Backward(streams, [(2, 1), (5, 3), (4, 2)], True, sizes).go()
    assert not streams[0].after and not streams[1].after


def test_who_has_the_memory_waits(streams, sizes):
    """A module may have a stream of its own, and its gradients too."""
    backward = Backward(streams, [(0, 1), (1, 2)], True, sizes)
    backward.go()
    main, beside = streams
    again = Backward(streams, [(0, 1)], True, sizes)
    own = Stream.current = Stream()
    own.done = 1
    (again.leaves[0] * 1).sum().backward()
    Stream.current = main
    for leaf in (1, 3):
        (again.leaves[leaf] * 1).sum().backward()
    assert own.after[beside] == 4
