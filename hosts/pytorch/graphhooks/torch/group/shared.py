"""A segment that several ranks run together: none leaves the others alone.

Each of its calls enters the library, also one that this rank is going to run
eagerly for a reason of the package's own: as a pass that no graph serves.  So
the library asks where it would ask anyhow.  Where the pass is to be recorded,
all run it eagerly; where it has a graph, a rank that finds itself alone gets
an error, and one that is not goes on eagerly with the others.

Calls of another mode, such as those of evaluation, are no passes of a
microbatch.  The ranks say so to each other where there are graphs to be left.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes

from torch import is_grad_enabled
from torch.cuda import is_current_stream_capturing as is_capturing

from ... import _abi
from ...errors import Error
from ..base.private import is_transformed, is_within_any, raw_stream
from ..base.questions import BESIDE, SPENT
from ..record import checkpoint
from ..step.segment import Segment
from ..step.eligibility import trains
from ..step.forward_wrapper import Site

_MUCH = 1 << 40  # bytes that no input has
_FAILED = b"its recording has failed, here or on another rank, whose log " \
    b"says why"


class Asking(Site):
    """One that asks before it runs eagerly in the place of a graph, and before
    it is tried."""

    def run(self, *args, **kwargs):
        segment = self.segment
        if segment.is_due:
            segment.before_eager()
        if self.packed is not None and segment.meets:
            return self.packed.run_together(self, args, kwargs)
        if self.given is not None:  # and nobody may try it alone
            args, kwargs = self.given.args, self.given.kwargs
        return self.play(*args, **kwargs)


class Shared(Segment):
    """With the passes by which it says that it cannot."""

    def __init__(self, *how):
        super().__init__(*how)
        self.is_due = False  # the call at hand has not asked
        self.meets = False  # other ranks make the pass at hand too
        self._agreed: set = set()  # who all have refused it, and know that
        self._before = -1, -1  # the step and the microbatch before the call
        self._unfit = [self._make_unfit(d) for d in (0, 1)]

    def _make_unfit(self, direction: int):
        """A pass with an input that is larger than it may be."""
        pass_ = self._make_pass(direction)
        self._word = ctypes.c_uint64()
        pass_.sizes = (ctypes.c_uint64 * 1)(1)
        pass_.capacities = pass_.sizes
        pass_.buffers[0].address = ctypes.addressof(self._word)
        pass_.buffers[0].bytes = _MUCH
        return pass_

    @property
    def is_agreed(self) -> bool:
        """All ranks of the call have refused it, and know that."""
        return self.owner.ranks.circle in self._agreed

    def agree(self, reasons: list) -> None:
        """What each rank refused it for at the attach, or None: one is enough
        for all."""
        for rank, why in enumerate(reasons):
            if why is not None:
                self.adopt(rank, why)
                return

    def refuse_while_heard(self, why: str) -> None:
        """For good: the other ranks do not hear when hooks go."""
        self.refuse(why)

    def adopt(self, rank: int, why: str) -> None:
        """What a rank has refused, all have; of the many groups that there
        may be, its number in the world tells which it was."""
        circle = self.owner.ranks.circle
        self._agreed.add(circle)
        self.is_due = self.meets = False
        if self.refused is None:
            self.refuse(f"rank {circle.members[rank]} runs it eagerly: {why}")

    def drop(self, why: str) -> None:
        self.refuse(why)
        if not self.owner.ranks.varies:
            self._agreed.add(self.owner.ranks.circle)
            self.is_due = self.meets = False

    # ---- forward --------------------------------------------------------

    def _lead(self, *call):
        return self._asking(super()._lead, *call)

    def pass_by(self, site, args, kwargs, why: str) -> bool:
        """The others wait for nobody: they run it eagerly from now on."""
        if self.refused is None:
            self.refuse(why)
        self.owner.count("refused")
        self._asking(self._pass_by, site, args, kwargs)
        return True

    def _pass_by(self, *_) -> None:
        if self.is_due:
            self.before_eager()

    def _lead_under(self, hook, *call):
        if checkpoint.region(hook)[1]:  # once more, as the first time
            self.owner.ranks.meet(*call)
            self.meets = False
            return super()._lead_under(hook, *call)
        return self._asking(super()._lead_under, hook, *call)

    def _asking(self, lead, *call):
        self.owner.ranks.meet(*call[-3:])
        self.is_due = self.meets = not self.is_agreed
        self._before = self.owner.steps, self.seen
        try:
            return lead(*call)
        finally:
            self.is_due = False

    def enter(self, *how, **more) -> int:
        self.is_due = False  # the library asks
        try:
            return super().enter(*how, **more)
        except Error as error:
            raise self.owner.ranks.explained(error) from None

    def exit(self, direction: int, outputs) -> int:
        status = super().exit(direction, outputs)
        if status == _abi.GH_RERUN:
            self.owner.error.text = _FAILED
            if direction == 0:
                self._let_slot_go()
        return status

    def _let_slot_go(self) -> None:
        """It has run nowhere: the slot is free, as where it was given up."""
        pass_ = self._unfit[0]
        pass_.microbatch = self.owner.microbatch
        pass_.bank = self.owner.banks.number
        pass_.stream = raw_stream(self.owner.device) or None
        pass_.flags = _abi.GH_PASS_NO_EXIT | _abi.GH_PASS_LOCAL  # ask nobody
        if pass_.enter() >= 0:
            self.owner.cancel(None)

    def before_eager(self) -> None:
        """The library has not been asked, and the modules are about to run."""
        self.is_due = False
        if self._is_beside():
            self.meets = False
            if self.instances:
                self._say_beside()
            return
        self._count_in()
        banks = self.owner.banks
        if not banks.is_eager(self):
            self._decline(0, self.owner.microbatch, banks.number,
                          for_good=self.refused is not None
                          and not self.instances)

    def _is_beside(self) -> bool:
        """Whether the call is no pass of a microbatch."""
        return not is_grad_enabled() or not trains(self) \
            or is_transformed() or is_capturing() \
            or is_within_any(self.owner.passes)

    def _count_in(self) -> None:
        """As a call that has come further has been."""
        owner = self.owner
        if self.seen == owner.microbatch \
                and (owner.steps, self.seen) != self._before:
            return
        if owner.stepped:
            owner.step()
        if self.seen == owner.microbatch:
            owner.next_microbatch(self.seen + 1)
        self.seen = owner.microbatch

    def _say_beside(self) -> None:
        """Ranks that replay do not say so, and are waited for in vain."""
        ranks = self.owner.ranks
        try:
            ranks.ask(self, BESIDE)
        except Error as error:
            raise ranks.explained(error, here=True) from None

    # ---- what the library is told ---------------------------------------

    def _decline(self, direction: int, microbatch: int, bank: int,
                 for_good=False, flags=0) -> None:
        """A pass that cannot be, here; for good: one that would be recorded,
        and is given up."""
        owner = self.owner
        pass_ = self._unfit[direction]
        pass_.microbatch, pass_.bank = microbatch, bank
        pass_.stream = raw_stream(owner.device) or None
        pass_.flags = _abi.GH_PASS_NO_EXIT | flags
        pass_.n_inputs = 0 if for_good else 1
        status = pass_.enter()
        if status >= 0:
            owner.cancel(None)
        if owner.lost:
            raise owner.lost.pop()
        try:
            owner.check(status)
        except Error as error:
            raise owner.ranks.explained(error, here=direction == 0) from None

    # ---- backward -------------------------------------------------------

    def backward(self, instance, microbatch: int, grads):
        self.owner.ranks.meet_again(instance)
        return super().backward(instance, microbatch, grads)

    def must_run_again(self, instance) -> bool:
        """Where one rank must, all do, as its modules hold collectives."""
        self.owner.ranks.meet_again(instance)
        return bool(self.owner.ranks.worst(
            self, SPENT, super().must_run_again(instance)))

    def decline_backward(self, instance, microbatch: int) -> None:
        """For good, on all: none comes by the forward's graph again."""
        self._decline(1, microbatch, instance.flight[0], True,
                      _abi.GH_PASS_PREPARE)

    def run_back(self, instance, microbatch: int, grads):
        """What is wrong before the library is asked may be so on one rank."""
        self.is_due = instance.live is None
        try:
            return super().run_back(instance, microbatch, grads)
        except Error:
            if self.is_due:
                self._decline(1, microbatch, instance.flight[0])
            raise
        finally:
            self.is_due = False
