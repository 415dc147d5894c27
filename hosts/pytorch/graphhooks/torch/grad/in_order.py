"""The order in which eager adds up what comes to a weight, and calls of which
a graph has another.

Eager.  A pass of autograd runs nodes as they become ready, of these first what
was made last.  What they give for a weight is added up one by one in that
order, of one node by position.  When the last edge has been, the sum is added
to `.grad`: one addition a pass.  A pass within the pass, as a reentrant
checkpoint has, does so by itself: each is one more addition to `.grad`, at
once.

A graph.  It has of each weight what one call adds.  Sums (sums.py) adds that
up, call by call, and then to `.grad`.  This is eager's order where

    a call has one gradient of the weight, whatever the number of calls;
    a call has several, and the pass has nothing else of the weight;
    a call adds several pieces, each in a pass of its own: the graph adds each
    to `.grad`, too (parameters.py).

It is not where a call has several, and the pass has others, of another call or
from elsewhere: a + b + c + d is not (a + b) + (c + d).  Nor where a call adds
some of a weight in a pass of its own, and others not, and the pass has another
call: the first go to `.grad` at once, and those others at the end.  If the
first step has such passes, the layer has no graphs (forwards.py).  The first
one that comes later is here: each call runs eagerly, what it gives is had one
by one, and the layer is eager from then on.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from ..base.private import current_pass
from ..base.tree import Unserved
from .contributions import Contributions, uses
from .gradients import add_eagerly
from .strides import like

WHY = ("{} is used several times in it, and one backward goes through several "
       "of its calls: eager adds up these gradients one by one, and graphs "
       "those of each call before")


class InOrder:
    """One pass of autograd, which comes by several calls of a segment.  Of
    weights that graphs put in place, the sum so far is in `.grad` for each."""

    def __init__(self, segment):
        self.segment = segment
        self._weights = segment.parameters.joined
        self._sums: dict = {}  # so far, of those that autograd is given
        # Parameters, and what is added to `.grad` before and after the sum.
        self._before: list = []
        self._after: list = []
        self._is_last = False
        self.is_at_hand = False  # a call of it

    def _why(self) -> str:
        return WHY.format(next(name for _, name, p
                               in self.segment.parameters.places
                               if p in self._weights))

    def run(self, run, instance, microbatch: int, grads, more: bool):
        """A call, by what runs it eagerly, as far as that can be; more: others
        are to come."""
        segment = self.segment
        self._is_last = not more
        self.is_at_hand = segment.parameters.gathered is None
        why = Unserved(segment.name, self._why())
        try:
            if run != segment.run_back:
                return run(instance, microbatch, grads)
            if self.is_at_hand:
                return segment.run_eagerly(why, instance, microbatch, grads)
        except Unserved as failure:
            if failure is not why:
                raise
        finally:
            self.is_at_hand = False
        segment.owner.say(segment.name, f"{why.what}; so bits may differ")
        return run(instance, microbatch, grads)

    def listen(self, instance) -> "_Call | None":
        """For the backward of the call at hand, which is about to begin."""
        return _Call(self, instance) if self.is_at_hand else None

    def add(self, add, some) -> None:
        """After the last call, of some parameters, whose sums add() adds."""
        those = set(some)
        for p, piece in self._before:
            if p in those:
                add_eagerly([p], [piece])
        add(some)
        for p, piece in self._after:
            if p in those:
                add_eagerly([p], [piece])

    def deliver(self) -> None:
        """What autograd was not given."""
        self.segment.parameters.deliver(self._sums)

    def take(self, p, total, contributions):
        """The sum, with those of one more call."""
        for each in contributions:
            if total is None:
                total = like(p).copy_(each)
            else:
                total.add_(each)
        return total

    def of_autograd(self, p, contributions):
        """What autograd is given of a call: nothing, but for the last."""
        total = self.take(p, self._sums.pop(p, None), contributions)
        if self._is_last and contributions:
            return total
        self._sums[p] = total
        return None

    def put(self, p, before, after) -> None:
        """What the call has added by itself."""
        self._before += [(p, each) for each in before]
        (self._after if self._is_last else self._before).extend(
            (p, each) for each in after)


class _Call:
    """The backward of one call."""

    def __init__(self, order: InOrder, instance):
        self._order = order
        parameters = order.segment.parameters
        own = set(parameters.own)
        those = parameters.joined.intersection(
            own.union(parameters.returned))
        leaves = {p: leaf for p, leaf in zip(parameters.all, instance.leaves)
                  if p in those and leaf is not p}
        self._own = own.intersection(leaves)
        self._found = {p: _Gradients(leaves[p], edges) for p, edges in zip(
            leaves, uses(instance.live, [*leaves.values()]))}

    def take(self, of_parameters: dict) -> None:
        """When it is over; what is left for who has begun it."""
        for p, found in self._found.items():
            if p in self._own:
                p.grad = self._order.take(p, p.grad, found.found)
                self._order.put(p, *found.pieces)
                of_parameters[p] = None
            else:
                of_parameters[p] = self._order.of_autograd(p, found.found)

    def remove(self) -> None:
        for found in self._found.values():
            found.remove()


class _Gradients(Contributions):
    """Those that come to a leaf in one backward."""

    def __init__(self, leaf, edges):
        super().__init__(edges)
        # What passes within the pass add, before and after their sum.
        self.pieces: tuple = [], []
        self._pass = -1
        self._are_all = False
        self._handles.append(
            leaf.register_post_accumulate_grad_hook(self._land))

    def note(self, gradient) -> None:
        self._pass = current_pass()
        super().note(gradient)

    def _land(self, leaf) -> None:
        gradient, leaf.grad = leaf.grad, None
        if self._pass == current_pass():
            self._are_all = True
        elif gradient is not None:
            self.pieces[self._are_all].append(gradient)
