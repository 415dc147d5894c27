"""How a forward becomes a graph.

It is recorded with autograd on, and autograd's graph of it is kept until the
backward has been recorded from it.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import torch

from ..base import memory, private, tree
from ..grad import contributions
from ..guard.attributes import refuse_set
from ..guard.settings import Settings
from . import outputs
from .again import Modes
from .beside import noted
from .instance import Instance
from .recording import (capture, closing, contents, found_in_buffers,
                        note_uses, play, refuse_many, static)


def record(segment, signature, read, tensors, args,
           kwargs) -> Instance | None:
    """Of a pass that is open, and reads these in the place of the caller's;
    None: the modules are to run eagerly."""
    owner = segment.owner
    instance = Instance(signature)
    if segment.split is not None and not segment.instances \
            and not segment.split.is_waiting() \
            and not any(t.requires_grad for t in tensors):
        segment.leave_whole()
    with closing(owner):
        before = segment.state
        settings = _settings(segment)
        segment.parameters.find_elsewhere(
            (settings or segment.settings).weights)
        segment.parameters.sort(owner.uses.by_autograd, segment.note_others,
                                segment.sums)
        instance.slot = segment.decision.slot
        instance.flight = owner.captures.at
        instance.inputs = static(segment, read, owns=False)
        for inside, outside in zip(instance.inputs, tensors):
            inside.requires_grad_(outside.requires_grad)
        if not capture(segment, signature, 0, lambda: _run(
                segment, instance, before, settings, tensors, args,
                kwargs)):
            before.undo()
            if settings is not None:
                settings.put_back()
            return None
    segment.has_failed = False
    segment.settings = settings or segment.settings
    segment.settings.adopt()
    segment.settings.note_recorded()
    instance.serial = owner.flights.next_serial()
    instance.pool = owner.captures.pool
    segment.parameters.note_old()
    instance.attributes = before.attributes.tensors()
    instance.outputs = [o.detach() for o in instance.live]
    instance.constant = [i for i, o in enumerate(instance.live)
                         if not o.requires_grad]
    if len(instance.live) > 1 and segment.parameters.gathered is None:
        instance.inner = [i for i, edges in enumerate(contributions.uses(
            instance.live, instance.live)) if edges]
    outputs.note(segment, instance, before.attributes)
    instance.holds = outputs.held(instance)
    key = signature.bank.number, instance.slot
    if key in segment.instances:
        segment.sums.note_late(segment.instances[key])
    segment.instances[key] = instance
    segment.unfinished = True
    owner.verify.note_recorded(segment, instance)
    owner.banks.note_recorded(signature, instance)
    return instance


def _settings(segment) -> Settings | None:
    """What its graphs read in Python, of the first one alone: later ones are
    recorded only while it is the same."""
    if segment.settings is not None:
        return None
    segment.owner.things.look()
    read = segment.state.read  # before the pass, just now
    return read if read is not None and read.are_kept() \
        else Settings(segment.sites, segment.owner.things)


def _run(segment, instance: Instance, before, settings, tensors, args,
         kwargs):
    if settings is not None:
        settings.refuse_unfit()
    segment.parameters.refuse_torn()
    indices = {id(t): i for i, t in enumerate(tensors)}
    instance.call = tree.form((args, kwargs),
                              lambda t: tree.Place(0, indices[id(t)]))
    if settings is None:
        segment.owner.things.look()
    instance.modes = Modes(settings or segment.settings.now(),
                           segment.around)
    args, kwargs = tree.fill(instance.call, (instance.inputs,))
    given = contents(args, kwargs)
    versions = [*map(private.version, instance.inputs)]
    if segment.writes:
        instance.buffers = found_in_buffers(segment)
    kept = memory.allocated(segment.owner.device)
    with noted(instance, segment.sites):
        results = play(segment, instance, args, kwargs,
                       segment.owner.offload.recording)
    instance.kept = memory.allocated(segment.owner.device) - kept \
        + sum(group.nbytes for group in instance.groups)
    if versions != [*map(private.version, instance.inputs)]:
        raise tree.Unfit("it changes in place what it is given")
    before.numbers.refuse_draws("it")
    if given != contents(args, kwargs):
        raise tree.Unfit("it changes a list or dict that it is given")
    if not segment.places.are_kept():
        raise tree.Unfit("it replaces a parameter or a buffer")
    refuse_many(results)
    if not any(t.requires_grad for t in results.tensors):
        raise tree.Unfit("nothing that comes out of it needs a gradient")
    refuse_set(segment.parameters.all, instance.leaves, "a parameter")
    _refuse_hooks(instance)
    _refuse_others(instance, before.attributes, results)
    if settings is not None and settings.settle("it") \
            and not segment.has_failed:
        raise tree.Passing("it runs functions that it had not run before")
    _refuse_sums(segment, instance, results)
    instance.live = results.tensors
    note_uses(segment, instance)
    return results.last


def _refuse_hooks(instance) -> None:
    """Those that a forward registers: eager calls them with what comes from
    elsewhere too, and one of a parameter in each backward after that."""
    if private.have_hooks(instance.inputs):
        raise tree.Unfit("it puts a hook on the gradient of what it is given, "
                         "which is called with what comes from elsewhere too, "
                         "and a graph has its own alone: put it on a view of "
                         "that, x = x.view_as(x), or outside of the layers")
    if private.have_hooks(instance.leaves):
        raise tree.Unfit("it puts a hook on the gradient of a parameter, in "
                         "each call one more, which a replay would not: put "
                         "it there before the attach")


def _refuse_others(instance, attributes, results) -> None:
    """Gradients come in by the results, and leave by inputs and parameters."""
    found = attributes.walk()
    for name, tensor in attributes.new(found):
        if tensor.requires_grad:
            raise tree.Unfit("it keeps a tensor with a gradient in an "
                             f"attribute, {name}: return it instead")
        raise tree.Passing("it leaves another tensor in an attribute, "
                           f"{name}, which a replay would not: return it "
                           "instead, or copy it into a buffer")
    attributes.refuse_changes("it", found)
    if contributions.leaves(results.tensors,
                            [*instance.inputs, *instance.leaves]):
        raise tree.Unfit("it reads a trained tensor that was neither given to "
                         "it nor is a parameter that it had at the attach: "
                         "give it as an argument, or make it a parameter of "
                         "the layer before the attach")


def _refuse_sums(segment, instance, results) -> None:
    """Of a weight that is used elsewhere too autograd adds up all gradients
    one by one, and a graph gives a single one."""
    shares = segment.parameters.shares
    edges = dict(zip(segment.parameters.all,
                     contributions.uses(results.tensors, instance.leaves)))
    unseen = segment.parameters.note_uses(
        {p: len(each) for p, each in edges.items()},
        not contributions.tells_all(results.tensors))
    if not (shares.found or shares.casts or unseen):
        return
    for _, name, p in segment.parameters.places:
        casts = len(contributions.casts(edges[p]))
        if p in shares.cast_for_others or casts > shares.casts.get(
                p, 0 if p in unseen else casts):
            raise tree.Unfit(f"{name} is cast by autocast once for several "
                             "uses, and eager adds up their gradients before "
                             "it casts them back, a graph after that: set "
                             "cache_enabled=False for that autocast")
        if p in shares.found and len(edges[p]) > 1:
            raise tree.Unfit(f"{name} is used {len(edges[p])} times in it, "
                             "and elsewhere too, or in another call: its "
                             "gradients would be added up in another order")
