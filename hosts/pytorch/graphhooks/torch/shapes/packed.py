"""Arguments that vary with how sequences are packed into a buffer.

Attention over several sequences in one buffer reads where each of them begins
(``cu_seqlens``: an offset more than there are sequences), and often how long
the longest is, as a number of Python's (``max_seqlen``).  A graph is of one
shape and one number.  So ``attach(packed={"cu_seqlens": 64})`` names such
arguments with the most that they may be, and graphs are given as many: offsets
with the last one repeated, which are sequences of no tokens, and that number.

What runs eagerly is given what the caller gave.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import copy
import dataclasses
import inspect

import torch
from torch.cuda import is_current_stream_capturing as is_capturing

from ...errors import Error
from ..base import private
from ..base.private import is_transformed, raw_stream
from ..base.questions import TRIAL
from ..base.tree import Unfit
from . import trial

_NONE: frozenset = frozenset()
# What ranks answer who are asked for a trial; the largest is what all do.
_WILLING, _NEEDED, _IMPOSSIBLE = range(3)
_OFFSETS = (torch.int32, torch.int64)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY,
               inspect.Parameter.POSITIONAL_OR_KEYWORD)


def rooms(wanted) -> dict:
    """The option: the most of each argument, or a few to choose from, in
    rising order and by name."""
    if not isinstance(wanted, dict):
        raise Error(f"packed is {wanted!r}; it takes names of arguments with "
                    "the most that they may be, {\"cu_seqlens\": 64}")
    found = {}
    for name, most in wanted.items():
        steps = most if isinstance(most, (list, tuple)) else (most,)
        if not isinstance(name, str) or not steps or any(
                type(n) is not int or n < 1 for n in steps):
            raise Error(f"packed has {name!r}: {most!r}; it takes the name of "
                        "an argument, and a number of sequences, or the "
                        "longest of them, from 1 on, or a list of these")
        found[name] = tuple(sorted(set(steps)))
    return found


def remedy(name: str, words: dict) -> str:
    """For an argument that differs, as calls.py describes it, where it may be
    one of packed sequences."""
    base = name.removesuffix(".shape")
    if words.get(f"{base}.dtype") in map(str, _OFFSETS) \
            and words[f"{base}.shape"].endswith(",)"):
        what = "has the offsets of packed sequences"
    elif words.get(name, "").isdigit():
        what = "is the longest of packed sequences"
    else:
        return ""
    return f"if it {what}, name it in packed=, {{\"{base}\": most}}; else: "


class Packed:
    """The packed arguments of an attach."""

    def __init__(self, owner, wanted: dict):
        self._owner = owner
        self._wanted = wanted
        self._padded: dict = {}  # of the calls at hand, by segment
        self._numbers: set = set()  # names of arguments that are none
        self._told: set = set()  # what does not fit, by name, and of which
        self.is_wanted = False  # a trial, for which a microbatch is eager

    # ---- the attach -----------------------------------------------------

    def attach(self, sites) -> None:
        """Of all modules that have graphs."""
        takers: dict = {name: [] for name in self._wanted}
        for site in sites:
            parameters, takes_any = parameters_of(site)
            for path in self._wanted:
                name = path.partition(".")[0]
                if name in parameters or takes_any:
                    takers[path].append((site, parameters.get(name)))
        for path, of in takers.items():
            if not of and sites:
                raise Error(f"packed has {path!r}, which no layer's forward "
                            "takes; name an argument of it")
            for site, position in of:
                if site.packed is None:
                    site.packed, site.packs = self, []
                name, _, inner = path.partition(".")
                site.packs.append((path, name, position, inner,
                                   self._wanted[path]))

    def lines(self) -> list:
        """For explain()."""
        return [f"packed: {name} is {_listed(self._wanted[name])} in graphs, "
                "whatever it is in a call: no result may depend on it"
                for name in sorted(self._numbers)]

    # ---- a call ---------------------------------------------------------

    def call(self, site, args, kwargs):
        segment = site.segment
        if is_capturing() or is_transformed() \
                or segment.refused is not None and segment.chain.idle:
            return site.go(args, kwargs)
        before = site.given, segment.misfit
        if site.position == 0:
            self._padded[segment] = {}
        site.given = segment.misfit = fixed = None
        try:
            fixed = self._fixed(site, args, kwargs)
        except Unfit as why:
            segment.misfit = str(why)
        try:
            if site.position and segment.following().plays \
                    and not self.has_tried(site):
                self._try_late(site, fixed)
            return site.go(*(fixed or (args, kwargs)))
        finally:
            site.given, segment.misfit = before
            if site is segment.sites[-1]:
                self._padded.pop(segment, None)

    def run(self, site, args, kwargs):
        """Eagerly, though these would be a graph's arguments."""
        given, fixed = site.given, (args, kwargs)
        if self.has_tried(site) or not trial.can_be(site, fixed):
            return site.play(*given.args, **given.kwargs)
        self._note_tried(site)
        return trial.run(site, (given.args, given.kwargs), fixed,
                         self._difference(site, given, fixed))

    def run_together(self, site, args, kwargs):
        """The same where the module holds collectives: all ranks try it, or
        none does.  One whose arguments are no less than their room runs it a
        second time for the others."""
        given, fixed = site.given, (args, kwargs)
        call = fixed if given is None else (given.args, given.kwargs)
        answers = site.segment.owner.ranks.ask(
            site.segment, TRIAL, site.position, self._answer(site, fixed))
        positions, answers = zip(*answers)
        if max(answers) != _NEEDED:
            return site.play(*call[0], **call[1])
        if given is not None and given.changed:
            self._note_tried(site)
            difference = self._difference(site, given, fixed)
        else:
            difference = ("more room for packed sequences on rank "
                          f"{answers.index(_NEEDED)}")
        return trial.run(site, call, fixed, difference)

    def _answer(self, site, fixed) -> int:
        """Who is willing runs a second time, too, for those who need it."""
        if not trial.can_be(site, fixed) or not trial.is_fit(site):
            return _IMPOSSIBLE
        return _WILLING if self.has_tried(site) else _NEEDED

    def _try_late(self, site, fixed) -> None:
        """A graph has run for the module, and it is called so for the first
        time."""
        given = site.given
        difference = self._difference(site, given, fixed)
        if site.segment.owner.ranks.size > 1:
            raise Error(f"{site.name} is called with {difference} for the "
                        "first time, its graph has run already, and other "
                        "ranks would not take part in a trial of it: give all "
                        "layers of a chunk the same packed arguments, or "
                        "attach with granularity=\"layer\"")
        why = trial.late(site, (given.args, given.kwargs), fixed, difference)
        if why is not None:
            raise Error(f"{site.name}: {why}; the graph has run already")
        if site.module.training:
            self._note_tried(site)

    @staticmethod
    def _note_tried(site) -> None:
        given = site.given
        site.tried.setdefault(given.rooms, set()).update(given.changed)

    def have_tried(self, segment) -> bool:
        """What the call of the first of its modules is given.  With ranks the
        others are not tried late, so they have to have seen as much."""
        first = segment.sites[0]
        if first.given is None or not first.given.changed:
            return True
        if segment.owner.ranks.size > 1:
            for site in segment.sites[1:]:
                changed = first.given.changed.intersection(
                    path for path, *_ in site.packs)
                if changed and not any(
                        changed <= seen for seen in site.tried.values()):
                    return False
        return self.has_tried(first)

    @staticmethod
    def has_tried(site) -> bool:
        """Whether a training has shown that the module gives the same with
        what a graph would be given: with these rooms, and other arguments
        than its own wherever they are other ones now.  One that was never
        less than its room has shown nothing."""
        given = site.given
        return given is None or not given.changed \
            or given.changed <= site.tried.get(given.rooms, _NONE)

    def why(self, segment) -> str | None:
        """What does not fit, unless that was said before."""
        name = segment.misfit.partition(" ")[0]
        if (segment.name, name) in self._told:
            return None
        self._told.add((segment.name, name))
        return segment.misfit

    def _fixed(self, site, args, kwargs):
        """The arguments of a graph; None: those that are given."""
        found, rooms, changed = None, [], []
        for path, name, position, inner, steps in site.packs:
            if name in kwargs:
                place = name
            elif position is not None and position < len(args):
                place = position
            else:
                rooms.append(None)
                continue
            if found is None:
                found = [*args], dict(kwargs)
            of = found[0] if place is position else found[1]
            old = of[place]
            of[place] = new = self._in(site, path, old, inner, steps)
            rooms.append(_room(new, inner))
            if new is not old and _room(old, inner) != rooms[-1]:
                changed.append(path)
        if found is None:
            return None
        if all(a is b for a, b in zip(found[0], args)) and all(
                found[1][name] is kwargs[name] for name in kwargs):
            return None
        site.given = _Given(args, kwargs, tuple(rooms), frozenset(changed))
        return tuple(found[0]), found[1]

    def _in(self, site, path: str, value, inner: str, steps):
        """The value, or a copy of it with another one inside."""
        if not inner or value is None:
            return self._one(site, path, value, steps)
        name, _, rest = inner.partition(".")
        is_dict = isinstance(value, dict)
        is_tuple = isinstance(value, tuple) and hasattr(value, "_fields")
        if not (is_dict or is_tuple or dataclasses.is_dataclass(value)):
            raise Unfit(f"{path} is in a {type(value).__name__}; packed= "
                        "looks into dicts, named tuples and dataclasses")
        old = value.get(name) if is_dict else getattr(value, name, None)
        new = self._in(site, path, old, rest, steps)
        if new is old:
            return value
        if is_tuple:
            return private.with_field(value, name, new)
        value = copy.copy(value)
        if is_dict:
            value[name] = new
        else:
            object.__setattr__(value, name, new)
        return value

    def _one(self, site, path: str, value, steps):
        if value is None:
            return None
        if isinstance(value, torch.Tensor):
            return self._offsets(site, path, value, steps)
        if type(value) is not int:
            raise Unfit(f"{path} is a {type(value).__name__}; packed= takes "
                        "offsets of sequences, and numbers")
        self._numbers.add(path)
        step = _step(steps, value)
        if step is None:
            raise Unfit(f"{path} is {value}, and packed= says {steps[-1]} at "
                        "most: say more there, or pack shorter sequences")
        return value if value == step else step

    def _offsets(self, site, path: str, tensor, steps):
        if tensor.dim() != 1 or tensor.dtype not in _OFFSETS \
                or not tensor.is_cuda or len(tensor) == 0:
            raise Unfit(f"{path} is {tensor.dtype} of {tuple(tensor.shape)} "
                        f"on {tensor.device}; packed= takes offsets of "
                        "sequences on the GPU, int32 or int64 in one "
                        "dimension")
        count = len(tensor) - 1
        step = _step(steps, count)
        if step is None:
            raise Unfit(f"{path} has {count} sequences, and packed= says "
                        f"{steps[-1]} at most: say more there, or pack fewer")
        if step == count and tensor.is_contiguous():
            return tensor
        return self._pad(site, tensor, step)

    def _pad(self, site, tensor, count: int):
        """Offsets may be written where torch does not see it, as by a kernel
        of somebody's own, and nothing tells here where a microbatch begins:
        steps end in several ways, evaluations come between, and layers are
        left out.  So one call of a segment makes its own, and keeps it until
        its last module has returned: a chunk's graph reads one for all of
        them.  On each stream it is another, which is let go in the order of
        that stream."""
        version = 0 if tensor.is_inference() else private.version(tensor)
        made = self._padded.setdefault(site.segment, {})
        key = id(tensor), count, raw_stream(self._owner.device)
        known = made.get(key)
        if known is None or known[1] != version:
            # The tensor with it, whose identity then stays its own.
            known = made[key] = tensor, version, _padded(tensor, count)
        return known[2]

    def _difference(self, site, given, fixed) -> str:
        """Of what a graph is given, in words."""
        said = []
        for path, *where, _ in site.packs:
            then, now = (value_of(*call, *where) for call in (
                (given.args, given.kwargs), fixed))
            if path in given.changed:
                said.append(
                    f"{path} for {len(now) - 1} sequences instead of "
                    f"{len(then) - 1}" if isinstance(then, torch.Tensor)
                    else f"{path} {now} instead of {then}")
        return ", ".join(said)


class _Given:
    """What the caller gave, where a graph is given something else."""

    __slots__ = ("args", "kwargs", "rooms", "changed")

    def __init__(self, args, kwargs, rooms: tuple, changed: frozenset):
        self.args = args
        self.kwargs = kwargs
        self.rooms = rooms  # of each argument in packed=, for the graph
        self.changed = changed  # names of those that are less than that


class Nothing:
    """No argument is packed."""

    is_wanted = False

    def attach(self, sites) -> None:
        pass

    def lines(self) -> list:
        return []

    def have_tried(self, segment) -> bool:
        return True


def _padded(tensor, count: int):
    """Without a wait: the count is known here."""
    more = tensor[-1:].expand(count + 1 - len(tensor))
    return torch.cat((tensor, more))


def _step(steps, value: int):
    return next((step for step in steps if step >= value), None)


def value_of(args, kwargs, name, position, inner: str):
    value = kwargs[name] if name in kwargs else (
        args[position] if position is not None and position < len(args)
        else None)
    return _inside(value, inner)


def _inside(value, inner: str):
    for part in inner.split(".") if inner else ():
        value = value.get(part) if isinstance(value, dict) \
            else getattr(value, part, None)
    return value


def _room(value, inner: str):
    """The number, or how many offsets."""
    value = _inside(value, inner)
    return len(value) if isinstance(value, torch.Tensor) else value


def parameters_of(site) -> tuple:
    """Positions by name, None for keywords; and whether it takes any."""
    try:
        all_ = inspect.signature(site.forward).parameters.values()
    except (TypeError, ValueError):
        return {}, True
    positional = [p.name for p in all_ if p.kind in _POSITIONAL]
    found = {p.name: None for p in all_ if p.kind is p.KEYWORD_ONLY}
    found.update((name, i) for i, name in enumerate(positional))
    return found, any(p.kind is p.VAR_KEYWORD for p in all_)


def _listed(steps) -> str:
    return " or ".join(map(str, steps))
