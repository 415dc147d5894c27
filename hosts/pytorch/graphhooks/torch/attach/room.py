"""Which graphs there is memory for, under GRAPHHOOKS_MEMORY_LIMIT.

A graph of a forward alone is slower than eager, as the modules run again for
each backward.  So a layer in a slot has both graphs or none.  Before the first
recording layers and slots are chosen by what is foretold.  Where more is
needed than that, the first backward without memory closes its slot; in the
first slot its layer is refused (backwards.py).

A run of layers needs an input and a gradient at its ends, as graphs read in
place what other graphs have left.  So layers in a row are chosen.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import itertools
import logging
import math
import os

from ..base import memory
from ..record.outputs import is_under_way

log = logging.getLogger("graphhooks")

_SLOTS = "more microbatches are in flight than there is memory for: " \
    "GRAPHHOOKS_MEMORY_LIMIT, or the device's; raise the limit, or have " \
    "fewer in flight"
_LAYERS = "there is no memory for its inputs: GRAPHHOOKS_MEMORY_LIMIT is {} " \
    "bytes, and all graphs would take {}, in {} slot{}; raise it"


class Room:
    """Of an attach."""

    def __init__(self, owner):
        self._owner = owner
        self.is_limited = False  # some slots are closed
        self.left_out: set = set()  # segments for which there is no memory
        self._slots: float = math.inf  # that are open, in each bank
        self._of_banks: dict = {}  # the same of those that have fewer
        self._flight: tuple = ()  # the forward at hand
        self._may_run = True
        self._said = ""
        self._limit = self._find_limit()

    # ---- ahead ------------------------------------------------------------

    def choose(self) -> None:
        """At the end of a step, while nothing is recorded: nothing is before
        a backward has come."""
        owner, foreseen = self._owner, self._owner.foreseen
        if self._limit == 0 or owner.ranks.size > 1 \
                or any(segment.instances for segment in owner.segments):
            return
        segments = [s for s in foreseen.segments(_has_gone_back)
                    if s.refused is None]
        slots = foreseen.slots()

        def bytes_of(some, n: int = slots) -> int:
            graphs = set(some)
            return foreseen.input_bytes(n, lambda p: _has_gone_back(p)
                                        and p.segment in graphs)

        limit = self._limit
        others = owner.foretold() - foreseen.input_bytes()
        wanted = others + bytes_of(segments)
        if wanted <= limit:
            return

        def fits(some, n: int = 1) -> bool:
            return bytes_of(some, n) <= limit - others

        chosen = _longest(segments, fits)
        for segment in segments:
            if segment not in chosen:
                self.left_out.add(segment)
                segment.refuse(_LAYERS.format(limit, wanted, slots,
                                              "s" * (slots > 1)))
        self._close(None, max(n for n in range(slots + 1)
                              if fits(chosen, n)) if chosen else 0)
        self._say(f"memory: all graphs would take {wanted} bytes, and "
                  f"GRAPHHOOKS_MEMORY_LIMIT is {limit}: "
                  f"{len(chosen)} of {len(chosen) + len(self.left_out)} "
                  "layers or chunks have graphs, for "
                  f"{self._slots} of {slots} microbatches in flight")

    def has_spoken(self) -> bool:
        """What fits is said."""
        return bool(self._said)

    def _say(self, sentence: str) -> None:
        if sentence != self._said:
            log.warning("%s", sentence)
        self._said = sentence

    def _find_limit(self) -> int:
        """0: there is none.  The library refuses other forms; the variable may
        have changed since."""
        asked = str(os.environ.get("GRAPHHOOKS_MEMORY_LIMIT")
                    or self._owner.options.get("memory_limit") or 0)
        number = asked.removesuffix("%")
        if not number.isdigit():
            return 0
        if number == asked:
            return int(asked)
        return memory.total(self._owner.device) // 100 * int(number)

    # ---- slots ------------------------------------------------------------

    def slots(self, bank: int) -> float:
        """How many are open."""
        return self._of_banks.get(bank, self._slots)

    def _close(self, bank: int | None, slots: int) -> None:
        """In a bank; None: in each."""
        self.is_limited = True
        if bank is None:
            self._slots = slots
        else:
            self._of_banks[bank] = min(slots, self.slots(bank))

    def close(self, instance) -> bool:
        """Of a backward for which there is no memory: its slot, and those
        after it, if there is one before it."""
        if instance.slot == 0 or self._owner.ranks.size > 1:
            return False
        self._close(instance.flight[0], instance.slot)
        return True

    def is_closed(self, instance) -> bool:
        return self.is_limited \
            and instance.slot >= self.slots(instance.flight[0])

    def may_run(self, segment, bank: int) -> bool:
        """Whether a forward may: the library would give it the first slot in
        which nothing is under way."""
        owner = self._owner
        flight = owner.forward()
        if flight != self._flight:
            self._flight = flight
            taken = {instance.slot for other in owner.segments
                     for instance in other.instances.values()
                     if is_under_way(instance, owner.steps)}
            slot = next(i for i in itertools.count() if i not in taken)
            self._may_run = slot < self.slots(bank)
        if not self._may_run:
            owner.count("device", segment.name, _SLOTS)
        return self._may_run


def _has_gone_back(found) -> bool:
    return found.counts and found.has_gone_back


def _longest(segments: list, fits) -> list:
    """The longest run of segments that does, the first of these."""
    best: list = []
    begin = 0
    for end in range(1, len(segments) + 1):
        while begin < end and not fits(segments[begin:end]):
            begin += 1
        if end - begin > len(best):
            best = segments[begin:end]
    return best
