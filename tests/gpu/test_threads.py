"""Passes come from whatever thread.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import threading

import pytest
from models import COUNTS, GRAINS, on_a_gpu, torch

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


@on_a_gpu("all streams are one")
@GRAIN
@pytest.mark.parametrize("frozen", [False, True])
def test_microbatches_on_streams_of_their_own(pair, grain, frozen):
    """All of them add to the same gradients.  The one that comes first takes
    its time, and the last is in no hurry to end."""
    def late(grad):
        torch.cuda._sleep(20_000_000)
        return grad

    def train(run):
        run.model.embed.weight.requires_grad_(not frozen)
        streams = [torch.cuda.Stream() for _ in range(3)]
        for _ in range(5):
            run.zero()
            losses = []
            for stream in streams:
                stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(stream):
                    losses.append(run.loss())
            losses[0].register_hook(late)
            for stream, loss in zip(streams, losses):
                torch.cuda.current_stream().wait_stream(stream)
                loss.backward()
            run.optimizer.step()
            torch.cuda.synchronize()

    pair(train, grain=grain, judge=False)
