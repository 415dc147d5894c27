"""Gives the memory of graphs back, and takes it again: attached.suspend() and
attached.resume().

What a replay reads of the pools it has written before, but for what somebody
keeps of an earlier one: gradients in `.grad`, and outputs.  Those get memory
of their own, as they do where another recording would overwrite them.  All
else that lies in the pools is lost, so nothing may wait for its backward.

Ranks of a group do it together, or none does.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib

import torch

from ... import _abi, _library
from ...errors import Error
from ..base import private, questions
from ..base.arena import Arena, check_settings
from ..base.memory import own_turn


def of(owner, wanted, driver):
    """The option suspends, of an attach."""
    if type(wanted) is not bool:
        raise Error(f"suspends is {wanted!r}; it is True or False")
    if not wanted:
        return Never()
    check_settings()
    return Suspension(owner, Arena(_library.load(), owner.device, driver))


class Never:
    """The memory of pools is torch's own."""

    arena = None
    is_now = False

    def suspend(self) -> None:
        raise Error("the addresses of graphs' memory are not reserved: attach "
                    "with suspends=True", _abi.GH_ERR_UNSUPPORTED)

    def resume(self) -> None:
        raise _state("the graphs are not suspended: call suspend() first")

    def refuse(self) -> None:
        """Of what needs the memory."""

    def stats(self) -> dict:
        return {}


class Suspension(Never):
    """Of an attach."""

    def __init__(self, owner, arena: Arena):
        self._owner = owner
        self.arena = arena

    def suspend(self) -> None:
        self.refuse()
        owner = self._owner
        self._agree(questions.SUSPEND, _what_is_open() or _in_flight(owner)
                    or _kept(owner))
        _move_gradients_out(owner)
        owner.evaluation.forget()
        given = []
        try:
            for session in _sessions(owner):
                session.suspend()
                given.append(session)
            self._suspend_pools()
        except Error as error:
            for session in given:
                with contextlib.suppress(Error):
                    session.resume()
            raise _spelled(owner, error) from None
        self.is_now = True

    def resume(self) -> None:
        if not self.is_now:
            super().resume()
        failed = None
        try:
            self.arena.resume()
        except Error as error:
            failed = error
        taken = []
        try:
            self._agree(questions.RESUME, failed)
            for session in _sessions(self._owner):
                session.resume()
                taken.append(session)
        except Error:
            for session in taken:
                with contextlib.suppress(Error):
                    session.suspend()
            if failed is None:
                self._suspend_pools()
            raise
        self.is_now = False

    def refuse(self) -> None:
        if self.is_now:
            raise _state("the graphs are suspended: call resume() first")

    def stats(self) -> dict:
        return {"pool_given": self.arena.stats()["given"]}

    def _suspend_pools(self) -> None:
        with own_turn():
            self.arena.sweep()
            self.arena.suspend()

    def _agree(self, about: int, why: Error | None) -> None:
        """Raises on all ranks if one of them has a reason."""
        owner = self._owner
        said = owner.ranks.agree(owner.segments[0], about,
                                 int(why is not None)) \
            if owner.segments else []
        if why is not None:
            raise why
        for rank, (failed,) in enumerate(said):
            if failed:
                raise _state(f"rank {rank} cannot, and its own error says "
                             "why: no rank does; call it again on all of them")


def _state(text: str) -> Error:
    return Error(text, _abi.GH_ERR_STATE)


def _sessions(owner) -> list:
    return [owner.session, *owner.evaluation.sessions()]


def _what_is_open() -> Error | None:
    if private.current_pass() >= 0:
        return _state("suspend() is called within a backward: call it after "
                      "that")
    if torch.cuda.is_current_stream_capturing():
        return _state("suspend() is called within a capture: call it after "
                      "that")
    return None


def _in_flight(owner) -> Error | None:
    """Of the step at hand."""
    for segment in owner.segments:
        if segment.is_under_way():
            return _state(f"{segment.name} is in flight, as its forward has "
                          "run and its backward has not: go back first, or "
                          "end the step with attached.step()")
        if segment.late is not None and segment.late.is_waiting():
            return _state(f"{segment.name} is in flight, as the gradients of "
                          "its weights are still to be computed: do that "
                          "first, or end the step with attached.step()")
    return None


def _kept(owner) -> Error | None:
    """Outputs that somebody keeps get memory of their own, if they can."""
    name = owner.outputs.move_all_out()
    return None if name is None else _state(
        f"somebody keeps what {name} has returned, where it cannot be moved: "
        "let go of it first, or keep clones")


def _move_gradients_out(owner) -> None:
    if any(s.parameters.are_written() for s in owner.segments):
        owner.move_gradients_out()
    for segment in owner.segments:
        segment.copy_out()


def _spelled(owner, error: Error) -> Error:
    """The library knows of forwards that nobody can go back through."""
    names = [s.name for s in owner.segments
             if any(i.node is not None for i in s.instances.values())]
    if error.status != _abi.GH_ERR_STATE or not names \
            or "in flight" not in str(error):
        return error
    return _state(f"{names[0]} is in flight, as its forward has run, and its "
                  "backward has not and cannot: end the step with "
                  "attached.step() first")
