"""Gradients that are summed up apart from what is in `.grad`.

Several calls of a segment that one pass of autograd goes through, such as
those of two losses that were summed, are one gradient to eager: it is added
up by itself, and then to what is in `.grad` (in_order.py).  And what
autograd.grad() asks for is not to be there at all.

Between two such calls `.grad` is what it was before the pass.  So a pass that
fails on the way leaves nothing to be put right, which nobody could do in time:
autograd lets go of it on a thread of its own, while the caller may go on.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import weakref

from ..base.private import current_pass, will_run
from .in_order import InOrder
from .strides import copy_of


class Aside:
    """A sum, of all that graphs have the gradients of, or of some.  What lies
    where a graph is going to write is a copy until the sum is complete."""

    def __init__(self, parameters, some=None):
        self._parameters = parameters
        self._own = [p for p in parameters.own if p not in parameters.nested] \
            if some is None else some
        self._sum = [None for _ in self._own]  # so far
        self._given: dict = {}  # the same of what give() is given
        self._copies: dict = {}  # and what they are of, by parameter
        for p in self._own:
            if p.grad is not None and parameters.is_in_place(p):
                theirs = p.grad
                p.grad = theirs.clone()
                self._copies[p] = p.grad, theirs

    @contextlib.contextmanager
    def summing(self):
        """The sum is in `.grad`, for a backward to be added to it."""
        theirs = [p.grad for p in self._own]
        self._put(self._sum)
        try:
            yield
        finally:
            self._sum = [p.grad for p in self._own]
            self._put(theirs)

    def _put(self, gradients) -> None:
        for p, gradient in zip(self._own, gradients):
            p.grad = gradient

    def give(self, gradients: dict) -> None:
        """Of parameters by which autograd does not come."""
        for p, gradient in gradients.items():
            known = self._given.get(p)
            self._given[p] = gradient if known is None else known + gradient

    def keep(self) -> None:
        """Until the next backward; graphs may use their pool by then."""
        pooled = self._parameters.is_in_pool
        self._sum = [total.clone() if pooled(p, total) else total
                     for p, total in zip(self._own, self._sum)]

    def add(self) -> None:
        """The sum is added to what is in `.grad`, as autograd adds to a
        gradient."""
        for p, total in zip(self._own, self._sum):
            if total is None:
                self._restore(p)
            elif p.grad is None:
                p.grad = total
            elif total.requires_grad:  # which others may have, too
                p.grad = p.grad + total
            elif self._is_copy(p):
                p.grad = total.add_(p.grad)
            else:
                p.grad.add_(total)
        self._parameters.deliver(self._given)

    def restore(self) -> None:
        """The sum is nobody's."""
        for p in self._own:
            self._restore(p)

    def _restore(self, p) -> None:
        if self._is_copy(p):
            copy, theirs = self._copies[p]
            p.grad = theirs.copy_(copy)

    def _is_copy(self, p) -> bool:
        return p in self._copies and p.grad is self._copies[p][0]


class Sums:
    """Those of a segment."""

    def __init__(self, segment):
        self.segment = segment
        self._aside: Aside | None = None  # of a pass that is not over
        self._order: InOrder | None = None  # of the same, if its calls have
        self._pass = -1  # of autograd, which comes by several times
        self._is_beside = False  # that is asked for some gradients alone
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
            if more:
                self._begin(now)
                if self.segment.parameters.joined:
                    self._order = InOrder(self.segment)
        if self._aside is None:
            return run(instance, microbatch, grads)
        with self._aside.summing():
            results = run(instance, microbatch, grads) \
                if self._order is None else self._order.run(
                    run, instance, microbatch, grads, more)
        if more:
            self._aside.keep()
        else:
            self._add()
        return results

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

    def pass_by(self) -> None:
        """A call to which no gradient comes."""
        if self.is_summing() and not self._comes_again():
            self._add()

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
                return self.run_back(run, instance, microbatch, grads)
        finally:
            aside.restore()

    def is_in_order(self) -> bool:
        """Whether the backward of the call at hand is one of these."""
        return self._order is not None and self._order.is_at_hand

    def listen(self, instance):
        """To a backward whose gradients are added up one by one, or None."""
        return self._order and self._order.listen(instance)

    def _add(self) -> None:
        if self._order is None:
            self._aside.add()
        else:
            self._order.add(self._aside.add)
        self._aside = self._order = None

    def _comes_again(self) -> bool:
        for other in self.segment.instances.values():
            node = other.node and other.node()
            if node is not None and will_run(node):
                return True
        return bool(self.again) and self._comes_to_others(current_pass())

    def _comes_to_others(self, now: int) -> bool:
        nodes = [(ref, ref(), last) for ref, last in self.again.items()]
        self.again = {ref: last for ref, node, last in nodes
                      if node is not None}
        return any(node is not None and last != now and will_run(node)
                   for _, node, last in nodes)
