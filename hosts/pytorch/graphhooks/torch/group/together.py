"""Banks that ranks agree on: those of a group have graphs of several shapes.

At the first call of each microbatch every rank says which of its own
signatures it is of, by a number that it has given it.  What all have said, in
the order of ranks, is what the bank goes by: so all ranks come to the same
bank, count the same flights of it, and find the same one to let go.  A graph
that exchanges something with another rank's is then always launched beside
the one that it was recorded beside.

A rank that cannot run the microbatch from graphs says that instead, and all
ranks run it eagerly.  A layer that one rank has refused since the last
microbatch, all refuse.

The library never lets a bank with ranks go (doc/ranks.md), so that is done
here, where all agree that nothing of it is in flight.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections
import functools
import operator

from ..base.questions import FLIGHT, ROOM
from ..shapes.banks import TWICE, Bank, Banks, hashed

# What a rank answers of room for a bank: there is some; another one can go.
_ROOM, _GOES = 1, 2
_KNOWN = 512  # signatures of this rank that keep their numbers
# Reasons of this rank, in words that all ranks know.
_REASONS = ("", "input", "attributes", "replaced", "hooks", "packed",
            "refused", "device", "parametrize")


class Together(Banks):
    """Those of an attach with ranks."""

    def __init__(self, owner):
        super().__init__(owner)
        self._numbers: collections.OrderedDict = collections.OrderedDict()
        self._given = 0  # of them, ever
        # Numbers of banks that have their ranks.
        self._shared = set() if owner.ranks.varies else {0}
        self._why = "ranks", ""  # the flight is of no bank, or a closed one

    # ---- the bank of a flight -------------------------------------------

    def at_hand(self, segment, key, tensors, args, kwargs) -> Bank | None:
        if not self._has_begun():
            said = self._ask(segment, self._number(key))
            if said is not None:
                self._decide(said, segment, key, tensors, args, kwargs)
        if segment.is_agreed:
            self.owner.count("refused")
            return None
        if self._bank is None:
            reason, why = self._why
            self.owner.count(reason, segment.name, why)
        return self._bank

    def is_eager(self, segment) -> bool:
        if not self._has_begun():
            said = self._ask(segment, 0)
            if said is None or not any(number for number, *_ in said):
                return True  # the next layer's call says
            self._decide(said)
        return segment.is_agreed or self._bank is None \
            or not self._bank.is_open

    def _has_begun(self) -> bool:
        return self._flight == self.owner.forward()

    def _ask(self, segment, number: int) -> list | None:
        """What the ranks say; None: the segment is eager on all of them."""
        owner = self.owner
        trial = bool(number) and not owner.packed.have_tried(segment) \
            or owner.packed.is_wanted
        owner.packed.is_wanted = False
        reason = 0 if number or owner.counted[0] not in _REASONS \
            else _REASONS.index(owner.counted[0])
        while True:
            said = owner.ranks.ask(segment, FLIGHT, number, reason,
                                   int(trial), self._refused())
            if not self._adopt([refused for *_, refused in said]):
                return said
            if segment.is_agreed:
                return None

    def _refused(self) -> int:
        """The first segment of which the others do not know, from 1."""
        return next((i for i, s in enumerate(self.owner.segments, 1)
                     if s.refused is not None and not s.is_agreed), 0)

    def _adopt(self, refused) -> bool:
        for rank, i in enumerate(refused):
            if i:
                self.owner.segments[i - 1].adopt(rank, "its log says why")
        return any(refused)

    def _number(self, key) -> int:
        """This rank's for such calls."""
        key = hashed(key)
        number = self._numbers.get(key)
        if number is None:
            self._given += 1
            number = self._numbers[key] = self._given
            if len(self._numbers) > _KNOWN:
                self._forget_numbers()
        return number

    def _forget_numbers(self) -> None:
        """Of those that no bank goes by; a call of such a one is new."""
        used = {bank.key[bank.circle.rank] for bank in self.all.values()}
        for key in [k for k, n in self._numbers.items() if n not in used
                    and n != self._given]:
            del self._numbers[key]

    def _decide(self, said, *call) -> None:
        """Of the flight, what all decide."""
        self._flight = self.owner.forward()
        self._bank, self._why = None, ("ranks", "")
        numbers = tuple(number for number, *_ in said)
        if not all(numbers):
            rank = numbers.index(0)
            reason = _REASONS[said[rank][1]]
            self._why = "ranks", (
                f"rank {rank} runs a microbatch eagerly"
                f"{reason and f' ({reason})'}, so all ranks do")
            return
        segment, key, tensors, args, kwargs = call
        # Of another group the same numbers are of other ranks.
        circle = self.owner.ranks.circle
        by = *numbers, circle
        bank = self.all.get(by) or self._know(by, *call)
        bank.circle = circle
        self._bank = bank
        may = self._count_flight(bank)
        trials = [rank for rank, (*_, trial, _) in enumerate(said) if trial]
        if trials:
            self._why = "warmup", (
                f"rank {trials[0]} is given less of a packed argument than "
                "its room for the first time, and all ranks try it")
        bank.is_open = may and not trials and (
            bank.has_graphs or self._make_room(segment, bank))

    # ---- room -----------------------------------------------------------

    @property
    def _enough(self) -> int:
        """Ranks that are always the same ask each other from then on, and each
        says whether it is enough."""
        return self._needed if self.owner.ranks.varies else TWICE

    def _make_room(self, segment, bank: Bank) -> bool:
        """For graphs of it, if it may be recorded on all ranks."""
        with_graphs = [b for b in self.declared if b.has_graphs]
        is_full = len(with_graphs) >= self.most
        if is_full or self.owner.ranks.varies:
            # All ranks of a group find the same one in their order.
            least = min((b for b in with_graphs if b.circle is bank.circle),
                        key=lambda b: b.last, default=None)
            may_go = least is not None \
                and bank.has_come(self._needed, least.last) \
                and self._is_ready(segment, bank) \
                and not self._is_in_flight(least)
            answer = _GOES * may_go if is_full else _ROOM + _GOES * may_go
            said = [rank for rank, in self.owner.ranks.ask(segment, ROOM,
                                                           answer)]
            common = functools.reduce(operator.and_, said)
            if not common:
                rank = next((i for i, each in enumerate(said) if not each),
                            said.index(min(said)))
                self._why = "banks", (
                    f"rank {rank} cannot let another shape's graphs "
                    f"go for it now{self.of_groups()}")
                return False
            if not common & _ROOM:
                self._let_go(least, bank)
        self._found_room(bank)
        return True

    def _found_room(self, bank: Bank) -> None:
        if bank.number is None:
            self._declare(bank)
        if bank.number not in self._shared:
            self.owner.ranks.share(bank.number)
            self._shared.add(bank.number)

    def of_groups(self) -> str:
        if not self.owner.ranks.varies:
            return ""
        return (f", as {self.most} have them, for several process groups: "
                f"attach with max_banks={2 * self.most}")

    @staticmethod
    def _is_ready(segment, bank: Bank) -> bool:
        """Whether this rank has seen what a recording has to know."""
        signature = bank.of.get(segment.index)
        return signature is not None and signature.warm \
            and not (signature.unfit or signature.refused) \
            and segment.chain.is_known(signature)

    def _is_in_flight(self, bank: Bank) -> bool:
        """Whether a backward may come to a forward of it."""
        return any(
            number == bank.number and instance.node is not None
            and instance.node() is not None
            for segment in self.owner.segments
            for (number, _), instance in segment.instances.items())

    def _let_go(self, bank: Bank, other: Bank) -> None:
        """Its graphs, on all ranks."""
        owner = self.owner
        if any(s.parameters.are_written_for_others(other.number)
               for s in owner.segments):
            owner.move_gradients_out()
        owner.ranks.clear(bank.number)
        self._shared.discard(bank.number)
        self._give_way(bank)

    def _look_who_gave_way(self, bank: Bank) -> None:
        """None does by itself."""

    # ---- what is said ---------------------------------------------------

    def run_eagerly(self, segment) -> None:
        """A call of a bank that is closed."""
        reason, why = self._why
        if reason == "ranks":
            super().run_eagerly(segment)
        else:
            self.owner.count(reason, segment.name, why)

    def _difference(self, then: Bank, bank: Bank) -> tuple:
        mine = self.owner.ranks.rank
        if then.circle is not bank.circle or then.key[mine] != bank.key[mine]:
            return super()._difference(then, bank)
        rank = next(r for r, (a, b) in enumerate(zip(then.key, bank.key))
                    if a != b)
        return f"rank {rank}", (f"what rank {rank} is given is of another "
                                "shape"), True

    def _besides(self, bank: Bank) -> str:
        """Ranks count their shapes from 1."""
        said = super()._besides(bank)
        alike = [b for b in self.declared
                 if b.name == bank.name and b is not bank
                 and b.circle is bank.circle]
        others = [f"rank {rank}: its shape {number}"
                  for rank, number in enumerate(bank.key[:-1])
                  if rank != bank.circle.rank
                  and any(b.key[rank] != number for b in alike)]
        return ", ".join(filter(None, [said, *others]))
