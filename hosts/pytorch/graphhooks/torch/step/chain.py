"""A run of modules that is one launch: how they hang together.

While they still run eagerly it is watched how each is called: with what the
one before it has returned, and what the first was given.  A recording then
runs all of them in the call of the first, and so does a replay; the calls of
the others find their results ready.  So between two calls nothing may change
that the second would see, which is looked at in every pass.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib

import torch
from torch import is_grad_enabled

from ...errors import Error
from ..base import layouts, private, tree
from ..base.private import nodes_so_far, version_of
from ..base.switches import autocast
from ..grad import contributions
from ..guard.settings import Settings
from ..record import checkpoint
from ..record.instead import take_back
from .reached_inputs import ReachedInputs

_BEFORE, _FIRST = 0, 1  # sources of a tree.Place
_DRAWN = "random numbers are drawn between its modules, which draw some too"
_GIVEN_OTHER = "what its first module is given was changed in place before"
_PATIENCE = 8  # passes that end early, before that counts as the rule


class _Otherwise(str):
    """Why a call is another one: a hook may have changed what it is given."""


class Chain:
    """The modules of a segment after its first."""

    def __init__(self, segment):
        self.segment = segment
        self.signature = None  # whose calls are watched, or played
        self._watched: list | None = None  # calls of the pass at hand
        self._playing = None  # results, by position
        self.outputs: tuple = ()  # the tensors in them
        self._instance = None  # whose they are
        self._shapes: list = []  # their forms
        self._position = 0  # of the module that has returned last
        self._tensors: list = []  # what the first was given
        self._nodes: frozenset = frozenset()  # of those, when it was
        self._results: list = []  # of an eager pass
        self._before: list = []  # what the last one has returned
        self._versions: list = []
        self._given: list = []  # versions of what the first was given
        self._modes: tuple = ()  # as the first found them
        self._found: list = []  # versions of what each module has
        self._settings = None  # of the next module, if it runs eagerly
        self._numbers: list = []  # random ones that are drawn by then
        self._drew = False  # somebody has drawn more between two
        self._made = 0  # nodes of autograd by then
        self._is_between = False  # somebody has made more between two
        self._unheard = None  # hooks of saved tensors, see hush()
        self._unfinished = 0  # passes that did not come to the last module
        # Positions of modules that draw numbers, or write buffers.
        self._leave_traces: set = set()
        # What later modules are given, and the first is not.
        self.reached = ReachedInputs()
        self._call: tuple = ((), {})  # that of the first
        self.idle = True  # there is nothing to stop

    def is_known(self, signature) -> bool:
        return len(signature.calls) == len(self.segment.sites) - 1

    @property
    def plays(self) -> bool:
        """Whether a graph has run for the call at hand."""
        return self._playing is not None and not self.is_beside()

    def stop(self) -> None:
        others = self.segment.sites[1:]
        if self._watched is not None and len(self._watched) < len(others):
            self._unfinished += 1
            if self._unfinished == _PATIENCE:
                self._break(f"{others[-1].name} is not called")
        self._watched = self._playing = self._instance = None
        self.outputs = ()
        self._tensors = self._before = self._versions = self._results = []
        self._given = self._found = self._numbers = []
        self._modes = ()
        self._settings = None
        self._call = (), {}
        self._nodes = frozenset()
        self._unheard = None
        self.reached.forget()
        self.idle = True

    def left_out(self) -> str | None:
        """The next module, if a graph has run for all and the pass has ended
        before it, and not without a trace: numbers are drawn, or buffers
        written, that it and those after it would have left."""
        if self._playing is None:
            return None
        missed = self.segment.sites[self._position + 1:]
        return missed[0].name if any(
            s.position in self._leave_traces for s in missed) else None

    def is_beside(self) -> bool:
        """Whether a call is none of a pass of this kind."""
        return not is_grad_enabled()

    def why_in_another_mode(self, site) -> str | None:
        return None if site.module.training \
            else "is in eval(), and those before are not"

    def hush(self, hook) -> None:
        """The modules run once more, unheard by these hooks of saved
        tensors."""
        self.idle = False
        self._unheard = hook

    # ---- eager passes ---------------------------------------------------

    def watch(self, signature, site, tensors, args, kwargs):
        """Runs the first module and looks on as the others follow."""
        self.idle = False
        self.signature = signature
        self._nodes = frozenset(t.grad_fn for t in tensors
                                if t.grad_fn is not None)
        if len(self.segment.sites) > 1 and not self.is_known(signature) \
                and self.segment.owner.ranks.size == 1:
            self.reached.look()
            tensors = [*tensors]  # for more of them
        self._call = args, kwargs
        self._tensors = tensors
        self._foresee()
        result = self._run(site, args, kwargs)
        self._results = [result]
        if len(self.segment.sites) > 1:
            self._watched = []
            self._drew = self._is_between = False
            self._begin()
            self._remember(0, result)
        else:
            self._watch_uses()
            self.stop()
        return result

    def _run(self, site, args, kwargs):
        """Eagerly; whether it draws random numbers, or writes buffers, is
        noted."""
        segment = self.segment
        numbers = segment.owner.captures.numbers()
        versions = site.places.versions()
        with contextlib.nullcontext() if self.signature.serial \
                else segment.owner.things.watching(False):
            result = self._go(site, args, kwargs)
        if site.places.versions() != versions:
            segment.writes = True
            self._leave_traces.add(site.position)
        if segment.owner.captures.numbers() != numbers:
            segment.draws = True
            self._leave_traces.add(site.position)
        elif segment.draws is None:
            segment.draws = False
        return result

    def _go(self, site, args, kwargs):
        """Before a graph is given a tensor closed up that is tried."""
        signature = self.signature
        if not signature.wide or signature.serial:
            return site.run(*args, **kwargs)
        closed = dict(zip(map(id, self._tensors), layouts.close_up(
            self._tensors, signature.wide)))
        call = tree.form((args, kwargs), lambda t: tree.Place(0, id(t)))
        return self.segment.owner.banks.try_closed_up(
            site, (args, kwargs), tree.fill(call, (closed,)))

    def _watch_uses(self) -> None:
        """Of what went into the first module, when the last has returned; in
        all microbatches until there is a recording, as the last of a step may
        be another than the first."""
        segment, signature = self.segment, self.signature
        if signature.serial:
            return
        outputs: list = []
        try:
            tree.gather(self._results, outputs, [])
        except tree.Unfit:
            outputs = []
        outputs = [t for t in outputs if t.grad_fn is not None]
        inputs, parameters = self._tensors, segment.parameters.all
        went_back = segment.owner.foreseen.note(segment, signature, inputs,
                                                self._results)
        shares = segment.parameters.shares
        uses = contributions.uses(outputs, [*inputs, *parameters],
                                  self._nodes, shares.nodes)
        contributions.watch(inputs, uses, signature.elsewhere.add,
                            segment.owner.comparisons)
        of_parameters = uses[len(inputs):]
        if segment.parameters.sorted:  # by what other calls have shown
            depends = [p for p, edges in zip(parameters, of_parameters)
                       if edges]
        else:
            shares.note_arguments(parameters, inputs)
            depends = shares.watch(
                parameters, of_parameters,
                segment.owner.way.to(self._nodes, segment.owner.forward()),
                signature)
            unseen = [p for p, edges in zip(parameters, of_parameters)
                      if not edges]
            if not contributions.tells_all(outputs, self._nodes):
                shares.watch_unseen(unseen)
            shares.watch_casts(parameters, of_parameters, outputs,
                               self._nodes)
        if self._is_between and outputs:
            self._watch_between(outputs)
        passes, step = set(), segment.owner.steps
        for output in outputs:
            output.grad_fn.register_prehook(
                lambda _: went_back() or segment.warm_up(
                    signature, depends, passes, step))
        if not outputs:
            segment.warm_up(signature, (), passes, step)

    def _foresee(self) -> None:
        """What the pass will take as a graph, before there is one."""
        if not self.signature.serial:
            self.segment.owner.foreseen.begin()

    def _watch_between(self, outputs) -> None:
        """What one module hands to the next may be used on the way.  Its
        gradient comes of that last, as it was made first; of what is done
        after the stack first, as a graph takes it."""
        inner: list = []
        tree.gather(self._results[:-1], inner, [])
        inner = [t for t in inner if t.grad_fn is not None]
        signature = self.signature
        contributions.watch(
            inner, contributions.uses(outputs, inner, self._nodes),
            lambda _: self._forgo(signature, "what goes from one of its "
                                  "modules to the next is used in between, "
                                  "too"),
            self.segment.owner.comparisons)

    def _forgo(self, signature, why: str) -> None:
        if signature is self.signature:
            self._watched = None
        signature.broken = why
        signature.forget_calls()

    def _begin(self) -> None:
        """The first module has returned."""
        self._given = [version_of(t) for t in self._tensors]
        self._found = self._versions_from(0)
        self._modes = _modes()

    def _versions_from(self, position: int) -> list:
        return [s.places.versions() for s in self.segment.sites[position:]]

    def _remember(self, position: int, result) -> None:
        """The module there has returned."""
        self._before = []
        try:
            tree.gather(result, self._before, [])
        except tree.Unfit as unfit:
            self._break(str(unfit))
        self._versions = [version_of(t) for t in self._before]
        self._note_numbers()
        self._settings = self._settings_of(position + 1)
        self._made = nodes_so_far()

    def _settings_of(self, position: int) -> Settings:
        """What the module there reads in Python, by now."""
        things = self.segment.owner.things
        things.look()
        return Settings([self.segment.sites[position]], things,
                        "when the one before it had returned")

    def _are_settings_kept(self) -> bool:
        self.segment.owner.things.look()
        return self._settings.are_kept()

    def _note_numbers(self) -> None:
        if self.segment.draws is not False:
            self._numbers = self.segment.owner.captures.numbers()

    def _why_other(self, site) -> str | None:
        """What is another than eagerly, since the first module returned."""
        if self._versions != [version_of(t) for t in self._before]:
            return (f"what goes into {site.name} was changed in place on its "
                    "way")
        why = self._why_not(site)
        return None if why is None else f"{site.name} {why}"

    def _why_not(self, site) -> str | None:
        """What has changed of the module and its mode."""
        if _modes() != self._modes:
            return ("is called in another mode than those before: no_grad, "
                    "autocast, or hooks of saved tensors such as "
                    "checkpointing's")
        why = self.why_in_another_mode(site)
        if why is not None:
            return why
        if not site.places.are_kept():
            return ("has other parameters or buffers for the call, or frozen "
                    "ones")
        if site.places.versions() != self._found[site.position]:
            return "has parameters or buffers that are written before its call"
        return None

    def _have_drawn(self) -> bool:
        """Random numbers, whoever is between two modules."""
        return self.segment.draws is not False and \
            self.segment.owner.captures.numbers() != self._numbers

    def _break(self, why: str) -> None:
        self._watched = None
        self.signature.broken = why
        if not self.signature.serial:  # what a graph has, it keeps
            self.signature.forget_calls()

    give_up = _break

    def _look(self, site, args, kwargs):
        why = self._why_other(site)
        if why is None and any(map(_is_listened_to, self._before)):
            why = (f"what goes into {site.name} has a hook on its gradient, "
                   "or retains it")
        behind = site.position + 1
        if site.position != len(self._watched) + 1:
            self._break(f"{site.name} is not called after the one before it")
        elif why is not None:
            self._break(why)
        elif not self._are_settings_kept():
            self._break(f"{site.name} finds a change: "
                        f"{self._settings.difference[1]}")
        elif self._versions_from(behind) != self._found[behind:]:
            self._break(f"a module after {site.name} has parameters or "
                        "buffers that are written before its call")
        else:
            self._learn(site, args, kwargs)
        self._drew |= self._have_drawn()
        self._is_between |= nodes_so_far() != self._made
        result = self._run(site, args, kwargs)
        # What it has written itself, it shares with those.
        self._found[behind:] = self._versions_from(behind)
        if self._drew and self.segment.draws:
            self._break(_DRAWN)
        if self._watched is not None:
            self._results.append(result)
            if site.position == len(self.segment.sites) - 1:
                if self.reached.found:
                    self._give_reached()
                if self._watched is not None:
                    self._watch_uses()
                if self._watched is not None \
                        and not self.is_known(self.signature):
                    self.signature.know(self._watched,
                                        [*map(takes_one, self._watched)])
                self.stop()
            else:
                self._remember(site.position, result)
        return result

    def _learn(self, site, args, kwargs) -> None:
        """How the module is called."""
        try:
            call = tree.form((args, kwargs), self._place)
        except tree.Unfit as unfit:
            self._break(f"{site.name}: {unfit}")
            return
        self._watched.append(call)
        known = self.signature.calls[site.position - 1:site.position]
        if known and not tree.matches(known[0], (args, kwargs),
                                      (self._before, self._tensors)):
            self._break(f"{site.name} is called otherwise than in a pass "
                        "before")
        elif not takes_one(call) and self._is_given_other():
            self._break(f"{_GIVEN_OTHER} {site.name} is called")

    def _give_reached(self) -> None:
        """To the first module, from the next call on: that makes another
        signature, in the place of the one that the pass at hand has."""
        signature, segment = self.signature, self.segment
        args, kwargs = self._call
        kwargs = self.reached.added(kwargs)
        tensors, key = segment.gather(signature.key[1], args, kwargs)
        why = segment.why_unfit(tensors)
        if why is None and [*map(id, tensors)] != [*map(id, self._tensors)]:
            why = "what its first module is given is no tensor of its own"
        if why is not None:
            self._break(why)
            return
        segment.owner.banks.rename(segment, signature, tensors, key, args,
                                   kwargs)

    def _is_given_other(self) -> bool:
        return [version_of(t) for t in self._tensors] != self._given

    def _place(self, tensor):
        for source, tensors in ((_BEFORE, self._before),
                                (_FIRST, self._tensors)):
            for i, other in enumerate(tensors):
                if other is tensor:
                    return tree.Place(source, i)
        version = self.reached.take(tensor)
        if version is not None:
            self._tensors.append(tensor)
            self._given.append(version)
            if tensor.grad_fn is not None:
                self._nodes |= {tensor.grad_fn}
            return tree.Place(_FIRST, len(self._tensors) - 1)
        raise tree.Unfit("it reads a tensor that neither the module before "
                         "it has returned nor the first one was given, and "
                         "that no variable of their caller had by then")

    # ---- recordings and replays -----------------------------------------

    def run(self, signature, args, kwargs, tensors, note, count=None):
        """All modules, or so many, one after the other; note() is told every
        result."""
        first, *others = self.segment.sites[:count]
        before = note(first.play(*args, **kwargs))
        for site, call in zip(others, signature.calls):
            args, kwargs = tree.fill(call, (before, tensors))
            before = note(site.play(*args, **kwargs))

    def play(self, instance, outputs, tensors):
        """The graph has run; the first module returns."""
        self.idle = False
        self.signature = instance.signature
        self._instance, self.outputs = instance, outputs
        sources = outputs, tensors
        self._shapes = instance.shape
        self._playing = [tree.fill(shape, sources) for shape in self._shapes]
        self._tensors = tensors
        self._begin()
        return self._hold(0)

    def _hold(self, position: int):
        """The module there returns."""
        result = self._playing[position]
        self._position = position
        if type(self._shapes[position]) is tree.Place:
            self._before = [result]
        else:
            self._before = []
            tree.gather(result, self._before, [])
        self._versions = [version_of(t) for t in self._before]
        self._note_numbers()
        return result

    def follow(self, site, args, kwargs):
        """The call of a module after the first."""
        if not self.plays:
            return self._follow_eagerly(site, args, kwargs)
        why = self._why_otherwise(site, args, kwargs)
        if why is not None:
            return self._go_on_eagerly(why, site, args, kwargs)
        if self._instance.apart is not None:
            self.segment.owner.verify.follow(self.segment, self._instance,
                                             site, args, kwargs, self._before)
        result = self._hold(site.position)
        if site.position == len(self._playing) - 1:
            self.stop()
        return result

    def _go_on_eagerly(self, why: str, site, args, kwargs):
        """The graph has run for the modules so far, and is not to count for
        those to come."""
        segment, instance = self.segment, self._instance
        so_far = self._position + 1
        written = self._versions != [version_of(t) for t in self._before]
        leaves = any(p >= so_far for p in self._leave_traces)
        is_other = leaves and (self._have_drawn() or self._is_given_other()
                               or segment.writes and self._versions_from(
                                   so_far) != self._found[so_far:])
        self.stop()
        # What those to come have left, they would leave again.
        if segment.owner.ranks.size > 1 or is_other or leaves \
                and not take_back(segment, instance, so_far):
            raise Error(f"{why}, and the graph has run already: granularity "
                        "layer allows that")
        if instance.origin is not None:
            instance.apart = None
            instance.origin.count = so_far
            instance.origin.written = written
        listens = isinstance(why, _Otherwise) and private.are_heard(
            [h for s in segment.sites[so_far - 1:so_far + 1]
             for h in private.hooks_of(s.module)])
        why += ", and the graph has run already"
        if listens:  # which may be gone in the next pass
            why += ", by a hook of a layer"
            segment.owner.say(segment.name, why)
            segment.part(why)
        else:
            segment.refuse(f"{why}: granularity layer allows that")
        return site.run(*args, **kwargs)

    def _follow_eagerly(self, site, args, kwargs):
        if self._watched is not None:
            return self._look(site, args, kwargs)
        if self._unheard is not None and checkpoint.hooks() is self._unheard:
            with checkpoint.unheard():
                return site.run(*args, **kwargs)
        return site.run(*args, **kwargs)

    def _why_otherwise(self, site, args, kwargs) -> str | None:
        """Why the call is another than when it was recorded, or None."""
        if site.position != self._position + 1:
            if site.position <= self._position:
                return f"{site.name} is called once more"
            missed = self.segment.sites[self._position + 1]
            return (f"{missed.name} is not called before {site.name}, as when "
                    "another module is in its place, or under no_grad")
        why = self._why_other(site)
        if why is not None:
            return why
        if self.segment.draws and self._have_drawn():
            return _DRAWN
        i = site.position - 1
        if self.signature.takes_one[i]:
            is_same = (len(args) == 1 and not kwargs
                       and args[0] is self._before[0])
        elif self._is_given_other():
            return f"{_GIVEN_OTHER} {site.name} is called"
        else:
            is_same = tree.matches(self.signature.calls[i], (args, kwargs),
                                   (self._before, self._tensors))
        return None if is_same else _Otherwise(
            f"{site.name} is called otherwise than when it was recorded, with "
            "other tensors or arguments")


def _modes() -> tuple:
    """That a module may run in, without a word of them."""
    return is_grad_enabled(), checkpoint.hooks(), autocast()


def takes_one(call) -> bool:
    """Whether it is the first tensor that the module before returned."""
    args, kwargs = call.parts
    if kwargs.parts or len(args.parts) != 1:
        return False
    place = args.parts[0]
    return type(place) is tree.Place and (place.source, place.index) == (
        _BEFORE, 0)


def _is_listened_to(tensor) -> bool:
    """Whether somebody wants its gradient, which a chunk keeps to itself."""
    return private.has_tensor_hooks(tensor) or tensor.retains_grad
