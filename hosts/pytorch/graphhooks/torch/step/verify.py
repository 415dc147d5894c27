"""Whether replays give what the modules give: some of them are run eagerly
too, on the same inputs, and all that comes out is compared to the bit.

A graph repeats what it was recorded with.  The guard looks at what modules
read from elsewhere and may miss some of it; here the numbers themselves are
looked at, so nothing that changes them stays unseen, though not in the first
pass.  A segment that differs is eager from then on, and so is the pass that
has shown it.

    forward   what the pass begins with is kept, the graph runs, and then the
              modules do, apart (record/apart.py).  If the same comes out, what
              the graph has left counts; else what the modules have given is
              put in its place
    backward  the gradients are found apart first, as the graph writes where
              they are added up; then the graph runs
    chunk     each module runs in its own call, as what it reads may be set
              between two of them

Ranks that run layers together look at the same replays, as their modules hold
collectives: each answer is the worst of any rank.  What decides it without a
question is the same on all of them.

Who is not looked at pays for a counter that is compared.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import os
import time

import torch

from ...errors import Error
from ..base import memory, tree
from ..base.comparisons import are_of_rounding, first_difference
from ..base.notices import NOTE
from ..base.private import at_end_of_pass
from ..base.questions import VERIFY
from ..guard.draws import all_numbers
from ..record import backwards
from ..record.apart import Apart, Before
from ..record.instance import NEVER

MODES = ("off", "auto", "always")
# Replays from one look at an instance to the next.
_DISTANCES = (1, 8, 64, 512, 1000)
# Of the time since the attach that looks may take.  The first at a segment
# comes whatever the others have cost, but no two of them in one step.
_SHARE = 0.01
_LATER = 64  # replays until it is asked again whether there is time, or room
_SOON = 4  # the same, where another rank has looked elsewhere in this step
# Instead of what a pass begins with: for a look, or for that itself.
_NO_TIME, _NO_MEMORY = "no time", "no memory"
# What a pass beside a replay has shown, from the best to the worst.
_SAME, _DIFFERS, _NO_FIT, _FAILED = range(4)
_ELSEWHERE = "something on another rank"
# Kernels that add up in any order, as attention's backward is by default, give
# now and then what they gave neither before nor after.  So eager has to give
# the same this often before a graph is accused, and a graph whose numbers are
# off by a rounding has so many replays in which it may not be off again.
_REPEATS = 8
_DOUBTED = 8
# What a difference shows, from the best to the worst for the graph's honour.
_DOUBTFUL, _WRONG, _UNTOLD = range(3)


def asked(options: dict) -> str:
    """Takes the options that ask for it, as the variables do."""
    mode = _word("verify", options.pop("verify", None), MODES)
    if _is_bitwise(options):
        options.pop("check", None)
        if mode in (None, "always"):
            return "always"
        raise Error(f"check is bitwise, which is verify=always with torch, "
                    f"and verify is {mode}: leave one of them out")
    return mode or "auto"


def _is_bitwise(options) -> bool:
    return (os.environ.get("GRAPHHOOKS_CHECK")
            or options.get("check")) == "bitwise"


def _word(name: str, given, words):
    variable = f"GRAPHHOOKS_{name.upper()}"
    told = os.environ.get(variable)
    value, label = (told, variable) if told else (given, name)
    if value is None:
        return None
    if value is False:
        value = "off"
    if value not in words:
        raise Error(f"{label} is {value!r}; it is {', '.join(words[:-1])} or "
                    f"{words[-1]}")
    return value


def without_bitwise(environment: dict) -> dict:
    """For the library, which would run passes twice by itself."""
    return {k: v for k, v in environment.items()
            if k != "GRAPHHOOKS_VERIFY"
            and (k, v) != ("GRAPHHOOKS_CHECK", "bitwise")}


def _are_same(one: list, other: list) -> bool:
    return len(one) == len(other) \
        and first_difference([*zip(one, other)]) is None


class Verify:
    """That of an attach."""

    def __init__(self, owner, mode: str):
        self.owner = owner
        self.mode = mode
        self.counts = {"forwards": 0, "backwards": 0, "no_memory": 0,
                       "cannot_tell": 0}
        self.differences: dict = {}  # what was another, by segment
        self.failures: dict = {}  # why one is not looked at any more
        self._held: list = []  # instances with a pass beside them
        self._looked: set = set()  # segments at which it has looked
        self._doubts: dict = {}  # segments that were off: looks to come
        self._at = -1  # the step of the last look
        self._looks = 0  # whose time is counted
        self._alarmed_at = -2  # the step of the last difference
        self._is_untold = False  # one, as calls that are eager say nothing
        self._since = time.perf_counter()
        self._spent = 0.0  # seconds
        self._events: list = []  # of what is not counted yet

    # ---- which replays --------------------------------------------------

    def note_recorded(self, segment, instance) -> None:
        """The pass that records counts as one."""
        if self.mode != "off" and segment.name not in self.failures \
                and segment.weights is None and segment.split is None:
            instance.left = 2

    def before(self, segment) -> Before | str | None:
        """What the next pass begins with, if it may be one to look at: with
        auto one a step, as each takes time, and activations twice."""
        if self.mode == "auto" and self._at == self.owner.steps \
                and not self._is_alarmed() and segment not in self._doubts:
            return None
        if not self._has_time(segment):
            return _NO_TIME
        since = time.perf_counter()
        try:
            return Before(segment)
        except Exception:  # whose frames have as much as there was room for
            return _NO_MEMORY
        finally:
            self._spent += time.perf_counter() - since

    def look(self, segment, instance, before, site, args, kwargs) -> bool:
        """After a replay of a first module whose turn comes, or is next;
        whether the modules are to run, as if there had been none."""
        if instance.left == 1:
            segment.due = True
            return False
        varies = self.owner.ranks.varies
        if before is None and not varies:
            return False
        why = self._worst(segment, self._why_not(segment, instance, before))
        if why:
            self._later(segment, instance, _LATER if why == 1 else _SOON)
            return False
        self._next(segment, instance)
        self._looked.add(segment)
        self._looks += 1
        self._at = self.owner.steps
        with self._timed():
            instance.apart = self._begin(segment, instance, before)
            return self._module(segment, instance, site, args, kwargs, ())

    def _why_not(self, segment, instance, before) -> int:
        """0: it may be looked at; 2: not in this step.  Ranks that are others
        in each microbatch may have looked elsewhere, so each of them asks."""
        if before is None:
            return 2
        if before is _NO_MEMORY:
            self.counts["no_memory"] += 1
            return 1
        return int(before is _NO_TIME
                   or not self._has_room(segment, instance))

    def _worst(self, segment, answer: int) -> int:
        """Of all ranks that run it together."""
        return self.owner.ranks.worst(segment, VERIFY, answer)

    def _next(self, segment, instance) -> None:
        instance.left = 1 if self.mode == "always" \
            or segment in self._doubts else \
            _DISTANCES[min(instance.looks, len(_DISTANCES) - 1)]
        instance.looks += 1
        self._recount(segment)

    def _later(self, segment, instance, replays: int) -> None:
        instance.left = replays
        self._recount(segment)

    @staticmethod
    def _recount(segment) -> None:
        segment.due = any(i.left <= 1 for i in segment.instances.values())

    def _is_alarmed(self) -> bool:
        return self.owner.steps - self._alarmed_at <= 1

    def _has_time(self, segment) -> bool:
        """For what it has taken so far, and for as much as a look has."""
        if self.mode == "always" or segment not in self._looked \
                or segment in self._doubts:
            return True
        for start, end in self._events:
            end.synchronize()
            self._spent += start.elapsed_time(end) / 1000
        self._events.clear()
        return self._spent * (1 + 1 / self._looks) \
            <= _SHARE * (time.perf_counter() - self._since)

    def _has_room(self, segment, instance) -> bool:
        """Of what it keeps, and its gradients, and the sums of them."""
        needed = instance.kept + 3 * sum(p.nbytes for p
                                         in segment.parameters.all)
        if memory.has_room(self.owner.device, needed):
            return True
        self.counts["no_memory"] += 1
        self.owner.notices.add(
            NOTE, segment.name, "its replays are not verified for now, as "
            "the device has too little free memory to run it twice")
        return False

    def forget_lost(self) -> None:
        """Passes whose backward cannot come, as nothing has its node."""
        for instance in self._held:
            if instance.node is None or instance.node() is None:
                instance.apart = None

    def step(self) -> None:
        """A backward that has not come by then does not come."""
        for instance in self._held:
            instance.apart = None
        self._held.clear()

    @contextlib.contextmanager
    def _timed(self):
        """Against the share of auto."""
        if self.mode == "always":
            yield
            return
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        try:
            yield
        finally:
            end.record()
            self._events.append((start, end))

    # ---- forward --------------------------------------------------------

    def _begin(self, segment, instance, before) -> Apart | None:
        try:
            apart = Apart(segment, instance, before)
            apart.left_off = all_numbers(self.owner.captures.generators,
                                         segment.settings.generators)
        except Exception as failure:  # no memory
            self._note_failure(segment, failure)
            return None
        self._held.append(instance)
        return apart

    def follow(self, segment, instance, site, args, kwargs, before) -> None:
        """The call of the next module of a chunk."""
        with self._timed():
            self._module(segment, instance, site, args, kwargs, before)

    def _module(self, segment, instance, site, args, kwargs, before) -> bool:
        """Runs it apart, and compares; whether it is to run once more, as if
        there had been no graph."""
        apart = instance.apart
        since = len(apart.live or ()) if apart is not None else 0
        is_last = site is segment.sites[-1]
        shown, what = self._show(segment, instance, since, site, args, kwargs,
                                 before)
        shown = self._worst(segment, shown)
        if shown == _FAILED:
            self._fail(segment, instance)
            return False
        if not apart.counts:
            if shown == _SAME:
                self.counts["forwards"] += is_last
                return False
            verdict = _WRONG if shown == _NO_FIT else self._judge(
                segment, what, self._pairs(apart, instance, since, is_last),
                self._repeats(apart, since))
            if verdict == _UNTOLD:
                self._cannot_tell(instance)
                return False
            of = f" of {site.name}" if len(segment.sites) > 1 else ""
            self._blame(verdict, segment, "forward",
                        (what or _ELSEWHERE) + of)
        if shown == _NO_FIT:
            instance.apart = None
            if site.position == 0:
                apart.beginning.put_back()
            return site.position == 0
        apart.counts = True
        apart.put_outputs(instance.outputs, since)
        if segment.copies and site.position:  # which the caller has by now
            apart.put_outputs(segment.chain.outputs, since)
        if is_last:
            apart.put_buffers()
            if not apart.drawn.are_same(apart.left_off):
                apart.drawn.put_back()
        return False

    def _show(self, segment, instance, since: int, site, args, kwargs,
              before) -> tuple:
        """What a module's run shows, and in what it differs first."""
        apart = instance.apart
        if apart is None:
            return _FAILED, None
        try:
            apart.run(site, args, kwargs, before)
            if not tree.are_equal(apart.shape[site.position],
                                  instance.shape[site.position]) \
                    or not apart.fits(instance.outputs, since):
                return _NO_FIT, "the form of its result"
            if apart.counts:
                return _SAME, None
            what = self._what_differs(apart, instance, since,
                                      site is segment.sites[-1])
        except Exception as failure:  # the modules' own, or no memory
            self._note_failure(segment, failure)
            return _FAILED, None
        return (_SAME if what is None else _DIFFERS), what

    @staticmethod
    def _pairs(apart, instance, since: int, is_last: bool) -> list:
        """What there is of the graph and of the module, with names."""
        live = apart.live[since:]
        outputs = instance.outputs[since:since + len(live)]
        pairs = [(f"output {i}", output, one) for i, (output, one)
                 in enumerate(zip(outputs, live), since)]
        return pairs + (apart.pairs_of_buffers() if is_last else [])

    @staticmethod
    def _what_differs(apart, instance, since: int, is_last: bool):
        what = Verify._first(Verify._pairs(apart, instance, since, is_last))
        if what is not None:
            return what
        live = apart.live[since:]
        constant = {i for i, one in enumerate(live, since)
                    if not one.requires_grad}
        if constant != {i for i in instance.constant
                        if since <= i < since + len(live)}:
            return "which outputs have a gradient"
        if is_last and not apart.drawn.are_same(apart.left_off):
            return "how many random numbers it draws"
        return None

    @staticmethod
    def _repeats(apart, since: int) -> bool:
        """Whether the module gives the same each time."""
        try:
            mine = apart.last(since)
            return all(_are_same(mine, apart.repeat())
                       for _ in range(_REPEATS))
        except Exception:  # it cannot, which tells nothing
            return False

    # ---- backward -------------------------------------------------------

    def backward(self, segment, instance, microbatch: int, grads):
        """Of an instance with a pass beside it."""
        apart, instance.apart = instance.apart, None
        self.owner.writes.order()  # what is in .grad is read
        with self._timed():
            results = self._in_its_place(segment, apart, microbatch, grads) \
                if apart.counts else self._beside(segment, instance, apart,
                                                  microbatch, grads)
        if self._is_untold:  # of all segments in one line
            self._is_untold = False
            at_end_of_pass(self.owner.notices.flush)
        return results

    def _beside(self, segment, instance, apart, microbatch: int, grads):
        try:
            apart.differentiate(grads)
            shown = _SAME
        except Exception as failure:
            self._note_failure(segment, failure)
            shown = _FAILED
        results = segment.run_back(instance, microbatch, grads)
        if instance.origin.is_eager:  # no graph has run; with ranks, never
            return results
        what = None
        if shown != _FAILED:
            try:
                what = self._first(apart.pairs(results))
            except Exception as failure:
                self._note_failure(segment, failure)
                shown = _FAILED
            else:
                shown = _SAME if what is None else _DIFFERS
        shown = self._worst(segment, shown)
        if shown == _FAILED:
            self._fail(segment)
            return results
        if shown == _SAME:
            self.counts["backwards"] += 1
            self._note_same(segment)
            return results
        verdict = self._judge(segment, what, apart.pairs(results),
                              self._repeats_back(apart, grads, results))
        if verdict == _UNTOLD:
            self._cannot_tell()
            return results
        self._blame(verdict, segment, "backward", what or _ELSEWHERE)
        return apart.put_gradients(len(results))

    @staticmethod
    def _in_its_place(segment, apart, microbatch: int, grads):
        """The forward has counted instead of the graph's."""
        with backwards.eager_pass(segment, apart, microbatch,
                                  [g for g in grads if g is not None]):
            count = len(apart.inputs) + len(segment.parameters.behind) \
                + len(apart.again)
            apart.differentiate(grads)
        segment.untold = [p for p in segment.parameters.silent
                          if p in apart.puts]
        return apart.put_gradients(count)

    @staticmethod
    def _repeats_back(apart, grads, results) -> bool:
        """Whether more runs of the whole pass give the same."""
        def found():
            other = apart.once_more()
            outputs = [one.detach() for one in other.live]
            other.differentiate(grads, alone=True)
            return outputs + [one for *_, one in other.pairs(results)]

        try:
            first = found()
            return all(_are_same(first, found()) for _ in range(_REPEATS - 1))
        except Exception:  # it cannot, which tells nothing
            return False

    @staticmethod
    def _first(pairs):
        """The name of the first that differs."""
        first = first_difference([pair for _, *pair in pairs])
        return None if first is None else pairs[first][0]

    # ---- what comes of it -----------------------------------------------

    def _judge(self, segment, what, pairs, repeats: bool) -> int:
        """What a difference shows, of which eager has none if it `repeats`:
        the worst of any rank, where those without one know nothing."""
        answer = _WRONG
        try:
            if not repeats:
                answer = _UNTOLD
            elif what is None or segment not in self._doubts \
                    and are_of_rounding([pair for _, *pair in pairs]):
                answer = _DOUBTFUL
        except Exception:  # no memory
            answer = _UNTOLD
        return self._worst(segment, answer)

    def _blame(self, verdict: int, segment, which: str, what: str) -> None:
        if verdict == _WRONG:
            self._accuse(segment, which, what)
        else:
            self._doubt(segment)

    def _doubt(self, segment) -> None:
        """Each of the next replays is looked at, and one that is off again
        shows that the graph is."""
        self.counts["cannot_tell"] += 1
        self._doubts[segment] = _DOUBTED
        self._look_soon(segment)

    def _look_soon(self, segment, again=False) -> None:
        """At each of its graphs that is looked at."""
        for instance in segment.instances.values():
            if instance.left <= max(_LATER, *_DISTANCES):
                instance.left = 1
                instance.looks = 0 if again else instance.looks
        self._recount(segment)

    def _note_same(self, segment) -> None:
        """After a whole pass."""
        if segment in self._doubts:
            self._doubts[segment] -= 1
            if not self._doubts[segment]:
                del self._doubts[segment]

    def _cannot_tell(self, instance=None) -> None:
        self.counts["cannot_tell"] += 1
        if instance is not None:
            instance.apart = None

    def _accuse(self, segment, which: str, what: str) -> None:
        """All are looked at again: they may read the same, and one that comes
        after this one finds its input elsewhere."""
        self.differences[segment.name] = f"{which}: {what}"
        segment.refuse(f"in a replay of its {which}, {what} was another than "
                       "eagerly on the same inputs: it reads something of "
                       "which the graph has what was there when it was "
                       "recorded; give it what changes as an argument, or "
                       "keep it in a buffer, and attach again")
        self._is_untold = True
        self._alarmed_at = self.owner.steps
        self._looked.clear()
        for other in self.owner.segments:
            self._look_soon(other, again=True)

    def _note_failure(self, segment, failure) -> None:
        self.failures[segment.name] = f"{type(failure).__name__}: " \
            f"{str(failure).partition(chr(10))[0]}"

    def _fail(self, segment, instance=None) -> None:
        """It is not looked at any more."""
        if instance is not None:
            instance.apart = None
        why = self.failures.setdefault(segment.name, "an error on another "
                                       "rank")
        self.owner.notices.add(NOTE, segment.name, "its replays are not "
                               "verified any more, as running it beside one "
                               f"has raised {why}")
        for one in segment.instances.values():
            one.left = NEVER
        self._recount(segment)

    def stats(self) -> dict:
        return {"verify": {"mode": self.mode, **self.counts,
                           "differences": dict(self.differences),
                           "failures": dict(self.failures)}}

    def lines(self) -> list:
        """For explain()."""
        if self.mode == "off":
            return []
        return [f"verify={self.mode}: {self.counts['forwards']} forwards and "
                f"{self.counts['backwards']} backwards were run eagerly too, "
                f"{len(self.differences)} segments differed, "
                f"{self.counts['cannot_tell']} times it could not tell, "
                f"{self.counts['no_memory']} times there was too little "
                "memory"]
