"""Chunks: a whole stack is one launch forward and one backward.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import copy

import pytest
from models import (COUNTS, LAYERS, WIDTH, Block, Model, Normed, adamw, nn,
                    torch)
from torch.utils.checkpoint import checkpoint

from graphhooks import Error  # noqa: E402
from graphhooks.torch.grad import staged_gradients  # noqa: E402


def test_one_launch_each(runs):
    run = runs(grain="chunk").steps(COUNTS[:2])
    before = run.attached.stats()["replays"]
    run.step(5)
    assert run.attached.stats()["replays"] - before == 2 * 5
    assert len(run.attached.segments) == 1


class Between(Model):
    """Something of the model's own goes between two layers."""

    def run_layers(self, x):
        for layer in self.layers:
            x = layer(x * 1.5)
        return x


class Backwards(Model):
    def run_layers(self, x):
        for layer in reversed(self.layers):
            x = layer(x)
        return x


class Fresh(Model):
    """Each layer is given a tensor that no layer was."""

    def run_layers(self, x):
        for layer in self.layers:
            x = layer(x.view_as(x))
        return x


@pytest.mark.parametrize("in_flight", [1, 2])
@pytest.mark.parametrize("model, why", [
    (Between, "neither the module before it has returned"),
    (Fresh, "neither the module before it has returned"),
    (Backwards, "")])
def test_what_is_no_chunk_has_graphs_of_its_layers(pair, model, why,
                                                   in_flight, caplog):
    run = pair(lambda r: r.steps(COUNTS + COUNTS[-1:], in_flight=in_flight),
               grain="chunk", model=model, apart=why)
    before = run.attached.stats()
    run.steps([2], in_flight=in_flight)
    after = run.attached.stats()
    assert after["eager_calls"] == before["eager_calls"]
    assert after["replays"] - before["replays"] == 4 * LAYERS
    assert after["renewals"] == 0
    assert "so each of its layers has graphs of its own" in caplog.text
    assert "eagerly from now on" not in caplog.text


class Paths(Model):
    """Calls its layers in whatever order."""

    path = (0, 1, 2)

    def run_layers(self, x):
        for i in self.path:
            x = self.layers[i](x)
        return x


@pytest.mark.parametrize("path, why", [
    ((0, 2), "layers.1 is not called before layers.2, as when another module"),
    ((0, 2, 1), "layers.1 is not called before layers.2"),
    ((0, 1, 1, 2), "layers.1 is called once more")], ids=str)
def test_another_path_than_recorded(pair, path, why):
    """The graph has run already when it shows."""
    def train(run):
        run.steps(COUNTS[:3])
        run.model.path = path
        run.steps(COUNTS[:2])
        run.model.path = (0, 1, 2)
        run.steps(COUNTS[:2])

    pair(train, grain="chunk", model=Paths, eager=None,
         refused=f"^{why}.*, and the graph has run already: granularity layer "
                 "allows that$")



def ending_early(run):
    """Some passes do, and nobody looks at results of the layers after it."""
    for count in COUNTS:
        run.step(count)
        run.model.path = (0, 1)
        run.loss()
        run.model.path = (0, 1, 2)


def test_the_way_may_end_early(pair):
    pair(ending_early, grain="chunk", model=Paths)


def one_that(make):
    """Only the first layer does."""
    made = []

    def make_next():
        made.append(make() if len(made) % LAYERS == 0 else Block())
        return made[-1]

    return make_next


TRACES = pytest.mark.parametrize("make", [lambda: Block(0.1), Normed],
                                 ids=["draws", "writes"])


@TRACES
def test_but_is_said_where_layers_leave_a_trace(runs, make):
    """The graph has left that of all layers."""
    run = runs(grain="chunk", model=Paths, make=make).steps(COUNTS[:3])
    run.model.path = (0, 1)
    run.loss()
    run.model.path = (0, 1, 2)
    replays = run.attached.stats()["replays"]
    run.steps(COUNTS[:2])
    stats = run.attached.stats()
    assert stats["replays"] == replays
    assert ("a pass ended before layers.2 was called, and its graph had drawn "
            "random numbers, or written buffers, for all layers"
            ) in stats["refused"]["layers.0 to layers.2"]


@TRACES
def test_and_not_where_those_that_do_were_called(pair, make):
    pair(ending_early, grain="chunk", model=Paths, make=one_that(make))


@TRACES
def test_who_begins_anew_after_that_is_right(pair, make):
    """As one does that has run out of memory."""
    def train(run):
        run.steps(COUNTS[:2])
        kept = copy.deepcopy(run.model.state_dict())
        run.step(COUNTS[2])
        run.model.path = (0, 1)
        run.loss()
        run.model.path = (0, 1, 2)
        run.model.load_state_dict(kept)
        torch.manual_seed(5)
        run.optimizer = adamw(run.model)
        run.steps(COUNTS)

    pair(train, grain="chunk", model=Paths, make=make,
         refused="a pass ended before layers.2")


def test_a_gradient_to_the_middle_alone(pair):
    """The recorded backward begins at the last layer."""
    def train(run):
        run.steps(COUNTS[:3])
        for path in ((0, 1), (0, 1, 2)):
            run.model.path = path
            run.steps(COUNTS[:2])

    pair(train, grain="chunk", model=Paths, eager=None,
         refused="a gradient comes to output 1")


@pytest.mark.parametrize("counts", [[1] * 5, COUNTS], ids=str)
def test_a_chunk_inside_one_step_is_learned_once(runs, counts):
    run = runs(grain="chunk").steps(counts)
    assert run.attached.stats()["eager_calls"] == {"warmup": counts[0]}


@pytest.mark.parametrize("steps, eager", [(0, 1), (1, COUNTS[0])])
def test_one_pass_is_watched_whatever_the_warmup(pair, steps, eager):
    run = pair(lambda r: r.steps(), grain="chunk", warmup_steps=steps)
    assert run.attached.stats()["eager_calls"] == {"warmup": eager}
    assert run.attached.stats()["replays"] == 2 * (sum(COUNTS) - eager)


def test_a_stack_of_one_layer(pair):
    class One(Model):
        def __init__(self, make) -> None:
            super().__init__(make)
            del self.layers[1:]

    run = pair(lambda r: r.steps(), grain="chunk", model=One)
    assert LAYERS > 1 and len(run.attached.segments) == 1


class Idle(Block):
    """Has parameters that it does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.idle = nn.Linear(WIDTH, WIDTH)


LANDINGS = pytest.mark.parametrize(
    "large", [0, 1 << 10, 1 << 30], ids=["one_by_one", "some", "together"])


@LANDINGS
@pytest.mark.parametrize("set_to_none", [True, False, None])
def test_ways_of_gradients_to_their_places(pair, monkeypatch, large,
                                           set_to_none):
    monkeypatch.setattr(staged_gradients, "LARGE", large)
    run = pair(lambda r: r.steps(COUNTS + COUNTS, set_to_none=set_to_none),
               grain="chunk", make=Idle)
    assert all(layer.idle.weight.grad is None for layer in run.model.layers)


class Both(Block):
    """Goes through its weights twice, and once in a backward of its own."""

    def forward(self, x):
        return (checkpoint(super().forward, x, use_reentrant=True)
                + self.mlp(self.norm2(x)))


@LANDINGS
def test_a_gradient_that_comes_in_two_pieces(pair, monkeypatch, large):
    monkeypatch.setattr(staged_gradients, "LARGE", large)
    pair(lambda r: r.steps(COUNTS), grain="chunk", make=Both)


# ---- several stacks --------------------------------------------------------


class Attends(Block):
    """A layer of a decoder, which is given what the encoder has made."""

    def forward(self, x, made):
        return super().forward(x + made)


class EncoderDecoder(Model):
    def __init__(self, make):
        super().__init__(make)
        self.decoder = nn.ModuleList(Attends() for _ in range(2))

    def run_layers(self, x):
        made = super().run_layers(x)
        for layer in self.decoder:
            x = layer(x, made)
        return x


@pytest.mark.parametrize("in_flight", [1, 3])
def test_an_encoder_and_a_decoder_are_a_chunk_each(pair, in_flight):
    run = pair(lambda r: r.steps(in_flight=in_flight), grain="chunk",
               model=EncoderDecoder)
    assert run.attached.stats()["recordings"] == 4 * in_flight


def test_a_chunk_beside_one_that_is_none_stays_whole(pair):
    class Two(EncoderDecoder, Between):
        """Of which the encoder is none."""

    run = pair(lambda r: r.steps(COUNTS + COUNTS[-1:]), grain="chunk",
               model=Two, apart="^layers.0 to layers.2: layers.1: it reads")
    assert len(run.attached.segments) == LAYERS + 1
