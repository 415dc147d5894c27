"""A forward once more, for a backward that no graph serves.

It begins with what the first has begun with, and leaves no trace in what there
is by now.  Who is given its results compares them to those of the first.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import contextvars

import torch

from ..base import memory, private, tree
from ..base.comparisons import first_difference, same_bits
from ..base.questions import AGAIN
from ..base.switches import autocast, switched, switches
from ..grad import contributions
from ..grad.strides import memory_of
from ..guard import flags
from ..guard.attributes import Attributes
from ..guard.settings import Settings
from .instance import Instance
from .recording import note_uses, play

_NOT_NEEDED, _NEEDED, _IMPOSSIBLE = range(3)
# What a run before a recording has shown, from the best to the worst.
_SAME, _VARIES, _NO_ROOM, _OTHER = range(4)
_REPEATS = 2  # times that it has to give the same before it is accused
_UNLIKE = ("its forward, run once more from where it began, {}, so there "
           "would be no way back should the recording of its backward fail: "
           "give it what it reads as an argument, or keep it in a buffer")
_OTHERWISE = "gives something else than the first time"


class Modes:
    """How a forward is called besides its arguments, and what it reads in
    Python: autograd goes back in a thread of its own, when the caller has
    left the regions that the forward was in."""

    def __init__(self, settings: Settings, around):
        self.around = around  # the modules
        self._switches = autocast(), switches()
        self._on_host = torch.is_autocast_enabled("cpu") \
            and torch.get_autocast_dtype("cpu")
        self._variables = contextvars.copy_context()
        self._put_back = settings.as_now()
        self._settings: Settings | None = None  # once it is recorded

    def forget(self, settings: Settings) -> None:
        """What it reads is what the segment's graphs read."""
        self._put_back = self.around = None
        self._settings = settings

    @contextlib.contextmanager
    def again(self, around):
        tokens = [(variable, variable.set(value))
                  for variable, value in self._variables.items()]
        if self._put_back is not None:
            self._put_back()
        try:
            with contextlib.nullcontext() if self._settings is None \
                    else self._settings.lent(), \
                    contextlib.nullcontext() if around is None \
                    else around.again(), \
                    torch.enable_grad(), switched(*self._switches), \
                    torch.autocast("cpu", self._on_host or None,
                                   bool(self._on_host)):
                yield
        finally:
            for variable, token in tokens:
                variable.reset(token)


class Contents:
    """What is in tensors, as it is when this is made."""

    def __init__(self, tensors):
        with torch.no_grad():
            self.kept = [(t, memory_of(t.data).clone()) for t in tensors]

    def now(self) -> "Contents":
        """Of the same."""
        return Contents([t for t, _ in self.kept])

    def put_back(self) -> None:
        for tensor, copy in self.kept:
            memory_of(tensor.data).copy_(copy)  # autograd does not hear of it

    def pairs(self) -> list:
        """What is there by now, and what was."""
        return [(memory_of(t.data), copy) for t, copy in self.kept]


def elsewhere(sites, attributes: Attributes, settings: Settings) -> list:
    """Tensors that modules may write besides their buffers: those that they
    have in attributes, or read elsewhere, as tables of quantizers are."""
    modules = [m for site in sites for m in site.module.modules()]
    own = [t for m in modules for t in (*private.parameters_of(m).values(),
                                        *private.buffers_of(m).values())
           if t is not None]
    own += [main for t in own for main in [vars(t).get("main_grad")]
            if isinstance(main, torch.Tensor)]
    known = {_address(t) for t in own if t.layout == torch.strided}
    found = {id(t): t for t in attributes.tensors() + settings.tensors()}
    return [t for t in found.values()
            if type(t) is torch.Tensor and t.layout == torch.strided
            and not (t.is_meta or t.is_inference())
            and _address(t) not in known]


def _address(tensor) -> int:
    return tensor.untyped_storage().data_ptr()


@contextlib.contextmanager
def traceless(owner, sites):
    """What modules leave in Python has not been, nor what they have written
    that is not in their buffers.  Those that write their parameters are none
    to run once more, and are told so when these are as they were."""
    segment = _Sites(owner, sites)
    attributes = Attributes(segment)
    owner.things.look()
    settings = Settings(sites, owner.things)
    written = Contents(elsewhere(sites, attributes, settings))
    weights = Contents(_weights(owner, sites))
    try:
        yield settings
    finally:
        attributes.put_back()
        settings.put_back()
        written.put_back()
        are_written = first_difference(weights.pairs()) is not None
        if are_written:
            weights.put_back()
    if are_written:
        raise tree.Unfit("it writes a parameter")


def _weights(owner, sites) -> list:
    """Parameters, where there is room for copies: few modules write them."""
    found = {id(p): p for site in sites for m in site.module.modules()
             for p in private.parameters_of(m).values()
             if p is not None and p.layout == torch.strided}
    nbytes = sum(p.nbytes for p in found.values())
    return [*found.values()] if memory.has_room(owner.device, nbytes) else []


class _Sites:
    def __init__(self, owner, sites):
        self.owner, self.sites = owner, sites


def run(segment, instance: Instance, inputs, around, leaves=None,
        count=None):
    """The pass with autograd's graph of it, and its results.  The caller sees
    to numbers and buffers."""
    again = Instance(instance.signature)
    again.slot, again.flight = instance.slot, instance.flight
    again.inputs = inputs
    args, kwargs = tree.fill(instance.call, (inputs,))
    with traceless(segment.owner, segment.sites), \
            instance.modes.again(around):
        results = play(segment, again, args, kwargs,
                       segment.owner.offload.plain, leaves, count)
    again.live = results.tensors
    return again, results


# ---- should a backward fail to be recorded --------------------------------


def beforehand(segment, instance: Instance, is_wanted) -> Instance | None:
    """For the backward that is about to be recorded, while autograd still has
    its graph; None: there is none, or the segment is eager from now on.

    Only until one with the same functions has been recorded: it costs a
    forward, and memory for what that keeps.  Ranks that record together run it
    together, or none does."""
    owner = segment.owner
    answer = _IMPOSSIBLE
    if is_wanted and memory.has_room(owner.device, instance.kept + sum(
            p.nbytes for p in segment.parameters.all)):
        answer = _NEEDED if contributions.functions(instance.live) \
            not in owner.gone_back else _NOT_NEEDED
    if owner.ranks.worst(segment, AGAIN, answer) != _NEEDED:
        return None
    again, shown, what = _try(segment, instance)
    shown = owner.ranks.worst(segment, AGAIN, shown)
    if shown == _OTHER:
        segment.give_up(instance.signature, _UNLIKE.format(
            what or _OTHERWISE))
    return again if shown <= _VARIES else None


def _try(segment, instance: Instance) -> tuple:
    try:
        again = _from_then(segment, instance)
        if _are_same(instance, again.live, instance.outputs):
            return again, _SAME, ""
        others = [_from_then(segment, instance) for _ in range(_REPEATS)]
        if all(_are_same(instance, again.live, other.live)
               for other in others):
            return again, _OTHER, _OTHERWISE
    except torch.OutOfMemoryError:
        return None, _NO_ROOM, ""
    except tree.Unfit as unfit:
        return None, _OTHER, f"cannot be had again: {unfit}"
    except Exception as failure:  # whatever the modules raise
        return None, _OTHER, f"raises {type(failure).__name__}: " \
            + str(failure).partition("\n")[0]
    return again, _VARIES, ""


def after(segment, instance: Instance, again) -> Instance:
    """For a backward that is not recorded, and for which autograd's graph is
    gone, or is wanted for a recording still to come; with what beforehand()
    has given."""
    again = again or _from_then(segment, instance)
    if _are_same(instance, again.live, instance.outputs):
        return again
    if not instance.spent and segment.owner.ranks.size == 1:
        segment.give_up(instance.signature, _UNLIKE.format(_OTHERWISE))
        return instance  # autograd's graph, after all
    segment.owner.say(segment.name, "its backward could not be recorded, and "
                      "its modules give other numbers when they run again, so "
                      "gradients of this pass are not eager's to the bit")
    return again


def _from_then(segment, instance: Instance) -> Instance:
    now = instance.before.now()
    instance.before.put_back()
    try:
        again, _ = run(segment, instance, [
            t.detach().requires_grad_(t.requires_grad)
            for t in instance.inputs], instance.modes.around)
    finally:
        now.put_back()
    again.wanted, again.layouts = instance.wanted, instance.layouts
    again.groups = instance.groups
    flags.catch_up(segment.parameters.all, again.leaves)
    note_uses(segment, again)
    return again


def _are_same(instance, tensors, others) -> bool:
    """But for outputs that somebody has written since, as autograd allows."""
    return len(tensors) == len(others) and all(
        same_bits(tensor, other) for tensor, other, (given, then)
        in zip(tensors, others, instance.given)
        if private.version(given) == then)
