"""Functions that torch compiles: the interpreter runs what was made of them,
so a watch of it sees neither them nor what they call.

Where a function and all that it calls can be read off their code, as the fused
element-wise functions of Megatron and Transformer Engine can, they count as if
they had run.  Where one calls what it was given, or a method that no tensor
has, or reads of an object what is neither a number nor a tensor, nobody knows
what ran.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import builtins
import dis
import itertools
import os
import sys
import types

import torch

from ..base import private
from ..base.names import is_of_others, read_in, reads_by_any_name, within

_TORCH = os.path.dirname(torch.__file__) + os.sep
_WRAPPER = os.path.join(_TORCH, "_dynamo", "eval_frame.py"), "compile_wrapper"
# Files that call what was made: of a backward there is no wrapper.
_CALLERS = tuple(os.path.join(_TORCH, *names) + os.sep for names in (
    ("_inductor",), ("_functorch", "_aot_autograd")))
_ATTRIBUTES = frozenset(itertools.chain(
    dir(torch.Tensor), dir(torch), dir(torch.nn.functional),
    ("functional", "finfo", "iinfo", *dir(torch.finfo), *dir(torch.iinfo))))
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype,
          torch.device, torch.memory_format, torch.layout)


def is_wrapper(code) -> bool:
    """Whether it calls what was made of a function, which it has as `fn`."""
    return (code.co_filename, code.co_name) == _WRAPPER


def is_within(frame, outermost) -> bool:
    """Whether what was made of a function has called it, since then."""
    while frame is not None and frame is not outermost:
        code = frame.f_code
        if is_wrapper(code) or code.co_filename.startswith(_CALLERS):
            return True
        frame = frame.f_back
    return False


def codes_of(function, args=()) -> frozenset | None:
    """Its own, and those of all functions that it calls, torch's left out;
    None: it may call others.  With these arguments it is called."""
    found: set = set()
    if isinstance(function, types.FunctionType) and _are_all_known(
            function, _ATTRIBUTES.union(_data_of(args)), found):
        return frozenset(found)
    return None


def _data_of(args):
    """Names under which objects among these have numbers and tensors."""
    for thing in args:
        spaces = [getattr(thing, "__dict__", {})]
        if isinstance(thing, torch.nn.Module):
            spaces += private.parameters_of(thing), private.buffers_of(thing)
        for names in spaces:
            for name, value in names.items():
                if isinstance(value, (*_PLAIN, torch.Tensor)):
                    yield name


def _are_all_known(thing, attributes: frozenset, found: set) -> bool:
    """Whether nothing unknown runs if it is called, or read."""
    thing = private.compiled_of(thing)
    if isinstance(thing, (*_PLAIN, types.BuiltinFunctionType)):
        return True
    if isinstance(thing, (types.ModuleType, type)):
        return is_of_others(thing)
    if not isinstance(thing, types.FunctionType):
        return False
    code = thing.__code__
    if code in found or is_of_others(thing):
        return True
    found.add(code)
    names, imported = read_in(code)
    codes = code, *within(code)
    return not imported and all(map(_is_plain, codes)) \
        and attributes.union(names).issuperset(
            itertools.chain.from_iterable(c.co_names for c in codes)) \
        and _ATTRIBUTES.union(names).issuperset(
            itertools.chain.from_iterable(map(_methods_of, codes))) \
        and all(_are_all_known(value, attributes, found)
                for value in _values(thing, names))


def _methods_of(code):
    """Attributes that it calls."""
    for step in dis.get_instructions(code):
        if step.opname == "LOAD_METHOD" or step.opname == "LOAD_ATTR" \
                and sys.version_info >= (3, 12) and step.arg & 1:
            yield step.argval


def _values(function, names):
    """What is in its globals by these names, and in its closure."""
    for name in names:
        yield function.__globals__.get(name, getattr(builtins, name, None))
    for cell in function.__closure__ or ():
        if cell != types.CellType():
            yield cell.cell_contents


def _is_plain(code) -> bool:
    """Whether it reads attributes by their names alone, and calls no local
    variable: that is a load with the place of a method's object beside it."""
    if reads_by_any_name(code):
        return False
    names = [step.opname for step in dis.get_instructions(code)]
    return not any(a == "PUSH_NULL" and _is_local(b)
                   or _is_local(a) and b == "PUSH_NULL"
                   for a, b in zip(names, names[1:]))


def _is_local(name: str) -> bool:
    return name.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_CLOSURE"))
