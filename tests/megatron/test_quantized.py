"""Weights that are quantized once a step, and scales that a region updates at
its end, as Transformer Engine has them for FP8; here in plain torch.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import types

import pytest

pytest.importorskip("megatron.core",
                    reason="megatron-core is not installed")

from megatron.core.fp8_utils import is_first_last_bf16_layer  # noqa: E402
from megatron.core.transformer import transformer_block  # noqa: E402
import softquantization  # noqa: E402
import training  # noqa: E402
from models import HAS_GPU, torch  # noqa: E402
from softquantization import Linear, Manager, autocast  # noqa: E402
from training import COUNTS, Training, compare, differing  # noqa: E402

pytestmark = [pytest.mark.usefixtures("world"), pytest.mark.skipif(
    HAS_GPU, reason="a GPU has Transformer Engine's own")]


def region(config, layer_no=-1, is_init=False):
    """As Megatron's get_fp8_context."""
    if is_first_last_bf16_layer(config, layer_no):
        return contextlib.nullcontext()
    return autocast(recipe=softquantization.Recipe(config.fp8_recipe))


class Regional(torch.nn.Module):
    """It looks for what a region leaves; and has a flag that says nothing
    where nothing is quantized."""

    def __init__(self, linear):
        super().__init__()
        self.linear = linear
        self.is_first_microbatch = True

    def forward(self, x):
        arguments = Manager.quantization_state.autocast_arguments
        [(recipe, _)] = arguments.values()
        if Manager.is_first_fp8_module() and recipe.margin:
            x = x + int(self.is_first_microbatch)
        self.is_first_microbatch = False
        return self.linear(x)


@pytest.fixture
def quantized(monkeypatch):
    names = "transformer_engine.pytorch.quantization"
    for i in range(3):
        name = ".".join(names.split(".")[:i + 1])
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules[names].FP8GlobalStateManager = Manager
    monkeypatch.setattr(transformer_block, "get_fp8_context", region)

    Manager.reset()
    yield wrap
    Manager.reset()


def wrap(core, recipe="delayed"):
    core.config.fp8, core.config.fp8_recipe = "hybrid", recipe
    return with_modules(core)


def with_modules(core):
    for layer in core.decoder.layers:
        layer.mlp.linear_fc1 = Linear(layer.mlp.linear_fc1)
        layer.self_attention.linear_qkv = Linear(
            layer.self_attention.linear_qkv)
    return core


@pytest.mark.parametrize("granularity", ["layer", "chunk"])
def test_weights_are_quantized_in_each_step(quantized, granularity):
    compare(lambda t: t.steps(COUNTS + COUNTS), "dense", "", wrap=quantized,
            attach={"granularity": granularity})


@pytest.mark.parametrize("granularity", ["layer", "chunk"])
def test_weights_that_were_quantized_before_the_attach(quantized,
                                                       granularity):
    """The first step of an attach has its own, as any other has."""
    def train(each):
        each.steps(COUNTS[:2])
        if each.attached is not None:
            each.attached.detach()
        each.steps(COUNTS[:2])
        if each.attached is not None:
            each.attach("", granularity=granularity)
        each.steps(COUNTS)

    compare(train, "dense", "", wrap=quantized,
            attach={"granularity": granularity})


def test_two_models_tell_one_number(quantized):
    """Whether weights are new to the one says nothing of the other's."""
    def each(scope):
        training.seed()
        two = [Training("dense", scope, wrap=quantized) for _ in range(2)]
        for _ in range(6):
            two[0].steps([1])
            two[1].steps([3])
        for one in two:
            one.end()
        return two

    for one, other in zip(each(None), each("")):
        assert differing(one.state(), other.state()) == []


@pytest.mark.parametrize("granularity", ["layer", "chunk"])
def test_graphs_of_others_tell_the_same_number(quantized, granularity):
    """As Transformer Engine's own do, of another model or a part of this."""
    def wrap(core):
        core.embedding.register_forward_hook(
            lambda *_: Manager.set_skip_fp8_weight_update_tensor(True))
        return quantized(core)

    compare(lambda each: each.steps([1, 1, 1, 2, 1, 1]), "dense", "",
            wrap=wrap, eager=("warmup", "gradients_moved"),
            attach={"granularity": granularity})


@pytest.mark.parametrize("granularity", ["layer", "chunk"])
def test_regions_that_are_off(quantized, granularity):
    def wrap(core):
        for layer in core.decoder.layers:
            layer.mlp.linear_fc1 = Regional(layer.mlp.linear_fc1)
        off = autocast(enabled=False)
        core.register_forward_pre_hook(lambda *_: off.__enter__())
        core.register_forward_hook(lambda *_: off.__exit__())
        return core

    compare(lambda t: t.steps(COUNTS + COUNTS), "dense", "", wrap=wrap,
            attach={"granularity": granularity})


@pytest.mark.parametrize("granularity", ["layer", "chunk"])
def test_an_evaluation_leaves_a_recipe_of_its_own(quantized, granularity):
    def train(each):
        for count in COUNTS + COUNTS:
            each.steps([count])
            each.evaluate(1)

    compare(train, "dense", "", wrap=quantized, eager=("warmup",
                                                       "forward_only"),
            attach={"granularity": granularity})


@pytest.mark.parametrize("granularity", ["layer", "chunk"])
def test_an_own_loop_says_which_microbatch_is_the_first(quantized,
                                                        granularity):
    """By the modules' flags alone, and not in each step."""
    def train(each):
        model = each.model
        for step, count in enumerate(COUNTS + COUNTS):
            losses = []
            for i in range(count):
                if (step, i) != (5, 0) and i == step % 3 == 0 or i == 2:
                    model.set_is_first_microbatch()
                losses.append(model(**next(each.data[0])).float().mean())
            each.losses += [loss.detach().clone() for loss in losses]
            for loss in losses:
                loss.backward()
            each.optimizer.step()
            each.optimizer.zero_grad()

    compare(train, "dense", "", wrap=quantized,
            attach={"granularity": granularity})


def fused(core):
    for module in core.modules():
        if isinstance(module, Linear):
            module.fuse_wgrad_accumulation = True
    return training.wrapped()(core)


def in_order(losses) -> None:
    for loss in losses:
        loss.backward()


def in_reverse(losses) -> None:
    in_order(reversed(losses))


def at_once(losses) -> None:
    sum(losses).backward()


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("backward", [in_order, in_reverse, at_once])
@pytest.mark.parametrize("granularity, scope", [
    ("layer", ""), ("layer", "attn"), ("chunk", "")])
@pytest.mark.parametrize("with_fp8", [False, True])
def test_the_first_microbatch_writes_over_gradients(
        quantized, with_fp8, granularity, scope, backward, kept):
    """What later ones have added, or with `kept` an earlier step, is lost."""
    compare(by_hand(backward, kept), "dense", scope,
            attach={"granularity": granularity},
            wrap=lambda core: fused((quantized if with_fp8
                                     else with_modules)(core)))


@pytest.mark.parametrize("granularity, scope", [
    ("layer", ""), ("layer", "attn"), ("layer", "mlp"), ("chunk", "")])
def test_what_runs_again_takes_no_microbatch_for_the_first(granularity, scope):
    """So what later ones have added stays."""
    compare(by_hand(in_reverse), "dense", scope,
            attach={"granularity": granularity},
            wrap=lambda core: fused(with_modules(core)),
            recompute_granularity="selective", recompute_modules=["mlp"])


def by_hand(backward, kept=False):
    def train(each):
        model = each.chunks[0]
        for step, count in enumerate(COUNTS + COUNTS):
            if not kept or step % 3 == 0:
                model.zero_grad_buffer()
            each.core.set_is_first_microbatch()
            losses = [each.chunks[0](**next(each.data[0])).float().mean()
                      for _ in range(count)]
            each.losses += [loss.detach().clone() for loss in losses]
            backward(losses)
            model.finish_grad_sync()
            for p in model.parameters():
                p.grad = p.main_grad.to(p.dtype)
            each.optimizer.step()
            each.optimizer.zero_grad()

    return train


@pytest.mark.parametrize("granularity", ["layer", "chunk"])
def test_a_reset_makes_another_state(quantized, granularity, monkeypatch):
    def train(each):
        monkeypatch.setattr(Manager, "quantization_state",
                            dataclasses.replace(
                                Manager.quantization_state))
        each.steps(COUNTS)
        monkeypatch.setattr(Manager, "quantization_state",
                            dataclasses.replace(
                                Manager.quantization_state))
        Manager.quantization_state.skip_fp8_weight_update_tensor = None
        each.steps(COUNTS)

    one, two = (Training("dense", scope, wrap=quantized)
                if scope is None else Training(
                    "dense", scope, wrap=quantized,
                    attach={"granularity": granularity})
                for scope in (None, ""))
    for each in one, two:
        training.seed()
        train(each)
    two.end()
    assert differing(one.state(), two.state()) == []


@pytest.mark.parametrize("granularity", ["layer", "chunk"])
def test_a_first_forward_without_gradients(quantized, granularity):
    """What it quantizes is made anew for the first backward."""
    def train(each):
        for step in range(6):
            if not step:
                with torch.no_grad():
                    each.model(**next(each.data[0]))
            loss = each.model(**next(each.data[0])).float().mean()
            each.losses.append(loss.detach().clone())
            loss.backward()
            each.optimizer.step()
            each.optimizer.zero_grad()

    compare(train, "dense", "", wrap=quantized,
            eager=("warmup", "forward_only"),
            attach={"granularity": granularity})


@pytest.mark.parametrize("frozen", ["qkv", "layer"])
@pytest.mark.parametrize("granularity, scope", [
    ("layer", ""), ("layer", "attn"), ("layer", "mlp"), ("chunk", "")])
def test_frozen_modules_below_all_others(quantized, granularity, scope,
                                         frozen):
    """Scales of backwards are updated by the first module that has one."""
    found = []

    def wrap(core):
        quantized(core)
        first = core.decoder.layers[0]
        for module in core.embedding, first if frozen == "layer" else \
                first.self_attention.linear_qkv, first.input_layernorm:
            module.requires_grad_(False)
        return core

    def train(each):
        each.steps(COUNTS + COUNTS)
        found.append(scales(each))

    training.seed()
    one = Training("dense", None, wrap=wrap)
    train(one)
    Manager.reset()
    training.seed()
    two = Training("dense", scope, wrap=wrap,
                   attach={"granularity": granularity})
    train(two)
    assert two.end()["replays"] > 0
    assert differing(one.state(), two.state()) == []
    assert all(map(torch.equal, *found))


# ---- backwards without their graphs -----------------------------------------


def scales(training) -> list:
    """And what they are made of."""
    return [tensor.clone() for layer in training.core.decoder.layers
            for linear in (layer.mlp.linear_fc1,
                           layer.self_attention.linear_qkv)
            for name in ("scaling_fwd", "scaling_bwd")
            for tensor in (linear.fp8_meta[name].scale,
                           linear.fp8_meta[name].amax_history)]


@pytest.mark.parametrize("granularity, scope", [
    ("layer", ""), ("layer", "attn"), ("layer", "mlp"), ("chunk", "")])
@pytest.mark.parametrize("what", ["detach", "hook"])
def test_scales_of_a_pass_in_flight(quantized, granularity, scope, what):
    """Its region is over, which has made others."""
    found = []

    def train(each):
        each.steps(COUNTS + COUNTS)
        each.model.set_is_first_microbatch()
        losses = [each.model(**next(each.data[0])).float().mean()
                  for _ in range(3)]
        each.losses += [loss.detach().clone() for loss in losses]
        hooks = []
        if what == "hook":
            hooks = [p.register_hook(lambda grad: grad * 2)
                     for p in each.core.decoder.layers[0].parameters()]
        elif each.attached is not None:
            each.end()
        for loss in losses:
            loss.backward()
        for hook in hooks:
            hook.remove()
        each.optimizer.step()
        each.optimizer.zero_grad()
        each.steps([2])
        found.append(scales(each))

    training.seed()
    one = Training("dense", None, wrap=quantized)
    train(one)
    Manager.reset()
    training.seed()
    two = Training("dense", scope, wrap=quantized,
                   attach={"granularity": granularity})
    train(two)
    two.end()
    assert differing(one.state(), two.state()) == []
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("granularity", ["layer", "chunk"])
@pytest.mark.parametrize("with_fp8", [False, True])
def test_what_layers_are_given_is_read_besides(quantized, granularity,
                                               with_fp8):
    """Its gradients are added up as they come."""
    def train(each):
        kept = []
        decoder = each.core.decoder
        for module in decoder.layers if granularity == "layer" \
                else [decoder]:
            module.register_forward_pre_hook(
                lambda _, args, given: kept.append(
                    given.get("hidden_states", *args)), with_kwargs=True)
        decoder.register_forward_hook(lambda _, __, out: kept.append(out))
        for count in COUNTS + COUNTS:
            each.model.set_is_first_microbatch()
            for _ in range(count):
                loss = each.model(**next(each.data[0])).float().mean()
                loss = loss + sum(t.square().mean() for t in kept)
                each.losses.append(loss.detach().clone())
                kept.clear()
                loss.backward()
            each.losses += [p.grad.clone()
                            for p in each.core.parameters()]
            each.optimizer.step()
            each.optimizer.zero_grad()

    compare(train, "dense", "", wrap=quantized if with_fp8 else None,
            attach={"granularity": granularity})


@pytest.mark.parametrize("scope", ["", "attn", "mlp"])
def test_some_layers_are_not_quantized(quantized, scope):
    """Regions are of layers, and some layers are in none."""
    compare(lambda each: each.steps(COUNTS + COUNTS), "dense", scope,
            wrap=lambda core: quantized(core, "tensorwise"), num_layers=4,
            first_last_layers_bf16=True, num_layers_at_start_in_bf16=1,
            num_layers_at_end_in_bf16=1)
