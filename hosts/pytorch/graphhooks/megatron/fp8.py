"""State of Transformer Engine's quantization that lies outside of layers, and
is another in each call: the recipe of its autocast region, who is first in
that, its scales, and whether weights that are quantized already are kept.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import importlib
import sys

import torch

from ..errors import Error

_MODULE = "transformer_engine.pytorch.quantization"
# Of modules that quantize weights in the first microbatch of a step; a number
# on the device stands for it.
_FLAG = "is_first_microbatch"
_NOTED = "recipe", "global_recipe"  # in what a module has noted
# What a region sets, of which calls are told by a number.
_OF_REGION = ("fp8_enabled", "fp8_recipe", "fp8_distributed_group",
              "fp8_calibration")
# What it changes besides: the first that asks is told that it is the first.
_OF_CALLS = ("is_first_fp8_module", "fp8_graph_capturing", "autocast_depth",
             "autocast_arguments")


class Regions:
    """Of autocast, as calls of all attaches find them.  A schedule makes an
    equal recipe for each; layers keep one, so that it can be compared by what
    it is."""

    def __init__(self):
        self._recipes: list = []
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
        found = id(state.fp8_recipe), id(group), state.fp8_calibration
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
        for known in self._recipes:
            if known is recipe or known == recipe:
                return known
        self._recipes.append(recipe)
        return recipe


_regions = Regions()  # of all attaches


class Quantization:
    """That of one process, as the layers of an attach need it."""

    # Of all attaches: the number on the device, and what was written to it.
    _skips: tuple = None, None

    def __init__(self, manager, config, settings):
        self._manager = manager
        self._keeps = not config.disable_parameter_transpose_cache
        self._settings = settings
        self._begun = -1  # regions, when the one at hand was looked at
        self.around: Around | None = None  # of that
        self._arounds: dict = {}  # of regions without scales

    @classmethod
    def of(cls, config, settings) -> "Quantization | None":
        """None: nothing can be quantized."""
        if config.fp8:
            with contextlib.suppress(ImportError):
                importlib.import_module(_MODULE)
        manager = getattr(sys.modules.get(_MODULE), "FP8GlobalStateManager",
                          None)
        if hasattr(manager, "quantization_state"):
            return cls(manager, config, settings)
        if config.fp8:
            raise Error("config.fp8 is set, and transformer_engine.pytorch."
                        "quantization has no FP8GlobalStateManager with a "
                        "quantization_state, as 2.20 has: install that, or "
                        "leave the attach out")
        return None

    @property
    def state(self):
        """A reset() makes another."""
        return self._manager.quantization_state

    def enter(self, is_first_microbatch: bool) -> dict:
        """Before a segment is called; returns what it is given besides, as
        inside() takes it.  Who is the first of a region updates the scales of
        all on the way back."""
        state = self.state
        if not state.fp8_enabled:
            return {}
        number = _regions.number(state)
        if self._begun != _regions.begun:
            self._begun = _regions.begun
            self.around = self._look_around(number, not is_first_microbatch)
        if self._keeps:
            self._tell(state, not is_first_microbatch)
        return {"quantized": (number, self._manager.is_first_fp8_module())}

    def _look_around(self, number: int, skips: bool) -> "Around":
        if self.state.global_scale_buffer:
            return Around(self, skips)
        known = self._arounds.get((number, skips))
        if known is None:
            known = self._arounds[number, skips] = Around(self, skips)
        return known

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
        self.state.is_first_fp8_module = is_first
        self.state.fp8_graph_capturing = self._keeps and has_run

    def end(self) -> bool:
        """Whether nobody inside has been the first."""
        state = self.state
        is_first = state.is_first_fp8_module
        state.is_first_fp8_module = state.fp8_graph_capturing = False
        return is_first

    def leave(self) -> None:
        """The first of a region is still to come."""
        self.state.is_first_fp8_module = True

    @contextlib.contextmanager
    def again(self, around: "Around"):
        """What layers found in a region that is over."""
        state = self.state
        now = [(name, getattr(state, name)) for name in _OF_REGION]
        scales, amaxes = (_of_forwards(each) for each in (
            state.global_scale_buffer, state.global_amax_buffer))
        kept = [(t, t.clone()) for t in scales + amaxes]
        _, skipped = Quantization._skips
        if self._keeps:
            self._tell(state, around.skips)
        for name, value in around.told:
            setattr(state, name, value)
        around.put_scales()
        try:
            with self._settings.again():
                yield
        finally:
            for name, value in now:
                setattr(state, name, value)
            for tensor, copy in kept:
                tensor.copy_(copy)
            if self._keeps and skipped is not None:
                self._tell(state, skipped)


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
        self.told = [(name, getattr(state, name)) for name in _OF_REGION]
        self._scales = _of_forwards(state.global_scale_buffer)
        self._found = torch.cat(self._scales) if self._scales else None

    def put_scales(self) -> None:
        if self._scales:
            for scale, found in zip(self._scales, self._found.split(
                    [scale.numel() for scale in self._scales])):
                scale.copy_(found)

    def again(self):
        return self._quantization.again(self)


class Left:
    """What the latest call of a segment has left, a replay too: whether the
    first of its region is still to come.  Modules that need no gradients, as
    frozen ones below all others, are none."""

    is_first = False


class Calls:
    """Those of one segment, in which something is quantized, or nothing."""

    def __init__(self, quantization: Quantization | None, body, settings):
        self._quantization = quantization
        self._body, self._names = body, vars(body)
        self._usages: Usages | None = None  # once it has run
        self._metas: list = []  # what its modules have noted by then
        self._flags = [names for names in map(vars, body.modules())
                       if _FLAG in names]
        body.around = self._settings = settings
        self._left = Left()
        body.__dict__["left_in"] = (self._left,)
        if quantization is not None:
            body.told = {type(quantization.state): _OF_REGION + _OF_CALLS}
            body.settle = self._put_back

    def is_first(self) -> bool:
        """As its modules know it."""
        return any(names[_FLAG] for names in self._flags)

    def enter(self, is_first: bool) -> dict:
        """Before it is called in the first microbatch of a step, or in a
        later one; returns what it is given besides."""
        if self._quantization is None:
            return {}
        given = self._quantization.enter(is_first)
        # Past Module.__setattr__, which is slow.
        self._names["around"] = self._quantization.around if given \
            else self._settings
        if given and self._usages is not None:
            self._put_back()
            for meta in self._metas:
                _regions.keep_in(meta)
        return given

    def leave(self, given: dict) -> None:
        """After the call that enter() has given this."""
        if given and self._left.is_first:
            self._quantization.leave()

    def flag(self, is_first: bool, given: dict) -> None:
        """Each call finds the same, but for the first that quantizes: what
        modules have kept until then is of another step."""
        told = is_first and self._usages is None and bool(given)
        for names in self._flags:
            names[_FLAG] = told

    @contextlib.contextmanager
    def inside(self, quantized):
        """Inside of it, with what enter() has given, or None."""
        if quantized is None:
            yield
            return
        self._quantization.begin(quantized[1], self._usages is not None)
        try:
            yield
        finally:
            self._left.is_first = self._quantization.end()
            # What one without gradients makes has no columns, and the next
            # makes it anew.
            if self._usages is None and torch.is_grad_enabled():
                self._usages = Usages(self._body)
                self._metas = [names["fp8_meta"] for names
                               in map(vars, self._body.modules())
                               if type(names.get("fp8_meta")) is dict]
            self._put_back()

    def _put_back(self) -> None:
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
