"""Whether many objects are the same ones, asked at once.

A guard asks that of some hundred objects before each replay.  The objects in a
tuple are a run of pointers, which C compares as one piece of memory; where
they cannot be found so, they are compared one by one.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import operator
import struct

_ITEMS = tuple.__basicsize__  # where the first one is in a tuple
_POINTER = struct.calcsize("P")
_WORDS = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t


def _one_by_one(now: tuple, then: tuple) -> bool:
    return len(now) == len(then) and all(map(operator.is_, now, then))


def _at_once(now: tuple, then: tuple) -> bool:
    return len(now) == len(then) and not _compare(
        id(now) + _ITEMS, id(then) + _ITEMS, len(then) * _POINTER)


def _finds_items() -> bool:
    """Whether they are there in this interpreter."""
    objects = object(), object(), object()
    try:
        found = ctypes.string_at(id(objects) + _ITEMS, 3 * _POINTER)
    except (AttributeError, TypeError, ValueError):
        return False
    return tuple.__itemsize__ == _POINTER \
        and struct.unpack("3P", found) == (*map(id, objects),)


try:
    _compare = ctypes.PyDLL(None).memcmp
    _compare.argtypes = _WORDS
    are_same = _at_once if _finds_items() else _one_by_one
except (AttributeError, OSError):
    are_same = _one_by_one
are_same.__doc__ = "Of two tuples, whether they have the same objects in the" \
    " same order."
