"""graphhooks.torch: the layers of a model as CUDA graphs, bit for bit.

    attached.py       a stack of modules with graphs: its session, its steps
    off.py            what attach returns where graphs are turned off
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
from .off import Off, is_off

__all__ = ["attach", "Attached"]


def attach(model: torch.nn.Module, layers=None, **options):
    """As graphhooks.attach."""
    return Off() if is_off(options) else Attached(model, layers, **options)
