"""Nobody waits for the device to learn whether tensors are equal.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import pytest
from models import DEVICE, LAYERS, WHOLE, torch
from torch.utils._python_dispatch import TorchDispatchMode

from graphhooks.torch.base import comparisons
from graphhooks.torch.base.comparisons import Comparisons
from graphhooks.torch.step import eligibility

_aten = torch.ops.aten


class Waits(TorchDispatchMode):
    """Notes what has to wait for a GPU."""

    def __init__(self):
        super().__init__()
        self.found: list = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function in (_aten.equal.default,
                        _aten._local_scalar_dense.default):
            self.found.append(function)
        return function(*args, **(kwargs or {}))


def numbers(*values):
    return torch.tensor(values, device=DEVICE)


@pytest.mark.parametrize("other, differs", [
    ((1.0, 0.0), False), ((1.0, -0.0), False), ((1.0, 0.5), True),
    ((1.0, float("nan")), True)])
def test_who_asks_is_told_when_it_is_settled(other, differs):
    told: list = []
    asked = Comparisons()
    asked.compare(numbers(1.0, 0.0), numbers(*other), lambda: told.append(1))
    assert told == []
    asked.settle()
    asked.settle()  # once
    assert told == [1] * differs


def test_each_is_told_its_own():
    told: list = []
    asked = Comparisons()
    for i in range(4):
        asked.compare(numbers(1.0), numbers(1.0 + i % 2),
                      lambda i=i: told.append(i))
    asked.settle()
    assert told == [1, 3]


def test_answers_do_not_heap_up(monkeypatch):
    monkeypatch.setattr(comparisons, "_MANY", 8)
    asked = Comparisons()
    for _ in range(20):
        asked.compare(numbers(1.0), numbers(1.0), None)
    assert len(asked.waiting) == 4


@pytest.mark.parametrize("grain", WHOLE)
def test_an_eager_backward_waits_for_nothing(runs, grain, monkeypatch):
    monkeypatch.setattr(eligibility, "is_in_mode", lambda: False)
    run = runs(grain=grain)
    tokens = run.tokens()
    with Waits() as waits:
        run.model(tokens[:, :-1]).square().mean().backward()
    asked = run.attached.comparisons
    # One of each layer, also within a chunk, where forecast() asks.
    assert waits.found == [] and len(asked.waiting) == LAYERS
    run.model(tokens[:, :-1])  # it might be recorded
    assert asked.waiting == []
