"""What comes between the steps of a training, and before the first and after
the last.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import copy
import re
import sys

import graphhooks
import pytest

pytest.importorskip("megatron.core",
                    reason="megatron-core is not installed")

import training  # noqa: E402
from models import torch  # noqa: E402
from training import (BATCH, COUNTS, LENGTH, Training, build, compare,  # noqa: E402
                      differing, with_buffers, wrapped)

from megatron.core.transformer.enums import CudaGraphModule  # noqa: E402
from megatron.core.transformer.module import Float16Module  # noqa: E402

MOST = "attn,moe_router,moe_preprocess"
GATHER = {"overlap_grad_reduce": True, "use_distributed_optimizer": True,
          "overlap_param_gather": True}


pytestmark = pytest.mark.usefixtures("world")


# ---- between steps ----------------------------------------------------------


@pytest.mark.parametrize("kind, scope", [("dense", ""), ("moe", MOST)])
def test_an_evaluation(kind, scope):
    def train(each):
        for count in COUNTS:
            each.steps([count])
            each.evaluate()

    compare(train, kind, scope)


@pytest.mark.parametrize("kind, scope", [("dense", ""), ("dense", "attn"),
                                         ("moe", MOST)])
def test_a_suspended_training(kind, scope):
    def train(each):
        for count in COUNTS + COUNTS:
            each.steps([count])
            if each.attached is not None:
                each.attached.suspend()
                each.attached.resume()

    compare(train, kind, scope, attach={"suspends": True})


def test_of_two_chunks_none_is_suspended_alone():
    """One has a forward in flight."""
    training.seed()
    one = Training("dense")
    two = Training("dense", config=one.core.config)
    both = graphhooks.megatron.attach([one.core, two.core], suspends=True)
    for each in one, two:
        each.steps(COUNTS)
    loss = two.model(**next(two.data[0])).float().mean()
    with pytest.raises(graphhooks.Error, match="is in flight"):
        both.suspend()
    assert [c.memory()["suspended"] for c in both.chunks] == [0, 0]
    loss.backward()
    both.suspend()
    assert [c.memory()["suspended"] for c in both.chunks] == [1, 1]
    with pytest.raises(graphhooks.Error, match="resume"):
        both.suspend()
    assert [c.memory()["suspended"] for c in both.chunks] == [1, 1]
    both.resume()
    for each in one, two:
        each.steps(COUNTS)
    both.detach()


@pytest.mark.parametrize("kind, scope", [("dense", ""), ("sigmoid", MOST)])
def test_a_checkpoint_is_saved_and_loaded(kind, scope):
    def train(each):
        each.steps(COUNTS)
        saved = copy.deepcopy([c.state_dict() for c in each.cores]), \
            copy.deepcopy(each.optimizer.state_dict())
        each.steps(COUNTS)
        for core, state in zip(each.cores, saved[0]):
            core.load_state_dict(state)
        each.optimizer.load_state_dict(saved[1])
        each.steps(COUNTS)

    compare(train, kind, scope)


@pytest.mark.parametrize("kind, scope", [("dense", ""), ("moe", MOST)])
def test_a_detach_and_another_attach(kind, scope):
    def train(each):
        each.steps(COUNTS)
        if each.attached is not None:
            each.end()
        each.steps([2])
        if each.attached is not None:
            each.attach(scope)
        each.steps(COUNTS)

    compare(train, kind, scope)


@pytest.mark.parametrize("kind, scope", [
    ("dense", ""), ("dense", "attn"), ("dense", "mlp"), ("moe", "attn"),
    ("moe", MOST)])
def test_a_detach_with_passes_in_flight(kind, scope):
    """Their backwards are of what the scope was."""
    def train(each):
        each.steps(COUNTS)
        losses = [each.model(**next(each.data[0])).float().mean()
                  for _ in range(2)]
        if each.attached is not None:
            each.end()
        for loss in losses:
            loss.backward()
        each.optimizer.step()
        each.optimizer.zero_grad()
        each.steps([2])

    training.seed()
    one = Training(kind, None)
    train(one)
    training.seed()
    two = Training(kind, scope)
    train(two)
    assert differing(one.state(), two.state()) == []


@pytest.mark.parametrize("kind, scope", [("dense", ""), ("moe", MOST)])
@pytest.mark.parametrize("attached", ["one", "both", "together"])
def test_models_with_one_config(kind, scope, attached):
    """As an actor and its critic, or the chunks of a pipeline's stage: what
    is not attached, or not any more, runs as ever."""
    def train(graphs):
        training.seed()
        one = Training(kind)
        two = Training(kind, config=one.core.config)
        if graphs and attached == "together":
            both = graphhooks.megatron.attach([one.core, two.core],
                                              scope=scope)
        elif graphs:
            one.attach(scope)
            if attached == "both":
                two.attach(scope)
        training.seed()

        def steps():
            for count in COUNTS:
                one.steps([count])
                two.steps([count])

        steps()
        if graphs and attached == "together":
            assert both.stats()["replays"] > 0
            both.detach()
        for each in one, two:
            if each.attached:
                assert each.end()["replays"] > 0
            one.steps([2])  # the other is still attached
            two.steps([2])
        assert one.core.config.cuda_graph_impl == "none"
        steps()
        return one.state(), two.state()

    for eager, graphed in zip(train(False), train(True)):
        assert training.differing(eager, graphed) == []


def test_models_with_one_config_have_one_scope():
    one = Training("dense", "attn")
    two = Training("dense", config=one.core.config)
    with pytest.raises(graphhooks.Error, match="same config object"):
        two.attach("mlp")
    one.end()
    two.attach("mlp")
    two.end()


@pytest.mark.parametrize("kind, scope", [("dense", ""), ("moe", MOST)])
@pytest.mark.parametrize("place", ["forward", "loss"])
def test_an_exception_in_a_schedule(monkeypatch, kind, scope, place):
    class Stops(Exception):
        pass

    def train(each):
        each.steps(COUNTS)
        forward = each._forward
        calls = []

        def failing(*args, **kwargs):
            calls.append(1)
            if place == "forward" and len(calls) == 3:
                raise Stops
            out, loss = forward(*args, **kwargs)

            def fails(value):
                if len(calls) == 3:
                    raise Stops
                return loss(value)

            return out, fails

        each._forward = failing
        with pytest.raises(Stops):
            each.steps([4])
        each._forward = forward
        each.optimizer.zero_grad()
        each.steps(COUNTS)

    compare(train, kind, scope)


@pytest.mark.parametrize("name, value", [
    ("moe_aux_loss_coeff", 0.5), ("apply_residual_connection_post_layernorm",
                                  True), ("cuda_graph_modules", "attn")])
def test_a_config_that_changes_after_the_attach(name, value):
    """What has been recorded is not used, as it is another layer now."""
    def train(each):
        each.steps(COUNTS)
        given = [CudaGraphModule[value]] if name == "cuda_graph_modules" \
            else value
        setattr(each.core.config, name, given)
        each.steps(COUNTS)

    two = compare(train, "moe", MOST, eager=("warmup", "attributes"))
    assert two.stats["eager_calls"]["attributes"] > 0


class Scaler:
    """Of losses, as an optimizer in FP16 has one."""

    def __init__(self):
        self._growth_tracker = 0

    def scale(self, loss):
        return loss * 1


@pytest.mark.parametrize("scope", ["attn", "attn,moe_router", MOST])
def test_a_method_in_the_config_that_no_layer_calls(scope):
    """What it is bound to is not read."""
    def train(each):
        scaler = Scaler()
        each.core.config.grad_scale_func = scaler.scale
        for count in COUNTS * 2:
            scaler._growth_tracker += 1
            each.steps([count])

    compare(train, "moe", scope)


def half(training, fused):
    return lambda x, residual, rate: residual + 0.5 * x[0]


@pytest.mark.parametrize("scope", ["", "attn", "mlp", "attn,mlp"])
@pytest.mark.parametrize("names, value, words", [
    (("hidden_dropout",), 0.5, "hidden_dropout was 0.0 when it was recorded "
     "and is 0.5 now"),
    (("self_attn_bda", "mlp_bda"), half, "bda was get_bias_dropout_add when it was "
     "recorded and is half now")])
def test_what_a_layer_has_beside_its_modules(scope, names, value, words):
    """Which the part of it that has a graph reads."""
    def train(each):
        each.steps(COUNTS)
        for layer in each.core.decoder.layers:
            for name in names:
                setattr(layer, name, value)
        each.steps(COUNTS)

    two = compare(train, "dense", scope, eager=("warmup", "attributes"))
    assert two.stats["eager_calls"]["attributes"] > 0
    assert re.search(rf"decoder\.layers\.\d[^:]*: \w*{words}",
                     two.attached.explain())


def test_an_attach_to_layers_as_they_are_names_the_other():
    """Where it has no graphs for them."""
    one = Training("padded")
    attached = graphhooks.attach(one.core)
    one.steps(COUNTS)
    refused = attached.stats()["refused"]
    attached.detach()
    assert refused and all("graphhooks.megatron.attach() has graphs" in why
                           for why in refused.values())


def test_what_routers_count_and_log():
    from megatron.core.transformer.moe.moe_logging import \
        get_moe_metrics_tracker

    found = []

    def train(each):
        get_moe_metrics_tracker().clear()
        each.steps(COUNTS)
        found.append({name: metric.values.clone() for name, metric
                      in get_moe_metrics_tracker().metrics.items()})

    compare(train, "moe", MOST, moe_z_loss_coeff=0.01)
    assert found[0].keys() == {"load_balancing_loss", "z_loss"}
    assert differing(*found) == []


class Other(training.Tokens):
    """Microbatches of another shape, all or each second one."""

    every = 1

    def __init__(self, batch=BATCH, length=LENGTH):
        super().__init__()
        self.batch, self._length, self._count = batch, length, 0

    def __next__(self):
        given = super().__next__()
        self._count += 1
        if self._count % self.every:
            return given
        return {name: t if t is None else torch.cat([t, t])
                [:self.batch, :self._length].contiguous()
                for name, t in given.items()}


class EachSecond(Other):
    every = 2


PREPROCESS = [("moe", MOST), ("sigmoid", MOST), ("shared", MOST),
              ("padded", "attn,moe"), ("moe", "attn,moe_router")]


@pytest.mark.parametrize("kind, scope", PREPROCESS)
@pytest.mark.parametrize("shape", [(2 * BATCH, LENGTH), (BATCH, LENGTH // 2)],
                         ids=["batch", "length"])
def test_an_evaluation_of_another_shape(kind, scope, shape):
    """What it leaves for the rest of a layer is of that shape, and a replay
    leaves what the recording has."""
    def train(each):
        each.steps(COUNTS)
        data, each.data = each.data, [Other(*shape)]
        each.evaluate(1)
        each.data = data
        each.steps(COUNTS)

    # The body of one that is padded reads itself what the evaluation leaves.
    compare(train, kind, scope, eager=("warmup", "attributes")
            if kind == "padded" else ("warmup",))


@pytest.mark.parametrize("kind, scope", PREPROCESS[:3])
def test_microbatches_of_several_shapes(kind, scope):
    def train(each):
        each.data = [EachSecond(length=LENGTH // 2) for _ in each.cores]
        each.steps([2] * 6)

    two = compare(train, kind, scope)
    assert two.stats["replays"] >= 2 * 2 * 2 * 3


# ---- the wrappers and the optimizer -----------------------------------------


@pytest.mark.parametrize("half", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("options", [{}, {"use_distributed_optimizer": True}],
                         ids=["whole", "distributed"])
@pytest.mark.parametrize("granularity", ["layer", "chunk"])
def test_an_attach_before_the_wrapper(granularity, options, half):
    """It moves the parameters into buffers of its own, of another type."""
    more = {"bf16": True, "params_dtype": torch.bfloat16} if half else {}

    def wrap_late(each):
        each.chunks = [wrapped(**options)(
            Float16Module(core.config, core) if half else core)
            for core in each.cores]
        each.model = each.chunks[0]
        with_buffers()(each)

    one, two = Training("dense", **more), Training(
        "dense", "", attach={"granularity": granularity}, **more)
    for each in one, two:
        training.seed()
        wrap_late(each)
    stats = two.end()
    assert differing(one.state(), two.state()) == []
    assert stats["refused"] == {} and stats["replays"] > 0


@pytest.mark.parametrize("kind, scope, granularity", [
    ("dense", "", "layer"), ("dense", "attn", "layer"),
    ("dense", "", "chunk")])
def test_a_copy_is_one_without_graphs(monkeypatch, kind, scope, granularity):
    """As of a reference that is kept, or trained by itself."""
    monkeypatch.setattr(torch._C._distributed_c10d.ProcessGroup,
                        "__deepcopy__", lambda self, memo: self,
                        raising=False)

    def train(each):
        each.steps(COUNTS)
        each.cores.append(copy.deepcopy(each.core))
        given = next(each.data[0])
        each.losses += [core(**given).float().mean() for core in each.cores]
        each.losses[-1].backward()
        each.steps(COUNTS)

    two = compare(train, kind, scope,
                  attach={"granularity": granularity})
    twin, core = two.cores[1].decoder, two.core.decoder
    for module in (twin, core, *twin.layers, *core.layers):
        assert not {"forward", "__reduce_ex__", "_te_cuda_graph_replay"} \
            & vars(module).keys()
    assert not any(getattr(layer, "cuda_graphs", ()) for layer in twin.layers)
    with graphhooks.megatron.attach(two.cores[1], scope=scope,
                                    granularity=granularity):
        pass


@pytest.mark.parametrize("name", ["FullyShardedDataParallel", "MegatronFSDP"])
def test_parameters_that_come_and_go_are_refused(name):
    kind = type(name, (torch.nn.Module,), {})
    model = kind()
    model.module = build("dense")
    with pytest.raises(graphhooks.Error, match=f"the model is in {name}, .* "
                       "use Megatron's DistributedDataParallel"):
        graphhooks.megatron.attach(model, scope="attn")


# ---- what is there before ----------------------------------------------------


@pytest.mark.parametrize("connections, more, note", [
    ("1", {}, None), ("8", {}, None),
    ("1", {"overlap_moe_expert_parallel_comm": True}, "into one queue"),
    ("8", {"sequence_parallel": True}, "Megatron asks for 1")])
def test_how_many_queues_there_are_is_said(monkeypatch, connections, more,
                                           note):
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", connections)
    core = build("dense")
    for name, value in more.items():
        monkeypatch.setattr(core.config, name, value)
    from graphhooks.megatron import environment
    notes = environment.notes_of(core.config, [core])
    assert len(notes) == (note is not None)
    assert note is None or note in notes[0]


@pytest.mark.parametrize("wraps", [False, True])
def test_a_wrapper_that_takes_weight_gradients_too_early_is_said(
        monkeypatch, wraps):
    from types import SimpleNamespace

    from graphhooks.megatron import environment
    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", "8")
    config = SimpleNamespace(overlap_moe_expert_parallel_comm=True,
                             sequence_parallel=False,
                             delay_wgrad_compute=True)
    ddp = SimpleNamespace(ddp_config=SimpleNamespace(
        delay_wgrad_compute=wraps), module=None)
    chunk = SimpleNamespace(module=ddp)
    notes = environment.notes_of(config, [chunk])
    assert len(notes) == (not wraps)
    assert wraps or "set it in both" in notes[0]
    config.delay_wgrad_compute = False
    assert environment.notes_of(config, [chunk]) == []


def test_memory_that_nccl_would_register(monkeypatch):
    from graphhooks.megatron import environment
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    environment.refuse_registration(None)
    with pytest.raises(graphhooks.Error, match="set NCCL_GRAPH_REGISTER=0"):
        environment.refuse_registration(torch.distributed.group.WORLD)
    monkeypatch.setenv("NCCL_GRAPH_REGISTER", "0")
    environment.refuse_registration(torch.distributed.group.WORLD)


def test_ranks_with_microbatches_of_their_own(monkeypatch):
    core = build("dense")
    monkeypatch.setattr(core.config, "hybrid_context_parallel", True)
    with pytest.raises(graphhooks.Error, match="leave group= out"):
        graphhooks.megatron.attach(core, scope="mlp",
                                   group=torch.distributed.group.WORLD)
    assert core.config.cuda_graph_impl == "none"
    for scope in "mlp", "attn", "":
        with graphhooks.megatron.attach(core, scope=scope) as attached:
            assert attached.chunks[0].ranks.varies, scope


def test_ranks_with_microbatches_of_their_own_in_pieces(monkeypatch):
    """Those of tensor parallelism have the same, as long as attention, which
    has other ranks, too, is not captured."""
    core = build("dense")
    monkeypatch.setattr(core.config, "hybrid_context_parallel", True)
    monkeypatch.setattr(sys.modules["graphhooks.megatron.attach"], "group_of",
                        lambda *_: torch.distributed.group.WORLD)
    with pytest.raises(graphhooks.Error, match="leave attn out of the scope"):
        graphhooks.megatron.attach(core, scope="attn,mlp")
    graphhooks.megatron.attach(core, scope="mlp").detach()


def test_megatron_that_is_missing(monkeypatch):
    core = build("dense")
    monkeypatch.setitem(sys.modules, "megatron.core", None)
    with pytest.raises(graphhooks.Error, match="pip install megatron-core"):
        graphhooks.megatron.attach(core, scope="attn")


def test_a_transformer_engine_that_is_missing(monkeypatch):
    core = build("dense")
    monkeypatch.setattr(core.config, "fp8", "hybrid")
    for name in [n for n in sys.modules
                 if n.split(".")[0] == "transformer_engine"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "transformer_engine", None)
    with pytest.raises(graphhooks.Error, match="config.fp8 is set, and trans"):
        graphhooks.megatron.attach(core, scope="")
    assert core.config.cuda_graph_impl == "none"


def test_an_attach_that_knows_nothing_of_megatron(caplog):
    one, two = Training("dense"), Training("dense")
    training.seed()
    one.steps(COUNTS)
    two.attached = graphhooks.attach(two.core, "decoder.layers.*")
    training.seed()
    two.steps(COUNTS)
    stats = two.end()
    assert "graphhooks.megatron.attach knows its scopes" in caplog.text
    assert differing(one.state(), two.state()) == []
    assert stats["refused"] == {}
    assert stats["replays"] == 2 * 2 * sum(COUNTS) \
        - 2 * stats["eager_calls"]["warmup"]


# ---- a training loop of Megatron's -------------------------------------------


def loop(each, warmup: int, gathers: bool) -> object:
    """As megatron.training's train() has it."""
    helper = graphhooks.megatron.CudaGraphHelper(
        model=each.chunks, config=each.core.config, seq_length=16,
        micro_batch_size=2, optimizers=[each.optimizer])
    model = each.chunks[0]
    if gathers:  # until the first step there is nothing to wait for
        model.disable_forward_pre_hook(param_sync=False)
    for iteration, count in enumerate(COUNTS * 2):
        if not helper.capture_finished() and iteration == warmup:
            if warmup > 0 and gathers:
                model.disable_forward_pre_hook(param_sync=False)
            helper.create_cudagraphs()
            if warmup > 0 and gathers:
                model.enable_forward_pre_hook()
                helper.cuda_graph_set_manual_hooks()
        model.zero_grad_buffer()
        each.run(count)
        model.finish_grad_sync()
        for p in model.parameters():
            p.grad = p.main_grad.to(p.dtype)
        each.optimizer.step()
        each.optimizer.zero_grad()
        if iteration == 0 and gathers:
            model.enable_forward_pre_hook()
            if warmup == 0:
                assert helper.capture_finished()
                helper.cuda_graph_set_manual_hooks()
    return helper


@pytest.mark.parametrize("options", [{}, GATHER], ids=["plain", "gather"])
@pytest.mark.parametrize("warmup", [0, 2])
def test_a_loop_that_asks_megatrons_helper(options, warmup):
    how = dict(wrap=wrapped(**options), cuda_graph_impl="transformer_engine",
               cuda_graph_modules=["attn", "moe_router"])
    one, two = Training("moe", **how), Training("moe", **how)
    training.seed()
    loop(one, len(COUNTS) * 3, bool(options))  # never
    training.seed()
    helper = loop(two, warmup, bool(options))
    assert helper.graphs_created()
    layer, stats = two.core.decoder.layers[0], helper.attached.stats()
    assert bool(layer.cuda_graph_manual_hooks) == bool(options)
    helper.delete_cuda_graphs()
    assert not helper.graphs_created() and layer.cuda_graphs == []
    assert differing(one.state(), two.state()) == []
    assert stats["refused"] == {} and stats["eager_calls"].keys() == {"warmup"}
    assert stats["replays"] == 2 * 2 * sum((COUNTS * 2)[warmup:]) \
        - 2 * stats["eager_calls"]["warmup"]


@pytest.mark.parametrize("scope", ["attn,moe_router",
                                   "attn,moe_router,moe_preprocess"])
def test_experts_alone_are_in_evaluation(scope):
    """Megatron ends no scope within such experts."""
    def train(each):
        for step, count in enumerate(COUNTS + COUNTS):
            for layer in each.core.decoder.layers:
                layer.mlp.train(step not in (3, 4))
            each.steps([count])

    two = compare(train, "moe", scope)
    assert two.stats["replays"] > 0


@pytest.mark.parametrize("word, says", [
    ("auto", "the config is without overlap_moe_expert_parallel_comm: set"),
    ("best", "overlap is 'best'; there are off, fixed, auto")])
def test_an_order_without_an_overlap_is_refused(word, says):
    run = Training("moe")
    with pytest.raises(graphhooks.Error, match=says):
        run.attach("attn", overlap=word)
    assert not any(getattr(layer, "cuda_graphs", None)
                   for layer in run.core.decoder.layers)


def test_a_group_that_a_microbatch_names_is_kept_for_those_that_name_none():
    """One that names none finds it again, also when it runs once more."""
    from graphhooks.megatron.left import KeptGroups
    from packing import KeepingAttention, PackedSeqParams

    both = torch.distributed.group.WORLD
    attention = KeepingAttention(training.config_of("dense"), 1, None, None)
    kept = KeptGroups(graphhooks.segment(attention, [attention]))
    named = PackedSeqParams(local_cp_size=1, cp_group=both)
    alone = PackedSeqParams(local_cp_size=1)
    assert kept.enter(None) == kept.enter(PackedSeqParams()) == {}
    assert kept.enter(named) == {} and attention.cp_group is both
    assert attention.cp_global_ranks == [0]
    left = kept.enter(PackedSeqParams())
    assert left == {"kept_groups": [both]}
    assert kept.enter(alone) == {} and attention.cp_group is None
    kept.follow(PackedSeqParams(), left["kept_groups"])
    assert attention.cp_group is both
    kept.follow(alone, None)  # which its forward sets itself
    assert attention.cp_group is both
    kept.follow(None, None)
    assert attention.cp_group is None
