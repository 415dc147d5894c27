"""The layers of a chunk as one segment: its decoder's whole forward.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from ..torch.attach.body import Body
from .seam import Leftovers


class Whole:
    """It stands in the place of `decoder.forward`."""

    def __init__(self, decoder, name: str):
        self._decoder = decoder
        self._before: list = []  # hooks, and what each is called with
        self.layer = self  # as ParameterHooks knows it
        self.body = Body(self._run, [decoder], name)
        self._leftovers = [Leftovers(layer, self.body)
                           for layer in decoder.layers]
        decoder.forward = self

    def __call__(self, *args, **kwargs):
        if not self._decoder.training:
            return type(self._decoder).forward(self._decoder, *args, **kwargs)
        for hook, module in self._before:
            hook(module)
        given = {k: v for k, v in kwargs.items() if v is not None}
        for leftovers in self._leftovers:
            leftovers.__enter__()
        try:
            return self.body(*args, **given)
        finally:
            for leftovers in self._leftovers:
                leftovers.__exit__()

    def _run(self, hidden_states, attention_mask=None, **kwargs):
        try:
            return type(self._decoder).forward(
                self._decoder, hidden_states, attention_mask, **kwargs)
        finally:
            for leftovers in self._leftovers:
                leftovers.clear()

    def setup_manual_hooks(self, make_hook) -> None:
        """As Megatron's layers have it: of modules with parameters."""
        self._before = [(make_hook(), module)
                        for module in self._decoder.modules()
                        if next(module.parameters(recurse=False), None)
                        is not None]

    def detach(self) -> None:
        if vars(self._decoder).get("forward") is self:
            del self._decoder.forward
        self._before = []
