"""What modules share: classes, objects such as a config, and modules that are
none of their submodules.

These are looked at once a microbatch for all segments, all of them at once.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import functools
import itertools
import types

import torch

from ..base.names import is_of_others
from .finders import (classes, of_around, of_class, of_function, of_module,
                      of_namespace, of_object, of_objects_class)
from .attributes import PLAIN
from .reachable_values import Found
from .snapshot import GONE, Held, at
from .kinds import slots
from .ran import Ran, functions_of, watched

# Objects and classes that have one another: where any function may have run,
# and where those that did are known.
_FAR, _VERY_FAR = 4, 64


class Things:
    """Those of an attach."""

    def __init__(self, told=None):
        self._told: dict = told or {}  # attributes that calls have, by type
        self.changes = 0  # that have been seen: a number for what they are
        self.is_due = True  # a microbatch has begun
        self.ran = Ran(frozenset())  # in passes that were watched
        self._latest = self.ran  # with those since the last look
        # By identity: it, and what finds its values.
        self._things: dict = {}
        self._found: dict = {}
        self._past: dict = {}  # the same of before the last change
        self._all = Held()  # what is held of those that stay as they are
        # Those that were others once: each is looked at by itself, as what
        # changes in each microbatch would have all held anew.
        self._loose: set = set()
        self._gathered: dict = {}  # by those that one begins with
        self._functions: dict = {}  # by their code

    def watching(self, is_recorded: bool):
        """Around a pass.  If a recording cannot be watched, any function may
        have run in it."""
        return watched(lambda codes: None if codes is None and not is_recorded
                       else self._note(codes), self)

    def _note(self, codes) -> None:
        """The modules may still have what others have lent them: nobody looks
        at anything now."""
        self._latest = self._latest.and_these(codes)

    def know(self, names) -> None:
        """That functions read these."""
        self._latest = self._latest.and_names(names)
        self.look()

    def gather(self, found: Found, own) -> None:
        """Adds to what is found in a segment's own modules what is found in
        all that these lead to."""
        waiting = [(kind.__name__, kind, of_class, 1)
                   for kind in classes(own)] + _next_of("", found, own, 1)
        if found.ran is not self.ran:  # at which nobody else looks
            shared = self._follow(waiting, found, own)
            found.hold_too(inner.held for *_, inner in shared.shared)
            found.take(shared)
            return
        key = frozenset(found.codes), tuple(
            (name, id(thing), find) for name, thing, find, _ in waiting)
        shared = self._gathered.get(key)
        if shared is None:
            shared = self._follow(waiting, found, own)
            shared.parts()
            # Which of a module is followed depends on who begins.
            if not any(each.modules or each.weak for each in (
                    found, *(inner for *_, inner in shared.shared))):
                self._gathered[key] = shared
        found.take(shared)

    def _follow(self, waiting: list, found: Found, own) -> Found:
        ran = found.ran
        seen, names, codes = set(), set(), {*found.codes}
        shared = Found(ran)
        is_over = ran.is_guessed
        while waiting or not is_over:
            if not waiting:
                waiting = [(f.__qualname__, f, of_function, 1)
                           for f in self._others(ran.missing(codes))
                           if not is_of_others(f)]
                is_over = True
                continue
            name, thing, find, far = waiting.pop(0)
            if (id(thing), find) in seen:
                continue
            seen.add((id(thing), find))
            name = _another(name, names)
            names.add(name)
            inner = self._know(thing, find, ran)
            codes.update(inner.codes)
            shared.named.update(inner.named)
            shared.weights += inner.weights
            shared.shared.append((name, thing, inner))
            if inner.generators:
                shared.generators.update(_prefixed(name, inner.generators))
            if inner.unfit:
                shared.unfit.update(_prefixed(name, inner.unfit))
            if far < (_FAR if ran.is_guessed else _VERY_FAR):
                waiting += _next_of(name, inner, own, far + 1)
        shared.codes = codes
        return shared

    def _others(self, codes) -> list:
        """Functions that have these codes."""
        new = [code for code in codes if code not in self._functions]
        for code in new:
            self._functions[code] = []
        if new:
            for function in functions_of(new):
                self._functions[function.__code__].append(function)
        return [function for code in codes
                for function in self._functions[code]]

    def _know(self, thing, find, ran) -> Found:
        if ran is not self.ran:
            return self._look_into(thing, find, ran)
        key = id(thing), find
        if key not in self._things:
            self._things[key] = thing, find
            _, found = self._past.pop(key, (None, None))
            if found is None or not found.held.is_same():
                found = self._find(key)
            self._found[key] = found
            self._all.add(found.held)
        return self._found[key]

    def _find(self, key) -> Found:
        thing, find = self._things[key]
        found = self._look_into(thing, find, self.ran)
        found.part()  # as it is now
        return found

    def _look_into(self, thing, find, ran) -> Found:
        told = self._told.get(type(thing)) if find is of_object else None
        return find(thing, ran) if told is None else find(thing, ran, told)

    def look(self) -> None:
        """Whether one has changed, by what functions read that were known to
        have run at the last look; and what more of them read from now on."""
        self.is_due = False
        self._look()
        if self._latest is not self.ran:
            self.ran, self._past = self._latest, {}
            for key, found in self._found.items():
                if not found.is_all_of(self.ran):
                    self._found[key] = self._find(key)
            self._hold()

    def _look(self) -> None:
        is_same = self._all.is_same()
        others = [key for key in (self._loose if is_same else self._found)
                  if not self._found[key].held.is_same()]
        if not others:
            self._past = {}
            return
        before = self.changes
        for key in others:
            found, now = self._found[key], self._find(key)
            self.changes += found.part().bits != now.part().bits
            self._found[key] = now
            self._loose.add(key)
        self._gathered = {}
        if self.changes != before:
            self._forget()
        if not is_same or self.changes != before:
            self._hold()

    def _hold(self) -> None:
        """What has been found is other than before."""
        self._gathered = {}
        self._all = Held()
        for key, found in self._found.items():
            if key not in self._loose:
                self._all.add(found.held)

    def _forget(self) -> None:
        """What there was: all segments gather anew after a change, and what
        none of them comes upon again would stay for ever."""
        self._past = {key: (thing, self._found[key])
                      for key, thing in self._things.items()}
        self._things, self._found = {}, {}
        self._loose.clear()


def _next_of(prefix: str, found: Found, own, far: int) -> list:
    """What is to be looked at besides, each with its name."""
    if not (found.objects or found.classes or found.modules or found.weak):
        return []
    waiting = [(f"{prefix}{name}", thing, of_object, far)
               for name, thing in found.objects.items()]
    known = classes(own) if found.classes else ()  # those of its own modules
    waiting += [(f"{prefix}{name}", kind, of_namespace, far)
                for name, kind in found.classes.items() if kind not in known]
    waiting += [(kind.__name__, kind, of_objects_class, far)
                for kind in classes([*found.objects.values(),
                                     *found.classes.values()])]
    weak = {name: reference() for name, reference in found.weak.items()}
    for name, module in {**found.modules, **weak}.items():
        if module is None or module in own:
            continue
        if _holds(module, own):
            inside, find = {"": module}, of_around
        elif name in weak:
            continue
        else:
            inside, find = dict(module.named_modules()), of_module
        for inner, each in inside.items():
            waiting.append((f"{prefix}{name}{inner and '.'}{inner}", each,
                            find, far))
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


def copies(found: Found) -> list:
    """Of all that is found, as it is now: functions that put it back."""
    return [_Copies(found.shared).put_back, *found.copies()]


class _Copies:
    """Of things: the attributes of now, and what is in them."""

    __slots__ = "_shared", "_before", "_inside"

    def __init__(self, shared):
        self._shared = [*shared]
        self._before = [_attributes(thing) for _, thing, _ in shared]
        self._inside = [found.copies() for *_, found in shared]

    def put_back(self) -> None:
        """Where what is held of it is another."""
        for (_, thing, found), before, inside in zip(
                self._shared, self._before, self._inside):
            if found.held.is_same():
                continue
            now = _attributes(thing)
            for name in {**before, **now}:
                if now.get(name, GONE) is not before.get(name, GONE):
                    _put(thing, name, before.get(name, GONE))
            for put in inside:
                put()


def put_others_back(thing, held) -> list:
    """Plain values that are held of it, where they are others by now;
    functions that undo that."""
    undo = []
    for of, key, then in held.others(PLAIN):
        if isinstance(of, types.MappingProxyType):  # of a class
            of = next((kind for kind in getattr(thing, "__mro__", ())
                       if vars(kind).get(key, GONE) is of.get(key, GONE)),
                      None)
            if of is None:
                continue
        if isinstance(of, (dict, list)):
            undo.append(functools.partial(_put_item, of, key, at(of, key)))
            of[key] = then
        else:
            undo.append(functools.partial(_put, of, key,
                                          getattr(of, key, GONE)))
            _put(of, key, then)
    return undo


def _put_item(container, key, value) -> None:
    if value is not GONE:
        container[key] = value
    elif isinstance(container, dict):
        container.pop(key, None)


def _attributes(thing) -> dict:
    found = dict(getattr(thing, "__dict__", ()))
    if not isinstance(thing, (type, torch.nn.Module)):
        for name in slots(type(thing)):
            if hasattr(thing, name):
                found[name] = getattr(thing, name)
    return found


def _put(thing, name: str, value) -> None:
    """A class has no dict to write; an object may forbid to set.  What nobody
    can set has not been set, but gives another object at each look."""
    try:
        _set(thing, name, value)
    except (AttributeError, TypeError):
        pass


def _set(thing, name: str, value) -> None:
    is_class = isinstance(thing, type)
    if is_class or name in slots(type(thing)):
        delete, put = (delattr, setattr) if is_class else (
            object.__delattr__, object.__setattr__)
        delete(thing, name) if value is GONE else put(thing, name, value)
    elif value is GONE:
        del vars(thing)[name]
    else:
        vars(thing)[name] = value
