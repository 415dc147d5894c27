"""Whether things are as they were, told by words of memory that C compares.

A guard asks some hundred things before each replay.  Of most of them a word of
the interpreter's memory is another once they are written: a version that
CPython up to 3.12 counts in a dict, a number of items, a pointer.  One call of
the library's compares those words, and only who has another one is looked at.

Where such a word is was seen in this interpreter, before and after writes, and
in each thing that is what it has to be; a thing without one is looked at each
time.  A thing is held for as long as its words are compared.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import functools
import gc
import operator
import sys
import types

import torch

from ... import _abi, _library
from ..base.private import hooks_of_leaf

_VERSION, _USED = 24, 16  # in a dict, after its references and its type
_DICT = _VERSION + 3 * 8  # the size of one that has these
_ALL = (1 << 64) - 1

# Looks at what an object of C points to.
mro_of = operator.attrgetter("__mro__")
contents_of = operator.attrgetter("cell_contents")
defaults_of = operator.attrgetter("__code__", "__defaults__",
                                  "__kwdefaults__")


def _word(address: int):
    return ctypes.c_uint64.from_address(address)


class Words:
    """Some things, each with ``words()``, addresses of those that are another
    once it is written, and ``is_same()``.  Many things may be in one object,
    which has a number for each: ``len()``, ``words(number)`` and
    ``is_same(number)``; of these one has looked, or looks next, and their
    words are what is there when this is made."""

    def __init__(self, things, many=()):
        self._things: list = []  # by word
        self._numbers: list = []  # of each, or None
        self._others: list = []  # that have no words
        self._other_numbers: list = []
        addresses: list = []
        for thing in things:
            self._put(thing, None, thing.words(), addresses)
        self._is_new = bool(addresses)
        # At first others than what is there, as nobody has looked.
        values = [~_word(address).value & _ALL for address in addresses]
        for each in many:
            for number in range(len(each)):
                self._put(each, number, each.words(number), addresses)
        values += [_word(address).value
                   for address in addresses[len(values):]]
        self._compare(addresses, values)

    def _compare(self, addresses, values) -> None:
        self._count = len(addresses)
        self._values = (ctypes.c_uint64 * self._count)(*values)
        self._addresses = (ctypes.c_void_p * self._count)(*addresses)
        self._first_other = functools.partial(
            _compare(), ctypes.pointer(self._addresses),
            ctypes.pointer(self._values), ctypes.c_uint32(self._count)) \
            if addresses else int

    def _put(self, thing, number, words: list, addresses: list) -> None:
        for address in words:
            self._things.append(thing)
            self._numbers.append(number)
            addresses.append(address)
        if not words:
            self._others.append(thing)
            self._other_numbers.append(number)

    def is_same(self) -> bool:
        """Raises what a look into one does."""
        i = self._first_other()
        if i < self._count and not self._are_written_same(i):
            return False
        for thing, number in zip(self._others, self._other_numbers):
            if not _is_same(thing, number):
                return False
        return True

    def _are_written_same(self, i: int) -> bool:
        if self._is_new:  # which all of them are by then
            for i in range(i, self._count):
                if not self._is_written_same(i):
                    return False
            self._is_new = False
            i = self._first_other()
        while i < self._count:
            if not self._is_written_same(i):
                return False
            i = self._first_other()
        return True

    def _is_written_same(self, i: int) -> bool:
        value = _word(self._addresses[i]).value
        is_same = _is_same(self._things[i], self._numbers[i])
        if is_same:
            self._values[i] = value
        return is_same


class AtOnce(Words):
    """Some Words, of which one comparison asks, as others replace them."""

    def __init__(self):
        super().__init__(())
        self._each: tuple | None = None

    def are_same(self, *each) -> bool:
        """All of these; None: of nothing that is known yet."""
        if each == self._each and self._first_other() == self._count:
            for words in self._others:
                if not words.is_same():
                    return False
            return True
        self._each = None
        for words in each:
            if words is None or not words.is_same():
                return False
        # What is there for who has just looked, as each of them has it.
        whole = [words for words in each if not words._others]
        self._others = [words for words in each if words._others]
        self._compare([a for words in whole for a in words._addresses],
                      [v for words in whole for v in words._values])
        self._each = each  # and holds what is compared
        return True


def _is_same(thing, number) -> bool:
    return thing.is_same() if number is None else thing.is_same(number)


@functools.cache
def _compare():
    """With the interpreter's lock, as it is the interpreter's memory."""
    return _abi.unconverted(_library.load().words_compare, ctypes.PYFUNCTYPE)


# ---- dicts -----------------------------------------------------------------


def version_of(names) -> list:
    """The word with the version of a dict, or of the dict of a class."""
    if type(names) is types.MappingProxyType:
        names, = gc.get_referents(names)
    return [id(names) + _VERSION] * (_HAVE_VERSIONS and type(names) is dict)


def used_of(names) -> list:
    """The word with the number of its items."""
    return [id(names) + _USED] * (_HAVE_USED and isinstance(names, dict))


class Empty:
    """A dict in which nothing is."""

    def __init__(self, names):
        self._names = names

    def words(self) -> list:
        return used_of(self._names)

    def is_same(self) -> bool:
        return not self._names


def _writes():
    """All that a dict can be told."""
    def to_attributes(names, thing):
        for i in range(64):  # which the interpreter comes to do otherwise
            thing.one = i

    yield from (
        lambda names, _: names.update(one=object()),
        lambda names, _: names.__setitem__("two", 1),
        lambda names, _: names.pop("two"),
        lambda names, _: names.setdefault("two", 1),
        lambda names, _: names.popitem(),
        lambda names, _: names.__delitem__("one"),
        lambda names, _: names.__ior__({"one": 1}),
        lambda names, thing: setattr(thing, "one", object()),
        to_attributes,
        lambda names, thing: delattr(thing, "one"),
        lambda names, thing: exec("three = 1", names),
        lambda names, thing: names.clear(),
    )


class _Thing:
    pass


class _Other:
    pass


def _have_words() -> tuple:
    """Whether a dict has its version there, and the number of its items."""
    if dict.__basicsize__ != _DICT:
        return False, False
    thing = _Thing()
    names = vars(thing)
    version, used = _word(id(names) + _VERSION), _word(id(names) + _USED)
    found, counts = [], [used.value == 0]
    for write in _writes():
        found.append(version.value)
        write(names, thing)
        names.get("one"), len(names), [*names.items()]
        found.append(version.value)
        counts.append(used.value == len(names))
    return sys.version_info < (3, 13) and found[1:-1:2] == found[2::2] \
        and all(a != b for a, b in zip(found[::2], found[1::2])), all(counts)


_HAVE_VERSIONS, _HAVE_USED = _have_words()


# ---- pointers --------------------------------------------------------------


class Field:
    """What look(thing) gives: an object, or for some looks a few."""

    def __init__(self, look, thing, values):
        self._look, self._thing, self._values = look, thing, values

    def words(self) -> list:
        return _at(self._thing, FIELDS.get(self._look, ()), self._values)

    def is_same(self) -> bool:
        return all(map(operator.is_, _found(self._look, self._thing),
                       self._values))


class Fields:
    """What look() gives for each of many, so many objects for each."""

    def __init__(self, look, things, values, count: int = 1):
        self._look, self._things, self._values = look, [*things], [*values]
        self._count = count

    def __len__(self) -> int:
        return len(self._things)

    def _values_of(self, number: int) -> list:
        return self._values[number * self._count:(number + 1) * self._count]

    def words(self, number: int) -> list:
        return _at(self._things[number], FIELDS.get(self._look, ()),
                   self._values_of(number))

    def is_same(self, number: int) -> bool:
        return all(map(operator.is_,
                       _found(self._look, self._things[number]),
                       self._values_of(number)))


_SEVERAL = defaults_of, hooks_of_leaf


def _found(look, thing) -> tuple:
    found = look(thing)
    return found if look in _SEVERAL else (found,)


def _at(thing, offsets, values) -> list:
    """Addresses, where the values are all there; None is no pointer."""
    addresses = [id(thing) + offset for offset in offsets]
    is_there = all(_word(at).value == (0 if value is None else id(value))
                   for at, value in zip(addresses, values))
    return addresses if is_there else []


def _offsets(look, make, write) -> tuple:
    """Where in one of its kind look() finds what it gives; nowhere, if
    something else is there, or it is in more than one place."""
    found = set()
    for _ in range(2):
        thing = make()
        for _ in range(2):
            words = [_word(at).value for at in range(
                id(thing), id(thing) + type(thing).__basicsize__ - 7, 8)]
            values = _found(look, thing)
            if any(words.count(id(value)) != 1 for value in values):
                return ()
            found.add(tuple(8 * words.index(id(v)) for v in values))
            write(thing)
    return found.pop() if len(found) == 1 else ()


def _give_defaults(function):
    function.__code__ = eval("lambda: 1").__code__  # a new one each time
    function.__defaults__, function.__kwdefaults__ = (object(),), {}
    return function


def _give_hooks(leaf) -> None:
    leaf.register_hook(id)
    leaf.register_post_accumulate_grad_hook(id)


def _make_leaf():
    with torch.inference_mode(False):
        leaf = torch.zeros(1, device="cpu", requires_grad=True)
    _give_hooks(leaf)
    return leaf


FIELDS = {look: _offsets(look, make, write) for look, make, write in (
    (type, _Thing, lambda thing: setattr(thing, "__class__", _Other)),
    (mro_of, lambda: type("Kind", (_Thing,), {}),
     lambda kind: setattr(kind, "__bases__", (_Other,))),
    (contents_of, lambda: types.CellType(object()),
     lambda cell: setattr(cell, "cell_contents", object())),
    (defaults_of, lambda: _give_defaults(lambda: 1), _give_defaults),
    (hooks_of_leaf, _make_leaf, _give_hooks))}
