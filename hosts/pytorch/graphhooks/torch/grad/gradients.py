"""How the gradients of parameters get into ``.grad``.

Autograd adds a gradient to ``.grad`` by one kernel for each parameter, issued
by itself.  So where nobody watches, the graph does it: it writes or adds, as
parameters.py says.  What is in ``.grad`` is made to fit it before it runs.

Bits.  Writing is what autograd does with a first gradient, adding what it
does with a later one.  Where a graph has to add and there is nothing yet, it
adds to negative zeros: x + -0.0 is x for every x.  One that can only write
does so beside what is there, and that is added as autograd would.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import torch

from ..base import private


class Nothing:
    """What a first gradient is added to where a graph can only add: one
    tensor of negative zeros for each dtype, in the shape of many, and made
    when somebody needs it."""

    def __init__(self):
        self._zeros: dict = {}

    def like(self, gradients) -> list:
        for g in sorted(gradients, key=torch.numel, reverse=True):
            if self._size(g.dtype) < g.numel():
                zero = complex(-0.0, -0.0) if g.is_complex() else -0.0
                self._zeros[g.dtype] = torch.full(
                    (g.numel(),), zero, dtype=g.dtype, device=g.device)
        return [self._zeros[g.dtype].as_strided(g.size(), g.stride())
                for g in gradients]

    def _size(self, dtype) -> int:
        zeros = self._zeros.get(dtype)
        return -1 if zeros is None else zeros.numel()


def prepare(segment, instance):
    """Chooses the graph that is about to run, and makes what is in `.grad` now
    fit it; returns that too as far as it is not in place: pairs, theirs and
    ours."""
    backward = instance.backward
    segment.take_back(backward.home)
    segment.owner.make_way(backward.serial, backward.flight[0])
    for p in backward.own:
        if p.grad is not None:
            break
    else:
        if instance.first is not None or not backward.adds:
            return instance.first or backward, []
    if backward.adds:
        return backward, _prepare_to_add(backward, segment.owner.nothing)
    # So many microbatches were not expected.
    if segment.parameters.are_written():
        segment.owner.move_gradients_out()
    return backward, _foreign(backward)


def _prepare_to_add(backward, nothing: Nothing) -> list:
    missing, foreign = [], []
    for p, gradient in zip(backward.own, backward.gradients):
        grad = p.grad
        if grad is gradient:
            continue
        if grad is None:
            p.grad = gradient
            missing.append(gradient)
        else:
            foreign.append((grad, gradient))
    if missing:
        private.foreach_copy(missing, nothing.like(missing))
    if foreign:
        theirs, ours = map(list, zip(*foreign))
        private.foreach_copy(ours, theirs)
    return foreign


def _foreign(backward) -> list:
    return [(p.grad, g) for p, g in zip(backward.own, backward.gradients)
            if p.grad is not None and p.grad is not g]


def finish(backward, foreign) -> None:
    """After the graph."""
    if backward.adds:
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
