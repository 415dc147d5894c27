"""Weight gradients that modules put off as Transformer Engine's do, by the
wrapper with which Megatron calls for them.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections
import queue

import pytest

pytest.importorskip("megatron.core",
                    reason="megatron-core is not installed")

import training  # noqa: E402
from models import DEVICE, torch  # noqa: E402
from megatron.core.models.common.utils import (  # noqa: E402
    _BackwardDWWrapper)
from megatron.core.transformer.moe.moe_utils import (  # noqa: E402
    MoEAuxLossAutoScaler)
from training import Training, differing, wrapped  # noqa: E402


pytestmark = pytest.mark.usefixtures("world")


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
        for module in (layer.self_attention.linear_qkv,
                       layer.self_attention.linear_proj):
            kind = type(module)
            module.__class__ = type(kind.__name__, (kind,), {
                "forward": forward, "backward_dw": backward_dw,
                "_trigger_wgrad_accumulation_and_reduce_hooks": trigger})
            module.wgrad_store, module.fused = Store(), fused
            if not hasattr(module.weight, "main_grad"):
                module.weight.main_grad = torch.zeros_like(module.weight)
            found.append(module)
    return found


class Run(Training):
    def __init__(self, scope, fused, kind="dense", has_buffers=False):
        self.late: list = []

        def wrap(core):
            model = wrapped()(core) if has_buffers else core
            self.late += put_off(core, fused)
            return model

        super().__init__(kind, scope, wrap=wrap)

    def forward(self):
        MoEAuxLossAutoScaler.set_loss_scale(torch.ones(1, device=DEVICE))
        loss = self.core(**next(self.data[0])).float().mean()
        wrappers = []
        for layer in self.core.decoder.layers:
            layer.current_microbatch = 0
            if getattr(layer, "cuda_graphs", None):
                layer.init_backward_dw_wrapper()
                layer.set_te_cuda_graph_backward_dw_wrapper()
                wrappers.append(layer.backward_dw_wrapper)
            else:
                wrappers.append(_BackwardDWWrapper(layer))
        return loss, wrappers

    def step(self, schedule: str) -> None:
        flying, gone = [], []
        for letter in schedule:
            if letter == "F":
                flying.append(self.forward())
            elif letter == "B":
                loss, wrappers = flying.pop(0)
                loss.backward()
                self.losses.append(loss.detach().clone())
                gone.append(wrappers)
            else:
                for wrapper in reversed(gone.pop(0)):
                    wrapper.backward_dw()
        for module in self.late:
            module.weight.grad = module.weight.main_grad.clone()
            module.weight.main_grad.zero_()
        self.optimizer.step()
        self.optimizer.zero_grad()


@pytest.mark.parametrize("has_buffers", [False, True])
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("kind, scope", [
    ("dense", "attn"), ("dense", "attn,mlp"), ("moe", "attn,moe_router"),
    ("moe", "moe_router")])
@pytest.mark.parametrize("schedule", ["FBWFBW", "FFBBWFBWW"])
def test_weights_of_layers(kind, scope, fused, schedule, has_buffers):
    """With the buffers of DistributedDataParallel, too."""
    TOLD.clear()
    one, two = (Run(None, fused, kind, has_buffers),
                Run(scope, fused, kind, has_buffers))
    try:
        for run in one, two:
            for _ in range(4):
                run.step(schedule)
    finally:
        stats = two.end()
    assert differing(one.state(), two.state()) == []
    assert stats["refused"] == {}
    assert stats["eager_calls"].keys() <= {"warmup"}
    third = 3 if "attn" in scope else 2  # a segment without any has two
    count = schedule.count("W") * training.LAYERS
    assert stats["replays"] >= 2 * third * count
    assert [TOLD[id(m)] for m in one.late] == [TOLD[id(m)] for m in two.late]
