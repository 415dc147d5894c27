"""Which modules are meant: the layers of a model, and their parts.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import re

import torch

from ..errors import Error
from ..session import Model

# What modules of these parts are commonly called.
_USUAL = {
    "attn": ("attn", "self_attn", "attention", "self_attention"),
    "mlp": ("mlp", "ffn", "feed_forward", "ff"),
}


class Layer:
    """One module of the stack."""

    def __init__(self, name: str, module, parts: dict):
        self.name = name
        self.module = module
        self.parts = {p: n for p, names in parts.items() for n in names
                      if isinstance(getattr(module, n, None),
                                    torch.nn.Module)}

    def kind(self) -> str:
        """As the plan knows it; a module without parts is one of its own."""
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
    named = dict(model.named_modules())
    modules = _choose(model, named, layers)
    if not modules:
        raise Error("there is no layer to attach to")
    names = {id(m): n for n, m in named.items()}
    found = [Layer(names.get(id(m), f"layer {i}"), m, _parts(parts))
             for i, m in enumerate(modules)]
    if parts:
        _check_parts(found, parts)
    return found


def _choose(model, named, layers) -> list:
    if layers is None:
        lists = [m for m in named.values()
                 if isinstance(m, torch.nn.ModuleList) and len(m)]
        if not lists:
            raise Error("the model has no nn.ModuleList: say which layers "
                        "are meant")
        return list(max(lists, key=len))
    if isinstance(layers, str):
        layers = [layers]
    layers = list(layers)
    if not all(isinstance(layer, str) for layer in layers):
        for layer in layers:
            if not isinstance(layer, torch.nn.Module):
                raise Error(f"layers has {layer!r}; it takes modules, or "
                            "names by pattern such as \"blocks.*\"")
        return layers
    return [m for pattern in layers for m in _match(named, pattern)]


def _match(named, pattern: str) -> list:
    """`*` stands for one component of a name."""
    rule = re.compile(re.escape(pattern).replace(r"\*", "[^.]+"))
    found = [m for name, m in named.items() if rule.fullmatch(name)]
    if not found:
        raise Error(f"no module of the model is called {pattern!r}; there "
                    f"are {', '.join(n for n in list(named)[1:8])}, ...")
    return found


def _parts(parts) -> dict:
    if not parts:
        return _USUAL
    for part in parts:
        if part not in _USUAL:
            raise Error(f"parts has {part!r}; it is one of "
                        f"{', '.join(_USUAL)}")
    return {part: (name,) for part, name in parts.items()}


def _check_parts(found, parts) -> None:
    for layer in found:
        for part, name in parts.items():
            if part not in layer.parts:
                raise Error(f"{layer.name} has no module {name!r}, which "
                            f"parts calls its {part}")


def why_unfit(module) -> str | None:
    """Why a module can have no graphs at all, or None."""
    for inner in module.modules():
        if type(inner).__name__ == "FullyShardedDataParallel" \
                or hasattr(inner, "_get_fsdp_state"):
            return ("is sharded by FSDP, whose parameters come and go; graphs "
                    "need them in place: use DistributedDataParallel")
    return None


def describe(layers) -> Model:
    """The stack as the library knows it."""
    model = Model()
    for layer in layers:
        model.add_layer(layer.kind(), name=layer.name, family="stack")
    return model


def device_of(layers) -> int:
    """The GPU that all of the stack is on."""
    devices = {t.device for layer in layers
               for t in (*layer.module.parameters(), *layer.module.buffers())}
    if not devices and torch.cuda.is_available():
        return torch.cuda.current_device()
    where = ", ".join(sorted(map(str, devices)))
    if any(d.type != "cuda" for d in devices):
        raise Error(f"the layers are on {where}; graphs are of a GPU: move "
                    "the model there before the attach")
    if len(devices) > 1:
        raise Error(f"the layers are on {where}; a session is one device: "
                    "attach to those of each device apart")
    if not devices:
        raise Error("torch sees no GPU")
    return devices.pop().index
