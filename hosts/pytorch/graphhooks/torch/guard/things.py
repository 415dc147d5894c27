"""What modules share: classes, objects such as a config, and modules that are
none of their submodules.

These are looked at once a microbatch for all segments, all of them at once.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import itertools

import torch

from .finders import (classes, of_class, of_module, of_namespace, of_object,
                      of_objects_class, of_read)
from .found import Found
from .held import GONE, Held
from .kinds import slots

_FAR = 4  # objects and classes that have one another


class Things:
    """Those of an attach."""

    def __init__(self):
        self.changes = 0  # that have been seen: a number for what they are
        self.is_due = True  # a microbatch has begun
        # By identity: it, and what finds its values.
        self._things: dict = {}
        self._found: dict = {}
        self._all: Held | None = None  # what is held of them

    def gather(self, found: Found, own) -> None:
        """Adds to what is found in a segment's own modules what is found in
        all that these lead to."""
        waiting = [(kind.__name__, kind, of_class, 1)
                   for kind in classes(own)] + _next_of("", found, own, 1)
        seen, names = set(), set()
        while waiting:
            name, thing, find, far = waiting.pop(0)
            if (id(thing), find) in seen:
                continue
            seen.add((id(thing), find))
            name = _another(name, names)
            names.add(name)
            inner = self._know(thing, find)
            for key, value in inner.values.items():
                found.values[_another(f"{name}{key}", found.values)] = value
            found.generators.update(_prefixed(name, inner.generators))
            found.unfit.update(_prefixed(name, inner.unfit))
            if far < _FAR:
                waiting += _next_of(name, inner, own, far + 1)

    def _know(self, thing, find) -> Found:
        key = id(thing), find
        if key not in self._things:
            self._things[key] = thing, find
            self._found[key] = find(thing)
            self._all = None
        return self._found[key]

    def copies(self) -> list:
        """Of what they have now: each with what puts it back."""
        return [_copy(thing, find(thing))
                for thing, find in self._things.values()]

    def look(self) -> None:
        self.is_due = False
        if self._all is not None and self._all.is_same():
            return
        self._all = Held()
        before = self.changes
        for key, found in self._found.items():
            if not found.held.is_same():
                thing, find = self._things[key]
                self._found[key] = find(thing)
                self.changes += found.bits() != self._found[key].bits()
            self._all.add(self._found[key].held)
        if self.changes != before:
            self._forget()

    def _forget(self) -> None:
        """What there was: all segments gather anew after a change, and what
        none of them comes upon again would stay for ever."""
        self._things, self._found, self._all = {}, {}, None


def _next_of(prefix: str, found: Found, own, far: int) -> list:
    """What is to be looked at besides, each with its name."""
    waiting = [(f"{prefix}{name}", thing, of_object, far)
               for name, thing in found.objects.items()]
    waiting += [(f"{prefix}{name}", thing, of_read, far)
                for name, thing in found.read.items()]
    waiting += [(f"{prefix}{name}", kind, of_namespace, far)
                for name, kind in found.classes.items()]
    waiting += [(kind.__name__, kind, of_objects_class, far)
                for kind in classes(found.objects.values())]
    waiting += [(kind.__name__, kind, of_namespace, far)
                for kind in classes(found.read.values())]
    for name, module in found.modules.items():
        if module in own or _holds(module, own):
            continue
        for inner, each in module.named_modules():
            waiting.append((f"{prefix}{name}{inner and '.'}{inner}", each,
                            of_module, far))
            waiting += [(kind.__name__, kind, of_class, far)
                        for kind in classes([each])]
    return waiting


def _holds(module, own) -> bool:
    """The model that the segment's own modules are in."""
    return any(each in own for each in module.modules())


def _another(name: str, names) -> str:
    """With a number, where something else is called so."""
    if name not in names:
        return name
    return next(other for other in (f"{name} ({i})" for i
                                    in itertools.count(2))
                if other not in names)


def _prefixed(prefix: str, items: dict) -> dict:
    return {f"{prefix}{name}": item for name, item in items.items()}


# ---- after a recording that is none ----------------------------------------


def _copy(thing, found: Found):
    """A function that gives it the attributes of now again, if what is held
    of it is another."""
    before = _attributes(thing)
    inner = found.copies()

    def put_back():
        if found.held.is_same():
            return
        now = _attributes(thing)
        for name in {**before, **now}:
            if now.get(name, GONE) is not before.get(name, GONE):
                _put(thing, name, before.get(name, GONE))
        for put in inner:
            put()

    return put_back


def _attributes(thing) -> dict:
    found = dict(getattr(thing, "__dict__", ()))
    if not isinstance(thing, (type, torch.nn.Module)):
        for name in slots(type(thing)):
            if hasattr(thing, name):
                found[name] = getattr(thing, name)
    return found


def _put(thing, name: str, value) -> None:
    """A class has no dict to write; an object may forbid to set."""
    is_class = isinstance(thing, type)
    if is_class or name in slots(type(thing)):
        delete, put = (delattr, setattr) if is_class else (
            object.__delattr__, object.__setattr__)
        delete(thing, name) if value is GONE else put(thing, name, value)
    elif value is GONE:
        del vars(thing)[name]
    else:
        vars(thing)[name] = value
