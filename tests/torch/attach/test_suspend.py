"""Graphs give their memory back and have it again: a training that is
suspended in between has the bits of one without graphs.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import random
import threading

import pytest
import softpool
from graphhooks import checkpoint
from graphhooks.torch.attach import suspension
from graphhooks.torch.record import outputs
from models import (COUNTS, GRAINS, HAS_GPU, WHOLE, Model, Refused, on_a_gpu,
                    torch)

import graphhooks

GRAIN = pytest.mark.parametrize("grain", GRAINS)
SOFT = pytest.mark.skipif(HAS_GPU, reason="a GPU tells no lost memory")


def suspended(run) -> None:
    """And resumed; others use the memory."""
    if run.attached is not None:
        run.attached.suspend()
        if HAS_GPU:
            torch.full((1 << 24,), float("nan"), device="cuda")
            torch.cuda.empty_cache()
        run.attached.resume()


def train(run) -> None:
    for count in COUNTS:
        run.step(count)
        suspended(run)


@GRAIN
@pytest.mark.parametrize("set_to_none", [True, False, None])
def test_between_steps(pair, grain, set_to_none):
    """Also with gradients that stay in place, or are added up for good."""
    def train(run):
        for count in COUNTS + COUNTS:
            run.step(count, set_to_none=set_to_none)
            suspended(run)

    pair(train, grain=grain, suspends=True, eager=None)


@GRAIN
def test_between_microbatches(pair, grain):
    def train(run):
        for count in COUNTS + COUNTS:
            run.zero()
            for _ in range(count):
                run.loss().backward()
                suspended(run)
            run.optimizer.step()

    pair(train, grain=grain, suspends=True, eager=None)


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("seed", range(4))
def test_anywhere(pair, grain, seed):
    """Shapes come and go, several are in flight, and somebody evaluates."""
    def train(run):
        luck = random.Random(seed)
        for count in COUNTS + COUNTS + COUNTS:
            run.zero()
            for _ in range(1 + count // 3):
                waiting = [run.loss(length=luck.choice((32, 16)))
                           for _ in range(luck.choice((1, 1, 2)))]
                for loss in waiting:
                    loss.backward()
                if luck.random() < 0.3:
                    suspended(run)
            run.optimizer.step()
            if luck.random() < 0.5:
                suspended(run)
            with torch.no_grad():
                run.loss()
            if luck.random() < 0.3:
                suspended(run)

    pair(train, grain=grain, suspends=True, eager=None, eval=True)


@pytest.mark.parametrize("options", [
    {"offload": True}, {"gradients": "autograd"}, {"verify": "always"},
    {"split_backward": True}], ids=lambda o: next(iter(o)))
def test_with_the_option(pair, options):
    pair(train, suspends=True, eager=None, **options)


class Deep(Model):
    """What leaves each layer is kept."""

    def run_layers(self, x):
        self.hidden = []
        for layer in self.layers:
            x = layer(x)
            self.hidden.append(x.detach())
        return x


def keeps(run) -> None:
    """Gradients, those of before, and what leaves the layers."""
    kept = []
    for _ in range(6):
        run.step(1)
        kept += run.model.hidden
        kept += [p.grad for p in run.model.layers.parameters()]
        suspended(run)
        for tensor in kept:
            run.note(tensor)


def test_what_somebody_keeps(pair):
    pair(keeps, model=Deep, suspends=True, eager=None)


def test_what_somebody_keeps_of_a_refused_layer(pair):
    class Own(Deep):
        def __init__(self, make):
            super().__init__(make)
            self.layers[1] = Refused()

    pair(keeps, model=Own, suspends=True, eager=None,
         refused="changes an attribute")


@pytest.mark.parametrize("grain", WHOLE)
def test_a_forward_that_is_in_flight_is_named(runs, grain):
    run = runs(grain=grain, suspends=True).steps(COUNTS)
    loss = run.loss()
    with pytest.raises(graphhooks.Error,
                       match=r"^layers\.0.* is in flight, .*go back first"):
        run.attached.suspend()
    loss.backward()
    run.attached.suspend()
    run.attached.resume()
    run.loss()  # and nobody can go back
    with pytest.raises(graphhooks.Error,
                       match=r"^layers\.0.* is in flight, .*cannot: end the "
                       r"step with attached\.step\(\)") as caught:
        run.attached.suspend()
    assert caught.value.name == "GH_ERR_STATE"
    run.attached.step()
    run.attached.suspend()
    run.attached.resume()
    run.steps(COUNTS)
    run.loss()
    run.optimizer.step()  # ends a step, too
    run.attached.suspend()


def test_what_a_backward_to_come_reads_stays(runs):
    """A forward is recorded, and its backward is not yet: nobody may keep its
    output, as that cannot be moved."""
    run = runs(grain="layer", model=Deep, suspends=True)
    run.step(2)
    run.loss()
    run.attached.step()
    with pytest.raises(graphhooks.Error,
                       match=r"keeps what layers\.0 has returned"):
        run.attached.suspend()
    run.model.hidden = []
    run.attached.suspend()
    run.attached.resume()
    run.steps(COUNTS)


def test_a_weight_gradient_that_is_put_off_is_in_flight(runs):
    run = runs(grain="layer", suspends=True, split_backward=True)
    run.steps(COUNTS)
    x = run.model.embed(run.tokens()[:, :-1]).detach().requires_grad_()
    torch.autograd.grad(run.model.run_layers(x).sum(), x)
    with pytest.raises(graphhooks.Error, match="its weights"):
        run.attached.suspend()
    run.attached.step()
    run.attached.suspend()


def test_within_a_backward_it_is_refused(runs):
    run = runs(grain="layer", suspends=True).steps(COUNTS)
    errors = []

    def suspend(_):
        with pytest.raises(graphhooks.Error, match="within a backward") as e:
            run.attached.suspend()
        errors.append(e)

    loss = run.loss()
    loss.register_hook(suspend)
    loss.backward()
    assert len(errors) == 1


def test_a_suspended_training_goes_on_when_it_is_resumed(runs):
    run = runs(grain="layer", suspends=True).steps(COUNTS)
    attached = run.attached
    with pytest.raises(graphhooks.Error, match="are not suspended"):
        attached.resume()
    attached.suspend()
    for call in attached.suspend, attached.step:
        with pytest.raises(graphhooks.Error,
                           match=r"are suspended: call resume\(\) first"):
            call()
    with pytest.raises(graphhooks.Error, match=r"resume\(\)"):
        run.loss()
    with torch.no_grad():
        run.loss()  # eagerly
    attached.resume()
    before = attached.stats()["replays"]
    run.steps(COUNTS)
    assert attached.stats()["replays"] > before
    attached.suspend()  # and detached so
    attached.detach()
    for call in attached.suspend, attached.resume:
        with pytest.raises(graphhooks.Error, match="attach again"):
            call()


def test_who_evaluates_suspended_graphs_reads_no_name_of_c(runs):
    run = runs(grain="layer", suspends=True, eval=True).steps(COUNTS)
    for _ in range(3):
        with torch.no_grad():
            run.loss()
    run.attached.suspend()
    for grad in torch.no_grad(), torch.enable_grad():
        with grad, pytest.raises(
                graphhooks.Error,
                match=r"^the graphs are suspended: call resume\(\) first$"):
            run.loss()
    run.attached.resume()
    with torch.no_grad():
        run.loss()
    run.steps(COUNTS)


def test_the_bytes_are_given_back(runs):
    run = runs(grain="chunk", suspends=True).steps(COUNTS)
    before = run.attached.memory()
    assert before["pool_bytes"] > 0 and before["pool_given"] == 0
    run.attached.suspend()
    after = run.attached.memory()
    assert after["pool_bytes"] == after["device_bytes"] == 0
    assert after["suspended"] == 1
    assert after["device_given"] >= before["slot_bytes"] > 0
    assert after["pool_given"] >= before["pool_bytes"]
    run.attached.resume()
    after = run.attached.memory()
    assert after["pool_bytes"] == before["pool_bytes"]
    assert after["device_bytes"] == before["device_bytes"]


def test_the_option_is_asked_for(runs, monkeypatch):
    run = runs(grain="layer")
    with pytest.raises(graphhooks.Error, match="attach with suspends=True"):
        run.attached.suspend()
    with pytest.raises(graphhooks.Error, match="are not suspended"):
        run.attached.resume()
    run.detach()
    with pytest.raises(graphhooks.Error, match="suspends is 1; it is True"):
        run.attach(suspends=1)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    with pytest.raises(graphhooks.Error, match="expandable_segments"):
        run.attach(suspends=True)


def test_without_graphs_it_does_nothing():
    attached = graphhooks.attach(torch.nn.Linear(1, 1), enable=False)
    attached.suspend()
    attached.resume()


# ---- what fails ------------------------------------------------------------


@SOFT
@pytest.mark.parametrize("call, entry", [
    ("suspend", "cuMemUnmap"), ("resume", "cuMemCreate")])
def test_what_fails_leaves_it_as_it_was(runs, call, entry):
    """All of it has memory, or none: each call of the driver fails in turn."""
    import softtorch

    run = runs(grain="layer", suspends=True).steps(COUNTS)
    attached = run.attached

    def has() -> tuple:
        memory = attached.memory()
        return (memory["suspended"], memory["device_bytes"],
                attached.suspension.arena.stats()["bytes"])

    had = has()
    if call == "resume":
        attached.suspend()
    before, failed = has(), 0
    while True:
        softtorch.configure(f"FAIL={entry}:{failed + 1}:2")
        try:
            getattr(attached, call)()
            break
        except graphhooks.Error as error:
            assert entry in str(error)
            failed += 1
        finally:
            softtorch.configure("FAIL=")
        assert has() == before
    assert failed > 1  # pools, and the session
    if call == "suspend":
        assert has() == (1, 0, 0)
        attached.resume()
    assert has() == had
    run.steps(COUNTS)


@SOFT
def test_a_replay_of_suspended_memory_is_reported(runs, caplog):
    run = runs(grain="layer", suspends=True).steps(COUNTS)
    softpool.lose(run.attached.suspension.arena._pools)
    run.step(2)
    assert "its pool is suspended" in caplog.text


@SOFT
@pytest.mark.parametrize("what", ["gradients", "outputs"])
def test_what_is_not_restored_is_seen(pair, monkeypatch, what):
    """Each thing that is moved out, left out in turn."""
    if what == "gradients":
        monkeypatch.setattr(suspension, "_move_gradients_out", lambda _: None)
    else:
        monkeypatch.setattr(outputs.Outputs, "move_all_out", lambda _: None)
    with pytest.raises(AssertionError, match=r"assert \['note"):
        pair(keeps, model=Deep, suspends=True, eager=None)


# ---- a checkpoint of the process -------------------------------------------


@SOFT
def test_a_suspended_training_is_checkpointed(pair):
    """And resumed while it is, which waits until it is restored."""
    def train(run):
        for count in COUNTS:
            run.step(count)
            if run.attached is not None:
                checkpointed(run.attached)

    pair(train, suspends=True)


def checkpointed(attached) -> None:
    pid = os.getpid()
    attached.suspend()
    checkpoint.pause(pid)
    thread = threading.Thread(target=attached.resume)
    thread.start()
    thread.join(0.02)
    assert thread.is_alive() and checkpoint.state(pid) == "checkpointed"
    checkpoint.restore(pid)
    thread.join()
    assert attached.memory()["suspended"] == 0


# ---- a GPU -----------------------------------------------------------------


@on_a_gpu("nobody counts its memory")
def test_the_device_has_the_memory_back(runs):
    """Other processes may take some of it meanwhile, but not each time."""
    run = runs(grain="chunk", suspends=True).steps(COUNTS)
    torch.cuda.empty_cache()
    more = []
    for _ in range(8):
        before, _ = torch.cuda.mem_get_info()
        run.attached.suspend()
        after, _ = torch.cuda.mem_get_info()
        given = run.attached.memory()
        more.append(after - before
                    - given["pool_given"] - given["device_given"])
        assert given["pool_given"] + given["device_given"] > 0
        run.attached.resume()
    assert max(more) >= 0
