"""Weight gradients that modules put off as Transformer Engine's do, by the
wrapper with which Megatron calls for them.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import pytest

pytest.importorskip("megatron.core",
                    reason="megatron-core is not installed")

import training  # noqa: E402
from models import DEVICE, torch  # noqa: E402
from late import TOLD, put_off  # noqa: E402
from megatron.core.models.common.utils import (  # noqa: E402
    _BackwardDWWrapper)
from megatron.core.transformer.moe.moe_utils import (  # noqa: E402
    MoEAuxLossAutoScaler)
from training import Training, differing, wrapped  # noqa: E402


pytestmark = pytest.mark.usefixtures("world")


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
