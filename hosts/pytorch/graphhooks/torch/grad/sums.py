"""Gradients that are summed up apart from what is in `.grad`.

Several calls of a segment that one pass of autograd goes through, such as
those of two losses that were summed, are one gradient to eager: it is added
up by itself, and then to what is in `.grad` (in_order.py).  And what
autograd.grad() asks for is not to be there at all.

Some of these calls may be eager, as those for which there was no slot, or a
parameter may be used outside of its segment.  What autograd has of such is
taken from the nodes that would add it to `.grad`, and added to the sum when it
comes.  What a parameter gets of several of these comes at once, as autograd
has added it up: that is eager's order unless a graph was between them.

Between two such calls `.grad` is what it was before the pass.  So a pass that
fails on the way leaves nothing to be put right, which nobody could do in time:
autograd lets go of it on a thread of its own, while the caller may go on.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import weakref

import torch

from ..base.private import (at_end_of_pass, current_pass, have_hooks,
                            have_hooks_of_sums, will_run)
from .gradient_buffers import is_at
from .in_order import InOrder
from .strides import copy_of, like


class Aside:
    """A sum, of all that graphs have the gradients of, or of some.  What lies
    where a graph is going to write is a copy until the sum is complete."""

    def __init__(self, parameters, some=None):
        self._parameters = parameters
        if some is None:
            some = [p for p in parameters.own if p not in parameters.nested]
        self._sum = dict.fromkeys(some)  # so far, by parameter
        # That to which something is to be added before what comes of graphs
        # from now on, and this.
        self._held = None
        self._after: list = []
        self._given: dict = {}  # the same of what give() is given
        self._copies: dict = {}  # and what they are of, by parameter
        for p in self._sum:
            if p.grad is not None and parameters.is_in_place(p):
                theirs = p.grad
                p.grad = theirs.clone()
                self._copies[p] = p.grad, theirs

    @contextlib.contextmanager
    def summing(self):
        """The sum is in `.grad`, for a backward to be added to it."""
        theirs = [p.grad for p in self._sum]
        before = None
        if self._held is not None:
            before = self._sum[self._held]
            self._sum[self._held] = None
        self._put(self._sum.values())
        try:
            yield
        finally:
            self._sum = {p: p.grad for p in self._sum}
            self._put(theirs)
            if self._held is not None:
                found, self._sum[self._held] = self._sum[self._held], before
                if found is not None:  # graphs use the place again
                    self._after.append(found.clone())

    def _put(self, gradients) -> None:
        for p, gradient in zip(self._sum, gradients):
            p.grad = gradient

    def left(self) -> list:
        """Those whose sums have not been added."""
        return [*self._sum]

    def is_begun(self, p) -> bool:
        return self._sum[p] is not None

    def hold(self, p) -> None:
        """Its sum, which what comes of graphs from now on is to be added to
        later."""
        if p in self._sum and self._held is None:
            self._held, total = p, self._sum[p]
            self._sum[p] = total if total is None else total.clone()

    def is_held(self, p) -> bool:
        return p is self._held

    def take(self, p, gradient) -> None:
        """Of autograd, which others may have, too."""
        total = self._sum[p]
        if gradient is not None:
            total = like(p).copy_(gradient) if total is None \
                else total + gradient
        if p is self._held:
            for each in self._after:
                total = each if total is None else total + each
            self._held, self._after = None, []
        self._sum[p] = total

    def give(self, gradients: dict) -> None:
        """Of parameters by which autograd does not come."""
        for p, gradient in gradients.items():
            known = self._given.get(p)
            self._given[p] = gradient if known is None else known + gradient

    def keep(self) -> None:
        """Until the next backward; graphs may use their pool by then."""
        pooled = self._parameters.is_in_pool
        self._sum = {p: total.clone() if pooled(p, total) else total
                     for p, total in self._sum.items()}

    def add(self, some=None) -> None:
        """The sums, of some or of all, are added to what is in `.grad`, as
        autograd adds to a gradient."""
        for p in [*self._sum] if some is None else some:
            if p is self._held:
                self.take(p, None)
            total = self._sum.pop(p)
            if total is None:
                self._restore(p)
            elif p.grad is None:
                p.grad = total
            elif total.requires_grad:  # which others may have, too
                p.grad = p.grad + total
            elif self._is_copy(p) and not self._is_apart(p, total):
                p.grad = total.add_(p.grad)
            else:
                self._restore(p)
                p.grad.add_(total)

    def deliver(self) -> None:
        """What give() was given."""
        given, self._given = self._given, {}
        self._parameters.deliver(given)

    def restore(self) -> None:
        """The sum is nobody's."""
        for p in self._sum:
            self._restore(p)

    def _restore(self, p) -> None:
        if self._is_copy(p):
            copy, theirs = self._copies[p]
            p.grad = theirs.copy_(copy)

    def _is_copy(self, p) -> bool:
        return p in self._copies and p.grad is self._copies[p][0]

    def _is_apart(self, p, total) -> bool:
        """Whether the sum is not where graphs have added it up, which is where
        whoever keeps `.grad` looks."""
        return self._parameters.adds and not is_at(total, self._copies[p][1])


class Sums:
    """Those of a segment."""

    def __init__(self, segment):
        self.segment = segment
        self._aside: Aside | None = None  # of a pass that is not over
        self._order: InOrder | None = None  # of the same, if its calls have
        self._pass = -1  # of autograd, which comes by several times
        self._is_beside = False  # that is asked for some gradients alone
        # Those to which the pass is to come yet by autograd, and how many
        # calls have gone back in it by a graph.
        self._awaited: set = set()
        self._graphs = 0
        self._is_told = False  # that bits may differ
        self.is_open = False  # somebody may be awaited
        # Nodes to which a pass may come that are no instance's any more, and
        # the pass that has come last.
        self.again: dict = {}

    def note_again(self, node) -> None:
        """The pass at hand has come to it, and another may."""
        self.again[weakref.ref(node)] = current_pass()

    def note_late(self, instance) -> None:
        """Another node comes in the place of that of a forward to which no
        backward has come."""
        if instance.node is not None and instance.node() is not None:
            self.again[instance.node] = -1

    def is_summing(self) -> bool:
        return self._aside is not None and self._pass == current_pass()

    def why_apart(self) -> tuple:
        """Why no graph that puts gradients where an engine has them, for
        Unserved."""
        if self._is_beside or self.segment.parameters.is_asked():
            return ("a backward is asked for some gradients alone, and its "
                    "graph adds those of parameters to main_grad"), True
        return ("one backward goes through several of its calls, which none "
                "did before its graphs were recorded: eager adds the sum of "
                "their gradients to main_grad, and the graphs would add each; "
                "detach and attach again"),

    def run_back(self, run, instance, microbatch: int, grads):
        """There may be more to come by in this pass of autograd."""
        now = current_pass()
        more = self._comes_again()
        if self._pass != now:
            self._aside = None  # of one that has failed
            if more or self._is_mixed():
                self._open(now)
        if self._aside is None:
            return run(instance, microbatch, grads)
        with self._aside.summing():
            results = run(instance, microbatch, grads) \
                if self._order is None else self._order.run(
                    run, instance, microbatch, grads, more)
        self._graphs += 1
        if more:
            self._aside.keep()
        else:
            self._end()
        return results

    def take(self, p, gradient) -> bool:
        """What autograd has for one of these, or None: whether that is added
        here, and not by autograd."""
        if not self.is_summing():
            if gradient is None or p is self._last() \
                    or not self._comes_again(whole=True) \
                    or not self._takes(p, gradient):
                return False
            self._open(current_pass())
            self.segment.note_mixed()
        if p not in self._awaited:
            return False
        self._awaited.discard(p)
        taken = gradient is not None and self._takes(p, gradient)
        if taken:
            self.segment.owner.writes.order()
            if not self._is_in_turn(p) and not self._is_told:
                self._is_told = True
                self.segment.note_others()
            self._aside.take(p, gradient)
            if p is not self._last():
                self._aside.hold(self._last())
        if not self._comes_again():
            self._add([p])
        return taken

    def _last(self):
        """The one by which autograd comes to graphs: it is come to when all of
        them have gone back."""
        return self.segment.parameters.own[0]

    def _takes(self, p, gradient) -> bool:
        """No hook of it waits for what autograd has."""
        return gradient.layout == torch.strided and not have_hooks([p])

    def _is_in_turn(self, p) -> bool:
        """Whether eager would have added the same by now.  It is so before the
        first graph; after that, of one eager call, which has one gradient of
        it.  Where among the graphs that of the last one is from is known by
        the others, or as these are still to come."""
        if not self._aside.is_begun(p) and not self._aside.is_held(p):
            return True
        if p in self.segment.parameters.joined:
            return False
        return self._aside.is_held(p) or self.segment.eager == 1 and (
            p is not self._last() or self._graphs < 2 or bool(self._awaited))

    def _is_mixed(self) -> bool:
        """Whether the pass is to come to these by autograd, as to what an
        eager call has used."""
        segment, parameters = self.segment, self.segment.parameters
        if segment.mixed != segment.owner.steps or not parameters.others \
                or not parameters.others.nodes \
                or have_hooks_of_sums(parameters.own):  # which look at `.grad`
            return False
        nodes = [n for p, n in parameters.others.nodes.items()
                 if p is not self._last()]
        # It comes to the last one anyhow.
        return any(map(will_run, nodes)) or not nodes or parameters.is_asked()

    def give(self, found: dict) -> None:
        """What an eager backward has found, of parameters by which autograd
        does not come, goes where eager would have it."""
        parameters = self.segment.parameters
        gradients = {p: found[p] for p in parameters.silent
                     if found.get(p) is not None}
        if parameters.is_asked():
            parameters.asked.note(gradients.keys(), gradients.values())
        elif not self.is_summing() or not parameters.adds_up():
            parameters.deliver(gradients)
        elif not self._is_beside:
            self._aside.give(gradients)

    def _begin(self, now: int, some=None) -> None:
        self._pass, self._aside = now, Aside(self.segment.parameters, some)
        self._order = None
        self._awaited, self._graphs, self._is_told = set(), 0, False

    def _open(self, now: int) -> None:
        parameters = self.segment.parameters
        left = set(parameters.left_out())
        self._begin(now, [p for p in parameters.own if p not in
                          parameters.nested and p not in left])
        if parameters.joined:
            self._order = InOrder(self.segment)
        if parameters.others is not None:
            those = {*self._aside.left()}
            self._awaited = {p for p, node in parameters.others.nodes.items()
                             if p in those and will_run(node)}
        self.is_open = True
        at_end_of_pass(self._close)

    def _close(self) -> None:
        """Those that were awaited may not have come, as after detach()."""
        if self.is_summing():
            self.segment.owner.writes.order()
            self._awaited.clear()
            self._add(self._aside.left())

    def pass_by(self) -> None:
        """A call to which no gradient comes."""
        if self.is_summing() and not self._comes_again():
            self._end()

    def run_beside(self, run, instance, microbatch: int, grads):
        """For autograd.grad() and backward(inputs=...), which leave `.grad`
        alone, and whose results are the caller's."""
        parameters = self.segment.parameters
        self._begin(current_pass(), parameters.own)
        self._is_beside = True
        try:
            with self._aside.summing():
                results = run(instance, microbatch, grads)
                if parameters.is_asked():
                    parameters.asked.note(parameters.own, [
                        p.grad for p in parameters.own])
                return [r if r is None else copy_of(r) for r in results]
        finally:
            self._aside.restore()
            self._aside, self._is_beside = None, False

    def run_without(self, left_out, run, instance, microbatch: int, grads):
        """For a pass that comes after these were frozen, or is not asked for
        them: autograd drops what comes to them, whatever they were in the
        forward."""
        aside = Aside(self.segment.parameters, left_out)
        try:
            with aside.summing():
                return run(instance, microbatch, grads)
        finally:
            aside.restore()

    def is_in_order(self) -> bool:
        """Whether the backward of the call at hand is one of these."""
        return self._order is not None and self._order.is_at_hand

    def listen(self, instance):
        """To a backward whose gradients are added up one by one, or None."""
        return self._order and self._order.listen(instance)

    def _end(self) -> None:
        """No graph is to come any more."""
        self._aside.deliver()
        if self._order is not None:
            self._order.deliver()
        self._add([p for p in self._aside.left()
                   if p not in self._awaited])
        if self._aside is not None:
            self._aside.keep()

    def _add(self, some) -> None:
        """Of parameters to which nothing is to come any more."""
        if self._order is None:
            self._aside.add(some)
        else:
            self._order.add(self._aside.add, some)
        if not self._awaited:
            self._aside = self._order = None
            self.is_open = False

    def _comes_again(self, whole=False) -> bool:
        """Another call, or a whole one: modules that a graph has run in vain
        have been eager, and get nothing more of it."""
        for other in self.segment.instances.values():
            node = other.node and other.node()
            if node is not None and will_run(node) \
                    and not (whole and other.origin.count is not None):
                return True
        return bool(self.again) and self._comes_to_others(current_pass())

    def _comes_to_others(self, now: int) -> bool:
        nodes = [(ref, ref(), last) for ref, last in self.again.items()]
        self.again = {ref: last for ref, node, last in nodes
                      if node is not None}
        return any(node is not None and last != now and will_run(node)
                   for _, node, last in nodes)
