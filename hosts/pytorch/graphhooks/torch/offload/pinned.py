"""Pinned memory of the host, taken once and used over and over.

A block is given back with the event after which it may be written again.  It
is torch's memory, so none is freed while a copy uses it.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import torch

from ..base import private

_GRAIN = 64 << 10  # sizes are multiples of it


def allocate(nbytes: int) -> torch.Tensor:
    return torch.empty(nbytes, dtype=torch.uint8, device="cpu",
                       pin_memory=True)


def rounded(nbytes: int) -> int:
    """What a block of so many bytes takes."""
    return -(-nbytes // _GRAIN) * _GRAIN


class Block:
    """Some of it."""

    __slots__ = ("memory", "ended")

    def __init__(self, nbytes: int):
        self.memory = allocate(nbytes)
        self.ended = None  # an event: the last copy from or to it is over


class Pool:
    """Blocks by size; `limit` says how many bytes there may be, or None."""

    def __init__(self, limit):
        self._limit = limit
        self._free: dict = {}  # lists by size
        self._idle: dict = {}  # the fewest that were free, since a step began
        self.nbytes = 0

    def take(self, nbytes: int) -> Block | None:
        """None: there would be too much."""
        size = rounded(nbytes)
        free = self._free.setdefault(size, [])
        if free:
            block = free.pop()
            self._idle[size] = min(self._idle.get(size, 0), len(free))
            return block
        self._idle[size] = 0
        limit = self._limit()
        if limit is not None and self.nbytes + size > limit:
            self._let_go(self.nbytes + size - limit)
            if self.nbytes + size > limit:
                return None
        self.nbytes += size
        return Block(size)

    def give_back(self, block: Block, ended) -> None:
        block.ended = ended
        self._free.setdefault(block.memory.nbytes, []).append(block)

    def step(self) -> None:
        """Blocks that a whole step had no use for go: those of the first,
        where graphs have taken over."""
        before = self.nbytes
        for size, unused in self._idle.items():
            free = self._free.get(size, [])
            for _ in range(min(unused, len(free))):
                free.pop()
                self.nbytes -= size
        if self.nbytes < before:
            private.empty_host_cache()  # torch would keep them for others
        self._idle = {size: len(free) for size, free in self._free.items()}

    def give_up_free(self) -> None:
        """Of the first step, in which all groups went."""
        if any(self._free.values()):
            self._let_go(self.nbytes)
            private.empty_host_cache()  # torch would keep them for others

    def _let_go(self, nbytes: int) -> None:
        for size, free in self._free.items():
            while free and nbytes > 0:
                free.pop()
                self.nbytes -= size
                nbytes -= size

    def close(self) -> None:
        self._free.clear()
        self._idle.clear()
        self.nbytes = 0
