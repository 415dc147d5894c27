"""Random numbers under replay are those of eager with the same seed.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import pytest
from models import (COUNTS, DEVICE, GRAINS, WHOLE, Block, F, Model, on_a_gpu,
                    torch)

GRAIN = pytest.mark.parametrize("grain", GRAINS)
FLIGHT = pytest.mark.parametrize("in_flight", [1, 3])


def dropping():
    return Block(dropout=0.1)


def everywhere():
    return Block(dropout=0.1, attention=0.2)


class Around(Model):
    """Drops outside of the stack too, between its passes."""

    def run_layers(self, x):
        x = super().run_layers(F.dropout(x, 0.1, self.training))
        return F.dropout(x, 0.1, self.training)


@GRAIN
@FLIGHT
@pytest.mark.parametrize("make, model", [
    (dropping, Model), (everywhere, Around)])
def test_dropout_is_that_of_eager(pair, grain, in_flight, make, model):
    pair(lambda r: r.steps(in_flight=in_flight), grain=grain, make=make,
         model=model)


@GRAIN
def test_random_numbers_move_on_with_every_replay(runs, grain):
    run = runs(grain=grain, make=dropping)
    run.steps(COUNTS[:2])
    replays = run.attached.stats()["replays"]
    x = torch.ones(2, 32, 64, device=DEVICE, requires_grad=True)
    seen = [run.model.run_layers(x).sum().item() for _ in range(4)]
    assert run.attached.stats()["replays"] > replays
    assert len(set(seen)) == 4


@GRAIN
def test_a_seed_in_the_middle_of_the_training(pair, grain):
    def train(run):
        for count in COUNTS:
            torch.manual_seed(count)
            run.step(count, in_flight=2)

    pair(train, grain=grain, make=dropping)


@GRAIN
def test_a_state_that_is_kept_and_set_again(pair, grain):
    def train(run):
        state = torch.cuda.get_rng_state()
        for i, count in enumerate(COUNTS + COUNTS):
            if i % 3 == 2:
                torch.cuda.set_rng_state(state)
            run.step(count)

    pair(train, grain=grain, make=everywhere)


@GRAIN
def test_evaluation_between_the_steps_draws_nothing(pair, grain):
    def train(run):
        for count in COUNTS:
            run.step(count)
            run.model.eval()
            run.loss()
            run.model.train()

    pair(train, grain=grain, make=dropping, eager=["forward_only"])


@on_a_gpu("autocast is of a GPU")
@pytest.mark.parametrize("grain", WHOLE)
@FLIGHT
def test_dropout_under_bf16(pair, grain, in_flight):
    """A region for each step: eager keeps the weights that it has cast as
    long as one lasts."""
    def train(run):
        for count in COUNTS:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                run.step(count, in_flight=in_flight)

    pair(train, grain=grain, make=everywhere)


@pytest.mark.parametrize("grain", WHOLE)
def test_several_seeds(pair, grain):
    """Two runs of other seeds differ, so the points above say something."""
    def train(run, seed):
        torch.manual_seed(seed)
        run.steps()

    one = pair(lambda r: train(r, 1), grain=grain, make=dropping)
    two = pair(lambda r: train(r, 2), grain=grain, make=dropping)
    assert not torch.equal(one.notes[-1], two.notes[-1])


def drawing(generator):
    class Draws(Block):
        """With a generator of its own, as engines of tensor parallelism
        have."""

        def forward(self, x):
            kept = torch.empty_like(x).bernoulli_(0.9, generator=generator)
            return super().forward(x * kept)

    return Draws


@pytest.mark.parametrize("grain", WHOLE)
@FLIGHT
def test_a_generator_that_is_named(pair, grain, in_flight):
    generator = torch.Generator(DEVICE)

    def train(run):
        generator.manual_seed(3)
        run.steps(in_flight=in_flight)
        run.note(generator.get_state())

    pair(train, grain=grain, make=drawing(generator),
         generators=[generator])


@pytest.mark.parametrize("grain", WHOLE)
def test_a_generator_that_is_not_named_is_eager(pair, grain):
    generator = torch.Generator(DEVICE)

    def train(run):
        generator.manual_seed(3)
        run.steps()
        run.note(generator.get_state())

    pair(train, grain=grain, make=drawing(generator), replays=False,
         refused="was not told of: give that as generators=$")
