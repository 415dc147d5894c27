"""The library's order of nodes in Megatron's combined forward and backward.

With `overlap_moe_expert_parallel_comm` Megatron issues the forward of one
microbatch and the backward of another node by node, in an order that is
fixed.  Nodes wait for those of their own microbatch, by events of Megatron's,
so that another order has the same bits.  Here the order is gh_overlap_run's:
with "auto" by measured times, and the same on all ranks that exchange tokens.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import torch

from ..errors import Error
from ..overlap import Overlap

# By number, in a layer with experts and in one without: what a node is.
_EXPERTS = (("pre_dispatch_computation",), ("moe_dispatch",), ("mlp",),
            ("moe_combine",), ("mtp_post_process",))
_DENSE = (("pre_dispatch_computation",), ("mlp", "mtp_post_process"))
WORDS = ("off", "fixed", "auto")


def of(names, config, word, chunks):
    """What takes the place of Megatron's order, or None.  `chunks`: the layers
    of each, in the order of its plans."""
    if word is None:
        return None
    if word not in WORDS:
        raise Error(f"overlap is {word!r}; there are {', '.join(WORDS)}, and "
                    "None for Megatron's own order")
    if not config.overlap_moe_expert_parallel_comm:
        raise Error("overlap= is the order of exchanges beside compute, and "
                    "the config is without overlap_moe_expert_parallel_comm: "
                    "set that, or leave overlap out")
    if not all(chunks):
        raise Error("a chunk of this stage has no layer, and so no order: "
                    "leave overlap out, on all ranks")
    return Order(names, config, word, chunks)


class Order:
    """It stands in the place of `TransformerModelChunkSchedulePlan.run`."""

    _there: "Order | None" = None

    def __init__(self, names, config, word: str, chunks):
        if Order._there is not None:
            raise Error("overlap= is that of another attach already, and "
                        "Megatron has one order: detach that first")
        self._plans = names.TransformerModelChunkSchedulePlan
        self._comm = names.get_comm_stream
        self._group = names.get_expert_tensor_and_model_parallel_group(
            check_initialized=False)
        self._word, self._config = word, config
        self._chunks = [[len(_EXPERTS if layer.is_moe_layer else _DENSE)
                         for layer in layers] for layers in chunks]
        self._over: Overlap | None = None
        self._under_way: dict = {}  # numbers of plans
        self._number = 0
        self._pair: tuple = None, None  # plans at hand
        self._values = [None, None]  # what goes on in each
        self._before = vars(self._plans)["run"]
        self._plans.run = staticmethod(self.run)
        Order._there = self

    def put_back(self) -> None:
        if Order._there is self:
            Order._there = None
            self._plans.run = self._before
        if self._over is not None:
            self._over.close()
            self._over = None

    def stats(self) -> dict:
        return self._over.stats() if self._over is not None else {}

    # ---- a pair ---------------------------------------------------------

    def run(self, f_schedule_plan, b_schedule_plan, b_grad=None,
            pre_forward=None, pre_backward=None, post_forward=None,
            post_backward=None):
        """As Megatron's, but for the layers in between."""
        ahead, behind = f_schedule_plan, b_schedule_plan
        value = None
        if ahead:
            if pre_forward is not None:
                pre_forward(ahead.vp_stage)
            ahead.record_current_stream()
            value = ahead.pre_process.forward()
        if behind:
            behind.record_current_stream()
            if pre_backward is not None:
                pre_backward(behind.vp_stage)
                behind.record_current_stream()
            if behind.post_process is not None:
                b_grad = behind.post_process.backward(b_grad)
        value, b_grad = self._walk(ahead, behind, value, b_grad)
        if ahead and post_forward is not None:
            with torch.cuda.stream(self._comm()):
                ahead.wait_current_stream()
                post_forward(value, ahead.vp_stage)
        if behind and post_backward is not None:
            behind.wait_current_stream()
            post_backward(b_grad, behind.vp_stage)
        if behind:
            while behind.num_layers():
                behind.pop_layer().release_state()
        if ahead and ahead.post_process is not None:
            value = ahead.post_process.forward(value)
        if behind:
            behind.pre_process.backward(b_grad)
        if ahead:
            ahead.wait_current_stream()
        if behind:
            behind.wait_current_stream()
            behind.release_state()
        return value

    def _walk(self, ahead, behind, value, grad) -> tuple:
        if ahead and not self._under_way and self._number:
            self._over.step()  # nothing is under way: a step is over
            self._number = 0
        self._pair, self._values = (ahead, behind), [value, grad]
        given: dict = {}
        if self._over is None:
            self._over = self._open()
        if ahead:
            self._under_way[ahead] = self._number
            given["forward"] = self._number, None
            self._number += 1
        if behind:
            given["backward"] = self._under_way.pop(behind), None
        try:
            self._over.run(**given, chunks=(_chunk(ahead), _chunk(behind)))
            return tuple(self._values)
        finally:
            self._pair, self._values = (None, None), [None, None]

    def _open(self) -> Overlap:
        """When the schedule has its streams."""
        config, group = self._config, self._group
        alone = group is None or group.size() == 1
        return Overlap(
            *([[_nothing] * n for n in layers] for layers in self._chunks),
            group=None if alone else group, agree=list if alone else None,
            comm=self._comm(), delay_wgrad=config.delay_wgrad_compute,
            early_release=config.ep_overlap_early_attn_memory_release,
            run_node=self._issue, overlap=self._word)

    def _issue(self, node) -> None:
        is_back = node.direction != "forward"
        layer = self._pair[is_back].get_layer(node.layer)
        names = _nodes(layer)[node.node]
        if node.direction == "wgrad":
            getattr(layer, names[0]).backward_dw()
        elif is_back:
            for name in reversed(names):
                self._values[1] = getattr(layer, name).backward(
                    self._values[1])
        else:
            with layer.get_low_precision_context():
                for name in names:
                    self._values[0] = getattr(layer, name).forward(
                        self._values[0])


def _chunk(plan) -> int:
    return plan.vp_stage or 0 if plan else 0


def _nodes(layer) -> tuple:
    """Without experts, dispatch and combine are nothing."""
    return _DENSE if type(layer.moe_dispatch).__name__ \
        == "NoopScheduleNode" else _EXPERTS


def _nothing(*_) -> None:
    pass
