"""Who has not come, where ranks of a group wait for each other.

Gloo says that somebody has not, and not who.  So whoever waits for longer than
ranks mostly do, or is left alone, notes in the store of torch.distributed that
it is there, and whoever gives up reads who has noted nothing.  Where all come
soon, nobody writes or reads anything.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections
import contextlib
import datetime
import threading
import time

from ..base import private

SOON = datetime.timedelta(seconds=1)  # in which ranks mostly come
_SECONDS = 2  # more than SOON, after which who came last notes that
_opened: collections.Counter = collections.Counter()


class Arrivals:
    """Of ranks that ask each other; all of them make it in the same order."""

    def __init__(self, members, rank: int):
        self._members, self._rank = tuple(members), rank
        _opened[self._members] += 1
        self._name = f"graphhooks {_opened[self._members]} of {members}"
        self.turn = 0  # which question this rank is at

    def note(self) -> None:
        """This rank is there."""
        key, turn = self._key(self._rank), str(self.turn)
        _in_time(lambda: private.default_store().set(key, turn))

    def whoever_is_absent(self) -> str:
        """In words, which end where those of a failure begin; nothing is said
        where all have come, or nobody can tell."""
        absent = [rank for rank in range(len(self._members))
                  if rank != self._rank]
        told: list = []
        _in_time(lambda: told.append(self._look(absent)))
        if not told or not absent:
            return ""
        names = ", ".join(self._shown(rank) for rank in absent)
        return f"rank{'s' * (len(absent) > 1)} {names} " \
            f"{'have' if len(absent) > 1 else 'has'} not come: "

    def _look(self, absent: list) -> None:
        """Takes those out who have come, or come soon."""
        store = private.default_store()
        end = time.monotonic() + _SECONDS
        while True:
            absent[:] = [rank for rank in absent
                         if not self._is_there(store, rank)]
            if not absent or time.monotonic() > end:
                return
            time.sleep(0.05)

    def _is_there(self, store, rank: int) -> bool:
        key = self._key(rank)
        return store.check([key]) and int(store.get(key)) >= self.turn

    def _key(self, rank: int) -> str:
        return f"{self._name}, rank {rank}"

    def _shown(self, rank: int) -> str:
        """As messages name ranks."""
        world = self._members[rank]
        return str(rank) + (f" (rank {world} of all)" if world != rank else "")


def _in_time(call) -> None:
    """A store may be of a rank that has gone."""
    def go() -> None:
        with contextlib.suppress(Exception):
            call()

    thread = threading.Thread(target=go, daemon=True,
                              name="graphhooks arrivals")
    thread.start()
    thread.join(_SECONDS + 1)
