"""Megatron-Core's models under its own schedules, with the graphs of
graphhooks.megatron, against the same without.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import re

import graphhooks
import pytest
from models import DEVICE, HAS_GPU, torch

pytest.importorskip("megatron.core",
                    reason="megatron-core is not installed")
if not HAS_GPU:
    import softmegatron

    softmegatron.install()
    softmegatron.take_any_transformer_engine()

import graphhooks.megatron  # noqa: E402
from megatron.core import parallel_state  # noqa: E402
from megatron.core.distributed import (  # noqa: E402
    DistributedDataParallel, DistributedDataParallelConfig)
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import (  # noqa: E402
    get_gpt_layer_local_spec)
from megatron.core.pipeline_parallel import (  # noqa: E402
    get_forward_backward_func)
from megatron.core.tensor_parallel import random  # noqa: E402
from megatron.core.transformer import (  # noqa: E402
    MLATransformerConfig, TransformerConfig)

WORDS, LENGTH, BATCH, WIDTH, LAYERS = 64, 16, 2, 32, 2
COUNTS = [2, 3, 4, 3]
GATHER = {"overlap_grad_reduce": True, "use_distributed_optimizer": True,
          "overlap_param_gather": True}
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
SCOPES = [(kind, scope) for kind, scopes in {
    "dense": ("attn", "mlp", "attn,mlp", ""),
    "moe": ("attn", "moe_router", "attn,moe_router",
            "attn,moe_router,moe_preprocess"),
    "shared": ("attn,moe_router", "attn,moe_router,moe_preprocess"),
    "sigmoid": ("attn,moe_router", "attn,moe_router,moe_preprocess"),
    "padded": ("attn", "moe", "attn,moe", ""),
}.items() for scope in scopes]


@pytest.fixture(scope="module", autouse=True)
def world():
    torch.distributed.init_process_group(
        "nccl" if HAS_GPU else "gloo", store=torch.distributed.HashStore(),
        rank=0, world_size=1)
    parallel_state.initialize_model_parallel(create_gloo_process_groups=False)
    yield
    parallel_state.destroy_model_parallel()
    torch.distributed.destroy_process_group()


def build(kind: str, **more):
    torch.manual_seed(1234)
    random.initialize_rng_tracker(force_reset=True)
    random.model_parallel_cuda_manual_seed(
        1234, use_cudagraphable_rng=HAS_GPU, force_reset_rng=True)
    make = MLATransformerConfig if kind == "mla" else TransformerConfig
    config = make(
        num_layers=LAYERS, hidden_size=WIDTH, num_attention_heads=4,
        use_cpu_initialization=True, add_bias_linear=False,
        **{"attention_dropout": 0.0, "hidden_dropout": 0.0,
           **KINDS[kind], **more})
    spec = get_gpt_layer_local_spec(
        num_experts=KINDS[kind].get("num_moe_experts"),
        multi_latent_attention=kind == "mla")
    return GPTModel(config, spec, WORDS, LENGTH, position_embedding_type="rope",
                    share_embeddings_and_output_weights=False).to(DEVICE)


class Training:
    """Of one model, by Megatron's schedule."""

    def __init__(self, kind, scope=None, wrap=None, granularity="layer",
                 **more):
        self.core = build(kind, **more)
        self.model = self.core if wrap is None else wrap(self.core)
        self.model.train()
        self.attached = None if scope is None else \
            graphhooks.megatron.attach(self.model, scope=scope,
                                       granularity=granularity)
        self.optimizer = torch.optim.SGD(self.core.parameters(), lr=0.1)
        self.numbers = torch.Generator().manual_seed(7)
        self.losses: list = []

    def _next(self):
        tokens = torch.randint(0, WORDS, (BATCH, LENGTH + 1),
                               generator=self.numbers).to(DEVICE)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def _forward(self, _, model):
        tokens, labels = self._next()
        places = torch.arange(LENGTH, device=DEVICE).expand(BATCH, LENGTH)
        out = model(tokens, places.contiguous(), None, labels=labels)

        def loss(out):
            value = out.float().mean()
            return value, {"loss": value.detach().clone()}

        return out, loss

    def run(self, count: int, forward_only: bool = False) -> None:
        self.losses += [each["loss"] for each in get_forward_backward_func()(
            forward_step_func=self._forward, data_iterator=iter(()),
            model=self.model, num_microbatches=count, seq_length=LENGTH,
            micro_batch_size=BATCH, forward_only=forward_only)]

    def steps(self, counts) -> None:
        for count in counts:
            self.run(count)
            self.optimizer.step()
            self.optimizer.zero_grad()

    def end(self) -> list:
        stats = self.attached and self.attached.stats()
        if stats:
            self.segments = [line for line in self.attached.explain()
                             .splitlines() if "graphed" in line]
        if self.attached is not None:
            self.attached.detach()
        return stats

    def state(self) -> dict:
        return {**{f"loss {i}": loss for i, loss in enumerate(self.losses)},
                **{n: t for n, t in self.core.state_dict().items()
                   if isinstance(t, torch.Tensor)}}


def differing(one: dict, other: dict) -> list:
    assert one.keys() == other.keys()
    return [n for n in one if not torch.equal(one[n], other[n])]


@pytest.fixture
def pair():
    """Trains without graphs and with: the same bits, and all replays."""
    def go(train, kind, scope, wrap=None, **more):
        with_graphs = {"granularity": more.pop("granularity", "layer")}
        one, two = Training(kind, None, wrap, **more), \
            Training(kind, scope, wrap, **with_graphs, **more)
        try:
            train(one)
            train(two)
        finally:
            stats = two.end()
        assert differing(one.state(), two.state()) == []
        assert stats["refused"] == {} and stats["replays"] > 0
        assert stats["eager_calls"].keys() <= {"warmup"}
        return two

    return go


@pytest.mark.parametrize("kind, scope", SCOPES)
def test_a_scope_replays_all_microbatches(pair, kind, scope):
    pair(lambda t: t.steps(COUNTS), kind, scope)


@pytest.fixture
def whole(pair):
    """As a pair, with all layers of the model in one segment."""
    def go(train, kind, wrap=None, **more):
        two = pair(train, kind, "", wrap, granularity="chunk", **more)
        assert "forward" not in vars(two.core.decoder)
        return two

    return go


@pytest.mark.parametrize("kind, options", [
    ("dense", None), ("padded", None), ("dense", {}), ("dense", GATHER)],
    ids=["dense", "padded", "ddp", "gather"])
def test_all_layers_in_one_segment(whole, kind, options):
    ddp = options is not None
    train = with_buffers(evaluates=True) if ddp else lambda t: t.steps(COUNTS)
    two = whole(train, kind, wrapped(**options) if ddp else None)
    assert len(two.segments) == 1


@pytest.mark.parametrize("granularity", ["layer", "chunk"])
def test_an_attach_after_the_first_steps(granularity):
    one, two = Training("padded"), Training("padded")
    for training in one, two:
        training.steps(COUNTS)
        if training is two:
            training.attached = graphhooks.megatron.attach(
                training.model, scope="", granularity=granularity)
        training.steps(COUNTS)
    stats = two.end()
    assert differing(one.state(), two.state()) == []
    assert stats["refused"] == {} and stats["replays"] > 0


def test_all_layers_in_one_segment_and_a_scope():
    core = build("dense")
    with pytest.raises(graphhooks.Error, match="takes layers whole"):
        graphhooks.megatron.attach(core, scope="attn", granularity="chunk")
    with graphhooks.megatron.attach(core, granularity="chunk"):
        for how in {"granularity": "chunk"}, {"scope": "attn"}:
            with pytest.raises(graphhooks.Error, match="has graphs already"):
                graphhooks.megatron.attach(core, **how)
    with graphhooks.megatron.attach(core, scope="attn"):
        with pytest.raises(graphhooks.Error, match="has graphs already"):
            graphhooks.megatron.attach(core, granularity="chunk")


def wrapped(**options):
    def wrap(core):
        model = DistributedDataParallel(
            core.config, DistributedDataParallelConfig(
                grad_reduce_in_fp32=True, **options), core)
        core.config.no_sync_func = model.no_sync
        return model

    return wrap


def with_buffers(evaluates=False):
    """DistributedDataParallel's gradients are in buffers of its own."""
    def train(training):
        model = training.model
        gathers = model.use_forward_hook
        for i, count in enumerate(COUNTS):
            model.zero_grad_buffer()
            training.run(count)
            model.finish_grad_sync()
            for p in training.core.parameters():
                p.grad = p.main_grad.to(p.dtype)
            training.optimizer.step()
            training.optimizer.zero_grad()
            if evaluates and i % 2:
                if gathers:  # as Megatron's loop does around an evaluation
                    model.disable_forward_pre_hook(param_sync=False)
                model.eval()
                with torch.no_grad():
                    training.run(2, forward_only=True)
                model.train()
                if gathers:
                    model.enable_forward_pre_hook()

    return train


@pytest.mark.parametrize("options", [
    {}, {"overlap_grad_reduce": True},
    GATHER], ids=["plain", "reduce", "gather"])
@pytest.mark.parametrize("kind, scope", [
    ("dense", ""), ("moe", "attn,moe_router,moe_preprocess")])
def test_with_megatrons_data_parallel(pair, kind, scope, options):
    pair(with_buffers(evaluates=True), kind, scope, wrapped(**options))


def test_hooks_of_the_gather_are_as_they_were_after_a_detach():
    training = Training("dense", "attn", wrapped(**GATHER))
    layer = training.core.decoder.layers[0]
    assert layer.cuda_graph_manual_hooks
    assert not layer.self_attention.linear_qkv._forward_pre_hooks
    training.end()
    assert layer.self_attention.linear_qkv._forward_pre_hooks
    training.model.disable_forward_pre_hook(param_sync=False)


def test_one_segment_waits_for_all_of_its_parameters():
    waited: list = []

    def wrap(core):
        model = wrapped(**GATHER)(core)
        hook = model._make_forward_pre_hook()
        model._make_forward_pre_hook = lambda: (
            lambda module, *_: (waited.append(module), hook(module))[1])
        return model

    training = Training("dense", "", wrap, granularity="chunk")
    with_buffers()(training)
    decoder = training.core.decoder
    owners = [m for m in decoder.modules()
              if next(m.parameters(recurse=False), None) is not None]
    assert waited == owners * sum(COUNTS)
    training.end()
    assert decoder.final_layernorm._forward_pre_hooks


def test_a_detach_leaves_the_model_as_it_was():
    training = Training("moe", "attn,moe_router,moe_preprocess")
    training.steps([2, 2])
    core, config = training.core, training.core.config
    dispatcher = core.decoder.layers[0].mlp.token_dispatcher
    assert config.cuda_graph_impl == "transformer_engine"
    assert dispatcher.cuda_dtoh_point == "before_ep_alltoall"
    training.end()
    training.attached.detach()
    assert config.cuda_graph_impl == "none"
    assert dispatcher.cuda_dtoh_point == "before_permutation_1"
    assert not hasattr(core.decoder.layers[0], "cuda_graphs")
    training.steps([2])  # eagerly


def test_a_model_that_was_built_for_it_keeps_its_scope(pair):
    two = pair(lambda t: t.steps(COUNTS), "dense", "attn",
               cuda_graph_impl="transformer_engine",
               cuda_graph_modules=["attn"])
    assert two.core.config.cuda_graph_impl == "transformer_engine"
    assert two.core.decoder.layers[0].cuda_graphs == []


@pytest.mark.parametrize("kind, scope, why", [
    ("dense", "moe", "Megatron refuses the scope moe: moe cuda graph is only"),
    ("dense", "foo", "scope has 'foo'; Megatron's words are attn, mlp,"),
    ("dense", "mamba", "no layer of this stage has what the scope mamba"),
    ("moe", "moe", "Megatron refuses the scope moe: .* drop-padding MoE"),
    ("moe", "moe,moe_router", "must not contain both moe and moe_router"),
    ("moe", "moe_preprocess", "only supported with moe_router"),
])
def test_a_scope_that_does_not_fit(kind, scope, why):
    core = build(kind)
    with pytest.raises(graphhooks.Error, match=why):
        graphhooks.megatron.attach(core, scope=scope)
    assert core.config.cuda_graph_impl == "none"
    assert not hasattr(core.decoder.layers[0], "cuda_graphs")


@pytest.mark.parametrize("chunks, why", [
    ([], "model_chunks is empty"), ([3], "model_chunks has 3; it takes"),
    ("x", "model_chunks has 'x'")])
def test_something_else_than_a_model(chunks, why):
    with pytest.raises(graphhooks.Error, match=why):
        graphhooks.megatron.attach(chunks)


def test_megatrons_own_graphs_are_not_mixed_with_these():
    core = build("dense")
    core.config.cuda_graph_impl = "full_iteration"
    with pytest.raises(graphhooks.Error, match="Megatron makes graphs itself"):
        graphhooks.megatron.attach(core)


def test_a_version_without_a_name_is_refused(monkeypatch):
    from megatron.core.transformer import cuda_graphs

    core = build("dense")
    monkeypatch.delattr(cuda_graphs, "_set_capture_start")
    with pytest.raises(graphhooks.Error, match=re.escape(
            "has no megatron.core.transformer.cuda_graphs._set_capture_start")):
        graphhooks.megatron.attach(core, scope="attn")


def test_random_states_that_are_not_there_yet(monkeypatch):
    core = build("dense")
    monkeypatch.setattr(random, "_CUDA_RNG_STATE_TRACKER_INITIALIZED", False)
    with pytest.raises(graphhooks.Error, match="te_rng_tracker=True"):
        graphhooks.megatron.attach(core, scope="attn")
    assert core.config.cuda_graph_impl == "none"


def test_a_model_that_is_attached_already():
    core = build("dense")
    with graphhooks.megatron.attach(core, scope="attn"):
        with pytest.raises(graphhooks.Error, match="has graphs already"):
            graphhooks.megatron.attach(core, scope="mlp")
    with graphhooks.megatron.attach(core, scope="mlp"):
        pass
