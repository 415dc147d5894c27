"""Activations that go to the host's memory and come back: the same bits.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import copy
import gc

import pytest
from models import (BATCH, COUNTS, DEVICE, GRAINS, HAS_GPU, WIDTH, Block,
                    Mlp, Model, collect, differing, nn, on_a_gpu, torch)
from torch.utils.checkpoint import checkpoint

import graphhooks

LEAST = 256
LAYERS = 6


class Deep(Model):
    """Of as many layers as an offload has a use for."""

    def __init__(self, make=Block) -> None:
        super().__init__(make)
        self.layers = nn.ModuleList(make() for _ in range(LAYERS))


def offload(what=True, **options) -> dict:
    return {"offload": what, "offload_min_bytes": LEAST, "max_slots": 8,
            **options}


def moved(run) -> dict:
    return run.attached.stats()["offload"]


def went(run) -> None:
    """Graphs have offloaded, and all has come back."""
    stats = moved(run)
    assert stats["out_bytes"] > 0
    assert stats["back_bytes"] == stats["out_bytes"]
    nothing_is_left(run)


def nothing_is_left(run) -> None:
    collect()
    carrier = run.attached.offload.carrier
    assert not any(carrier._alive.values())
    free = sum(block.memory.nbytes for blocks in carrier.pool._free.values()
               for block in blocks)
    assert free == carrier.pool.nbytes


# ---- in graphs --------------------------------------------------------------


@pytest.mark.parametrize("grain", GRAINS)
@pytest.mark.parametrize("what", [True, "mlp,attn", "mlp"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_graphs_that_offload(pair, grain, what, dropout):
    went(pair(lambda r: r.steps(in_flight=4), grain=grain, model=Deep,
              make=lambda: Block(dropout, dropout), **offload(what)))


@pytest.mark.parametrize("what", [True, "mlp,attn"])
@pytest.mark.parametrize("grain", ["layer", "part"])
def test_one_microbatch_in_flight(pair, grain, what):
    went(pair(lambda r: r.steps(), grain=grain, model=Deep, **offload(what)))


@pytest.mark.parametrize("grain", GRAINS)
def test_recordings_in_the_first_step(pair, grain):
    went(pair(lambda r: r.steps(in_flight=3), grain=grain, model=Deep,
              **offload(warmup_steps=0)))


@pytest.mark.parametrize("how", [{"gradients": "autograd"},
                                 {"offload_delay": True},
                                 {"offload_buffers": 4}])
def test_with_other_options(pair, how):
    went(pair(lambda r: r.steps(in_flight=3), model=Deep, **offload(**how)))


def test_all_that_is_asked_for_goes_but_the_last(pair):
    run = pair(lambda r: r.steps(), model=Deep, **offload("mlp"))
    assert moved(run)["going"] == [f"layers.{i}'s mlp"
                                   for i in range(LAYERS - 1)]
    said = run.attached.explain()
    assert f"offload, mlp: {LAYERS - 1} of {LAYERS} groups go" in said
    assert f"1 of {LAYERS} groups stay" in said
    assert "needed at once by the backward" in said


def test_a_fraction(pair):
    run = pair(lambda r: r.steps(in_flight=2), model=Deep,
               **offload(offload_fraction=0.8))
    assert len(moved(run)["going"]) == 4
    went(run)


def test_ranks_of_a_pipeline_keep_more_than_those_before(pair):
    def going(rank):
        run = pair(lambda r: r.steps(in_flight=2), model=Deep,
                   **offload(offload_keep_bytes=1, pipeline_rank=rank))
        went(run)
        return moved(run)["going"]

    layers = [f"layers.{i}" for i in range(LAYERS - 1)]
    assert going(0) == layers
    assert going(2) == layers[1:]


def test_a_part_that_is_called_twice(pair):
    class Twice(Block):
        def forward(self, x):
            x = super().forward(x)
            return x + self.mlp(self.norm2(x))

    run = pair(lambda r: r.steps(), model=Deep, make=Twice,
               **offload("mlp"))
    went(run)
    assert "is called several times" in run.attached.explain()


def test_a_layer_that_keeps_more_in_a_graph_than_eagerly(pair):
    """The buffers are of what the first step has shown."""
    class Grows(Block):
        def forward(self, x):
            x = super().forward(x)
            if torch.cuda.is_current_stream_capturing():
                return torch.sin(torch.sin(x) * 1.0) * 0.0 + x
            return x * 0.0 + x

    run = pair(lambda r: r.steps(), model=Deep, make=Grows, **offload())
    assert "keeps more in a graph" in run.attached.explain()
    went(run)


@pytest.mark.parametrize("graphs", [True, False])
def test_a_group_that_no_backward_reads(pair, graphs):
    """It is there again in the next microbatch of the step."""
    class Aside(Block):
        def forward(self, x):
            y = x + self.attn(self.norm1(x))
            return y, self.mlp(self.norm2(y))

    class Takes(Deep):
        def run_layers(self, x):
            for layer in self.layers:
                x, _ = layer(x)
            return x

    run = pair(lambda r: r.steps(), model=Takes, make=Aside, replays=graphs,
               **offload("mlp,attn", graphs=graphs))
    if graphs:
        went(run)
    nothing_is_left(run)


def test_views_that_are_saved_apart(pair):
    """Halves of one tensor, and columns of another."""
    class Views(Block):
        def forward(self, x):
            a, b = self.mlp.up(x).chunk(2, -1)
            c = self.mlp.up(x)
            d = c[..., :WIDTH] * c[..., WIDTH:2 * WIDTH]
            e = torch.sigmoid(a) * b
            return x + d + e[..., :WIDTH] * e[..., WIDTH:]

    went(pair(lambda r: r.steps(), model=Deep, make=Views, **offload()))


class Given(torch.autograd.Function):
    """Its backward gives what its forward has saved."""

    @staticmethod
    def forward(ctx, x):
        y = torch.sin(x)
        ctx.save_for_backward(y)
        return x + 1

    @staticmethod
    def backward(ctx, grad):
        return ctx.saved_tensors[0]


@pytest.mark.parametrize("graphs", [True, False])
def test_gradients_that_lie_where_a_group_does(pair, graphs):
    """They are read when the group's memory is another's."""
    class First(Block):
        def forward(self, x):
            return super().forward(Given.apply(x))

    run = pair(lambda r: r.steps(), model=Deep, make=First, replays=graphs,
               **offload(graphs=graphs))
    nothing_is_left(run)


def test_a_layer_whose_output_is_saved(pair):
    class Saves(Block):
        def forward(self, x):
            return torch.tanh(super().forward(x))

    run = pair(lambda r: r.steps(), model=Deep, make=Saves, **offload())
    went(run)
    plain = pair(lambda r: r.steps(), model=Deep, **offload())
    assert run.attached.offload.sizes == plain.attached.offload.sizes


def test_buffers_and_attributes_stay(pair):
    class Masked(Block):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", torch.rand(32, WIDTH))
            self.other = torch.rand(BATCH, 32, WIDTH)

        def _apply(self, call, *args):
            self.other = call(self.other)
            return super()._apply(call, *args)

        def forward(self, x):
            return super().forward(x * self.mask + x * self.other)

    run = pair(lambda r: r.steps(), model=Deep, make=Masked, **offload())
    plain = pair(lambda r: r.steps(), model=Deep, **offload())
    work = run.attached.offload.sizes
    # What is multiplied saves those two alone.  The sum of it is what the
    # norm of a layer without has as its input, which stays there.
    assert [*work.values()] == [
        n + 4 * BATCH * 32 * WIDTH
        for n in plain.attached.offload.sizes.values()]


def test_memory_is_let_go_before_the_library_copies(runs, monkeypatch):
    """In a capture: a place, the copy, the mark, in this order."""
    from graphhooks.torch.guard import ran
    from graphhooks.torch.offload import ringed

    # What notes the calls is no layer's.
    monkeypatch.setattr(ran, "OTHERS", (*ran.OTHERS, __file__))
    calls: list = []
    for name in ("save", "commit", "load", "release"):
        def call(self, *args, name=name, do=getattr(ringed._Calls, name)):
            calls.append((name, self.layer))
            return do(self, *args)

        monkeypatch.setattr(ringed._Calls, name, call)
    memory = ringed.bytes_at

    class Target:
        def __init__(self, tensor):
            self.tensor = tensor

        def __getitem__(self, places):
            return Target(self.tensor[places])

        def copy_(self, source):
            calls.append(("copy", None))
            return self.tensor.copy_(source)

        def __getattr__(self, name):
            return getattr(self.tensor, name)

    monkeypatch.setattr(ringed, "bytes_at", lambda *a: Target(memory(*a)))
    run = runs(grain="layer", model=Deep, **offload())
    run.steps([1, 1])
    order = [name for name, _ in calls]
    assert order.count("save") == order.count("commit") == LAYERS - 1
    assert order.count("load") == order.count("release") == LAYERS - 1
    for i, name in enumerate(order):
        if name == "save":
            assert order[i + 1] == "copy"
        if name == "commit":
            assert order[i - 1] == "copy"


# ---- eagerly ----------------------------------------------------------------


@pytest.mark.parametrize("what", [True, "mlp,attn"])
@pytest.mark.parametrize("in_flight", [1, 3])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_without_graphs(pair, what, in_flight, dropout):
    run = pair(lambda r: r.steps(in_flight=in_flight), model=Deep,
               make=lambda: Block(dropout, dropout), replays=False,
               graphs=False, **offload(what))
    stats = moved(run)
    assert stats["eager_out_bytes"] > stats["eager_back_bytes"] > 0
    assert stats["out_bytes"] == stats["ring_bytes"] == 0
    assert len(stats["going"]) == (LAYERS - 1) * (2 if what is not True else 1)
    nothing_is_left(run)


class Waits(Block):
    """Cannot have a graph."""

    def forward(self, x):
        return super().forward(x) * (2.0 if x.sum().item() > 1e9 else 1.0)


def test_layers_that_are_refused(pair):
    run = pair(lambda r: r.steps(), model=Deep, make=Waits, replays=False,
               refused="waits", **offload())
    assert moved(run)["eager_back_bytes"] > 0
    nothing_is_left(run)


class Hooked(Deep):
    """Some cannot have graphs from the beginning."""

    def __init__(self, make=Block):
        super().__init__(make)
        for layer in self.layers[::2]:
            layer.mlp.register_forward_hook(lambda *_: None)


def test_some_layers_with_graphs_and_some_without(pair):
    run = pair(lambda r: r.steps(in_flight=4), model=Hooked,
               refused="has hooks", **offload())
    stats = moved(run)
    assert stats["out_bytes"] > 0 and stats["eager_back_bytes"] > 0
    nothing_is_left(run)


def test_layers_without_graphs_need_no_rings(pair):
    """With one microbatch in flight the rings would free nothing of the others
    alone."""
    run = pair(lambda r: r.steps(), model=Hooked, refused="has hooks",
               **offload())
    stats = moved(run)
    assert stats["going"] == [f"layers.{i}" for i in range(0, LAYERS, 2)]
    assert stats["out_bytes"] == 0 and stats["eager_back_bytes"] > 0
    nothing_is_left(run)


def test_parts_that_the_scope_leaves_out(pair):
    run = pair(lambda r: r.steps(), grain="part", model=Deep,
               **offload("mlp", scope="attn"))
    stats = moved(run)
    assert stats["out_bytes"] == 0 and stats["eager_back_bytes"] > 0
    assert stats["ring_bytes"] == 0
    nothing_is_left(run)


def test_the_pool_is_used_over_and_over(runs):
    run = runs(grain="layer", model=Deep, graphs=False, **offload())
    run.steps([2, 2, 2])
    taken = moved(run)["eager_pinned_bytes"]
    run.steps([3, 2, 3])
    assert moved(run)["eager_pinned_bytes"] == taken > 0


def test_the_first_step_leaves_nothing_pinned_to_graphs(runs):
    run = runs(grain="layer", model=Deep, **offload())
    run.steps([2])
    assert moved(run)["eager_pinned_bytes"] > 0
    run.steps([2, 2, 1])
    assert moved(run)["eager_pinned_bytes"] == 0


def test_nothing_that_goes_pins_nothing_and_is_said(runs, capfd):
    """The pinned memory of the first step is given back when it is settled."""
    run = runs(grain="layer", model=Deep, **offload(offload_buffers=8))
    run.steps([2])
    assert moved(run)["eager_out_bytes"] > 0
    assert moved(run)["eager_pinned_bytes"] == 0
    assert not moved(run)["going"]
    said = capfd.readouterr().err
    assert said.count("warning: offload: nothing is offloaded") == 1
    assert "lower GRAPHHOOKS_OFFLOAD_BUFFERS" in said


@pytest.mark.parametrize("graphs", [False, True])
def test_a_pool_without_room(pair, graphs):
    """What finds none stays, and it is said once."""
    run = pair(lambda r: r.steps(in_flight=2), model=Deep, replays=None,
               graphs=graphs, **offload(offload_pool_bytes=1_600_000))
    stats = moved(run)
    assert 0 < stats["eager_out_bytes"]
    assert stats["eager_pinned_bytes"] + stats["pinned_bytes"] <= 1_600_000
    assert "no pinned memory within the pool" in run.attached.explain()
    assert stats["out_bytes"] > 0 or not graphs


def test_the_first_step_keeps_to_the_pool(runs):
    run = runs(grain="layer", model=Deep, graphs=False,
               **offload(offload_pool_bytes=600_000))
    run.backward(1)
    assert 0 < moved(run)["eager_pinned_bytes"] <= 600_000
    assert "finds no pinned memory" in run.attached.explain()


def test_a_forward_that_is_dropped_is_freed_at_once(runs):
    """What nodes have saved, also their own results, does not hold them."""
    class Saves(Block):
        def forward(self, x):
            return super().forward(torch.sigmoid(x))

    run = runs(grain="layer", model=Deep, make=Saves, **offload(graphs=False))
    run.steps([1, 1])
    collect()
    gc.disable()
    try:
        loss = run.loss()
        assert any(run.attached.offload.carrier._alive.values())
        del loss
        assert not any(run.attached.offload.carrier._alive.values())
    finally:
        gc.enable()


def test_a_second_backward_through_one_forward(runs):
    found = []
    for options in ({}, offload(graphs=False)):
        run = runs(model=Deep, grain="layer" if options else None, **options)
        run.steps([1, 1])
        run.zero()
        loss = run.loss()
        loss.backward(retain_graph=True)
        loss.backward()
        found.append(run.state())
    assert differing(*found) == []


def test_gradients_of_gradients(runs):
    """Of layers whose attention has a derivative of its backward."""
    class Smooth(Block):
        def forward(self, x):
            return x + self.mlp(torch.tanh(self.norm2(x)))

    found = []
    for options in ({}, offload(graphs=False)):
        run = runs(model=Deep, make=Smooth,
                   grain="layer" if options else None, **options)
        run.steps([1, 1])
        run.zero()
        loss = run.loss()
        grads = torch.autograd.grad(loss, [*run.model.parameters()],
                                    create_graph=True, allow_unused=True)
        sum(g.square().sum() for g in grads if g is not None).backward()
        found.append(run.state())
    assert differing(*found) == []


@pytest.mark.parametrize("graphs", [False, True])
def test_what_is_changed_after_it_was_saved_is_an_error(runs, graphs):
    """As it is eagerly, wherever the tensor is by then."""
    class Changes(Block):
        def forward(self, x):
            y = torch.sigmoid(self.mlp.up(x))
            z = self.mlp.down(y)
            y.mul_(2)
            return x + z

    said = "modified by an inplace operation"
    eager = runs(model=Deep, make=Changes)
    with pytest.raises(RuntimeError, match=said):
        eager.step(1)
    run = runs(grain="layer", model=Deep, make=Changes,
               **offload(graphs=graphs))
    with pytest.raises(RuntimeError, match=said):
        run.step(1)


def test_weights_that_are_written_before_the_backward_are_an_error(runs):
    run = runs(grain="layer", model=Deep, **offload(graphs=False))
    loss = run.loss()
    with torch.no_grad():
        for p in run.model.parameters():
            p.mul_(1.5)
    with pytest.raises(RuntimeError, match="inplace operation"):
        loss.backward()


# ---- memory -----------------------------------------------------------------


def held(run) -> int:
    """Bytes that a forward holds until its backward, in graphs' pools."""
    import softpool

    loss = run.loss()
    gc.collect()
    pools = [softpool.pool_of(pool.handle)
             for pool in run.attached.captures.pools.values()]
    found = sum(s.nbytes() for pool in pools
                for share in pool.shares for s in share.made.values()
                if not softpool.is_free(s))
    loss.backward()
    return found


@pytest.mark.skipif(HAS_GPU, reason="bench/peers measures it on a GPU")
@pytest.mark.parametrize("what, grain", [(True, "layer"), ("mlp", "layer"),
                                         ("mlp,attn", "layer"),
                                         ("mlp,attn", "part")])
def test_graphs_hold_less(runs, what, grain):
    """By all of the groups that go."""
    def bytes_of(**options):
        run = runs(grain=grain, model=Deep, **options)
        run.steps([1])
        return run, held(run)

    _, without = bytes_of()
    run, with_it = bytes_of(**offload(what))
    work = run.attached.offload
    going = sum(work.sizes[key] for key, why in work.why.items()
                if why is None)
    rings = moved(run)["ring_bytes"]
    assert going > rings > 0
    assert without - with_it >= 0.99 * going


class Held(torch.utils._python_dispatch.TorchDispatchMode):
    """What operations make, and is not let go."""

    def __init__(self, pinned):
        super().__init__()
        self._made: dict = {}
        self._pinned = pinned

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(result):
            storage = tensor.untyped_storage()
            self._made[storage.data_ptr()] = storage
        return result

    def nbytes(self) -> int:
        import softpool

        return sum(s.nbytes() for s in self._made.values()
                   if not softpool.is_free(s)
                   and s.data_ptr() not in self._pinned)


@pytest.mark.skipif(HAS_GPU, reason="bench/peers measures it on a GPU")
@pytest.mark.parametrize("what", [True, "mlp", "mlp,attn"])
def test_eager_layers_hold_less(runs, what, monkeypatch):
    from graphhooks.torch.offload import pinned

    addresses = set()
    allocate = pinned.allocate

    def noted(nbytes):
        memory = allocate(nbytes)
        addresses.add(memory.data_ptr())
        return memory

    monkeypatch.setattr(pinned, "allocate", noted)

    def bytes_of(**options):
        run = runs(model=Deep, **options)
        run.steps([1, 1])
        with Held(addresses) as found:
            loss = run.loss()
            gc.collect()
            result = found.nbytes()
        loss.backward()
        return run, result

    _, without = bytes_of()
    run, with_it = bytes_of(grain="layer", **offload(what, graphs=False))
    work = run.attached.offload
    names = len(work.words)
    going = [work.sizes[key] for key, why in work.why.items() if why is None]
    let_go = sum(going[:-2 * names])  # the last two of each are held still
    assert let_go > 0
    assert without - with_it >= 0.99 * let_go


# ---- with others ------------------------------------------------------------


class Around(Deep):
    def run_layers(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=self.reentrant)
        return x


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("grain", ["layer", "part"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_checkpointing_around_layers(pair, grain, dropout, graphs):
    class Here(Around):
        reentrant = False

    run = pair(lambda r: r.steps(in_flight=2), grain=grain, model=Here,
               make=lambda: Block(dropout), eager=None, replays=graphs,
               **offload("mlp,attn", graphs=graphs))
    if graphs:
        went(run)
    nothing_is_left(run)


def test_reentrant_checkpointing_around_layers(pair):
    class Here(Around):
        reentrant = True

    run = pair(lambda r: r.steps(in_flight=2), model=Here, eager=None,
               replays=None, **offload())
    nothing_is_left(run)


@pytest.mark.parametrize("graphs", [True, False])
def test_checkpointing_inside_layers(pair, graphs):
    class Inside(Block):
        def forward(self, x):
            x = x + checkpoint(self.attn, self.norm1(x), use_reentrant=False,
                               preserve_rng_state=False)
            return x + self.mlp(self.norm2(x))

    run = pair(lambda r: r.steps(in_flight=2), model=Deep, make=Inside,
               replays=graphs, **offload(graphs=graphs))
    stats = moved(run)
    assert stats["back_bytes"] + stats["eager_back_bytes"] > 0
    nothing_is_left(run)


class Others(Deep):
    """Its layers run inside hooks of somebody's own."""

    seen = 0

    def run_layers(self, x):
        def pack(tensor):
            Others.seen += 1
            return tensor.detach() * 2

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t / 2):
            return super().run_layers(x)


@pytest.mark.parametrize("graphs", [True, False])
def test_hooks_of_somebody_else(pair, runs, graphs):
    """They get what they would get, and nothing is offloaded."""
    Others.seen = 0
    run = pair(lambda r: r.steps([2, 2, 2]), model=Others, replays=False,
               eager=("saved_tensors",) if graphs else (),
               **offload(graphs=graphs))
    assert Others.seen % 2 == 0 and Others.seen > 0
    half = Others.seen // 2
    Others.seen = 0
    runs(model=Others).steps([2, 2, 2])
    assert Others.seen == half
    assert moved(run)["eager_out_bytes"] == moved(run)["out_bytes"] == 0


class InsideHooks(Block):
    def pack(self, tensor):
        return tensor.detach() + 0

    def forward(self, x):
        with torch.autograd.graph.saved_tensors_hooks(self.pack, lambda t: t):
            x = x + self.mlp(self.norm2(x))
        return x + self.attn(self.norm1(x))


@pytest.mark.parametrize("what", [True, "mlp,attn"])
@pytest.mark.parametrize("graphs", [True, False])
def test_hooks_inside_a_layer(pair, what, graphs):
    run = pair(lambda r: r.steps(), model=Deep, make=InsideHooks,
               replays=graphs, **offload(what, graphs=graphs))
    stats = moved(run)
    assert stats["back_bytes"] + stats["eager_back_bytes"] > 0


def test_hooks_inside_a_layer_get_what_they_would_get(runs):
    packed, seen = [], []

    class Counts(InsideHooks):
        def pack(self, tensor):
            packed.append(tensor.shape)
            return super().pack(tensor)

    for options in ({}, {"grain": "layer", **offload("mlp", graphs=False)}):
        packed.clear()
        runs(model=Deep, make=Counts, **options).steps([2, 2])
        seen.append([*packed])
    assert seen[0] == seen[1] != []


def test_where_hooks_of_saved_tensors_are_forbidden(pair):
    class Forbids(Deep):
        def run_layers(self, x):
            with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
                return super().run_layers(x)

    run = pair(lambda r: r.steps(), model=Forbids, **offload())
    assert moved(run)["out_bytes"] == moved(run)["eager_out_bytes"] == 0


class Stop(Exception):
    pass


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("when", [0, 1, 2])
def test_a_backward_that_fails_on_its_way(pair, graphs, when):
    """Nothing of it is in flight afterwards, and the next step is right."""
    class Fails(Deep):
        fails = False

        def run_layers(self, x):
            for i, layer in enumerate(self.layers):
                x = layer(x)
                if i == 2 and x.requires_grad:
                    x.register_hook(self.stop)
            return x

        def stop(self, grad):
            if self.fails:
                raise Stop

    def train(run):
        for step in range(4):
            run.zero()
            run.model.fails = step == when
            loss = run.loss()
            if run.model.fails:
                with pytest.raises(Stop):
                    loss.backward()
                run.zero()
                run.model.fails = False
            else:
                loss.backward()
            del loss
            run.loss().backward()
            run.optimizer.step()

    run = pair(train, model=Fails, replays=graphs, eager=None,
               **offload(graphs=graphs))
    nothing_is_left(run)


@pytest.mark.parametrize("graphs", [True, False])
def test_losses_that_never_go_back(pair, graphs):
    def train(run):
        for _ in range(4):
            run.zero()
            run.loss()
            run.backward(2)
            run.optimizer.step()

    run = pair(train, model=Deep, replays=graphs, eager=None,
               **offload(graphs=graphs))
    nothing_is_left(run)


@pytest.mark.parametrize("grain", GRAINS)
def test_detach_and_attach_again(pair, grain):
    def train(run):
        run.steps([3, 3, 3], in_flight=3)
        if run.attached is not None:
            run.detach()
        run.steps([2], in_flight=3)
        if run.grain is not None:
            run.attach(**offload())
        run.steps([3, 4, 3], in_flight=3)

    went(pair(train, grain=grain, model=Deep, **offload()))


def test_detached_modules_are_as_they_were(runs):
    run = runs(grain="layer", model=Deep, **offload(graphs=False))
    layer = run.model.layers[0]
    copied = copy.deepcopy(layer)
    assert "forward" not in vars(copied) or not isinstance(
        copied.forward, type(layer.forward))
    kept = layer.forward
    run.steps([1])
    run.detach()
    assert all("forward" not in vars(m) for m in run.model.modules())
    x = torch.randn(2, 3, WIDTH, device=DEVICE)
    assert torch.equal(kept(x), layer(x))


@on_a_gpu("it has no autocast of cuda")
@pytest.mark.parametrize("grain", GRAINS)
@pytest.mark.parametrize("graphs", [True, False])
def test_autocast(pair, grain, graphs):
    def train(run):
        forward = run.model.forward

        def call(tokens):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                return forward(tokens)

        run.model.forward = call
        run.steps(in_flight=4)

    run = pair(train, grain=grain, model=Deep, replays=graphs,
               **offload(graphs=graphs))
    if graphs:
        went(run)


# ---- what is asked for ------------------------------------------------------


def refused(match, model=None, **options):
    with pytest.raises(graphhooks.Error, match=match):
        graphhooks.attach(model or Deep().cuda(), **options)


def test_bad_requests():
    refused("offload: 'atn' is no group.*did you mean attn", offload="atn")
    refused("'core_attn' is no group of tensors", offload=["core_attn"])
    refused("'7' is no group of tensors; there are attn", offload=7)
    refused("name the layer or its parts", offload="layer,mlp")
    refused("offload_fraction", offload=True, offload_fraction=1.5)
    refused("offload_fraction", offload=True, offload_fraction="nan")
    refused("offload_min_bytes", offload=True, offload_min_bytes=-1)
    refused("offload_pool_bytes", offload=True, offload_pool_bytes="some")


def test_parts_that_no_layer_has():
    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Mlp() for _ in range(2))

    model = Plain().cuda()
    refused("no layer has a module that is its attn", model, offload="attn")
    assert not any("forward" in vars(m) for m in model.modules())


def test_a_variable_wins(runs, monkeypatch):
    monkeypatch.setenv("GRAPHHOOKS_OFFLOAD", "mlp")
    run = runs(grain="layer", model=Deep, **offload())
    run.steps([1])
    assert all(name.endswith("'s mlp") for name in moved(run)["going"])
    run.detach()
    monkeypatch.setenv("GRAPHHOOKS_OFFLOAD", "0")
    run = runs(grain="layer", model=Deep, **offload())
    assert "offload" not in run.attached.stats()
    monkeypatch.setenv("GRAPHHOOKS_OFFLOAD", "1")
    monkeypatch.setenv("GRAPHHOOKS_OFFLOAD_MIN_BYTES", "1000000")
    run.detach()
    run = runs(grain="layer", model=Deep, **offload())
    run.steps([1])
    assert moved(run)["going"] == []


def test_tensors_below_the_least_size_stay(pair):
    run = pair(lambda r: r.steps(), model=Deep,
               **offload(offload_min_bytes=1 << 20))
    stats = moved(run)
    assert stats["out_bytes"] == stats["eager_out_bytes"] == 0


def test_layers_that_torch_has_compiled_keep_all(runs):
    def compile_first(run):
        run.model.layers[0].compile(backend="eager")

    run = runs(grain="layer", model=Deep, before=compile_first, **offload())
    said = run.attached.explain()
    assert "no group was seen yet" in said
    assert "layers.0: nothing of it is offloaded" in said
    assert "forward" not in vars(run.model.layers[0])
    assert "forward" in vars(run.model.layers[1])


def test_turned_off():
    model = Deep().cuda()
    attached = graphhooks.attach(model, offload=True, enable=False)
    assert not any("forward" in vars(m) for m in model.modules())
    attached.detach()


def test_evaluation_offloads_nothing(pair):
    def train(run):
        for count in COUNTS:
            run.model.eval()
            with torch.no_grad():
                run.note(run.model(run.tokens()).square().mean())
            run.model.train()
            run.step(count)

    went(pair(train, model=Deep, eager=("forward_only",), **offload()))


def test_a_backward_brings_no_other_microbatch_back(pair, monkeypatch):
    """Where no layer has graphs, nobody counts microbatches."""
    from graphhooks.torch.offload import carried

    back = []  # the layers whose groups come back
    bring = carried.CarriedGroup.bring
    monkeypatch.setattr(carried.CarriedGroup, "bring", lambda group: (
        back.append(group.key[0]), bring(group)))

    def train(run):
        run.zero()
        first, second = run.loss(), run.loss()
        second.backward()
        if run.attached is not None:
            assert back[0] == 2 and 2 not in back[1:]  # the first's
        third = run.loss()
        third.backward()
        first.backward()
        run.optimizer.step()

    pair(train, offload=True, offload_min_bytes=4096, graphs=False,
         judge=False)
