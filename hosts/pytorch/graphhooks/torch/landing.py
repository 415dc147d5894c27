"""Gradients of parameters on their way to places apart, inside a recording.

Autograd accumulates into each parameter once, and more often where reentrant
checkpointing has backwards within the backward.  What comes second is added
second, as eager adds it.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import functools

import torch

TOGETHER = 16 << 20  # bytes of gradients


class Landing:
    """Listens to the leaves of one backward.

    Each gradient by itself costs a launch, so they wait for each other; but
    only for so long that they are in the cache still, and that their memory
    is soon free for those that come after.
    """

    def __init__(self, leaves: dict, places: dict, adds: bool):
        self._places = places
        self._adds = adds  # to what is there, or puts the first
        self.came: set = set()  # whose gradients are in place
        self._waiting: dict = {}
        self._bytes = 0  # of those
        self._handles = [
            leaves[p].register_post_accumulate_grad_hook(
                functools.partial(self._take, p)) for p in places]

    def _take(self, parameter, leaf) -> None:
        if parameter in self._waiting:
            self._land()
        grad, leaf.grad = leaf.grad, None
        self._waiting[parameter] = grad
        self._bytes += grad.numel() * grad.element_size()
        if self._bytes >= TOGETHER:
            self._land()

    def _land(self) -> None:
        first, later = [], []
        for p, grad in self._waiting.items():
            is_later = self._adds or p in self.came
            (later if is_later else first).append((self._places[p], grad))
        if first:
            torch._foreach_copy_(*map(list, zip(*first)))
        if later:
            torch._foreach_add_(*map(list, zip(*later)))
        self.came.update(self._waiting)
        self._waiting.clear()
        self._bytes = 0

    def close(self) -> None:
        """The backward is over, or has failed."""
        for handle in self._handles:
            handle.remove()

    def end(self) -> set:
        """Of a backward that is over; whose gradients have come."""
        self._land()
        return self.came
