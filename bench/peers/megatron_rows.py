"""The rows of Megatron-Core's own GPTModel, local layer spec.

All of them are driven by Megatron-Core's schedule, as its train loop does:
``get_forward_backward_func`` with a forward step of ours.  One process, one
rank, no DDP.

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import torch
from megatron.core import full_cuda_graph, parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel.random import (
    get_all_rng_states, model_parallel_cuda_manual_seed)
from megatron.core.transformer import TransformerConfig, cuda_graphs

from row import SEED, Row, attach, words_of


def start_megatron(device: torch.device):
    """One rank of one."""
    if torch.distributed.is_initialized():
        return
    cuda = device.type == "cuda"
    torch.distributed.init_process_group(
        "nccl" if cuda else "gloo", store=torch.distributed.HashStore(),
        rank=0, world_size=1)
    parallel_state.initialize_model_parallel()


class Eager(Row):
    impl = "none"
    more: dict = {}  # of the configuration

    def build(self):
        start_megatron(self.device)
        torch.manual_seed(SEED)
        if self.device.type == "cuda":
            # The tracker that graphs need, in every row: its states are
            # generators, and each attention switches between them.
            model_parallel_cuda_manual_seed(
                SEED, use_cudagraphable_rng=True, force_reset_rng=True)
        case = self.case
        config = TransformerConfig(
            num_layers=case.layers, hidden_size=case.hidden,
            num_attention_heads=case.heads, params_dtype=torch.bfloat16,
            bf16=True, hidden_dropout=0.0, attention_dropout=0.0,
            # What needs Apex or Transformer Engine is off in every row.
            masked_softmax_fusion=False, gradient_accumulation_fusion=False,
            use_cpu_initialization=self.device.type != "cuda",
            cuda_graph_impl=self.impl, cuda_graph_modules=[], **self.more)
        self.model = GPTModel(
            config, get_gpt_layer_local_spec(), vocab_size=case.vocabulary,
            max_sequence_length=case.sequence,
            position_embedding_type="learned_absolute")
        # Managers of local graphs change the stream on the way.
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        # As Megatron's Float16Module does: norms and embeddings too.
        self.model.to(self.device, torch.bfloat16)
        self.model.train()
        self.places = torch.arange(
            case.sequence, device=self.device).expand(case.batch, -1)
        self.optimizer = self.make_optimizer(self.model.parameters())
        self.schedule = get_forward_backward_func()

    def forward_step(self, data, model):
        inputs = next(data)
        output = model(inputs["tokens"], inputs["places"], None,
                       labels=inputs["targets"])
        microbatch = self.microbatch
        self.microbatch += 1

        def loss_of(output):
            loss = output.mean()
            self.losses[microbatch].copy_(loss.detach())
            return loss, {}

        return output, loss_of

    def passes(self, step: int):
        case = self.case
        self.microbatch = 0
        self.schedule(
            forward_step_func=self.forward_step,
            data_iterator=iter([
                {"tokens": self.tokens[step, microbatch],
                 "targets": self.targets[step, microbatch],
                 "places": self.places}
                for microbatch in range(case.microbatches)]),
            model=self.model, num_microbatches=case.microbatches,
            seq_length=case.sequence, micro_batch_size=case.batch,
            forward_only=False)

    def without_layers(self):
        self.model.decoder.layers = torch.nn.ModuleList()


class Local(Eager):
    """A graph for each layer and direction, by CudaGraphManager.

    Its backward graphs add to ``main_grad``, which Megatron's DDP has in one
    buffer; here the buffer is ``.grad`` as well, for the optimizer.
    """

    impl = "local"

    def build(self):
        super().build()
        parameters = list(self.model.parameters())
        self.gradients = torch.zeros(
            sum(parameter.numel() for parameter in parameters),
            dtype=torch.bfloat16, device=self.device)
        start = 0
        for parameter in parameters:
            end = start + parameter.numel()
            parameter.main_grad = self.gradients[start:end].view_as(parameter)
            parameter.grad = parameter.main_grad
            start = end
        # A manager that is not in training leaves its layer alone.
        for layer in self.model.decoder.layers:
            layer.cudagraph_manager.eval()

    def prepare(self):
        for layer in self.model.decoder.layers:
            layer.cudagraph_manager.train()

    def update(self):
        self.optimizer.step()
        self.gradients.zero_()

    def close(self) -> dict:
        created = cuda_graphs._CudagraphGlobalRecord.cudagraph_created
        return {"stats": {"cudagraph_created": bool(created)}}


class FullIteration(Eager):
    """The passes of all microbatches in one graph, the optimizer not.

    Gradients are None when the graph is captured, so it writes them anew at
    each replay, and they are never reset.
    """

    impl = "full_iteration"
    by_layer = False

    def build(self):
        super().build()
        kind = full_cuda_graph.FullCudaGraphWrapper
        full_cuda_graph.StaticBufferLoader.static_buffers = {
            "training": [], "validation": []}
        kind.curr_iteration = {"training": 0, "validation": 0}
        kind.cuda_graph = {"training": None, "validation": None}
        kind.result = {"training": None, "validation": None}
        self.kind = kind
        self.plain = self.schedule

    def prepare(self):
        # One more eager iteration, as the default of three says.
        self.schedule = self.kind(self.plain, cuda_graph_warmup_steps=1)

    def update(self):
        self.optimizer.step()
        if self.kind.cuda_graph["training"] is None:
            self.optimizer.zero_grad(set_to_none=True)

    def close(self) -> dict:
        captured = self.kind.cuda_graph["training"] is not None
        self.schedule = self.plain
        self.kind.cuda_graph = {"training": None, "validation": None}
        self.kind.result = {"training": None, "validation": None}
        return {"stats": {"captured": captured}}


class Offload(Eager):
    """Its fine-grained offload, of what is inside of the attention.  Where the
    local layer spec has not all that it needs, the row says so."""

    more = {"fine_grained_activation_offloading": True,
            "offload_modules": ["qkv_linear", "core_attn", "attn_proj"]}


class Hooked(Eager):
    """graphhooks on the model of the eager row: Megatron's graphs are off."""

    attached = None

    def prepare(self):
        generators = tuple(
            state for state in get_all_rng_states().values()
            if isinstance(state, torch.Generator))
        self.attached = attach(self.model, self.name,
                               layers="decoder.layers.*",
                               generators=generators)

    def close(self) -> dict:
        return words_of(self.attached) if self.attached else {}


ROWS = {"eager": Eager, "local": Local, "full_iteration": FullIteration,
        "layer": Hooked, "chunk": Hooked, "offload": Offload}
