"""A layer with packed arguments runs once more, with what graphs would be
given: whatever it writes is as without that.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import pytest
from models import LAYERS, WHOLE, WIDTH, torch
from test_packed import PACKED, TOKENS, Packing, Texts, offsets

GRAIN = pytest.mark.parametrize("grain", WHOLE)


class Cuts(Texts):
    """What is packed, microbatch by microbatch; the last ones for ever."""

    cuts = [[16] * 4, [40, 24]]

    def given(self) -> tuple:
        return ()

    def run_layers(self, x):
        lengths = self.cuts[min(len(self.counts), len(self.cuts) - 1)]
        self.counts.append(len(lengths))
        cu_seqlens = offsets(lengths)
        shape, x = x.shape, x.flatten(0, 1)
        given = self.given()
        for layer in self.layers:
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


def given(make):
    return type("GivenOne", (Given,), {"make": staticmethod(make)})


@GRAIN
@pytest.mark.parametrize("layer, made", [
    (Adds, lambda: torch.zeros(())), (Appends, list), (Puts, dict)])
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
            replays=False, refused="in place|a list or dict|reads a tensor")


def test_what_a_layer_is_given_is_written_once_unseen(pair):
    """By .data, or what is no tensor, list or dict."""
    def train(run):
        run.step(1)
        run.note(run.model.kept)

    trained(pair, AddsUnseen, given(lambda: torch.zeros(())), train=train,
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

    trained(pair, Listens, grain=grain, replays=False, refused="hook")


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

    trained(pair, Decays)


@GRAIN
@pytest.mark.parametrize("lay, refused", [
    (lambda x: x.t().contiguous().t(), None),
    (lambda x: torch.cat((x, x), -1)[:, :WIDTH], "holes or overlaps")])
def test_layouts_are_tried_as_they_are(pair, grain, lay, refused):
    class Strides(Packing):
        def forward(self, x, cu_seqlens, max_seqlen):
            return lay(super().forward(x, cu_seqlens, max_seqlen)
                       + sum(x.stride()))

    trained(pair, Strides, grain=grain, refused=refused,
            replays=refused is None, eager=[] if refused is None else None)
