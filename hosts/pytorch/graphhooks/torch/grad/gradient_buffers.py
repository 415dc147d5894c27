"""Where graphs leave the gradients of parameters, and whose they are then.

What a recording frees on its way, a later one that writes may use for
gradients.  So none may run while gradients that were recorded after it are in
place: `Home.serial` has the order.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from sys import getrefcount

import torch

from ..base.memory import unowned
from ..guard.storage_addresses import address


class Home:
    """Where graphs leave the gradients of parameters."""

    __slots__ = ("gradients", "_memory", "_addresses", "serial", "bank")

    def __init__(self, bank: int = 0):
        self.bank = bank
        self.gradients: dict = {}
        self._memory: dict = {}  # the same, in nobody else's hands
        self._addresses: list = []
        self.serial = 0  # which recording wrote those in its pool, from 1

    def put(self, found) -> None:
        """What a recording leaves in it: pairs."""
        fresh = {p: g for p, g in found if p not in self.gradients}
        self.gradients.update(fresh)
        self._memory.update((p, g.data) for p, g in fresh.items())
        self._addresses = [g.data_ptr() for g in self.gradients.values()]

    def take_back(self) -> bool:
        """Who sets `.grad.data` has made one of these tensors another's;
        whether somebody has."""
        if [*map(address, self.gradients.values())] == self._addresses:
            return False
        for p, memory in self._memory.items():
            if self.gradients[p].data_ptr() != memory.data_ptr():
                self.gradients[p] = memory.data
        return True

    def copy_out(self, lists: int) -> bool:
        """Who holds a tensor that was `.grad` and is not any more keeps what
        is in it; whether somebody does.  So many lists have these, besides."""
        ours = 2 + lists  # with this one's, and that of who asks
        counts = [*map(getrefcount, self.gradients.values())]
        if max(counts, default=0) <= ours:
            return False
        kept = [p for p, count in zip(self.gradients, counts)
                if count > ours and p.grad is not self.gradients[p]]
        for p in kept:
            gradient = self.gradients[p]
            gradient.data = gradient.data.clone()
        return bool(kept)

    def let_go(self, keeper) -> None:
        """What it has is in a pool that others use."""
        self._memory = {p: unowned(g, keeper)
                        for p, g in self._memory.items()}
        self.gradients = {p: g.data for p, g in self._memory.items()}

    def is_lived_in(self, homes=()) -> bool:
        """Whether a gradient in it is somebody's now.  Several banks may have
        theirs at one address: then it is of the one whose tensor it is."""
        for p, g in self.gradients.items():
            if p.grad is not None and is_at(p.grad, g) and (
                    p.grad is g or not any(p.grad is h.gradients.get(p)
                                           for h in homes)):
                return True
        return False

    def move_out(self) -> None:
        for p, g in self.gradients.items():
            if p.grad is not None and is_at(p.grad, g):
                p.grad = p.grad.clone()


def is_at(grad, place) -> bool:
    """Whether it is that tensor, or another of the same memory."""
    return grad is place or grad.layout == torch.strided \
        and grad.data_ptr() == place.data_ptr()
