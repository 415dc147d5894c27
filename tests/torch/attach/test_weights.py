"""Weight gradients that a backward puts off: graphs of their own, and eager's
bits.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import gc
import queue

import graphhooks
import pytest
from models import (BATCH, COUNTS, DEVICE, LENGTH, WHOLE, WIDTH, F, differing,
                    nn, torch)
from torch.distributed.pipelining._backward import (stage_backward_input,
                                                    stage_backward_weight)

LAYERS = 3


class Late(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, store):
        ctx.save_for_backward(x, weight)
        ctx.store = store
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        ctx.store.work.put((x, grad))
        return grad @ weight, None, None


class LateTanh(torch.autograd.Function):
    """Whose work has what comes out of it."""

    @staticmethod
    def forward(ctx, x, weight, store):
        y = torch.tanh(x @ weight.t())
        ctx.save_for_backward(x, weight, y)
        ctx.store = store
        return y

    @staticmethod
    def backward(ctx, grad):
        x, weight, y = ctx.saved_tensors
        ctx.store.work.put((x, grad, y))
        return (grad * (1 - y * y)) @ weight, None, None


class LateInCycle(Late):
    """What comes out of it is there until somebody collects cycles."""

    @staticmethod
    def forward(ctx, x, weight, store):
        ctx.itself = Late.forward(ctx, x, weight, store)
        return ctx.itself


class Store:
    def __init__(self):
        self.work = queue.Queue()


class LateLinear(nn.Module):
    """As those of engines with a queue of what is put off."""

    def __init__(self, width: int, out: int, fused: bool = False,
                 function=Late):
        super().__init__()
        self.weight = nn.Parameter(0.2 * torch.randn(out, width))
        self.store = Store()
        self.fused = fused
        self.function = function

    def forward(self, x):
        return self.function.apply(x, self.weight, self.store)

    @torch.no_grad()
    def backward_dw(self):
        x, grad, *y = self.store.work.get_nowait()
        if y:
            grad = grad * (1 - y[0] * y[0])
        found = grad.flatten(0, -2).t() @ x.flatten(0, -2)
        weight = self.weight
        if self.fused:
            weight.main_grad.add_(found)
            weight.is_added = True
        elif weight.grad is None:
            weight.grad = found
        else:
            weight.grad = weight.grad + found


class Delayed:
    """What graphhooks.segment takes of such an engine."""

    def __init__(self, *linears):
        self.linears = linears

    @contextlib.contextmanager
    def apart(self):
        before = [one.store.work for one in self.linears]
        work: list = []
        for one in self.linears:
            one.store.work = queue.Queue()
        try:
            yield work
        finally:
            for one, old in zip(self.linears, before):
                work.append([*one.store.work.queue])
                one.store.work = old

    def run(self, work):
        if work is None:
            for one in self.linears:
                if not one.store.work.empty():
                    one.backward_dw()
            return
        with self.apart():
            for one, entries in zip(self.linears, work):
                for entry in entries:
                    one.store.work.put(entry)
                    one.backward_dw()


class Layer(nn.Module):
    def __init__(self, fused: bool):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = LateLinear(WIDTH, 2 * WIDTH, fused)
        self.down = LateLinear(2 * WIDTH, WIDTH, fused)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Between:
    """What a training does between its layers."""

    def __init__(self):
        self.keeps = False  # what comes out of them
        self.scales = False  # their gradients
        self.kept: list = []

    def layers(self, x):
        if type(x) is tuple:
            x = sum(x)
        if self.keeps:
            self.kept.append(x.detach())
        if self.scales:
            x.register_hook(lambda gradient: 0.5 * gradient)
        return x

    def state(self) -> dict:
        return {f"kept {i}": x for i, x in enumerate(self.kept)}


class EndsInTanh(Layer):
    def __init__(self, fused: bool):
        super().__init__(fused)
        self.down = LateLinear(2 * WIDTH, WIDTH, fused, LateTanh)

    def forward(self, x):
        return self.down(F.gelu(self.up(self.norm(x))))


class EndsInCycle(EndsInTanh):
    def __init__(self, fused: bool):
        super().__init__(fused)
        self.down.function = LateInCycle


class Training:
    def __init__(self, graphs: bool, fused: bool = False, make=Layer,
                 **options):
        torch.manual_seed(3)
        self.model = nn.ModuleList(make(fused) for _ in range(LAYERS)) \
            .to(DEVICE)
        self.fused = fused
        for layer in self.model:
            for one in (layer.up, layer.down) if fused else ():
                one.weight.main_grad = torch.zeros_like(one.weight)
        self.late = [Delayed(layer.up, layer.down) for layer in self.model]
        self.calls = list(self.model)
        self.attached = None
        if graphs:
            self.calls = [graphhooks.segment(
                layer, [layer], f"layer {i}", delayed=late)
                for i, (layer, late) in enumerate(zip(self.model, self.late))]
            self.attached = graphhooks.attach(self.model, self.calls,
                                              **options)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.numbers = torch.Generator().manual_seed(5)
        self.losses: list = []
        self.between = Between()

    def forward(self):
        x = torch.randn(BATCH, LENGTH, WIDTH, generator=self.numbers) \
            .to(DEVICE).requires_grad_()
        for call in self.calls:
            x = self.between.layers(call(x))
        return x.square().mean()

    def weights(self) -> None:
        for call, late in reversed([*zip(self.calls, self.late)]):
            if self.attached is None:
                late.run(None)
            else:
                call.backward_dw()

    def step(self, schedule: str) -> None:
        """A letter for what comes next: a forward, a backward of the oldest,
        the weights of the oldest."""
        losses: list = []
        for letter in schedule:
            if letter == "F":
                losses.append(self.forward())
            elif letter == "B":
                loss = losses.pop(0)
                loss.backward()
                self.losses.append(loss.detach().clone())
            else:
                self.weights()
        if self.fused:
            for layer in self.model:
                for one in layer.up, layer.down:
                    assert one.weight.is_added
                    one.weight.is_added = False
                    one.weight.grad = one.weight.main_grad.clone()
                    one.weight.main_grad.zero_()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def state(self) -> dict:
        return {**{str(i): x for i, x in enumerate(self.losses)},
                **self.model.state_dict(), **self.between.state()}


def train(schedules, fused=False, during=None, make=Layer, **options):
    runs = [Training(graphs, fused, make, **(options if graphs else {}))
            for graphs in (False, True)]
    attached = runs[1].attached
    try:
        for i, schedule in enumerate(schedules):
            for run in runs:
                if during is not None:
                    during(run, i)
                run.step(schedule)
        stats = attached.stats()
        stats["said"] = attached.explain()
        print(stats["said"])
    finally:
        attached.detach()
    assert differing(runs[0].state(), runs[1].state()) == []
    assert stats["refused"] == {}
    return stats


class PutsOff(Layer):
    """With the stores of Transformer Engine's modules."""

    def __init__(self, fused: bool):
        super().__init__(fused)
        for one in self.up, self.down:
            one.store.context = one.store.work
            one.wgrad_store = one.store


@pytest.mark.parametrize("granularity", ["layer", "chunk"])
def test_layers_as_they_are_that_put_weights_off(granularity):
    """Their caller asks for the gradients, whatever is attached."""
    runs = [Training(False, make=PutsOff) for _ in range(2)]
    attached = graphhooks.attach(runs[1].model, granularity=granularity)
    try:
        for schedule in ["FBW", "FBWFBW", "FBWFBW"]:
            for run in runs:
                run.step(schedule)
        refused = attached.stats()["refused"]
    finally:
        attached.detach()
    assert differing(runs[0].state(), runs[1].state()) == []
    assert refused and all("make a segment of the layer, with delayed="
                           in why for why in refused.values())


SCHEDULES = ["FBW", "FBWFBW", "FFBBWW", "FBFWBW", "FFBFBWBWW"]


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("make", [Layer, EndsInTanh])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_weights_replay_for_their_microbatch(schedule, make, fused):
    stats = train([schedule] * 5, fused, make=make)
    count = schedule.count("W") * LAYERS
    assert stats["eager_calls"].keys() <= {"warmup"}
    # All but the first step's, and the passes that were recorded in the place.
    assert stats["replays"] >= 3 * 3 * count
    assert "returns copies" not in stats["said"]


def keeping(run, i) -> None:
    """For good, of each step but the first."""
    run.between.keeps = i > 0


def keeping_for_a_step(run, i) -> None:
    run.between.keeps = True
    gc.collect()
    if i < 6:
        run.between.kept.clear()


@pytest.mark.parametrize("make", [Layer, EndsInTanh, EndsInCycle])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("keeps", [keeping, keeping_for_a_step])
def test_outputs_that_are_kept(schedule, make, keeps):
    stats = train([schedule] * 8, during=keeps, make=make)
    assert "returns copies" in stats["said"]
    # What weights that come later read stays where it is.
    assert ("kept" in stats["eager_calls"]) == (make is not Layer)
    assert stats["replays"] > 0


def scaling(run, i) -> None:
    run.between.scales = i > 2


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_gradients_that_come_from_elsewhere_later(schedule, fused):
    """A hook between the layers: a graph of weights reads them, too."""
    stats = train([schedule] * 6, fused, during=scaling)
    assert stats["eager_calls"].keys() <= {"warmup"}


def test_any_number_of_microbatches():
    train(["FBWFBW", "FFBBWW", "FBW", "FFFBBBWWW", "FBFBFBWWW"])


def test_layers_that_do_not_put_off():
    """A segment's backward says that no weights follow, and lets go of its
    slot."""
    torch.manual_seed(3)
    runs = [Training(graphs) for graphs in (False, False)]
    plain = [nn.Linear(WIDTH, WIDTH).to(DEVICE) for _ in runs]
    plain[1].load_state_dict(plain[0].state_dict())
    calls = [graphhooks.segment(runs[1].model[0], [runs[1].model[0]],
                                delayed=runs[1].late[0]), plain[1]]
    with graphhooks.attach(runs[1].model, calls, max_slots=1) as attached:
        for i in range(12):
            for run, (first, last) in zip(
                    runs, ((runs[0].model[0], plain[0]), calls)):
                x = torch.ones(BATCH, LENGTH, WIDTH, device=DEVICE,
                               requires_grad=True)
                last(first(x)).square().mean().backward()
                run.late[0].run(None) if run is runs[0] \
                    else first.backward_dw()
                for p in last.parameters():
                    p.grad = None
            if i % 3 == 2:
                attached.step()
        stats = attached.stats()
    assert stats["replays"] > 0 and stats["refused"] == {}
    assert stats["eager_calls"].keys() <= {"warmup"}
    for one, other in zip(*(run.model.parameters() for run in runs)):
        assert (one.grad is None) == (other.grad is None)
        assert one.grad is None or torch.equal(one.grad, other.grad)


def test_weights_that_nobody_calls_for_are_said():
    run = Training(True)
    with run.attached:
        for schedule in ["FBW", "FBW", "FB", "FBW", "FBW"]:
            run.step(schedule)
        assert "call backward_dw() once for each backward" \
            in run.attached.explain()


def test_an_object_without_the_methods():
    with pytest.raises(graphhooks.Error, match=r"methods apart\(\) and run"):
        graphhooks.segment(lambda x: x, (), delayed=3)


def test_chunks_are_refused():
    with pytest.raises(graphhooks.Error, match="leave granularity"):
        Training(True, granularity="chunk")


# ---- the two calls of torch's zero-bubble schedules -------------------------


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class PlainTanh(Plain):
    def forward(self, x):
        return torch.tanh(super().forward(x))


class Stage:
    asks = True  # for gradients of what goes in

    def __init__(self, make=Plain, **options):
        torch.manual_seed(3)
        self.layers = nn.ModuleList(make() for _ in range(LAYERS)).to(DEVICE)
        self.attached = graphhooks.attach(self.layers, **options) \
            if options else None
        self.optimizer = torch.optim.SGD(self.layers.parameters(), lr=0.1)
        self.numbers = torch.Generator().manual_seed(5)
        self.seen: list = []
        self.between = Between()

    def step(self, schedule: str) -> None:
        """As above; D is a backward for all at once."""
        flying, gone = [], []
        for letter in schedule:
            if letter == "F":
                x, grad = torch.randn(2, BATCH, LENGTH, WIDTH,
                                      generator=self.numbers).to(DEVICE)
                x.requires_grad_(self.asks)
                y = x
                for layer in self.layers:
                    y = self.between.layers(layer(y))
                flying.append((x, y, grad))
                self.seen.append(y.detach().clone())
            elif letter == "W":
                stage_backward_weight(self.layers.parameters(), gone.pop(0))
            else:
                x, y, grad = flying.pop(0)
                if letter == "D":
                    y.backward(grad)
                else:
                    gone.append(stage_backward_input(
                        [y], [grad], [x], self.layers.parameters())[1])
                if self.asks:
                    self.seen.append(x.grad.clone())
        for p in self.layers.parameters():
            self.seen.append(p.grad.clone())
        self.optimizer.step()
        self.optimizer.zero_grad()

    def state(self) -> dict:
        return {**{str(i): x for i, x in enumerate(self.seen)},
                **self.layers.state_dict(), **self.between.state()}


def train_stage(schedules, during=None, make=Plain):
    one, two = Stage(make), Stage(make, split_backward=True)
    with two.attached:
        for i, schedule in enumerate(schedules):
            for run in one, two:
                if during is not None:
                    during(run, i)
                run.step(schedule)
        stats = two.attached.stats()
        stats["said"] = two.attached.explain()
        print(stats["said"], stats["eager_calls"])
    assert differing(one.state(), two.state()) == []
    assert stats["refused"] == {}
    return stats


IN_TWO = ["FBW", "FBWFBW", "FFBBWW", "FFBFWBWBW", "FDFBW"]


@pytest.mark.parametrize("make", [Plain, PlainTanh])
@pytest.mark.parametrize("schedule", IN_TWO)
def test_backwards_in_two(schedule, make):
    stats = train_stage([schedule] * 5, make=make)
    assert stats["eager_calls"].keys() <= {"warmup"}
    assert stats["replays"] >= 3 * 3 * schedule.count("F") * LAYERS
    assert "returns copies" not in stats["said"]


@pytest.mark.parametrize("make", [Plain, PlainTanh])
@pytest.mark.parametrize("schedule", IN_TWO)
@pytest.mark.parametrize("keeps", [keeping, keeping_for_a_step])
def test_outputs_of_backwards_in_two_that_are_kept(schedule, make, keeps):
    stats = train_stage([schedule] * 8, keeps, make)
    assert "returns copies" in stats["said"]
    assert ("kept" in stats["eager_calls"]) == (make is PlainTanh)
    assert stats["replays"] > 0


@pytest.mark.parametrize("schedule", IN_TWO)
def test_gradients_of_backwards_in_two_from_elsewhere(schedule):
    stats = train_stage([schedule] * 6, scaling)
    assert stats["eager_calls"].keys() <= {"warmup"}


def asking(*steps):
    """In these steps gradients of what goes in are asked for."""
    def during(run, i):
        run.asks = i in steps

    return during


@pytest.mark.parametrize("schedule", ["FD", "FDFD", "FFDFDD"])
def test_backwards_that_only_weights_ask_for(schedule):
    """As of a first layer behind a frozen embedding, whose other layers go
    back in two."""
    stats = train_stage([schedule] * 5, asking())
    assert stats["eager_calls"].keys() <= {"warmup"}
    # Each layer has a forward and a backward, and all but the first weights.
    assert stats["replays"] >= 3 * (3 * LAYERS - 1) * schedule.count("F")


def test_backwards_that_inputs_ask_for_later():
    stats = train_stage(["FD", "FD", "FD", "FBW", "FBW", "FBW"],
                        asking(3, 4, 5))
    assert stats["replays"] > 0


def test_backwards_that_inputs_do_not_ask_for_any_more():
    stats = train_stage(["FBW", "FBW", "FBW", "FD", "FD", "FD"],
                        asking(0, 1, 2))
    assert "0: of (2, 32, 64): split_backward: nothing that goes into it " \
        "needs a gradient, and in earlier calls something did" in stats["said"]
    assert "call requires_grad_() on what goes into it" in stats["said"]


def test_backwards_in_two_that_nobody_has_asked_for():
    one, two = Stage(), Stage(verify="off")
    with two.attached:
        for _ in range(4):
            one.step("FBW")
            two.step("FBW")
        assert "attach with split_backward=True" in two.attached.explain()
    assert differing(one.state(), two.state()) == []


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("goes_back", [False, True])
def test_a_detach_with_a_loss_in_flight(runs, grain, goes_back):
    """What waits for the gradients of weights keeps no pool."""
    def train(run):
        run.steps(COUNTS)
        run.zero()
        loss = run.loss()
        if run.attached is not None:
            run.attached.detach()
        if goes_back:
            loss.backward()
        return run.state()

    eager = train(runs(grain=None))
    assert differing(eager, train(runs(grain=grain, split_backward=True))) \
        == []


class Waits(torch.autograd.Function):
    """Its backward, which is of a weight alone, waits for the device."""

    @staticmethod
    def forward(ctx, weight):
        return weight.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * (1 + float(grad.abs().max() > 0))


class WaitsForWeights(Plain):
    def forward(self, x):
        up = F.linear(self.norm(x), Waits.apply(self.up.weight), self.up.bias)
        return x + self.down(F.gelu(up))


@pytest.mark.parametrize("schedule", [*IN_TWO, "FD", "FFDD"])
def test_weights_that_cannot_be_recorded(schedule):
    one, two = Stage(WaitsForWeights), Stage(WaitsForWeights,
                                             split_backward=True)
    with two.attached:
        for _ in range(5):
            one.step(schedule)
            two.step(schedule)
        stats = two.attached.stats()
    assert differing(one.state(), two.state()) == []
    assert len(stats["refused"]) == LAYERS


class GivesWeight(Plain):
    def forward(self, x):
        return super().forward(x), self.norm.weight.square()


class UsesWeightTwice(nn.Module):
    """And names it behind those that it uses once."""

    def __init__(self):
        super().__init__()
        self.one = nn.Parameter(torch.randn(WIDTH))
        self.two = nn.Parameter(torch.randn(WIDTH))
        self.weight = nn.Parameter(0.1 * torch.randn(WIDTH, WIDTH))

    def forward(self, x):
        y = F.gelu(F.linear(x, self.weight, self.one))
        return x + F.linear(y, self.weight, self.two)


@pytest.mark.parametrize("schedule", ["FD", "FDFD", "FFDD"])
@pytest.mark.parametrize("make, why", [
    (GivesWeight, "depends on weights alone"),
    (UsesWeightTwice, "count some of its gradients twice")])
def test_weights_by_other_ways_than_by_inputs(schedule, make, why):
    """Torch's functions for backwards in two do not find all of these."""
    one, two = Stage(make), Stage(make, split_backward=True)
    with two.attached:
        for _ in range(5):
            one.step(schedule)
            two.step(schedule)
        refused = two.attached.stats()["refused"]
    assert differing(one.state(), two.state()) == []
    assert len(refused) == LAYERS and all(why in r for r in refused.values())
