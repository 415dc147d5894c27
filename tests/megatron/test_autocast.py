"""FP8 of Transformer Engine outside of Megatron: te.autocast around a model
that graphhooks.attach() has taken; here in plain torch.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections
import contextlib
import copy
import sys
import types

import pytest
import softquantization
from models import DEVICE, HAS_GPU, WIDTH, nn, torch
from softquantization import Manager, Plain, autocast

import graphhooks

pytestmark = pytest.mark.skipif(HAS_GPU,
                                reason="a GPU has Transformer Engine's own")

COUNTS = [2, 3, 1, 2, 4, 2, 3]
SEGMENTS = "segments"  # what is attached
NAME = "transformer_engine.pytorch.quantization"


@pytest.fixture(autouse=True)
def engine(monkeypatch):
    """As it is imported."""
    for i in range(3):
        name = ".".join(NAME.split(".")[:i + 1])
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules[NAME].FP8GlobalStateManager = Manager
    Manager.reset()
    yield
    Manager.reset()


def recipe(scaling="delayed", **more):
    """An equal one in each call."""
    return softquantization.Recipe(scaling, **more)


class Layer(nn.Module):
    def __init__(self, within=None):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = Plain(nn.Linear(WIDTH, WIDTH, bias=False))
        self.down = Plain(nn.Linear(WIDTH, WIDTH, bias=False))
        self.within = within

    def forward(self, x, is_first_microbatch=None):
        with contextlib.nullcontext() if self.within is None \
                else autocast(recipe=self.within()):
            y = torch.relu(self.up(self.norm(x), is_first_microbatch))
            return x + self.down(y, is_first_microbatch)


class Bare(nn.Module):
    """Nothing in it is quantized."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x, is_first_microbatch=None):
        return self.norm(x) * 1.5


class Model(nn.Module):
    def __init__(self, layers, each=None):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.head = Plain(nn.Linear(WIDTH, WIDTH, bias=False))
        self.each = each  # a region around each layer, by its number
        self.calls = None  # segments in the place of layers

    def forward(self, x, **kwargs):
        for i, layer in enumerate(self.calls or self.layers):
            with contextlib.nullcontext() if self.each is None \
                    else self.each(i):
                x = layer(x, **kwargs)
        return self.head(x)


def model_of(layers=None, each=None) -> Model:
    torch.manual_seed(7)
    return Model(layers or [Layer() for _ in range(3)], each).to(DEVICE)


class Run:
    """A training, with graphs or without."""

    def __init__(self, model, attach=None, around=None, firsts=True):
        Manager.reset()
        self.model = copy.deepcopy(model)
        self.around = around or (lambda: autocast(recipe=recipe()))
        self.firsts = firsts
        if attach == SEGMENTS:
            self.model.calls = [
                graphhooks.segment(layer, [layer], f"layer {i}")
                for i, layer in enumerate(self.model.layers)]
            attach = {"layers": self.model.calls}
        self.attached = None if attach is None \
            else graphhooks.attach(self.model, **attach)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05,
                                         momentum=0.9)
        self.at, self.losses = 0, []

    def data(self):
        self.at += 1
        numbers = torch.Generator().manual_seed(self.at)
        return torch.randn(4, WIDTH, generator=numbers).to(DEVICE)

    def forward(self, first=None):
        given = {"is_first_microbatch": first} if self.firsts else {}
        with self.around():
            loss = self.model(self.data(), **given).square().mean()
        self.losses.append(loss.detach().clone())
        return loss

    def step(self, count: int) -> None:
        for i in range(count):
            (self.forward(i == 0) / count).backward()
        self.losses += [p.grad.clone() for p in self.model.parameters()]
        self.optimizer.step()
        self.optimizer.zero_grad()

    def steps(self, counts) -> None:
        for count in counts:
            self.step(count)

    def state(self) -> list:
        found = [*self.losses, *(p.detach().clone()
                                 for p in self.model.parameters())]
        state = Manager.quantization_state
        for buffer in (state.global_scale_buffer,
                       state.global_amax_history_buffer):
            found += [t.clone() for some in buffer.values() for t in some]
        return found + [torch.tensor(float(state.is_first_fp8_module))]


def compare(train, attach, model=None, eager=("warmup",), **given) -> Run:
    """Trains with graphs and without; all have replayed but for what is named
    in `eager`."""
    model = model_of() if model is None else model
    one = Run(model, **given)
    train(one)
    kept = one.state()
    two = Run(model, attach, **given)
    train(two)
    state = two.state()
    assert len(kept) == len(state)
    assert [i for i, (a, b) in enumerate(zip(kept, state))
            if not torch.equal(a, b)] == []
    stats = two.attached.stats()
    if eager is not None:
        assert stats["refused"] == {}
        assert set(stats["eager_calls"]) <= set(eager)
        assert stats["replays"] > sum(stats["eager_calls"].values())
    two.attached.detach()
    return two


GRAINS = pytest.mark.parametrize("granularity", ["layer", "chunk"])


@pytest.mark.parametrize("attach", [
    {"granularity": "layer"}, {"granularity": "chunk"}, SEGMENTS])
@pytest.mark.parametrize("scaling", ["delayed", "tensorwise"])
@pytest.mark.parametrize("firsts", [True, False])
def test_a_region_around_the_model(attach, scaling, firsts):
    """A recipe that is made anew for each of them."""
    compare(lambda r: r.steps(COUNTS), attach,
            around=lambda: autocast(recipe=recipe(scaling)), firsts=firsts)


@GRAINS
def test_an_evaluation_between(granularity):
    """In the same region, and without one."""
    def train(run):
        for count in COUNTS:
            run.step(count)
            with torch.no_grad():
                run.model.eval()
                run.forward()
                run.losses.append(run.model(run.data()))
                run.model.train()

    compare(train, {"granularity": granularity},
            eager=("warmup", "forward_only"))


@GRAINS
def test_another_recipe_from_some_step_on(granularity):
    def train(run):
        run.steps(COUNTS[:4])
        run.around = lambda: autocast(recipe=recipe(margin=1))
        run.steps(COUNTS)

    compare(train, {"granularity": granularity},
            eager=("warmup", "input"))


@GRAINS
def test_another_kind_of_recipe_between(granularity):
    """Layers make other tables for each."""
    def train(run):
        kinds = ["delayed", "tensorwise"] * 3
        for kind in kinds:
            run.around = lambda kind=kind: autocast(recipe=recipe(kind))
            run.steps(COUNTS[:3])

    run = compare(train, {"granularity": granularity}, eager=None)
    assert run.attached.stats()["replays"] > 0


@GRAINS
def test_an_evaluation_without_a_region_first(granularity):
    """What a layer has noted of its last call is what is saved with it."""
    def train(run):
        for count in COUNTS:
            with torch.no_grad():
                run.model.eval()
                run.losses.append(run.model(run.data()))
                run.model.train()
            run.step(count)
        run.losses += [torch.tensor(float(m.fp8)) for m in
                       run.model.modules() if isinstance(m, Plain)]

    compare(train, {"granularity": granularity},
            eager=("warmup", "forward_only"))


@GRAINS
def test_layers_that_are_reset_between(granularity):
    """As a checkpoint does that is loaded: they make their tables anew."""
    def train(run):
        run.steps(COUNTS)
        for module in run.model.layers.modules():
            if isinstance(module, Plain):
                module.fp8_meta.clear()
                module.quantizers.clear()
                module.fp8_initialized = False
        run.steps(COUNTS)

    run = compare(train, {"granularity": granularity}, eager=None)
    assert run.attached.stats()["replays"] > 0


@GRAINS
def test_steps_without_quantization_between(granularity):
    def train(run):
        on, off = run.around, lambda: autocast(enabled=False)
        for i in range(3):
            run.around = on
            run.steps(COUNTS[:3])
            run.around = off
            run.steps(COUNTS[3:5])

    compare(train, {"granularity": granularity},
            eager=("warmup", "input"))


@pytest.mark.parametrize("scaling", ["delayed", "tensorwise"])
def test_a_region_around_each_second_layer(scaling):
    compare(lambda r: r.steps(COUNTS), {}, around=contextlib.nullcontext,
            model=model_of(each=lambda i: autocast(
                enabled=i % 2 == 0, recipe=recipe(scaling))))


@pytest.mark.parametrize("only", [True, False])
def test_a_chunk_of_layers_in_regions_of_their_own(only):
    """Its layers have graphs of their own, as regions end between them."""
    run = compare(lambda r: r.steps(COUNTS + COUNTS), {"granularity": "chunk"},
                  eager=("warmup", "input", "refused", "gradients_moved"),
                  around=contextlib.nullcontext, model=model_of(
                      each=lambda i: autocast(enabled=only or i % 2 == 0,
                                              recipe=recipe())))
    assert "one te.autocast around all layers" in run.attached.explain()


@GRAINS
def test_layers_in_which_nothing_is_quantized(granularity):
    """The first that asks is the first that is told."""
    compare(lambda r: r.steps(COUNTS), {"granularity": granularity},
            model=model_of([Bare(), Layer(), Bare()]))


@GRAINS
def test_a_head_that_is_quantized_for_the_first_time_later(granularity):
    """A graph of the first backward knows nothing of its scales, which that
    updates, too."""
    class Late(Model):
        def forward(self, x, **kwargs):
            for layer in self.layers:
                x = layer(x, **kwargs)
            self.count = getattr(self, "count", 0) + 1
            return self.head(x) if self.count > 12 else x

    torch.manual_seed(7)
    model = Late([Layer() for _ in range(3)]).to(DEVICE)
    for p in model.head.parameters():
        p.grad = torch.zeros_like(p)

    def train(run):
        for p in run.model.head.parameters():
            p.requires_grad_(False)
        run.optimizer = torch.optim.SGD(run.model.layers.parameters(),
                                        lr=0.05)
        for count in COUNTS + COUNTS:
            for i in range(count):
                run.forward(i == 0).backward()
            run.optimizer.step()
            run.optimizer.zero_grad()

    run = compare(train, {"granularity": granularity}, model=model,
                  eager=None)
    assert run.attached.stats()["replays"] > 0
    assert set(run.attached.stats()["eager_calls"]) == {"warmup",
                                                        "attributes"}


class Fed(Model):
    """What it is given needs gradients each second time."""

    count = 0

    def forward(self, x, **kwargs):
        self.count += 1
        return super().forward(x.requires_grad_(self.count % 2 == 0),
                               **kwargs)


@GRAINS
@pytest.mark.parametrize("kind", [Model, Fed])
def test_a_frozen_layer_below_all_others(granularity, kind):
    """Its modules are the first of a region where they need gradients."""
    torch.manual_seed(7)
    model = kind([Layer() for _ in range(3)]).to(DEVICE)
    model.layers[0].requires_grad_(False)

    def train(run):
        for count in COUNTS + COUNTS:
            for i in range(count):
                run.forward(i == 0).backward()
            run.losses += [p.grad.clone() for p in run.model.parameters()
                           if p.grad is not None]
            run.optimizer.step()
            run.optimizer.zero_grad()

    run = compare(train, {"granularity": granularity}, model=model,
                  eager=None)
    assert run.attached.stats()["replays"] > 0


def test_a_region_within_each_layer():
    run = compare(lambda r: r.steps(COUNTS), {}, eager=None,
                  around=contextlib.nullcontext, model=model_of(
                      [Layer(recipe) for _ in range(3)]))
    [why] = set(run.attached.stats()["refused"].values())
    assert "it enters te.autocast itself" in why
    assert "enter te.autocast around the model" in why


class Recomputed(Layer):
    """It keeps scales for a backward that computes it again."""

    def forward(self, x, is_first_microbatch=None):
        kept = Manager.quantization_state.fp8_tensors_recompute_buffer
        if not kept:
            kept.append(collections.deque())
        result = super().forward(x, is_first_microbatch)
        kept[0].append(self.up.fp8_meta["scaling_fwd"].scale.clone())
        if result.requires_grad:
            result.register_hook(lambda _: self.take(kept[0]))
        return result

    def take(self, kept) -> None:
        kept.popleft()


def test_layers_that_are_computed_again():
    run = compare(lambda r: r.steps(COUNTS), {}, eager=None,
                  model=model_of([Recomputed() for _ in range(3)]))
    [why] = set(run.attached.stats()["refused"].values())
    assert "te.checkpoint" in why and "use another recipe there" in why


def test_recipes_that_are_never_equal():
    class Other(softquantization.Recipe):
        def __eq__(self, other):
            return self is other

        __hash__ = object.__hash__

    run = compare(lambda r: r.steps([3] * 40), {}, eager=None,
                  around=lambda: autocast(recipe=Other()))
    [why] = set(run.attached.stats()["refused"].values())
    assert "make the recipe once, outside of the loop" in why


@GRAINS
def test_what_an_attach_by_megatron_has_left(granularity):
    """That weights of a call are not to be quantized, by a number on the
    device, which is there from its first call on."""
    def train(run):
        for step, count in enumerate(COUNTS + COUNTS):
            if step not in (2, 3, 4):
                Manager.set_skip_fp8_weight_update_tensor(step % 3 < 2)
            else:
                Manager.quantization_state.skip_fp8_weight_update_tensor = None
            run.step(count)

    compare(train, {"granularity": granularity})


@pytest.mark.parametrize("attach", [
    {"granularity": "layer"}, {"granularity": "chunk"}, SEGMENTS])
@pytest.mark.parametrize("what", ["detach", "hook"])
def test_backwards_of_a_region_that_is_over(attach, what):
    """Without their graphs: layers run again, with the scales of then."""
    def train(run):
        for step in range(4):
            losses = [run.forward(i == 0) for i in range(3)]
            if step < 3:
                for loss in losses:
                    loss.backward()
                run.optimizer.step()
                run.optimizer.zero_grad()
        hooks = []
        if what == "hook":
            hooks = [p.register_hook(lambda grad: grad * 2)
                     for p in run.model.layers[0].parameters()]
        elif run.attached is not None:
            run.attached.detach()
        for loss in losses:
            loss.backward()
        for hook in hooks:
            hook.remove()
        run.losses += [p.grad.clone() for p in run.model.parameters()]
        run.optimizer.step()
        run.optimizer.zero_grad()

    compare(train, attach, eager=None)


def test_an_engine_of_another_version(monkeypatch):
    """Its layers run eagerly, and it is said what is not there."""
    class Older:
        """As before 2.20."""

    monkeypatch.setattr(sys.modules[NAME], "FP8GlobalStateManager", Older)
    run = compare(lambda r: r.steps(COUNTS), {}, eager=None)
    assert "quantization has no FP8GlobalStateManager.quantization_state, " \
        "as 2.20 has" in run.attached.explain()
