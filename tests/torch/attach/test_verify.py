"""Replays are run eagerly too from time to time, and all bits compared: who
differs is found and eager from then on, and who does not is left alone.

What layers read outside of themselves is in silent_cases.py; here nobody but
verify looks for it.  A longer look for false alarms, which takes hours:

    TEST_SEEDS=0:1000 python3 -m pytest tests/torch/attach/test_verify.py -k any_kind

and all other tests with every replay verified:

    GRAPHHOOKS_VERIFY=always python3 -m pytest tests/torch/attach

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import gc
import itertools
import logging
import os
import weakref

import graphhooks
import pytest
import silent_cases
import test_once
import test_packed
from graphhooks import Error
from graphhooks.torch.base import memory
from graphhooks.torch.guard.settings import Settings
from graphhooks.torch.record.apart import Apart, Before
from graphhooks.torch.step import verify
from models import (BATCH, DEVICE, GRAINS, LAYERS, LENGTH, WHOLE, WIDTH,
                    Block, Model, Normed, Run, differing, nn, same, torch)

STEPS = silent_cases.CHANGES_AT + 4


@pytest.fixture
def blind(monkeypatch):
    """The guard finds nothing that has changed."""
    monkeypatch.setattr(Settings, "are_kept", lambda _: True)
    monkeypatch.setattr(Settings, "refuse_unfit", lambda _: None)


@pytest.fixture(autouse=True)
def nobody_says_otherwise(monkeypatch):
    monkeypatch.delenv("GRAPHHOOKS_VERIFY", raising=False)


def found(run) -> dict:
    return run.attached.stats()["verify"]


# ---- what is found ---------------------------------------------------------


def trained(case, **options):
    torch.manual_seed(5)
    model = silent_cases.stack(case)
    attached = graphhooks.attach(model, case.layers(
        model, graphhooks.segment), **options) if options else None
    try:
        state = silent_cases.train(model, case.change, STEPS)
        return state, attached and attached.stats()
    finally:
        if attached is not None:
            attached.detach()


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("name", silent_cases.CASES)
def test_what_a_layer_reads_elsewhere_is_found(blind, name, grain):
    """In the first pass that would use a value of long ago."""
    case = silent_cases.CASES[name]
    eager, _ = trained(case)
    graphed, stats = trained(case, verify="always", **GRAINS[grain])
    assert all(map(same, itertools.chain(*eager), itertools.chain(*graphed)))
    alone = stats["refused"].keys() - stats["verify"]["differences"].keys()
    assert stats["verify"]["failures"] == {}
    assert stats["verify"]["differences"] or alone \
        or stats["eager_calls"].keys() - {"warmup"}


class Scaled(Block):
    scale = 1.0

    def forward(self, x):
        return super().forward(x) * type(self).scale


def make(**names):
    """A layer of a class of its own."""
    return type("Own", (Scaled,), names)


def changing(kind, at: int, count: int = 6, microbatches: int = 1,
             to: float = 2.0):
    def train(run):
        kind.scale = 1.0
        for step in range(count):
            kind.scale = to if step >= at else 1.0
            run.step(microbatches)
    return train


def test_the_first_two_replays_are_looked_at(blind, runs):
    # A process runs some functions in its first recording alone, which is
    # then made once more.
    runs(grain="layer", verify="off").steps([1, 1, 1])
    kind = make()
    run = runs(grain="layer", make=kind, verify="auto", max_slots=1)
    changing(kind, 2)(run)  # the step of the first replay
    assert found(run)["differences"].keys() == {"layers.0", "layers.1",
                                                "layers.2"}
    assert found(run)["forwards"] == 0


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("how", [{}, {"in_flight": 2}, {"sums": True}])
def test_numbers_are_eagers_from_then_on(blind, pair, grain, how):
    kind = make()

    def train(run):
        for step in range(6):
            kind.scale = 1.0 + (step >= 3)
            run.zero()
            if "sums" in how:
                sum(run.loss() for _ in range(3)).backward()
            else:
                run.backward(4, **how)
            run.optimizer.step()

    run = pair(train, grain=grain, make=kind, verify="always",
               refused="in a replay of its forward", eager=None)
    assert run.attached.stats()["eager_calls"]["backward"] > 0
    assert found(run)["cannot_tell"] == 0


def test_it_is_said_once_with_what_differs(blind, runs, caplog):
    kind = make()
    with caplog.at_level(logging.WARNING, "graphhooks"):
        changing(kind, 3)(runs(grain="layer", make=kind, verify="always"))
    text, = [r.getMessage() for r in caplog.records]
    assert text.startswith("3 layers (layers.0 to layers.2) run eagerly from "
                           "now on: in a replay of its forward, output 0 was "
                           "another than eagerly on the same inputs")


class Grows(torch.autograd.Function):
    scale = 1.0

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * Grows.scale


class GrowsBack(Block):
    def forward(self, x):
        return super().forward(Grows.apply(x))


class GrowsInside(Block):
    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + Grows.apply(self.mlp(self.norm2(x)))


@pytest.mark.parametrize("make, what", [
    (GrowsBack, "the gradient of input 0"),
    (GrowsInside, "the gradient of input 0")])
@pytest.mark.parametrize("count, zero", [(1, True), (3, True), (3, False)])
def test_a_backward_that_differs(blind, pair, make, what, count, zero):
    def train(run):
        for step in range(6):
            Grows.scale = 1.0 + (step >= 3)
            run.step(count, set_to_none=zero)

    run = pair(train, make=make, verify="always",
               refused="in a replay of its backward")
    assert set(found(run)["differences"].values()) == {f"backward: {what}"}


class Shapes(Scaled):
    def forward(self, x):
        x = Block.forward(self, x)
        return x if type(self).scale == 1.0 else (x * 2, x)


class Unpacks(Model):
    def run_layers(self, x):
        for layer in self.layers:
            x = layer(x)
            x = x[0] if isinstance(x, tuple) else x
        return x


def test_another_form_of_a_result(blind, pair):
    kind = type("Own", (Shapes,), {})
    run = pair(changing(kind, 3), make=kind, model=Unpacks, verify="always",
               refused="the form of its result")
    assert found(run)["differences"]


class Counts(Scaled):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count.add_(type(self).scale)
        return Block.forward(self, x)


class Draws(Scaled):
    def forward(self, x):
        x = Block.forward(self, x)
        if type(self).scale != 1.0:
            torch.rand(3, device=x.device)
        return x


@pytest.mark.parametrize("base, what", [
    (Counts, "the buffer count"), (Draws, "how many random numbers")])
def test_what_a_layer_leaves_besides(blind, pair, base, what):
    kind = type("Own", (base,), {})
    run = pair(changing(kind, 3, microbatches=2), make=kind, verify="always",
               refused=what, eager=["backward"])
    assert len(found(run)["differences"]) == 3


# ---- what is left alone ----------------------------------------------------




class Log:
    """Of all layers, as engines have for losses of their routers."""

    def __init__(self):
        self.sums = {}

    def add(self, name, value):
        if name not in self.sums:
            self.sums[name] = torch.zeros((), device=value.device)
        self.sums[name] += value.detach()


LOG = Log()


class Logs(Block):
    def forward(self, x):
        LOG.add("mean", x.mean())
        return super().forward(x)


@pytest.mark.parametrize("grain", WHOLE)
def test_what_is_summed_elsewhere_is_summed_once(pair, grain):
    def train(run):
        for count in 2, 3, 2, 4:
            run.step(count)
            run.note(LOG.sums["mean"])

    run = pair(train, grain=grain, make=Logs, verify="always",
               before=lambda _: LOG.sums.clear())
    assert found(run)["differences"] == found(run)["failures"] == {}
    assert found(run)["forwards"] > 0


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("options", [
    {}, {"gradients": "autograd"}, {"offload": True, "offload_min_bytes": 1},
    {"max_slots": 1}])
def test_nothing_is_found_where_nothing_is(pair, grain, options):
    def train(run):
        run.steps(in_flight=2)
        run.steps([2, 1], set_to_none=False)

    run = pair(train, grain=grain, make=lambda: Normed(0.1, 0.1),
               verify="always", eager=None, **options)
    assert found(run)["differences"] == found(run)["failures"] == {}
    assert found(run)["cannot_tell"] == 0
    assert found(run)["forwards"] >= 9 and found(run)["backwards"] >= 9


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("where", ["buffer", "attribute", "global"])
def test_what_a_layer_writes_besides_is_written_once(pair, grain, where):
    """A pass that is run twice leaves as much as one."""
    run = pair(lambda run: test_once.train(run, [where], [2, 1, 2, 2]),
               grain=grain, make=lambda: test_once.Once([where]),
               verify="always", eager=None)
    assert found(run)["differences"] == found(run)["failures"] == {}
    assert found(run)["forwards"] > 0 and found(run)["backwards"] > 0


class Decays(Scaled):
    """A weight, where nobody is told of it."""

    def forward(self, x):
        self.mlp.up.weight.data.mul_(type(self).scale)
        return Block.forward(self, x)


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("at", [0, 3])
def test_a_layer_that_writes_its_weights_runs_once(pair, grain, at):
    """From the beginning, or when its graphs have run."""
    kind = make(forward=Decays.forward)

    def train(run):
        for step in range(6):
            kind.scale = 0.9 if step >= at else 1.0
            run.step(2)

    pair(train, make=kind, grain=grain, verify="always", judge=False)


class Mains(Block):
    """Adds to a buffer by itself, and leaves a gradient that is none."""

    def __init__(self):
        super().__init__()
        self.last = nn.Parameter(torch.ones(WIDTH))
        self.last.main_grad = torch.zeros(WIDTH, device=DEVICE)

    def forward(self, x):
        return AddsMain.apply(super().forward(x), self.last)


class AddsMain(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        ctx.main = weight.main_grad
        ctx.weight = weight
        return x * weight

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        ctx.main.add_((grad * x).flatten(0, 1).sum(0))
        ctx.weight.grad_added_to_main_grad = True
        return grad * weight, torch.full_like(weight, next(NUMBERS))


NUMBERS = itertools.count()


@pytest.mark.parametrize("gradients", ["graph", "autograd"])
def test_a_main_grad_is_compared_and_what_is_beside_it_is_not(runs,
                                                              gradients):
    left = []
    for options in {}, {"grain": "layer", "verify": "always",
                        "gradients": gradients}:
        run = runs(make=Mains, **options)
        for _ in range(4):
            run.zero()
            run.backward(3)
            left.append([layer.last.main_grad.clone()
                         for layer in run.model.layers])
            for layer in run.model.layers:
                layer.last.grad = None
            run.optimizer.step()
    assert found(run)["differences"] == found(run)["failures"] == {}
    assert found(run)["backwards"] > 0
    assert all(map(same, itertools.chain(*left[:4]),
                   itertools.chain(*left[4:])))


class Noisy(Scaled):
    """As a sum that comes in any order."""

    runs = itertools.count()

    def forward(self, x):
        return Block.forward(self, x) + type(self).scale * next(Noisy.runs)


class Varies(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * next(Noisy.runs)


class NoisyBack(Block):
    def forward(self, x):
        return super().forward(Varies.apply(x))


class Seldom(Noisy):
    """It often comes in the same."""

    def forward(self, x):
        return Block.forward(self, x) \
            + type(self).scale * (next(Noisy.runs) // 5)


class VariesSeldom(Varies):
    @staticmethod
    def backward(ctx, grad):
        return grad * (next(Noisy.runs) // 5)


class SeldomBack(Block):
    def forward(self, x):
        return super().forward(VariesSeldom.apply(x))


@pytest.mark.parametrize("make", [Noisy, NoisyBack, Seldom, SeldomBack])
@pytest.mark.parametrize("grain", WHOLE)
def test_eager_that_differs_from_itself_tells_nothing(blind, runs, make,
                                                      grain):
    run = runs(grain=grain, make=make, verify="always").steps([2, 2, 2])
    assert found(run)["differences"] == {}
    assert found(run)["cannot_tell"] > 0
    # A recording sees it too where it runs the forward once more.
    assert not [why for why in run.attached.stats()["refused"].values()
                if "in a replay" in why]


class Scales(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, kind):
        ctx.kind = kind
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.kind.scale, None


class ScaledBack(Scaled):
    def forward(self, x):
        return Block.forward(self, Scales.apply(x, type(self)))


_ROUNDING = 1 + 2.0 ** -23


@pytest.mark.parametrize("base", [Scaled, ScaledBack])
@pytest.mark.parametrize("how", [{}, {"in_flight": 2}, {"sums": True}])
@pytest.mark.parametrize("grain", WHOLE)
def test_off_by_a_rounding_once_is_no_proof(blind, pair, base, how, grain):
    """As eager is itself, where it adds up in any order; the numbers are
    eager's, and the graphs stay."""
    kind = type("Own", (base,), {})

    def train(run):
        for step in range(8):
            run.zero()
            kind.scale = _ROUNDING if step == 3 else 1.0
            count = 1 if step == 3 else 2
            if "sums" in how:
                sum(run.loss() for _ in range(count)).backward()
            else:
                run.backward(count, **how)
            run.optimizer.step()

    run = pair(train, grain=grain, make=kind, verify="always", eager=None)
    assert found(run)["cannot_tell"] > 0
    assert found(run)["differences"] == {}


@pytest.mark.parametrize("base", [Scaled, ScaledBack])
@pytest.mark.parametrize("grain", WHOLE)
def test_off_by_a_rounding_twice_is(blind, pair, base, grain):
    kind = type("Own", (base,), {})
    run = pair(changing(kind, 3, 8, to=_ROUNDING), grain=grain, make=kind,
               verify="always", refused="in a replay of its", eager=None)
    assert found(run)["differences"]


def test_who_was_off_by_a_rounding_is_looked_at_next(blind, runs,
                                                     monkeypatch):
    """Whatever time it takes."""
    monkeypatch.setattr(verify, "_SHARE", 0.0)
    kind = type("Own", (ScaledBack,), {})
    run = runs(grain="layer", make=kind, verify="auto", max_slots=1)
    changing(kind, 2, 12, to=_ROUNDING)(run)  # the step of the first replay
    assert "layers.0" in found(run)["differences"]


class Fragile(Scaled):
    def forward(self, x):
        x = Block.forward(self, x)
        if type(self).scale != 1.0:
            raise ValueError("it does not run twice")
        return x


def test_a_layer_that_cannot_run_twice_is_not_looked_at(blind, runs, caplog):
    kind = type("Own", (Fragile,), {})
    left = []
    for options in {}, {"grain": "layer", "verify": "always"}:
        run = runs(make=lambda: kind(0.1), **options)
        for step in range(5):
            kind.scale = 1.0 + (step == 3 and run.attached is not None)
            run.step(2)
        kind.scale = 1.0
        left.append(run.state())
    assert differing(*left) == []
    assert len(found(run)["failures"]) == 3
    assert found(run)["differences"] == {}
    assert "verified any more, as running it beside one has raised " \
        "ValueError: it does not run twice" in run.attached.explain()




# ---- when ------------------------------------------------------------------


@pytest.mark.parametrize("how", ["off", False])
def test_off_looks_at_nothing(runs, how):
    run = runs(grain="layer", verify=how).steps([1] * 4)
    assert found(run)["mode"] == "off"
    assert found(run)["forwards"] == 0
    assert "verify" not in run.attached.explain()


def test_auto_looks_at_growing_distances(runs, monkeypatch):
    monkeypatch.setattr(verify, "_SHARE", 1000)
    run = runs(grain="chunk", verify="auto", max_slots=1)
    seen = []
    for step in range(80):
        before = found(run)["forwards"]
        run.step(1)
        if found(run)["forwards"] > before:
            seen.append(step)
    assert seen == [2, 3, 11, 75]


def test_auto_takes_one_percent_of_the_time(runs, monkeypatch):
    """The stand-in's events say that each look takes as long.  Without time
    nothing is kept for a look either."""
    begun = []
    monkeypatch.setattr(verify, "Before", lambda segment: (
        begun.append(segment), Before(segment))[1])
    monkeypatch.setattr(verify.time, "perf_counter", lambda: 0.0)
    run = runs(grain="chunk", verify="auto", max_slots=1)
    run.steps([1] * 80)
    assert found(run)["forwards"] == len(begun) == 1
    monkeypatch.setattr(verify.time, "perf_counter", lambda: 1e9)
    run.steps([1] * 70)  # the next at 64, and the one after that at 8 more
    assert found(run)["forwards"] == 3


@pytest.mark.parametrize("count, in_flight", [(1, 1), (3, 1), (4, 3)])
def test_auto_looks_at_one_segment_a_step(runs, monkeypatch, count,
                                          in_flight):
    """It has the activations of one twice, and a step takes longer by one."""
    monkeypatch.setattr(verify, "_SHARE", 1000)
    run = runs(grain="layer", verify="auto")
    most, looks = [], []

    def see(*_):
        most.append(sum(i.apart is not None for s in run.attached.segments
                        for i in s.instances.values()))

    run.model.head.register_forward_hook(see)
    for _ in range(8):
        before = found(run)["forwards"]
        run.step(count, in_flight)
        looks.append(found(run)["forwards"] - before)
    assert max(most) == max(looks) == 1
    assert sum(looks) >= 6


def test_each_segment_is_looked_at_whatever_that_costs(runs, monkeypatch):
    """Once: in one slot, and of one shape."""
    monkeypatch.setattr(verify.time, "perf_counter", lambda: 0.0)
    run = runs(grain="layer", verify="auto")
    for _ in range(12):
        run.zero()
        for length in 32, 24:
            run.loss(length=length).backward()
        run.optimizer.step()
    assert found(run)["forwards"] == found(run)["backwards"] == LAYERS


def test_what_there_was_room_for_is_let_go_before_the_replay(
        runs, nobody_collects, monkeypatch):
    begun, left = [], []

    def begin(segment):
        half = torch.zeros(1)
        begun.append(weakref.ref(half))
        raise torch.OutOfMemoryError

    def look(self, segment, instance, before):
        left.append(begun[-1]())
        return why_not(self, segment, instance, before)

    why_not = verify.Verify._why_not
    monkeypatch.setattr(verify, "Before", begin)
    monkeypatch.setattr(verify.Verify, "_why_not", look)
    run = runs(grain="layer", verify="always").steps([1] * 4)
    assert found(run)["no_memory"] == len(begun) > 0
    assert left == [None] * len(begun)


def test_it_waits_for_memory_and_says_so_once(runs, monkeypatch, caplog):
    monkeypatch.setattr(memory, "spare", lambda _: 1 << 10)
    with caplog.at_level(logging.WARNING, "graphhooks"):
        run = runs(grain="layer", verify="auto", max_slots=1)
        run.steps([1] * 8)
        assert found(run)["no_memory"] == 3
        assert found(run)["forwards"] == 0
        monkeypatch.setattr(memory, "spare", lambda _: 1 << 40)
        run.steps([1] * 70)
    assert found(run)["forwards"] > 0
    said = [r.getMessage() for r in caplog.records]
    assert len([s for s in said if "too little free memory" in s]) == 1


def test_a_loss_that_is_forgotten_is_let_go(runs):
    run = runs(grain="layer", verify="always", max_slots=2).steps([1] * 3)
    run.zero()
    run.loss()  # and no backward
    run.backward(1)
    run.optimizer.step()
    run.step(1)
    run.attached.step()
    assert all(i.apart is None for s in run.attached.segments
               for i in s.instances.values())
    assert found(run)["differences"] == {}


# ---- beside other things ---------------------------------------------------


def of_lengths(run, *steps):
    for lengths in steps:
        run.zero()
        for length in lengths:
            run.loss(length=length).backward()
        run.optimizer.step()


LENGTHS = [(32, 24), (32, 24), (24, 32), (32, 24, 24), (24, 32)]


@pytest.mark.parametrize("grain", WHOLE)
def test_of_several_shapes_each_is_looked_at(pair, grain):
    run = pair(lambda run: of_lengths(run, *LENGTHS), grain=grain,
               make=lambda: Normed(0.1), verify="always", eager=None)
    assert found(run)["differences"] == found(run)["failures"] == {}
    replayed = sum(b["replays"] - b["recordings"]
                   for b in run.attached.stats()["banks"])
    assert found(run)["forwards"] + found(run)["backwards"] == replayed > 10


@pytest.mark.parametrize("length", [32, 24])
def test_what_differs_in_one_shape_alone(blind, pair, length):
    kind = type("Own", (OfLength,), {"length": length})

    def train(run):
        kind.scale = 1.0
        of_lengths(run, *LENGTHS[:3])
        kind.scale = 2.0
        of_lengths(run, *LENGTHS[3:], (32, 32), (24, 24))

    run = pair(train, make=kind, verify="always", eager=None,
               refused="in a replay of its forward")
    assert len(found(run)["differences"]) == LAYERS


class OfLength(Scaled):
    def forward(self, x):
        x = Block.forward(self, x)
        return x * type(self).scale if x.shape[1] == self.length else x


class Packing(test_packed.Packing):
    scale = 1.0

    def forward(self, x, cu_seqlens, max_seqlen):
        x = super().forward(x, cu_seqlens, max_seqlen)
        return x * type(self).scale


@pytest.mark.parametrize("grain", WHOLE)
def test_packed_sequences_are_run_as_they_were_given(pair, grain):
    """The graph has more room, and the same comes out."""
    run = pair(lambda run: run.steps(), make=Packing, model=test_packed.Texts,
               packed=test_packed.PACKED, grain=grain, verify="always",
               eager=None)
    assert found(run)["differences"] == found(run)["failures"] == {}
    assert found(run)["forwards"] > 5 and found(run)["backwards"] > 5


@pytest.mark.parametrize("grain", WHOLE)
def test_what_differs_with_packed_sequences(blind, pair, grain):
    kind = type("Own", (Packing,), {})

    def train(run):
        changing(kind, 3, microbatches=2)(run)

    run = pair(train, make=kind, model=test_packed.Texts, packed=test_packed.PACKED,
               grain=grain, verify="always", eager=None,
               refused="in a replay of its forward")
    assert found(run)["differences"]


def evaluate(run) -> None:
    run.model.eval()
    with torch.no_grad():
        run.note(run.loss())
    run.model.train()


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("graphs", [False, True])
def test_evaluations_between(pair, grain, graphs):
    """They are not looked at, and what is looked at is not theirs."""
    def train(run):
        for count in 1, 2, 1, 2, 1:
            evaluate(run)
            run.zero()
            for _ in range(count):
                loss = run.loss()
                evaluate(run)
                loss.backward()
            run.optimizer.step()

    run = pair(train, grain=grain, make=lambda: Normed(0.1, 0.1),
               verify="always", eager=None, eval=graphs)
    stats = run.attached.stats()
    assert found(run)["differences"] == found(run)["failures"] == {}
    assert found(run)["forwards"] == found(run)["backwards"]
    assert found(run)["forwards"] + found(run)["backwards"] == sum(
        b["replays"] - b["recordings"] for b in stats["banks"])
    assert not graphs or stats["eval"]["replays"] > 0


@pytest.mark.parametrize("at", range(LAYERS))
def test_a_layer_of_a_chunk_that_differs_is_named(blind, pair, at):
    kind = type("Own", (OneOf,), {"at": at})
    run = pair(changing(kind, 3, microbatches=2), make=kind, model=Numbered,
               grain="chunk", verify="always", eager=None,
               refused=f"output [0-9] of layers.{at} was another")
    what, = found(run)["differences"].values()
    assert what.endswith(f" of layers.{at}")


class OneOf(Scaled):
    def forward(self, x):
        x = Block.forward(self, x)
        return x * type(self).scale if self.number == type(self).at else x


class Numbered(Model):
    def __init__(self, make) -> None:
        super().__init__(make)
        for i, layer in enumerate(self.layers):
            layer.number = i


# ---- what it leaves --------------------------------------------------------


def passes() -> int:
    return sum(type(each) is Apart for each in gc.get_objects())


@pytest.mark.parametrize("grain", GRAINS)
def test_a_pass_is_gone_when_it_was_compared(runs, nobody_collects, grain):
    """It has as much memory as a layer, and the collector may not come for
    many steps."""
    run = runs(grain=grain, verify="always").steps([4] * 4, in_flight=2)
    assert found(run)["backwards"] > 0
    assert passes() == 0


@pytest.mark.parametrize("grain", GRAINS)
def test_a_pass_without_a_backward_is_gone(runs, nobody_collects, grain):
    """With the step, or a detach."""
    run = runs(grain=grain, verify="always").steps([2] * 3)
    run.loss()
    assert passes() > 0
    run.step(0)
    run.step(0)
    run.loss()
    attached = run.attached
    assert passes() > 0
    run.detach()
    assert attached.segments and passes() == 0


# ---- how it is asked for ---------------------------------------------------


def test_auto_is_what_nobody_asks_for(runs):
    run = runs(grain="layer").steps([1] * 4)
    assert found(run)["mode"] == "auto"
    assert found(run)["forwards"] > 0


def test_a_variable_and_the_check_ask_for_it(runs, monkeypatch):
    monkeypatch.setenv("GRAPHHOOKS_VERIFY", "always")
    assert found(runs(grain="layer", verify="off"))["mode"] == "always"
    monkeypatch.delenv("GRAPHHOOKS_VERIFY")
    assert found(runs(grain="layer", check="bitwise"))["mode"] == "always"
    monkeypatch.setenv("GRAPHHOOKS_CHECK", "bitwise")
    run = runs(grain="layer").steps([1] * 4)
    assert found(run)["mode"] == "always"
    assert found(run)["forwards"] > 0


@pytest.mark.parametrize("options, why", [
    ({"verify": "sometimes"}, "verify is 'sometimes'; it is off, auto or "),
    ({"verify": "auto", "check": "bitwise"}, "verify is auto: leave one")])
def test_words_that_are_wrong(options, why):
    run = Run()
    run.grain = "layer"
    with pytest.raises(Error, match=why):
        run.attach(**options)


# ---- trainings at random ---------------------------------------------------

SEEDS = os.environ.get("TEST_SEEDS", "100:108")


@pytest.mark.parametrize("seed", range(*map(int, SEEDS.split(":"))))
def test_a_training_of_any_kind_raises_no_alarm(pair, seed):
    from test_any_training import Plan, Training

    plan = Plan(seed)
    print(plan)

    def before(run):
        run.optimizer = plan.optimizer(run.model.parameters())

    def train(run):
        training = Training(plan, run)
        for step in plan.steps:
            training.step(step)

    run = pair(train, grain=plan.grain, make=plan.make, model=plan.model,
               before=before, judge=False, verify="always", **plan.options)
    assert found(run)["differences"] == found(run)["failures"] == {}
    assert found(run)["cannot_tell"] == 0


def test_always_keeps_no_events(runs):
    def events():
        gc.collect()
        return sum(type(each) is torch.cuda.Event for each in gc.get_objects())

    run = runs(grain="layer", verify="always").steps([2] * 4)
    before = events()
    run.steps([2] * 6)
    assert events() <= before
