"""Caches of keys and values, which models of transformers make by default.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import copy
import pickle
import types

import pytest
from models import COUNTS, Block, Model, Run, torch

ASKED = "training calls ran with use_cache=False"


class DynamicCache:
    """Of generation: a layer writes to it in Python."""

    def __init__(self):
        self.keys = []

    def update(self, x):
        self.keys.append(x.detach())
        return torch.cat([x[:, :0], x], 1)


class Caching(Block):
    def forward(self, x, cache=None):
        return super().forward(x if cache is None else cache.update(x))


class Inner(Model):
    """The stack of a model: it decides."""

    def __init__(self, make):
        super().__init__(make)
        self.config = types.SimpleNamespace(use_cache=True)

    def forward(self, tokens, cache=None, use_cache=None):
        self.cache = cache
        if use_cache is None:
            use_cache = self.config.use_cache
        if use_cache and cache is None:
            self.cache = DynamicCache()
        return super().forward(tokens)

    def run_layers(self, x):
        for layer in self.layers:
            x = layer(x, cache=self.cache)
        return x


class Outer(torch.nn.Module):
    """What users call: it hands on what it is given."""

    def __init__(self, make):
        super().__init__()
        self.inner = Inner(make)
        self.config = self.inner.config
        self.given = {}

    def forward(self, tokens, use_cache=None):
        return self.inner(tokens, use_cache=use_cache, **self.given)


@pytest.mark.parametrize("model", [Inner, Outer])
@pytest.mark.parametrize("grain", ["layer", "chunk"])
def test_training_has_no_cache(pair, grain, model):
    run = pair(lambda r: r.steps(), make=Caching, model=model, grain=grain)
    assert ASKED in run.attached.explain()


@pytest.mark.parametrize("grain", ["layer", "chunk"])
def test_who_asks_for_one_gets_it(pair, grain):
    """Its layers run eagerly, and the sentence says what to do."""
    def train(run):
        run.steps(COUNTS[:3])
        assert run.model.inner.cache.keys

    class Asks(Outer):
        def forward(self, tokens):
            return self.inner(tokens, use_cache=True)

    run = pair(train, make=Caching, model=Asks, grain=grain, replays=False,
               eager=["input"])
    assert ASKED not in run.attached.explain()
    assert "train with use_cache=False" in run.attached.explain()


def test_who_gives_one_goes_on_with_it(pair):
    """As tuning of a prefix does."""
    def train(run):
        for count in COUNTS[:3]:
            run.model.given = {"cache": DynamicCache()}
            run.step(count)
            assert run.model.given["cache"].keys

    pair(train, make=Caching, model=Outer, replays=False, eager=["input"])


def test_evaluation_keeps_its_cache(runs):
    run = runs(grain="layer", make=Caching, model=Outer).steps(COUNTS[:2])
    assert run.model.inner.cache is None
    run.model.eval()
    with torch.no_grad():
        run.loss()
    assert run.model.inner.cache.keys
    run.model.train()
    with torch.no_grad():
        run.loss()
    assert run.model.inner.cache.keys


def test_none_is_left_after_detach():
    run = Run(grain="layer", make=Caching, model=Outer)
    run.steps(COUNTS[:2])
    run.detach()
    run.loss().backward()
    assert run.model.inner.cache.keys
    assert not run.model._forward_pre_hooks


@pytest.mark.parametrize("again", [
    copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_is_as_its_class_makes_it(runs, again):
    run = runs(grain="layer", make=Caching, model=Outer).steps(COUNTS[:2])
    other = again(run.model)
    other(run.tokens()[:, :-1]).sum().backward()
    assert other.inner.cache.keys
    assert b"Caches" not in pickle.dumps(run.model)
