"""graphhooks.torch: the layers of a model as CUDA graphs, bit for bit.

A folder reads those after it, and none before it:

    attach/             what attach() makes of a model
      attached.py       a stack of modules with graphs, and its steps
      body.py           an engine's own work as one of these modules
      checks.py         what it is asked for, and refuses
      measured.py       whether graphs pay, against eager passes
      stack.py          which modules are meant, and how the plan knows them
      sessions.py       their session, and the segments that its plan has
      optimizers.py     whose step ends one of the training's
      uses.py           parameters that others wait for, or use
      versions.py       the versions of torch that are known to work
      off.py            what attach returns where graphs are turned off
    group/              layers with collectives, of which no rank leaves the others
      ranks.py          who runs them, and asks whom
      shared.py         a segment of theirs
      together.py       the banks that they agree on
    offload/            what goes to the host's memory and comes back, by groups
      offload.py        which groups there are, and who moves them
      bracket.py        what stands around a module that is a group, or has some
      marks.py          groups that an engine marks in its own code
      saved.py          what autograd keeps of one
      ringed.py         groups of recorded passes, which the library moves
      carried.py        groups of eager passes
      pinned.py         their memory
    evaluate/           graphs for passes without gradients
      evaluation.py     their session
      evaluated.py      a segment in one
    shapes/             which graphs a call is of
      banks.py          graphs for each of several shapes
      packed.py         arguments of packed sequences, by capacity
      trial.py          whether a module gives the same with them
    step/               a call of a module in a step
      segment.py        the step path: a call of a module
      back.py           the way back through it
      called.py         what calls with gradients and without are alike in
      served.py         which calls a graph may serve
      site.py           what stands in for a module's forward
      chain.py          several modules that are one launch
      replay.py         a node of autograd's graph
      verify.py         whether replays give what the modules give
    record/             how passes become graphs
      owner.py          who has a session, and makes its calls
      planned.py        passes, in the structs of C
      instance.py       what is known of a segment's graphs, slot by slot
      recording.py      a pass becomes a graph
      state.py          what a forward begins with, to run once more
      forwards.py       a forward does
      backwards.py      a backward does
      again.py          a forward once more, without a trace
      weights.py        gradients of weights that a backward puts off
      split.py          a backward in two, for inputs and for weights
      instead.py        an eager backward in a graph's place
      failures.py       why one has failed, and what to do about it
      apart.py          a pass beside another, on copies of what it could write
      flights.py        the order of recordings, as their memory demands
      pools.py          what banks leave in memory, and when that is let go
      checkpoint.py     modules that run once more on the way back
    grad/               how gradients get to where autograd would put them
      gradients.py      those of parameters, into .grad
      home.py           where graphs leave them
      parameters.py     which of them a graph puts there, and how
      watchers.py       who waits for them
      away.py           those that an engine has elsewhere
      asked.py          passes that are asked for some of them alone
      writes.py         on which streams, one after the other
      landing.py        to places of ours within a graph
      sums.py           those of several losses
      contributions.py  what autograd adds up from elsewhere too
      chained.py        gradients that a graph reads where the next has left them
      strides.py        how they lie in memory
      seeds.py          where attention finds the seed of its dropout
    guard/              whether a call is what was recorded
      calls.py          what a call is given, in words
      attributes.py     what modules hold in Python
      draws.py          the random numbers that they draw there
      flags.py          flags on weights that a backward puts up
      places.py         whether all that graphs read is where it was
      settings.py       whether what layers read in Python is as it was
      things.py         the same of what several layers have
      ran.py            which functions ran, and so what layers can read
      kinds.py          whether a value has something in it
      finders.py        what there is to be read of an object or a class
      found.py          the same of a value and what it leads to, by name
      held.py           whether that is the same, in short loops
      tables.py         tensors of which others stand in the place
    base/               what all of it reads
      memory.py         captures by torch, and the memory that graphs live in
      tree.py           tensors, and what holds them
      names.py          which names functions read, and of which files
      comparisons.py    whether tensors are equal, without a wait for each
      notices.py        what is said of segments in the log
      questions.py      what ranks ask each other
      switches.py       settings of torch by which operations choose a kernel
      private.py        what is used of torch beyond what it documents

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import torch

from ..errors import Error
from .attach.off import Off, is_off

__all__ = ["attach"]


def attach(model: torch.nn.Module, layers=None, **options):
    """As graphhooks.attach."""
    if is_off(options):
        return Off()
    if not torch.backends.cuda.is_built():
        raise Error("this torch is built without CUDA, and graphs are of a "
                    "GPU: install one that has it, or turn them off, "
                    "enable=False")
    from .attach.attached import Attached  # needs what only such a torch has

    return Attached(model, layers, **options)
