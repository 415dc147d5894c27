"""Dicts that layers share: one leaves there what later ones read, as those of
Gemma 3n and Gemma 4 do with keys and values.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections

import pytest
from models import GRAINS, LAYERS, Block, Model, torch
from torch.utils.checkpoint import checkpoint


class Left(collections.UserDict):
    """A kind of somebody's own."""


class Shares(Block):
    """Leaves something, and reads what the others have left."""

    def forward(self, x, left=None):
        y = super().forward(x)
        for one, other in left.values():
            y = y + one * other.sin()
        left[f"{len(left)}"] = y.tanh(), x
        return y


class Given(Model):
    kind = Left
    keeps = False

    def run_layers(self, x):
        left = self.kind()
        for layer in self.layers:
            x = layer(x, left=left)
        self.left = left if self.keeps else None
        return x


@pytest.mark.parametrize("verify", ["off", "always"])
@pytest.mark.parametrize("grain", GRAINS)
def test_layers_share_a_dict(pair, grain, verify):
    run = pair(lambda r: r.steps(), grain=grain, make=Shares, model=Given,
               verify=verify, apart="no variable" if grain == "chunk" else None)
    stats = run.attached.stats()
    assert stats["verify"]["differences"] == {}
    assert set(stats["eager_calls"]) <= {"warmup", "refused"}


def test_the_caller_finds_what_was_left(pair):
    """Its dict has what it has eagerly, and in that order."""
    class Keeps(Given):
        keeps = True

    def train(run):
        for _ in range(5):
            run.step(2)
            assert type(run.model.left) is Left
            assert [*run.model.left] == [f"{i}" for i in range(LAYERS)]
            for one, other in run.model.left.values():
                run.note(one)
                run.note(other)

    pair(train, make=Shares, model=Keeps)


class Takes(Block):
    """Takes out what it reads, and puts something in its place."""

    def forward(self, x, left=None):
        y = super().forward(x + left.pop("x", 0.0))
        if "y" in left:
            left["y"] = left["y"] + y
        else:
            left["y"] = y
        left["x"] = y.cos()
        if len(left) > 2:
            del left["z"]
        return y


class Filled(Given):
    def run_layers(self, x):
        left = Left(z=x.sin())
        for layer in self.layers:
            x = layer(x, left=left)
        assert [*left] == ["y", "x"]
        return x + left["y"]


@pytest.mark.parametrize("verify", ["off", "always"])
def test_what_is_taken_out_or_replaced(pair, verify):
    pair(lambda r: r.steps(), make=Takes, model=Filled, verify=verify)


def test_another_kind_is_another_shape(pair):
    """Of which no graph of the first is for the second."""
    class Other(collections.UserDict):
        pass

    class Varies(Shares):
        def forward(self, x, left=None):
            return super().forward(x * len(type(left).__name__), left)

    def train(run):
        for i in (0, 0, 0, 1, 1, 1, 0, 1):
            run.model.kind = Other if i else Left
            run.step(1)

    run = pair(train, make=Varies, model=Given, eager=["input"])
    assert len(run.attached.stats()["banks"]) == 2


def test_a_dict_that_is_more_than_one_is_eager(pair):
    class More(collections.UserDict):
        def __init__(self):
            super().__init__()
            self.count = 0

    class Counted(Given):
        kind = More

    run = pair(lambda r: r.steps(), make=Shares, model=Counted, replays=False,
               eager=["input"])
    assert "More goes into the layer" in run.attached.explain()


def test_layers_that_are_checkpointed(pair):
    """Which run twice, and leave things twice."""
    class Checkpointed(Given):
        def run_layers(self, x):
            left = Left()
            self.layers[0].leaves = True
            for layer in self.layers:
                x = checkpoint(layer, x, left=left, use_reentrant=False)
            return x

    class Same(Block):
        leaves = False

        def forward(self, x, left=None):
            y = super().forward(x)
            if self.leaves:
                left["one"] = y.tanh()
            return y * left["one"]

    pair(lambda r: r.steps(), make=Same, model=Checkpointed,
         eager=["checkpoint"])


def test_layers_attached_anew(pair):
    """Their dicts are those of before."""
    def train(run):
        run.steps()
        if run.attached is not None:
            run.detach()
            run.attach()
        run.steps()

    pair(train, make=Shares, model=Given)


def test_weights_that_are_replaced(pair):
    """The call at which they are attached anew has its dict."""
    def train(run):
        run.steps()
        for parameter in run.model.parameters():
            parameter.data = parameter.data.clone()
        run.steps()

    run = pair(train, make=Shares, model=Given, eager=["replaced"])
    assert run.attached.stats()["renewals"] == 1


def test_evaluation(pair):
    def train(run):
        for _ in range(4):
            run.step(1)
            run.model.eval()
            with torch.no_grad():
                run.loss()
                run.loss()
            run.model.train()

    pair(train, make=Shares, model=Given, eval=True, eager=None)
