"""An all-to-all of tensors between ranks, by copies into each other's memory
(graphhooks/exchange.h).

    x = graphhooks.exchange.Exchange(group, part_bytes=64 << 20)
    tokens = x.all_to_all(tokens, come, go)    # autograd goes through it
    ...
    x.close()                                  # all ranks

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import datetime
import logging
import math
import os
import threading
import time
import types

import torch

from . import _abi, _library
from .errors import Error, check
from .options import environment_of
from .torch.base import memory
from .torch.group.ranks import Circle
from .torch.offload import pinned
from .values import whole

log = logging.getLogger("graphhooks")

KINDS = ("auto", "copy", "kernel", "nccl")
_NAMES = {_abi.GH_EXCHANGE_COPY: "copy", _abi.GH_EXCHANGE_KERNEL: "kernel"}
_VARIABLE, _TIMEOUT = "GRAPHHOOKS_EP_EXCHANGE", "GRAPHHOOKS_TIMEOUT"
_SECONDS = 60
_ALIGNED = 512  # bytes, where a part begins
_COUNT = 4096  # of numbers by which a stream says how far it is


class Exchange:
    """Of all ranks of a group; each of them makes it, calls it in the same
    order, and closes it."""

    def __init__(self, group=None, *, part_bytes: int, kind: str | None = None,
                 alone: bool = False, timeout: int | None = None):
        """``group``: a process group of torch.distributed; its ranks need
        gloo, by which they agree.
        ``part_bytes``: the most that a rank sends to another one by a window;
        the largest of all ranks' counts.  A window takes it twice for each
        rank.  A larger part goes by torch.distributed's send and receive, and
        a warning says so once.
        ``kind``: "copy" or "kernel", as gh_exchange_desc.kind; "nccl":
        torch.distributed's own all-to-all; "auto": copy where all ranks reach
        each other's memory, else torch.distributed's, with a warning that says
        why.  GRAPHHOOKS_EP_EXCHANGE wins.
        ``alone``: nothing else computes on the device meanwhile, so that auto
        moves small parts by a kernel.
        ``timeout``: seconds after which a rank that does not come is named.
        GRAPHHOOKS_TIMEOUT wins.
        All ranks give the same kind.  Blocks until all have come.  Raises
        ``Error``, on all ranks.
        """
        if group is None:
            group = torch.distributed.group.WORLD
        self.group = group
        kind = os.environ.get(_VARIABLE) or kind or "auto"
        if kind not in KINDS:
            raise Error(f"kind is {kind!r}; there are {', '.join(KINDS)}",
                        _abi.GH_ERR_CONFIG)
        self.part_bytes = whole("part_bytes", part_bytes, 1 << 48)
        self._alone = _abi.GH_EXCHANGE_ALONE if alone else 0
        self._circle = Circle(
            torch.distributed.get_process_group_ranks(group))
        self.rank, self.size = self._circle.rank, self._circle.size
        self.kind, self.reason = kind, None  # of torch.distributed's
        self._handle = ctypes.c_void_p()
        self._api = _library.load()
        self._lock = threading.Lock()  # of calls in C
        self._calls = self._turn = 0
        # Parts that torch.distributed has moved, and the largest of them.
        self.large_parts = self.largest_bytes = 0
        self._stream = self._event = None  # of the last call
        self._seconds = int(os.environ.get(_TIMEOUT) or timeout or _SECONDS)
        # One half is spent before the library is asked, which waits for one.
        self._half = max(self._seconds // 2, 1)
        self._closing = threading.Event()
        self._watcher = None
        if self.size > 1:
            self._open(kind, timeout)

    def _open(self, kind: str, timeout) -> None:
        self._circle.open(types.SimpleNamespace(options={"timeout": timeout}))
        said = self._circle.say([KINDS.index(kind), self.part_bytes])
        for rank, (theirs, _) in enumerate(said):
            if KINDS[theirs] != kind:
                raise Error(f"kind is {KINDS[theirs]} on rank {rank}, and "
                            f"{kind} on rank {self.rank}: make them equal",
                            _abi.GH_ERR_CONFIG)
        self.part_bytes = max(most for _, most in said)
        self._room = -(-self.part_bytes // _ALIGNED) * _ALIGNED
        if kind == "nccl":
            return
        failure = None
        try:
            self._create(kind)
        except Error as error:
            failure = error
        said = self._circle.say([failure.status if failure else 0])
        statuses = [ctypes.c_int32(s & 0xffffffff).value for s, in said]
        if not any(statuses):
            self._begin()
            return
        self._destroy()
        failed = next(i for i, s in enumerate(statuses) if s)
        text = str(failure or f"rank {failed} has failed").split(": give a")[0]
        if kind != "auto":
            raise Error(f"exchange: {text}", failure.status if failure
                        else _abi.GH_ERR_RANKS)
        self.kind, self.reason = "nccl", text
        log.warning("exchange of %d ranks by torch.distributed: %s",
                    self.size, text)

    def _create(self, kind: str) -> None:
        self._gathers = _abi.GATHER_FN(self._gather)
        environment = {**os.environ, _TIMEOUT: str(self._half)}
        desc = _abi.make(
            _abi.gh_exchange_desc, rank=self.rank, n_ranks=self.size,
            window_bytes=2 * self.size * self._room, kind=kind.encode(),
            gather=self._gathers, device=int(torch.cuda.current_device()),
            environment=environment_of({}, environment))
        error = _abi.gh_error()
        torch.cuda.current_stream().query()  # makes the context
        check(self._api.exchange_create(desc, ctypes.byref(self._handle),
                                        ctypes.byref(error)), error)

    def _gather(self, _user, _bank, mine, every, n) -> int:
        try:
            said = self._circle.say(mine[:n])
        except Exception:  # which the next one of Python's says, too
            return _abi.GH_ERR_RANKS
        for i, words in enumerate(said):
            for k, word in enumerate(words):
                every[i * n + k] = word
        return _abi.GH_OK

    def _begin(self) -> None:
        """All ranks reach each other."""
        self.kind = _NAMES[self._stats().kind]
        device = torch.device("cuda", int(torch.cuda.current_device()))
        bytes_ = 2 * self.size * self._room
        address = self._api.exchange_window(self._handle)
        self._window = memory.bytes_at(address, bytes_, device)
        self._parts = (_abi.gh_exchange_part * self.size)()
        self._numbers = torch.arange(_COUNT, device=self._window.device)
        self._reached = pinned.allocate(8).view(torch.int64)
        self._reached.zero_()
        self._idle = torch.cuda.Stream()
        self._is_gloo = torch.distributed.get_backend(self.group) == "gloo"
        self._watcher = threading.Thread(target=self._watch, daemon=True,
                                         name="graphhooks exchange")
        self._watcher.start()

    # ---- a call ----------------------------------------------------------

    def all_to_all(self, x, come=None, go=None):
        """What the ranks send to this one, one behind the other in their
        order: ``go[i]`` rows of ``x`` go to rank i, and ``come[i]`` come from
        it; without, equal parts.  Gradients take the way back.

        On the current stream.  In a capture torch.distributed's own is
        captured, as one that a graph holds would have to be launched in turn
        with others.  Raises ``Error`` where a rank has not come before.
        """
        if self.size == 1:
            return x
        come, go = self._splits(x, come, go)
        return _AllToAll.apply(x, self, come, go)

    def _splits(self, x, come, go) -> tuple:
        rows = x.shape[0] if x.dim() else 0
        found = []
        for name, splits in ("come", come), ("go", go):
            if splits is None:
                if rows % self.size:
                    raise Error(f"x has {rows} rows, and {name} is None for "
                                f"{self.size} ranks: give the rows of each")
                splits = [rows // self.size] * self.size
            splits = [int(n) for n in splits]
            if len(splits) != self.size or min(splits) < 0:
                raise Error(f"{name} is {splits}; it has a number of rows for "
                            f"each of {self.size} ranks")
            found.append(splits)
        if sum(found[1]) != rows:
            raise Error(f"go is {found[1]}, of {sum(found[1])} rows, and x "
                        f"has {rows}")
        return found

    def _move(self, x, come, go):
        x = x.contiguous()
        if not self._handle or torch.cuda.is_current_stream_capturing():
            out = x.new_empty((sum(come), *x.shape[1:]))
            torch.distributed.all_to_all_single(out, x, come, go,
                                                group=self.group)
            return out
        row = math.prod(x.shape[1:]) * x.element_size()
        large = self._lay_out(row, come, go)
        stream = torch.cuda.current_stream()
        if self._event is not None and self._stream != stream.cuda_stream:
            stream.wait_event(self._event)
        self._turn = 1 - self._turn
        at = self._turn * self.size * self._room
        self._issue(_abi.make(
            _abi.gh_exchange_op, stream=stream.cuda_stream,
            flags=(_abi.GH_EXCHANGE_TURN_2 if self._turn
                   else _abi.GH_EXCHANGE_TURN_1) | self._alone,
            send=x.data_ptr(), window_offset=at, parts=self._parts))
        apart = self._move_apart(x, large, come, go)
        out = torch.cat([apart[i] if i in apart else
                         self._part(x, i, at, come[i], row, go)
                         for i in range(self.size)])
        # What reads this half of the window is before the next call.
        self._event = torch.cuda.Event()
        self._event.record(stream)
        self._stream = stream.cuda_stream
        number = self._calls % _COUNT
        self._reached.copy_(self._numbers[number:number + 1],
                            non_blocking=True)
        return out

    def _lay_out(self, row: int, come, go) -> list:
        """All parts for a rank have their places in its window, whatever the
        others send; what stays on this rank goes nowhere.  The ranks to which,
        and those from which, more goes than there is room for: both ends of a
        part know its size, so that no other rank has to be asked."""
        offset, large = 0, ([], [])
        for i, part in enumerate(self._parts):
            each = [0 if i == self.rank else n[i] * row for n in (go, come)]
            for way, bytes_ in enumerate(each):
                if bytes_ > self.part_bytes:
                    self._note_large(bytes_, ("to", "from")[way], i)
                    large[way].append(i)
                    each[way] = 0
            part.send_offset, part.send_bytes = offset, each[0]
            part.peer_offset, part.recv_offset = (
                self.rank * self._room, i * self._room)
            part.recv_bytes = each[1]
            offset += go[i] * row
        return large

    def _note_large(self, bytes_: int, way: str, rank: int) -> None:
        self.large_parts += 1
        self.largest_bytes = max(self.largest_bytes, bytes_)
        if self.large_parts == 1:
            log.warning(
                "exchange: %d bytes go %s rank %d of %d, and part_bytes is "
                "%d: what is larger goes by torch.distributed, to the same "
                "bits; %s", bytes_, way, rank, self.size, self.part_bytes,
                self._remedy(bytes_))

    def _remedy(self, bytes_: int) -> str:
        return f"give part_bytes={bytes_} or more, on all ranks"

    def _move_apart(self, x, large, come, go) -> dict:
        """Those parts, by torch.distributed; what comes, by rank.  Each rank
        goes from the first to the last of the others, and of two ranks the
        first sends first: nobody waits for who waits for it."""
        found: dict = {}
        for i in sorted({*large[0], *large[1]}):
            sent = x.narrow(0, sum(go[:i]), go[i]) if i in large[0] else None
            if i in large[1]:
                found[i] = x.new_empty((come[i], *x.shape[1:]))
            try:
                self._with_peer(i, sent, found.get(i))
            except RuntimeError as failure:
                text = str(failure).split("\n", 1)[0]
                why = f" in {self._seconds} s ({_TIMEOUT})" \
                    if "Timed out" in text else f": {text}"
                raise Error(f"exchange: a large part has not gone to rank {i} "
                            f"of {self.size}, or not come from it{why}",
                            _abi.GH_ERR_RANKS) from failure
        return found

    def _with_peer(self, i: int, sent, received) -> None:
        peer, works = self._circle.members[i], []
        for is_send in (True, False) if self.rank < i else (False, True):
            if is_send and sent is not None:
                works.append(torch.distributed.isend(sent, peer,
                                                     group=self.group))
            elif not is_send and received is not None:
                works.append(torch.distributed.irecv(received, peer,
                                                     group=self.group))
        for work in works:
            work.wait(*self._patience())

    def _patience(self) -> tuple:
        """What is left of the call's time, and a little, as the host may have
        waited for parts by the window before.  NCCL has its own, and to wait
        for so long keeps the host there."""
        left = self._since + self._seconds - time.monotonic()
        least = self._seconds / 10
        return (datetime.timedelta(seconds=max(left, least)),) \
            if self._is_gloo else ()

    def _part(self, x, i: int, at: int, rows: int, row: int, go):
        """What rank i has sent."""
        if i == self.rank:
            return x.narrow(0, sum(go[:i]), rows)
        begin = at + i * self._room
        found = self._window[begin:begin + rows * row].view(x.dtype)
        return found.view(rows, *x.shape[1:])

    def _issue(self, op) -> None:
        error = _abi.gh_error()
        with self._lock:
            self._calls += 1
            self._began, self._since = op.stream, time.monotonic()
            self._check(self._api.exchange_all_to_all(
                self._handle, ctypes.byref(op), ctypes.byref(error)), error)

    def _check(self, status: int, error) -> None:
        if status < 0:
            raise Error(self._in_words(error), status)

    def _in_words(self, error) -> str:
        """The library has waited for half of the time."""
        return error.text.decode("utf-8", "replace").replace(
            f"in {self._half} s (", f"in {self._seconds} s (")

    # ---- ranks that do not come -----------------------------------------

    def wait(self) -> None:
        """Waits for the current stream, in the place of synchronize(), until
        the time is over.  Raises ``Error``, which names the rank."""
        stream = torch.cuda.current_stream()
        if not self._handle:
            stream.synchronize()
            return
        event, end = stream.record_event(), self._seconds - self._half
        end += time.monotonic()
        while not event.query() and time.monotonic() < end:
            time.sleep(1e-4)
        self._check(*self._wait_for(stream.cuda_stream))

    def _wait_for(self, stream) -> tuple:
        error = _abi.gh_error()
        with self._lock:
            status = _abi.GH_OK if self._closing.is_set() else \
                self._api.exchange_wait(self._handle, stream,
                                        ctypes.byref(error))
        return status, error

    def _watch(self) -> None:
        """A host may wait for the device, where that waits for a rank: another
        thread sees that no call ends, and has the library let go.  It also
        sees that another rank has done so, whose parts are none any more.  The
        next call then says why."""
        half = self._seconds - self._half or 0.5
        since = reached = None
        while not self._closing.wait(min(half / 10, 0.5)):
            before, reached = reached, self._reached.item()
            ended = reached == self._calls % _COUNT or not self._calls
            waits = []  # for whom; the default stream is 0
            if before != reached:
                waits = [self._idle.cuda_stream]
            if ended:
                since = None
            elif since is None or before != reached:
                since = time.monotonic()
            elif time.monotonic() - since > half:
                since, waits = None, [self._began]
            for stream in waits:
                status, error = self._wait_for(stream)
                if status == _abi.GH_ERR_RANKS:
                    log.error("%s", self._in_words(error))
                    return

    # ---- numbers, and an end --------------------------------------------

    def _stats(self):
        raw, error = _abi.make(_abi.gh_exchange_stats), _abi.gh_error()
        check(self._api.exchange_get_stats(self._handle, raw, error), error)
        return raw

    def stats(self) -> dict:
        """The counters of gh_exchange_stats, and of ``large_parts``, which
        have gone by torch.distributed; ``kind`` in words, and where it is
        torch.distributed's nothing but that."""
        if not self._handle:
            return {"kind": self.kind}
        raw = self._stats()
        found = {name: getattr(raw, name) for name, _ in raw._fields_
                 if name != "struct_size"}
        return {**found, "kind": self.kind, "large_parts": self.large_parts,
                "largest_bytes": self.largest_bytes}

    def close(self) -> None:
        """All ranks, in the order in which they have made several.  Waits for
        the others, until the time is over; twice is allowed."""
        self._closing.set()
        if self._watcher is not None:
            self._watcher.join()
            self._watcher = None
        self._destroy()

    def _destroy(self) -> None:
        if self._handle:
            self._window = None
            self._api.exchange_destroy(self._handle)
            self._handle = ctypes.c_void_p()
            self._circle.close()

    def __enter__(self) -> "Exchange":
        return self

    def __exit__(self, *_) -> None:
        self.close()


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, exchange, come, go):
        ctx.exchange, ctx.splits = exchange, (go, come)
        return exchange._move(x, come, go)

    @staticmethod
    def backward(ctx, grad):
        return _AllToAll.apply(grad, ctx.exchange, *ctx.splits), None, None, \
            None
