"""Buffers to which modules add gradients by themselves: the attribute
`main_grad` of parameters, as engines have it.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import operator

import torch

from ..guard import identity
from ..guard.storage_addresses import Forms

_main = operator.methodcaller("get", "main_grad")  # of attributes
_form = operator.attrgetter("shape", "dtype")


class Mains:
    """Those of parameters, as they are when this is made."""

    def __init__(self, parameters=()):
        self._names = [*map(vars, parameters)]
        self._last = self._now()
        self._kinds = [*map(type, self._last)]
        self._forms = _forms(self._last)

    def _now(self) -> tuple:
        return (*map(_main, self._names),)

    def are_others(self) -> bool:
        """Whether one is elsewhere, or has come, or gone."""
        now = self._now()
        if identity.are_same(now, self._last):
            return not self._forms.are_kept()
        forms = _forms(now)
        if [*map(type, now)] != self._kinds \
                or not forms.are_those_of(self._forms):
            return True
        self._last, self._forms = now, forms
        return False


def _forms(mains) -> Forms:
    return Forms((m for m in mains if isinstance(m, torch.Tensor)), _form)
