"""Generators of random numbers that Megatron's layers draw from.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import logging

import torch

from ..errors import Error

log = logging.getLogger("graphhooks")


class Generators:
    """Those of its tracker, from which attention draws, among others.

    A recording draws from the generators that the tracker had.  One that is
    seeded or set anew has others, which eager layers would draw from; so the
    first ones take over their states, and their places in the tracker."""

    def __init__(self, names):
        self._names = names
        try:
            self._states = names.get_all_rng_states()
        except AssertionError:
            raise Error("Megatron's random states are not there yet, and "
                        "layers draw from them: call "
                        "model_parallel_cuda_manual_seed(..., "
                        "te_rng_tracker=True) before the attach") from None
        self._held = {n: s for n, s in self._states.items()
                      if isinstance(s, torch.Generator)}
        if len(self._held) < len(self._states):
            log.warning("Megatron's random states are copied in and out, "
                        "which no graph can do, so layers with dropout will "
                        "run eagerly: give te_rng_tracker=True, or "
                        "use_cudagraphable_rng=True, to "
                        "model_parallel_cuda_manual_seed")

    @property
    def all(self) -> tuple:
        return tuple(self._held.values())

    def follow(self) -> None:
        """Before a call: whether the tracker has others is seen by the dict
        that it keeps them in."""
        states = self._names.get_all_rng_states()
        if states is self._states:
            return
        for name, held in self._held.items():
            other = states.get(name)
            if isinstance(other, torch.Generator):
                held.set_state(other.get_state())
                states[name] = held
        self._states = states
