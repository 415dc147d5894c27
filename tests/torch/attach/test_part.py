"""Parts of layers, each its own graph.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import graphhooks
import pytest
from models import (COUNTS, DEVICE, LAYERS, WHOLE, WIDTH, WORDS, Attention,
                    Block, Mlp, Model, differing, nn, torch)

from graphhooks import Error


def names(run):
    return [s.name for s in run.attached.segments]


@pytest.mark.parametrize("scope, parts", [
    ("attn", ["attn"]), ("mlp", ["mlp"]), ("attn,mlp", ["attn", "mlp"]),
    (["mlp", "attn"], ["attn", "mlp"])])
def test_the_parts_of_the_scope_are_graphs(pair, scope, parts):
    run = pair(lambda r: r.steps(in_flight=2), grain="part", scope=scope)
    assert names(run) == [f"layers.{i}.{p}" for i in range(LAYERS)
                          for p in parts]
    assert run.attached.stats()["replays"] == \
        2 * LAYERS * len(parts) * sum(COUNTS[1:])


class Odd(nn.Module):
    """Its parts have names that nobody else gives them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mixer, self.wide = Attention(), Mlp()

    def forward(self, x):
        x = x + self.mixer(self.norm1(x))
        return x + self.wide(self.norm2(x))


def test_parts_are_named(pair):
    run = pair(lambda r: r.steps(), grain="part", make=Odd,
               parts={"attn": "mixer", "mlp": "wide"})
    assert names(run)[:2] == ["layers.0.mixer", "layers.0.wide"]


def test_one_part_is_named(pair):
    run = pair(lambda r: r.steps(), grain="part", make=Odd, scope="attn",
               parts={"attn": "mixer"})
    assert all(n.endswith("mixer") or n.count(".") == 1 for n in names(run))


@pytest.mark.parametrize("parts, why", [
    ({"attn": "mixed"}, "layers.0 has no module 'mixed', which parts calls "
                        "its attn, nor has any other layer"),
    ({"moe": "wide"}, "parts has 'moe'; it takes attn, mlp, and classes")])
def test_parts_that_are_not_there(runs, parts, why):
    with pytest.raises(Error, match=why):
        runs(grain="part", make=Odd, parts=parts)


@pytest.mark.parametrize("grain", WHOLE)
def test_a_scope_makes_parts_of_whole_layers(pair, grain):
    run = pair(lambda r: r.steps(), grain=grain, scope="attn")
    assert names(run) == [f"layers.{i}.attn" for i in range(LAYERS)]


def test_a_part_of_the_stack_runs_between_graphs(pair):
    """Whole layers of some, parts of others."""
    class Mixed(Model):
        def __init__(self, make) -> None:
            super().__init__(make)
            self.layers[1] = Odd()

    run = pair(lambda r: r.steps(), grain="part", model=Mixed)
    assert "layers.0.attn" in names(run)


@pytest.mark.parametrize("parts", [
    {"attn": "mixer", "mlp": "wide"},
    {"attn": ["attn", "mixer"], "mlp": ("mlp", "wide")}])
def test_names_of_layers_of_several_kinds(pair, parts):
    """What has none of the names is a graph as a whole."""
    class Mixed(Model):
        def __init__(self, make) -> None:
            super().__init__(make)
            self.layers[1] = Odd()

    run = pair(lambda r: r.steps(), grain="part", model=Mixed, parts=parts)
    usual = isinstance(parts["attn"], list)
    assert names(run)[:4] == (["layers.0.attn", "layers.0.mlp"] if usual else
                              ["layers.0"]) + ["layers.1.mixer",
                                               "layers.1.wide"] + (
                                  [] if usual else ["layers.2"])


class Mixes(nn.Module):
    """Has no part that is known."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mixer = nn.LayerNorm(WIDTH), Mlp()

    def forward(self, x):
        return x + self.mixer(self.norm(x))


class Attends(nn.Module):
    """Has one part."""

    def __init__(self) -> None:
        super().__init__()
        self.attn = Attention()

    def forward(self, x):
        return x + self.attn(x)


def stack(kinds):
    class Stack(Model):
        def __init__(self, make) -> None:
            super().__init__(make)
            of = {"m": Mixes, "b": Block, "a": Attends}
            self.layers = nn.ModuleList(of[kind]() for kind in kinds)

    return Stack


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("kinds", ["mb", "bm", "mbm", "aba", "bab", "aab"])
def test_layers_of_several_kinds(pair, grain, kinds):
    run = pair(lambda r: r.steps(), grain=grain, model=stack(kinds))
    assert len(run.attached.segments) == {"layer": len(kinds), "chunk": 1}[
        grain]


@pytest.mark.parametrize("scope, kinds, cut", [
    ("attn", "aab", 2), ("mlp", "bmm", 0)])
def test_a_graph_of_several_layers_has_whole_ones(runs, scope, kinds, cut):
    with pytest.raises(Error, match=f"layers.{cut}: a part of a layer"):
        runs(grain="chunk", model=stack(kinds), scope=scope).steps()


# ---- an engine's own segments ----------------------------------------------


class Engine(nn.Module):
    """Its layers are no modules that it calls: it calls what stands in for
    the part that is to be captured, and does the rest itself."""

    def __init__(self, make) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(make() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WORDS)
        self.calls = [self.attention_of(b) for b in self.blocks]

    @staticmethod
    def attention_of(block):
        def run(x):
            return x + block.attn(block.norm1(x))

        return run

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block, call in zip(self.blocks, self.calls):
            x = call(x)
            x = x + block.mlp(block.norm2(x))
        return self.head(x)


def test_an_engine_calls_segments_of_its_own(runs):
    one, two = runs(model=Engine), runs(model=Engine)
    one.steps(COUNTS)
    engine = two.model
    engine.calls = [
        graphhooks.segment(call, [b.norm1, b.attn], f"block {i} attention")
        for i, (call, b) in enumerate(zip(engine.calls, engine.blocks))]
    two.attached = graphhooks.attach(engine, engine.calls)
    torch.manual_seed(8)
    two.steps(COUNTS)
    stats = two.attached.stats()
    assert differing(one.state(), two.state()) == []
    assert stats["refused"] == {} and stats["replays"] > 0
    assert "block 1 attention" in two.attached.explain()


class Notes:
    """What the part of a layer that is captured leaves for the rest."""


class Noting(nn.Module):
    """The rest reads what the part has written to the layer, and to an object
    of it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = (nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.notes, self.rows = Notes(), 0
        self.call = self.part

    def part(self, x):
        self.rows = x.shape[0]
        self.notes.shape, self.notes.all = x.shape, [x.numel(), {"of": 1}]
        return self.inner(x).tanh().flatten()

    def forward(self, x):
        flat = self.call(x).view(self.notes.shape)
        return self.outer(flat) * self.rows / self.notes.all[0]


@pytest.mark.parametrize("grads", [True, False])
def test_a_replay_writes_what_the_part_has_written(grads):
    def train(attached):
        torch.manual_seed(3)
        model = Noting().to(DEVICE)
        if attached:
            model.call = graphhooks.segment(model.part, [model.inner])
            attached = graphhooks.attach(model, [model.call], eval=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for step in range(12):
            for rows in (2, 4) if step > 4 else (2, 2):
                x = torch.randn(rows, WIDTH, device=DEVICE)
                with torch.no_grad():
                    losses.append(model(x[:1] if step % 2 else x).sum())
                if grads:
                    losses.append(model(x).square().mean())
                    losses[-1].backward()
            optimizer.step()
            optimizer.zero_grad()
        stats = attached and attached.stats()
        if attached:
            attached.detach()
        return [loss.detach().clone() for loss in losses], stats

    (one, _), (two, stats) = train(False), train(True)
    assert all(map(torch.equal, one, two))
    assert (stats["replays"] if grads else stats["eval"]["replays"]) > 10
    assert not stats["refused"]


def test_a_part_that_leaves_a_tensor_is_not_recorded(runs):
    class Leaving(Engine):
        @staticmethod
        def attention_of(block):
            notes = Notes()

            class Part:
                def __init__(self):
                    self.notes = notes

                def run(self, x):
                    self.notes.x = block.norm1(x).detach()
                    return x + block.attn(block.norm1(x))

            return Part().run

    run = runs(model=Leaving)
    engine = run.model
    engine.calls = [graphhooks.segment(call, [b.norm1, b.attn])
                    for call, b in zip(engine.calls, engine.blocks)]
    run.attached = graphhooks.attach(engine, engine.calls)
    run.steps(COUNTS[:4])
    refused = run.attached.stats()["refused"]
    assert len(refused) == LAYERS
    assert all("another tensor in an attribute, x" in why
               for why in refused.values())


def test_what_differs_in_a_segment_has_the_name_that_its_model_gives(runs):
    run = runs()
    layers = run.model.layers
    segments = [graphhooks.segment(layers[0], [layers[0]], "the first"),
                graphhooks.segment(layers[1].forward, [layers[1].attn])]
    with graphhooks.attach(run.model, segments) as attached:
        assert [layer.name for layer in attached.layers] == [
            "the first", "layers.1.forward"]
        assert dict(segments[0].named_modules())["layers.0.mlp.drop"] \
            is layers[0].mlp.drop
        assert dict(segments[1].named_modules())["attn"] is layers[1].attn
        assert {f"layers.0.{name}" for name, _
                in layers[0].named_parameters()} == {
            name for name, _ in segments[0].named_parameters()}


def test_hooks_in_a_segment_have_the_name_that_its_model_gives(runs):
    run = runs()
    layer = run.model.layers[0]
    layer.mlp.drop.register_forward_hook(lambda *_: None)
    call = graphhooks.segment(layer, [layer], "the first")
    with graphhooks.attach(run.model, [call]) as attached:
        assert attached.stats()["refused"] == {
            "the first": "layers.0.mlp.drop has hooks, which a replay would "
                         "not call"}


def test_what_a_segment_uses_has_to_be_named(runs):
    run = runs(model=Engine)
    engine = run.model
    engine.calls = [graphhooks.segment(call) for call in engine.calls]
    run.attached = graphhooks.attach(engine, engine.calls)
    run.steps(COUNTS[:3])
    refused = run.attached.stats()["refused"]
    assert len(refused) == LAYERS
    assert all("a trained tensor" in why for why in refused.values())


@pytest.mark.parametrize("run, modules, why", [
    (3, (), "run is 3; segment takes a function"),
    (print, [3], "modules has 3; segment takes those"),
])
def test_something_else_than_a_segment(run, modules, why):
    with pytest.raises(graphhooks.Error, match=why):
        graphhooks.segment(run, modules)
