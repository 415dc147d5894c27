"""What functions and objects have that a recording may write where it is:
containers, cells, globals, and memory of the host.

A copy is made of hundreds of them before each recording, and put back where
that is none.  So all of one kind are copied at once, into one list: the
garbage collector counts what is made for each.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections
import operator

BASES = (collections.OrderedDict, dict, list, tuple, set, frozenset,
         collections.deque)
_EXACT = frozenset(BASES)
_item, _contents_of = operator.getitem, operator.attrgetter("cell_contents")


def base_of(value):
    """The container of Python's that it is: what a type of somebody's own
    makes of it is left out."""
    kind = type(value)
    return kind if kind in _EXACT else \
        next(base for base in BASES if isinstance(value, base))


class Mutable:
    """That of one thing, which mostly has none."""

    __slots__ = "containers", "cells", "names", "keys", "_others"

    def __init__(self):
        self.containers = self.cells = self._others = ()
        self.names = self.keys = ()  # globals, each with the dict it is in

    def put_container(self, container) -> None:
        self.containers = self.containers or []
        self.containers.append(container)

    def put_cell(self, cell) -> None:
        self.cells = self.cells or []
        self.cells.append(cell)

    def put_globals(self, names, keys) -> None:
        if keys:
            self.names, self.keys = self.names or [], self.keys or []
            self.names += [names] * len(keys)
            self.keys += keys

    def put_other(self, copy) -> None:
        """What gives a function that puts it back."""
        self._others = (*self._others, copy)

    def copies(self) -> list:
        """Of what is there now: functions that put it back."""
        found = [copy() for copy in self._others]
        if self.containers or self.cells or self.keys:
            found.append(_Copies(self).put_back)
        return found


class _Copies:
    __slots__ = "_of", "_contents", "_inside", "_values"

    def __init__(self, of: Mutable):
        self._of = of
        self._contents = [*map(_copy, of.containers)]
        self._inside = [*map(_contents_of, of.cells)]
        self._values = [*map(_item, of.names, of.keys)]

    def put_back(self) -> None:
        of = self._of
        for container, before in zip(of.containers, self._contents):
            _put_back(container, before)
        for cell, before in zip(of.cells, self._inside):
            cell.cell_contents = before
        for names, key, before in zip(of.names, of.keys, self._values):
            names[key] = before


def _copy(container):
    base = base_of(container)
    if not base.__len__(container):
        return ()
    if type(container) is dict:
        return container.copy()
    return dict(base.items(container)) if issubclass(base, dict) \
        else [*base.__iter__(container)]


def _put_back(container, before) -> None:
    base = base_of(container)
    base.clear(container)
    if not before:
        return
    if issubclass(base, dict):
        for key, each in before.items():
            base.__setitem__(container, key, each)
    else:
        (base.extend if hasattr(base, "extend") else base.update)(
            container, before)
