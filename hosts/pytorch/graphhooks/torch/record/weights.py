"""Weight gradients that backwards put off, as graphs of their own.

An engine may have modules whose backward computes the gradients of what they
read alone, and keeps the rest as work for later.  The graph of such a backward
leaves the tensors of that work where they are in every replay; a third graph
runs the work, once the engine calls for it.  Until then the microbatch keeps
its slot.

Which microbatch is meant by a call is a matter of order: the oldest backward
whose work has not run yet.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections
import contextlib

import torch
from torch import is_grad_enabled
from torch.cuda import is_current_stream_capturing as is_capturing

from ... import _abi
from ...errors import Error
from ..base import private
from ..base.tree import Unserved
from ..grad import gradients
from ..grad.gradient_buffers import Home
from ..grad.strides import like
from ..guard import flags
from .instance import Backward
from .recording import (capture_weights, eager_weights, enter_weights,
                        undisturbed)

_BESIDE = None  # an eager backward, of which the library knows nothing


def of(segment, modules):
    """Of a segment whose module puts weight gradients off, or None."""
    delayed = [m.delayed for m in modules
               if getattr(m, "delayed", None) is not None]
    if not delayed:
        return None
    if len(modules) > 1:
        raise Error(f"{segment.name}: segments that put weight gradients off "
                    "are graphs of their own: leave granularity \"layer\"")
    return Weights(segment, delayed[0])


class Weights:
    """Of a segment."""

    def __init__(self, segment, delayed):
        self.segment = segment
        self.delayed = delayed  # the engine's
        self._home = Home()
        self._waiting: collections.deque = collections.deque()

    # ---- backwards ------------------------------------------------------

    def note(self, result) -> None:
        """Modules have run eagerly, and their backward may come."""
        if is_capturing() or not is_grad_enabled():
            return
        for tensor in private.tree_flatten(result)[0]:
            if isinstance(tensor, torch.Tensor) and tensor.grad_fn is not None:
                tensor.grad_fn.register_prehook(
                    lambda _: self._waiting.append(_BESIDE))
                return

    @contextlib.contextmanager
    def apart(self, instance):
        """A backward is recorded: its work is the instance's, and its tensors
        stay."""
        with self.delayed.apart() as work:
            yield
        instance.work = work

    def came(self, instance, microbatch: int, is_graph: bool) -> None:
        """A pass of the library's has gone back."""
        if not is_graph and self._waiting and self._waiting[-1] is _BESIDE:
            self._waiting.pop()
        self._waiting.append((instance, microbatch, is_graph))

    def is_waiting(self) -> bool:
        """Work of a graph is to come."""
        return any(one is not _BESIDE for one in self._waiting)

    # ---- the work -------------------------------------------------------

    @torch.no_grad()
    def run(self) -> bool:
        """Of the oldest backward; whether a graph has run it."""
        one = self._waiting.popleft() if self._waiting else _BESIDE
        if one is _BESIDE:
            self.delayed.run(None)
            return False
        instance, microbatch, is_graph = one
        if not is_graph:
            self._eagerly(instance, microbatch, None)
            return False
        if instance.weights is None and self.segment.refused is None:
            instance.weights = self._record(instance, microbatch)
        if instance.later is not None:
            with instance.later.in_place():
                return self._of_graph(instance, microbatch)
        return self._of_graph(instance, microbatch)

    def _of_graph(self, instance, microbatch: int) -> bool:
        if instance.weights is not None:
            return self._replay(instance, microbatch)
        self._eagerly(instance, microbatch, instance.work)
        return False

    def _record(self, instance, microbatch: int):
        found = Backward(self._home, (*instance.backward.flight[:2], -1))
        known = self._home.gradients
        places = {p: known[p] if p in known else like(p)
                  for p in self.segment.parameters.all}  # not in a pool
        if capture_weights(self.segment, instance, microbatch, found,
                           lambda: self._capture(instance, found,
                                                 places)) is None:
            return None
        self._home.put(zip(found.own, found.gradients))
        return found

    def _capture(self, instance, found, places) -> list:
        """Gradients that the work puts into `.grad` are added to places of
        ours; those that it adds to buffers by itself are there."""
        parameters = self.segment.parameters.all
        before = [p.grad for p in parameters]
        for p in parameters:
            p.grad = None
        try:
            with undisturbed(self.segment.draws), \
                    flags.noted(parameters, parameters) as found.marks:
                self.delayed.run(instance.work)
            came = {p: p.grad for p in parameters if p.grad is not None}
        finally:
            for p, grad in zip(parameters, before):
                p.grad = grad
        found.own = [*came]
        found.gradients = [places[p] for p in came]
        for place, gradient in zip(found.gradients, came.values()):
            place.add_(gradient)
        return []

    def _replay(self, instance, microbatch: int) -> bool:
        owner, graph = self.segment.owner, instance.weights
        if self._home.take_back():
            for each in self.segment.instances.values():
                if each.weights is not None:
                    each.weights.gradients = [
                        self._home.gradients[p] for p in each.weights.own]
        owner.writes.order()
        try:
            foreign = gradients.prepare_to_add(self.segment, graph)
        except Unserved:
            self._eagerly(instance, microbatch, instance.work)
            return False
        action = enter_weights(self.segment, instance, microbatch)
        if action != _abi.GH_ACTION_REPLAYED:
            owner.cancel(self.segment.decision.reason)
            self._eagerly(instance, microbatch, instance.work)
            return False
        gradients.finish(True, graph, foreign)
        for names, name in graph.marks:
            names[name] = True
        return True

    def _eagerly(self, instance, microbatch: int, work) -> None:
        with eager_weights(self.segment, instance, microbatch):
            self.delayed.run(work)

    # ---- steps ----------------------------------------------------------

    def step(self) -> None:
        if any(one is not _BESIDE for one in self._waiting):
            self.segment.owner.say(
                self.segment.name, "weight gradients of a backward were not "
                "called for before its step ended, and are lost: call "
                "backward_dw() once for each backward")
        self._waiting.clear()
