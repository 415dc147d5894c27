"""What stands in autograd's graph for modules that a graph has run.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import functools
import types
import weakref

import torch
from torch import is_grad_enabled

from ...errors import Error
from ..base.private import (call_at_once, is_batched, tell_of_hooks,
                            tell_of_outputs)
from ..base.tree import Unserved
from ..grad.asked import look
from ..grad.contributions import may_keep
from ..grad.strides import copy_of
from ..record import instead
from ..record.heard import hear, listen, listen_to_node
from ..record.instead import Origin

LATE = ("its backward comes after the step of its forward has ended, by a "
        "forward after an optimizer's step, and a graph keeps nothing that "
        "long; attach apart to what is stepped apart")


class Replay(torch.autograd.Function):
    """One forward of a segment; autograd's ``ctx`` is its node."""

    @staticmethod
    def forward(ctx, flight, *tensors):
        ctx.flight = flight
        instance = flight[1]
        if instance.node is not None:
            flight[0].sums.note_late(instance)
        instance.node = weakref.ref(ctx)
        instance.came = weakref.ref(flight[5])
        ctx.set_materialize_grads(False)
        outputs = instance.outputs
        # Not detach(), whose result is a view, and shares its version with
        # those of other replays.
        if flight[0].copies:
            outputs = tuple([copy_of(o).data for o in outputs])
        elif len(outputs) == 1:
            return outputs[0].data
        else:
            outputs = tuple([o.data for o in outputs])
        if instance.constant:
            ctx.mark_non_differentiable(
                *[outputs[i] for i in instance.constant])
        return outputs

    @staticmethod
    def backward(ctx, *grads):
        segment, instance, microbatch, step, kept, origin = ctx.flight
        look(segment.parameters)
        if segment.split is not None and step == segment.owner.steps \
                and segment.split.waits(instance, origin, ctx):
            found = segment.split.weights(instance, microbatch, origin)
            origin.let_go(ctx, segment.sums)
            return (None, *found)
        if instance.inner or origin.hooks is not None:
            grads = hear(instance, origin, grads)
            look(segment.parameters)
        node = instance.node
        if step != segment.owner.steps or node is None or node() is not ctx:
            return _instead(ctx, grads, _why_late(segment, step))
        negative = False
        for grad in grads:
            if grad is None:
                continue
            if is_batched(grad):
                raise Error(f"{segment.name}: a graph has no backward of a "
                            "batch of gradients: leave is_grads_batched out")
            negative |= grad.is_neg()
        if negative:  # what lies in memory has the other sign
            grads = [g if g is None else g.resolve_neg() for g in grads]
        if is_grad_enabled():
            instance.node = None
            return _instead(ctx, grads, "a graph has no derivative of its "
                            "backward; detach for create_graph=True")
        if grads[0] is None and not any(g is not None for g in grads):
            segment.leave_alone(instance)
            return (None,) * len(ctx.needs_input_grad)
        results = segment.backward(instance, microbatch, grads)
        parameters = segment.parameters
        if parameters.handed:
            results = parameters.hand_over(results, len(instance.again))
        if segment.untold:
            segment.tell()
        origin.is_back = True
        origin.let_go(ctx, segment.sums)
        if kept:
            results = list(results)
            for i in kept:
                if results[i] is not None:
                    results[i] = copy_of(results[i])
        return (None, *results)


def _metadata(ctx) -> list:
    """Of its outputs, for who goes back from the node itself, as zero-bubble
    schedules do; torch has it for nodes of its own alone."""
    return [types.SimpleNamespace(
        shape=o.shape, dtype=o.dtype, device=o.device, is_nested_tensor=False,
        is_cpp_nested_tensor=False) for o in ctx.flight[1].outputs]


tell_of_outputs(Replay, _metadata)
tell_of_hooks(Replay, listen, listen_to_node)
call_at_once(Replay)


def _instead(ctx, grads, what: str):
    """The modules have to run once more."""
    segment, instance, microbatch, step, kept, origin = ctx.flight
    if instance.node is not None and instance.node() is ctx:
        instance.node = None
    segment.sums.note_again(ctx)
    results = segment.parameters.hand_over([*segment.backward_instead(
        functools.partial(instead.run, segment, origin,
                          why=Unserved(segment.name, what),
                          late=step != segment.owner.steps),
        instance, microbatch, grads)], len(instance.again))
    origin.let_go(ctx, segment.sums)
    return (None, *results)


def _why_late(segment, step: int) -> str:
    """Why a backward finds nothing of its forward."""
    if segment.owner.steps < 0:
        return "its backward comes after detach()"
    if step != segment.owner.steps:
        return LATE
    return ("a second backward through one forward, of which a graph keeps "
            "nothing: add the losses up, or detach")


def _kept(segment, tensors) -> list:
    """Inputs whose gradients somebody may keep.  Without parameters nothing
    tells autograd.grad() from backward()."""
    if not segment.parameters.all:
        return [i for i, t in enumerate(tensors) if t.requires_grad]
    return [i for i, t in enumerate(tensors) if may_keep(t)]


def _without(inputs, unused) -> tuple:
    """Autograd is not to come by with nothing where eager does not come."""
    return tuple([t.detach() if i in unused else t
                  for i, t in enumerate(inputs)])


# Function.apply() first sees to torch.func, whose calls do not come here, and
# that costs as much as the half of the rest.
_apply = super(torch.autograd.Function, Replay).apply


def replay(segment, instance, microbatch: int, tensors):
    """The outputs of a forward that a graph has run."""
    inputs = *tensors, *segment.parameters.behind
    if instance.unused:
        inputs = _without(inputs, instance.unused)
    if instance.again:
        inputs += tuple([tensors[i] for i in instance.again])
    owner = segment.owner
    origin = Origin(tensors, instead.version(segment, tensors),
                    owner.captures.before if segment.draws else None,
                    segment.around)
    if segment.region is not None:
        origin.be_within(segment, segment.region.replays)
    outputs = _apply((segment, instance, microbatch, owner.steps,
                      _kept(segment, tensors), origin), *inputs)
    if instance.inner:
        origin.outputs = [*map(weakref.ref, outputs)]
    if segment.split is not None:
        segment.split.hold(origin, outputs)
    return outputs
