"""Passes of autograd that are asked for some gradients alone, as by
`backward(inputs=...)` and `autograd.grad()`.

Autograd knows one of the parameters whose gradients a graph puts in place, so
it would not come by for another.  Such a pass is asked for that one too, and
the segment is told of which it is meant.  It does not come by either for an
output of a graph that others of it are made from, as what one layer of a chunk
hands to the next, and knows of its gradient what comes from outside alone.
Such a pass is asked for something behind the graph, too, and the gradient is
what a hook of that output is given (heard.py).

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import weakref

from torch import set_grad_enabled
from torch.autograd.graph import GradientEdge

from ..base import private
from ..base.private import current_pass
from .sums import Aside

# Parameters of segments (parameters.py) of which a graph has some.
_known: weakref.WeakSet = weakref.WeakSet()


class Asked:
    """What a pass is asked for of one segment's own parameters."""

    def __init__(self, those):
        self.those = those
        self.found: dict = {}  # gradients that autograd.grad() is to return
        self._pass = -1

    def is_at_hand(self) -> bool:
        """Whether it is this pass, and none that has begun within it."""
        now = current_pass()
        if self._pass < 0:
            self._pass = now
        return self._pass == now

    def note(self, parameters, gradients) -> None:
        """Of one call; the graph may overwrite them."""
        for p, gradient in zip(parameters, gradients):
            if gradient is not None and p in self.those:
                before = self.found.get(p)
                self.found[p] = gradient.clone() if before is None \
                    else before + gradient


def _wanted(_):  # heard.py's: of an output that others are made from
    return None


def hear_outputs(wanted) -> None:
    """wanted(output) is what finds its gradient, or None."""
    global _wanted
    _wanted = wanted


def know(parameters) -> None:
    """Its graphs put gradients in place from now on."""
    _known.add(parameters)


def forget(parameters) -> None:
    _known.discard(parameters)


def _run(run, tensors, grad_tensors, keep_graph, create_graph, inputs=(),
         allow_unreachable=False, accumulate_grad=False):
    """A pass that Python begins."""
    asked = _asked(inputs) if inputs and _known else {}
    outputs = {} if accumulate_grad else _outputs(inputs)
    hooks = _hooks() if inputs and _known and not accumulate_grad else {}
    if not asked and not outputs and not hooks:
        return run(tensors, grad_tensors, keep_graph, create_graph, inputs,
                   allow_unreachable, accumulate_grad)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_unheard(hooks))
        more = [stack.enter_context(_asking(parameters, each))
                for parameters, each in asked.items()]
        more += [stack.enter_context(_hearing(each))
                 for each in outputs.values()]
        found = run(tensors, grad_tensors, keep_graph, create_graph,
                    (*inputs, *more), True, accumulate_grad)
    if accumulate_grad:
        for parameters, each in asked.items():
            parameters.deliver(each.found)
        return found
    ours = {p: g for each in asked.values() for p, g in each.found.items()}
    with set_grad_enabled(create_graph):
        found = [_heard(hooks, i, _sum(g, ours.get(_leaf(i))))
                 for i, g in zip(inputs, found)]
    for i, each in outputs.items():
        found[i] = found[i] if each.gradient is None else each.gradient
    if not allow_unreachable and any(g is None for g in found):
        raise RuntimeError(
            "One of the differentiated Tensors appears to not have been used "
            "in the graph. Set allow_unused=True if this is the desired "
            "behavior.")
    return tuple(found)


def _hooks() -> dict:
    """Those of gradients, by the parameter of which a graph has that."""
    return {p: hooks for parameters in [*_known] if parameters.are_awaited()
            for p in parameters.own
            for hooks in [private.hooks_of_leaf(p)[0]] if hooks}


@contextlib.contextmanager
def _unheard(hooks):
    """The pass calls none of these: its gradients are not whole where it comes
    by, or not asked for."""
    before = {p: dict(each) for p, each in hooks.items()}
    for each in hooks.values():
        each.clear()
    try:
        yield
    finally:
        for p, each in hooks.items():
            each.update(before[p])


def _heard(hooks, wanted, gradient):
    """What hooks of the parameter, if it is one, leave of its gradient."""
    hooks = hooks.get(_leaf(wanted), {}) if gradient is not None else {}
    for hook in [*hooks.values()]:
        other = hook(gradient)
        gradient = gradient if other is None else other
    return gradient


@contextlib.contextmanager
def _asking(parameters, asked):
    """The edge by which a pass comes by; what a call that is eager leaves
    there is nobody's."""
    others = [p for p in parameters.sample if p not in asked.those]
    aside = Aside(parameters, others)
    before, parameters.asked = parameters.asked, asked
    try:
        with aside.summing():
            yield GradientEdge(parameters.sample_node(), 0)
    finally:
        parameters.asked = before  # of a pass that this one is within
        aside.restore()


@contextlib.contextmanager
def _hearing(wanted):
    """An edge by which a pass comes by, behind the graph."""
    parameters = wanted.parameters
    edge = GradientEdge(*wanted.behind())
    handle = wanted.tensor.register_hook(wanted)
    try:
        if parameters.sample and edge.node is parameters.sample_node():
            with _asking(parameters, parameters.asked or Asked(set())) as edge:
                yield edge
        else:
            yield edge
    finally:
        handle.remove()


def _outputs(inputs) -> dict:
    """By their place among the inputs."""
    return {i: wanted for i, asked in enumerate(inputs)
            for wanted in [_wanted(asked)] if wanted is not None}


def _asked(inputs) -> dict:
    leaves = set(map(_leaf, inputs))
    found = {}
    for parameters in [*_known]:
        if not parameters.are_awaited():
            continue  # torch forbids what the pass would come by besides
        those = leaves.intersection((*parameters.own, *parameters.silent))
        if those:
            found[parameters] = Asked(those)
    return found


def _leaf(asked):
    """What an edge leads to, where that is a leaf."""
    if isinstance(asked, GradientEdge):
        return getattr(asked.node, "variable", None)
    return asked


def _sum(gradient, ours):
    if gradient is None or ours is None:
        return ours if gradient is None else gradient
    return gradient + ours


private.around_passes(_run)
