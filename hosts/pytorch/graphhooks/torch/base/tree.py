"""What a module takes and gives: tensors, and what holds them.

A graph reads and writes tensors; all the rest of a call is as it was when the
call was recorded.  So a call is looked at in two ways: its tensors in order,
and a key of everything else, in which two calls must agree to share a graph.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import weakref

import torch
from torch import is_autocast_enabled

from ...errors import Error
from .switches import autocast

_TENSORS = (torch.Tensor, torch.nn.Parameter)
_PLAIN = frozenset({
    type(None), bool, int, float, complex, str, bytes, type(...),
    torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size,
})


_SIGNED = (float, complex)  # -0.0 == 0.0
# What is looked at as a whole: a graph's collectives are of one group, and
# another group is another one, whatever ranks it has.
_GROUPS = (torch.distributed.ProcessGroup,) \
    if torch.distributed.is_available() else ()
_WHOLE = enum.Enum, *_GROUPS


def _is_mask(value) -> bool:
    """Of torch's flex_attention: it reads tables, and a function of its
    maker's, so that no other one is the same."""
    kind = type(value)
    return kind.__name__ == "BlockMask" and kind.__module__.startswith(
        "torch.nn.attention.")


class Mask:
    """One of those in a key, which does not keep it."""

    def __init__(self, value):
        self._mask = weakref.ref(value)
        self._hash = id(value)
        # Whoever sets another table, or moves one, makes it another mask.
        self._has = [(name, id(each), isinstance(each, torch.Tensor)
                      and each.data_ptr())
                     for name, each in vars(value).items()]

    def __eq__(self, other):
        return type(other) is Mask and self._mask() is not None \
            and self._mask() is other._mask() and self._has == other._has

    def __hash__(self):
        return self._hash


class Unfit(Exception):
    """Why a value cannot go into a graph or come out of one."""


class Unserved(Error):
    """Why the graph of a backward cannot serve where eager goes back."""

    def __init__(self, name: str, what: str, passes=False):
        super().__init__(f"{name}: {what}")
        self.what = what
        self.passes = passes  # the next one may be served


class Passing(Unfit):
    """What may be otherwise the next time: a cache is filled by then, and a
    thread beside has not drawn a random number in just that moment."""


class Shared(Unfit):
    """A dict that layers may share, as an argument that has not been expected
    to be one."""


def gather(value, tensors: list, key: list) -> None:
    """Appends the tensors of a value, and what else it is."""
    kind = type(value)
    if kind in _TENSORS:
        if not value.is_cuda:
            raise Unfit(f"a tensor on {value.device} goes into the layer or "
                        "comes out of it; a graph reads and writes tensors "
                        "on the GPU")
        for i, other in enumerate(tensors):
            if other is value:
                key.append(("again", i))
                return
        dtype = value.dtype
        if dtype.is_complex and is_unfit_complex(value):
            raise Unfit("a complex tensor that is a conjugate or has a "
                        "gradient goes into the layer or comes out of it; "
                        "whether it is a conjugate is a bit beside its "
                        "memory, which is all that a graph reads: give it "
                        "x.resolve_conj(), or torch.view_as_real(x)")
        try:
            key.append((value.shape, value.stride(), dtype,
                        value.requires_grad, value.is_neg()))
        except RuntimeError:
            raise Unfit("a sparse or nested tensor goes into the layer or "
                        "comes out of it; graphs know strided ones") from None
        tensors.append(value)
    elif kind in _PLAIN or isinstance(value, _WHOLE):
        key.append(kind)
        key.append(str(value) if kind in _SIGNED else value)
    elif _is_mask(value):
        key.append(Mask(value))
    else:
        parts = _parts(value)
        key.append(kind)
        key.append(_names(parts) if isinstance(parts, dict) else len(parts))
        for part in parts.values() if isinstance(parts, dict) else parts:
            gather(part, tensors, key)


def gather_call(switches, args, kwargs) -> tuple[list, list]:
    """The tensors of a call, and what else it is."""
    tensors: list = []
    key = [is_autocast_enabled() and autocast(), switches]
    for arg in args:
        gather(arg, tensors, key)
    if kwargs:
        key.append(tuple(kwargs))
        for arg in kwargs.values():
            gather(arg, tensors, key)
    return tensors, key


def _names(parts) -> tuple:
    """The keys of a dict, of equal ones alone equal: 1 == True == 1.0."""
    for name in parts:
        if type(name) is not str:
            return tuple([(type(n), repr(n)) if type(n) in _PLAIN else n
                          for n in parts])
    return tuple(parts)


def _parts(value):
    """What a container holds, with names or without."""
    kind = type(value)
    if kind in (tuple, list) or (isinstance(value, tuple)
                                 and hasattr(kind, "_fields")):
        return value
    if dataclasses.is_dataclass(kind) and not isinstance(value, dict):
        try:
            parts = {f.name: getattr(value, f.name)
                     for f in dataclasses.fields(value)}
        except AttributeError as missing:
            raise Unfit(f"a {kind.__qualname__} goes into the layer or comes "
                        "out of it of which a field is not set: "
                        f"{missing}") from None
        more = getattr(value, "__dict__", parts).keys() - parts.keys()
        if more:
            raise Unfit(f"a {kind.__qualname__} goes into the layer or comes "
                        f"out of it that has more than its fields: "
                        f"{sorted(more)[0]}")
        return parts
    if kind in (dict, collections.OrderedDict):
        return value
    if kind.__name__.endswith("Cache"):
        raise Unfit(f"a {kind.__qualname__} goes into the layer or comes out "
                    "of it, a cache of keys and values for generation: train "
                    "with use_cache=False; prefix tuning gives one to each "
                    "call, which runs eagerly")
    unfit = Shared if isinstance(value, collections.UserDict) else Unfit
    raise unfit(f"a {kind.__module__}.{kind.__qualname__} goes into the "
                "layer or comes out of it; graphs know tensors, numbers, "
                "texts, process groups, None, and tuples, lists, dicts "
                "and dataclasses of them")


def describe(named, found: dict, tensors: dict) -> None:
    """Of values by name, what two calls must agree in, as texts by name."""
    for name, value in named.items():
        _describe(name, value, found, tensors)


def _describe(name: str, value, found: dict, tensors: dict) -> None:
    kind = type(value)
    if kind in _TENSORS:
        first = tensors.setdefault(id(value), name)
        found[name] = "a tensor" if first == name else f"the same as {first}"
        found.update({
            f"{name}.shape": str(tuple(value.shape)),
            f"{name}.dtype": str(value.dtype),
            f"{name}.stride()": str(value.stride()),
            f"{name}.requires_grad": str(value.requires_grad),
            f"{name}.is_neg()": str(value.is_neg())})
    elif isinstance(value, _GROUPS):
        found[name] = _describe_group(value)
    elif kind in _PLAIN or isinstance(value, _WHOLE):
        found[name] = repr(value)
    elif _is_mask(value):
        found[name] = f"the BlockMask at {id(value):#x}"
    else:
        parts = _parts(value)
        is_dict = isinstance(parts, dict)
        found[name] = f"a {kind.__name__} of {len(parts)}"
        for key, part in parts.items() if is_dict else enumerate(parts):
            inner = f"{name}[{key!r}]" if isinstance(value, (
                dict, list, tuple)) else f"{name}.{key}"
            _describe(inner, part, found, tensors)


def _describe_group(group) -> str:
    ranks = torch.distributed.get_process_group_ranks(group)
    return f"the process group {group.group_name} of " + (
        f"rank {ranks[0]}" if len(ranks) == 1 else
        f"{len(ranks)} ranks from {min(ranks)}")


def is_unfit_complex(tensor) -> bool:
    """Gradients may come as conjugates."""
    return tensor.requires_grad or tensor.is_conj()


def is_tensor(value) -> bool:
    return type(value) in _TENSORS


class Place:
    """Where a tensor goes in a form: `source` has it at `index`."""

    __slots__ = ("source", "index")

    def __init__(self, source, index: int):
        self.source = source
        self.index = index


def form(value, place):
    """The value with place(tensor) instead of its tensors."""
    if type(value) in _TENSORS:
        return place(value)
    if type(value) in _PLAIN or isinstance(value, _WHOLE) \
            or _is_mask(value):
        return value
    parts = _parts(value)
    if isinstance(parts, dict):
        return _Form(type(value), {n: form(p, place)
                                   for n, p in parts.items()})
    return _Form(type(value), [form(p, place) for p in parts])


def are_equal(shape, other) -> bool:
    """Of two forms, whether they are filled to the same."""
    kind = type(shape)
    if kind is not type(other):
        return False
    if kind is Place:
        return (shape.source, shape.index) == (other.source, other.index)
    if kind is not _Form:
        return shape == other if kind not in _SIGNED \
            else str(shape) == str(other)
    if shape.kind is not other.kind or len(shape.parts) != len(other.parts):
        return False
    if isinstance(shape.parts, dict):
        return _names(shape.parts) == _names(other.parts) and all(
            are_equal(p, other.parts[n]) for n, p in shape.parts.items())
    return all(map(are_equal, shape.parts, other.parts))


class _Form:
    __slots__ = ("kind", "parts")

    def __init__(self, kind, parts):
        self.kind = kind
        self.parts = parts


def fill(shape, sources):
    """A value of a form; `sources` are what its places point into."""
    kind = type(shape)
    if kind is Place:
        return sources[shape.source][shape.index]
    if kind is not _Form:
        return shape
    if isinstance(shape.parts, list):
        parts = [fill(p, sources) for p in shape.parts]
        if shape.kind in (tuple, list):
            return shape.kind(parts)
        # Its own __new__ has had its way with them.
        return tuple.__new__(shape.kind, parts)
    parts = {n: fill(p, sources) for n, p in shape.parts.items()}
    if not dataclasses.is_dataclass(shape.kind):
        return shape.kind(parts)
    value = object.__new__(shape.kind)
    for name, part in parts.items():
        object.__setattr__(value, name, part)
    return value


def matches(shape, value, sources) -> bool:
    """Whether the value is what fill() would make: the same tensors, and
    else equal."""
    kind = type(shape)
    if kind is Place:
        return sources[shape.source][shape.index] is value
    if kind is not _Form:
        return type(value) is kind and (
            shape == value if kind not in _SIGNED  # -0.0 is not 0.0,
            else str(shape) == str(value))  # and NaN is NaN
    if type(value) is not shape.kind:
        return False
    parts = _parts(value)
    if isinstance(parts, dict):
        return _names(parts) == _names(shape.parts) and all(
            matches(p, parts[n], sources) for n, p in shape.parts.items())
    return len(parts) == len(shape.parts) and all(
        matches(p, v, sources) for p, v in zip(shape.parts, parts))
