"""Graphs that add gradients are told by a word on the device whether they are
a step's first.

Its own kernel then writes them, and reads nothing of what was in their places:
gradients of whole words, in the types that training uses.  To all others zeros
have to be added (gradients.py).

All graphs of an attach read one word, as they write gradients one after the
other (write_streams.py).  It is written on the stream of the replay, and only
when it becomes another: twice a step where all layers go back through one
microbatch before they do through the next.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import torch
from torch.cuda import is_current_stream_capturing as is_capturing

from ... import _abi
from ...errors import check
from ..base.memory import is_dense
from ..base.private import raw_stream

_NUMBERS = {torch.float32: _abi.GH_NUMBER_F32,
            torch.float16: _abi.GH_NUMBER_F16,
            torch.bfloat16: _abi.GH_NUMBER_BF16}
_WORD = 16  # bytes, of which addresses and lengths are multiples


class First:
    """Of all graphs of an attach."""

    def __init__(self, owner, like):
        self._owner = owner
        self._word = torch.zeros(1, dtype=torch.int32, device=like.device)
        self._told: bool | None = None  # what is there, if that is known
        self._numbers = _NUMBERS if torch.cuda.get_device_capability(
            like.device)[0] >= 8 else {}

    def tell(self, is_first: bool) -> None:
        """Graphs that run from now on, on the current stream."""
        if is_first is self._told:
            return
        self._told = None
        if not is_capturing():  # somebody's own, in which none of ours run
            self._word.fill_(is_first)
            self._told = is_first

    def add(self, place, grad) -> bool:
        """In a recording: what the place has becomes the gradient, or the sum;
        False: the kernel has nothing for it."""
        if not self._takes(place, grad):
            return False
        self._launch(place, grad)
        return True

    def _takes(self, place, grad) -> bool:
        return (grad.dtype in self._numbers and place.dtype == grad.dtype
                and type(grad) is torch.Tensor
                and grad.layout == torch.strided
                and grad.size() == place.size()
                and grad.stride() == place.stride() and is_dense(place)
                and not grad.is_neg() and grad.nbytes % _WORD == 0
                and (grad.data_ptr() | place.data_ptr()) % _WORD == 0)

    def _launch(self, place, grad) -> None:
        error = _abi.gh_error()
        check(self._owner.api.gradient_add(
            self._owner.handle, _abi.make(
                _abi.gh_gradient, number=self._numbers[grad.dtype],
                sum=place.data_ptr(), gradient=grad.data_ptr(),
                n=grad.numel(), first=self._word.data_ptr()),
            raw_stream(self._owner.device), error), error)
