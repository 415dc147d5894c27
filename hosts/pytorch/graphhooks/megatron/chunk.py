"""The layers of a chunk as one segment: its decoder's whole forward.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import sys

from ..errors import Error
from ..torch.attach.body import Body
from ..torch.base.private import give_back, stand_in
from . import rope
from .fp8 import Calls
from .left import KeptGroups, Returned
from .routing import Routing
from .seam import Leftovers

_REGION = "get_fp8_context"  # by which a decoder enters a region of FP8


class Whole:
    """It stands in the place of `decoder.forward`."""

    def __init__(self, decoder, name: str, random, settings,
                 quantization=None):
        self._decoder = decoder
        self._random = random
        self._before: list = []  # hooks, and what each is called with
        self.layer = self  # as ParameterHooks knows it
        self.body = Body(self._run, [decoder], name)
        self.body.scope = "all layers"
        self.body.be_of(decoder)
        self._leftovers = [Leftovers(layer, True) for layer in decoder.layers]
        self._calls = Calls(quantization, self.body, settings)
        self._groups = KeptGroups(self.body)
        self._returned = Returned(self.body)
        self._routing = Routing(self.body, _runs_again(decoder.config))
        self._names = None  # by which it enters FP8; None: it does not
        if decoder.config.fp8:
            self._names = _names_of(decoder)
        stand_in(decoder, self)

    def __call__(self, *args, **kwargs):
        decoder = self._decoder
        if not decoder.training:
            return type(decoder).forward(decoder, *args, **kwargs)
        self._random.follow()
        for hook, module in self._before:
            hook(module)
        given = {k: v for k, v in kwargs.items() if v is not None}
        given.update(self._groups.enter(given.get("packed_seq_params")))
        given.update(self._routing.enter())
        received = None if decoder.pre_process else decoder.input_tensor
        if received is not None:  # of the stage before, for any argument
            args, given["hidden_states"] = args[1:], received
            decoder.input_tensor = None  # no graph is to know which it was
        try:
            return self._call(args, given)
        finally:
            if received is not None:
                decoder.input_tensor = received

    def _call(self, args, given):
        """The region of FP8 is around the segment, as its end updates
        scales."""
        is_first = self._calls.is_first()
        for leftovers in self._leftovers:
            leftovers.__enter__()
        try:
            with contextlib.nullcontext() if self._names is None \
                    else self._names[_REGION](self._decoder.config):
                quantized = self._calls.enter(is_first)
                self._calls.flag(is_first, quantized)
                result = self._returned.keep(
                    self.body.forward(*args, **quantized, **given))
                self._calls.leave(quantized)
                self._calls.overwrites(is_first, result)
                return result
        finally:
            for leftovers in self._leftovers:
                leftovers.__exit__()

    def _run(self, hidden_states, attention_mask=None, quantized=None,
             kept_groups=None, routing=None, **kwargs):
        self._groups.follow(kwargs.get("packed_seq_params"), kept_groups)
        try:
            with self._outside(), self._calls.inside(quantized), \
                    rope.on_the_device(kwargs.get("packed_seq_params")), \
                    self._returned.apart() as left, \
                    self._routing.inside(routing):
                result = self._forward(hidden_states, attention_mask, kwargs)
            return self._returned.with_result(result, left)
        finally:
            for leftovers in self._leftovers:
                leftovers.clear()

    def _forward(self, hidden_states, attention_mask, kwargs):
        decoder = self._decoder
        lends = not decoder.pre_process
        if lends:
            decoder.input_tensor = hidden_states
        try:
            return type(decoder).forward(decoder, hidden_states,
                                         attention_mask, **kwargs)
        finally:
            if lends:
                decoder.input_tensor = None

    @contextlib.contextmanager
    def _outside(self):
        """Of the region around the segment, so the decoder enters none."""
        if self._names is None:
            yield
            return
        region, self._names[_REGION] = self._names[_REGION], _no_region
        try:
            yield
        finally:
            self._names[_REGION] = region

    def outer(self) -> list:
        return []

    def setup_manual_hooks(self, make_hook) -> None:
        """As Megatron's layers have it: of modules with parameters."""
        self._before = [(make_hook(), module)
                        for module in self._decoder.modules()
                        if next(module.parameters(recurse=False), None)
                        is not None]

    def detach(self) -> None:
        if vars(self._decoder).get("forward") is self:
            give_back(self._decoder, None)
        self._before = []


def _runs_again(config) -> bool:
    """Routers do, within the backward of their layer."""
    return config.recompute_granularity == "full" \
        or config.recompute_granularity == "selective" \
        and "moe" in (config.recompute_modules or ())


def _no_region(*_, **__):
    return contextlib.nullcontext()


def _names_of(decoder) -> dict:
    """The globals of a decoder's forward."""
    if decoder.config.first_last_layers_bf16:
        raise Error("first_last_layers_bf16 is set, and granularity \"chunk\" "
                    "has one region of FP8 for all layers: leave one of them "
                    "out")
    names = vars(sys.modules[type(decoder).__module__])
    if _REGION not in names:
        raise Error(f"{type(decoder).__module__} has no {_REGION}, by which "
                    "its decoder enters FP8: leave granularity \"chunk\" out")
    return names
