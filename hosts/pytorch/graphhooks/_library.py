"""Finds libgraphhooks.so.0, loads it once, and checks that it is one.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path
from typing import Iterator, Optional

from . import _abi
from .errors import Error

SONAME = "libgraphhooks.so.0"
VARIABLE = "GRAPHHOOKS_LIBRARY"

_REMEDY = (
    "install a wheel that carries it (hosts/pytorch/build-wheel.sh), install "
    "a checkout that is built by pip install -e, or set "
    f"{VARIABLE} to the path of {SONAME}"
)
# For good: what the library keeps for the life of the process stays in
# reach; and its symbols are nobody else's business.
_MODE = os.RTLD_LOCAL | os.RTLD_NODELETE

_lock = threading.Lock()
_loaded: Optional[_abi.Api] = None


def _built(top: Path) -> Iterator[Path]:
    """The libraries that were built in or below a checkout, newest first."""
    if not (top / "configure.ac").is_file():
        return
    found = [top / ".libs" / SONAME, *top.glob(f"*/.libs/{SONAME}")]
    found = [path for path in found if path.is_file()]
    yield from sorted(found, key=lambda p: p.stat().st_mtime, reverse=True)


def _beside(here: Path) -> Iterator[Path]:
    """That of PREFIX/lib, for PREFIX/lib/pythonX.Y/site-packages/graphhooks:
    of conda, spack and make install, which no loader's path has."""
    if here.parent.name in ("site-packages", "dist-packages"):
        yield here.parent.parent.parent / SONAME


def _places() -> Iterator[str]:
    """Where the library may be, best first; the last is the loader's path."""
    here = Path(__file__).resolve().parent
    for path in (here / "lib" / SONAME, *_built(here.parent.parent.parent),
                 *_beside(here)):
        if path.is_file():
            yield str(path)
    yield SONAME


def _refusal(path: str, fault: str, status: int) -> Error:
    """Where the user has named the file, the remedy is another name."""
    if path == os.environ.get(VARIABLE):
        text = f'{VARIABLE} is "{path}": {fault}; correct or unset it'
    else:
        text = f"{path}: {fault}; {_REMEDY}"
    return Error(text, status)


def find() -> str:
    """What dlopen is to be given."""
    return os.environ.get(VARIABLE) or next(_places())


def _dlopen(path: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(path, mode=_MODE)
    except OSError as error:
        fault = str(error).removeprefix(f"{path}: ")
    if path == SONAME and not os.environ.get(VARIABLE):
        lib = Path(__file__).resolve().parent / "lib"
        raise Error(
            f"{SONAME} is missing: not in {lib}, not built in a checkout "
            f"around it, not in the prefix around it, and not on the loader's "
            f"path; {_REMEDY}",
            _abi.GH_ERR_NOT_FOUND,
        )
    raise _refusal(path, f"it cannot load: {fault}", _abi.GH_ERR_NOT_FOUND)


class _DlInfo(ctypes.Structure):
    _fields_ = [
        ("dli_fname", ctypes.c_char_p),
        ("dli_fbase", ctypes.c_void_p),
        ("dli_sname", ctypes.c_char_p),
        ("dli_saddr", ctypes.c_void_p),
    ]


def _file_of(function, otherwise: str) -> str:
    """The file that a function was loaded from, also where the loader's path
    has found it."""
    info = _DlInfo()
    try:
        dladdr = ctypes.CDLL(None).dladdr
    except (AttributeError, OSError):  # in libdl, before glibc 2.34
        return otherwise
    dladdr.argtypes = [ctypes.c_void_p, ctypes.POINTER(_DlInfo)]
    if not dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(info)):
        return otherwise
    return os.fsdecode(info.dli_fname)


def _spoken(path: str) -> str:
    """Which ABI a library says it has, for the sentence of a mismatch."""
    try:
        version = ctypes.CDLL(path, mode=_MODE).gh_abi_version
    except (AttributeError, OSError):
        return "another ABI"
    version.restype = ctypes.c_uint32
    return f"ABI {version() >> 16}.{version() & 0xFFFF}"


def _refuse_abi(path: str, file: str, spoken: str) -> Error:
    ours = f"{_abi.GH_ABI_MAJOR}.{_abi.GH_ABI_MINOR}"
    return _refusal(
        path if path == os.environ.get(VARIABLE) else file,
        f"it speaks {spoken}, and this package needs ABI {ours}, or a later "
        "one of the same major",
        _abi.GH_ERR_ABI,
    )


def open_library(path: str) -> _abi.Api:
    """Loads one library, without remembering it."""
    library = _dlopen(path)
    try:
        get_api = _abi.GET_API_FN((_abi.GH_GET_API_SYMBOL, library))
    except AttributeError:
        raise _refusal(
            path,
            f"it has no {_abi.GH_GET_API_SYMBOL}, and is not graphhooks",
            _abi.GH_ERR_ABI,
        ) from None

    file = _file_of(get_api, path)
    table = ctypes.POINTER(_abi.gh_api)()
    err = _abi.gh_error()
    if get_api(_abi.GH_ABI_MAJOR, ctypes.byref(table), err) != _abi.GH_OK:
        raise _refuse_abi(path, file, _spoken(path))
    version = table.contents.abi_version
    if (
        version >> 16 != _abi.GH_ABI_MAJOR
        or version & 0xFFFF < _abi.GH_ABI_MINOR
        or table.contents.struct_size < ctypes.sizeof(_abi.gh_api)
    ):
        spoken = f"ABI {version >> 16}.{version & 0xFFFF}"
        raise _refuse_abi(path, file, spoken)
    return _abi.Api(table.contents, file)


def load() -> _abi.Api:
    """The library's functions; it is looked for at the first call only, and
    again after one that has failed."""
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = open_library(find())
        return _loaded
