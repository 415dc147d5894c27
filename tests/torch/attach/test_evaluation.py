"""Evaluation from graphs of its own, and eager's bits.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib

import pytest
import softpool
from models import (BATCH, COUNTS, DEVICE, GRAINS, HAS_GPU, LAYERS, SEGMENTS,
                    WHOLE, WIDTH, Block, Model, Normed, collect, nn, same,
                    torch)
from torch.utils.checkpoint import checkpoint

import graphhooks

GRAIN = pytest.mark.parametrize("grain", GRAINS)
WHOLES = pytest.mark.parametrize("grain", WHOLE)
MODES = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode}
MODE = pytest.mark.parametrize("mode", MODES)


@contextlib.contextmanager
def evaluating(model, mode=torch.no_grad):
    model.eval()
    try:
        with mode():
            yield
    finally:
        model.train()


def evaluate(run, *lengths, mode=torch.no_grad, batch=BATCH) -> None:
    with evaluating(run.model, mode):
        for length in lengths:
            run.loss(batch, length)


def of(run) -> dict:
    return run.attached.stats()["eval"]


def interleaved(run) -> None:
    evaluate(run, 32)
    for count in COUNTS:
        run.step(count)
        evaluate(run, 32, 32)


@GRAIN
@MODE
@pytest.mark.parametrize("make", [Block, lambda: Block(0.1, 0.1), Normed],
                         ids=["plain", "dropout", "buffers"])
def test_it_replays_between_steps(pair, grain, mode, make):
    def train(run):
        evaluate(run, 32, mode=MODES[mode])
        for count in COUNTS:
            run.step(count)
            evaluate(run, 32, 32, mode=MODES[mode])

    run = pair(train, grain=grain, make=make, eval=True)
    n, stats = SEGMENTS[grain], of(run)
    assert stats["recordings"] == n
    assert stats["replays"] == n * 2 * len(COUNTS)
    assert stats["eager_calls"] == {"warmup": n}
    assert stats["passes"] == 1 + 2 * len(COUNTS)
    assert run.attached.stats()["banks"][0]["recordings"] == 2 * n
    assert f"evaluation: {n} recordings, {stats['replays']} replays" \
        in run.attached.explain()


@GRAIN
def test_without_the_option_it_is_eager(pair, grain):
    run = pair(interleaved, grain=grain, eager=["forward_only"])
    assert "eval" not in run.attached.stats()
    assert "evaluation" not in run.attached.explain()


@GRAIN
@pytest.mark.parametrize("first", [0, 1, 2, 4])
def test_evaluations_before_the_training(pair, grain, first):
    def train(run):
        evaluate(run, *[32] * first)
        interleaved(run)

    run = pair(train, grain=grain, eval=True)
    assert of(run)["recordings"] == SEGMENTS[grain]
    assert of(run)["eager_calls"] == {"warmup": SEGMENTS[grain]}


@GRAIN
@pytest.mark.parametrize("in_flight", [2, 4])
def test_microbatches_in_flight_around_it(pair, grain, in_flight):
    """Backwards wait for what is in all slots, and in some later."""
    def train(run):
        for count in COUNTS * 2:
            run.zero()
            waiting = []
            for i in range(count):
                waiting.append(run.loss())
                if i % 2:
                    evaluate(run, 32)
                if len(waiting) == in_flight:
                    waiting.pop(0).backward()
                if i % 3 == 0:
                    evaluate(run, 32)
            for loss in waiting:
                loss.backward()
                evaluate(run, 32)
            run.optimizer.step()
            evaluate(run, 32)

    run = pair(train, grain=grain, eval=True)
    stats = of(run)
    assert set(stats["eager_calls"]) == {"warmup", "busy"}
    assert stats["replays"] > 0
    assert "in evaluation, a backward waits" in run.attached.explain()


@GRAIN
@pytest.mark.parametrize("set_to_none", [True, False, None])
def test_gradients_in_place_are_not_written(pair, grain, set_to_none):
    """They lie in the pool, and are read after the evaluation."""
    def train(run):
        for i, count in enumerate([1, 1, 1, 2, 1, 3, 1]):
            run.zero(set_to_none)
            run.backward(count)
            evaluate(run, *[32] * (i % 3))
            run.optimizer.step()
            evaluate(run, *[32] * (i % 2))

    run = pair(train, grain=grain, eval=True)
    assert of(run)["replays"] > 0


@GRAIN
@pytest.mark.parametrize("many", [1, 2])
def test_gradients_in_place_while_it_is_recorded(pair, grain, many):
    def train(run):
        run.steps([1] * 4)
        for length in (32, 24, 32):
            for _ in range(2):
                run.zero()
                run.backward(many)
                evaluate(run, length)
                run.optimizer.step()

    run = pair(train, grain=grain, eval=True)
    assert of(run)["recordings"] == 2 * SEGMENTS[grain]


@GRAIN
def test_accumulation_around_it(pair, grain):
    def train(run):
        for count in COUNTS:
            run.zero()
            for _ in range(count):
                run.loss().backward()
                evaluate(run, 32)
            run.optimizer.step()

    run = pair(train, grain=grain, eval=True)
    assert of(run)["eager_calls"] == {"warmup": SEGMENTS[grain]}


@GRAIN
def test_several_lengths(pair, grain):
    """Each from its second time on, those of the training beside."""
    def train(run):
        for lengths in ((32,), (24, 32), (24, 16), (32, 24), (16, 16)):
            run.zero()
            for length in lengths:
                run.loss(length=length).backward()
            run.optimizer.step()
            evaluate(run, *lengths, 8)

    run = pair(train, grain=grain, eval=True, eager=["input"])
    n = SEGMENTS[grain]
    found = {b["shape"]: b for b in of(run)["banks"]}
    assert {shape: b["replays"] for shape, b in found.items()} == {
        f"({BATCH}, {length}, {WIDTH})": n * count
        for length, count in ((32, 2), (24, 2), (16, 2), (8, 4))}
    assert all(b["recordings"] == n for b in found.values())


@GRAIN
def test_no_more_shapes_than_max_banks(pair, grain):
    def train(run):
        run.steps([2, 2])
        for _ in range(3):
            evaluate(run, 32, 24, 16, 8)
            run.step(2)

    run = pair(train, grain=grain, eval=True, max_banks=2)
    stats = of(run)
    assert sum(b["graphs"] > 0 for b in stats["banks"]) == 2
    assert stats["eager_calls"]["banks"] == 4 * SEGMENTS[grain]
    assert run.attached.stats()["banks"][0]["graphs"] > 0


@GRAIN
def test_a_shape_that_gives_way(pair, grain):
    def train(run):
        for lengths in ((32, 32, 32), (24, 24, 24, 24), (32, 32, 32, 32)):
            evaluate(run, *lengths)
            run.step(2)

    run = pair(train, grain=grain, eval=True, max_banks=1)
    assert sum(b["evictions"] for b in of(run)["banks"]) == 2
    assert run.attached.stats()["banks"][0]["evictions"] == 0


# ---- what a caller has ------------------------------------------------------


class Bare(Model):
    """What the stack gives is what the model gives."""

    def forward(self, tokens):
        return self.run_layers(self.embed(tokens))


@WHOLES
@MODE
def test_results_stay_as_they_are(pair, grain, mode):
    """Those of the last layer, and of each, whatever runs there next."""
    kept = {}

    class Keeping(Model):
        def run_layers(self, x):
            for layer in self.layers:
                x = layer(x)
                if not torch.is_grad_enabled():
                    kept.setdefault(self, []).append(x)
            return x

    def train(run):
        for count in COUNTS:
            evaluate(run, 32, 24, mode=MODES[mode])
            run.step(count)
        for tensor in kept[run.model]:
            run.note(tensor)

    run = pair(train, grain=grain, model=Keeping, eval=True)
    assert of(run)["replays"] > 0


@MODE
def test_a_result_that_is_changed_on_its_way(pair, mode):
    """In place, or by a view."""
    class Changing(Model):
        def run_layers(self, x):
            for i, layer in enumerate(self.layers):
                x = layer(x)
                if not torch.is_grad_enabled():
                    if i == 0:
                        x[:, 1:].mul_(1.5)
                    x = x + 1 if i == 1 else x.add_(2)
            return x

    def train(run):
        interleaved(run)
        evaluate(run, 32, 32, mode=MODES[mode])

    run = pair(train, model=Changing, eval=True)
    assert of(run)["replays"] > 0


def test_a_change_on_the_way_that_begins_later(pair):
    """The graph of the next layer has read where the one before it wrote."""
    class Changing(Model):
        on = False

        def run_layers(self, x):
            for layer in self.layers:
                x = layer(x)
                if self.on:
                    x.mul_(1.5)
            return x

    def train(run):
        interleaved(run)
        for run.model.on in (True, False, True):
            evaluate(run, 32, 32)
        run.model.on = False
        run.step(2)

    run = pair(train, model=Changing, eval=True)
    assert set(of(run)["eager_calls"]) == {"warmup"}


def test_a_skip_over_layers(pair):
    class Skipping(Model):
        def run_layers(self, x):
            first, second, third = self.layers
            one = first(x)
            return third(second(one) + one)

    pair(interleaved, model=Skipping, eval=True)


@pytest.mark.parametrize("earlier", [0, 3])
def test_a_training_between_two_layers(pair, earlier):
    """It writes where the first one's graph has left its result."""
    def train(run):
        run.steps([2] * earlier)
        interleaved(run)
        tokens = run.tokens()[:, :-1]
        first, *others = run.model.layers
        for _ in range(3):
            with evaluating(run.model):
                x = first(run.model.embed(tokens))
            run.step(2)
            with evaluating(run.model):
                for layer in others:
                    x = layer(x)
            run.note(x)

    pair(train, eval=True)


def test_layers_that_are_called_in_another_order(pair):
    """What one frees, one that was recorded later has its result in."""
    class Turning(Model):
        order = 0, 1, 2

        def run_layers(self, x):
            for i in self.order:
                x = self.layers[i](x)
            return x

    def train(run):
        interleaved(run)
        for order in ((2, 1, 0), (0, 2, 1), (1, 2), (0, 1, 2), (1, 0, 2)):
            run.model.order = order
            evaluate(run, 32, 32)
        run.model.order = 0, 1, 2
        interleaved(run)

    pair(train, eval=True)


def test_a_layer_that_runs_between_two_others(pair):
    """It was recorded before them, and writes where one has its result."""
    class Turning(Model):
        turned = False

        def run_layers(self, x):
            first, second, third = self.layers
            if not self.turned:
                return third(second(first(x) * 1))
            y = second(x)
            return third(y) + first(x) if self.turned == "last" \
                else first(x) + third(y)

    def train(run):
        interleaved(run)
        for turned in ("last", "between", False, "between"):
            run.model.turned = turned
            evaluate(run, 32, 32)
        run.model.turned = False
        interleaved(run)

    pair(train, model=Turning, eval=True)


def test_a_layer_that_comes_later(pair):
    """Recorded when others are, it lies apart from what they leave."""
    class Leaving(Model):
        out = 1

        def run_layers(self, x):
            for i, layer in enumerate(self.layers):
                if i != self.out or torch.is_grad_enabled():
                    x = layer(x)
            return x

    def train(run):
        for run.model.out in (1, 1, 1, None, None, None, 0, None):
            run.step(2)
            evaluate(run, 32, 32)

    run = pair(train, model=Leaving, eval=True)
    assert set(of(run)["eager_calls"]) == {"warmup"}


def test_a_pass_that_ends_early(pair):
    class Stop(Exception):
        pass

    class Stopping(Model):
        at = None

        def run_layers(self, x):
            for i, layer in enumerate(self.layers):
                if i == self.at:
                    raise Stop
                x = layer(x)
            return x

    def train(run):
        interleaved(run)
        for run.model.at in (2, 1, None):
            with contextlib.suppress(Stop):
                evaluate(run, 32)
        run.model.at = None
        interleaved(run)

    for grain in WHOLE:
        run = pair(train, grain=grain, model=Stopping, eval=True,
                   make=lambda: Block(0.1))
        assert of(run)["refused"] == {}


# ---- modes ------------------------------------------------------------------


@GRAIN
def test_eval_with_gradients_on_is_eager(pair, grain):
    """Somebody may go back."""
    def train(run):
        for count in COUNTS:
            run.step(count)
            run.model.eval()
            run.loss().backward()
            run.model.train()

    run = pair(train, grain=grain, eval=True, eager=["forward_only"])
    assert of(run)["passes"] == 0
    assert "evaluate under torch.no_grad()" in run.attached.explain()


@GRAIN
@pytest.mark.parametrize("make", [lambda: Block(0.1, 0.1), Normed],
                         ids=["dropout", "buffers"])
def test_train_mode_without_gradients(pair, grain, make):
    """It draws its numbers, and writes its buffers; and both modes in turn."""
    def train(run):
        for count in COUNTS:
            run.step(count)
            with torch.no_grad():
                run.loss()
                run.loss()
            evaluate(run, 32)

    run = pair(train, grain=grain, make=make, eval=True)
    assert len(of(run)["banks"]) == 2
    assert all(b["replays"] > 0 for b in of(run)["banks"])


@pytest.mark.parametrize("grain", ["layer", "part"])
@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_the_first_run_of_reentrant_checkpoints(pair, grain, rate):
    """Without gradients, and its results are kept for the second."""
    class Checkpointed(Model):
        def run_layers(self, x):
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=True)
            return x

    def train(run):
        for count in COUNTS:
            run.step(count, in_flight=2)
            evaluate(run, 32)

    run = pair(train, grain=grain, model=Checkpointed, eval=True, eager=None,
               make=lambda: Block(rate, rate))
    assert of(run)["replays"] > 0


@WHOLES
def test_both_modes_without_gradients_share_graphs(pair, grain):
    def train(run):
        for count in COUNTS:
            run.step(count)
            for mode in MODES.values():
                evaluate(run, 32, mode=mode)

    run = pair(train, grain=grain, eval=True)
    assert of(run)["recordings"] == SEGMENTS[grain]


@GRAIN
def test_gradients_that_inference_mode_moves_can_be_written(pair, grain):
    """It records where the training has outputs and gradients, and replays
    between a backward and what is done to gradients."""
    def train(run):
        for count in (1, 1, 1, 2, 2):
            run.zero()
            run.backward(count)
            evaluate(run, 32, 32, mode=torch.inference_mode)
            for p in run.model.parameters():
                p.grad.mul_(0.5)
            run.optimizer.step()

    run = pair(train, grain=grain, eval=True)
    assert of(run)["replays"] > 0
    assert run.attached.stats()["eager_calls"]["gradients_moved"] > 0


@WHOLES
def test_a_result_of_inference_mode_can_be_trained_on(runs, grain):
    run = runs(grain=grain, model=Bare, eval=True)
    for _ in range(3):
        with evaluating(run.model, torch.inference_mode):
            x = run.model(run.tokens()[:, :-1])
    assert not x.is_inference()
    assert same(x * 1, x)


# ---- weights, attributes, arguments -----------------------------------------


@GRAIN
def test_weights_that_are_lent_for_an_evaluation(pair, grain):
    """As averages are: the training keeps its graphs."""
    def train(run):
        averages = {n: p.detach().clone() * 0.5
                    for n, p in run.model.named_parameters()}
        for count in COUNTS * 2:
            run.step(count)
            own = {n: p.data for n, p in run.model.named_parameters()}
            for n, p in run.model.named_parameters():
                p.data = averages[n]
            evaluate(run, 32, 32)
            for n, p in run.model.named_parameters():
                p.data = own[n]
            evaluate(run, 32, 32)

    run = pair(train, grain=grain, eval=True)
    assert set(of(run)["eager_calls"]) == {"warmup", "replaced"}
    assert of(run)["replays"] > 0


@WHOLES
def test_an_attribute_that_changes(pair, grain):
    class Scaled(Block):
        def __init__(self) -> None:
            super().__init__()
            self.scale = 1.0

        def forward(self, x):
            return super().forward(x) * self.scale

    def train(run):
        interleaved(run)
        for value in (2.0, 1.0):
            for layer in run.model.layers:
                layer.scale = value
            evaluate(run, 32, 32)

    run = pair(train, grain=grain, make=Scaled, eval=True)
    assert of(run)["eager_calls"]["attributes"] == 2 * SEGMENTS[grain]
    assert "in evaluation, " in run.attached.explain()


@WHOLES
def test_a_layer_that_waits_for_the_device(pair, grain):
    """In evaluation alone: the training has its graphs."""
    class Waiting(Block):
        def forward(self, x):
            if not self.training and x.sum().item() > 1e9:
                return x
            return super().forward(x)

    run = pair(interleaved, grain=grain, make=Waiting, eval=True)
    assert len(of(run)["refused"]) == SEGMENTS[grain]
    assert "it waits for the device" in run.attached.explain()


def test_a_layer_that_turns_gradients_on(pair):
    class Turning(Block):
        def forward(self, x):
            with torch.enable_grad():
                return super().forward(x)

    run = pair(interleaved, make=Turning, eval=True)
    assert len(of(run)["refused"]) == LAYERS
    assert "it turns gradients on" in run.attached.explain()


def test_a_layer_that_keeps_what_it_was_given(pair):
    class Keeping(Block):
        def forward(self, x):
            if not torch.is_grad_enabled():
                self.last = x
            return super().forward(x)

    run = pair(interleaved, make=Keeping, eval=True, eager=None)
    assert of(run)["replays"] == 0


class Masked(Model):
    """Tensors, numbers and keywords, and several results."""

    class Layer(Block):
        def forward(self, x, mask, *, scale=1.0):
            y = super().forward(x)
            return y * mask * scale, y.mean(-1)

    def __init__(self, make=Block) -> None:
        super().__init__(make)
        self.layers = nn.ModuleList(self.Layer() for _ in range(LAYERS))

    def run_layers(self, x):
        mask = torch.ones_like(x[..., :1])
        mask[:, ::3] = 0.5
        for layer in self.layers:
            x, mean = layer(x, mask, scale=0.9)
            x = x + mean.mean()
        return x


def test_arguments_and_several_results(pair):
    run = pair(interleaved, model=Masked, eval=True)
    assert of(run)["replays"] > 0


@GRAIN
def test_numbers_of_the_batch(pair, grain):
    def train(run):
        for count in COUNTS:
            run.step(count)
            evaluate(run, 32, 32, batch=BATCH)
            evaluate(run, 32, batch=1)

    assert len(of(pair(train, grain=grain, eval=True))["banks"]) == 2


# ---- beside other things ----------------------------------------------------


class Deep(Model):
    """Of as many layers as an offload has a use for."""

    def __init__(self, make=Block) -> None:
        super().__init__(make)
        self.layers = nn.ModuleList(make() for _ in range(2 * LAYERS))


@GRAIN
@pytest.mark.parametrize("in_flight", [1, 4])
@pytest.mark.parametrize("what", [True, "mlp"])
def test_with_offload(pair, grain, in_flight, what):
    def train(run):
        for count in COUNTS:
            run.zero()
            run.backward(count, in_flight)
            evaluate(run, 32)
            run.optimizer.step()
            evaluate(run, 32, 24)

    run = pair(train, grain=grain, eval=True, offload=what, model=Deep,
               offload_min_bytes=256, max_slots=8)
    assert grain == "chunk" and in_flight == 1 \
        or run.attached.stats()["offload"]["out_bytes"] > 0
    assert set(of(run)["eager_calls"]) == {"warmup", "input"}
    assert of(run)["replays"] > 0


@GRAIN
def test_a_backward_that_never_comes(pair, grain):
    """What was to go back is let go; some of it has begun to."""
    def train(run):
        for i, count in enumerate(COUNTS):
            run.step(count)
            loss = run.loss()
            if i % 2:
                with contextlib.suppress(ZeroDivisionError):
                    run.model.layers[1].register_forward_hook(
                        lambda *_: None).remove()
                    loss.register_hook(lambda _: 1 / 0)
                    loss.backward()
            del loss
            collect()
            evaluate(run, 32, 32)

    pair(train, grain=grain, eval=True, offload=True, offload_min_bytes=256)


@WHOLES
def test_side_streams(pair, grain):
    def train(run):
        side = torch.cuda.Stream()
        for count in COUNTS:
            run.step(count)
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                evaluate(run, 32, 32)
            torch.cuda.current_stream().wait_stream(side)

    assert of(pair(train, grain=grain, eval=True))["replays"] > 0


@WHOLES
def test_streams_wait_for_each_other(runs, grain, monkeypatch):
    """They are in one memory, whether the caller has them wait or not."""
    run = runs(grain=grain, eval=True)
    interleaved(run)
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    kind, waits = type(main), []
    monkeypatch.setattr(kind, "wait_stream", lambda stream, other:
                        waits.append((stream.cuda_stream, other.cuda_stream)))
    for _ in range(2):
        _forget_draws(run)
        with torch.cuda.stream(side):
            evaluate(run, 32)
        assert waits == [(side.cuda_stream, main.cuda_stream)]
        waits.clear()
    _forget_draws(run)
    run.loss()
    assert waits == [(main.cuda_stream, side.cuda_stream)]


def _forget_draws(run) -> None:
    """Graphs that draw numbers wait for each other anyway, and softtorch's
    are all taken for such."""
    run.attached.captures._drawn = None


@pytest.mark.parametrize("moves", [False, True])
def test_copies_of_a_backward_that_has_ended_early(runs, monkeypatch, moves):
    """Somebody waits for those that are under way."""
    run = runs(grain="layer", eval=True, model=Deep, **(
        {"offload": True, "offload_min_bytes": 256} if moves else {}))
    interleaved(run)
    waits = []
    monkeypatch.setattr(torch.cuda, "synchronize",
                        lambda *_: waits.append(None))
    loss = run.loss()
    evaluate(run, 32)
    assert waits == [] and of(run)["eager_calls"]["busy"] > 0
    del loss
    collect()
    busy = of(run)["eager_calls"]["busy"]
    evaluate(run, 32, 32)
    assert len(waits) == moves
    assert of(run)["eager_calls"]["busy"] == busy


@WHOLES
def test_more_steps_than_freeze_allows(pair, grain):
    def train(run):
        for count in COUNTS:
            run.step(count)
            evaluate(run, 32, 32)
        evaluate(run, 24, 24, 24)

    run = pair(train, grain=grain, eval=True, freeze=2)
    assert of(run)["eager_calls"] == {"warmup": SEGMENTS[grain],
                                      "input": SEGMENTS[grain],
                                      "frozen": 2 * SEGMENTS[grain]}


def pool_bytes(runs, grain, train, **options) -> int:
    run = runs(grain=grain, **options)
    collect()
    before = softpool.bytes_of_pools()
    train(run)
    found = softpool.bytes_of_pools() - before
    run.detach()
    return found


@pytest.mark.skipif(HAS_GPU, reason="torch's own allocator is in charge")
@GRAIN
@pytest.mark.parametrize("first", [False, True])
def test_it_takes_no_memory_beside_the_training(runs, grain, first):
    """What one has let go, the other one uses."""
    def train(run):
        if first:
            evaluate(run, 32, 32, 32)
        interleaved(run)

    alone = pool_bytes(runs, grain, lambda run: run.steps())
    assert pool_bytes(runs, grain, train, eval=True) <= alone


@WHOLES
def test_nothing_is_left_after_a_detach(runs, grain):
    run = runs(grain=grain, eval=True)
    interleaved(run)
    stats = of(run)
    attached = run.attached
    run.detach()
    assert attached.stats()["eval"] == stats
    assert not attached.captures.graphs
    evaluate(run, 32)
    run.step(2)


def test_a_second_attach(runs):
    run = runs(grain="layer", eval=True)
    for _ in range(2):
        interleaved(run)
        assert of(run)["replays"] > 0
        run.detach()
        run.attach(eval=True)


@pytest.mark.parametrize("options, pattern", [
    ({"eval": 1}, "eval is 1; it is True or False"),
    ({"eval": "yes"}, "eval is 'yes'; it is True or False"),
    ({"eval": True, "graphs": False, "offload": True},
     "graphs=False turns graphs off"),
])
def test_what_is_refused(options, pattern):
    with pytest.raises(graphhooks.Error, match=pattern):
        graphhooks.attach(Model().to(DEVICE).cuda(), **options)


def test_it_may_be_turned_off():
    with graphhooks.attach(Model(), eval=True, enable=False) as attached:
        assert attached.stats()["eager_calls"] == {}
