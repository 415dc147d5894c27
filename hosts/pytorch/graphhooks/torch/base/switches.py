"""Switches of torch by which operations choose a kernel: autocast, the kernels
of attention, TF32, reductions, deterministic algorithms.

A graph has the kernels that were chosen when it was recorded, so these are
part of what a call is, and who runs modules once more later puts them as they
were.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib

import torch
from torch import is_autocast_enabled

from .private import SWITCHES

_NAMES, _READERS, _SETTERS = zip(*SWITCHES)


def autocast():
    """Its dtype, or False: a thread's own, and quick to read."""
    # Without a word, of "cuda": a text takes torch as long as the rest.
    return is_autocast_enabled() and torch.get_autocast_dtype("cuda")


def switches() -> tuple:
    """The others: equal ones choose the same kernels."""
    return tuple([read() for read in _READERS])


def in_words(cast, found: tuple) -> dict:
    """Texts by name."""
    return {"autocast": str(cast or "off"), **dict(zip(_NAMES,
                                                       map(str, found)))}


@contextlib.contextmanager
def switched(cast, then: tuple):
    """As they were then."""
    now = switches()
    _put(then, now)
    try:
        with torch.autocast("cuda", cast or None, bool(cast)):
            yield
    finally:
        _put(now, then)


def _put(values: tuple, others: tuple) -> None:
    for value, other, put in zip(values, others, _SETTERS):
        if value != other:
            put(value)
