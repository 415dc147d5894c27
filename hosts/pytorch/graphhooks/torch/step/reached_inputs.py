"""Inputs of later layers of a chunk, which its first layer is not given.

A chunk runs in the call of its first layer.  What a later layer is given has
to be there by then: of layers with masks or position embeddings of their own
it is, in a local variable of the function that calls them, mostly in a dict or
a tuple.  An eager pass shows in which; later passes look there, and the first
layer is given it as well, so that it is an input of the graph like any other.
Each layer still compares what it is given with what the graph has read.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections
import sys
import weakref
from inspect import CO_OPTIMIZED
from pathlib import Path

import torch

from ..base import tree
from ..base.layouts import is_laid_out
from ..base.private import version_of

WORD = "inputs of later layers"  # the argument, which no forward has

_PACKAGE = str(Path(__file__).resolve().parents[2])
_FAR = 32  # functions around a call that are looked at
_DEEP = 3  # containers within one another
_MANY = 4096  # values that are looked at
_MOST = 64  # tensors that are taken
_CONTAINERS = frozenset((dict, list, tuple, collections.OrderedDict))
# Who calls these may keep the dict of its variables, which stays as it is.
_KEEPERS = frozenset(("locals", "vars", "eval", "exec"))


def _callers():
    """Frames of functions around the call at hand, the nearest first, without
    those of this package."""
    frame, left = sys._getframe(1), _FAR
    while frame is not None and left:
        code = frame.f_code
        if code.co_flags & CO_OPTIMIZED and _KEEPERS.isdisjoint(
                code.co_names) and not code.co_filename.startswith(_PACKAGE):
            left -= 1
            yield frame
        frame = frame.f_back


def _locals(frame) -> dict:
    """Of a function.  Before Python 3.13 the frame keeps what it is asked for,
    and so the tensors in it: not here."""
    found = frame.f_locals
    result = dict(found)
    if sys.version_info < (3, 13):
        found.clear()
    return result


class ReachedInputs:
    """Of one chunk."""

    def __init__(self):
        self.paths: list = []  # code, name of a variable, and keys within
        self.found: list = []  # tensors that the pass at hand has added
        self._seen: dict = {}  # of a pass, by id: path, tensor, version

    def look(self) -> None:
        """What the first layer's callers have, as it is called."""
        self.forget()
        if len(self.paths) >= _MOST:
            return
        left = _MANY
        for frame in _callers():
            waiting = [((frame.f_code, name), value, _DEEP)
                       for name, value in _locals(frame).items()]
            while waiting and left:
                left -= 1
                path, value, deep = waiting.pop()
                if _is_fit(value):
                    self._seen.setdefault(id(value), (
                        path, weakref.ref(value), version_of(value)))
                elif deep and type(value) in _CONTAINERS:
                    waiting += [((*path, key), each, deep - 1)
                                for key, each in _items(value)]

    def forget(self) -> None:
        """The pass is over."""
        self._seen, self.found = {}, []

    def take(self, tensor) -> int | None:
        """If it was there when the first was called, its version by then."""
        path, reference, version = self._seen.get(id(tensor), (None,) * 3)
        if path is None or reference() is not tensor or path in self.paths:
            return None
        self.paths.append(path)
        self.found.append(tensor)
        return version

    def added(self, kwargs: dict) -> dict:
        """What the first was called with, and what has been found since."""
        return {**kwargs, WORD: [*kwargs.get(WORD, ()), *self.found]}

    def given(self, kwargs: dict) -> dict:
        """What the first layer is called with, and the inputs."""
        found: dict = {}
        wanted = {code for code, *_ in self.paths}
        for frame in _callers():
            if frame.f_code in wanted:
                wanted.remove(frame.f_code)
                found[frame.f_code] = _locals(frame)
                if not wanted:
                    break
        tensors = [_at(found.get(code), keys) for code, *keys in self.paths]
        return kwargs if all(t is None for t in tensors) \
            else {**kwargs, WORD: tensors}


def _items(value):
    return value.items() if isinstance(value, dict) else enumerate(value)


def _is_fit(value) -> bool:
    """Whether a graph takes it."""
    return tree.is_tensor(value) and value.is_cuda \
        and value.layout is torch.strided \
        and not (value.dtype.is_complex and tree.is_unfit_complex(value)) \
        and is_laid_out(value)


def _at(value, keys):
    """The tensor there, or None."""
    for key in keys:
        if type(value) not in _CONTAINERS:
            return None
        try:
            value = value[key]
        except (LookupError, TypeError):
            return None
    return value if _is_fit(value) else None
