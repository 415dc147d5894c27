"""What layers can read of an object, of a class, and of a module that is none
of their submodules: of each what has a name in a function that ran.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import functools
import types

import torch

from ..base import private
from ..base.names import is_of_others, package
from . import snapshot
from .attributes import PLAIN
from .reachable_values import Found
from .snapshot import GONE
from .kinds import makes_attributes, slots

# What others write into a config beside what layers read: saving a model of
# Hugging Face's, and the clocks of Megatron's trainer and what its schedules
# call, which is bound to all chunks of a model.
_NOT_READ = frozenset((
    "architectures", "dtype", "torch_dtype", "transformers_version", "timers",
    "no_sync_func", "grad_sync_func", "param_sync_func",
    "finalize_model_grads_func", "grad_scale_func", "moe_grad_scale_func",
    "mtp_grad_scale_func"))
_FUNCTION = types.FunctionType


def of_object(thing, ran, told=()) -> Found:
    """Without attributes that calls are told of."""
    found = Found(ran)
    found.add_kind(".", thing)
    read_of = ran.read_of
    if makes_attributes(type(thing)):  # of others, of any name
        read_of = list
    names = snapshot.attributes_of(thing, found.held)
    if isinstance(names, dict):
        deep = package(type(thing)) != "torch"  # whose insides are torch's
        keys = [k for k in read_of(names)
                if k not in _NOT_READ and k not in told
                and (deep or type(names[k]) in PLAIN)]
        found.add_all(names, ".", keys)
    found.beside.append(slots(type(thing)))
    names = [k for k in read_of(slots(type(thing))) if k not in told]
    if names:
        found.held.put_all(snapshot.slots_of, (thing, names))
    for key in names:
        value = getattr(thing, key, GONE)
        if value is not GONE:
            found.add(f".{key}", value)
    return found.finish()


def of_class(kind, ran) -> Found:
    """One of modules: its attributes and methods, and what they read."""
    return _of_class(kind, ran).finish()


def of_objects_class(kind, ran) -> Found:
    """The same; where it is not known which of them ran, not what they read:
    a config of Hugging Face's has hundreds, of which layers call none."""
    found = _of_class(kind, ran)
    return found if ran.is_guessed else found.finish()


def _of_class(kind, ran) -> Found:
    found = Found(ran)
    found.add_bases(kind)
    found.add_all(vars(kind), ".", _read_of_class(vars(kind), ran))
    return found


def of_namespace(kind, ran) -> Found:
    """A class that somebody has in an attribute or a global."""
    found = Found(ran)
    found.add_bases(kind)
    for each in reversed(kind.__mro__):  # what is found first is named last
        if not is_of_others(each):
            names = vars(each)
            found.add_all(names, ".", [
                k for k in _read_of_class(names, ran)
                if not (ran.is_guessed and type(names[k]) is _FUNCTION)])
    return found.finish()


def _read_of_class(names, ran) -> list:
    """Python calls methods whose names have underscores by itself."""
    return [k for k, v in names.items() if not k.startswith("_abc_") and (
        ran.reads(k) and not k.startswith("__")
        or k.startswith("__") and k != "__init__" and type(v) is _FUNCTION)]


def of_module(module, ran) -> Found:
    """One that is no submodule: all that it has, hooks left out."""
    found = Found(ran)
    found.add_module(".", module)
    for registry in private.registries_of(module):
        found.held.put(registry, list(registry))
        for key, value in registry.items():
            if not isinstance(value, torch.nn.Module):
                found.add(f".{key}", value)
    return found.finish()


def of_around(module, ran) -> Found:
    """One that the layer itself is in."""
    found = Found(ran)
    found.add_around(".", module)
    inner = private.submodules_of(module)
    found.beside.append(inner)
    found.held.put(inner, [k for k in inner if k in ran.names])
    for key in inner:
        if key in ran.names:
            found.add(f".{key}", inner[key])
    return found.finish()


def of_function(function, ran) -> Found:
    """One that ran, and of which nothing else has told."""
    found = Found(ran)
    found.add("", function)
    return found.finish()


def classes(things) -> list:
    """Those of users; what torch and Python have is theirs."""
    return list({kind: None for one in {type(thing): None for thing in things}
                 for kind in _of_users(one)})


@functools.lru_cache(maxsize=None)
def _of_users(kind) -> tuple:
    return tuple(each for each in kind.__mro__ if not is_of_others(each))
