"""Autocast, scalers and weights of other types.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import pytest
from models import (COUNTS, GRAINS, WHOLE, Block, Model, need_gpu,
                    torch)
from torch.utils.checkpoint import checkpoint

need_gpu()

GRAIN = pytest.mark.parametrize("grain", GRAINS)
TYPES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])


@GRAIN
@TYPES
@pytest.mark.parametrize("in_flight", [1, 3])
def test_autocast_around_the_forward(pair, grain, dtype, in_flight):
    def train(run):
        forward = run.model.forward

        def call(tokens):
            with torch.autocast("cuda", dtype=dtype):
                return forward(tokens)

        run.model.forward = call
        run.steps(in_flight=in_flight)

    pair(train, grain=grain)


@GRAIN
def test_autocast_around_the_step(pair, grain):
    """Its cache outlives the forward here."""
    def train(run):
        for count in COUNTS:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                run.step(count)

    pair(train, grain=grain)


class Casts(Block):
    def forward(self, x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return super().forward(x).float()


@GRAIN
def test_autocast_inside_the_layer(pair, grain):
    pair(lambda r: r.steps(), grain=grain, make=Casts)


@GRAIN
def test_autocast_that_comes_later_has_graphs_of_its_own(pair, grain):
    """A region for each step: one around several keeps its first casts of
    weights."""
    def train(run):
        run.steps(COUNTS[:3])
        before = run.attached and run.attached.stats()["recordings"]
        for count in COUNTS[3:]:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                run.step(count)
        if run.attached:
            assert run.attached.stats()["recordings"] > before
        run.steps()

    run = pair(train, grain=grain, eager=["input"])
    assert "autocast" in run.attached.explain()


@GRAIN
@pytest.mark.parametrize("unscale", [False, True])
def test_a_scaler_with_a_step_that_overflows(pair, grain, unscale):
    def train(run):
        scaler = torch.amp.GradScaler("cuda", init_scale=2.0 ** 10)
        for i, count in enumerate(COUNTS + COUNTS):
            run.zero()
            for _ in range(count):
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = run.loss()
                scaler.scale(loss * (1e30 if i in (2, 6) else 1)).backward()
            if unscale:
                scaler.unscale_(run.optimizer)
                torch.nn.utils.clip_grad_norm_(run.model.parameters(), 0.1)
            scaler.step(run.optimizer)
            scaler.update()
            run.note(torch.tensor(scaler.get_scale()))
        assert scaler.get_scale() < 2.0 ** 10  # it did overflow

    pair(train, grain=grain)


@pytest.mark.parametrize("grain", WHOLE)
@TYPES
def test_weights_of_the_type(pair, grain, dtype):
    def train(run):
        run.steps(in_flight=2)

    class Half(Block):
        def forward(self, x):
            return super().forward(x.to(dtype))

    def model(make):
        from models import Model

        return Model(make).to(dtype)

    pair(train, grain=grain, make=Half, model=model)


def checkpointed(where):
    """Reentrant checkpoints around layers, or inside them."""
    class Around(Model):
        def run_layers(self, x):
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=True)
            return x

    class Inside(Block):
        def forward(self, x):
            return checkpoint(super().forward, x, use_reentrant=True)

    return {"model": Around} if where == "around" else {"make": Inside}


@pytest.mark.parametrize("where, grain", [
    ("around", "layer"), ("around", "part"), ("inside", "layer"),
    ("inside", "chunk")])
@TYPES
@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("eval", [False, True])
def test_autocast_and_reentrant_checkpoints(pair, where, grain, dtype, cached,
                                            eval):
    """They run the layers again in the backward, in the forward's autocast,
    which is not around the backward."""
    def train(run):
        for count in COUNTS:
            run.zero()
            for _ in range(count):
                with torch.autocast("cuda", dtype=dtype,
                                    cache_enabled=cached):
                    loss = run.loss()
                loss.backward()
            run.optimizer.step()
            with torch.no_grad(), torch.autocast("cuda", dtype=dtype):
                run.loss()

    pair(train, grain=grain, replays=None, refused=None, eager=None, eval=eval,
         judge=False, **checkpointed(where))


@GRAIN
@TYPES
@pytest.mark.parametrize("around", ["the loop", "each"])
def test_autocast_around_an_evaluation(pair, grain, dtype, around):
    """Weights are cast anew after each step."""
    def train(run):
        for count in COUNTS:
            run.step(count)
            run.model.eval()
            with torch.no_grad():
                if around == "each":
                    for _ in range(2):
                        with torch.autocast("cuda", dtype=dtype):
                            run.loss()
                else:
                    with torch.autocast("cuda", dtype=dtype):
                        run.loss()
                        run.loss()
            run.model.train()

    run = pair(train, grain=grain, eval=True)
    assert run.attached.stats()["eval"]["replays"] > 0
