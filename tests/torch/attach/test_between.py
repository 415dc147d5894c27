"""What happens between the calls of a chunk's layers, which one graph runs.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import re

import pytest
from models import WIDTH, Block, Model, torch

from graphhooks import Error

COUNTS = [1, 1, 2, 1, 1]
BEGINS = 4  # the call with which something begins that the first have not


class Between(Model):
    """Runs its layers one by one; does something at the second, from the
    first pass on, or, with `later`, once a graph is there."""

    later = False
    begins = BEGINS
    calls = 0

    def run_layers(self, x):
        self.calls += 1
        first, second, third = self.layers
        x = self.begin(x)
        x = self.call(first, x)
        if self.later and self.calls < self.begins:
            x = self.call(second, x)
        else:
            with self.changed(second):
                x = self.call(second, x)
        return self.end(self.call(third, x))

    def begin(self, x):
        return x

    def end(self, x):
        return x

    def call(self, layer, x):
        return layer(x)

    def changed(self, layer):
        return contextlib.nullcontext()


class NoGrad(Between):
    def changed(self, layer):
        return torch.no_grad()


class Evaluates(Between):
    @contextlib.contextmanager
    def changed(self, layer):
        layer.eval()
        yield
        layer.train()


class Freezes(Between):
    @contextlib.contextmanager
    def changed(self, layer):
        layer.requires_grad_(False)
        yield
        layer.requires_grad_(True)


class Hears(Between):
    """Hooks of saved tensors that lose something."""

    def changed(self, layer):
        return torch.autograd.graph.saved_tensors_hooks(
            lambda t: t * 1.5 if t.is_floating_point() else t, lambda t: t)


class Lends(Between):
    """One weight, and not the first."""

    @contextlib.contextmanager
    def changed(self, layer):
        held = layer.mlp.up._parameters
        own = held["weight"]
        held["weight"] = torch.nn.Parameter(own.detach() * 2)
        yield
        held["weight"] = own


class Gated(Block):
    def __init__(self):
        super().__init__(0.1)
        self.register_buffer("gate", torch.ones(()))

    def forward(self, x, bias=0.0):
        return super().forward(x) * self.gate + bias


class Still(Gated):
    """Draws nothing."""

    def __init__(self):
        super().__init__()
        self.mlp.drop.p = 0.0


class Fills(Between):
    @contextlib.contextmanager
    def changed(self, layer):
        layer.gate.fill_(1 / self.calls)
        yield


class FillsAhead(Between):
    """What the layer after the next one has."""

    @contextlib.contextmanager
    def changed(self, layer):
        self.layers[2].gate.fill_(1 / self.calls)
        yield


class Decays(Between):
    """Changes what the first was given."""

    def begin(self, x):
        self.bias = torch.ones(WIDTH, device=x.device)
        return x

    def call(self, layer, x):
        return layer(x, self.bias)

    @contextlib.contextmanager
    def changed(self, layer):
        self.bias.mul_(0.5)
        yield


class Draws(Between):
    @contextlib.contextmanager
    def changed(self, layer):
        self.drawn = torch.rand((), device=layer.gate.device)
        yield


class Seeds(Between):
    @contextlib.contextmanager
    def changed(self, layer):
        torch.manual_seed(self.calls)
        yield


CHANGES = {
    NoGrad: "is called in another mode", Evaluates: "is in eval()",
    Freezes: "has other parameters", Hears: "is called in another mode",
    Lends: "has other parameters", Fills: "are written before its call",
    FillsAhead: "are written before its call",
    Decays: "was changed in place before", Draws: "random numbers are drawn",
    Seeds: "random numbers are drawn"}


# What begins later: calls without gradients are taken for none of the pass.
LATER = {**CHANGES, NoGrad: "is not called before"}


@pytest.mark.parametrize("change", CHANGES, ids=lambda c: c.__name__)
def test_a_chunk_that_is_none_has_graphs_of_its_layers(pair, change):
    pair(lambda r: r.steps(COUNTS), grain="chunk", model=change, make=Gated,
         replays=None, refused=None, eager=None,
         apart=re.escape(CHANGES[change]))


@pytest.mark.parametrize("change", CHANGES, ids=lambda c: c.__name__)
def test_what_begins_within_the_first_step_is_seen_in_time(pair, change):
    """Though its first microbatch was a chunk."""
    soon = type("Soon", (change,), {"later": True, "begins": 2})
    pair(lambda r: r.steps([3, 1, 2]), grain="chunk", model=soon, make=Gated,
         replays=None, refused=None, eager=None,
         apart=re.escape(CHANGES[change]))


class Biased(Model):
    """Gives its second layer something in some passes."""

    biased, calls = None, 0

    def run_layers(self, x):
        self.calls += 1
        first, second, third = self.layers
        is_biased = self.calls % 2 if self.biased is None else self.biased
        x = first(x)
        return third(second(x, bias=0.5) if is_biased else second(x))


def test_a_chunk_that_is_called_in_two_ways(pair):
    pair(lambda r: r.steps([2, 1, 2]), grain="chunk", model=Biased, make=Gated,
         replays=None, refused=None, eager=None,
         apart="is called otherwise than in a pass before")


def test_a_pass_that_finds_no_slot_tells_a_graph_nothing(pair):
    """It is called otherwise than the pass that was recorded, and runs
    eagerly; the next of its kind finds a slot."""
    def train(run):
        run.model.biased = False
        run.steps([1, 1, 1])
        run.zero()
        loss = run.loss()
        run.model.biased = True
        (loss + run.loss()).backward()
        run.optimizer.step()
        run.steps([1, 1])

    pair(train, grain="chunk", model=Biased, make=Still, max_slots=1,
         verify="off", eager=None,
         refused="is called otherwise than when it was recorded")


# Nobody can take a number back that was drawn between two layers, or run one
# once more on what is not there any more.
IN_VAIN = [NoGrad, Decays, Draws, Seeds]


@pytest.mark.parametrize("change", IN_VAIN, ids=lambda c: c.__name__)
def test_what_begins_when_the_graph_has_run_is_refused(runs, change):
    later = type("Later", (change,), {"later": True})
    run = runs(grain="chunk", model=later, make=Gated)
    run.steps(COUNTS[:2])
    with pytest.raises(Error, match=f"{re.escape(LATER[change])}.*"
                       "granularity layer allows that"):
        run.steps(COUNTS[2:])
    assert run.attached.stats()["replays"] > 0


@pytest.mark.parametrize("change", CHANGES, ids=lambda c: c.__name__)
def test_what_begins_when_the_graph_has_run_leaves_the_rest_eager(pair,
                                                                  change):
    """Where the layers to come have left nothing that they would leave
    again: from there on they run eagerly."""
    if change is Decays:
        pytest.skip("what the first was given is another by then")
    later = type("Later", (change,), {"later": True})
    pair(lambda r: r.steps(COUNTS), grain="chunk", model=later, make=Still,
         eager=None, refused=None if change in (Draws, Seeds)
         else re.escape(LATER[change]))


class Norms(Gated):
    """Writes buffers besides."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(WIDTH)

    def forward(self, x, bias=0.0):
        x = self.norm(x.transpose(1, 2)).transpose(1, 2)
        return super().forward(x, bias)


@pytest.mark.parametrize("make, change", [
    (make, change) for make in (Gated, Norms) for change in CHANGES
    if change not in IN_VAIN and (
        make is Gated or change not in (Fills, FillsAhead))])
def test_what_the_graph_has_drawn_and_written_is_taken_back(pair, make,
                                                            change):
    """For the layers that are still to come."""
    later = type("Later", (change,), {"later": True})
    pair(lambda r: r.steps(COUNTS), grain="chunk", model=later, make=make,
         eager=None, refused=re.escape(LATER[change]))


@pytest.mark.parametrize("change", [Fills, FillsAhead])
def test_what_is_written_on_the_way_is_not_taken_back(runs, change):
    later = type("Later", (change,), {"later": True})
    run = runs(grain="chunk", model=later, make=Norms)
    run.steps(COUNTS[:2])
    with pytest.raises(Error, match="are written before its call"):
        run.steps(COUNTS[2:])


@pytest.mark.parametrize("change", CHANGES, ids=lambda c: c.__name__)
def test_layers_of_their_own_allow_that(pair, change):
    pair(lambda r: r.steps(COUNTS), grain="layer", model=change, make=Gated,
         eager=None, judge=False)


def test_a_call_without_gradients_is_none_of_the_pass(pair):
    """Such as one after a pass that has failed in the middle."""
    def train(run):
        run.steps([1, 1, 2])
        hook = run.model.layers[1].register_forward_pre_hook(
            lambda module, args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run.loss()
        hook.remove()
        with torch.no_grad():
            run.note(run.model.layers[1](torch.ones(2, 3, WIDTH).cuda()))
        run.steps([1, 2])

    pair(train, grain="chunk", judge=False)


# ---- what goes from one layer to the next, and is used by others -----------


class Deep(Model):
    """A penalty on what each layer gives to the next."""

    late = False

    def forward(self, tokens):
        self.penalty = 0
        out = super().forward(tokens)
        if self.late:
            self.penalty = sum(map(self.of, self.kept))
        return out

    def run_layers(self, x):
        self.kept = []
        for layer in self.layers:
            x = layer(x)
            self.kept.append(x)
            if not self.late:
                self.penalty = self.penalty + self.of(x)
        return x

    def of(self, x):
        return 1e-2 * x.square().mean()


class DeepLate(Deep):
    late = True


def learn(count, in_flight=1):
    def train(run):
        for _ in range(5):
            run.zero()
            waiting = []
            for _ in range(count):
                loss = run.loss()
                waiting.append(loss + run.model.penalty)
                if len(waiting) == in_flight:
                    waiting.pop(0).backward()
            for loss in waiting:
                loss.backward()
            run.optimizer.step()

    return train


@pytest.mark.parametrize("count, in_flight", [(1, 1), (3, 1), (3, 2)])
def test_uses_between_the_layers_part_them(pair, count, in_flight):
    pair(learn(count, in_flight), grain="chunk", model=Deep, replays=None,
         apart="goes from one of its modules to the next is used in between")


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("grain, model", [("layer", Deep), ("layer", DeepLate),
                                          ("chunk", DeepLate)])
def test_uses_after_the_layers_are_not(pair, grain, model, count):
    pair(learn(count), grain=grain, model=model)


class Costs(Block):
    def forward(self, x):
        x = super().forward(x)
        return x, 1e-2 * x.abs().mean()


class SumsUp(Deep):
    """As balance losses are, which no layer uses."""

    def run_layers(self, x):
        for layer in self.layers:
            x, cost = layer(x)
            self.penalty = self.penalty + cost
        return x


@pytest.mark.parametrize("count", [1, 3])
def test_sums_between_the_layers_are_none_of_their_own(pair, count):
    pair(learn(count), grain="chunk", make=Costs, model=SumsUp)
