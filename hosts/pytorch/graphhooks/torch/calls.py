"""What a call of a layer is given, in words: for who is told that a call
differs from those that are recorded.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import inspect

from . import tree
from .settings import shortened

_ORDER = "the list of keyword arguments"


def describe(site, key, args, kwargs) -> dict:
    """Texts by name of all that two calls must agree in."""
    found = {"autocast": str(key[0] or "off")}
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
