"""graphhooks.torch: the layers of a model as CUDA graphs, bit for bit.

    attached.py       a stack of modules with graphs: its session, its steps
    stack.py          which modules are meant, and how the plan knows them
    segment.py        the step path: a call of a module, and its backward
    planned.py        the same for the library: passes, in the structs of C
    replay.py         the same for autograd: a node of its graph
    chain.py          several modules that are one launch
    recording.py      a pass becomes a graph
    gradients.py      how gradients of parameters get into .grad
    contributions.py  what autograd adds up from elsewhere too
    checkpoint.py     modules that run once more on the way back
    places.py         whether all that graphs read is where it was
    memory.py         captures by torch, and the memory that graphs live in
    tree.py           tensors, and what holds them

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import torch

from .attached import Attached

__all__ = ["attach", "Attached"]


def attach(model: torch.nn.Module, layers=None, **options) -> Attached:
    """Captures a stack of layers of ``model``, and replays it.

    ``layers``: an ``nn.ModuleList``, any sequence of modules, or names by
    pattern ("blocks.*"); without it the longest ``nn.ModuleList``.
    ``granularity``: "layer", "chunk" (the whole stack is one launch) or
    "part" (submodules of a layer: ``parts={"attn": ..., "mlp": ...}`` has
    their names where they are not the usual ones); ``scope`` has the parts
    that are wanted.  ``generators``: further ones that layers draw from.
    ``gradients="autograd"`` leaves all of them to autograd.  All other
    options are the environment variables in Python's spelling; a variable
    that is set wins.
    """
    return Attached(model, layers, **options)
