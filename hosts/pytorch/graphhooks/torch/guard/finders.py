"""What layers can read of an object, of a class, and of a module that is none
of their submodules.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import enum
import types

import torch

from ..base import private
from ..base.names import is_of_others, package
from . import held
from .attributes import CONTAINERS, PLAIN
from .found import Found
from .held import GONE
from .kinds import is_plain, slots

# What others write into a config beside what layers read: saving a model of
# Hugging Face's, and the clocks of Megatron's trainer.
_NOT_READ = frozenset(("architectures", "dtype", "torch_dtype",
                       "transformers_version", "timers"))


def of_object(thing) -> Found:
    found = Found()
    found.add_kind(".", thing)
    names = getattr(thing, "__dict__", None)
    if isinstance(names, dict):
        deep = package(type(thing)) != "torch"  # whose insides are torch's
        keys = [k for k, v in names.items() if k not in _NOT_READ
                and (deep or type(v) in PLAIN)]
        found.held.put(names, keys)
        for key in keys:
            found.add(f".{key}", names[key])
    names = slots(type(thing))
    if names:
        found.held.put_all(held.slots_of, (thing, names))
    for key in names:
        value = getattr(thing, key, GONE)
        if value is not GONE:
            found.add(f".{key}", value)
    return found.finish()


def of_read(thing) -> Found:
    """An object that functions read: its plain values, as what else is in it
    is for others, such as the states of random numbers."""
    found = Found()
    names = getattr(thing, "__dict__", None)
    if isinstance(names, dict):
        keys = [k for k, v in names.items()
                if k not in _NOT_READ and is_plain(v)]
        found.held.put_items(names, keys)
        for key in keys:
            found.add(f".{key}", names[key])
    return found


def of_class(kind) -> Found:
    """One of modules: its methods, and what they read."""
    return _of_class(kind).finish()


def of_objects_class(kind) -> Found:
    """Its methods too, and not what they read: a config of Hugging Face's has
    hundreds, of which layers call none."""
    return _of_class(kind)


def _of_class(kind) -> Found:
    found = Found()
    names = vars(kind)
    keys = [k for k, v in names.items() if not k.startswith(("__", "_abc_"))
            or (k != "__init__" and type(v) is types.FunctionType)]
    found.held.put(names, keys)
    for key in keys:
        value = names[key]
        if isinstance(value, property):
            found.add(f".{key}.fget", value.fget)
        elif isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        found.add(f".{key}", value)
    return found


def of_namespace(kind) -> Found:
    """A class that somebody has in an attribute or a global: its numbers,
    texts and containers."""
    found = Found()
    for each in reversed(kind.__mro__):  # what is found first is named last
        if not is_of_others(each):
            names = vars(each)
            found.add_all(names, ".", [
                k for k, v in names.items() if k.startswith("__") or not (
                    type(v) in PLAIN or type(v) in CONTAINERS
                    or isinstance(v, enum.Enum))])
    return found


def of_module(module) -> Found:
    """One that is no submodule: all that it has, hooks left out."""
    found = Found()
    found.add_module(".", module)
    for registry in private.registries_of(module):
        found.held.put(registry, list(registry))
        for key, value in registry.items():
            if not isinstance(value, torch.nn.Module):
                found.add(f".{key}", value)
    return found.finish()


def classes(things) -> list:
    """Those of users; what torch and Python have is theirs."""
    return list({kind: None for thing in things
                 for kind in type(thing).__mro__ if not is_of_others(kind)})
