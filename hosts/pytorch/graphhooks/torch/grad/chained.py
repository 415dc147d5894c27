"""Gradients that a graph reads where the next segment's graph leaves them.

Later one may come from elsewhere, as when a hook scales it.  To record the
backward again, autograd would need what was let go, so the gradient moves to
that place, and what lies there is put back when the graph has run: it may be
another's as well, as a sum's gradient is of all that was summed up.  Weight
gradients that are computed later read it there as well, so for these it comes
to that place once more.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib

from .strides import copy_of, memory_of


def told_apart(grads) -> list:
    """For a recording: outputs that are summed up have one gradient, and may
    have several later.  What is given twice has a place of its own."""
    seen: set = set()
    return [grad.clone() if grad.data_ptr() in seen
            else seen.add(grad.data_ptr()) or grad for grad in grads]


def apart_from(given, gradients) -> list:
    """For a recording: autograd takes what came for a weight's gradient where
    that is a view of it, and so the gradient would be what comes next, too.
    Of several such views each is one of the same copy."""
    copies: dict = {}

    def apart(gradient):
        for i, memory in enumerate(given):
            if not _lies_in(gradient, memory):
                continue
            if gradient.is_neg() or gradient.dtype != memory.dtype:
                return gradient.clone()
            if i not in copies:
                copies[i] = memory.clone()
            return copies[i].as_strided(
                gradient.size(), gradient.stride(),
                gradient.storage_offset() - memory.storage_offset())
        return gradient

    return [apart(gradient) for gradient in gradients]


def moved(places, grads) -> list:
    """Which of them come from elsewhere."""
    return [i for i, place in enumerate(places)
            if place is not None and place.data_ptr() != grads[i].data_ptr()]


class Moved:
    """Those, for one replay, and for that of its weight gradients."""

    def __init__(self, places, grads, which):
        self._held = [(places[i], places[i].clone()) for i in which]
        self.grads = [self._apart(grad) for grad in grads]
        for i in which:
            self.grads[i] = places[i].copy_(self.grads[i])

    def _apart(self, tensor):
        if tensor is None or not any(_lies_in(tensor, place)
                                     for place, _ in self._held):
            return tensor
        return copy_of(tensor)

    def for_later(self) -> "Later":
        return Later([(place, place.clone()) for place, _ in self._held])

    def put_back(self, results) -> list:
        """The results, of which one may be what was put in place."""
        results = [self._apart(result) for result in results]
        for place, values in self._held:
            place.copy_(values)
        return results


class Later:
    """What was put in place, for weight gradients that are computed later."""

    def __init__(self, gradients):
        self._gradients = gradients

    @contextlib.contextmanager
    def in_place(self):
        held = [(place, place.clone()) for place, _ in self._gradients]
        for place, values in self._gradients:
            place.copy_(values)
        try:
            yield
        finally:
            for place, values in held:
                place.copy_(values)


def _lies_in(tensor, place) -> bool:
    """Whether some of it does."""
    first, last = _range(tensor)
    begin, end = _range(place)
    return first < end and begin < last


def _range(tensor) -> tuple:
    memory = memory_of(tensor)
    first = memory.data_ptr()
    return first, first + memory.nbytes
