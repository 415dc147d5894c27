"""Which calls a graph may serve: what is asked of each before its bank is.

Where one may not, its reason is counted, and said once.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from torch import is_grad_enabled
from torch.cuda import is_current_stream_capturing as is_capturing

from ..base import tree
from ..base.private import (are_heard, current_device, is_in_mode,
                            is_transformed, keeps_parametrized)
from . import shared_dicts


def fit(segment, args, kwargs) -> tuple:
    """The tensors of a call that a graph can serve, and what else it is;
    or None."""
    owner = segment.owner
    if segment.refused is not None:
        if owner.stepped and (segment.is_heard or segment.is_lost
                              or segment.broken is not None
                              or owner.may_split(segment)):
            owner.step()  # which looks for hooks, and attaches anew
        if segment.refused is not None:
            owner.count("refused", segment.name)
            return None, None
    if not is_grad_enabled() or not trains(segment):
        owner.count("forward_only", segment.name, _why_eval(segment))
        return None, None
    if is_transformed():
        owner.count("torch_func")
        return None, None
    if is_capturing():  # the caller is, who makes a graph of his own
        owner.count("host_capture")
        return None, None
    if is_in_mode():
        owner.count("modes")
        return None, None
    if segment.misfit is not None:
        owner.count("packed", segment.name, owner.packed.why(segment))
        return None, None
    try:
        return segment.gather(segment.switches(), args, kwargs)
    except tree.Shared as unfit:
        if not shared_dicts.expect(segment, kwargs):
            owner.count("input", segment.name, str(unfit))
        else:
            owner.count("warmup")
        return None, None
    except tree.Unfit as unfit:
        owner.count("input", segment.name, str(unfit))
        return None, None


def trains(segment) -> bool:
    for site in segment.sites:
        if not site.module.training:
            return False
    return True


def _why_eval(segment) -> str | None:
    """Of a training in which some of its modules do not take part."""
    sites = segment.sites
    evals = [s.name for s in sites if not s.module.training]
    if not is_grad_enabled():
        return None
    if len(evals) == len(sites):
        return segment.evaluated and (
            "it is in eval() with gradients on, and a graph of evaluation has "
            "no backward: evaluate under torch.no_grad()")
    return (f"{evals[0]} is in eval(), and one graph is of all layers of "
            "the chunk: call train() on it, or attach with granularity="
            "\"layer\", which leaves the others their graphs")


def is_at_home(segment) -> bool:
    """Whether the call is on the device of the graphs, and with what is
    theirs: a step may lend other weights, freeze some, or listen."""
    owner, parameters = segment.owner, segment.parameters
    if current_device() != owner.device:
        return count_device(segment)
    places, mains = segment.places, parameters.mains
    if not (segment.at_once.are_same(segment.quiet, places.words, mains.words,
                                     parameters.unheard)
            and places.lie_still() and mains.lie_still()) \
            and not _is_at_home_by_each(segment):
        return False
    if owner.watch.suspects:
        owner.watch.clear(segment)
    if segment.is_parametrized and keeps_parametrized():
        owner.count("parametrize")
        return False
    settings = segment.settings
    if settings is None:
        return True
    if owner.things.is_due:
        owner.things.look()
    return settings.are_kept() or count_settings(segment, settings, "step")


def _is_at_home_by_each(segment) -> bool:
    """The same, of what is told apart once it is not all as it was."""
    owner, parameters = segment.owner, segment.parameters
    if not segment.places.are_kept() and not segment.look_anew():
        owner.watch.suspect(segment)
        count_replaced(segment)
        if parameters.have_other_forms():
            parameters.release()
            segment.is_lost = True
            segment.refuse("a parameter has got another shape or type; "
                           "detach and attach again")
        return False
    parameters = segment.parameters  # which may have been looked at anew
    if parameters.mains.are_others():
        owner.count("replaced", segment.name, "the main_grad of a "
                    "parameter is elsewhere than when it was recorded")
        return False
    if not segment.quiet.is_same() and are_heard(segment.hooks):
        owner.count("hooks", segment.name, segment.left_alone())
        return False
    if parameters.have_hooks():
        owner.count("hooks", segment.name, "a parameter whose gradient "
                    "the graph puts in place has got a hook")
        return False
    return True


# ---- calls that none may, with gradients or without: each says no -----------


def count_device(called) -> bool:
    """Of one on another device."""
    device = called.owner.device
    called.owner.count("device", called.name, "it is on "
                       f"cuda:{device}, and the current device is cuda:"
                       f"{current_device()}: call torch.cuda.set_device")
    return False


def count_replaced(called) -> bool:
    """Of one with other tensors."""
    called.owner.count("replaced", called.name, "its parameters, buffers or "
                       "submodules are others, or moved, or frozen: where a "
                       "loop sets p.data in each step, p.data.copy_() leaves "
                       "the graphs")
    return False


def count_settings(called, settings, occasion: str) -> bool:
    """Of one that would read something else in Python, which is said once,
    whatever its value."""
    name, difference = settings.difference
    why = None if name in called.told_settings else (
        difference + ": put it back, or detach and attach again; what "
        f"changes in every {occasion} belongs outside of the layers")
    called.owner.count("attributes", called.name, why)
    called.told_settings.add(name)
    return False
