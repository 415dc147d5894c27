"""What kind of thing a value is: whether there is something in it to look at.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import functools
import io
import threading
import types

import torch

from ..base.names import is_of_others, package

# Objects of these packages are not looked into.  Megatron has mocks of
# unittest in the place of packages that are missing.
_OPAQUE = frozenset(("threading", "_thread", "weakref", "_weakrefset",
                     "concurrent", "multiprocessing", "asyncio", "queue",
                     "contextvars", "unittest", "graphhooks", "triton"))


def has_values(thing) -> bool:
    """Whether it is an object with attributes, and no way to make some."""
    kind = type(thing)
    if package(kind) in _OPAQUE and not isinstance(thing, threading.local) \
            or hasattr(kind, "__get__") and is_of_others(kind):
        return False
    return isinstance(getattr(thing, "__dict__", None), dict) \
        or bool(slots(kind))


@functools.lru_cache(maxsize=None)
def makes_attributes(kind) -> bool:
    """Whether some of its attributes are made of others, by any name."""
    return any(name in vars(each) for each in kind.__mro__
               if not is_of_others(each)
               for name in ("__getattr__", "__getattribute__"))


@functools.lru_cache(maxsize=None)
def slots(kind) -> tuple:
    """Names of attributes that are in no dict."""
    return tuple(name for each in kind.__mro__
                 for name, value in vars(each).items()
                 if isinstance(value, types.MemberDescriptorType)
                 and not is_of_others(each))


def is_iterator(value, kind) -> bool:
    """One that hides how far it has come."""
    step = getattr(kind, "__next__", None)
    return step is not None and package(kind) not in _OPAQUE \
        and not isinstance(value, (io.IOBase, torch.Tensor)) \
        and not isinstance(step, types.FunctionType)
