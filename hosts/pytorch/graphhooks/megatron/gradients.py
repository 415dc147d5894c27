"""Gradients that Megatron's DistributedDataParallel adds to `main_grad`.

It does so in a hook for each parameter, by a launch from Python.  What stands
in for a parameter in a recording has a hook of its own that does the same, so
the launch is in the graph, and the one of DistributedDataParallel finds
nothing left to add.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections

from ..torch.grad.away import put_gradients


def add_in_graphs(chunk, bodies) -> None:
    """Of the parameters that one body alone has, in one place."""
    ddp = _wrapper(chunk)
    # With an overlap the hook wants a gradient, as a sign that it is there.
    if ddp is None or ddp.ddp_config.overlap_grad_reduce:
        return
    places = collections.Counter(
        id(p) for module in chunk.modules()
        for p in module._parameters.values() if p is not None)
    for body in bodies:
        put_gradients(body, {
            p: _add for p in body.parameters()
            if p in ddp.param_to_bucket_group and places[id(p)] == 1
            and not hasattr(p, "zero_out_wgrad")})


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
