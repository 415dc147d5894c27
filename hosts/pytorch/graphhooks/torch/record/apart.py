"""A pass that is run apart: eagerly, and on copies of all that it could write,
so that the training goes on as if it had not been.

    Before  what the pass begins with: random numbers, buffers, and what is in
            other tensors that the modules may write, as they are before a
            graph runs in its place
    Apart   the pass: what comes out of the modules, with autograd's graph,
            and the gradients that come of it

Parameters are others at the same addresses (`Parameters.aliases`), so nobody
who listens to the training's hears of it; inputs are detached.  Where it is to
count instead of the graph, its numbers are put where the graph has left its
own.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import itertools

import torch

from ..base import private, tree
from ..base.comparisons import are_alike
from ..grad.strides import copy_of
from ..guard import flags
from ..guard.attributes import Attributes
from ..guard.draws import all_numbers
from ..guard.storage_addresses import lent
from ..guard.settings import Settings
from .again import Contents, elsewhere, traceless
from .backwards import take_grads
from .instance import Instance
from .recording import Results, note_uses, undisturbed


class Before:
    """What a pass of a segment begins with."""

    def __init__(self, segment):
        settings = segment.settings or Settings(segment.sites,
                                                segment.owner.things)
        self.numbers = all_numbers(segment.owner.captures.generators,
                                   settings.generators)
        self.buffers = _buffers_of(segment.sites)
        self._copies = _copies([b for *_, b in self.buffers])
        self.contents = Contents(elsewhere(
            segment.sites, Attributes(segment), settings))

    def copies(self) -> list:
        """Of the buffers, for a run to write."""
        return _copies(self._copies)

    def put_back(self) -> None:
        """The pass has not been."""
        self.numbers.put_back()
        self.contents.put_back()
        for (*_, buffer), copy in zip(self.buffers, self._copies):
            buffer.data.copy_(copy)


def _buffers_of(sites) -> list:
    """(registry, name, buffer), of each buffer once a registry."""
    return [(registry, name, b) for site in sites
            for registry in map(private.buffers_of, site.module.modules())
            for name, b in registry.items() if b is not None]


def _copies(tensors) -> list:
    """One of each, with its attributes; what is there twice has one copy."""
    made: dict = {}
    for tensor in tensors:
        if id(tensor) not in made:
            made[id(tensor)] = copy_of(tensor.detach())
            vars(made[id(tensor)]).update(vars(tensor))
    return [made[id(t)] for t in tensors]


class Apart(Instance):
    """One pass, beside that of an instance."""

    __slots__ = ("segment", "beginning", "drawn", "left_off", "copies",
                 "contents", "counts", "expected", "totals", "puts",
                 "_mains", "_unread", "_results", "_outer", "_inner",
                 "_call", "_last")

    def __init__(self, segment, graph: Instance, beginning: Before):
        super().__init__(graph.signature)
        self.segment = segment
        self.slot, self.flight = graph.slot, graph.flight
        self.again = graph.again  # as autograd's node has it
        self.beginning = beginning
        self.drawn = beginning.numbers  # so far
        self.left_off = None  # numbers, when the graph had run
        self.copies = beginning.copies()
        self.contents = beginning.contents  # of other tensors, so far
        self.counts = False  # instead of the graph
        self.expected: tuple = ()  # gradients that autograd is given
        self.totals: list = []  # parameters, and what `.grad` is to be
        self.puts: set = set()  # those whose gradients are in main_grad
        self.inputs = []
        self.leaves = segment.parameters.aliases()
        self._unread: set = set()  # whose gradients main_grad has
        self._mains = {i: torch.empty_like(main)
                       for i, leaf in enumerate(self.leaves)
                       for main in [vars(leaf).get("main_grad")]
                       if isinstance(main, torch.Tensor)}
        self._lend_mains()
        self._results: Results | None = None
        # Tensors of the training, and what stands for each here.
        self._outer: list = []
        self._inner: list = []
        self._call = None  # the form of the first module's
        self._last: tuple = ()  # the last module's run, to repeat it

    # ---- forward --------------------------------------------------------

    def run(self, site, args, kwargs, before=()) -> list:
        """The next module, with the arguments of its call, in which `before`
        are the results of the one before it; what comes out that is new."""
        if self._results is not None:
            self._outer += before
            self._inner += self._results.last
        if site.given is not None:  # without what is padded for a graph
            args, kwargs = site.given.args, site.given.kwargs
        call = tree.form((args, kwargs), self._stand_in)
        if self._results is None:
            self.inputs, self._call = [*self._inner], call
            self._results = Results(_with(self.inputs, self.shape))
        since = len(self._results.tensors)
        self._last = site, call, _copies(self.copies), self.drawn, \
            self.contents
        versions = [*map(private.version, self.inputs)]
        with self._alone([site], self.copies):
            self._results.note(self._play(site, call))
        if versions != [*map(private.version, self.inputs)]:
            raise tree.Unfit("it changes in place what it is given")
        self.live = self._results.tensors
        if site is self.segment.sites[-1]:
            self._outer = []  # which have nodes of the training
        return self.live[since:]

    def repeat(self) -> list:
        """What comes out of the last module, and what it writes, if it runs
        once more."""
        site, call, before, drawn, contents = self._last
        now = self.drawn, self.contents
        self.drawn, self.contents = drawn, contents
        copies = _copies(before)
        results = Results(_with(self.inputs, []))
        try:
            with self._alone([site], copies):
                results.note(self._play(site, call))
            return results.tensors + self._written(copies)
        finally:
            self.drawn, self.contents = now

    def last(self, since: int) -> list:
        """The same of the run that was."""
        return [*self.live[since:], *self._written(self.copies)]

    def _written(self, copies) -> list:
        return [*copies, *(copy for _, copy in self.contents.kept)]

    def once_more(self) -> "Apart":
        """The same pass from the same beginning."""
        other = Apart(self.segment, self, self.beginning)
        other.inputs = [t.detach().requires_grad_(t.requires_grad)
                        for t in self.inputs]
        results = Results(other)
        with other._alone(self.segment.sites, other.copies):
            self.segment.chain.run(
                self.signature, *tree.fill(self._call, (other.inputs,)),
                other.inputs, results.note)
        other.live = results.tensors
        return other

    def _play(self, site, call):
        args, kwargs = tree.fill(call, (self._inner,))
        return site.play(*args, **kwargs)

    def _stand_in(self, tensor):
        for i, other in enumerate(self._outer):
            if other is tensor:
                return tree.Place(0, i)
        self._outer.append(tensor)
        self._inner.append(tensor.detach().requires_grad_(
            tensor.requires_grad))
        return tree.Place(0, len(self._outer) - 1)

    @contextlib.contextmanager
    def _alone(self, sites, copies):
        """Modules have these for their buffers, and others for their
        parameters; numbers are drawn from where the pass has come to."""
        segment = self.segment
        theirs = self.drawn.now()
        self.drawn.put_back()
        try:
            with traceless(segment.owner, sites), self._where_it_writes(), \
                    lent(self.beginning.buffers, copies), \
                    segment.parameters.replaced_by(self.leaves), \
                    undisturbed(segment.draws), \
                    segment.owner.offload.plain(self):
                yield
        finally:
            self.drawn = theirs.now()
            theirs.put_back()

    @contextlib.contextmanager
    def _where_it_writes(self):
        """Tensors that nobody can lend have what the pass has left there so
        far; in the end what the training has."""
        theirs = self.contents.now()
        self.contents.put_back()
        try:
            yield
        finally:
            self.contents = self.contents.now()
            theirs.put_back()

    # ---- backward -------------------------------------------------------

    def differentiate(self, grads, alone=False) -> None:
        """Finds what the gradients come to be, in `expected` and `totals`;
        `alone`, without what is in `.grad` and the like."""
        segment = self.segment
        parameters = segment.parameters
        self.wanted = [i for i, g in enumerate(grads) if g is not None]
        self.layouts = [None] * len(self.wanted)
        note_uses(segment, self)
        flags.catch_up(parameters.all, self.leaves)
        self._lend_mains()
        for i, main in self._mains.items():
            if alone:
                main.zero_()
            else:
                main.copy_(parameters.all[i].main_grad)
        own = set(parameters.own)
        for p, leaf in zip(parameters.all, self.leaves):
            leaf.grad = copy_of(p.grad) if p in own and not alone \
                and p.grad is not None else None
        self.copies = _copies([b for *_, b in self.beginning.buffers])
        self.contents = self.contents.now()
        theirs = self.drawn.now()
        try:
            with traceless(segment.owner, segment.sites), \
                    self._where_it_writes(), \
                    lent(self.beginning.buffers, self.copies):
                # Functions may write what they are given, and give it back.
                of_inputs, of_parameters, again = take_grads(
                    segment, self, [copy_of(grads[i]) for i in self.wanted],
                    self.puts)
        finally:
            theirs.put_back()
        self.expected = (*of_inputs,
                         *(of_parameters[p] for p in parameters.returned),
                         *(None for _ in parameters.sample), *again)
        self.live = None
        self._note_totals(of_parameters)

    def _lend_mains(self) -> None:
        for i, main in self._mains.items():
            vars(self.leaves[i])["main_grad"] = main

    def _note_totals(self, of_parameters) -> None:
        """Of those whose `main_grad` has it, what is in `.grad` is nothing
        that anybody reads, and is not set."""
        parameters = self.segment.parameters
        self._unread = {p for p, leaf in zip(parameters.all, self.leaves)
                        if vars(leaf).get("grad_added_to_main_grad") is True}
        self.totals = [(p, of_parameters[p]) for p in parameters.own
                       if p not in self._unread]

    def pairs(self, results) -> list:
        """When the graph has run, whose results these are: what there is, as
        the training has it and as this pass does, with names."""
        parameters = self.segment.parameters
        names = _names_of(self.segment)
        of = [f"input {i}" for i in range(len(self.inputs))] \
            + [names[p] for p in parameters.returned]
        of += ["an input"] * (max(len(results), len(self.expected)) - len(of))
        since = len(self.inputs)
        unread = {since + i for i, p in enumerate(parameters.returned)
                  if p in self._unread}
        found = [(f"the gradient of {name}", one, other)
                 for i, (name, one, other) in enumerate(
                     itertools.zip_longest(of, results, self.expected))
                 if i not in unread]
        found += [(f"the gradient of {names[p]}", p.grad, total)
                  for p, total in self.totals]
        found += [(f"the main_grad of {names[parameters.all[i]]}",
                   parameters.all[i].main_grad, main)
                  for i, main in self._mains.items()]
        return found + self.pairs_of_buffers()

    def pairs_of_buffers(self) -> list:
        return [(f"the buffer {name}", buffer, copy)
                for (_, name, buffer), copy
                in zip(self.beginning.buffers, self.copies)] + [
            ("a tensor in an attribute, or outside of it", *pair)
            for pair in self.contents.pairs()]

    # ---- in the place of the graph --------------------------------------

    def fits(self, outputs, since: int = 0) -> bool:
        """Whether what has come out, from there on, can be where the graph
        has left its own."""
        return all(map(are_alike, outputs[since:], self.live[since:]))

    def put_outputs(self, outputs, since: int = 0) -> None:
        for output, live in zip(outputs[since:], self.live[since:]):
            output.data.copy_(live.detach())

    def put_buffers(self) -> None:
        for (*_, buffer), copy in zip(self.beginning.buffers, self.copies):
            buffer.data.copy_(copy)
        self.contents.put_back()

    def put_gradients(self, count: int) -> tuple:
        """Returns what autograd is given, so many."""
        for p, total in self.totals:
            if total is not None and p.grad is not None \
                    and are_alike(p.grad, total):
                p.grad.copy_(total)
            else:
                p.grad = total
        for i, main in self._mains.items():
            self.segment.parameters.all[i].main_grad.copy_(main)
        self.put_buffers()
        return (*self.expected, *(None,) * count)[:count]


def _with(inputs, shape: list) -> Instance:
    """For results that do not hold who holds them."""
    instance = Instance()
    instance.inputs, instance.shape = inputs, shape
    return instance


def _names_of(segment) -> dict:
    return {p: f"{name} of {site.name}" for site in segment.sites
            for name, p in site.module.named_parameters()}
