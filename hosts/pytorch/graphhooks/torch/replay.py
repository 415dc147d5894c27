"""What stands in autograd's graph for modules that a graph has run.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import weakref

import torch
from torch import is_grad_enabled
from torch._C import (
    _are_functorch_transforms_active as torch_func_is_active)

from ..errors import Error


class Replay(torch.autograd.Function):
    """One forward of a segment; autograd's ``ctx`` is its node."""

    @staticmethod
    def forward(ctx, flight, *tensors):
        ctx.flight = flight
        instance = flight[1]
        instance.node = weakref.ref(ctx)
        ctx.set_materialize_grads(False)
        outputs = instance.outputs
        # Not detach(), whose result is a view, and shares its version with
        # those of other replays.
        if len(outputs) == 1:
            return outputs[0].data
        outputs = tuple([o.data for o in outputs])
        if instance.constant:
            ctx.mark_non_differentiable(
                *[outputs[i] for i in instance.constant])
        return outputs

    @staticmethod
    def backward(ctx, *grads):
        segment, instance, microbatch = ctx.flight
        if is_grad_enabled():
            raise Error(f"{segment.name}: a graph has no derivative of its "
                        "backward; detach for create_graph=True")
        return (None, *segment.backward(instance, microbatch, grads))


# Function.apply() first sees to torch.func, which costs as much as the half of
# the rest.
_apply = super(torch.autograd.Function, Replay).apply


def replay(segment, instance, microbatch: int, tensors):
    """The outputs of a forward that a graph has run."""
    apply = Replay.apply if torch_func_is_active() else _apply
    inputs = *tensors, *segment.parameters.behind
    if instance.again:
        inputs += tuple([tensors[i] for i in instance.again])
    return apply((segment, instance, microbatch), *inputs)
