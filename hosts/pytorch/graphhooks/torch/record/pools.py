"""What recordings leave in memory, and when banks let it go for another.

A flight is of one bank, so the banks of a slot never run at once there, and
record into the same pools: what one of them has let go, another one uses.  It
lets go of all when another bank records in the slot; its graphs go on reading
and writing where they did, and what stands for that in Python are tensors at
the same addresses that own nothing.  Each holds on to a graph of the pool, so
that the memory is there for as long as somebody has the tensor.

What is recorded of a bank after that goes into another pool: in the old one
nobody knows any more what its graphs hand to each other.

A gradient that a graph has put in `.grad` is copied out before another bank
writes there.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from ..base.memory import unowned
from .outputs import be_unowned


class Flight:
    """Where the recordings of a bank go, in one slot."""

    __slots__ = ("ordinal", "of", "since")

    def __init__(self):
        self.ordinal = -1  # the pool, of the slot's
        self.of = None  # the forward that began it
        self.since = 0  # the first pool in which nothing is let go


class Pools:
    """Of an attach."""

    def __init__(self, owner):
        self.owner = owner
        self._holders: dict = {}  # banks that hold something, by slot

    def flight(self, bank, slot: int, now: tuple) -> tuple:
        """What a recording of a flight that begins goes by: the bank, and the
        pool among those of the slot; `now` is the forward at hand.  One that
        comes in a later microbatch than those before it has a pool of its own,
        as memory.py says."""
        flight = bank.flights.get(slot)
        if flight is None:
            flight = bank.flights[slot] = Flight()
        if flight.of != now or flight.ordinal < flight.since:
            flight.of = now
            flight.ordinal += 1
        return bank.number, flight.ordinal

    def of_backward(self, instance) -> tuple:
        """That of its forward, unless that has let go."""
        bank = instance.signature.bank
        if instance.flight[1] < bank.flights[instance.slot].since:
            return self.flight(bank, instance.slot, self.owner.forward())
        return instance.flight

    def hold(self, bank, slot: int) -> None:
        """A recording of the bank is about to be made there."""
        owner = self.owner
        if len(owner.banks.declared) > 1 and any(
                s.parameters.are_written_for_others(bank.number)
                for s in owner.segments):
            owner.move_gradients_out()
        holders = self._holders.setdefault(slot, set())
        others = holders - {bank}
        if others:
            self._let_go(others, slot)
            holders -= others
        holders.add(bank)

    def _let_go(self, banks, slot: int) -> None:
        for bank in banks:
            for segment in bank.segments:
                instance = segment.instances.get((bank.number, slot))
                if instance is not None:
                    self.owner.outputs.copy_out(segment, instance)
                    _let_go(segment, instance)
        for bank in banks:
            if slot in bank.flights:  # it has not given way
                bank.flights[slot].since = bank.flights[slot].ordinal + 1


def _let_go(segment, instance) -> None:
    pool = instance.pool
    be_unowned(segment, instance, pool)
    instance.buffers = [(b, unowned(c, pool)) for b, c in instance.buffers]
    backward = instance.backward
    if backward is not None:
        pool = backward.pool
        backward.results = tuple([r if r is None else unowned(r, pool)
                                  for r in backward.results])
        backward.chained = [c if c is None else unowned(c, pool)
                            for c in backward.chained]
        if backward.home.serial:
            backward.home.let_go(pool)
            backward.gradients = [backward.home.gradients[p]
                                  for p in backward.own]
