"""What a call that is replayed costs the host, in calls of functions.

Functions in Python that the package runs, and those in C that these call: the
same on every machine, where a time is not.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import pytest
from models import HAS_GPU, Model, torch

import graphhooks

if HAS_GPU:
    pytest.skip("autograd goes back in a thread of its own",
                allow_module_level=True)

_PACKAGE = str(Path(graphhooks.__file__).parent)
_WARM = [8, 8, 8, 8]


class Calls:
    """Counts them, of what it is entered around."""

    def __init__(self):
        self.count = 0

    def _note(self, frame, event, _) -> None:
        if event in ("call", "c_call") \
                and frame.f_code.co_filename.startswith(_PACKAGE):
            self.count += 1

    def __enter__(self):
        sys.setprofile(self._note)

    def __exit__(self, *_):
        sys.setprofile(None)


def stack(layers: int):
    class Stack(Model):
        def __init__(self, make):
            super().__init__(make)
            self.layers = torch.nn.ModuleList(make() for _ in range(layers))

    return Stack


def cost(run, in_flight: int, count: int = 8) -> float:
    """Of a call of a layer, in a step of so many microbatches: forward and
    backward."""
    run.steps(_WARM, in_flight=in_flight)
    run.zero()
    losses, calls = [], Calls()
    before = run.attached.stats()
    run.loss().backward()  # what a step begins with is none of a call
    for _ in range(count):
        with calls:
            losses.append(run.loss())
        if len(losses) == in_flight:
            with calls:
                losses.pop(0).backward()
    for loss in losses:
        with calls:
            loss.backward()
    run.optimizer.step()
    after = run.attached.stats()
    assert after["eager_calls"] == before["eager_calls"]
    return calls.count / count / len(run.model.layers)


def attached(runs, layers: int = 3):
    return runs(grain="layer", verify="off", max_slots=8, model=stack(layers))


def test_nobody_looks_for_gradients_that_graphs_do_not_leave(runs):
    """Those with hooks are autograd's."""
    def hook(run):
        for p in run.model.parameters():
            p.register_hook(lambda gradient: gradient * 1)

    run = attached(functools.partial(runs, before=hook))
    cost(run, 3)
    assert [s.parameters.homes for s in run.attached.segments] == [[]] * 3


def test_no_more_with_more_layers_and_microbatches_in_flight(runs):
    few = cost(attached(runs, 2), 1)
    many = cost(attached(runs, 12), 6)
    assert many < 1.1 * few
