"""Which modules are meant: the layers of a model, and their parts.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import fnmatch

import torch
from torch.nn.parameter import is_lazy

from ...errors import Error
from ...model import Model
from ..base import private
from . import pieces
from .body import Body

# What modules of these parts are commonly called.
_USUAL = {"attn": pieces.ATTENTION, "mlp": pieces.MLP}


class Layer:
    """One module of the stack."""

    def __init__(self, name: str, module, parts: dict, within=None):
        self.name = name
        self.module = module
        self.list = within  # of modules, if it is in one
        self.is_apart = False  # no chunk has it together with others
        self.word: str | None = None  # of a piece: its part
        self.parts = {p: n for p, names in parts.items() for n in names
                      if isinstance(getattr(module, n, None),
                                    torch.nn.Module)}

    def kind(self) -> str:
        """As the plan knows it; a module without parts is one of its own."""
        if self.word is not None:
            return f"{self.word}_only"
        if len(self.parts) == 2:
            return "dense"
        return "attn_only" if "attn" in self.parts else "mlp_only"

    def modules(self, first: str, last: str) -> dict:
        """What runs the parts from `first` to `last`."""
        if first != last or len(self.parts) < 2:
            return {self.name: self.module}
        name = self.parts[first]
        return {f"{self.name}.{name}": getattr(self.module, name)}


def find(model: torch.nn.Module, layers, parts) -> list[Layer]:
    """The layers that a caller means."""
    if not isinstance(model, torch.nn.Module):
        raise Error(f"model is {model!r}; attach takes a torch.nn.Module")
    named = dict(model.named_modules())
    modules = _choose(named, layers)
    if not modules:
        raise Error("there is no layer to attach to")
    names = {m: n for n, m in named.items()}
    for module in modules:
        if isinstance(module, Body):
            module.know(names)
    lists = {m: each for each in named.values() if isinstance(each, _LISTS)
             for m in each.children()}
    found = [Layer(_name(m, names) or f"layer {i}", m, _parts(parts),
                   lists.get(m)) for i, m in enumerate(modules)]
    if parts:
        pieces.check(model, pieces.by_class(parts))
        _check_parts(found, parts)
    return found


def split(layers, waiting, parts) -> list[Layer]:
    """With the pieces of those layers in their place that are, or have a
    part, among the names of what waits for the device."""
    known = pieces.by_class(parts)
    found: list = []
    for layer in layers:
        names = {layer.name, *(f"{layer.name}.{n}"
                               for n in layer.parts.values())}
        several = {} if names.isdisjoint(waiting) else pieces.of(
            layer.module, known)
        for path, module in several.items():
            piece = Layer(f"{layer.name}.{path}", module, {})
            piece.is_apart = True
            piece.word = "attn" if path.split(".")[-1] in pieces.ATTENTION \
                else "mlp"
            found += split([piece], waiting, parts)
        found += [layer] * (not several)
    return found


def _name(module, names: dict) -> str | None:
    if not isinstance(module, Body):
        return names.get(module)
    if module.name or module.of not in names:
        return module.name
    return ".".join(filter(None, (names[module.of],
                                  getattr(module.run, "__name__", ""))))


def _choose(named, layers) -> list:
    if layers is None:
        return _stacks(named)
    if isinstance(layers, str):
        layers = [layers]
    try:
        layers = list(layers)
    except TypeError:
        raise Error(f"layers is {layers!r}; {_TAKES}") from None
    found: list = []
    for layer in layers:
        if isinstance(layer, str):
            found += _match(named, layer)
        elif isinstance(layer, torch.nn.Module):
            found.append(layer)
        else:
            raise Error(f"layers has {layer!r}; {_TAKES}")
    return found


_TAKES = 'it takes modules, or names by pattern such as "blocks.*"'


_LISTS = (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.Sequential)


def _has_some(module) -> bool:
    """Modules; not whether it is true, which asks some for their length."""
    return next(module.children(), None) is not None


def _stacks(named) -> list:
    """Of a model of which nothing is said: its longest lists of modules, and
    those of several layers of one class, as an encoder and a decoder have; no
    list within another of them.  A list has numbers for names, and a layer
    has modules of its own, if any list has such."""
    lists = {n: [*m.children()] for n, m in named.items()
             if isinstance(m, _LISTS) and _has_some(m)
             and all(n.isdigit() for n, _ in m.named_children())}
    lists = {n: each for n, each in lists.items()
             if all(map(_has_some, each))} or lists
    most = max((len(each) for n, each in lists.items() if isinstance(
        named[n], torch.nn.ModuleList)), default=0)
    found: dict = {}
    for name, layers in lists.items():  # the outer ones first
        if any(name.startswith(f"{outer}." if outer else "")
               for outer in found):
            continue
        if len({*map(type, layers)}) == 1 < len(layers) \
                or len(layers) == most and isinstance(named[name],
                                                      torch.nn.ModuleList):
            found[name] = layers
    found = found or _numbered(named)
    if not found:
        raise Error("the model has no list of layers, as an nn.ModuleList, or "
                    "an nn.Sequential of several of one class: say which are "
                    "meant, layers=[...] or by pattern such as \"blocks.*\"")
    return [m for each in found.values() for m in each]


def _numbered(named) -> dict:
    """Of a model without lists: modules that hold several layers of one class
    by numbered names, such as stages of b1, b2, and nothing else."""
    found: dict = {}
    for name, module in named.items():
        layers = dict(module.named_children())
        if len(layers) > 1 and len({*map(type, layers.values())}) == 1 \
                and all(map(_has_some, layers.values())) \
                and all(n[-1:].isdigit() for n in layers) \
                and not any(name.startswith(f"{outer}.") for outer in found):
            found[name] = [*layers.values()]
    return found


def _match(named, pattern: str) -> list:
    """As in a shell, for each component of a name by itself."""
    rule = pattern.split(".")
    found = [m for name, m in named.items() if name
             and len(name.split(".")) == len(rule)
             and all(map(fnmatch.fnmatchcase, name.split("."), rule))]
    if not found:
        names = [*filter(None, named)]
        there = ", ".join(names[:7] + ["..."] * (len(names) > 7))
        raise Error(f"no module of the model is called {pattern!r}, where * "
                    "stands for one component of a name, or a part of it; "
                    + (f"there are {there}" if names else
                       "there is the model alone: layers=[model] takes that"))
    return [m for each in found for m in (
        each if isinstance(each, torch.nn.ModuleList) else [each])]


def _parts(parts) -> dict:
    if not parts:
        return _USUAL
    if not isinstance(parts, dict):
        raise Error(f"parts is {parts!r}; it is a dict such as "
                    "{\"attn\": \"self_attn\"}")
    return {part: (names,) if isinstance(names, str) else tuple(names)
            for part, names in parts.items() if part in _USUAL} or _USUAL


def _check_parts(found, parts) -> None:
    """Layers may be of several kinds, but a name is of some of them."""
    for part, names in _parts(parts).items() if set(parts) & set(_USUAL) \
            else ():
        for name in names:
            if not any(layer.parts.get(part) == name for layer in found):
                raise Error(f"{found[0].name} has no module {name!r}, which "
                            f"parts calls its {part}"
                            + ", nor has any other layer" * (len(found) > 1))


def why_unfit(module) -> str | None:
    """Why a module can have no graphs at all, or None."""
    if any(map(is_lazy, (*module.parameters(), *module.buffers()))):
        return ("has parameters without a shape yet: run one forward before "
                "the attach")
    if any(map(private.is_fsdp1, module.modules())):
        return ("is sharded by FullyShardedDataParallel, which makes its "
                "parameters anew in each call: use fully_shard of "
                "torch.distributed.fsdp, whose layers have graphs")
    return None


def _are_apart(one: Layer, other: Layer) -> bool:
    return one.is_apart or other.is_apart or (
        None not in (one.list, other.list) and one.list is not other.list)


def describe(layers) -> Model:
    """The stack as the library knows it; each list of modules is a chunk."""
    model, chunk, before = Model(), 0, None
    for layer in layers:
        chunk += before is not None and _are_apart(before, layer)
        before = layer
        model.add_layer(layer.kind(), name=layer.name, chunk=chunk,
                        family="stack")
    return model


def device_of(layers, gathering) -> int:
    """The GPU that all of the stack is on."""
    devices = set().union(*(gathering.devices(layer.module)
                            for layer in layers))
    if not devices and torch.cuda.is_available():
        return torch.cuda.current_device()
    where = ", ".join(sorted(map(str, devices)))
    if any(d.type != "cuda" for d in devices):
        raise Error(f"the layers are on {where}; graphs are of a GPU: move "
                    "the model there before the attach, or turn them off, "
                    "enable=False")
    if len(devices) > 1:
        raise Error(f"the layers are on {where}; a session is one device: "
                    "attach to those of each device apart")
    if not devices:
        raise Error("torch sees no GPU")
    return devices.pop().index
