"""Weights that are quantized once a step, and scales that a region updates at
its end, as Transformer Engine has them for FP8; here in plain torch.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import sys
import types

import pytest

pytest.importorskip("megatron.core",
                    reason="megatron-core is not installed")

from megatron.core.transformer import transformer_block  # noqa: E402
import training  # noqa: E402
from models import HAS_GPU, torch  # noqa: E402
from training import COUNTS, Training, compare, differing  # noqa: E402

pytestmark = [pytest.mark.usefixtures("world"), pytest.mark.skipif(
    HAS_GPU, reason="a GPU has Transformer Engine's own")]


class Manager:
    """As FP8GlobalStateManager, as far as an attach uses it."""

    quantization_state = types.SimpleNamespace()
    modules: list = []

    @classmethod
    def reset(cls):
        cls.modules = []
        vars(cls.quantization_state).update(
            fp8_enabled=False, fp8_recipe=None, autocast_arguments={},
            is_first_fp8_module=False, fp8_graph_capturing=False,
            skip_fp8_weight_update_tensor=None)

    @classmethod
    def set_skip_fp8_weight_update_tensor(cls, skip):
        state = cls.quantization_state  # a number on the device
        if state.skip_fp8_weight_update_tensor is None:
            state.skip_fp8_weight_update_tensor = torch.empty(())
        state.skip_fp8_weight_update_tensor.fill_(skip)

    @classmethod
    def is_first_fp8_module(cls):
        first = cls.quantization_state.is_first_fp8_module
        cls.quantization_state.is_first_fp8_module = False
        return first


@contextlib.contextmanager
def region(*_, **__):
    state = Manager.quantization_state
    state.fp8_enabled = state.is_first_fp8_module = True
    state.fp8_recipe = Recipe()
    yield
    state.fp8_enabled = False
    for module in Manager.modules:
        module.scale.copy_(module.amax)


class Quantizing(torch.nn.Module):
    """Around a linear layer of Megatron's."""

    def __init__(self, linear):
        super().__init__()
        self.linear = linear
        self.is_first_microbatch = True
        self.kept, self.fp8_meta = None, {}
        self.for_forwards = False  # without what a backward needs
        self.register_buffer("scale", torch.ones(()), persistent=False)
        self.register_buffer("amax", torch.ones(()), persistent=False)
        Manager.modules.append(self)

    def forward(self, x):
        state = Manager.quantization_state
        self.fp8_meta["recipe"] = state.fp8_recipe
        self.fp8_meta["local_recipes"] = [state.fp8_recipe]
        weight = self.linear.weight.detach() + state.fp8_recipe.margin
        finely = 64 * (1 + self.scale)
        rough = torch.round(weight * finely) / finely
        if state.fp8_graph_capturing:
            skips = state.skip_fp8_weight_update_tensor > 0
            self.kept.copy_(torch.where(skips, self.kept, rough))
        elif self.kept is None \
                or self.for_forwards and torch.is_grad_enabled():
            self.kept = rough.clone()
            self.for_forwards = not torch.is_grad_enabled()
        elif self.is_first_microbatch:
            self.kept.copy_(rough)
        self.is_first_microbatch = False
        self.amax.copy_(x.detach().abs().max())
        # What is kept, with the gradient of the weight itself.
        used = self.linear.weight + (self.kept - weight)
        return torch.nn.functional.linear(x * (1 + self.scale / 8), used), None


class Recipe:
    def __init__(self):
        self.margin = 0

    def __eq__(self, other):
        return isinstance(other, Recipe)


def region_that_is_off(*_):
    state = Manager.quantization_state
    state.fp8_recipe, state.is_first_fp8_module = Recipe(), True
    state.autocast_arguments["default"] = state.fp8_recipe, None


class Regional(torch.nn.Module):
    """It looks for what a region leaves; and has a flag that says nothing
    where nothing is quantized."""

    def __init__(self, linear):
        super().__init__()
        self.linear = linear
        self.is_first_microbatch = True

    def forward(self, x):
        arguments = Manager.quantization_state.autocast_arguments
        if Manager.is_first_fp8_module() and arguments["default"][0].margin:
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

    def wrap(core):
        core.config.fp8, core.config.fp8_recipe = "hybrid", "delayed"
        for layer in core.decoder.layers:
            layer.mlp.linear_fc1 = Quantizing(layer.mlp.linear_fc1)
        return core

    return wrap


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
def test_regions_that_are_off(quantized, granularity):
    def wrap(core):
        for layer in core.decoder.layers:
            layer.mlp.linear_fc1 = Regional(layer.mlp.linear_fc1)
        core.register_forward_pre_hook(region_that_is_off)
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


@pytest.mark.parametrize("granularity", ["layer", "chunk"])
def test_a_reset_makes_another_state(quantized, granularity, monkeypatch):
    def train(each):
        monkeypatch.setattr(Manager, "quantization_state",
                            types.SimpleNamespace(
                                **vars(Manager.quantization_state)))
        each.steps(COUNTS)
        monkeypatch.setattr(Manager, "quantization_state",
                            types.SimpleNamespace(
                                **vars(Manager.quantization_state)))
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
