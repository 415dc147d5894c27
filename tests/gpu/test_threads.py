"""Passes come from whatever thread.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import threading

import pytest
from models import COUNTS, GRAINS, Block, Model, on_a_gpu, torch

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


class Between(Model):
    """Calls hook() in the backward, before that of the first call's layers."""
    hook = None

    def run_layers(self, x):
        x = super().run_layers(x)
        if self.hook is not None:
            x.register_hook(self.hook)
        return x


@GRAIN
def test_an_optimizer_of_others_steps_in_a_thread_of_its_own(pair, grain):
    """While a backward adds up the gradients of two losses."""
    other = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    other(torch.ones(1, 2)).sum().backward()

    def train(run):
        run.model.hook = lambda _: elsewhere(optimizer.step)
        for _ in range(5):
            run.zero()
            (run.loss() + run.loss()).backward()
            run.optimizer.step()

    pair(train, grain=grain, model=Between)


def late(grad):
    torch.cuda._sleep(20_000_000)
    return grad


@on_a_gpu("all streams are one")
@GRAIN
def test_a_caller_on_another_stream_waits_for_gradients(pair, grain):
    """That of the first step is the same for forward and backward."""
    def train(run):
        side, own = torch.cuda.Stream(), torch.cuda.current_stream()
        for step in range(6):
            run.zero()
            for _ in range(2):
                side.wait_stream(own)
                with torch.cuda.stream(side if step else own):
                    loss = run.loss()
                own.wait_stream(side)
                loss.register_hook(late)
                loss.backward()
            run.optimizer.step()
            torch.cuda.synchronize()

    pair(train, grain=grain)


@on_a_gpu("all streams are one")
@GRAIN
@pytest.mark.parametrize("frozen, rate", [(False, 0.0), (True, 0.0),
                                          (False, 0.1)])
def test_microbatches_on_streams_of_their_own(pair, grain, frozen, rate):
    """All of them add to the same gradients.  The one that comes first takes
    its time, and the last is in no hurry to end."""
    def train(run):
        run.model.embed.weight.requires_grad_(not frozen)
        streams = [torch.cuda.Stream() for _ in range(3)]
        for _ in range(5):
            run.zero()
            losses = []
            for stream in streams:
                stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(stream):
                    torch.cuda._sleep(2_000_000)
                    losses.append(run.loss())
            losses[0].register_hook(late)
            for stream, loss in zip(streams, losses):
                torch.cuda.current_stream().wait_stream(stream)
                loss.backward()
            run.optimizer.step()
            torch.cuda.synchronize()

    pair(train, grain=grain, make=lambda: Block(rate), judge=False)
