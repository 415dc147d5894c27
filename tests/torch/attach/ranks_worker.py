"""One rank of test_ranks.py: layers that hold collectives.

    ranks_worker.py FOLDER RANK SIZE CASE...

Leaves FOLDER/RANK.json, with what each case came to.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import datetime
import gc
import json
import logging
import math
import os
import sys
import threading
import time
from pathlib import Path

SIZE = int(sys.argv[3])
SECONDS = 10  # GRAPHHOOKS_TIMEOUT
_TOP = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(Path(__file__).resolve().parent),
                str(_TOP / "hosts" / "pytorch"),
                str(_TOP / "tests" / "torch" / "package")]

import torch  # noqa: E402

if torch.cuda.device_count() == 0:
    import softtorch

    softtorch.install()

import graphhooks  # noqa: E402
from graphhooks import Error  # noqa: E402
from graphhooks.torch.attach import suspension  # noqa: E402
from graphhooks.torch.base import private  # noqa: E402
from graphhooks.torch.group import ranks  # noqa: E402
from graphhooks.torch.guard.settings import Settings  # noqa: E402
from models import (HAS_GPU, WIDTH, Block, F, Mlp,  # noqa: E402
                    Model, Run, differing, nn)
from test_packed import TOKENS, Packing, offsets  # noqa: E402
from torch import distributed as dist  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

BACKEND = "cpu:gloo,cuda:nccl" if HAS_GPU else "gloo"
capturing = torch.cuda.is_current_stream_capturing


# ---- layers -----------------------------------------------------------------


class Summed(torch.autograd.Function):
    """Over ranks; its gradient is the same on each."""

    group = None  # all

    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x, group=Summed.group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


class Spread(torch.autograd.Function):
    """The same on each rank; its gradient is summed over them."""

    fails = False

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        if Spread.fails and capturing():
            raise RuntimeError("no room for a backward")
        grad = grad.clone()
        dist.all_reduce(grad, group=Summed.group)
        return grad


class Gathered(torch.autograd.Function):
    """Pieces of a sequence, one of each rank."""

    @staticmethod
    def forward(ctx, x):
        whole = x.new_empty(SIZE * x.shape[0], *x.shape[1:])
        dist.all_gather_into_tensor(whole, x.contiguous())
        return whole

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad.chunk(SIZE)[dist.get_rank()]


class Columns(Mlp):
    """A rank has some columns of the one matrix, and as many rows of the
    other."""

    def __init__(self, dropout=0.0):
        super().__init__(dropout)
        self.up = nn.Linear(WIDTH, 4 * WIDTH // SIZE)
        self.down = nn.Linear(4 * WIDTH // SIZE, WIDTH, bias=False)
        with torch.no_grad():
            self.up.weight.add_(0.01 * dist.get_rank())

    def forward(self, x):
        x = Spread.apply(x)
        return self.drop(Summed.apply(self.down(F.gelu(self.up(x)))))


class Layer(Block):
    scale = 1.0
    fails = False

    def __init__(self, *rates):
        super().__init__(*rates)
        self.mlp = Columns(*rates)

    def forward(self, x, bias=None):
        if self.fails and capturing():
            raise RuntimeError("no room")
        x = super().forward(x) * self.scale
        return x if bias is None else x + bias


class Counting(Layer):
    calls = 0

    def forward(self, x):
        if dist.get_rank() == 1 and capturing():
            self.calls += 1
        return super().forward(x)


class Back(Block):
    """A sum over ranks in its backward alone."""

    def forward(self, x):
        return super().forward(Spread.apply(x))


class Keeping(Layer):
    """One rank has what it may not run twice."""

    def __init__(self, *rates):
        super().__init__(*rates)
        if dist.get_rank() == 1:
            self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        if dist.get_rank() == 1:
            self.seen += 1
        return super().forward(x)


class Sequence(Block):
    def forward(self, x):
        mine = x.chunk(SIZE, 0)[dist.get_rank()]
        return x + Gathered.apply(super().forward(mine))


class Given(Model):
    """Gives its layers a bias, whose elements share memory on ranks of
    `overlaps`."""

    overlaps = ()

    def run_layers(self, x):
        bias = torch.linspace(0, 1, WIDTH, device=x.device)
        bias = bias.repeat(sum(x.shape[:2])).as_strided(
            x.shape, (WIDTH, WIDTH, 1))
        if dist.get_rank() not in self.overlaps:
            bias = bias.contiguous()
        for layer in self.layers:
            x = layer(x, bias)
        return x


class Checkpointed(Model):
    def run_layers(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x


class Centred(Block):
    """What it exchanges is of one size, whatever each rank is given."""

    def forward(self, x):
        return super().forward(x + Summed.apply(x.mean((0, 1))))


class OfGroup(Block):
    """What it exchanges goes to the ranks of its argument."""

    def forward(self, x, group=None):
        if group is not None:
            x = x + Summed.apply(x.mean((0, 1)))
        return super().forward(x)


class Met(Model):
    """All ranks, or this one alone."""

    group = None

    def run_layers(self, x):
        for layer in self.layers:
            x = layer(x, group=self.group)
        return x


class Varying(Packing):
    """With a sum over ranks."""

    def __init__(self):
        super().__init__()
        self.mlp = Columns()


class Meaning(Varying):
    """Its result depends on how much room there is."""

    def forward(self, x, cu_seqlens, max_seqlen):
        lengths = (cu_seqlens[1:] - cu_seqlens[:-1]).float()
        return super().forward(x, cu_seqlens, max_seqlen) + lengths.mean()


class Iterating(Varying):
    """Has on one rank what no graph can have, and no second run."""

    def __init__(self):
        super().__init__()
        if dist.get_rank() == 0:
            self.numbers = iter(range(1000))

    def forward(self, x, cu_seqlens, max_seqlen):
        x = super().forward(x, cu_seqlens, max_seqlen)
        if dist.get_rank() == 0:
            x = x * (1 + next(self.numbers) / 1000)
        return x


class Filled(Model):
    """The last rank has fewer sequences than there is room for, from a
    microbatch on; all others fill it."""

    since = 0

    def __init__(self, make):
        super().__init__(make)
        self.calls = 0

    def run_layers(self, x):
        is_last = dist.get_rank() == SIZE - 1 and self.calls >= self.since
        self.calls += 1
        cu_seqlens = offsets([16] * (3 if is_last else 4))
        shape, x = x.shape, x.flatten(0, 1)
        for layer in self.layers:
            x = layer(x, cu_seqlens, 16)
        return x.view(shape)


class Short(Filled):
    """All ranks have fewer sequences from the fourth microbatch on."""

    stop = False

    def run_layers(self, x):
        cu_seqlens = offsets([16] * (3 if self.calls > 2 else 4))
        self.calls += 1
        shape, x = x.shape, x.flatten(0, 1)
        for layer in self.layers[:-1]:
            x = layer(x, cu_seqlens, 16)
        if self.stop:
            raise KeyError("stop")
        return self.layers[-1](x, cu_seqlens, 16).view(shape)


class Cut(Model):
    """Into as many sequences of one length as there is room for."""

    def run_layers(self, x):
        shape, x = x.shape, x.flatten(0, 1)
        cu_seqlens = offsets([8] * (len(x) // 8))
        for layer in self.layers:
            x = layer(x, cu_seqlens, 8)
        return x.view(shape)


FILLED = {"cu_seqlens": TOKENS // 16, "max_seqlen": 16}


# ---- a training -------------------------------------------------------------


def _is_whole(graph) -> bool:
    try:
        graph.raw_cuda_graph()
    except (RuntimeError, TypeError):
        return False
    return True


class Noted:
    """A backend, and how many were aborted: of NCCL's, an abort ends what
    waits on this rank; of gloo's it does nothing that others see.  NCCL's
    waits for graphs that hold its operations, so there should be none."""

    aborted = graphs = 0

    def __init__(self, backend):
        self._backend = backend

    def __getattr__(self, name):
        return getattr(self._backend, name)

    def abort(self) -> None:
        Noted.aborted += 1
        Noted.graphs += sum(_is_whole(o) for o in gc.get_objects()
                            if isinstance(o, torch.cuda.CUDAGraph))
        self._backend.abort()


_gpu_groups = private.gpu_groups
private.gpu_groups = lambda: [(g, Noted(b)) for g, b in _gpu_groups()]


class Lines(logging.Handler):
    """What the package has said."""

    def __init__(self):
        super().__init__()
        self.lines: list = []

    def emit(self, record) -> None:
        self.lines.append(record.getMessage())


def trained(train, *, grain="layer", make=Layer, model=None, before=None,
            group=False, verify="off", **options) -> dict:
    """Eagerly, and with graphs."""
    lines = Lines()
    logging.getLogger("graphhooks").addHandler(lines)
    how = {"make": make, "model": model, "before": before}
    found = {"error": None, "name": None, "differing": None}
    run = None
    try:
        eager = Run(**how)
        train(eager)
        shared = {"group": group or dist.group.WORLD} \
            if group is not None else {}
        run = Run(grain=grain, verify=verify, **how, **shared, **options)
        train(run)
        found["differing"] = differing(eager.state(), run.state())
    except Error as error:
        found["error"], found["name"] = str(error), error.name
    except RuntimeError as error:  # of a collective whose other rank is gone
        found["error"] = str(error)
    if run is not None and run.attached is not None:
        stats = run.attached.stats()
        found.update({key: stats[key] for key in (
            "replays", "recordings", "agreements", "refused", "eager_calls",
            "check_failures", "banks", "verify")})
        found["meetings"] = run.attached.ranks.asked
        found["said"] = run.attached.explain()
    if run is not None:
        run.detach()
        found["parted"] = time.monotonic() - getattr(run, "parts", math.nan)
    logging.getLogger("graphhooks").removeHandler(lines)
    return {**found, "log": lines.lines, "aborted": Noted.aborted,
            "graphs": Noted.graphs}


def plainly(run) -> None:
    run.steps((3, 3, 2, 3))


def of_lengths(*steps, in_flight=1):
    """Steps of microbatches; a length may be a tuple, of one for each rank."""
    def train(run):
        for lengths in steps:
            run.zero()
            waiting: list = []
            for length in lengths if isinstance(lengths, list) else [lengths]:
                if isinstance(length, tuple):
                    length = length[min(dist.get_rank(), len(length) - 1)]
                waiting.append(run.loss(length=length))
                if len(waiting) == in_flight:
                    waiting.pop(0).backward()
            for loss in waiting:
                loss.backward()
            run.optimizer.step()

    return train


def _alone_later(run) -> None:
    """What all have graphs of comes no more, and each rank has more lengths
    than there is room for beside it."""
    run.model.group = dist.group.WORLD
    of_lengths(32, 32, 32, 32)(run)
    run.model.group = None
    of_lengths(*[24, 16] * 24, *[8] * 24)(run)


def _come_back(run) -> None:
    """Each length has given way to another one when it comes again."""
    run.model.group = dist.group.WORLD
    of_lengths(*[n for n in (32, 24, 16, 32, 24, 32) for _ in range(10)])(run)


def _gives_way(holding=()):
    """One is used no more; these ranks hold on to a forward of it."""
    def train(run):
        of_lengths(*[32] * 3, *[16] * 3)(run)
        kept = run.loss(length=32)
        if dist.get_rank() not in holding:
            kept = None
        of_lengths(16, 24, 24, 24)(run)
        del kept
        of_lengths(24, 24, 24, 32, 32, 32, 24)(run)

    return train


def _gives_way_with_gradients(run) -> None:
    """They lie in the memory of its graphs, and are added to."""
    for i, length in enumerate([*[32] * 10, 24, 24, 24, 24, 32, 32, 32]):
        if i not in (10, 11, 14, 15):
            run.zero()
        run.loss(length=length).backward()
        run.optimizer.step()


def _only(rank: int, cause):
    """A training in which something happens after the third step, on a
    rank, where there are graphs."""
    def train(run):
        run.steps((2, 2, 2))
        if run.attached is not None:
            run.parts = time.monotonic()
            if dist.get_rank() == rank:
                cause(run)
        for count in (2, 2):
            run.step(count)
            if run.attached is not None:
                run.attached.wait()  # torch's own wait has no end

    return train


def _suspends(run) -> None:
    """Between steps; the second time one of them cannot, and none does.  What
    inputs take was foretold."""
    for i in range(5):
        run.step(2)
        if run.attached is None:
            continue
        if i == 0:
            told = run.attached.forecast()["input_bytes"]
        kept = suspension._kept
        if i == 2:
            if dist.get_rank() == 1:
                suspension._kept = lambda _: Error("not on this one")
            try:
                run.attached.suspend()
                raise AssertionError("a rank is suspended alone")
            except Error as error:
                assert str(error).startswith(
                    "not on this one" if dist.get_rank() == 1
                    else "rank 1 cannot"), error
            finally:
                suspension._kept = kept
        else:
            run.attached.suspend()
            run.attached.resume()
    if run.attached is not None:
        has = run.attached.memory()
        assert has["slot_bytes"] + has["bank_bytes"] == told > 0


def _suspends_without(run) -> None:
    """The last one does not; and one of the others comes late."""
    run.steps((2, 2, 2))
    if run.attached is None:
        return
    rank = dist.get_rank()
    if rank == SIZE - 1:
        time.sleep(SECONDS + 5)
    else:
        time.sleep(3 * rank)
        run.parts = time.monotonic()
        run.attached.suspend()


def _attached_in_vain_on_one() -> None:
    """In the group of gloo's that all have made before."""
    graphhooks.attach(Model(Layer).cuda(), group=dist.group.WORLD).detach()
    if dist.get_rank() == 0:
        share = ranks.Ranks.share
        ranks.Ranks.share = _fails_to_share
        try:
            graphhooks.attach(Model(Layer).cuda(), group=dist.group.WORLD)
            raise AssertionError("a rank has attached alone")
        except Error as error:
            assert str(error) == "not on this one", error
        finally:
            ranks.Ranks.share = share


def _fails_to_share(*_):
    raise Error("not on this one")


def _suspends_without_dead(run) -> None:
    """The last one dies; and one of the others is busy."""
    run.steps((2, 2, 2))
    if run.attached is None:
        return
    if dist.get_rank() == SIZE - 1:
        os._exit(0)
    time.sleep(5 * dist.get_rank())
    run.parts = time.monotonic()
    run.attached.suspend()


def _late_without_threads(run) -> None:
    """Where a process may have no more."""
    start = threading.Thread.start

    def fail(thread):
        if thread.name == "graphhooks arrivals":
            raise RuntimeError("can't start new thread")
        start(thread)

    threading.Thread.start = fail
    try:
        for _ in range(4):
            if run.attached is not None and dist.get_rank() == 1:
                time.sleep(1.5)
            run.step(2)
    finally:
        threading.Thread.start = start


def _everywhere(cause, undo=None):
    """The same on all ranks, also eagerly."""
    def train(run):
        run.steps((2, 2, 2))
        cause(run)
        run.steps((2, 2))
        if undo is not None:
            undo(run)
            run.steps((2, 2))

    return train


def _scaled(to: float):
    def set_scale(run):
        run.model.layers[1].scale = to

    return set_scale


def _scaled_beside(run) -> None:
    """A layer that is not the first, on all ranks, of each shape."""
    of_lengths(32, 24, 32, 24, 32, 24)(run)
    _scaled(0.5)(run)
    of_lengths([24, 32], [24, 32])(run)
    _scaled(1.0)(run)
    of_lengths(24, 32)(run)


def _blind(train, **options):
    """Nobody but verify looks for what changes."""
    are_kept = Settings.are_kept
    Settings.are_kept = lambda _: True
    try:
        return trained(train, verify="always", **options)
    finally:
        Settings.are_kept = are_kept


def _another_on_one(run) -> None:
    """A number, on the last rank alone: it counts on none of the others."""
    Layer.scale = 1.0
    run.steps((2, 2, 2))
    Layer.scale = 1.0 + (dist.get_rank() == SIZE - 1)
    run.steps((2, 2))
    Layer.scale = 1.0


def _cut_short(run) -> None:
    """The first pass with less than there is room for ends, on all ranks,
    before the last layer."""
    run.steps((1, 1, 1))
    run.model.stop = True
    try:
        run.loss()
    except KeyError:
        run.model.stop = False
    run.steps((2, 2))


def _hooked(run) -> None:
    run.model.layers[1].mlp.register_forward_hook(lambda *_: None)


def _hooked_on_one(run) -> None:
    if dist.get_rank() == 1:
        _hooked(run)


def _fails_on_one(run) -> None:
    run.model.layers[1].fails = dist.get_rank() == 1


def _evaluate(run) -> None:
    run.model.eval()
    with torch.no_grad():
        run.note(run.model(run.tokens()))
    run.model.train()


def _other_batch(run) -> None:
    run.loss(batch=4).backward()


def _listens_later(run) -> None:
    """A rank alone gets a hook, which it keeps."""
    run.steps((2, 2, 2))
    if run.attached is not None and dist.get_rank() == SIZE - 1:
        run.model.layers[0].mlp.register_forward_hook(lambda *_: None)
    run.steps((2, 2, 2))


def _listens_once(run) -> None:
    """To one of the microbatches of a step."""
    run.steps((2, 2, 2))
    run.zero()
    run.loss().backward()
    handle = run.model.layers[0].mlp.register_forward_hook(
        lambda *_: None) if dist.get_rank() == SIZE - 1 else None
    run.loss().backward()
    if handle is not None:
        handle.remove()
    run.loss().backward()
    run.optimizer.step()
    run.steps((2, 2))


def _scales_once(run) -> None:
    """The first layer alone, which says so where a microbatch begins."""
    run.steps((2, 2, 2))
    layer = run.model.layers[0]
    if dist.get_rank() == 0:
        layer.scale = 0.5
    run.step(1)
    if dist.get_rank() == 0:
        del layer.scale
    run.steps((2, 2))


def _listen_late(run) -> None:
    """Between a forward and its backward."""
    loss = run.loss()
    run.model.layers[1].norm1.weight.register_hook(lambda grad: grad)
    loss.backward()


def _die(run) -> None:
    os._exit(0)


def _of_backward(train=plainly, make=Layer):
    Spread.fails = dist.get_rank() == 1
    try:
        return trained(train, make=make)
    finally:
        Spread.fails = False


def _summed(run) -> None:
    """Losses of which all ranks run one eagerly, for want of a slot."""
    run.steps((2, 2))
    for _ in range(3):
        run.zero()
        run.loss().backward()
        (run.loss() + run.loss()).backward()
        run.optimizer.step()


def _penalized_on_one(run) -> None:
    """By what that rank alone adds to a weight of a layer."""
    run.steps((2, 2))
    for _ in range(3):
        run.zero()
        run.loss().backward()
        loss = run.loss()
        if dist.get_rank() == 1:
            weight = run.model.layers[1].mlp.down.weight
            loss = loss + 0.01 * weight.square().sum()
        loss.backward()
        run.optimizer.step()


def _refused_on_one(run) -> None:
    """A backward, in the step of the recordings."""
    run.step(2)
    run.zero()
    loss = run.loss()
    if run.attached is not None and dist.get_rank() == 1:
        weight = run.model.layers[1].norm1.weight
        weight.main_grad = torch.zeros_like(weight)
    loss.backward()
    run.optimizer.step()
    run.steps((2, 2))


def _of_one():
    """The collective has no other rank, which is no reason to be eager."""
    Summed.group = dist.new_group([dist.get_rank()], backend=BACKEND,
                                  use_local_synchronization=True)
    try:
        return trained(plainly, group=Summed.group)
    finally:
        Summed.group = None


def _unlike_settings():
    gradients = ("graph", "autograd")[dist.get_rank()]
    return trained(plainly, gradients=gradients)


def _unlike_packed():
    packed = {"cu_seqlens": 4 + dist.get_rank(), "max_seqlen": 16}
    return trained(plainly, make=Varying, model=Filled, packed=packed)


def _unlike_layers():
    which = ("layers.*", "layers.[01]")[dist.get_rank()]
    return trained(plainly, layers=which)


def _absent():
    if dist.get_rank() == 1:
        return {"error": None}
    return trained(lambda run: run.attached and plainly(run))


LENGTHS = [32, 24, 32, 32, 24, [24, 32, 24], [32, 24, 16], 16, [16, 32]]
CASES = {
    # All of these in one process after the other: no rank leaves.
    "layer": lambda: trained(plainly),
    "chunk": lambda: trained(plainly, grain="chunk"),
    "part": lambda: trained(plainly, grain="part"),
    "dropout": lambda: trained(plainly, make=lambda: Layer(0.1)),
    "a sequence": lambda: trained(plainly, make=Sequence),
    "in flight": lambda: trained(lambda run: run.steps(
        (4, 4, 4), in_flight=2)),
    "too few slots": lambda: trained(lambda run: run.steps(
        (4, 4, 4), in_flight=2), max_slots=1),
    "checkpointed": lambda: trained(plainly, model=Checkpointed),
    "summed": lambda: trained(_summed, max_slots=1),
    "penalized on one": lambda: trained(_penalized_on_one),
    "given": lambda: trained(plainly, model=Given),
    "offload": lambda: trained(plainly, offload="mlp", offload_min_bytes=256),
    "an evaluation": lambda: trained(_everywhere(_evaluate)),
    "another batch": lambda: trained(_everywhere(_other_batch)),
    "a setting, everywhere": lambda: trained(
        _everywhere(_scaled(0.5), _scaled(1.0))),
    "hooks, everywhere": lambda: trained(_everywhere(_hooked)),
    "suspended": lambda: trained(_suspends, suspends=True),
    "verified": lambda: trained(plainly, make=lambda: Layer(0.1),
                                verify="always"),
    "verified in a chunk": lambda: trained(plainly, grain="chunk",
                                           verify="always"),
    "another on one": lambda: _blind(_another_on_one),
    "another on one, in a chunk": lambda: _blind(_another_on_one,
                                                 grain="chunk"),
    "lengths": lambda: trained(of_lengths(*LENGTHS)),
    "lengths in a chunk": lambda: trained(of_lengths(*LENGTHS),
                                          grain="chunk"),
    "lengths of parts": lambda: trained(of_lengths(*LENGTHS), grain="part"),
    "lengths in flight": lambda: trained(of_lengths(*LENGTHS, in_flight=2)),
    "lengths, offloaded": lambda: trained(
        of_lengths(*LENGTHS), offload="mlp", offload_min_bytes=256),
    "a setting of each shape, everywhere": lambda: trained(_scaled_beside),
    "packed, cut short in a chunk": lambda: trained(
        _cut_short, make=Varying, model=Short, packed=FILLED, grain="chunk"),
    "one sees a shape first": lambda: trained(
        of_lengths(32, 32, (24, 32), 24, 32, (24, 32), (24, 32), 24, 24,
                   [(32, 24), 24, (24, 32)], [(32, 24), 32, (32, 24)]),
        make=Centred),
    "a shape of each microbatch on one": lambda: trained(
        of_lengths(32, 32, *[(32, 8 + i) for i in range(10)], 32, 32),
        make=Centred),
    "one gives way": lambda: trained(_gives_way(), max_banks=2),
    "one of two gives way": lambda: trained(
        of_lengths(32, 32, 32, *[24] * 4, *[16] * 4, *[32] * 4, *[24] * 3),
        max_banks=2),
    "none gives way in flight": lambda: trained(of_lengths(
        32, 32, 24, 24, 16, [32, 24, 16, 16], [32, 24, 16, 16],
        [16, 16, 24, 32], in_flight=4), max_banks=2),
    "one holds on to what would give way": lambda: trained(
        _gives_way(holding=[0]), max_banks=2),
    "all hold on to what would give way": lambda: trained(
        _gives_way(holding=range(SIZE)), max_banks=2),
    "one gives way with gradients": lambda: trained(
        _gives_way_with_gradients, make=Varying, model=Cut, max_banks=1,
        packed={"cu_seqlens": TOKENS // 8, "max_seqlen": 8}),
    "more than there is room for": lambda: trained(
        of_lengths(*[32, 24, 16, 8] * 4), max_banks=2),
    "each comes twice, soon after the others": lambda: trained(
        of_lengths(*[n for n in (32, 24, 16, 8) for _ in range(2)] * 6),
        max_banks=2),
    "each alone, beside what all have": lambda: trained(
        _alone_later, make=OfGroup, model=Met, group="group", max_banks=2),
    "each gives way and comes back": lambda: trained(
        _come_back, make=OfGroup, model=Met, group="group", max_banks=2),
    "one shape": lambda: trained(plainly, max_banks=1),
    "one shape, of several": lambda: trained(of_lengths(*LENGTHS),
                                             max_banks=1),
    "hooks on one, later": lambda: trained(_listens_later),
    "hooks on one, for a microbatch": lambda: trained(_listens_once),
    "scaled on one, for a microbatch": lambda: trained(_scales_once),
    "packed on one, later": lambda: trained(
        plainly, make=Varying, packed=FILLED,
        model=type("Later", (Filled,), {"since": 5})),
    "packed otherwise on one, later": lambda: trained(
        plainly, make=Meaning, packed=FILLED,
        model=type("Later", (Filled,), {"since": 5})),
    "packed on one": lambda: trained(plainly, make=Varying, model=Filled,
                                     packed=FILLED),
    "packed on one, in a chunk": lambda: trained(
        plainly, make=Varying, model=Filled, packed=FILLED, grain="chunk"),
    "packed otherwise on one": lambda: trained(
        plainly, make=Meaning, model=Filled, packed=FILLED),
    "no trial on one": lambda: trained(
        plainly, make=Iterating, model=Filled, packed=FILLED),
    "a backward that one cannot run again": lambda: _of_backward(
        lambda run: run.steps((1, 1, 1, 1)), Keeping),
    "an argument with overlaps on one": lambda: trained(
        plainly, model=type("Overlaps", (Given,), {"overlaps": (1,)})),
    "a recording fails on one": lambda: trained(plainly,
                                                before=_fails_on_one),
    "a backward's recording fails on one": _of_backward,
    "a backward is refused on one": lambda: trained(_refused_on_one),
    "counts on one": lambda: trained(plainly, make=Counting),
    "hooks on one at the attach": lambda: trained(plainly,
                                                  before=_hooked_on_one),
    "a group of one": _of_one,
    "nobody has told": lambda: trained(plainly, group=None),
    "in the backward alone": lambda: trained(plainly, make=Back, group=None),
    "CHECK=ranks": lambda: trained(_only(1, _scaled(1)), check="ranks"),
    "other settings": _unlike_settings,
    "other packed": _unlike_packed,
    "other layers": _unlike_layers,
    "late without threads": lambda: trained(_late_without_threads),
}
PARTING = {
    # Each in processes of its own: the ranks part.
    "a setting on one": lambda: trained(_only(1, _scaled(0.5))),
    "an evaluation on one": lambda: trained(_only(1, _evaluate)),
    "a hook on one in a backward": lambda: trained(_only(1, _listen_late)),
    "a rank dies": lambda: trained(_only(1, _die)),
    "a rank does not attach": _absent,
    "a rank does not suspend": lambda: trained(_suspends_without,
                                               suspends=True),
    "a rank does not suspend, attached in vain on one": lambda: (
        _attached_in_vain_on_one(),
        trained(_suspends_without, suspends=True))[1],
    "a rank dies, and none suspends": lambda: trained(
        _suspends_without_dead, suspends=True),
    "an evaluation on one, of one shape": lambda: trained(
        _only(1, _evaluate), max_banks=1),
    "another shape on one, of one shape": lambda: trained(
        _only(1, _other_batch), max_banks=1, make=Centred),
}


def main(folder: Path, rank: int, names) -> None:
    if HAS_GPU:
        torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group(
        BACKEND, init_method=f"file://{folder}/store", rank=rank,
        world_size=SIZE, timeout=datetime.timedelta(seconds=6 * SECONDS))
    if rank == 1:  # ranks have had different groups, as those of Megatron
        dist.new_group([rank], backend="gloo", use_local_synchronization=True)
    results = {}
    for name in names:
        start = time.monotonic()
        results[name] = {**CASES, **PARTING}[name]()
        results[name]["seconds"] = time.monotonic() - start
        (folder / f"{rank}.json").write_text(json.dumps(results))
    sys.stdout.flush()
    os._exit(0)  # what waits for a rank that has gone is not waited for


if __name__ == "__main__":
    os.environ["GRAPHHOOKS_TIMEOUT"] = str(SECONDS)
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[4:])
