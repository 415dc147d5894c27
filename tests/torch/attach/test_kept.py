"""Tensors that were `.grad` stay as they are for who keeps them, though graphs
write the gradients of all steps to one place; and so do outputs.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import itertools
import types

import pytest
from models import COUNTS, WHOLE, Block, Model, Refused, torch

from graphhooks.torch.grad.gradient_buffers import Home

GRAIN = pytest.mark.parametrize("grain", WHOLE)


def keep(run, kept: list) -> None:
    kept += [p.grad for layer in run.model.layers
             for p in layer.parameters()]


def steps(run, counts, zero_within=False):
    """All are noted at the end, when graphs have run often."""
    kept: list = []
    for count in counts:
        run.zero()
        for _ in range(count):
            run.loss().backward()
            if zero_within:
                keep(run, kept)
                run.zero()
        if not zero_within:
            keep(run, kept)
            run.optimizer.step()
        else:
            run.attached and run.attached.step()
    for gradient in kept:
        run.note(gradient, "kept")


@GRAIN
@pytest.mark.parametrize("counts", [[1] * 5, [2] * 5, COUNTS[:3]], ids=str)
@pytest.mark.parametrize("options", [{}, {"max_slots": 1}], ids=str)
def test_gradients_that_are_kept(pair, grain, counts, options):
    pair(lambda run: steps(run, counts), grain=grain, make=lambda: Block(0.1),
         eager=None, **options)


@GRAIN
def test_gradients_of_each_microbatch_that_are_kept(pair, grain):
    pair(lambda run: steps(run, [3] * 4, zero_within=True), grain=grain,
         eager=None)


@GRAIN
@pytest.mark.parametrize("how", [{}, {"in_flight": 2},
                                 {"set_to_none": False}], ids=str)
@pytest.mark.parametrize("counts", [[1] * 5, [3, 2, 3]], ids=str)
def test_nothing_is_copied_for_nobody(runs, monkeypatch, grain, how, counts):
    copied = []
    copy_out = Home.copy_out
    monkeypatch.setattr(Home, "copy_out", lambda home, lists: copied.append(
        copy_out(home, lists)) or copied[-1])
    run = runs(grain=grain)
    run.steps(counts, **how)
    assert copied and not any(copied)


class Keeps(Model):
    """Somebody has something of what comes out of a layer; the last of it is
    used once more."""

    of = "nothing"
    layer = -1

    def __init__(self, make) -> None:
        super().__init__(make)
        self.kept: list = []

    def run_layers(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if i == self.layer % len(self.layers):
                self.kept += {"nothing": [], "it": [x], "a view": [x[:, :8]],
                              "detached": [x.detach()],
                              "a copy": [x.detach().clone()]}[self.of]
        return x


def keeping(of, layer=-1):
    return type("Own", (Keeps,), {"of": of, "layer": layer})


def keeps_outputs(counts, in_flight=1, most=None, lengths=(32,)):
    """All are noted at the end; or each step's, and the last ones are used."""
    def train(run):
        run.model.kept.clear()
        lengths_ = itertools.cycle(lengths)
        for count in counts:
            run.zero()
            waiting = []
            for _ in range(count):
                used = run.model.kept[:1] if most is not None else []
                loss = run.loss(length=next(lengths_))
                waiting.append(loss + sum(t.detach().square().mean()
                                          for t in used))
                if len(waiting) == in_flight:
                    waiting.pop(0).backward()
            for loss in waiting:
                loss.backward()
            run.optimizer.step()
            if most is not None:
                for tensor in run.model.kept:
                    run.note(tensor, "kept")
                del run.model.kept[:-most]
        for tensor in run.model.kept:
            run.note(tensor, "kept")
        run.model.kept.clear()
    return train


@GRAIN
@pytest.mark.parametrize("layer", [0, -1])
@pytest.mark.parametrize("of", ["it", "a view", "detached"])
@pytest.mark.parametrize("how", [{"counts": [1] * 6}, {"counts": [3] * 4},
                                 {"counts": [3] * 4, "in_flight": 2},
                                 {"counts": [2] * 5, "most": 3}], ids=str)
def test_outputs_that_are_kept(pair, grain, layer, of, how):
    run = pair(keeps_outputs(**how), grain=grain, model=keeping(of, layer),
               make=lambda: Block(0.1), verify="off")
    said = run.attached.explain()
    assert said.count("returns copies") == 1
    assert run.attached.stats()["replays"] > 0


@GRAIN
@pytest.mark.parametrize("most", [None, 1])
def test_outputs_of_several_shapes_that_are_kept(pair, grain, most):
    """Those of shapes that share memory are kept for good, or for a step."""
    run = pair(keeps_outputs([4] * 8, lengths=(32, 24, 16), most=most),
               grain=grain, model=keeping("detached"), verify="off",
               eager=None)
    assert run.attached.stats()["replays"] > 0


def drops_losses(run):
    """Of the passes that are recorded; what is kept of them is let go of."""
    run.model.kept.clear()
    for i, count in enumerate([2] * 6):
        run.zero()
        for microbatch in range(count):
            loss = run.loss()
            if i == 1 and microbatch == 0:
                kept = run.model.kept[-1:]
                run.note(loss, "dropped")
                del loss
            else:
                loss.backward()
            run.model.kept.clear()
        run.optimizer.step()
        if i in (1, 2, 3):
            run.note(kept[0], "kept")
        if i == 3:
            kept.clear()


@GRAIN
@pytest.mark.parametrize("of", ["it", "a view", "detached"])
@pytest.mark.parametrize("layer", [0, -1])
def test_outputs_of_a_recording_to_which_no_backward_comes(pair, grain, of,
                                                           layer):
    run = pair(drops_losses, grain=grain, model=keeping(of, layer),
               eager=None)
    stats = run.attached.stats()
    assert stats["eager_calls"]["kept"] > 0
    assert "keep clones" in run.attached.explain()
    assert stats["replays"] >= 8  # once it was let go of


@GRAIN
def test_a_recording_to_which_no_backward_comes_keeps_nobody_waiting(pair,
                                                                     grain):
    pair(drops_losses, grain=grain, model=keeping("a copy"),
         make=lambda: Block(0.1))


@GRAIN
def test_outputs_that_are_kept_over_an_evaluation(pair, grain):
    def train(run):
        run.model.kept.clear()
        for _ in range(5):
            run.step(2)
            kept = run.model.kept[-1:]
            run.model.eval()
            with torch.no_grad():
                for _ in range(3):
                    run.loss()
            run.model.train()
            run.model.kept.clear()
            run.note(kept[0], "kept")

    evaluates = {"eval": True}
    pair(train, grain=grain, model=keeping("detached"), eager=None,
         **evaluates)


@GRAIN
def test_what_is_kept_of_a_pass_that_verify_has_put_right(pair, grain):
    """A number that changes in silence, and outputs that are copies."""
    numbers = {}
    shown = types.MappingProxyType(numbers)  # which no finder looks into

    class Read(Block):
        def forward(self, x):
            return super().forward(x) * shown["scale"]

    def train(run):
        run.model.kept.clear()
        for i in range(8):
            numbers["scale"] = 1.0 if i < 5 else 2.0
            run.step(1)
            run.note(run.model.kept[-1], "kept")
            del run.model.kept[:-1]

    pair(train, grain=grain, model=keeping("detached"), make=Read,
         verify="always", refused="", eager=None)


def with_refused(of, layer, which):
    """That layer is one that is refused."""
    class Own(keeping(of, layer)):
        def __init__(self, make) -> None:
            super().__init__(make)
            self.layers[which] = Refused(0.1)

    return Own


@pytest.mark.parametrize("of", ["it", "a view", "detached"])
@pytest.mark.parametrize("layer, which", [(0, 0), (1, 1), (-1, -1), (0, 1),
                                          (1, 0)])
@pytest.mark.parametrize("how", [
    {"counts": [1] * 6}, {"counts": [3] * 4, "in_flight": 2},
    {"counts": [2] * 5, "most": 3},
    {"counts": [2] * 6, "lengths": (32, 16)}], ids=str)
def test_a_layer_that_is_refused_keeps_no_other_from_its_graphs(
        pair, of, layer, which, how):
    """Who has its outputs has them alone, and they stay as they are."""
    run = pair(keeps_outputs(**how), model=with_refused(of, layer, which),
               make=lambda: Block(0.1), verify="off", eager=None,
               refused="changes an attribute")
    stats = run.attached.stats()
    assert len(stats["refused"]) == 1 and stats["replays"] > 0
    if "lengths" not in how:  # of which none can be moved
        assert "kept" not in stats["eager_calls"]
    assert next(iter(stats["refused"])) + " returns" not in \
        run.attached.explain()
    assert all(i.live is None for s in run.attached.segments
               for i in s.instances.values())


def test_a_refused_layer_whose_backward_does_not_come(pair):
    """It is let go of when its loss is."""
    def train(run):
        run.model.kept.clear()
        run.step(2, in_flight=2)
        run.zero()
        losses = [run.loss(), run.loss()]
        losses.pop(0).backward()
        run.optimizer.step()
        losses.clear()
        run.steps([2] * 3, in_flight=2)
        for tensor in run.model.kept:
            run.note(tensor, "kept")
        run.model.kept.clear()

    run = pair(train, model=with_refused("detached", 1, 1), eager=None,
               make=lambda: Block(0.1), refused="changes an attribute")
    assert "kept" not in run.attached.stats()["eager_calls"]


@GRAIN
@pytest.mark.parametrize("of", ["nothing", "a copy"])
@pytest.mark.parametrize("how", [
    {}, {"in_flight": 2}, {"lengths": (32, 24, 16)}], ids=str)
@pytest.mark.parametrize("verify", ["off", "always"])
def test_outputs_are_not_copied_for_nobody(runs, grain, of, how, verify):
    run = runs(grain=grain, model=keeping(of), verify=verify)
    keeps_outputs([3] * 5, **how)(run)
    assert "returns copies" not in run.attached.explain()
    assert "kept" not in run.attached.stats()["eager_calls"]


def test_a_tensor_of_the_layer_that_it_returns_stays_where_it_is(pair):
    class Table(Block):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.ones(64))

        def forward(self, x):
            return super().forward(x) * self.table, self.table

    class Takes(Model):
        def run_layers(self, x):
            for layer in self.layers:
                x, table = layer(x)
                layer.place = table.data_ptr()
            return x

    run = pair(lambda run: run.steps([2] * 4), make=Table, model=Takes,
               judge=False)
    assert "returns copies" not in run.attached.explain()


def test_one_that_is_still_grad_is_written_in_place(runs):
    """As autograd adds to it."""
    run = runs(grain="layer")
    run.steps([2, 2])
    run.zero(set_to_none=False)
    weight = run.model.layers[0].norm1.weight
    kept = weight.grad
    address = kept.data_ptr()
    run.backward(2)
    run.optimizer.step()
    run.zero(set_to_none=False)
    run.backward(2)
    assert weight.grad is kept and kept.data_ptr() == address
    assert bool(kept.abs().sum() > 0)
    torch.cuda.synchronize()


def test_a_refusal_lets_go_of_a_loss_that_is_gone(runs):
    """Its backward was to be recorded."""
    run = runs(grain="layer", max_slots=2)
    run.step(2)
    run.zero()
    one, gone = run.loss(), run.loss()
    one.backward()
    del one, gone
    run.optimizer.step()
    loss = run.loss()
    loss.backward(retain_graph=True)
    loss.backward()
    found = [i for s in run.attached.segments for i in s.instances.values()]
    assert run.attached.stats()["refused"] and len(found) > 1
    assert all(i.live is None for i in found)
