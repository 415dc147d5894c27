"""Layers with collectives, which several ranks run together.

A graph that holds a collective is launched by all its ranks or by none
(graphhooks/ranks.h).  attach(group=) says which ranks those are, and then the
library asks them where they could part.  What it asks goes through a group of
gloo's, made for these ranks: it may be asked while a capture is open, which a
message in the host's memory does not disturb.

Without a group nobody is asked, and so a layer in which a collective is seen
has no graph.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import datetime
import os
import re

import torch

from ... import _abi
from ...errors import Error
from ..base import private, questions
from ..base.memory import synchronize
from ..base.private import raw_stream
from ..base.tree import Unfit
from ..shapes.banks import Banks
from ..step.segment import Segment
from ..step.forward_wrapper import Site
from .arrivals import SOON, Arrivals
from .shared import Asking, Shared
from .together import Together

_WORDS = 24  # that the library says at once
_SECONDS = 60  # unless GRAPHHOOKS_TIMEOUT or timeout= says otherwise
_made: dict = {}  # groups of gloo and Arrivals, by ranks and seconds
SEEN = ("a collective of torch.distributed runs in it, which all its ranks "
         "have to record and launch together: attach with group=, the process "
         "group of those ranks")


def of(owner, group):
    """Those of an attach."""
    if group is None:
        return Alone(owner)
    if isinstance(group, str) and torch.distributed.is_available() \
            and torch.distributed.is_initialized():
        from .varying import Varying  # which is built on what is here

        return Varying(owner, group)
    if not torch.distributed.is_available() \
            or not isinstance(group, torch.distributed.ProcessGroup):
        raise Error(f"group is {group!r}; it is a process group of "
                    "torch.distributed, such as dist.group.WORLD, whose ranks "
                    "run the layers together, the name of an argument that "
                    "has it, or None")
    if torch.distributed.get_world_size(group) == 1:
        return Single(owner)
    return Ranks(owner, group)


class Single:
    """A rank that decides for itself: its group has no other."""

    segment, site, banks = Segment, Site, Banks
    most_banks = 65536  # the library's GH_BANKS
    size = 1
    asked = 0  # how often, besides the library
    tries_again = True  # a recording that has failed, for what may pass
    varies = False  # there are others in each microbatch
    circle = None  # whom it is asked at hand

    def __init__(self, owner):
        self.owner = owner

    def begin(self, **settings) -> None:
        """The segments are attached."""

    def worst(self, segment, about: int, answer: int) -> int:
        """Of what all ranks answer at one call of a segment: the largest."""
        return answer

    def ask(self, segment, about: int, *answers) -> list:
        """What each rank answers where all of them are at one call of a
        segment."""
        return [answers]

    def agree(self, segment, about: int, *answers) -> list:
        """The same at the end of a step, of all ranks that there are."""
        return self.ask(segment, about, *answers)

    def recorded(self, run):
        """Of a capture."""
        return run()

    def wait(self) -> None:
        torch.cuda.current_stream(self.owner.device).synchronize()

    def rest(self) -> None:
        """Before the session closes."""
        synchronize(self.owner.device)

    def close(self) -> None:
        """After that."""


class Watched(Site):
    """One whose collectives nobody has told of."""

    def run(self, *args, **kwargs):
        segment = self.segment
        if segment.refused is not None \
                or torch.cuda.is_current_stream_capturing():
            return super().run(*args, **kwargs)
        before = private.collectives()
        result = super().run(*args, **kwargs)
        if private.collectives() != before:
            segment.refuse(SEEN)
        return result


class Alone(Single):
    """Nobody has said that there are others: there are no collectives, or
    they are refused."""

    site = Watched

    def recorded(self, run):
        before = private.collectives()
        outputs = run()
        if private.collectives() != before:
            raise Unfit(SEEN)
        return outputs


class Circle:
    """Ranks that ask each other, by a group of gloo's; this one is of them."""

    def __init__(self, members: list):
        self.members = members
        self.rank = members.index(torch.distributed.get_rank())
        self.size = len(members)
        self.failed: str | None = None  # why nobody is asked any more
        self._gloo = self._key = None  # a group of the same ranks
        # Said and heard: how many words, and the words.
        self._mine = (ctypes.c_int64 * (1 + _WORDS))()
        self._all = [(ctypes.c_int64 * (1 + _WORDS))()
                     for _ in members]

    def open(self, owner) -> None:
        environment = os.environ.get("GRAPHHOOKS_TIMEOUT")
        seconds = environment or owner.options.get("timeout") or _SECONDS
        world = torch.distributed.group.WORLD
        self._key = world, *self.members, int(seconds)
        if self._key not in _made:
            earlier = sum(key[:-1] == self._key[:-1] for key in _made)
            name = f"graphhooks {earlier} of {self.members}"
            try:
                with private.name_of_groups(name):
                    group = torch.distributed.new_group(
                        self.members, backend="gloo",
                        use_local_synchronization=True,
                        timeout=datetime.timedelta(seconds=int(seconds)),
                        group_desc="graphhooks")
                _made[self._key] = group, Arrivals(
                    group.group_name, self.members, self.rank)
            except Exception as failure:
                raise Error("group: the ranks ask each other by gloo, and no "
                            "group of it can be made: "
                            f"{_first_line(failure)}",
                            _abi.GH_ERR_RANKS) from failure
        self._gloo, self._arrivals = _made[self._key]
        self._tensors = [torch.frombuffer(words, dtype=torch.int64)
                         for words in (self._mine, *self._all)]

    def say(self, words) -> list:
        """Those of each rank, in their order."""
        if self.failed is not None:
            raise Error(self.failed, _abi.GH_ERR_RANKS)
        n = len(words)
        self._mine[0] = n
        for i, word in enumerate(words, 1):
            self._mine[i] = word  # of 64 bits, with or without a sign
        mine, *every = self._tensors
        self._arrivals.turn += 1
        try:
            all_gather(every, mine, self._gloo, self._arrivals)
        except Exception as failure:
            self.failed = self._arrivals.whoever_is_absent() \
                + _first_line(failure)
            raise
        for rank, theirs in enumerate(self._all):
            if theirs[0] != n:
                self.failed = f"rank {rank} asks something else"
                raise Error(self.failed, _abi.GH_ERR_RANKS)
        return [theirs[1:1 + n] for theirs in self._all]

    def compare(self, owner, settings: dict) -> list:
        """What the ranks attach, which is the same on all; of each rank, why
        it has refused segments."""
        refused = {s.name: s.refused for s in owner.segments if s.refused}
        mine = settings, [s.name for s in owner.segments], refused
        every = [None] * self.size
        torch.distributed.all_gather_object(every, mine, group=self._gloo)
        for rank, theirs in enumerate(every):
            self._compare(rank, theirs, mine)
        return [of_rank[2] for of_rank in every]

    def _compare(self, rank: int, theirs, mine) -> None:
        for name, value in mine[0].items():
            if theirs[0][name] != value:
                raise Error(f"{name} is {theirs[0][name]!r} on rank {rank}, "
                            f"and {value!r} on rank {self.rank}: ranks that "
                            "share layers attach them alike",
                            _abi.GH_ERR_CONFIG)
        if theirs[1] != mine[1]:
            raise Error(f"rank {rank} attaches {', '.join(theirs[1])}, and "
                        f"rank {self.rank} {', '.join(mine[1])}: ranks that "
                        "share layers attach the same", _abi.GH_ERR_CONFIG)

    def close(self) -> None:
        """The group stays for the next attach, unless the ranks have parted:
        torch would give its name, and what is said of it, to another."""
        if self.failed is not None:
            _made.pop(self._key, None)


class Ranks(Single):
    """All of a group."""

    segment, site = Shared, Asking
    tries_again = False  # the library gives it up on all of them

    def __init__(self, owner, group):
        super().__init__(owner)
        if _is_one(owner):
            self.most_banks, self.banks = 1, Banks
        else:
            self.banks = Together
        self.circle = self._circle(group)
        self._has_aborted = False  # the process groups
        self._calls = _abi.GATHER_FN(self._gather), _abi.ABORT_FN(self._abort)

    def _circle(self, group):
        dist = torch.distributed
        if dist.get_rank(group) < 0:
            raise Error("group is one that this process is not in: give the "
                        "group of the ranks that run the layers together")
        return Circle(dist.get_process_group_ranks(group))

    @property
    def rank(self) -> int:
        return self.circle.rank

    @property
    def size(self) -> int:
        return self.circle.size

    def meet(self, site, args, kwargs) -> None:
        """Those of a call are the ones to ask."""

    def meet_again(self, instance) -> None:
        """Those of its forward are."""

    # ---- a beginning ----------------------------------------------------

    def begin(self, **settings) -> None:
        owner = self.owner
        self.circle.open(owner)
        self.share(0)
        every = self.circle.compare(owner, settings)
        for segment in owner.segments:
            segment.agree([refused.get(segment.name) for refused in every])

    def share(self, bank: int) -> None:
        """The graphs of a bank of the session."""
        owner, circle = self.owner, self.circle
        gather, abort = self._calls
        ranks = _abi.make(_abi.gh_ranks, bank=bank, rank=circle.rank,
                          size=circle.size, gather=gather, abort=abort)
        try:
            owner.check(owner.api.ranks_set(owner.handle, ctypes.byref(ranks),
                                            ctypes.byref(owner.error)))
        except Error as error:
            raise self.explained(error) from None

    def clear(self, bank: int) -> None:
        """Of share(); the bank's graphs are destroyed.  Waits for them."""
        owner = self.owner
        try:
            owner.check(owner.api.ranks_clear(owner.handle, bank,
                                              ctypes.byref(owner.error)))
        except Error as error:
            raise self.explained(error) from None

    # ---- what ranks say -------------------------------------------------

    def _of_bank(self, bank: int) -> Circle:
        return self.circle

    def _gather(self, _user, bank, mine, every, n) -> int:
        """As graphhooks/ranks.h has it; in a thread that may capture."""
        try:
            said = self._of_bank(bank).say(mine[:n])
        except Exception:  # which say() keeps
            return _abi.GH_ERR_RANKS
        except BaseException as interrupt:
            self.owner.lost.append(interrupt)
            return _abi.GH_ERR_RANKS
        for i, words in enumerate(said):
            for k, word in enumerate(words):
                every[i * n + k] = word
        return _abi.GH_OK

    def ask(self, segment, about: int, *answers) -> list:
        circle = self.circle
        if circle.size == 1:
            return [answers]
        self.asked += 1
        mine = [about, segment.index, *answers]
        mine += [0] * (questions.WORDS - len(mine))
        try:
            said = circle.say(mine)
        except Exception as failure:  # which say() keeps
            raise self.part(segment) from failure
        for rank, theirs in enumerate(said):
            if theirs[:2] != mine[:2]:
                circle.failed = f"rank {rank} is elsewhere, at " \
                    + questions.place(*theirs[:2], self.owner.segments)
                raise self.part(segment)
        return [theirs[2:2 + len(answers)] for theirs in said]

    def worst(self, segment, about: int, answer: int) -> int:
        return max(said for said, in self.ask(segment, about, int(answer)))

    def _failed(self) -> str | None:
        return self.circle.failed

    def part(self, segment) -> Error:
        """The graphs are destroyed, and what waits for other ranks ends; what
        there is to raise."""
        owner = self.owner
        microbatch = 0 if owner.stepped else owner.microbatch
        world = self.circle.members[self.rank]
        whose = "" if world == self.rank else f" (rank {world} of all)"
        where = (f"rank {self.rank} of {self.size}{whose}, step "
                 f"{owner.steps + owner.stepped}, {segment.name}, microbatch "
                 f"{microbatch}: ")
        why = self._failed()
        owner.api.ranks_abort(owner.handle, why.encode(),
                              ctypes.byref(owner.error))
        return Error(where + why, _abi.GH_ERR_RANKS)

    def explained(self, error: Error, here=False) -> Error:
        """With what gloo says, and, of a call that is eager here, why."""
        said, why = [], self._failed()
        if why is not None and why not in str(error):
            said.append(why)
        if here:
            reason, why = self.owner.counted
            said.append("here it is eager: " + (why or reason))
        if error.status != _abi.GH_ERR_RANKS or not said:
            return error
        return Error(f"{error} ({'; '.join(said)})", error.status)

    # ---- an end ---------------------------------------------------------

    def _members(self) -> set:
        return set(self.circle.members)

    def _abort(self, _user, _bank) -> None:
        """What waits in a group of theirs for a rank that does not come."""
        if self._has_aborted:  # of each bank
            return
        self._has_aborted = True
        members = self._members()
        for group, backend in private.gpu_groups():
            if members.issuperset(
                    torch.distributed.get_process_group_ranks(group)):
                try:
                    backend.abort()
                except Exception as failure:
                    self.owner.say(self.owner.segments[0].name, "its process "
                                   "group could not be aborted: "
                                   + _first_line(failure))

    def wait(self) -> None:
        owner = self.owner
        stream = raw_stream(owner.device) or None
        try:
            owner.check(owner.api.ranks_wait(owner.handle, stream,
                                             ctypes.byref(owner.error)))
        except Error as error:
            raise self.explained(error) from None

    def rest(self) -> None:
        """The session waits for what is left, as long as for a rank."""
        try:
            self.wait()
        except Error:  # which has been said
            return
        super().rest()

    def close(self) -> None:
        self.circle.close()


def _is_one(owner) -> bool:
    """Whether all microbatches are of one shape, and nobody need ask of which
    it is.  A number that is none the library refuses."""
    most = os.environ.get("GRAPHHOOKS_MAX_BANKS") \
        or owner.options["max_banks"]
    return str(most).strip() == "1" and not owner.is_packed


def all_gather(every, mine, group, arrivals) -> None:
    dist = torch.distributed
    if dist.get_debug_level() == dist.DebugLevel.DETAIL:
        arrivals.note()  # the call itself waits then
    work = dist.all_gather(every, mine, group=group, async_op=True)
    try:
        work.wait(SOON)
    except RuntimeError:  # it has failed, or takes long
        arrivals.note()
        work.wait()


def _first_line(failure) -> str:
    """Without the file of gloo's that has found it, and what it advises."""
    line = re.sub(r"^\[[^]]*\] ", "", str(failure).split("\n", 1)[0])
    return line.split(". ", 1)[0] or type(failure).__name__
