"""Modules with graphs train as they do without, bit for bit.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import pytest
from models import (COUNTS, GRAINS, LAYERS, SEGMENTS, WIDTH, Model, nn,
                    torch)

GRAIN = pytest.mark.parametrize("grain", GRAINS)


@GRAIN
@pytest.mark.parametrize("in_flight", [1, 3])
def test_losses_and_weights_are_those_of_eager(pair, grain, in_flight):
    run = pair(lambda r: r.steps(in_flight=in_flight), grain=grain)
    stats = run.attached.stats()
    segments = SEGMENTS[grain]
    assert stats["replays"] == 2 * segments * sum(COUNTS[1:])
    assert stats["eager_calls"] == {"warmup": segments * COUNTS[0]}
    assert stats["slots"] == in_flight
    # A forward and its backward, for a first gradient and for later ones.
    assert stats["recordings"] == 2 * segments * in_flight


@GRAIN
@pytest.mark.parametrize("in_flight", [1, 3])
def test_without_a_warmup_step_the_first_backward_ends_it(pair, grain,
                                                          in_flight):
    """Until then all forwards are eager."""
    run = pair(lambda r: r.steps(in_flight=in_flight), grain=grain,
               warmup_steps=0)
    stats = run.attached.stats()
    assert stats["eager_calls"] == {"warmup": SEGMENTS[grain] * in_flight}
    assert stats["replays"] == \
        2 * SEGMENTS[grain] * (sum(COUNTS) - in_flight)


@GRAIN
def test_nothing_is_recorded_after_the_second_step(runs, grain):
    run = runs(grain=grain).steps(COUNTS[:2])
    recordings = run.attached.stats()["recordings"]
    run.steps(COUNTS[2:])
    assert run.attached.stats()["recordings"] == recordings > 0


@GRAIN
def test_a_step_begins_by_itself(runs, grain):
    run = runs(grain=grain).steps()
    # The last step ends when the next forward comes.
    assert run.attached.stats()["iterations"] == len(COUNTS) - 1


@GRAIN
def test_a_stream_of_the_users_own(pair, grain):
    def train(run):
        with torch.cuda.stream(torch.cuda.Stream()):
            run.steps()

    pair(train, grain=grain)


@GRAIN
def test_a_loss_that_is_kept_holds_nothing_up(pair, grain):
    """Most loops still have the loss of the last step in a variable."""
    def train(run):
        for count in COUNTS:
            run.zero()
            for _ in range(count):
                run.kept = run.loss()
                run.kept.backward()
            run.optimizer.step()

    run = pair(train, grain=grain)
    for segment in run.attached.segments:
        assert segment.parameters.returned == ()


def test_gradients_may_be_left_to_autograd(pair):
    run = pair(lambda r: r.steps(), gradients="autograd")
    for segment in run.attached.segments:
        assert not segment.parameters.own


@pytest.mark.parametrize("grain", ["layer", "part"])
def test_detach_leaves_what_others_have_put_around(pair, grain):
    def train(run):
        run.steps(COUNTS[:3])
        own = run.model.layers[0].forward
        run.model.layers[0].forward = lambda x: 0.5 * own(x)
        run.steps(COUNTS[:2])
        run.detach()
        run.steps(COUNTS[:2])
        del run.model.layers[0].forward

    pair(train, grain=grain, judge=False)


def a_group(optimizer, parameters):
    optimizer.add_param_group({"params": parameters})


def a_longer_group(optimizer, parameters):
    optimizer.param_groups[0]["params"].extend(parameters)


@pytest.mark.parametrize("give", [a_group, a_longer_group])
def test_an_optimizer_that_is_given_the_stack_later(pair, give):
    def before(run):
        run.optimizer = torch.optim.SGD(run.model.head.parameters(), lr=0.1)

    def train(run):
        for i, count in enumerate(COUNTS):
            run.step(count)
            run.model.zero_grad()
            if i == 1:
                give(run.optimizer, list(run.model.layers.parameters()))

    pair(train, before=before)


@GRAIN
def test_a_prompt_before_layers_that_are_not_trained(pair, grain):
    """The optimizer has none of their parameters."""
    class Prompted(Model):
        def __init__(self, make):
            super().__init__(make)
            self.requires_grad_(False)
            self.prompt = nn.Parameter(torch.zeros(4, WIDTH))

        def run_layers(self, x):
            prompt = self.prompt.expand(len(x), -1, -1)
            return super().run_layers(torch.cat((prompt, x), 1))[:, 4:]

    def before(run):
        run.optimizer = torch.optim.AdamW([run.model.prompt], lr=1e-2)

    pair(lambda r: r.steps(), grain=grain, before=before, model=Prompted)


@GRAIN
def test_detach_gives_the_layers_back(pair, grain):
    def train(run):
        run.steps()
        if run.attached is not None:
            run.detach()
            assert all("forward" not in vars(m)
                       for m in run.model.modules())
        run.steps()
        if run.grain is not None:
            run.attach()
        run.steps()

    pair(train, grain=grain)


def test_the_end_of_a_with_detaches(runs):
    import graphhooks

    run = runs()
    with graphhooks.attach(run.model) as attached:
        run.steps()
        assert attached.stats()["replays"] > 0
        assert all("forward" in vars(layer) for layer in run.model.layers)
    assert all("forward" not in vars(layer) for layer in run.model.layers)
    attached.detach()  # twice is allowed


class Halves(Model):
    """Two stacks, and something of its own between them."""

    def __init__(self, make) -> None:
        super().__init__(make)
        self.more = nn.ModuleList(make() for _ in range(LAYERS - 1))
        self.between = nn.LayerNorm(self.embed.embedding_dim)

    def run_layers(self, x):
        x = self.between(super().run_layers(x))
        for layer in self.more:
            x = layer(x)
        return x


@pytest.mark.parametrize("grain", ["layer", "chunk"])
@pytest.mark.parametrize("in_flight", [1, 3])
def test_two_stacks_of_one_model(runs, grain, in_flight):
    import graphhooks
    from models import differing

    eager = runs(model=Halves).steps(in_flight=in_flight).state()
    run = runs(model=Halves)
    with graphhooks.attach(run.model, "layers.*", **GRAINS[grain]) as one, \
            graphhooks.attach(run.model, "more.*", **GRAINS[grain]) as two:
        run.steps(in_flight=in_flight)
        assert differing(eager, run.state()) == []
        for attached in (one, two):
            stats = attached.stats()
            assert stats["replays"] > 0 and stats["refused"] == {}
            assert stats["iterations"] == len(COUNTS) - 1


def test_the_stack_is_found_by_pattern(pair):
    run = pair(lambda r: r.steps(), layers="layers.*")
    assert [s.name for s in run.attached.segments] == \
        [f"layers.{i}" for i in range(LAYERS)]


def test_some_layers_alone(pair):
    run = pair(lambda r: r.steps(), layers=["layers.0", "layers.2"])
    assert run.attached.stats()["replays"] == 2 * 2 * sum(COUNTS[1:])


# ---- no optimizer of torch --------------------------------------------------


def by_hand(run):
    with torch.no_grad():
        for p in run.model.parameters():
            p -= 0.01 * p.grad
            p.grad = None


@pytest.mark.parametrize("grain", GRAINS)
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("in_flight", [1, 2])
def test_weights_that_are_written_by_hand_end_a_step(pair, grain, count,
                                                     in_flight):
    def train(run):
        for _ in range(5):
            run.backward(count, in_flight)
            by_hand(run)

    run = pair(train, grain=grain)
    stats = run.attached.stats()
    assert stats["iterations"] == 5 - 1 - (count == 1)
    assert stats["refused"] == {}


def test_an_optimizer_takes_over(pair):
    """What writes weights between its steps, as who clips them, ends none."""
    def train(run):
        for i in range(4):
            run.zero()
            for _ in range(3):
                run.loss().backward()
                with torch.no_grad():
                    run.model.layers[0].mlp.up.weight.clamp_(-0.1, 0.1)
            run.optimizer.step()
        run.zero()
        run.loss().backward()

    run = pair(train, eager=None)
    assert run.attached.stats()["iterations"] <= 6


def test_explain_begins_with_what_it_came_to(runs):
    run = runs(grain="layer").steps([2, 2])
    assert run.attached.explain().startswith(
        f"graphs ran {2 * LAYERS} of {4 * LAYERS} calls; eagerly: warmup "
        f"{2 * LAYERS}\n")


def test_a_loop_whose_steps_never_end_is_told(runs):
    """Its optimizer is of tensors that nobody knows of."""
    run = runs(grain="layer")
    for _ in range(6):
        run.loss().backward()
    assert "no step has ended in 6 microbatches" in run.attached.explain()
    run.attached.step()
    run.loss().backward()
    assert "no step has ended" not in run.attached.explain()
