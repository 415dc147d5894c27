"""What graphs will take of the device's memory, from the eager passes before
the first recording: attached.forecast().

The library is shown addresses of eager tensors, which torch uses again, and no
backward.  So inputs are told here.  An input is none of a segment's own where
it is what a segment before has returned; so is the gradient of an output that
goes into one segment and nowhere else, as the next graph leaves it in place.
With ranks that share graphs, both are.  An output to which no gradient comes
from outside has none.

The banks of a slot share blocks of inputs as the library shares them: a pass
takes the smallest block that is large enough and that its bank has not, or a
new one.  So it matters which shape comes first: what is larger than all that
is there is new.

Of pools, what a pass keeps for its backward is seen, and what backwards leave
is known.  What passes take on the way is not.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import bisect
import contextlib
import gc
import operator
import os
import weakref

from ..base import memory, tree
from ..grad import contributions

_ALIGNMENT = 256  # of an input, as the library's
_MOST = "GRAPHHOOKS_MAX_SLOTS"


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


class Pass:
    """The last eager one of a segment, in a bank."""

    def __init__(self, segment, signature, inputs, outputs, kept: int):
        self.segment = segment
        self.signature = signature
        self.inputs = [(_bytes_of(t), None) for t in inputs]
        self.result_bytes = sum(_bytes_of(t) for t in inputs
                                if t.requires_grad)
        self.outputs = [(_bytes_of(t), weakref.ref(t)) for t in outputs]
        self.readers = [[] for _ in outputs]  # (pass, which of its inputs)
        # To which gradients come: before it is seen, to all that may have one.
        self.wanted = {i for i, t in enumerate(outputs)
                       if t.grad_fn is not None}
        self.has_gone_back = False
        self.kept = kept

    def go_back(self) -> None:
        if not self.has_gone_back:
            self.has_gone_back = True
            self.wanted.clear()

    def find(self, tensor) -> int | None:
        """Which of the outputs it is."""
        for i, (nbytes, there) in enumerate(self.outputs):
            output = there()
            if output is not None and (
                    output is tensor or nbytes == _bytes_of(tensor) > 0
                    and output.data_ptr() == tensor.data_ptr()):
                return i
        return None

    @property
    def counts(self) -> bool:
        """It may have graphs, or has had one, or would have one: what a layer
        takes that found no memory is what its owner has to know."""
        segment = self.segment
        return segment.refused is None or self.signature.serial > 0 \
            or segment in segment.owner.room.left_out

    def forward_bytes(self, has_graph) -> int:
        return sum(_aligned(n) for n, maker in self.inputs
                   if maker is None or not has_graph(maker))

    def backward_bytes(self, has_graph) -> int:
        return sum(_aligned(self.outputs[i][0]) for i in self.wanted
                   if not _is_chained(self.readers[i], has_graph))


def _counts(found: Pass) -> bool:
    return found.counts


def _is_chained(readers, has_graph) -> bool:
    return len(readers) == 1 and all(
        has_graph(reader) and which not in reader.signature.elsewhere
        for reader, which in readers)


def _bytes_of(tensor) -> int:
    return memory.span_of(tensor) * tensor.element_size()


class Collected:
    """What Python's collector frees of a device while a pass runs: it was
    there before, as a model that was trained before this one."""

    def __init__(self):
        self.nbytes = 0
        self._device = self._before = 0

    def listen(self, device: int) -> None:
        self.nbytes, self._device = 0, device
        if self._call not in gc.callbacks:
            gc.callbacks.append(self._call)

    def stop(self) -> None:
        if self._call in gc.callbacks:
            gc.callbacks.remove(self._call)

    def _call(self, phase: str, _) -> None:
        now = memory.allocated(self._device)
        if phase == "start":
            self._before = now
        else:
            self.nbytes += self._before - now


_collected = Collected()


class Forecast:
    """Of an attach."""

    def __init__(self, owner):
        self._owner = owner
        self._passes: dict = {}  # by bank, and segment
        self._flight: tuple = ()  # the forward at hand
        self._of_flight: list = []  # its passes so far
        # Forwards whose backward is to come: their slot, and segments.
        self._waiting: dict = {}
        self._came: list = []  # banks by slot, as they came there first
        self._begin = 0  # bytes that were allocated before the pass

    def begin(self) -> None:
        """An eager pass does."""
        _collected.listen(self._owner.device)
        self._begin = memory.allocated(self._owner.device)

    def note(self, segment, signature, inputs, results):
        """Such a pass has run, with these results of its modules; what is to
        be called when its backward does."""
        _collected.stop()
        outputs: list = []
        with contextlib.suppress(tree.Unfit):
            tree.gather(results, outputs, [])
        given = {*map(id, inputs)}  # which may come out as they are
        outputs = [t for t in {id(t): t for t in outputs}.values()
                   if id(t) not in given]
        flight = self._owner.forward()
        if flight != self._flight:
            self._flight, self._of_flight = flight, []
        found = Pass(segment, signature, inputs, outputs,
                     memory.allocated(self._owner.device) - self._begin
                     + _collected.nbytes)
        # Ranks that share graphs have each input in a place of its own.
        before = self._of_flight if self._owner.ranks.size == 1 else ()
        for k, tensor in enumerate(inputs):
            for other in before:
                i = other.find(tensor)
                if i is not None:
                    found.inputs[k] = found.inputs[k][0], other
                    other.readers[i].append((found, k))
        known = self._passes.setdefault(signature.bank, {})
        if segment in known:  # what only a first pass allocates
            found.kept = min(found.kept, known[segment].kept)
        known[segment] = found
        self._of_flight.append(found)
        if flight not in self._waiting:
            self._waiting[flight] = self._take_slot(signature.bank), set()
        self._waiting[flight][1].add(segment)

        def went_back() -> None:
            found.go_back()
            self._went_back(flight, segment)

        def is_wanted(i: int) -> None:
            went_back()
            found.wanted.add(i)

        contributions.watch_outputs(outputs, is_wanted,
                                    self._owner.comparisons)
        return went_back

    def _take_slot(self, bank) -> int:
        """The lowest that is free."""
        taken = {slot for slot, _ in self._waiting.values()}
        slot = min({*range(len(taken) + 1)} - taken)
        if slot == len(self._came):
            self._came.append([])
        if bank not in self._came[slot]:
            self._came[slot].append(bank)
        return slot

    def _went_back(self, flight: tuple, segment) -> None:
        if flight in self._waiting:
            _, waiting = self._waiting[flight]
            waiting.discard(segment)
            if not waiting:
                del self._waiting[flight]

    def step(self) -> None:
        """Nothing comes back any more."""
        _collected.stop()  # to a pass that has failed
        self._waiting.clear()
        self._of_flight = []

    # ---- what it comes to -----------------------------------------------

    def is_known(self) -> bool:
        """A pass has been noted, and not of a layer that is about to be
        attached anew, in pieces."""
        return any(p.counts or not (s.broken or self._owner.may_split(s))
                   for passes in self._passes.values()
                   for s, p in passes.items())

    def slots(self) -> int:
        most = os.environ.get(_MOST) or self._owner.options.get("max_slots")
        return min(len(self._came), int(most or 8))

    def input_bytes(self, slots=None, has_graph=_counts) -> int:
        """In all slots, or the first ones, of which each comes to be used by
        all banks; with graphs of all, or of some."""
        self._owner.comparisons.settle()  # that say what is used elsewhere
        requests = {bank: self._requests(passes.values(), has_graph)
                    for bank, passes in self._banks().items()}
        return sum(_bytes_of_blocks([
            requests[bank] for bank in dict.fromkeys((*came, *requests))],
            self._owner.banks.most)
            for came in self._came[:self.slots() if slots is None else slots])

    def _requests(self, passes, has_graph) -> list:
        """What a flight asks blocks for, in order."""
        passes = [*filter(has_graph, passes)]
        return [n for n in (
            *(p.forward_bytes(has_graph) for p in passes),
            *(p.backward_bytes(has_graph) for p in reversed(passes))) if n]

    def pool_bytes(self) -> int:
        """The most that is in use at once, in each slot, when backwards have
        come so far from the last segment: what forwards keep, less what is
        free again, and what backwards leave.  Outputs stay."""
        return self.slots() * max(map(self._peak, self._banks().values()),
                                  default=0)

    def _peak(self, passes) -> int:
        now = most = sum(p.kept for p in passes.values())
        for segment in reversed([s for s in self.segments() if s in passes]):
            found = passes[segment]
            now += found.result_bytes + self.gradient_bytes(segment)
            most = max(most, now)
            now -= max(found.kept - sum(n for n, _ in found.outputs), 0)
        return most

    def gradient_bytes(self, segment) -> int:
        """Of one that graphs add to where it is there are none."""
        if self._owner.accumulates or self._owner.microbatch > 0:
            return 0
        return sum(p.nbytes for p in segment.parameters.own
                   or segment.parameters.all)

    def of_segments(self) -> dict:
        """By name, of the bank that takes the most, in one slot."""
        found = {}
        for segment in self.segments():
            passes = [passes[segment] for passes in self._banks().values()
                      if segment in passes]
            found[segment.name] = {
                "input_bytes": max(
                    p.forward_bytes(_counts) + p.backward_bytes(_counts)
                    for p in passes),
                "kept_bytes": max(p.kept for p in passes),
                "gradient_bytes": self.gradient_bytes(segment)}
        return found

    def _banks(self) -> dict:
        """Passes by segment, in each."""
        return {bank: {s: p for s, p in passes.items() if p.counts}
                for bank, passes in self._passes.items()}

    def segments(self, has=_counts) -> list:
        """Those with such a pass."""
        noted = {s for passes in self._passes.values()
                 for s, p in passes.items() if has(p)}
        return [s for s in self._owner.segments if s in noted]


def _bytes_of_blocks(banks, most: int) -> int:
    """The most that there are at once, as gh_shelf_take() gives them to the
    banks of a slot, in their order.  Of more than may have graphs the first
    gives way, and blocks that nobody else has go with it."""
    blocks: list = []  # of bytes, and who has each
    peak = 0
    for bank, requests in enumerate(banks):
        for _, holders in blocks:
            holders.discard(bank - most)
        blocks = sorted([b for b in blocks if b[1]], key=_nbytes)
        free, sizes = [*blocks], [*map(_nbytes, blocks)]
        for nbytes in requests:
            which = bisect.bisect_left(sizes, nbytes)
            if which < len(free):
                del sizes[which]
                free.pop(which)[1].add(bank)
            else:
                blocks.append((nbytes, {bank}))
        peak = max(peak, sum(map(_nbytes, blocks)))
    return peak


_nbytes = operator.itemgetter(0)
