"""How the gradients of parameters get into ``.grad``.

Autograd adds a gradient to ``.grad`` by one kernel for each parameter, issued
by itself.  So where nobody watches, the graph does it: it writes or adds, as
parameters.py says.  What is in ``.grad`` is made to fit it before it runs.

Bits.  Writing is what autograd does with a first gradient, adding what it
does with a later one.  A graph that adds is told which it is (first.py).  For
what it can only add to there are negative zeros where there is nothing yet:
x + -0.0 is x for every number x, and a zero keeps its sign.  A NaN stays one,
with the payload that additions leave.  Where `.grad` has zeros,
as after zero_grad(set_to_none=False), autograd adds to these, and the graph
does.  One that can only write does so beside what is there, and that is added
as autograd would.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import torch

from ..base import private
from ..base.tree import Unserved

# Elements of a tensor of zeros: a few MiB, which stay in the device's cache
# while they are copied from, so that a fill costs what it writes.
_PIECE = 1 << 20
_SPARSE = "a sparse gradient is in .grad, to which no graph adds"


class Nothing:
    """What a first gradient is added to where a graph adds: negative zeros,
    from one tensor for each dtype."""

    def __init__(self):
        self._zeros: dict = {}
        self.first = None  # which tells graphs that add (first.py)

    def pieces(self, gradients) -> tuple:
        """Of places of gradients, and the zeros that go there: two lists, for
        fill()."""
        places, zeros = [], []
        for g in gradients:
            # Not views of it: one is counted as who keeps it
            # (gradient_buffers.py).
            flat = g.data.as_strided((g.numel(),), (1,))
            for piece in flat.split(_PIECE):
                places.append(piece)
                zeros.append(self._like(g)[:piece.numel()])
        return places, zeros

    def _like(self, gradient):
        dtype = gradient.dtype
        if dtype not in self._zeros:
            zero = complex(-0.0, -0.0) if dtype.is_complex else -0.0
            self._zeros[dtype] = torch.full((_PIECE,), zero, dtype=dtype,
                                            device=gradient.device)
        return self._zeros[dtype]

    @staticmethod
    def fill(places, zeros) -> None:
        private.foreach_copy(places, zeros)


def prepare(segment, backward) -> list:
    """Makes what is in `.grad` now fit the graph that is about to run; returns
    that too as far as it is not in place: pairs, theirs and ours."""
    if backward.home.take_back():
        segment.note_taken_back(backward.home)
    owner = segment.owner
    if not owner.flights.may_run(backward.serial, backward.flight[0]):
        owner.move_gradients_out()
    if segment.parameters.adds:
        if backward.own and backward.own[0].grad is None:
            segment.copy_out()
        return prepare_to_add(segment, backward)
    for p in backward.own:
        if p.grad is not None:  # so many microbatches were not expected
            break
    else:
        return []
    if segment.parameters.are_written():
        owner.move_gradients_out()
    return _foreign(segment, backward)


def prepare_to_add(segment, backward) -> list:
    """What is nowhere yet comes to `.grad` when the graph has run: should it
    not run, nothing is there to be added to."""
    nothing = segment.owner.nothing
    missing, foreign = [], []
    for p, gradient in zip(backward.own, backward.gradients):
        grad = p.grad
        if grad is gradient:
            continue
        if grad is None:
            missing.append(p)
        else:
            foreign.append((grad, gradient))
    _refuse_sparse(segment, foreign)
    backward.is_due = bool(missing)
    is_first = len(missing) == len(backward.own)  # of a step
    if backward.taken:
        nothing.first.tell(is_first)
    if is_first:
        if backward.zeros is None:
            backward.zeros = nothing.pieces(_places(
                backward, [p for p in missing if p not in backward.taken]))
        if backward.zeros[0]:
            nothing.fill(*backward.zeros)
    elif missing:
        nothing.fill(*nothing.pieces(_places(backward, missing)))
    if foreign:
        theirs, ours = map(list, zip(*foreign))
        private.foreach_copy(ours, theirs)
    return foreign


def _places(backward, parameters) -> list:
    some = set(parameters)
    return [g for p, g in zip(backward.own, backward.gradients) if p in some]


def _foreign(segment, backward) -> list:
    found = [(p.grad, g) for p, g in zip(backward.own, backward.gradients)
             if p.grad is not None and p.grad is not g]
    _refuse_sparse(segment, found)
    return found


def _refuse_sparse(segment, foreign) -> None:
    if any(theirs.layout != torch.strided for theirs, _ in foreign):
        raise Unserved(segment.name, _SPARSE, True)


def finish(adds: bool, backward, foreign) -> None:
    """After the graph."""
    if adds:
        if backward.is_due:
            backward.is_due = False
            for p, gradient in zip(backward.own, backward.gradients):
                if p.grad is None:
                    p.grad = gradient
        if foreign:
            private.foreach_copy(*map(list, zip(*foreign)))
        return
    for p, gradient in zip(backward.own, backward.gradients):
        if not foreign or p.grad is None:
            p.grad = gradient
    for theirs, ours in foreign:
        theirs.add_(ours)


def add_eagerly(parameters, gradients) -> None:
    """As autograd does."""
    for p, gradient in zip(parameters, gradients):
        if gradient is None:
            continue
        if p.grad is None:
            p.grad = gradient
        else:
            p.grad.add_(gradient)
