"""Who has a session of the library's: how its calls are made, and what is kept
of calls that ran eagerly.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import os

from ... import _abi
from ...errors import Error, spell
from ..base.notices import EAGER, Notices


# Calls that are to run eagerly, and counts of calls that were graphs.
_EXPECTED = frozenset((
    "disabled", "plan", "warmup", "check", "host_capture", "forward_only",
    "empty", "paused", "partial_backward", "elsewhere", "zeros", "strides",
    "gradients_moved"))


def is_on(name: str, options: dict) -> bool:
    """Whether a variable of 0 or 1 is 1: it wins over the option."""
    asked = os.environ.get(f"GRAPHHOOKS_{name.upper()}") or options.get(name)
    return str(asked).lower() in ("1", "on", "yes", "true")


class Owner:
    """Of segments, whose passes go through its session."""

    about = ""  # what its sentences begin with

    def __init__(self, notices: Notices, lost: list):
        self.notices = notices
        self.lost = lost  # interrupts that came while C was at work
        self.error = _abi.gh_error()
        self.ran = 0  # calls that were graphs
        self.eager: dict[str, int] = {}  # how many others, by reason
        self.counted = "", None  # the last of them, and its sentence
        self.switches: tuple = ()  # of torch, as they were last read
        self.look = None  # by whom a look is told from the one before it
        self.is_strict = False  # other calls are to be graphs, or an error
        self.names_passes = False  # as ranges of torch's profiler
        self.segments: list = []

    def take(self, session) -> None:
        session.about = self.about
        self.session = session
        self.api, self.handle = session.api, session.handle

    def check(self, status: int) -> None:
        if status < 0:
            raise Error(spell(self.error.text.decode()), status)

    def cancel(self, reason) -> None:
        """The open pass, if there is one, runs as if nobody were attached."""
        self.check(self.api.layer_cancel(self.handle,
                                         ctypes.byref(self.error)))
        if reason is not None:
            self.count(self.api.reason_name(reason).decode())

    def count(self, reason: str, who: str = "", why: str | None = None,
              is_first=False):
        """A call that ran as if nobody were attached; `why` is said once of
        each segment.  With strict=True one raises that is not the first of
        its kind."""
        self.eager[reason] = self.eager.get(reason, 0) + 1
        self.counted = reason, why
        if why is not None:
            self.notices.add(EAGER, who, self.about + why)
        if self.is_strict and not is_first and reason not in _EXPECTED:
            self._fail(reason, who, why)

    def _fail(self, reason: str, who: str, why: str | None):
        refused = [s for s in self.segments if s.refused is not None]
        if why is None and reason == "refused" and refused:
            segment = next((s for s in refused if s.name == who), refused[0])
            who, why = segment.name, segment.refused
        self.notices.flush()
        raise Error(f"strict, which GRAPHHOOKS_STRICT may have set, and "
                    f"{self.about}{who or 'a call'} would run eagerly "
                    f"({reason}): {why or 'README.md says when'}",
                    _abi.GH_ERR_UNSUPPORTED)
