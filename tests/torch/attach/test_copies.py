"""Copies of an attached model, and models that are dropped.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import copy
import io
import weakref

import pytest
from models import (COUNTS, DEVICE, GRAINS, LENGTH, WIDTH, Block, Run, collect,
                    torch)

GRAIN = pytest.mark.parametrize("grain", GRAINS)


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@GRAIN
@pytest.mark.parametrize("copy_of", [copy.deepcopy, saved])
def test_a_copy_is_one_without_graphs(runs, grain, copy_of):
    run = runs(grain=grain).steps(COUNTS[:3])
    twin = copy_of(run.model)
    for module in twin.modules():
        assert not {"forward", "__reduce_ex__"} & vars(module).keys()
    x = run.tokens()[:, :-1]
    with torch.no_grad():
        assert torch.equal(twin(x), run.model(x))
    replays = run.attached.stats()["replays"]
    twin(x).sum().backward()
    assert run.attached.stats()["replays"] == replays
    run.steps(COUNTS[:2])
    assert run.attached.stats()["replays"] > replays


@GRAIN
@pytest.mark.parametrize("copy_of", [copy.deepcopy, saved])
def test_a_copy_has_the_forward_of_its_class(runs, monkeypatch, grain,
                                             copy_of):
    """Whatever that is by then; and the model has, once it is detached."""
    run = runs(grain=grain).steps(COUNTS[:3])
    twin = copy_of(run.model)
    run.detach()
    monkeypatch.setattr(Block, "forward", lambda self, x: x * 0)
    for model in twin, run.model:
        layer = model.layers[0]
        assert not {"forward", "__reduce_ex__"} & vars(layer).keys()
        x = torch.ones(1, LENGTH, WIDTH).to(DEVICE)
        assert not bool(layer(x).any())


@GRAIN
def test_a_copy_keeps_a_forward_of_its_own(runs, grain):
    run = runs(grain=grain, before=lambda run: setattr(
        run.model.layers[0], "forward", Twice(run.model.layers[0])))
    run.steps(COUNTS[:3])
    twin = copy.deepcopy(run.model)
    assert type(vars(twin.layers[0])["forward"]) is Twice
    assert vars(twin.layers[0])["forward"].layer is twin.layers[0]


class Twice:
    def __init__(self, layer):
        self.layer = layer

    def __call__(self, x):
        return Block.forward(self.layer, Block.forward(self.layer, x))


@GRAIN
def test_a_file_of_the_model_knows_no_graphs(runs, grain):
    """It is read where graphhooks is not installed."""
    run = runs(grain=grain).steps(COUNTS[:3])
    file = io.BytesIO()
    torch.save(run.model, file)
    assert b"graphhooks" not in file.getvalue()
    file.seek(0)
    twin = torch.load(file, weights_only=False)
    x = run.tokens()[:, :-1]
    with torch.no_grad():
        assert torch.equal(twin(x), run.model(x))


@GRAIN
def test_an_average_of_weights_goes_on_with_the_training(pair, grain):
    def train(run):
        run.steps(COUNTS[:3])
        mean = torch.optim.swa_utils.AveragedModel(run.model)
        for count in COUNTS:
            run.step(count)
            mean.update_parameters(run.model)
        for p in mean.parameters():
            run.note(p)

    pair(train, grain=grain)


@GRAIN
def test_a_model_that_is_dropped_is_freed(grain):
    def train():
        run = Run(grain=grain).steps(in_flight=2)
        return weakref.ref(run.attached)

    def reserved() -> int:
        gone = train()
        collect()
        assert gone() is None
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return torch.cuda.memory_reserved()

    first = reserved()
    assert [reserved() for _ in range(3)][-1] <= first
