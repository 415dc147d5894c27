"""Where graphs find what belongs to modules: parameters, buffers, submodules.

It is asked in every call and of every tensor whether that is as it was, so
lists are compared at once.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import itertools
import operator

import torch

_chain = itertools.chain.from_iterable
_values = dict.values
_address = torch.Tensor.data_ptr
_is_trained = operator.attrgetter("requires_grad")


class Places:
    """Those of segments, as they are when this is made."""

    def __init__(self, segments):
        self.segments = list(segments)
        self._dicts = [d for segment in self.segments
                       for site in segment.sites
                       for m in site.module.modules()
                       for d in (m._parameters, m._buffers, m._modules)
                       if d and isinstance(d, dict)]
        self._sizes = [*map(len, self._dicts)]
        self._held = [t for d in self._dicts for t in d.values()]
        self._ids = [*map(id, self._held)]
        self._tensors = [t for t in self._held if isinstance(t, torch.Tensor)]
        self._addresses = [*map(_address, self._tensors)]
        self._trained = [*map(_is_trained, self._tensors)]

    def are_kept(self) -> bool:
        """Whether they hold the same tensors, which are where they were."""
        held = _chain(map(_values, self._dicts))
        return ([*map(id, held)] == self._ids
                and [*map(_address, self._tensors)] == self._addresses
                and [*map(_is_trained, self._tensors)] == self._trained
                and [*map(len, self._dicts)] == self._sizes)


class Watch:
    """Tells which segments have lost theirs for good: a call may come while
    others are lent, but hardly at the beginning of two steps in a row."""

    def __init__(self, segments):
        self._each = list(segments)
        self._all = Places(segments)
        self._before: list = []  # lost at the last look

    def lost(self) -> list:
        """Each is told of once."""
        lost = [] if self._all.are_kept() else [
            s for s in self._each if not s.places.are_kept()]
        found = [s for s in lost if s in self._before]
        self._before = lost
        if found:
            self._each = [s for s in self._each if s not in found]
            self._all = Places(self._each)
        return found
