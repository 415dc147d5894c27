"""What modules hold in Python: it is as it was when a recording fails, and
lives as long as a graph that reads it.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import torch
from torch.utils._pytree import tree_leaves

_OWN = ("_parameters", "_buffers", "_modules")  # for which there is places.py


class Attributes:
    """Those of a segment's modules, as they are when this is made."""

    def __init__(self, segment):
        modules = [m for site in segment.sites for m in site.module.modules()]
        self._own = [_copied(d) for m in modules
                     for d in (m._parameters, m._buffers, m._modules)]
        self._others = [_copied(vars(m)) for m in modules]

    def put_back(self) -> None:
        """A forward that is no graph has not been."""
        for now, before in self._own + self._others:
            now.clear()
            now.update(before)

    def tensors(self) -> list:
        """Those of before the recording and of after it."""
        return [t for each in self._others for names in each
                for name, value in names.items() if name not in _OWN
                for t in tree_leaves(value) if isinstance(t, torch.Tensor)]

    def with_gradient(self) -> list:
        """The names of those that have come since, and have a gradient."""
        return [name for now, before in self._others
                for name, value in now.items()
                if isinstance(value, torch.Tensor) and value.requires_grad
                and value is not before.get(name)]


def _copied(names: dict) -> tuple:
    return names, dict(names)
