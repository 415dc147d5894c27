"""State of Transformer Engine's quantization that lies outside of layers, and
is another in each call: who is first in an autocast region, which recipe it
has, and whether weights that are quantized already are kept.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import sys

import torch

from ..errors import Error

_MODULE = "transformer_engine.pytorch.quantization"
# Of modules that quantize weights in the first microbatch of a step; a number
# on the device stands for it.
_FLAG = "is_first_microbatch"
_NOTED = "recipe", "global_recipe"  # in what a module has noted


class Recipes:
    """A schedule makes an equal recipe for each call of a layer.  Layers keep
    one, so that it can be compared by what it is."""

    def __init__(self):
        self._known: list = []
        self._pairs: dict = {}  # of a recipe and a group, as layers know them

    def keep(self, state) -> None:
        state.fp8_recipe = self._same(state.fp8_recipe)
        known = state.autocast_arguments
        for key, pair in known.items():
            if pair != self._pairs.setdefault(key, pair):
                self._pairs[key] = pair
            known[key] = self._pairs[key]

    def keep_in(self, meta: dict) -> None:
        """Of what a module has noted: a call without a graph, as in an
        evaluation, leaves that call's."""
        for key in _NOTED:
            if meta.get(key) is not None:
                meta[key] = self._same(meta[key])
        some = meta.get("local_recipes")
        if some:
            some[:] = map(self._same, some)

    def _same(self, recipe):
        """The first that was equal."""
        for known in self._known:
            if known is recipe or known == recipe:
                return known
        self._known.append(recipe)
        return recipe


_recipes = Recipes()  # of all attaches


def _settle() -> None:
    """Where nothing is quantized, before and after a segment runs: a region
    that is off leaves a recipe and a mark too, which nobody goes by."""
    manager = getattr(sys.modules.get(_MODULE), "FP8GlobalStateManager", None)
    state = getattr(manager, "quantization_state", None)
    if state is not None and not state.fp8_enabled:
        state.is_first_fp8_module = False
        _recipes.keep(state)


class Quantization:
    """That of one process, as the layers of an attach need it."""

    # Of all attaches: the number on the device, and what was written to it.
    _skips: tuple = None, None

    def __init__(self, config):
        try:
            from transformer_engine.pytorch.quantization import \
                FP8GlobalStateManager as manager
            manager.quantization_state
        except (ImportError, AttributeError):
            raise Error("config.fp8 is set, and transformer_engine.pytorch."
                        "quantization has no FP8GlobalStateManager with a "
                        "quantization_state, as 2.20 has: install that, or "
                        "leave the attach out") from None
        self._manager = manager
        self._keeps = not config.disable_parameter_transpose_cache

    @property
    def _state(self):
        """A reset() makes another."""
        return self._manager.quantization_state

    def enter(self, is_first_microbatch: bool) -> bool:
        """Before a segment is called; returns whether it is the first of its
        region, which updates the scales of all on the way back."""
        state = self._state
        if not state.fp8_enabled:
            return False
        _recipes.keep(state)
        if self._keeps:
            self._tell(state, not is_first_microbatch)
        return self._manager.is_first_fp8_module()

    def _tell(self, state, skips: bool) -> None:
        """By a number on the device, by which one graph does either."""
        number, told = Quantization._skips
        if told is not skips \
                or number is not state.skip_fp8_weight_update_tensor:
            Quantization._skips = None, None  # should the next line raise
            self._manager.set_skip_fp8_weight_update_tensor(skips)
            Quantization._skips = state.skip_fp8_weight_update_tensor, skips

    def begin(self, is_first: bool, has_run: bool) -> None:
        """Inside of a segment; the first pass of a layer makes what it
        quantizes to, and says where its scales are."""
        self._state.is_first_fp8_module = is_first
        self._state.fp8_graph_capturing = self._keeps and has_run

    def end(self) -> None:
        self._state.is_first_fp8_module = False
        self._state.fp8_graph_capturing = False


class Calls:
    """Those of one segment, in which something is quantized, or nothing."""

    def __init__(self, quantization: Quantization | None, body):
        self._quantization = quantization
        self._body = body
        self._usages: Usages | None = None  # once it has run
        self._metas: list = []  # what its modules have noted by then
        self._flags = [names for names in map(vars, body.modules())
                       if _FLAG in names]

    def is_first(self) -> bool:
        """As its modules know it."""
        return any(names[_FLAG] for names in self._flags)

    def enter(self, is_first: bool) -> dict:
        """Before it is called in the first microbatch of a step, or in a
        later one; returns what it is given besides."""
        if self._quantization is None:
            _settle()
            return {}
        if self._usages is not None:
            self._usages.put_back()
            for meta in self._metas:
                _recipes.keep_in(meta)
        return {"is_first_fp8_module": self._quantization.enter(is_first)}

    def flag(self, is_first: bool) -> None:
        """Each call finds the same, but for the first that quantizes: what
        modules have kept until then is of another step."""
        told = is_first and self._usages is None \
            and self._quantization is not None
        for names in self._flags:
            names[_FLAG] = told

    @contextlib.contextmanager
    def inside(self, hidden_states, is_first: bool):
        """Inside of it: what goes into it, which its backward comes to."""
        if self._quantization is None:
            try:
                yield hidden_states
            finally:
                _settle()
            return
        self._quantization.begin(is_first, self._usages is not None)
        if self._usages is not None:
            hidden_states = self._usages.put_back_after(hidden_states)
        try:
            yield hidden_states
        finally:
            self._quantization.end()
            # What one without gradients makes has no columns, and the next
            # makes it anew.
            if self._usages is None and torch.is_grad_enabled():
                self._usages = Usages(self._body)
                self._metas = [names["fp8_meta"] for names
                               in map(vars, self._body.modules())
                               if type(names.get("fp8_meta")) is dict]
            if self._usages is not None:
                self._usages.put_back()


_USAGES = "rowwise_usage", "columnwise_usage"


class Usages:
    """Of the quantizers of a segment: each is told what it is to make before
    it is used, so what it was told last is of no use to a later pass, forward
    or backward."""

    def __init__(self, body):
        self._quantizers = [
            q for module in body.modules()
            for some in (getattr(module, "quantizers", None) or {}).values()
            for q in some if all(hasattr(q, n) for n in _USAGES)]
        self._told = [[getattr(q, n) for n in _USAGES]
                      for q in self._quantizers]

    def put_back(self) -> None:
        for quantizer, told in zip(self._quantizers, self._told):
            for name, value in zip(_USAGES, told):
                setattr(quantizer, name, value)

    def put_back_after(self, hidden_states):
        """What goes into a segment, so that the segment's backward ends by
        putting them back."""
        return _End.apply(hidden_states, self) \
            if hidden_states.requires_grad else hidden_states


class _End(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden_states, usages):
        ctx.usages = usages
        return hidden_states.view_as(hidden_states)

    @staticmethod
    def backward(ctx, gradient):
        ctx.usages.put_back()
        return gradient, None
