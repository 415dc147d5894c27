"""Megatron-Core's models under its own schedules, with the graphs of
graphhooks.megatron, against the same without.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import itertools
import re

import graphhooks
import pytest

pytest.importorskip("megatron.core",
                    reason="megatron-core is not installed")

import training  # noqa: E402
from models import torch  # noqa: E402
from megatron.core.distributed import finalize_model_grads  # noqa: E402
from megatron.core.optimizer import (  # noqa: E402
    OptimizerConfig, get_megatron_optimizer)
from megatron.core.transformer.module import Float16Module  # noqa: E402
from training import (COUNTS, Training, build, compare,  # noqa: E402
                      differing, random, with_buffers, wrapped)

GATHER = {"overlap_grad_reduce": True, "use_distributed_optimizer": True,
          "overlap_param_gather": True}
SCOPES = [(kind, scope) for kind, scopes in {
    "dense": ("attn", "mlp", "attn,mlp", ""),
    "moe": ("attn", "moe_router", "attn,moe_router",
            "attn,moe_router,moe_preprocess"),
    "shared": ("attn,moe_router", "attn,moe_router,moe_preprocess"),
    "sigmoid": ("attn,moe_router", "attn,moe_router,moe_preprocess"),
    "padded": ("attn", "moe", "attn,moe", "attn,moe_router,moe_preprocess",
               ""),
    "mla": ("attn", ""),
}.items() for scope in scopes]


pytestmark = pytest.mark.usefixtures("world")


@pytest.mark.parametrize("kind, scope", SCOPES)
def test_a_scope_replays_all_microbatches(kind, scope):
    compare(lambda t: t.steps(COUNTS), kind, scope)


@pytest.mark.parametrize("kind, options", [
    ("dense", None), ("padded", None), ("dense", {}), ("dense", GATHER)],
    ids=["dense", "padded", "ddp", "gather"])
def test_all_layers_in_one_segment(kind, options):
    ddp = options is not None
    train = with_buffers(evaluates=True) if ddp else lambda t: t.steps(COUNTS)
    two = compare(train, kind, "", wrap=wrapped(**options) if ddp else None,
                  attach={"granularity": "chunk"})
    assert len(two.segments) == 1
    assert "forward" not in vars(two.core.decoder)


@pytest.mark.parametrize("granularity", ["layer", "chunk"])
def test_an_attach_after_the_first_steps(granularity):
    one, two = Training("padded"), Training("padded")
    for each in one, two:
        each.steps(COUNTS)
        if each is two:
            each.attach("", granularity=granularity)
        each.steps(COUNTS)
    stats = two.end()
    assert differing(one.state(), two.state()) == []
    assert stats["refused"] == {} and stats["replays"] > 0


@pytest.mark.parametrize("how", ["option", "variable"])
@pytest.mark.parametrize("scope, granularity", [
    ("", "layer"), ("", "chunk"), ("attn", "layer")])
def test_strict_lets_graphs_and_the_warmup_through(monkeypatch, how, scope,
                                                   granularity):
    attach = {"granularity": granularity}
    if how == "variable":
        monkeypatch.setenv("GRAPHHOOKS_STRICT", "1")
    else:
        attach["strict"] = True

    def train(training):
        training.steps(COUNTS)
        training.evaluate()

    compare(train, "dense", scope, eager=("warmup", "forward_only"),
            attach=attach)


@pytest.mark.parametrize("granularity", ["layer", "chunk"])
def test_strict_raises_where_a_call_is_eager(granularity):
    two = Training("dense", "", attach={
        "granularity": granularity, "strict": True, "max_slots": 1})
    two.steps([2, 2])
    first = two.model(**next(two.data[0]))
    with pytest.raises(graphhooks.Error, match=r"run eagerly \(busy\)"):
        two.model(**next(two.data[0]))
    del first
    two.end()


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


@pytest.mark.parametrize("granularity", ["layer", "chunk"])
@pytest.mark.parametrize("half", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("distributed", [False, True],
                         ids=["whole", "distributed"])
def test_with_megatrons_optimizer(distributed, half, granularity):
    """It steps copies of weights in fp32, or shards of them."""
    def wrap(core):
        core.config.finalize_model_grads_func = finalize_model_grads
        return wrapped(use_distributed_optimizer=distributed)(
            Float16Module(core.config, core) if half else core)

    def train(training):
        model = training.model
        optimizer = get_megatron_optimizer(
            OptimizerConfig(optimizer="adam", lr=0.01, bf16=half,
                            params_dtype=torch.bfloat16 if half
                            else torch.float32,
                            use_distributed_optimizer=distributed),
            [model], use_gloo_process_groups=False)
        for count in COUNTS:
            model.zero_grad_buffer()
            optimizer.zero_grad()
            training.run(count)
            assert optimizer.step()[0]

    more = {"bf16": True, "params_dtype": torch.bfloat16} if half else {}
    compare(train, "dense", "", wrap=wrap,
            attach={"granularity": granularity}, **more)


@pytest.mark.parametrize("options", [
    {}, {"overlap_grad_reduce": True},
    GATHER], ids=["plain", "reduce", "gather"])
@pytest.mark.parametrize("kind, scope", [
    ("dense", ""), ("moe", "attn,moe_router,moe_preprocess")])
def test_with_megatrons_data_parallel(kind, scope, options):
    compare(with_buffers(evaluates=True), kind, scope,
            wrap=wrapped(**options))


@pytest.mark.parametrize("granularity", ["layer", "chunk"])
@pytest.mark.parametrize("kind", ["dense", "padded"])
def test_graphs_add_to_the_buffers_of_data_parallel(kind, granularity):
    """So its hooks find nothing to add for the layers."""
    found: list = []

    def wrap(core):
        model = wrapped()(core)
        layers = {p for layer in core.decoder.layers
                  for p in layer.parameters()}
        for p in layers:
            accumulated = p.expand_as(p).grad_fn.next_functions[0][0]
            accumulated.register_prehook(
                lambda grads: found.append(grads[0] is not None))
            model.grad_accs.append(accumulated)
        return model

    def train(each):
        found.clear()
        with_buffers()(each)

    compare(train, kind, "", wrap=wrap, attach={"granularity": granularity})
    params = len(found) // sum(COUNTS)
    # In the first two steps the last of it is recorded.
    assert not any(found[sum(COUNTS[:2]) * params:])
    assert all(found[:params])


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

    each = Training("dense", "", wrap, attach={"granularity": "chunk"})
    with_buffers()(each)
    decoder = each.core.decoder
    owners = [m for m in decoder.modules()
              if next(m.parameters(recurse=False), None) is not None]
    assert waited == owners * sum(COUNTS)
    each.end()
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


def test_a_model_that_was_built_for_it_keeps_its_scope():
    two = compare(lambda t: t.steps(COUNTS), "dense", "attn",
               cuda_graph_impl="transformer_engine",
               cuda_graph_modules=["attn"])
    assert two.core.config.cuda_graph_impl == "transformer_engine"
    assert two.core.decoder.layers[0].cuda_graphs == []


@pytest.mark.parametrize("kind, scope, why", [
    ("dense", "moe", "Megatron refuses the scope moe: moe cuda graph is only"),
    ("dense", "foo", "scope has 'foo'; Megatron's words are attn, mlp,"),
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


OVERLAP = dict(moe_shared_expert_overlap=True)


@pytest.mark.parametrize("scope", ["moe_router,moe_preprocess",
                                   "attn,moe_router,moe_preprocess"])
def test_shared_experts_that_a_graph_would_begin(scope):
    for built in {}, dict(cuda_graph_impl="transformer_engine",
                          cuda_graph_modules=scope.split(",")):
        core = build("shared", **OVERLAP, **built)
        with pytest.raises(graphhooks.Error,
                           match="leave moe_preprocess out of the scope, or"):
            graphhooks.megatron.attach(core, scope=scope)


def test_tokens_that_are_padded_for_quantization():
    """The dispatcher waits for their number; Megatron would end the training
    in an assertion."""
    core = build("moe")
    core.config.moe_router_padding_for_quantization = True
    with pytest.raises(graphhooks.Error, match="wait for the host, which"):
        graphhooks.megatron.attach(core, scope="attn,moe_router,moe_preprocess")
    with pytest.raises(graphhooks.Error, match="Megatron refuses"):
        graphhooks.megatron.attach(core, scope="attn,moe_router")  # no FP8


@pytest.mark.parametrize("scope", ["attn,moe_router", "auto"])
def test_shared_experts_that_overlap(scope):
    with graphhooks.megatron.attach(build("shared", **OVERLAP),
                                    scope=scope) as attached:
        assert ": attn,moe_router\n" in attached.explain()
    if scope != "auto":
        compare(lambda t: t.steps(COUNTS), "shared", scope, **OVERLAP)


@pytest.mark.parametrize("scope, remedy", [
    ("attn,moe_router", "leave moe_router out of the scope, as sinkhorn"),
    ("attn,moe_router,moe_preprocess",
     "leave moe_router and moe_preprocess out of the scope, as sinkhorn"),
    ("", "scope=\"attn\" captures what comes before the router")])
def test_a_router_that_waits_for_the_host(scope, remedy):
    each = Training("moe", scope, moe_router_load_balancing_type="sinkhorn",
                    moe_aux_loss_coeff=0.0)
    each.steps(COUNTS)
    each.end()
    assert each.explained.count(remedy) == 2


@pytest.mark.parametrize("kind, scope, options, what", [
    ("dense", "attn", {}, "decoder.layers.0..1 (2 alike): attn"),
    ("dense", "", {}, "decoder.layers.0..1 (2 alike): whole layers"),
    ("dense", "", {"granularity": "chunk"}, "decoder: all layers"),
    ("moe", "attn,moe_router", {},
     "decoder.layers.0..1 (2 alike): attn,moe_router")])
def test_the_plan_is_told_in_words_of_scopes(kind, scope, options, what):
    with graphhooks.megatron.attach(build(kind), scope=scope,
                                    **options) as attached:
        said = attached.explain().splitlines()
    grain = options.get("granularity", "layer")
    assert said[0].endswith(f", granularity {grain}"), said
    assert [line for line in said if "graphed" in line] == [said[1]]
    assert said[1].endswith(f"  graphed  {what}")
    assert not any("family" in line or "nodes" in line for line in said)


def test_autograd_counts_as_its_own_what_it_adds_up():
    def wrap(core):
        if hears:
            p = next(core.decoder.layers[0].parameters())
            p.register_hook(lambda gradient: None)
        return wrapped(overlap_grad_reduce=overlap)(core)

    for overlap, hears in itertools.product([True, False], repeat=2):
        two = compare(with_buffers(), "dense", "", wrap=wrap)
        assert ("autograd adds up 1 of its 8" in two.explained) is hears


def test_a_layer_that_comes_several_times():
    def share(core):
        core.decoder.layers[2] = core.decoder.layers[0]
        return wrapped()(core)

    two = compare(with_buffers(), "dense", "", wrap=share, num_layers=3)
    assert "decoder.layers.2" not in two.explained


def test_an_evaluation_has_no_graphs():
    with pytest.raises(graphhooks.Error, match="leave eval out"):
        graphhooks.megatron.attach(build("dense"), scope="attn", eval=True)


def test_a_config_of_something_else():
    one, other = build("dense"), build("dense")
    with pytest.raises(graphhooks.Error, match="another object than the mod"):
        graphhooks.megatron.attach(one, other.config, scope="attn")
    graphhooks.megatron.attach(one, one.config, scope="attn").detach()


def test_a_chunk_that_is_given_twice():
    core = build("dense")
    with pytest.raises(graphhooks.Error, match="has one chunk twice"):
        graphhooks.megatron.attach([core, core], scope="attn")
    assert core.config.cuda_graph_impl == "none"


def test_a_word_that_no_layer_has_is_noted(caplog):
    note = "no layer of this stage has what the scope mamba names"
    two = compare(lambda t: t.steps(COUNTS), "dense", "attn,mamba")
    assert note in caplog.text and note in two.explained
    with graphhooks.megatron.attach(build("dense"), scope="mamba") as none:
        assert note in none.explain() and none.stats()["replays"] == 0


@pytest.mark.parametrize("chunks, why", [
    (torch.nn.Linear(2, 2), "model_chunks has Linear, without a Transf"),
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
