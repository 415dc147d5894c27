"""Kinds of layers of Megatron-Core's, and options that change what they do.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import numpy
import pytest

pytest.importorskip("megatron.core",
                    reason="megatron-core is not installed")

import training  # noqa: E402
from models import DEVICE, torch  # noqa: E402
from packing import Packed, build_packed  # noqa: E402
from training import (  # noqa: E402
    COUNTS, LENGTH, MOE, Lengths, build_hybrid, compare)

from graphhooks.megatron import rope  # noqa: E402
from graphhooks.torch.guard import ran  # noqa: E402
from megatron.core.models.common.embeddings import rope_utils  # noqa: E402
from megatron.core.packed_seq_params import PackedSeqParams  # noqa: E402
from megatron.core.transformer import (  # noqa: E402
    multi_latent_attention as latent)
from megatron.core.transformer.moe import (  # noqa: E402
    moe_layer, token_dispatcher)
from megatron.core.transformer.moe.router_replay import (  # noqa: E402
    RouterReplay, RouterReplayAction)

HALF = dict(params_dtype=torch.float16, pipeline_dtype=torch.float16,
            fp16=True)
NONE = dict(moe_router_load_balancing_type="none", moe_aux_loss_coeff=0.0)


pytestmark = pytest.mark.usefixtures("world")


def steps(each):
    each.steps(COUNTS)


@pytest.mark.parametrize("scope, granularity", [
    ("", "layer"), ("moe", "layer"), ("attn,moe", "layer"), ("", "chunk"),
    ("attn,moe_router,moe_preprocess", "layer")])
def test_capacities_of_several_lengths(scope, granularity):
    """A layer works out how many tokens an expert has, and keeps that."""
    compare(steps, "padded", scope, data=Lengths,
            eager=("warmup", "input"), attach={"granularity": granularity})


def test_counts_of_tokens_on_the_host(monkeypatch):
    """Padded experts have them there, as numbers of the config and a shape;
    the stand-in knows them by their number, and numpy makes them at once, as a
    host does beside a capture."""
    kind = token_dispatcher.MoEAlltoAllTokenDispatcher
    own = kind.preprocess

    def preprocess(self, routing_map):
        per_expert = own(self, routing_map)
        whole = self.num_global_tokens_per_local_expert
        self.num_global_tokens_per_local_expert = torch.from_numpy(
            numpy.full(tuple(whole.shape), self.capacity))
        return torch.from_numpy(
            numpy.full(tuple(per_expert.shape), self.capacity))

    monkeypatch.setattr(kind, "preprocess", preprocess)
    if not training.HAS_GPU:
        counts_of = MOE["num_moe_experts"]
        monkeypatch.setattr(torch.Tensor, "is_cuda", property(
            lambda tensor: tensor.dtype is not torch.long
            or tensor.numel() != counts_of))
    compare(steps, "padded", "attn,moe_router,moe_preprocess", data=Lengths,
            eager=("warmup", "input"))


def test_several_lengths_within_a_scope():
    """The rest of a layer goes on with the shape that the scope has left."""
    compare(steps, "moe", "attn,moe_router,moe_preprocess", data=Lengths,
            eager=("warmup", "input"))


@pytest.mark.parametrize("pattern, scope", [
    ("M*-M", ""), ("M*-M", "mamba"), ("M*-M", "mamba,attn,mlp"),
    ("M*E-", "mamba,attn,moe_router"),
    ("M*E-", "mamba,attn,moe_router,moe_preprocess")])
def test_a_stack_of_several_kinds(pattern, scope):
    more = MOE if "E" in pattern else {}
    two = compare(steps, "hybrid", scope, make=build_hybrid, pattern=pattern,
                  **more)
    layers = {"": 4, "mamba": 2, "mamba,attn,mlp": 4}.get(scope, 3)
    assert two.stats["replays"] == 2 * layers * sum(COUNTS) \
        - 2 * two.stats["eager_calls"]["warmup"]


@pytest.mark.parametrize("scope", ["attn", "attn,mlp", ""])
def test_layers_that_predict_several_tokens(scope):
    two = compare(steps, "dense", scope, mtp_num_layers=1,
                  mtp_loss_scaling_factor=0.1)
    assert two.stats["replays"] == 2 * 3 * sum(COUNTS) \
        - 2 * two.stats["eager_calls"]["warmup"]


def turned(t, cos, sin):
    """As the kernels of Megatron's, by tables."""
    x = torch.cat((t[..., ::2], t[..., 1::2]), -1)
    one, two = x.chunk(2, -1)
    return x * cos + torch.cat((-two, one), -1) * sin


def fused_q(q, cos, sin, head, *_):
    return torch.cat((q[..., :head], turned(q[..., head:], cos, sin)), -1)


def fused_kv(kv, places, cos, sin, _, head, *__):
    places = turned(places, cos, sin).expand(*kv.shape[:-1], -1)
    return torch.cat((kv[..., :head], places), -1), kv[..., head:]


@pytest.mark.parametrize("scope, granularity", [
    ("attn", "layer"), ("", "layer"), ("", "chunk")])
def test_latent_attention_with_tables_of_places(monkeypatch, scope,
                                                granularity):
    """Which the first call makes as long as it needs them."""
    monkeypatch.setattr(latent, "fused_apply_mla_rope_for_q", fused_q)
    monkeypatch.setattr(latent, "fused_apply_mla_rope_for_kv", fused_kv)

    def wrap(core):
        core.config.apply_rope_fusion = True
        return core

    compare(steps, "mla", scope, wrap=wrap, rope_type="yarn",
            original_max_position_embeddings=LENGTH // 2,
            attach={"granularity": granularity})


@pytest.mark.parametrize("longest", [LENGTH - 3, LENGTH])
@pytest.mark.parametrize("scope, granularity", [
    ("attn", "layer"), ("", "layer"), ("", "chunk")])
def test_packed_sequences_have_places(scope, granularity, longest):
    """Rotary embeddings, which are of the buffer where the longest sequence
    is said to fill it."""
    compare(steps, "dense", scope, make=build_packed, places="rope",
            data=lambda: Packed(longest=longest),
            attach={"granularity": granularity})


@pytest.mark.parametrize("granularity", ["layer", "chunk"])
def test_packed_sequences_of_any_number(granularity):
    name = "packed_seq_params.cu_seqlens_"
    compare(lambda each: each.steps(COUNTS + COUNTS), "dense", "",
            make=build_packed, places="rope",
            data=lambda: Packed(sequences=(4, 2, 6, 3)),
            attach={"granularity": granularity,
                    "packed": {f"{name}q": 6, f"{name}kv": 6}})


class Group:
    def __init__(self, rank, size):
        self._rank, self._size = rank, size

    def rank(self):
        return self._rank

    def size(self):
        return self._size


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rank, size", [(0, 1), (0, 2), (1, 2), (3, 4)])
def test_places_of_packed_sequences(rank, size, interleaved, whole):
    # Megatron's own takes an empty one where it rotates halves.
    lengths = [8, 24, 16] if interleaved else [8, 0, 24, 16, 0]
    offsets = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()],
                           dtype=torch.int32).to(DEVICE)
    count = sum(lengths) if whole else max(lengths)
    freqs = torch.randn(count, 1, 1, 6, device=DEVICE)
    given = torch.randn(sum(lengths) // size, 2, 8, device=DEVICE)
    back = torch.randn_like(given)

    def each():
        t = given.clone().requires_grad_()
        out = rope_utils._apply_rotary_pos_emb_thd(
            t, offsets, freqs, rotary_interleaved=interleaved,
            mscale=1.5, cp_group=Group(rank, size))
        out.backward(back)
        return out, t.grad

    eager = each()
    with rope.on_the_device(PackedSeqParams()):
        assert all(map(torch.equal, eager, each()))
    assert all(map(torch.equal, eager, each()))


class Projection(torch.nn.Linear):
    """In the place of Transformer Engine's."""

    def __init__(self, width, other, **_):
        super().__init__(width, other, bias=False)

    def forward(self, x):
        return super().forward(x), None


@pytest.mark.parametrize("scope", [
    "attn,moe_router", "attn,moe_router,moe_preprocess", "padded"])
def test_experts_of_latent_width(monkeypatch, scope):
    """The graph ends behind the projection to it, or before."""
    monkeypatch.setattr(moe_layer, "HAVE_TE", True)
    monkeypatch.setattr(moe_layer, "TELinear", Projection)
    kind, scope = ("moe", scope) if scope != "padded" else (scope, "moe")
    compare(steps, kind, scope, moe_latent_size=16)


@pytest.mark.parametrize("scope", ["attn,moe_router",
                                   "attn,moe_router,moe_preprocess"])
@pytest.mark.parametrize("what", [
    {"moe_router_load_balancing_type": "seq_aux_loss"},
    {"moe_router_load_balancing_type": "global_aux_loss"},
    {"moe_z_loss_coeff": 0.01}, {"moe_input_jitter_eps": 0.1},
    {"moe_router_group_topk": 1, "moe_router_num_groups": 2, **NONE},
], ids=lambda what: " ".join(map(str, what.values())))
def test_experts_and_routers(what, scope):
    compare(steps, "moe", scope, **what)


@pytest.mark.parametrize("scope, more, remedy", [
    ("", {}, 'scope="attn,moe_router,moe_preprocess" captures what comes'),
    ("attn,moe_router", {"moe_router_load_balancing_type": "sinkhorn",
                         "moe_aux_loss_coeff": 0.0, "moe_router_topk": 1},
     "leave moe_router out of the scope")], ids=["experts", "router"])
def test_what_waits_is_refused_with_a_scope_that_does_not(scope, more, remedy):
    one, two = training.Training("moe", None, **more), \
        training.Training("moe", scope, **more)
    steps(one)
    steps(two)
    stats = two.end()
    assert training.differing(one.state(), two.state()) == []
    assert stats["replays"] == 0 and len(stats["refused"]) == 2
    for why in stats["refused"].values():
        assert "it waits for the device" in why and remedy in why


@pytest.mark.parametrize("kind, scope, modules", [
    ("dense", "", ["core_attn"]), ("dense", "attn", ["mlp"]),
    ("moe", "attn", ["moe"]), ("moe", "attn,moe_router", ["core_attn"]),
    ("shared", "attn", ["shared_experts"]), ("mla", "attn", ["mla_up_proj"]),
    ("mla", "", ["mla_up_proj", "core_attn"]), ("mla", "mlp", ["mla_up_proj"])
])
def test_what_is_computed_again(kind, scope, modules):
    compare(steps, kind, scope, recompute_granularity="selective",
            recompute_modules=modules)


SAID = dict(moe_enable_routing_replay=True)
FULL = dict(recompute_granularity="full", recompute_num_layers=1)


@pytest.mark.parametrize("method", ["uniform", "block"])
def test_all_is_computed_again(method):
    compare(steps, "dense", "", recompute_method=method, **FULL,
            attach={"granularity": "chunk"})


@pytest.mark.parametrize("scope, what", [("attn", "attn"),
                                         ("", "of whole layers")])
def test_what_megatron_does_not_compute_again(scope, what):
    import graphhooks.megatron

    core = training.build("dense", recompute_method="uniform", **FULL)
    with pytest.raises(graphhooks.Error, match=f"the scope {what}: full "
                       "recompute is only supported with full iteration"):
        graphhooks.megatron.attach(core, scope=scope)


def test_norms_that_could_not_be_computed_again():
    import graphhooks.megatron

    core = training.build("dense", recompute_granularity="selective",
                          recompute_modules=["layernorm"])
    with pytest.raises(graphhooks.Error, match="recompute_modules has "
                       "layernorm, .*: build the model with cuda_graph_impl"):
        graphhooks.megatron.attach(core, scope="attn")
    assert core.config.cuda_graph_impl == "none"


@pytest.mark.parametrize("what", [
    {"moe_router_load_balancing_type": ["aux_loss", "seq_aux_loss"],
     "moe_aux_loss_coeff": [0.01, 0.02]},
    {"moe_router_score_function": "sigmoid",
     "moe_router_enable_expert_bias": True, **NONE},
    {"moe_router_score_function": "sigmoid",
     "moe_router_enable_expert_bias": True,
     "moe_router_load_balancing_type": "seq_aux_loss"},
    {"moe_router_dtype": "fp32"}], ids=["two losses", "sigmoid",
                                        "sigmoid and a loss", "fp32"])
def test_what_routers_count(what):
    """Buffers and what is logged, also of a scope that ends with them."""
    two = compare(steps, "moe", "attn,moe_router", **what)
    if what.get("moe_router_enable_expert_bias"):
        counts = [n for n in two.state() if "tokens_per_expert" in n
                  or "expert_bias" in n]
        assert counts or two.core.decoder.layers[0].mlp.router \
            .local_tokens_per_expert.sum() > 0


def cast(core):
    """As Megatron trains: the model, and all of its buffers."""
    from megatron.core.transformer.module import Float16Module

    return Float16Module(core.config, core)


@pytest.mark.parametrize("scope", ["attn,moe_router", "attn"])
def test_a_bias_of_experts_that_the_first_forward_casts_back(scope):
    two = compare(steps, "sigmoid", scope, wrap=cast, bf16=True,
                  params_dtype=torch.bfloat16, pipeline_dtype=torch.bfloat16)
    assert two.core.decoder.layers[0].mlp.router.expert_bias.dtype \
        == torch.float32


@pytest.mark.parametrize("kind, scope", [
    ("moe", "attn,moe_router,moe_preprocess"), ("padded", ""),
    ("sigmoid", "attn,moe_router")])
def test_experts_that_predict_several_tokens(kind, scope):
    compare(steps, kind, scope, mtp_num_layers=1, mtp_loss_scaling_factor=0.1)


@pytest.mark.parametrize("kind, scope", [
    ("dense", ""), ("moe", "attn,moe_router,moe_preprocess")])
def test_half_precision(kind, scope):
    compare(steps, kind, scope, wrap=lambda core: core.half(), **HALF)


@pytest.fixture
def nothing_seen(monkeypatch):
    """As where torch compiles what layers call: any function may have run."""
    monkeypatch.setattr(ran.Ran, "and_these", lambda self, codes: ran.ANY)


@pytest.mark.parametrize("kind, scope", [
    ("dense", "attn"), ("moe", "attn,moe_router,moe_preprocess"),
    ("padded", "")])
def test_where_nobody_knows_what_ran(nothing_seen, kind, scope):
    compare(steps, kind, scope)


@pytest.mark.parametrize("scope", ["attn,moe_router",
                                   "attn,moe_router,moe_preprocess"])
def test_what_a_dispatcher_has_is_copied_for_nobody(scope):
    """It keeps what a graph has given until the next microbatch."""
    two = compare(steps, "moe", scope)
    assert "returns copies" not in two.explained


class LogitsAttention(training.Attention):
    """It keeps the largest of its logits, as Transformer Engine's does with
    qk_clip."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.current_max_attn_logits = None

    def forward(self, query, key, value, *args, **kwargs):
        found = torch.einsum("qbhd,kbhd->bhqk", query, key).detach() \
            .amax((0, 2, 3))
        kept = self.current_max_attn_logits
        self.current_max_attn_logits = found if kept is None \
            else torch.max(kept, found)
        return super().forward(query, key, value, *args, **kwargs)


@pytest.mark.parametrize("scope, attach", [
    ("attn", {}), ("", {}), ("", {"granularity": "chunk"}),
    ("attn", {"verify": "always"})])
@pytest.mark.parametrize("is_clipped", [True, False])
def test_the_largest_logits_are_kept_until_they_are_taken(
        scope, attach, is_clipped):
    """Weights are clipped by those of a step; those that are only read go on
    over several steps."""
    def make(kind, **more):
        spec = training.get_gpt_layer_local_spec()
        spec.submodules.self_attention.submodules.core_attention = \
            LogitsAttention
        return training.build_chunks(kind, spec=spec, **more)

    def steps(each):
        for count in COUNTS:
            each.steps([count])
            with torch.no_grad():
                for layer in each.core.decoder.layers:
                    of = layer.self_attention
                    largest = of.core_attention.current_max_attn_logits
                    each.losses.append(largest.clone())
                    if is_clipped:
                        of.linear_qkv.weight.mul_(
                            (0.05 / largest.max()).clamp(max=1.0).sqrt())
                        of.core_attention.current_max_attn_logits = None

    two = compare(steps, "dense", scope, make=make, attach=attach)
    passes = sum(COUNTS) * (1 if attach.get("granularity") else 2)
    assert two.stats["replays"] \
        == 2 * (passes - sum(two.stats["eager_calls"].values()))


class Routed(training.Tokens):
    """Whose experts are said, other ones for each microbatch."""

    replays: list = []  # of the model that takes them
    action = "REPLAY_FORWARD"

    def __next__(self):
        for replay in self.replays:
            experts = torch.rand(
                (self.batch * LENGTH, MOE["num_moe_experts"]),
                generator=self._numbers).argsort(1)
            # On the host, as what generated a text has left them.
            replay.set_target_indices(experts[:, :2].contiguous())
            replay.set_router_replay_action(
                self.action and RouterReplayAction[self.action])
        return super().__next__()


@pytest.mark.parametrize("action", [
    "REPLAY_FORWARD", "REPLAY_BACKWARD", None])
@pytest.mark.parametrize("scope, kind, attach", [
    ("attn,moe_router", "moe", {}), ("attn", "moe", {}),
    ("attn,moe_router,moe_preprocess", "moe", {}),
    ("", "padded", {}), ("", "padded", {"granularity": "chunk"})])
def test_experts_that_are_said_replay(action, scope, kind, attach):
    left = []

    def steps(each):
        data = each.data[0]
        data.action, data.replays = action, [
            layer.mlp.router.router_replay
            for layer in each.core.decoder.layers]
        each.steps(COUNTS)
        left.append([(r.target_topk_idx, r.replay_backward_list)
                     for r in data.replays])

    try:
        two = compare(steps, kind, scope, data=Routed, attach=attach,
                      moe_enable_routing_replay=True)
    finally:
        RouterReplay.clear_global_router_replay_instances()
    passes = sum(COUNTS) * (1 if attach else 2)
    assert two.stats["replays"] \
        == 2 * (passes - sum(two.stats["eager_calls"].values()))
    for one, other in zip(*left):
        assert torch.equal(one[0], other[0])
        assert len(one[1]) == len(other[1]) \
            == (0 if action == "REPLAY_BACKWARD" else sum(COUNTS))


AGAIN = dict(recompute_granularity="selective", recompute_modules=["moe"])


@pytest.mark.parametrize("kind, scope, attach, more", [
    ("padded", "", {"granularity": "chunk"},
     dict(recompute_method="uniform", **FULL)),
    ("padded", "", {"granularity": "chunk"}, AGAIN),
    ("padded", "", {}, AGAIN), ("padded", "moe", {}, AGAIN),
    ("moe", "attn", {}, AGAIN)],
    ids=["full", "chunk", "layer", "moe", "outside"])
def test_experts_that_are_said_for_what_runs_again(kind, scope, attach, more):
    """Each backward is told of it before, and the list has no more of them
    than are to come, wherever routers run again."""
    def steps(each):
        data, own = each.data[0], each._forward
        data.replays = [layer.mlp.router.router_replay
                        for layer in each.core.decoder.layers]

        def forward(*args):
            out, loss = own(*args)
            for replay in data.replays:
                replay.set_router_replay_action(
                    RouterReplayAction.REPLAY_BACKWARD)
            return out, loss

        each._forward = forward
        each.steps(COUNTS)
        assert [r.replay_backward_list for r in data.replays] == [[], []]

    one, two = training.Training(kind, None, data=Routed, **SAID, **more), \
        training.Training(kind, scope, data=Routed, attach=attach, **SAID,
                          **more)
    try:
        for each in one, two:
            training.seed()
            steps(each)
    finally:
        stats = two.end()
        RouterReplay.clear_global_router_replay_instances()
    assert training.differing(one.state(), two.state()) == []
    assert all("run again in its backward" in why
               for why in stats["refused"].values())
    assert bool(stats["refused"]) == (attach != {})


@pytest.mark.parametrize("in_buffers", [False, True])
@pytest.mark.parametrize("trains", [False, True])
def test_experts_are_recorded(trains, in_buffers):
    """By an evaluation, as a text is scored before it is trained on, or in the
    training itself."""
    def steps(each):
        data, replays = each.data[0], [
            layer.mlp.router.router_replay
            for layer in each.core.decoder.layers]
        for replay in replays if in_buffers else ():
            replay.set_static_buffer(torch.zeros(
                (data.batch * LENGTH, 2), dtype=torch.int64, device=DEVICE))
        for count in COUNTS:
            data.replays = []
            for replay in replays:
                replay.set_router_replay_action(RouterReplayAction.RECORD)
            for _ in range(2):
                each.run(1) if trains else each.evaluate(1)
                each.losses += [
                    replay.recorded_topk_idx.clone() for replay in replays]
                assert not in_buffers or all(
                    replay.recorded_topk_idx.data_ptr()
                    == replay.static_buffer.data_ptr() for replay in replays)
            data.replays = replays
            each.steps([count])

    try:
        compare(steps, "moe", "attn,moe_router", data=Routed,
                moe_enable_routing_replay=True)
    finally:
        RouterReplay.clear_global_router_replay_instances()


def _dispatch(x, routing_map, probs, num_permuted_tokens, **_):
    """As HybridEP does, of one rank: no more than so many tokens go, of each
    expert after the other."""
    of, each = routing_map.T.nonzero(as_tuple=True)
    of, each = of[:num_permuted_tokens], each[:num_permuted_tokens]
    counts = torch.bincount(of, minlength=routing_map.shape[1])
    return x[each], probs.T[of, each], None, counts, (
        each, len(x), (routing_map.sum() - len(each))[None])


def _combine(x, handle, **_):
    each, count, _ = handle
    return x.new_zeros(count, x.shape[1]).index_add(0, each, x)


@pytest.mark.parametrize("data", [training.Tokens, Lengths])
@pytest.mark.parametrize("factor", [None, 0.5])
@pytest.mark.parametrize("scope", [
    "attn", "attn,moe_router", "attn,moe_router,moe_preprocess"])
@pytest.mark.parametrize("kind", ["moe", "shared", "sigmoid"])
def test_a_dispatcher_that_has_others_do_it(monkeypatch, kind, scope, factor,
                                            data):
    """What these work out in a graph is there for the rest of the layer, and
    is of the microbatch at hand."""
    monkeypatch.setattr(token_dispatcher, "hybrid_ep_dispatch", _dispatch)
    monkeypatch.setattr(token_dispatcher, "hybrid_ep_combine", _combine)
    monkeypatch.setattr(token_dispatcher, "get_align_size_for_quantization",
                        lambda config: 1)

    def make(*args, **more):
        cores = training.build_chunks(*args, **more)
        for layer in cores[0].decoder.layers:  # its check asks for more
            layer.mlp.token_dispatcher._comm_manager \
                .moe_expert_rank_capacity_factor = factor
        return cores

    two = compare(steps, kind, scope, data=data, eager=("warmup", "input"),
                  make=make, moe_token_dispatcher_type="flex",
                  moe_flex_dispatcher_backend="hybridep",
                  moe_router_dtype="fp32")
    passes = 2 * sum(COUNTS)
    assert two.stats["replays"] \
        == 2 * (passes - sum(two.stats["eager_calls"].values()))


@pytest.mark.parametrize("scope", [
    "attn", "attn,moe_router", "attn,moe_router,moe_preprocess"])
@pytest.mark.parametrize("kind", ["moe", "shared", "sigmoid"])
def test_a_dispatcher_that_gathers_all_tokens(kind, scope):
    compare(steps, kind, scope, moe_token_dispatcher_type="allgather")
