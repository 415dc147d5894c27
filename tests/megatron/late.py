"""Linear layers that put their weight gradients off, as Transformer Engine's do.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections
import queue

from models import torch

TOLD: collections.Counter = collections.Counter()  # calls, outside of layers


class Late(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, module):
        ctx.save_for_backward(x, weight)
        ctx.module = module
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors

        def work(x, grad):
            return grad.flatten(0, -2).t() @ x.flatten(0, -2)

        ctx.module.wgrad_store.context.put([[x, grad], work])
        return grad @ weight, None, None


class Store:
    def __init__(self):
        self.context = queue.Queue()


def forward(self, x, *_, **__):
    return Late.apply(x, self.weight, self), None


@torch.no_grad()
def backward_dw(self):
    tensors, work = self.wgrad_store.context.get_nowait()
    found = work(*tensors)
    if self.fused:
        self.weight.main_grad.add_(found)
        self.weight.grad_added_to_main_grad = True
    else:
        self.weight.grad = found
    self._trigger_wgrad_accumulation_and_reduce_hooks()


def trigger(self):
    """As Megatron's hook, where its buffers have the gradients."""
    from megatron.core.transformer.cuda_graphs import is_graph_capturing

    if is_graph_capturing():
        return
    weight = self.weight
    TOLD[id(self)] += 1
    if weight.grad is not None:
        weight.main_grad.add_(weight.grad)
    weight.grad = None


def put_off(core, fused: bool) -> list:
    """Their linear layers of attention do as Transformer Engine's."""
    found = []
    for layer in core.decoder.layers:
        for module in (m for n, m in layer.self_attention.named_children()
                       if n.startswith("linear_")):
            kind = type(module)
            module.__class__ = type(kind.__name__, (kind,), {
                "forward": forward, "backward_dw": backward_dw,
                "_trigger_wgrad_accumulation_and_reduce_hooks": trigger})
            module.wgrad_store, module.fused = Store(), fused
            if not hasattr(module.weight, "main_grad"):
                module.weight.main_grad = torch.zeros_like(module.weight)
            found.append(module)
    return found
