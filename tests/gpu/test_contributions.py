"""Which inputs of a layer are used elsewhere too; needs no GPU.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import pytest
from models import F, nn, same, torch

from graphhooks.torch import contributions
from graphhooks.torch.contributions import Contributions


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
    found: list = []
    contributions.watch([y], [x], found.append)
    loss().backward()
    return found


@pytest.mark.parametrize("leaf", [True, False])
def test_a_layer_in_a_row_is_alone_with_its_input(leaf):
    torch.manual_seed(1)
    x = inputs(leaf)
    y = Layer()(x)
    assert told(x, y, lambda: y.square().sum()) == []


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
    assert same(each.total(), x.grad)


def test_hooks_go_again():
    x = inputs()
    y = x * x
    each = Contributions(contributions.uses([y], [x])[0])
    each.remove()
    y.sum().backward()
    assert each.found == []
