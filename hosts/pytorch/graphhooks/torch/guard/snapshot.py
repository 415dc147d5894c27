"""Which objects were where, asked before each replay whether they still are.

Where to look and what was there are flat lists, so that the answer is a few
short loops in C.  Most of it is in dicts and lists, and is found by its key;
the rest is found by a function that many things share.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import itertools
import operator
import threading
import weakref

from ..base.private import current_pass

_is, _item = operator.is_, operator.getitem
_chain = itertools.chain.from_iterable

GONE = object()  # a value that is not there


class Held:
    """Where values are, and which objects they were."""

    def __init__(self):
        self._of: list = []  # dicts and lists
        self._keys: list = []  # in each of those
        self._values: list = []
        self._sized: list = []
        self._sizes: list = []
        # By a function that looks: at what, and what it gave.
        self._single: dict = {}  # an object of each
        self._several: dict = {}  # some objects, in their order
        self._equal: dict = {}  # what each look makes anew
        self._seen: list = []  # in the thread of forwards, for other threads

    def put(self, container, keys) -> None:
        """What is at these keys, and how much is in it."""
        self._sized.append(container)
        self._sizes.append(len(container))
        self.put_items(container, keys)

    def put_items(self, container, keys) -> None:
        for key in keys:
            self._of.append(container)
            self._keys.append(key)
            self._values.append(container[key])

    def put_one(self, look, thing) -> None:
        """The same object, as look(thing) gives it."""
        _append(self._single, look, [thing], [look(thing)])

    def put_all(self, look, thing) -> None:
        """The same objects in the same order."""
        _append(self._several, look, [thing], [*look(thing)])

    def see(self, seen: "Seen") -> None:
        self._seen.append(seen)

    def put_equal(self, look, thing) -> None:
        _append(self._equal, look, [thing], [look(thing)])

    def add(self, other: "Held") -> None:
        """What another one holds, too."""
        for name in ("_of", "_keys", "_values", "_sized", "_sizes"):
            getattr(self, name).extend(getattr(other, name))
        for name in ("_single", "_several", "_equal"):
            for look, (things, values) in getattr(other, name).items():
                _append(getattr(self, name), look, things, values)
        self._seen += other._seen

    def others(self, kinds) -> list:
        """Values of these types that are others by now: where, by which key,
        and what was there.  Of slots, an object and a name."""
        found = [(of, key, then) for of, key, then
                 in zip(self._of, self._keys, self._values)
                 if type(then) in kinds and at(of, key) is not then]
        things, values = self._several.get(slots_of, ((), ()))
        then = iter(values)
        for thing, names in things:
            found += [(thing, name, value) for name, value in zip(names, then)
                      if type(value) in kinds
                      and getattr(thing, name, GONE) is not value]
        return found

    def is_same(self) -> bool:
        try:
            return [*map(len, self._sized)] == self._sizes \
                and all(map(_is, map(_item, self._of, self._keys),
                            self._values)) \
                and (not self._single or self._are_single_same()) \
                and (not self._several or self._are_several_same()) \
                and (not self._equal or self._are_equal())
        except (LookupError, ValueError):  # of a key, or an empty cell
            return False

    def _are_single_same(self) -> bool:
        for look, (things, values) in self._single.items():
            if not all(map(_is, map(look, things), values)):
                return False
        return True

    def _are_several_same(self) -> bool:
        for look, (things, values) in self._several.items():
            now = [*_chain(map(look, things))]
            if len(now) != len(values) or not all(map(_is, now, values)):
                return False
        return True

    def _are_equal(self) -> bool:
        for look, (things, values) in self._equal.items():
            if [*map(look, things)] != values:
                return False
        return True


def at(container, key):
    try:
        return container[key]
    except LookupError:
        return GONE


def _append(lists: dict, look, things, values) -> None:
    own = lists.setdefault(look, ([], []))
    own[0].extend(things)
    own[1].extend(values)


# ---- ways to look ----------------------------------------------------------


def item_of(place):
    """Of a dict and a key, which may come later."""
    names, key = place
    return names.get(key, GONE)


def slots_of(place) -> list:
    """Of an object and the names of its slots."""
    thing, names = place
    return [getattr(thing, name, GONE) for name in names]


class Seen:
    """What a look has given in the thread of forwards: those of autograd have
    contexts and locals of their own.  There as long as somebody holds it."""

    __slots__ = ("value", "__weakref__")


_seen = weakref.WeakValueDictionary()  # by what was looked at


def _in_forwards(thing, look) -> Seen:
    seen = _seen.get(thing)
    if seen is None or current_pass() < 0:
        value = look(thing)
        seen = seen or _seen.setdefault(thing, Seen())
        seen.value = value
    return seen


def seen_of(variable) -> Seen:
    """Of a ContextVar."""
    return _in_forwards(variable, lambda variable: variable.get(GONE))


def value_of(variable):
    return seen_of(variable).value


def attributes_of(thing, found: "Held | None" = None):
    """Those in a dict, or None; `found` holds what others are to see."""
    if not isinstance(thing, threading.local):
        return getattr(thing, "__dict__", None)
    seen = _in_forwards(thing, vars)
    if found is not None:
        found.see(seen)
    return seen.value


contents_of = operator.attrgetter("cell_contents")
defaults_of = operator.attrgetter("__code__", "__defaults__",
                                  "__kwdefaults__")
