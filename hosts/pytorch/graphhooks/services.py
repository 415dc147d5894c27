"""What the host lends to the library, from Python functions.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import logging
import sys
from typing import Callable, Optional, Tuple

from . import _abi
from .errors import spell

log = logging.getLogger("graphhooks")

_LEVELS = {_abi.GH_LOG_WARN: "warning: ", _abi.GH_LOG_DEBUG: "debug: "}


class Said(Exception):
    """A service has failed, and somebody else says why."""


def _guarded(
    name: str, function: Callable, status: Optional[int],
    lost: Optional[list]
) -> Callable:
    """An exception cannot go through C: it is logged, and C gets `status`.
    An interrupt is left in `lost`, where there is one."""

    def call(_user, *arguments):
        try:
            function(*arguments)
        except Said:
            return status
        except BaseException as failure:
            if lost is not None and not isinstance(failure, Exception):
                lost.append(failure)
            else:
                log.exception("the service %s has failed", name)
            return status
        return None if status is None else _abi.GH_OK

    return call


def host_services(
    *,
    log: Optional[Callable[[int, str], None]] = None,
    device_alloc: Optional[Callable[[int], int]] = None,
    device_free: Optional[Callable[[int, int], None]] = None,
    record_begin: Optional[Callable[[_abi.gh_recording], None]] = None,
    record_end: Optional[Callable[[_abi.gh_recording, bool], None]] = None,
    retain: Optional[Callable[[int], None]] = None,
    release: Optional[Callable[[int], None]] = None,
    capture_begin: Optional[Callable[[Optional[int]], None]] = None,
    capture_end: Optional[
        Callable[[Optional[int]], Tuple[int, Optional[int]]]
    ] = None,
    launch: Optional[Callable[[int, Optional[int]], Optional[int]]] = None,
    destroy: Optional[Callable[[int], None]] = None,
    before_recording: Optional[Callable[[_abi.gh_recording], None]] = None,
    lost: Optional[list] = None,
) -> _abi.gh_host_services:
    """Host services from Python functions, as host.h describes them: log(
    level, line), device_alloc(bytes) -> address, device_free(address, bytes),
    before_recording(recording), record_begin(recording), record_end(
    recording, kept), retain(object), release(object), capture_begin(stream),
    capture_end(stream) -> (key, graph or None), launch(key, stream) -> exec
    or None, destroy(key); a recording is valid during the call, and a key is
    a number of the host's own, not 0.  Those that C asks for a status fail by
    raising; what is no Exception, such as an interrupt, is left in `lost` for
    the caller to raise."""

    def put_address(size, address_p):
        address_p[0] = device_alloc(size)

    def log_text(level, line):
        log(level, spell(line.decode("utf-8", "replace")))

    def before(recording):
        before_recording(recording.contents)

    def begin(recording):
        record_begin(recording.contents)

    def end(recording, kept):
        record_end(recording.contents, bool(kept))

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
        ("record_begin", _abi.RECORD_BEGIN_FN, record_begin, begin,
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
        ("before_recording", _abi.BEFORE_RECORDING_FN, before_recording,
         before, _abi.GH_ERR_STATE),
    ]  # fmt: skip
    for name, prototype, given, function, status in rows:
        if given is not None:
            # The struct keeps the function, as ctypes does for its fields.
            guarded = _guarded(name, function, status, lost)
            setattr(table, name, prototype(guarded))
    return table


def with_log(
    given: Optional[_abi.gh_host_services], spelled: Callable[[str], str]
) -> _abi.gh_host_services:
    """The services with a log, where they have none: as C's own, but with
    the names of Python in its lines."""

    def say(level: int, line: str) -> None:
        text = spelled(line)
        if text and sys.stderr is not None:  # or somebody has said it better
            text = f"graphhooks: {_LEVELS.get(level, '')}{text}\n"
            sys.stderr.write(text)

    if given is not None and given.log:
        return given
    table = _abi.make(_abi.gh_host_services)
    if given is not None:
        ctypes.pointer(table)[0] = given
    table.log = host_services(log=say).log
    return table
