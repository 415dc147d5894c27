"""Small models of Megatron-Core, trained by its own schedules.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import gc
import itertools

import graphhooks
import pytest
from models import DEVICE, HAS_GPU, torch

if not HAS_GPU:
    import softmamba
    import softmegatron

    softmamba.install()
    softmegatron.install()
    softmegatron.take_any_transformer_engine()

import graphhooks.megatron  # noqa: E402
from megatron.core import parallel_state  # noqa: E402
from megatron.core.distributed import (  # noqa: E402
    DistributedDataParallel, DistributedDataParallelConfig)
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import (  # noqa: E402
    get_gpt_layer_local_spec, get_gpt_mtp_block_spec)
from megatron.core.pipeline_parallel import (  # noqa: E402
    get_forward_backward_func)
from megatron.core.tensor_parallel import random  # noqa: E402
from megatron.core.transformer import (  # noqa: E402
    MLATransformerConfig, TransformerConfig)
from megatron.core.transformer.module import MegatronModule  # noqa: E402
from megatron.core.transformer.moe.moe_logging import (  # noqa: E402
    destroy_moe_metrics_tracker)
from megatron.core.transformer.moe.moe_utils import (  # noqa: E402
    MoEAuxLossAutoScaler)
from megatron.core.transformer.transformer_block import (  # noqa: E402
    TransformerBlockSubmodules, get_num_layers_to_build)

WORDS, LENGTH, BATCH, WIDTH, LAYERS = 64, 16, 2, 32, 2
COUNTS = [2, 3, 4, 3]
MOE = dict(
    num_moe_experts=4, moe_router_topk=2, moe_ffn_hidden_size=WIDTH,
    moe_token_dispatcher_type="alltoall", moe_aux_loss_coeff=0.01,
    moe_router_load_balancing_type="aux_loss")
KINDS = {
    "dense": {},
    "moe": MOE,
    "shared": {**MOE, "moe_shared_expert_intermediate_size": WIDTH},
    "padded": {**MOE, "moe_expert_capacity_factor": 1.0,
               "moe_pad_expert_input_to_capacity": True},
    "sigmoid": {**MOE, "moe_router_score_function": "sigmoid",
                "moe_router_enable_expert_bias": True,
                "moe_router_load_balancing_type": "none",
                "moe_aux_loss_coeff": 0.0},
    "mla": dict(
        q_lora_rank=16, kv_lora_rank=16, qk_head_dim=8, v_head_dim=8,
        qk_pos_emb_head_dim=8, rope_type="rope", apply_rope_fusion=False,
        multi_latent_attention=True),
}


class Attention(MegatronModule):
    """With values of another width, which Megatron's own has not."""

    def __init__(self, config, layer_number, attn_mask_type, attention_type,
                 **_):
        super().__init__(config)

    def forward(self, query, key, value, *_, **__):
        scores = torch.einsum("qbhd,kbhd->bhqk", query, key) \
            / query.shape[-1] ** 0.5
        later = torch.ones(scores.shape[-2:], dtype=torch.bool,
                           device=query.device).triu(1)
        scores = scores.masked_fill(later, -10000.0).softmax(-1)
        return torch.einsum("bhqk,kbhd->qbhd", scores, value).flatten(2)


class SequenceNorm(torch.nn.LayerNorm):
    """Of what each rank has of a sequence, which Megatron's own is not for."""

    def __init__(self, config, hidden_size, eps=1e-5, **_):
        super().__init__(hidden_size, eps)
        for p in self.parameters():
            p.sequence_parallel = config.sequence_parallel


def with_sequence_norms(layer, config, stage):
    """A block of such layers."""
    for name in "input_layernorm", "pre_mlp_layernorm":
        setattr(layer.submodules, name, SequenceNorm)
    count = get_num_layers_to_build(config, vp_stage=stage)
    return TransformerBlockSubmodules([layer] * count, SequenceNorm)


def begin(rank: int = 0, size: int = 1, store=None) -> None:
    """The processes."""
    store = store or torch.distributed.HashStore()
    torch.distributed.init_process_group(
        "nccl" if HAS_GPU else "gloo", store=store, rank=rank,
        world_size=size)


_groups: set = set()  # those of the model before


def divide(**parallel) -> None:
    """The processes, into the groups of a model; again, for another one."""
    known = torch.distributed.distributed_c10d._world.pg_map
    parallel_state.destroy_model_parallel()
    # Each group of gloo's has threads, one of which wakes a hundred times a
    # second, and lives as long as a model that has the group.
    torch.distributed.barrier()  # others may have words to hear yet
    gc.collect()
    for group in _groups.intersection(known):
        torch.distributed.destroy_process_group(group)
    before = {*known}
    parallel_state.initialize_model_parallel(
        create_gloo_process_groups=False, **parallel)
    _groups.clear()
    _groups.update(known.keys() - before)


def end() -> None:
    parallel_state.destroy_model_parallel()
    torch.distributed.destroy_process_group()


def seed() -> None:
    destroy_moe_metrics_tracker()  # which has as many rows as layers once had
    # Megatron copies later scales into the first one, of whatever shape it was.
    MoEAuxLossAutoScaler.main_loss_backward_scale = None
    torch.manual_seed(1234)
    random.initialize_rng_tracker(force_reset=True)
    random.model_parallel_cuda_manual_seed(
        1234, use_cudagraphable_rng=HAS_GPU, force_reset_rng=True)


def config_of(kind: str, **more):
    make = MLATransformerConfig if kind == "mla" else TransformerConfig
    sizes = parallel_state
    virtual = sizes.get_virtual_pipeline_model_parallel_world_size()
    pipeline = sizes.get_pipeline_model_parallel_world_size()
    return make(**{
        "num_layers": LAYERS * pipeline * (virtual or 1),
        "hidden_size": WIDTH, "num_attention_heads": 4,
        "use_cpu_initialization": True, "add_bias_linear": False,
        "attention_dropout": 0.0, "hidden_dropout": 0.0,
        "pipeline_model_parallel_size": pipeline,
        "virtual_pipeline_model_parallel_size": virtual,
        "expert_model_parallel_size":
            sizes.get_expert_model_parallel_world_size(),
        "pipeline_dtype": torch.float32,
        **KINDS.get(kind, {}), **more})


def build(kind: str, spec=None, places="rope", stage=None, config=None,
          tied=False, **more):
    """A model, or the chunk of a pipeline's stage that this process has."""
    if config is None:
        seed()
        config = config_of(kind, **more)
    if spec is None:
        spec = get_gpt_layer_local_spec(
            num_experts=config.num_moe_experts,
            multi_latent_attention=kind == "mla")
        if kind == "mla":
            spec.submodules.self_attention.submodules.core_attention = \
                Attention
    if config.sequence_parallel:
        spec = with_sequence_norms(spec, config, stage)
    predicts = get_gpt_mtp_block_spec(config, spec, False) \
        if config.mtp_num_layers else None
    ends = dict(ignore_virtual=False, vp_stage=stage)
    return GPTModel(
        config, spec, WORDS, LENGTH, position_embedding_type=places,
        share_embeddings_and_output_weights=tied, mtp_block_spec=predicts,
        pre_process=parallel_state.is_pipeline_first_stage(**ends),
        post_process=parallel_state.is_pipeline_last_stage(**ends),
        vp_stage=stage).to(DEVICE)


def build_chunks(kind: str, **more) -> list:
    """Those of this process."""
    virtual = parallel_state.get_virtual_pipeline_model_parallel_world_size()
    first = build(kind, stage=None if virtual is None else 0, **more)
    how = {n: more[n] for n in ("spec", "places", "tied") if n in more}
    return [first] + [build(kind, stage=i, config=first.config, **how)
                      for i in range(1, virtual or 1)]


def build_hybrid(kind, pattern, **more) -> list:
    """A stack of Mamba layers (M), attention (*), MLPs (-) and experts (E)."""
    if HAS_GPU and "M" in pattern:
        pytest.importorskip("mamba_ssm")

    from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
    from megatron.core.models.hybrid import hybrid_block
    from megatron.core.models.hybrid.hybrid_model import HybridModel
    from megatron.core.ssm.mamba_layer import (MambaLayer,
                                               MambaLayerSubmodules)
    from megatron.core.ssm.mamba_mixer import (MambaMixer,
                                               MambaMixerSubmodules)
    from megatron.core.tensor_parallel import (ColumnParallelLinear,
                                               RowParallelLinear)
    from megatron.core.transformer.spec_utils import ModuleSpec
    from megatron.core.transformer.torch_norm import WrappedTorchNorm
    from megatron.core.transformer.transformer_layer import (
        TransformerLayer, TransformerLayerSubmodules)

    seed()
    config = config_of(kind, num_layers=len(pattern), is_hybrid_model=True,
                       mamba_state_dim=8, mamba_head_dim=8,
                       mamba_num_groups=1, use_mamba_mem_eff_path=False,
                       **more)
    layers = [get_gpt_layer_local_spec(num_experts=n).submodules
              for n in (None, config.num_moe_experts or 2)]
    adds, norm = get_bias_dropout_add, WrappedTorchNorm

    def transformer(**parts):
        return ModuleSpec(module=TransformerLayer,
                          submodules=TransformerLayerSubmodules(**parts))

    mixer = ModuleSpec(module=MambaMixer, submodules=MambaMixerSubmodules(
        in_proj=ColumnParallelLinear, out_proj=RowParallelLinear))
    hybrid_block.TENorm = norm
    spec = ModuleSpec(
        module=hybrid_block.HybridStack,
        submodules=hybrid_block.HybridStackSubmodules(
            mamba_layer=ModuleSpec(
                module=MambaLayer, submodules=MambaLayerSubmodules(
                    norm=norm, mixer=mixer, mamba_bda=adds)),
            attention_layer=transformer(
                input_layernorm=norm, self_attn_bda=adds,
                self_attention=layers[0].self_attention),
            mlp_layer=transformer(pre_mlp_layernorm=norm, mlp_bda=adds,
                                  mlp=layers[0].mlp),
            moe_layer=transformer(pre_mlp_layernorm=norm, mlp_bda=adds,
                                  mlp=layers[1].mlp)))
    return [HybridModel(config, spec, WORDS, LENGTH,
                        hybrid_layer_pattern=pattern).to(DEVICE)]


class Tokens:
    """Microbatches, the same for all who count from the first."""

    batch = BATCH

    def __init__(self, seed: int = 7):
        self._numbers = torch.Generator().manual_seed(seed)

    def __iter__(self):
        return self

    def __next__(self):
        tokens = torch.randint(0, WORDS, (BATCH, LENGTH + 1),
                               generator=self._numbers).to(DEVICE)
        places = torch.arange(LENGTH, device=DEVICE).expand(BATCH, LENGTH)
        return dict(input_ids=tokens[:, :-1].contiguous(),
                    labels=tokens[:, 1:].contiguous(),
                    position_ids=places.contiguous(), attention_mask=None)


class Lengths(Tokens):
    """Sequences whose length changes from microbatch to microbatch."""

    def __init__(self):
        super().__init__()
        self._lengths = itertools.cycle((LENGTH, LENGTH // 2))

    def __next__(self):
        length = next(self._lengths)
        return {name: value if value is None
                else value[:, :length].contiguous()
                for name, value in super().__next__().items()}


class Training:
    """Of a model or its chunks, by Megatron's schedule."""

    def __init__(self, kind, scope=None, wrap=None, data=Tokens, make=None,
                 attach=None, **more):
        self.cores = (make or build_chunks)(kind, **more)
        self.core = self.cores[0]
        self.chunks = self.cores if wrap is None else \
            [wrap(core) for core in self.cores]
        if wrap is not None and len(self.cores) > 1:  # as Megatron's loop
            self.core.config.no_sync_func = [
                chunk.no_sync for chunk in self.chunks]
        self.model = self.chunks if len(self.cores) > 1 else self.chunks[0]
        self.train()
        self.attached = None
        if scope is not None:
            self.attach(scope, **(attach or {}))
        self.optimizer = torch.optim.SGD(
            [p for core in self.cores for p in core.parameters()], lr=0.1)
        # A chunk of a pipeline has the same microbatches as the others.
        self.data = [data() for _ in self.cores]
        self.losses: list = []

    def attach(self, scope, **options) -> None:
        self.attached = graphhooks.megatron.attach(self.model, scope=scope,
                                                   **options)

    def train(self, mode=True) -> None:
        for chunk in self.chunks:
            chunk.train(mode)

    def _forward(self, data, model, return_schedule_plan=False):
        given = next(data)
        if hasattr(self.data[0], "take"):  # of what a schedule has dealt out
            given = self.data[0].take(given)

        def loss(out):
            value = out.float().mean()
            return value, {"loss": value.detach().clone()}

        if return_schedule_plan:
            while not hasattr(model, "build_schedule_plan"):
                model = model.module
            return model.build_schedule_plan(**given), loss
        return model(**given), loss

    def run(self, count: int, forward_only: bool = False) -> None:
        self.losses += [each["loss"] for each in get_forward_backward_func()(
            forward_step_func=self._forward,
            data_iterator=self.data if len(self.data) > 1 else self.data[0],
            model=self.model, num_microbatches=count,
            forward_only=forward_only, seq_length=LENGTH,
            micro_batch_size=self.data[0].batch)]

    def steps(self, counts) -> None:
        for count in counts:
            self.run(count)
            self.optimizer.step()
            self.optimizer.zero_grad()

    def evaluate(self, count: int = 2) -> None:
        self.train(False)
        with torch.no_grad():
            self.run(count, forward_only=True)
        self.train()

    def end(self):
        stats = self.attached and self.attached.stats()
        if stats:
            self.explained = self.attached.explain()
            self.segments = [line for line in self.explained.splitlines()
                             if "graphed" in line]
        if self.attached is not None:
            self.attached.detach()
        return stats

    def state(self) -> dict:
        found = {f"loss {i}": loss for i, loss in enumerate(self.losses)}
        for core, numbered in zip(self.cores, itertools.count()):
            found.update((f"{numbered}: {n}", t)
                         for n, t in core.state_dict().items()
                         if isinstance(t, torch.Tensor))
        return found


def differing(one: dict, other: dict) -> list:
    assert one.keys() == other.keys()
    return [n for n in one if not torch.equal(one[n], other[n])]


def compare(train, kind, scope, eager=("warmup",), **how):
    """Trains without graphs and with: the same bits, and all replays but for
    these reasons."""
    one, two = Training(kind, None, **{k: v for k, v in how.items()
                                       if k != "attach"}), \
        Training(kind, scope, **how)
    try:
        for each in one, two:
            seed()
            train(each)
    finally:
        stats = two.end()
    two.stats = stats
    assert differing(one.state(), two.state()) == []
    assert stats["refused"] == {} and stats["replays"] > 0, stats
    assert stats["eager_calls"].keys() <= set(eager), stats
    return two


def wrapped(finalize=None, **options):
    """`finalize`: what a schedule ends with."""
    def wrap(core):
        core.config.finalize_model_grads_func = finalize
        model = DistributedDataParallel(
            core.config, DistributedDataParallelConfig(
                grad_reduce_in_fp32=True, **options), core)
        core.config.no_sync_func = model.no_sync
        return model

    return wrap


def with_buffers(evaluates=False, counts=COUNTS):
    """DistributedDataParallel's gradients are in buffers of its own."""
    def train(training):
        gathers = training.chunks[0].use_forward_hook
        for i, count in enumerate(counts):
            for model in training.chunks:
                model.zero_grad_buffer()
            training.run(count)
            for model in training.chunks:
                if model.config.finalize_model_grads_func is None:
                    model.finish_grad_sync()
                for p in model.parameters():
                    p.grad = p.main_grad.to(p.dtype)
            training.optimizer.step()
            training.optimizer.zero_grad()
            if evaluates and i % 2:
                for model in training.chunks:
                    if gathers:  # as Megatron's loop around an evaluation
                        model.disable_forward_pre_hook(param_sync=False)
                training.evaluate()
                for model in training.chunks:
                    if gathers:
                        model.enable_forward_pre_hook()

    return train
