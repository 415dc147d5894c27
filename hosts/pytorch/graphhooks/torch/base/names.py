"""Which names functions read, of their own file and of others in Python.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import dis
import functools
import sys
import types

_FAR = 3  # files that have one another
# Files by their names in a text, and globals and attributes by any name.
_FILES = frozenset(("modules", "import_module", "__import__"))
_OWN_FILE = frozenset(("__name__", "__module__"))
_GLOBALS = frozenset(("globals", "eval", "exec"))
_ATTRIBUTES = frozenset(("vars", "__dict__", "attrgetter", "methodcaller",
                         "__getattribute__", "__reduce_ex__", *_GLOBALS))
_BY_NAME = frozenset(("getattr", "hasattr", "setattr", "delattr"))
# Globals of others with what was found for the last call, or for some, and all
# that this depends on: a call that depends on something else finds it anew,
# whatever another call has left there.
_DISPATCH = "transformer_engine.pytorch.attention.dot_product_attention." \
    "dot_product_attention"
_CACHES = frozenset(((_DISPATCH, "_attention_backends"),
                     (_DISPATCH, "_thd_policy_backend_cache")))
# Operations that read a global, and by how many bits its number is shifted.
_LOADS = {dis.opmap["LOAD_GLOBAL"]: int(sys.version_info >= (3, 11)),
          dis.opmap["LOAD_NAME"]: 0}
_STORES = {dis.opmap["STORE_ATTR"]: 0}
_CONSTANT = dis.opmap["LOAD_CONST"]
_IMPORT, _MORE = dis.opmap["IMPORT_NAME"], dis.opmap["EXTENDED_ARG"]
_MATCH = dis.opmap.get("MATCH_CLASS", -1)  # from Python 3.10 on
_OF_CLASSES = frozenset(("__getattr__", "__getattribute__"))


def package(thing) -> str:
    named = "__name__" if isinstance(thing, types.ModuleType) \
        else "__module__"
    return (getattr(thing, named, None) or "").partition(".")[0]


# Hooks that keep outputs for who asks for them (private.are_heard).
CAPTURING = "transformers.utils.output_capturing"


def is_of_others(thing) -> bool:
    """A function, class or file that nobody is going to change, or of which no
    graph has anything: what Triton reads chooses a kernel, and the one that
    was recorded is as good as any."""
    whose = package(thing)
    if not whose:
        return _is_launcher(thing)
    if whose == "transformers":
        return getattr(thing, "__module__", None) == CAPTURING
    return whose in ("torch", "numpy", "graphhooks", "triton") \
        or whose in sys.stdlib_module_names


def _is_launcher(thing) -> bool:
    """Whether Triton has made it from a text: a function without a file, in a
    namespace with a class of Triton's and no other."""
    names = getattr(thing, "__globals__", {})
    return {package(v) for v in names.values() if isinstance(v, type)} \
        == {"triton"}


def namespaces(function):
    """Where it reads names: its globals, and the files in Python that it
    reads by ``file.name``, or imports as it runs; each with a prefix."""
    names = function.__globals__
    read, imported = read_in(function.__code__)
    all_names = all_names_of(function.__code__)
    if not _GLOBALS.isdisjoint(all_names):
        read = [k for k in names if not k.startswith("__")]
    elif not (_FILES.isdisjoint(all_names) or _OWN_FILE.isdisjoint(all_names)):
        read = [*read, *(k for k in all_names  # sys.modules[__name__].name
                         if k in names and k not in read)]
    read = _but_caches(names, read)
    yield "", names, read
    waiting = [(key, names[key], 0) for key in read if key in names]
    waiting += [(free, cell.cell_contents, 0) for free, cell in zip(
        function.__code__.co_freevars, function.__closure__ or ())
        if cell != types.CellType()]
    waiting += [(name, sys.modules.get(_resolved(name, level, names)), 0)
                for name, level in imported]
    if not _FILES.isdisjoint(all_names):
        waiting += [(name, sys.modules.get(name), 0) for name in all_names]
    for name, file, far in waiting:
        if not isinstance(file, types.ModuleType) or is_of_others(file):
            continue
        inner = vars(file)
        keys = _but_caches(inner, [k for k in all_names if k in inner])
        yield f"{name}.", inner, keys
        if far < _FAR:
            waiting += [(f"{name}.{k}", inner[k], far + 1) for k in keys]


def _but_caches(names, keys) -> list:
    file = names.get("__name__")
    return [k for k in keys if (file, k) not in _CACHES]


def _resolved(name: str, level: int, names) -> str:
    """What is imported with so many dots before its name."""
    if level == 0:
        return name
    base = names.get("__package__") or ""
    if level > 1:
        base = base.rsplit(".", level - 1)[0]
    return f"{base}.{name}" if name else base


@functools.lru_cache(maxsize=None)
def all_names_of(code) -> tuple:
    """Also of what is defined within it."""
    names = dict.fromkeys(code.co_names)  # getattr() has texts
    names.update(dict.fromkeys(c for c in code.co_consts if type(c) is str))
    if _matches(code):  # case Config(scale=s): a tuple has the names
        names.update(dict.fromkeys(
            name for c in code.co_consts if type(c) is tuple
            for name in c if type(name) is str))
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            names.update(dict.fromkeys(all_names_of(inner)))
    return tuple(names)


def _matches(code) -> bool:
    return _MATCH in code.co_code[::2]


@functools.lru_cache(maxsize=None)
def matches_by_place(code) -> bool:
    """Whether there is a case Config(s), of which the class has the names."""
    places = code.co_code[1::2] if _matches(code) else ()
    return any(step == _MATCH and place > 0
               for step, place in zip(code.co_code[::2], places)) \
        or any(map(matches_by_place, within(code)))


@functools.lru_cache(maxsize=None)
def read_in(code) -> tuple:
    """The globals that it reads, and what it imports, each with the number of
    dots; also of what is defined within it."""
    found, imported = dict.fromkeys(_globals_of(code)), {}
    if _IMPORT in code.co_code[::2]:
        steps = [*dis.get_instructions(code)]
        imported = {(step.argval, steps[i - 2].argval): None
                    for i, step in enumerate(steps)
                    if step.opcode == _IMPORT}
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            for mine, its in zip((found, imported), read_in(inner)):
                mine.update(dict.fromkeys(its))
    return tuple(found), tuple(imported)


@functools.lru_cache(maxsize=None)
def written_in(code) -> frozenset:
    """The attributes that it sets by name; also in what is defined within
    it."""
    return frozenset(_named_by(_STORES, code)).union(
        *map(written_in, (c for c in code.co_consts
                          if isinstance(c, types.CodeType))))


@functools.lru_cache(maxsize=None)
def written_by(kind) -> frozenset:
    """The attributes that the functions of a class set, torch's left out."""
    return frozenset().union(*(
        written_in(function.__code__) for base in kind.__mro__
        for function in vars(base).values()
        if isinstance(function, types.FunctionType)
        and not is_of_others(function)))


def _globals_of(code):
    return _named_by(_LOADS, code)


def _named_by(operations: dict, code):
    """Each step has two bytes; what dis makes of one takes a hundred times as
    long as to find it."""
    steps, more = code.co_code[::2], code.co_code[1::2]
    for operation, shift in operations.items():
        at = steps.find(operation)
        while at >= 0:
            number, before = more[at], at - 1
            while before >= 0 and steps[before] == _MORE:
                number |= more[before] << 8 * (at - before)
                before -= 1
            yield code.co_names[number >> shift]
            at = steps.find(operation, at + 1)


@functools.lru_cache(maxsize=None)
def within(code) -> tuple:
    """Codes that are defined within it."""
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return (*inner, *(each for c in inner for each in within(c)))


@functools.lru_cache(maxsize=None)
def reads_by_any_name(code) -> bool:
    """Whether it may read attributes whose names are not in it.  What makes
    up attributes of a class does so for objects of that class alone."""
    if code.co_name in _OF_CLASSES:
        return False
    if not _ATTRIBUTES.isdisjoint(code.co_names):
        return True
    if _BY_NAME.isdisjoint(code.co_names):
        return False
    steps = [*_steps_of(code)]
    return any(code.co_names[number >> _LOADS[step]] in _BY_NAME
               and not _is_name_in_it(code, steps[i + 1:])
               for i, (step, number) in enumerate(steps) if step in _LOADS)


def _steps_of(code):
    """Operations that do something, each with its number."""
    more = 0
    for step, number in zip(code.co_code[::2], code.co_code[1::2]):
        number |= more
        more = number << 8 if step == _MORE else 0
        if step not in _NO_STEPS:
            yield step, number


_NO_STEPS = frozenset(dis.opmap[name] for name in (
    "PRECALL", "CACHE", "EXTENDED_ARG", "PUSH_NULL", "KW_NAMES", "NOP")
    if name in dis.opmap)


def _is_name_in_it(code, steps) -> bool:
    """Of a getattr() with these steps after it: getattr(x, "text") and
    getattr(x, "text", y)."""
    end = next((i for i, (step, _) in enumerate(steps)
                if dis.opname[step].startswith("CALL")), 0)
    count = steps[end][1] if end else 0
    if not 2 <= count <= 3 or end < count:
        return False
    (name, number), *default = steps[end - count + 1:end]
    return name == _CONSTANT and type(code.co_consts[number]) is str \
        and all(dis.opname[step].startswith("LOAD_") for step, _ in default)
