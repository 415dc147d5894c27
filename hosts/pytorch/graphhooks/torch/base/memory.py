"""Captures by torch, and the memory that recorded graphs live in.

What a recording allocates comes from a pool.  What one recording of a pool
has freed, a later one may use, so the recordings of a pool must always run in
the order in which they were made.  Such a pool is of a flight, which is one
microbatch in one slot: its forwards, then its backwards.  Flights of several
banks in a slot share it (pools.py).  Of what they leave, only gradients are
wanted longer than for the microbatch, and lie in a pool only where each step
has one (gradient_buffers.py): a recording runs when none of them is in its way
(`Flights.may_run`).

A layer that is recorded in a later flight gets other pools: in the order of
replays it runs between passes that were recorded before it.

torch captures by itself, as its random numbers are counted by its own graph
object.  A graph without any is then launched by the library; one that draws
them is replayed by torch every time, which moves the generators on.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref

import torch

from ...services import Said
from . import private

_MARGIN = 64  # of a device's memory one part is left alone
_failed: list = []  # graphs that torch goes on asking


class Turn:
    """Of all threads one: during a capture no other one begins a capture,
    waits for the device or gives memory back, which would end it, or raise."""

    _PATIENCE = 10  # seconds; what is captured may wait for another thread

    def __init__(self):
        self._lock = threading.Lock()
        self._thread = None

    def take(self) -> bool:
        """False: it has it already, or has waited for too long."""
        thread = threading.get_ident()
        if self._thread == thread \
                or not self._lock.acquire(timeout=self._PATIENCE):
            return False
        self._thread = thread
        return True

    def give(self) -> None:
        self._thread = None
        self._lock.release()


_turn = Turn()


class _Memory:
    """A range of device memory, for ``torch.as_tensor``."""

    def __init__(self, address: int, nbytes: int, keeper):
        self.keeper = keeper
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": (nbytes,),
            "typestr": "|u1",
            "version": 3,
        }


def bytes_at(address: int, nbytes: int, device, keeper=None) -> torch.Tensor:
    """What lies there; who has the tensor has the keeper, too."""
    return torch.as_tensor(_Memory(address, nbytes, keeper), device=device)


def tensor_at(address: int, like: torch.Tensor) -> torch.Tensor:
    """A tensor of the shape and strides of ``like`` at another address, and no
    view to who asks: Megatron has one operation more for those."""
    flat = bytes_at(address, span_of(like) * like.element_size(), like.device)
    return flat.view(like.dtype).as_strided(like.size(), like.stride()).data


def unowned(tensor, keeper):
    """Another tensor in the same memory, which owns none of it, but keeps
    what does."""
    if not tensor.numel() or tensor.is_neg() or tensor.is_conj():
        return tensor
    flat = bytes_at(tensor.data_ptr(), span_of(tensor) * tensor.element_size(),
                    tensor.device, keeper)
    return flat.view(tensor.dtype).as_strided(tensor.size(), tensor.stride())


@contextlib.contextmanager
def own_turn():
    """While nothing is captured by another thread."""
    has_turn = _turn.take()
    try:
        yield
    finally:
        if has_turn:
            _turn.give()


def synchronize(device=None) -> None:
    with own_turn():
        torch.cuda.synchronize(device)


def move_out(tensors, storage):
    """Who has the storage finds what is in it in other memory from now on, but
    for these tensors, which stay where they are, in the storage that is
    returned; None: it owns no memory, of which torch makes no copies that
    way, or there is no other.  Waits for the device, as torch copies on its
    default stream."""
    number = private.number_of_storage(storage)
    there = [t for t in tensors if
             private.number_of_storage(t.untyped_storage()) == number]
    synchronize()
    try:
        other = private.lazy_clone(there[0]).untyped_storage()
        # Who is asked first counts as written, and so is copied; the second
        # has the memory alone by then.
        for each in storage, other:
            each.data_ptr()
    except RuntimeError:
        return None
    synchronize()
    for tensor in there:
        tensor.set_(other, tensor.storage_offset(), tensor.size(),
                    tensor.stride())
    return other


def span_of(t: torch.Tensor) -> int:
    """How many elements lie in its memory, from the first to the last."""
    if t.is_contiguous() or not t.numel():
        return t.numel()
    return 1 + sum([(n - 1) * s for n, s in zip(t.size(), t.stride())])


def is_dense(t: torch.Tensor) -> bool:
    """Whether a copy of numel elements is a copy of the tensor: not where they
    have the other sign in memory."""
    return (t.is_contiguous()
            or torch.ops.aten.is_non_overlapping_and_dense(t)) \
        and not t.is_neg()


@contextlib.contextmanager
def versioned():
    """Tensors that are made have versions, also for who evaluates in inference
    mode.  Not around the begin or the end of a capture: what was on is put
    back at the end."""
    with torch.inference_mode(False), torch.no_grad():
        yield


def allocated(device: int) -> int:
    """Bytes of tensors, in all pools."""
    return torch.cuda.memory_allocated(device)


def total(device: int) -> int:
    """What the device has."""
    return torch.cuda.mem_get_info(device)[1]


def spare(device: int) -> int:
    """Bytes that nobody has had so far, and that the most which tensors have
    taken at once does not need; less a margin for what does not fit
    between others."""
    free, total = torch.cuda.mem_get_info(device)
    more = torch.cuda.max_memory_allocated(device) \
        - torch.cuda.memory_reserved(device)
    return free - max(more, 0) - total // _MARGIN


def has_room(device: int, nbytes: int) -> bool:
    """For as much, and what comes and goes with it."""
    return nbytes + nbytes // 2 <= spare(device)


class Pool:
    """A pool of captures: torch keeps its memory while somebody has this, also
    when its graphs are destroyed.  Not made during a capture."""

    def __init__(self, device: int, arena=None):
        if arena is None:
            self.handle = torch.cuda.graph_pool_handle()
        else:
            self.handle = arena.pool()
            weakref.finalize(self, arena.let_go, self.handle).atexit = False
        private.begin_allocate_to_pool(device, self.handle)
        private.end_allocate_to_pool(device, self.handle)
        weakref.finalize(self, private.release_pool, device,
                         self.handle).atexit = False


class Captures:
    """The host services by which torch captures for the library."""

    def __init__(self, device: int, generators=(), arena=None):
        self.device = device
        self.arena = arena  # whose memory is that of pools, or torch's
        self.at = ()  # the flight of the last recording
        self.generators = (torch.cuda.default_generators[device],
                           *generators)
        self.pools: dict[tuple, Pool] = {}
        self.pool: Pool | None = None  # of the last recording
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._of_pool: dict[int, Pool] = {}  # where each allocates
        self._graph = None
        self._stream = None
        self._has_turn = False  # among threads
        self._collects = False
        self.is_given_up = False  # the capture, and it is said why
        self._has_recorded = False  # since the step began
        self.before = None  # numbers, when torch launched last
        self._drawn = None  # the stream of the last launch by torch

    def services(self, flight) -> dict:
        """flight(recording) says in whose pool a recording is made."""
        return {
            "before_recording": self._before_recording,
            "record_begin": lambda recording: self._record_begin(
                recording, flight),
            "record_end": self._record_end,
            "capture_begin": self._begin,
            "capture_end": self._end,
            "launch": self._launch,
            "destroy": self._destroy,
        }

    def close(self) -> None:
        """After the session is closed."""
        self.graphs.clear()
        self.pool = None
        self._of_pool.clear()
        self.pools.clear()
        if self.arena is not None:
            with own_turn():
                self.arena.sweep()

    def pool_bytes(self) -> dict:
        """Device memory of the pools, by chunk and slot.  Looks at all that
        torch has allocated."""
        of = {pool.handle: key[:2] for key, pool in self.pools.items()}
        found = dict.fromkeys(sorted(of.values()), 0)
        for each in torch.cuda.memory_snapshot():
            key = of.get(tuple(each["segment_pool_id"]))
            if key is not None and each["device"] == self.device:
                found[key] += each["total_size"]
        return found

    def states(self) -> list:
        """How many random numbers each generator has drawn, from where."""
        return [(g.initial_seed(), g.get_offset()) for g in self.generators]

    def numbers(self) -> list:
        """Another if anybody has drawn meanwhile."""
        return self.states()

    def put_numbers(self, numbers) -> None:
        """As numbers() has given them."""
        for g, (_, offset) in zip(self.generators, numbers):
            g.set_offset(offset)

    def step(self) -> None:
        """Before the first forward of one."""
        if self._has_recorded:
            self.make_room()
            self._has_recorded = False

    def make_room(self) -> None:
        """What eager passes have left to the allocator, such as gradients,
        has been allocated once more for graphs, or is about to be."""
        with own_turn():
            if self.arena is not None:
                self.arena.sweep()
            torch.cuda.empty_cache()

    # ---- a recording ----------------------------------------------------

    def _before_recording(self, recording) -> None:
        self.make_room()

    def _record_begin(self, recording, flight) -> None:
        self.at = bank, *pool = flight(recording)
        # The banks of a slot have the same (pools.py).
        pool = (recording.chunk, recording.slot, *pool)
        if pool not in self.pools:
            self.pools[pool] = Pool(self.device, self.arena)
        self.pool = self.pools[pool]
        # A graph holds the address of cuBLAS's scratch; one made here is of
        # this pool, and so is never shared by two that run at once.
        private.clear_workspaces()

    def _record_end(self, recording, kept) -> None:
        self._has_recorded = True
        private.clear_workspaces()

    def _begin(self, stream) -> None:
        capture = torch.cuda.ExternalStream(stream, device=self.device)
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        for generator in self.generators[1:]:
            graph.register_generator_state(generator)
        # torch resets the counters of random numbers on the stream of the
        # capture, and graphs in flight still read them.
        capture.wait_stream(torch.cuda.current_stream(self.device))
        if self._drawn is not None:
            capture.wait_stream(self._drawn)
        self._has_turn = _turn.take()
        self._stream = torch.cuda.stream(capture)
        self._stream.__enter__()
        self._collects = gc.isenabled()
        gc.disable()  # what it frees may not be freed during a capture
        self.is_given_up = False
        try:
            graph.capture_begin(pool=self.pool.handle,
                                capture_error_mode="thread_local")
        except BaseException:
            self._leave(capture)
            raise
        self._graph = graph

    def _leave(self, capture) -> None:
        if self._collects:
            gc.enable()
        self._stream.__exit__(None, None, None)
        self._stream = None
        torch.cuda.current_stream(self.device).wait_stream(capture)
        if self._has_turn:
            _turn.give()

    def _end(self, stream):
        graph, self._graph = self._graph, None
        capture = torch.cuda.current_stream(self.device)
        failed = True
        try:
            graph.capture_end()
            failed = False
        except Exception as failure:
            if self.is_given_up:
                raise Said from failure
            raise
        finally:
            try:
                if failed:
                    self._mend(graph)
            finally:
                self._leave(capture)
        key = id(graph)
        self.graphs[key] = graph
        self._of_pool[key] = self.pool
        return key, graph.raw_cuda_graph()

    def _mend(self, graph) -> None:
        """A capture that has failed leaves torch's allocator and generators
        in the middle of it.  The allocator is told, and asks the failed graph
        from time to time whether it captures; its pool takes no more, and is
        given up in the graph's place, which would hold its memory for good.
        A capture that ends well brings the generators back."""
        private.end_allocate_to_pool(self.device, self.pool.handle)
        private.release_pool(self.device, self.pool.handle)
        _failed.append(graph)
        self._forget(self.pool)
        other = torch.cuda.CUDAGraph()
        for generator in self.generators[1:]:
            other.register_generator_state(generator)
        other.capture_begin(capture_error_mode="thread_local")
        private.sleep(1)  # a graph without work would be warned of
        other.capture_end()

    def _forget(self, pool: Pool) -> None:
        for flight in [f for f, p in self.pools.items() if p is pool]:
            del self.pools[flight]
        if self.pool is pool:
            self.pool = None

    # ---- graphs ---------------------------------------------------------

    def _launch(self, key, stream):
        """The first time, and every time if it moves a generator."""
        graph = self.graphs[key]
        before = self.before = self.numbers()
        current = self.stream_of(stream)
        # torch has one seed and one offset for all graphs, and writes them
        # before each: those that still run read them.
        if self._drawn is not None and \
                self._drawn.cuda_stream != current.cuda_stream:
            current.wait_stream(self._drawn)
        self._drawn = current
        with torch.cuda.stream(current):
            graph.replay()
        if before == self.numbers():
            return graph.raw_cuda_graph_exec()
        return None

    def stream_of(self, stream):
        """NULL is the legacy stream, torch's default one."""
        if stream is None:
            return torch.cuda.default_stream(self.device)
        return torch.cuda.ExternalStream(stream, device=self.device)

    def _destroy(self, key) -> None:
        """The graph itself, as NCCL waits for what holds its operations; its
        results may lie in the pool.  Another recording gets another pool once
        the last graph of one is gone."""
        self.graphs.pop(key).reset()
        pool = self._of_pool.pop(key)
        if pool not in self._of_pool.values():
            self._forget(pool)
