"""What can be read in Python from a value and from what it leads to: values by
name, and where they are.

The walk is made once, at the recording, and again when something is another
than it was.  It goes into containers, and into what functions and methods
carry; objects, classes and modules that it meets are looked at by themselves,
as several may have them (shared_objects.py).

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import array
import builtins
import collections
import contextvars
import enum
import functools
import gc
import io
import logging
import operator
import random
import types
import weakref

import torch

from ..base import private
from ..base.names import (is_of_others, namespaces, package, within,
                          written_by)
from . import snapshot
from .attributes import CONTAINERS, PLAIN, comparable, exact, is_unknown
from .draws import is_generator
from .snapshot import Held
from .kinds import has_values, is_iterator
from .mutable import BASES, Mutable, base_of
from .ran import ANY, more_than
from .words import contents_of, defaults_of, mro_of

# What torch keeps in a module; hooks and parameters are looked at elsewhere.
INTERNAL = frozenset(vars(torch.nn.Module())) - {"training"}
_NOT_AROUND = INTERNAL | {"forward"}  # which calls the layer
# Objects there have what the rest of a model leaves in them.
_AROUND = (*PLAIN, torch.Tensor, functools.partial, types.FunctionType,
           types.MethodType)
_NO_OBJECTS = (enum.Enum, torch.Generator, types.ModuleType, logging.Logger,
               io.IOBase, private.TreeSpec, torch.optim.Optimizer)
_WRAPPED = (staticmethod, classmethod)
_PARTIAL = (functools.partial, functools.partialmethod)
_VIEWS = (type({}.keys()), type({}.values()), type({}.items()))
_BUILTIN = (types.BuiltinFunctionType, types.MethodWrapperType)
_DEEP = 32  # containers in one another
_OF_WEIGHTS = (int, float, str)  # flags are set and taken back in each step
_GETTERS = (operator.attrgetter, operator.methodcaller)
_MUCH = 1 << 16  # bytes in the host's memory
_RAW = (bytearray, array.array)
_SELF = ("__self__",)
_version = private.version
_default = operator.attrgetter("default_factory")


class Part:
    """Values of one thing by name, and what can be compared of each.  Nobody
    writes one that is made: whoever finds the same has the same object."""

    __slots__ = ("values", "bits", "tensors", "_but")

    def __init__(self, values: dict, bits: dict):
        self.values, self.bits = values, bits
        self._but: tuple = None, None  # the last answer, and of which part
        self.tensors = {name: value for name, value in values.items()
                        if isinstance(value, torch.Tensor)}

    def but(self, other: "Part | None") -> "Part":
        """With what the other has of the same names."""
        if other is None:
            return self
        known, found = self._but
        if known is not other:
            bits, values = ({name: item for name, item in theirs.items()
                             if name in mine}
                            for mine, theirs in ((self.bits, other.bits),
                                                 (self.values, other.values)))
            found = self
            if {**self.bits, **bits} != self.bits:
                found = Part({**self.values, **values}, {**self.bits, **bits})
            self._but = other, found
        return found


NOTHING = Part({}, {})


class Found:
    """Values by name, where they are, and what is to be looked at besides."""

    def __init__(self, ran=ANY):
        self.ran = ran  # what functions did
        self.codes: set = set()  # of functions that were looked into
        self.named: set = set()  # attributes that attrgetter() reads
        self.held = Held()
        self.values: dict = {}
        self._part: Part | None = None  # of all values
        self._parts: dict | None = None  # of things besides
        self.objects: dict = {}  # by name
        self.modules: dict = {}  # that are not submodules
        self.weak: dict = {}  # references to others
        self.generators: dict = {}  # of random numbers
        self.classes: dict = {}
        self.unfit: dict = {}  # what nobody can compare
        self.shared: list = []  # names of things, those, and what each has
        self.weights: list = []  # in dicts and lists: those, and their keys
        # What nobody reads, as far as is known: functions that have not run,
        # and names beside those that are read.
        self.idle: set = set()
        self.beside: list = []
        self._seen: set = set()  # containers that are held
        self._inside: set = set()  # which holds itself, if it comes again
        self._kept: list = []  # alive, as the two are numbers
        self._mutable = Mutable()
        self._functions: list = []  # to be looked into
        self._far = 0  # functions on the way to what is at hand

    def part(self) -> Part:
        """The values, to be compared; when all is found."""
        if self._part is None:
            self._part = Part(self.values, {
                name: exact(value) if type(value) in PLAIN
                else bits_of(value) for name, value in self.values.items()})
        return self._part

    def parts(self) -> dict:
        """The same of all things that have been found, by their names; the
        first has none."""
        if self._parts is None:
            self._parts = {name: inner.part()
                           for name, _, inner in self.shared}
        return {"": self.part(), **self._parts}

    def is_all_of(self, ran) -> bool:
        """Whether it would be the same of functions that are more than those
        it was made for."""
        if ran is self.ran:
            return True
        more = more_than(self.ran, ran)
        return more is not None and self.idle.isdisjoint(more[1]) \
            and all(map(more[0].isdisjoint, self.beside))

    def again(self, ran) -> "Found":
        """The same, to which more is added."""
        other = Found(ran)
        other._part, other.values, other.held = self.part(), self.values, \
            self.held
        other.objects, other.modules, other.weak, other.classes = \
            self.objects, self.modules, self.weak, self.classes
        other._mutable, other._kept = self._mutable, self._kept
        for name in "codes", "named", "generators", "unfit", "weights":
            setattr(other, name, getattr(self, name).copy())
        return other

    def hold_too(self, others) -> None:
        """What these have."""
        own, self.held = self.held, Held()
        for each in own, *others:
            self.held.add(each)

    def take(self, shared: "Found") -> None:
        """What is found beside its own."""
        self.shared, self._parts = shared.shared, shared._parts
        self.codes |= shared.codes
        self.named |= shared.named
        self.weights += shared.weights
        self.generators.update(shared.generators)
        self.unfit.update(shared.unfit)

    def copies(self) -> list:
        """Of what is now in containers, arrays, cells and globals: functions
        that put it back."""
        return self._mutable.copies()

    def add_kind(self, prefix: str, thing) -> None:
        self.held.put_one(type, thing)
        self.values[f"{prefix}__class__"] = type(thing)

    def add_bases(self, kind) -> None:
        """Of a class, all that it has attributes of."""
        self.held.put_one(mro_of, kind)
        self.values[".__mro__"] = kind.__mro__

    def add_module(self, prefix: str, module, leave_out=frozenset()) -> None:
        """Its own attributes, a forward of ours left out."""
        self.add_kind(prefix, module)
        names = vars(module)
        if package(type(names.get("forward"))) == "graphhooks":
            leave_out |= {"forward"}
        if package(type(module)) == "graphhooks":
            self.add(f"{prefix}run", module.run)
            if module.layer is not None:
                self.add_around(prefix, module.layer)
            return
        self.add_all(names, prefix,
                     self.ran.read_of(names, INTERNAL | leave_out))
        for key, weight in private.parameters_of(module).items():
            names = vars(weight) if weight is not None else {}
            keys = [k for k in self.ran.read_of(names)
                    if type(names[k]) in _OF_WEIGHTS]
            if names:
                self.beside.append(names)
                self.held.put(names, keys)
            for name in keys:
                self.add(f"{prefix}{key}.{name}", names[name])

    def add_around(self, prefix: str, module) -> None:
        """Of one that the layer itself is in, what has a name in a function
        that ran: whoever trains it may keep counters there, too."""
        self.add_kind(prefix, module)
        self._add_named(prefix, module)
        for registry in private.registries_of(module)[:2]:
            self.add_all(registry, prefix, self.ran.named(registry))

    def _add_named(self, prefix: str, module) -> None:
        names = vars(module)
        # Where nothing is known of what ran, any of its methods may have.
        written = written_by(type(module)) if self.ran.is_guessed \
            else self.ran.written
        self.add_all(names, prefix, [
            k for k in self.ran.named(names)
            if k not in _NOT_AROUND and k not in written
            and isinstance(names[k], _AROUND)])

    def add_all(self, names, prefix: str, keys) -> None:
        self.beside.append(names)
        self.held.put(names, keys)
        for key in keys:
            value = names[key]
            if type(value) in PLAIN:  # as most are
                self.values[f"{prefix}{key}"] = value
                continue
            if isinstance(value, property):
                self.add(f"{prefix}{key}.fget", value.fget)
            elif isinstance(value, _WRAPPED):
                value = value.__func__
            elif isinstance(value, functools.cached_property):
                value = value.func
            self._note_weight(names, key, value)
            self.add(f"{prefix}{key}", value)

    def _note_weight(self, names, key, value) -> None:
        # Whether it is a parameter is slow to ask.
        if isinstance(value, torch.Tensor) and type(names) in (dict, list) \
                and isinstance(value, torch.nn.Parameter):
            self.weights.append((names, key, value))

    def add(self, name: str, value) -> None:
        kind = type(value)
        if kind in PLAIN:
            self.values[name] = value
        elif kind in weakref.ProxyTypes:  # which say that they are others
            self._add_proxied(name, value)
        elif isinstance(value, BASES):
            self._add_container(name, value, kind)
        elif kind in _PARTIAL:
            self.values[name] = kind
            self._add_parts(name, value, ("func", "args", "keywords"))
        elif kind is types.MethodType:
            self.values[name] = value
            if self._may_read_self(value):
                self._add_parts(name, value, ("__self__", "__func__"))
        elif kind is types.FunctionType:
            self.values[name] = value
            if not self.ran.has(value, self._far):
                self.idle.add(value.__code__)
            elif self._is_new(value):
                self._functions.append((name, value, self._far + 1))
                self._add_attributes(name, value)
        elif kind in _BUILTIN:
            self.values[name] = value
            if not isinstance(value.__self__, (types.ModuleType, type,
                                               type(None))):
                self._add_parts(name, value, ("__self__",))
        else:
            self.values[name] = value
            self._add_other(name, value, kind)

    def _may_read_self(self, method) -> bool:
        """Whether something has read what a method is bound to, as the method
        does once it runs."""
        code = getattr(method.__func__, "__code__", None)
        if code is None or self.ran.may_have(code) \
                or _SELF[0] in self.ran.names:
            return True
        self.idle.add(code)
        self.beside.append(_SELF)
        return False

    def _add_attributes(self, name: str, function) -> None:
        names = vars(function)
        self._mutable.put_container(names)
        self.add_all(names, f"{name}.", self.ran.named(names))

    def _add_parts(self, name: str, value, parts) -> None:
        if self._is_new(value):
            for part in parts:
                self.add(f"{name}.{part}", getattr(value, part))

    def _is_new(self, value) -> bool:
        if id(value) in self._seen:
            return False
        self._seen.add(id(value))
        self._kept.append(value)
        return True

    def _add_other(self, name: str, value, kind) -> None:
        if isinstance(value, torch.nn.Module):
            self.modules[name] = value
        elif is_generator(value):
            self.generators[name] = value
        elif isinstance(value, random.SystemRandom):
            self.unfit[name] = "random numbers of the system"
        elif isinstance(value, torch.Tensor):
            self._add_tensor(name, value)
        elif kind.__module__ == "numpy" and hasattr(value, "tobytes"):
            self._add_array(name, value)
        elif isinstance(value, _RAW):
            self._add_raw(name, value)
        elif kind.__module__ == "packaging.version":  # made anew each time
            self.values[name] = str(value)
        elif kind in _GETTERS:
            self.named.update(name for text in value.__reduce__()[1]
                              if type(text) is str for name in text.split("."))
        elif kind is weakref.WeakMethod:
            self._add_weak_method(name, value)
        elif isinstance(value, weakref.ref):
            self._add_referent(name, value)
        elif kind in _VIEWS:
            for names in gc.get_referents(value):  # a dict
                self.add(f"{name}'s dict", names)
        elif kind is contextvars.ContextVar:
            self.held.see(snapshot.seen_of(value))
            self.held.put_one(snapshot.value_of, value)
            self.add(f"{name}'s value", snapshot.value_of(value))
        elif isinstance(value, type):
            if not is_of_others(value):
                self.classes[name] = value
        elif is_iterator(value, kind):
            self.unfit[name] = f"an iterator ({kind.__name__})"
        elif not isinstance(value, _NO_OBJECTS) and has_values(value):
            self._add_object(name, value)

    def _add_object(self, name: str, value) -> None:
        self.objects[name] = value
        if self.ran.matches:  # case Config(s)
            self.named.update(getattr(type(value), "__match_args__", ()))

    def _add_proxied(self, name: str, value) -> None:
        """A proxy gives what the other has, so its methods know the other."""
        self.values[name] = id(value)
        try:
            thing = value.__dir__.__self__
        except ReferenceError:
            return
        self._add_referent(name, weakref.ref(thing))

    def _add_weak_method(self, name: str, value) -> None:
        """It makes a method in each call."""
        method = value()
        if method is not None:
            self.add(f"{name}().__func__", method.__func__)
            self._add_referent(name, weakref.ref(method.__self__))

    def _add_referent(self, name: str, value) -> None:
        """Its attributes alone: it is to go when all others have let go."""
        thing = value()
        self.held.put_equal(_identity_of, value)
        self.values[f"{name}()"] = id(thing)
        names = getattr(thing, "__dict__", None)
        if isinstance(thing, torch.nn.Module):
            self.weak[f"{name}()"] = value
            self._add_named(f"{name}().", thing)
        elif isinstance(names, dict) and has_values(thing):
            self.add_all(names, f"{name}().", self.ran.read_of(names))

    # ---- containers -----------------------------------------------------

    def _add_container(self, name: str, value, kind) -> None:
        if isinstance(value, (set, frozenset)):
            self.values[name] = frozenset(value)
            if isinstance(value, set) and self._is_new(value):
                self.held.put(value, ())
                self.held.put_all(set.__iter__, value)
                self._mutable.put_container(value)
            for each in _iter(value):
                if isinstance(each, torch.Tensor) or is_unknown(each):
                    self.add(f"{name}'s {id(each)}", each)
            return
        self.values[name] = kind  # should it be empty
        if id(value) in self._inside or len(self._inside) == _DEEP:
            return
        self._inside.add(id(value))
        if self._is_new(value):
            self._hold(value, kind)
            if kind not in CONTAINERS and has_values(value):
                self._add_object(name, value)
        is_dict = isinstance(value, dict)
        inner = base_of(value).items(value) if is_dict \
            else enumerate(_iter(value))
        keys = []
        for i, (key, each) in enumerate(inner):
            self._note_weight(value, key, each)
            if type(key) in PLAIN:
                key = repr(key)
            else:
                self.add(f"{name}'s key {i}", key)
                key = f"key {i}"
            self.add(f"{name}[{key}]", each)
            keys.append(key)
        if is_dict and len(keys) > 1:
            self.values[f"{name}'s order"] = ", ".join(keys)
        if isinstance(value, collections.defaultdict):
            self.add(f"{name}'s default", value.default_factory)
        self._inside.remove(id(value))

    def _hold(self, value, kind) -> None:
        if not isinstance(value, tuple):
            self._mutable.put_container(value)
        if isinstance(value, collections.defaultdict):
            self.held.put_one(_default, value)
        if kind is collections.defaultdict:  # to ask for a key puts it in
            self.held.put_all(dict.__iter__, value)
            self.held.put_all(dict.values, value)
        elif kind in CONTAINERS:
            is_dict = isinstance(value, dict)
            self.held.put(value, list(value) if is_dict
                          else range(len(value)))
            if is_dict:  # an ordered one has an order of its own
                self.held.put_all(base_of(value).__iter__, value)
        elif not isinstance(value, tuple):  # a type of somebody's own
            self.held.put_all(_iter, value)
            if isinstance(value, dict):
                self.held.put_all(dict.values, value)

    # ---- memory of the host ---------------------------------------------

    def _add_tensor(self, name: str, value) -> None:
        """Graphs read what is on the GPU where it lies.  What is not has been
        read by the host."""
        if value.layout != torch.strided or not self._is_new(value):
            return
        if not on_host(value):
            self.held.put_equal(torch.Tensor.data_ptr, value)
            return
        self.held.put_equal(_written, value)
        if value.numel() == 1:
            what = value.item()
        elif value.numel() * value.element_size() <= _MUCH:
            what = _bytes_of(value)
        else:
            what = _version(value)
        self.values[f"{name} (content)"] = what

    def _add_array(self, name: str, value) -> None:
        if self._is_new(value) and value.nbytes <= _MUCH:
            self.held.put_equal(comparable, value)
            self.values[f"{name} (content)"] = value.tobytes()
            if value.dtype == object:
                self.held.put_all(_elements, value)
                for i, each in enumerate(_elements(value)):
                    self.add(f"{name}.flat[{i}]", each)
            if value.shape:
                self._mutable.put_other(lambda: functools.partial(
                    operator.setitem, value, ..., value.copy()))

    def _add_raw(self, name: str, value) -> None:
        if self._is_new(value) and len(value) <= _MUCH // 8:
            self.held.put_equal(bytes, value)
            self.values[f"{name} (content)"] = bytes(value)
            self._mutable.put_other(lambda: functools.partial(
                operator.setitem, value, slice(None), value[:]))

    # ---- functions ------------------------------------------------------

    def finish(self) -> "Found":
        """What functions read besides their arguments: what they have from
        where they were made, defaults, and globals."""
        while self._functions:
            name, function, self._far = self._functions.pop()
            self.held.put_all(defaults_of, function)
            for i, value in enumerate(function.__defaults__ or ()):
                self.add(f"{name}'s default {i}", value)
            self.add(f"{name}'s defaults", function.__kwdefaults__)
            self.codes.update((function.__code__, *within(function.__code__)))
            self._add_cells(name, function)
            for inner, names, read in namespaces(function):
                self._add_globals(f"{name}'s {inner}", names, read)
        return self

    def _add_cells(self, name: str, function) -> None:
        for free, cell in zip(function.__code__.co_freevars,
                              function.__closure__ or ()):
            if cell != types.CellType() and free != "__class__":
                self.held.put_one(contents_of, cell)
                self._mutable.put_cell(cell)
                self.add(f"{name}'s {free}", cell.cell_contents)

    def _add_globals(self, name: str, names, read) -> None:
        keys = [k for k in read if k in names
                and self._is_new_global(names, k)]
        self.held.put_items(names, keys)
        for key in read:
            if key not in names and not hasattr(builtins, key):
                self.held.put_one(snapshot.item_of, (names, key))
        self._mutable.put_globals(names, keys)
        for key in keys:
            self.add(f"{name}{key}", names[key])

    def _is_new_global(self, names, key: str) -> bool:
        place = id(names), key  # of modules, which stay
        if place in self._seen:
            return False
        self._seen.add(place)
        return True


def _iter(value):
    """Past what a type of somebody's own makes of it."""
    return base_of(value).__iter__(value)


def _elements(array) -> list:
    return array.ravel().tolist()


def bits_of(value):
    """Of a tensor, which it is and where; of others what is in them."""
    if isinstance(value, torch.Tensor) and value.layout == torch.strided:
        return id(value), torch.Tensor.data_ptr(value)
    return exact(value)


def on_host(tensor) -> bool:
    return not tensor.is_cuda


def _identity_of(reference) -> int:
    return id(reference())


def _written(tensor) -> tuple:
    return tensor.data_ptr(), \
        0 if tensor.is_inference() else _version(tensor)


def _bytes_of(tensor) -> bytes:
    flat = tensor.detach().resolve_neg().contiguous().flatten()
    return bytes(flat.view(torch.uint8).tolist())
