"""A layer with packed arguments runs once more, with what graphs would be
given: whatever it writes is as without that, and nothing is given to graphs
that was not tried.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import graphhooks
import pytest
from models import DEVICE, LAYERS, SEGMENTS, WHOLE, WIDTH, torch
from test_packed import PACKED, TOKENS, Packing, Texts, offsets

GRAIN = pytest.mark.parametrize("grain", WHOLE)


class Cuts(Texts):
    """What is packed, microbatch by microbatch; the last ones for ever."""

    cuts = [[16] * 4, [40, 24]]
    stop = None  # the layer before which a pass ends

    def given(self) -> tuple:
        return ()

    def run_layers(self, x):
        lengths = self.cuts[min(len(self.counts), len(self.cuts) - 1)]
        self.counts.append(len(lengths))
        cu_seqlens = offsets(lengths)
        shape, x = x.shape, x.flatten(0, 1)
        given = self.given()
        for i, layer in enumerate(self.layers):
            if i == self.stop:
                raise KeyError(i)
            x = layer(x, cu_seqlens, max(lengths), *given)
        return x.view(shape)


def trained(pair, make, model=Cuts, *, packed=PACKED, train=None, **how):
    return pair(train or (lambda run: run.steps([2, 2, 2])), make=make,
                model=model, packed=packed, **how)


# ---- what it leaves --------------------------------------------------------


class Counts(Packing):
    """Writes what it is given."""

    def forward(self, x, cu_seqlens, max_seqlen, seen):
        self.count(seen, x)
        return super().forward(x, cu_seqlens, max_seqlen)


class Adds(Counts):
    def count(self, seen, x):
        seen.add_(1)


class AddsUnseen(Counts):
    def count(self, seen, x):
        seen.data.add_(1)


class Appends(Counts):
    def count(self, seen, x):
        seen.append(x.square().mean())


class Puts(Counts):
    def count(self, seen, x):
        seen["loss"] = seen.get("loss", 0) + x.square().mean()


class Tells(Counts):
    def count(self, seen, x):
        seen.told += 1


class Object:
    told = 0


class Given(Cuts):
    """Hands along what layers write, one after the other."""

    make = None

    def __init__(self, make=Packing) -> None:
        super().__init__(make)
        self.kept = self.make()

    def given(self) -> tuple:
        if isinstance(self.kept, (list, dict)):
            self.kept.clear()
        return (self.kept,)


def zero():
    return torch.zeros((), device=DEVICE)


def given(make):
    return type("GivenOne", (Given,), {"make": staticmethod(make)})


@GRAIN
@pytest.mark.parametrize("layer, made", [
    (Adds, zero), (Appends, list), (Puts, dict)])
def test_what_a_layer_is_given_is_written_once(pair, grain, layer, made):
    """And that is why it is refused."""
    def train(run):
        for count in (2, 2, 2):
            run.zero()
            for _ in range(count):
                loss = run.loss()
                kept = run.model.kept
                if isinstance(kept, dict):
                    loss = loss + kept["loss"]
                elif isinstance(kept, list):
                    assert len(kept) == LAYERS
                    loss = loss + sum(kept)
                else:
                    run.note(kept)
                run.note(loss)
                loss.backward()
            run.optimizer.step()

    trained(pair, layer, given(made), grain=grain, train=train,
            replays=False, refused="in place|a list or dict",
            apart="in place|reads a tensor" if grain == "chunk" else None)


def test_what_a_layer_is_given_is_written_once_unseen(pair):
    """By .data, or what is no tensor, list or dict."""
    def train(run):
        run.step(1)
        run.note(run.model.kept)

    trained(pair, AddsUnseen, given(zero), train=train,
            replays=None)

    def tell(run):
        run.steps([2, 2])
        assert run.model.kept.told == 4 * LAYERS

    trained(pair, Tells, given(Object), train=tell, replays=False,
            eager=["input"])


@GRAIN
def test_a_hook_on_what_a_layer_is_given_is_there_once(pair, grain):
    class Listens(Packing):
        def forward(self, x, cu_seqlens, max_seqlen):
            x.register_hook(lambda g: g * 0.5)
            return super().forward(x, cu_seqlens, max_seqlen)

    trained(pair, Listens, grain=grain, replays=False,
            refused="hook on the gradient of")


class Buffered(Packing):
    """Adds up what it sees, where torch sees it or not."""

    def __init__(self, unseen: bool, what) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(WIDTH))
        self.unseen, self.what = unseen, what

    def forward(self, x, cu_seqlens, max_seqlen):
        total = self.total.data if self.unseen else self.total
        with torch.no_grad():
            total.add_(self.what(x, max_seqlen))
        return super().forward(x, cu_seqlens, max_seqlen) + self.total


@GRAIN
@pytest.mark.parametrize("unseen", [False, True])
def test_buffers_are_written_once(pair, grain, unseen):
    trained(pair, lambda: Buffered(unseen, lambda x, _: x.mean(0)),
            grain=grain)


@pytest.mark.parametrize("unseen", [False, True])
def test_a_buffer_that_depends_on_the_room_is_refused(pair, unseen):
    class Kept(Buffered):
        def forward(self, x, cu_seqlens, max_seqlen):
            super().forward(x, cu_seqlens, max_seqlen)
            return Packing.forward(self, x, cu_seqlens, max_seqlen)

    trained(pair, lambda: Kept(unseen, lambda x, longest: longest),
            replays=False, refused="its result is another with ")


def test_a_weight_that_is_written_is_written_once(pair):
    class Decays(Packing):
        def forward(self, x, cu_seqlens, max_seqlen):
            self.attn.out.weight.data.mul_(0.9)
            return super().forward(x, cu_seqlens, max_seqlen)

    trained(pair, Decays, replays=None, eager=None,
            refused="cannot be had again: it writes a parameter")


@GRAIN
@pytest.mark.parametrize("lay", [
    lambda x: x.t().contiguous().t(),
    lambda x: torch.cat((x, x), -1)[:, :WIDTH]])
def test_layouts_are_tried_as_they_are(pair, grain, lay):
    class Strides(Packing):
        def forward(self, x, cu_seqlens, max_seqlen):
            return lay(super().forward(x, cu_seqlens, max_seqlen)
                       + sum(x.stride()))

    trained(pair, Strides, grain=grain)


# ---- what is tried ---------------------------------------------------------


class Scales(Packing):
    def forward(self, x, cu_seqlens, max_seqlen):
        return super().forward(x, cu_seqlens, max_seqlen) / max_seqlen


class Means(Packing):
    def forward(self, x, cu_seqlens, max_seqlen):
        lengths = (cu_seqlens[1:] - cu_seqlens[:-1]).float()
        return super().forward(x, cu_seqlens, max_seqlen) + lengths.mean()


class Longest(Cuts):
    """First one sequence that fills the buffer."""

    cuts = [[TOKENS]] * 3 + [[40, 24], [16] * 4]


class Fullest(Cuts):
    """First as many sequences as there is room for."""

    cuts = [[TOKENS // 4] * 4] * 3 + [[40, 24], [20, 30, 14]]


@GRAIN
@pytest.mark.parametrize("make, model, packed, said", [
    (Scales, Longest, PACKED, "max_seqlen 64 instead of 40"),
    (Means, Fullest, {"cu_seqlens": 4, "max_seqlen": [16, TOKENS]},
     "cu_seqlens for 4 sequences instead of 2"),
    (Means, Fullest, {"cu_seqlens": 4, "max_seqlen": TOKENS},
     "cu_seqlens for 4 sequences instead of 2"),
])
def test_what_is_less_for_the_first_time_is_tried(pair, grain, make, model,
                                                  packed, said):
    trained(pair, make, model, grain=grain, packed=packed, replays=None,
            refused=said, eager=None)


@GRAIN
def test_what_passes_goes_on(pair, grain):
    """It costs one pass, besides those of the first step."""
    run = trained(pair, Packing, Longest, grain=grain)
    assert run.attached.stats()["eager_calls"]["warmup"] \
        == (2 + 1) * SEGMENTS[grain]


def cut_short(run) -> None:
    """The first pass with shorter sequences ends before the last layer."""
    run.step(2)
    run.model.stop = LAYERS - 1
    with pytest.raises(KeyError):
        run.loss()
    run.model.stop = None
    run.steps([2, 2])


class Short(Cuts):
    cuts = [[TOKENS]] * 2 + [[40, 24]]


def test_a_layer_of_a_chunk_is_tried_when_its_turn_comes(pair):
    """Of the pass in which the first one was, it has seen nothing."""
    run = trained(pair, Packing, Short, grain="chunk", train=cut_short)
    for site in run.attached.segments[0].sites:
        assert set().union(*site.tried.values()) == set(PACKED)


def test_a_layer_whose_turn_comes_too_late_is_an_error(runs):
    class Other(Short):
        def __init__(self, make) -> None:
            super().__init__(make)
            self.layers[-1] = Scales()

    run = runs(grain="chunk", make=Packing, model=Other, packed=PACKED)
    with pytest.raises(graphhooks.Error, match="layers.2: its result is "
                       "another with .*; the graph has run already"):
        cut_short(run)
