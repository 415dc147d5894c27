"""What a layer reads from Python, compared before each of its replays.

A graph repeats the flags, rates, numbers and functions that modules had when
it was recorded.  So a call first asks whether they are the same objects, by
dict and key, which is cheap; only where one is another, or one has come or
gone, are the values compared.  A call that finds another value runs eagerly.

Modules have their own attributes, and share some things: classes, and objects
such as a config.  These are looked at once a microbatch for all segments.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections
import logging
import operator
import types

import torch

from .attributes import (CONTAINERS, PLAIN, comparable, containers,
                         put_contents_back)
from .tree import Passing

_is, _item = operator.is_, operator.getitem
_form = operator.attrgetter("dtype", "shape", "device", "layout",
                            "requires_grad")

# What torch keeps in a module; hooks and parameters are looked at elsewhere.
_INTERNAL = frozenset(vars(torch.nn.Module())) - {"training"}
# What saving a model of Hugging Face's writes into its config.
_SAVING = frozenset(("architectures", "dtype", "torch_dtype",
                     "transformers_version"))
_NO_CONFIGS = (torch.nn.Module, torch.Tensor, torch.Generator, type,
               types.FunctionType, types.MethodType, types.ModuleType,
               logging.Logger)
_DEEP = 8  # containers in one another
_LONG = 60  # letters of a value in a sentence
_GONE = object()  # a value that is not there


class Held:
    """Where values are, and which objects they were."""

    def __init__(self):
        self._of: list = []  # dicts and lists
        self._keys: list = []  # in each of those
        self._values: list = []
        self._sized: list = []
        self._sizes: list = []
        self._sets: list = []
        self._copies: list = []

    def put(self, container, keys) -> None:
        self._sized.append(container)
        self._sizes.append(len(container))
        for key in keys:
            self._of.append(container)
            self._keys.append(key)
            self._values.append(container[key])

    def put_set(self, value) -> None:
        """Or the keys of a dict that would make one that it has not."""
        self._sets.append(value)
        self._copies.append(set(value))

    def is_same(self) -> bool:
        try:
            return [*map(len, self._sized)] == self._sizes \
                and self._sets == self._copies \
                and all(map(_is, map(_item, self._of, self._keys),
                            self._values))
        except LookupError:
            return False


class _Found:
    """The values by name, and where they are."""

    def __init__(self):
        self.held = Held()
        self.values: dict = {}
        self.objects: dict = {}  # that have settings of their own, by name
        self._seen: set = set()  # containers that are held
        self._inside: set = set()  # which holds itself, if it comes again

    def bits(self) -> dict:
        """The values, to be compared."""
        return {name: _exact(value) for name, value in self.values.items()}

    def add_all(self, names, prefix: str, leave_out=()) -> None:
        keys = [k for k in names if k not in leave_out]
        self.held.put(names, keys)
        for key in keys:
            self.add(f"{prefix}{key}", names[key])

    def add(self, name: str, value) -> None:
        kind = type(value)
        if kind in PLAIN:
            self.values[name] = value
        elif kind in (set, frozenset):
            self.values[name] = frozenset(value)
            if kind is set:
                self.held.put_set(value)
        elif kind in CONTAINERS or isinstance(value, tuple):
            self.values[name] = kind  # should it be empty
            self._add_inner(name, value)
        else:
            self.values[name] = value
            if not isinstance(value, _NO_CONFIGS) and isinstance(
                    getattr(value, "__dict__", None), dict):
                self.objects[name] = value

    def _add_inner(self, name: str, value) -> None:
        if id(value) in self._inside or len(self._inside) == _DEEP:
            return
        self._inside.add(id(value))
        is_dict = isinstance(value, dict)
        if not isinstance(value, tuple) and id(value) not in self._seen:
            self._seen.add(id(value))
            if isinstance(value, collections.defaultdict):
                self.held.put_set(value.keys())
            self.held.put(value, list(value) if is_dict
                          else range(len(value)))
        items = value.items() if is_dict else enumerate(value)
        for i, (key, inner) in enumerate(items):
            key = repr(key) if type(key) in PLAIN else f"key {i}"
            self.add(f"{name}[{key}]", inner)
        self._inside.remove(id(value))


def _of_object(thing) -> _Found:
    """Its plain values, and dicts and lists of such."""
    found = _Found()
    names = vars(thing)
    keys = [k for k, v in names.items()
            if k not in _SAVING and _is_plain(v, 3)]
    found.held.put(names, keys)
    for key in keys:
        found.add(f".{key}", names[key])
    return found


def _is_plain(value, deep: int) -> bool:
    """Or has nothing else, in so many containers in one another."""
    kind = type(value)
    if kind in PLAIN:
        return True
    if deep == 0 or not (kind in CONTAINERS or kind is tuple):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return all(_is_plain(each, deep - 1) for each in inner)


def _of_class(kind) -> _Found:
    """Its methods too: another `forward` is another layer."""
    found = _Found()
    found.add_all(vars(kind), ".", [k for k in vars(kind)
                                    if k.startswith(("__", "_abc_"))])
    return found


def _classes(modules) -> list:
    """Those of users; what torch's own have is torch's."""
    found = {kind: None for module in modules for kind in type(module).__mro__
             if kind is not object
             and not kind.__module__.startswith("torch.")}
    return list(found)


def _copy(thing, held: Held):
    """A function that gives it the attributes of now again, if what is held
    of it is another."""
    before = dict(vars(thing))
    inner = [(each, each.copy()) for value in before.values()
             for each in containers(value)]

    def put_back():
        if held.is_same():
            return
        now = dict(vars(thing))
        for name in {**before, **now}:
            if now.get(name, _GONE) is not before.get(name, _GONE):
                _put(thing, name, before.get(name, _GONE))
        put_contents_back(inner)

    return put_back


def _put(thing, name: str, value) -> None:
    """A class has no dict to write; an object may forbid to set."""
    if isinstance(thing, type):
        delattr(thing, name) if value is _GONE else setattr(thing, name, value)
    elif value is _GONE:
        del vars(thing)[name]
    else:
        vars(thing)[name] = value


class Things:
    """Classes and objects that modules share, of an attach."""

    def __init__(self):
        self.changes = 0  # that have been seen: a number for what they are
        self.is_due = True  # a microbatch has begun
        self._things: dict = {}  # by identity: it, and what finds its values
        self._found: dict = {}

    def know(self, thing, find) -> None:
        if id(thing) not in self._things:
            self._things[id(thing)] = thing, find
            self._found[id(thing)] = find(thing)

    def values(self, thing) -> dict:
        return self._found[id(thing)].values

    def copies(self) -> list:
        """Of what they have now: each with what puts it back."""
        return [_copy(thing, find(thing).held)
                for thing, find in self._things.values()]

    def look(self) -> None:
        self.is_due = False
        for key, found in self._found.items():
            if not found.held.is_same():
                thing, find = self._things[key]
                self._found[key] = find(thing)
                self.changes += found.bits() != self._found[key].bits()


class Tables:
    """Tensors in attributes of which others stand in the place, with the same
    bits: a layer has made its table again, and graphs go on reading the first.
    That holds until somebody writes one of the two."""

    def __init__(self):
        self.take({})

    def are_unwritten(self) -> bool:
        return not self._written or \
            [*map(_version, self._written)] == self._versions

    def take(self, pairs: dict) -> None:
        """What graphs read and what is there, by name: of equal bits now."""
        self._pairs = pairs
        self._written = [t for pair in pairs.values() for t in pair]
        self._versions = [*map(_version, self._written)]

    def are_equal(self, name: str, then, now, pairs: dict) -> bool:
        """Waits for the device, if the tensor is another."""
        read = self._pairs[name][0] if name in self._pairs else then
        if now is read:
            return True
        pairs[name] = read, now
        return _has_equal_bits(read, now)


def _version(tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _has_equal_bits(tensor, other) -> bool:
    if type(tensor) is not torch.Tensor or type(other) is not torch.Tensor \
            or _form(tensor) != _form(other) \
            or tensor.layout != torch.strided:
        return False
    bits = [t.detach().contiguous().flatten().view(torch.uint8)
            for t in (tensor, other)]
    return torch.equal(*bits)


class Settings:
    """Those of a segment, as they are when this is made."""

    def __init__(self, segment, things: Things):
        self._segment = segment
        self._things = things
        self._left_out: set = set()  # names that recordings alone change
        self._tables = Tables()
        self._take(self._find())
        self._before = things.copies()  # until the recording has ended
        self._at = things.changes
        self._other: Held | None = None  # as the last look found it changed
        self._other_at = 0
        self.difference: tuple | None = None  # the last: name and sentence

    def are_kept(self) -> bool:
        changes = self._things.changes
        if self._at == changes and self._held.is_same() \
                and self._tables.are_unwritten():
            return True
        if self._other is not None and self._other_at == changes \
                and self._other.is_same() and self._tables.are_unwritten():
            return False
        found = self._find()
        pairs: dict = {}
        name = self._differing(found, pairs)
        if name is not None:
            self._other, self._other_at = found.held, changes
            self.difference = name, self._told(name, found)
            return False
        self._take(found)
        self._tables.take(pairs)
        self._at = changes
        return True

    def settle(self, who: str) -> None:
        """The recording has run.  What it has put in another object's place,
        of a kind that nothing is known of, is its own; it may change no
        value."""
        self._things.look()
        found = self._find()
        while True:
            name = self._differing(found, {})
            if name is None:
                break
            if not _is_unknown(self._values.get(name)) \
                    or not _is_unknown(found.values.get(name)):
                raise Passing(f"{who} changes an attribute, {name}, which a "
                              "replay would not: keep it in a buffer, or "
                              "outside of the layers")
            self._left_out.add(name)
        self._take(found)
        self._at = self._things.changes
        self._before = ()

    def put_back(self) -> None:
        """The recording has not been: shared things are as before it."""
        for put_back in self._before:
            put_back()

    def _take(self, found: _Found) -> None:
        self._held, self._values = found.held, found.values
        self._bits = found.bits()

    def _find(self) -> _Found:
        found = _Found()
        modules: dict = {}
        sites = self._segment.sites
        for site in sites:
            prefix = f"{site.name}." if len(sites) > 1 else ""
            for name, module in site.module.named_modules():
                if module in modules:
                    continue
                modules[module] = None
                own = {"forward"} if module is site.module else frozenset()
                inner = f"{prefix}{name}." if name else prefix
                found.add_all(vars(module), inner, _INTERNAL | own)
        names: dict = {}  # how many classes have each
        for kind in _classes(modules):
            nth = names[kind.__name__] = names.get(kind.__name__, 0) + 1
            name = f"{kind.__name__} ({nth})" if nth > 1 else kind.__name__
            self._share(found, name, kind, _of_class)
        for name, thing in found.objects.items():
            self._share(found, name, thing, _of_object)
        return found

    def _share(self, found, name: str, thing, find) -> None:
        self._things.know(thing, find)
        for inner, value in self._things.values(thing).items():
            found.values.setdefault(f"{name}{inner}", value)

    def _differing(self, found: _Found, pairs: dict) -> str | None:
        """The name of the first value that is another; with the tensors that
        are others of the same bits."""
        for name in {**self._values, **found.values}:
            if name in self._left_out:
                continue
            then = self._values.get(name, _GONE)
            now = found.values.get(name, _GONE)
            if isinstance(then, torch.Tensor):
                if not self._tables.are_equal(name, then, now, pairs):
                    return name
            elif now is _GONE or self._bits.get(name) != _exact(now):
                return name
        return None

    def _told(self, name: str, found: _Found) -> str:
        then = _text(self._values.get(name, _GONE))
        now = _text(found.values.get(name, _GONE))
        if then == now:
            return f"{name} is another {now} than when it was recorded"
        return f"{name} was {then} when it was recorded and is {now} now"


def _exact(value):
    """What can be compared; of what nothing is known, which object it is."""
    return (type(value), id(value)) if _is_unknown(value) \
        else comparable(value)


def _is_unknown(value) -> bool:
    """Of which comparable() would say no more than its type."""
    return comparable(value) is type(value) and not isinstance(value, type)


def shortened(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[:_LONG]}..."


def _text(value) -> str:
    kind = type(value)
    if value is _GONE:
        return "not there"
    if kind in PLAIN or kind is frozenset:
        return shortened(repr(value))
    if isinstance(value, type):
        return f"a {value.__name__}"
    return getattr(value, "__qualname__", kind.__name__)
