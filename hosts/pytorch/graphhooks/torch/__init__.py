"""graphhooks.torch: the layers of a model as CUDA graphs, bit for bit.

    attached.py       a stack of modules with graphs: its session, its steps
    off.py            what attach returns where graphs are turned off
    stack.py          which modules are meant, and how the plan knows them
    segment.py        the step path: a call of a module, and its backward
    planned.py        the same for the library: passes, in the structs of C
    replay.py         the same for autograd: a node of its graph
    chain.py          several modules that are one launch
    site.py           what stands in for a module's forward
    calls.py          what a call is given, in words
    banks.py          graphs for each of several shapes
    pools.py          what they leave in memory, and when that is let go
    instance.py       what is known of a segment's graphs, slot by slot
    recording.py      a pass becomes a graph: a forward in forwards.py, a
                      backward in backwards.py
    failures.py       why one has failed, and what to do about it
    gradients.py      how gradients of parameters get into .grad
    landing.py        how they get to places of ours within a graph
    sums.py           how those of several losses are added up
    flights.py        the order of recordings, as their memory demands
    contributions.py  what autograd adds up from elsewhere too
    comparisons.py    whether it does, without a wait for each answer
    ranks.py          layers with collectives: who runs them, and asks whom
    shared.py         a segment of theirs, which no rank leaves alone
    checkpoint.py     modules that run once more on the way back
    seeds.py          where attention finds the seed of its dropout
    offload.py        what goes to the host's memory and comes back, by groups
    bracket.py        what stands around a module that is a group, or has some
    saved.py          what autograd keeps of one
    ringed.py         groups of recorded passes, which the library moves
    carried.py        groups of eager passes; their pinned memory in pinned.py
    evaluation.py     graphs for passes without gradients: their session
    evaluated.py      a segment in one
    packed.py         arguments of packed sequences, by capacity
    trial.py          whether a module gives the same with them
    attributes.py     what modules hold in Python
    draws.py          the random numbers that they draw there
    settings.py       whether what layers read in Python is as it was
    things.py         the same of what several layers have
    found.py          what there is to be read, by name
    names.py          which names functions read, and of which files
    held.py           whether that is the same, in short loops
    tables.py         tensors of which others stand in the place
    notices.py        what is said of segments in the log
    places.py         whether all that graphs read is where it was
    memory.py         captures by torch, and the memory that graphs live in
    tree.py           tensors, and what holds them
    private.py        what is used of torch beyond what it documents
    versions.py       the versions of torch that are known to work

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import torch

from ..errors import Error
from .off import Off, is_off

__all__ = ["attach"]


def attach(model: torch.nn.Module, layers=None, **options):
    """As graphhooks.attach."""
    if is_off(options):
        return Off()
    if not torch.backends.cuda.is_built():
        raise Error("this torch is built without CUDA, and graphs are of a "
                    "GPU: install one that has it, or turn them off, "
                    "enable=False")
    from .attached import Attached  # needs what only such a torch has

    return Attached(model, layers, **options)
