"""Gradients that a graph reads where the next one leaves them, and that come
from elsewhere later.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import pytest
from models import LENGTH, WIDTH, Block, Model, nn, torch

from graphhooks.torch.grad import chained


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return torch.tanh(self.linear(x))


class Pooled(Linear):
    def forward(self, x):
        return super().forward(x.sum(-1, keepdim=True).expand_as(x))


class Skips(Model):
    """The last layer is given a sum, whose gradient is of both its terms."""

    def __init__(self, make, last=Linear) -> None:
        super().__init__(make)
        self.layers = nn.ModuleList([make(), make(), last()])
        self.hook = None

    def run_layers(self, x):
        skipped = self.layers[0](x)
        self.middle = self.layers[1](skipped)
        if self.hook is not None and self.middle.requires_grad:
            self.middle.register_hook(self.hook)
        return self.layers[2](self.middle + skipped)


class SkipsToPool(Skips):
    def __init__(self, make) -> None:
        super().__init__(make, Pooled)


def halved(grad):
    return grad * 0.5


def halved_as_it_lies(grad):
    return (grad[..., :1] * 0.5).expand_as(grad)


def hooked(run, count, hook=halved):
    """In two of its steps."""
    for i in range(8):
        run.model.hook = hook if i in (4, 6) else None
        run.step(count)


def with_a_later_loss(run):
    for i in range(8):
        run.zero()
        loss = run.loss()
        if i > 3:
            loss = loss + run.model.middle.square().mean()
        loss.backward()
        run.optimizer.step()


@pytest.mark.parametrize("make", [Linear, Block])
@pytest.mark.parametrize("model, hook", [
    (Skips, halved), (SkipsToPool, halved_as_it_lies)])
def test_a_hook_that_is_not_always_there(pair, make, model, hook):
    pair(lambda run: hooked(run, 2, hook), make=make, model=model)


@pytest.mark.parametrize("make", [Linear, Block])
def test_a_loss_that_begins_later(pair, make):
    pair(with_a_later_loss, make=make, model=Skips)


class Residual(Linear):
    """Gives back what it gets: its input is used elsewhere too."""

    def forward(self, x):
        return x + super().forward(x)


class SkipsToTheEnd(Skips):
    def run_layers(self, x):
        return super().run_layers(x) + 0.1 * self.middle + x


@pytest.mark.parametrize("train", [lambda run: hooked(run, 1),
                                   with_a_later_loss],
                         ids=["hook", "loss"])
def test_what_is_handed_on_is_what_came(pair, train):
    pair(train, make=Residual, model=SkipsToTheEnd)


class Pair(Linear):
    """Two outputs, of which the next layer is given the sum."""

    def forward(self, x):
        return super().forward(x), torch.sin(self.linear(x))


class Pairs(Model):
    def __init__(self, make) -> None:
        super().__init__(make)
        self.layers = nn.ModuleList([make(), make(), make()])
        self.hook = None

    def run_layers(self, x):
        for layer in self.layers:
            first, second = layer(x)
            if self.hook is not None and first.requires_grad:
                first.register_hook(self.hook)
            x = first + second
        return x


def test_one_gradient_that_becomes_two(pair):
    pair(lambda run: hooked(run, 2), make=Pair, model=Pairs)


# ---- of weights ------------------------------------------------------------


class Table(Linear):
    """In batches of one its table's gradient is a view of what comes back."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(LENGTH, WIDTH))

    def forward(self, x):
        return super().forward(x) + self.table.unsqueeze(0)


class Tables(Table):
    """Who scales both gradients in place scales the same memory twice."""

    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Parameter(torch.zeros(LENGTH * WIDTH))

    def forward(self, x):
        return super().forward(x) + self.other.view_as(x)


class Changes(Model):
    """What comes back to the first layer comes from elsewhere at times."""

    change = None

    def run_layers(self, x):
        for i, layer in enumerate(self.layers):
            if i == 1 and self.change == "left out":
                continue
            x = layer(x)
            if i == 0:
                self.middle = x
                if self.change == "hook":
                    x.register_hook(halved)
        return x

    def backward(self, loss):
        if self.change == "loss":
            loss = loss + self.middle.square().mean()
        self.middle = None  # an output that is kept would be copied
        loss.backward()


@pytest.mark.parametrize("make, change", [
    (Table, "hook"), (Table, "loss"), (Table, "left out"),
    (Tables, "hook"), (Tables, "loss")])
def test_a_weights_gradient_is_not_what_came(pair, make, change):
    def train(run):
        for i in range(8):
            run.model.change = change if i in (4, 5) else None
            run.zero()
            run.model.backward(run.loss(batch=1))
            nn.utils.clip_grad_norm_(run.model.parameters(), 0.1)
            for name, p in run.model.layers.named_parameters():
                if p.grad is not None:
                    run.note(p.grad, name)
            run.optimizer.step()

    pair(train, make=make, model=Changes, eager=None)


@pytest.mark.parametrize("make", [Table, Block])
def test_a_weights_gradient_outlives_what_came(pair, make):
    """The graph of the layer behind writes that in the next microbatch."""
    def train(run):
        for count in (1, 1, 1, 2, 3, 1):
            run.zero()
            for _ in range(count):
                run.loss(batch=1).backward()
            run.optimizer.step()

    pair(train, make=make, eager=None)


def test_gradients_that_share_memory_share_it_on():
    came = [torch.ones(3), torch.arange(12.0)[2:]]
    given = came[1][2:8].view(2, 3), came[1][5:], torch.rand(3)
    one, two, three = chained.apart_from(came, given)
    assert three is given[2]
    assert torch.equal(one, given[0]) and torch.equal(two, given[1])
    one.zero_()
    assert torch.equal(two, torch.tensor([0, 0, 0, 10.0, 11.0]))
    assert torch.equal(came[1], torch.arange(12.0)[2:])


def test_numbers_of_another_type_are_apart():
    came = torch.view_as_complex(torch.rand(4, 2))
    for gradient in (torch.view_as_real(came), torch._neg_view(came)):
        found, = chained.apart_from([came], [gradient])
        assert torch.equal(found, gradient) and not found.is_neg()
        assert found.data_ptr() != came.data_ptr()


# ---- one replay ------------------------------------------------------------


def test_nothing_moves_where_all_is_in_place():
    places = [torch.ones(3), None]
    assert chained.moved(places, [places[0], torch.ones(3)]) == []
    assert chained.moved(places, [torch.ones(3), torch.ones(3)]) == [0]


def test_what_lies_there_is_put_back():
    place, other = torch.arange(4.0), torch.rand(4)
    grads = [other, place[1:3]]
    moved = chained.Moved([place, None], grads, [0])
    assert moved.grads[0].data_ptr() == place.data_ptr()
    assert torch.equal(place, other)
    assert torch.equal(moved.grads[1], torch.tensor([1.0, 2.0]))
    apart = torch.ones(2)
    results = moved.put_back([place[::2], None, apart])
    assert torch.equal(place, torch.arange(4.0))
    assert torch.equal(results[0], other[::2]) and results[1] is None
    assert results[2] is apart


def test_gradients_that_change_places():
    places = [torch.zeros(2), torch.ones(2)]
    moved = chained.Moved(places, places[::-1], [0, 1])
    assert torch.equal(places[0], torch.ones(2))
    assert torch.equal(places[1], torch.zeros(2))
    moved.put_back([])
    assert torch.equal(places[0], torch.zeros(2))
    assert torch.equal(places[1], torch.ones(2))


def test_what_is_given_twice_is_told_apart():
    one, other = torch.rand(3), torch.rand(3)
    found = chained.told_apart([one, other, one.view(3)])
    assert found[0] is one and found[1] is other
    assert found[2].data_ptr() != one.data_ptr()
    assert torch.equal(found[2], one)
