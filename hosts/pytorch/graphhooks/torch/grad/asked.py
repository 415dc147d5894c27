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
from ..base.private import Silent, current_pass
from .sums import Aside

# Parameters of segments (parameters.py) of which a graph has some.
_known: weakref.WeakSet = weakref.WeakSet()
silences: list = []  # of the passes at hand, the innermost last


class Asked:
    """What a pass is asked for of one segment's own parameters."""

    def __init__(self, those, silence):
        self.those = those
        self.found: dict = {}  # gradients that autograd.grad() is to return
        self._silence = silence
        self._pass = -1

    def is_at_hand(self) -> bool:
        """Whether it is this pass, and none that has begun within it."""
        now = current_pass()
        if self._pass < 0:
            self._pass = now
        return self._pass == now

    def note(self, parameters, gradients) -> None:
        """Of one call; the graph may overwrite them.  Layers go back from the
        last to the first."""
        for p, gradient in reversed([*zip(parameters, gradients)]):
            if gradient is not None and p in self.those:
                before = self.found.get(p)
                self.found[p] = gradient.clone() if before is None \
                    else before + gradient
                self._silence.come(p)


class Silence:
    """Hooks of parameters of which graphs have the gradients.  A pass calls
    none of those whose gradients it is not asked for.  One of autograd.grad()
    calls none at all, as gradients are not whole where it comes by; when it is
    over, those are called that eager calls.  A hook that somebody takes away
    within the pass is gone, and one that comes stays: each has something else
    in its place meanwhile."""

    def __init__(self, parameters, heard=()):
        self._parameters = parameters  # of segments
        self._heard = heard  # whose hooks the pass calls
        self._dicts: dict = {}  # of hooks, by identity
        # The hooks that a parameter had when a gradient of it came last, in
        # the order in which these came.
        self._found: dict = {}

    def __enter__(self):
        for parameters in self._parameters:
            self._look(parameters)
        silences.append(self)
        return self

    def __exit__(self, *_) -> None:
        silences.remove(self)
        for hooks in self._dicts.values():
            for key, hook in [*hooks.items()]:
                if self._has(hook):
                    hook.passes.remove(self)
                    if not hook.passes:
                        hooks[key] = hook.hook

    def look(self, parameters) -> None:
        """A graph of these is about to run, and hooks may have come."""
        if any(parameters is each for each in self._parameters):
            self._look(parameters)

    def _look(self, parameters) -> None:
        for p in parameters.own:
            if p in self._heard:
                continue
            for hooks in filter(None, private.hooks_of_leaf(p)):
                self._dicts[id(hooks)] = hooks
                for key, hook in [*hooks.items()]:
                    if type(hook) is not Silent:
                        hook = hooks[key] = Silent(hook, p)
                    if self not in hook.passes:
                        hook.passes.append(self)

    def _has(self, hook) -> bool:
        return type(hook) is Silent and self in hook.passes

    def come(self, p) -> None:
        """A gradient of it."""
        self._found.pop(p, None)
        self._found[p] = {key: hook for key, hook in _of(p).items()
                          if self._has(hook)}

    def call(self, gradients: dict) -> None:
        """Puts what hooks leave of these, by parameter.  Each may take others
        away, or put some there, of parameters that come after its own."""
        left = {p: {*_of(p)} for p in self._found}
        for p, then in self._found.items():
            gradient = gradients.get(p)
            if gradient is None:
                continue
            now = {**_of(p)}
            hooks = [hook for key, hook in then.items()
                     if key in now or key not in left[p]]
            hooks += [now[key] for key in now if key not in left[p]]
            for hook in hooks:
                if type(hook) is Silent:
                    hook = hook.hook
                other = hook(gradient)
                gradient = gradient if other is None else other
            gradients[p] = gradient


def look(parameters) -> None:
    """Hooks may have come that the pass at hand is not to call."""
    if silences:
        silences[-1].look(parameters)


def _of(p) -> dict:
    """Hooks of its gradient."""
    return private.hooks_of_leaf(p)[0] or {}


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
    # Torch forbids what a pass would come by besides for those of others.
    awaited = [parameters for parameters in [*_known]
               if parameters.are_awaited()] if inputs and _known else []
    outputs = {} if accumulate_grad else _outputs(inputs)
    leaves = [*map(_leaf, inputs)]
    if not awaited and not outputs:
        return run(tensors, grad_tensors, keep_graph, create_graph, inputs,
                   allow_unreachable, accumulate_grad)
    with contextlib.ExitStack() as stack:
        silence = stack.enter_context(Silence(
            awaited, set(leaves) if accumulate_grad else ()))
        asked = _asked(awaited, leaves, silence)
        more = [stack.enter_context(_asking(parameters, each))
                for parameters, each in asked.items()]
        more += [stack.enter_context(_hearing(each))
                 for each in outputs.values()]
        found = run(tensors, grad_tensors, keep_graph, create_graph,
                    (*inputs, *more), allow_unreachable or bool(more),
                    accumulate_grad)
    if accumulate_grad:
        for parameters, each in asked.items():
            parameters.deliver(each.found)
        return found
    ours = {p: g for each in asked.values() for p, g in each.found.items()}
    with set_grad_enabled(create_graph):
        found = [_sum(g, ours.get(leaf)) for leaf, g in zip(leaves, found)]
        of_leaves = dict(zip(leaves, found))
        silence.call(of_leaves)
    found = [g if leaf is None else of_leaves[leaf]
             for leaf, g in zip(leaves, found)]
    for i, each in outputs.items():
        found[i] = found[i] if each.gradient is None else each.gradient
    if not allow_unreachable and any(g is None for g in found):
        raise RuntimeError(
            "One of the differentiated Tensors appears to not have been used "
            "in the graph. Set allow_unused=True if this is the desired "
            "behavior.")
    return tuple(found)


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
            with _asking(parameters, parameters.asked
                         or Asked(set(), None)) as edge:
                yield edge
        else:
            yield edge
    finally:
        handle.remove()


def _outputs(inputs) -> dict:
    """By their place among the inputs."""
    return {i: wanted for i, asked in enumerate(inputs)
            for wanted in [_wanted(asked)] if wanted is not None}


def _asked(awaited, leaves, silence) -> dict:
    found = {}
    for parameters in awaited:
        those = {*leaves}.intersection((*parameters.own, *parameters.silent))
        if those:
            found[parameters] = Asked(those, silence)
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
