"""Megatron-Core's activations in host memory by its own names, moved by
graphs of graphhooks.megatron and beside them: the same bits.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections

import graphhooks
import pytest

pytest.importorskip("megatron.core",
                    reason="megatron-core is not installed")

import training  # noqa: E402
from models import HAS_GPU, torch  # noqa: E402
from megatron.core.pipeline_parallel import (  # noqa: E402
    fine_grained_activation_offload)
from megatron.core.transformer.moe.experts import (  # noqa: E402
    SequentialMLP)
from training import COUNTS, MOE, Training, build, differing  # noqa: E402

OWN = fine_grained_activation_offload.FineGrainedActivationOffloadingInterface
NORMS = "attn_norm,mlp_norm"
ATTENTION = "qkv_linear,core_attn,attn_proj"
EXPERTS = "expert_fc1,moe_act"
LAYERS = 6  # as many as rings in a graph pay for
SMALL = {"min_offloaded_tensor_size": 1}


pytestmark = pytest.mark.usefixtures("world")


@pytest.fixture(autouse=True)
def more_layers(monkeypatch):
    monkeypatch.setattr(training, "LAYERS", LAYERS)
    monkeypatch.setitem(training.KINDS, "mixed", {
        **MOE, "moe_layer_freq": [0] + [1] * (LAYERS - 1)})


class Experts(SequentialMLP):
    """With groups as experts of Transformer Engine have them, which the local
    ones have not."""

    offload_expert_fc1 = offload_moe_act = False

    def forward(self, hidden, tokens_per_expert, probs, *rest):
        late = self.config.delay_offload_until_cuda_graph
        fc1 = OWN(self.offload_expert_fc1, hidden, "expert_fc1")
        with fc1 as hidden:
            out, bias = super().forward(hidden, tokens_per_expert, probs,
                                        *rest)
        out = fc1.group_offload(out, [hidden], late)
        act = OWN(self.offload_moe_act, out, "moe_act")
        with act as out:
            result = torch.tanh(out) * out
        return act.group_offload(result, [out], late), bias


def with_groups(core):
    for layer in core.decoder.layers:
        experts = getattr(layer.mlp, "experts", None)
        if experts is not None:
            experts.__class__ = Experts
            experts.offload_expert_fc1 = experts.offload_moe_act = False
    return core


def going(stats) -> collections.Counter:
    """How many groups of each name go."""
    return collections.Counter(
        name.rsplit("'s ", 1)[1] for name in stats["offload"]["going"])


@pytest.fixture
def moved(request):
    """Trains without graphs or offload and with both; the same bits.  Returns
    what has moved."""
    def go(kind, scope, offload, train=lambda r: r.steps(COUNTS), config={},
           **options):
        one = Training(kind, None, with_groups, **SMALL)
        two = Training(kind, None, with_groups, **{**SMALL, **config})
        two.attach(scope=scope, offload=offload, **options)
        request.addfinalizer(two.end)
        train(one)
        train(two)
        two.said, two.summary = two.attached.explain(), \
            two.attached.offload_summary()
        two.stats = two.attached.stats()
        assert differing(one.state(), two.state()) == []
        assert two.stats["refused"] == {} and two.stats["replays"] > 0
        assert two.stats["eager_calls"].keys() <= {"warmup", "forward_only",
                                                   "paused"}
        return two

    return go


@pytest.mark.parametrize("kind, scope, inside, beside", [
    ("dense", "attn", ATTENTION, ""),
    ("dense", "mlp", "", "attn_norm," + ATTENTION),
    ("dense", "attn,mlp", ATTENTION + ",mlp_norm", ""),
    ("dense", "", ATTENTION + ",mlp_norm", ""),
    ("moe", "attn", ATTENTION, EXPERTS),
    ("moe", "moe_router", "", "attn_norm," + ATTENTION + "," + EXPERTS),
    ("moe", "attn,moe_router", ATTENTION, EXPERTS),
    ("shared", "attn,moe_router,moe_preprocess", ATTENTION, EXPERTS),
])
def test_groups_in_graphs_and_beside_them(moved, caplog, kind, scope, inside,
                                          beside):
    """All that is asked for goes, but what lies at the border of a graph, and
    the last group of each name, which its backward needs at once."""
    words = f"{NORMS},{ATTENTION}" + (f",{EXPERTS}" if kind != "dense" else "")
    run = moved(kind, scope, words)
    names = {n for n in f"{inside},{beside}".split(",") if n}
    assert going(run.stats) == dict.fromkeys(names, LAYERS - 1)
    offload = run.stats["offload"]
    assert (offload["out_bytes"] > 0) == bool(inside)
    assert offload["back_bytes"] == offload["out_bytes"]
    # Beside graphs groups go in each step, and else in the first alone.
    assert (offload["eager_pinned_bytes"] > 0) == bool(beside)
    stay = set(words.split(",")) - names
    assert all(f"{n} is not offloaded under the scope" in caplog.text
               for n in stay)


@pytest.mark.skipif(HAS_GPU, reason="Megatron's own needs TE there")
def test_the_groups_are_megatrons(moved, monkeypatch):
    """Names, counts and at most the bytes, of the first microbatch to go
    back."""
    import softtorch
    from megatron.core.extensions import transformer_engine

    made = softtorch._Event.__init__
    monkeypatch.setattr(softtorch._Event, "__init__", lambda self, *args,
                        external=False, **kw: made(self, *args, **kw))
    monkeypatch.setattr(transformer_engine, "cpu_offload", torch)
    handler = fine_grained_activation_offload.ChunkOffloadHandler
    monkeypatch.setattr(handler, "_can_manage_tensor_for_offload",
                        staticmethod(lambda t: not isinstance(
                            t, torch.nn.Parameter)))
    monkeypatch.setattr(handler, "offload", lambda self, t, **_: (
        t.device, t.clone(), False))
    monkeypatch.setattr(handler, "reload", lambda self, state, **_: state[1])
    words = f"attn_norm,{ATTENTION},{EXPERTS}"
    theirs = build("moe", **SMALL, fine_grained_activation_offloading=True,
                   offload_modules=words.split(","))
    manager = fine_grained_activation_offload.PipelineOffloadManager
    monkeypatch.setattr(manager, "OFFLOAD_MGR", None)
    run = Training("moe", None, make=lambda _: [with_groups(theirs)])
    for layer in theirs.decoder.layers:
        layer.mlp.experts.offload_expert_fc1 = True
        layer.mlp.experts.offload_moe_act = True
    run.steps([2])
    first = manager.get_instance()._cached_chunks_backward[0]
    goes = [g for g in first.offload_groups if g.offload]
    sizes = collections.Counter()
    for group in goes:
        sizes[group._name] += group.total_offload_bytes
    monkeypatch.setattr(manager, "OFFLOAD_MGR", None)
    ours = moved("moe", "moe_router", words)
    assert going(ours.stats) == collections.Counter(g._name for g in goes)
    offload = ours.attached.chunks[0].offload
    for name, theirs in sizes.items():
        mine = sum(offload.sizes[k] for k, why in offload.why.items()
                   if why is None and k[1] == name)
        assert 0 < mine <= theirs + 256 * 8 * LAYERS


def test_the_config_says_what_goes(moved):
    run = moved("moe", None, None, config=dict(
        fine_grained_activation_offloading=True,
        offload_modules=["core_attn", "attn_proj"],
        activation_offload_fraction=0.8,
        cuda_graph_impl="transformer_engine",
        cuda_graph_modules=["moe_router"]))
    # Of ten that could two stay, the latest ones.
    assert going(run.stats) == {"core_attn": 4, "attn_proj": 4}
    config = run.core.config
    assert not config.fine_grained_activation_offloading
    run.end()
    assert config.fine_grained_activation_offloading
    assert run.core.decoder.layers[0].offload_core_attn


@pytest.mark.parametrize("options", [
    {"offload_fraction": 0.5}, {"offload_keep_bytes": 1, "pipeline_rank": 1},
    {"offload_in_flight": 1}, {"offload_min_bytes": 256}])
def test_with_other_options(moved, options):
    run = moved("moe", "moe_router", f"core_attn,{EXPERTS}", **options)
    total = 3 * (LAYERS - 1)
    assert sum(going(run.stats).values()) == {
        "offload_fraction": total - total // 2,
        "offload_keep_bytes": total - 1}.get(next(iter(options)), total)


def test_a_copy_waits_for_those_before_of_its_name(moved, monkeypatch):
    from graphhooks.torch.offload import carried

    most, limit = collections.Counter(), carried.Carrier.limit

    def limited(self, name, copied):
        limit(self, name, copied)
        most[name] = max(most[name], len(self._under_way[name]))

    monkeypatch.setattr(carried.Carrier, "limit", limited)
    moved("moe", None, None, config=dict(
        fine_grained_activation_offloading=True,
        offload_modules=["core_attn", "attn_proj"],
        fine_grained_offloading_max_inflight_offloads=2,
        cuda_graph_impl="transformer_engine",
        cuda_graph_modules=["moe_router"]))
    assert most == {"core_attn": 2, "attn_proj": 2}


def test_delayed_groups_go_after_the_next_launch(moved, monkeypatch):
    from graphhooks.torch.offload import marks

    events = []
    flush, close = marks.Marks.flush, marks.Marked.close
    monkeypatch.setattr(marks.Marks, "flush", lambda self: (
        events.append("flush"), flush(self))[1])
    monkeypatch.setattr(marks.Marked, "close", lambda self: (
        events.append(self._group.key), close(self))[1])
    run = moved("moe", "attn,moe_router", EXPERTS, offload_delay=True)
    assert going(run.stats) == {"expert_fc1": LAYERS - 1,
                                "moe_act": LAYERS - 1}
    at = events.index((0, "expert_fc1"))
    assert events[at - 1] == "flush" and events[at + 1] == (0, "moe_act")
    assert not run.attached._offloading.marks[0]._late


def test_all_modules_of_whole_layers_by_true(moved):
    run = moved("dense", "attn,mlp", True, offload_min_bytes=256)
    assert len(run.stats["offload"]["going"]) == LAYERS - 1


def test_evaluations_and_pauses_move_nothing(moved):
    def train(run):
        run.steps([2, 2])
        run.evaluate()
        if run.attached is not None:
            before = run.attached.stats()["offload"]
            run.attached.disable_offload()
        run.run(1, forward_only=True)
        if run.attached is not None:
            after = run.attached.stats()["offload"]
            run.attached.enable_offload()
            assert {k: after[k] for k in ("out_bytes", "eager_out_bytes")} \
                == {k: before[k] for k in ("out_bytes", "eager_out_bytes")}
        run.steps([3])

    moved("moe", "attn,moe_router", f"core_attn,{EXPERTS}", train)


def test_layers_without_graphs_move_all_of_theirs(moved):
    run = moved("mixed", "moe_router", f"core_attn,{EXPERTS}")
    assert going(run.stats)["core_attn"] == LAYERS - 1
    assert "decoder.layers.0's core_attn" in run.stats["offload"]["going"]


def test_a_table_of_the_ranks(moved):
    run = moved("dense", "attn", "core_attn,attn_proj")
    title, head, row = run.summary.splitlines()
    assert head.split() == ["rank", "core_attn", "attn_proj", "total"]
    rank, *sizes = row.split()
    assert rank == "0" and float(sizes[0]) > float(sizes[1]) > 0


@pytest.mark.parametrize("kind, scope, offload, config, why", [
    ("dense", "attn", "attn_proj", {}, "attn_proj cannot be set .* alone"),
    ("dense", "attn", "foo", {}, "offload has 'foo'; Megatron's names are "),
    ("moe", "attn", "moe_act", {
        "recompute_granularity": "selective", "recompute_modules": ["moe"]},
     "Cannot offload .*moe_act.* recomputing the entire MoE layer"),
    ("moe", "attn", "fused_group_mlp", {}, "use_transformer_engine_op_fuser"),
    ("padded", "moe", "core_attn", {}, "Token-drop MoE is temporarily not"),
])
def test_what_does_not_go_together(kind, scope, offload, config, why):
    core = with_groups(build(kind, **SMALL, **config))
    flags = vars(core.decoder.layers[0].self_attention).copy()
    methods = dict(vars(OWN))
    with pytest.raises(graphhooks.Error, match=why):
        graphhooks.megatron.attach(core, scope=scope, offload=offload)
    assert vars(core.decoder.layers[0].self_attention) == flags
    assert dict(vars(OWN)) == methods
    assert core.config.cuda_graph_impl == "none"


def test_what_the_config_says_can_be_left_out(moved):
    run = moved("dense", None, "", config=dict(
        fine_grained_activation_offloading=True, offload_modules=["core_attn"],
        cuda_graph_impl="transformer_engine", cuda_graph_modules=["attn"]))
    assert "offload" not in run.stats


def test_a_name_that_no_layer_has_is_noted(caplog):
    with graphhooks.megatron.attach(
            training.build("dense"), scope="",
            offload="core_attn,expert_fc1") as attached:
        said = attached.explain()
    for text in said, caplog.text:
        assert "what the offload expert_fc1 names" in text


def test_names_are_of_layers_and_not_of_a_chunk():
    core = build("dense", **SMALL)
    with pytest.raises(graphhooks.Error, match="groups are of each"):
        graphhooks.megatron.attach(core, granularity="chunk",
                                   offload="core_attn")


def test_a_detach_leaves_megatrons_offload_as_it_was(moved):
    methods = dict(vars(OWN))
    run = moved("moe", "attn,moe_router", f"core_attn,{EXPERTS}")
    layer = run.core.decoder.layers[1]
    assert layer.self_attention.offload_core_attention
    assert layer.mlp.experts.offload_moe_act
    assert dict(vars(OWN)) != methods
    run.end()
    assert not layer.self_attention.offload_core_attention
    assert not layer.mlp.experts.offload_moe_act
    assert dict(vars(OWN)) == methods
    run.steps([2])


def test_a_variable_wins(moved, monkeypatch):
    monkeypatch.setenv("GRAPHHOOKS_OFFLOAD", "core_attn")
    run = moved("dense", "attn", "core_attn,attn_proj")
    assert going(run.stats) == {"core_attn": LAYERS - 1}


def test_a_stack_with_layers_of_mamba(moved):
    """Which have no MLP, and so none of experts."""
    training.compare(lambda each: each.steps(training.COUNTS), "hybrid",
                     "attn,mamba", make=training.build_hybrid,
                     pattern="M*-M", attach={
                         "offload": "core_attn", "offload_min_bytes": 1})
