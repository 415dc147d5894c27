"""Which recordings run after which, as their memory demands, and what a
backward leaves to the next one.  memory.py says what a flight is.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import itertools
import math


class Flights:
    """The order of an attach's recordings."""

    def __init__(self, segments):
        self.segments = segments
        self.clean = 0  # see may_write()
        self._serial = 0  # of recordings
        self._at = -1, 0  # the microbatch whose forwards came last, its slot
        self._ran: dict = {}  # the last of them, by the flight of recording
        self._last: dict = {}  # segment that was recorded, by slot and flight

    def of_backward(self, segment, instance, variant: int) -> tuple:
        """What was recorded of its flight before it, it must also run after.
        Backwards of a pass come from the last segment to the first; one that
        was left out then has memory of its own, as that of the flight has
        what segments before it let go."""
        let_go = self._last.get((instance.slot, *instance.flight), math.inf)
        for late in itertools.count():
            flight = (*instance.flight, variant, late) if late \
                else (*instance.flight, variant)
            key = (instance.slot, *flight)
            last = self._last.get(key, math.inf)
            if segment.index < (last if late else min(last, let_go)):
                self._last[key] = segment.index
                return flight

    def let_go(self, segment, instance) -> None:
        """What the forward has kept for its backward."""
        key = (instance.slot, *instance.flight)
        self._last[key] = min(segment.index, self._last.get(key, math.inf))

    def may_follow(self, segment, microbatch: int) -> bool:
        """Whether the segment's forward may come now: what it frees on its
        way, recordings that were made after it hold until their backward."""
        its, slot = self._at
        if its != microbatch:
            return True
        instance = segment.instances.get(slot)
        return instance is None \
            or instance.serial > self._ran.get(instance.flight, 0)

    def ran(self, instance, microbatch: int) -> None:
        if self._at[0] != microbatch:
            self._at = microbatch, instance.slot
            self._ran = {}
        self._ran[instance.flight] = instance.serial

    def end_step(self) -> None:
        self.clean = 0
        self._at = -1, 0

    def next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def may_write(self, backward) -> bool:
        """Whether a backward may write gradients: none that was recorded
        after it is in place.  Asked once for all that come in their order;
        whatever else runs sets `clean` to 0."""
        if self.clean and self.clean < backward.serial:
            self.clean = backward.serial
            return True
        for segment in self.segments:
            if segment.parameters.serial > backward.serial \
                    and segment.parameters.are_in_place():
                return False
        self.clean = backward.serial
        return True


class Twins:
    """The same gradients of inputs, as either variant leaves them."""

    def __init__(self):
        self._twins: dict = {}  # pairs by the address of each

    def know(self, write, add) -> None:
        if add is None:
            return
        for twins in zip(write.results, add.results):
            if twins[0] is not None:
                for t in twins:
                    self._twins[t.data_ptr()] = twins

    def of(self, grad, variant: int):
        """Where the segment after this one leaves this gradient when that
        variant of its backward has run."""
        twins = self._twins.get(grad.data_ptr())
        if twins is None or twins[variant].shape != grad.shape:
            return grad
        return twins[variant]

    def clear(self) -> None:
        self._twins.clear()
