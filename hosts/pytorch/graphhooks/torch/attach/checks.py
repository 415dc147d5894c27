"""What attach() is asked for, and what of it is refused before anything is
made.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os

import torch

from ...errors import Error
from ..offload.bracket import Plain
from ..step.forward_wrapper import Detached, Site
from . import stack
from .body import Body


def check_options(options, gradients, group) -> None:
    if gradients not in ("graph", "autograd"):
        raise Error(f"gradients is {gradients!r}; it is graph or "
                    "autograd")
    _refuse_check(options, group)
    if "services" in options:
        raise Error("services are what attach lends to the library "
                    "itself: leave them out")


def _refuse_check(options, group) -> None:
    """bitwise is verify's (step/verify.py)."""
    check = os.environ.get("GRAPHHOOKS_CHECK") or options.get("check")
    if check == "ranks" and group is None:
        raise Error("GRAPHHOOKS_CHECK=ranks compares what ranks do, and "
                    "attach knows of none: give it group=, the process group "
                    "of those that share the layers, or leave the check off")


def generators_of(asked) -> tuple:
    """One, or several."""
    try:
        generators = tuple(asked)
    except TypeError:
        generators = (asked,)
    for generator in generators:
        if not isinstance(generator, torch.Generator):
            raise Error(f"generators has {generator!r}; it takes those "
                        "that layers draw from, torch.Generator")
    return generators


def check_layers(model, layers) -> None:
    if any(isinstance(m, torch.nn.DataParallel) for m in model.modules()):
        raise Error("the model is in nn.DataParallel, which copies it in "
                    "every step: use DistributedDataParallel")
    seen = set()
    for layer in layers:
        why = stack.why_unfit(layer.module)
        if why is not None:
            raise Error(f"{layer.name} {why}")
        for module in layer.module.modules():
            forward = vars(module).get("forward")
            if isinstance(forward, Plain) or isinstance(forward, Site) \
                    and not isinstance(forward, Detached):
                raise Error(f"{layer.name} is attached already: detach "
                            "it first")
        if id(layer.module) in seen:
            raise Error(f"{layer.name} is in the stack twice, and a stack has "
                        "each module once: name it once, as in layers=[layer];"
                        " several calls of it in a microbatch may be graphs")
        seen.add(id(layer.module))


NO_GROUP = ("group= is for layers that ranks run together, and some are "
            "sharded by FSDP (fully_shard), which graphs have on each rank "
            "alone: leave group out, or use DistributedDataParallel")
# Beside FSDP, in words.
_NO_OPTIONS = {
    "offload": "offload moves what layers keep, and cannot tell their "
               "gathered parameters from it",
    "split_backward": "split_backward needs parameters once more, when FSDP "
                      "has let them go",
    "eval": "graphs of evaluation read parameters in place, and FSDP moves "
            "them",
}


def check_gathering(gathering, layers, options: dict) -> None:
    """What graphs of layers that FSDP shards do not do."""
    for layer in layers if gathering.layers else ():
        modules = [layer.module]
        if gathering.has_unlike(modules):
            raise Error(f"{layer.name} is sharded by FSDP (fully_shard), and "
                        "has parameters that are in other shards besides, as "
                        "tensor parallelism has them, or in a type of their "
                        "own: leave that out, or leave the layer out with "
                        "layers=")
        if isinstance(layer.module, Body) and gathering.has_shards(modules):
            raise Error(f"{layer.name} is a segment of an engine's own, and "
                        "its modules are sharded by FSDP (fully_shard), whose "
                        "hooks nobody calls there: attach to the layers")
    for name, why in _NO_OPTIONS.items() if gathering.layers else ():
        if options[name]:
            raise Error(f"{name} is not for layers that are sharded by FSDP "
                        f"(fully_shard): {why}; leave {name} out")


def check_allocator() -> None:
    backend = torch.cuda.get_allocator_backend()
    if backend != "native":
        raise Error(f"torch's memory on the GPU is of the {backend} allocator,"
                    " and only its native one keeps that of graphs apart: "
                    "leave backend: out of PYTORCH_CUDA_ALLOC_CONF, and other "
                    "allocators alone")
