"""Gradients of parameters on their way to places apart, inside a recording.

Autograd accumulates into each parameter once, and more often where reentrant
checkpointing has backwards within the backward.  What comes second is added
second, as eager adds it.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections
import contextlib
import functools

import torch

LARGE = 1 << 18  # bytes of a gradient
HELD = 16 << 20  # bytes of large ones that are on their way


class Landing:
    """Listens to the leaves of one backward.

    A large gradient goes to its place at once, on a stream beside, while the
    backward goes on: both are a little each of what the device can do.  Its
    memory is kept until the backward has waited for that stream, which must
    not be long: of a chunk, gradients are as large as the weights.  One that
    is too large to be kept keeps the device busy by itself.  The small ones,
    of which each would cost a launch, go together in the end.
    """

    def __init__(self, leaves: dict, places: dict, adds: bool, beside):
        self._places = places
        self._adds = adds  # to what is there, or puts the first
        self._beside = beside  # the stream
        self._came: set = set()  # whose gradients have a launch
        self._small: dict = {}  # those that wait for theirs
        self._large: collections.deque = collections.deque()  # on their way
        self._held = 0  # bytes of those
        self._handles = [
            leaves[p].register_post_accumulate_grad_hook(
                functools.partial(self._take, p)) for p in places]

    def _take(self, parameter, leaf) -> None:
        grad, leaf.grad = leaf.grad, None
        size = grad.numel() * grad.element_size()
        if size < LARGE:
            if parameter in self._small:
                self._put_small()
            self._small[parameter] = grad
        elif size <= HELD:
            self._put_beside(parameter, grad, size)
        else:
            self._put(parameter, grad)

    def _put(self, parameter, grad) -> None:
        place = self._places[parameter]
        if self._is_first(parameter):
            place.copy_(grad)
        else:
            place.add_(grad)
        self._came.add(parameter)

    def _put_beside(self, parameter, grad, size: int) -> None:
        stream = torch.cuda.current_stream()
        self._beside.wait_stream(stream)
        with torch.cuda.stream(self._beside):
            self._put(parameter, grad)
        event = self._beside.record_event()
        self._large.append((grad, size, stream, event))
        self._held += size
        if self._held > HELD:
            self._let_go()

    def _is_first(self, parameter) -> bool:
        return not self._adds and parameter not in self._came

    def _let_go(self) -> None:
        """Of more than has to be, as a backward does not wait for nothing.
        Who waits is the stream that may use the memory again."""
        streams = set()
        while self._held > HELD // 2:
            _, size, stream, event = self._large.popleft()
            self._held -= size
            streams.add(stream)
        for stream in streams:
            stream.wait_event(event)

    def _put_small(self) -> None:
        first, later = [], []
        for p, grad in self._small.items():
            pairs = first if self._is_first(p) else later
            pairs.append((self._places[p], grad))
        if first:
            torch._foreach_copy_(*map(list, zip(*first)))
        if later:
            torch._foreach_add_(*map(list, zip(*later)))
        self._came.update(self._small)
        self._small.clear()

    def close(self) -> None:
        """The backward is over, or has failed."""
        for handle in self._handles:
            handle.remove()

    def give_up(self) -> None:
        """The backward has failed, and its capture is to be ended: that needs
        all streams back, unless the failure was the capture's own."""
        if self._large:
            with contextlib.suppress(RuntimeError):
                torch.cuda.current_stream().wait_stream(self._beside)
        self._large.clear()

    def end(self) -> set:
        """Of a backward that is over; whose gradients are in place."""
        self._put_small()
        if self._large:
            torch.cuda.current_stream().wait_stream(self._beside)
        self._large.clear()
        return self._came
