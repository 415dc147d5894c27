"""The forward of one microbatch beside the backward of another, so that
exchanges of the one hide behind compute of the other (graphhooks/overlap.h).

    over = graphhooks.overlap.Overlap([[attention, dispatch, experts, combine,
                                        rest], ...], group=group)
    out, _ = over.run(forward=(0, x))
    for m in range(1, n):
        loss(out).backward()
        out, grad = over.run(forward=(m, x_of[m]), backward=(m - 1, out.grad))
    loss(out).backward()
    _, grad = over.run(backward=(n - 1, out.grad))
    over.step()

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import NamedTuple

import torch

from . import _abi
from .errors import Error, check
from .model import Model
from .session import Session

# By how many nodes a layer has.
_KINDS = {1: "attn_only", 2: "dense", 5: "moe"}
_DIRECTIONS = {_abi.GH_FORWARD: "forward", _abi.GH_BACKWARD: "backward",
               _abi.GH_WGRAD: "wgrad"}
_ORDERS = {_abi.GH_OVERLAP_OFF: "off", _abi.GH_OVERLAP_FIXED: "fixed",
           _abi.GH_OVERLAP_AUTO: "auto"}


class Release(NamedTuple):
    """A tensor that no later node reads: that of a forward, or its gradient;
    `tensor` as in graphhooks/family.h."""

    direction: str
    layer: int
    node: int
    tensor: int


@dataclass(frozen=True)
class Node:
    """What is to be issued on `stream`, which is the current one."""

    direction: str  # forward, backward or wgrad
    chunk: int
    microbatch: int
    layer: int  # in its chunk
    node: int  # in its layer, in forward order
    lane: str  # compute or comm
    begins: bool  # it reads what enters the chunk
    ends: bool  # it writes what leaves the chunk, which may be sent now
    stream: object
    releases: tuple


class Overlap:
    """Chunks of layers, whose nodes run in the library's order."""

    def __init__(self, *chunks, group=None, agree=None, comm=None,
                 delay_wgrad=False, early_release=False, run_node=None,
                 **options):
        """``chunks``: of a pipeline's stage, or one; each a list of layers,
        and a layer is a list of callables: five with experts (what comes
        before the dispatch, dispatch, experts, combine, the rest), two
        (attention, MLP), or one.  Each takes what the one before returns: a
        tensor, or several as a tuple.  Dispatch and combine run on a stream
        of their own.
        ``group``: the process group of the ranks that exchange tokens; they
        take the same order by measured times, if GRAPHHOOKS_OVERLAP or
        ``overlap=`` is "auto".
        ``agree``: in its place, a function that makes a list of numbers the
        maximum of each over these ranks, and returns that.
        ``comm``: a torch.cuda.Stream for exchanges; else the session's own.
        ``delay_wgrad``: callables with a ``backward_dw()`` put the gradients
        of their weights off until that is called.
        ``early_release``: frees the attention's memory earlier and overlaps
        less, in the fixed order.
        ``run_node``: called with each ``Node`` in the place of its callable;
        it issues the node's work, and frees what ``releases`` lists.
        ``options``: of a Session.
        Raises ``Error``.
        """
        self._chunks = [_checked(i, layers) for i, layers in
                        enumerate(chunks)]
        if not chunks:
            raise Error("no chunk is given: Overlap([layer, ...]) takes one "
                        "list of layers for each")
        # Of each layer of the model, its chunk and its number in that.
        self._places = [(i, j) for i, layers in enumerate(self._chunks)
                        for j in range(len(layers))]
        self._agree = agree or (None if group is None else _maxima(group))
        self._comm = comm
        self._early = early_release
        self._run_node = run_node or self._call
        self._passes: dict = {}  # by chunk and microbatch
        self._failure: BaseException | None = None
        self._streams: dict = {}
        device = options.pop("device", None)
        self._device = torch.cuda.current_device() if device is None \
            else device
        with Model() as model:
            for i, layers in enumerate(self._chunks):
                for layer in layers:
                    kind = _KINDS[len(layer)]
                    model.add_layer(kind, chunk=i,
                                    experts=2 if kind == "moe" else 0)
            with torch.cuda.device(self._device):
                torch.cuda.current_stream().query()  # makes the context
                # Graphs within nodes are those of the callables.
                self._session = Session(
                    model, device=self._device, ep_overlap=True,
                    delay_wgrad=delay_wgrad,
                    **{"enable": False, "scope": "attn", **options})
        self._c_run = _abi.RUN_NODE_FN(self._issue)
        self._c_agree = _abi.AGREE_FN(self._ask)

    def run(self, forward=None, backward=None, chunks=(0, 0)):
        """Both, or one of them: ``forward`` is a microbatch's number and what
        enters the chunk, ``backward`` the number of one whose forward has run
        and the gradients of what left the chunk.  ``chunks``: of which the one
        and the other is.

        Returns what leaves the forward's chunk, as leaves whose ``.grad`` a
        loss fills, and the gradients of what entered the backward's; None
        where there is none.  One tensor comes as that, several as a tuple.
        What a callable raises is raised here; those microbatches are over.
        """
        pair = _abi.make(
            _abi.gh_overlap_pair,
            flags=_abi.GH_OVERLAP_EARLY_RELEASE if self._early else 0,
            run_node=self._c_run)
        if self._agree is not None:
            pair.agree = self._c_agree
        if forward is not None:
            pair.flags |= _abi.GH_OVERLAP_FORWARD
            pair.forward_chunk, (pair.forward_microbatch, entering) = \
                chunks[0], forward
            if (chunks[0], forward[0]) in self._passes:
                raise Error(f"microbatch {forward[0]} of chunk {chunks[0]} "
                            "has run, and its backward has not: give each "
                            "microbatch of a step a number of its own")
        if backward is not None:
            pair.flags |= _abi.GH_OVERLAP_BACKWARD
            pair.backward_chunk, (pair.backward_microbatch, grads) = \
                chunks[1], backward
            if (chunks[1], backward[0]) not in self._passes:
                raise Error(f"microbatch {backward[0]} of chunk {chunks[1]} "
                            "has no forward, whose backward this would be: "
                            "run(forward=...) comes first")
        ahead = behind = None
        if forward is not None:
            ahead = self._passes[chunks[0], forward[0]] = _Pass(entering)
        if backward is not None:
            behind = self._passes[chunks[1], backward[0]]
            behind.values = _several(grads)
        try:
            self._walk(pair)
        except BaseException:
            for chunk, given in zip(chunks, (forward, backward)):
                if given is not None:
                    self._passes.pop((chunk, given[0]), None)
            raise
        if behind is not None:
            del self._passes[chunks[1], backward[0]]
        return (ahead and _one(ahead.leave()),
                behind and _one(behind.values))

    def _walk(self, pair) -> None:
        error = _abi.gh_error()
        with torch.cuda.device(self._device):
            compute = torch.cuda.current_stream()
            pair.compute = compute.cuda_stream
            if self._comm is not None:
                pair.comm = self._comm.cuda_stream
            self._streams[compute.cuda_stream] = compute
            try:
                status = self._session.api.overlap_run(
                    self._session._open(), ctypes.byref(pair), error)
            finally:
                failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        check(status, error)

    # ---- what the library calls -----------------------------------------

    def _issue(self, _, raw, error) -> int:
        try:
            node = self._read(raw.contents)
            with torch.cuda.stream(node.stream):
                self._run_node(node)
        except BaseException as failure:  # no frame of C's may see it
            return self._note(failure, error)
        return _abi.GH_OK

    def _ask(self, _, numbers, count, error) -> int:
        try:
            for i, number in enumerate(self._agree(numbers[:count])):
                numbers[i] = number
        except BaseException as failure:
            return self._note(failure, error)
        return _abi.GH_OK

    def _note(self, failure, error) -> int:
        self._failure = failure
        if error:
            text = f"{type(failure).__name__}: {failure}".encode()
            error.contents.text = text[:_abi.gh_error.text.size - 1]
        return _abi.GH_ERR_INVALID

    def _read(self, raw) -> Node:
        chunk, layer = self._places[raw.layer]
        return Node(
            direction=_DIRECTIONS[raw.direction], chunk=chunk,
            microbatch=raw.microbatch, layer=layer, node=raw.node,
            lane="comm" if raw.lane else "compute",
            begins=bool(raw.flags & _abi.GH_NODE_BEGINS),
            ends=bool(raw.flags & _abi.GH_NODE_ENDS),
            stream=self._stream(raw.stream),
            releases=tuple(Release(_DIRECTIONS[r.direction],
                                   self._places[r.layer][1], r.node, r.tensor)
                           for r in raw.release[:raw.n_release]))

    def _stream(self, handle):
        handle = handle or 0
        if handle not in self._streams:
            self._streams[handle] = torch.cuda.ExternalStream(
                handle, device=self._device)
        return self._streams[handle]

    # ---- nodes as callables ---------------------------------------------

    def _call(self, node: Node) -> None:
        run = self._chunks[node.chunk][node.layer][node.node]
        place = node.layer, node.node
        at = self._passes[node.chunk, node.microbatch]
        if node.direction == "forward":
            at.forward(place, run, node.stream)
        elif node.direction == "backward":
            at.backward(place, node.stream)
        elif hasattr(run, "backward_dw"):
            run.backward_dw()

    # ---- steps -----------------------------------------------------------

    def step(self) -> None:
        """Ends a training step: microbatches are counted anew."""
        self._passes.clear()
        error = _abi.gh_error()
        check(self._session.api.iteration_end(self._session._open(), error),
              error)

    def stats(self) -> dict:
        """The counters of gh_overlap_stats; ``order`` in words."""
        raw = _abi.make(_abi.gh_overlap_stats)
        error = _abi.gh_error()
        check(self._session.api.overlap_get_stats(
            self._session._open(), raw, error), error)
        found = {name: getattr(raw, name) for name, _ in raw._fields_
                 if name != "struct_size"}
        return {**found, "order": _ORDERS[raw.order]}

    def close(self) -> None:
        """Twice is allowed."""
        self._passes.clear()
        self._session.close()

    def __enter__(self) -> "Overlap":
        return self

    def __exit__(self, *_) -> None:
        self.close()


class _Pass:
    """A microbatch in a chunk.  Autograd knows each node apart: what enters
    one are leaves, whose gradients go on to the node before."""

    def __init__(self, entering):
        self.values = _several(entering)  # or gradients, on the way back
        self._kept: dict = {}  # what entered and left, by node
        self._stream = None

    def forward(self, place, run, stream) -> None:
        given = tuple(_leaf(value) for value in self._crossed(stream))
        with torch.enable_grad():
            left = _several(run(*given))
        self._kept[place] = given, left
        self.values = left

    def backward(self, place, stream) -> None:
        given, left = self._kept.pop(place)
        grads = self._crossed(stream)
        if len(grads) != len(left):
            raise Error(f"{len(grads)} gradients are given for {len(left)} "
                        "outputs: give None where there is none")
        pairs = [(out, grad) for out, grad in zip(left, grads)
                 if isinstance(out, torch.Tensor) and out.requires_grad
                 and grad is not None]
        if pairs:
            torch.autograd.backward(*zip(*pairs))
        self.values = tuple(getattr(value, "grad", None) if isinstance(
            value, torch.Tensor) else None for value in given)

    def leave(self) -> tuple:
        """What the forward has come to; its loss is apart from it, too."""
        return tuple(map(_leaf, self.values))

    def _crossed(self, stream) -> tuple:
        """What another stream has made stays until this one has read it."""
        if self._stream is not None and self._stream is not stream:
            for value in self.values:
                if isinstance(value, torch.Tensor) and value.is_cuda:
                    value.record_stream(stream)
        self._stream = stream
        return self.values


def _leaf(value):
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().requires_grad_(value.requires_grad)


def _several(values) -> tuple:
    return tuple(values) if isinstance(values, (tuple, list)) else (values,)


def _one(values: tuple):
    return values[0] if len(values) == 1 else values


def _checked(chunk: int, layers) -> list:
    found = []
    for i, layer in enumerate(layers):
        nodes = list(layer) if isinstance(layer, (tuple, list)) else [layer]
        if len(nodes) not in _KINDS or not all(map(callable, nodes)):
            raise Error(
                f"layer {i} of chunk {chunk} has {len(nodes)} nodes, or one "
                "that cannot be called: give five callables with experts "
                "(before the dispatch, dispatch, experts, combine, the rest), "
                "two (attention, MLP), or one")
        found.append(nodes)
    if not found:
        raise Error(f"chunk {chunk} has no layer")
    return found


def _maxima(group):
    def agree(numbers: list) -> list:
        backend = torch.distributed.get_backend(group)
        device = "cpu" if "gloo" in backend else "cuda"
        all_of = torch.tensor(numbers, dtype=torch.float64, device=device)
        torch.distributed.all_reduce(
            all_of, torch.distributed.ReduceOp.MAX, group=group)
        return all_of.tolist()

    return agree
