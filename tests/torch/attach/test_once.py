"""Functions whose backward runs once: they drop what it needs when it has run,
as Transformer Engine's do.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextvars
import os

import pytest
from models import (COUNTS, DEVICE, NO_PIECES, SEGMENTS, WHOLE, WIDTH, Block,
                    Model, nn, torch)

from graphhooks.torch.record import again, state

GRAIN = pytest.mark.parametrize("grain", WHOLE)
TABLE = torch.ones(1).to(DEVICE)  # as a quantizer has one, for all layers


class Needs:
    """What a backward has for itself, until it has run."""


class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        ctx.needs = Needs()
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        ctx.needs.grad = grad
        ctx.needs = None
        x, weight = ctx.saved_tensors
        of_weight = grad.flatten(0, -2).t() @ x.flatten(0, -2)
        if hasattr(weight, "main_grad"):
            weight.main_grad.add_(of_weight)
            weight.grad_added_to_main_grad = True
            of_weight = None
        return grad @ weight, of_weight


class Waits(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * (2.0 + 0.0 * grad.flatten()[0].item())


class Once(Block):
    """What it has besides its two functions, it is told by words."""

    def __init__(self, words=()) -> None:
        super().__init__(0.2 if "dropout" in words else 0.0)
        self.words = words
        self.one = nn.Parameter(torch.randn(WIDTH, WIDTH) / WIDTH ** 0.5)
        self.two = nn.Parameter(torch.randn(WIDTH, WIDTH) / WIDTH ** 0.5)
        if "buffer" in words:
            self.register_buffer("seen", torch.ones(1))
        if "attribute" in words:
            self.kept = [torch.ones(1).cuda()]

    def forward(self, x):
        y = Linear.apply(x, self.one)
        # Before the other: that one has run when this one waits.
        y = Waits.apply(y) if "waits" in self.words else y * 2
        y = torch.tanh(Linear.apply(y, self.two))
        for table in self.tables():
            table.data.add_(y.detach().abs().mean())
            y = y * table.clone()
        return super().forward(x + y)

    def tables(self):
        if "buffer" in self.words:
            yield self.seen
        if "attribute" in self.words:
            yield self.kept[0]
        if "global" in self.words:
            yield TABLE


def train(run, words, counts=COUNTS[:3], in_flight=1, set_to_none=True):
    TABLE.fill_(1)
    weights = [w for layer in run.model.layers for w in (layer.one, layer.two)]
    for w in weights if "main" in words else ():
        w.main_grad = torch.zeros_like(w)
    for count in counts:
        run.zero(set_to_none)
        run.backward(count, in_flight)
        for w in weights:
            if "main" in words:
                w.grad = w.main_grad.clone()
                w.main_grad.zero_()
            run.note(w.grad, "gradient")
        run.optimizer.step()
    run.note(TABLE, "table")
    for layer in run.model.layers if "attribute" in words else ():
        run.note(layer.kept[0], "attribute")


HAVE = pytest.mark.parametrize("have", [
    "", "dropout", "buffer", "main", "main dropout buffer"], ids=str)


@GRAIN
@HAVE
@pytest.mark.parametrize("how", [
    {"counts": [1] * 4}, {"counts": [1, 2, 3, 2]}, {"counts": [3] * 4},
    {"counts": [3] * 4, "in_flight": 2},
    {"counts": [2] * 4, "set_to_none": False}],
    ids=["one", "changing", "three", "in flight", "zeros"])
def test_they_are_recorded_once(pair, grain, have, how):
    words = have.split()
    run = pair(lambda r: train(r, words, **how), grain=grain,
               make=lambda: Once(words))
    if "in_flight" not in how:
        assert run.attached.stats()["recordings"] == 2 * SEGMENTS[grain]


@GRAIN
@pytest.mark.parametrize("have", [
    "", "dropout", "buffer", "main", "attribute", "global",
    "main dropout buffer attribute"], ids=str)
@pytest.mark.parametrize("counts, in_flight", [
    ([1] * 3, 1), ([2] * 3, 1), ([3] * 3, 2)], ids=str)
def test_a_recording_that_fails_when_they_have_run(pair, grain, have, counts,
                                                   in_flight):
    """The forward is had again: with its random numbers, and with what it
    read and wrote."""
    words = ["waits", *have.split()]
    pair(lambda r: train(r, words, counts, in_flight), grain=grain,
         make=lambda: Once(words), replays=None, eager=["backward"],
         refused="it waits for the device")


@GRAIN
@pytest.mark.parametrize("count", [1, 2])
def test_a_forward_without_its_backward_before_that(pair, grain, count):
    """The graph runs again, from what was left to it, and it is that pass
    that the backward is of."""
    words = "waits", "dropout", "buffer"

    def go(run):
        run.step(1)
        for _ in range(3):
            run.zero()
            run.loss()  # of this one nobody asks
            run.optimizer.step()
            run.step(count)

    pair(go, grain=grain, make=lambda: Once(words), replays=None,
         eager=["backward"], refused="it waits for the device")


@GRAIN
def test_states_are_taken_for_recordings_alone(runs, grain, monkeypatch):
    taken = []
    make = state.State.__init__
    monkeypatch.setattr(state.State, "__init__", lambda self, *given:
                        taken.append(1) or make(self, *given))
    run = runs(grain=grain, make=Once).steps([2] * 2)
    again = 1  # the first runs once more before its backward is recorded
    assert len(taken) == SEGMENTS[grain] + again
    run.steps([2, 3])
    assert len(taken) == SEGMENTS[grain] + again
    assert all(i.before is None for s in run.attached.segments
               for i in s.instances.values())


class Adds(Model):
    """Writes what comes out of a layer, as autograd allows."""

    def run_layers(self, x):
        for layer in self.layers:
            x = layer(x)
            x += 1
        return x


def test_outputs_that_were_written_since(pair):
    words = "waits", "buffer"
    pair(lambda r: train(r, words), make=lambda: Once(words), model=Adds,
         replays=None, eager=["backward"], refused="it waits for the device")


class Varies(Once):
    """Gives other bits every time, as kernels do that add in any order."""

    def forward(self, x):
        return super().forward(x) * (1 + int.from_bytes(os.urandom(2)) / 1e6)


@GRAIN
def test_forwards_that_are_never_the_same(runs, grain):
    run = runs(grain=grain, make=lambda: Varies(["waits"]),
               parts=NO_PIECES).steps([1, 2, 2])
    assert "it waits for the device" in str(run.attached.stats()["refused"])
    assert "other numbers when they run again" in run.attached.explain()


# ---- what is another by the backward ---------------------------------------

NUMBER = [1.0]
VARIABLE = contextvars.ContextVar("scale", default=1.0)


class Hidden:
    """A number that nobody knows of, in a file."""

    def __init__(self, path) -> None:
        self.file = os.open(path, os.O_RDWR | os.O_CREAT)

    def put(self, number: int) -> None:
        os.pwrite(self.file, bytes([number]), 0)

    def get(self) -> int:
        return os.pread(self.file, 1, 0)[0]


@pytest.fixture
def hidden(tmp_path):
    one = Hidden(tmp_path / "number")
    one.put(1)
    yield one
    os.close(one.file)


def make_scaled(scale, *words):
    class Scaled(Once):
        def forward(self, x):
            return super().forward(x) * scale()

    return lambda: Scaled(("waits", *words))


def in_a_region(run, begin, end, count=3):
    """Each forward is in one, and the backwards come after it."""
    for _ in range(count):
        run.zero()
        for _ in range(2):
            token = begin()
            loss = run.loss()
            end(token)
            loss.backward()
        run.optimizer.step()


REGIONS = {
    "a number": (lambda: NUMBER[0], lambda: NUMBER.__setitem__(0, 2.0),
                 lambda _: NUMBER.__setitem__(0, 3.0)),
    "a variable of the context": (VARIABLE.get, lambda: VARIABLE.set(2.0),
                                  VARIABLE.reset),
    "a choice of kernels": (
        lambda: 2.0 - torch.backends.cuda.math_sdp_enabled(),
        lambda: torch.backends.cuda.enable_math_sdp(False),
        lambda _: torch.backends.cuda.enable_math_sdp(True)),
}


@GRAIN
@pytest.mark.parametrize("what", REGIONS)
def test_a_forward_that_was_in_a_region(pair, grain, what):
    scale, begin, end = REGIONS[what]
    pair(lambda run: in_a_region(run, begin, end), grain=grain,
         make=make_scaled(scale, "dropout", "buffer"), replays=None,
         eager=["backward"], refused="it waits for the device")


def may_not_run_again(hidden):
    if hidden.get() != 1:
        raise ValueError("nobody runs this again")
    return 1


@GRAIN
@pytest.mark.parametrize("scale, why", [
    (Hidden.get, "gives something else than the first time"),
    (may_not_run_again, "raises ValueError: nobody runs this again")])
def test_a_forward_that_nobody_can_have_again(pair, hidden, grain, scale, why):
    """Its backward is not tried, and so is eager's."""
    run = pair(lambda run: in_a_region(run, lambda: hidden.put(1),
                                       lambda _: hidden.put(2)),
               grain=grain, make=make_scaled(lambda: scale(hidden)),
               replays=None, eager=["backward"], refused=why)
    assert run.attached.stats()["recordings"] == SEGMENTS[grain]


class WaitsIf(torch.autograd.Function):
    hidden = None

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        if WaitsIf.hidden.get() == 2:
            grad.sum().item()
        return grad * 2


def test_a_later_one_raises_nothing(runs, hidden, monkeypatch):
    """A backward with the same functions was recorded, so it was not run
    before: what is not eager's is said."""
    monkeypatch.setattr(WaitsIf, "hidden", hidden)

    class Late(Once):
        def forward(self, x):
            x = super().forward(WaitsIf.apply(x))
            return x * hidden.get()

    run = runs(grain="layer", make=Late).steps([1, 1])
    waiting = [run.loss(), run.loss()]
    hidden.put(2)
    for loss in waiting:
        loss.backward()
    assert "it waits for the device" in str(run.attached.stats()["refused"])
    assert "are not eager's to the bit" in run.attached.explain()


@GRAIN
def test_one_of_a_kind_runs_once_more(runs, grain, monkeypatch):
    """It costs a forward, and the next graphs none."""
    calls = []
    run_again = again.run
    monkeypatch.setattr(again, "run", lambda segment, *given: calls.append(
        segment.name) or run_again(segment, *given))
    run = runs(grain=grain, make=Once).steps([1, 1])
    assert calls == [run.attached.segments[-1].name]
    run.steps([2, 2], in_flight=2)  # in another slot
    assert len(calls) == 1
