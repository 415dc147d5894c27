"""Which objects were where, asked before each replay whether they still are.

Where to look and what was there are flat lists, so that the answer is a few
short loops in C.  Most of it is in dicts and lists, and is found by its key;
the rest is found by a function that many things share.  Who is asked often
asks which dicts and objects have been written (words.py), and looks into those
alone.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import itertools
import operator
import threading
import weakref

from ..base.private import current_pass
from .words import FIELDS, Fields, Words, defaults_of, version_of

_is, _item = operator.is_, operator.getitem
_chain = itertools.chain.from_iterable

GONE = object()  # a value that is not there
_OFTEN = 3  # times that nothing is another, before more is made for the rest


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
        self._asked = 0  # times that nothing was another
        self._often: Often | None = None

    def put(self, container, keys) -> None:
        """What is at these keys, and how much is in it."""
        self._forget()
        self._sized.append(container)
        self._sizes.append(len(container))
        self.put_items(container, keys)

    def put_items(self, container, keys) -> None:
        values = [*map(_item, itertools.repeat(container), keys)]
        if values:
            self._forget()
            self._of += itertools.repeat(container, len(values))
            self._keys += keys
            self._values += values

    def put_one(self, look, thing) -> None:
        """The same object, as look(thing) gives it."""
        self._forget()
        _append(self._single, look, [thing], [look(thing)])

    def put_all(self, look, thing) -> None:
        """The same objects in the same order."""
        self._forget()
        _append(self._several, look, [thing], [*look(thing)])

    def see(self, seen: "Seen") -> None:
        self._seen.append(seen)

    def put_equal(self, look, thing) -> None:
        self._forget()
        _append(self._equal, look, [thing], [look(thing)])

    def add(self, other: "Held") -> None:
        """What another one holds, too."""
        self._forget()
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
            if self._often is not None:
                return self._often.is_same()
            # Its words are read before all that they tell of is looked at.
            often = self.often() if self._asked == _OFTEN - 1 else None
            is_same = [*map(len, self._sized)] == self._sizes \
                and all(map(_is, map(_item, self._of, self._keys),
                            self._values)) \
                and self._are_found_same()
        except (LookupError, ValueError):  # of a key, or an empty cell
            is_same = False
        if is_same:
            self._asked += 1
            self._often = often
        else:
            self._asked = 0
        return is_same

    def _are_found_same(self) -> bool:
        """What functions find."""
        for look, (things, values) in self._single.items():
            if not all(map(_is, map(look, things), values)):
                return False
        for look, (things, values) in self._several.items():
            now = [*_chain(map(look, things))]
            if len(now) != len(values) or not all(map(_is, now, values)):
                return False
        return self._are_equal()

    def _are_equal(self) -> bool:
        for look, (things, values) in self._equal.items():
            if [*map(look, things)] != values:
                return False
        return True

    def _forget(self) -> None:
        """More is held from now on."""
        self._asked, self._often = 0, None

    def often(self) -> "Often":
        """The same, for who asks it often, as who has looked at all of it
        once more may tell."""
        places = Places(self._sized, self._sizes)
        places.put(self._of, self._keys, self._values)
        rest, fields = {}, []
        for look, (things, values) in self._single.items():
            if look is item_of:
                places.put(*zip(*things), values)
            elif look in FIELDS:
                fields.append(Fields(look, things, values))
            else:
                rest[look] = things, values
        several = dict(self._several)
        if defaults_of in several:
            fields.append(Fields(defaults_of, *several.pop(defaults_of), 3))
        return Often([places, *fields], rest, several, self._equal)


class Places:
    """Dicts and lists, and what is held of each.  They are numbers in a few
    lists: of one object for each of them the garbage collector would keep
    count."""

    def __init__(self, sized, sizes):
        self._containers: list = []
        self._sizes: list = []  # None: it may be any
        self._first: list = []  # piece of each; below 0: it has none
        # Pieces: keys of one container, which are together below.
        self._next: list = []  # piece of the same
        self._from: list = []
        self._to: list = []
        self._keys: list = []
        self._values: list = []
        self._numbers: dict = {}  # by identity
        for container, size in zip(sized, sizes):
            self._sizes[self._number_of(container)] = size

    def __len__(self) -> int:
        return len(self._containers)

    def _number_of(self, container) -> int:
        number = self._numbers.setdefault(id(container), len(self))
        if number == len(self):
            self._containers.append(container)
            self._sizes.append(None)
            self._first.append(-1)
        return number

    def put(self, of, keys, values) -> None:
        """What is at these keys of these containers, or GONE."""
        before = len(self._keys)
        self._keys += keys
        self._values += values
        ids = [*map(id, of)]
        begins = [i for i, each in enumerate(ids)
                  if not i or each != ids[i - 1]]
        for begin, end in zip(begins, [*begins[1:], len(ids)]):
            number = self._number_of(of[begin])
            self._next.append(self._first[number])
            self._first[number] = len(self._from)
            self._from.append(before + begin)
            self._to.append(before + end)

    def words(self, number: int) -> list:
        return version_of(self._containers[number])

    def is_same(self, number: int) -> bool:
        container, size = self._containers[number], self._sizes[number]
        if size is not None and size != len(container):
            return False
        piece = self._first[number]
        while piece >= 0:
            here = slice(self._from[piece], self._to[piece])
            values = self._values[here]
            look = at if any(value is GONE for value in values) else _item
            if not all(map(_is, map(look, itertools.repeat(container),
                                    self._keys[here]), values)):
                return False
            piece = self._next[piece]
        return True


class Often:
    """What is the same at most times, from when this is made.  Raises as a
    look into it does."""

    def __init__(self, things, single: dict, several: dict, equal: dict):
        self._words = Words((), things)
        self._single = [(look, *each) for look, each in single.items()]
        self._several = [(look, *each) for look, each in several.items()]
        self._equal = [(look, *each) for look, each in equal.items()]

    def is_same(self) -> bool:
        if not self._words.is_same():
            return False
        for look, things, values in self._single:
            if not all(map(_is, map(look, things), values)):
                return False
        for look, things, values in self._several:
            now = [*_chain(map(look, things))]
            if len(now) != len(values) or not all(map(_is, now, values)):
                return False
        for look, things, values in self._equal:
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
