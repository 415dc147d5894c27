"""Gradients that are expanded, have holes, or lie otherwise than what they
are of: kernels go through them in another order.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from models import DEVICE, GRAINS, WHOLE, WIDTH, Block, Model, nn, torch

from torch.utils.checkpoint import checkpoint

from graphhooks import Error
from graphhooks.torch.grad import strides
from graphhooks.torch.base.memory import is_dense
from graphhooks.torch.record.c_passes import Planned

SIZES = [(2, 32), (16, 64), (3, 7)]  # that kernels split up in several ways

# What is summed up of the stack's output gives a gradient that is expanded,
# or else one with holes, or with the other sign in memory.
LOSSES = {
    "all": lambda x: x.sum() / 64,
    "width": lambda x: x.sum(-1).square().mean(),
    "length": lambda x: x.sum(1).square().mean(),
    "both": lambda x: x.sum((1, 2)).square().mean(),
    "imaginary": lambda x: torch.complex(x.detach(), x).angle().mean(),
    "conjugated": lambda x: torch.complex(x.detach(),
                                          x).conj().angle().mean(),
}


class Headless(Model):
    def forward(self, tokens):
        return self.run_layers(self.embed(tokens))


class Scaled(nn.Module):
    """Has a sum over all of the gradient that comes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.scale = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return x + torch.tanh(self.linear(x)) * self.scale


def step(run, loss, size=SIZES[0]):
    run.zero()
    found = loss(run.model(run.tokens(*size)[:, :-1]))
    run.note(found)
    found.backward()
    run.optimizer.step()


@pytest.mark.parametrize("grain", GRAINS)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("make", [Block, Scaled])
def test_a_gradient_that_is_not_dense(pair, grain, size, loss, make):
    if grain == "part" and make is Scaled:
        pytest.skip("it has no parts")
    pair(lambda r: [step(r, LOSSES[loss], size) for _ in range(4)],
         grain=grain, make=make, model=Headless)


class OneNumber(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return torch.tanh(self.linear(x)).mean()


class OneNumberAtTheEnd(Headless):
    def __init__(self, make) -> None:
        super().__init__(make)
        self.layers[2] = OneNumber()


class Negative(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return torch._neg_view(-grad.contiguous())


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("loss, model", [
    (LOSSES["conjugated"], OneNumberAtTheEnd),
    (lambda x: Negative.apply(x).square().mean(), Headless)],
    ids=["one number", "all"])
def test_the_other_sign_in_memory(pair, grain, loss, model):
    pair(lambda r: [step(r, loss) for _ in range(4)], grain=grain,
         make=Scaled, model=model)


class Stacked(Headless):
    """What comes back to each call is a row of many."""

    count = 2

    def forward(self, tokens):
        found = [super(Stacked, self).forward(tokens)
                 for _ in range(self.count)]
        return torch.stack(found, 1)


class StackedHigh(Stacked):
    count = 9


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("model, eager", [(Stacked, []),
                                          (StackedHigh, ["strides"])])
def test_a_row_of_many(pair, grain, model, eager):
    """Of too many, a graph would keep the memory of all."""
    run = pair(lambda r: [step(r, lambda x: x.square().mean())
                          for _ in range(3)],
               grain=grain, make=Scaled, model=model, eager=eager,
               max_slots=model.count)
    assert run.attached.stats()["static_bytes"] <= \
        6 * model.count * 2 * 32 * WIDTH * 4


class Pooled(nn.Module):
    """Gives an expanded gradient to what comes before it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        x = x.sum(-1, keepdim=True)
        return torch.tanh(x * self.linear.weight[0])


class Stem(Model):
    """Something before the layers, or one of them, sums up what a pool gives
    back."""

    inside = False

    def __init__(self, make) -> None:
        super().__init__()
        before = [make()] if self.inside else []
        self.layers = nn.ModuleList([*before, Pooled(), make()])
        self.stem = nn.Identity() if self.inside else make()

    def run_layers(self, x):
        return super().run_layers(self.stem(x))


class StemInside(Stem):
    inside = True


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("model", [Stem, StemInside])
@pytest.mark.parametrize("make", [Block, Scaled])
def test_a_layer_gives_one_that_is_not_dense(pair, grain, size, model, make):
    def train(run):
        found = []
        run.model.stem.register_forward_hook(
            lambda _, args, result: result.requires_grad
            and result.register_hook(
                lambda grad: found.append(grad.stride())) and None)
        for _ in range(4):
            run.zero()
            run.loss(*size).backward()
            run.optimizer.step()
        if model is Stem:
            assert found == 4 * [(size[1], 1, 0)]

    pair(train, grain=grain, make=make, model=model)


class Offset(Headless):
    """What goes into the stack is a sum, whose gradient a parameter keeps."""

    def __init__(self, make) -> None:
        super().__init__(make)
        self.layers = nn.ModuleList([Pooled(), make()])
        self.begin = nn.Parameter(torch.zeros(2, 32, WIDTH))

    def run_layers(self, x):
        return super().run_layers(x + self.begin)


@pytest.mark.parametrize("grain", WHOLE)
def test_one_that_somebody_keeps(pair, grain):
    def train(run):
        kept = []
        for _ in range(4):
            x = torch.ones(2, 32, WIDTH).cuda().requires_grad_()
            y = run.model.run_layers(x).square().mean()
            kept.append(torch.autograd.grad(y, x)[0])
            step(run, lambda x: x.square().mean())
        for grad in kept:
            assert grad.stride() == (32, 1, 0)
            run.note(grad)

    pair(train, grain=grain, model=Offset)


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)], ids=str)
def test_microbatches_of_several_layouts(pair, grain, order):
    """In flight together.  One has a number where another has as many as the
    output, at the same address, maybe."""
    losses = [lambda x: x.square().mean(), LOSSES["all"], LOSSES["width"]]

    def train(run):
        for _ in range(4):
            run.zero()
            found = [losses[i](run.model(run.tokens()[:, :-1]))
                     for i in order]
            for loss in found:
                run.note(loss)
                loss.backward()
            run.optimizer.step()

    pair(train, grain=grain, model=Headless)


@pytest.mark.parametrize("grain", WHOLE)
def test_other_strides_are_said(runs, grain):
    run = runs(grain=grain, model=Headless)
    for i in range(5):
        step(run, LOSSES["all"] if i == 4 else lambda x: x.square().mean())
    stats = run.attached.stats()
    assert stats["replays"] > 0 and stats["eager_calls"]["strides"] == 1
    assert "strides" in run.attached.explain()


@pytest.mark.parametrize("grain", WHOLE)
def test_what_is_expanded_further_is_copied(pair, grain):
    pair(lambda r: [step(r, LOSSES["width" if i < 3 else "all"])
                    for i in range(5)],
         grain=grain, make=Scaled, model=Headless, eager=["strides"])


@pytest.mark.parametrize("grain", WHOLE)
def test_what_is_not_expanded_any_more(pair, grain):
    def train(run):
        for i in range(8):
            step(run, LOSSES["width"] if i < 4
                 else lambda x: x.square().mean())

    pair(train, grain=grain, model=Headless, eager=None,
         refused="gradient of output . was expanded .*detach and attach again")


@pytest.mark.parametrize("grain", WHOLE)
def test_what_is_not_expanded_any_more_after_another_attach(runs, grain):
    run = runs(grain=grain, model=Headless)
    for _ in range(4):
        step(run, LOSSES["width"])
    run.detach()
    run.attach()
    for _ in range(4):
        step(run, lambda x: x.square().mean())
    assert run.attached.stats()["replays"] > 0


# ---- what the library is told ----------------------------------------------


@pytest.mark.parametrize("grain", WHOLE)
def test_one_address_of_several_sizes(pair, grain):
    def train(run):
        whole = torch.rand(2, 32, WIDTH).cuda()
        one = whole.view(-1)[:1].view(1, 1, 1).expand(2, 32, WIDTH)
        for _ in range(4):
            run.zero()
            found = [run.model(run.tokens()[:, :-1]) for _ in range(2)]
            for x, grad in zip(found, [one, whole]):
                run.note(x)
                x.backward(grad)
            run.optimizer.step()

    pair(train, grain=grain, model=Headless)


class Sums(Scaled):
    def forward(self, x):
        x = super().forward(x)
        return x, x.sum(1)


class SumsAtTheEnd(Model):
    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x, total = layer(x)
        return x, total


@pytest.mark.parametrize("grain", WHOLE)
def test_one_address_of_several_outputs(pair, grain):
    def train(run):
        whole = torch.rand(2, 32, WIDTH).cuda()
        for _ in range(4):
            run.zero()
            found = [run.model(run.tokens()[:, :-1]) for _ in range(2)]
            found[0][1].backward(whole[0, :2])
            found[1][0].backward(whole)
            run.optimizer.step()

    pair(train, grain=grain, make=Sums, model=SumsAtTheEnd)


@pytest.mark.parametrize("grain", WHOLE)
def test_passes_end_with_dense_memory(pair, grain, monkeypatch):
    """The library tells by it where the next pass need not copy."""
    told = []
    end = Planned.exit

    def noted(segment, direction, outputs):
        told.extend(outputs)
        return end(segment, direction, outputs)

    monkeypatch.setattr(Planned, "exit", noted)
    pair(lambda r: [step(r, LOSSES["width"]) for _ in range(3)],
         grain=grain, make=Pooled, model=Headless)
    assert any(t.shape == (64,) for t in told)
    assert all(map(is_dense, told))


class Two(Scaled):
    def forward(self, x):
        x = super().forward(x)
        return x, x * self.scale


class TwoAtTheEnd(Headless):
    def run_layers(self, x):
        for layer in self.layers:
            x, self.other = layer(x)
        return x


@pytest.mark.parametrize("grain", WHOLE)
def test_no_gradient_where_an_expanded_one_came(pair, grain):
    def train(run):
        for i in range(6):
            step(run, lambda x: x.square().mean() + (
                run.model.other.sum() / 64 if i < 4 else 0))

    pair(train, grain=grain, make=Two, model=TwoAtTheEnd, eager=["zeros"])


# ---- as they come ----------------------------------------------------------


def test_several_gradients_are_those_that_autograd_adds_up():
    x = torch.rand(2, 3).requires_grad_()
    for first, second in [(x.detach(), torch.ones(()).expand(2, 3)),
                          (torch.ones(()).expand(2, 3), x.detach())]:
        laid = strides.Laid([x])
        x.backward(first)
        x.backward(second)
        assert laid.several == {0} and laid.out([x.grad])[0] is x.grad


def test_a_gradient_is_kept_as_it_comes():
    x, y = (torch.ones(3, 2).t().requires_grad_() for _ in range(2))
    laid = strides.Laid([x, y])
    whole, expanded = torch.rand(2, 3), torch.ones(()).expand(2, 3)
    x.backward(whole)
    y.backward(expanded)
    kept, copied = laid.out([x.grad, y.grad])
    assert kept.stride() == whole.stride() != x.grad.stride()
    assert torch.equal(kept, whole) and kept.data_ptr() != whole.data_ptr()
    assert copied.stride() == (0, 0) and torch.equal(copied, y.grad)
    assert not x._backward_hooks and not y._backward_hooks


class Post(Block):
    """Its input's gradient is laid out as its norm's is."""

    def forward(self, x):
        x = self.norm1(x + self.attn(x))
        return self.norm2(x + self.mlp(x))


class Wide(Block):
    """Has a weight whose gradient is expanded."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Parameter(torch.rand(1000, 33) / 100)

    def forward(self, x):
        return super().forward(x) * (1 + self.wide.sum(-1).square().mean())


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("gradients", ["graph", "autograd"])
def test_a_weights_gradient_is_laid_out_as_eagers(pair, grain, gradients):
    """For hooks, which sum it up."""
    found = []

    def normed(grad):
        found.append(grad.stride())
        return grad / (grad.norm() + 1e-6)

    def before(run):
        for layer in run.model.layers:
            layer.wide.register_hook(normed)

    pair(lambda r: r.steps(), grain=grain, make=Wide, before=before,
         gradients=gradients)
    assert set(found) == {(1, 0)}


class Closes(nn.Module):
    """A checkpoint within it reads what it is given not as an argument, and
    so has a backward of its own that comes to it."""

    inner = outer = "x"

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.scale = nn.Parameter(torch.rand(WIDTH))

    def read(self, x, how):
        return x.sum(-1, keepdim=True) / 64 if how == "sum" else x * 1

    def forward(self, x):
        first = self.linear(x) if self.outer == "both" else self.scale
        y = checkpoint(lambda t: t * torch.tanh(self.read(x, self.inner)),
                       first, use_reentrant=True)
        return torch.tanh(self.linear(y)) + self.read(x, self.outer)


class OnALeaf(Headless):
    def __init__(self, make) -> None:
        super().__init__(make)
        self.layers = nn.ModuleList([make(), Scaled()])

    def run_layers(self, x):
        self.given = x.detach().requires_grad_()
        return super().run_layers(self.given)


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("inner", ["x", "sum"])
@pytest.mark.parametrize("outer", ["x", "sum", "both"])
def test_a_backward_within_brings_some_too(pair, grain, inner, outer):
    def train(run):
        for _ in range(4):
            step(run, lambda x: x.square().mean())
            run.note(run.model.given.grad)

    make = type("Closes", (Closes,), {"inner": inner, "outer": outer})
    pair(train, grain=grain, make=make, model=OnALeaf)


class Transposes(Model):
    """Something before the layers sums up what they give back."""

    def __init__(self, make) -> None:
        super().__init__(make)
        self.gain = nn.Parameter(torch.ones(WIDTH))

    def run_layers(self, x):
        x = (x * self.gain).transpose(0, 1)
        return super().run_layers(x).transpose(0, 1)


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("count", [1, 2])
def test_an_inputs_gradient_is_laid_out_as_eagers(pair, grain, count):
    """Otherwise than the input, whose other order of sums has other bits."""
    def train(run):
        found = []
        run.model.layers[0].register_forward_pre_hook(
            lambda _, args: args[0].register_hook(
                lambda grad: found.append(grad.stride())) and None)
        for _ in range(4):
            run.zero()
            for _ in range(count):
                run.loss(batch=8).backward()
            run.optimizer.step()
        run.note(torch.tensor(found), "strides")

    pair(train, grain=grain, make=Post, model=Transposes)


# ---- memory ----------------------------------------------------------------


@pytest.mark.parametrize("tensor, span, holds", [
    (torch.arange(12.0).view(3, 4)[:, ::2], 11, True),
    (torch.arange(12.0).view(3, 4)[1:, 1:3], 6, True),
    (torch.arange(12.0)[3:].as_strided((2, 2), (7, 1)), 9, True),
    (torch.ones(()).expand(2, 3), 1, False),
    (torch.arange(3.0)[1:, None].expand(2, 3), 2, False),
    (torch.arange(9.0)[1:].unfold(0, 4, 2), 8, False),
], ids=["columns", "a corner", "rows apart", "one", "a column", "windows"])
def test_what_a_tensor_lies_over(tensor, span, holds):
    layout = strides.layout_of(tensor)
    memory = layout.memory_of(tensor)
    assert memory.shape == (layout.span,) == (span,)
    assert memory.data_ptr() == tensor.data_ptr()
    other = torch.rand(tensor.size())
    assert (layout.copy(other) is not None) == holds
    if holds:
        assert torch.equal(layout.tensor_over(layout.copy(other)), other)
    for other in (strides.as_laid(memory, layout), strides.copy_of(tensor)):
        assert other.stride() == tensor.stride()
        assert torch.equal(other, tensor)
    assert strides.copy_of(tensor).data_ptr() != tensor.data_ptr()


def test_what_is_dense_is_itself():
    for tensor in (torch.ones(3, 4).t(), torch.ones(()), torch.ones(0, 3)):
        layout = strides.layout_of(tensor)
        assert layout == tensor.stride()
        assert strides.memory_of(tensor) is tensor
        assert strides.as_laid(tensor, layout) is tensor
        assert strides.copy_of(tensor).stride() == tensor.stride()


def test_a_copy_is_expanded_where_the_tensor_is():
    layout = strides.layout_of(torch.arange(3.0)[:, None].expand(3, 4))
    for other in (torch.tensor(7.0).expand(3, 4),
                  torch.rand(3, 1).expand(3, 4)):
        memory = layout.copy(other)
        assert memory.shape == (3,)
        assert torch.equal(layout.tensor_over(memory), other)
    assert layout.copy(torch.rand(4).expand(3, 4)) is None


def test_a_negative_bit_is_not_dense():
    for tensor in (torch.view_as_complex(torch.rand(3, 2)).conj().imag,
                   torch._neg_view(torch.rand(3))):
        assert tensor.is_neg() and not is_dense(tensor)
        assert torch.equal(strides.copy_of(tensor), tensor)


def segment_that_notes(said):
    return SimpleNamespace(name="it", owner=SimpleNamespace(
        count=said.append, say=lambda who, sentence: None))


def test_what_a_graph_reads():
    """What comes as it was recorded, otherwise, or not at all."""
    numbers = torch.view_as_complex(torch.rand(3, 2))
    output = torch.rand(3)
    holes = strides.layout_of(numbers.imag)
    for grad, count in [(numbers.imag, 0), (output, 1), (None, 0)]:
        said = []
        memory = strides.read(segment_that_notes(said), 0, grad, output, holes)
        assert said == ["strides"] * count and memory.shape == (5,)
        expected = torch.zeros(3) if grad is None else grad
        assert torch.equal(strides.as_laid(memory, holes), expected)
        same = grad is not None and count == 0
        assert (memory.data_ptr() == numbers.imag.data_ptr()) == same


def test_any_stride_is_that_of_one_element():
    said = []
    segment = segment_that_notes(said)
    grad = torch.rand(1, 3)
    assert strides.read(segment, 0, grad, grad, (7, 1)) is grad
    one = torch.rand(2).as_strided((1, 2, 3), (5, 1, 0))
    layout = strides.layout_of(one.as_strided((1, 2, 3), (9, 1, 0)))
    memory = strides.read(segment, 0, one, grad, layout)
    assert memory.data_ptr() == one.data_ptr() and said == []
