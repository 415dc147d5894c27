"""Groups of eager passes: copied to pinned memory, and back ahead of use.

Copies have two streams of their own.  Nobody waits on the host:

    the forward   goes on while its group is copied; the memory of a group is
                  let go when a few more have been committed, and the stream
                  that will use it again waits for that copy
    the backward  has the group before this one copied back while it works, and
                  waits for its own copy

What a backward reads before it was let go is read where it is.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections
import weakref

import torch

from ..base import private
from ..base.memory import synchronize
from .pinned import Pool
from .saved import aligned, unpack

_BUFFERS = 2  # groups of each name whose memory is not let go yet


class Carrier:
    """What eager forwards do with groups."""

    def __init__(self, owner, names: int, limit, in_flight: int = 0):
        self.owner = owner
        self.measuring = Measuring(self)
        self.pool = Pool(limit)
        self.ahead = names  # groups that come back before they are needed
        self._most = names * _BUFFERS
        self._copies_most = in_flight  # of a name, under way; 0: any number
        self._under_way: dict = {}  # events of copies, by name
        self._leaving: collections.deque = collections.deque()
        self._last = None  # the group that was committed last, weakly
        self._alive: dict = {}  # groups by key
        self._in_flight = 1
        self._gaps: dict = {}  # events of commits and loads, by key
        self.times = True  # gaps are measured
        self._out = self._back = None
        self.out_bytes = self.back_bytes = 0

    def streams(self) -> tuple:
        if self._out is None:
            device = self.owner.device
            self._out = torch.cuda.Stream(device=device)
            self._back = torch.cuda.Stream(device=device)
        return self._out, self._back

    def group(self, bracket, key, given) -> "CarriedGroup":
        return CarriedGroup(self, bracket, key, given)

    # ---- of groups ------------------------------------------------------

    def meet(self, key) -> None:
        """A group is there, until nobody holds it."""
        alive = self._alive[key] = self._alive.get(key, 0) + 1
        self._in_flight = max(self._in_flight, alive)

    def end(self, key) -> None:
        self._alive[key] -= 1

    def leaves(self, group, saved, copied) -> None:
        """It is on its way, and its memory held for a while."""
        self._leaving.append((weakref.ref(group), [*map(weakref.ref, saved)],
                              copied))
        while len(self._leaving) > self._most:
            self._let_go(*self._leaving.popleft())

    def limit(self, name: str, copied) -> None:
        """One copy more is under way; the stream waits for the oldest."""
        if not self._copies_most:
            return
        events = self._under_way.setdefault(name, collections.deque())
        events.append(copied)
        while len(events) > self._copies_most:
            torch.cuda.current_stream(self.owner.device).wait_event(
                events.popleft())

    @staticmethod
    def _let_go(group, saved, copied) -> None:
        group = group()
        if group is None or group.is_read:
            return  # autograd lets it go piece by piece
        group.stream.wait_event(copied)
        group.has_left = True
        for one in saved:
            one = one()
            if one is not None:
                one.leave()

    def link(self, group):
        """The group that comes before this one in its microbatch, weakly."""
        before, self._last = self._last, weakref.ref(group)
        return before

    def tell(self, key, why: str) -> None:
        self.owner.offload.tell(key, why)

    # ---- what the library is told ---------------------------------------

    def most_in_flight(self) -> int:
        return self._in_flight

    def note_time(self, key, which: int, event) -> None:
        self._gaps.setdefault(key, [None, None])[which] = event

    def gaps(self) -> dict:
        """Nanoseconds from commit to load."""
        self.times = False
        found, self._gaps = self._gaps, {}
        if not found:
            return {}
        synchronize(self.owner.device)
        return {key: max(0, int(1e6 * commit.elapsed_time(load)))
                for key, (commit, load) in found.items()
                if commit is not None and load is not None}

    # ---- steps ----------------------------------------------------------

    def step(self) -> None:
        self._leaving = collections.deque(
            one for one in self._leaving if one[0]() is not None)
        self._under_way.clear()
        self.pool.step()

    def close(self) -> None:
        self._leaving.clear()
        self.pool.close()

    def stats(self) -> dict:
        return {"eager_out_bytes": self.out_bytes,
                "eager_back_bytes": self.back_bytes,
                "eager_pinned_bytes": self.pool.nbytes}


class CarriedGroup:
    """One of a microbatch."""

    unpack = staticmethod(unpack)

    def __init__(self, carrier, bracket, key, given):
        self.key = key
        self.stream = None  # of its forward
        self.at = carrier.owner.forward()
        self.has_left = False  # its memory on the device
        self.is_read = False
        self.nbytes = 0
        self._is_met = False
        self._device = None
        self._home = None  # the stream that its memory is of, the second time
        self._segment = bracket.segment
        self._carrier = carrier
        self._collector = carrier.owner.offload.collector(bracket, given)
        self.pack = self._collector.pack
        self._block = None
        self._copied = None  # an event: it is in the block
        self._before = None  # the group that was committed before it, weakly
        self._memory = None  # on the device again
        self._filled = None  # an event: it is there

    def close(self, result) -> None:
        carrier = self._carrier
        pieces = self._collector.pieces(result)
        self._collector = self.pack = None
        self.nbytes = sum(aligned(p.nbytes) for p in pieces)
        carrier.owner.offload.meet(self.key, self._segment, self.nbytes)
        if any(piece.is_read() for piece in pieces):
            pieces = [p for p in pieces if not p.is_read()]
            self.nbytes = sum(aligned(p.nbytes) for p in pieces)
        if not pieces:
            return
        carrier.meet(self.key)
        self._is_met = True
        self._block = carrier.pool.take(self.nbytes)
        if self._block is None:
            carrier.tell(self.key, "finds no pinned memory within "
                         "offload_pool_bytes, and stays on the device")
            return
        self._copy_out(pieces)
        self._before = carrier.link(self)
        carrier.leaves(self, [s for p in pieces for s in p.saved],
                       self._copied)

    def _copy_out(self, pieces) -> None:
        carrier = self._carrier
        out, _ = carrier.streams()
        self._device = pieces[0].saved[0].tensor.device
        self.stream = torch.cuda.current_stream(carrier.owner.device)
        filled = torch.cuda.Event(enable_timing=carrier.times)
        filled.record(self.stream)
        if carrier.times:
            carrier.note_time(self.key, 0, filled)
        with torch.cuda.stream(out):
            out.wait_event(filled)
            if self._block.ended is not None:
                out.wait_event(self._block.ended)
            at = 0
            for piece in pieces:
                self._block.memory[at:at + piece.nbytes].copy_(
                    piece.memory(), non_blocking=True)
                piece.place(self, at)
                at += aligned(piece.nbytes)
                carrier.out_bytes += piece.nbytes
            self._copied = self._block.ended = torch.cuda.Event()
            self._copied.record(out)
        carrier.limit(self.key[1], self._copied)

    def memory(self):
        """On the device, for the stream at hand; None: where it was."""
        carrier = self._carrier
        if not self.is_read:
            self.is_read = True
            if carrier.times:
                read = torch.cuda.Event(enable_timing=True)
                read.record()
                carrier.note_time(self.key, 1, read)
            self._bring_those_before()
        if not self.has_left:
            return None
        self.bring()
        current = torch.cuda.current_stream(carrier.owner.device)
        current.wait_event(self._filled)
        if current.cuda_stream != self._home.cuda_stream:
            self._memory.record_stream(current)
        return self._memory

    def _bring_those_before(self) -> None:
        self.bring()
        group = self
        for _ in range(self._carrier.ahead):
            group = group.before()
            if group is None:
                return
            group.bring()

    def before(self):
        """Of the same microbatch, and still to be read.  Those of passes
        that are not counted, as where no layer has graphs, begin anew with
        an earlier layer."""
        group = self._before and self._before()
        return group if group is not None and group.at == self.at \
            and group.key[0] <= self.key[0] else None

    def bring(self) -> None:
        """The copy back is issued, unless it was.  Its memory is of the
        stream that reads it, and that waits for the copy before it reads, or
        lets go: so it may be used again at once."""
        if not self.has_left or self._memory is not None:
            return
        carrier = self._carrier
        _, back = carrier.streams()
        self._home = torch.cuda.current_stream(carrier.owner.device)
        self._memory = torch.empty(self.nbytes, dtype=torch.uint8,
                                   device=self._device)
        back.wait_stream(self._home)
        with torch.cuda.stream(back):
            # Its forward may have been on another stream than this is.
            back.wait_event(self._copied)
            self._memory.copy_(self._block.memory[:self.nbytes],
                               non_blocking=True)
            self._filled = torch.cuda.Event()
            self._filled.record(back)
        carrier.back_bytes += self.nbytes
        self._give_back(self._filled)

    def _give_back(self, ended) -> None:
        block, self._block = self._block, None
        if block is not None:
            self._carrier.pool.give_back(block, ended)

    def __del__(self):
        if not self._is_met:
            return
        self._carrier.end(self.key)
        self._give_back(self._copied)
        if self._memory is not None and not self.is_read:
            self._home.wait_event(self._filled)


class Measuring:
    """Eager forwards whose saved tensors are others' to keep."""

    def __init__(self, carrier):
        self._carrier = carrier

    def group(self, bracket, key, given) -> "MeasuredGroup":
        return MeasuredGroup(self._carrier, bracket, key, given)


class MeasuredGroup:
    """Goes through the hooks that are there, and is looked at on its way."""

    def __init__(self, carrier, bracket, key, given):
        self._offload = carrier.owner.offload
        self._key = key
        self._segment = bracket.segment
        self._pack, self.unpack = private.top_saved_tensors_hooks(True)
        self._collector = self._offload.collector(bracket, given)

    def pack(self, tensor):
        self._collector.note(tensor)
        return self._pack(tensor)

    def close(self, result) -> None:
        nbytes = sum(aligned(p.nbytes) for p in self._collector.pieces(result))
        self._offload.meet(self._key, self._segment, nbytes)
