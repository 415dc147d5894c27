"""Ranks that are others in each microbatch: those of the process group in an
argument, as with dynamic context parallelism.

attach(group="packed_seq_params.cp_group") says which argument that is.  Each
rank has graphs for each group that it meets, and asks the ranks of that one
alone: so it needs no more than it has groups, however the others are divided,
and ranks may have different numbers of microbatches.

What one rank has refused, another one hears where they meet.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import torch

from ...errors import Error
from ..base import private
from ..base.tree import Unfit
from ..shapes.banks import Banks
from ..shapes.packed import parameters_of, value_of
from .ranks import SEEN, Circle, Ranks
from .together import Together


class _Nobody:
    """Nobody has been met yet."""

    members, failed = (), None
    rank, size = 0, 2


class Varying(Ranks):
    """Those of the group of each call."""

    varies = True

    def __init__(self, owner, path: str):
        self._name, _, self._inner = path.partition(".")
        self._path = path
        super().__init__(owner, None)
        self.banks = Several
        if self.most_banks == 1:
            raise Error(f"max_banks is 1, and group=\"{path}\" has graphs for "
                        "each process group: leave max_banks out")
        self._circles: dict = {}  # by process group
        self._by_bank: dict = {}
        self._settings: dict = {}  # of the attach
        self._places: dict = {}  # of the argument, by site

    def _circle(self, group):
        return _Nobody()

    def begin(self, **settings) -> None:
        self._settings = settings

    # ---- who they are ---------------------------------------------------

    def meet(self, site, args, kwargs) -> None:
        group = self._group(site, args, kwargs)
        circle = self._circles.get(group)
        self.circle = self._make(group) if circle is None else circle

    def meet_again(self, instance) -> None:
        self.circle = self._of_bank(instance.flight[0])

    def _group(self, site, args, kwargs):
        place = self._places.get(site, self)
        if place is self:
            places, _ = parameters_of(site)
            place = self._places[site] = places.get(self._name)
        group = value_of(args, kwargs, self._name, place, self._inner)
        return group if isinstance(group, torch.distributed.ProcessGroup) \
            else None

    def _make(self, group):
        """All of its ranks come here at the same call."""
        members = [torch.distributed.get_rank()] if group is None else \
            torch.distributed.get_process_group_ranks(group)
        circle = self._circles[group] = Circle(members)
        self.circle = circle
        if circle.size > 1:
            circle.open(self.owner)
            circle.compare(self.owner, self._settings)
        return circle

    def share(self, bank: int) -> None:
        self._by_bank[bank] = self.circle
        if self.circle.size > 1:
            super().share(bank)

    def _of_bank(self, bank: int):
        return self._by_bank.get(bank, self.circle)

    def agree(self, segment, about: int, *answers) -> list:
        """There are no ranks that are always the same."""
        return [answers]

    def recorded(self, run):
        """Of a capture: with no group, there are no collectives."""
        if self.circle.size > 1:
            return run()
        before = private.collectives()
        outputs = run()
        if private.collectives() != before:
            raise Unfit(SEEN.replace("attach with group=, the process group "
                                     "of those ranks", f"{self._path} has no "
                                     "other rank: give group= one that has"))
        return outputs

    # ---- what has failed ------------------------------------------------

    def _failed(self) -> str | None:
        return next((c.failed for c in (self.circle, *self._circles.values())
                     if c.failed is not None), None)

    def _members(self) -> set:
        return {rank for c in self._circles.values() for rank in c.members}

    def close(self) -> None:
        for circle in self._circles.values():
            circle.close()


class Several(Together):
    """Banks of several groups.  Of those that this rank has alone the library
    lets the least recently used go by itself."""

    def _has_room(self, bank) -> bool:
        """Of others, they say to each other whether there is some."""
        return bank.circle.size > 1 or super()._has_room(bank)

    def _may_go(self, bank) -> bool:
        return bank.circle.size == 1

    def _make_room(self, segment, bank) -> bool:
        if bank.circle.size > 1:
            return super()._make_room(segment, bank)
        with_graphs = [b for b in self.declared if b.has_graphs]
        if len(with_graphs) >= self.most \
                and not any(map(self._may_go, with_graphs)):
            self._why = "banks", "there is no room for its graphs" \
                + self.of_groups()
            return False
        self._found_room(bank)
        return True

    def _look_who_gave_way(self, bank) -> None:
        Banks._look_who_gave_way(self, bank)
