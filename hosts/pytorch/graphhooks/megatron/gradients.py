"""Gradients that Megatron's DistributedDataParallel adds to `main_grad`.

It does so in a hook for each parameter, by a launch from Python.  What stands
in for a parameter in a recording has a hook of its own that does the same, so
the launch is in the graph, and nothing is left to add.  Where gradients are
summed over ranks beside the backward, DistributedDataParallel is told of those
that are there.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections

from ..torch.grad.away import put_gradients

_HOOK = "DistributedDataParallel._make_backward_post_hook.<locals>.hook"


def add_in_graphs(chunk, bodies) -> None:
    """Of the parameters that one body alone has, in one place."""
    ddp = _wrapper(chunk)
    if ddp is None:
        return
    engine = Engine(ddp)
    places = collections.Counter(
        id(p) for module in chunk.modules()
        for p in module._parameters.values() if p is not None)
    for body in bodies:
        put_gradients(body, {
            p: _add for p in body.parameters()
            if p in ddp.param_to_bucket_group and places[id(p)] == 1
            and not hasattr(p, "zero_out_wgrad")}, engine)


class Engine:
    """A DistributedDataParallel, as away.py has it."""

    def __init__(self, ddp):
        self._ddp = ddp
        # The hook wants a gradient, as a sign that it is there.
        self.waits = ddp.ddp_config.overlap_grad_reduce

    def knows(self, hook) -> bool:
        return getattr(hook, "__qualname__", None) == _HOOK and any(
            cell.cell_contents is self._ddp for cell in hook.__closure__)

    def tell(self, parameters) -> None:
        if not self.waits:
            return
        groups = self._ddp.param_to_bucket_group
        all_reduce = getattr(self._ddp, "force_all_reduce", False)
        for p in parameters:
            groups[p].register_grad_ready(p, all_reduce)


def _add(leaf) -> None:
    """Of one that is put off there is none yet."""
    if leaf.grad is not None and not leaf.grad_added_to_main_grad:
        leaf.main_grad.add_(leaf.grad)
    leaf.grad = None


def _wrapper(chunk):
    """The DistributedDataParallel among what wraps a chunk."""
    while chunk is not None:
        if hasattr(chunk, "param_to_bucket_group"):
            return chunk
        chunk = getattr(chunk, "module", None)
    return None
