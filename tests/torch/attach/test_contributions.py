"""Which inputs of a layer are used elsewhere too; needs no GPU.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import gc
import weakref

import pytest
from models import F, nn, same, torch
from torch.autograd.graph import get_gradient_edge

from graphhooks.torch.grad import contributions
from graphhooks.torch.base.comparisons import Comparisons
from graphhooks.torch.grad.contributions import Contributions


class Layer(nn.Module):
    """Uses its input twice, as a layer with a residual does."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 16)

    def forward(self, x):
        return x + self.up(F.layer_norm(x, (16,)))


def inputs(leaf=True):
    x = torch.randn(32, 16, requires_grad=True)
    return x if leaf else x * 2


def told(x, y, loss):
    found, comparisons = [], Comparisons()
    contributions.watch([x], contributions.uses([y], [x]), found.append,
                        comparisons)
    loss().backward()
    comparisons.settle()
    return found


@pytest.mark.parametrize("leaf", [True, False])
def test_a_layer_in_a_row_is_alone_with_its_input(leaf):
    torch.manual_seed(1)
    x = inputs(leaf)
    y = Layer()(x)
    assert told(x, y, lambda: y.square().sum()) == []


def test_a_use_elsewhere_is_noticed_where_the_input_is_what_is_asked_for():
    torch.manual_seed(1)
    x, layer = inputs(), Layer()
    found, comparisons = [], Comparisons()
    y = layer(x)
    contributions.watch([x], contributions.uses([y], [x]), found.append,
                        comparisons)
    torch.autograd.grad((y.square() + 3 * x).sum(), [x, layer.up.weight])
    comparisons.settle()
    assert found == [0]


@pytest.mark.parametrize("leaf", [True, False])
@pytest.mark.parametrize("before", [True, False])
def test_a_use_elsewhere_is_noticed(leaf, before):
    torch.manual_seed(1)
    x = inputs(leaf)
    other = x.tanh().sum() if before else None
    y = Layer()(x)
    if not before:
        other = x.tanh().sum()
    assert told(x, y, lambda: y.square().sum() + other) == [0]


def test_what_is_used_once_needs_no_look():
    x = inputs()
    y = x.tanh()
    assert told(x, y, lambda: y.sum() + x.square().sum()) == []


def test_uses_are_found_by_the_edges_to_an_input():
    x, mask = inputs(), torch.ones(32, 16)
    y = Layer()(x * mask)
    uses, none = contributions.uses([y], [x, mask])
    assert len(uses) == 1 and none == []
    assert len(contributions.uses([x * x], [x])[0]) == 2
    assert contributions.uses([inputs()], [x]) == [[]]


def test_another_output_of_the_same_node_is_not_the_input():
    a, b = inputs(False).chunk(2)
    of_a, of_b = contributions.uses([a.tanh() + a.exp() + b.exp()], [a, b])
    assert (len(of_a), len(of_b)) == (2, 1)


def test_each_gradient_is_had_by_itself_in_its_order():
    """Added to others' one by one they are what autograd finds."""
    torch.manual_seed(1)
    x, layer = inputs(), Layer()
    y = layer(x)
    outside = torch.randn(32, 16)
    torch.autograd.backward([y, x * 1], [torch.ones_like(y), outside])
    eager, x.grad = x.grad, None
    y = layer(x)
    each = Contributions(contributions.uses([y], [x])[0])
    y.backward(torch.ones_like(y))
    each.remove()
    total = outside
    for gradient in each.found:
        total = total + gradient
    assert len(each.found) == 2
    assert same(total, eager) and not same(outside + x.grad, eager)
    assert same(contributions.added(each.found), x.grad)


# ---- parameters ------------------------------------------------------------


def watch(shares, output, layer, before=frozenset(), behind=()):
    parameters = list(layer.parameters())
    return shares.watch(parameters, contributions.uses(
        [output], parameters, before, shares.nodes), behind)


def shares(train, calls=1):
    """The parameters of a layer that train(layer, outputs) uses besides."""
    torch.manual_seed(1)
    layer = Layer()
    found = contributions.Shares()
    outputs = []
    for _ in range(calls):
        outputs.append(layer(inputs()))
        watch(found, outputs[-1], layer)
    train(layer, outputs)
    found.stop()
    names = {p: name for name, p in layer.named_parameters()}
    return {names[p] for p in found.found}


def test_parameters_of_a_layer_alone_are_its_own():
    assert shares(lambda layer, y: y[0].sum().backward()) == set()


def test_calls_that_are_all_seen_are_the_layers_own():
    def one_by_one(layer, outputs):
        for y in outputs:
            y.square().sum().backward()

    assert shares(one_by_one, calls=3) == set()
    assert shares(lambda layer, y: sum(y).square().sum().backward(),
                  calls=3) == set()


@pytest.mark.parametrize("factor", [0.1, 0.0])
def test_weights_in_the_loss_are_noticed(factor):
    def train(layer, outputs):
        penalty = layer.up.weight.square().sum()
        (outputs[0].sum() + factor * penalty).backward()

    assert shares(train) == {"up.weight"}


def test_weights_in_the_loss_of_a_later_pass_are_noticed():
    """The nodes of the first pass are gone by then."""
    torch.manual_seed(1)
    layer, found = Layer(), contributions.Shares()
    for factor in (None, 0.1):
        y = layer(inputs())
        watch(found, y, layer)
        loss = y.sum()
        if factor is not None:
            loss = loss + factor * layer.up.weight.square().sum()
        loss.backward()
        del y, loss
        assert len(found.found) == (factor is not None)


def test_a_call_that_nobody_saw_is_noticed():
    def train(layer, outputs):
        (outputs[0].sum() + layer(inputs()).square().sum()).backward()

    assert shares(train) == {"up.weight", "up.bias"}


@pytest.mark.parametrize("used", [True, False])
def test_weights_on_the_way_to_a_call_are_noticed(used):
    torch.manual_seed(1)
    layer, found = Layer(), contributions.Shares()
    x = inputs(leaf=False)
    if used:
        x = F.linear(x, layer.up.weight)
    y = layer(x)
    before = frozenset([x.grad_fn])
    depends = watch(found, y, layer, before,
                    contributions.Way().to(before, 0))
    assert depends == list(layer.parameters())
    assert found.found == ({layer.up.weight} if used else set())
    y.square().sum().backward()
    assert found.found == ({layer.up.weight} if used else set())


def test_an_output_that_was_an_input_depends_on_nothing_new():
    layer = Layer()
    x = layer(inputs())
    assert watch(contributions.Shares(), x, layer,
                 frozenset([x.grad_fn])) == []


def test_calls_one_after_the_other_are_autograds():
    """For one of them there may be no slot."""
    torch.manual_seed(1)
    layer, found = Layer(), contributions.Shares()
    x = inputs(leaf=False)
    for n in range(2):
        before = frozenset([x.grad_fn])
        x = layer(x)
        watch(found, x, layer, before, contributions.Way().to(before, 0))
        assert len(found.found) == 2 * n


class Inside(torch.autograd.Function):
    """Some more of a layer, by a backward within its backward."""

    @staticmethod
    def forward(ctx, x, layer):
        ctx.layer, ctx.given = layer, x.detach().requires_grad_()
        with torch.no_grad():
            return layer(x)

    @staticmethod
    def backward(ctx, grad):
        with torch.enable_grad():
            y = ctx.layer(ctx.given)
        y.backward(grad)
        return ctx.given.grad, None


@pytest.mark.parametrize("how, mixed", [
    (lambda layer, x: layer(Inside.apply(layer(x), layer)), True),
    (lambda layer, x: Inside.apply(layer(x), layer), True),
    (lambda layer, x: Inside.apply(layer(x), Layer()), False),
    (lambda layer, x: Inside.apply(x, layer), False)])
def test_weights_in_a_backward_of_their_own_and_besides(how, mixed):
    torch.manual_seed(1)
    layer, found, x = Layer(), contributions.Shares(), inputs(leaf=False)
    before = frozenset([x.grad_fn])
    y = how(layer, x)
    assert not contributions.tells_all([y], before)
    seen = set(watch(found, y, layer, before))
    found.watch_unseen(p for p in layer.parameters() if p not in seen)
    y.square().sum().backward()
    assert found.mixed() == (set(layer.parameters()) if mixed else set())
    assert found.found == set()


# ---- who adds besides a graph -----------------------------------------------


class Meeting:
    """A parameter, whose graph adds to `.grad` in a backward."""

    def __init__(self):
        self.p = torch.ones(3, requires_grad=True)
        self.x = torch.ones(3, requires_grad=True)
        self.told = 0
        self.taken: list = []  # True: what has come is
        self.is_open = False
        self.others = contributions.Others(
            {self.p: get_gradient_edge(self.p).node}, self.tell, sums=self)

    def tell(self):
        self.told += 1

    def take(self, p, gradient):
        assert p is self.p
        return bool(self.taken) and self.taken.pop()

    def backward(self, *what):
        """The graph's node runs where there is a g, p's where there is one."""
        terms = {"g": lambda: Goes.apply(self.x, self.others).sum(),
                 "p": lambda: (self.p * 2).sum()}
        sum(terms[w]() for w in what).backward()


class Goes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, others):
        ctx.others = others
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        ctx.others.go(torch._C._current_graph_task_id())
        return grad, None


# Autograd runs what was made last first, but for the node of a leaf, which is
# the first of all that may run.
@pytest.mark.parametrize("passes, told", [
    ("g g", 0), ("p p", 0), ("p g p g", 0), ("gp", 1), ("pg", 1),
    ("p gp g pg", 2), ("gpgpp", 1)])
def test_both_in_a_backward_are_noticed(passes, told):
    meeting = Meeting()
    for what in passes.split():
        meeting.backward(*what)
    assert meeting.told == told


@pytest.mark.parametrize("taken", [True, False])
def test_what_is_taken_is_not_added(taken):
    meeting = Meeting()
    meeting.p.grad = torch.ones(3)
    meeting.taken.append(taken)
    meeting.backward("g", "p")
    assert same(meeting.p.grad, torch.full((3,), 1.0 if taken else 3.0))
    assert meeting.told == (not taken)


def test_nobody_notices_after_the_stop():
    meeting = Meeting()
    meeting.backward("p")
    meeting.others.stop()
    meeting.backward("g", "p")
    assert meeting.told == 0


def test_who_is_dropped_goes():
    """The node of a parameter that lives on has no hold on it."""
    meeting = Meeting()
    node, gone = meeting.others.nodes[meeting.p], weakref.ref(meeting.others)
    meeting.backward("p")
    del meeting
    gc.collect()
    assert gone() is None and node is not None


def test_a_walk_goes_on_where_the_one_before_has_ended():
    way, layer = contributions.Way(), Layer()
    x = inputs(leaf=False)
    y = layer(x)
    first = set(way.to({x.grad_fn}, 0))
    assert x.grad_fn in first and y.grad_fn not in first
    both = set(way.to({y.grad_fn}, 0))
    assert first < both
    node = get_gradient_edge(layer.up.weight).node
    assert node in both and node not in first
    assert way.to({x.grad_fn}, 1) == first  # another forward
    way.forget()
    assert way.to(set(), 1) == set()


def test_a_pass_without_the_layer_says_nothing_of_it():
    def train(layer, outputs):
        layer.up.weight.square().sum().backward()
        outputs[0].sum().backward()

    assert shares(train) == set()


@pytest.mark.parametrize("make, may", [
    (lambda leaf: leaf, True), (lambda leaf: leaf[None], True),
    (lambda leaf: torch.ones(4) + leaf.view(2, 2).flatten(), True),
    (lambda leaf: torch.cat([leaf, torch.ones(4)]), True),
    (lambda leaf: torch.addmm(leaf[None], torch.ones(1, 4),
                              torch.ones(4, 4)), True),
    (lambda leaf: F.linear(torch.ones(2, 4), torch.ones(4, 4), leaf), False),
    (lambda leaf: leaf.detach(), False),
    (lambda leaf: torch.mm(leaf[None], torch.ones(4, 4)) + 1, False),
    (lambda leaf: F.embedding(torch.arange(3), leaf[:, None]) * 2, False)],
    ids=["leaf", "view", "sum", "cat", "addmm", "bias", "constant", "mm",
         "embedding"])
def test_who_may_come_to_keep_a_gradient(make, may):
    """A leaf takes what reaches it through views for its own `.grad`."""
    leaf = torch.ones(4, requires_grad=True)
    assert contributions.may_keep(make(leaf)) == may


def test_nobody_watches_after_the_stop():
    torch.manual_seed(1)
    layer, found = Layer(), contributions.Shares()
    y = layer(inputs())
    watch(found, y, layer)
    found.stop()
    (y.sum() + layer.up.weight.square().sum()).backward()
    assert found.found == set()


def test_leaves_are_where_gradients_end():
    x, layer = inputs(), Layer()
    y = layer(x * 2)
    assert contributions.leaves([y]) == {x, *layer.parameters()}
    assert contributions.leaves([y], [x, layer.up.bias]) == {layer.up.weight}
    assert contributions.leaves([x.detach()]) == set()


def test_hooks_go_again():
    x = inputs()
    y = x * x
    each = Contributions(contributions.uses([y], [x])[0])
    each.remove()
    y.sum().backward()
    assert each.found == []
