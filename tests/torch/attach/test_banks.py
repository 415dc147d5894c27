"""Several shapes: graphs for each from its second time on, and eager's bits.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import pytest
import softpool
from models import (BATCH, DEVICE, GRAINS, HAS_GPU, LAYERS, SEGMENTS, WHOLE,
                    WIDTH, Block, F, Model, Normed, collect, nn, torch)
from torch.utils.checkpoint import checkpoint

import graphhooks
from graphhooks.torch.shapes import banks

GRAIN = pytest.mark.parametrize("grain", GRAINS)
WHOLES = pytest.mark.parametrize("grain", WHOLE)


def of_lengths(*steps, in_flight=1, set_to_none=True):
    """Steps of microbatches of these lengths: a number, or several."""
    def train(run):
        for lengths in steps:
            run.zero(set_to_none)
            waiting = []
            for length in ([lengths] if type(lengths) is int else lengths):
                waiting.append(run.loss(length=length))
                if len(waiting) == in_flight:
                    waiting.pop(0).backward()
            for loss in waiting:
                loss.backward()
            run.optimizer.step()

    return train


def eager(run) -> dict:
    return run.attached.stats()["eager_calls"]


@GRAIN
def test_a_length_replays_from_its_second_time_on(pair, grain):
    """The first of each is eager, the second recorded, all others replay."""
    run = pair(of_lengths(32, 24, 32, 32, 24, 32, 24, 24), grain=grain)
    n = SEGMENTS[grain]
    assert eager(run) == {"warmup": 2 * n}
    stats = run.attached.stats()
    assert [b["recordings"] for b in stats["banks"]] == [2 * n, 2 * n]
    assert [b["graphs"] for b in stats["banks"]] == [2 * n, 2 * n]
    # Of a recording, too, the launch is one.
    assert [b["replays"] for b in stats["banks"]] == [6 * n, 6 * n]


@GRAIN
@pytest.mark.parametrize("in_flight", [1, 2, 4])
@pytest.mark.parametrize("set_to_none", [True, False])
def test_microbatches_of_several_lengths_in_a_step(pair, grain, in_flight,
                                                   set_to_none):
    """Each adds to what those of other banks have left in `.grad`."""
    mixed = [32, 16, 24, 32, 16]
    run = pair(of_lengths(mixed, mixed, mixed[::-1], [16] * 3, mixed, [24],
                          mixed, in_flight=in_flight,
                          set_to_none=set_to_none), grain=grain)
    stats = run.attached.stats()
    assert [b["shape"] for b in stats["banks"]] == [
        f"({BATCH}, {length}, {WIDTH})" for length in (32, 16, 24)]
    assert all(b["replays"] > 0 for b in stats["banks"])
    assert set(eager(run)) == {"warmup"}


@GRAIN
@pytest.mark.parametrize("in_flight", [1, 3])
def test_a_later_step_of_several_after_steps_of_one(pair, grain, in_flight):
    """Their graphs write gradients in memory that other banks write too."""
    ones = [32, 24, 32, 24, 16, 16, 32]
    pair(of_lengths(*ones, [32, 24, 16, 24], *ones, [16, 32, 24], [24, 16],
                    *ones, in_flight=in_flight), grain=grain,
         eager=["input"])


@WHOLES
def test_gradients_that_are_cleared_between_forward_and_backward(pair, grain):
    def train(run):
        for length in (32, 24, 32, 24, 24, 32, 24, 32):
            loss = run.loss(length=length)
            run.zero()
            loss.backward()
            run.optimizer.step()

    pair(train, grain=grain)


@WHOLES
def test_gradients_that_are_cleared_every_other_step(pair, grain):
    """Those of the step before are added to, or copied out of the way."""
    def train(run):
        for i, length in enumerate((32, 24, 32, 24, 24, 32, 24, 32, 32, 24)):
            if i < 4 or i % 2:
                run.zero()
            run.loss(length=length).backward()
            run.optimizer.step()

    pair(train, grain=grain, eager=())


@GRAIN
def test_a_shape_that_comes_once_takes_nothing_from_others(pair, grain):
    odd = iter(range(8, 30))
    lengths = [32, 32] + [n for _ in range(12) for n in (32, next(odd))]
    run = pair(of_lengths(*lengths), grain=grain, max_banks=1,
               eager=["input"])
    stats = run.attached.stats()
    assert len(stats["banks"]) == 1 and stats["banks"][0]["evictions"] == 0
    assert eager(run)["input"] == 12 * SEGMENTS[grain]


@GRAIN
@pytest.mark.parametrize("most", [1, 2])
def test_one_that_is_used_no_more_gives_way(pair, grain, most):
    """And comes back later, when it is the one that has come twice."""
    lengths = [32] * 10 + [24] * 10 + [16] * 10 + [32] * 10 + [24] * 3
    run = pair(of_lengths(*lengths), grain=grain, max_banks=most,
               eager=["input", "banks"])
    found = {b["shape"]: b for b in run.attached.stats()["banks"]}
    assert sum(b["graphs"] > 0 for b in found.values()) == most
    n = SEGMENTS[grain]
    assert found[f"({BATCH}, 32, {WIDTH})"]["recordings"] == 4 * n
    assert sum(b["evictions"] for b in found.values()) == 5 - most
    assert eager(run)["warmup"] + eager(run)["input"] == 3 * n
    assert eager(run)["banks"] == 2 * n
    collect()
    graphs = run.attached.captures.graphs
    assert len(graphs) <= (most + 1) * 2 * n  # the last to go is still there


@WHOLES
def test_more_shapes_than_banks_do_not_drive_each_other_out(pair, grain):
    """In turn, each would be recorded every time."""
    lengths = [32, 24, 16, 8] * 6
    run = pair(of_lengths(*lengths), grain=grain, max_banks=2,
               eager=["banks"])
    stats = run.attached.stats()
    assert [b["evictions"] for b in stats["banks"]] == [0, 0]
    said = run.attached.explain()
    assert "max_banks=8" in said and "pad_to_multiple_of" in said


@WHOLES
def test_shapes_that_come_twice_each_soon_keep_what_they_have(pair, grain):
    """Each would take another one's place, and give it up for the next one
    before its graphs were worth their recording.  Not for good: one that stays
    gets graphs later."""
    def recorded(*lengths):
        run = pair(of_lengths(*lengths), grain=grain, max_banks=2, eager=None)
        banks = run.attached.stats()["banks"]
        return (sum(b["recordings"] for b in banks),
                {b["shape"]: b["replays"] for b in banks}, eager(run))

    turns = [n for n in (32, 24, 16, 8) for _ in range(2)]
    (few, *_), (many, _, said) = recorded(*turns * 6), recorded(*turns * 12)
    assert few == many <= 5 * 2 * SEGMENTS[grain] and said["banks"]
    _, replays, _ = recorded(*turns * 6, *[40] * 24)
    assert replays[f"({BATCH}, 40, {WIDTH})"] \
        >= 2 * 7 * SEGMENTS[grain]


@WHOLES
def test_what_is_worth_a_recording_is_of_each_slot(pair, grain):
    """A bank of three in flight is recorded three times."""
    def recorded(rounds):
        lengths = [[n] * 9 for n in (32, 24, 16) for _ in range(2)]
        run = pair(of_lengths(*lengths * rounds, in_flight=3), grain=grain,
                   max_banks=2, eager=None)
        return run.attached.stats()["recordings"]

    assert recorded(5) == recorded(8)


@WHOLES
def test_one_that_stays_has_graphs_though_another_comes_now_and_then(
        pair, grain, monkeypatch):
    """Once nothing has changed for long, fewer times are enough."""
    monkeypatch.setattr(banks, "_CALM", 2)
    lengths = [32] * 2 + [24] * 3 + [16] * 5 + [8] * 9 \
        + ([8] + [40] * 9) * 6
    run = pair(of_lengths(*lengths), grain=grain, max_banks=1, eager=None)
    found = {b["shape"]: b for b in run.attached.stats()["banks"]}
    assert found[f"({BATCH}, 40, {WIDTH})"]["replays"] \
        >= 2 * 9 * SEGMENTS[grain]


@WHOLES
def test_the_variable_says_how_many(pair, grain, monkeypatch):
    monkeypatch.setenv("GRAPHHOOKS_MAX_BANKS", "1")
    run = pair(of_lengths(*[32, 24] * 5), grain=grain, max_banks=3,
               eager=["banks"])
    assert len(run.attached.stats()["banks"]) == 1


# ---- what is part of a shape -----------------------------------------------


class Scaled(Block):
    def forward(self, x, by):
        return super().forward(x * by)


class ByNumber(Model):
    """A number that changes from call to call."""

    calls, of = 0, 2

    def run_layers(self, x):
        self.calls += 1
        for layer in self.layers:
            x = layer(x, 1.0 + self.calls % self.of)
        return x


@GRAIN
def test_a_number_is_part_of_the_shape(pair, grain, request):
    if grain == "part":
        pytest.skip("parts are given no number here")
    run = pair(of_lengths(*[32] * 10), grain=grain, make=Scaled,
               model=ByNumber)
    banks = run.attached.stats()["banks"]
    assert [b["shape"] for b in banks] == [f"({BATCH}, 32, {WIDTH})"] * 2
    assert [b["besides"] for b in banks] == ["by: 2.0", "by: 1.0"]
    for by in (1.0, 2.0):
        assert f"({BATCH}, 32, {WIDTH}) (by: {by})" in run.attached.explain()
    assert set(eager(run)) == {"warmup"}


class EachTime(ByNumber):
    of = 1000


@WHOLES
def test_a_number_that_never_comes_again_is_named(pair, grain):
    def train(run):
        run.model.of = 1
        run.steps([1, 1, 1])
        run.model.of = 1000
        run.steps([1] * 4)

    run = pair(train, grain=grain, make=Scaled, model=EachTime,
               eager=["input"])
    said = run.attached.explain()
    assert "by is 5.0 in it and 1.0 in those" in said
    assert "5 came so far: 1.0, 5.0, 6.0, 7.0, 8.0" in said \
        or "2 came so far: 1.0, 5.0" in said
    assert said.count("a call differs") == 1


@WHOLES
@pytest.mark.parametrize("count", [1, 2, 3])
def test_shapes_in_turn_of_several_microbatches(pair, grain, count):
    """The first ones keep their graphs: a shape has not come more often for
    all microbatches of a step."""
    lengths = [[n] * count for n in (32, 24, 16, 8)] * 3
    run = pair(of_lengths(*lengths), grain=grain, max_banks=2,
               eager=None)
    after = pair(of_lengths(*lengths, *lengths), grain=grain, max_banks=2,
                 eager=None)
    assert sum(b["evictions"] for b in after.attached.stats()["banks"]) == 0
    assert after.attached.stats()["recordings"] \
        == run.attached.stats()["recordings"]


@WHOLES
@pytest.mark.parametrize("what", ["number", "length"])
def test_calls_of_which_none_comes_again(pair, grain, what, caplog):
    """From the first on: nothing is recorded, and the reason is said once."""
    lengths = [32] * 14 if what == "number" else range(8, 22)
    run = pair(of_lengths(*lengths), grain=grain, replays=False,
               **({"make": Scaled, "model": EachTime}
                  if what == "number" else {}))
    said = run.attached.explain()
    assert ("by is 9.0 in it and 2.0 in those"
            if what == "number" else
            f"x.shape is (2, 15, {WIDTH}) in it and (2, 8, {WIDTH}) in those"
            ) in said
    assert "8 came so far: " in said and "max_banks=16" in said
    assert "14 were met, and 0 have graphs, of 8 at most (max_banks)\n" in said
    assert caplog.text.count("no call has come a second time") == 1


@WHOLES
def test_a_few_calls_of_which_none_comes_again(pair, grain, caplog):
    """As in a first step of some microbatches."""
    pair(of_lengths(range(8, 15), range(8, 15), range(8, 15)), grain=grain)
    assert "no call has come" not in caplog.text


@WHOLES
def test_many_lengths_are_said_to_be_many(pair, grain, caplog):
    """Not while there are graphs for all."""
    few = list(range(16, 24))
    run = pair(of_lengths(32, 32, *few[:7], *few[:7]), grain=grain,
               eager=["input"])
    assert "a call differs" not in caplog.text
    pair(of_lengths(32, 32, *few, *range(8, 12)), grain=grain,
         eager=["input"])
    said = [r.getMessage() for r in caplog.records
            if "a call differs" in r.getMessage()]
    assert len(said) == 1
    for part in (f"x.shape is (2, 23, {WIDTH}) in it and (2, 32, {WIDTH}) in "
                 "those", "9 came so far: ", "pad_to_multiple_of",
                 "max_banks=18"):
        assert part in said[0]
    assert "shapes: 8 were met, and 8 have graphs" in run.attached.explain()


class Told(Block):
    """Its length is among what it is given, as a number."""

    def forward(self, x, length):
        return super().forward(x[:, :length] * 1.0)


class Tells(Model):
    def run_layers(self, x):
        for layer in self.layers:
            x = layer(x, x.shape[1])
        return x


@WHOLES
def test_a_chunk_whose_calls_have_the_length_in_them(pair, grain):
    pair(of_lengths(*[32, 24] * 4, [24, 32, 24]), grain=grain, make=Told,
         model=Tells)


class SamePlace(Model):
    """What goes into the layers lies at one address, whatever its size."""

    def __init__(self, make) -> None:
        super().__init__(make)
        self.room = torch.zeros(BATCH * 64 * WIDTH, device=DEVICE)

    def run_layers(self, x):
        room = self.room[:x.numel()].detach().view(x.shape)
        return super().run_layers(room.copy_(x))


@GRAIN
def test_shapes_at_one_address(pair, grain):
    run = pair(of_lengths(*[24, 32] * 5, [24, 32]), grain=grain,
               model=SamePlace)
    assert set(eager(run)) == {"warmup", "gradients_moved"}


class Second(Model):
    """Its last layers get another length than the first."""

    cut = 0

    def run_layers(self, x):
        x = self.layers[0](x)
        for layer in self.layers[1:]:
            x = layer(x[:, self.cut:].contiguous())
        return F.pad(x, (0, 0, (LAYERS - 1) * self.cut, 0))


def test_the_first_layer_decides(pair):
    """A layer that gets another shape where the first does not is eager."""
    def train(run):
        for i in range(8):
            run.model.cut = 4 * (i > 4)
            run.step(1)

    run = pair(train, model=Second, eager=["input"])
    assert eager(run)["input"] == 3 * (LAYERS - 1)  # and two of the bank
    assert "looked up by what the first layer is given" in \
        run.attached.explain()


# ---- what else there is ----------------------------------------------------


@WHOLES
def test_two_shapes_in_one_loss(pair, grain):
    def train(run):
        for _ in range(6):
            run.zero()
            (run.loss() * run.loss(length=16)).backward()
            run.loss(length=24).backward()
            run.optimizer.step()

    run = pair(train, grain=grain, eager=None)
    assert set(eager(run)) <= {"warmup", "gradients_moved"}
    assert len(run.attached.stats()["banks"]) == 3


@WHOLES
def test_a_new_shape_in_a_loss_of_several(pair, grain):
    """It runs eagerly, beside a graph, in one backward."""
    def train(run):
        for length in (16, 16, 16, 24, 24, 8, 16, 24):
            run.zero()
            for _ in range(2):
                (run.loss() * run.loss(length=length)).backward()
            run.optimizer.step()

    pair(train, grain=grain, eager=["input"])


@WHOLES
def test_numbers_that_are_drawn(pair, grain):
    pair(of_lengths(*[32, 24] * 4, [24, 32], [32, 24, 24]), grain=grain,
         make=lambda: Block(0.1))


@WHOLES
def test_buffers_that_are_written(pair, grain):
    pair(of_lengths(*[32, 24] * 4, [24, 32], [32, 24, 24]), grain=grain,
         make=Normed)


class Around(Model):
    def run_layers(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=self.reentrant)
        return x


class Reentrant(Around):
    reentrant = True


class NotReentrant(Around):
    reentrant = False


@pytest.mark.parametrize("model", [Reentrant, NotReentrant])
def test_checkpointing_around_layers(pair, model):
    run = pair(of_lengths(*[32, 24] * 4, [24, 32], [32, 24, 24]),
               model=model, eager=None)
    assert set(eager(run)) <= {"warmup", "checkpoint", "forward_only",
                               "gradients_moved"}


class Inside(Block):
    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=False,
                          preserve_rng_state=False)


@WHOLES
def test_checkpointing_inside_layers(pair, grain):
    pair(of_lengths(*[32, 24] * 4, [24, 32], [32, 24, 24]), grain=grain,
         make=Inside)


class Deep(Model):
    """Of as many layers as an offload has a use for."""

    def __init__(self, make=Block) -> None:
        super().__init__(make)
        self.layers = nn.ModuleList(make() for _ in range(6))


@GRAIN
@pytest.mark.parametrize("first", [32, 16])
def test_offload(pair, grain, first):
    """Longer ones than those of the first step keep more."""
    other = 48 - first
    run = pair(of_lengths(first, *[first, other] * 4, [first, other, other],
                          [other] * 3, in_flight=3), grain=grain, model=Deep,
               offload=True, offload_min_bytes=256, eager=["input"])
    moved = run.attached.stats()["offload"]
    assert moved["out_bytes"] == moved["back_bytes"]
    # What a chunk keeps is wanted at once, unless more are in flight.
    assert moved["out_bytes"] > 0 or grain == "chunk"


@WHOLES
def test_gradients_that_autograd_adds_up(pair, grain):
    pair(of_lengths(*[32, 24] * 4, [24, 32], [32, 24, 24], [24, 32]),
         grain=grain, gradients="autograd")


@WHOLES
def test_evaluations_in_between(pair, grain):
    def train(run):
        for length in (32, 24, 32, 24, 24, 32, 24, 32):
            run.zero()
            run.loss(length=length).backward()
            run.optimizer.step()
            with torch.no_grad():
                run.loss(length=length)

    pair(train, grain=grain, eager=["forward_only"])


# ---- recordings that fail, or come late ------------------------------------


class Waits(Block):
    """Asks for a number, of short ones alone."""

    def forward(self, x):
        y = super().forward(x)
        if x.shape[1] == 24:
            y.sum().item()
        return y


class WaitsBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, grad):
        if grad.shape[1] == 24:
            grad.sum().item()
        return grad


class WaitsThere(Block):
    def forward(self, x):
        return WaitsBack.apply(super().forward(x))


@WHOLES
@pytest.mark.parametrize("make", [Waits, WaitsThere])
def test_a_recording_that_fails_leaves_other_banks(pair, grain, make):
    run = pair(of_lengths(*[32, 24] * 3, *[32, 24, 16] * 3, [24, 32, 16]),
               grain=grain, make=make, eager=None)
    stats = run.attached.stats()
    assert stats["refused"] == {}
    replays = {b["shape"]: b["replays"] for b in stats["banks"]}
    assert replays[f"({BATCH}, 32, {WIDTH})"] > 0
    assert replays[f"({BATCH}, 16, {WIDTH})"] > 0
    assert f"of ({BATCH}, 24, {WIDTH}): " in run.attached.explain()
    assert eager(run)["refused"] > 0


class InterruptsBack(torch.autograd.Function):
    now = False

    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, grad):
        if InterruptsBack.now:
            raise KeyboardInterrupt
        return grad


class Interrupted(Block):
    def forward(self, x):
        return InterruptsBack.apply(super().forward(x))


@WHOLES
def test_an_interrupt_of_one_recording_leaves_other_banks(
        pair, grain, monkeypatch):
    """Also when that is the first of all."""
    def train(run):
        for length in (32, 24):
            run.zero()
            run.loss(length=length).backward()
            run.optimizer.step()
        run.zero()
        loss = run.loss(length=32)
        monkeypatch.setattr(InterruptsBack, "now", True)
        with pytest.raises(KeyboardInterrupt):
            loss.backward()
        monkeypatch.setattr(InterruptsBack, "now", False)
        del loss  # which would keep outputs
        of_lengths(*[32, 24] * 3)(run)

    run = pair(train, grain=grain, make=Interrupted, eager=None)
    # What the exception leads to may keep outputs for a pass.
    assert run.attached.stats()["eager_calls"].keys() \
        - {"warmup", "kept", "refused"} == {"backward"}
    replays = {b["shape"]: b["replays"] for b in run.attached.stats()["banks"]}
    assert replays[f"({BATCH}, 24, {WIDTH})"] > 0
    assert f"of ({BATCH}, 32, {WIDTH}): the recording of its backward was " \
        "interrupted" in run.attached.explain()


class Stops(Model):
    """Its backward may end between two layers."""

    stop = False

    def run_layers(self, x):
        x = self.layers[0](x)
        if self.stop:
            x.register_hook(self.fail)
        return self.layers[2](self.layers[1](x))

    @staticmethod
    def fail(grad):
        raise RuntimeError("on its way back")


def test_a_backward_that_is_recorded_when_others_have_used_its_memory(pair):
    """What the last layers' backward leaves to the first one's lies in memory
    that its recording must not take."""
    def train(run):
        for length, stop in ((32, 0), (24, 0), (32, 1), (24, 0), (24, 0),
                             (32, 0), (24, 0), (32, 0), (24, 0), (32, 0)):
            run.zero()
            run.model.stop = stop
            loss = run.loss(length=length)
            if stop:
                with pytest.raises(RuntimeError, match="on its way"):
                    loss.backward()
                continue
            loss.backward()
            run.optimizer.step()

    pair(train, model=Stops, eager=None)


@GRAIN
def test_a_forward_whose_backward_is_recorded_later(pair, grain):
    def train(run):
        for length, back in ((32, 1), (24, 1), (32, 0), (24, 0), (24, 1),
                             (32, 1), (32, 0), (24, 1), (32, 1), (24, 1)):
            run.zero()
            loss = run.loss(length=length)
            if back:
                loss.backward()
                run.optimizer.step()
            else:
                del loss
                run.attached and run.attached.step()

    pair(train, grain=grain, eager=None)


# ---- memory ----------------------------------------------------------------


def pool_bytes(runs, grain, lengths, **options) -> int:
    run = runs(grain=grain, **options)
    collect()
    before = softpool.bytes_of_pools()
    of_lengths(*lengths)(run)
    assert run.attached.stats()["replays"] > 0
    found = softpool.bytes_of_pools() - before
    run.detach()
    return found


@pytest.mark.skipif(HAS_GPU, reason="torch's own allocator is in charge")
@GRAIN
@pytest.mark.parametrize("several", [False, True])
def test_all_banks_take_the_memory_of_the_largest(runs, grain, several):
    """Whichever is recorded first."""
    lengths = [16, 24, 64, 48, 8, 32, 40, 56]
    if several:
        alone = [[64, 64]] * 4
        steps = [[n, n] for n in lengths] * 3
    else:
        alone, steps = [64] * 4, lengths * 3
    largest = pool_bytes(runs, grain, alone)
    assert largest > 0
    assert pool_bytes(runs, grain, steps) <= 1.05 * largest


@WHOLES
def test_a_gradient_outlives_the_graphs_that_have_left_it(runs, grain):
    """It lies in memory that they had let go."""
    run = runs(grain=grain)
    of_lengths(*[32, 24] * 4)(run)
    kept = {n: (p.grad, p.grad.clone())
            for n, p in run.model.named_parameters()}
    run.detach()
    run.attached = None
    collect()
    for name, (grad, copy) in kept.items():
        assert torch.equal(grad, copy), name


def test_more_than_the_library_takes_is_refused_at_the_attach(runs):
    with pytest.raises(graphhooks.Error, match="max_banks is \"0\".* or leave "
                       "it out for 8$"):
        runs(grain="layer", max_banks=0)


def test_a_variable_that_is_wrong_is_refused_at_the_attach(runs, monkeypatch):
    monkeypatch.setenv("GRAPHHOOKS_MAX_BANKS", "some")
    with pytest.raises(graphhooks.Error, match="GRAPHHOOKS_MAX_BANKS is .* or "
                       "leave it out for 8$"):
        runs(grain="layer")
