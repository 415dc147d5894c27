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


class Eager(Row):
    """The others are this one with something turned on."""

    graphs = "off"
    options: dict = {}  # of an attach

    def build(self):
        case = self.case
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False
        megatron_model.start(self.device)
        shape = megatron_model.Shape(
            kind=case.kind, layers=case.layers, hidden=case.hidden,
            heads=case.heads, sequence=case.sequence, batch=case.batch,
            vocabulary=case.vocabulary, fp8=case.fp8, experts=case.experts,
            pattern=case.pattern)
        self.training = megatron_model.Megatron(
            shape, self.graphs, self.device, number=SEED, rate=LEARNING_RATE,
            warmup=self.plain, **self.options)
        self.training.reset()

    def prepare(self):
        self.training.graphs.make(self.case.microbatches)

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
        stats = self.training.graphs.stats()
        self.training.close()
        return {"stats": stats}


class TransformerEngine(Eager):
    graphs = "te"


class Local(Eager):
    graphs = "local"


class FullIteration(Eager):
    graphs = "full_iteration"
    by_layer = False


class Scope(Eager):
    graphs = "scope"
    options = {"verify": "off"}


class Chunk(Scope):
    graphs = "chunk"


ROWS = {"eager": Eager, "te": TransformerEngine, "local": Local,
        "full_iteration": FullIteration, "scope": Scope, "chunk": Chunk}
