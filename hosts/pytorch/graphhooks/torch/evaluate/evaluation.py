"""Graphs for passes without gradients, as of an evaluation: attach(eval=True).

Such a pass is a forward that no backward follows.  So it holds a slot for as
long as it runs: a session of its own has one slot, which each pass of the
model begins anew.  That slot's recordings lie in the pools of the training's
first slot, as those of another bank do (pools.py); a pass comes there only
when no backward waits for what lies in them, and else it runs eagerly.

What a caller is given is his: results are copied out of the pool, and stay as
they are whatever runs there next.  The next module's graph reads them in the
pool, as long as nobody has written the copy.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import os
import weakref

import torch
from torch import is_inference_mode_enabled

from ...errors import Error
from ...services import host_services
from ..base.memory import synchronize, versioned
from ..base.private import raw_stream, version
from ..record.session_owner import Owner
from ..shapes import banks
from .evaluated import Evaluated

SLOT = 0  # of the session's one, and of the training whose pools it takes
NO_BANK = -1  # of the training's
# Of steps of a training, which a pass is none of, or of nothing here.
_NOT_ITS = ("WARMUP_STEPS", "MAX_SLOTS", "FREEZE", "TRACE", "CHECK",
            "CHECK_EVERY", "OFFLOAD", "VERIFY")


def asked(wanted, graphs: bool, ranks) -> bool:
    """The option."""
    if type(wanted) is not bool:
        raise Error(f"eval is {wanted!r}; it is True or False")
    if wanted and not graphs:
        raise Error("eval=True is for graphs of evaluation, and graphs=False "
                    "turns graphs off: leave one of them out")
    if wanted and ranks.size > 1:
        raise Error("eval=True is for layers that a rank runs alone, and "
                    "group= has others: they evaluate eagerly together; leave "
                    "eval out")
    return wanted


class Nothing:
    """Evaluation is eager."""

    was_here = False  # since the training was last

    def sessions(self) -> list:
        return []

    def forget(self) -> None:
        pass

    def attach(self) -> None:
        pass

    def stats(self) -> dict:
        return {}

    def lines(self) -> list:
        return []

    def close(self) -> None:
        pass


class Evaluation(Owner):
    """That of an attach: what its segments need an owner for."""

    about = "in evaluation, "

    def __init__(self, training, open_session):
        super().__init__(training.notices, training.lost)
        self.training = training
        self.device = training.device
        self.options, self.layers = training.options, training.layers
        self.is_strict = training.is_strict
        self.names_passes = training.names_passes
        self.captures, self.things = training.captures, training.things
        self.ranks, self.packed = training.ranks, training.packed
        self.segments: list = []
        self.banks = banks.Banks(self)
        self.was_here = False
        self.passes = 0
        self._given: dict = {}  # by identity: copy, version, what it is of
        self._serial = 0  # of the graph that ran last
        self._ran = -1  # forwards of the training, when it was looked
        self._is_free = False  # the slot, by then
        self._frozen_at = _frozen_at(self.options)
        options = {name: value for name, value in self.options.items()
                   if not _is_left_out(name.upper())}
        self.take(open_session(
            {k: v for k, v in os.environ.items()
             if not _is_left_out(k.removeprefix("GRAPHHOOKS_"))},
            host_services(**self.captures.services(self._flight),
                          lost=self.lost),
            {**options, "max_slots": 1, "warmup_steps": 0}))

    def attach(self) -> None:
        """To all segments of the training."""
        for segment in self.training.segments:
            segment.evaluated = Evaluated(self, segment)
            self.segments.append(segment.evaluated)

    def sessions(self) -> list:
        return [self.session]

    def forget(self) -> None:
        """What lies in the pools is lost, and the slot is free; the rest of a
        pass reads copies."""
        self._given.clear()
        self.check(self.api.iteration_end(self.handle,
                                          ctypes.byref(self.error)))

    def close(self) -> None:
        for segment in self.segments:
            segment.end_pass()
            segment.instances.clear()
        self._given.clear()
        self.session.close()

    # ---- passes ---------------------------------------------------------

    def forward(self) -> tuple:
        """Which is at hand."""
        return (self.passes,)

    def begin(self) -> None:
        """A module comes once more, so the model does; what ran before has
        let the slot go."""
        self.passes += 1
        self._ran = -1
        self._given.clear()
        self.things.look()
        self.check(self.api.iteration_end(self.handle,
                                          ctypes.byref(self.error)))

    def may_run(self) -> bool:
        """Whether nobody waits for what is in the slot's pools, or keeps
        it."""
        ran = self.training.flights.count
        if self._ran != ran:
            self._ran = ran
            self._is_free = self._look_for_waiting() \
                and self.training.outputs.are_free()
            if self._is_free:
                self._follow()
        return self._is_free

    def _look_for_waiting(self) -> bool:
        abandoned = []
        for segment in self.training.segments:
            for (_, slot), instance in segment.instances.items():
                if slot != SLOT or instance.node is None:
                    continue
                if instance.node() is not None:
                    return False
                abandoned.append(instance)
        if abandoned:
            if self.training.offload.moves:
                # Who has begun to go back may have copies under way.
                synchronize(self.device)
            for instance in abandoned:
                instance.node = None
        return True

    def _follow(self) -> None:
        """What the training has issued on other streams."""
        now = raw_stream(self.device)
        others = {pass_.stream or 0 for segment in self.training.segments
                  for pass_, ran in zip(segment.passes, segment.addresses)
                  if ran} - {now}
        self._wait_for(others)

    def _wait_for(self, streams) -> None:
        current = torch.cuda.current_stream(self.device)
        for raw in streams:
            current.wait_stream(self.captures.stream_of(raw or None))

    def leave(self) -> None:
        """The training comes back to the pools."""
        self.was_here = False
        self._given.clear()
        self._wait_for({self._stream} - {raw_stream(self.device)})

    def may_record(self) -> bool:
        return self._frozen_at is None \
            or self.training.steps < self._frozen_at

    def make_way(self, serial: int) -> None:
        """Before a graph runs: no gradients are where it writes."""
        with versioned():
            self.training.make_way(serial, NO_BANK)

    def _flight(self, recording) -> tuple:
        """As the training's."""
        training = self.training
        bank = self.banks.declared[recording.bank]
        with versioned():
            if any(s.parameters.are_written_for_others(NO_BANK)
                   for s in training.segments):
                training.move_gradients_out()
            training.pools.hold(bank, SLOT)
        return training.pools.flight(bank, SLOT, self.forward())

    # ---- what goes from one module to the next --------------------------

    def read(self, tensors) -> list:
        """Where a graph reads these."""
        return [*map(self._place_of, tensors)] if self._given else tensors

    def _place_of(self, tensor):
        known = self._given.get(id(tensor))
        if known is None or known[0]() is not tensor \
                or known[1] != version(tensor):
            return tensor
        return known[2]

    def give(self, instance) -> tuple:
        """Its graph has run; what it has left, for the caller to keep.  Those
        that were recorded before it free what it may lie in."""
        if instance.serial < self._serial:
            self._given.clear()
        self._serial = instance.serial
        self._stream, self.was_here = raw_stream(self.device), True
        if is_inference_mode_enabled():
            # Those of that mode have no version.
            with versioned():
                copies = [o.clone() for o in instance.outputs]
        else:
            copies = [o.clone() for o in instance.outputs]
        for copy, output in zip(copies, instance.outputs):
            self._given[id(copy)] = weakref.ref(copy), version(copy), output
        return tuple(copies)

    # ---- what is said --------------------------------------------------

    def stats(self) -> dict:
        stats = self.session.stats()
        return {"eval": {
            "passes": self.passes, "recordings": stats["recordings"],
            "replays": stats["replays"], "eager_calls": dict(self.eager),
            "refused": {s.name: s.refused for s in self.segments
                        if s.refused},
            "banks": self.banks.stats()}}

    def lines(self) -> list:
        stats = self.session.stats()
        return [f"evaluation: {stats['recordings']} recordings, "
                f"{stats['replays']} replays"] \
            + [f"evaluation: {line}" for line in self.banks.lines()]


def _is_left_out(name: str) -> bool:
    return name in _NOT_ITS or name.startswith("OFFLOAD")


def _frozen_at(options) -> int | None:
    """The step from which on nothing is recorded."""
    def number(name, default):
        return int(os.environ.get(f"GRAPHHOOKS_{name.upper()}")
                   or options.get(name, default))

    freeze = number("freeze", 0)
    return number("warmup_steps", 1) + freeze if freeze else None
