"""Which Python functions ran, as a watch of the interpreter saw them: what
layers read in Python is looked for in these alone.

From 3.12 on the watch is a tool of `sys.monitoring`, before that a profiler in
C.  Another profiler that is there is left alone, and then nothing is seen.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import atexit
import cProfile
import contextlib
import functools
import gc
import inspect
import os
import sys
import threading
import types
import weakref

import torch

from ..base.names import (all_names_of, is_of_others, matches_by_place,
                          reads_by_any_name, within, written_in)
from . import compiled

_FAR = 3  # functions that read one another, where nothing was seen
_TORCH = os.path.dirname(torch.__file__) + os.sep
OTHERS = _TORCH, "<frozen "  # files whose functions nobody changes
_OURS = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep
_PYTHON = os.path.dirname(os.__file__) + os.sep
_INSTALLED = f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}"
_TRITON = tuple(f"{place}triton{os.sep}" for place in _INSTALLED)
# Of Python's own, what reads attributes by the names that objects have.
_BY_ANY_NAME = frozenset((_PYTHON + file, name) for file, name in (
    ("copy.py", "_reconstruct"), ("copy.py", "deepcopy"), ("copy.py", "copy"),
    ("dataclasses.py", "asdict"), ("dataclasses.py", "astuple"),
    ("dataclasses.py", "replace"), ("inspect.py", "getmembers")))


def _place_of(code) -> tuple:
    return code.co_filename, code.co_firstlineno, code.co_name


class Ran:
    """Functions that ran, by their code, and the names in them.  `codes` of
    None: any may have, and read any name."""

    def __init__(self, codes=None, names=()):
        self.codes = codes
        self.also = frozenset(names)  # read, by what the codes read
        self.is_any = codes is None
        self.is_guessed = self.is_any  # with limits of how far one looks
        self.own: list = []  # codes of neither torch nor Python
        self.matches = self.is_any  # attributes that classes name in order
        names = set(names)
        # In one order: where two functions have a name, the first found has
        # it alone, and that has to be the same one at each look.
        for code in sorted(codes or (), key=_place_of):
            names.update(all_names_of(code))
            if _is_of_others(code):
                self.is_any |= (code.co_filename, code.co_name) \
                    in _BY_ANY_NAME
            else:
                self.own.append(code)
                self.is_any |= reads_by_any_name(code)
                self.matches |= matches_by_place(code)
        self.names = frozenset(names)

    def and_these(self, codes) -> "Ran":
        """Itself, if nothing is new."""
        if codes is None or any(map(compiled.is_wrapper, codes)):
            return self if self.codes is None else ANY
        codes = {c for c in codes if not c.co_filename.startswith(_OURS)}
        if self.codes is None or codes <= self.codes:
            return self
        return Ran(self.codes | codes, self.also)

    def and_names(self, names) -> "Ran":
        return self if self.is_any or self.names.issuperset(names) \
            else Ran(self.codes, self.also.union(names))

    def has(self, function, far: int) -> bool:
        """Whether it ran, and is not torch's or Python's own."""
        return (far < _FAR if self.is_guessed
                else function.__code__ in self.codes) \
            and not is_of_others(function)

    def may_have(self, code) -> bool:
        """Ours are in no list, and what they call has run where any has."""
        return self.is_guessed or code in self.codes or bool(
            self.codes and code is not None
            and code.co_filename.startswith(_OURS))

    def reads(self, name) -> bool:
        return self.is_any or name in self.names

    def read_of(self, names, leave_out=()) -> list:
        """Of an object's attributes those that may be read."""
        if self.is_any:
            return [k for k in names if k not in leave_out]
        return [k for k in names if k in self.names and k not in leave_out]

    def named(self, names) -> list:
        """Of an object's attributes those whose own names functions have,
        also where some read attributes by any name."""
        return [k for k in names if self.is_guessed or k in self.names]

    @functools.cached_property
    def written(self) -> frozenset:
        """Names of attributes that functions set: of what a layer is in, a
        replay sets the same again (record/beside.py)."""
        return frozenset().union(*map(written_in, self.own))

    def missing(self, found: set) -> list:
        """Codes that ran and are not among those, nor within others."""
        inner = {each for code in self.own for each in within(code)}
        return [c for c in self.own if c not in found and c not in inner]


ANY = Ran()


@functools.lru_cache(maxsize=8)
def more_than(ran, other) -> tuple | None:
    """Names and codes that the other has besides; None: that may be any."""
    if other.codes is None or ran.codes is None \
            or (other.is_any, other.matches) != (ran.is_any, ran.matches):
        return None
    return other.names - ran.names, other.codes - ran.codes


def _is_of_others(code) -> bool:
    file = code.co_filename
    return file.startswith(OTHERS) or file.startswith(_PYTHON) \
        and not any(place in file for place in _INSTALLED) \
        or any(place in file for place in _TRITON)


_FEW = 16  # codes, each of which is compared with all that objects have


def _having(codes) -> list:
    ids = {*map(id, codes)}
    among = gc.get_objects() if len(codes) > _FEW \
        else gc.get_referrers(*codes) if codes else ()
    return [f for f in among
            if type(f) is types.FunctionType and id(f.__code__) in ids]


def functions_of(codes) -> list:
    """Functions with these codes.  The garbage collector knows them, unless
    they are frozen; then others with the same globals do."""
    found = _having(codes)
    found.sort(key=lambda f: f.__qualname__)  # as some share a code
    known = {f.__code__ for f in found}
    files: dict = {}
    for module in [*sys.modules.values()]:
        names = getattr(module, "__dict__", {})
        files.setdefault(names.get("__file__"), []).append(names)
    for code in codes:
        if code not in known:
            found += [types.FunctionType(code, names, closure=tuple(
                types.CellType() for _ in code.co_freevars))
                for names in files.get(code.co_filename, ())]
    return found


# ---- the watch -------------------------------------------------------------


@contextlib.contextmanager
def watched(note, who=None):
    """Calls note() with the codes of what this thread ran, or with None.  For
    the same `who` codes of an earlier watch may be left out.  No garbage is
    collected meanwhile: who has asked to be told of that would be called in
    the middle, and is no part of the pass."""
    watch = _Monitor.free() if hasattr(sys, "monitoring") else _Profiler()
    codes = None
    collects = gc.isenabled()
    gc.disable()
    is_on = watch.start(who)
    try:
        yield
    finally:
        if is_on:
            codes = watch.stop()
        if collects:
            gc.enable()
        note(codes)


class _Profiler:
    """Of this thread, in C: one in Python would hold what it sees."""

    _replaced: list = []  # which would take others away as they go

    def __init__(self):
        self._profile = cProfile.Profile(subcalls=False, builtins=False)

    def start(self, _) -> bool:
        if sys.getprofile() is not None:
            return False
        self._profile.enable()
        return True

    def stop(self):
        if sys.getprofile() is not self._profile:
            self._replaced.append(self._profile)
            return None
        self._profile.disable()
        return {entry.code for entry in self._profile.getstats()
                if type(entry.code) is types.CodeType}


def _frame_above():
    """That of who watches."""
    frame = inspect.currentframe()
    while frame.f_code.co_filename in (__file__, contextlib.__file__):
        frame = frame.f_back
    return frame


class _Monitor:
    """A tool of sys.monitoring, with a number that is kept for none of them,
    as for a profiler, and that nobody else has.

    When it begins or ends, the interpreter writes each function anew before
    that runs next, and a pass runs hundreds.  So it stays between watches,
    until much has run outside of them."""

    _latest: "_Monitor | None" = None  # of this process
    _OUTSIDE = 1 << 14  # calls after which it ends

    def __init__(self):
        self._codes: set = set()
        self._compiled: dict = {}  # functions, by identity
        self._outermost = None  # frame, below which one looks
        self._thread = None
        self._who = None  # a weak reference, of whom all is known
        self._tool = None
        self._left = 0

    @classmethod
    def free(cls) -> "_Monitor":
        """The one that stays, unless a watch has it."""
        if cls._latest is None:
            cls._latest = cls()
            atexit.register(cls.end)
        return cls() if cls._latest._outermost is not None else cls._latest

    @classmethod
    def end(cls) -> None:
        """That one."""
        latest, cls._latest = cls._latest, None
        if latest is not None:
            latest._end()

    def start(self, who) -> bool:
        self._left = self._OUTSIDE
        if self._tool is None and not self._begin():
            return False
        if who is None or self._who is None or self._who() is not who:
            sys.monitoring.restart_events()  # of codes that were seen before
            self._who = None if who is None else weakref.ref(who)
        self._thread = threading.get_ident()
        self._outermost = _frame_above()
        return True

    def _begin(self) -> bool:
        monitoring = sys.monitoring
        self._tool = tool = next((i for i in (4, 3) if
                                  monitoring.get_tool(i) is None), None)
        if tool is None:
            return False
        self._who = None
        event = monitoring.events.PY_START
        monitoring.use_tool_id(tool, "graphhooks")
        monitoring.register_callback(tool, event, self._note)
        monitoring.set_events(tool, event)
        return True

    def _note(self, code, _):
        if code.co_filename.startswith(_OURS):
            return sys.monitoring.DISABLE  # of which nobody asks
        if self._outermost is None or threading.get_ident() != self._thread:
            self._left -= 1
            if self._left < 0 and self._outermost is None:
                self._end()
            return None
        frame = inspect.currentframe().f_back
        if compiled.is_within(frame.f_back, self._outermost):
            return None  # another call of it may be outside
        if compiled.is_wrapper(code):
            self._note_compiled(code, frame.f_locals)
            return None
        self._codes.add(code)
        return sys.monitoring.DISABLE

    def _note_compiled(self, wrapper, names) -> None:
        function = names.get("fn")
        if id(function) not in self._compiled:
            self._compiled[id(function)] = function
            codes = compiled.codes_of(function, names.get("args", ()))
            self._codes.update((wrapper,) if codes is None else codes)

    def stop(self) -> set:
        self._outermost = None
        self._compiled.clear()
        codes, self._codes = self._codes, set()
        if self is not self._latest:
            self._end()
        return codes

    def _end(self) -> None:
        monitoring, tool = sys.monitoring, self._tool
        if tool is not None:
            self._tool = None
            monitoring.set_events(tool, 0)
            monitoring.register_callback(tool, monitoring.events.PY_START,
                                         None)
            monitoring.free_tool_id(tool)
