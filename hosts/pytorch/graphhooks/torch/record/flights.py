"""Which recordings run after which, as their memory demands.  memory.py says
what a flight is.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import itertools
import math



class Flights:
    """The order of an attach's recordings."""

    def __init__(self, segments):
        self.segments = segments
        self.clean = 0  # see may_run()
        self._bank = 0  # of which that is
        self._serial = 0  # of recordings
        self.count = 0  # of forwards that have run
        self._at = -1  # the microbatch whose forwards came last
        # A slot that its backwards have let go may not be the one it gets
        # next: passes that leave out layers come several times to a number.
        self._slots: set = set()  # that it has had
        self._ran: dict = {}  # the last there, by slot and flight of recording
        self._last: dict = {}  # segment that was recorded, by slot and flight
        self._waiting: dict = {}  # Waiting by slot

    def of_backward(self, segment, instance) -> tuple:
        """What was recorded of its flight before it, it must also run after.
        Backwards of a pass come from the last segment to the first; one that
        was left out then has memory of its own, as that of the flight has
        what segments before it let go."""
        first = segment.owner.pools.of_backward(instance)
        for late in itertools.count():
            flight = (*first, late) if late else first
            key = (instance.slot, *flight)
            if segment.index < self._last.get(key, math.inf):
                return flight

    def note_backward(self, segment, instance, flight) -> None:
        """It has been recorded there."""
        self._last[(instance.slot, *flight)] = segment.index

    def may_follow(self, segment, microbatch: int, bank: int) -> bool:
        """Whether the segment's forward may come now: what it frees on its
        way, recordings that were made after it hold until their backward; and
        it may use what backwards freed that were recorded before it."""
        if self._at != microbatch:
            return True
        for slot in self._slots:
            instance = segment.instances.get((bank, slot))
            if instance is None:
                continue
            flight, serial = instance.flight, instance.serial
            if serial <= self._ran.get((slot, flight), 0):
                return False
            waiting = self._waiting.get(slot)
            if waiting is not None and waiting.before(flight, serial):
                return False
        return True

    def ran(self, instance, microbatch: int) -> None:
        self.count += 1
        if self._at != microbatch:
            self._at = microbatch
            self._slots, self._ran = set(), {}
        self._slots.add(instance.slot)
        self._ran[instance.slot, instance.flight] = instance.serial
        if instance.backward is not None:
            instance.spoiled = False
            waiting = self._waiting.get(instance.slot)
            if waiting is None:
                waiting = self._waiting[instance.slot] = Waiting()
            waiting.add(instance)

    def runs_back(self, instance) -> None:
        """Backwards that it should have come after find their memory used."""
        waiting = self._waiting.get(instance.slot)
        if waiting is None:
            return
        waiting.all.pop(instance, None)
        backward = instance.backward
        for other in waiting.before(backward.flight, backward.serial):
            other.spoiled = True

    def leaves(self, instance) -> None:
        """It goes back without its graph."""
        waiting = self._waiting.get(instance.slot)
        if waiting is not None:
            waiting.all.pop(instance, None)

    def end_step(self) -> None:
        self.clean = 0
        self._at = -1
        self._waiting.clear()

    def next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def may_run(self, serial: int, bank: int = 0) -> bool:
        """Whether a recording may: no gradients are in place that lie in what
        it frees on its way, as those of later recordings may, and those of
        other banks.  Asked once for all of a bank that come in their order."""
        if self.clean and self.clean < serial and self._bank == bank:
            self.clean = serial
            return True
        for segment in self.segments:
            parameters = segment.parameters
            if not parameters.adds and parameters.are_written(serial, bank):
                return False
        self.clean, self._bank = serial, bank
        return True


class Waiting:
    """Instances of a slot whose forward has run and whose backward has not:
    the one was recorded, as a rule, that ran last."""

    def __init__(self):
        self.all: dict = {}
        self._is_usual = True  # none of them waits for one that ran later

    def add(self, instance) -> None:
        self.all.pop(instance, None)
        if not self.all:
            self._is_usual = True
        elif next(reversed(self.all)).backward.serial \
                < instance.backward.serial:
            self._is_usual = False
        self.all[instance] = True

    def before(self, flight, serial: int) -> list:
        """Those that let go, before that recording was made, of memory that
        it may use.  Who keeps a loss or the like may still go back."""
        if not self.all:
            return []
        if self._is_usual \
                and next(reversed(self.all)).backward.serial > serial:
            return []
        for instance in [i for i in self.all if not _is_alive(i)]:
            del self.all[instance]
        return [i for i in self.all
                if i.flight == flight and i.backward.serial < serial]


def _is_alive(instance) -> bool:
    return instance.node is not None and instance.node() is not None
