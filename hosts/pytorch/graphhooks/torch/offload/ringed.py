"""Groups of recorded passes: the library's, which says where they lie.

In the capture of a forward a group is copied to where the library wants it,
and its own memory goes back to the pool.  In that of its backward autograd
reads it where the library has brought it.  Replays call nothing.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes

import torch

from ... import _abi
from ..base.memory import bytes_at
from ..base.private import raw_stream
from ..grad.strides import copy_of, memory_of
from .saved import aligned, unpack

_NAMED = _abi.GH_MODULE_NAMED


class _Calls:
    """To the library, of one group."""

    def __init__(self, owner, key, names):
        self.owner = owner
        self.layer = key[0]
        self.module = _NAMED | names.index(key[1])
        self._tensor = _abi.gh_offload_tensor()
        self._group = _abi.make(
            _abi.gh_offload_group, layer=self.layer, module=self.module,
            n_tensors=1, tensors=ctypes.pointer(self._tensor))

    def _find(self, call, nbytes: int) -> int:
        self._tensor.bytes = nbytes
        owner = self.owner
        owner.check(call(owner.handle, ctypes.byref(self._group),
                         ctypes.byref(owner.error)))
        return self._tensor.address

    def _end(self, call) -> None:
        owner = self.owner
        owner.check(call(owner.handle, self.layer, self.module,
                         ctypes.byref(owner.error)))

    def save(self, nbytes: int) -> int:
        return self._find(self.owner.api.offload_save, nbytes)

    def load(self, nbytes: int) -> int:
        return self._find(self.owner.api.offload_load, nbytes)

    def commit(self) -> None:
        self._end(self.owner.api.offload_commit)

    def release(self) -> None:
        self._end(self.owner.api.offload_release)


class Recorder:
    """What a forward's capture does with groups."""

    def __init__(self, offload, instance):
        self.offload = offload
        self.instance = instance

    def group(self, bracket, key, given) -> "RingedGroup":
        return RingedGroup(self, key, self.offload.collector(bracket, given))


class RingedGroup:
    """One of an instance."""

    unpack = staticmethod(unpack)

    def __init__(self, recorder, key, collector):
        self.key = key
        self.nbytes = 0
        self._instance = recorder.instance
        self._offload = recorder.offload
        self._collector = collector
        self.pack = collector.pack
        self.calls = None

    def close(self, result) -> None:
        """The module has returned: what may go is copied, and let go."""
        pieces = self._that_fit(self._collector.pieces(result))
        # Autograd's nodes hold the group, and the instance holds those.
        instance, self._instance = self._instance, None
        self._collector = self.pack = None
        if not pieces:
            return
        offload, owner = self._offload, self._offload.owner
        self.calls = _Calls(owner, self.key, offload.names)
        self.nbytes = sum(aligned(p.nbytes) for p in pieces)
        memory = bytes_at(self.calls.save(self.nbytes), self.nbytes,
                          pieces[0].saved[0].tensor.device)
        at = 0
        for piece in pieces:
            memory[at:at + piece.nbytes].copy_(piece.memory())
            piece.place(self, at)
            at += aligned(piece.nbytes)
        self.calls.commit()
        for piece in pieces:
            for saved in piece.saved:
                saved.leave()
        instance.groups.append(self)

    def _that_fit(self, pieces) -> list:
        """The buffers are as large as the group was in eager passes."""
        room = self._offload.sizes[self.key]
        found = []
        for piece in pieces:
            room -= aligned(piece.nbytes)
            if room < 0:
                self._offload.tell(self.key, "keeps more in a graph than "
                                   "eagerly, and the rest stays on the device")
                break
            found.append(piece)
        return found

    def memory(self):
        return self._offload.memory_of(self)


class NoReading:
    """Of a backward that reads no groups."""

    def __enter__(self) -> "NoReading":
        return self

    def __exit__(self, *_) -> None:
        pass

    def end(self, *gradients) -> tuple:
        return gradients


class Reading(NoReading):
    """The groups that one backward reads, until end()."""

    def __init__(self, offload, segment, instance):
        self._offload = offload
        self._owner = offload.owner
        self._stream = segment.decision.stream or 0
        self._groups = instance.groups
        self._memory: dict = {}  # of those that are loaded
        self._before = None

    def __enter__(self) -> "Reading":
        self._before, self._offload.reader = self._offload.reader, self
        return self

    def __exit__(self, *_) -> None:
        self._offload.reader = self._before

    def memory(self, group):
        if group not in self._memory:
            self._memory[group] = bytes_at(
                group.calls.load(group.nbytes), group.nbytes,
                torch.device("cuda", int(self._owner.device)))
        device = self._owner.device
        if raw_stream(device) != self._stream:
            # Autograd works on the stream of the forward, and the library
            # has let that of the pass wait.
            torch.cuda.current_stream(device).wait_stream(
                self._owner.captures.stream_of(self._stream or None))
        return self._memory[group]

    def end(self, of_inputs, of_parameters, again) -> tuple:
        """The groups are let go, and so no gradient may lie there.  One that
        nothing was read of goes the same way: a replay has to leave it as it
        was."""
        gradients = ([*map(self._apart, of_inputs)],
                     {p: self._apart(g) for p, g in of_parameters.items()},
                     [*map(self._apart, again)])
        for group in self._groups:
            if group not in self._memory:
                group.calls.load(group.nbytes)
            group.calls.release()
        return gradients

    def _apart(self, gradient):
        if gradient is None:
            return None
        address = memory_of(gradient).data_ptr()
        for memory in self._memory.values():
            if 0 <= address - memory.data_ptr() < memory.numel():
                return copy_of(gradient)
        return gradient
