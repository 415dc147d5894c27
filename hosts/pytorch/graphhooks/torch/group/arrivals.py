"""Who has not come, where ranks of a group wait for each other.

Gloo says that somebody has not, and not who.  So whoever waits for longer than
ranks mostly do, or is left alone, notes in the store of torch.distributed that
it is there, and whoever gives up reads who has noted nothing.  Where all come
soon, nobody writes or reads anything.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import threading
import time

from ..base import private
from ..base.notices import log

SOON = datetime.timedelta(seconds=1)  # in which ranks mostly come
# More than SOON, after which who came last notes that; and the longest that
# the store is waited for.
_SECONDS = 2
_LATE = 10  # where several are absent, of whom some may only be late
_say_once = functools.cache(log.warning)


class Arrivals:
    """Of ranks that ask each other by one group of gloo's.  They ask the same
    there, in one order, so that all count alike what they have asked."""

    def __init__(self, group: str, members, rank: int):
        self._group, self._members, self._rank = group, members, rank
        self.turn = 0  # which question this rank is at
        self._write()  # in the place of what a group of that name has left

    def note(self) -> None:
        """This rank is there; nobody waits until the store has it."""
        _ask(self._write, seconds=0)

    def whoever_is_absent(self) -> str:
        """In words, which end where those of a failure begin; nothing is said
        where all have come, or nobody can tell."""
        since = time.monotonic()
        absent = [rank for rank in range(len(self._members))
                  if rank != self._rank]
        while True:
            absent = _ask(self._look, absent)
            if not absent:
                return ""
            several = len(absent) > 1
            if time.monotonic() - since > (_LATE if several else _SECONDS):
                break
            time.sleep(0.1)
        names = ", ".join(self._shown(rank) for rank in absent)
        return f"rank{'s' * several} {names} " \
            f"{'have' if several else 'has'} not come: "

    def _write(self) -> None:
        private.default_store().set(self._key(self._rank), str(self.turn))

    def _look(self, ranks: list) -> list:
        """Those who have not come; they see that this one has."""
        self._write()
        store = private.default_store()
        return [rank for rank in ranks
                if not store.check([self._key(rank)])
                or int(store.get(self._key(rank))) < self.turn]

    def _key(self, rank: int) -> str:
        return f"{self._group}, rank {rank}"

    def _shown(self, rank: int) -> str:
        """As messages name ranks."""
        world = self._members[rank]
        return str(rank) + (f" (rank {world} of all)" if world != rank else "")


def _ask(call, *arguments, seconds=_SECONDS):
    """The store, whose process may have gone or be stopped; None if it does
    not answer in time."""
    answers: list = []

    def go() -> None:
        with contextlib.suppress(Exception):
            answers.append(call(*arguments))

    thread = threading.Thread(target=go, daemon=True,
                              name="graphhooks arrivals")
    try:
        thread.start()
    except RuntimeError as failure:  # there are too many
        _say_once(f"group=: {failure}, so that this rank names none that has "
                  "not come, and may be named itself: allow more threads "
                  "(ulimit -u); this is said once")
        return None
    thread.join(seconds)
    return answers[0] if answers else None
