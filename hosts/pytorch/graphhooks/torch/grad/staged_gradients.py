"""Gradients of parameters on their way to places apart, inside a recording.

Autograd accumulates into each parameter once, and more often where reentrant
checkpointing has backwards within the backward.  What comes second is added
second, as eager adds it.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import functools

from ..base import private

LARGE = 1 << 18  # bytes of a gradient


class Landing:
    """Listens to the leaves of one backward.

    A large gradient goes to its place at once, as in eager, and its memory is
    free again: of a chunk, gradients are as large as the weights.  The small
    ones, of which each would cost a launch, go together in the end.

    All on the backward's own stream.  On one beside it, what is added takes
    the multiprocessors from a matrix product that fills them in one wave and
    then needs a second: graphs of layers were 7 % slower at sequence 1024.
    """

    def __init__(self, leaves: dict, places: dict, first=None):
        self._places = places
        self._first = first  # who has a kernel for a step's first gradients
        self.taken: set = set()  # whose gradients come by that
        self._came: set = set()  # whose gradients have a launch
        self._small: dict = {}  # those that wait for theirs
        self._handles = [
            leaves[p].register_post_accumulate_grad_hook(
                functools.partial(self._take, p)) for p in places]

    def _take(self, parameter, leaf) -> None:
        grad, leaf.grad = leaf.grad, None
        if grad is None:
            return  # of a function that has put it elsewhere
        if grad.numel() * grad.element_size() >= LARGE:
            self._put(parameter, grad)
            return
        if parameter in self._small:
            self._put_small()
        self._small[parameter] = grad

    def _put(self, parameter, grad) -> None:
        place = self._places[parameter]
        is_again = parameter in self._came or parameter in self._small
        if not is_again and self._first is not None \
                and self._first.add(place, grad):
            self.taken.add(parameter)
        else:
            place.add_(grad)
        self._came.add(parameter)

    def _put_small(self) -> None:
        if self._small:
            private.foreach_add([self._places[p] for p in self._small],
                                [*self._small.values()])
        self._came.update(self._small)
        self._small.clear()

    def close(self) -> None:
        """The backward is over, or has failed."""
        for handle in self._handles:
            handle.remove()

    def end(self) -> set:
        """Of a backward that is over; whose gradients are in place."""
        self._put_small()
        return self._came
