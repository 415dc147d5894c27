"""What modules hold in Python, and the random numbers that they draw there:
as it was when a recording fails, and alive as long as a graph that reads it.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections
import random
import sys

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

    def new(self) -> list:
        """Those that have come since, and their names."""
        known = set(map(id, self._tensors))
        return [(name, t) for name, t in self._find() if id(t) not in known]


class HostNumbers:
    """The random numbers of the host, as they are when this is made."""

    def __init__(self, generators):
        self._python = random.getstate()
        self._torch = None
        if torch.default_generator not in generators:
            self._torch = torch.get_rng_state()
        numpy = sys.modules.get("numpy")
        self._numpy = numpy and numpy.random.get_state()

    def have_moved(self, since: "HostNumbers") -> bool:
        """A replay would not draw them."""
        return self._python != since._python or not (
            self._torch is None or torch.equal(self._torch, since._torch)) \
            or not _equal(self._numpy, since._numpy)

    def put_back(self) -> None:
        random.setstate(self._python)
        if self._torch is not None:
            torch.set_rng_state(self._torch)
        if self._numpy:
            sys.modules["numpy"].random.set_state(self._numpy)


def _equal(numbers, others) -> bool:
    """As numpy has them: tuples, of which one is an array."""
    return not numbers or not others or all(
        bool((one == other).all() if hasattr(one, "all") else one == other)
        for one, other in zip(numbers, others))
