"""A step's first gradients are written, and nothing is filled for them.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from models import GRAINS, WHOLE, Block, nn, torch

from graphhooks import _abi
from graphhooks.torch.grad import first, gradients, staged_gradients

GRAIN = pytest.mark.parametrize("grain", GRAINS)
COUNTS = [3, 2, 1, 3, 1, 1, 2]


class Plain(Block):
    """Without what is small."""

    def __init__(self, rate=0.0):
        super().__init__(rate)
        for module in self.modules():
            if getattr(module, "bias", None) is not None:
                module.bias = None
            if isinstance(module, nn.LayerNorm):
                module.weight = None
                module.elementwise_affine = False


@pytest.fixture(autouse=True)
def large(monkeypatch):
    """Weights of these layers are, and biases are not."""
    monkeypatch.setattr(staged_gradients, "LARGE", 4096)


@pytest.fixture
def fills(monkeypatch):
    """How many elements each has."""
    found = []
    fill = gradients.Nothing.fill

    def count(places, zeros):
        found.append(sum(p.numel() for p in places))
        fill(places, zeros)

    monkeypatch.setattr(gradients.Nothing, "fill", staticmethod(count))
    return found


@GRAIN
@pytest.mark.parametrize("in_flight", [1, 2])
@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_plain_step_fills_nothing(pair, fills, grain, in_flight,
                                    set_to_none):
    pair(lambda run: run.steps(COUNTS, in_flight=in_flight,
                               set_to_none=set_to_none), grain=grain,
         make=Plain)
    assert fills == []


@GRAIN
def test_small_gradients_are_filled_for(pair, fills, grain):
    run = pair(lambda run: run.steps(COUNTS), grain=grain)
    most = sum(p.numel() for p in run.model.layers.parameters())
    assert fills and max(fills) < most // 4


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves(pair, fills, grain, dtype):
    def before(run):
        run.model.to(dtype)
        run.optimizer.param_groups[0]["eps"] = 1e-3  # not 0 in it

    pair(lambda run: run.steps(COUNTS), grain=grain, make=Plain,
         before=before)
    assert fills == []


@pytest.mark.parametrize("grain", WHOLE)
def test_other_types_are_filled_for(pair, fills, grain):
    pair(lambda run: run.steps(COUNTS), grain=grain, make=Plain,
         before=lambda run: run.model.double())
    assert fills


@pytest.mark.parametrize("grain", WHOLE)
def test_where_some_are_there_all_others_are_filled_for(pair, fills, grain):
    """Whichever: the one word is for all."""
    def train(run):
        own = [*run.model.layers.parameters()]
        for i, count in enumerate(COUNTS + COUNTS):
            run.zero()
            if i % 2:
                p = own[i // 2 % len(own)]
                p.grad = torch.full_like(p, 0.125)
            for _ in range(count):
                run.backward(1)
                if i % 3 == 0:
                    own[i % len(own)].grad = None
            run.optimizer.step()

    pair(train, grain=grain, make=Plain)
    assert fills


@GRAIN
def test_layers_of_which_some_are_first(pair, grain):
    """In one backward, by the word that is for all layers."""
    def train(run):
        for i, count in enumerate(COUNTS + COUNTS):
            run.zero()
            for _ in range(count):
                run.backward(1)
                if i % 2:
                    for p in run.model.layers[i % 3].parameters():
                        p.grad = None
            run.optimizer.step()

    pair(train, grain=grain, make=Plain, judge=False)


@GRAIN
def test_the_word_is_written_twice_a_step(pair, grain):
    run = pair(lambda run: run.steps(COUNTS), grain=grain, make=Plain)
    word = run.attached.nothing.first._word
    run.steps([3])
    before = word._version
    run.steps([3])
    assert word._version == before + 2


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("which", [0, 1, 4])
def test_nothing_is_there_of_a_graph_that_did_not_run(pair, monkeypatch,
                                                      grain, which):
    """A backward of a replay that the library refuses runs eagerly, and finds
    what there was before."""
    def train(run):
        run.steps(COUNTS)
        if run.attached is not None:
            refuse(run, which)
        run.steps(COUNTS)

    def refuse(run, which):
        segment = run.attached.segments[0]
        enter, left = segment.enter, [which]

        def refused(direction, *args):
            if direction == 1:
                left[0] -= 1
                if left[0] == -1:
                    return _abi.GH_ACTION_RUN
            return enter(direction, *args)

        monkeypatch.setattr(segment, "enter", refused, raising=False)

    pair(train, grain=grain, make=Plain, judge=False)


# ---- the word --------------------------------------------------------------


OWNER = SimpleNamespace(device=0, nothing=gradients.Nothing())


@pytest.fixture
def word():
    one = first.First(OWNER, torch.zeros(4).cuda())
    return one, lambda: one._word._version


def test_the_word_is_written_when_it_is_another(word):
    one, version = word
    written = []
    for is_first in (False, False, True, True, True, False, True):
        before = version()
        one.tell(is_first)
        written.append(version() > before)
        assert one._word.item() == is_first
    assert written == [True, False, True, False, False, True, True]


def test_a_write_that_fails_is_done_again(word, monkeypatch):
    one, _ = word
    one.tell(False)
    monkeypatch.setattr(one, "_word", None)
    with pytest.raises(AttributeError):
        one.tell(True)
    monkeypatch.undo()
    one.tell(False)
    assert one._word.item() == 0
    one.tell(True)
    assert one._word.item() == 1


def test_in_a_capture_of_somebody_else_nothing_is_known(word, monkeypatch):
    one, version = word
    one.tell(False)
    before = version()
    monkeypatch.setattr(first, "is_capturing", lambda: True)
    one.tell(True)
    assert version() == before
    monkeypatch.undo()
    one.tell(False)
    assert version() > before


def test_what_the_kernel_takes(word):
    one, _ = word
    place = torch.zeros(8, 8)
    takes = one._takes
    assert takes(place, torch.zeros(8, 8))
    for grad in (torch.zeros(8, 8, dtype=torch.float64),
                 torch.zeros(8, 8, dtype=torch.bfloat16),
                 torch.zeros(8, 8).t(), torch.zeros(64),
                 torch.zeros(8, 1).expand(8, 8),
                 torch.zeros(65)[1:].view(8, 8),
                 torch.zeros(8, 8).to_sparse(),
                 nn.Parameter(torch.zeros(8, 8)),
                 torch._neg_view(torch.zeros(8, 8))):
        assert not takes(place, grad)
    assert takes(torch.zeros(8, 8).t(), torch.zeros(8, 8).t())
    assert not takes(torch.zeros(3), torch.zeros(3))
    half = torch.zeros(8, dtype=torch.complex64)
    assert not takes(half, half.clone())
    holes = torch.zeros(8, 16)[:, ::2]
    assert not takes(holes, torch.zeros(8, 16)[:, ::2])


def test_before_bfloat16_was_in_hardware_nothing_is(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability",
                        lambda _=None: (7, 5))
    one = first.First(OWNER, torch.zeros(4).cuda())
    assert not one._takes(torch.zeros(8, 8), torch.zeros(8, 8))
