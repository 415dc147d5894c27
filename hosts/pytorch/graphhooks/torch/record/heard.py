"""Hooks on the gradients of what a graph has returned.

One node of autograd stands for all that a graph has run, and is given what
comes to each of its outputs from outside.  Of an output that others are made
from, as what one layer of a chunk hands to the next, that is a part of its
gradient, or nothing.  So the node asks to be told of such hooks, and a pass
that has some, or whose output retains its gradient, goes back through modules
that run once more, where the whole gradient comes by.  Hooks of other outputs
are called here, and not where nothing comes.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import functools
import weakref

import torch
from torch.autograd.graph import GradientEdge

from ..base import private
from ..base.names import package
from ..grad import asked
from .instance import Instance

WHY = ("a hook, or retain_grad(), waits for the gradient of an output that "
       "others are made from, which a graph keeps to itself; passes without "
       "one replay")
_NODES = ("a hook of the node of autograd's that an output has (grad_fn) was "
          "not called, as one node stands for all that a graph has run, and "
          "has no gradient of outputs that others are made from: put hooks on "
          "tensors")


def listen(node, tensor) -> bool:
    """Whether hear() calls the hooks of an output; of a single one autograd
    does."""
    flight = node.flight
    if type(flight) is not tuple:
        return False  # a backward has come by, and none comes again
    segment, instance, *_, origin = flight
    # FSDP's hooks only wait for a backward to begin.
    if len(instance.outputs) == 1 or segment.parameters.gathered is not None:
        return False
    if origin.hooks is None:
        origin.hooks = {}
    origin.hooks[tensor.output_nr] = (private.tensor_hooks(tensor),
                                      weakref.ref(tensor))
    return True


def listen_to_node(node, hook):
    """A hook of the node itself, which stands for all layers of a chunk: what
    such a hook is called with in their stead, or the same."""
    flight = node.flight
    if type(flight) is not tuple or not flight[1].inner \
            or package(hook) in ("graphhooks", "torch"):
        return hook
    segment, instance = flight[:2]

    def call(*given):
        of_outputs = given[-1]
        if all(of_outputs[i] is not None for i in instance.inner):
            return hook(*given)
        segment.owner.say(segment.name, _NODES)
        segment.part(_NODES)
        return None

    return call


def hear(instance, origin, grads):
    """What comes from outside to the outputs of a pass, behind the hooks of
    those that others are not made from."""
    origin.is_heard = _is_heard(instance, origin)
    if origin.hooks is None:
        return grads
    grads = [*grads]
    for i in sorted(origin.hooks, reverse=True):
        hooks, output = origin.hooks[i]
        hooks = [*hooks.values()]
        if i in instance.inner:
            grads[i] = _call([h for h in hooks if _is_ours(h)], grads[i])
        elif grads[i] is not None:
            grads[i] = _call(hooks, grads[i])
            output = output()
            if output is not None and output.retains_grad:
                _retain(origin, i, output, grads[i].clone())
    return grads


def _is_heard(instance, origin) -> bool:
    for i in instance.inner:
        tensor = origin.outputs[i]()
        if tensor is not None and tensor.retains_grad:
            return True
    return origin.hooks is not None and any(
        not _is_ours(h) for i in instance.inner if i in origin.hooks
        for h in origin.hooks[i][0].values())


def _is_ours(hook) -> bool:
    """It measures, or compares what comes from outside."""
    return package(hook) == "graphhooks" and type(hook) is not Wanted


class Wanted:
    """An output that others are made from, whose gradient autograd.grad() is
    asked for: as a hook, it is given that."""

    def __init__(self, node, tensor):
        self._node, self.tensor = node, tensor
        self.parameters = node.flight[0].parameters
        self.gradient = None

    def behind(self) -> tuple:
        """The edge to the first of what the graph was given that has a
        gradient: inputs come before parameters."""
        return next(edge for edge in self._node.next_functions
                    if edge[0] is not None)

    def __call__(self, gradient) -> None:
        self.gradient = gradient


def _wanted(output):
    """Of what autograd.grad() is asked for, or None."""
    if isinstance(output, GradientEdge):
        node, nr = output.node, output.output_nr
    else:
        node, nr = output.grad_fn, output.output_nr
    flight = getattr(node, "flight", None)
    if type(flight) is not tuple or len(flight) < 2 \
            or not isinstance(flight[1], Instance) \
            or nr not in flight[1].inner:
        return None  # a node of others, or of a pass that is over
    tensor = flight[-1].outputs[nr]()
    return None if tensor is None else Wanted(node, tensor)


asked.hear_outputs(_wanted)


@contextlib.contextmanager
def calling(origin, inner, live, parameters):
    """While autograd goes through these in the place of the outputs."""
    if not origin.is_heard:
        yield
        return
    counts = [i for i in inner if i < len(live) and live[i].requires_grad]
    later: list = []
    handles = [live[i].register_hook(functools.partial(
        _call_within, origin.hooks[i][0], later, parameters))
        for i in counts if i in (origin.hooks or ())]
    retaining = [(i, t) for i in counts for t in [origin.outputs[i]()]
                 if t is not None and t.retains_grad]
    for i, _ in retaining:
        live[i].retain_grad()
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
    for i, tensor in retaining:
        _retain(origin, i, tensor, live[i].grad)
    for hook, grad in later:
        hook(grad)


def _call(hooks, grad):
    for hook in hooks:
        result = hook(grad)
        if result is not None:
            grad = result
    return grad


def _call_within(hooks, later: list, parameters, grad):
    """Torch's own that wait for several tensors count those of a pass, which
    is the one around."""
    now = []
    for hook in hooks.values():
        code = getattr(hook, "__code__", None)
        if _is_ours(hook):
            continue
        if code is not None \
                and code.co_filename == torch.autograd.graph.__file__:
            later.append((hook, grad))
        else:
            now.append(hook)
    found = _call(now, grad)
    asked.look(parameters)
    return found


def _retain(origin, i: int, tensor, grad) -> None:
    """As torch does, which has done so with what came from outside."""
    if grad is None:
        return
    if origin.retained is None:
        origin.retained = {}
    before = origin.retained.get(i)
    tensor.grad = origin.retained[i] = grad if before is None \
        else before + grad
