"""graphhooks.overlap: a forward of one microbatch beside the backward of
another, with nodes that are callables.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from models import DEVICE, HAS_GPU, torch

import graphhooks
from graphhooks.overlap import Overlap

WIDTH, TOKENS, EXPERTS = 8, 12, 4
SEED = 0  # of what enters


class Attention(torch.nn.Module):
    """And the router: what goes to the experts, where to, and what stays."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(WIDTH, WIDTH)
        self.router = torch.nn.Linear(WIDTH, EXPERTS)

    def forward(self, x):
        x = x + torch.tanh(self.inner(x))
        scores = self.router(x).softmax(-1)
        best, where = scores.max(-1)
        return x, best, where, x


def dispatch(x, best, where, rest):
    order = where.argsort(stable=True)
    return x[order], order, where[order], best, rest


class Experts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(EXPERTS, WIDTH, WIDTH))

    def forward(self, x, order, where, best, rest):
        x = torch.einsum("tw,twv->tv", x, self.weight[where])
        return x, order, best, rest


def combine(x, order, best, rest):
    return x[order.argsort()], best, rest


def end(x, best, rest):
    return rest + x * best[:, None]


class Late(torch.nn.Linear):
    """Its weight's gradient comes when it is asked for."""

    def __init__(self):
        super().__init__(WIDTH, WIDTH, bias=False)
        self.delayed: list = []

    def forward(self, x):
        return _Late.apply(x, self.weight, self.delayed)

    def backward_dw(self):
        x, grad = self.delayed.pop(0)
        found = grad.t() @ x
        weight = self.weight
        weight.grad = found if weight.grad is None else weight.grad + found


class _Late(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, delayed):
        ctx.save_for_backward(x, weight)
        ctx.delayed = delayed
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        ctx.delayed.append((x, grad))
        return grad @ weight, None, None


class Layers:
    """A dense layer and two with experts, and a head."""

    def __init__(self, late=False):
        torch.manual_seed(1)
        kind = Late if late else lambda: torch.nn.Linear(WIDTH, WIDTH)
        self.modules = torch.nn.ModuleList(
            [kind(), kind()] + [m() for _ in range(2) for m in (Attention,
                                                                Experts)])
        self.modules.to(DEVICE)
        first, second, *rest = self.modules
        self.nodes = [[first, second]] + [
            [before, dispatch, experts, combine, end]
            for before, experts in zip(rest[::2], rest[1::2])]
        self.losses: list = []

    def inputs(self, count):
        torch.manual_seed(2 + SEED)
        return [torch.randn(TOKENS, WIDTH).to(DEVICE).requires_grad_()
                for _ in range(count)]

    def loss(self, out):
        loss = out.square().sum()
        loss.backward()
        self.losses.append(loss.detach().clone())
        return out.grad

    def state(self, *more):
        return [*self.losses, *more, *(p.grad for p
                                       in self.modules.parameters())]


def apart(layers, count):
    """Without anything of ours."""
    grads = []
    for x in layers.inputs(count):
        out = x
        for nodes in layers.nodes:
            for node in nodes:
                out = node(*out) if isinstance(out, tuple) else node(out)
        loss = out.square().sum()
        loss.backward()
        layers.losses.append(loss.detach().clone())
        grads.append(x.grad)
        for module in layers.modules:
            if isinstance(module, Late):
                module.backward_dw()
    return layers.state(*grads)


def beside(layers, over, count, steps=1):
    """One more forward than backwards, as in a pipeline."""
    for step in range(steps):
        layers.losses.clear()
        layers.modules.zero_grad()
        inputs, grads = layers.inputs(count), []
        out, _ = over.run(forward=(0, inputs[0]))
        for i in range(1, count):
            seed = layers.loss(out)
            out, grad = over.run(forward=(i, inputs[i]),
                                 backward=(i - 1, seed))
            grads.append(grad)
        _, grad = over.run(backward=(count - 1, layers.loss(out)))
        grads.append(grad)
        over.step()
    return layers.state(*grads)


def equal(one, other) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


@pytest.mark.parametrize("order", ["off", "fixed", "auto"])
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("early", [False, True])
def test_all_orders_have_the_same_bits(order, late, early):
    layers = Layers(late)
    asked = []

    def agree(numbers):
        asked.append(len(numbers))
        return numbers

    with Overlap(layers.nodes, overlap=order, delay_wgrad=late, agree=agree,
                 early_release=early) as over:
        found = beside(layers, over, 4, steps=4)
        stats = over.stats()
    assert equal(found, apart(Layers(late), 4))
    assert stats["order"] in (order, "fixed" if order == "auto" else order)
    nodes = 2 * 12 + 2 * late
    assert stats["runs"] == 4 * 5 and stats["nodes"] >= 4 * 4 * nodes
    assert len(asked) == (order == "auto")
    assert (stats["waits"] > 0) == (order != "off")


def test_exchanges_are_on_a_stream_of_their_own_and_beside_compute():
    layers, seen = Layers(), []

    def look(node):
        seen.append(node)
        assert torch.cuda.current_stream() == node.stream
        over._call(node)

    mine = torch.cuda.Stream()
    with Overlap(layers.nodes, comm=mine, run_node=look,
                 overlap="fixed") as over:
        assert equal(beside(layers, over, 3), apart(Layers(), 3))
    for node in seen:
        is_exchange = node.layer > 0 and node.node in (1, 3)
        assert (node.lane == "comm") == is_exchange
        assert (node.stream.cuda_stream == mine.cuda_stream) == is_exchange
    assert [n.microbatch for n in seen if n.begins
            and n.direction == "forward"] == [0, 1, 2]
    assert sum(n.ends for n in seen) == 6
    together = [n.microbatch for n in seen[12:36]]
    assert set(together[:6]) == {0, 1}  # they take turns
    assert any(n.releases for n in seen)


def test_several_chunks():
    layers = Layers()
    first, rest = layers.nodes[:1], layers.nodes[1:]
    with Overlap(first, rest) as over:
        grads = []
        for i, x in enumerate(layers.inputs(3)):
            between, _ = over.run(forward=(i, x))
            out, _ = over.run(forward=(i, between), chunks=(1, 0))
            _, grad = over.run(backward=(i, layers.loss(out)), chunks=(0, 1))
            grads.append(over.run(backward=(i, grad))[1])
        over.step()
    assert equal(layers.state(*grads), apart(Layers(), 3))


def test_what_a_node_raises_is_raised_and_the_next_step_goes_on():
    layers = Layers()
    fails = [True]
    inner = layers.nodes[1][1]

    def exchange(*values):
        if fails:
            raise ConnectionError(f"no rank {fails.pop()}")
        return inner(*values)

    layers.nodes[1][1] = exchange
    with Overlap(layers.nodes) as over:
        with pytest.raises(ConnectionError, match="no rank True"):
            over.run(forward=(0, layers.inputs(1)[0]))
        over.step()
        assert equal(beside(layers, over, 3), apart(Layers(), 3))


@pytest.mark.parametrize("call, says", [
    (lambda: Overlap(), "no chunk is given"),
    (lambda: Overlap([]), "chunk 0 has no layer"),
    (lambda: Overlap([[end] * 3]), "layer 0 of chunk 0 has 3 nodes"),
    (lambda: Overlap([[1, 2]]), "cannot be called: give five callables"),
    (lambda: Overlap([end]).run(), "at least one chunk|flags"),
    (lambda: Overlap([end]).run(backward=(3, None)),
     "microbatch 3 of chunk 0 has no forward"),
])
def test_bad_input_is_named(call, says):
    with pytest.raises(graphhooks.Error, match=says):
        call()


def test_a_microbatch_has_its_own_number():
    with Overlap([torch.nn.Identity()]) as over:
        x = torch.ones(2).to(DEVICE).requires_grad_()
        over.run(forward=(0, x))
        with pytest.raises(graphhooks.Error, match="microbatch 0 of chunk 0 "
                                                   "has run"):
            over.run(forward=(0, x))


@pytest.mark.skipif(HAS_GPU or not torch.distributed.is_gloo_available(),
                    reason="its ranks exchange by gloo, in the host's memory")
def test_ranks_take_one_order(tmp_path):
    worker = Path(__file__).with_name("overlap_worker.py")
    ranks = [subprocess.Popen([sys.executable, str(worker), str(tmp_path),
                               str(rank)]) for rank in range(2)]
    try:
        assert [rank.wait(120) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
    one, other = (json.loads((tmp_path / f"{rank}.json").read_text())
                  for rank in range(2))
    for order in "fixed", "auto":
        assert one[order]["equal"] and other[order]["equal"]
        for name in "order", "predicted_ns", "waits", "nodes":
            assert one[order][name] == other[order][name]
    assert one["auto"]["predicted_ns"] > 0
