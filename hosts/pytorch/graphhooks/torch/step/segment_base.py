"""A segment that is called, with gradients or without them: what is known of
its calls, and who learns from the first of a kind.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from ..base import tree
from ..base.switches import switches
from ..record.instance import Instance
from ..record.c_passes import Planned


class Called(Planned):
    """What Segment and Evaluated are alike in.  Each has sites, and a chain of
    those after the first; and says in refuse() that it is eager for good, in
    leave_out() that it is for calls of a signature."""

    def __init__(self, owner, index: int, name: str):
        super().__init__(owner, index)
        self.name = name
        self.instances: dict[tuple, Instance] = {}  # by bank and slot
        self.told_settings: set = set()  # names of those that were others
        self.told: set = set()  # those of arguments
        self.refused: str | None = None  # why it is eager for good
        self.has_failed = False  # a recording, for what may pass
        self.others = 0  # calls that differed from those of their bank
        self.draws: bool | None = None  # random numbers, as eager passes did
        self.writes = False  # buffers, as eager passes did
        # By kind of checkpointing around it: whether the second run begins
        # with the random numbers of the first.
        self.sets_back: dict[tuple, bool] = {}
        self.broken = None  # why its modules are not called in a row
        # Why it is none itself, if its pieces may be graphs, and where.
        self.splits: tuple | None = None
        self._look = None  # the owner's last look at torch's switches

    def switches(self) -> tuple:
        """Of torch, as the first call of this pass found them: to look is
        slow, and who is called again since the last look is in another."""
        owner = self.owner
        if self._look is owner.look:
            owner.look, found = object(), switches()
            if found != owner.switches:
                owner.switches = found
        self._look = owner.look
        return owner.switches

    gather = staticmethod(tree.gather_call)

    def give_up(self, signature, why: str) -> None:
        """A recording has failed: so may those of other banks, but those that
        are there stay."""
        if all(bank == signature.bank.number for bank, _ in self.instances):
            self.refuse(why)
        else:
            self.leave_out(signature, why)

    def wide_ones(self, tensors) -> tuple:
        """Indices of tensors that graphs are given closed up."""
        return ()

    def learn(self, signature, site, tensors, args, kwargs):
        """The first call of its kind is eager, and so is its backward, to see
        how modules hang together and what is used elsewhere too."""
        banks = self.owner.banks
        if signature.broken is not None:
            self.broken = signature.broken
            self.give_up(signature, signature.broken + "; granularity layer "
                         "allows that")
            return site.run(*args, **kwargs)
        if self.instances:
            banks.run_first(self, signature.bank)
        else:
            banks.warm_up(self, signature.bank)
        return self.chain.watch(signature, site, tensors, args, kwargs)
