"""A stack of modules with graphs.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections
import contextlib
import copy
import ctypes
import functools
import logging
import os
import weakref

from torch import inference_mode
from torch.utils.weak import WeakIdKeyDictionary

from ... import _abi
from ...errors import Error
from ...services import host_services
from ..base import private
from ..base.comparisons import Comparisons
from ..base.gathered import Gathering
from ..base.memory import Captures
from ..base.notices import NOTE, Notices
from ..evaluate import evaluation
from ..grad.contributions import Way
from ..grad.gradients import Nothing
from ..grad.write_streams import Writes
from ..group import ranks
from ..guard.storage_addresses import Watch
from ..guard.shared_objects import Things
from ..offload import marks
from ..record.flights import Flights
from ..record.outputs import Outputs
from ..record.session_owner import Owner, is_on
from ..quantized import calls as quantized
from ..record.pools import Pools
from ..record.state import before_pass
from ..shapes import banks
from ..shapes.packed import Nothing as NothingPacked, Packed, rooms
from ..step.segment import Segment
from ..step.forward_wrapper import be_opaque
from ..step.verify import Verify, asked as asked_verify, without_bitwise
from . import checks, measured, pieces, sessions, stack, suspension, versions
from .body import Body
from .caches import Caches
from .forecast import Forecast
from .optimizers import Optimizers
from .room import Room
from .shared_parameters import Uses

log = logging.getLogger("graphhooks")


# Steps in which engines may still put hooks on nodes.
_EARLY = 10
# What is counted of calls that were graphs.
_BESIDES = frozenset(("strides", "gradients_moved", "zeros", "weights",
                      "elsewhere", "backward", "partial_backward"))
_STATES = frozenset(("slots", "static_bytes", "nodes"))  # that add up to none
_RENEWALS = 8  # attaches anew, for weights that are replaced
_FEW = 4  # microbatches of a first step, after which explain() speaks of it
_MANY = 64  # after which the log does


def _eager_of(counts) -> dict:
    return {n.removeprefix("eager "): v for n, v in counts.items()
            if n.startswith("eager ") and v}


class Attached(Owner):
    """A stack of modules with graphs; ``detach`` gives them back."""

    def __init__(self, model, layers=None, **options):
        if not isinstance(layers, (str, type(None))):
            with contextlib.suppress(TypeError):  # of which stack.py tells
                layers = [*layers]
        # The model may keep outputs, whose nodes lead here.
        self._given = weakref.ref(model), layers, options
        self._renewals = 0
        self._apart: dict = {}  # layers that no graph has with others, and why
        # Parameters that a loop moves, and how often segments lost theirs so.
        self._moved = WeakIdKeyDictionary()
        self._moves: collections.Counter = collections.Counter()
        self._split: dict = {}  # those whose pieces have graphs, in words
        self._past: dict = {}  # counts of the sessions before this one
        self._attach(model, layers, **options)

    @inference_mode(False)  # in which weights have no gradients
    def _attach(self, model, layers, *, parts=None, generators=(),
                gradients="graph", graphs=True, packed=None, group=None,
                eval=False, split_backward=False, suspends=False, **options):
        super().__init__(Notices(), [])
        checks.check_options(options, gradients, group)
        generators = checks.generators_of(generators)
        verify = Verify(self, asked_verify(options))
        self.measured = measured.of(self, measured.asked(options))
        words = marks.asked(options)
        self.has_words = bool(words)
        packed = None if packed is None else rooms(packed)
        self.options = options = banks.with_most(options)
        self.is_strict = is_on("strict", options)
        self.names_passes = is_on("nvtx", options)
        self._known = pieces.by_class(parts)
        self.layers = stack.split(stack.find(model, layers, parts),
                                  self._split, parts)
        for layer in self.layers:
            layer.is_apart |= layer.name in self._apart
        checks.check_layers(model, self.layers)
        self.splits = bool(split_backward)
        self.gathering = Gathering(model, self._moved)
        for layer in self.layers:
            layer.is_apart |= self.gathering.note(layer)
        checks.check_gathering(self.gathering, self.layers, {
            "offload": self.has_words, "split_backward": self.splits,
            "eval": eval})
        self.delays = self.splits or any(
            getattr(layer.module, "delayed", None) is not None
            for layer in self.layers)
        self.device = stack.device_of(self.layers, self.gathering)
        versions.check()
        checks.check_allocator()
        be_opaque()
        self.is_packed = bool(packed)
        self.ranks = ranks.of(self, group)
        if self.gathering.layers and self.ranks.size > 1:
            raise Error(checks.NO_GROUP)
        evaluates = evaluation.asked(eval, graphs, self.ranks)
        self._graphs = bool(graphs)
        self.uses = Uses(model, "autograd" if self.splits else gradients)
        self.segments: list = []
        self.verify = verify
        self.flights = Flights(self.segments)
        self.banks = self.ranks.banks(self)
        self.pools = Pools(self)
        self.outputs = Outputs(self)
        self.nothing = Nothing()
        self.writes = Writes(self.device)
        self.stepped = False  # an optimizer has, and no forward came since
        self.microbatch = 0  # of the step, the one at hand
        self.way = Way()  # to the calls of its forward
        self.foreseen = Forecast(self)
        self.room = Room(self)
        self.comparisons = Comparisons()  # of gradients
        # Of autograd, in which graphs went back; the last ones.
        self.passes: collections.deque = collections.deque(maxlen=32)
        self.accumulates = False  # steps have had several microbatches
        self.quantized = quantized.of(self)
        self.things = Things({
            **(self.quantized.told if self.quantized else {}),
            **{kind: names for layer in self.layers
               if isinstance(layer.module, Body)
               for kind, names in layer.module.told.items()}})
        self.steps = 0
        self._last: tuple | None = None  # what was to be said at the end
        self.recording: tuple | None = None  # the flight of a backward
        self.gone_back: set = set()  # functions of backwards with a graph
        self.watch = Watch()
        self.suspension = suspension.of(self, suspends, options.get("driver"))
        if suspends:
            self.options = options = {**options, "suspends": True}
        self.captures = Captures(self.device, generators,
                                 self.suspension.arena)
        self.packed = Packed(self, packed) if packed else NothingPacked()
        self.evaluation = evaluation.Nothing()
        self._open(model, options, words, evaluates, packed)
        self.optimizers = Optimizers(self)
        self._caches = Caches(model, self.layers)
        self.notices.flush()
        weakref.finalize(self, self.notices.flush)

    def _open(self, model, options, words, evaluates, packed) -> None:
        environment = {k: v for k, v in without_bitwise(os.environ).items()
                       if k != "GRAPHHOOKS_OFFLOAD"}  # which asked() has read
        if self.delays:
            options = {**options, "delay_wgrad": True}
        if words:
            names = marks.names_of(words)
            options = {**options, "offload": ",".join(names),
                       "offload_names": names}
        open_session = functools.partial(sessions.open_session, self.layers,
                                         self.device)
        self.take(open_session(
            environment, host_services(**self.captures.services(self._flight),
                                       lost=self.lost), options))
        self.session.foretold = self.foretold
        self.session.is_narrowed = self.room.has_spoken
        try:
            self.offload = marks.of(self, words)
            planned = self.session.segments()
            self.segments += [self._segment(s) for s in planned
                              if s.graphed and self._graphs]
            if self.quantized is not None:
                self._quantize()
            self.uses.look(model, self.segments)
            self.packed.attach([site for segment in self.segments
                                for site in segment.sites])
            self.notices.layers = [layer.name for layer in self.layers]
            self.notices.order = {segment.name: i for i, segment
                                  in enumerate(self.segments)}
            for segment in self.segments:
                segment.attach()
            self.measured.attach()
            self.offload.attach_rest(planned)
            self.offload.check()
            if evaluates:
                self.evaluation = evaluation.Evaluation(self, open_session)
                self.evaluation.attach()
            self.ranks.begin(gradients=self.uses.gradients,
                             graphs=self._graphs, packed=packed,
                             verify=self.verify.mode)
        except BaseException:
            for segment in self.segments:
                segment.detach()
            if hasattr(self, "offload"):
                self.offload.close()
            self.evaluation.close()
            self.session.close()
            self.ranks.close()
            raise

    def _segment(self, planned) -> Segment:
        modules = sessions.modules_of(self.layers, planned)
        name = next(iter(modules))
        if len(modules) > 1:
            name = f"{name} to {list(modules)[-1]}"
        return self.ranks.segment(self, planned.index, name, modules)

    def _quantize(self) -> None:
        """But those that see to it themselves."""
        for segment in self.segments:
            for site in segment.sites:
                if not (isinstance(site.module, Body) and site.module.told):
                    site.quantized = quantized.Calls(self.quantized, site)

    def _look(self) -> None:
        """Whether calls have found something that is there to stay."""
        lost = self.watch.lost()
        self._note_moved(lost)
        for segment in lost:
            segment.refuse("its parameters, buffers or submodules were "
                           "replaced, moved or frozen; detach and attach "
                           "again")
        lost += [s for s in self.segments if s.is_lost or s.broken
                 or self.may_split(s)]
        if lost and self._may_renew():
            self._renew()
            return
        watched = private.ddp_runs()
        for segment in self.segments:
            heard = segment.why_heard()
            if segment.refused is not None:
                if segment.is_heard and heard is None:
                    segment.readmit()
            elif heard is not None:
                segment.refuse_while_heard(heard)
            elif not segment.parameters.sorted:
                continue
            elif (watched and segment.parameters.own) or (
                    self.steps < _EARLY and segment.parameters.are_held()):
                segment.refuse("somebody has come to wait for its gradients, "
                               "an engine or DistributedDataParallel; detach "
                               "and attach again")

    def _note_moved(self, lost) -> None:
        """Segments whose parameters are the same, elsewhere in memory, for the
        second time: graphs are to read copies of these."""
        if self.has_words or self.splits or self._given[2].get("eval"):
            return  # which know no copies
        for segment in lost:
            if segment.places.have_moved():
                self._moves[segment.name] += 1
                if self._moves[segment.name] > 1:
                    self._moved.update(
                        (p, None) for site in segment.sites
                        for p in site.module.parameters())

    def _may_renew(self) -> bool:
        """Ranks would have to do it together, and an engine's own segments are
        the engine's to attach."""
        return self._renewals < _RENEWALS and self.ranks.size == 1 \
            and self._given[0]() is not None \
            and not any(isinstance(layer.module, Body)
                        for layer in self.layers)

    def may_split(self, segment) -> bool:
        """It is no graph, as it waits for the device, and some of it may
        be."""
        if None in (segment.splits, segment.refused) or self.has_words:
            return False
        modules = [site.module for site in segment.sites]
        return len({*map(type, modules)}) > 1 or any(
            pieces.of(module, self._known) for module in modules)

    def _note_waiting(self) -> None:
        """Those of a chunk get graphs of their own, and then pieces."""
        for segment in self.segments:
            if not self.may_split(segment):
                continue
            why, where = segment.splits
            if len(segment.sites) > 1:
                self._apart.update((site.name, f"{segment.name}: {why}")
                                   for site in segment.sites)
                said = f"{why}, so each of its layers has graphs of its own"
            else:
                site = segment.sites[0]
                said = self._split[site.name] = pieces.words(
                    pieces.of(site.module, self._known), why)
            self.notices.instead(segment.name, said + where)

    @inference_mode(False)  # an evaluation may be the next to call
    def _renew(self) -> None:
        """Attached anew, as the layers are now.  Passes of before find an
        owner whose steps are over."""
        model, layers, options = self._given[0](), *self._given[1:]
        past, segments = self._counts(), self.segments
        for s in [s for s in segments if s.broken]:
            self._apart.update((site.name, f"{s.name}: {s.broken}")
                               for site in s.sites)
            self.notices.instead(s.name, f"{s.broken}, so each of its layers "
                                 "has graphs of its own")
        self._note_waiting()
        self._renewals += not any(s.broken or self.may_split(s)
                                  for s in segments)
        unwatched = {p for s in segments for p in s.parameters.all
                     if p not in s.parameters.watched}
        self.detach()
        before = copy.copy(self)
        for segment in segments:
            segment.owner = before
        try:
            self._attach(model, layers, **options)
        except Error as why:
            vars(self).update(vars(before))
            self._end(f"could not be attached anew, so all layers run eagerly "
                      f"from now on: {why}")
            return
        for segment in self.segments:  # by no more than a loss that is kept
            segment.parameters.watched.difference_update(
                {p for p in unwatched if not private.has_hooks(p)})
        self._past, self._last = past, None

    def _end(self, why: str) -> None:
        """Detached for good, and not by who attached."""
        stats, said = self._last
        self._last = stats, f"{why}\n{said}"
        log.warning("%s", why)

    def _counts(self) -> dict:
        """What adds up."""
        found = {n: v for n, v in self.session.stats().items()
                 if isinstance(v, int) and n not in _STATES}
        found = {"ran": self.ran, **found, **{
            f"eager {reason}": n for reason, n in self.eager.items()}}
        return {n: found.get(n, 0) + self._past.get(n, 0)
                for n in {**found, **self._past}}

    # ---- recordings and gradients ---------------------------------------

    def _flight(self, recording) -> tuple:
        """What a recording shares memory with, besides its slot; what others
        have there is let go.  A forward's begins with the state of now."""
        if recording.direction == 0:
            for segment in self.segments:
                if segment.index == recording.segment:
                    segment.state = before_pass(segment)
        bank = self.banks.declared[recording.bank]
        self.pools.hold(bank, recording.slot)
        return self.recording or self.pools.flight(bank, recording.slot,
                                                   self.forward())

    def forward(self) -> tuple:
        """Which is at hand."""
        return self.steps, self.microbatch

    def make_way(self, serial: int, bank: int = 0) -> None:
        """Before a recording of the bank runs."""
        if not self.flights.may_run(serial, bank):
            self.move_gradients_out()

    def move_gradients_out(self) -> None:
        self.count("gradients_moved")
        for segment in self.segments:
            segment.parameters.move_out()

    # ---- the library ----------------------------------------------------

    def say(self, who: str, sentence: str) -> None:
        self.notices.add(NOTE, who, sentence)

    def pause(self) -> None:
        """Nothing is recorded or replayed until unpause()."""
        self.check(self.api.pre_warmup(self.handle,
                                       ctypes.byref(self.error)))

    def unpause(self) -> None:
        self.check(self.api.post_warmup(self.handle,
                                        ctypes.byref(self.error)))

    # ---- steps ----------------------------------------------------------

    def next_microbatch(self, number: int) -> None:
        self.microbatch = number % _abi.GH_MAX_MICROBATCHES
        self.things.is_due = True
        if self.steps == 0 and number == _MANY:
            log.warning("%d microbatches, and no optimizer of these layers "
                        "has stepped: nothing is recorded before; a loop "
                        "without one calls attached.step()", number)

    def step(self) -> None:
        """A training step is over; after an optimizer's step the next forward
        calls it."""
        if not self.session.handle:
            return
        self.suspension.refuse()
        self.stepped = False
        if self.microbatch > 0:
            self.accumulates = True
        self.steps += 1
        self.microbatch = 0
        self.way.forget()
        self.passes.clear()
        for segment in self.segments:
            segment.seen = -1
            for late in segment.weights, segment.split:
                if late is not None:
                    late.step()
            segment.copy_out()
        self.verify.step()
        self.foreseen.step()
        self.offload.step()
        self.captures.step()
        self.flights.end_step()
        session = self.session
        self._look()
        if self.session is not session:  # whose first step begins
            self.notices.flush()
            return
        if not self.session.handle:
            return
        self.room.choose()
        self.things.is_due = True
        self.notices.flush()
        self.session.explained = sum(s.refused is not None
                                     for s in self.segments)
        self.check(self.api.iteration_end(self.handle,
                                          ctypes.byref(self.error)))
        self.measured.step()

    def wait(self) -> None:
        """For all that was issued on the current stream; with ranks, for the
        others no longer than GRAPHHOOKS_TIMEOUT."""
        self.ranks.wait()

    def suspend(self) -> None:
        """Gives the device memory of graphs back until resume(), for others
        to use: between steps, or between microbatches where each has gone
        back.  The graphs stay, and so do their addresses.  Gradients and
        outputs that somebody has get memory of torch's.  Waits for the device;
        with ranks, all call it.  Of an attach with suspends=True."""
        self._refuse_detached("suspend()")
        if self.stepped and not self.suspension.is_now:
            self.step()
        self.suspension.suspend()

    def resume(self) -> None:
        """Takes memory for the graphs again, before the next step.  Where
        there is none they stay suspended: free some, and call it again."""
        self._refuse_detached("resume()")
        self.suspension.resume()

    def _refuse_detached(self, call: str) -> None:
        if not self.session.handle:
            raise Error(f"{call} comes after detach(), which has given the "
                        "memory back: attach again", _abi.GH_ERR_STATE)

    # ---- what a person asks ---------------------------------------------

    def stats(self) -> dict:
        """The library's counters, and how often a call ran eagerly and why;
        ``refused`` has the segments that do for good.  After detach(), those
        of then."""
        if self._last is not None:
            return self._last[0]
        self.notices.flush()
        stats = self.session.stats()
        counts = self._counts()
        stats.update((n, counts[n]) for n in stats if n in counts)
        stats["eager_calls"] = _eager_of(counts)
        stats["renewals"] = self._renewals
        stats["refused"] = {s.name: s.refused for s in self.segments
                            if s.refused}
        stats["banks"] = self.banks.stats()
        stats.update(self.offload.stats())
        stats.update(self.evaluation.stats())
        stats.update(self.verify.stats())
        stats.update(self.measured.stats())
        return stats

    def memory(self) -> dict:
        """Whose the device memory of graphs is, in bytes: the library's, as
        gh_memory_stats, and ``pools``, by chunk and slot, torch's, where
        graphs have activations and outputs; ``pool_bytes`` is their sum, and
        with suspends=True ``pool_given`` what the last suspend() gave back.
        ``forecast_bytes``, of the library's, is there before the first
        recording.  Takes milliseconds; {} after detach()."""
        if self._last is not None:
            return {}
        pools = self.captures.pool_bytes()
        return {**self.session.memory_stats(),
                "forecast_bytes": self.foretold(), "pools": pools,
                "pool_bytes": 0 if self.suspension.is_now
                else sum(pools.values()), **self.suspension.stats()}

    def forecast(self) -> dict:
        """What graphs will take of the device's memory, in bytes, from the
        eager passes before the first recording; {} before any of them, and
        after detach().  It stays what it was when graphs are there, also for
        a layer that has lost its own since, as under a memory limit; one that
        can have none is left out.  ``segments`` has it by name, in one slot:
        ``input_bytes`` are what is copied for a replay, ``kept_bytes`` what a
        forward keeps for its backward, ``gradient_bytes`` what graphs make
        anew.  In all ``slots``: ``input_bytes``, ``offset_bytes`` and
        ``ring_bytes`` of the library, ``pool_bytes`` of torch, and ``bytes``,
        their sum.  Pools take more by what passes need on the way."""
        if self._last is not None or not self.foreseen.is_known():
            return {}
        segments = self.foreseen.of_segments()
        found = {**self._foretold_by_kind(),
                 "pool_bytes": self.foreseen.pool_bytes()}
        return {"segments": segments, "slots": self.foreseen.slots(), **found,
                "bytes": sum(found.values())}

    def _foretold_by_kind(self) -> dict:
        rings = 0
        with contextlib.suppress(Error):  # nothing is offloaded
            rings = self.session.offload_stats()["ring_bytes"]
        return {"input_bytes": self.foreseen.input_bytes(),
                "offset_bytes": self.session.memory_stats()["offset_bytes"],
                "ring_bytes": rings}

    def foretold(self) -> int:
        """Of the library's memory."""
        return sum(self._foretold_by_kind().values())

    def explain(self) -> str:
        """The plan as text, and what has become of it; as stats()."""
        if self._last is not None:
            return self._last[1]
        self.notices.flush()
        lines = self._answer()
        lines += [self.session.explain().rstrip("\n") if self._graphs else
                  "layers run eagerly, without graphs (graphs=False)"]
        lines += [f"{s.name} runs eagerly: {s.refused}"
                  for s in self.segments if s.refused]
        lines += [f"{s.name}: autograd adds up {by_autograd} of its "
                  f"{len(s.parameters.all)} gradients"
                  for s in self.segments for by_autograd in [
                      len({*s.parameters.returned} - {*s.parameters.put})]
                  if by_autograd]
        lines += self._caches.lines()
        lines += self.outputs.lines()
        lines += self.banks.lines()
        lines += self.offload.lines()
        lines += self.packed.lines()
        lines += self.evaluation.lines()
        lines += self.verify.lines()
        lines += self.measured.lines()
        lines += sorted(self.notices.lines({
            (s.name, s.refused) for s in self.segments}))
        return "\n".join(lines) + "\n"

    def _answer(self) -> list:
        """What it came to, for who reads no further."""
        counts = self._counts()
        ran, eager = counts["ran"], {r: n for r, n in _eager_of(
            counts).items() if r not in _BESIDES}
        calls = ran + sum(eager.values())
        if not calls or not self._graphs:
            return []
        why = ", ".join(f"{reason} {n}" for reason, n in sorted(
            eager.items(), key=lambda each: -each[1]))
        lines = [f"graphs ran {ran} of {calls} calls"
                 + f"; eagerly: {why}" * bool(why)]
        lines += [f"{why}, so each of its layers has graphs of its own"
                  for why in dict.fromkeys(self._apart.values())]
        for said in dict.fromkeys(self._split.values()):
            names = [n for n, each in self._split.items() if each == said]
            lines += [names[0] + f" and {len(names) - 1} more" * (
                len(names) > 1) + f": {said}"]
        lines += self.gathering.lines()
        if self._renewals:
            lines += ["attached anew, as parameters, buffers or submodules "
                      "were replaced, moved or frozen: "
                      f"{self._renewals} times of {_RENEWALS} at most"]
        if self.steps == 0 and self.microbatch >= _FEW:
            lines += [f"no step has ended in {self.microbatch + 1} "
                      "microbatches, and nothing is recorded before that: a "
                      "loop without an optimizer of torch calls "
                      "attached.step() after each step"]
        return lines

    def detach(self) -> None:
        """Gives the modules back; twice is allowed."""
        if self.session.handle:
            self.optimizers.close()
            self._caches.close()
            self.measured.detach()
            for segment in self.segments:
                segment.detach()
            self._last = self.stats(), self.explain()
            self.steps = -1  # of no forward
            self.flights.end_step()
            self.ranks.rest()
            self.verify.step()
            self.offload.close()
            self.evaluation.close()
            self.session.close()
            self.ranks.close()
            self.captures.close()
            self.way.forget()

    def __enter__(self) -> "Attached":
        return self

    def __exit__(self, *_) -> None:
        self.detach()
