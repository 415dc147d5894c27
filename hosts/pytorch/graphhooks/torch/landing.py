"""Gradients of parameters on their way to places apart, inside a recording.

Autograd accumulates into each parameter once, and more often where reentrant
checkpointing has backwards within the backward.  What comes second is added
second, as eager adds it.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import functools

import torch

LARGE = 1 << 18  # bytes of a gradient


class Landing:
    """Listens to the leaves of one backward.

    Of one module all gradients are seen to in the end, which is faster.  Those
    of a chunk are as large as its weights, and long out of the cache by then:
    only the small ones wait, each of which costs as much as a launch.
    """

    def __init__(self, leaves: dict, places: dict, adds: bool, is_chunk: bool):
        self._leaves = leaves
        self._adds = adds  # to what is there, or puts the first
        self._came: dict = {}  # how many of each parameter
        self._rounds: list = []  # those that wait: (places, gradients)
        self._added: dict = {}  # places that autograd itself adds to
        self._handles: list = []
        for p, place in places.items():
            is_large = is_chunk and p.numel() * p.element_size() >= LARGE
            if is_large and adds:
                self._added[p] = leaves[p].grad = place.data
            else:
                self._listen(p, self._put if is_large else self._wait, place)

    def _listen(self, parameter, come, place) -> None:
        leaf = self._leaves[parameter]
        self._handles.append(leaf.register_post_accumulate_grad_hook(
            functools.partial(self._take, parameter, come, place)))

    def _take(self, parameter, come, place, leaf) -> None:
        number = self._came.get(parameter, 0)
        self._came[parameter] = number + 1
        grad, leaf.grad = leaf.grad, None
        come(number, place, grad)

    @staticmethod
    def _put(number: int, place, grad) -> None:
        if number == 0:
            place.copy_(grad)
        else:
            place.add_(grad)

    def _wait(self, number: int, place, grad) -> None:
        if number == len(self._rounds):
            self._rounds.append(([], []))
        places, grads = self._rounds[number]
        places.append(place)
        grads.append(grad)

    def close(self) -> None:
        """The backward is over, or has failed."""
        for handle in self._handles:
            handle.remove()

    def end(self) -> set:
        """Puts what waits in its place; whose gradients have come."""
        for number, (places, grads) in enumerate(self._rounds):
            if number == 0 and not self._adds:
                torch._foreach_copy_(places, grads)
            else:
                torch._foreach_add_(places, grads)
        return {*self._came,
                *(p for p, place in self._added.items() if place._version)}
