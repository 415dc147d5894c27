"""Buffers to which modules add gradients by themselves: the attribute
`main_grad` of parameters, as engines have it.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import operator

import torch

from ..guard.storage_addresses import Forms
from ..guard.words import Words, version_of

_form = operator.attrgetter("shape", "dtype")


class _Main:
    """That of one parameter, by its attributes."""

    __slots__ = "_names", "main"

    def __init__(self, names):
        self._names, self.main = names, names.get("main_grad")

    def words(self) -> list:
        return version_of(self._names)

    def is_same(self) -> bool:
        return self._names.get("main_grad") is self.main


class Mains:
    """Those of parameters, as they are when this is made."""

    def __init__(self, parameters=()):
        self._names = [*map(vars, parameters)]
        self._take(self._now())

    def _now(self) -> list:
        return [*map(_Main, self._names)]

    def _take(self, mains) -> None:
        self.words = Words(mains)
        self._kinds = _kinds(mains)
        self._forms = _forms(mains)

    def are_others(self) -> bool:
        """Whether a `main_grad` is elsewhere, or has come, or gone."""
        if self.words.is_same():
            return not self.lie_still()
        now = self._now()
        if _kinds(now) != self._kinds \
                or not _forms(now).are_those_of(self._forms):
            return True
        self._take(now)
        return False

    def lie_still(self) -> bool:
        """Of the same ones, whether they are where they were."""
        return not self._forms.tensors or self._forms.are_kept()


def _kinds(mains) -> list:
    return [type(each.main) for each in mains]


def _forms(mains) -> Forms:
    return Forms((each.main for each in mains
                  if isinstance(each.main, torch.Tensor)), _form)
