"""Trainings put together at random, by seed: their bits are eager's.

What other tests have one by one comes in any order here: microbatches in
flight, gradients that are scaled, replaced and put to zero, weights that move,
are lent or frozen, hooks that come and go, evaluation in between, optimizers'
steps that are left out.  TEST_SEEDS=100:1000 takes other seeds.

Left out is what hosts/pytorch/README.md has among the limits.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import copy
import os
import random

import pytest
from models import (BATCH, LAYERS, LENGTH, WIDTH, Block, F, Model, Normed,
                    Run, torch)
from torch.utils.checkpoint import checkpoint

FIRST, END = map(int, os.environ.get("TEST_SEEDS", "0:32").split(":"))

# ---- models ----------------------------------------------------------------


class Words(Block):
    """Takes and gives more than one tensor."""

    def forward(self, x, mask=None, *, scale=1.0, before=None):
        y = super().forward(x) * scale
        if mask is not None:
            y = y * mask
        if before is not None:
            y = y + before["hidden"]
        return y, {"hidden": y * 2}, None


class Keywords(Model):
    def run_layers(self, x):
        mask = torch.ones(x.shape[1], 1, device=x.device)
        mask[-2:] = 0
        before = {"hidden": x * 0.5}
        for i, layer in enumerate(self.layers):
            x, before, _ = layer(x, mask if i % 2 else None, scale=0.5,
                                 before=before)
        return x + before["hidden"]


class Twice(Model):
    def run_layers(self, x):
        first, second, third = self.layers
        return third(second(second(first(x))))


class Skips(Model):
    def run_layers(self, x):
        first, second, third = self.layers
        y = second(first(x))
        return third(y) + x + 0.2 * y


class Checkpointed(Model):
    def run_layers(self, x):
        first, second, third = self.layers
        return third(checkpoint(second, first(x), use_reentrant=False))


class Drops(Model):
    """Leaves a layer out from time to time."""

    calls = 0

    def run_layers(self, x):
        if torch.is_grad_enabled():
            self.calls += 1
        for i, layer in enumerate(self.layers):
            if i != 1 or self.calls % 3 != 2:
                x = layer(x)
        return x


class Penalized(Model):
    """Its loss has a weight of the stack besides."""

    def run_layers(self, x):
        x = super().run_layers(x)
        return x + 0.01 * self.layers[1].mlp.up.weight.square().sum()


class Ahead(Model):
    """A weight of the stack is used on the way to it too."""

    def run_layers(self, x):
        weight = self.layers[1].attn.out.weight
        return super().run_layers(x + 0.1 * F.linear(x, weight))


class Loops(Model):
    """The stack runs twice."""

    def run_layers(self, x):
        return super().run_layers(super().run_layers(x))


class Tied(Model):
    def __init__(self, make=Block):
        super().__init__(make)
        first, *_, last = self.layers
        last.mlp.up.weight = first.mlp.up.weight


ANY = ("layer", "chunk", "part")
# What can be trained, and by which grains.
KINDS = {"plain": (Model, Block, ANY), "norms": (Model, Normed, ANY),
         "keywords": (Keywords, Words, ("layer", "chunk")),
         "twice": (Twice, Block, ("layer",)),
         "skips": (Skips, Block, ("layer", "part")),
         "checkpoint": (Checkpointed, Block, ("layer",)),
         "drops": (Drops, Block, ("layer", "part")),
         "penalized": (Penalized, Block, ANY), "ahead": (Ahead, Block, ANY),
         "loops": (Loops, Block, ANY),
         "tied": (Tied, Block, ANY)}

# ---- what happens ----------------------------------------------------------

EVENTS: dict = {}  # functions by the place where they may come


def at(*places):
    def note(function):
        for place in places:
            EVENTS.setdefault(place, []).append(function)
        return function
    return note


BEGIN, WITHIN, BEFORE_STEP = "begin", "within", "before the optimizer's step"
ANYWHERE = BEGIN, WITHIN, BEFORE_STEP


def gradients(layer) -> list:
    return [p for p in layer.parameters() if p.grad is not None]


@at(*ANYWHERE)
def clips(training, layer):
    torch.nn.utils.clip_grad_norm_(training.model.parameters(), 0.7)


@at(*ANYWHERE)
def scales(training, layer):
    for p in gradients(layer):
        p.grad.mul_(0.5)


@at(*ANYWHERE)
def replaces_gradients(training, layer):
    for p in gradients(layer):
        p.grad = p.grad.clone()


@at(*ANYWHERE)
def replaces_data_of_gradients(training, layer):
    for p in gradients(layer):
        p.grad.data = p.grad.data * 0.5


@at(*ANYWHERE)
def drops_gradients(training, layer):
    for p in gradients(layer):
        p.grad = None


@at(*ANYWHERE)
def clears_gradients(training, layer):
    for p in gradients(layer):
        p.grad.zero_()


@at(*ANYWHERE)
def sets_gradients(training, layer):
    for p in layer.parameters():
        if p.requires_grad:
            p.grad = torch.full_like(p, 0.01)


@at(*ANYWHERE)
def looks_at_gradients(training, layer):
    for p in gradients(layer):
        training.run.note(p.grad, "grad")


@at(BEGIN, BEFORE_STEP)
def averages(training, layer):
    with torch.no_grad():
        for p in layer.parameters():
            p.mul_(0.99)


@at(BEGIN, BEFORE_STEP)
def moves_a_weight(training, layer):
    layer.mlp.up.weight.data = layer.mlp.up.weight.data.clone()


@at(BEGIN, BEFORE_STEP)
def loads(training, layer):
    state = training.model.state_dict()
    training.model.load_state_dict({n: v.clone() for n, v in state.items()})


@at(BEGIN)
def lends_weights(training, layer):
    halves = {n: p.detach() * 0.5 for n, p in layer.named_parameters()}
    x = torch.randn(BATCH, LENGTH, WIDTH, generator=training.run.generator)
    y = torch.func.functional_call(layer, halves, (x.cuda(),))
    training.run.note(y[0] if isinstance(y, tuple) else y)


@at(BEGIN, BEFORE_STEP)
def freezes(training, layer):
    for p in layer.parameters():
        p.requires_grad_(False)
        p.grad = None


@at(BEGIN, BEFORE_STEP)
def freezes_what_comes_before(training, layer):
    training.model.embed.weight.requires_grad_(False)
    training.model.embed.weight.grad = None


@at(BEGIN, BEFORE_STEP)
def thaws(training, layer):
    for p in training.model.parameters():
        p.requires_grad_(True)


@at(BEGIN)
def hooks(training, layer):
    if layer.mlp.up.bias.requires_grad:
        training.handles.append(
            layer.mlp.up.bias.register_hook(lambda grad: grad * 0.5))


@at(BEGIN)
def hooks_the_end(training, layer):
    def halve(parameter):
        parameter.grad.mul_(0.5)

    if layer.mlp.up.bias.requires_grad:
        training.handles.append(
            layer.mlp.up.bias.register_post_accumulate_grad_hook(halve))


@at(BEGIN)
def hooks_a_module(training, layer):
    training.handles.append(layer.mlp.register_forward_hook(
        lambda module, args, out: out * 1.5))


@at(BEGIN)
def unhooks(training, layer):
    while training.handles:
        training.handles.pop().remove()


@at(*ANYWHERE)
def evaluates(training, layer):
    training.model.eval()
    with torch.inference_mode():
        training.run.note(training.logits().clone())
    training.model.train()


@at(*ANYWHERE)
def looks_without_a_gradient(training, layer):
    with torch.no_grad():
        training.run.note(training.logits())


@at(BEGIN)
def copies(training, layer):
    training.run.note(copy.deepcopy(training.model)(training.tokens()))


@at(WITHIN)
def asks_for_the_gradient_of_an_input(training, layer):
    x = training.model.embed(training.tokens()).detach().requires_grad_()
    loss = training.model.run_layers(x).square().mean()
    training.run.note(torch.autograd.grad(loss, x)[0])


@at(WITHIN)
def takes_another_shape(training, layer):
    training.run.loss(batch=BATCH + 1).backward()


@at(WITHIN)
def forgets_a_loss(training, layer):
    training.run.loss()


@at(*ANYWHERE)
def seeds(training, layer):
    torch.manual_seed(3)


@at(BEGIN)
def attaches_again(training, layer):
    if training.run.attached is not None:
        training.run.detach()
        training.run.attach(**training.plan.options)


# ---- a training ------------------------------------------------------------


class Step:
    def __init__(self, choose: random.Random):
        self.count = choose.choice([1, 1, 2, 3, 4, 5])
        self.in_flight = choose.choice([1, 1, 2, 3])
        self.order = choose.choice([0, -1])  # of the losses that wait
        self.zero = choose.choice(["first", "last", "last", "never"])
        self.set_to_none = choose.choice([True, True, True, False])
        self.is_skipped = choose.random() < 0.1
        self.sums = choose.random() < 0.1  # the losses, for one backward
        # (where, in which microbatch, what, in which layer)
        self.events = []
        for _ in range(choose.choice([0, 0, 1, 1, 2])):
            place = choose.choice(ANYWHERE)
            self.events.append((place, choose.randrange(self.count),
                                choose.choice(EVENTS[place]),
                                choose.randrange(LAYERS)))


class Plan:
    """All that a seed says, before anything is trained."""

    def __init__(self, seed: int):
        choose = random.Random(seed)
        self.kind = choose.choice(["plain"] * 4 + [*KINDS])
        self.model, block, grains = KINDS[self.kind]
        self.grain = choose.choice(grains)
        rates = choose.choice([0, 0, 0.1]), choose.choice([0, 0, 0.1])
        self.make = lambda: block(*rates)
        self.options = {}
        if choose.random() < 0.4:
            self.options["max_slots"] = choose.randint(1, 4)
        if choose.random() < 0.3:
            self.options["warmup_steps"] = choose.randint(0, 2)
        if choose.random() < 0.1:
            self.options["gradients"] = "autograd"
        self.optimizer = choose.choice([
            lambda ps: torch.optim.AdamW(ps, lr=1e-3),
            lambda ps: torch.optim.SGD(ps, lr=0.05),
            lambda ps: torch.optim.SGD(ps, lr=0.02, momentum=0.9)])
        self.steps = [Step(choose) for _ in range(choose.randint(4, 8))]
        if self.kind in ("twice", "loops"):
            for step in self.steps:
                step.order = 0
        self.may_sum = self.kind not in ("tied", "twice") \
            and "max_slots" not in self.options

    def __str__(self):
        lines = [f"{self.kind} by {self.grain}, {self.options}"]
        for step in self.steps:
            lines.append(str({**vars(step), "events": [
                (place, microbatch, what.__name__, layer)
                for place, microbatch, what, layer in step.events]}))
        return "\n".join(lines)


class Training:
    def __init__(self, plan: Plan, run: Run):
        self.plan = plan
        self.run = run
        self.model = run.model
        self.handles: list = []

    def tokens(self):
        return self.run.tokens()[:, :-1]

    def logits(self):
        return self.model(self.tokens())

    def happen(self, step: Step, here: str, microbatch=None) -> None:
        for place, when, what, layer in step.events:
            if place == here and microbatch in (None, when):
                what(self, self.model.layers[layer])

    def step(self, step: Step) -> None:
        run = self.run
        self.happen(step, BEGIN)
        if step.zero == "first":
            run.zero(step.set_to_none)
        waiting = []
        for microbatch in range(step.count):
            self.happen(step, WITHIN, microbatch)
            waiting.append(run.loss())
            if len(waiting) >= step.in_flight:
                waiting.pop(step.order).backward()
        if step.sums and waiting and self.plan.may_sum:
            waiting = [sum(waiting)]
        while waiting:
            waiting.pop(step.order).backward()
        self.happen(step, BEFORE_STEP)
        if not step.is_skipped:
            run.optimizer.step()
        if step.zero == "last":
            run.zero(step.set_to_none)


@pytest.mark.parametrize("seed", range(FIRST, END))
def test_a_training_of_any_kind(pair, seed):
    plan = Plan(seed)
    print(plan)

    def before(run):
        run.optimizer = plan.optimizer(run.model.parameters())

    def train(run):
        training = Training(plan, run)
        for step in plan.steps:
            training.step(step)

    pair(train, grain=plan.grain, make=plan.make, model=plan.model,
         before=before, judge=False, **plan.options)


def test_most_of_them_replay(runs):
    """So that the bits above are those of graphs."""
    replayed = 0
    for seed in range(8):
        plan = Plan(seed)
        run = runs(grain=plan.grain, make=plan.make, model=plan.model,
                   **plan.options)
        training = Training(plan, run)
        for step in plan.steps:
            training.step(step)
        replayed += run.attached.stats()["replays"] > 0
    assert replayed >= 5
