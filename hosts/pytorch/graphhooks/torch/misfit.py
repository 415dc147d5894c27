"""In words, how a call differs from the recorded ones.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from . import tree

_OF_A_TENSOR = ("shape", "strides", "dtype", "requires_grad")


def describe(recorded: list, key: list, args, kwargs) -> str:
    """The first argument that differs, as it is and as it was recorded.  The
    keys are those of Segment._fit()."""
    at = next((i for i, pair in enumerate(zip(recorded, key))
               if pair[0] != pair[1]), None)
    if at is None:
        return f"it has {'more' if len(key) > len(recorded) else 'fewer'} " \
            "arguments than when it was recorded"
    return f"{_name(at, args, kwargs)}: {_change(recorded[at], key[at])}"


def _name(at: int, args, kwargs) -> str:
    """Of what is at this place in the key."""
    tensors, seen = [], [None]
    if at == 0:
        return "autocast"
    for i, arg in enumerate(args):
        tree.gather(arg, tensors, seen)
        if at < len(seen):
            return f"argument {i}"
    if at == len(seen):
        return "the names of its arguments"
    seen.append(None)
    for name, arg in kwargs.items():
        tree.gather(arg, tensors, seen)
        if at < len(seen):
            return f"argument {name}"
    raise IndexError(at)


def _change(then, now) -> str:
    if _is_tensor(then) and _is_tensor(now):
        for name, a, b in zip(_OF_A_TENSOR, then, now):
            if a != b:
                return f"{name} {_text(b)} now, {_text(a)} when recorded"
    return f"{_text(now)} now, {_text(then)} when recorded"


def _is_tensor(item) -> bool:
    return type(item) is tuple and len(item) == len(_OF_A_TENSOR)


def _text(item) -> str:
    if _is_tensor(item):
        return "a tensor"
    if isinstance(item, type):
        return item.__qualname__
    text = repr(tuple(item) if isinstance(item, tuple) else item)
    return text if len(text) <= 60 else text[:57] + "..."
