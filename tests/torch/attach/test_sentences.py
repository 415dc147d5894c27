"""What is said of calls that are eager blames what is to blame.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import dataclasses

import pytest
from models import (LAYERS, LENGTH, NO_PIECES, SEGMENTS, WHOLE, WIDTH,
                    Attention, Block, Mlp, Model, differing, note_gradients,
                    torch)

GRAIN = pytest.mark.parametrize("grain", WHOLE)


def at_once(count):
    """One backward of several microbatches."""
    def train(run):
        for _ in range(3):
            run.zero()
            sum(run.loss() for _ in range(count)).backward()
            run.optimizer.step()

    return train


@GRAIN
def test_too_few_slots_for_one_backward(pair, grain):
    run = pair(at_once(10), grain=grain, max_slots=8, eager=["busy"])
    said = run.attached.explain()
    assert "bits may differ" not in said
    assert "attach with max_slots= as many" in said


def freeing_a_slot(run):
    """Graphs go back before the eager calls of the same backward."""
    for step in range(4):
        run.zero()
        losses = [run.loss() for _ in range(4)]
        if step:
            losses.pop(0).backward()
            losses.append(run.loss())
        sum(losses).backward()
        note_gradients(run)
        run.optimizer.step()


@GRAIN
@pytest.mark.parametrize("slots, exact", [(1, False), (2, False), (3, True)])
def test_eager_calls_after_a_graph_name_max_slots(runs, caplog, grain, slots,
                                                  exact):
    """Autograd adds up what comes of eager calls alone; one is as ever."""
    eager, run = runs(), runs(grain=grain, max_slots=slots)
    freeing_a_slot(eager)
    freeing_a_slot(run)
    assert (differing(eager.state(), run.state()) == []) is exact
    found = run.attached.stats()["eager_calls"]
    said = run.attached.explain()
    # Once in a pass.
    assert found.get("elsewhere", 0) == (0 if exact else 3 * SEGMENTS[grain])
    assert ("attach with max_slots=4, or more" in said) is not exact
    assert "a gradient from elsewhere" not in said + caplog.text


@GRAIN
def test_what_that_sentence_says_helps(pair, grain):
    pair(freeing_a_slot, grain=grain, max_slots=4)


@dataclasses.dataclass
class Given:
    rate: float
    table: tuple


class Takes(Block):
    def forward(self, x, rate, *more, given=None, last=None):
        x = x * rate
        for each in more:
            x = x + each
        if given is not None:
            x = x * given.rate + given.table[0]
        return super().forward(x)


class Gives(Model):
    """What the layers are given besides, in a call that differs and else."""

    differs = False

    def more(self, x):
        return (), {}

    def run_layers(self, x):
        rate, more, kwargs = self.more(x)
        for layer in self.layers:
            x = layer(x, rate, *more, **kwargs)
        return x


class OtherRate(Gives):
    said = "rate is 0.5 in it and 1.0 in those"

    def more(self, x):
        return 0.5 if self.differs else 1.0, (), {}


class OtherTensor(Gives):
    said = (f"argument 2.shape is (1, 1, {WIDTH}) in it and ({WIDTH},) in "
            "those")

    def more(self, x):
        table = x.new_ones(WIDTH)
        return 1.0, (table[None, None] if self.differs else table,), {}


class OtherField(Gives):
    said = "given.rate is 2.0 in it and 1.0 in those"

    def more(self, x):
        return 1.0, (), {"given": Given(2.0 if self.differs else 1.0,
                                        (x.new_ones(WIDTH),))}


class OtherType(Gives):
    said = "given.table[0].dtype is torch.bfloat16 in it and torch.float32 in"

    def more(self, x):
        table = x.new_ones(WIDTH)
        return 1.0, (), {"given": Given(1.0, (
            table.bfloat16() if self.differs else table,))}


class OneMore(Gives):
    said = "last is 1 in it and none in those"

    def more(self, x):
        return 1.0, (), {"last": 1} if self.differs else {}


class OtherOrder(Gives):
    said = ("the list of keyword arguments is last, given in it and given, "
            "last in those")

    def more(self, x):
        named = {"given": None, "last": 1}
        if self.differs:
            named = {"last": 1, "given": None}
        return 1.0, (), named


@GRAIN
@pytest.mark.parametrize("model", [OtherRate, OtherTensor, OtherField,
                                   OtherType, OneMore, OtherOrder])
def test_a_call_that_differs_says_in_what(pair, grain, model):
    def train(run):
        for i in range(5):
            run.model.differs = i == 3
            run.step(1)

    run = pair(train, grain=grain, make=Takes, model=model, eager=["input"],
               max_banks=1)
    assert f"a call differs from those that are recorded: {model.said}" in \
        run.attached.explain()


def test_a_length_that_is_another_each_time_is_said_once(pair, caplog):
    def train(run):
        run.steps([1, 1, 1])
        for less in range(1, 5):
            run.zero()
            run.loss(length=LENGTH - less).backward()
            run.optimizer.step()

    pair(train, eager=["input"], max_banks=2)
    said = [r.getMessage() for r in caplog.records
            if "a call differs" in r.getMessage()]
    assert said == [
        f"run eagerly: {LAYERS} layers (layers.0 to layers.2): a call differs "
        f"from those that are recorded: x.shape is (2, {LENGTH - 2}, {WIDTH}) "
        f"in it and (2, {LENGTH}, {WIDTH}) in those; each has graphs from the "
        "second time on, 2 at once, and 3 came so far: "
        f"(2, {LENGTH}, {WIDTH}), (2, {LENGTH - 1}, {WIDTH}), "
        f"(2, {LENGTH - 2}, {WIDTH}): pad to few lengths "
        "(pad_to_multiple_of=64), keep what changes in every call out of it, "
        "or attach with max_banks=6; this is said once"]


# ---- a layer that waits for the device -------------------------------------


class WaitingMlp(Mlp):
    def forward(self, x):
        return super().forward(x) * (1 if x.detach().mean().item() else 2)


class WaitingAttention(Attention):
    def forward(self, x):
        return super().forward(x) * (1 if x.detach().mean().item() else 2)


class InMlp(Block):
    works = "attn"

    def __init__(self) -> None:
        super().__init__()
        self.mlp = WaitingMlp()


class InAttention(Block):
    works = "mlp"

    def __init__(self) -> None:
        super().__init__()
        self.attn = WaitingAttention()


class ByEvent(Block):
    """As a dispatcher of experts, whose copy to the host has an event."""
    works = "attn,mlp"

    def forward(self, x):
        copied = torch.cuda.Event()
        copied.record()
        copied.synchronize()
        return super().forward(x)


class InBetween(Block):
    works = "attn,mlp"

    def forward(self, x):
        return super().forward(x) * (1 if x.detach().mean().item() else 2)


WAITS = pytest.mark.parametrize("make", [InMlp, InAttention, InBetween,
                                           ByEvent])


@WAITS
def test_a_layer_that_waits_names_the_scope_that_works(pair, make):
    run = pair(lambda r: r.steps([1, 1, 1]), make=make, replays=False,
               parts=NO_PIECES, refused="^it waits for the device, as .item")
    for why in run.attached.stats()["refused"].values():
        assert f'granularity="part", scope="{make.works}", which' in why
        assert why.endswith(")") and " line " in why


@WAITS
def test_the_scope_that_it_names_works(pair, make):
    pair(lambda r: r.steps([1, 1, 1]), make=make, grain="part",
         scope=make.works)


def test_a_chunk_of_which_a_layer_waits_names_the_granularity(pair):
    run = pair(lambda r: r.steps([1, 1, 1]), make=InMlp, grain="chunk",
               parts=NO_PIECES, replays=False, refused='granularity="layer", which leaves')
    assert run.attached.stats()["refused"]


class Raises(Block):
    calls = 0

    def forward(self, x):
        if torch._C._cuda_isCurrentStreamCapturing():
            raise ValueError("no")
        return super().forward(x)


def test_what_a_layer_raises_is_no_wait(pair):
    pair(lambda r: r.steps([1, 1, 1]), make=Raises, replays=False,
         refused="^ValueError: no")


class Launches(Block):
    def forward(self, x):
        if torch._C._cuda_isCurrentStreamCapturing():
            raise RuntimeError("CUDA error: operation would make the legacy "
                               "stream depend on a capturing blocking stream")
        return super().forward(x)


def test_an_error_of_cuda_may_be_of_an_earlier_line(pair):
    pair(lambda r: r.steps([1, 1, 1]), make=Launches, replays=False,
         refused=r"^RuntimeError: CUDA error: .* \(at or before "
         r"test_sentences\.py line \d+\)$")


# ---- many layers -----------------------------------------------------------


def test_equal_sentences_of_many_layers_are_one_line(pair, caplog):
    run = pair(lambda r: r.steps([1, 1, 1]), make=Raises, replays=False,
               refused="^ValueError: no")
    lines = [r.getMessage() for r in caplog.records]
    assert len(lines) == 1 and lines[0].startswith(
        f"{LAYERS} layers (layers.0 to layers.2) run eagerly from now on: "
        "ValueError: no (at test_sentences.py line ")
    assert len(run.attached.stats()["refused"]) == LAYERS


def test_two_layers_are_named_and_one_is_as_ever(pair, caplog):
    def before(run):
        run.model.layers[0].__class__ = run.model.layers[2].__class__ = Raises

    pair(lambda r: r.steps([1, 1, 1]), before=before, refused="ValueError")
    assert [r.getMessage().split(" run eagerly")[0] for r in caplog.records] \
        == ["2 layers (layers.0, layers.2)"]
    caplog.clear()

    def before_one(run):
        run.model.layers[1].__class__ = Raises

    pair(lambda r: r.steps([1, 1, 1]), before=before_one,
         refused="ValueError")
    assert [r.getMessage().split(" runs eagerly")[0]
            for r in caplog.records] == ["layers.1"]


def test_parts_of_many_layers_are_segments(pair, caplog):
    pair(lambda r: r.steps([1, 1, 1]), make=InMlp, grain="part",
         refused="waits for the device")
    assert [r.getMessage().split(" run eagerly")[0]
            for r in caplog.records] == [
        f"{LAYERS} segments (layers.0.mlp to layers.2.mlp)"]


def test_what_waits_to_be_said_is_said_at_the_end(runs, caplog):
    run = runs(grain="layer", make=Raises, warmup_steps=0)
    run.backward(2)
    assert caplog.text == ""
    run.detach()
    assert "ValueError: no" in caplog.text


# ---- a cache ---------------------------------------------------------------


class DynamicCache:
    """As those of Hugging Face are called."""


class Generates(Block):
    def forward(self, x, past_key_values=None):
        return super().forward(x)


class WithCache(Model):
    def run_layers(self, x):
        cache = DynamicCache()
        for layer in self.layers:
            x = layer(x, past_key_values=cache)
        return x


@GRAIN
def test_a_cache_of_keys_and_values_names_use_cache(pair, grain):
    run = pair(lambda r: r.steps([1, 1]), grain=grain, make=Generates,
               model=WithCache, replays=False, eager=["input"])
    assert "a DynamicCache goes into the layer" in run.attached.explain()
    assert "train with use_cache=False" in run.attached.explain()


# ---- layers that are left out ----------------------------------------------


def one_in_eval(run):
    run.model.layers[1].eval()
    run.steps([1, 1, 1])


def test_a_layer_of_a_chunk_that_is_in_eval_is_named(pair):
    run = pair(one_in_eval, grain="chunk", replays=False,
               eager=["forward_only"])
    assert "layers.1 is in eval(), and one graph is of all layers" in \
        run.attached.explain()


def test_what_that_says_leaves_the_others_their_graphs(pair):
    run = pair(one_in_eval, eager=["forward_only"])
    assert run.attached.stats()["eager_calls"]["forward_only"] == 3


@GRAIN
def test_an_evaluation_is_not_said(pair, caplog, grain):
    def train(run):
        run.steps([1, 1, 1])
        run.model.eval()
        run.loss()
        with torch.no_grad():
            run.loss()

    run = pair(train, grain=grain, eager=["forward_only"])
    assert "eval()" not in run.attached.explain() + caplog.text


class LeavesOut(Model):
    def run_layers(self, x):
        for layer in self.layers[:-1]:
            x = layer(x)
        return x


def test_a_layer_that_is_not_called_is_no_matter_of_a_scope(pair, capfd):
    pair(lambda r: r.steps([1, 1, 1]), model=LeavesOut)
    said = capfd.readouterr().err
    assert "the model has not called them, or they run eagerly" in said
    assert f"not entered in the first step: layers.{LAYERS - 1} " in said
    assert "SCOPE" not in said and "bracket" not in said


def test_layers_that_are_refused_have_been_called(pair, capfd, caplog):
    """So nobody is told to leave them out."""
    def before(run):
        run.model.layers[1].mlp.register_forward_hook(lambda *_: None)

    pair(lambda r: r.steps([1, 1, 1]), before=before, refused="has hooks",
         eager=None)
    assert "mlp has hooks, which a replay would not call" in caplog.text
    assert "not entered" not in capfd.readouterr().err
