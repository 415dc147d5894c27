"""Takes a process off its GPU and puts it back, by CUDA's own checkpoint.

    attached.suspend()                    # in the training, in each rank
    graphhooks.checkpoint.pause(pid)      # in another process
    graphhooks.checkpoint.restore(pid)
    attached.resume()                     # in the training

The driver copies what the process has on its GPUs to the host's memory, and
lets go of the GPUs.  What attached.suspend() has given back is not copied.
Neither torch nor the library is needed here, nor a context: the driver itself
tells the other process.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
from typing import Optional

from . import _abi
from .errors import Error
from .options import variable_of

STATES = ("running", "locked", "checkpointed", "failed", "checkpointing",
          "restoring")  # fmt: skip

_PREFIX = "cuCheckpointProcess"
_ENTRIES = tuple(_PREFIX + name for name in (
    "GetState", "Lock", "Checkpoint", "Restore", "Unlock"))  # fmt: skip
_MOST_MS = 2**32 - 1

# What the driver says, in its own numbers.
_OUT_OF_MEMORY = 2
_OPERATING_SYSTEM = 304
_NOT_READY = 600
_NOT_SUPPORTED = 801
_MEANINGS = {
    _OUT_OF_MEMORY: "free memory of its GPUs, or of the host, and call it "
    "again",
    _OPERATING_SYSTEM: "call it as the user whose process it is, or as root, "
    "where both see the same process numbers",
    _NOT_READY: "work of its GPU has not ended in time: call it between "
    "steps, or with a longer timeout",
    _NOT_SUPPORTED: "the process has what this driver does not save, such as "
    "managed memory, or memory that it shares with other processes, as "
    "NCCL's: end that first, or use a newer driver",
}
# Of which entries it says that.
_MEANT_BY = {
    _OUT_OF_MEMORY: ("Checkpoint", "Restore"),
    _OPERATING_SYSTEM: ("GetState", "Lock", "Checkpoint", "Restore"),
    _NOT_READY: ("Lock",),
    _NOT_SUPPORTED: ("Lock", "Checkpoint"),
}


class _Arguments(ctypes.Structure):
    """64 bytes, of which a lock reads the first number alone."""

    _fields_ = [("timeout_ms", ctypes.c_uint32),
                ("reserved", ctypes.c_uint8 * 60)]  # fmt: skip


class _Driver:
    """The driver's entries, and what it says of a process."""

    def __init__(self, path: str, library) -> None:
        self.path, self._library = path, library

    def call(self, entry: str, *arguments) -> None:
        code = getattr(self._library, entry)(*arguments)
        if code:
            raise self._failure(entry, code)

    def _failure(self, entry: str, code: int) -> Error:
        name = ctypes.c_char_p()
        self._library.cuGetErrorName(code, ctypes.byref(name))
        text = f"{entry} returned {(name.value or b'an error').decode()} " \
            f"({code})"
        if entry[len(_PREFIX):] in _MEANT_BY.get(code, ()):
            text += f": {_MEANINGS[code]}"
        return Error(text, _abi.GH_ERR_NO_MEMORY if code == _OUT_OF_MEMORY
                     else _abi.GH_ERR_DEVICE)

    def state(self, pid: int) -> str:
        number = ctypes.c_int(-1)
        self.call(_ENTRIES[0], ctypes.c_int(pid), ctypes.byref(number))
        known = 0 <= number.value < len(STATES)
        return STATES[number.value] if known else f"state {number.value}"

    def do(self, what: str, pid: int, timeout_ms: int = 0) -> None:
        arguments = _Arguments(timeout_ms)
        self.call(_PREFIX + what, ctypes.c_int(pid),
                  ctypes.byref(arguments))


def _path() -> str:
    asked = os.environ.get(variable_of("driver")) or "cuda"
    if asked == "soft":
        raise Error(
            f"{variable_of('driver')} is soft: a process of the software "
            "device has no GPU to be taken from; set it to cuda",
            _abi.GH_ERR_UNSUPPORTED)
    if asked != "cuda" and "/" not in asked:
        raise Error(
            f'{variable_of("driver")} is "{asked}"; set it to cuda or a path '
            "with a /, or leave it out for cuda", _abi.GH_ERR_CONFIG)
    return "libcuda.so.1" if asked == "cuda" else asked


def _open() -> _Driver:
    return _opened(_path())


@functools.lru_cache(maxsize=None)
def _opened(path: str) -> _Driver:
    try:
        library = ctypes.CDLL(path)
        missing = [e for e in ("cuInit", *_ENTRIES, "cuGetErrorName")
                   if not hasattr(library, e)]
    except OSError as error:
        raise Error(f"the CUDA driver cannot load: {error}; install it, or "
                    f"name it in {variable_of('driver')}",
                    _abi.GH_ERR_NO_DRIVER) from None
    if missing:
        raise Error(f"{path} has no {missing[0]}: a checkpoint needs a driver "
                    "of CUDA 12.8 or newer, 570 or newer; install one",
                    _abi.GH_ERR_UNSUPPORTED)
    driver = _Driver(path, library)
    driver.call("cuInit", 0)  # or no process can be restored
    return driver


def why_not() -> Optional[str]:
    """Why this machine's driver checkpoints no process; None: it does."""
    try:
        _open()
    except Error as error:
        return str(error)
    return None


def state(pid: int) -> str:
    """What CUDA says of a process, one of STATES."""
    return _of(pid)[1]


def pause(pid: int, timeout: float = 60) -> None:
    """Takes a process off its GPUs, and waits for that.

    ``timeout``: for how many seconds work that was issued may take to end.
    The copies that come then take as long as they take.  Calls of CUDA's in
    the process wait until restore().  If it fails, or is interrupted, the
    process goes on, where the driver can have it so; the error says its state.
    """
    timeout_ms = _milliseconds(timeout)
    driver, was = _of(pid)
    if was != "running":
        raise _state(f"process {pid} is {was}, and pause() takes one that is "
                     f"running: {_remedy(was)}")
    with _whole(driver, pid):  # one whose lock fails is running
        driver.do("Lock", pid, timeout_ms)
    with _whole(driver, pid, Exception):
        driver.do("Checkpoint", pid)


def restore(pid: int) -> None:
    """Gives a process its GPUs and all their memory back, and lets it go on.

    If it fails the process stays as it was, where the driver can have it so,
    and this may be called again.
    """
    driver, was = _of(pid)
    if was not in ("checkpointed", "locked"):
        raise _state(f"process {pid} is {was}, and restore() takes one that "
                     f"is checkpointed: {_remedy(was)}")
    with _whole(driver, pid):
        if was == "checkpointed":
            driver.do("Restore", pid)
        driver.do("Unlock", pid)


@contextlib.contextmanager
def _whole(driver: _Driver, pid: int, undone=()):
    """A call that is interrupted, or fails as `undone` says, leaves the
    process running, where the driver can have it so.  The interrupt comes
    when the driver has done what it was asked for."""
    try:
        yield
    except BaseException as failed:
        if isinstance(failed, undone) or not isinstance(failed, Exception):
            with contextlib.suppress(Error):
                if driver.state(pid) == "checkpointed":
                    driver.do("Restore", pid)
                driver.do("Unlock", pid)
        if isinstance(failed, Error):
            raise _at(driver, pid, failed) from None
        raise


def _of(pid: int) -> tuple:
    """The driver, and the state of a process."""
    if type(pid) is not int or not 0 < pid < 2**31:
        raise Error(f"pid is {pid!r}; it is the number of a process")
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        raise Error(f"there is no process {pid}: give the number of one that "
                    "runs, as this process sees it",
                    _abi.GH_ERR_NOT_FOUND) from None
    except PermissionError:
        pass  # of another user's: the driver decides
    driver = _open()
    try:
        return driver, driver.state(pid)
    except Error as error:
        raise Error(f"process {pid} cannot be asked, as one that has not used "
                    f"CUDA cannot: {error}", error.status) from None


def _milliseconds(timeout: float) -> int:
    """The driver takes 0 for no limit."""
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) \
            or not 0 < timeout * 1000 <= _MOST_MS:
        raise Error(f"timeout is {timeout!r}; it is a number of seconds above "
                    f"0, and {_MOST_MS // 1000} at most")
    return math.ceil(timeout * 1000)


def _state(text: str) -> Error:
    return Error(text, _abi.GH_ERR_STATE)


def _remedy(state: str) -> str:
    """Of a state that a call does not take."""
    return {
        "running": "call pause() first",
        "locked": "restore() unlocks it",
        "checkpointed": "call restore() first",
        "failed": "a checkpoint of it, or a restore, has failed, and CUDA "
        "cannot go on there; end it, and start it again",
        "checkpointing": "wait until that has ended",
        "restoring": "wait until that has ended",
    }.get(state, "take a newer package, which knows that state")


def _at(driver: _Driver, pid: int, failed: Error) -> Error:
    """A failure, and how it has left the process."""
    try:
        now = driver.state(pid)
    except Error:
        now = "in no state that the driver tells"
    then = f": {_remedy(now)}" if now in ("locked", "failed") else ""
    return Error(f"process {pid}: {failed}; it is {now} now{then}",
                 failed.status)
