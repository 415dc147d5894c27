"""The session of a stack: how it is opened, and which modules are a segment
of its plan.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import re

import torch

from ...errors import Error
from ...session import Session
from ..shapes import banks
from . import stack


class StackSession(Session):
    """Nobody who attaches brackets segments."""

    about = ""  # what its sentences begin with
    explained = 0  # segments of which it is said why no graph is entered
    foretold = None  # of its memory, a function: the library is shown less
    is_narrowed = None  # a function, whether room.py has said what fits

    def _in_words(self, text: str) -> str:
        if self.foretold is not None and text.startswith("memory: "):
            return self._foretell(text)
        said, bracket, _ = text.partition("; bracket every segment")
        if not bracket:
            return self.about + super()._in_words(text)
        if int(said.split()[0]) <= self.explained:
            return ""
        return self.about + said + (
            "; the model has not called them, or they run eagerly, of which "
            "explain() has the reason: leave out with layers= what the model "
            "does not call")

    def _foretell(self, text: str) -> str:
        """With what is foretold here; "" for a line that says more."""
        nbytes = self.foretold()
        limit = re.search(r"GRAPHHOOKS_MEMORY_LIMIT is (\d+)", text)
        if text.startswith("memory: in all"):
            return "memory: inputs of graphs, offsets and rings will take " \
                f"{nbytes} bytes"
        if limit is None or nbytes <= int(limit[1]) or self.is_narrowed():
            return ""
        return re.sub(r"would take \d+ bytes", f"would take {nbytes} bytes",
                      text)


def has_legacy_threads() -> bool:
    """Whether threads of torch's leave work on the legacy stream, which the
    driver refuses while a blocking stream is captured: gloo's do, for tensors
    of a device, and end the process then."""
    return torch.distributed.is_available() \
        and torch.distributed.is_initialized() \
        and "cuda:gloo" in torch.distributed.get_backend_config()


def open_session(layers, device: int, environment, services,
                 options) -> StackSession:
    options = {"legacy_threads": has_legacy_threads(), **options}
    with torch.cuda.device(device):
        torch.cuda.current_stream().query()  # makes the context
        try:
            return StackSession(stack.describe(layers), device=device,
                                services=services, environment=environment,
                                **options)
        except Error as refused:
            raise Error(banks.spell_most(str(refused)),
                        refused.status) from None


def modules_of(layers, planned) -> dict:
    """Those of a segment of the plan, by name."""
    layers = layers[planned.first_layer:planned.last_layer + 1]
    first, last = planned.first_part, planned.last_part
    if len(layers) == 1:
        return layers[0].modules(first, last)
    for layer, cut in ((layers[0], first != "attn"),
                       (layers[-1], last != "mlp")):
        if cut and len(layer.parts) > 1:
            raise Error(f"{layer.name}: a part of a layer cannot be "
                        "in one graph with other layers: leave the "
                        "scope empty for that")
    return {layer.name: layer.module for layer in layers}
