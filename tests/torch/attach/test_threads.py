"""Passes come from whatever thread.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import threading

import pytest
from models import (
    COUNTS,
    GRAINS,
    WHOLE,
    Block,
    Model,
    differing,
    on_a_gpu,
    torch,
)

from graphhooks.torch.attach import sessions
from graphhooks.torch.base.memory import Turn

GRAIN = pytest.mark.parametrize("grain", GRAINS)


def in_a_thread(call, *given):
    """Returns what waits for it, and raises what it has raised."""
    raised = []

    def run():
        try:
            call(*given)
        except BaseException as error:
            raised.append(error)

    def join():
        thread.join()
        if raised:
            raise raised[0]

    thread = threading.Thread(target=run)
    thread.start()
    return join


def elsewhere(call) -> None:
    """In a thread that is gone afterwards."""
    in_a_thread(call)()


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


@GRAIN
@pytest.mark.parametrize("count", [2, 3])
def test_trainings_in_threads_record_in_turn(runs, grain, count):
    """Each on a stream of its own."""
    eager = [runs().steps(COUNTS) for _ in range(count)]
    graphed = [runs(grain=grain) for _ in range(count)]
    streams = [torch.cuda.Stream() for _ in graphed]
    together = threading.Barrier(count)

    def train(run, stream):
        together.wait()
        with torch.cuda.stream(stream):
            run.steps(COUNTS)

    threads = [in_a_thread(train, *each) for each in zip(graphed, streams)]
    for join in threads:
        join()
    for one, other in zip(eager, graphed):
        found = [{name: value for name, value in run.state().items()
                  if name != "random numbers"} for run in (one, other)]
        assert differing(*found) == []
        stats = other.attached.stats()
        assert stats["replays"] > 0 and stats["refused"] == {}
        assert stats["eager_calls"].keys() == {"warmup"}


def test_a_turn_that_does_not_come_is_not_waited_for_for_ever(monkeypatch):
    turn = Turn()
    monkeypatch.setattr(turn, "_PATIENCE", 0.01)
    assert turn.take()
    assert not turn.take()  # it has it
    had = []
    elsewhere(lambda: had.append(turn.take()))
    assert had == [False]
    elsewhere(turn.give)  # of a pass that is cancelled there
    elsewhere(lambda: had.append(turn.take()))
    assert had == [False, True]


def test_a_pass_of_another_thread_lets_go_of_nothing(pair):
    """That one keeps nothing of autograd's graph, and this one does."""
    def train(run):
        run.steps(COUNTS[:3])
        run.zero()
        loss = run.loss()
        begun, ended = threading.Event(), threading.Event()
        joins = []

        def wait(_):
            begun.set()
            ended.wait(60)

        def begin(_):
            joins.append(in_a_thread(total.backward))
            begun.wait(60)

        inside = torch.ones(1, requires_grad=True) * 2
        inside.register_hook(wait)
        total = inside.sum()
        handle = loss.register_hook(begin)
        loss.backward(retain_graph=True)
        ended.set()
        joins.pop()()
        handle.remove()
        loss.backward()
        run.optimizer.step()

    pair(train, refused="a second backward", eager=["backward"])


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


class Disturbed(Block):
    """Another thread waits for the device while it is recorded, as often as
    torch.cuda.left says, where nobody puts that back."""

    def forward(self, x):
        x = super().forward(x)
        if torch.cuda.is_current_stream_capturing() and torch.cuda.left > 0:
            torch.cuda.left -= 1
            with pytest.raises(RuntimeError):  # CUDA has ended the capture
                elsewhere(torch.cuda.synchronize)
        return x


class DisturbedOnItsWay(Disturbed):
    def forward(self, x):
        return super().forward(x) * 1.0


@pytest.fixture(params=[Disturbed, DisturbedOnItsWay])
def disturb(request, monkeypatch):
    """So often."""
    def go(left):
        monkeypatch.setattr(torch.cuda, "left", left, raising=False)
        return request.param

    return go


@pytest.mark.parametrize("grain", WHOLE)
def test_another_thread_waits_during_a_recording(pair, grain, disturb):
    """It is made once more."""
    run = pair(lambda run: run.steps(), grain=grain, make=disturb(1))
    assert torch.cuda.left == 0
    said = run.attached.explain()
    assert "another thread's torch.cuda.synchronize()" in said
    assert "it is recorded once more" in said


@pytest.mark.parametrize("grain", WHOLE)
def test_another_thread_waits_during_every_recording(pair, grain, disturb):
    pair(lambda run: run.steps(), grain=grain, make=disturb(1 << 20),
         replays=False, refused="another thread's torch.cuda.synchronize")


class DisturbedBack(Block):
    def forward(self, x):
        return super().forward(Disturbing.apply(x))


class Disturbing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        if torch.cuda.is_current_stream_capturing() and torch.cuda.left > 0:
            torch.cuda.left -= 1
            with pytest.raises(RuntimeError):
                elsewhere(torch.cuda.synchronize)
        return grad * 0.5


@pytest.mark.parametrize("grain", WHOLE)
def test_another_thread_waits_during_the_recording_of_a_backward(
        pair, grain, monkeypatch):
    monkeypatch.setattr(torch.cuda, "left", 1, raising=False)
    run = pair(lambda run: run.steps(), grain=grain, make=DisturbedBack,
               replays=None, refused="another thread's torch.cuda.synchronize",
               eager=["backward"])
    assert len(run.attached.stats()["refused"]) == 1


@pytest.mark.skipif(not torch.distributed.is_available(),
                    reason="torch has no ranks")
def test_threads_of_gloo_may_use_the_legacy_stream(runs, monkeypatch):
    """Where gloo has tensors of the device; as on a GPU in test_ddp.py."""
    asked, make = [], sessions.StackSession

    def made(*given, legacy_threads, **options):
        asked.append(legacy_threads)
        return make(*given, legacy_threads=legacy_threads, **options)

    monkeypatch.setattr(sessions, "StackSession", made)
    runs(grain="layer").detach()
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        runs(grain="layer").steps([2, 2])
    finally:
        torch.distributed.destroy_process_group()
    assert asked == [False, True]
