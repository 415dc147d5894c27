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
_EMPTY = types.MappingProxyType({})  # a copy of most that are held
# Of a type and a value one pair, for all that have it.
_pairs: dict = {kind: {} for kind in (bool, int, str, bytes, type(None),
                                      torch.dtype)}
_MANY, _LONG = 1 << 12, 1 << 8  # pairs of a type, and texts


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
        # Of what is nested, by module and name; the rest is in the copies.
        self._leaves: dict = {}
        self._compared: list = []  # what may be another by itself
        self._tensors: list = []
        self._of_modules: list = []  # of those, without others'
        for i, names in enumerate(self._names):
            for name, value in names.items():
                kind = type(value)
                if kind in PLAIN:
                    continue
                if kind in _LISTS and not value:  # as most are
                    held.append(value)
                elif name not in _OWN:
                    self._add(i, name, value, held)
        # Two lists: of pairs the garbage collector would keep count.
        self._held = held
        self._copies = [each.copy() if each else _EMPTY for each in held]
        self._dicts = [each for each in held if isinstance(each, dict)]
        self._sizes = [*map(len, self._dicts)]
        self._keys = [*_chain(self._dicts)]
        self._objects = [*_chain(map(dict.values, self._dicts))]
        self._others = [i for i, each in enumerate(held)
                        if not isinstance(each, dict)]
        self._then = [*map(comparable, self._compared)]

    def _add(self, i: int, name: str, value, held: list) -> None:
        """What is no number and no empty list."""
        kind = type(value)
        if kind in CONTAINERS or kind is tuple:
            held += containers(value)
        leaves = leaves_of(value)
        if kind in _LISTS or len(leaves) != 1 \
                or leaves[0] is not value:
            self._leaves[i, name] = leaves
        for leaf in leaves:
            if type(leaf) in PLAIN:
                continue
            self._compared.append(leaf)
            if isinstance(leaf, torch.Tensor):
                self._tensors.append(leaf)
                if i < self._modules:
                    self._of_modules.append(leaf)

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
            and all(_has_the_same(self._held[i], self._copies[i])
                    for i in self._others) \
            and all(map(operator.eq, map(comparable, self._compared),
                        self._then))

    def put_back(self) -> None:
        """A forward that is no graph has not been."""
        put_contents_back(zip(self._held, self._copies))

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
        then = dict(zip(map(id, self._compared), self._then))
        names = dict(zip(map(id, self._held), self._copies))
        return {(i, name): [then[id(leaf)] if id(leaf) in then
                            else comparable(leaf) for leaf in self._leaves.get(
                                (i, name), () if type(value) in _LISTS
                                else (value,))]
                for i, each in enumerate(self._names)
                for name, value in names[id(each)].items()
                if name not in _OWN}


def _has_the_same(value, copy) -> bool:
    return len(value) == len(copy) and (
        {*map(id, value)} == {*map(id, copy)} if isinstance(value, set)
        else all(map(_is, value, copy)))


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
        return _plain_bits(leaf, kind)
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


def _plain_bits(value, kind) -> tuple:
    if kind in _SIGNED:
        return kind, repr(value)
    pairs = _pairs.get(kind)
    if pairs is None:
        return kind, value
    pair = pairs.get(value)
    if pair is None:
        pair = kind, value
        if len(pairs) < _MANY and (
                kind not in (str, bytes) or len(value) < _LONG):
            pairs[value] = pair
    return pair


def exact(value):
    """What can be compared; of what nothing is known, which object it is."""
    kind = type(value)
    if kind in PLAIN:
        return _plain_bits(value, kind)
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


class _Shape(tuple):
    """Of containers, with the keys of dicts."""

    __slots__ = ()


_THEMSELVES = (enum.Enum, type, types.BuiltinFunctionType, TreeSpec, _Shape)


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


def _flatten(value, leaves: list):
    """As torch does, whose function for it leaves garbage that only a
    collection finds: of what it does not have in Python, it does."""
    kind = type(value)
    if kind in (dict, collections.OrderedDict, collections.defaultdict):
        inner, keys = value.values(), (*value,)
        if kind is collections.defaultdict:
            keys = value.default_factory, keys
    elif kind is list or kind is tuple:
        inner, keys = value, None
    elif kind in TREE_NODES or isinstance(value, tuple):
        more, shape = tree_flatten(value)
        leaves += more
        return shape
    else:
        leaves.append(value)
        return None
    return kind, keys, *[_flatten(each, leaves) for each in inner]


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
    leaves: list = []
    try:
        leaves.append(_Shape((_flatten(value, leaves),)))
        return leaves
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
