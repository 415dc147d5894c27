"""Backwards that are asked for inputs first, and for weights later: the two
calls of torch's zero-bubble schedules, stage_backward_input() and
stage_backward_weight().

Autograd then comes by a segment twice.  The first graph gives the gradients of
inputs and keeps what reaches the functions that weights hang on, which torch's
own functions find; the second goes from there to the weights.  A backward
that asks for both is one after the other.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib

import torch
from torch.autograd.graph import get_gradient_edge

from ... import _abi
from ..base import private
from ..base.tree import Unfit
from ..grad.strides import copy_of
from ..grad.watchers import GIVEN, LEFT, fate, fate_by
from .instance import Backward
from .recording import (capture_weights, eager_weights, enter_weights,
                        undisturbed)


class Split:
    """Of a segment."""

    def __init__(self, segment):
        self.segment = segment
        self._waiting: dict = {}  # origin of the forward, by instance
        self._held: dict = {}  # nodes behind which a forward's is, by origin

    def hold(self, origin, outputs) -> None:
        """Who goes back to the weights has detached the outputs before, and
        a node in Python is gone with the last that leads there."""
        if type(outputs) is not tuple:
            outputs = (outputs,)
        self._held[origin] = [o.view_as(o).grad_fn for o in outputs]

    # ---- the first call --------------------------------------------------

    def back(self, instance, microbatch: int, grads):
        asks_for_both = fate(self.segment.parameters.ends) != LEFT
        origin = instance.origin
        results = self.segment.run_back(instance, microbatch, grads)
        if instance.backward is None or origin is None or origin.is_eager:
            return results  # with all that there is
        self._waiting[instance] = origin
        if not asks_for_both:
            return results
        found = self.weights(instance, microbatch, origin)
        return [a if b is None else b for a, b in zip(results, found)]

    def go_back(self, instance, outputs, grads) -> None:
        """To the inputs, in a capture; what weights need is the instance's
        work, and stays."""
        tools = private.zero_bubble()
        inputs = [t for t in instance.inputs if t.requires_grad]
        if not inputs:  # leave_whole() came too late
            raise Unfit("split_backward: nothing that goes into it needs a "
                        "gradient, and in earlier calls something did; its "
                        "graphs go back in two for all of its calls, or for "
                        "none: call requires_grad_() on what goes into it, or "
                        "attach without split_backward")
        roots = [o.grad_fn for o in outputs]
        ends = private.nodes_of(inputs)
        edges = tools.construct_reverse_graph(roots)
        groups = tools.get_param_groups(
            ends, private.nodes_of(instance.leaves), edges)
        _refuse_lost(roots, tools.reverse_closure(ends, set(), edges)[0])
        _refuse_several(groups)
        handles = []
        for group in groups:
            group["grads"] = [None] * len(group["intermediates"])
            for i, node in enumerate(group["intermediates"]):
                handles.append(node.register_prehook(
                    lambda came, of=group["grads"], i=i:
                    of.__setitem__(i, came)))
        found = torch.autograd.grad(outputs, inputs, grads, retain_graph=True,
                                    allow_unused=True)
        for handle in handles:
            handle.remove()
        for tensor, gradient in zip(inputs, found):
            tensor.grad = gradient
        instance.work = groups, instance.leaves, roots

    # ---- the second ------------------------------------------------------

    def waits(self, instance, origin, node) -> bool:
        """Whether the pass at hand, which comes by that node, is the second
        call for a forward, and not another backward through all layers, as
        one with retain_graph=True may be followed by."""
        if self._waiting.get(instance) is not origin:
            return False
        ends = [get_gradient_edge(p).node
                for p in self.segment.parameters.ends]
        others = [n for n, _ in node.next_functions
                  if n is not None and n not in ends]
        return fate_by(ends) == GIVEN and fate_by(others) == LEFT

    def is_waiting(self) -> bool:
        """One of its backwards has gone half the way."""
        return bool(self._waiting)

    def waits_for(self, instance) -> bool:
        return instance in self._waiting

    def weights(self, instance, microbatch: int, origin) -> tuple:
        """Their gradients, at their places among what autograd is given."""
        del self._waiting[instance]
        self._held.pop(origin, None)
        if instance.weights is None:
            instance.weights = self._record(instance, microbatch)
        with instance.later.in_place() if instance.later is not None \
                else contextlib.nullcontext():
            found = self._replay(instance, microbatch)
            if found is None:
                found = self._eagerly(instance, microbatch)
        n = len(instance.backward.results) - len(found) - len(instance.again)
        return (*[None] * n, *found, *(None for _ in instance.again))

    def _replay(self, instance, microbatch: int):
        """None: there is no graph, or it cannot be launched."""
        if instance.weights is None:
            return None
        action = enter_weights(self.segment, instance, microbatch)
        if action != _abi.GH_ACTION_REPLAYED:
            self.segment.owner.cancel(self.segment.decision.reason)
            return None
        return [None if g is None else copy_of(g)
                for g in instance.weights.gradients]

    def _eagerly(self, instance, microbatch: int) -> list:
        """By autograd's graph, from where the first graph has left off: all
        that its functions need is where a graph of them would read it.  Some
        may give what lies there, and the next replay writes there."""
        with eager_weights(self.segment, instance, microbatch):
            found = self._go_on(instance)
        return [None if g is None else copy_of(g) for g in found]

    def _record(self, instance, microbatch: int):
        if self.segment.refused is not None \
                or instance.signature.refused is not None:
            return None
        found = Backward(None, (*instance.backward.flight[:2], -1))
        return capture_weights(self.segment, instance, microbatch, found,
                               lambda: self._capture(instance, found))

    def _capture(self, instance, found) -> list:
        found.gradients = self._go_on(instance)
        return []

    def _go_on(self, instance) -> list:
        """To the weights; torch's function takes from a group what it has
        used, and another run is to find that."""
        groups, leaves, *_ = instance.work
        try:
            with undisturbed(self.segment.draws):
                private.zero_bubble().stage_backward_weight(
                    iter(leaves), [{**group} for group in groups],
                    retain_graph=True)
            of = dict(zip(self.segment.parameters.all, leaves))
            return [of[p].grad for p in self.segment.parameters.returned]
        finally:
            for leaf in leaves:
                leaf.grad = None

    def step(self) -> None:
        self._waiting.clear()
        self._held.clear()


def _refuse_lost(roots, behind_inputs) -> None:
    """Torch begins with weights where their way meets that of inputs."""
    if not behind_inputs.issuperset(roots):
        raise Unfit("split_backward: an output that has a gradient depends on "
                    "weights alone, and who goes back to inputs first does "
                    "not come by: attach without split_backward")


def _refuse_several(groups) -> None:
    """Torch goes back from each group to the weights of it."""
    weights = [w for group in groups for w in group["params"]]
    if len({*weights}) < len(weights):
        raise Unfit("split_backward: a weight is used in several places, each "
                    "with another weight of its own, and torch's zero-bubble "
                    "schedules count some of its gradients twice: attach "
                    "without split_backward")
