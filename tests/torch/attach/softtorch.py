"""torch with a GPU that is the software device, for machines without another.

The tensors "on the GPU" are the CPU's.  A capture runs its operations, notes
each of them, and takes back what they have done, as a GPU runs none then; a
replay runs them again, on the same memory and with the generators at hand, and
spoils what other graphs of its pool may have there (softpool.py).
Of a collective a capture notes that it was there, and has it say nothing to the
other ranks; a replay runs it, by gloo, and waits for it.
A copy that the host need not wait for, on a stream of one's own, is done as
late as events allow, and what it reads is lost if it was let go by then.
The package, the library and autograd are the real ones.

What this cannot show, and what tests need a real GPU for: other work on
streams, how much memory there is, autocast of "cuda", other devices, and a
launch without Python.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import weakref

import softpool
import torch
from torch.utils._python_dispatch import (TorchDispatchMode,
                                          _disable_current_modes,
                                          _get_current_dispatch_mode_stack)
from torch.utils._pytree import tree_map_only

_aten = torch.ops.aten

# What waits for the GPU, which a capture forbids.
_WAITS = {_aten._local_scalar_dense.default, _aten.nonzero.default,
          _aten.equal.default, _aten.masked_select.default}
# Arguments that are written, which the schema does not say.
_UNSAID = {_aten.native_batch_norm.default: (3, 4)}
_WAITED = "CUDA error: operation not permitted when stream is capturing"
_CAPTURED = "CUDA error: operation not permitted on an event last recorded " \
    "in a capturing stream"
_INVALIDATED = ("CUDA error: operation failed due to a previous error during "
                "capture")
_UNKNOWN = "Generator: not in capture mode"


# ---- operations ------------------------------------------------------------


def _leaves(values) -> list:
    """Of what operations take and give; torch's own way to ask knows more
    kinds, and takes several times as long."""
    if isinstance(values, dict):
        values = values.values()
    elif not isinstance(values, (tuple, list)):
        return [values]
    return [leaf for value in values for leaf in _leaves(value)]


def _tensors(values) -> list:
    """Those that have memory: nothing replays what makes sparse ones."""
    return [t for t in _leaves(values)
            if isinstance(t, torch.Tensor) and t.layout == torch.strided]


def _aliases(values):
    """At the same addresses, with versions and gradients of their own."""
    return tree_map_only(
        torch.Tensor, lambda t: softpool.alias(t)
        if t.layout == torch.strided else t, values)


def _storages(values) -> dict:
    found = [t.untyped_storage() for t in _tensors(values)]
    return {storage.data_ptr(): storage for storage in found}


def _written(function, args, kwargs) -> list:
    """The arguments that an operation writes."""
    found = [args[i] for i in _UNSAID.get(function, ())]
    for i, argument in enumerate(function._schema.arguments):
        info = argument.alias_info
        if info is not None and info.is_write:
            found.append(args[i] if i < len(args)
                         else kwargs.get(argument.name))
    return found


def _is_view(function) -> bool:
    """Whether it gives memory another name, and does nothing else."""
    schema = function._schema
    return bool(schema.returns) and not schema.is_mutable and all(
        r.alias_info is not None for r in schema.returns)


def _selects(function, args) -> bool:
    """Whether the shape of what comes out depends on numbers."""
    return function is _aten.index.Tensor and any(
        t.dtype == torch.bool for t in _tensors(args[1]))


class _Operation:
    """One that can be run again."""

    def __init__(self, function, args, kwargs, result):
        self.function = function
        self._memory = [t.untyped_storage()
                        for t in _tensors((args, kwargs, result))]
        self.args, self.kwargs = _aliases((args, kwargs))
        self.places = [] if function._schema.is_mutable \
            else _tensors(_aliases(result))

    def run(self) -> None:
        result = self.function(*self.args, **self.kwargs)
        for place, value in zip(self.places, _tensors(result)):
            if place.data_ptr() != value.data_ptr():
                place.copy_(value)


class _Collective(_Operation):
    """Of torch.distributed; what it writes, its schema does not say."""

    def __init__(self, function, args, kwargs):
        work = _lone_work()
        self._alone = len(function._schema.returns) == 1  # as of all-to-all
        super().__init__(function, args, kwargs, (args[0], work))
        self.result = work if self._alone else (args[0], work)
        self.places = []

    def run(self) -> None:
        result = self.function(*self.args, **self.kwargs)
        (result if self._alone else result[-1]).wait()


def _lone_work():
    """Of a group that has no other rank."""
    global _lone
    if _lone is None:
        _lone = torch.distributed.new_group(
            [torch.distributed.get_rank()], backend="gloo",
            use_local_synchronization=True)
    nothing = torch.zeros(1)
    with _disable_current_modes():
        return torch.distributed.all_reduce(nothing, group=_lone,
                                            async_op=True).boxed()


class _Kernel:
    """One of the library's: a graph of the driver's own, which can be made
    once no capture is open."""

    def __init__(self, tensors, launch):
        self._memory = [t.untyped_storage() for t in tensors]
        self._graph, self._made = ctypes.c_void_p(), None
        stream = _here.of_kernels()
        _soft.begin_capture(stream.cuda_stream)
        try:
            with _On(stream):
                launch()
        finally:
            _soft.call("cuStreamEndCapture",
                       ctypes.c_void_p(stream.cuda_stream),
                       ctypes.byref(self._graph))

    def run(self) -> None:
        if self._made is None:
            made = ctypes.c_void_p()
            _soft.call("cuGraphInstantiateWithFlags", ctypes.byref(made),
                       self._graph, ctypes.c_uint64(0))
            self._made = made.value
        stream = _here.of_kernels()
        _soft.launch(self._made, stream.cuda_stream)
        stream.synchronize()

    def __del__(self):
        if self._made is not None:
            _soft.call("cuGraphExecDestroy", ctypes.c_void_p(self._made))
        if self._graph:
            _soft.call("cuGraphDestroy", self._graph)


class _Recorder(TorchDispatchMode):
    """The operations of a capture."""

    current = None  # the one at work

    def __init__(self, generators, share):
        super().__init__()
        self.thread = threading.get_ident()
        self.generators = {g._cdata for g in generators}
        self.operations: list = []
        self.failed = False
        self._before: dict = {}  # storages that were there, and their content
        self._made = share.made  # others

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.failed:
            raise RuntimeError(_INVALIDATED)
        if function in _WAITS or _selects(function, args):
            self.fail(_WAITED)
        for value in _leaves((args, kwargs)):
            if isinstance(value, torch.Generator) \
                    and value._cdata not in self.generators:
                self.fail(_UNKNOWN)
        for address, storage in _storages(
                _written(function, args, kwargs)).items():
            if address not in self._made and address not in self._before:
                self._before[address] = storage, storage.clone()
        if function.namespace == "c10d":
            self.operations.append(_Collective(function, args, kwargs))
            return self.operations[-1].result
        given = _storages((args, kwargs))
        result = function(*args, **kwargs)
        if not _is_view(function):
            self.operations.append(_Operation(function, args, kwargs, result))
        for address, storage in _storages(result).items():
            if address not in given:
                self._made[address] = storage
        return result

    def add_kernel(self, written, read, launch) -> None:
        """Of the library, which no operation of torch's has called; what it
        writes nobody reads before a replay."""
        storage = written.untyped_storage()
        address = storage.data_ptr()
        with _disable_current_modes():
            if address not in self._made and address not in self._before:
                self._before[address] = storage, storage.clone()
        self.operations.append(_Kernel([written, *read], launch))

    def fail(self, why: str) -> None:
        self.failed = True
        raise RuntimeError(why)

    def take_back(self) -> None:
        """All that was there is as it was; the rest holds nothing of use."""
        for storage, content in self._before.values():
            storage.copy_(content)
        softpool.spoil(self._made.values())


# ---- streams and graphs ----------------------------------------------------


class _Stream:
    """All of them do their work at once, but for copies that the host is not
    to wait for, on a stream of one's own: those are done as late as may be,
    when somebody waits for an event behind them."""

    def __init__(self, handle=None, device=None):
        self.cuda_stream = _soft.stream().value if handle is None else handle
        self._is_own = handle is None
        self._work: list = []  # copies and waits
        self._done = 0  # how many of all that were ever there
        self._defers: list = []  # of each time that it is the current one

    def query(self) -> bool:
        return True

    def wait_stream(self, other) -> None:
        self.wait_event(other.record_event())

    def record_event(self) -> "_Event":
        event = _Event()
        event.record(self)
        return event

    def wait_event(self, event) -> None:
        if self._work:
            self._work.append(event.wait)
        else:
            event.wait()

    def defer(self, copy) -> None:
        with _disable_current_modes():
            for earlier in self.copies_before():
                earlier.read_before(copy)
            copy.spoil()
        self._work.append(copy)

    def copies_before(self) -> list:
        """Those that are done before whatever is issued now."""
        found, looked = [], {}  # how far, by stream
        waiting = [(self, self.mark())]
        while waiting:
            stream, mark = waiting.pop()
            begin = max(looked.get(stream, 0), stream._done)
            looked[stream] = max(begin, mark)
            for work in stream._work[begin - stream._done:
                                     max(mark - stream._done, 0)]:
                if isinstance(work, _Copy):
                    found.append(work)
                elif work.__self__.is_recorded():
                    waiting.append(work.__self__.where())
        return found

    def mark(self) -> int:
        return self._done + len(self._work)

    def work_until(self, mark: int) -> None:
        while self._done < mark:
            self._done += 1
            self._work.pop(0)()

    def synchronize(self) -> None:
        self.work_until(self.mark())
        _soft.call("cuStreamSynchronize", ctypes.c_void_p(self.cuda_stream))

    def enter(self) -> None:
        if self._is_own:
            self._defers.append(_Defer(self))
            self._defers[-1].__enter__()

    def leave(self) -> None:
        if self._defers:
            self._defers.pop().__exit__(None, None, None)


_pinned: set = set()  # addresses


def _pin(nbytes: int):
    memory = torch.empty(nbytes, dtype=torch.uint8)
    address = memory.untyped_storage().data_ptr()
    _pinned.add(address)
    weakref.finalize(memory, _pinned.discard, address)
    return memory


class _Copy:
    """One that is deferred.  What it reads is lost if everybody has let go of
    it by then, as others may write there; it keeps no memory from that, but
    pinned one, as torch's allocator does."""

    def __init__(self, target, source):
        self._kept = {t.untyped_storage().data_ptr() for t in (target, source)
                      if t.untyped_storage().data_ptr() in _pinned}
        self._places = [(t.untyped_storage(), t.storage_offset(), t.size(),
                         t.stride(), t.dtype) for t in (target, source)]
        self._read = None  # what is in the source, if that is written since

    def _tensors(self) -> tuple:
        """Target and source; None: everybody has let go of it."""
        return tuple(torch.empty(0, dtype=dtype).set_(storage, *how)
                     if storage.data_ptr() in self._kept
                     or not softpool.is_free(storage) else None
                     for storage, *how, dtype in self._places)

    def spoil(self) -> None:
        """The target holds nothing from now on."""
        target, _ = self._tensors()
        softpool.spoil_range(target)

    def read_before(self, later: "_Copy") -> None:
        """That one writes what this one, which is done before it, reads."""
        _, source = self._tensors()
        target, _ = later._tensors()
        if self._read is None and source is not None \
                and _overlap(source, target):
            self._read = source.clone()

    def __call__(self) -> None:
        target, source = self._tensors()
        if target is not None and source is not None:
            target.copy_(source if self._read is None else self._read)


def _overlap(one, other) -> bool:
    (a, m), (b, n) = ((t.data_ptr(), _span(t)) for t in (one, other))
    return a < b + n and b < a + m


def _span(tensor) -> int:
    """Bytes from its first to its last."""
    return tensor.element_size() * (1 + sum(
        (n - 1) * s for n, s in zip(tensor.size(), tensor.stride()))) \
        if tensor.numel() else 0


class _Defer(TorchDispatchMode):
    """Copies of a stream."""

    def __init__(self, stream):
        super().__init__()
        self._stream = stream

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is _aten.copy_.default and len(args) > 2 and args[2]:
            self._stream.defer(_Copy(*args[:2]))
            return args[0]
        return function(*args, **(kwargs or {}))


class _Event:
    """As torch.cuda.Event."""

    def __init__(self, enable_timing=False):
        self._stream, self._mark = None, 0
        self._capture = None  # in which it was recorded

    def record(self, stream=None) -> None:
        if _is_capturing() and _Recorder.current.failed:
            raise RuntimeError(_INVALIDATED)
        self._capture = _Recorder.current if _is_capturing() else None
        self._stream = stream or _here.stream
        self._mark = self._stream.mark()

    def wait(self) -> None:
        if self._stream is not None:
            self._stream.work_until(self._mark)

    def synchronize(self) -> None:
        if self._capture is not None:
            self._capture.fail(_CAPTURED)
        self.wait()

    def query(self) -> bool:
        return self._stream is None or self._mark <= self._stream._done

    def is_recorded(self) -> bool:
        return self._stream is not None

    def where(self) -> tuple:
        return self._stream, self._mark

    def elapsed_time(self, other) -> float:
        return 1.0


class _Here(threading.local):
    """What this thread has; in all of them the same stream to begin with."""

    stream = None
    kernels = None

    def of_kernels(self) -> _Stream:
        """Where the library's run, one by one."""
        _soft.call("cuCtxSetCurrent", _soft.context)
        if self.kernels is None:
            self.kernels = _Stream()
        return self.kernels


_here = _Here()


class _On:
    """As torch.cuda.stream()."""

    def __init__(self, stream):
        self._stream = stream

    def __enter__(self):
        self._before = _here.stream
        _here.stream = self._stream
        self._stream.enter()

    def __exit__(self, *_):
        self._stream.leave()
        _here.stream = self._before


class _Graph:
    """As torch.cuda.CUDAGraph.  The driver has one too, of a single memset:
    the library asks what is in a graph."""

    launches = 0  # of all

    def __init__(self, keep_graph=False):
        self._generators = [torch.default_generator]
        self._handles = None

    def register_generator_state(self, generator) -> None:
        self._generators.append(generator)

    def capture_begin(self, pool=None, capture_error_mode="global") -> None:
        self._states = [g.get_state() for g in self._generators]
        _soft.begin_capture(_here.stream.cuda_stream)
        self._handle, self._pool = pool, softpool.use(pool)
        self._share = self._pool.begin()
        self._recorder = _Recorder.current = _Recorder(
            self._generators, self._share)
        self._recorder.__enter__()

    def capture_end(self) -> None:
        self._recorder.__exit__(None, None, None)
        _Recorder.current = None
        self._pool.end(self._share)
        if self._recorder.operations:
            _soft.fill(_scratch, 0, 1, _here.stream.cuda_stream)
        self._handles = _soft.end_capture(_here.stream.cuda_stream)
        self._recorder.take_back()
        for generator, state in zip(self._generators, self._states):
            generator.set_state(state)
        self._states = []
        if self._recorder.failed:  # torch forgets that it has a pool
            _soft.destroy(*self._handles)
            self._handles = self._pool = self._share = self._recorder = None
            raise RuntimeError(_INVALIDATED)

    def raw_cuda_graph(self) -> int:
        return self._handles[0]

    def raw_cuda_graph_exec(self) -> int:
        return self._handles[1]

    def replay(self) -> None:
        _Graph.launches += 1
        _here.stream.synchronize()
        self._share.begin_replay()
        with torch._C._DisableAutocast():  # which has cast what it had to
            for operation in self._recorder.operations:
                operation.run()
        self._share.end_replay()

    def reset(self) -> None:
        if self._handles is not None:
            _soft.destroy(*self._handles)
            softpool.release(self._handle)
        self._handles = self._pool = self._share = self._recorder = None

    def __del__(self):
        self.reset()


class _Allocator:
    """As torch's of two functions in C, so much as a pool needs."""

    def __init__(self, alloc: int, free: int):
        from graphhooks import _abi

        self._alloc, self._free = _abi.POOL_ALLOC_FN(alloc), \
            _abi.POOL_FREE_FN(free)

    def alloc(self, nbytes: int):
        return self._alloc(nbytes, 0, None)

    def free(self, address: int, nbytes: int) -> None:
        self._free(address, nbytes, 0, None)


class _MemPool:
    """As torch.cuda.MemPool."""

    def __init__(self, allocator):
        self.id = torch.cuda.graph_pool_handle()
        softpool.use(self.id)
        softpool.lend(self.id, allocator)

    def __del__(self):
        softpool.release(self.id)


def _states(captures) -> list:
    """What random generators have drawn.  A capture forbids to ask."""
    if _is_capturing():
        _Recorder.current.fail(_UNKNOWN)
    return [g.get_state().numpy().tobytes() for g in captures.generators]


def _numbers(captures) -> list:
    """With how many launches there were, which count as drawing, as
    operations are run by Python alone."""
    return [_Graph.launches, *_states(captures)]


def _put_numbers(captures, numbers) -> None:
    for g, state in zip(captures.generators, numbers[1:]):
        g.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))


def _bytes_at(address: int, nbytes: int, device, keeper=None):
    memory = (ctypes.c_char * nbytes).from_address(address)
    memory.keeper = keeper
    return torch.frombuffer(memory, dtype=torch.uint8)


class _Device(int):
    """The number of a device which is also that of the CPU's tensors."""

    __hash__ = int.__hash__

    def __eq__(self, other):
        return other is None or int(self) == other

    def __ne__(self, other):
        return not self == other


# ---- torch -----------------------------------------------------------------

_soft = None  # softdevice.SoftDevice
_lone = None  # a process group of this rank alone
_scratch = 0  # a word of its memory
_device_of = None  # the package's own


def _nothing(*_, **__) -> None:
    pass


def _put_entries() -> None:
    """What a torch for GPUs has, by the same names."""
    pools = iter(range(1, 1 << 62))
    for name, entry in {
        "_cuda_getCurrentRawStream": lambda _: _here.stream.cuda_stream,
        "_cuda_getDevice": lambda: 0,
        "_cuda_isCurrentStreamCapturing": _is_capturing,
        "_cuda_clearCublasWorkspaces": _nothing,
        "_cuda_customAllocator": _Allocator,
        "_cuda_beginAllocateCurrentThreadToPool":
            lambda _, handle: softpool.use(handle),
        "_cuda_endAllocateToPool": _nothing,
        "_cuda_releasePool": lambda _, handle: softpool.release(handle),
        "_host_emptyCache": _nothing,
    }.items():
        setattr(torch._C, name, entry)
    for name, entry in {
        "CUDAGraph": _Graph,
        "Event": _Event,
        "ExternalStream": _Stream,
        "MemPool": _MemPool,
        "Stream": _Stream,
        "_sleep": _nothing,
        "current_device": lambda: 0,
        "current_stream": lambda _=None: _here.stream,
        "default_generators": (torch.default_generator,),
        "default_stream": lambda _=None: _here.stream,
        "device": lambda _: contextlib.nullcontext(),
        "empty_cache": _nothing,
        "get_device_capability": lambda _=None: (9, 0),
        "get_rng_state": torch.get_rng_state,
        "graph_pool_handle": lambda: (0, next(pools)),
        "memory_snapshot": softpool.snapshot,
        "is_current_stream_capturing": _is_capturing,
        "set_rng_state": torch.set_rng_state,
        "stream": _On,
        "synchronize": _synchronize,
    }.items():
        setattr(torch.cuda, name, entry)
    torch.backends.cuda.is_built = lambda: True
    # Checkpointing asks whether there are states of a device to keep.
    torch.utils.checkpoint._get_device_module = lambda _: _Begun()
    torch.Tensor.cuda = torch.nn.Module.cuda = lambda self, *_, **__: self
    torch.Tensor.record_stream = lambda *_: None  # all is done at once


class _Begun:
    """torch.cuda, as it is once a device has been used."""

    _initialized = True

    def __getattr__(self, name):
        return getattr(torch.cuda, name)


def _is_capturing() -> bool:
    recorder = _Recorder.current
    return recorder is not None \
        and recorder.thread == threading.get_ident()


def _synchronize(*_) -> None:
    if _Recorder.current is not None:  # whosever
        _Recorder.current.fail(_WAITED)


def _be_torch() -> None:
    """What stands in for torch's functions and classes is torch's: a layer
    that asks whether a capture is open reads nothing of its own by that."""
    for names in vars(softpool), globals():
        for thing in [*names.values()]:
            if getattr(thing, "__module__", None) == names["__name__"]:
                thing.__module__ = "torch.cuda"


def configure(more: str = "") -> None:
    """The software device, such as FAIL=cuMemCreate:1."""
    # Python writes to the device's memory, which the device does not see.
    _soft.call("softcuda_configure",
               f"PAGEABLE=1 RACES=0 UNWRITTEN=0 {more}".encode())


def install() -> None:
    """Before graphhooks.torch is imported."""
    global _soft, _scratch, _device_of
    from graphhooks import _library
    import softdevice
    from softdevice import SoftDevice, beside

    path = beside(_library.load().path)
    _soft = SoftDevice(path)
    configure()
    _scratch = _soft.alloc(4)
    _Here.stream = _Stream()
    os.environ["GRAPHHOOKS_DRIVER"] = path
    torch.set_num_threads(1)  # the tensors are small, and the tests many
    _put_entries()
    with _disable_current_modes():  # which imports, and not in a recording
        pass

    from graphhooks import exchange
    from graphhooks.torch.attach import stack
    from graphhooks.torch.base import arena, memory, private
    from graphhooks.torch.grad import first, staged_gradients
    from graphhooks.torch.group import ranks
    from graphhooks.torch.guard import ran
    from graphhooks.torch.offload import pinned, ringed
    from graphhooks.torch.record import outputs

    ran.OTHERS += (__file__.removesuffix("torch.py"), softdevice.__file__)
    _be_torch()

    private.gpu = torch.device("cpu")
    private.count_of_dispatch_modes = _count_of_others_modes
    ranks.all_gather = _unseen(ranks.all_gather)
    memory.bytes_at = ringed.bytes_at = _bytes_at
    pinned.allocate = _pin
    exchange.Exchange._issue = _done(exchange.Exchange._issue)
    outputs.move_out = _told(outputs.move_out)
    first.First._launch = _recorded(first.First._launch)
    staged_gradients.LARGE = 512  # bytes, as models are small
    memory.Captures.states = _states
    memory.Captures.numbers = _numbers
    memory.spare = lambda _: 1 << 40
    memory.total = lambda _: 1 << 30
    memory.Captures.put_numbers = _put_numbers
    arena.Arena.suspend = _lose(arena.Arena.suspend)
    arena.Arena.resume = _find(arena.Arena.resume)
    _device_of = stack.device_of
    _take_tensors(stack)


def _lose(suspend):
    """The pools' tensors are lost too, which lie elsewhere."""
    def call(arena):
        suspend(arena)
        softpool.lose(arena._pools)

    return call


def _find(resume):
    def call(arena):
        resume(arena)
        softpool.find(arena._pools)

    return call


def _count_of_others_modes() -> int:
    """Without those by which other streams are stood in for."""
    return sum(not isinstance(mode, (_Recorder, _Defer))
               for mode in _get_current_dispatch_mode_stack())


def _unseen(function):
    """What is done in the host's memory is in no recording."""
    def call(*args):
        with _disable_current_modes():
            return function(*args)

    return call


def _done(issue):
    """What comes next is Python's, and waits for no stream."""
    def call(self, op):
        issue(self, op)
        _soft.call("cuStreamSynchronize", ctypes.c_void_p(op.stream))

    return call


def _recorded(launch):
    """The recording at hand has its kernel."""
    def call(self, place, grad):
        _Recorder.current.add_kernel(place, [grad, self._word],
                                     lambda: launch(self, place, grad))

    return call


def _told(move_out):
    """The pool hears of memory that another storage has."""
    def call(tensors, storage):
        address = storage.data_ptr()
        other = move_out(tensors, storage)
        if other is not None:
            softpool.move(address, other)
        return other

    return call


def _take_tensors(stack) -> None:
    """Those of the CPU are the GPU's."""
    torch.Tensor.is_cuda = property(lambda _: True)
    stack.device_of = lambda *_: _Device(0)


@contextlib.contextmanager
def uninstalled():
    """As far as tensors go, and where it is installed."""
    from graphhooks.torch.attach import stack

    if _device_of is None:
        yield
        return
    del torch.Tensor.is_cuda
    stack.device_of = _device_of
    try:
        yield
    finally:
        _take_tensors(stack)
