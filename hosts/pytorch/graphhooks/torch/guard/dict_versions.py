"""Whether dicts have been written, without a look at what is in them.

CPython to 3.12 has a number in each dict, which is another after each change.
A later one has none, and there nobody is told.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import gc
import sys
import types

_AT = 24  # in a dict: after its references, its type, and its size


def version_of(names):
    """The number of a dict, or of the dict of a class, as an object whose
    ``value`` it is, for as long as the dict is there; None: it has none."""
    if type(names) is types.MappingProxyType:
        names, = gc.get_referents(names)
    if type(names) is not dict or not _HAVE_VERSIONS:
        return None
    return _version(names)


def _version(names: dict):
    return ctypes.c_uint64.from_address(id(names) + _AT)


class _Thing:
    pass


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


def _have_versions() -> bool:
    if sys.version_info >= (3, 13) or dict.__basicsize__ != _AT + 3 * 8:
        return False
    thing = _Thing()
    names = vars(thing)
    number, found = _version(names), []
    for write in _writes():
        found.append(number.value)
        write(names, thing)
        names.get("one"), len(names), [*names.items()]
        found.append(number.value)
    return all(a != b for a, b in zip(found[::2], found[1::2])) \
        and found[1:-1:2] == found[2::2]


_HAVE_VERSIONS = _have_versions()
