"""The rows of a model in plain torch.

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import torch

from gpt import GPT
from row import SEED, Row, attach, keep_gradients, words_of


class Eager(Row):
    """The other rows are this one with something turned on."""

    def build(self):
        # Attention adds up in any order else, and no two runs are equal; with
        # warn_only it does so too.  Nothing here reads memory that it has not
        # written.
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False
        torch.manual_seed(SEED)
        case = self.case
        with torch.device(self.device):
            self.model = GPT(case.layers, case.hidden, case.heads,
                             case.sequence, case.vocabulary)
        self.model.to(torch.bfloat16)
        self.called = self.model
        self.optimizer = self.make_optimizer(self.model.parameters())

    def forward(self, step: int, microbatch: int):
        loss = self.called(self.tokens[step, microbatch],
                           self.targets[step, microbatch])
        self.losses[microbatch].copy_(loss.detach())
        return loss / self.case.microbatches

    def one(self, step: int, microbatch: int):
        self.forward(step, microbatch).backward()

    def passes(self, step: int):
        if self.case.in_flight == 1:
            for microbatch in range(self.case.microbatches):
                self.one(step, microbatch)
            return
        waiting: list = []  # as a stage of a pipeline has them
        for microbatch in range(self.case.microbatches):
            waiting.append(self.forward(step, microbatch))
            if len(waiting) == self.case.in_flight:
                waiting.pop(0).backward()
        while waiting:
            waiting.pop(0).backward()

    def without_layers(self):
        self.model.layers = torch.nn.ModuleList()
        self.called = self.model


class Overwriting(Eager):
    """Gradients come in memory which the next microbatch overwrites.  Autograd
    would take them for its own when ``.grad`` is None, so with several
    microbatches ``.grad`` has to be there."""

    def build(self):
        super().build()
        self.drop_gradients = self.case.microbatches == 1
        if not self.drop_gradients:
            keep_gradients(self.model.parameters())


class Graphed(Overwriting):
    """One call for the list of layers, as its documentation has it."""

    def prepare(self):
        case = self.case
        samples = tuple(
            (torch.randn(case.batch, case.sequence, case.hidden,
                         dtype=torch.bfloat16, device=self.device,
                         requires_grad=True),)
            for _ in self.model.layers)
        graphed = torch.cuda.make_graphed_callables(
            tuple(self.model.layers), samples)
        self.model.layers = torch.nn.ModuleList(graphed)


class Compile(Overwriting):
    """The whole model, loss and all."""

    by_layer = False

    def prepare(self):
        torch._dynamo.reset()
        self.called = torch.compile(self.model, mode="reduce-overhead")

    def one(self, step: int, microbatch: int):
        torch.compiler.cudagraph_mark_step_begin()
        super().one(step, microbatch)

    def close(self) -> dict:
        skipped = torch._dynamo.utils.counters["inductor"]["cudagraph_skips"]
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        return {"stats": {"cudagraph_skips": skipped}}


class Hooked(Eager):
    """graphhooks, by layer or by chunk."""

    attached = None

    def prepare(self):
        self.attached = attach(self.model, self.name, layers="layers.*")

    def close(self) -> dict:
        return words_of(self.attached) if self.attached else {}


class SaveOnCpu(Eager):
    """What each layer saves goes to pinned memory and comes back, by torch's
    own hooks, from the first step on."""

    def build(self):
        super().build()
        self.model.layers = torch.nn.ModuleList(
            map(_OnCpu, self.model.layers))


class _OnCpu(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            return self.layer(x)


class Offloaded(Eager):
    """graphhooks with what the attention saves in the host's memory, from the
    first step on, as memory is what counts; GRAPHHOOKS_OFFLOAD says
    otherwise."""

    attached = None

    def build(self):
        super().build()
        self.attached = attach(self.model, self.name, layers="layers.*",
                               parts={"attn": "attention", "mlp": "mlp"},
                               offload="attn",
                               max_slots=max(8, self.case.in_flight))

    def close(self) -> dict:
        return words_of(self.attached) if self.attached else {}


class Step(Eager):
    """Passes and optimizer in one graph: nothing can be faster with these
    kernels."""

    by_layer = False
    graph = None

    def prepare(self):
        self.static_tokens = self.tokens[0].clone()
        self.static_targets = self.targets[0].clone()
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            for microbatch in range(self.case.microbatches):
                loss = self.called(self.static_tokens[microbatch],
                                   self.static_targets[microbatch])
                self.losses[microbatch].copy_(loss.detach())
                (loss / self.case.microbatches).backward()
                del loss
            self.optimizer.step()
        self.graph = graph

    def passes(self, step: int):
        if self.graph is None:
            super().passes(step)
            return
        self.static_tokens.copy_(self.tokens[step])
        self.static_targets.copy_(self.targets[step])
        self.graph.replay()

    def update(self):
        # In the graph; the gradients are too, and none may be dropped.
        if self.graph is None:
            super().update()

    def close(self) -> dict:
        self.graph = None
        self.optimizer.zero_grad(set_to_none=True)
        return {}


ROWS = {"save_on_cpu": SaveOnCpu, "eager+offload": Offloaded,
        "layer+offload": Offloaded, "chunk+offload": Offloaded,
        "eager": Eager, "graphed": Graphed, "compile": Compile,
        "layer": Hooked, "chunk": Hooked, "step": Step}
