"""Options of a session: the environment variables in Python's spelling.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Mapping
from typing import Dict, List, Optional

from .errors import unknown
from .values import text_of
from .variables import MEANINGS

# Every option is an environment variable of the same name; a variable that is
# set wins.  A value from the struct's own slots gives the better sentence, so
# what has one goes there, unless zero, which means "default" there.
_IN_STRUCT = {
    "driver": "text",
    "scope": "text",
    "granularity": "text",
    "warmup_steps": "number",
    "max_slots": "number",
}
OPTIONS = tuple(MEANINGS)


def variable_of(option: str) -> str:
    """The environment variable that an option equals."""
    return "GRAPHHOOKS_" + option.upper()


def _spell(option: str, value: object) -> str:
    """An option's value as its variable would have it."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, (list, tuple, set, frozenset)):
        separator = ":" if option == "plugin_path" else ","
        return separator.join(str(item) for item in value)
    return str(value)


def split(options: Mapping[str, object], others: Iterable[str]):
    """Options for the struct, and those that only a variable can carry;
    `others` are what a session takes besides."""
    struct: Dict[str, object] = {}
    variables: Dict[str, str] = {}
    for option, value in options.items():
        if option not in OPTIONS:
            known = (*OPTIONS, *others)
            raise unknown(option, "a session", known)
        if value is None:
            continue
        kind = _IN_STRUCT.get(option)
        if kind == "number" and type(value) is int and 0 < value < 1 << 32:
            struct[option] = value
        elif kind == "text":
            struct[option] = text_of(option, _spell(option, value))
        else:
            variables[option] = _spell(option, value)
    return struct, variables


def environment_of(variables: Mapping[str, str], given: Mapping[str, str]):
    """NAME=value strings for C.  Of two with one name the first counts, so
    what the user has set comes before what the program asks for."""
    lines = [f"{name}={value}" for name, value in given.items()]
    lines += [f"{variable_of(k)}={v}" for k, v in variables.items()]
    encoded: List[Optional[bytes]] = []
    for line in lines:
        encoded.append(text_of(line.split("=", 1)[0], line))
    encoded.append(None)
    return (ctypes.c_char_p * len(encoded))(*encoded)


def by_option(
    text: str, options: Iterable[str], given: Mapping[str, str]
) -> str:
    """A sentence that begins with a variable nobody has set is about the
    option that stands in for it."""
    for option in options:
        variable = variable_of(option)
        if not given.get(variable) and re.match(rf"{variable}\b", text):
            return option + text[len(variable) :]
    return text
