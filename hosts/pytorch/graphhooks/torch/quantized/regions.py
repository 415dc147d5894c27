"""State of Transformer Engine's quantization that lies outside of layers, and
is another in each call: the recipe of its autocast region, who is first in
that, and its scales.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import operator
import sys

import torch

MODULE = "transformer_engine.pytorch.quantization"
_NOTED = "recipe", "global_recipe"  # in what a module has noted
# What a region sets, of which calls are told by a number.
OF_REGION = ("fp8_enabled", "fp8_recipe", "fp8_distributed_group",
             "fp8_calibration")
# What it changes besides: the first that asks is told that it is the first.
OF_CALLS = ("is_first_fp8_module", "fp8_graph_capturing", "autocast_depth",
            "autocast_arguments")
SKIPS = "skip_fp8_weight_update_tensor"
_OF_SCALES = ("global_amax_buffer", "global_amax_history_buffer",
              "global_scale_buffer")
_OFF = (("fp8_enabled", False), ("fp8_calibration", False))


def manager():
    """Who has that state, or None: Transformer Engine is not there, or is
    another than those that are known."""
    found = getattr(sys.modules.get(MODULE), "FP8GlobalStateManager", None)
    return found if hasattr(found, "quantization_state") else None


def missing() -> str | None:
    """What is not where it is known to be, in words."""
    found = manager()
    if found is None:
        return "FP8GlobalStateManager.quantization_state"
    return next((f"FP8GlobalStateManager.quantization_state.{name}"
                 for name in (*OF_REGION, *OF_CALLS, *_OF_SCALES, SKIPS)
                 if not hasattr(found.quantization_state, name)), None)


class Left:
    """What the latest call of a segment has left, a replay too: whether the
    first of its region is still to come.  Modules that need no gradients, as
    frozen ones below all others, are none."""

    is_first = False


class Regions:
    """Of autocast, as calls of all attaches find them.  A schedule makes an
    equal recipe for each; layers keep one, so that it can be compared by what
    it is."""

    def __init__(self):
        self.recipes: list = []
        self._groups: dict = {}  # by identity, so that they stay
        self._numbers: dict = {}  # of what regions have set, each once
        self._noted: dict = {}  # by each region anew, when it begins
        self.begun = 0

    def number(self, state) -> int:
        """Of what the region at hand has set, from 1."""
        state.fp8_recipe = self._same(state.fp8_recipe)
        for key, pair in state.autocast_arguments.items():
            if self._noted.get(key) is not pair:
                self._noted[key] = pair
                self.begun += 1
        group = state.fp8_distributed_group
        found = (id(state.fp8_recipe), id(group), state.fp8_calibration,
                 state.fp8_enabled)
        number = self._numbers.get(found)
        if number is None:
            self._groups[id(group)] = group
            number = self._numbers[found] = len(self._numbers) + 1
        return number

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
        for known in self.recipes:
            if known is recipe or known == recipe:
                return known
        self.recipes.append(recipe)
        return recipe


regions = Regions()  # of all attaches


class Quantization:
    """That of one process, as the layers of an attach need it."""

    def __init__(self, manager):
        self._manager = manager
        self._begun = -1  # regions, when the one at hand was looked at
        self.around: Around | None = None  # of that
        self._arounds: dict = {}  # of regions without scales

    @property
    def state(self):
        """A reset() makes another."""
        return self._manager.quantization_state

    def look(self, skips: bool = False) -> int:
        """The number of the region at hand, which is looked at once."""
        number = regions.number(self.state)
        if self._begun != regions.begun:
            self._begun = regions.begun
            self.around = self._look_around(number, skips)
        return number

    def _look_around(self, number: int, skips: bool) -> "Around":
        if self.state.global_scale_buffer:
            return Around(self, skips)
        known = self._arounds.get((number, skips))
        if known is None:
            known = self._arounds[number, skips] = Around(self, skips)
        return known

    @contextlib.contextmanager
    def again(self, around: "Around"):
        """What layers found in a region that is over."""
        state = self.state
        now = [(name, getattr(state, name)) for name in OF_REGION]
        scales, amaxes = (_of_forwards(each) for each in (
            state.global_scale_buffer, state.global_amax_buffer))
        kept = [(t, t.clone()) for t in scales + amaxes]
        for name, value in around.told:
            setattr(state, name, value)
        around.put_scales()
        try:
            yield
        finally:
            for name, value in now:
                setattr(state, name, value)
            for tensor, copy in kept:
                tensor.copy_(copy)


def _of_forwards(buffer: dict) -> list:
    """Those of backwards are of the moment in which they run."""
    return [tensor for key, some in buffer.items()
            if key.startswith("forward_") for tensor in some]


class Around:
    """What the layers of an attach find in a region, for who runs one again
    when it is over, and its end has updated scales."""

    def __init__(self, quantization: Quantization, skips: bool):
        self._quantization = quantization
        self.skips = skips  # what layers have kept of weights stays
        state = quantization.state
        self.told = [(name, getattr(state, name)) for name in OF_REGION]
        self._scales = _of_forwards(state.global_scale_buffer)
        self._found = torch.cat(self._scales) if self._scales else None

    def put_scales(self) -> None:
        if self._scales:
            for scale, found in zip(self._scales, self._found.split(
                    [scale.numel() for scale in self._scales])):
                scale.copy_(found)

    def again(self):
        return self._quantization.again(self)


class Outside(Around):
    """There is no region, or one that is off."""

    def __init__(self, quantization: Quantization):
        self._quantization = quantization
        self.skips, self.told, self._scales = False, _OFF, []


_USAGES = "rowwise_usage", "columnwise_usage"


class Usages:
    """Of the quantizers of a segment: each is told what it is to make before
    it is used, so what it was told last is of no use to a later pass, forward
    or backward."""

    def __init__(self, body):
        self._quantizers = _quantizers_of(body)
        self._told = [[getattr(q, n) for n in _USAGES]
                      for q in self._quantizers]

    def fit(self, body) -> bool:
        """It has no others by now."""
        now = _quantizers_of(body)
        return len(now) == len(self._quantizers) and all(
            map(operator.is_, now, self._quantizers))

    def put_back(self) -> None:
        for quantizer, told in zip(self._quantizers, self._told):
            for name, value in zip(_USAGES, told):
                setattr(quantizer, name, value)


def _quantizers_of(body) -> list:
    """Layers have them by one name, operations by the other."""
    return [q for module in body.modules()
            for name in ("quantizers", "_quantizers")
            for some in (vars(module).get(name) or {}).values()
            for q in some or () if all(hasattr(q, n) for n in _USAGES)]


# What a module notes of the region that it was called in last.
_FLAGS = "fp8", "fp8_calibration", "fp8_initialized"
_NOTES = ("recipe", "global_recipe", "fp8_group", "fp8_checkpoint",
          "fp8_max_fwd", "fp8_max_bwd")
_TABLES = "scaling_fwd", "scaling_bwd"  # of what does not depend on that
_GONE = object()


class Notes:
    """Of the modules of a layer, as one call has left them.  Each begins with
    those, so that what a layer reads is the same in each, and notes its own
    region by itself."""

    def __init__(self, body):
        self._modules = [(names, names["fp8_meta"]) for names
                         in map(vars, body.modules())
                         if "fp8_initialized" in names
                         and type(names.get("fp8_meta")) is dict]
        self._noted = [[each.get(key, _GONE) for each, key in _notes(*module)]
                       for module in self._modules]
        self._tables = self._tables_now()

    def _tables_now(self) -> list:
        return [table for _, meta in self._modules for key in _TABLES
                for state in [meta.get(key)]
                for table in (state, getattr(state, "amax_history", None))]

    def fit(self) -> bool:
        """There are no other tables, which layers have made for what is noted
        by now."""
        return all(map(operator.is_, self._tables, self._tables_now()))

    def put(self) -> None:
        if not self.fit():
            return
        for module, noted in zip(self._modules, self._noted):
            for (each, key), value in zip(_notes(*module), noted):
                if value is not _GONE:
                    each[key] = value
                else:
                    each.pop(key, None)


def _notes(names: dict, meta: dict):
    for key in _FLAGS:
        yield names, key
    for key in _NOTES:
        yield meta, key


def metas_of(body) -> list:
    """What its modules have noted: layers, and operations for each way."""
    found = [vars(module).get("fp8_meta") for module in body.modules()]
    for module in body.modules():
        found += (vars(module).get("_fp8_metas") or {}).values()
    return [meta for meta in found if type(meta) is dict]
