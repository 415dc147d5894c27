"""Layers of torch.compile's and torch.jit's are left alone, with a reason.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import pytest
from models import COUNTS, WHOLE, Block, Model, torch


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


class Scripted(Block):
    def __init__(self) -> None:
        super().__init__()
        self.norm2 = torch.jit.script(self.norm2)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is:DeprecationWarning")
@pytest.mark.parametrize("grain", WHOLE)
def test_a_layer_with_a_script_is_left_alone(pair, grain):
    pair(lambda r: r.steps(COUNTS[:3]), grain=grain, make=Scripted,
         replays=False, refused="norm2 is made by torch.jit")
