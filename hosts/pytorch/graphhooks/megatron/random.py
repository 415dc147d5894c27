"""Generators of random numbers that Megatron's layers draw from.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import logging

import torch

from ..errors import Error

log = logging.getLogger("graphhooks")


def generators_of(names) -> tuple:
    """Those of its tracker, from which attention draws, among others."""
    try:
        states = names.get_all_rng_states()
    except AssertionError:
        raise Error("Megatron's random states are not there yet, and layers "
                    "draw from them: call model_parallel_cuda_manual_seed(...,"
                    " te_rng_tracker=True) before the attach") from None
    found = tuple(s for s in states.values() if isinstance(s, torch.Generator))
    if len(found) < len(states):
        log.warning("Megatron's random states are copied in and out, which no "
                    "graph can do, so layers with dropout will run eagerly: "
                    "give te_rng_tracker=True, or use_cudagraphable_rng=True, "
                    "to model_parallel_cuda_manual_seed")
    return found
