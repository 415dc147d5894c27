"""Whether graphs pay: with scope="auto" the first steps measure eager passes
of each scope and then replays, and a scope that loses has no graphs after
that.

A scope is what one graph covers: layers of one kind have the same.  What a
pass takes is, by events, what it adds to the time of the device, gaps in which
the device waits for the host included:

    forward   from the call to its return
    backward  from the first gradient of an output to that of the first input

Nothing is waited for: at the end of a step those passes count that the device
has done by then.  Ranks that run layers together go by the slowest of them.

A segment that is measured has another lead() and follow() of its own; who is
not pays nothing.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import statistics
import time

import torch
from torch import is_grad_enabled
from torch.cuda import is_current_stream_capturing as is_capturing

from ...errors import Error
from ..base import tree
from ..base.private import at_end_of_pass
from ..base.questions import MEASURE
from ..step.eligibility import trains
from .body import Body

AUTO = "auto"
_EAGER = 3  # steps, after the first one, in which much happens once
_PASSES = 3  # replays of each segment
_PATIENCE = 32  # steps after those, until it is said that there are too few
# How much more a replay may take: what is no more than that is noise, and a
# graph leaves the host free.
_ALIKE = 1.01
_COLUMNS = ("scope", "segments", "eager", "replay", "eager, host",
            "replay, host", "graphs")


def asked(options: dict) -> int:
    """Takes the word from the options; after how many eager steps graphs
    come, or 0, if nothing is measured."""
    if options.get("scope") != AUTO:
        return 0
    del options["scope"]  # all that there is
    given = os.environ.get("GRAPHHOOKS_WARMUP_STEPS") \
        or options.get("warmup_steps")
    if given is None:
        options["warmup_steps"] = given = 1 + _EAGER
    if str(given).strip() in ("0", "1"):
        raise Error(f"warmup_steps is {given}, and scope \"auto\" measures "
                    "eager steps after the first one: give 2 or more, or "
                    f"leave it out for {1 + _EAGER}")
    return int(given)


class Stamp:
    """A moment, of the device and of the host."""

    __slots__ = ("event", "host")

    def __init__(self):
        self.event = torch.cuda.Event(enable_timing=True)
        self.event.record()
        self.host = time.perf_counter_ns()


class _Pass:
    """One microbatch of a segment."""

    __slots__ = ("of", "spans", "back", "is_whole", "ends_late")

    def __init__(self, of: list):
        self.of = of  # where its times go
        self.spans: list = []  # of the calls that are its forward
        self.back: Stamp | None = None  # its backward has begun
        self.is_whole = False  # and has ended
        self.ends_late = False  # it ends with autograd's pass

    def begin(self) -> None:
        """A gradient has come to an output."""
        if self.back is None and not is_capturing():
            self.back = Stamp()
            if self.ends_late:
                at_end_of_pass(self.end)

    def end(self) -> None:
        """One goes to what was before."""
        if self.back is not None and not self.is_whole \
                and not is_capturing():
            self.spans.append((self.back, Stamp()))
            self.is_whole = True

    def is_done(self) -> bool:
        return all(end.event.query() for _, end in self.spans)

    def times(self) -> tuple:
        """In nanoseconds: of the device, and of the host."""
        return (sum(int(1e6 * a.event.elapsed_time(b.event))
                    for a, b in self.spans),
                sum(b.host - a.host for a, b in self.spans))


class Nothing:
    """Nobody has asked."""

    def attach(self) -> None:
        """As Measured."""

    def step(self) -> None:
        """The same."""

    def detach(self) -> None:
        """The same."""

    def stats(self) -> dict:
        return {}

    def lines(self) -> list:
        return []


def of(owner, warmup: int):
    return Measured(owner, warmup) if warmup else Nothing()


class Measured:
    """That of an attach."""

    def __init__(self, owner, warmup: int):
        self.owner = owner
        self._warmup = warmup
        self.scopes: list = []
        self._open: list = []  # passes that may be under way

    def attach(self) -> None:
        """The segments are there."""
        by_name: dict = {}
        for segment in self.owner.segments:
            by_name.setdefault(scope_of(segment), []).append(segment)
        self.scopes = [Scope(name, [Meter(self, s) for s in segments])
                       for name, segments in by_name.items()]

    def detach(self) -> None:
        for scope in self.scopes:
            scope.stop()
        self._open.clear()

    def times_of(self, segment, meter) -> list | None:
        """Where those of the pass at hand go, if it is one to measure."""
        owner = self.owner
        if not is_grad_enabled() or not trains(segment):
            return None
        bank = owner.banks.at_work
        if owner.steps < self._warmup:
            return meter.eager.setdefault(bank, []) if owner.steps > 0 \
                and segment.refused is None else None
        if not segment.replayed or bank is None:
            return None
        instance = segment.instances.get((bank.number,
                                          segment.decision.slot))
        if instance is None or instance.live is not None \
                or instance.apart is not None:
            return None  # it is recorded, or runs eagerly too
        return meter.replays.setdefault(bank, [])

    def note(self, pass_) -> None:
        self._open.append(pass_)

    def step(self) -> None:
        """A step has ended, and another one begins."""
        waiting = [scope for scope in self.scopes if scope.kept is None]
        if not waiting:
            return
        passes, self._open = self._open, []
        for each in passes:
            if each.is_whole:
                if each.is_done():
                    each.of.append(each.times())
                else:
                    self._open.append(each)
        if self.owner.steps > self._warmup:
            for scope in waiting:
                self._decide(scope)

    def _decide(self, scope) -> None:
        """All ranks that run it together ask each other, and all hear the
        same."""
        owner, meters = self.owner, scope.meters
        is_last = owner.steps >= self._warmup + _PATIENCE
        running = [m for m in meters if m.segment.refused is None
                   and m.was_called()]
        is_ready = all(m.is_ready() for m in running)
        scope.measure([m for m in running if m.is_ready()])
        said = owner.ranks.agree(meters[0].segment, MEASURE,
                                 int(is_ready or is_last), *scope.row[:2])
        if not all(ready for ready, *_ in said):
            return
        eager, replay = (max(times) for times in list(zip(*said))[1:])
        scope.kept = replay <= _ALIKE * eager
        scope.is_measured = bool(running) and eager > 0 and replay > 0
        scope.stop()
        if scope.kept:
            return
        for meter in running:
            meter.segment.drop(
                f"a pass of {scope.name} takes {replay / 1e6:.3f} ms as "
                f"graphs and {eager / 1e6:.3f} eagerly, so graphs do not pay")

    def stats(self) -> dict:
        return {"measured": [scope.stats() for scope in self.scopes
                             if scope.is_measured]}

    def lines(self) -> list:
        """For explain()."""
        rows = [[*map(str, _COLUMNS)]]
        rows += [scope.words() for scope in self.scopes]
        widths = [max(map(len, column)) for column in zip(*rows)]
        return ["scope=\"auto\": a pass of a segment, forward and backward, "
                "in ms", *("  " + "  ".join(
                    text.ljust(w) if i in (0, len(row) - 1) else text.rjust(w)
                    for i, (text, w) in enumerate(zip(row, widths))).rstrip()
                    for row in rows)]


class Scope:
    """Segments of the same kind of work."""

    def __init__(self, name: str, meters: list):
        self.name = name
        self.meters = meters
        self.row = [0] * 4  # ns: eager and replay, and the same of the host
        self.is_measured = False
        self.kept: bool | None = None  # None: not decided

    def measure(self, ready) -> None:
        each = [meter.row() for meter in ready]
        if each:
            self.row = [round(statistics.mean(column))
                        for column in zip(*each)]

    def stop(self) -> None:
        """No pass of it is measured any more."""
        for meter in self.meters:
            meter.stop()

    def stats(self) -> dict:
        """As `graphhooks plan` takes it."""
        names = ("eager_us", "replay_us", "eager_host_us", "replay_host_us")
        return {"scope": self.name, "segments": len(self.meters),
                **{n: ns / 1e3 for n, ns in zip(names, self.row)},
                "kept": self.kept}

    def words(self) -> list:
        times = [f"{ns / 1e6:.3f}" if self.is_measured else "-"
                 for ns in self.row]
        state = "not decided yet" if self.kept is None else (
            "dropped" if not self.kept else "kept" if self.is_measured
            else "not measured: too few passes replayed")
        return [self.name, str(len(self.meters)), *times, state]


class Meter:
    """It stands in the place of a segment's methods."""

    def __init__(self, measured, segment):
        self.segment = segment
        self.eager: dict = {}  # times by bank
        self.replays: dict = {}
        self._measured = measured
        self._pass: _Pass | None = None  # the one at hand
        self._before: list = []  # nodes of what is given to it
        segment.lead, segment.follow = self._lead, self._follow

    def stop(self) -> None:
        names = vars(self.segment)
        names.pop("lead", None)
        names.pop("follow", None)

    # ---- calls ----------------------------------------------------------

    def _lead(self, site, args, kwargs):
        segment = self.segment
        self._pass = None
        if is_capturing():
            return type(segment).lead(segment, site, args, kwargs)
        start = Stamp()
        result = type(segment).lead(segment, site, args, kwargs)
        times = self._measured.times_of(segment, self)
        # Of a recording that goes on, nothing is to be in the graph.
        if times is None or is_capturing():
            return result
        self._pass = _Pass(times)
        self._listen_before(args, kwargs)
        self._note(start, site, result)
        return result

    def _follow(self, site, args, kwargs):
        segment = self.segment
        if self._pass is None or is_capturing():
            return type(segment).follow(segment, site, args, kwargs)
        start = Stamp()
        result = type(segment).follow(segment, site, args, kwargs)
        if not is_capturing():
            self._note(start, site, result)
        return result

    def _note(self, start, site, result) -> None:
        pass_ = self._pass
        pass_.spans.append((start, Stamp()))
        if site is not self.segment.sites[-1]:
            return
        for output in _tensors(result):
            if output.grad_fn is not None \
                    and output.grad_fn not in self._before:
                output.grad_fn.register_prehook(lambda _: pass_.begin())
        self._before = []
        self._measured.note(pass_)

    def _listen_before(self, args, kwargs) -> None:
        """Where gradients leave the segment: at the first input that has
        one."""
        pass_ = self._pass
        inputs = [t for t in _tensors((args, kwargs)) if t.requires_grad]
        self._before = [t.grad_fn for t in inputs if t.grad_fn is not None]
        if not inputs:
            pass_.ends_late = True
        elif inputs[0].grad_fn is None:
            inputs[0].register_hook(lambda _: pass_.end())
        else:
            inputs[0].grad_fn.register_prehook(lambda _: pass_.end())

    # ---- numbers --------------------------------------------------------

    def _both(self) -> list:
        """Of the banks that have been seen eagerly and replayed."""
        return [(self.eager[bank], times)
                for bank, times in self.replays.items()
                if times and self.eager.get(bank)]

    def was_called(self) -> bool:
        return bool(self.eager or self.replays)

    def is_ready(self) -> bool:
        return sum(len(times) for _, times in self._both()) >= _PASSES

    def row(self) -> tuple:
        """Medians, over what banks there are: of one bank as another."""
        each = [[statistics.median(t[i] for t in times)
                 for i in (0, 1) for times in both] for both in self._both()]
        return tuple(map(statistics.mean, zip(*each)))


def _tensors(value) -> list:
    found: list = []
    try:
        tree.gather(value, found, [])
    except tree.Unfit:
        pass
    return found


def scope_of(segment) -> str:
    """What is alike in segments that do the same."""
    module = segment.sites[0].module
    if not isinstance(module, Body):
        return type(module).__name__
    return module.scope or getattr(module.run, "__qualname__", module.name)
