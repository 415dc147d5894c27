"""What an engine's work writes to objects beside the modules that it uses, and
the rest of a layer reads: a replay puts the same there.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import enum
import types

import torch

from ..base import private
from ..base.tree import Passing
from ..guard.attributes import is_unknown, leaves_of
from ..guard.flags import noting

_DEEP = 2  # objects within those that a module has
_NONE = type, types.ModuleType, types.FunctionType, torch.Tensor, enum.Enum


@contextlib.contextmanager
def noted(instance, sites):
    """Sets `instance.written`: attributes of objects, and the values that the
    modules of the sites have set there.  That something is set counts, whether
    or not it is what was there."""
    found: set = set()
    kinds: dict = {}
    swapped: list = []
    for thing in [t for site in sites for t in (
            *_beside(site.module), *_of_regions(site))]:
        kind = type(thing)
        try:
            if kind not in kinds:
                kinds[kind] = noting(kind, found)
            thing.__class__ = kinds[kind]
        except TypeError:
            continue  # a class of C's, or one with slots
        swapped.append((thing, kind, dict(vars(thing))))
    try:
        yield
    finally:
        for thing, kind, _ in swapped:
            thing.__class__ = kind
    instance.written = [(vars(thing), values)
                        for thing, _, before in swapped
                        if (values := _values(thing, before, found))]


def _values(thing, before, found: set) -> dict:
    names = vars(thing)
    values = {n: names[n] for n in names if (id(thing), n) in found}
    for name, value in values.items():
        if value is not before.get(name) and any(
                isinstance(leaf, torch.Tensor) for leaf in leaves_of(value)):
            raise Passing(f"it leaves another tensor in an attribute, {name}, "
                          "which a replay would not: return it instead, or "
                          "copy it into a buffer")
    # Of what nothing is known it may be of this call alone.
    return {name: value for name, value in values.items()
            if not any(map(_is_of_its_own, leaves_of(value)))}


def _is_of_its_own(leaf) -> bool:
    return isinstance(leaf, torch.Tensor) or is_unknown(leaf)


def _of_regions(site) -> tuple:
    return () if site.quantized is None else (site.quantized.left,)


def _beside(body) -> list:
    """Objects of which a body's work may write attributes: its owner, the
    modules of that which are none of the body's, what these have, and what
    its caller has named."""
    if not hasattr(body, "be_of"):
        return []
    found = {id(thing): thing for thing in body.left_in}
    owner = body.owner
    if owner is None or not hasattr(owner, "__dict__"):
        return [*found.values()]
    own = {id(m) for m in body.modules()}
    for thing in owner.modules() if isinstance(owner, torch.nn.Module) \
            else [owner]:
        if id(thing) not in own:
            _add(thing, found, _DEEP)
    return [*found.values()]


def _add(thing, found: dict, deep: int) -> None:
    found[id(thing)] = thing
    for name, value in vars(thing).items() if deep else ():
        if name in private.REGISTRIES or id(value) in found \
                or isinstance(value, (*_NONE, torch.nn.Module)) \
                or not hasattr(value, "__dict__"):
            continue
        _add(value, found, deep - 1)
