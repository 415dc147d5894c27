"""Where graphs find what belongs to modules: parameters, buffers, submodules.

It is asked in every step and of every tensor whether that is as it was, so
the answer for all of them comes first: lists that are compared at once.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import itertools
import operator

import torch


class Places:
    """Those of segments, as they are when this is made."""

    def __init__(self, segments):
        self.segments = list(segments)
        self._dicts = [d for segment in self.segments
                       for site in segment.sites
                       for m in site.module.modules()
                       for d in (m._parameters, m._buffers, m._modules) if d]
        self._sizes = [len(d) for d in self._dicts]
        self._held = [t for d in self._dicts for t in d.values()]
        self._tensors = [t for t in self._held if isinstance(t, torch.Tensor)]
        self._addresses = [t.data_ptr() for t in self._tensors]
        self._trained = [t.requires_grad for t in self._tensors]

    def are_kept(self) -> bool:
        """Whether they hold the same tensors, which are where they were."""
        held = itertools.chain.from_iterable(
            [d.values() for d in self._dicts])
        return ([len(d) for d in self._dicts] == self._sizes
                and all(map(operator.is_, held, self._held))
                and [t.data_ptr() for t in self._tensors] == self._addresses
                and [t.requires_grad for t in self._tensors] == self._trained)


class Watch:
    """Tells which segments have lost theirs; each is told of once."""

    def __init__(self, segments):
        self._each = [Places([segment]) for segment in segments]
        self._all = Places(segments)

    def lost(self) -> list:
        if self._all.are_kept():
            return []
        lost = [p for p in self._each if not p.are_kept()]
        self._each = [p for p in self._each if p not in lost]
        self._all = Places(s for p in self._each for s in p.segments)
        return [s for p in lost for s in p.segments]
