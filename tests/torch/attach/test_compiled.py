"""Layers of torch.compile's and torch.jit's are left alone, with a reason.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import pytest
from models import (COUNTS, DEVICE, GRAINS, WHOLE, WIDTH, Block, Model,
                    differing, on_a_gpu, torch)


def compiles() -> bool:
    try:
        torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
    except Exception:
        return False
    return True


needs_compile = pytest.mark.skipif("not compiles()",
                                   reason="torch.compile does not work here")


def wrapped(layer):
    return torch.compile(layer, backend="aot_eager")


def in_place(layer):
    layer.compile(backend="aot_eager")
    return layer


def model_of(way, which):
    class Compiled(Model):
        def __init__(self, make) -> None:
            super().__init__(make)
            for i in which:
                self.layers[i] = way(self.layers[i])

    return Compiled


@pytest.fixture(autouse=True)
def forget():
    yield
    torch._dynamo.reset()


@needs_compile
@pytest.mark.parametrize("way", [wrapped, in_place])
@pytest.mark.parametrize("which", [[1], [0, 1, 2]], ids=str)
def test_a_compiled_layer_is_left_alone(pair, way, which):
    run = pair(lambda r: r.steps(COUNTS[:3]), model=model_of(way, which),
               replays=len(which) < 3,
               refused="compiled by torch.compile")
    assert sorted(run.attached.stats()["refused"]) == \
        [f"layers.{i}" for i in which]


@needs_compile
@pytest.mark.parametrize("way", [wrapped, in_place])
def test_a_chunk_with_a_compiled_layer_is_left_alone(pair, way):
    pair(lambda r: r.steps(COUNTS[:3]), grain="chunk", replays=False,
         model=model_of(way, [1]), refused="compiled by torch.compile")


@needs_compile
@pytest.mark.parametrize("grain", WHOLE)
def test_a_compiled_part_of_a_layer_trains_as_ever(pair, grain):
    class Inner(Block):
        def __init__(self) -> None:
            super().__init__()
            self.mlp = torch.compile(self.mlp, backend="eager")

    pair(lambda r: r.steps(COUNTS[:3]), grain=grain, make=Inner, judge=False)


def compilations() -> int:
    from torch._dynamo.utils import counters

    return counters["stats"]["unique_graphs"]


@torch.compile(backend="aot_eager")
def fused(x, bias, residual):
    return residual + torch.nn.functional.gelu(x + bias)


class Fusing(Block):
    """A function that torch.compile has made is called in the layer."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x):
        return fused(super().forward(x), self.bias, x)


@needs_compile
@pytest.mark.parametrize("grain", WHOLE)
def test_a_compiled_function_is_not_compiled_for_a_recording(pair, grain):
    seen = []

    def train(run):
        run.steps(COUNTS[:3])
        seen.append(compilations())

    pair(train, grain=grain, make=Fusing)
    eager, graphed = seen
    assert graphed == eager


FACTOR = 1.0


@torch.compile(backend="aot_eager")
def scaling(x):
    return x * FACTOR


class Scaling(Block):
    def forward(self, x):
        return scaling(super().forward(x))


@needs_compile
@pytest.mark.parametrize("grain", WHOLE)
def test_what_a_compiled_function_reads_may_change(pair, grain, monkeypatch):
    def train(run):
        run.steps(COUNTS[:3])
        with monkeypatch.context() as patch:
            patch.setitem(globals(), "FACTOR", 0.5)
            run.steps(COUNTS[:2])

    pair(train, grain=grain, make=Scaling, judge=False)


@on_a_gpu("a mode stands in for captures, and below one nothing is compiled")
@needs_compile
@pytest.mark.parametrize("grain", WHOLE)
def test_a_function_that_would_be_compiled_there_refuses_it(pair, grain):
    """As the recording of a layer under autocast keeps no casts, which is
    another setting than the one that the function was compiled for."""
    def train(run):
        with torch.autocast(DEVICE, torch.bfloat16):
            run.steps(COUNTS[:3])

    pair(train, grain=grain, make=Fusing, replays=False,
         refused="torch.compile has not compiled")


def before_and_attached(run):
    run.model.compile(backend="eager")
    run.attach()


def when_it_has_run(run):
    run.model.compile(backend="eager")
    run.steps([2, 2])
    run.attach()


def after_the_attach(run):
    run.attach()
    run.model.compile(backend="eager")


def after_recordings(run):
    run.attach()
    run.steps([2, 2, 2])
    run.model.compile(backend="eager")


@needs_compile
@pytest.mark.filterwarnings("error:Dynamo does not know:UserWarning")
@pytest.mark.parametrize("order", [before_and_attached, when_it_has_run,
                                   after_the_attach, after_recordings])
@pytest.mark.parametrize("grain", GRAINS)
def test_a_model_that_is_compiled_around_layers(runs, grain, order):
    """It is the rest of the model that is compiled; torch looks into nothing
    of ours, and says nothing."""
    def train(run):
        order(run)
        run.steps(COUNTS)
        if run.attached is not None:
            stats = run.attached.stats()
            assert stats["replays"] > 0 and stats["refused"] == {}
            assert stats["eager_calls"].keys() <= {"warmup"}
            run.detach()
        run.steps(COUNTS[:2])  # and again without graphs

    one, two = runs(make=drawing), runs(make=drawing)
    one.attach = lambda: None
    torch.manual_seed(8)
    train(one)
    left = one.state()
    two.grain = grain
    torch.manual_seed(8)
    train(two)
    assert differing(left, two.state()) == []


def drawing():
    return Block(0.1)


@needs_compile
def test_a_whole_graph_cannot_be_asked_for(runs):
    run = runs(grain="layer")
    run.model.compile(backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported,
                       match="it has graphs of graphhooks"):
        run.loss()


class Scripted(Block):
    def __init__(self) -> None:
        super().__init__()
        self.norm2 = torch.jit.script(self.norm2)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is:DeprecationWarning")
@pytest.mark.parametrize("grain", WHOLE)
def test_a_layer_with_a_script_is_left_alone(pair, grain):
    pair(lambda r: r.steps(COUNTS[:3]), grain=grain, make=Scripted,
         replays=False, refused="norm2 is made by torch.jit")
