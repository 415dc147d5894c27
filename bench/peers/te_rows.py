"""The rows of Megatron-Core's models of Transformer Engine's layers.

The model, its optimizer and its schedule are those of the example
megatron_te.py, with Megatron's DistributedDataParallel around the model.  One
process, one rank.

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import os
import sys

import torch

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..",
                             "..", "hosts", "pytorch", "examples"))

import megatron_model  # noqa: E402
import transformer_engine.pytorch  # noqa: E402,F401 - in time
from megatron.core.models.gpt import GPTModel  # noqa: E402,F401
from megatron.core.optimizer import get_megatron_optimizer  # noqa: E402,F401

from row import LEARNING_RATE, SEED, Row  # noqa: E402


# What a kind of the bench is to the example, where that has no such name.
KINDS = {"offload": {"kind": "dense", "scope": "attn"},
         "delay": {"kind": "moe"}, "mamba": {"kind": "hybrid"}}
MORE = {"": {}, "offload": {"offload": "core_attn"}, "delay": {"delay": True},
        "recompute": {"recompute": "core_attn"}}


class Eager(Row):
    """The others are this one with something turned on."""

    graphs = "off"
    spec = "te"
    few = True
    options: dict = {}  # of an attach

    def shape(self) -> megatron_model.Shape:
        case = self.case
        more = MORE[self.name.partition("+")[2]]
        return megatron_model.Shape(**{
            "kind": case.kind, "spec": self.spec, "layers": case.layers,
            "hidden": case.hidden,
            "heads": case.heads, "sequence": case.sequence,
            "batch": case.batch, "vocabulary": case.vocabulary,
            "fp8": case.fp8, "experts": case.experts,
            "pattern": case.pattern, **KINDS.get(case.kind, {}), **more})

    def build(self):
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False
        megatron_model.start(self.device)
        shape = self.shape()
        if shape.offload:  # whose groups are counted by layers
            self.by_layer = False
        self.training = megatron_model.Megatron(
            shape, self.graphs, self.device, number=SEED, rate=LEARNING_RATE,
            warmup=self.plain, **self.options)
        self.training.reset()

    def prepare(self):
        self.training.graphs.make(self.case.microbatches)

    def recordings(self):
        return self.training.graphs.stats().get("recordings")

    def passes(self, step: int):
        losses = self.training.passes(
            list(zip(self.tokens[step], self.targets[step])))
        self.losses.copy_(torch.stack(losses))

    def update(self):
        self.training.update()
        self.training.reset()

    def without_layers(self):
        self.training.core.decoder.layers = torch.nn.ModuleList()

    def close(self) -> dict:
        stats = {**self.training.graphs.stats(),
                 "attention": megatron_model.attention()}
        self.training.close()
        return {"stats": stats}


class Recomputed(Eager):
    few = False


class TransformerEngine(Eager):
    graphs = "te"
    few = False


class Local(TransformerEngine):
    graphs = "local"


class FullIteration(TransformerEngine):
    graphs = "full_iteration"
    by_layer = False


class Scope(TransformerEngine):
    graphs = "scope"
    options = {"verify": "off"}

    def build(self):
        super().build()
        # What moves activations does so from the first step on, as Megatron's
        # own offload does.
        self.attached = bool(self.training.shape.offload)
        if self.attached:
            self.training.graphs.make()

    def prepare(self):
        if not self.attached:
            super().prepare()


class Chunk(Scope):
    graphs = "chunk"


ROWS = {"eager": Eager, "eager+recompute": Recomputed,
        "te": TransformerEngine, "local": Local, "full_iteration": FullIteration, "scope": Scope, "chunk": Chunk,
        **{f"te+{more}": TransformerEngine for more in ("offload", "delay")},
        **{f"scope+{more}": Scope for more in ("offload", "delay")}}
