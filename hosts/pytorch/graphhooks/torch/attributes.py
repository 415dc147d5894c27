"""What modules hold in Python: it is as it was when a recording fails, and
lives as long as a graph that reads it.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections

import torch
from torch.utils._pytree import tree_leaves

_OWN = ("_parameters", "_buffers", "_modules")  # for which there is places.py
_CONTAINERS = (list, dict, set, collections.deque)


class Attributes:
    """Those of a segment's modules, as they are when this is made."""

    def __init__(self, segment):
        modules = [m for site in segment.sites for m in site.module.modules()]
        self._names = [vars(m) for m in modules]
        held = [m._parameters for m in modules] \
            + [m._buffers for m in modules] + [m._modules for m in modules] \
            + self._names + [value for names in self._names
                             for value in names.values()
                             if type(value) in _CONTAINERS]
        self._before = [(each, type(each)(each)) for each in held]
        self._tensors = [t for _, t in self._find()]

    def _find(self) -> list:
        """Tensors that are neither parameters nor buffers, and their names."""
        return [(name, leaf) for names in self._names
                for name, value in names.items() if name not in _OWN
                for leaf in tree_leaves(value)
                if isinstance(leaf, torch.Tensor)]

    def put_back(self) -> None:
        """A forward that is no graph has not been."""
        for held, before in self._before:
            held.clear()
            put = held.update if isinstance(held, (dict, set)) else held.extend
            put(before)

    def tensors(self) -> list:
        """Those of before the recording and of after it."""
        return self._tensors + [t for _, t in self._find()]

    def with_gradient(self) -> list:
        """The names of those that have come since, and have a gradient."""
        known = set(map(id, self._tensors))
        return [name for name, t in self._find()
                if t.requires_grad and id(t) not in known]
