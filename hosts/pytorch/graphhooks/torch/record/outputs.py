"""Copies out what somebody keeps of outputs, before a graph writes there.

A graph leaves its outputs in one place in each replay.  Who still has one of
an earlier pass by then, or a view of it, has its storage, which counts that.
Before the graph runs again such a storage is given memory of its own, with
what is in it, and the graph's stays with the instance.  From then on what the
segment returns are copies.

A storage that owns nothing, as those of banks that share memory (pools.py),
cannot be given other memory: while somebody has one, passes that would write
there run eagerly.  So they do where weight gradients that are computed later
read the output: they have its storage as well, and it has to stay where the
graph writes.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections
import contextlib
import gc

import torch

from ..base.memory import move_out, unowned
from ..base.names import package
from ..base.private import count_of_storage, number_of_storage
from .state import written

_WHY = ("somebody keeps what an earlier pass has returned, and a graph would "
        "overwrite it: keep clones")


def note(segment, instance, attributes) -> None:
    """What its outputs are in, and how often it has each of these itself.
    Tensors that are the modules' own are none of a graph's, nor is what lies
    in memory of the library, as what an exchange receives."""
    theirs = {t.untyped_storage().data_ptr() for t in (
        *segment.parameters.all,
        *written(segment, attributes, segment.settings))
        if t.layout == torch.strided}
    storages = [s for s in (o.untyped_storage() for o in instance.outputs)
                if s.nbytes() and s.resizable() and s.data_ptr() not in theirs]
    counts = collections.Counter(map(number_of_storage, storages))
    instance.storages = [
        _counted(s, 1 + counts[number]) for number, s
        in {number_of_storage(s): s for s in storages}.items()]


def held(instance) -> dict:
    """How many more autograd's graph of a recording is, of what its outputs
    are in, which nobody else has yet."""
    return {number: count_of_storage(number) - ours
            for _, number, ours in instance.storages}


@contextlib.contextmanager
def counting_work(segment, instance):
    """While its backward is recorded: what that leaves for weight gradients
    may have some of its outputs.  Nobody else is to let go of one meanwhile,
    as the collector of cycles might."""
    if segment.late is None:
        yield
        return
    collects = gc.isenabled()
    gc.disable()
    others = {number: count_of_storage(number) - ours
              - instance.holds.get(number, 0)
              for _, number, ours in instance.storages}
    try:
        yield
        if instance.live is None:
            _note_work(instance, others)
    finally:
        if collects:
            gc.enable()


def _note_work(instance, others: dict) -> None:
    def of_work(number, ours):
        return max(0, count_of_storage(number) - ours - others[number])

    instance.fixed = {number for _, number, ours in instance.storages
                      if of_work(number, ours)}
    if instance.fixed:
        gc.collect()  # autograd's graph may be such a cycle
    instance.storages = [(storage, number, ours + of_work(number, ours))
                         for storage, number, ours in instance.storages]


def be_unowned(segment, instance, pool) -> None:
    """Its outputs own nothing from now on, but keep the pool."""
    if segment.owner.ranks.size > 1:
        segment.copies = True  # as no rank runs eagerly alone
    numbers = {number for _, number, _ in instance.storages}
    known = [number_of_storage(o.untyped_storage()) in numbers
             for o in instance.outputs]
    instance.outputs = [unowned(o, pool) for o in instance.outputs]
    storages = [o.untyped_storage() for o, is_known
                in zip(instance.outputs, known) if is_known]
    instance.storages = [  # nobody else has these yet
        _counted(s, count_of_storage(number_of_storage(s)))
        for s in storages]
    instance.fixed = set()


class Outputs:
    """Those of an attach."""

    def __init__(self, owner):
        self.owner = owner
        self._flight = None  # before which they were looked at last
        self._are_free = True

    def may_run(self, segment) -> bool:
        """Of a forward, whether its flight overwrites nothing that somebody
        has: what one recording frees, a later one may return."""
        owner = self.owner
        flight = owner.steps, owner.microbatch
        if flight != self._flight:
            self._flight = flight
            self._are_free = self.are_free()
        if not self._are_free:
            owner.count("kept", segment.name, _WHY)
        return self._are_free

    def are_free(self) -> bool:
        """Nobody has an output by which it would be lost from now on."""
        found, steps = True, self.owner.steps
        for segment in self.owner.segments:
            for instance in segment.instances.values():
                # Of most that are under way somebody has the outputs, which is
                # no reason to look further.
                if not is_under_way(instance, steps) \
                        and self._has_others(instance):
                    found &= self._free(segment, instance)
        return found

    def move_all_out(self) -> str | None:
        """All that somebody has, of passes that are over; or the name of a
        segment with one that stays."""
        for segment in self.owner.segments:
            for instance in segment.instances.values():
                if self._has_others(instance) and (
                        not self._free(segment, instance)
                        or instance.live is not None
                        and self._is_kept(instance)):
                    return segment.name
        return None

    def copy_out(self, segment, instance) -> None:
        """It is about to let go of what its outputs are in."""
        if self._has_others(instance):
            self._free(segment, instance)

    def _has_others(self, instance) -> bool:
        """Somebody has one of its outputs, and will not let go of it."""
        for _, number, ours in instance.storages:
            if count_of_storage(number) > ours:
                self._forget()
                return any(count_of_storage(number) > ours
                           for _, number, ours in instance.storages)
        return False

    def _forget(self) -> None:
        """Nobody needs what an engine's layers have left of a pass that is
        over, nor a pass beside whose backward cannot come any more."""
        self.owner.verify.forget_lost()
        for segment in self.owner.segments:
            for site in segment.sites:
                forget = getattr(site.module, "forget", None)
                if package(type(site.module)) == "graphhooks" and forget:
                    forget()

    def _free(self, segment, instance) -> bool:
        """Somebody has one of its outputs."""
        split = segment.split
        if is_under_way(instance, self.owner.steps) \
                or split is not None and split.waits_for(instance):
            return True  # the pass is not over, and no graph comes there
        if instance.live is not None and segment.has_given_up(instance):
            instance.let_go(segment.settings)
        if instance.live is not None:  # whose backward reads what is there
            return self.owner.ranks.size > 1 or not self._is_kept(instance)
        segment.copies = found = True
        for i, (storage, number, ours) in enumerate(instance.storages):
            if count_of_storage(number) > ours:
                other = None if number in instance.fixed \
                    else move_out(instance.outputs, storage)
                if other is None:
                    found = False
                else:
                    instance.storages[i] = _counted(other, ours)
        return found

    def _is_kept(self, instance) -> bool:
        """By others than what waits for backwards to be recorded."""
        waiting: collections.Counter = collections.Counter()
        for segment in self.owner.segments:
            for other in segment.instances.values():
                if other.live is not None:
                    waiting.update(other.holds)
                    waiting.update(number_of_storage(t.untyped_storage())
                                   for t in other.watched())
        return any(count_of_storage(number) > ours + waiting[number]
                   for _, number, ours in instance.storages)

    def lines(self) -> list:
        """For explain()."""
        names = [s.name for s in self.owner.segments
                 if s.copies and s.refused is None]
        return [f"{', '.join(names)} returns copies of what its graph leaves, "
                "as somebody has kept an output until the next pass"] \
            if names else []


def is_under_way(instance, steps: int) -> bool:
    """Whether its backward is still to come, in the step at hand."""
    node = instance.node and instance.node()
    return node is not None and node.flight[3] == steps


def _counted(storage, ours: int) -> tuple:
    """With the number by which it is counted, and how often it is so if nobody
    else has it: by the object here, and by tensors."""
    return storage, number_of_storage(storage), ours
