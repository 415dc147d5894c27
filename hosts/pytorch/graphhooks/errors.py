"""The one exception, with the sentences of the C library.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import difflib
import re
from typing import Iterable

from . import _abi

_NAMES = {
    value: name
    for name, value in vars(_abi).items()
    if name.startswith("GH_ERR_")
}


class Error(Exception):
    """Something that graphhooks refuses or cannot do.

    str() of it is one sentence: the thing, the rule, the remedy.
    """

    def __init__(self, text: str, status: int = _abi.GH_ERR_INVALID) -> None:
        super().__init__(text)
        self.status = status  # as in C: _abi.GH_ERR_CONFIG
        self.name = _NAMES.get(status, "GH_ERR_?")  # "GH_ERR_CONFIG"

    def __reduce__(self):
        return type(self), (str(self), self.status)


# What C names by its own names, as somebody who writes Python has it.
_SPELLED = (
    (re.compile(r"\bgh_session_desc\.(\w+)"), r"\1"),
    (re.compile(r"\bgh_offload_desc\.names\b"), "offload_names"),
    (re.compile(r"\bgh_model_desc\.(\w+)"), r"\1"),
    (re.compile(r"\bgh_model_add_layer\b"), "add_layer"),
    (re.compile(r"^gh_\w+: the session is suspended: "),
     "the graphs are suspended: "),  # who calls a module calls none of C's
    (re.compile(r"\bgh_session_resume\b"), "resume()"),
    (re.compile(r"`graphhooks env`"), "`python -m graphhooks env`"),
)


def spell(text: str) -> str:
    """A sentence of C with the names of Python: the command graphhooks is
    not in a wheel."""
    for pattern, ours in _SPELLED:
        text = pattern.sub(ours, text)
    return text


def unknown(option: str, what: str, known: Iterable[str]) -> Error:
    """Refuses an option by the one that was probably meant, or by all."""
    known = list(known)
    near = difflib.get_close_matches(option, known, 1)
    if near:
        return Error(
            f"{option} is no option of {what}; did you mean {near[0]}?"
        )
    return Error(
        f"{option} is no option of {what}; there are {', '.join(known)}"
    )


def check(status: int, err: _abi.gh_error) -> int:
    """Raises what a call has failed with; GH_OK and GH_RERUN pass."""
    if status < 0:
        raise Error(spell(err.text.decode("utf-8", "replace")), status)
    return status
