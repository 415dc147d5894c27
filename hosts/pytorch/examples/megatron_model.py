"""Megatron-Core's models, wrapped and trained as its own loop does, and who
makes the graphs of their layers.

    shape = Shape(kind="moe", layers=12)
    training = Megatron(shape, graphs="te", device=device)
    training.step(batches)

`graphs` is "off"; or what Megatron makes itself: "te" by its
TECudaGraphHelper, "local" or "full_iteration"; or graphhooks.megatron's:
"layer", "scope" or "chunk".

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import sys

# Read when Transformer Engine is imported and when CUDA starts.
os.environ.setdefault("NVTE_ALLOW_NONDETERMINISTIC_ALGO", "0")
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")

import torch  # noqa: E402

OWN = ("te", "local", "full_iteration")  # Megatron's
HOOKED = ("layer", "scope", "chunk")
GRAPHS = ("off", *OWN, *HOOKED)
# Of config.cuda_graph_impl.
_IMPL = {"te": "transformer_engine", "local": "local",
         "full_iteration": "full_iteration"}
_WARMUP = 3  # steps before Megatron makes graphs, by its default

KINDS = ("dense", "moe", "moe_pad", "mla", "mla_moe", "hybrid", "mtp")
RECIPES = ("delayed", "tensorwise", "blockwise")
PATTERN = "M*-E"  # of a hybrid: Mamba, attention, MLP, experts
# What can be captured of experts whose tokens the host counts.
_ROUTED = "attn,moe_router,moe_preprocess"
# Of a layer in a pattern; Megatron captures MLPs of models without experts.
_OF_PATTERN = {"M": ("mamba",), "*": ("attn",), "-": ("mlp",),
               "E": ("moe_router", "moe_preprocess")}


class Missing(Exception):
    """What is not installed, and what installs it."""


def installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # not even the package around it
        return False


@dataclasses.dataclass(frozen=True)
class Shape:
    """A model, and what a microbatch of it is."""

    kind: str = "dense"
    spec: str = "te"  # whose modules layers are made of: te or local
    layers: int = 12
    hidden: int = 768
    heads: int = 12
    sequence: int = 256
    batch: int = 4
    vocabulary: int = 256
    dropout: float = 0.0
    dtype: str = "bf16"
    fp8: str = ""  # a recipe
    experts: int = 8
    topk: int = 2
    pattern: str = PATTERN
    scope: str | None = None  # Megatron's words; None: the kind's
    offload: str = ""  # Megatron's words too, from the first step on
    recompute: str = ""  # the same, of what runs again in the backward
    delay: bool = False  # gradients of weights, by Megatron's overlap
    # Over how many ranks; what is left of them trains on other text.
    tensor: int = 1  # with sequence parallelism, in layers of te
    pipeline: int = 1
    chunks: int = 1  # of a stage, which then are interleaved
    first: int = 0  # layers of the first stage; 0: as many as the others
    ranks_of_experts: int = 1
    context: int = 1  # that share paragraphs, which are packed then
    # By no more of them than each paragraph needs: "packed", or "schedule", one
    # after the other by Megatron's own schedule.
    dynamic: str = ""
    overlap: bool = False  # exchanges of experts, with other microbatches
    tied: bool = False  # the output's weights are the embedding's
    reduces: bool = False  # gradients over ranks during the backward
    gathers: bool = False  # the distributed optimizer's, during the forward

    @property
    def words(self) -> str:
        if self.scope is not None:
            return self.scope
        if self.kind in ("moe", "mla_moe"):
            return _ROUTED
        if self.kind == "hybrid":
            return ",".join(dict.fromkeys(
                w for c in self.pattern for w in _OF_PATTERN.get(c, ())
                if not (w == "mlp" and self.moe)))
        return ""

    @property
    def moe(self) -> bool:
        return self.kind in ("moe", "moe_pad", "mla_moe") \
            or self.kind == "hybrid" and "E" in self.pattern

    @property
    def is_alone(self) -> bool:
        """One rank, with an overlap all the same."""
        return self.delay and self.ranks_of_experts == 1

    @property
    def mla(self) -> bool:
        return self.kind in ("mla", "mla_moe")


def shape_of(args) -> Shape:
    """Of the options of a program."""
    names = {f.name for f in dataclasses.fields(Shape)}
    return Shape(**{n: v for n, v in vars(args).items()
                    if n in names and n != "offload"})


def attention() -> str | None:
    """Which attention Transformer Engine has taken last: fused (cuDNN's), flash
    or unfused, which it falls back on where no other can be loaded, and which
    is far slower.  None: it has not run."""
    name = "transformer_engine.pytorch.attention.dot_product_attention"
    chosen = getattr(sys.modules.get(f"{name}.dot_product_attention"),
                     "_attention_backends", {})
    return next((kind for kind in ("fused", "flash", "unfused")
                 if chosen.get(f"use_{kind}_attention")), None)


def look(shape: Shape, graphs) -> None:
    """Raises Missing with the first thing that is."""
    if not installed("megatron.core"):
        raise Missing("megatron-core is missing; pip install megatron-core")
    te = installed("transformer_engine")
    if shape.spec == "te" and not te:
        raise Missing("transformer_engine is missing, whose modules --spec te "
                      "is made of; pip install transformer_engine[pytorch], "
                      "or --spec local")
    if "te" in graphs and not te:
        raise Missing("transformer_engine is missing, which makes the graphs "
                      "of te; pip install transformer_engine[pytorch], or "
                      "leave te out")
    if shape.fp8 and shape.spec != "te":
        raise Missing("--fp8 is of Transformer Engine's modules: --spec te")
    if shape.spec == "local" and (shape.mla or shape.kind == "hybrid"):
        raise Missing(f"Megatron's local spec has no layers of {shape.kind}; "
                      "--spec te has them")
    if shape.spec == "local" and shape.tensor > 1 and shape.moe:
        raise Missing("Megatron's local spec has no sequence parallelism, "
                      "which experts need beside tensor parallelism; --spec "
                      "te has it")
    if shape.kind == "hybrid" and "M" in shape.pattern \
            and not installed("mamba_ssm"):
        raise Missing("mamba_ssm is missing, of which Mamba layers are made; "
                      "pip install mamba-ssm, or give a --pattern without M, "
                      "such as '*-*E'")


def start(device: torch.device) -> None:
    """One rank of one, in which Megatron finds its groups."""
    if torch.distributed.is_initialized():
        return
    torch.distributed.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        store=torch.distributed.HashStore(), rank=0, world_size=1)
    divide(Shape())


def divide(shape: Shape, minutes: int = 2) -> None:
    """The ranks into Megatron's groups, which wait for each other as long."""
    from megatron.core import parallel_state

    parallel_state.destroy_model_parallel()  # of who was here before
    parallel_state.initialize_model_parallel(
        shape.tensor, shape.pipeline,
        shape.chunks if shape.chunks > 1 else None,
        context_parallel_size=_context(shape),
        hybrid_context_parallel=bool(shape.dynamic),
        expert_model_parallel_size=shape.ranks_of_experts,
        expert_tensor_parallel_size=1,
        distributed_timeout_minutes=minutes,
        create_gloo_process_groups=False)


def _context(shape: Shape) -> int:
    """Where it is dynamic, Megatron is told it with each microbatch."""
    return 1 if shape.dynamic else shape.context


def seed(number: int, device: torch.device, anew: bool = False) -> None:
    """Also of the states that layers draw from.  Graphs can read those of
    Transformer Engine's tracker, and of torch's own where there is none.
    `anew`: in another tracker, which layers that are there do not have."""
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel import random

    number += 100 * parallel_state.get_pipeline_model_parallel_rank()
    torch.manual_seed(number)
    te = installed("transformer_engine")
    random.model_parallel_cuda_manual_seed(
        number, te_rng_tracker=te and device.type == "cuda",
        use_cudagraphable_rng=not te and device.type == "cuda",
        force_reset_rng=anew)


# ---- the model -------------------------------------------------------------


def make_config(shape: Shape, graphs: str, device: torch.device,
                warmup: int = _WARMUP):
    from megatron.core.transformer import (MLATransformerConfig,
                                           TransformerConfig)

    dtype = torch.bfloat16 if shape.dtype == "bf16" else torch.float32
    chosen = dict(
        num_layers=len(shape.pattern) if shape.kind == "hybrid"
        else shape.layers,
        hidden_size=shape.hidden, num_attention_heads=shape.heads,
        hidden_dropout=shape.dropout, attention_dropout=shape.dropout,
        add_bias_linear=False, gradient_accumulation_fusion=False,
        bf16=shape.dtype == "bf16", params_dtype=dtype, pipeline_dtype=dtype,
        use_cpu_initialization=device.type != "cuda",
        # Its embedding then sums gradients in one order.
        deterministic_mode=True)
    if shape.spec == "te":
        chosen["normalization"] = "RMSNorm"
    if graphs in OWN:
        chosen["cuda_graph_impl"] = _IMPL[graphs]
        chosen["cuda_graph_warmup_steps"] = warmup
        chosen["cuda_graph_modules"] = [] if graphs == "full_iteration" \
            else [w for w in shape.words.split(",") if w]
    if shape.tensor > 1:
        chosen.update(tensor_model_parallel_size=shape.tensor,
                      # Norms of the local spec are torch's, without it.
                      sequence_parallel=shape.spec == "te")
    if shape.pipeline > 1:
        chosen.update(
            pipeline_model_parallel_size=shape.pipeline,
            virtual_pipeline_model_parallel_size=shape.chunks
            if shape.chunks > 1 else None,
            num_layers_in_first_pipeline_stage=shape.first or None,
            deallocate_pipeline_outputs=True)
    if shape.context > 1:
        chosen.update(context_parallel_size=_context(shape))
    if shape.dynamic == "schedule":
        chosen.update(hybrid_context_parallel=True,
                      max_seqlen_per_dp_cp_rank=shape.sequence)
    if shape.ranks_of_experts > 1:
        chosen.update(
            expert_model_parallel_size=shape.ranks_of_experts,
            overlap_moe_expert_parallel_comm=shape.overlap,
            delay_wgrad_compute=shape.overlap and shape.delay)
    if shape.fp8:
        chosen.update(fp8="hybrid", fp8_recipe=shape.fp8,
                      fp8_amax_history_len=16, fp8_amax_compute_algo="max")
    if shape.offload:
        chosen.update(fine_grained_activation_offloading=True,
                      offload_modules=shape.offload.split(","))
    if shape.recompute:
        chosen.update(recompute_granularity="selective",
                      recompute_modules=shape.recompute.split(","))
    if shape.kind == "mtp":
        chosen.update(mtp_num_layers=1, mtp_loss_scaling_factor=0.1)
    if shape.moe:
        chosen.update(
            num_moe_experts=shape.experts, moe_router_topk=shape.topk,
            moe_ffn_hidden_size=shape.hidden, moe_aux_loss_coeff=0.01,
            moe_token_dispatcher_type="alltoall",
            moe_router_load_balancing_type="aux_loss",
            moe_grouped_gemm=shape.spec == "te")
    if shape.kind == "moe_pad":
        chosen.update(moe_expert_capacity_factor=1.0,
                      moe_pad_expert_input_to_capacity=True)
    if shape.kind == "mla_moe":  # as DeepSeek-V3 is, in small
        chosen.update(
            moe_layer_freq=[0] + [1] * (shape.layers - 1),
            moe_shared_expert_intermediate_size=shape.hidden,
            moe_router_score_function="sigmoid",
            moe_router_enable_expert_bias=True,
            moe_router_num_groups=4, moe_router_group_topk=2,
            moe_router_topk_scaling_factor=2.5,
            moe_router_load_balancing_type="seq_aux_loss",
            moe_aux_loss_coeff=1e-4)
    if shape.mla:
        chosen.update(multi_latent_attention=True, rope_type="rope",
                      apply_rope_fusion=False, q_lora_rank=shape.hidden // 4,
                      kv_lora_rank=shape.hidden // 8, qk_head_dim=64,
                      qk_pos_emb_head_dim=32, v_head_dim=64)
    if shape.kind == "hybrid":
        chosen["is_hybrid_model"] = True
    config = (MLATransformerConfig if shape.mla
              else TransformerConfig)(**chosen)
    if shape.is_alone:  # which Megatron's check refuses
        config.overlap_moe_expert_parallel_comm = True
        config.delay_wgrad_compute = True
        _exchange_copies()
    return config


def _exchange_copies() -> None:
    """What one rank sends itself is another tensor, as what several exchange
    is: Megatron's overlap empties the one that was sent."""
    from megatron.core.transformer.moe import token_dispatcher

    def exchanged(group, tensor, *sizes, **more):
        got = exchange(group, tensor, *sizes, **more)
        return got.clone() if group.size() == 1 else got

    exchange = token_dispatcher.all_to_all
    if exchange.__name__ != "exchanged":
        token_dispatcher.all_to_all = exchanged


def make_model(shape: Shape, config, stage: int | None = None):
    """`stage`: of several chunks the one."""
    if shape.kind == "hybrid":
        from megatron.core.models.hybrid.hybrid_layer_specs import \
            hybrid_stack_spec
        from megatron.core.models.hybrid.hybrid_model import HybridModel

        return HybridModel(
            config, hybrid_stack_spec, shape.vocabulary, shape.sequence,
            hybrid_layer_pattern=shape.pattern)
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt import gpt_layer_specs as specs

    te = shape.spec == "te"
    spec = specs.get_gpt_decoder_block_spec(config, te, vp_stage=stage)
    if shape.context > 1:
        _prepare_attention(shape, spec)
    predicts = specs.get_gpt_mtp_block_spec(config, spec, te, vp_stage=stage) \
        if config.mtp_num_layers else None
    ends = dict(ignore_virtual=False, vp_stage=stage)
    return GPTModel(
        config, spec, shape.vocabulary, shape.sequence * shape.context,
        # Megatron deals rotary embeddings out by one group for all.
        position_embedding_type="learned_absolute" if shape.context > 1
        else "rope", mtp_block_spec=predicts,
        share_embeddings_and_output_weights=shape.tied,
        pre_process=parallel_state.is_pipeline_first_stage(**ends),
        post_process=parallel_state.is_pipeline_last_stage(**ends),
        vp_stage=stage)


def _prepare_attention(shape: Shape, spec) -> None:
    """For packed sequences."""
    if shape.spec == "te":
        from megatron.core.extensions.transformer_engine import (
            TEDotProductAttention)

        # It is made with context_parallel_size alone, and used without.
        TEDotProductAttention.cp_stream = TEDotProductAttention.cp_stream \
            or torch.cuda.Stream()
        return
    import megatron_packed

    for layer in spec.layer_specs:
        layer.submodules.self_attention.submodules.core_attention = \
            megatron_packed.Attention


def forget() -> None:
    """What Megatron and Transformer Engine keep in the process of models that
    were there before."""
    from megatron.core.transformer.moe.moe_logging import \
        destroy_moe_metrics_tracker
    from megatron.core.transformer.multi_token_prediction import \
        MTPLossLoggingHelper

    destroy_moe_metrics_tracker()
    MTPLossLoggingHelper.tracker = {}
    if installed("transformer_engine"):
        from transformer_engine.pytorch.quantization import \
            FP8GlobalStateManager

        FP8GlobalStateManager.reset()


def wrap(model, config, device: torch.device, reduces=False, gathers=False):
    """As Megatron's get_model: what it gathers gradients by is made on
    another stream, or a graph of the whole step could not hold it."""
    from megatron.core.distributed import (DistributedDataParallel,
                                           DistributedDataParallelConfig)
    from megatron.core.transformer.module import Float16Module

    if config.bf16:
        model = Float16Module(config, model)
    beside = torch.cuda.Stream() if device.type == "cuda" else None
    if beside is not None:
        beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside) if beside else contextlib.nullcontext():
        model = DistributedDataParallel(
            config, DistributedDataParallelConfig(
                grad_reduce_in_fp32=True,
                # Or it takes weight gradients before they are computed.
                delay_wgrad_compute=config.delay_wgrad_compute,
                overlap_grad_reduce=reduces or gathers,
                # About a layer, so that there is something to overlap with.
                bucket_size=12 * config.hidden_size ** 2
                if reduces or gathers else None,
                use_distributed_optimizer=gathers,
                overlap_param_gather=gathers), model)
    if beside is not None:
        torch.cuda.current_stream().wait_stream(beside)
    return model


# ---- a training ------------------------------------------------------------


class Megatron:
    """A model, its optimizer and its schedule; `options` are attach()'s."""

    def __init__(self, shape: Shape, graphs: str, device: torch.device, *,
                 number: int = 1, rate: float = 1e-3, clip: float = 0.0,
                 warmup: int = _WARMUP, **options):
        from megatron.core.distributed import finalize_model_grads
        from megatron.core.optimizer import (OptimizerConfig,
                                             get_megatron_optimizer)
        from megatron.core.pipeline_parallel import get_forward_backward_func

        self.shape, self.device = shape, device
        forget()
        seed(number, device, anew=True)
        self.config = make_config(shape, graphs, device, warmup)
        self.cores = [
            make_model(shape, self.config, i if shape.chunks > 1 else None)
            .to(device) for i in range(shape.chunks)]
        self.core = self.cores[0]
        self.chunks = [wrap(core, self.config, device, shape.reduces,
                            shape.gathers) for core in self.cores]
        self.model = self.chunks[0]
        each = [chunk.no_sync for chunk in self.chunks]
        self.config.no_sync_func = each if len(each) > 1 else each[0]
        for chunk in self.chunks:
            chunk.train()
        self.optimizer = get_megatron_optimizer(
            OptimizerConfig(optimizer="adam", lr=rate, min_lr=rate,
                            weight_decay=0.1, adam_beta2=0.95,
                            clip_grad=clip, bf16=self.config.bf16,
                            params_dtype=self.config.params_dtype,
                            use_distributed_optimizer=shape.gathers,
                            overlap_param_gather=shape.gathers),
            self.chunks, use_gloo_process_groups=False)
        self.config.finalize_model_grads_func = finalize_model_grads
        self.schedule = get_forward_backward_func()
        self.places = torch.arange(shape.sequence, device=device) \
            .expand(shape.batch, -1).contiguous()
        seed(number + 1, device)
        self.graphs = _GRAPHS[graphs](self, graphs, options)

    def _forward(self, data, model, return_schedule_plan=False):
        batch = next(data)
        if self.shape.dynamic == "schedule":
            import megatron_packed

            batch = megatron_packed.piece_of(batch)

        def loss(out):
            value = (out.float() * batch["weights"]).sum() \
                if "weights" in batch else out.float().mean()
            return value, {"loss": value.detach().clone()}

        if return_schedule_plan:  # the schedule runs it, piece by piece
            while not hasattr(model, "build_schedule_plan"):
                model = model.module
            model = model.build_schedule_plan
        more = {"packed_seq_params": batch["packed"]} \
            if "packed" in batch else {}
        return model(batch["tokens"], batch["places"], None,
                     labels=batch["targets"], **more), loss

    def passes(self, batches, forward_only: bool = False) -> list:
        """Forwards and backwards of a step; the loss of each microbatch."""
        if self.shape.dynamic == "schedule":
            return self._run(batches, 1, forward_only)
        data = [{"tokens": tokens, "targets": targets, "places": self.places,
                 **dict(*more)} for tokens, targets, *more in batches]
        return self._run([iter(data) for _ in self.chunks], len(data),
                         forward_only)

    def _run(self, data: list, count: int, forward_only: bool) -> list:
        """`data`: of each chunk."""
        return [each["loss"] for each in self.schedule(
            forward_step_func=self._forward,
            data_iterator=data if len(data) > 1 else data[0],
            model=self.chunks, num_microbatches=count,
            seq_length=self.shape.sequence, micro_batch_size=self.shape.batch,
            forward_only=forward_only)]

    def update(self) -> None:
        self.optimizer.step()

    def reset(self) -> None:
        for chunk in self.chunks:
            chunk.zero_grad_buffer()
        self.optimizer.zero_grad()

    def step(self, batches) -> list:
        self.graphs.before_step(len(batches))
        self.reset()
        losses = self.passes(batches)
        self.update()
        return losses

    def state(self) -> dict:
        """What a training comes to: weights, what the optimizer keeps, and
        the scales of FP8."""
        found = {}
        for i, core in enumerate(self.cores):
            found |= _state_of(core, f"chunk {i}: " if i else "")
        for i, (_, kept) in enumerate(self._kept()):
            found |= {f"optimizer {i} {n}": t for n, t in kept.items()
                      if isinstance(t, torch.Tensor)}
        return found

    def _kept(self):
        chained = getattr(self.optimizer, "chained_optimizers",
                          [self.optimizer])
        for optimizer in chained:
            inner = optimizer.optimizer
            for group in inner.param_groups:
                for p in group["params"]:
                    yield p, {"main": p, **inner.state.get(p, {})}

    def close(self) -> None:
        self.graphs.detach()
        for core in self.cores:
            _let_go(core)


def _let_go(core) -> None:
    """Of the last pass.  Megatron's dispatcher of tokens keeps probabilities,
    whose history leads to the weights, their hooks, DistributedDataParallel,
    and so back to it: a circle that Python's garbage collector does not see,
    so that the model would be there until the process ends."""
    for module in core.modules():
        for keeper in (module, getattr(module, "token_dispatcher", None)):
            for name, value in list(getattr(keeper, "__dict__", {}).items()):
                if isinstance(value, torch.Tensor) and value.grad_fn:
                    setattr(keeper, name, None)


def _state_of(core, before: str) -> dict:
    found = {before + n: t for n, t in core.state_dict().items()
             if isinstance(t, torch.Tensor) and "_extra_state" not in n}
    for name, module in core.named_modules():
        meta = getattr(module, "fp8_meta", None) or {}
        for way in ("scaling_fwd", "scaling_bwd"):
            found |= {f"{before}{name}.{way}.{n}": t for n in
                      ("scale", "amax_history") if isinstance(
                          t := getattr(meta.get(way), n, None),
                          torch.Tensor)}
    return found


# ---- who makes the graphs --------------------------------------------------


class Off:
    """Nobody; the others are this one with something more."""

    def __init__(self, training: Megatron, name: str, options: dict):
        self.training, self.name, self.options = training, name, options
        self.warmup = training.config.cuda_graph_warmup_steps
        self.steps = 0
        self.start()

    def start(self) -> None:
        """Once the model is made."""

    def before_step(self, count: int) -> None:
        self.steps += 1

    def make(self, count: int) -> None:
        """Graphs, or what makes them; `count`: microbatches of a step."""

    def stats(self) -> dict:
        return {}

    def explain(self) -> str:
        return ""

    def detach(self) -> None:
        pass


class TransformerEngine(Off):
    """Megatron's helper, called where its training loop calls it."""

    helper = None

    def start(self) -> None:
        from megatron.core import num_microbatches_calculator as calculator

        calculator.unset_num_microbatches_calculator()

    def before_step(self, count: int) -> None:
        super().before_step(count)
        if self.steps == self.warmup + 1:
            self.make(count)

    def make(self, count: int) -> None:
        from megatron.core import num_microbatches_calculator as calculator
        from megatron.core.transformer.cuda_graphs import TECudaGraphHelper

        training, shape = self.training, self.training.shape
        calculator.init_num_microbatches_calculator(
            0, None, shape.batch * count, shape.batch, 1)
        self.helper = TECudaGraphHelper(
            training.chunks, training.config, shape.sequence, shape.batch,
            [training.optimizer])
        if not shape.gathers:
            self.helper.create_cudagraphs()
            return
        for chunk in training.chunks:
            chunk.disable_forward_pre_hook(param_sync=False)
        self.helper.create_cudagraphs()
        for chunk in training.chunks:
            chunk.enable_forward_pre_hook()
        self.helper.cuda_graph_set_manual_hooks()

    def stats(self) -> dict:
        made = self.helper is not None and sum(
            len(layer.cuda_graphs) for layer in self.helper.flattened_callables)
        return {"recordings": 2 * made}  # forward and backward

    def detach(self) -> None:
        if self.helper is not None and self.helper.graphs_created():
            self.helper.delete_cuda_graphs()


class Local(Off):
    """Megatron's own graphs of layers, which its schedule makes."""

    def stats(self) -> dict:
        managers = [m.cudagraph_manager for core in self.training.cores
                    for m in core.modules() if hasattr(m, "cudagraph_manager")]
        return {"recordings": sum(
            (r.fwd_graph is not None) + (r.bwd_graph is not None)
            for m in managers for r in m.cudagraph_runners)}

    def detach(self) -> None:
        from megatron.core.transformer import cuda_graphs

        cuda_graphs.delete_cuda_graphs()


class FullIteration(Off):
    """Megatron's graph of all passes of a step; the optimizer is outside.  It
    is of one number of microbatches, so each number has its own here."""

    def start(self) -> None:
        from megatron.core import full_cuda_graph

        self.kind = full_cuda_graph.FullCudaGraphWrapper
        self.loader = full_cuda_graph.StaticBufferLoader
        self.kept: dict = {}  # by number: what Megatron keeps in classes
        self.training.schedule = self.kind(
            self.training.schedule, cuda_graph_warmup_steps=self.warmup)
        self.take(0)

    def take(self, count: int) -> None:
        def each(make):
            return {"training": make(), "validation": make()}

        if count not in self.kept:
            self.kept[count] = (each(list), each(int), each(lambda: None),
                                each(lambda: None))
        self.loader.static_buffers, self.kind.curr_iteration, \
            self.kind.cuda_graph, self.kind.result = self.kept[count]

    def before_step(self, count: int) -> None:
        super().before_step(count)
        self.take(count)

    def stats(self) -> dict:
        made = [steps["training"] - self.warmup
                for _, steps, graphs, _ in self.kept.values()
                if graphs["training"] is not None]
        return {"recordings": len(made), "replays": sum(made)}

    def detach(self) -> None:
        self.kept.clear()
        self.take(0)


class Hooked(Off):
    """graphhooks, in the place of Megatron's helper."""

    attached = None

    def make(self, count: int = 0) -> None:
        import graphhooks.megatron

        training = self.training
        scope = training.shape.words if self.name == "scope" else ""
        if self.name == "chunk":
            self.options["granularity"] = "chunk"
        if training.shape.context > 1:
            import megatron_packed

            self.options.update(megatron_packed.attach_options(
                training.shape))
        config = training.config
        ranks = config.expert_model_parallel_size
        if training.shape.is_alone:  # which is checked, as Megatron does
            config.expert_model_parallel_size = 2
        self.attached = graphhooks.megatron.attach(
            training.chunks, scope=scope, **self.options)
        config.expert_model_parallel_size = ranks
        self.stats, self.explain = self.attached.stats, self.attached.explain

    def detach(self) -> None:
        if self.attached is not None:
            self.attached.detach()


_GRAPHS = {"off": Off, "te": TransformerEngine, "local": Local,
           "full_iteration": FullIteration, "layer": Hooked, "scope": Hooked,
           "chunk": Hooked}
