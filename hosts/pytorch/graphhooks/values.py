"""What a caller gives, checked before C sees it: ctypes cuts and converts
without a word.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Optional, Union

from .errors import Error

Names = Union[str, Iterable[str]]


def one_of(what: str, words: Mapping[str, int], word: str) -> int:
    if not isinstance(word, str) or word not in words:
        raise Error(f"{what} is {word!r}; it is one of {', '.join(words)}")
    return words[word]


def bits_of(what: str, words: Mapping[str, int], names: Names) -> int:
    """Names, or one text of names with commas, as the bits they stand for."""
    bits = 0
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",") if name.strip()]
    if not isinstance(names, Iterable):
        raise Error(
            f"{what} is {names!r}; it is a list of {', '.join(words)}"
        )
    for name in names:
        bits |= one_of(what, words, name)
    return bits


def text_of(what: str, value: Optional[str]) -> Optional[bytes]:
    """For C, where a zero byte would end it early."""
    if value is None:
        return None
    if not isinstance(value, (str, os.PathLike)):
        raise Error(f"{what} is {value!r}; it is a text")
    try:
        encoded = os.fsencode(value)
    except UnicodeEncodeError:
        raise Error(
            f"{what} is {value!r}; half a character is no text"
        ) from None
    if b"\0" in encoded:
        raise Error(f"{what} has a zero byte in it, which no name has")
    return encoded


def whole(what: str, value: int, most: int = 2**32 - 1) -> int:
    """ctypes would cut a number that is too large, without a word."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise Error(f"{what} is {value!r}; it is a whole number")
    if not 0 <= value <= most:
        raise Error(f"{what} is {value}; it is a number from 0 to {most}")
    return value


def instance_of(what: str, value: object, kind: type, made_by: str):
    if not isinstance(value, kind):
        raise Error(f"{what} is {value!r}; it is {made_by}")
    return value
