"""graphhooks.torch: the layers of a model as CUDA graphs, bit for bit.

A folder imports from those after it in this list, and from none before it:

    attach/                 attach(): from a model to layers with graphs
      attached.py           what attach() returns; begins and ends steps
      body.py               wraps a function of an engine as if it were a layer
      caches.py             turns a model's cache off in training
      checks.py             checks the arguments of attach()
      forecast.py           what graphs will take of the device's memory
      room.py               chooses graphs that a memory limit has room for
      measured.py           times eager passes and replays; drops losers
      pieces.py             finds what else of a layer that waits has graphs
      stack.py              finds the layers that attach() is to take
      sessions.py           opens the library's session for these layers
      suspension.py         gives the memory of graphs back, and takes it
      optimizers.py         ends a step when the model's optimizer has stepped
      shared_parameters.py  finds parameters used outside of the layers
      versions.py           lists the versions of torch that passed the tests
      disabled.py           the object that attach(enable=False) returns
    group/                  layers with collectives: all ranks replay, or none
      ranks.py              exchanges what ranks decide about a pass
      arrivals.py           finds out which rank has not come
      shared.py             a segment that several ranks run together
      together.py           agrees on one bank for each shape on all ranks
      varying.py            asks the ranks of each microbatch's process group
    offload/                activations copied to pinned memory and back
      offload.py            decides which modules are groups, who copies them
      bracket.py            begins and ends a group around a module
      marks.py              groups that an engine marks by names of its own
      saved.py              catches tensors that autograd saves for a group
      ringed.py             groups of recorded passes, copied by the library
      carried.py            groups of eager passes, copied by this package
      pinned.py             pinned memory blocks, used again and again
    evaluate/               graphs for passes without gradients
      evaluation.py         the session of attach(eval=True)
      evaluated.py          a segment that runs forward only
    shapes/                 one bank of graphs for each shape
      banks.py              finds the bank of a call, makes and evicts banks
      packed.py             arguments of packed sequences, padded to a capacity
      trial.py              tests whether padding changes a module's result
    step/                   calls of a layer in a training step
      segment.py            the step path of a forward
      backward_entry.py     the step path of a backward
      segment_base.py       what a segment has with and without gradients
      eligibility.py        decides whether a graph can serve a call
      forward_wrapper.py    replaces a module's forward; puts it back
      collected.py          outputs of submodules that transformers collects
      shared_dicts.py       dicts in which layers leave what others read
      chain.py              a run of layers that one graph covers
      reached_inputs.py     what later layers of a chunk are given besides
      replay.py             the node that stands in autograd's graph
      verify.py             runs some replays eagerly too; compares the bits
    quantized/              FP8 of Transformer Engine
      calls.py              tells a layer's calls of their te.autocast
      regions.py            what regions of te.autocast set, read and update
    record/                 from an eager pass to a graph
      session_owner.py      makes the library's calls for a session
      c_passes.py           a segment's passes as C structs
      instance.py           the graphs of one segment, by slot
      recording.py          runs the modules once inside a capture
      state.py              saves what a pass begins with, and restores it
      forwards.py           records a forward
      backwards.py          records a backward
      again.py              runs a forward a second time for an eager backward
      weights.py            records weight gradients computed later
      split.py              records a backward in two: inputs, weights
      instead.py            runs a backward eagerly in the place of its graph
      outputs.py            copies out what somebody keeps of outputs
      failures.py           finds out why a recording failed, and what follows
      beside.py             notes what is written to objects beside modules
      apart.py              runs a pass on copies, so that it changes nothing
      flights.py            orders recordings that share memory
      pools.py              the memory pools of graphs, kept or freed by bank
      checkpoint.py         activation checkpointing in and around graphs
      heard.py              hooks on gradients of what a graph returned
    grad/                   brings gradients to where autograd would put them
      gradients.py          writes gradients of parameters into .grad
      gradient_buffers.py   the memory in which graphs leave gradients
      parameters.py         which parameters a graph serves, and in which way
      mains.py              finds that a main_grad is elsewhere
      watchers.py           finds hooks and others that wait for a gradient
      away.py               gradients that an engine keeps outside of .grad
      asked.py              backward(inputs=...) and autograd.grad()
      write_streams.py      orders writes to .grad from several streams
      staged_gradients.py   collects gradients inside a recording
      first.py              tells graphs which gradients are a step's first
      sums.py               sums of several losses, in eager's order
      in_order.py           the order in which eager adds up, and graphs do not
      contributions.py      gradients of an input that is used more than once
      chained.py            gradients passed from graph to graph without a copy
      strides.py            gradients that are expanded or have holes
      seeds.py              the dropout seeds of memory-efficient attention
    guard/                  detects changes since a recording
      calls.py              describes a call's arguments in words
      attributes.py         puts back what modules hold if a recording fails
      draws.py              random numbers that modules draw on the host
      flags.py              flags that a backward sets on weights
      storage_addresses.py  addresses of parameters and buffers; submodules
      settings.py           compares what a layer reads, before each replay
      shared_objects.py     objects that several layers share, compared once
      compiled.py           functions that torch compiles, which no watch sees
      ran.py                watches which Python functions run in a recording
      mutable.py            copies what a recording may write, to put it back
      kinds.py              tells values to compare from objects to look into
      finders.py            finds attributes that functions read of an object
      reachable_values.py   what modules and functions read, or leave out
      snapshot.py           compares the identities of recorded Python objects
      words.py              tells by words of memory which things were written
      tensor_twins.py       tensors replaced by others of the same bits
    base/                   used by all folders above
      memory.py             captures and memory pools of torch
      arena.py              memory for pools that can be given back
      layouts.py            tensors with holes, as graphs are given them
      gathered.py           copies parameters that move, as FSDP2's, for graphs
      tree.py               finds the tensors in arguments and results
      names.py              finds the names that a function's code reads
      comparisons.py        compares tensors without waiting for the device
      notices.py            collects messages and logs equal ones as one
      questions.py          the questions that ranks ask each other, by number
      switches.py           settings of torch that choose kernels, as autocast
      private.py            every undocumented name of torch that is used

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import torch

from ..errors import Error
from .attach.disabled import Off, is_off

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
