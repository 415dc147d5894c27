"""Banks: graphs for each of several shapes.

A graph is of one shape of what goes into the layers, and of all else that a
call is given: its signature.  A bank has the graphs of one, and each
microbatch, forward and backward of all layers, is of one bank: that of the
first of its calls.  A signature that comes for the first time runs eagerly,
and shows what recordings have to know of it; from the second time on it has a
bank.  Of those the library keeps `max_banks` with graphs: for one more the
least recently used gives way, if the other has come twice since that one was
used.  So what comes once takes nothing from anybody, and more shapes than
there is room for do not drive each other out in turn.  Where they do so all
the same, twice is not enough: each time that graphs have given way before they
were worth their recording, it takes twice as many.  It takes half as many each
time that others were worth it, or that none has given way for long, as what
comes may be another thing by then.

What the banks leave in memory, and when that is let go, is in pools.py.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections
import ctypes
import os
import re

from ... import _abi
from ..guard import calls
from . import trial
from .packed import remedy

MOST = 8  # of them have graphs, where nobody says how many
_KNOWN = 256  # signatures that are remembered
# How often one comes before another gives way for it, at least and at most.
TWICE, _OFTEN = 2, 16
_WORTH = 8  # flights that take about as long as the recordings of a slot
_CALM = 32  # steps for each of those times, after which it is half as often
_IN_WORDS = 32  # calls of which it is looked at in what they differ
_EACH_NEW = 8  # signatures after which it is said that none has come again
_SHOWN = 8  # shapes in a sentence
_NONE_AGAIN = object()  # what a sentence is of


def with_most(options: dict) -> dict:
    """Options of a session, with as many banks as there are to be."""
    if options.get("max_banks") is None \
            and not os.environ.get("GRAPHHOOKS_MAX_BANKS"):
        return {**options, "max_banks": MOST}
    return options


def spell_most(text: str) -> str:
    """The library's sentence of a wrong number, with what holds here."""
    if "max_banks is" not in text.lower():
        return text
    return re.sub(r"leave it out for \d+", f"leave it out for {MOST}", text)


class Bank:
    """One signature, and what is known of it."""

    def __init__(self, key: tuple, words: dict, name: str, segments: list):
        self.key = key
        self.segments = segments  # that may have instances in it
        self.words = words  # of the call that began its first flight
        self.name = name
        self.circle = None  # the ranks that it is of
        self.number: int | None = None  # the library's, once it is declared
        self.of: dict[int, Signature] = {}  # by segment
        self.last = 0  # the flight that was of it last, by number
        self.before = 0  # and the one before that
        self.step = -1  # that one of it came in
        # Flights of it, of each step the last one.
        self.came: collections.deque = collections.deque(maxlen=_OFTEN)
        self.used = 0  # flights since it has graphs
        self.is_open = False  # may have graphs, in the flight at hand
        self.has_graphs = False
        self.evictions = 0
        self.flights: dict = {}  # Flight of pools.py, by slot

    def has_come(self, times: int, since: int) -> bool:
        """Whether it has so often, since a flight."""
        return len(self.came) >= times and self.came[-times] > since


class Signature:
    """The calls of one segment in one bank."""

    __slots__ = ("bank", "key", "words", "unfit", "refused", "warm",
                 "elsewhere", "calls", "takes_one", "broken", "serial",
                 "is_another", "wide")

    def __init__(self, bank: Bank, key: list, words, unfit, is_another=False,
                 wide=()):
        self.bank = bank
        self.key = key
        self.words = words
        self.unfit = unfit  # why no graph takes such tensors
        self.refused: str | None = None  # why it is eager in this bank
        self.warm = False  # an eager backward has come by
        self.elsewhere: set = set()  # inputs that are used there too
        self.broken: str | None = None  # why its modules are no chain
        self.serial = 0  # of the forward that was recorded first
        self.is_another = is_another  # than that of its first call
        self.wide = wide  # tensors that graphs are given closed up
        self.forget_calls()

    def know(self, calls: list, takes_one: list) -> None:
        """Of the modules after the first: forms of (args, kwargs), and which
        of them are the usual ones."""
        self.calls, self.takes_one, self.broken = calls, takes_one, None

    def forget_calls(self) -> None:
        self.calls, self.takes_one = [], []


class Banks:
    """Those of an attach."""

    def __init__(self, owner):
        self.owner = owner
        self.all: dict[tuple, Bank] = {}  # by key
        self.declared: list[Bank] = []  # by number
        self._most = os.environ.get("GRAPHHOOKS_MAX_BANKS") \
            or owner.options["max_banks"]
        self._flight = None  # the forward at hand
        self._bank: Bank | None = None  # its bank
        self._count = 0  # of flights
        self._needed = TWICE  # times to come, since another was used
        self._changed = 0  # the step in which that was not so yet
        self._met = 0  # signatures
        self._told: dict = {}  # sentences by what they are of, and the flight
        self._in_words = 0

    @property
    def most(self) -> int:
        """As the library has read it, which has refused what is no number."""
        return min(int(self._most), self.owner.ranks.most_banks)

    # ---- the bank of a flight -------------------------------------------

    def find(self, segment, key, tensors, args, kwargs) -> Signature | None:
        """What is known of such calls in the bank of the flight at hand; None:
        it runs eagerly, which is counted."""
        bank = self.at_hand(segment, key, tensors, args, kwargs)
        if bank is None:
            return None
        signature = bank.of.get(segment.index)
        if signature is None or signature.key != key:
            signature = self._meet(segment, bank, key, tensors, args, kwargs)
        if signature is None:
            return None
        why = signature.unfit or signature.refused
        if why is not None:
            self.owner.count("input" if signature.unfit else "refused",
                             segment.name, why)
            return None
        return signature

    def at_hand(self, segment, key, tensors, args, kwargs) -> Bank | None:
        """That of the flight; None: it is of none, which is counted."""
        flight = self.owner.forward()
        if flight != self._flight:
            self._flight = flight
            self._bank = self._begin(segment, key, tensors, args, kwargs)
        return self._bank

    def is_eager(self, segment) -> bool:
        """Of a call that this rank runs eagerly: whether all ranks know that
        they do."""
        return False

    @property
    def number(self) -> int:
        """Of the flight's bank, for the library."""
        return self._bank.number or 0 if self._bank is not None else 0

    @property
    def at_work(self) -> Bank | None:
        """Of the flight."""
        return self._bank

    def _begin(self, segment, key, tensors, args, kwargs) -> Bank:
        """The first call of a flight."""
        bank = self._bank
        if bank is None or bank.of.get(segment.index) is None \
                or bank.of[segment.index].key != key:
            bank = self.all.get(hashed(key)) or self._know(
                hashed(key), segment, key, tensors, args, kwargs)
        bank.is_open = self._count_flight(bank)
        if bank.is_open and bank.number is None:
            self._declare(bank)
        return bank

    def _count_flight(self, bank: Bank) -> bool:
        """Whether it may have graphs."""
        self._count += 1
        step = self.owner.forward()[0]
        if step - self._changed >= _CALM * self._needed:
            self._need(self._needed // 2)
        # Whose ranks vary may come once for each microbatch's.
        if step != bank.step or self.owner.ranks.varies:
            bank.came.append(0)
        bank.step, bank.came[-1] = step, self._count
        bank.before, bank.last = bank.last, self._count
        bank.used += bank.has_graphs
        return bank.has_graphs or (bank.before > 0 and self._has_room(bank))

    def _know(self, by: tuple, segment, key, tensors, args, kwargs) -> Bank:
        self._met += 1
        words = {}
        if self._met <= _IN_WORDS:  # words take time
            words = calls.describe(segment.sites[0], key, args, kwargs)
        name = str(tuple(tensors[0].shape)) if tensors else "no tensors"
        bank = Bank(by, words, name, self.owner.segments)
        if len(self.all) >= _KNOWN:
            self._forget_one()
        self.all[bank.key] = bank
        return bank

    def _forget_one(self) -> None:
        """That has no graphs and has not come for longest."""
        idle = [b for b in self.all.values() if not b.has_graphs]
        if idle:
            oldest = min(idle, key=lambda b: b.last)
            del self.all[oldest.key]

    def _has_room(self, bank: Bank) -> bool:
        """Whether it may have graphs, for which another one may go."""
        if bank.number is None \
                and len(self.declared) == self.owner.ranks.most_banks:
            return False
        others = [b for b in self.declared if b.has_graphs]
        return len(others) < self.most or bank.has_come(
            self._enough, min((b.last for b in others if self._may_go(b)),
                              default=0))

    def _may_go(self, bank: Bank) -> bool:
        """Whether the library lets it go by itself."""
        return True

    @property
    def _enough(self) -> int:
        """Times that a bank comes before it may take another's place."""
        return self._needed

    def _declare(self, bank: Bank) -> None:
        """The first is the session's own.  Nothing is said of tokens: with
        more of them an input may be larger, or as large, or the square."""
        bank.number = len(self.declared)
        if self.declared:
            owner = self.owner
            number = ctypes.c_uint32()
            desc = _abi.make(_abi.gh_bank_desc, name=bank.name.encode())
            owner.check(owner.api.bank_add(
                owner.handle, ctypes.byref(desc), ctypes.byref(number),
                ctypes.byref(owner.error)))
            bank.number = number.value
        self.declared.append(bank)

    def _meet(self, segment, bank, key, tensors, args, kwargs):
        """The segment's first call in the bank; or one that differs, which
        counts instead, once, until something is recorded: some begin with a
        batch of another shape."""
        known = bank.of.get(segment.index)
        if known is not None and (known.serial or known.is_another):
            self._tell_of_another(segment, known, key, args, kwargs)
            return None
        words = None
        if self._in_words < _IN_WORDS * max(len(self.owner.segments), 1):
            self._in_words += 1
            words = calls.describe(segment.sites[0], key, args, kwargs)
        signature = bank.of[segment.index] = Signature(
            bank, list(key), words, segment.why_unfit(tensors),
            known is not None, segment.wide_ones(tensors))
        return signature

    def rename(self, segment, signature, tensors, key, args, kwargs) -> None:
        """The signature, of which nothing is recorded, is to be of other
        calls, and so is its bank if calls of this segment begin that."""
        bank = signature.bank
        begins = bank.key == hashed(signature.key)
        signature.key = list(key)
        signature.wide = segment.wide_ones(tensors)
        if signature.words is not None:
            signature.words = calls.describe(segment.sites[0], key, args,
                                             kwargs)
        if begins and self.all.get(bank.key) is bank \
                and hashed(key) not in self.all:
            del self.all[bank.key]
            bank.key = hashed(key)
            self.all[bank.key] = bank
            if bank.words:
                bank.words = calls.describe(segment.sites[0], key, args,
                                            kwargs)

    @staticmethod
    def try_closed_up(site, given, closed):
        """Runs it eagerly, and once more as a graph would be given slices of
        larger tensors, without what lies between."""
        return trial.run(site, given, closed, "a slice of a larger tensor "
                         "without what lies between", "give it x.contiguous()")

    # ---- what is recorded -----------------------------------------------

    def note_recorded(self, signature: Signature, instance) -> None:
        """A forward."""
        bank = signature.bank
        if not signature.serial or instance.serial < signature.serial:
            signature.serial = instance.serial
        if bank.has_graphs:
            return
        bank.has_graphs, bank.used = True, 0
        # Those that came when it had none are over.
        bank.evictions = self.stats_of(bank).evictions
        self._look_who_gave_way(bank)

    def _look_who_gave_way(self, bank: Bank) -> None:
        """For that one."""
        for other in self.declared:
            if other is not bank and other.has_graphs \
                    and self.stats_of(other).evictions > other.evictions:
                self._give_way(other)

    def _give_way(self, bank: Bank) -> None:
        """Its graphs are gone."""
        is_worth = bank.used >= _WORTH * max(len(bank.flights), 1)
        self._need(self._needed // 2 if is_worth else self._needed * 2)
        bank.evictions = self.stats_of(bank).evictions
        bank.has_graphs = False
        bank.flights.clear()
        for segment in self.owner.segments:
            segment.forget_instances(bank.number)
        for signature in bank.of.values():
            signature.serial = 0

    def _need(self, times: int) -> None:
        self._needed = min(max(times, TWICE), _OFTEN)
        self._changed = self.owner.forward()[0]

    def stats_of(self, bank: Bank):
        owner = self.owner
        stats = _abi.make(_abi.gh_bank_stats)
        owner.check(owner.api.bank_get_stats(
            owner.handle, bank.number, ctypes.byref(stats),
            ctypes.byref(owner.error)))
        return stats

    # ---- what is said ---------------------------------------------------

    def run_eagerly(self, segment) -> None:
        """A call of a bank for which there is no room."""
        self.owner.count("banks", segment.name, self._once(
            None, lambda: "its calls come in more shapes than have graphs at "
            "once: " + self._remedy(None)))

    def run_first(self, segment, bank: Bank) -> None:
        """A call whose signature is new runs eagerly, and others have been
        recorded."""
        self.owner.count("input", segment.name, self._why_new(bank),
                         is_first=True)

    def _why_new(self, bank: Bank) -> str | None:
        """Shapes are said to be many when they are; all else at once."""
        then = next((b for b in self.declared if b is not bank), None)
        if bank.before or then is None or not bank.words:
            return None
        name, how, is_shape = self._difference(then, bank)
        if is_shape and self._met <= self.most:
            return None
        return self._once(name, lambda: "a call differs from those that are "
                          f"recorded: {how}; "
                          f"{remedy(name, bank.words)}{self._remedy(name)}")

    def warm_up(self, segment, bank: Bank) -> None:
        """A call whose signature is new runs eagerly, and nothing has been
        recorded."""
        self.owner.count("warmup", segment.name, self._why_none(bank))

    def _why_none(self, bank: Bank) -> str | None:
        if self.declared or self._met < _EACH_NEW or not bank.words:
            return None
        then = next(b for b in self.all.values() if b is not bank)
        name, how, _ = self._difference(then, bank)
        return self._once(_NONE_AGAIN, lambda: "no call has come a second "
                          f"time, so nothing is recorded: {how}; "
                          f"{remedy(name, bank.words)}{self._remedy(name)}")

    def _difference(self, then: Bank, bank: Bank) -> tuple:
        """What is another, a sentence, and whether it is but a shape."""
        name, how = calls.difference(then.words, bank.words)
        return name, how, name.endswith((".shape", ".stride()"))

    def _remedy(self, name) -> str:
        texts = [name and b.words.get(name) or b.name
                 for b in self.all.values()]
        texts = list(dict.fromkeys(map(calls.shortened, texts)))
        more = ", ..." if len(texts) > _SHOWN or self._met > len(self.all) \
            else ""
        how = ("pad to one length, or let ranks of the group have graphs of "
               "several: leave out max_banks=1"
               if self.owner.ranks.most_banks == 1 else
               "pad to few lengths (pad_to_multiple_of=64), keep what changes "
               "in every call out of it, or attach with max_banks="
               f"{min(2 * max(self._met, self.most), 1024)}")
        return (f"each has graphs from the second time on, {self.most} at "
                f"once, and {self._met} came so far: "
                f"{', '.join(texts[:_SHOWN])}{more}: {how}")

    def _once(self, about, text) -> str | None:
        """All layers say it in one flight, and none says it again."""
        flight, said = self._told.get(about, (None, None))
        if flight is None:
            flight, said = self._told[about] = self._count, text()
        return said if flight == self._count else None

    def _tell_of_another(self, segment, known, key, args, kwargs) -> None:
        """Than those of the segment in the bank."""
        segment.others += 1
        if known.words is None or segment.others > _IN_WORDS:
            self.owner.count("input")
            return
        now = calls.describe(segment.sites[0], key, args, kwargs)
        name, how = calls.difference(known.words, now)
        self.owner.count("input", segment.name, None if name in segment.told
                         else "a call differs from those that are recorded: "
                         f"{how}; which graphs there are is looked up by what "
                         "the first layer is given, which is as it was")
        segment.told.add(name)

    def stats(self) -> list:
        """Of those that were ever recorded."""
        found = []
        for bank in self.declared:
            stats = self.stats_of(bank)
            found.append({
                "shape": bank.name, "besides": self._besides(bank),
                "graphs": stats.graphs, "recordings": stats.recordings,
                "replays": stats.replays, "evictions": stats.evictions})
        return found

    def _besides(self, bank: Bank) -> str:
        """In what it differs from others of the same name."""
        alike = [b.words for b in self.declared
                 if b.name == bank.name and b.words]
        return ", ".join(
            f"{name}: {calls.shortened(text)}"
            for name, text in bank.words.items()
            if any(words.get(name) != text for words in alike))

    def _named(self, bank: Bank) -> str:
        besides = self._besides(bank)
        return f"{bank.name} ({besides})" if besides else bank.name

    def lines(self) -> list:
        """For who has more than one."""
        if self._met < 2:
            return []
        with_graphs = [self._named(b) for b in self.declared if b.has_graphs]
        return [f"shapes: {self._met} were met, and {len(with_graphs)} have "
                f"graphs, of {self.most} at most (max_banks)"
                + (": " if with_graphs else "")
                + ", ".join(with_graphs[:_SHOWN])
                + (", ..." if len(with_graphs) > _SHOWN else "")]


def hashed(key) -> tuple:
    """What numbers and texts, and some enums, are looked up by."""
    key = tuple(key)
    try:
        hash(key)
    except TypeError:
        return tuple(map(repr, key))
    return key
