"""Where graphs find what belongs to modules: parameters, buffers, submodules.

It is asked in every call and of every tensor whether that is as it was, so
many are compared at once.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import itertools
import operator

import torch

from ..base.private import check_of_forms, registries_of, version
from ..base.tree import Unfit
from .words import Words, version_of

_chain = itertools.chain.from_iterable
_is = operator.is_
address = torch.Tensor.data_ptr
_stride = torch.Tensor.stride
is_trained = operator.attrgetter("requires_grad")
_kind = operator.attrgetter("requires_grad", "dtype", "shape")
_CHECKS = 4  # as autocast is part of each, and whatever else is


class Forms:
    """Where tensors lie, of which kind they are, and how they are laid
    out."""

    def __init__(self, tensors, kind=_kind, at=address):
        self.tensors = (*tensors,)
        self._kind, self._at = kind, at
        self._addresses = [*map(at, self.tensors)]
        self.kinds = [*map(kind, self.tensors)]
        self._strides = [*map(_stride, self.tensors)]
        # Each says at once, under some conditions, that all are as they were.
        self._checks: list = []

    def are_kept(self) -> bool:
        if [*map(self._at, self.tensors)] != self._addresses:
            return False
        for check in self._checks:
            if check(*self.tensors):
                return True
        if [*map(self._kind, self.tensors)] != self.kinds \
                or [*map(_stride, self.tensors)] != self._strides:
            return False
        if len(self._checks) < _CHECKS:
            self._checks.append(check_of_forms(self.tensors))
        return True

    def have_moved(self) -> bool:
        """And nothing else."""
        return [*map(self._at, self.tensors)] != self._addresses \
            and [*map(self._kind, self.tensors)] == self.kinds \
            and [*map(_stride, self.tensors)] == self._strides

    def are_those_of(self, other: "Forms") -> bool:
        return [*self.each()] == [*other.each()]

    def each(self):
        return zip(self._addresses, self.kinds, self._strides)


class _Registry:
    """One of a module's, with all that is in it, in its order."""

    __slots__ = "_names", "_values"

    def __init__(self, names):
        self._names, self._values = names, [*names.values()]

    def words(self) -> list:
        return version_of(self._names)

    def is_same(self) -> bool:
        return len(self._names) == len(self._values) \
            and all(map(_is, self._names.values(), self._values))


class Places:
    """Those of modules, as they are when this is made; what is `gathered` of
    their parameters lies anywhere."""

    def __init__(self, modules, gathered=None):
        dicts = [d for module in modules for m in module.modules()
                 for d in registries_of(m)
                 if isinstance(d, dict)]
        self.words = Words(map(_Registry, dicts))
        self._held = [*_chain(d.values() for d in dicts)]
        tensors = [t for t in self._held if isinstance(t, torch.Tensor)
                   and t.layout == torch.strided]
        moving = [] if gathered is None else [*filter(gathered.has, tensors)]
        ids = {*map(id, moving)}
        self._forms = Forms(t for t in tensors if id(t) not in ids)
        self._moving = Forms(moving, at=id) if moving else None
        self._versioned = [t for t in tensors if not t.is_inference()]

    def are_kept(self) -> bool:
        """Whether they hold the same tensors, which are where they were, of
        the same kind and laid out as they were: ``.data`` may be set to a
        slice of itself."""
        return self.words.is_same() and self.lie_still()

    def lie_still(self) -> bool:
        """Of those that hold the same tensors, whether these are kept."""
        return self._forms.are_kept() and (
            self._moving is None or self._moving.are_kept())

    def are_same(self) -> bool:
        """Whether they hold the same tensors, wherever these are by now."""
        return self.words.is_same()

    def have_moved(self) -> bool:
        """Whether they hold the same tensors, which are elsewhere, and are
        what they were otherwise."""
        return self.are_same() and self._forms.have_moved()

    def differs_in_buffers(self, other: "Places") -> bool:
        """And in nothing else."""
        return self._but_buffers() == other._but_buffers()

    def _but_buffers(self) -> list:
        at = zip(self._forms.tensors, self._forms.each())
        return [id(m) for m in self._held if isinstance(m, torch.nn.Module)] \
            + [(id(t), where) for t, where in at
               if isinstance(t, torch.nn.Parameter)]

    def versions(self) -> list:
        """How often each has been written; what graphs write is not told."""
        return [*map(version, self._versioned)]

    def versions_of_weights(self) -> list:
        """The same of these; engines fill buffers with what is there."""
        return [version(t) for t in self._versioned
                if isinstance(t, torch.nn.Parameter)]


class Unknown:
    """Those of modules whose parameters their first call shows."""

    words = None

    def are_kept(self) -> bool:
        return False

    def are_same(self) -> bool:
        return True

    def have_moved(self) -> bool:
        return False


def places_of(modules, gathering):
    """At the attach."""
    return Unknown() if gathering.has(modules) else Places(modules)


def held_at(names, name):
    """In a dict or a list, or None."""
    if type(names) is list:
        return names[name] if name < len(names) else None
    return names.get(name)


def _places(held, others) -> list:
    return list({(id(names), name): (names, name, own, other)
                 for (names, name, own), other
                 in zip(held, others)}.values())


@contextlib.contextmanager
def lent(held, others):
    """Modules with other tensors for their own; ``held`` has (dict or list,
    name, tensor) of those, and a module that others share more than once."""
    places = _places(held, others)
    if any(held_at(names, name) is not own for names, name, own, _ in places):
        raise Unfit("other tensors stand in for its own")
    for names, name, _, other in places:
        names[name] = other
    addresses = [address(other) for _, _, _, other in places]
    kept = False
    try:
        yield
        kept = all(held_at(names, name) is other and address(other) == at
                   for (names, name, _, other), at
                   in zip(places, addresses))  # who sets .data moves it
    finally:
        for names, name, own, _ in places:
            names[name] = own
    if not kept:
        raise Unfit("it replaces a parameter or a buffer")


@contextlib.contextmanager
def lent_anyhow(held, others, by_force: bool):
    """The same for a run that nothing is recorded of: somebody may have put
    other tensors there, or do so now, and they stay.  by_force:
    meanwhile others are in the place of these, too."""
    places = [(names, name, other, held_at(names, name),
               type(names) is list or name in names)
              for names, name, own, other in _places(held, others)
              if by_force and type(names) is dict
              or held_at(names, name) is own]
    for names, name, other, _, _ in places:
        names[name] = other
    try:
        yield
    finally:
        for names, name, other, before, was_there in places:
            if held_at(names, name) is not other:
                continue
            if was_there:
                names[name] = before
            else:
                del names[name]


class Watch:
    """Tells which segments have lost theirs for good.  A call may come while
    others are lent; when they are still there at the beginning of the next
    step, and of the one after it, and no call has found the old ones in the
    meantime, they stay."""

    def __init__(self):
        self.suspects: dict = {}  # whose calls have found others
        self._before: list = []  # lost at the last look

    def suspect(self, segment) -> None:
        self.suspects[segment] = None

    def clear(self, segment) -> None:
        """A call has found its own."""
        self.suspects.pop(segment, None)

    def lost(self) -> list:
        """At the beginning of a step."""
        lost = [s for s in self.suspects if not s.places.are_kept()]
        found = [s for s in lost if s in self._before]
        self.suspects, self._before = {}, lost
        return found
