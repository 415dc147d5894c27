"""What modules hold in Python: as it was when a recording fails, and alive as
long as a graph that reads it.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections
import enum
import functools
import itertools
import operator
import types

import torch

from ..base.private import (REGISTRIES, TREE_NODES, TreeSpec, parameters_of,
                            registries_of, tree_flatten)
from ..base.tree import Passing

_chain, _is = itertools.chain.from_iterable, operator.is_
_OWN = REGISTRIES  # for which there is storage_addresses.py
CONTAINERS = frozenset((list, dict, set, collections.deque,
                         collections.OrderedDict, collections.defaultdict,
                         collections.Counter))
_LISTS = CONTAINERS - {set, collections.deque}  # of which () is to be known
PLAIN = frozenset((bool, int, float, complex, str, bytes, type(None),
                    torch.Size, torch.dtype, torch.device))
_SIGNED = (float, complex)  # zeros have one; and a NaN is not itself
_THEMSELVES = (enum.Enum, type, types.BuiltinFunctionType, TreeSpec)


class Attributes:
    """Those of a segment's modules and of their parameters, and of others'
    that are named, as they are when this is made."""

    def __init__(self, segment, others=()):
        modules = [m for site in segment.sites for m in site.module.modules()]
        self._modules = len(modules)  # whose names are first
        self._names = [vars(m) for m in modules] \
            + [vars(p) for m in modules for p in parameters_of(m).values()
               if p is not None] + [*map(vars, others)]
        held = [each for m in modules for each in registries_of(m)] \
            + self._names
        # By module and name; numbers and the like are in the copies.
        self._leaves: dict = {}
        for i, names in enumerate(self._names):
            for name, value in names.items():
                kind = type(value)
                if kind in PLAIN:
                    continue
                if kind in _LISTS and not value:  # as most are
                    held.append(value)
                elif name not in _OWN:
                    held += containers(value)
                    self._leaves[i, name] = leaves_of(value)
        self._before = [(each, each.copy()) for each in held]
        self._dicts = [each for each in held if isinstance(each, dict)]
        self._sizes = [*map(len, self._dicts)]
        self._keys = [*_chain(self._dicts)]
        self._objects = [*_chain(map(dict.values, self._dicts))]
        self._others = [(each, copy) for each, copy in self._before
                        if not isinstance(each, dict)]
        self._tensors = [t for _, t in _tensors(self._leaves)]
        self._of_modules = self._in_modules(self._leaves)
        self._comparable = [(leaf, comparable(leaf))
                            for leaves in self._leaves.values()
                            for leaf in leaves if type(leaf) not in PLAIN]

    def walk(self) -> dict | None:
        """All but parameters, buffers and submodules, by now: what is in it,
        by module and name.  None: it is as it was."""
        if self._is_same():
            return None
        return {(i, name): leaves_of(value)
                for i, names in enumerate(self._names)
                for name, value in names.items() if name not in _OWN}

    def _is_same(self) -> bool:
        """By which objects there are, and by what is in those that may change
        by themselves."""
        dicts = self._dicts
        return [*map(len, dicts)] == self._sizes \
            and all(map(_is, _chain(dicts), self._keys)) \
            and all(map(_is, _chain(map(dict.values, dicts)),
                        self._objects)) \
            and all(len(each) == len(copy) and
                    ({*map(id, each)} == {*map(id, copy)}
                     if isinstance(each, set) else all(map(_is, each, copy)))
                    for each, copy in self._others) \
            and all(comparable(leaf) == then
                    for leaf, then in self._comparable)

    def put_back(self) -> None:
        """A forward that is no graph has not been."""
        put_contents_back(self._before)

    def tensors(self) -> list:
        """Of modules, those of before the recording and of after it."""
        found = self.walk()
        return self._of_modules + (self._in_modules(found) if found else [])

    def _in_modules(self, found: dict) -> list:
        return [t for _, t in _tensors({
            place: leaves for place, leaves in found.items()
            if place[0] < self._modules})]

    def new(self, found: dict | None) -> list:
        """Those that have come by that walk, and their names."""
        known = set(map(id, self._tensors))
        return [(name, t) for name, t in _tensors(found or {})
                if id(t) not in known]

    def refuse_changes(self, who: str, found: dict | None,
                       kind=Passing) -> None:
        """Those that are others by that walk, or new."""
        if found is None:
            return
        before, now = self._plain_before(), _plain(found)
        if now == before:
            return
        name = next(name for i, name in {**before, **now}
                    if before.get((i, name)) != now.get((i, name)))
        raise kind(f"{who} changes an attribute, {name}, which a replay would "
                   "not: keep it in a buffer, or outside of the layers")

    def _plain_before(self) -> dict:
        then = {id(leaf): found for leaf, found in self._comparable}
        names = {id(each): copy for each, copy in self._before}
        return {(i, name): [then[id(leaf)] if id(leaf) in then
                            else comparable(leaf) for leaf in self._leaves.get(
                                (i, name), (value,) * (type(value) in PLAIN))]
                for i, each in enumerate(self._names)
                for name, value in names[id(each)].items()
                if name not in _OWN}


def _tensors(found) -> list:
    """And their names."""
    return [(name, leaf) for (_, name), leaves in found.items()
            for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _plain(found) -> dict:
    """What can be compared, and of other things what they are."""
    return {place: [*map(comparable, leaves)]
            for place, leaves in found.items()}


def comparable(leaf):
    """Of equal ones alone it is equal: 1 is not 1.0 or True, nor 0.0 -0.0."""
    kind = type(leaf)
    if kind in PLAIN:
        return kind, repr(leaf) if kind in _SIGNED else leaf
    if kind is set or kind is frozenset:
        return frozenset(map(comparable, leaf)), len(leaf)
    if kind is types.FunctionType:
        return leaf.__code__, _constants(leaf)  # it may be made in each call
    if kind is types.MethodType:
        return id(leaf.__self__), comparable(leaf.__func__)
    if kind is functools.partial:
        return (comparable(leaf.func), *map(comparable, leaf.args),
                *leaf.keywords, *map(comparable, leaf.keywords.values()))
    if isinstance(leaf, _THEMSELVES):
        return leaf
    if isinstance(leaf, (torch.nn.Module, torch.Tensor)):
        return id(leaf)
    if kind.__module__ == "numpy" and hasattr(leaf, "tobytes"):
        return leaf.dtype.str, leaf.shape, leaf.tobytes()
    return kind


def exact(value):
    """What can be compared; of what nothing is known, which object it is."""
    found = comparable(value)
    return (type(value), id(value)) if _is_no_more(found, value) else found


def is_unknown(value) -> bool:
    """Of which comparable() would say no more than its type."""
    return _is_no_more(comparable(value), value)


def _is_no_more(found, value) -> bool:
    return found is type(value) and not isinstance(value, type)


def _constants(function) -> tuple:
    """What can be compared of what it has from where it was made."""
    cells = [cell.cell_contents for cell in function.__closure__ or ()
             if cell != types.CellType()]  # which is empty
    return tuple(comparable(value)
                 for value in (*(function.__defaults__ or ()), *cells)
                 if type(value) in PLAIN)


def put_contents_back(held) -> None:
    """Each with a copy of what it had."""
    for container, before in held:
        container.clear()
        put = container.update if isinstance(container, (dict, set)) \
            else container.extend
        put(before)


def containers(value) -> list:
    """It and those within it, if it is one; of types whose ways are known."""
    try:
        return _those_within(value, set())
    except RecursionError:
        return []


def _those_within(value, seen: set) -> list:
    kind = type(value)
    if not (kind in CONTAINERS or kind is tuple) or id(value) in seen:
        return []
    seen.add(id(value))
    inner = value.values() if isinstance(value, dict) else value
    return [value] * (kind is not tuple) + [
        each for one in inner for each in _those_within(one, seen)]


def leaves_of(value):
    """Of what may be nested; most of them are not, or have nothing."""
    kind = type(value)
    if kind is collections.Counter:
        return (*value, *value.values())
    if kind in PLAIN or not (kind in TREE_NODES
                              or isinstance(value, tuple)):
        return (value,)
    if isinstance(value, (dict, list, tuple)) and not value:
        return ()
    try:
        leaves, shape = tree_flatten(value)
        return [*leaves, shape]  # which has the keys of dicts
    except RecursionError:
        return (value,)  # it has itself


def refuse_set(tensors, aliases, what: str) -> None:
    """Attributes that modules have set of the aliases."""
    for tensor, alias in zip(tensors, aliases):
        before, now = vars(tensor), vars(alias)
        for name in {**before, **now}:
            if name not in before or name not in now \
                    or not _is_the_same(before[name], now[name]):
                raise Passing(f"it sets an attribute of {what}, {name}, which "
                              "a replay would not: keep it in a buffer")


def _is_the_same(value, other) -> bool:
    return value is other or not isinstance(value, torch.Tensor) \
        and comparable(value) == comparable(other)
