"""The parameters of a segment that are trained: which of their gradients a
graph puts into ``.grad``, and in which way.

What a graph does is decided when the first backward is recorded, and is one
of two:

    writes  where a step has one microbatch, and ``zero_grad`` has left
            ``.grad`` None by its forward.  The tensors that the graph has
            made are ``.grad`` itself: nothing is copied, and they lie in what
            the backward has freed before.
    adds    where there is something to add to: several microbatches,
            gradients that outlast a forward, or what a call adds in several
            pieces, of which each rounds.  The places are ours and lie
            apart from all graphs.  When there is nothing yet, they are filled
            with negative zeros first (gradients.py): a backward is recorded
            once, and so by one graph.

Where somebody watches, autograd is given the gradients and does as ever: a
hook, DDP's buckets, or a parameter that others use too.  An engine that is
told itself (away.py) is no such one.

A function with a backward of its own within its backward, as reentrant
checkpointing is, adds what it finds by itself.  So each such gradient is added
for each call, whatever else the pass of autograd goes through.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import functools
import math
import operator

import torch
from torch.autograd.graph import get_gradient_edge

from ...errors import Error
from ..base import private
from ..base.private import has_hooks, will_run
from ..base.tree import Unfit
from ..guard.storage_addresses import held_at, is_trained, lent, lent_anyhow
from ..guard.words import AtOnce, Words
from . import asked
from .away import putting
from .contributions import Others, Shares
from .gradient_buffers import Home, is_at
from .mains import Mains
from .strides import like
from .watchers import ADDED, Unheard, fate, is_held, is_watched

_form = operator.attrgetter("shape", "dtype")


class Parameters:
    """Those of a segment that are trained."""

    def __init__(self, modules, comparisons=None, gathered=None):
        self.gathered = gathered  # those of them that FSDP has
        held = [(registry, name, p)
                for module in modules for m in module.modules()
                for registry in [private.parameters_of(m)]
                for name, p in registry.items()
                if p is not None and p.requires_grad]
        self.places = held
        self.elsewhere: list = []  # other dicts that have some
        self.all = list(dict.fromkeys(p for _, _, p in held))
        self._forms = [*map(_form, self.all)]
        # Later a loss that is kept keeps nodes alive too.
        self.watched = set(filter(is_watched, self.all))
        # With others, as eager passes have them.
        self.shares = Shares(comparisons)
        self.adds: bool | None = None  # its graphs to `.grad`, or they write
        self._outlast = False  # gradients a forward
        # Those whose gradients an engine has elsewhere.
        self.putting, self._engines = putting(modules)
        self._keeps_more = any(getattr(m, "keeps_more", False) is True
                               for m in modules)
        self.homes: list[Home] = []  # where, once a backward is recorded
        self.asked: asked.Asked | None = None  # of some, by a pass at hand
        # Whether a pass may come to what a graph has run.
        self.are_awaited = _yes
        self._unsort()

    def _unsort(self) -> None:
        self.sorted = False
        self.returned: tuple = ()  # autograd is given their gradients
        self.put: tuple = ()  # of these, that graphs put where an engine has
        self.silent: tuple = ()  # of those, whose engines are told instead
        self._listeners: list = []  # hooks that those had at the recording
        self.own: list = []  # the graph puts them in place
        # Those whose gradients come of a backward within the backward.
        self.nested: frozenset = frozenset()
        self.handed: list = []  # of `returned`: where they are, and they
        self._torn: list = []  # of `returned`: that got several in a call
        self._pieces = False  # the same of some of `own`
        # Those of which a call has several, in whatever passes.
        self.joined: set = set()
        self._hides = False  # an eager call has had passes within its own
        self.ends: tuple = ()  # by which autograd comes for `returned`
        self.unheard: Words | None = None  # those without hooks
        self._at_once = AtOnce()
        self.sample: tuple = ()  # one leaf, for autograd to come by
        self.behind: tuple = ()  # those and it, after the inputs
        self._node = None  # where its gradient would be added up
        self.mains = Mains()  # as at the first recording
        self.others: Others | None = None  # who adds to those of graphs
        self._used: set = set()  # by eager calls

    def version(self) -> int:
        """Another once an optimizer has stepped; who steps some of them steps
        the first or the last."""
        some = self.all
        return private.version(some[0]) + private.version(some[-1]) \
            if some else 0

    def forget(self) -> None:
        """Nothing is recorded of what eager calls have shown, and others are
        to show it anew."""
        self.release()
        self._unsort()

    def sort(self, by_autograd, tell=None, sums=None) -> None:
        """At the first recording; tell() when a graph is not alone in what it
        adds from then on, and `sums` do not take the rest."""
        if self.sorted:
            return
        self.sorted = True
        nested = self.shares.by_itself()
        self.nested = frozenset(nested)
        torn = self.shares.mixed().union(p for p in nested if nested[p])
        self._hides = self.shares.hides
        nodes = self.shares.stop()
        self._used = set(nodes)
        for p in self.all:
            nodes.setdefault(p, get_gradient_edge(p).node)
        self.returned = tuple(p for p in self.all if by_autograd(p)
                              or p in self.watched or p in self.shares.found
                              or has_hooks(p) or self._is_gathered(p)
                              or is_held(p, ours=1)
                              or getattr(p, "grad_dtype", p.dtype) != p.dtype)
        # Of several calls in one pass autograd gives an engine the sum.
        self.put = tuple(p for p in self.returned if p in self.putting
                         and not (by_autograd(p) or has_hooks(p)
                                  or p in self.shares.found
                                  or p in self.shares.several))
        returned = set(self.returned)
        self.own = [p for p in self.all if p not in returned]
        self._silence(nodes)
        self.sample = tuple(self.own[:1] or map(_leaf, self.silent[:1]))
        self.mains = Mains(self.all)
        # A hook is called where autograd comes by, with or without a gradient.
        self.ends = tuple(_leaf(p) if p in nested else p
                          for p in self.returned)
        self.behind = self.ends + self.sample
        self.handed = [(i, p) for i, p in enumerate(self.returned)
                        if p in nested]
        self._torn = [p for p in self.returned if p in torn]
        self._pieces = not torn.isdisjoint(self.own)
        self.joined = torn.difference(nested)
        if self.sample:
            self._node = nodes[self.own[0]] if self.own else \
                get_gradient_edge(self.sample[0]).node
            asked.know(self)
        if self.own or self.put:
            # Those that no call has used have nothing of graphs.
            self.others = Others({p: nodes[p] for p in self.own
                                  if p in self._used}, tell, self.put, sums)
        self.unheard = None

    def _is_gathered(self, p) -> bool:
        return self.gathered is not None and self.gathered.has(p)

    def _silence(self, nodes) -> None:
        """Autograd need not come by parameters of which graphs put the
        gradients, and whose hooks are an engine's alone that is told."""
        heard = {p: private.hooks_of_node(nodes[p]) for p in self.put
                 if self._engines.get(p) is not None}
        self.silent = tuple(p for p, hooks in heard.items() if any(hooks)
                            and all(self._engines[p].knows(hook)
                                    for each in hooks
                                    for hook in each.values()))
        silent = set(self.silent)
        self.put = tuple(p for p in self.put if p in silent
                         or not getattr(self._engines.get(p), "waits", False))
        self.returned = tuple(p for p in self.returned if p not in silent)
        self._listeners = [(hooks, [*hooks.values()])
                           for p in self.silent for hooks in heard[p]]

    def tell(self, parameters) -> None:
        """Engines, that graphs have put the gradients of these."""
        of_engines: dict = {}
        for p in parameters:
            of_engines.setdefault(self._engines[p], []).append(p)
        for engine, those in of_engines.items():
            engine.tell(those)

    def results(self, found: dict) -> tuple:
        """What autograd is given for `behind`, of an eager backward; those of
        `silent` are for Sums.give()."""
        return (*(found[p] for p in self.returned),
                *(found.get(p) for p in self.sample))

    def refuse_torn(self) -> None:
        """In a recording, which finds the sum of what a call gives."""
        names = {p: name for _, name, p in self.places}
        for p in self._torn:
            raise Unfit(f"{names[p]} gets gradients of several backwards "
                        "within its backward, as of two checkpoints, and "
                        "somebody waits for each: give the checkpoints "
                        "use_reentrant=False")

    def note_uses(self, counts: dict, hides: bool) -> set:
        """A recorded call leads to them so often, and may have passes within
        its own, which the eager ones may not have had; returns those of which
        these have shown nothing, as they had them in such a pass."""
        self.joined.update(p for p, count in counts.items() if count > 1)
        unseen = others = set() if self._keeps_more else {
            p for p in self.nested if counts[p]}
        self.nested -= others
        if hides and not self._hides:
            others = set(self.all)
        if hides and others:
            self.joined |= others
            self._pieces = True
        if not others.isdisjoint(self.returned) \
                or hides and others and self.adds is False:
            raise Unfit("checkpoints within it, or the like, come and go, and "
                        "with them the order in which gradients are added up: "
                        "give the checkpoints use_reentrant=False")
        return unseen

    def hand_over(self, results, behind: int):
        """What autograd is given, with so many behind those of parameters:
        without what eager adds in a backward within the backward, which is
        added so, but for a pass that is asked for some gradients."""
        if not self.handed or not private.is_of_all():
            return results
        results = list(results)
        since = len(results) - behind - len(self.behind)
        found = {}
        for i, p in self.handed:
            if results[since + i] is not None:
                found[p] = results[since + i].clone()
                results[since + i] = None
        self.deliver(found)
        return results

    def land(self, found: dict) -> list:
        """In a recording: what autograd is given of `returned`, where the
        graph leaves it."""
        gradients = [found[p] for p in self.returned]
        return gradients if self.gathered is None \
            else self.gathered.land(self.returned, gradients)

    def deliver(self, gradients: dict, derived=False) -> None:
        """To parameters by which autograd does not come, as it does it."""
        found = [(p, g) for p, g in gradients.items() if g is not None]
        if found:
            with torch.enable_grad():
                ends = [p.view_as(p) for p, _ in found]
            torch.autograd.backward(ends, [g for _, g in found],
                                    create_graph=derived)

    def adds_up(self) -> bool:
        """Whether graphs put gradients where an engine has them of which eager
        puts the sum of several calls."""
        return any(p not in self.nested for p in self.put)

    def are_accumulated(self) -> bool:
        """Whether the pass of autograd at hand adds gradients to `.grad`;
        autograd.grad() does not, nor backward(inputs=) of others."""
        if self._node is None:
            return not self.ends or fate(self.ends) == ADDED
        try:
            return will_run(self._node) or will_run(self._node_by_now())
        except RuntimeError as failure:  # that one's is what is asked for
            if self.is_asked():
                return False
            raise Error("autograd.grad() asks for gradients of parameters, "
                        "which a graph puts into .grad: attach with "
                        "gradients=\"autograd\"") from failure

    def is_asked(self) -> bool:
        """Whether the pass of autograd at hand is, for some of its own."""
        return self.asked is not None and self.asked.is_at_hand()

    def sample_node(self):
        """By which a pass comes by."""
        return self._node_by_now()

    def _node_by_now(self):
        """Torch makes a new one for who has set ``.data`` to another type or
        device, and back."""
        if self.sample[0].requires_grad:
            self._node = get_gradient_edge(self.sample[0]).node
        return self._node

    def have_other_forms(self) -> bool:
        """Whether ``.data`` was set to what has another shape or type: the
        nodes of autograd that are kept alive here go on asking for gradients
        of the old one."""
        return [*map(_form, self.all)] != self._forms

    def release(self) -> None:
        """Another attach is not to take this one for an engine."""
        asked.forget(self)
        self.shares.stop()
        if self.others is not None:
            self.others.stop()
        self._node = None

    def are_plain(self) -> bool:
        """No hook has come, and each `main_grad` is where it was: asked at
        once, and where not, by have_hooks() and by `mains`."""
        return self._at_once.are_same(self.unheard, self.mains.words) \
            and self.mains.lie_still()

    def have_hooks(self) -> bool:
        """Whether one has come since the first recording."""
        if self.unheard is not None and self.unheard.is_same():
            return False
        if private.have_hooks(self.own) or private.have_hooks(self.put, 1):
            return True
        if not asked.silences:  # or hooks are there that are no more then
            self.unheard = Words([*(Unheard(p, 0) for p in self.own),
                                   *(Unheard(p, 1) for p in self.put)])
        return False

    def have_listeners(self) -> bool:
        """Whether somebody else has one by now where engines have theirs, or
        they have others."""
        return any([*hooks.values()] != known
                   for hooks, known in self._listeners)

    def left_out(self) -> list:
        """Those that are no longer trained, or not asked for."""
        if self.asked is not None and self.is_asked():
            return [p for p in self.own if not p.requires_grad
                    or p not in self.asked.those]
        if all(map(is_trained, self.own)):
            return []
        return [p for p in self.own if not p.requires_grad]

    def are_held(self) -> bool:
        return any(is_held(p, ours=(p in self._used) + (p is self.own[0]))
                   for p in self.own if p.requires_grad)

    def note_old(self) -> None:
        """A forward is recorded: whether it comes before zero_grad()."""
        if self.adds is None:
            self._outlast |= self.have_gradients()

    def have_gradients(self) -> bool:
        return any(p.grad is not None for p in self.own)

    def decide(self, expects_several: bool) -> None:
        """What graphs do, before the first backward is recorded."""
        if self.adds is None:
            self.adds = bool(self.own) and (
                expects_several or self._outlast or self._pieces
                or self.have_gradients())

    def home(self, bank: int = 0) -> "Home":
        """For the gradients of a backward that is about to be recorded.  One
        that writes makes them in what its own forward has left, so each slot
        has its own; what is added lies in one place for all."""
        return self.homes[0] if self.adds and self.homes else Home(bank)

    def places_to_add(self, home: "Home") -> dict:
        """Where gradients are to be added."""
        if not self.adds:
            return {}
        known = home.gradients
        return {p: known[p] if p in known else like(p) for p in self.own}

    def is_in_place(self, parameter) -> bool:
        """Whether its gradient is in one of the graphs' places."""
        grad = parameter.grad
        return grad is not None and any(
            is_at(grad, home.gradients[parameter]) for home in self.homes
            if parameter in home.gradients)

    def is_in_pool(self, parameter, gradient) -> bool:
        """Whether a gradient of it is where a recording has made it, and not
        apart from all graphs."""
        return gradient is not None and any(
            home.serial and parameter in home.gradients
            and is_at(gradient, home.gradients[parameter])
            for home in self.homes)

    def aliases(self) -> list:
        """Others of their types, at their addresses: what autograd keeps of a
        recording has nothing to do with what it keeps of the training, such
        as the stream on which a parameter's gradient is added up, or how
        often an optimizer has written it."""
        found = []
        for p in self.all:
            found.append(private.make_subclass(
                type(p), p.data if self.gathered is None
                else self.gathered.data_of(p), True))
            vars(found[-1]).update(vars(p))
        return found

    def put_away(self, aliases, came: set) -> list:
        """Handles of hooks by which an engine's functions do so, of what comes
        to `came`."""
        if not self.put:
            return []
        ours = set(self.put)
        return [alias.register_post_accumulate_grad_hook(
            functools.partial(self._put, p, came))
                for p, alias in zip(self.all, aliases)
                if p in ours and alias is not p]

    def _put(self, p, came: set, alias) -> None:
        self.putting[p](alias)
        came.add(p)

    def replaced_by(self, aliases, by_force: bool | None = None):
        """The modules, and objects that they read, with these for their
        parameters; by_force: as lent_anyhow() has it, None: as lent() does."""
        alias = dict(zip(self.all, aliases))
        places = [*self.places, *(p for p in self.elsewhere
                                  if held_at(p[0], p[1]) is p[2])]
        others = [alias[p] for _, _, p in places]
        if self.gathered is not None:
            places += self.gathered.frozen
            others += self.gathered.stand_ins()
        return lent(places, others) if by_force is None \
            else lent_anyhow(places, others, by_force)

    def find_elsewhere(self, weights) -> None:
        """Those that are in dicts and lists that functions read, too."""
        own = set(self.all)
        self.elsewhere = [place for place in weights if place[2] in own]

    def are_written(self, after: int = 0, bank: int | None = None) -> bool:
        """Whether somebody has a gradient that a recording after that one
        wrote in its pool, or, of `bank`, one of another bank."""
        for home in self.homes:
            if home.serial and (home.serial > after or bank is not None
                                and home.bank != bank) \
                    and home.is_lived_in(self.homes):
                return True
        return False

    def are_written_for_others(self, bank: int) -> bool:
        return self.are_written(math.inf, bank)

    def move_out(self) -> None:
        """Gradients that graphs wrote become tensors of their own."""
        for home in self.homes:
            if home.serial:
                home.move_out()


def _yes() -> bool:
    return True


def _leaf(parameter):
    """Another one on its device, by which autograd comes for nothing."""
    return torch.empty((), device=parameter.device, requires_grad=True)
