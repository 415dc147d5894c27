"""A segment as the library knows it: its passes, in the structs of C.

They are made once.  A call writes what has changed, and asks.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import functools

from torch.profiler import record_function

from ... import _abi
from ...errors import Error
from ..base.memory import span_of
from ..base.private import raw_stream


_DIRECTIONS = "forward", "backward", "wgrad"


class Planned:
    """What a Segment says to C."""

    def __init__(self, owner, index: int):
        self.owner = owner
        self.index = index
        self.decision = _abi.make(_abi.gh_decision)
        self.passes = [self._make_pass(d) for d in (0, 1, 2)]  # by direction
        self.flags = [0, 0, 0]  # of all such passes, by direction
        self.banks = [0, 0, 0]  # as they stand in the passes, by direction
        self.varies = False  # what comes back, in size at one address
        self.addresses = [[], [], []]  # as they stand there, by direction

    def _make_pass(self, direction: int):
        buffers = (_abi.gh_buffer * _abi.GH_MAX_BUFFERS)()
        outputs = (_abi.gh_buffer * _abi.GH_MAX_BUFFERS)()
        pass_ = _abi.make(_abi.gh_pass, segment=self.index,
                          direction=direction, inputs=buffers,
                          outputs=outputs, flags=_abi.GH_PASS_NO_EXIT)
        pass_.buffers = buffers  # ctypes keeps no reference to them
        pass_.output_buffers = outputs
        # A pointer and not byref(): the collector of cycles sees through it.
        pass_.enter = functools.partial(
            _abi.unconverted(self.owner.api.layer_enter), self.owner.handle,
            ctypes.pointer(pass_), ctypes.byref(self.decision),
            ctypes.byref(self.owner.error))
        if self.owner.names_passes:
            pass_.enter = self._named(direction, pass_.enter)
        return pass_

    def _named(self, direction: int, enter):
        """As a range of torch's profiler, with what a replay launches."""
        def enter_named():
            with record_function(f"{self.name} {_DIRECTIONS[direction]}"):
                return enter()

        return enter_named

    def enter(self, direction: int, tensors, microbatch: int, bank: int,
              flags: int = 0) -> int:
        owner = self.owner
        pass_ = self.passes[direction]
        if bank != self.banks[direction]:
            self.banks[direction] = pass_.bank = bank
            self.addresses[direction] = []  # sizes are others
        pass_.microbatch = microbatch
        pass_.stream = raw_stream(owner.device) or None
        if direction:
            pass_.flags = _abi.GH_PASS_NO_EXIT | self.flags[direction] | flags
        addresses = [t.data_ptr() for t in tensors]
        if addresses != self.addresses[direction] or self.varies:
            self._address(pass_, tensors, addresses)
            self.addresses[direction] = addresses
        status = pass_.enter()
        if owner.lost:
            owner.cancel(None)
            raise owner.lost.pop()
        if status < 0:
            owner.check(status)
        return self.decision.action

    @staticmethod
    def _address(pass_, tensors, addresses) -> None:
        if len(tensors) > _abi.GH_MAX_BUFFERS:
            raise Error(f"{len(tensors)} tensors go into a pass, which takes "
                        f"{_abi.GH_MAX_BUFFERS} at most")
        pass_.n_inputs = len(tensors)
        for buffer, tensor, address in zip(pass_.buffers, tensors, addresses):
            buffer.address = address
            buffer.bytes = span_of(tensor) * tensor.element_size()

    def exit(self, direction: int, outputs) -> int:
        """Of a pass that was not replayed."""
        owner = self.owner
        pass_ = self.passes[direction]
        if len(outputs) > _abi.GH_MAX_BUFFERS:
            # The library tells by them where the next pass need not copy:
            # the last module's are the ones that count.
            outputs = outputs[-_abi.GH_MAX_BUFFERS:]
        pass_.n_outputs = len(outputs)
        for buffer, tensor in zip(pass_.output_buffers, outputs):
            buffer.address = tensor.data_ptr()
            buffer.bytes = tensor.numel() * tensor.element_size()
        return owner.api.layer_exit(owner.handle, ctypes.byref(pass_),
                                    ctypes.byref(owner.error))
