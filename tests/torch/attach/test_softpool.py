"""Graphs of the stand-in overwrite memory as those of a GPU may.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import gc
import weakref

import pytest
import softpool
from graphhooks.torch.base import memory
from models import HAS_GPU, torch

if HAS_GPU:
    pytest.skip("a GPU stands in for itself", allow_module_level=True)


class Pool:
    """Captures in one pool, all of which read the same number."""

    def __init__(self):
        self.handle = torch.cuda.graph_pool_handle()
        self.number = torch.full((4,), 3.0)

    def capture(self, run):
        """The graph, and what run() returns."""
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(pool=self.handle)
        made = run()
        graph.capture_end()
        return graph, made

    def double(self):
        """Frees nothing."""
        return self.capture(lambda: self.number * 2)

    def quadruple(self):
        """Frees what it makes on the way."""
        return self.capture(lambda: self.number * 2 * 2)


@pytest.fixture
def pool():
    return Pool()


def is_spoiled(tensor) -> bool:
    spoiled = tensor.isnan()
    assert spoiled.all() or not spoiled.any()
    return bool(spoiled.all())


# ---- the order of replays --------------------------------------------------


def test_graphs_that_run_as_they_were_captured_spoil_nothing(pool):
    first, four = pool.quadruple()
    second, nine = pool.capture(lambda: four * 2 + pool.number / 3)
    for number in 3.0, 6.0:
        pool.number.fill_(number)
        first.replay()
        second.replay()
        assert four.tolist() == [4 * number] * 4
        assert nine.tolist() == [8 * number + number / 3] * 4


def test_an_earlier_graph_spoils_what_a_later_one_has_left(pool):
    first, four = pool.quadruple()
    second, two = pool.double()
    first.replay()
    second.replay()
    first.replay()
    assert is_spoiled(two)
    assert not is_spoiled(four)


def test_an_earlier_graph_that_frees_nothing_spoils_nothing(pool):
    first, two = pool.double()
    second, four = pool.quadruple()
    first.replay()
    second.replay()
    first.replay()
    assert not is_spoiled(four)
    assert not is_spoiled(two)


def test_what_was_freed_after_a_capture_is_not_in_its_way(pool):
    first, two = pool.double()
    second, four = pool.quadruple()
    del two
    second.replay()
    first.replay()
    assert not is_spoiled(four)


def test_graphs_of_two_pools_run_in_any_order(pool):
    first, four = pool.quadruple()
    second, other = Pool().quadruple()
    first.replay()
    second.replay()
    first.replay()
    assert not is_spoiled(four)
    assert not is_spoiled(other)


def test_graphs_without_a_pool_have_one_each(pool):
    pool.handle = None
    first, four = pool.quadruple()
    second, other = pool.quadruple()
    second.replay()
    first.replay()
    assert not is_spoiled(four)
    assert not is_spoiled(other)


# ---- memory that is free ---------------------------------------------------


def test_a_later_graph_spoils_what_was_free_when_it_was_captured(pool):
    first, two = pool.double()
    seen = softpool.alias(two)
    del two
    second, _ = pool.double()
    first.replay()
    assert not is_spoiled(seen)
    second.replay()
    assert is_spoiled(seen)


@pytest.mark.parametrize("holder", [
    lambda t: t[1:], lambda t: t.detach(), lambda t: t.view(torch.int32)])
def test_any_tensor_holds_all_of_its_memory(pool, holder):
    first, two = pool.double()
    seen, held = softpool.alias(two), holder(two)
    del two
    second, _ = pool.double()
    del held
    first.replay()
    second.replay()
    assert not is_spoiled(seen)


def test_autograd_holds_what_it_has_saved(pool):
    weight = torch.ones(4, requires_grad=True)
    first, loss = pool.capture(lambda: (pool.number * 2 * weight).sum())
    second, gradient = pool.capture(
        lambda: torch.autograd.grad(loss, weight)[0])
    first.replay()
    second.replay()
    assert gradient.tolist() == [6.0] * 4


def test_what_a_capture_frees_on_its_way_it_reads_once(pool):
    """As a backward does with what its forward has saved."""
    first, two = pool.double()
    held = [two]
    del two
    second, six = pool.capture(lambda: held.pop() * 3)
    first.replay()
    second.replay()
    assert six.tolist() == [18.0] * 4
    second.replay()
    assert is_spoiled(six)


def test_what_a_capture_has_made_and_freed_is_lost(pool):
    def run():
        two = pool.number * 2
        return softpool.alias(two), two * 2

    graph, (seen, four) = pool.capture(run)
    graph.replay()
    assert is_spoiled(seen)
    assert four.tolist() == [12.0] * 4


def test_a_graph_that_makes_nothing_spoils_nothing(pool):
    first, two = pool.double()
    seen = softpool.alias(two)
    del two
    second, _ = pool.capture(lambda: pool.number.mul_(2))
    first.replay()
    second.replay()
    assert not is_spoiled(seen)
    assert pool.number.tolist() == [6.0] * 4


def test_the_memory_of_a_graph_that_is_gone_is_used(pool):
    first, two = pool.double()
    second, six = pool.capture(lambda held=two: held * 3)
    first.replay()
    del first, two
    third, _ = pool.double()
    second.replay()
    assert six.tolist() == [18.0] * 4
    third.replay()
    second.replay()
    assert is_spoiled(six)


def test_a_pool_goes_with_its_last_graph(pool):
    first, two = pool.double()
    second, _ = pool.double()
    storage = weakref.ref(two.untyped_storage())
    del two, first
    gc.collect()
    assert storage() is not None
    del second
    gc.collect()
    assert storage() is None


def test_a_pool_keeps_what_its_graphs_have_left(pool):
    """Until the last tensor there is gone, too."""
    pool.handle = (kept := memory.Pool(0)).handle
    graph, made = pool.double()
    graph.replay()
    result = memory.unowned(made, kept)
    storage = weakref.ref(made.untyped_storage())
    del made, kept
    graph.reset()
    gc.collect()
    assert result.tolist() == [6.0] * 4
    del result
    gc.collect()
    assert storage() is None


# ---- what is seen of it ----------------------------------------------------


@pytest.mark.parametrize("dtype", [
    torch.float64, torch.float32, torch.float16, torch.bfloat16,
    torch.float8_e5m2, torch.float8_e4m3fn, torch.complex64])
def test_spoiled_floats_are_not_numbers(dtype):
    tensor = torch.zeros(3, dtype=dtype)
    softpool.spoil([tensor.untyped_storage()])
    wide = torch.complex64 if dtype.is_complex else torch.float32
    assert tensor.to(wide).isnan().all()


@pytest.mark.parametrize("dtype", [
    torch.int64, torch.int32, torch.int16, torch.int8])
def test_spoiled_integers_are_no_indices(dtype):
    tensor = torch.zeros(3, dtype=dtype)
    softpool.spoil([tensor.untyped_storage()])
    assert tensor.tolist() == [-1] * 3


def test_spoiled_masks_let_all_through():
    tensor = torch.zeros(3, dtype=torch.bool)
    softpool.spoil([tensor.untyped_storage()])
    assert tensor.tolist() == [True] * 3


def test_nothing_is_spoiled_where_there_is_none():
    empty = torch.empty(0)
    assert softpool.alias(empty).shape == (0,)
    softpool.spoil([empty.untyped_storage()])


@pytest.mark.parametrize("view", [
    lambda t: t, lambda t: t.t(), lambda t: t[1:, 1], lambda t: t[2:],
    lambda t: t.expand(2, 3, 4)])
def test_an_alias_is_the_same_memory(view):
    whole = torch.arange(12.0).view(3, 4)
    tensor = view(whole)
    other = softpool.alias(tensor)
    assert other.equal(tensor) and other.stride() == tensor.stride()
    whole.neg_()
    assert other.equal(tensor)


# ---- copies on a stream of one's own -----------------------------------------


def copied(wait):
    """What a copy has brought, when wait(stream, event) is over."""
    stream, source = torch.cuda.Stream(), torch.full((4,), 3.0)
    target, event = torch.zeros(4), torch.cuda.Event()
    with torch.cuda.stream(stream):
        target.copy_(source, non_blocking=True)
        event.record()
    wait(stream, event)
    return target.tolist()


def test_nobody_sees_a_copy_before_a_wait():
    assert copied(lambda stream, event: None) != [3.0] * 4


@pytest.mark.parametrize("wait", [
    lambda stream, event: torch.cuda.current_stream().wait_event(event),
    lambda stream, event: torch.cuda.current_stream().wait_stream(stream),
    lambda stream, event: stream.synchronize(),
], ids=["event", "stream", "host"])
def test_a_wait_sees_it(wait):
    assert copied(wait) == [3.0] * 4


def test_a_copy_waits_for_what_its_stream_waits_for():
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    source, between = torch.full((4,), 3.0), torch.zeros(4)
    target, event = torch.zeros(4), torch.cuda.Event()
    with torch.cuda.stream(first):
        between.copy_(source, non_blocking=True)
        event.record()
    with torch.cuda.stream(second):
        second.wait_event(event)
        target.copy_(between, non_blocking=True)
    torch.cuda.current_stream().wait_stream(second)
    assert target.tolist() == [3.0] * 4


def test_what_was_let_go_before_its_copy_is_lost():
    stream, source = torch.cuda.Stream(), torch.full((4,), 3.0)
    target = torch.zeros(4)
    with torch.cuda.stream(stream):
        target.copy_(source, non_blocking=True)
    del source
    torch.cuda.current_stream().wait_stream(stream)
    assert target.tolist() != [3.0] * 4


@pytest.mark.parametrize("ordered", ["one stream", "a wait", "many waits",
                                     False])
def test_what_a_later_copy_writes_was_read_before(ordered):
    """As memory of the host's that goes to one tensor and then has another;
    without an order that is lost."""
    streams = [torch.cuda.Stream() for _ in range(3)]
    first, last = streams[0], streams[0 if ordered == "one stream" else 2]
    source, through = torch.full((4,), 3.0), torch.full((6,), 5.0)
    target = torch.zeros(4)
    with torch.cuda.stream(first):
        target.copy_(through[2:], non_blocking=True)
    if ordered == "a wait":
        last.wait_stream(first)
    elif ordered == "many waits":
        # Both have something to do, so that they wait later, too.
        for before, after in zip(streams, streams[1:]):
            with torch.cuda.stream(after):
                torch.zeros(2).copy_(torch.ones(2), non_blocking=True)
            after.wait_stream(before)
    with torch.cuda.stream(last):
        through[:4].copy_(source, non_blocking=True)
    torch.cuda.current_stream().wait_stream(last)
    torch.cuda.current_stream().wait_stream(first)
    assert through.tolist() == [3.0] * 4 + [5.0] * 2
    if ordered:
        assert target.tolist() == [5.0] * 4
    else:
        assert target.tolist() != [5.0] * 4


def test_a_later_copy_elsewhere_keeps_nothing():
    """What it does not write may be let go, and is lost."""
    stream = torch.cuda.Stream()
    source, target, other = torch.ones(4), torch.zeros(4), torch.zeros(4)
    with torch.cuda.stream(stream):
        target.copy_(source, non_blocking=True)
        other.copy_(torch.ones(4), non_blocking=True)
    source.fill_(7.0)  # nobody has waited
    torch.cuda.current_stream().wait_stream(stream)
    assert target.tolist() == [7.0] * 4
