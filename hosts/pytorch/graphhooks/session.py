"""A model, layer by layer, and a session over it.

Small and near to C: the hooks of a step are called on Session.api with
Session.handle, by whoever drives one.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Callable, Dict, List, Optional, Tuple, Union

from . import _abi, _library
from .errors import Error, check, spell, unknown

log = logging.getLogger("graphhooks")


def _words(prefix: str) -> Dict[str, int]:
    """GH_LAYER_MOE_ONLY = 5 and its like as {"moe_only": 5}."""
    return {
        name[len(prefix) :].lower(): value
        for name, value in vars(_abi).items()
        if name.startswith(prefix) and not name.endswith("_COUNT")
    }


KINDS = _words("GH_LAYER_")
PARTS = _words("GH_PART_")
DISPATCHERS = _words("GH_DISPATCHER_")
FEATURES = _words("GH_FEATURE_")
MODULES = _words("GH_MODULE_")
_PART_NAMES = {value: name for name, value in PARTS.items()}

Names = Union[str, Iterable[str]]


def _one(what: str, words: Mapping[str, int], word: str) -> int:
    if not isinstance(word, str) or word not in words:
        raise Error(f"{what} is {word!r}; it is one of {', '.join(words)}")
    return words[word]


def _bits(what: str, words: Mapping[str, int], names: Names) -> int:
    """Names, or one text of names with commas, as the bits they stand for."""
    bits = 0
    if isinstance(names, str):
        names = [name.strip() for name in names.split(",") if name.strip()]
    if not isinstance(names, Iterable):
        raise Error(
            f"{what} is {names!r}; it is a list of {', '.join(words)}"
        )
    for name in names:
        bits |= _one(what, words, name)
    return bits


def _text(what: str, value: Optional[str]) -> Optional[bytes]:
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


def _whole(what: str, value: int, most: int = 2**32 - 1) -> int:
    """ctypes would cut a number that is too large, without a word."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise Error(f"{what} is {value!r}; it is a whole number")
    if not 0 <= value <= most:
        raise Error(f"{what} is {value}; it is a number from 0 to {most}")
    return value


def _instance(what: str, value: object, kind: type, made_by: str):
    if not isinstance(value, kind):
        raise Error(f"{what} is {value!r}; it is {made_by}")
    return value


# ---- the model -------------------------------------------------------------


class Model:
    """What the layers are.  A session keeps nothing of it once it is open."""

    def __init__(self) -> None:
        self.api = _library.load()
        self.handle = ctypes.c_void_p()
        self.chunks = 0
        err = _abi.gh_error()
        check(self.api.model_create(ctypes.byref(self.handle), err), err)

    def add_layer(
        self,
        kind: str = "dense",
        *,
        name: Optional[str] = None,
        chunk: int = 0,
        family: Optional[str] = None,
        features: Names = (),
        recompute: Names = (),
        offload: Names = (),
        experts: int = 0,
        dispatcher: str = "alltoall",
        **others: object,
    ) -> "Model":
        """Appends a layer; the words are those of model.h in lower case."""
        for option in others:
            known = ("kind", *Model.add_layer.__kwdefaults__)
            raise unknown(option, "add_layer", known)
        desc = _abi.make(
            _abi.gh_layer_desc,
            kind=_one("kind", KINDS, kind),
            name=_text("name", name),
            chunk=_whole("chunk", chunk),
            family=_text("family", family),
            features=_bits("features", FEATURES, features),
            recompute=_bits("recompute", MODULES, recompute),
            offload=_bits("offload", MODULES, offload),
            experts=_whole("experts", experts),
            dispatcher=_one("dispatcher", DISPATCHERS, dispatcher),
        )
        err = _abi.gh_error()
        check(self.api.model_add_layer(self._open(), desc, err), err)
        self.chunks = chunk + 1
        return self

    def _open(self) -> ctypes.c_void_p:
        if not self.handle:
            raise Error("this model is closed", _abi.GH_ERR_STATE)
        return self.handle

    def close(self) -> None:
        if self.handle:
            self.api.model_destroy(self.handle)
            self.handle = ctypes.c_void_p()

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self.close()


# ---- services --------------------------------------------------------------


def _guarded(
    function: Callable, status: Optional[int], lost: Optional[list]
) -> Callable:
    """An exception cannot go through C: it is logged, and C gets `status`.
    An interrupt is left in `lost`, where there is one."""

    def call(_user, *arguments):
        try:
            function(*arguments)
        except BaseException as failure:
            if lost is not None and not isinstance(failure, Exception):
                lost.append(failure)
            else:
                log.exception("the service %s has failed", function)
            return status
        return None if status is None else _abi.GH_OK

    return call


def services(
    *,
    log: Optional[Callable[[int, str], None]] = None,
    device_alloc: Optional[Callable[[int], int]] = None,
    device_free: Optional[Callable[[int, int], None]] = None,
    record_begin: Optional[Callable[[Optional[int], int], None]] = None,
    record_end: Optional[Callable[[Optional[int], int, bool], None]] = None,
    retain: Optional[Callable[[int], None]] = None,
    release: Optional[Callable[[int], None]] = None,
    capture_begin: Optional[Callable[[Optional[int]], None]] = None,
    capture_end: Optional[
        Callable[[Optional[int]], Tuple[int, Optional[int]]]
    ] = None,
    launch: Optional[Callable[[int, Optional[int]], Optional[int]]] = None,
    destroy: Optional[Callable[[int], None]] = None,
    lost: Optional[list] = None,
) -> _abi.gh_host_services:
    """Host services from Python functions, as host.h describes them: log(
    level, line), device_alloc(bytes) -> address, device_free(address, bytes),
    record_begin(stream, slot), record_end(stream, slot, kept),
    retain(object), release(object), capture_begin(stream), capture_end(
    stream) -> (key, graph or None), launch(key, stream) -> exec or None,
    destroy(key); a key is a number of the host's own, not 0.  Those that C
    asks for a status fail by raising; what is no Exception, such as an
    interrupt, is left in `lost` for the caller to raise."""

    def put_address(size, address_p):
        address_p[0] = device_alloc(size)

    def log_text(level, line):
        log(level, spell(line.decode("utf-8", "replace")))

    def end(stream, slot, kept):
        record_end(stream, slot, bool(kept))

    def put_captured(stream, object_p, graph_p):
        object_p[0], graph_p[0] = capture_end(stream)

    def put_exec(key, stream, exec_p):
        exec_p[0] = launch(key, stream)

    table = _abi.make(_abi.gh_host_services)
    rows = [
        ("log", _abi.LOG_FN, log, log_text, None),
        ("device_alloc", _abi.DEVICE_ALLOC_FN, device_alloc, put_address,
         _abi.GH_ERR_NO_MEMORY),
        ("device_free", _abi.DEVICE_FREE_FN, device_free, device_free, None),
        ("record_begin", _abi.RECORD_BEGIN_FN, record_begin, record_begin,
         _abi.GH_ERR_STATE),
        ("record_end", _abi.RECORD_END_FN, record_end, end, None),
        ("retain", _abi.RETAIN_FN, retain, retain, _abi.GH_ERR_STATE),
        ("release", _abi.RELEASE_FN, release, release, None),
        ("capture_begin", _abi.CAPTURE_BEGIN_FN, capture_begin, capture_begin,
         _abi.GH_ERR_DEVICE),
        ("capture_end", _abi.CAPTURE_END_FN, capture_end, put_captured,
         _abi.GH_ERR_DEVICE),
        ("launch", _abi.LAUNCH_FN, launch, put_exec, _abi.GH_ERR_DEVICE),
        ("destroy", _abi.DESTROY_FN, destroy, destroy, None),
    ]  # fmt: skip
    for name, prototype, given, function, status in rows:
        if given is not None:
            # The struct keeps the function, as ctypes does for its fields.
            setattr(table, name, prototype(_guarded(function, status, lost)))
    return table


# ---- the session -----------------------------------------------------------

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
OPTIONS = (
    "enable",
    "scope",
    "granularity",
    "warmup_steps",
    "max_slots",
    "driver",
    "log",
    "trace",
    "check",
    "check_every",
    "freeze",
    "plugin_path",
)


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


def _split(options: Mapping[str, object]):
    """Options for the struct, and those that only a variable can carry."""
    struct: Dict[str, object] = {}
    variables: Dict[str, str] = {}
    for option, value in options.items():
        if option not in OPTIONS:
            known = (*OPTIONS, *Session.__init__.__kwdefaults__)
            raise unknown(option, "a session", known)
        if value is None:
            continue
        kind = _IN_STRUCT.get(option)
        if kind == "number" and type(value) is int and 0 < value < 1 << 32:
            struct[option] = value
        elif kind == "text":
            struct[option] = _text(option, _spell(option, value))
        else:
            variables[option] = _spell(option, value)
    return struct, variables


def _environment(variables: Mapping[str, str], given: Mapping[str, str]):
    """NAME=value strings for C.  Of two with one name the first counts, so
    what the user has set comes before what the program asks for."""
    lines = [f"{name}={value}" for name, value in given.items()]
    lines += [f"{variable_of(k)}={v}" for k, v in variables.items()]
    encoded: List[Optional[bytes]] = []
    for line in lines:
        encoded.append(_text(line.split("=", 1)[0], line))
    encoded.append(None)
    return (ctypes.c_char_p * len(encoded))(*encoded)


def _by_option(
    text: str, options: Iterable[str], given: Mapping[str, str]
) -> str:
    """A sentence that begins with a variable nobody has set is about the
    option that stands in for it."""
    for option in options:
        variable = variable_of(option)
        if not given.get(variable) and re.match(rf"{variable}\b", text):
            return option + text[len(variable) :]
    return text


_LEVELS = {_abi.GH_LOG_WARN: "warning: ", _abi.GH_LOG_DEBUG: "debug: "}


def _with_log(
    given: Optional[_abi.gh_host_services], spelled: Callable[[str], str]
) -> _abi.gh_host_services:
    """The services with a log, where they have none: as C's own, but with
    the names of Python in its lines."""

    def say(level: int, line: str) -> None:
        if sys.stderr is not None:
            text = f"graphhooks: {_LEVELS.get(level, '')}{spelled(line)}\n"
            sys.stderr.write(text)

    if given is not None and given.log:
        return given
    table = _abi.make(_abi.gh_host_services)
    if given is not None:
        ctypes.pointer(table)[0] = given
    table.log = services(log=say).log
    return table


@dataclass(frozen=True)
class Segment:
    """A run of parts that are treated alike; gh_segment in plan.h."""

    index: int
    chunk: int
    graphed: bool
    first_layer: int
    last_layer: int
    first_part: str
    last_part: str
    reason: str


class Session:
    """One device of one rank, opened; a context manager that closes it.

    The options are the environment variables in Python's spelling:
    GRAPHHOOKS_MAX_SLOTS is max_slots=.  A variable that is set wins.
    `services` is lent to the library: what services() gives, or a
    gh_host_services of the caller's own; it is kept until the close.
    `environment` stands in for os.environ.
    """

    def __init__(
        self,
        model: Model,
        *,
        context: Optional[int] = None,
        device: int = 0,
        busy_fails: bool = False,
        ep_overlap: bool = False,
        delay_wgrad: bool = False,
        services: Optional[_abi.gh_host_services] = None,
        environment: Optional[Mapping[str, str]] = None,
        **options: object,
    ) -> None:
        self.handle = ctypes.c_void_p()
        self.api = _instance("model", model, Model, "a graphhooks.Model").api
        if services is not None:
            _instance("services", services, _abi.gh_host_services,
                      "what graphhooks.session.services() gives")  # fmt: skip
        if environment is None:
            environment = os.environ
        _instance("environment", environment, Mapping, "a dict of variables")
        in_struct, variables = _split(options)
        asked = [name for name, value in options.items() if value is not None]

        def spelled(text: str) -> str:
            return _by_option(text, asked, environment)

        lent = _with_log(services, spelled)
        self._services = services, lent
        self._chunks = model.chunks
        desc = _abi.make(
            _abi.gh_session_desc,
            model=model._open(),
            host=ctypes.pointer(lent),
            context=_whole("context", context or 0, 2**64 - 1),
            device=_whole("device", device, 2**31 - 1),
            flags=(_abi.GH_SESSION_BUSY_FAILS if busy_fails else 0)
            | (_abi.GH_SESSION_EP_OVERLAP if ep_overlap else 0)
            | (_abi.GH_SESSION_DELAY_WGRAD if delay_wgrad else 0),
            environment=_environment(variables, environment),
            **in_struct,
        )
        err = _abi.gh_error()
        status = self.api.session_open(desc, ctypes.byref(self.handle), err)
        try:
            check(status, err)
        except Error as error:
            raise Error(spelled(str(error)), status) from None

    def _open(self) -> ctypes.c_void_p:
        if not self.handle:
            raise Error("this session is closed", _abi.GH_ERR_STATE)
        return self.handle

    def segments(self, chunk: Optional[int] = None) -> List[Segment]:
        """The plan's segments in order, of one chunk or of all."""
        chunks = range(self._chunks)
        if chunk is not None:
            chunks = [_whole("chunk", chunk)]
        return [
            self._segment(c, i)
            for c in chunks
            for i in range(self.api.plan_segment_count(self._open(), c))
        ]

    def _segment(self, chunk: int, i: int) -> Segment:
        raw = _abi.make(_abi.gh_segment)
        err = _abi.gh_error()
        check(self.api.plan_segment(self._open(), chunk, i, raw, err), err)
        return Segment(
            index=raw.index,
            chunk=raw.chunk,
            graphed=raw.mode == _abi.GH_SEGMENT_GRAPHED,
            first_layer=raw.first_layer,
            last_layer=raw.last_layer,
            first_part=_PART_NAMES.get(raw.first_part, "?"),
            last_part=_PART_NAMES.get(raw.last_part, "?"),
            reason=(raw.reason or b"").decode(),
        )

    def _print(self, form: int) -> str:
        pieces: List[bytes] = []

        def write(_user, text, size):
            pieces.append(ctypes.string_at(text, size))

        err = _abi.gh_error()
        function = _abi.WRITE_FN(write)
        check(self.api.plan_print(self._open(), form, function, None, err), err)
        return b"".join(pieces).decode("utf-8", "replace")

    def explain(self) -> str:
        """The plan as text: each segment, how it is treated, and why."""
        return self._print(_abi.GH_FORMAT_TEXT)

    def plan(self) -> dict:
        """The same as data."""
        return json.loads(self._print(_abi.GH_FORMAT_JSON))

    def stats(self) -> dict:
        """The counters of gh_stats; eager_by_reason has a name for each."""
        raw = _abi.make(_abi.gh_stats)
        err = _abi.gh_error()
        check(self.api.session_stats(self._open(), raw, err), err)
        counters = {
            name: getattr(raw, name)
            for name, _ in _abi.gh_stats._fields_
            if name not in ("struct_size", "eager_by_reason")
        }
        names = {
            i: self.api.reason_name(i).decode()
            for i in range(1, _abi.GH_REASON_COUNT)
        }
        counters["eager_by_reason"] = {
            name: raw.eager_by_reason[i]
            for i, name in names.items()
            if name != "?"
        }
        return counters

    def close(self) -> None:
        """Waits for the session's graphs and frees them; twice is allowed."""
        if self.handle:
            # Not while C may still call them: the services go last.
            self.api.session_close(self.handle)
            self.handle = ctypes.c_void_p()
            self._services = None

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self.close()
