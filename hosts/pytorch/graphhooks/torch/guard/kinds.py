"""What kind of thing a value is: whether there is something in it to look at.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import enum
import functools
import io
import types

import torch

from ..base.names import is_of_others, package
from .attributes import CONTAINERS, PLAIN

# Objects of these packages are not looked into.  Megatron has mocks of
# unittest in the place of packages that are missing.
_OPAQUE = frozenset(("threading", "_thread", "weakref", "_weakrefset",
                     "concurrent", "multiprocessing", "asyncio", "queue",
                     "contextvars", "unittest", "graphhooks"))


def has_values(thing) -> bool:
    """Whether it is an object with attributes, and no way to make some."""
    kind = type(thing)
    if hasattr(kind, "__get__") or package(kind) in _OPAQUE:
        return False
    return isinstance(getattr(thing, "__dict__", None), dict) \
        or bool(slots(kind))


@functools.lru_cache(maxsize=None)
def slots(kind) -> tuple:
    """Names of attributes that are in no dict."""
    return tuple(name for each in kind.__mro__
                 for name, value in vars(each).items()
                 if isinstance(value, types.MemberDescriptorType)
                 and not is_of_others(each))


def is_plain(value, deep: int = 3) -> bool:
    """Whether it is one of the plain values, or has nothing else, in so many
    containers in one another."""
    kind = type(value)
    if kind in PLAIN or isinstance(value, enum.Enum) \
            or kind.__module__ == "numpy" and hasattr(value, "tobytes"):
        return True
    if deep == 0 or not (kind in CONTAINERS or kind is tuple):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return all(is_plain(each, deep - 1) for each in inner)


def is_iterator(value, kind) -> bool:
    """One that hides how far it has come."""
    step = getattr(kind, "__next__", None)
    return step is not None and package(kind) not in _OPAQUE \
        and not isinstance(value, (io.IOBase, torch.Tensor)) \
        and not isinstance(step, types.FunctionType)
