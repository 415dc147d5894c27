"""What a call of a layer is given, and other values, in words: for who is told
that something is another than when it was recorded.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import inspect
from types import BuiltinFunctionType

from ..base import switches, tree
from .attributes import PLAIN
from .snapshot import GONE

_LONG = 60  # letters of a value in a sentence
_ORDER = "the list of keyword arguments"


def describe(site, key, args, kwargs) -> dict:
    """Texts by name of all that two calls must agree in."""
    found = {**switches.in_words(*key[:2]),
             "training": str(site.module.training)}
    named = dict(zip(_names(site, len(args)), args))
    named.update(kwargs)
    tree.describe(named, found, {})
    found[_ORDER] = ", ".join(kwargs)
    return found


def _names(site, count: int) -> list:
    """Of positional arguments, as the forward calls them."""
    try:
        parameters = inspect.signature(site.forward).parameters.values()
    except (TypeError, ValueError):
        parameters = ()
    names = [p.name for p in parameters if p.kind in (
        p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][:count]
    return names + [f"argument {i}" for i in range(len(names), count)]


def difference(then: dict, now: dict) -> tuple:
    """The first name of which something differs, and a sentence."""
    name = next((n for n in {**now, **then} if now.get(n) != then.get(n)),
                _ORDER)
    was, is_now = (shortened(texts.get(name) or "none")
                   for texts in (then, now))
    return name, f"{name} is {is_now} in it and {was} in those"


def shortened(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[:_LONG]}..."


def in_words(value) -> str:
    kind = type(value)
    if value is GONE:
        return "not there"
    if kind in PLAIN or kind is frozenset:
        return shortened(repr(value))
    if isinstance(value, type):
        return f"a {value.__name__}"
    name = "__name__" if kind is BuiltinFunctionType else "__qualname__"
    return getattr(value, name, kind.__name__)
