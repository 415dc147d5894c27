"""Modules with graphs train as they do without, bit for bit.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import gc
import logging

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("torch sees no GPU", allow_module_level=True)

import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import graphhooks.torch  # noqa: E402
from graphhooks import Error  # noqa: E402

WIDTH, HEADS, LENGTH, BATCH, LAYERS = 64, 4, 32, 2, 3
COUNTS = [4, 6, 8, 3, 5]


class Block(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.norm1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, c = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, c // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        y = self.down(F.gelu(self.up(self.norm2(x))))
        return x + F.dropout(y, self.dropout, self.training)


class Model(nn.Module):
    def __init__(self, make=Block) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, WIDTH)
        self.layers = nn.ModuleList(make() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 256)

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Run:
    """A model and its training, the same for the same arguments."""

    def __init__(self, make=Block, graphs=False, **options) -> None:
        torch.manual_seed(7)
        self.model = Model(make).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.generator = torch.Generator().manual_seed(1)
        self.losses = []
        self.attached = None
        if graphs:
            self.attached = graphhooks.torch.attach(self.model, **options)

    def loss(self, batch=BATCH):
        tokens = torch.randint(0, 256, (batch, LENGTH + 1),
                               generator=self.generator).cuda()
        logits = self.model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        self.losses.append(loss.detach().clone())
        return loss

    def step(self, count: int, in_flight: int = 1, set_to_none=True) -> None:
        self.optimizer.zero_grad(set_to_none=set_to_none)
        waiting = []
        for _ in range(count):
            waiting.append(self.loss())
            if len(waiting) == in_flight:
                waiting.pop(0).backward()
        for loss in waiting:
            loss.backward()
        self.optimizer.step()

    def steps(self, counts=COUNTS, **how) -> "Run":
        for count in counts:
            self.step(count, **how)
        return self

    def is_like(self, other: "Run") -> bool:
        torch.cuda.synchronize()
        return torch.equal(torch.stack(self.losses),
                           torch.stack(other.losses)) and all(
            torch.equal(a, b) for a, b in zip(self.model.parameters(),
                                              other.model.parameters()))


@pytest.fixture
def runs():
    """Makes runs; none is left attached."""
    made = []

    def make(*args, **kwargs):
        made.append(Run(*args, **kwargs))
        return made[-1]

    yield make
    for run in made:
        if run.attached is not None:
            run.attached.detach()


@pytest.mark.parametrize("in_flight", [1, 3])
def test_losses_and_weights_are_those_of_eager(runs, in_flight):
    eager = runs().steps(in_flight=in_flight)
    graphed = runs(graphs=True).steps(in_flight=in_flight)
    stats = graphed.attached.stats()
    assert graphed.is_like(eager)
    assert stats["recordings"] == 2 * LAYERS * in_flight
    assert stats["replays"] == 2 * LAYERS * sum(COUNTS[1:])
    assert stats["eager_calls"] == {"warmup": LAYERS * COUNTS[0]}


def test_gradients_are_added_up_where_they_are_kept(runs):
    eager = runs().steps(set_to_none=False)
    graphed = runs(graphs=True).steps(set_to_none=False)
    assert graphed.is_like(eager)


def test_a_stream_of_the_users_own(runs):
    eager = runs().steps()
    with torch.cuda.stream(torch.cuda.Stream()):
        graphed = runs(graphs=True).steps()
    assert graphed.is_like(eager)
    assert graphed.attached.stats()["replays"] > 0


def cast(model):
    """With autocast around the forward of a model, as it is meant."""
    forward = model.forward

    def call(tokens):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return forward(tokens)

    model.forward = call


def test_autocast(runs):
    def steps(run):
        cast(run.model)
        return run.steps()

    graphed = steps(runs(graphs=True))
    assert graphed.is_like(steps(runs()))
    assert graphed.attached.stats()["replays"] > 0


def test_autocast_later_runs_eagerly(runs):
    def steps(run):
        run.steps(COUNTS[:3])
        cast(run.model)
        return run.steps(COUNTS[3:])

    graphed = steps(runs(graphs=True))
    assert graphed.is_like(steps(runs()))
    assert graphed.attached.stats()["eager_calls"]["input"] == \
        LAYERS * sum(COUNTS[3:])


def test_another_shape_of_as_many_bytes_runs_eagerly(runs):
    class Turned(Run):
        def loss(self, batch=BATCH):
            if len(self.losses) % 3 != 2:
                return super().loss()
            tokens = torch.randint(0, 256, (BATCH // 2, 2 * LENGTH + 1),
                                   generator=self.generator).cuda()
            logits = self.model(tokens[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1),
                                   tokens[:, 1:].flatten())
            self.losses.append(loss.detach().clone())
            return loss

    eager, graphed = Turned().steps(), Turned(graphs=True).steps()
    with graphed.attached as attached:
        assert graphed.is_like(eager)
        assert attached.stats()["eager_calls"]["input"] > 0
        assert attached.stats()["replays"] > 0


def test_evaluation_is_eager_and_takes_no_slot(runs):
    def steps(run):
        for count in COUNTS:
            run.step(count)
            with torch.no_grad():
                run.loss()
            run.model.eval()
            run.loss()
            run.model.train()
        return run

    graphed = steps(runs(graphs=True))
    assert graphed.is_like(steps(runs()))
    assert graphed.attached.stats()["slots"] == 1


def test_dropout_is_eager_and_says_why(runs, caplog):
    def make():
        return Block(dropout=0.1)

    eager = runs(make).steps()
    with caplog.at_level(logging.WARNING, logger="graphhooks"):
        graphed = runs(make, graphs=True).steps()
    assert graphed.is_like(eager)
    assert sorted(graphed.attached.stats()["refused"]) == [0, 1, 2]
    assert len([r for r in caplog.records if "eagerly" in r.message]) == 3


class Looks(Block):
    """Waits for the device in the middle."""

    def forward(self, x):
        self.seen = x.sum().item()
        return super().forward(x)


def test_a_wait_in_a_layer_is_eager_and_says_why(runs):
    graphed = runs(Looks, graphs=True).steps()
    assert graphed.is_like(runs(Looks).steps())
    assert sorted(graphed.attached.stats()["refused"]) == [0, 1, 2]
    assert "layer 0 runs eagerly" in graphed.attached.explain()


class WaitsBackward(Block):
    class Through(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad * (1.0 + 0.0 * float(grad.flatten()[0].item()))

    def forward(self, x):
        return super().forward(self.Through.apply(x))


def test_a_backward_that_cannot_be_captured(runs):
    graphed = runs(WaitsBackward, graphs=True).steps(in_flight=2)
    assert graphed.is_like(runs(WaitsBackward).steps(in_flight=2))
    assert sorted(graphed.attached.stats()["refused"]) == [0, 1, 2]


class Fails(Block):
    broken = False

    def forward(self, x):
        if Fails.broken:
            raise ValueError("the layer's own failure")
        return super().forward(x)


def test_an_exception_of_a_layer_is_the_users(runs):
    graphed = runs(Fails, graphs=True)
    graphed.step(2)
    Fails.broken = True
    with pytest.raises(ValueError, match="the layer's own failure"):
        graphed.step(2)
    Fails.broken = False
    graphed.optimizer.step()
    graphed.step(2)
    assert torch.isfinite(graphed.losses[-1])


def test_parameters_that_change_hands(runs):
    def steps(run):
        run.steps(COUNTS[:3])
        layer = run.model.layers[1]
        layer.up.weight.requires_grad_(False)
        layer.down.weight.data = layer.down.weight.data.clone()
        if run.attached is not None:
            run.attached.step()
        run.steps(COUNTS[3:])
        return run

    graphed = steps(runs(graphs=True))
    assert graphed.is_like(steps(runs()))
    assert list(graphed.attached.stats()["refused"]) == [1]


def test_hooks_of_gradients_see_finished_ones(runs):
    def steps(run):
        run.seen = {}
        for name, p in run.model.layers.named_parameters():
            p.register_post_accumulate_grad_hook(
                lambda p, name=name: run.seen.setdefault(name, []).append(
                    p.grad.clone()))
        return run.steps()

    eager, graphed = steps(runs()), steps(runs(graphs=True))
    assert graphed.is_like(eager)
    assert eager.seen.keys() == graphed.seen.keys()
    for name, seen in eager.seen.items():
        assert torch.equal(torch.stack(seen), torch.stack(graphed.seen[name]))


def test_backward_that_never_comes(runs):
    graphed = runs(graphs=True).steps(COUNTS[:3])
    eager = runs().steps(COUNTS[:3])
    for run in (graphed, eager):
        for _ in range(20):
            run.loss()
        run.optimizer.step()
        run.steps(COUNTS)
    assert graphed.is_like(eager)


def test_detach_gives_the_layers_back(runs):
    run = runs(graphs=True).steps()
    run.attached.detach()
    assert all("forward" not in vars(m) for m in run.model.layers)
    run.attached = None
    assert run.steps().is_like(runs().steps().steps())


def test_memory_is_given_back(runs):
    def train() -> int:
        run = Run(graphs=True).steps(in_flight=3)
        run.attached.detach()
        del run
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return torch.cuda.memory_reserved()

    first = train()
    assert [train() for _ in range(3)][-1] <= first


def test_what_cannot_be_attached(runs):
    run = runs(graphs=True)
    with pytest.raises(Error, match="attached already"):
        graphhooks.torch.attach(run.model)
    with pytest.raises(Error, match="no nn.ModuleList"):
        graphhooks.torch.attach(nn.Linear(2, 2))
    with pytest.raises(Error, match="granularity"):
        graphhooks.torch.attach(Model(), granularity="chunk")
    with pytest.raises(Error, match="did you mean|is no option"):
        graphhooks.torch.attach(Model(), max_slot=3)


def test_a_layer_that_comes_later(runs):
    """Its memory is not what earlier recordings have freed among them."""

    class Skips(Model):
        skipped = True

        def forward(self, tokens):
            x = self.embed(tokens)
            for i, layer in enumerate(self.layers):
                if i != 1 or not self.skipped:
                    x = layer(x)
            return self.head(x)

    def steps(run):
        run.model.__class__ = Skips
        run.steps(COUNTS[:3], in_flight=2)
        run.model.skipped = False
        return run.steps(COUNTS, in_flight=2)

    graphed = steps(runs(graphs=True))
    assert graphed.is_like(steps(runs()))
    assert graphed.attached.stats()["refused"] == {}


def test_optimizers_that_step_inside_the_backward(runs):
    def steps(run):
        def step(p):
            optimizers[p].step()
            optimizers[p].zero_grad()

        run.optimizer = torch.optim.SGD(run.model.embed.parameters(), lr=0)
        optimizers = {p: torch.optim.SGD([p], lr=0.1)
                      for p in run.model.layers.parameters()}
        for p in optimizers:
            p.register_post_accumulate_grad_hook(step)
        return run.steps()

    graphed = steps(runs(graphs=True))
    assert graphed.is_like(steps(runs()))
    assert graphed.attached.stats()["replays"] > 0


def test_a_second_backward_is_refused(runs):
    run = runs(graphs=True).steps(COUNTS[:2])
    loss = run.loss()
    loss.backward(retain_graph=True)
    with pytest.raises(Error, match="a second time"):
        loss.backward()
