"""What is said of segments in the log, once; and what many have, in one line.

So sentences wait until a step is over, or somebody asks, or Python ends.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import logging

log = logging.getLogger("graphhooks")

# Forms of a line.
REFUSED = "{who} run{s} eagerly from now on: {why}"
EAGER = "run{s} eagerly: {who}: {why}"
NOTE = "{who}: {why}"

_MANY = 8  # names in a line


class Notices:
    """Those of an attach."""

    def __init__(self):
        self.layers: list = []  # their names, in order
        self.order: dict = {}  # of segments, by name
        self.groups: set = set()  # names of what is offloaded
        self._waiting: dict = {}  # names, by form and reason
        self._names: dict = {}  # the same of all that has been said

    def add(self, form: str, name: str, why: str) -> None:
        names = self._names.setdefault((form, why), [])
        if name not in names:
            names.append(name)
            self._waiting.setdefault((form, why), []).append(name)

    def instead(self, name: str, why: str) -> None:
        """What is so in the place of what was to be said of a refusal."""
        for key in [k for k in self._waiting if k[0] is REFUSED]:
            names = self._waiting[key]
            if name in names:
                names.remove(name)
            if not names:
                del self._waiting[key]
        self.add(NOTE, name, why)

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for (form, why), names in waiting.items():
            once = "" if form is REFUSED else "; this is said once"
            log.warning("%s%s", self._line(form, why, names), once)

    def lines(self, told=frozenset()) -> list:
        """All but what is told of segments that are refused: names, and why
        they are now."""
        return [self._line(form, why, names)
                for (form, why), names in self._names.items()
                if form is not REFUSED
                and not told.issuperset((name, why) for name in names)]

    def _line(self, form: str, why: str, names: list) -> str:
        return form.format(who=self._who(names), why=why,
                           s="s" if len(names) == 1 else "")

    def _who(self, names: list) -> str:
        if len(names) == 1:
            return names[0]
        kind = "layers" if set(names) <= set(self.layers) else (
            "groups" if set(names) <= self.groups else "segments")
        names = sorted(names, key=self.order.__getitem__)
        at = [self.order[name] for name in names]
        if len(names) > 2 and len({b - a for a, b in zip(at, at[1:])}) == 1:
            inner = f"{names[0]} to {names[-1]}"
        else:
            more = ", ..." if len(names) > _MANY else ""
            inner = ", ".join(names[:_MANY]) + more
        return f"{len(names)} {kind} ({inner})"
