"""Tensors in attributes for which others stand in, of the same bits.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import operator

import torch

from ..base import private

_form = operator.attrgetter("dtype", "shape", "device", "layout")


class Tables:
    """A layer has made its table again, and graphs go on reading the one that
    was there when each was recorded.  That holds until somebody writes one of
    them."""

    def __init__(self):
        self._read: dict = {}  # by name: (tensor, its memory) of each graph
        self.take({})

    def are_unwritten(self) -> bool:
        return not self._written or \
            [*map(_version, self._written)] == self._versions

    def read(self, values: dict) -> None:
        """A graph has been recorded that reads those in the values."""
        for name, tensor in values.items():
            if not isinstance(tensor, torch.Tensor):
                continue
            known = self._read.setdefault(name, [])
            if not any(_is(tensor, one) for one in known):
                known.append((tensor, tensor.data if tensor.layout
                              == torch.strided else tensor))

    def take(self, pairs: dict) -> None:
        """Of each name whose tensor is another than what a graph reads: all
        that are read, and what is there, of equal bits now."""
        self._written = [t for tensors in pairs.values() for t in tensors]
        self._versions = [*map(_version, self._written)]

    def are_equal(self, name: str, then, now, pairs: dict) -> bool:
        """Waits for the device, if the tensor is another."""
        others = [one for one in self._read.get(name) or [(then, then)]
                  if not _is(now, one)]
        if not others:
            return True
        pairs[name] = [now, *(t for one in others for t in one)]
        return all(_has_equal_bits(*one, now) for one in others)


def _is(tensor, one) -> bool:
    """Whose memory may have been moved by `.data`."""
    other, memory = one
    return tensor is other and (tensor.layout != torch.strided
                                or tensor.data_ptr() == memory.data_ptr())


def _version(tensor) -> int:
    return 0 if tensor.is_inference() else private.version(tensor)


def _has_equal_bits(tensor, memory, other) -> bool:
    if type(tensor) is not torch.Tensor or type(other) is not torch.Tensor \
            or _form(memory) != _form(other) \
            or tensor.requires_grad != other.requires_grad \
            or memory.layout != torch.strided:
        return False
    bits = [t.detach().contiguous().flatten().view(torch.uint8)
            for t in (memory, other)]
    return torch.equal(*bits)
