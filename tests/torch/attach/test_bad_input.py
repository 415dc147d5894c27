"""What cannot be captured, or is not as it was: eager with its reason where
that is right, and an exception with one sentence where it is not.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import dataclasses
import random
import re
import sys

import pytest
from models import (BATCH, COUNTS, DEVICE, GRAINS, LAYERS, LENGTH, NO_PIECES,
                    SEGMENTS, WHOLE, WIDTH, WORDS, Block, F, Model, Normed, nn,
                    on_a_gpu, torch)
from torch.nn.attention import SDPBackend, sdpa_kernel

import graphhooks
from graphhooks import Error
from graphhooks.torch.base import private
from graphhooks.torch.grad import seeds

GRAIN = pytest.mark.parametrize("grain", GRAINS)


# ---- inputs that differ ----------------------------------------------------


def some_batches(batch, length):
    """Every third microbatch is of another shape."""
    def train(run):
        for count in COUNTS:
            run.zero()
            for m in range(count):
                other = m % 3 == 2
                run.loss(batch if other else BATCH,
                         length if other else LENGTH).backward()
            run.optimizer.step()

    return train


@GRAIN
@pytest.mark.parametrize("batch, length", [
    (BATCH // 2, LENGTH), (BATCH, LENGTH // 2), (BATCH * 2, LENGTH),
    (BATCH // 2, LENGTH * 2)], ids=str)
def test_another_shape_is_eager_once(pair, grain, batch, length):
    """The last one is of as many bytes."""
    run = pair(some_batches(batch, length), grain=grain)
    assert run.attached.stats()["eager_calls"] == {
        "warmup": SEGMENTS[grain] * COUNTS[0]}
    assert len(run.attached.stats()["banks"]) == 2


@GRAIN
def test_with_one_bank_another_shape_is_eager(pair, grain):
    """It comes too seldom to take it from the usual one."""
    run = pair(some_batches(BATCH // 2, LENGTH), grain=grain, max_banks=1,
               eager=["banks"])
    assert run.attached.stats()["eager_calls"]["banks"] == \
        SEGMENTS[grain] * sum(c // 3 for c in COUNTS[1:])


class Takes(Block):
    """Whatever type comes in."""

    def forward(self, x):
        return super().forward(x.float())


class Typed(Model):
    dtype = torch.float32

    def run_layers(self, x):
        for layer in self.layers:
            x = layer(x.to(self.dtype))
        return x


def test_another_type_is_eager_once(pair):
    def train(run):
        for i, count in enumerate(COUNTS + COUNTS):
            run.model.dtype = torch.bfloat16 if i in (2, 6) else torch.float32
            run.step(count)

    run = pair(train, make=Takes, model=Typed, eager=["input"])
    assert run.attached.stats()["eager_calls"]["input"] == LAYERS


class Strided(Model):
    turned = False

    def run_layers(self, x):
        if self.turned:
            x = x.transpose(0, 1).contiguous().transpose(0, 1)
        return super().run_layers(x)


@pytest.mark.parametrize("grain", WHOLE)
def test_other_strides_are_eager(pair, grain):
    def train(run):
        for i, count in enumerate(COUNTS):
            run.model.turned = i == 3
            run.step(count)

    pair(train, grain=grain, model=Strided, eager=["input"])


class Overlaps(Model):
    def run_layers(self, x):
        for layer in self.layers:
            x = layer(x.flatten().unfold(0, WIDTH, 1)[:x[..., 0].numel()]
                      .unflatten(0, x.shape[:2]))
        return x


def test_an_input_with_overlaps_is_eager(pair):
    run = pair(lambda r: r.steps(), model=Overlaps, replays=False,
               eager=["input"])
    assert "a tensor with overlaps goes into it" in run.attached.explain()


class Scales(Block):
    def forward(self, x, scale):
        return super().forward(x * scale)


class OnTheHost(Model):
    def run_layers(self, x):
        for layer in self.layers:
            x = layer(x, torch.tensor(0.5))
        return x


@on_a_gpu("all tensors are the CPU's")
@pytest.mark.parametrize("grain", WHOLE)
def test_a_tensor_on_the_CPU_is_eager(pair, grain):
    run = pair(lambda r: r.steps(), grain=grain, make=Scales,
               model=OnTheHost, replays=False, eager=["input"])
    assert "a tensor on cpu goes into the layer" in run.attached.explain()


class Odd:
    """What no graph knows."""

    half = 0.5


class Objects(Model):
    def run_layers(self, x):
        for layer in self.layers:
            x = layer(x, Odd())
        return x


class Reads(Block):
    def forward(self, x, odd):
        return super().forward(x * odd.half)


def test_an_object_of_the_users_own_is_eager(pair):
    run = pair(lambda r: r.steps(), make=Reads, model=Objects,
               replays=False, eager=["input"])
    assert "Odd goes into the layer" in run.attached.explain()


class Changes(Block):
    def forward(self, x, calls):
        calls.add_(1)
        return super().forward(x * calls)


class Counting(Model):
    def run_layers(self, x):
        for layer in self.layers:
            x = layer(x, torch.zeros(1, device=x.device))
        return x


def test_a_layer_that_changes_its_input_is_eager(pair):
    pair(lambda r: r.steps(), make=Changes, model=Counting, replays=False,
         refused="changes in place what it is given")


class Adds(Block):
    def forward(self, x):
        x += 1
        return super().forward(x)


class AddsToAView(Block):
    def forward(self, x):
        x[:, :1] += 1
        return super().forward(x)


@pytest.mark.parametrize("make", [Adds, AddsToAView])
def test_so_is_one_that_changes_what_has_a_gradient(pair, make):
    """For which torch has an error that says nothing of layers."""
    pair(lambda r: r.steps(COUNTS[:3]), make=make, replays=False,
         refused="changes in place what it is given, .* x.clone")


# ---- what cannot be captured -----------------------------------------------


class Item(Block):
    def forward(self, x):
        self.seen = x.sum().item()
        return super().forward(x)


class Prints(Block):
    def forward(self, x):
        self.text = str(x)
        return super().forward(x)


class Branches(Block):
    def forward(self, x):
        return super().forward(x) if x.isfinite().all() else x


class Synchronizes(Block):
    def forward(self, x):
        torch.cuda.synchronize()
        return super().forward(x)


class ToTheHost(Block):
    def forward(self, x):
        return super().forward(x) + x.detach().mean().cpu().to(x.device)


class Selects(Block):
    """Its output's shape depends on the numbers."""

    def forward(self, x):
        x = super().forward(x)
        return x[x.detach()[..., 0] > -1e9].view(x.shape)


class Mixes(Block):
    """A tensor of the CPU's is copied in a captured part."""

    def forward(self, x):
        return super().forward(x) * torch.full((64,), 0.5).to(x.device)


SYNCS = [Item, Branches, Synchronizes, Selects,
         *[pytest.param(make, marks=on_a_gpu("a copy to the CPU is none"))
           for make in (Prints, ToTheHost, Mixes)]]


def who(names) -> str:
    """As one line has all segments that have something in common."""
    first, *others = names
    if not others:
        return f"{first} runs eagerly"
    return (f"{1 + len(others)} layers ({first} to {others[-1]}) "
            "run eagerly")


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("make", SYNCS)
def test_a_wait_for_the_device_in_a_layer_is_eager(pair, caplog, grain,
                                                   make):
    run = pair(lambda r: r.steps(in_flight=2), grain=grain, make=make,
               replays=False, refused="Error: .*captur", parts=NO_PIECES)
    refused = run.attached.stats()["refused"]
    assert len(refused) == SEGMENTS[grain]
    said = [r.getMessage() for r in caplog.records
            if " eagerly from now on: " in r.getMessage()]
    assert len(said) == 1 and said[0].startswith(who(refused))


def test_the_other_layers_are_replayed(pair):
    class One(Model):
        def __init__(self, make) -> None:
            super().__init__(make)
            self.layers[1] = Item()

    run = pair(lambda r: r.steps(in_flight=2), model=One, refused="captur",
               parts=NO_PIECES)
    stats = run.attached.stats()
    assert list(stats["refused"]) == ["layers.1"]
    assert stats["replays"] == 2 * (LAYERS - 1) * sum(COUNTS[1:])


class Grows(Block):
    """Its capture fails when it has counted."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        y = super().forward(x) / self.calls
        y.mean().item()
        return y


class Caches(Block):
    """Its capture fails when it has made its table again."""

    table = None

    def forward(self, x):
        if self.table is None or len(self.table) != x.shape[1]:
            self.table = torch.arange(x.shape[1], device=x.device).cos()
        y = super().forward(x) * self.table[:, None]
        y.mean().item()
        return y


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("make", [Grows, Caches])
def test_attributes_are_as_before_a_capture_that_fails(pair, grain, make):
    def train(run):
        for count in COUNTS:
            run.step(count)
            with torch.no_grad():
                run.loss(length=LENGTH // 2)

    pair(train, grain=grain, make=make, replays=False, refused="captur",
         eager=["forward_only"])


class Sparse(Block):
    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Embedding(LENGTH, WIDTH, sparse=True)

    def forward(self, x):
        places = torch.arange(x.shape[1], device=x.device)
        return super().forward(x + self.places(places))


@pytest.mark.parametrize("grain", WHOLE)
def test_a_sparse_gradient_is_eager(pair, grain):
    def train(run):
        run.optimizer = torch.optim.SGD(run.model.parameters(), lr=1e-2)
        # Each row once: a GPU adds up those that come twice in any order.
        run.steps([1, 1, 1])
        run.zero()

    pair(train, grain=grain, make=Sparse, replays=False, refused="sparse")


class Looks(Block):
    """No module says that its gradient is sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Parameter(0.1 * torch.randn(LENGTH, WIDTH))

    def forward(self, x):
        return super().forward(look(x, self.places))


def look(x, table):
    places = torch.arange(x.shape[1], device=x.device)
    return x + F.embedding(places, table, sparse=True)


class LooksBothWays(Looks):
    """A sum of one that is sparse and others that are not."""

    def forward(self, x):
        x = super().forward(x)
        return x + 0.1 * x @ self.places.t() @ self.places


class LookTwice(Model):
    """Autograd adds up what comes of two layers."""

    def __init__(self, make) -> None:
        super().__init__(make)
        self.layers[2].places = self.layers[0].places


class LooksAtInputs(Block):
    def forward(self, x, table):
        return super().forward(x if table is None else look(x, table))


class Gives(Model):
    def __init__(self, make) -> None:
        super().__init__(make)
        self.table = nn.Parameter(0.1 * torch.randn(LENGTH, WIDTH))

    def run_layers(self, x):
        for layer, table in zip(self.layers, [self.table, None, self.table]):
            x = layer(x, table)
        return x


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("make, model, count", [
    (Looks, Model, 1), (Looks, Model, 2), (Looks, LookTwice, 1),
    (LooksBothWays, Model, 1), (LooksAtInputs, Gives, 1)])
def test_sparse_gradients_of_functions_are_eager(pair, grain, make, model,
                                                 count):
    """A row comes twice, which a GPU adds up in any order, and no more."""
    def train(run):
        tables = [p for p in run.model.parameters()
                  if p.shape == (LENGTH, WIDTH)]
        run.optimizer = torch.optim.SGD(
            [p for p in run.model.parameters()
             if not any(p is t for t in tables)], lr=1e-2)
        for _ in range(3):
            run.zero()
            for table in tables:
                table.grad = None  # the optimizer does not know them
            run.backward(count)
            for table in tables:
                run.note(table.grad.to_dense(), "table")
            run.optimizer.step()
        run.zero()
        for table in tables:
            table.grad = None

    pair(train, grain=grain, make=make, model=model, replays=None,
         refused="has sparse gradients|places is used [236] times", eager=None)


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("is_kept", [False, True])
def test_a_sparse_gradient_from_elsewhere(pair, grain, count, is_kept):
    """It begins after graphs are there, and comes before theirs."""
    def train(run):
        weight = run.model.layers[1].mlp.up.weight
        rows = torch.arange(0, 8, 2, device=weight.device)
        run.optimizer = torch.optim.SGD([p for p in run.model.parameters()
                                         if p is not weight], lr=1e-2)
        for step in range(6):
            run.zero()
            weight.grad = None
            if step > 3:
                F.embedding(rows, weight, sparse=True).square().sum(
                    ).backward(retain_graph=is_kept)
            run.backward(count)
            run.note(weight.grad.to_dense() if weight.grad.is_sparse
                     else weight.grad, "weight")
            run.optimizer.step()
        run.zero()
        weight.grad = None

    pair(train, grain=grain, eager=None)


class SparseEmbedding(Model):
    """Its gradient holds what comes back from the layers."""

    def __init__(self, make) -> None:
        super().__init__(make)
        self.embed = nn.Embedding(WORDS, WIDTH, sparse=True)


@pytest.mark.parametrize("grain", GRAINS)
@pytest.mark.parametrize("count", [1, 2])
def test_a_sparse_embedding_before_the_layers(pair, grain, count):
    def train(run):
        table = run.model.embed.weight
        run.optimizer = torch.optim.SGD([p for p in run.model.parameters()
                                         if p is not table], lr=1e-2)
        for _ in range(4):
            run.zero()
            table.grad = None
            run.backward(count)
            # Not summed up, which a GPU does in any order.
            grad = table.grad._values()
            run.note(grad.clone(), "values")
            run.optimizer.step()
        table.grad = None

    pair(train, grain=grain, model=SparseEmbedding)


class SparseBuffer(Block):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("next", torch.eye(LENGTH).roll(1, 0).to_sparse(),
                             persistent=False)

    def forward(self, x):
        return super().forward(x + torch.stack([self.next @ one
                                                for one in x]))


class Doubled(torch.Tensor):
    """Has its numbers in a tensor within it, as quantized weights do."""

    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=inner.device)

    def __init__(self, inner) -> None:
        self.inner = inner

    def __tensor_flatten__(self):
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner, meta, size, stride):
        return Doubled(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return function(*[a.inner * 2 if isinstance(a, cls) else a
                          for a in args], **(kwargs or {}))


class Scaled(Block):
    def forward(self, x):
        return super().forward(x) * self.weight


def put_scales(run) -> None:
    for layer in run.model.layers:
        layer.register_buffer("weight", Doubled(torch.ones(
            WIDTH, device=DEVICE)), persistent=False)


@pytest.mark.parametrize("grain", WHOLE)
def test_a_weight_with_its_numbers_elsewhere_is_eager(pair, grain):
    def train(run):
        run.steps([1, 2])
        for layer in run.model.layers:
            layer.weight.inner = layer.weight.inner * 2
        run.steps([2, 1])

    pair(train, grain=grain, make=Scaled, before=put_scales, replays=False,
         refused="is a Doubled, whose numbers are in tensors within it")


@pytest.mark.parametrize("grain", WHOLE)
def test_a_sparse_buffer_is_eager(pair, grain):
    pair(lambda r: r.steps([1, 2, 1]), grain=grain, make=SparseBuffer,
         replays=False, refused="has a sparse parameter or buffer")


@dataclasses.dataclass
class Unset:
    a: int
    b: torch.Tensor = dataclasses.field(init=False)


ODD = {
    "compressed rows": lambda: torch.eye(4, device=DEVICE).to_sparse_csr(),
    "nested": lambda: torch.nested.nested_tensor(
        [torch.ones(2, 3), torch.ones(3, 3)], device=DEVICE),
    "a field that is not set": lambda: Unset(1),
    "a class": lambda: Unset}


class TakesOdd(Block):
    def forward(self, x, odd):
        return super().forward(x), None


class GivesOdd(Block):
    def forward(self, x, odd):
        return super().forward(x), ODD[odd]()


def odd_model(what, is_given):
    class Odd(Model):
        def run_layers(self, x):
            for layer in self.layers:
                x, _ = layer(x, ODD[what]() if is_given else what)
            return x

    return Odd


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("what", ODD)
@pytest.mark.parametrize("make", [TakesOdd, GivesOdd])
def test_what_is_not_known_is_eager(pair, grain, what, make):
    pair(lambda r: r.steps([1, 2, 1]), grain=grain, make=make,
         model=odd_model(what, make is TakesOdd), replays=False, judge=False)


class Recurrent(Block):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(WIDTH, WIDTH, batch_first=True)

    def forward(self, x):
        return super().forward(x + self.gru(x)[0])


@pytest.mark.parametrize("grain", WHOLE)
def test_a_recurrent_layer_is_eager(pair, grain):
    pair(lambda r: r.steps(), grain=grain, make=Recurrent, replays=False,
         refused="gru is a GRU, which keeps its weights in a list besides")


class Through(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * (1.0 + 0.0 * grad.flatten()[0].item())


class WaitsBackward(Block):
    def forward(self, x):
        return super().forward(Through.apply(x))


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("in_flight", [1, 2])
def test_a_wait_in_the_backward_is_eager(pair, grain, in_flight):
    run = pair(lambda r: r.steps(in_flight=in_flight), grain=grain,
               make=WaitsBackward, judge=False, parts=NO_PIECES)
    stats = run.attached.stats()
    assert len(stats["refused"]) == SEGMENTS[grain]
    assert stats["eager_calls"]["backward"] > 0


class WaitsNormed(Normed):
    def forward(self, x):
        return super().forward(Through.apply(x))


class Counts(WaitsBackward):
    """Reads from Python what it has left there."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = [1.0]

    def forward(self, x):
        self.scale[0] += 0.25
        return super().forward(x) * self.scale[0]


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("make", [
    lambda: WaitsBackward(0.1), lambda: WaitsBackward(0.1, 0.1), WaitsNormed],
    ids=["draws", "attention", "buffers"])
def test_such_a_wait_where_modules_do_not_repeat_themselves(pair, grain, make):
    pair(lambda r: r.steps(in_flight=2), grain=grain, make=make, judge=False)


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("backend", [
    "MATH", "EFFICIENT_ATTENTION", "FLASH_ATTENTION", "CUDNN_ATTENTION"])
@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_such_a_wait_behind_every_kernel_of_attention(pair, grain, backend,
                                                      rate):
    """Each keeps the seed of its dropout somewhere else, and is chosen for
    the forward alone."""
    class Kernel(Model):
        def run_layers(self, x):
            with sdpa_kernel(getattr(SDPBackend, backend)), \
                    torch.autocast("cuda", dtype=torch.bfloat16):
                return super().run_layers(x)

    def train(run):
        try:
            run.steps([2, 2, 3])
        except RuntimeError as error:
            if run.attached is None and any(why in str(error) for why in (
                    "No available kernel", "No viable backend")):
                pytest.skip(f"no {backend} here")
            raise

    pair(train, grain=grain, model=Kernel, judge=False,
         make=lambda: WaitsBackward(0.0, rate))


@pytest.mark.parametrize("attention", [
    lambda x, rate: torch.ops.aten._scaled_dot_product_efficient_attention(
        x, x, x, None, True, rate),
    lambda x, rate: torch.ops.aten._efficient_attention_forward(
        x, x, x, None, None, None, None, None, rate, 0, True)],
    ids=["scaled", "raw"])
def test_seeds_of_attention_are_read_on_the_host(attention):
    """Which asks for a copy there, and of nothing there is none."""
    x = torch.randn(1, 2, 16, 8, device="meta", requires_grad=True)
    with seeds.OnTheHost():
        attention(x, 0.0)[0].sum().backward()
        with pytest.raises(NotImplementedError, match="meta"):
            attention(x, 0.1)[0].sum().backward()


class Moves(WaitsBackward):
    """Reads an attribute that moves on behind its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.rates = [1.0]

    def forward(self, x):
        return super().forward(x * self.rates[-1])


class Remembers(WaitsBackward):
    def __init__(self) -> None:
        super().__init__()
        self.before = torch.ones(1).cuda()

    def forward(self, x):
        y = super().forward(x * self.before.mean())
        self.before = x.detach()
        return y


class Tosses(WaitsBackward):
    """Draws one of Python's random numbers."""

    def forward(self, x):
        return super().forward(x * random.random())


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("make", [Moves, Remembers, Tosses])
def test_such_a_wait_where_python_is_read(pair, grain, make):
    def train(run):
        random.seed(1)
        for count in [1, 1, 1, 2]:
            run.zero()
            for loss in [run.loss() for _ in range(count)]:
                if make is Moves:
                    for layer in run.model.layers:
                        layer.rates.append(layer.rates[-1] + 0.5)
                loss.backward()
            run.optimizer.step()
        run.note(torch.tensor(random.random()))

    pair(train, grain=grain, make=make, judge=False)


class DrawsOnce(Block):
    """A number of Python's, in one call: no graph comes of that."""
    draws = False

    def forward(self, x):
        if self.draws:
            x = x * random.random()
        return super().forward(x)


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("count", [1, 2])
def test_another_shape_after_a_recording_that_failed(pair, grain, count,
                                                     monkeypatch):
    def train(run):
        random.seed(1)
        for i, batch in enumerate((BATCH, BATCH, 1, 1, 1, 1)):
            monkeypatch.setattr(DrawsOnce, "draws", i == 1)
            run.zero()
            for _ in range(count if batch == 1 else 1):
                run.loss(batch).backward()
            run.optimizer.step()

    pair(train, grain=grain, make=DrawsOnce)


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("first", [1, 2 * BATCH])
def test_another_shape_at_the_same_address(pair, grain, first):
    """Memory comes back: the library is told its new size."""
    def train(run):
        memory = torch.zeros(2 * BATCH * LENGTH * WIDTH).cuda()
        for batch in (first, BATCH, BATCH, BATCH):
            run.zero()
            for _ in range(2):
                x = memory[:batch * LENGTH * WIDTH].view(batch, LENGTH, WIDTH)
                with torch.no_grad():
                    x.copy_(run.model.embed(run.tokens(batch)[:, :-1]))
                loss = run.model.run_layers(x).square().mean()
                run.note(loss)
                loss.backward()
            run.optimizer.step()

    pair(train, grain=grain)


class SumsUp(WaitsBackward):
    """Sums up in an attribute what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.sum = torch.zeros(WIDTH).cuda()

    def forward(self, x):
        self.sum.data.add_(x.detach().sum((0, 1)))
        return super().forward(x)


@pytest.mark.parametrize("grain", WHOLE)
def test_such_a_wait_where_attributes_are_written(pair, grain):
    """Once for each forward."""
    def train(run):
        run.steps([1, 1, 1, 2])
        for layer in run.model.layers:
            run.note(layer.sum, "sum")

    pair(train, grain=grain, make=SumsUp, judge=False)


class Caches(Block):
    """Makes anew what it reads when it has read another length."""
    length = 0

    def forward(self, x):
        if self.length != x.shape[1]:
            self.length = x.shape[1]
            self.waves = torch.arange(self.length, device=x.device).cos()
        return super().forward(x * self.waves[:, None])


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("in_flight", [1, 2])
def test_a_cache_that_an_evaluation_has_emptied(pair, grain, in_flight):
    """It is full again when the next call is recorded; and the first call
    after a later evaluation is eager, which fills it."""
    def train(run):
        for i in range(6):
            run.step(4, in_flight=1 if i < 3 else in_flight)
            if i in (0, 2):
                run.model.eval()
                with torch.no_grad():
                    run.loss(length=16)
                run.model.train()

    run = pair(train, grain=grain, make=Caches,
               eager=["attributes", "forward_only"])
    assert run.attached.stats()["eager_calls"]["attributes"] == \
        (LAYERS if grain == "layer" else 1)


class Biased(WaitsBackward):
    """Autograd does not keep the bias, and who writes it is not told."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x):
        return super().forward(torch.tanh(x + self.bias))


class Starts(WaitsBackward):
    """Draws numbers from some time on."""
    draws = False

    def forward(self, x):
        return super().forward(x * torch.rand_like(x) if self.draws else x)


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("make", [Biased, Starts])
def test_such_a_wait_where_something_has_changed_since(pair, grain, make,
                                                       monkeypatch):
    """Autograd does not mind, as it has not kept that."""
    def train(run):
        monkeypatch.setattr(Starts, "draws", False)
        run.step(1)
        monkeypatch.setattr(Starts, "draws", True)
        for _ in range(3):
            run.zero()
            loss = run.loss()
            with torch.no_grad():
                for layer in run.model.layers if make is Biased else ():
                    layer.bias.add_(0.25)
            loss.backward()
            run.optimizer.step()

    pair(train, grain=grain, make=make, replays=None, eager=["backward"],
         refused="waits for the device|was written in place between")


@pytest.mark.parametrize("grain", WHOLE)
def test_such_a_wait_where_the_forward_cannot_be_had_again(pair, grain):
    """A weight has changed since, and nobody has said so: its backward is not
    recorded, as autograd can go back but once."""
    def train(run):
        run.step(1)
        for _ in range(3):
            run.zero()
            loss = run.loss()
            for layer in run.model.layers:
                layer.bias.data.add_(0.25)
            loss.backward()
            run.optimizer.step()

    pair(train, grain=grain, make=Biased, replays=None, eager=["backward"],
         refused="gives something else than the first time")


@pytest.mark.parametrize("rate", [0, 0.1])
def test_backwards_that_cannot_be_recorded_leave_nothing(runs, rate):
    run = runs(grain="layer", make=lambda: Block(rate), freeze=1)
    run.steps([1])
    run.zero()
    loss = run.loss()
    run.loss()
    loss.backward()
    run.optimizer.step()
    kept = []
    for _ in range(6):
        run.step(2, in_flight=2)
        kept.append(len(run.attached.flights._last))
    assert kept[-1] == kept[2]
    assert run.attached.stats()["refused"] == {}


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_such_a_wait_under_autocast(pair, grain, dtype):
    def train(run):
        for count in COUNTS[:3]:
            run.zero()
            for _ in range(count):
                with torch.autocast("cuda", dtype=dtype):
                    loss = run.loss()
                loss.backward()
            run.optimizer.step()

    pair(train, grain=grain, make=WaitsBackward, judge=False)


def test_what_runs_again_has_not_been(runs):
    """The backward's failure costs no second count of the forward."""
    run = runs(grain="layer", make=Counts).steps([1])
    assert [layer.scale for layer in run.model.layers] == [[1.25]] * LAYERS
    run.steps([1])  # recorded, and once more for the backward
    assert [layer.scale for layer in run.model.layers] == [[1.5]] * LAYERS


class Stops(torch.autograd.Function):
    now = False

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        if Stops.now:
            raise KeyboardInterrupt
        return grad


class StopsBackward(Block):
    def forward(self, x):
        return super().forward(Stops.apply(x))


@pytest.mark.parametrize("grain", WHOLE)
def test_an_interrupt_of_a_recorded_backward(pair, monkeypatch, grain):
    """The training may go on, and what autograd has let go is not missed."""
    def train(run):
        run.steps([1])
        run.zero()
        loss = run.loss()
        monkeypatch.setattr(Stops, "now", True)
        with pytest.raises(KeyboardInterrupt):
            loss.backward()
        del loss
        monkeypatch.setattr(Stops, "now", False)
        run.steps()

    run = pair(train, grain=grain, make=StopsBackward, judge=False)
    refused = run.attached.stats()["refused"]
    assert list(refused.values()) == [
        "the recording of its backward was interrupted"]


class NoGradient(Block):
    def forward(self, x):
        with torch.no_grad():
            return super().forward(x)


@pytest.mark.parametrize("which", [0, 1])
def test_a_layer_without_a_gradient_is_eager(pair, which):
    class Cut(Model):
        def __init__(self, make) -> None:
            super().__init__(make)
            self.layers[which] = NoGradient()

    pair(lambda r: r.steps(in_flight=2), model=Cut,
         refused="nothing that comes out of it needs a gradient", eager=None)


# ---- two attaches ----------------------------------------------------------


@GRAIN
def test_two_attaches(runs, grain):
    run = runs(grain=grain).steps(COUNTS[:2])
    with pytest.raises(Error, match="is attached already: detach it first"):
        graphhooks.attach(run.model, **GRAINS[grain])
    replays = run.attached.stats()["replays"]
    run.steps(COUNTS[:2])
    assert run.attached.stats()["replays"] > replays


def test_a_layer_twice_in_a_stack(runs):
    run = runs()
    with pytest.raises(Error, match="layers.0 is in the stack twice, and a "
                       "stack has each module once: name it once"):
        graphhooks.attach(run.model, ["layers.*", "layers.0"])
    with pytest.raises(Error, match="layers.1.mlp is a part of layers.1, and "
                       "both are in the stack: leave one of them out"):
        graphhooks.attach(run.model, ["layers.*", "layers.1.mlp"])


class Alike(Model):
    """All layers are one."""

    def __init__(self, make=Block) -> None:
        super().__init__(make)
        for i in range(1, LAYERS):
            self.layers[i] = self.layers[0]


def test_a_layer_that_is_named_once_may_be_called_several_times(pair):
    pair(lambda r: r.steps(COUNTS[:3]), model=Alike, layers="layers.0",
         eager=None)


def test_a_name_of_nothing_in_a_model_that_has_nothing():
    with pytest.raises(Error, match="there is the model alone: layers=.model. "
                       "takes that"):
        graphhooks.attach(nn.Linear(2, 2), "nope.*")
    with pytest.raises(Error, match="there are 0, 1$"):
        graphhooks.attach(nn.Sequential(nn.Tanh(), nn.Tanh()), "nope.*")


# ---- exceptions ------------------------------------------------------------


class Fails(Block):
    broken = False

    def forward(self, x):
        if self.broken:
            raise ValueError("the layer's own failure")
        return super().forward(x)


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("steps", [0, 1], ids=["warmup", "recording"])
def test_an_exception_in_a_forward_is_the_users(pair, grain, steps):
    def train(run):
        run.steps(COUNTS[:steps])
        run.zero()
        run.model.layers[1].broken = True
        with pytest.raises(ValueError, match="the layer's own failure"):
            run.loss()
        run.model.layers[1].broken = False
        run.steps()

    run = pair(train, grain=grain, make=Fails, judge=False)
    refused = run.attached.stats()["refused"]
    assert len(refused) == (1 if steps else 0)
    for why in refused.values():
        assert "ValueError: the layer's own failure" in why


class Raises(torch.autograd.Function):
    on = False

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        if Raises.on:
            raise ValueError("the backward's own failure")
        return grad


class Between(Model):
    def run_layers(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(Raises.apply(x) if i == 1 else x)
        return x


@pytest.mark.parametrize("grain", ["layer", "part"])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_an_exception_in_the_middle_of_a_backward(pair, grain, steps):
    """The layers after it have had their backward, those before not."""
    def train(run):
        run.steps(COUNTS[:steps])
        run.zero()
        run.loss().backward()
        loss = run.loss()
        Raises.on = True
        with pytest.raises(ValueError, match="the backward's own failure"):
            loss.backward()
        Raises.on = False
        run.loss().backward()
        run.optimizer.step()
        run.steps()

    pair(train, grain=grain, model=Between)


def note_gradients(run):
    for p in run.model.layers.parameters():
        run.note(p.grad)


def stop_in_a_sum(run):
    """When the layers have had the backward of one of two losses."""
    def stop(_):
        note_gradients(run)
        raise ValueError("stop")

    hidden = run.model.run_layers(run.model.embed(run.tokens()[:, :-1]))
    hidden.register_hook(stop)
    loss = hidden.square().mean() + run.loss()
    with pytest.raises(ValueError, match="stop"):
        loss.backward()
    note_gradients(run)


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("then", ["zero", "go on", "step"])
def test_an_exception_in_a_backward_of_two_losses(pair, grain, then):
    """Nothing has been added to gradients by then, and what was there is what
    a step finds, but not who sets them to none."""
    def train(run):
        for i, count in enumerate([2, 2, 4, 4, 2]):
            run.zero()
            run.backward(count)
            if i == 3:
                stop_in_a_sum(run)
                if then == "zero":
                    run.zero()
            if i != 3 or then != "step":
                (run.loss() + run.loss()).backward()
            run.optimizer.step()

    pair(train, grain=grain)


@pytest.fixture
def kept(monkeypatch):
    """Autograd lets go of a pass that has failed, and calls nobody at its
    end; on a thread of its own, and may not have come to that yet."""
    kept = []
    at_end = private.at_end_of_pass

    def keep(call):
        kept.append(call)
        at_end(call)

    monkeypatch.setattr(private, "at_end_of_pass", keep)
    return kept


def stop_in_the_fifth_step(run, count=2):
    for _ in range(4):
        run.step(count)
    run.zero()
    run.backward(count)
    stop_in_a_sum(run)


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("then", ["zero", "zero in place", "go on",
                                  "subtract"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_backward_after_such_an_exception_waits_for_nobody(pair, kept, then,
                                                             grain, count):
    """Who has set gradients to none, or to zero, finds none of before in
    them; who steps by himself finds those of before, and no others."""
    def train(run):
        stop_in_the_fifth_step(run, count)
        if then.startswith("zero"):
            run.zero(set_to_none=then == "zero")
        if then == "subtract":
            with torch.no_grad():
                for p in run.model.parameters():
                    p.sub_(p.grad, alpha=0.1)
        (run.loss() + run.loss()).backward()
        run.optimizer.step()
        run.step(2)

    pair(train, grain=grain)


@pytest.mark.parametrize("grain", WHOLE)
def test_a_step_after_such_an_exception_waits_for_nobody(pair, kept, grain):
    def train(run):
        stop_in_the_fifth_step(run)
        run.optimizer.step()
        run.step(2)
        run.zero()
        late, hidden = run.loss(), run.model.embed(run.tokens()[:, :-1])
        hidden.register_hook(lambda _: kept.clear())  # too late for anything
        loss = run.model.run_layers(hidden).square().mean()
        (loss + late).backward()
        run.optimizer.step()

    pair(train, grain=grain)


class FailsBackward(Block):
    def forward(self, x):
        return super().forward(Raises.apply(x))


@pytest.mark.parametrize("grain", WHOLE)
def test_an_exception_while_a_backward_is_recorded(pair, grain):
    """It is the user's; what is recorded of that layer is given up."""
    def train(run):
        run.step(COUNTS[0])
        run.zero()
        Raises.on = True
        with pytest.raises(ValueError, match="the backward's own failure"):
            run.loss().backward()
        Raises.on = False
        run.zero()
        run.steps()

    pair(train, grain=grain, make=FailsBackward, judge=False)


@GRAIN
def test_an_exception_between_forward_and_backward(pair, grain):
    def train(run):
        for count in COUNTS + COUNTS:
            run.zero()
            run.backward(count)
            run.loss()  # and its backward never comes
            run.optimizer.step()

    pair(train, grain=grain)


@pytest.mark.parametrize("grain", WHOLE)
def test_an_interrupt_while_a_graph_is_launched(runs, monkeypatch, grain):
    """One that draws random numbers is launched by torch."""
    def interrupted(graph):
        raise KeyboardInterrupt

    run = runs(grain=grain, make=lambda: Block(dropout=0.1)).steps(COUNTS[:3])
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda.CUDAGraph, "replay", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run.loss()
    run.steps(COUNTS[:2])
    assert torch.isfinite(run.notes[-1])


def test_an_interrupt_is_the_users(runs):
    class Interrupted(Fails):
        def forward(self, x):
            if self.broken:
                raise KeyboardInterrupt
            return super().forward(x)

    run = runs(grain="layer", make=Interrupted).steps(COUNTS[:1])
    run.model.layers[1].broken = True
    with pytest.raises(KeyboardInterrupt):
        run.loss()
    run.model.layers[1].broken = False
    run.steps()
    assert run.attached.stats()["replays"] > 0


# ---- backward twice, or of the backward ------------------------------------


def recorded(runs, grain, steps):
    run = runs(grain=grain).steps(COUNTS[:steps])
    run.zero()
    return run


@GRAIN
@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_a_second_backward_that_begins_later(pair, grain, steps, rate):
    """The modules run once more for it, with the same random numbers."""
    def train(run):
        run.steps(COUNTS[:steps])
        run.zero()
        loss = run.loss()
        loss.backward(retain_graph=True)
        loss.backward(retain_graph=True)
        loss.backward()
        run.optimizer.step()
        run.steps(COUNTS[:2])

    pair(train, grain=grain, make=lambda: Block(rate),
         refused="a second backward", eager=["backward"])


@GRAIN
@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_a_second_backward_after_another_forward(pair, grain, rate):
    """Of the same slot, whose graphs have overwritten what was left there."""
    def train(run):
        run.steps(COUNTS[:3])
        run.zero()
        loss = run.loss()
        loss.backward(retain_graph=True)
        run.loss().backward()
        loss.backward()
        run.optimizer.step()
        run.steps(COUNTS[:2])

    pair(train, grain=grain, make=lambda: Block(rate),
         refused="a second backward", eager=["backward"])


def of_all(run, loss):
    loss.backward()


def of_what_goes_in(run, loss):
    run.note(torch.autograd.grad(loss, run.model.embed.weight)[0])


def some(run) -> list:
    first, last = run.model.layers[0], run.model.layers[-1]
    return [run.model.embed.weight, first.norm1.weight, last.norm1.bias]


def of_some(run, loss):
    for gradient in torch.autograd.grad(loss, some(run)):
        run.note(gradient)


def into_some(run, loss):
    loss.backward(inputs=some(run))


def of_all_but_frozen_ones(run, loss):
    for p in some(run)[1:]:
        p.requires_grad_(False)
    loss.backward()
    for p in some(run)[1:]:
        p.requires_grad_(True)


@GRAIN
@pytest.mark.parametrize("back", [
    of_all, of_what_goes_in, of_some, into_some, of_all_but_frozen_ones])
@pytest.mark.parametrize("when", ["again", "late", "partly late"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_second_or_late_backward_of_several_losses(pair, grain, back, when,
                                                     count):
    """Eager adds up what comes of all, and that to what is there."""
    def train(run):
        run.steps([4] * 3, in_flight=4)
        run.zero()
        run.loss().backward()
        losses = [run.loss() for _ in range(count)]
        if when != "again" and run.attached is not None:
            run.attached.step()
        if when == "partly late":
            losses += [run.loss() for _ in range(count)]
        loss = sum(losses)
        if when == "again":
            loss.backward(retain_graph=True)
        back(run, loss)
        for p in run.model.parameters():
            run.note(p.grad)
        run.optimizer.step()
        run.steps(COUNTS[:2])

    pair(train, grain=grain, eager=["backward"],
         refused="a second" if when == "again" else "its backward comes")


class CountsUp(Block):
    """Reads a buffer that it writes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        return super().forward(x) * (1 + self.count / 64)


@GRAIN
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_second_backward_finds_the_buffers_of_its_forward(pair, grain,
                                                            steps):
    def train(run):
        run.steps(COUNTS[:steps])
        run.zero()
        loss = run.loss()
        loss.backward(retain_graph=True)
        loss.backward()
        run.optimizer.step()
        run.steps(COUNTS[:2])

    run = pair(train, grain=grain, make=CountsUp, refused="a second backward",
               eager=["backward"])
    assert "gave other numbers" not in run.attached.explain()


class Two(nn.Module):
    """One that makes what the other judges, stepped apart."""

    def __init__(self, make) -> None:
        super().__init__()
        self.makes = nn.Sequential(*(make() for _ in range(2)))
        self.judges = nn.Sequential(*(make() for _ in range(2)))


def adversaries(at, until=9):
    """Steps in which, from `at` on, the one goes back when the other has
    stepped."""
    def train(run):
        makes, judges = run.model.makes, run.model.judges
        steppers = [torch.optim.SGD(m.parameters(), lr=0.1)
                    for m in (makes, judges)]
        for i in range(until):
            made = makes(torch.randn(BATCH, LENGTH, WIDTH).to(DEVICE))
            if i < at:
                made.square().mean().backward()
                steppers[0].step()
                steppers[0].zero_grad()
            judged = judges(made.detach()).mean()
            judged.backward()
            steppers[1].step()
            steppers[1].zero_grad()
            if i >= at:
                loss = -judges(made).mean()
                loss.backward()
                run.note(loss)
                steppers[0].step()
                steppers[0].zero_grad()
                steppers[1].zero_grad()
    return train


@pytest.mark.parametrize("at", [0, 1, 3, 4])
@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_a_backward_after_another_optimizers_step(pair, at, rate):
    """Nothing of such a layer is recorded, or no more."""
    run = pair(adversaries(at), make=lambda: Block(rate), model=Two,
               grain="layer", layers=["makes.*", "judges.*"],
               refused="after the step of its forward has ended",
               eager=None)
    assert {*run.attached.stats()["refused"]} == {"makes.0", "makes.1"}
    recorded = {s.name for s in run.attached.segments if s.instances}
    assert ("makes.0" in recorded) == (at > 0) and "judges.0" in recorded


def test_a_backward_whose_weights_have_been_written_since(runs):
    """Eager raises an error too."""
    run = recorded(runs, "layer", 3)
    run.backward(1)
    words = run.model.embed(run.tokens()[:, :-1])
    loss = run.model.run_layers(words).square().mean()
    run.optimizer.step()
    run.loss()
    with pytest.raises(Error, match="after the step of its forward"):
        loss.backward()


@GRAIN
def test_a_second_backward_after_a_step_of_biases(runs, grain):
    """Autograd has kept none, and eager goes on; what was there is gone."""
    def of_biases(run):
        for name, p in run.model.named_parameters():
            p.requires_grad_(name.endswith("bias"))
        run.optimizer = torch.optim.SGD(
            [p for p in run.model.parameters() if p.requires_grad], lr=0.1)

    run = runs(grain=grain, before=of_biases).steps(COUNTS[:3])
    loss = run.loss()
    loss.backward(retain_graph=True)
    run.optimizer.step()
    with pytest.raises(Error, match="a second backward .*written since, .*"
                       "step when all backwards of a forward have run"):
        loss.backward()


@GRAIN
def test_what_a_forward_was_given_goes_with_its_backward(runs, grain):
    """Also where the loss is kept; only retain_graph=True keeps it."""
    run = recorded(runs, grain, 3)
    for keep in (False, True):
        loss = run.loss()
        origins = [i.origin for s in run.attached.segments
                   for i in s.instances.values()]
        assert all(o.tensors is not None for o in origins)
        loss.backward(retain_graph=keep)
        assert all((o.tensors is not None) == keep for o in origins)


@GRAIN
def test_a_backward_after_detach(pair, grain):
    def train(run):
        run.steps(COUNTS[:3])
        run.zero()
        loss = run.loss()
        run.detach()
        loss.backward()
        run.optimizer.step()
        run.steps(COUNTS[:2])

    pair(train, grain=grain, judge=False)


class Bent(nn.Module):
    """Has a second derivative everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp, self.attn = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x):
        return x + torch.tanh(self.mlp(torch.tanh(self.attn(x))))


def penalized(run, since):
    """As a critic's gradient is; of its weights too, at last."""
    for i in range(6):
        run.zero()
        loss = run.loss()
        if i >= since:
            grads = torch.autograd.grad(
                loss, [run.model.embed.weight, *(
                    p for p in run.model.layers.parameters() if i == 5)],
                create_graph=True)
            loss = loss + sum(g.square().sum() for g in grads)
        loss.backward()
        run.optimizer.step()


@GRAIN
def test_a_penalty_of_gradients(pair, grain):
    pair(lambda run: penalized(run, 0), grain=grain, make=Bent, replays=False,
         refused="derivative")


@GRAIN
@pytest.mark.parametrize("since", [1, 3])
def test_a_penalty_of_gradients_that_begins_later(runs, grain, since):
    """Then gradients are added up in another order, once."""
    eager, run = runs(make=Bent), runs(make=Bent, grain=grain)
    for each in (eager, run):
        each.optimizer = torch.optim.SGD(each.model.parameters(), lr=0.1)
        penalized(each, since)
    assert run.attached.stats()["refused"]
    found = run.state()
    for name, value in eager.state().items():
        assert torch.allclose(value.float(), found[name].float(), rtol=1e-4,
                              atol=1e-6), name


@GRAIN
@pytest.mark.parametrize("when", ["again", "late"])
def test_a_derivative_of_a_second_or_late_backward(runs, grain, when):
    """Eager adds up some of it in another order."""
    def train(run):
        run.steps(COUNTS[:3])
        run.zero()
        loss = run.loss()
        if when == "again":
            loss.backward(retain_graph=True)
            run.zero()
        elif run.attached is not None:
            run.attached.step()
        own = [*run.model.layers[0].parameters()]
        gradients = torch.autograd.grad(loss, own, create_graph=True)
        sum(g.square().sum() for g in gradients).backward()
        return [*gradients, *(p.grad for p in run.model.parameters())]

    for one, other in zip(train(runs(make=Bent)),
                          train(runs(make=Bent, grain=grain))):
        torch.testing.assert_close(one, other)


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
@GRAIN
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_backward_with_a_graph_of_its_own(pair, grain, steps):
    def train(run):
        run.steps(COUNTS[:steps])
        run.zero()
        for _ in range(2):
            run.loss().backward(create_graph=True)
        for p in run.model.parameters():
            p.grad = p.grad.detach()
        run.optimizer.step()
        run.steps(COUNTS[:2])

    pair(train, grain=grain, make=Bent, replays=None, eager=None,
         refused="derivative")


class BentAhead(Model):
    """A layer's weight is used on the way to it."""

    def run_layers(self, x):
        return super().run_layers(x + self.layers[1].attn.weight.mean())


class BentTied(Model):
    """Two layers have a weight."""

    def __init__(self, make):
        super().__init__(make)
        self.layers[2].attn = self.layers[0].attn


class BentPair(Bent):
    def forward(self, x, y):
        return super().forward(x * y)


class BentInputs(Model):
    """What a layer is given depends on another input."""

    def run_layers(self, x):
        for layer in self.layers:
            x = layer(x, torch.tanh(x))
        return x


def twice(gradient):
    return gradient * 2


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
@pytest.mark.parametrize("hook", [None, "register_hook",
                                  "register_post_accumulate_grad_hook"])
@pytest.mark.parametrize("grain, model, make", [
    ("layer", BentAhead, Bent), ("layer", BentTied, Bent),
    ("layer", BentInputs, BentPair), ("chunk", BentAhead, Bent)])
def test_a_derivative_is_of_one_call_alone(pair, grain, model, make, hook):
    """What goes into it may depend on its weights, or on each other; hooks are
    called once."""
    def listen(run):
        p = run.model.layers[1].attn.weight
        if hook == "register_hook":
            p.register_hook(twice)
        elif hook is not None:
            p.register_post_accumulate_grad_hook(
                lambda p: run.note(p.grad))

    def train(run):
        run.steps(COUNTS[:3])
        run.zero()
        run.loss().backward(create_graph=True)
        for p in run.model.parameters():
            p.grad = p.grad.detach()
        run.optimizer.step()
        run.steps(COUNTS[:2])

    pair(train, grain=grain, model=model, make=make, before=listen, eager=None,
         refused="derivative")


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
@GRAIN
def test_a_hook_that_comes_before_a_derivative(pair, grain):
    def train(run):
        run.steps(COUNTS[:3])
        run.zero()
        loss = run.loss()
        handles = [p.register_hook(twice)
                   for p in run.model.layers[1].parameters()]
        loss.backward(create_graph=True)
        for handle in handles:
            handle.remove()
        for p in run.model.parameters():
            p.grad = p.grad.detach()
        run.optimizer.step()

    pair(train, grain=grain, make=Bent, eager=None, refused="derivative")


@GRAIN
def test_a_second_backward_in_the_warmup_is_torchs_own(pair, grain):
    def train(run):
        run.zero()
        loss = run.loss()
        loss.backward(retain_graph=True)
        loss.backward()
        run.optimizer.step()
        run.steps()

    pair(train, grain=grain, replays=False, refused="a second backward")


class TwoOutputs(Block):
    def forward(self, x):
        y = super().forward(x)
        return y, y.square().mean()


class Balanced(Model):
    def run_layers(self, x):
        self.extra = 0.0
        for layer in self.layers:
            x, extra = layer(x)
            self.extra = self.extra + extra
        return x


@pytest.mark.parametrize("grain", WHOLE)
def test_outputs_whose_gradients_come_from_the_start(pair, grain):
    def train(run):
        for count in COUNTS:
            run.zero()
            for m in range(count):
                loss = run.loss()
                if m % 2 == 0:
                    loss = loss + 0.1 * run.model.extra
                loss.backward()
            run.optimizer.step()

    pair(train, grain=grain, make=TwoOutputs, model=Balanced, eager=["zeros"])


@pytest.mark.parametrize("grain", WHOLE)
def test_a_gradient_of_an_output_that_had_none(pair, grain):
    def train(run):
        run.steps(COUNTS[:3])
        for _ in range(2):
            run.zero()
            loss = run.loss()
            (loss + run.model.extra).backward()
            run.optimizer.step()
        run.steps(COUNTS[:2])

    pair(train, grain=grain, make=TwoOutputs, model=Balanced,
         refused="a gradient comes to output .*detach and attach again",
         eager=["backward"])


class Exits(Block):
    """Has an output that a head of its own makes."""

    def __init__(self) -> None:
        super().__init__()
        self.exit = nn.Linear(64, 8)

    def forward(self, x):
        y = super().forward(x)
        return y, self.exit(y).square().mean()


class Samples(Block):
    """Two outputs have a head between them."""

    def __init__(self) -> None:
        super().__init__()
        self.exit = nn.Linear(64, 2)

    def forward(self, x):
        y = super().forward(x)
        mean, spread = self.exit(y).mean((0, 1)).unbind()
        return y, mean.square() + spread.exp(), spread.square()


class Sampled(Balanced):
    def run_layers(self, x):
        self.extra = 0.0
        for layer in self.layers:
            x, *extra = layer(x)
            self.extra = self.extra + sum(extra)
        return x


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("make, model, said", [
    (Exits, Balanced, "1"), (Samples, Sampled, "1 or 2")],
    ids=["its_own", "of_two_outputs"])
def test_a_head_without_a_gradient(pair, grain, make, model, said):
    """Zeros are not none: weight decay would go on."""
    def train(run):
        for i in range(6):
            run.zero()
            for _ in range(2):
                loss = run.loss()
                (loss + run.model.extra if i < 3 else loss).backward()
            run.optimizer.step()

    pair(train, grain=grain, make=make, model=model, eager=None,
         refused=f"no gradient comes to output {said},")


class Gives(torch.autograd.Function):
    """Gives no gradient back from time to time."""

    nothing = False

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return None if Gives.nothing else grad


class Giving(Model):
    def run_layers(self, x):
        return Gives.apply(super().run_layers(x))


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("sums", [False, True])
def test_no_gradient_at_all_is_none(pair, monkeypatch, grain, count, sums):
    """Zeros would be another step for who has momentum."""
    def train(run):
        for i in range(6):
            run.zero()
            monkeypatch.setattr(Gives, "nothing", i in (3, 4))
            if sums:
                sum(run.loss() for _ in range(count)).backward()
            else:
                run.backward(count)
            run.optimizer.step()

    pair(train, grain=grain, model=Giving)


# ---- what cannot be attached -----------------------------------------------


def cpu():
    return Model(Block)


@pytest.mark.parametrize("model, layers, why", [
    (lambda: nn.Linear(2, 2).cuda(), None,
     "the model has no list of layers, as an nn.ModuleList, or an"),
    (cpu, None, "the layers are on cpu; graphs are of a GPU: move the model"),
    (cpu, "blocks.*", "no module of the model is called 'blocks\\.\\*'"),
    (cpu, [], "there is no layer to attach to"),
    (cpu, [F.gelu], "layers has .*it takes modules, or names by pattern")])
def test_what_cannot_be_attached(without_a_gpu, model, layers, why):
    with pytest.raises(Error, match=why) as caught:
        graphhooks.attach(model(), layers)
    assert "\n" not in str(caught.value)


def test_data_parallel_is_refused(runs):
    run = runs()
    with pytest.raises(Error, match="DataParallel") as caught:
        graphhooks.attach(nn.DataParallel(run.model))
    assert "\n" not in str(caught.value)


class Lazy(Block):
    def __init__(self) -> None:
        super().__init__()
        self.mlp.up = nn.LazyLinear(4 * WIDTH)


@GRAIN
def test_parameters_without_a_shape_are_refused(grain):
    model = Model(Lazy).cuda()
    with pytest.raises(Error, match="one forward before") as caught:
        graphhooks.attach(model, **GRAINS[grain])
    assert "\n" not in str(caught.value)


class Appends(Block):
    """A loss of its own goes into a list."""

    def __init__(self) -> None:
        super().__init__()
        self.losses: list = []

    def forward(self, x):
        x = super().forward(x)
        self.losses.append(x.square().mean())
        return x


@pytest.mark.parametrize("grain", WHOLE)
def test_a_loss_that_goes_into_a_list_is_eager(pair, grain):
    def train(run):
        for count in COUNTS:
            run.zero()
            for _ in range(count):
                loss = run.loss()
                for layer in run.model.layers:
                    loss = loss + 0.1 * layer.losses.pop()
                    assert layer.losses == []
                loss.backward()
            run.optimizer.step()

    pair(train, grain=grain, make=Appends, replays=False,
         refused="keeps a tensor with a gradient in an attribute, losses")


class Loads(Block):
    """Says how busy it was, for whoever balances layers after the step."""

    def forward(self, x):
        x = super().forward(x)
        self.load = x.detach().square().mean((0, 1))
        return x


class Lists(Block):
    """The same, call by call."""

    def __init__(self) -> None:
        super().__init__()
        self.load: list = []

    def forward(self, x):
        x = super().forward(x)
        self.load.append(x.detach().square().mean())
        return x


class Recurs(Block):
    """Goes on where its last call has ended."""

    load = None

    def forward(self, x):
        before, self.load = self.load, x.detach()
        return super().forward(x if before is None else x + 0.1 * before)


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("in_flight", [1, 2])
@pytest.mark.parametrize("make", [Loads, Lists, Recurs])
def test_a_tensor_that_a_layer_leaves_in_an_attribute(pair, grain, make,
                                                      in_flight):
    def train(run):
        for count in COUNTS:
            run.step(count, in_flight)
            for layer in run.model.layers:
                for load in (layer.load if make is Lists else [layer.load]):
                    run.note(load)
                if make is Lists:
                    layer.load.clear()
            with torch.no_grad():
                run.model.eval()
                run.loss()
                run.model.train()

    pair(train, grain=grain, make=make, replays=False,
         refused="another tensor in an attribute, load",
         eager=["forward_only"])


class Skipped(Block):
    """Now and then."""

    def forward(self, x):
        if self.training and random.random() < 0.3:
            return x
        return super().forward(x)


class Shaken(Block):
    def forward(self, x):
        numbers = sys.modules["numpy"].random
        return super().forward(x * float(numbers.uniform(0.5, 1.5)))


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("make", [Skipped, Shaken])
def test_random_numbers_of_the_host(pair, grain, make):
    numpy = pytest.importorskip("numpy")

    def train(run):
        random.seed(1)
        numpy.random.seed(1)
        run.steps(COUNTS)
        run.note(torch.tensor([random.random(), numpy.random.uniform()]))

    pair(train, grain=grain, make=make, replays=False,
         refused="random numbers on the host")


class Notes(Block):
    def __init__(self) -> None:
        super().__init__()
        self.rows, self.counts = [], {"calls": 0}

    def forward(self, x):
        self.rows.append(1)
        self.counts["calls"] += 1
        scale = 1 / (len(self.rows) + self.counts["calls"])
        return super().forward(x) * (scale + 0.0 * x.sum().item())


@pytest.mark.parametrize("grain", WHOLE)
def test_what_is_in_containers_is_as_before_a_capture_that_fails(pair, grain):
    pair(lambda r: r.steps(COUNTS[:3]), grain=grain, make=Notes,
         replays=False, refused="captur")


class Waits(Block):
    def forward(self, x):
        return super().forward(x) * (1 if x.detach().mean().item() else 2)


@pytest.mark.parametrize("grain", WHOLE)
def test_a_capture_that_fails_is_one_line(runs, grain, caplog, capfd):
    """Which has the place in the layer, and no traceback."""
    run = runs(grain=grain, make=Waits,
               parts=NO_PIECES).steps([1, 1, 1])
    refused = run.attached.stats()["refused"]
    assert refused
    for why in refused.values():
        assert re.search(r"\(at (test_bad_input|softtorch).py line \d+\)$",
                         why), why
    lines = [r.getMessage() for r in caplog.records]
    assert len(lines) == 1, lines
    assert lines[0].startswith(f"{who(refused)} from now on: ")
    assert "Traceback" not in caplog.text + capfd.readouterr().err


def test_what_was_counted_can_be_asked_for_at_the_end(runs):
    run = runs(grain="layer").steps()
    before = run.attached.stats(), run.attached.explain()
    attached = run.attached
    attached.detach()
    assert (attached.stats(), attached.explain()) == before
    assert before[0]["replays"] > 0


def test_a_loop_without_a_step_is_said(runs, caplog):
    run = runs(grain="layer")
    for _ in range(70):
        run.loss().backward()
    assert caplog.text.count("no optimizer of these layers has stepped") == 1


@pytest.mark.parametrize("options, said", [
    ({"generators": 3}, "generators has 3; it takes"),
    ({"generators": ["cuda"]}, "generators has 'cuda'; it takes"),
    ({"services": None}, "services are what attach lends")])
def test_what_attach_lends_and_is_lent(runs, options, said):
    with pytest.raises(Error, match=re.escape(said)):
        runs(grain="layer", **options)


class LeavesOut(Model):
    """The loss has no second outputs from the third step on."""

    calls = 0

    def run_layers(self, x):
        self.calls += 1
        total = 0
        for layer in self.layers:
            x, more = layer(x)
            if self.calls <= 8:
                total = total + .01 * more
        return x + total


def test_an_output_that_is_left_out_later_is_said(pair, caplog):
    run = pair(lambda r: r.steps((4, 4, 4)), model=LeavesOut, make=TwoOutputs,
               eager=["zeros"])
    assert run.attached.stats()["eager_calls"]["zeros"] == 4 * LAYERS
    said = [r.message for r in caplog.records if "reads zeros" in r.message]
    assert len(said) == 1 and said[0].startswith(
        f"{LAYERS} layers (layers.0 to layers.2): an output that had")
