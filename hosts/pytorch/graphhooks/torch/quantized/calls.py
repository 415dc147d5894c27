"""Calls of a model's layers in regions of te.autocast.

A layer reads its region in the state of Transformer Engine, where the one
that is first in it also leaves a trace.  So a call is given that besides, as
an argument that no forward has, and it is of the call's shape.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import sys

from torch import is_grad_enabled
from torch.cuda import is_current_stream_capturing as is_capturing

from ..base.tree import Unfit
from . import regions
from .regions import Notes, Outside, Quantization, Usages

WORD = "te.autocast"  # the argument
_KEPT = "fp8_tensors_recompute_buffer"
_MANY = 64  # recipes, after which each region has one of its own

_APART = ("{} is in another region of te.autocast than those before it, and a "
          "region's end updates scales: one te.autocast around all layers "
          "allows a graph of all")
_WITHIN = ("it enters te.autocast itself, whose end updates the scales of all "
           "layers, and a graph would do that for those that were there when "
           "it was recorded: enter te.autocast around the model, or around "
           "the layer")
_RECOMPUTES = ("it is computed again in the backward (te.checkpoint, "
               "checkpoint=True) with delayed scaling, for which Transformer "
               "Engine keeps the scales of each forward in a list: use "
               "another recipe there, or leave recomputation out")
_RECIPES = (f"te.autocast was given more than {_MANY} recipes, of which none "
            "is equal to another, as those with functions of their own are, "
            "and a graph is of one: make the recipe once, outside of the "
            "loop")
_UNKNOWN = ("Transformer Engine's {} has no {}, as 2.20 has: layers run "
            "eagerly in te.autocast")


class Shared(Quantization):
    """That of all layers of an attach."""

    def __init__(self, manager):
        super().__init__(manager)
        self.outside = Outside(self)
        self._known = len(regions.regions.recipes)
        # Attributes that nobody else looks at, by the type that has them.
        self.told = {type(self.state): (
            *regions.OF_REGION, *regions.OF_CALLS, regions.SKIPS)}


    def has_many(self) -> bool:
        """Recipes since the attach."""
        return len(regions.regions.recipes) - self._known > _MANY


class Calls:
    """Those of one module, which stands in a Site."""

    def __init__(self, shared: Shared, site):
        self._shared, self._site = shared, site
        self.left = regions.Left()
        self.around = shared.outside  # of the call at hand
        self.seen: tuple = (0, 0)  # which that is
        self._notes: Notes | None = None  # that all calls begin with
        self._usages: Usages | None = None

    def enter(self, kwargs: dict) -> dict:
        """With what the region at hand is."""
        shared, segment = self._shared, self._site.segment
        state = shared.state
        if WORD in kwargs or segment.refused is not None \
                and segment.chain.idle:
            return kwargs
        if self._site.position == 0:
            for site in segment.sites:
                site.quantized.put_back()
        if not (state.fp8_enabled or state.fp8_calibration):
            self.around, self.seen = shared.outside, (0, 0)
            return {**kwargs, WORD: 0} if self._is_apart() else kwargs
        if shared.has_many():
            if segment.refused is None:
                segment.refuse(_RECIPES)
            return kwargs
        number = shared.look()
        self.around = shared.around
        self.seen = number, regions.regions.begun
        is_first = state.is_first_fp8_module
        state.is_first_fp8_module = False
        return {**kwargs, WORD: (number, is_first, self._is_apart())}

    def leave(self, told) -> None:
        """After the call that enter() has told of its region."""
        if told and told[1] and self.left.is_first:
            self._shared.state.is_first_fp8_module = True

    def _is_apart(self) -> bool:
        """In a chunk, of another region than the first of it."""
        segment = self._site.segment
        then = segment.sites[0].quantized.seen
        if then == self.seen or then[0] == self.seen[0] \
                and not self._shared.state.global_amax_buffer:
            return False
        chain = segment.following()
        if not chain.idle and not chain.plays:
            chain.give_up(_APART.format(self._site.name))
        return True

    def run(self, forward, args, kwargs):
        """The module, in the region that it was called in."""
        given = kwargs.pop(WORD, None)
        if given is None and self._site.segment.refused is not None:
            return forward(*args, **kwargs)
        is_first = given[1] if given else None
        state = self._shared.state
        before = state.is_first_fp8_module, getattr(state, regions.SKIPS)
        if given:
            state.is_first_fp8_module = is_first
        setattr(state, regions.SKIPS, None)  # of attaches by Megatron
        traces = _traces(state) if is_capturing() else None
        try:
            result = forward(*args, **kwargs)
        finally:
            self.left.is_first = state.is_first_fp8_module
            state.is_first_fp8_module = before[0]
            setattr(state, regions.SKIPS, before[1])
        if traces is None:
            self._note()
            self.settle()
        else:
            _refuse_traces(state, *traces)
            self.put_back()
        return result

    def _note(self) -> None:
        """A call has run eagerly.  What one in a region leaves is what is to
        be saved with the layer.  What one without gradients makes has no
        columns, and the next makes it anew."""
        module = self._site.module
        if self._notes is None or not self._notes.fit():
            self._notes = Notes(module)
        if is_grad_enabled() and not (self._usages is not None
                                      and self._usages.fit(module)):
            self._usages = Usages(module)

    def settle(self) -> None:
        """What a backward has left is of no use to another."""
        if self._usages is not None:
            self._usages.put_back()

    def put_back(self) -> None:
        """The same, and what calls in other regions have noted."""
        self.settle()
        if self._notes is not None:
            self._notes.put()


def _traces(state) -> tuple:
    """Of regions that have begun, and of forwards to be computed again."""
    return dict(state.autocast_arguments), [
        *map(len, getattr(state, _KEPT, ()))]


def _refuse_traces(state, begun: dict, kept: list) -> None:
    """That a recording has left."""
    now, kept_now = _traces(state)
    if kept_now != kept:
        raise Unfit(_RECOMPUTES)
    if not state.autocast_depth and state.global_amax_buffer and any(
            begun.get(key) is not pair for key, pair in now.items()):
        raise Unfit(_WITHIN)


def of(owner) -> Shared | None:
    """None: Transformer Engine is not at work, or is one that is not
    known."""
    if regions.MODULE.rpartition(".")[0] not in sys.modules:
        return None
    what = regions.missing()
    if what is not None:
        owner.say("FP8", _UNKNOWN.format(
            regions.MODULE.rpartition(".")[2], what))
        return None
    return Shared(regions.manager())
