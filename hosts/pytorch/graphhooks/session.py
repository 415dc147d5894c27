"""A session over a model.

Small and near to C: the hooks of a step are called on Session.api with
Session.handle, by whoever drives one.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import List, Optional

from . import _abi
from .errors import Error, check
from .model import PARTS, Model
from .options import by_option, environment_of, split
from .services import with_log
from .values import instance_of, text_of, whole

_PART_NAMES = {value: name for name, value in PARTS.items()}


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
    `services` is lent to the library: what host_services() gives, or a
    gh_host_services of the caller's own; it is kept until the close.
    `environment` stands in for os.environ.  `offload_names` are groups of
    the host's own, which `offload` may name.  `pipeline_rank` is this one's,
    for offload_keep_bytes.
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
        legacy_threads: bool = False,
        suspends: bool = False,
        capabilities: int = 0,
        services: Optional[_abi.gh_host_services] = None,
        environment: Optional[Mapping[str, str]] = None,
        offload_names: Sequence[str] = (),
        pipeline_rank: int = 0,
        **options: object,
    ) -> None:
        self.handle = ctypes.c_void_p()
        self.api = instance_of("model", model, Model, "a graphhooks.Model").api
        if services is not None:
            made_by = "what graphhooks.services.host_services() gives"
            instance_of("services", services, _abi.gh_host_services, made_by)
        if environment is None:
            environment = os.environ
        instance_of("environment", environment, Mapping, "a dict of variables")
        in_struct, variables = split(options, Session.__init__.__kwdefaults__)
        asked = [name for name, value in options.items() if value is not None]

        def spelled(text: str) -> str:
            return by_option(self._in_words(text), asked, environment)

        lent = with_log(services, spelled)
        self._services = services, lent
        self._chunks = model.chunks
        desc = _abi.make(
            _abi.gh_session_desc,
            model=model._open(),
            host=ctypes.pointer(lent),
            context=whole("context", context or 0, 2**64 - 1),
            device=whole("device", device, 2**31 - 1),
            flags=(_abi.GH_SESSION_BUSY_FAILS if busy_fails else 0)
            | (_abi.GH_SESSION_EP_OVERLAP if ep_overlap else 0)
            | (_abi.GH_SESSION_DELAY_WGRAD if delay_wgrad else 0)
            | (_abi.GH_SESSION_LEGACY_THREADS if legacy_threads else 0)
            | (_abi.GH_SESSION_SUSPENDS if suspends else 0),
            capabilities=whole("capabilities", capabilities, 2**32 - 1),
            environment=environment_of(variables, environment),
            offload=_offload(offload_names, pipeline_rank),
            **in_struct,
        )
        err = _abi.gh_error()
        status = self.api.session_open(desc, ctypes.byref(self.handle), err)
        try:
            check(status, err)
        except Error as error:
            raise Error(spelled(str(error)), status) from None

    def _in_words(self, text: str) -> str:
        """A sentence of C, for who writes hosts in Python."""
        return text.replace("gh_plan_segment lists", "segments() lists")

    def offload_stats(self) -> dict:
        """The counters of gh_offload_stats."""
        raw = _abi.make(_abi.gh_offload_stats)
        err = _abi.gh_error()
        check(self.api.offload_get_stats(self._open(), raw, err), err)
        return {name: getattr(raw, name) for name, _
                in _abi.gh_offload_stats._fields_
                if name not in ("struct_size", "reserved")}

    def suspend(self) -> None:
        """Gives the session's memory back until resume(), where nothing is in
        flight; its graphs stay.  The session was opened with suspends=True
        (doc/memory.md)."""
        err = _abi.gh_error()
        status = self.api.session_suspend(self._open(), err)
        try:
            check(status, err)
        except Error as error:
            text = str(error).replace("GH_SESSION_SUSPENDS in flags",
                                      "suspends=True")
            raise Error(text, status) from None

    def resume(self) -> None:
        """Takes memory again, at the same addresses.  Where there is none the
        session stays suspended."""
        err = _abi.gh_error()
        check(self.api.session_resume(self._open(), err), err)

    def memory_stats(self) -> dict:
        """The counters of gh_memory_stats."""
        raw = _abi.make(_abi.gh_memory_stats)
        err = _abi.gh_error()
        check(self.api.memory_get_stats(self._open(), raw, err), err)
        return {name: getattr(raw, name) for name, _
                in _abi.gh_memory_stats._fields_ if name != "struct_size"}

    def _open(self) -> ctypes.c_void_p:
        if not self.handle:
            raise Error("this session is closed", _abi.GH_ERR_STATE)
        return self.handle

    def segments(self, chunk: Optional[int] = None) -> List[Segment]:
        """The plan's segments in order, of one chunk or of all."""
        chunks = range(self._chunks)
        if chunk is not None:
            chunks = [whole("chunk", chunk)]
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
        status = self.api.plan_print(self._open(), form, _abi.WRITE_FN(write),
                                     None, err)
        check(status, err)
        return b"".join(pieces).decode("utf-8", "replace")

    def explain(self) -> str:
        """The plan as text: each segment, how it is treated, and why."""
        return self._print(_abi.GH_FORMAT_TEXT)

    def plan(self) -> dict:
        """The same as data."""
        return json.loads(self._print(_abi.GH_FORMAT_JSON))

    def stats(self) -> dict:
        """The counters of gh_stats, and eager_by_reason: how many passes ran
        eagerly for each reason, by its name."""
        raw = _abi.make(_abi.gh_stats)
        err = _abi.gh_error()
        check(self.api.session_stats(self._open(), raw, err), err)
        counters = {
            name: getattr(raw, name)
            for name, _ in _abi.gh_stats._fields_
            if name != "struct_size"
        }
        counters["eager_by_reason"] = self._reasons()
        return counters

    def _reasons(self) -> dict:
        counts, count = {}, ctypes.c_uint64()
        for reason in itertools.count(_abi.GH_REASON_NONE + 1):
            if self.api.session_reasons(self._open(), reason, count, None):
                return counts
            counts[self.api.reason_name(reason).decode()] = count.value

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


def _offload(names: Sequence[str], rank: int):
    """A gh_offload_desc of what no variable can carry; None without any."""
    if not names and not rank:
        return None
    texts = [text_of("offload_names", name) for name in names]
    array = (ctypes.c_char_p * (len(texts) + 1))(*texts, None)
    rank = whole("pipeline_rank", rank, 2**32 - 1)
    return ctypes.pointer(_abi.make(_abi.gh_offload_desc, names=array,
                                    pipeline_rank=rank))
