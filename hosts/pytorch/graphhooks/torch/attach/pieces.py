"""What has graphs of a layer that waits for the device, as one with experts
does that counts the tokens of each on the host.

The layer is no graph as a whole then, and neither is what holds its experts.
The same holds for one that checkpoints what draws random numbers.
Its attention or mixer is one, its router is, and so are experts that all
tokens have; they are found by their names, or by what parts= says of a class.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import torch

from ...errors import Error

ATTENTION = ("attn", "self_attn", "attention", "self_attention")
MLP = ("mlp", "ffn", "feed_forward", "ff")
_OTHERS = ("mamba", "linear_attn", "mixer", "block_sparse_moe", "moe",
           "SelfAttention", "EncDecAttention", "DenseReluDense")  # T5's
_EXPERTS = "experts"
_BESIDE = ("router", "gate", "shared_experts", "shared_expert", "shared_mlp")


def by_class(parts) -> dict:
    """What parts= says of classes, by their names: paths of submodules."""
    return {_name(kind): [names] if isinstance(names, str) else [*names]
            for kind, names in (parts or {}).items()
            if _name(kind) not in ("attn", "mlp")} \
        if isinstance(parts, dict) else {}


def _name(kind) -> str:
    return kind.__name__ if isinstance(kind, type) else kind


def check(model, known: dict) -> None:
    """Each class is one of the model's, and has what is said of it."""
    modules: dict = {}
    for module in model.modules():
        for kind in type(module).__mro__:
            modules.setdefault(kind.__name__, module)
    for kind, names in known.items():
        if kind not in modules:
            raise Error(f"parts has {kind!r}; it takes attn, mlp, and classes "
                        "of the model's modules")
        for name in names:
            if _at(modules[kind], name) is None:
                raise Error(f"{kind} has no module {name!r}, which parts has "
                            "of it")


def _at(module, path: str):
    for name in path.split("."):
        module = getattr(module, name, None)
    return module if isinstance(module, torch.nn.Module) else None


def words(found, why: str) -> str:
    return (f"as {why}, graphs have {', '.join(found)} alone, and the rest "
            "runs eagerly")


def of(module, known: dict) -> dict:
    """Modules within it that may be graphs, by their paths."""
    for kind in type(module).__mro__:
        if kind.__name__ in known:
            found = {path: _at(module, path) for path in known[kind.__name__]}
            return {path: m for path, m in found.items() if m is not None}
    found = {}
    beside = _BESIDE if hasattr(module, _EXPERTS) else ()
    for name, child in module.named_children():
        if name in beside:
            found[name] = child
        elif isinstance(child, torch.nn.ModuleList):  # of sublayers, as T5's
            found.update((f"{name}.{i}.{path}", m)
                         for i, inner in enumerate(child)
                         for path, m in of(inner, known).items())
        elif name in ATTENTION + MLP + _OTHERS:
            if _holds_experts(child, known):
                found.update((f"{name}.{path}", m)
                             for path, m in of(child, known).items())
            else:
                found[name] = child
    return found


def _holds_experts(module, known: dict) -> bool:
    return hasattr(module, _EXPERTS) or any(
        kind.__name__ in known for kind in type(module).__mro__)
