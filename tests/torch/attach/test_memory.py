"""Memory of graphs is never another's while it is in use.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace

import pytest
import softpool
from graphhooks import _abi
from graphhooks.torch.record.instance import Instance
from models import (BATCH, COUNTS, GRAINS, HAS_GPU, LENGTH, NO_PIECES,
                    SEGMENTS, WHOLE, WIDTH, Block, Deep, Model, Run,
                    collect, on_a_gpu, torch)

import graphhooks

GRAIN = pytest.mark.parametrize("grain", GRAINS)
COUNTED = on_a_gpu("nobody counts its memory")


def fifo(losses):
    for loss in losses:
        loss.backward()


def lifo(losses):
    for loss in reversed(losses):
        loss.backward()


def summed(losses):
    sum(losses).backward()


def pairs(losses):
    """Several sums in a step: each is one gradient, and then they are
    added to each other."""
    for i in range(0, len(losses), 2):
        sum(losses[i:i + 2]).backward()


def threes(losses):
    for i in range(0, len(losses), 3):
        sum(losses[i:i + 3]).backward()


ORDERS = [fifo, lifo, summed, pairs, threes]


@GRAIN
@pytest.mark.parametrize("order", ORDERS)
def test_backwards_in_the_order(pair, grain, order):
    def train(run):
        for count in COUNTS:
            run.zero()
            order([run.loss() for _ in range(count)])
            run.optimizer.step()

    pair(train, grain=grain)


@GRAIN
def test_an_order_that_changes_from_step_to_step(pair, grain):
    def train(run):
        for i, count in enumerate(COUNTS + COUNTS):
            run.zero()
            ORDERS[i % 3]([run.loss() for _ in range(count)])
            run.optimizer.step()

    pair(train, grain=grain)


@GRAIN
def test_a_flight_that_grows_and_shrinks(pair, grain):
    def train(run):
        for in_flight in (1, 1, 3, 2, 4, 1, 3):
            run.step(6, in_flight=in_flight)

    pair(train, grain=grain)


class Skips(Model):
    """Has a layer that comes to the stack late."""

    skipped = True

    def run_layers(self, x):
        for i, layer in enumerate(self.layers):
            if i != 1 or not self.skipped:
                x = layer(x)
        return x


@pytest.mark.parametrize("grain", ["layer", "part"])
@pytest.mark.parametrize("in_flight", [1, 2, 3])
def test_a_layer_that_is_recorded_later(pair, grain, in_flight):
    """Its memory is not what earlier recordings have freed among them."""
    def train(run):
        run.steps(COUNTS[:3], in_flight=in_flight)
        run.model.skipped = False
        run.steps(in_flight=in_flight)
        run.model.skipped = True
        run.steps(COUNTS[:2], in_flight=in_flight)
        run.model.skipped = False
        run.steps(COUNTS[:2], in_flight=in_flight)

    pair(train, grain=grain, model=Skips)


@pytest.mark.parametrize("grain", ["layer", "part"])
@pytest.mark.parametrize("in_flight", [1, 3])
def test_backward_through_half_of_the_stack(pair, grain, in_flight):
    def train(run):
        for i, count in enumerate(COUNTS + COUNTS):
            run.zero()
            flight = []
            for m in range(count):
                loss = run.loss()
                if (i + m) % 3 == 1:
                    loss = run.model.hidden[1].square().mean()
                flight.append(loss)
                if len(flight) == in_flight:
                    fifo(flight)
                    flight.clear()
            fifo(flight)
            run.optimizer.step()

    pair(train, grain=grain, model=Deep)


@pytest.mark.parametrize("grain", ["layer", "part"])
def test_a_half_before_the_whole_and_few_microbatches_before_many(pair,
                                                                  grain):
    """A step with one microbatch records no backward that adds; what its
    forwards have kept is let go, and others that come later must not take
    it."""
    def train(run):
        for count in [1, 1, 1, 4, 6, 3]:
            run.zero()
            flight = []
            for m in range(count):
                loss = run.loss()
                if m % 3 == 0:
                    loss = run.model.hidden[1].square().mean()
                flight.append(loss)
            fifo(flight)
            run.optimizer.step()

    pair(train, grain=grain, model=Deep)


@GRAIN
def test_what_left_each_layer_is_used_besides(pair, grain):
    def train(run):
        for count in COUNTS:
            run.zero()
            for _ in range(count):
                loss = run.loss()
                for x in run.model.hidden:
                    loss = loss + x.square().mean()
                loss.backward()
            run.optimizer.step()

    pair(train, grain=grain, model=Deep)


def some(run):
    """Of one segment some parameters, of another all."""
    named = dict(run.model.named_parameters())
    return [p for name, p in named.items()
            if name.startswith("layers.2") or name.endswith("bias")]


@GRAIN
@pytest.mark.parametrize("in_flight", [1, 3])
def test_zero_grad_of_some_parameters(pair, grain, in_flight):
    def train(run):
        for i, count in enumerate(COUNTS + COUNTS):
            if i % 2:
                run.zero()
            else:
                for p in some(run):
                    p.grad = None
            run.backward(count, in_flight)
            run.optimizer.step()

    pair(train, grain=grain)


@GRAIN
def test_two_optimizers_over_halves_of_the_stack(pair, grain):
    def train(run):
        mine = set(some(run))
        rest = [p for p in run.model.parameters() if p not in mine]
        one = torch.optim.AdamW(mine, lr=1e-3)
        two = torch.optim.SGD(rest, lr=1e-2)
        for i, count in enumerate(COUNTS + COUNTS):
            run.backward(count, in_flight=2)
            one.step()
            one.zero_grad()
            if i % 3 == 2:
                two.step()
                two.zero_grad()

    pair(train, grain=grain)


@GRAIN
def test_two_optimizers_that_take_turns(pair, grain):
    def train(run):
        mine = set(some(run))
        rest = [p for p in run.model.parameters() if p not in mine]
        turns = [torch.optim.SGD(mine, lr=1e-2),
                 torch.optim.SGD(rest, lr=1e-2)]
        for i, count in enumerate(COUNTS + COUNTS):
            run.zero()
            run.backward(count)
            turns[i % 2].step()

    pair(train, grain=grain)


@GRAIN
def test_an_optimizer_of_copies_in_another_precision(pair, grain):
    """As engines have it that keep weights in fp32 beside those of bf16."""
    def train(run):
        copies = [p.detach().clone().double().requires_grad_()
                  for p in run.model.parameters()]
        optimizer = torch.optim.SGD(copies, lr=1e-2)
        for count in COUNTS + COUNTS:
            run.zero()
            run.backward(count, in_flight=2)
            for p, copy in zip(run.model.parameters(), copies):
                copy.grad = p.grad.double()
            optimizer.step()
            with torch.no_grad():
                for p, copy in zip(run.model.parameters(), copies):
                    p.copy_(copy)

    pair(train, grain=grain)


@GRAIN
def test_evaluation_between_forward_and_backward(pair, grain):
    def train(run):
        for count in COUNTS:
            run.zero()
            for _ in range(count):
                loss = run.loss()
                with torch.no_grad():
                    run.loss()
                loss.backward()
            run.optimizer.step()

    pair(train, grain=grain, eager=["forward_only"])


class Table(Block):
    """Keeps what it multiplies by."""

    table = None

    def forward(self, x):
        if self.table is None:
            self.table = torch.full((LENGTH, 1), 0.5, device=x.device)
        return super().forward(x) * self.table


@pytest.mark.parametrize("grain", WHOLE)
def test_what_a_graph_reads_is_alive_as_long_as_it_is(runs, grain):
    run = runs(grain=grain, make=Table).steps(COUNTS[:3])
    read = [weakref.ref(layer.table) for layer in run.model.layers]
    for layer in run.model.layers:
        layer.table = layer.table.clone()
    collect()
    assert all(table() is not None for table in read)
    run.steps(COUNTS[:2])
    assert all(table() is not None for table in read)
    assert run.attached.stats()["replays"] > 0


@GRAIN
def test_the_nodes_of_a_first_step_go_with_its_backward(runs, grain):
    run = runs(grain=grain)
    loss = run.loss()
    assert run.attached.way._nodes
    loss.backward()
    assert not run.attached.way._nodes


@GRAIN
def test_nothing_of_an_eager_pass_is_held(runs, grain):
    """It would keep whole segments of the allocator from the graphs."""
    run = runs(grain=grain, model=Deep)
    run.step(1)
    left = [weakref.ref(hidden) for hidden in run.model.hidden]
    del run.model.hidden
    collect()
    assert not any(hidden() is not None for hidden in left)


@GRAIN
@pytest.mark.parametrize("count", [1, 4])
def test_a_flight_has_one_pool(runs, grain, count):
    """Backwards use what forwards have left, with one microbatch a step and
    with several."""
    run = runs(grain=grain).steps([count] * 3)
    assert len(run.attached.captures.pools) == 1


@GRAIN
def test_all_graphs_that_add_have_one_place_for_a_gradient(runs, grain):
    run = runs(grain=grain).steps([4, 4, 4], in_flight=2)
    for segment in run.attached.segments:
        assert len(segment.parameters.homes) == 1
        assert len({id(i.backward.home)
                    for i in segment.instances.values()}) == 1


@GRAIN
def test_a_slot_writes_gradients_into_none_but_its_own_pool(pair, grain):
    """Where a step had one microbatch they lie where activations were, and
    those of another slot may be in use."""
    def train(run):
        run.steps([1, 1])
        for _ in range(3):
            run.zero()
            lifo([run.loss() for _ in range(3)])
            run.optimizer.step()

    run = pair(train, grain=grain)
    for segment in run.attached.segments:
        places = [set(i.backward.home.gradients.values())
                  for i in segment.instances.values()]
        assert len(places) == 3 and all(places)
        assert not places[0] & places[1] and not places[0] & places[2]


@COUNTED
@GRAIN
def test_large_allocations_between_the_passes(pair, grain):
    """What the allocator gives others is not what graphs hold."""
    def train(run):
        for count in COUNTS:
            run.zero()
            for _ in range(count):
                loss = run.loss()
                filler = torch.full((1 << 22,), 3.0, device="cuda")
                del filler
                torch.cuda.empty_cache()
                loss.backward()
            run.optimizer.step()

    pair(train, grain=grain)


class Views(Block):
    """Returns a view of what it is given beside its result."""

    def forward(self, x):
        x = x[0] if isinstance(x, tuple) else x
        return super().forward(x), x.view(-1, WIDTH)


class Kept(Model):
    def run_layers(self, x):
        kept = []
        for layer in self.layers:
            x = layer(x)
            kept.append(x[1])
        self.kept = kept
        return x[0] + 0.1 * kept[1].view_as(x[0])


@pytest.mark.parametrize("grain", WHOLE)
def test_a_view_of_an_input_outlives_the_graphs(pair, grain):
    """The library has copied the input, and takes its memory with it."""
    def train(run):
        run.steps()
        run.detach()
        collect()
        for kept in run.model.kept:
            run.note(kept)

    pair(train, grain=grain, make=Views, model=Kept, judge=False)


@COUNTED
@GRAIN
def test_memory_does_not_grow_with_the_steps(runs, grain):
    run = runs(grain=grain).steps([4, 4, 4], in_flight=2)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    run.notes.clear()
    run.steps([4] * 6, in_flight=2)
    run.notes.clear()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= before


@COUNTED
@GRAIN
def test_memory_is_given_back(grain):
    def train() -> int:
        with Run(grain=grain) as run:
            run.steps(in_flight=3)
            assert run.attached.stats()["replays"] > 0
        del run
        collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return torch.cuda.memory_reserved()

    first = train()
    assert [train() for _ in range(3)][-1] <= first


@GRAIN
def test_passes_go_with_who_attached(grain):
    def passes() -> int:
        with Run(grain=grain) as run:
            run.steps()
        del run
        collect()
        return sum(isinstance(one, _abi.gh_pass) for one in gc.get_objects())

    first = passes()
    assert passes() <= first


class Keeps(Model):
    """Leaves with each layer what came out of it last, as Megatron's
    dispatcher of tokens keeps the probabilities of its router."""

    def run_layers(self, x):
        for layer in self.layers:
            x = layer(x)
            layer.last = x
        return x


@GRAIN
def test_a_layer_that_keeps_its_last_output_goes_with_its_model(grain):
    """Autograd's graph of that is nothing that Python's collector sees."""
    with Run(grain=grain, model=Keeps) as run:
        run.steps([2, 2, 2])
        assert run.attached.stats()["replays"] > 0
    there = [weakref.ref(p) for p in run.model.parameters()]
    del run
    collect()
    assert not [p for p in there if p() is not None]


@pytest.mark.parametrize("grain", WHOLE)
def test_inputs_are_copied_in_one_launch(runs, grain):
    """And where a layer has written the next one's input, not at all: what
    comes to the first layer and from the head is."""
    run = runs(grain=grain).steps(COUNTS[:2])
    before = run.attached.stats()
    run.steps(COUNTS[2:])
    after = run.attached.stats()
    passes = sum(COUNTS[2:])
    assert after["replays"] - before["replays"] == \
        2 * SEGMENTS[grain] * passes
    assert after["copies"] - before["copies"] <= 2 * passes
    bytes_each = 4 * BATCH * LENGTH * run.model.embed.embedding_dim
    assert after["copied_bytes"] - before["copied_bytes"] <= \
        2 * passes * bytes_each


def held() -> int:
    """Bytes in the pools of graphs."""
    collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    if not HAS_GPU:
        return softpool.bytes_of_pools()
    return sum(each["total_size"] for each in torch.cuda.memory_snapshot()
               if each["segment_pool_id"] != (0, 0))


@pytest.mark.parametrize("grain", WHOLE)
def test_whose_memory_is(runs, grain):
    """What the library has was foretold, and the pools are all that graphs
    have."""
    run = runs(grain=grain)
    before = run.attached.memory()
    assert before["pools"] == {} and before["pool_bytes"] == 0
    run.steps(COUNTS)
    found = run.attached.memory()
    assert found["pool_bytes"] == sum(found["pools"].values()) == held() > 0
    assert [*found["pools"]] == [(0, 0)]  # one is in flight
    inputs = found["slot_bytes"] + found["bank_bytes"]
    assert found["forecast_bytes"] == inputs > 0
    run.attached.detach()
    assert run.attached.memory() == {}


class Waits(Block):
    """Its forward is no graph, when most of it has run."""

    def forward(self, x):
        x = super().forward(x)
        return x * (1.0 if x.sum().item() > 0 else 0.5)


class WaitsBack(Block):
    def forward(self, x):
        return super().forward(Waiting.apply(x))


class Waiting(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * (1.0 if grad.sum().item() > 0 else 0.5)


@pytest.mark.parametrize("grain", WHOLE)
def test_a_recording_that_has_failed_holds_no_memory(runs, grain):
    """While the training goes on, and in all that come after it."""
    def train(attached) -> int:
        run = runs(grain=grain if attached else None, make=Waits,
                   **{"parts": NO_PIECES} if attached else {})
        run.steps([1, 2, 1])
        if attached:
            assert len(run.attached.stats()["refused"]) == SEGMENTS[grain]
        run.notes.clear()
        return held()

    eager = train(False)
    assert train(True) <= eager


def recorded() -> int:
    return sum(type(each) is Instance for each in gc.get_objects())


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("make", [Waits, WaitsBack])
def test_a_recording_that_has_failed_is_gone_at_once(runs, nobody_collects,
                                                     grain, make):
    """Its exception, which has led to the modules' frames, is in no cycle."""
    run = runs(grain=grain, make=make,
               parts=NO_PIECES).steps([1, 2, 1])
    segments = run.attached.segments
    assert all("it waits for the device" in s.refused for s in segments)
    assert recorded() == sum(len(s.instances) for s in segments)


def test_a_model_that_fits_no_scope_is_gone_at_once(monkeypatch,
                                                    nobody_collects):
    """Megatron's, of which each scope was tried: nor is that refusal in one."""
    from graphhooks.megatron import scope

    def refuse(*_):
        raise graphhooks.Error("not this one")

    monkeypatch.setattr(scope, "_checked", refuse)
    names = SimpleNamespace(MoETokenDispatcher=(), CudaGraphModule=())
    model = torch.nn.Linear(1, 1)
    there = weakref.ref(model)
    with pytest.raises(graphhooks.Error, match="^not this one$") as raised:
        scope.largest(names, [model], None, ())
    del model, raised
    assert there() is None


@pytest.mark.parametrize("grain", WHOLE)
def test_a_backward_whose_recording_has_failed_holds_none_after_it(grain):
    def train() -> int:
        with Run(grain=grain, make=WaitsBack, parts=NO_PIECES) as run:
            run.steps([1, 2, 1])
            assert run.attached.stats()["refused"]
        del run
        return held()

    first = train()
    assert [train() for _ in range(3)][-1] <= first
    if not HAS_GPU:
        assert first == 0


@GRAIN
@pytest.mark.parametrize("evaluates", [False, True])
def test_an_attach_that_is_kept_holds_none_after_its_detach(grain, evaluates):
    """Its last pass never went back, or ended before the last layer."""
    def run_layers(x):
        for layer in run.model.layers[:count]:
            x = layer(x)
        return x

    before, count = held(), None
    run = Run(grain=grain, eval=evaluates)
    run.model.run_layers = run_layers
    run.steps([2, 2, 2])
    with torch.set_grad_enabled(not evaluates):
        for count in (None, None, 1):
            run.loss()
    run.zero()
    attached = run.attached
    assert attached.stats()["replays"] > 0
    run.detach()
    assert held() <= before
    assert attached.stats()["refused"] == {}
