"""What graphs of one pool do to each other's memory, for softtorch.py.

A capture takes from its pool what nobody holds any more, whether it has made
that itself or a capture before it; its replays write there again, whoever
holds it by then.  On the CPU nothing of a capture is ever used again, so that
graphs would do in any order.  Here a replay spoils what it might overwrite on
a GPU.  Nothing is said of sizes: what may lie somewhere does.

Held is what torch's tensors hold.  An address alone holds nothing, and neither
does a capture hold what its operations read and write.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes

import torch

_pools: dict = {}


def pool_of(handle) -> "Pool":
    """None: of one capture alone."""
    if handle is None:
        return Pool()
    return _pools.setdefault(handle, Pool())


def lend(handle, allocator) -> None:
    """A pool has its memory from there: alloc(nbytes) and free(address,
    nbytes) count what it takes, though its tensors lie elsewhere."""
    pool_of(handle).allocator = allocator


def lose(handles) -> None:
    """The memory of these is given back: what was there is lost, also for who
    holds it, and until find() no graph may run there."""
    for handle in handles:
        pool = _pools.get(handle)
        if pool is not None:
            pool.is_lost = True
            for share in pool.shares:
                spoil(share.made.values())


def find(handles) -> None:
    for handle in handles:
        if handle in _pools:
            _pools[handle].is_lost = False


def use(handle) -> "Pool":
    """As torch's, a pool lives until it is released as often: once for each
    graph that was captured in it, and once for whoever else said so."""
    pool = pool_of(handle)
    pool.uses += 1
    return pool


def release(handle) -> None:
    """With the last, what nobody holds is the allocator's to give away."""
    pool = _pools.get(handle)
    if pool is None:
        return
    pool.uses -= 1
    if pool.uses == 0:
        del _pools[handle]
        pool.give_away()


def alias(tensor):
    """The same memory, which this tensor does not hold."""
    storage = tensor.untyped_storage()
    if not storage.nbytes():
        return tensor.data
    memory = (ctypes.c_char * storage.nbytes()).from_address(
        storage.data_ptr())
    other = torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()
    return tensor.data.set_(other, tensor.storage_offset(), tensor.size(),
                            tensor.stride())


def spoil(storages) -> None:
    """Numbers that are noticed: NaN in any float, -1 in an integer, which is
    no index, and true in a mask, everywhere."""
    for storage in storages:
        ctypes.memset(storage.data_ptr(), 0xff, storage.nbytes())


def spoil_range(tensor) -> None:
    """The same of a tensor that is contiguous."""
    ctypes.memset(tensor.data_ptr(), 0xff, tensor.nbytes)


def is_free(storage) -> bool:
    """Whether it is held by its one object in Python, which all shares and
    operations have, and by no tensor."""
    return torch._C._storage_Use_Count(storage._cdata) == 1


def bytes_of_pools() -> int:
    """What captures have had at once in each pool that is left, at most: what
    was held before them, and all that they made."""
    return sum(pool.most for pool in _pools.values())


def snapshot() -> list:
    """As of torch's allocator, as far as anybody looks."""
    return [{"segment_pool_id": handle, "device": 0, "total_size": pool.most}
            for handle, pool in _pools.items()]


def move(address: int, storage) -> None:
    """Another storage has that memory by now."""
    for pool in _pools.values():
        pool.move(address, storage)


class Share:
    """What one capture has of a pool."""

    def __init__(self, free, pool):
        self.made: dict = {}  # storages by address
        self._pool = pool
        self._at_first = free  # when the capture began
        self._at_last: list = []  # what else was when it ended
        self._later: list = []  # shares that may lie in what this one freed

    def free(self) -> list:
        return [s for s in self.made.values() if is_free(s)]

    def begin_replay(self) -> None:
        if self._pool.is_lost:
            raise RuntimeError("CUDA error: an illegal memory access was "
                               "encountered: its pool is suspended")
        if not self.made:
            return
        spoil(self._at_first)
        for share in self._later:
            spoil(share.made.values())

    def end_replay(self) -> None:
        """What was freed on the way was read before that."""
        if self.made:
            spoil(self._at_last)


class Pool:
    """The shares of captures, in their order.  Those of graphs that are gone
    stay: others may still use what was theirs."""

    def __init__(self):
        self.uses = 0
        self.shares: list = []
        self._held = 0  # bytes, when the last capture began
        self.most = 0
        self.allocator = None
        self.is_lost = False
        self._pieces: list = []  # of the allocator's: address and bytes

    def begin(self) -> Share:
        """Of a capture that begins."""
        share = Share([s for other in self.shares for s in other.free()],
                      self)
        self._held = sum(s.nbytes() for other in self.shares
                         for s in other.made.values() if not is_free(s))
        self.shares.append(share)
        return share

    def end(self, share: Share) -> None:
        self.most = max(self.most, self._held + sum(
            s.nbytes() for s in share.made.values()))
        self._allocate()
        known = {id(s) for s in share._at_first}
        for other in self.shares:
            free = other.free()
            share._at_last += [s for s in free if id(s) not in known]
            if free and other is not share:
                other._later.append(share)

    def _allocate(self) -> None:
        """What the last capture has needed more of."""
        missing = self.most - sum(size for _, size in self._pieces)
        if self.allocator is not None and missing > 0:
            address = self.allocator.alloc(missing)
            if not address:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory")
            self._pieces.append((address, missing))

    def move(self, address: int, storage) -> None:
        for share in self.shares:
            if address in share.made:
                share.made[address] = storage

    def give_away(self) -> None:
        for address, size in self._pieces:
            self.allocator.free(address, size)
        self._pieces.clear()
        for share in self.shares:
            spoil(share.free())
