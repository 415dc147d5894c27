"""Sequences that are packed into one buffer: how many there are, and how long
the longest is, may be others in each call of a graph.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import dataclasses
import random
import re
from typing import NamedTuple

import graphhooks
import pytest
from models import (BATCH, DEVICE, GRAINS, HEADS, LAYERS, LENGTH, SEGMENTS,
                    WHOLE, WIDTH, Block, F, Model, nn, torch)
from torch.utils.checkpoint import checkpoint

TOKENS = BATCH * LENGTH
ROOM = 12
PACKED = {"cu_seqlens": ROOM, "max_seqlen": TOKENS}
GRAIN = pytest.mark.parametrize("grain", WHOLE)


def places_in(cu_seqlens, count: int):
    """The sequence of each token, and where it is in that; tokens behind all
    of them are one more.  Nobody waits for the device."""
    at = torch.arange(count, device=cu_seqlens.device, dtype=cu_seqlens.dtype)
    which = torch.searchsorted(cu_seqlens[1:].contiguous(), at, right=True)
    return which, at - cu_seqlens[which]


def varlen_attention(qkv, cu_seqlens):
    """As flash_attn_varlen_func: causal, within each sequence alone."""
    count = qkv.shape[0]
    which, place = places_in(cu_seqlens, count)
    mask = (which[:, None] == which) & (place[:, None] >= place)
    q, k, v = qkv.view(count, 3, HEADS, -1).permute(1, 2, 0, 3).unsqueeze(1)
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return y.squeeze(0).transpose(0, 1).reshape(count, -1)


class Varlen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, cu_seqlens, max_seqlen=TOKENS):
        _, place = places_in(cu_seqlens, len(x))
        # Positions up to the longest, which is all that it is for.
        table = torch.arange(max_seqlen, device=x.device)[:, None] \
            * torch.arange(1, WIDTH + 1, device=x.device)
        x = x + table.float().sin()[place.clamp(max=max_seqlen - 1)]
        return self.out(varlen_attention(self.qkv(x), cu_seqlens))


class Packing(Block):
    def __init__(self, *rates) -> None:
        super().__init__(*rates)
        self.attn = Varlen()

    def forward(self, x, cu_seqlens, max_seqlen=TOKENS):
        x = x + self.attn(self.norm1(x), cu_seqlens, max_seqlen)
        return x + self.mlp(self.norm2(x))


def cut(chance, most: int) -> list:
    """Lengths that fill the buffer, at most so many."""
    count = chance.randint(1, most)
    at = sorted(chance.sample(range(1, TOKENS), count - 1))
    return [b - a for a, b in zip([0, *at], [*at, TOKENS])]


def offsets(lengths, dtype=torch.int32):
    at = [0]
    for length in lengths:
        at.append(at[-1] + length)
    return torch.tensor(at, dtype=dtype, device=DEVICE)


class Texts(Model):
    """The sequences of a microbatch are others each time."""

    most = ROOM
    dtype = torch.int32

    def __init__(self, make=Packing) -> None:
        super().__init__(make)
        self.chance = random.Random(3)
        self.counts: list = []

    def call(self, layer, x, lengths, cu_seqlens):
        return layer(x, cu_seqlens, max(lengths))

    def run_layers(self, x):
        lengths = cut(self.chance, self.most)
        self.counts.append(len(lengths))
        cu_seqlens = offsets(lengths, self.dtype)
        self.ids = torch.cat([torch.arange(n) for n in lengths]).to(DEVICE)
        shape = x.shape
        x = x.flatten(0, 1)
        for layer in self.layers:
            x = self.call(layer, x, lengths, cu_seqlens)
        return x.view(shape)


def called(call, **more):
    """A model whose layers are called so."""
    return type("Called", (Texts,), {
        "call": lambda self, *given: call(*given), **more})


class Fewer(Texts):
    """Never as many as there is room for."""

    most = ROOM - 1


class Long(Texts):
    dtype = torch.int64


def trained(pair, *, model=Texts, make=Packing, packed=PACKED, **how):
    return pair(lambda r: r.steps(), model=model, make=make, packed=packed,
                **how)


class Writes(Packing):
    """Into a tensor that is none of its buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = [torch.ones(1).cuda()]

    def forward(self, x, cu_seqlens, max_seqlen=TOKENS):
        x = super().forward(x, cu_seqlens, max_seqlen)
        self.kept[0].data.add_(x.detach().abs().mean())
        return x * self.kept[0].clone()


@GRAIN
def test_a_trial_leaves_what_a_layer_writes_in_an_attribute(pair, grain):
    def train(run):
        run.steps()
        for layer in run.model.layers:
            run.note(layer.kept[0])

    pair(train, model=Texts, make=Writes, packed=PACKED, grain=grain,
         verify="off")


# ---- one recording, any sequences ------------------------------------------


@GRAIN
def test_one_recording_serves_any_number_of_sequences(pair, grain):
    run = trained(pair, grain=grain)
    assert len(set(run.model.counts)) > 6
    before = run.attached.stats()
    run.steps()
    after = run.attached.stats()
    assert after["recordings"] == before["recordings"]
    assert after["replays"] > before["replays"]


def test_parts_that_are_apart(pair):
    trained(pair, grain="part")


@GRAIN
def test_several_microbatches_in_flight(pair, grain):
    pair(lambda r: r.steps(in_flight=3), grain=grain, model=Texts,
         make=Packing, packed=PACKED)


@GRAIN
def test_random_numbers_are_drawn_once(pair, grain):
    trained(pair, grain=grain, make=lambda: Packing(0.1))


def test_checkpointing_around_layers(pair):
    trained(pair, model=called(lambda layer, x, lengths, cu: checkpoint(
        layer, x, cu, max(lengths), use_reentrant=False)),
        eager=["checkpoint"])


@dataclasses.dataclass
class Params:
    kind: str
    cu_seqlens_q: torch.Tensor
    cu_seqlens_kv: torch.Tensor
    max_seqlen_q: int


class Tuple(NamedTuple):
    kind: str
    cu_seqlens_q: torch.Tensor
    cu_seqlens_kv: torch.Tensor
    max_seqlen_q: int


class Flattened(Packing):
    """Its arguments have the names that a collator gives them."""

    def forward(self, x, position_ids=None, **kwargs):
        assert kwargs["cu_seq_lens_q"].shape == kwargs["cu_seq_lens_k"].shape
        x = x + position_ids.unsqueeze(-1) / TOKENS
        return super().forward(x, kwargs["cu_seq_lens_k"],
                               kwargs["max_length_q"])


class Inside(Packing):
    def forward(self, x, *, params):
        if isinstance(params, dict):
            params = Params("thd", params["q"]["cu"], None, params["max"])
        return super().forward(x, params.cu_seqlens_q, params.max_seqlen_q)


class Collated(Texts):
    def call(self, layer, x, lengths, cu):
        return layer(x, position_ids=self.ids, cu_seq_lens_q=cu,
                     cu_seq_lens_k=cu, max_length_q=max(lengths),
                     max_length_k=max(lengths))


# name: (what a layer is, the model that calls it, the option)
FORMS = {
    "keywords": (Packing, called(lambda layer, x, lengths, cu: layer(
        x, max_seqlen=max(lengths), cu_seqlens=cu)), PACKED),
    "int64": (Packing, Long, PACKED),
    "without the longest": (Packing, called(lambda layer, x, lengths, cu:
                                            layer(x, cu)), PACKED),
    "a collator's": (Flattened, Collated, {
        "cu_seq_lens_q": ROOM, "cu_seq_lens_k": ROOM,
        "max_length_q": TOKENS, "max_length_k": TOKENS}),
    "a dataclass": (Inside, called(lambda layer, x, lengths, cu: layer(
        x, params=Params("thd", cu, cu, max(lengths)))), {
        "params.cu_seqlens_q": ROOM, "params.cu_seqlens_kv": ROOM,
        "params.max_seqlen_q": TOKENS}),
    "a named tuple": (Inside, called(lambda layer, x, lengths, cu: layer(
        x, params=Tuple("thd", cu, cu, max(lengths)))), {
        "params.cu_seqlens_q": ROOM, "params.cu_seqlens_kv": ROOM,
        "params.max_seqlen_q": TOKENS}),
    "dicts": (Inside, called(lambda layer, x, lengths, cu: layer(
        x, params={"q": {"cu": cu}, "max": max(lengths)})), {
        "params.q.cu": ROOM, "params.max": TOKENS}),
}


@GRAIN
@pytest.mark.parametrize("form", FORMS)
def test_arguments_by_name(pair, grain, form):
    make, model, packed = FORMS[form]
    trained(pair, grain=grain, make=make, model=model, packed=packed)


def test_offsets_with_gaps_between_them(pair):
    """Also where there are as many as there is room for."""
    run = trained(pair, model=called(lambda layer, x, lengths, cu: layer(
        x, torch.stack((cu, cu), -1)[:, 0], max(lengths))))
    assert ROOM in run.model.counts


# ---- what graphs see is what there is now ----------------------------------


def test_offsets_that_are_written_in_place(pair):
    """One buffer for all microbatches, written so that torch does not see
    it, as by a kernel of somebody's own."""

    class Static(Texts):
        def __init__(self, make=Packing) -> None:
            super().__init__(make)
            self.buffer = None

        def run_layers(self, x):
            if self.buffer is None:
                self.buffer = offsets([16] * 4)
            at = sorted(self.chance.sample(range(1, TOKENS), 3))
            self.buffer.data.copy_(torch.tensor([0, *at, TOKENS]))
            shape, x = x.shape, x.flatten(0, 1)
            for layer in self.layers:
                x = layer(x, self.buffer, TOKENS)
            return x.view(shape)

    trained(pair, model=Static)


def test_offsets_that_have_no_version(pair):
    """Made in inference mode, where nobody sees that they are written."""
    def made(lengths):
        with torch.inference_mode():
            return offsets(lengths)

    trained(pair, model=called(lambda layer, x, lengths, cu: layer(
        x, made(lengths), max(lengths))))


class Unseen(Texts):
    """Its offsets are made in inference mode, once for all layers."""

    again = False

    def run_layers(self, x):
        lengths = cut(self.chance, self.most)
        with torch.inference_mode():
            cu_seqlens = offsets(lengths)
        shape, x = x.shape, x.flatten(0, 1)
        for _ in range(2 if self.again else 1):
            for layer in self.layers:
                x = layer(x, cu_seqlens, TOKENS)
            with torch.inference_mode():
                cu_seqlens[1:-1] //= 2
        return x.view(shape)


class UnseenTwice(Unseen):
    again = True


@GRAIN
@pytest.mark.parametrize("model", [Unseen, UnseenTwice])
def test_offsets_without_a_version_for_all_layers(pair, grain, model):
    """A chunk takes them for the same, until it is called again."""
    trained(pair, model=model, grain=grain)


def test_offsets_that_change_between_layers(pair):
    def call(layer, x, lengths, cu):
        x = layer(x, cu, TOKENS)
        cu[1:-1] = cu[1:-1] // 2  # torch sees it
        return x

    trained(pair, model=called(call))


@GRAIN
def test_arguments_share_what_is_made_for_them(pair, grain, monkeypatch):
    """One tensor is made for one that is given twice, and for all layers of
    a chunk."""
    from graphhooks.torch.shapes import packed

    made = []
    padded = packed._padded
    monkeypatch.setattr(packed, "_padded", lambda tensor, count: made.append(
        count) or padded(tensor, count))
    make, model, wanted = FORMS["a collator's"]
    run = trained(pair, grain=grain, make=make, model=model, packed=wanted)
    short = sum(count < ROOM for count in run.model.counts)
    assert len(made) == short * SEGMENTS[grain] and set(made) == {ROOM}


def test_a_capture_of_the_callers_own(pair):
    """Nothing that is made in one is used outside of it."""
    cu_seqlens = offsets([10, 6, 30, 18])

    class Same(Texts):
        def run_layers(self, x):
            shape, x = x.shape, x.flatten(0, 1)
            for layer in self.layers:
                x = layer(x, cu_seqlens, 30)
            return x.view(shape)

    def train(run):
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        x = torch.randn(TOKENS, WIDTH).to(DEVICE)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            with torch.no_grad():  # what is made at its first use
                run.model.layers[0](x, cu_seqlens, 30)
            graph.capture_begin(capture_error_mode="thread_local")
            run.model.layers[0](x, cu_seqlens, 30)
            graph.capture_end()
            run.steps()
        torch.cuda.current_stream().wait_stream(stream)

    pair(train, model=Same, make=Packing, packed=PACKED,
         eager=["forward_only", "host_capture"])


def test_each_stream_has_its_own(pair, monkeypatch):
    """What is made on one may be let go there while another reads it."""
    from graphhooks.torch.shapes import packed

    class Streams(Fewer):
        def __init__(self, make=Packing) -> None:
            super().__init__(make)
            self.side = torch.cuda.Stream()

        def call(self, layer, x, lengths, cu):
            if layer is not self.layers[1]:
                return super().call(layer, x, lengths, cu)
            here = torch.cuda.current_stream()
            self.side.wait_stream(here)
            with torch.cuda.stream(self.side):
                x = super().call(layer, x, lengths, cu)
            here.wait_stream(self.side)
            return x

    made = []
    padded = packed._padded
    monkeypatch.setattr(packed, "_padded", lambda tensor, count: made.append(
        torch.cuda.current_stream().cuda_stream) or padded(tensor, count))
    run = trained(pair, model=Streams)
    assert made.count(run.model.side.cuda_stream) * LAYERS == len(made) \
        == LAYERS * len(run.model.counts)


# ---- more than there is room for -------------------------------------------


@GRAIN
def test_more_sequences_than_room_are_eager(pair, grain):
    run = trained(pair, grain=grain, packed={**PACKED, "cu_seqlens": 8},
                  eager=["packed"])
    many = [count for count in run.model.counts if count > 8]
    said = run.attached.explain()
    assert f"cu_seqlens has {many[0]} sequences, and packed= says 8 at " \
        "most: say more there, or pack fewer" in said
    assert said.count("cu_seqlens has") == 1
    segments = LAYERS if grain == "layer" else 1
    assert run.attached.stats()["eager_calls"]["packed"] \
        == segments * len(many)


@GRAIN
def test_a_longer_sequence_than_room_is_eager(pair, grain):
    run = trained(pair, grain=grain, packed={**PACKED, "max_seqlen": 24},
                  eager=["packed"])
    said = run.attached.explain()
    assert ", and packed= says 24 at most: say more there, or pack shorter " \
        "sequences" in said
    assert "packed: max_seqlen is 24 in graphs" in said


def test_room_in_steps(pair):
    """The least that is enough; another one is another bank."""
    run = trained(pair, packed={"cu_seqlens": [ROOM], "max_seqlen":
                                [TOKENS, 8]}, model=called(
        lambda layer, x, lengths, cu: layer(x, cu, 8 if len(lengths) < 3
                                            else max(lengths))),
        eager=None)
    assert "max_seqlen is 8 or 64 in graphs" in run.attached.explain()
    banks = run.attached.stats()["banks"]
    assert len(banks) == 2 and all(bank["replays"] for bank in banks)


class Lengths(Texts):
    """Buffers of two sizes."""

    def run_layers(self, x):
        if self.chance.random() < 0.5:
            return super().run_layers(x)
        lengths = [LENGTH // 2] * self.chance.randint(1, 2)
        shape, x = x.shape, x.flatten(0, 1)[:sum(lengths)]
        for layer in self.layers:
            x = layer(x, offsets(lengths), max(lengths))
        return x.repeat(TOKENS // len(x), 1).view(shape)


def test_buffers_of_several_sizes(pair):
    """Each is a bank, and none for what is packed into it."""
    run = trained(pair, model=Lengths, eager=["input"])
    banks = run.attached.stats()["banks"]
    assert len(banks) == 3 and all(bank["replays"] for bank in banks)


@pytest.mark.parametrize("what, said", [
    (lambda cu: cu.float(), "cu_seqlens is torch.float32 of ("),
    (lambda cu: cu[None], "in one dimension"),
    (lambda cu: cu.tolist(), "cu_seqlens is a list; packed= takes"),
    (lambda cu: cu[:0], "cu_seqlens is torch.int32 of (0,)"),
])
def test_what_is_no_offsets_is_eager(runs, what, said):
    class Odd(Block):
        def forward(self, x, cu_seqlens):
            return super().forward(x)

    class Feeds(Model):
        def run_layers(self, x):
            for layer in self.layers:
                x = layer(x, what(offsets([LENGTH])))
            return x

    run = runs(grain="layer", make=Odd, model=Feeds,
               packed={"cu_seqlens": 4}).steps()
    assert said in run.attached.explain()
    assert run.attached.stats()["eager_calls"].keys() == {"packed"}


def test_none_is_left_as_it_is(pair):
    class Maybe(Packing):
        def forward(self, x, cu_seqlens=None, max_seqlen=None):
            return Block.forward(self, x) if cu_seqlens is None \
                else super().forward(x, cu_seqlens, max_seqlen)

        def attend(self, x):
            return x

    class Plainly(Maybe):
        def __init__(self) -> None:
            super().__init__()
            self.attn = Block().attn

    class Feeds(Model):
        def run_layers(self, x):
            for layer in self.layers:
                x = layer(x, None)
            return x

    trained(pair, make=Plainly, model=Feeds)


@pytest.mark.parametrize("call, said", [
    (lambda layer, x, lengths, cu: layer(x, cu, TOKENS),
     "cu_seqlens.shape is (.*); if it has the offsets of packed sequences, "
     "name it in packed=, {\"cu_seqlens\": most}; else: each has graphs"),
    (lambda layer, x, lengths, cu: layer(x, offsets([TOKENS]), max(lengths)),
     "max_seqlen is (.*); if it is the longest of packed sequences, name it "
     "in packed=, {\"max_seqlen\": most}; else: each has graphs"),
    (lambda layer, x, lengths, cu: layer(x[:max(lengths)], offsets(
        [max(lengths)]), TOKENS).repeat(TOKENS, 1)[:TOKENS],
     "x.shape is (.*) in those; each has graphs"),
], ids=["offsets", "the longest", "tokens"])
def test_who_does_not_name_them_is_told_to(runs, call, said):
    run = runs(grain="layer", model=called(call), make=Packing,
               max_banks=2).steps()
    explained = run.attached.explain()
    assert re.search(said, explained), explained


# ---- results that depend on the room ---------------------------------------


class Means(Packing):
    """Adds a mean over the sequences that there are room for."""

    def forward(self, x, cu_seqlens, max_seqlen=TOKENS):
        lengths = (cu_seqlens[1:] - cu_seqlens[:-1]).float()
        return super().forward(x, cu_seqlens, max_seqlen) + lengths.mean()


class Scales(Packing):
    def forward(self, x, cu_seqlens, max_seqlen=TOKENS):
        return super().forward(x, cu_seqlens, max_seqlen) / max_seqlen


class Gives(Packing):
    """A result that has as many as there are sequences."""

    def forward(self, x, cu_seqlens, max_seqlen=TOKENS):
        self.lengths = None
        y = super().forward(x, cu_seqlens, max_seqlen)
        return y, cu_seqlens[1:] - cu_seqlens[:-1]


class Asserts(Packing):
    def forward(self, x, cu_seqlens, max_seqlen=TOKENS):
        if len(cu_seqlens) > ROOM:
            raise RuntimeError("too many")
        return super().forward(x, cu_seqlens, max_seqlen)


@GRAIN
@pytest.mark.parametrize("warmup_steps", [1, 0])
@pytest.mark.parametrize("make, why", [
    (Means, "its result is another with cu_seqlens for 12 sequences instead"),
    (Scales, "its result is another with .*max_seqlen 64 instead of"),
    (lambda: Asserts(0.1), "sequences instead of .* it raises RuntimeError: too many"),
])
def test_a_result_that_depends_on_the_room_is_refused(pair, grain, make, why,
                                                      warmup_steps,
                                                      monkeypatch):
    from graphhooks.torch.shapes import packed

    run = trained(pair, grain=grain, make=make, replays=False, refused=why,
                  model=Fewer, warmup_steps=warmup_steps)
    monkeypatch.setattr(packed, "_padded", None)
    run.steps()  # what is refused is given what was given
    assert "runs eagerly: " in run.attached.explain()
    assert len(run.attached.stats()["refused"]) == \
        (LAYERS if grain == "layer" else 1)


def test_a_result_for_each_sequence_is_refused(pair):
    trained(pair, make=Gives, replays=False,
            refused="its result is another with", model=called(
                lambda layer, x, lengths, cu: layer(x, cu, max(lengths))[0]))


def test_what_writes_buffers_is_tried_too(pair):
    class Normed(Packing):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(WIDTH)

        def forward(self, x, cu_seqlens, max_seqlen=TOKENS):
            return super().forward(self.norm(x), cu_seqlens, max_seqlen)

    trained(pair, make=Normed)


def test_a_trial_leaves_no_trace(pair):
    """What a layer counts is as it is without: it is refused for that, and
    its result depends on it."""

    class Meter:
        calls = 0

    class Counts(Packing):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0
            self.meter = Meter()
            self.drawn = []

        def forward(self, x, cu_seqlens, max_seqlen=TOKENS):
            self.calls += 1
            self.meter.calls += 1
            self.drawn.append(random.random())
            return super().forward(x, cu_seqlens, max_seqlen) * (
                1 + self.calls + self.drawn[-1] / 10)

    def train(run):
        random.seed(5)
        run.steps()
        assert {layer.calls for layer in run.model.layers} == {26}
        assert {layer.meter.calls for layer in run.model.layers} == {26}
        run.note(torch.tensor(random.random()))

    pair(train, make=Counts, model=Texts, packed=PACKED, replays=False,
         refused=".")


# ---- the option ------------------------------------------------------------


@pytest.mark.parametrize("packed, said", [
    (3, "packed is 3; it takes names of arguments"),
    (["cu_seqlens"], "packed is ['cu_seqlens']; it takes names"),
    ({"cu_seqlens": 0}, "packed has 'cu_seqlens': 0; it takes the name"),
    ({"cu_seqlens": True}, "packed has 'cu_seqlens': True"),
    ({"cu_seqlens": []}, "packed has 'cu_seqlens': []"),
    ({"cu_seqlens": [8, "9"]}, "packed has 'cu_seqlens': [8, '9']"),
    ({7: 8}, "packed has 7: 8"),
    ({"cu_seqlen": 8}, "packed has 'cu_seqlen', which no layer's forward "
                       "takes"),
])
def test_what_is_wrong_is_one_sentence(packed, said):
    model = Texts().cuda()
    with pytest.raises(graphhooks.Error) as error:
        graphhooks.attach(model, packed=packed, **GRAINS["layer"])
    assert said in str(error.value)
    assert all("forward" not in vars(layer) for layer in model.layers)


def test_an_empty_option_is_none(pair):
    trained(pair, packed={}, model=called(
        lambda layer, x, lengths, cu: layer(x, offsets([TOKENS]), TOKENS)))


def test_after_the_detach_layers_are_called_as_they_are(runs):
    run = runs(grain="layer", model=Texts, make=Packing, packed=PACKED)
    run.steps()
    run.detach()
    run.steps()


# ---- evaluation -------------------------------------------------------------


@GRAIN
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("first", [False, True])
def test_evaluation_of_other_sequences(pair, grain, mode, first):
    """Only what a training has tried is given to graphs; what is eager has
    the caller's own arguments."""
    def evaluate(run):
        run.model.eval()
        with mode():
            run.loss()
            run.loss()
        run.model.train()

    def train(run):
        if first:
            evaluate(run)
            evaluate(run)
        for count in (3, 2, 4):
            run.step(count)
            evaluate(run)

    run = pair(train, grain=grain, model=Fewer, make=Packing, packed=PACKED,
               eval=True)
    stats = run.attached.stats()["eval"]
    n = SEGMENTS[grain]
    assert stats["recordings"] == n
    assert stats["replays"] == 5 * n
    assert stats["eager_calls"] == {"warmup": n * (5 if first else 1)}


def test_more_sequences_to_evaluate_than_there_is_room_for(pair):
    class More(Fewer):
        def run_layers(self, x):
            self.most = ROOM if torch.is_grad_enabled() else TOKENS
            return super().run_layers(x)

    def train(run):
        run.steps([2, 2])
        run.model.eval()
        with torch.no_grad():
            for _ in range(8):
                run.loss()

    run = pair(train, model=More, make=Packing, packed=PACKED, eval=True)
    assert run.attached.stats()["eval"]["eager_calls"]["packed"] > 0
