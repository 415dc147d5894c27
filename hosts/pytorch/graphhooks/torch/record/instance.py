"""What is known of a segment's graphs, slot by slot.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import torch


NEVER = 1 << 62  # in replays


class Instance:
    """A segment in one slot: what its graphs read and write."""

    __slots__ = ("slot", "flight", "serial", "call", "modes", "inputs",
                 "before", "leaves", "live", "spoiled", "spent",
                 "outputs", "shape", "constant", "uses", "unused", "again",
                 "wanted", "layouts", "alone", "backward", "node",
                 "attributes", "groups", "came", "signature", "pool", "given",
                 "left", "looks", "apart", "kept", "work", "weights",
                 "later", "storages", "holds", "fixed", "written", "buffers",
                 "inner",
                 "__weakref__")

    def __init__(self, signature=None):
        self.signature = signature  # of its calls, in its bank
        self.pool = None  # of its forward's memory
        self.slot = 0
        self.flight = ()  # that recorded it: its bank, and the pool
        self.serial = 0  # the how manieth recording its forward was
        self.call = None  # the form of its arguments
        self.modes = None  # how it was called besides (again.py)
        self.inputs = ()  # tensors at the graph's own addresses
        self.leaves = ()  # others at the addresses of the parameters
        self.live = None  # the outputs with autograd's graph, until recorded
        self.spoiled = False  # what its backward reads, for this time
        self.spent = False  # autograd has begun with its graph
        self.before = None  # the state before the forward (state.py)
        self.given = ()  # versions of what the caller has of the outputs
        self.outputs = ()  # the same without
        self.shape = []  # the form of each module's result
        self.constant = ()  # the outputs that need no gradient
        self.inner = ()  # those that others are made from
        self.uses = ()  # edges to inputs that are used elsewhere too
        self.unused = ()  # inputs, or weights behind, to which nothing comes
        self.again = ()  # those inputs, one time less than they are used
        self.wanted = ()  # the outputs whose gradients the backward reads
        self.layouts = ()  # how these lie in memory (strides.py)
        self.alone = ()  # those of them that a parameter depends on alone
        self.backward: Backward | None = None
        self.came = None  # to the origin of the last forward (instead.py)
        self.node = None  # autograd's, for a forward without its backward
        self.attributes = ()  # tensors that the graph may read
        self.groups = []  # that are offloaded, until the backward is recorded
        self.left = NEVER  # replays until one is verified
        self.looks = 0  # how many were
        self.apart = None  # the pass beside the replay at hand
        self.work = None  # that its backward puts off (weights.py)
        self.weights: Backward | None = None  # the graph of that
        self.later = None  # gradients that it reads in place (chained.py)
        self.storages = ()  # of its outputs (outputs.py)
        self.holds: dict = {}  # and how many more of them live is
        self.fixed: set = set()  # that work has, and that stay where they are
        self.buffers = ()  # and what its pass has found in them
        self.written = ()  # beside its modules (beside.py)
        self.kept = 0  # bytes that a forward keeps for its backward

    def watched(self) -> list:
        """Tensors of which only the version is wanted, of its last pass."""
        read = self.before.versions if self.before is not None else ()
        return [t for t, _ in (*self.given, *read)
                if t.layout is torch.strided]

    def end_recording(self) -> None:
        """Nothing more is recorded from autograd's graph."""
        self.inputs = self.leaves = self.uses = ()
        self.live = None

    def let_go(self, settings) -> None:
        """Of all that only a recording of its backward needs."""
        self.end_recording()
        self.before = None
        self.given = self.groups = ()
        self.modes.forget(settings)

    @property
    def origin(self):
        """Of the last forward, while autograd has its node: what it was given
        has the nodes of all before, which else would stay, and their slots."""
        return None if self.came is None else self.came()


class Backward:
    """The graph of an instance's backward."""

    __slots__ = ("flight", "chained", "results", "own", "gradients", "taken",
                 "zeros", "is_due", "home", "serial", "marks", "told", "pool")

    def __init__(self, home, flight: tuple):
        self.flight = flight  # whose memory it uses
        self.chained = ()  # gradients read where the next segment wrote them
        self.results = ()  # what autograd is given, one for each input
        self.own = ()  # parameters whose gradients the graph puts in place
        self.gradients = ()  # where
        self.taken = ()  # those of them that a first gradient is written to
        self.zeros = None  # what makes all others negative zeros
        self.is_due = False  # some are to become `.grad` when it has run
        self.home = home  # which has those
        self.serial = 0  # the how manieth it was recorded
        self.marks = ()  # flags that it sets: attributes and name
        self.told = ()  # parameters of which engines are told
        self.pool = None  # which keeps that memory
