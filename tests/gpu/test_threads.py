"""Passes come from whatever thread.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import threading

import pytest
from models import COUNTS, GRAINS, need_gpu, torch

need_gpu()

GRAIN = pytest.mark.parametrize("grain", GRAINS)


def elsewhere(call) -> None:
    """In a thread that is gone afterwards; what it raises is raised."""
    raised = []

    def run():
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


@GRAIN
def test_forward_and_backward_in_different_threads(pair, grain):
    def train(run):
        for count in COUNTS:
            run.zero()
            for _ in range(count):
                losses = []
                elsewhere(lambda: losses.append(run.loss()))
                elsewhere(losses.pop().backward)
            run.optimizer.step()

    pair(train, grain=grain)


@GRAIN
def test_each_step_in_a_thread_of_its_own(pair, grain):
    def train(run):
        for count in COUNTS:
            elsewhere(lambda: run.step(count, in_flight=2))

    pair(train, grain=grain)


def test_a_training_and_its_detach_in_threads(runs):
    run = runs(grain="layer")
    elsewhere(run.steps)
    assert run.attached.stats()["replays"] > 0
    elsewhere(run.detach)
    run.steps()
    assert torch.isfinite(torch.stack(run.notes)).all()
