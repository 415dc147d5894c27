"""Copies of an attached model, and models that are dropped.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import copy
import io
import weakref

import pytest
from models import COUNTS, GRAINS, Run, collect, torch

from graphhooks.torch.step.segment import Site  # noqa: E402

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
        forward = vars(module).get("forward")
        assert not isinstance(forward, Site)
        assert forward is None or forward.__self__ is module
    x = run.tokens()[:, :-1]
    with torch.no_grad():
        assert torch.equal(twin(x), run.model(x))
    replays = run.attached.stats()["replays"]
    twin(x).sum().backward()
    assert run.attached.stats()["replays"] == replays
    run.steps(COUNTS[:2])
    assert run.attached.stats()["replays"] > replays


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
