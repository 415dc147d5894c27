"""The layers of a chunk as one segment: its decoder's whole forward.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import sys

from ..errors import Error
from ..torch.attach.body import Body
from ..torch.base.private import give_back, stand_in
from .fp8 import Usages, settle
from .seam import FLAG, Leftovers, flagged

_REGION = "get_fp8_context"  # by which a decoder enters a region of FP8


class Whole:
    """It stands in the place of `decoder.forward`."""

    def __init__(self, decoder, name: str, random, quantization=None):
        self._decoder = decoder
        self._random = random
        self._before: list = []  # hooks, and what each is called with
        self.layer = self  # as ParameterHooks knows it
        self.body = Body(self._run, [decoder], name)
        self.body.scope = "all layers"
        self.body.be_of(decoder)
        self._leftovers = [Leftovers(layer) for layer in decoder.layers]
        self._flags = flagged(self.body.modules())
        self._quantization = quantization  # None: nothing is quantized
        self._usages: Usages | None = None  # once it has run
        if quantization is not None:
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
        is_first = False
        for names in self._flags:
            is_first = is_first or names[FLAG]
        # Until it has run once, what it has kept is of another step.
        for names in self._flags:
            names[FLAG] = is_first and self._usages is None \
                and self._quantization is not None
        for leftovers in self._leftovers:
            leftovers.__enter__()
        try:
            if self._quantization is None:
                settle()
                return self.body.forward(*args, **given)
            return self._quantized(is_first, args, given)
        finally:
            for leftovers in self._leftovers:
                leftovers.__exit__()

    def _quantized(self, is_first: bool, args, given):
        """The region is around the segment, as its end updates scales."""
        with self._names[_REGION](self._decoder.config):
            if self._usages is not None:
                self._usages.put_back()
            return self.body.forward(
                *args, is_first_fp8_module=self._quantization.enter(is_first),
                **given)

    def _run(self, hidden_states, attention_mask=None,
             is_first_fp8_module=False, **kwargs):
        try:
            if self._quantization is None:
                try:
                    return self._forward(hidden_states, attention_mask,
                                         kwargs)
                finally:
                    settle()
            with self._inside(is_first_fp8_module):
                if self._usages is not None:
                    hidden_states = self._usages.put_back_after(hidden_states)
                return self._forward(hidden_states, attention_mask, kwargs)
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
    def _inside(self, is_first: bool):
        """Of the region around the segment, so the decoder enters none."""
        region, self._names[_REGION] = self._names[_REGION], _no_region
        self._quantization.begin(is_first, self._usages is not None)
        try:
            yield
        finally:
            self._names[_REGION] = region
            self._quantization.end()
            self._usages = self._usages or Usages(self.body)
            self._usages.put_back()

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
