"""How many microbatches a schedule has in flight in each chunk, which is how
many slots its graphs need.

It is known before the first step, for any number of microbatches that the
schedule allows.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import os

from .. import _abi, _library
from ..errors import check

_LEAST = 8  # that a session has by default: others than schedules may call
_VARIABLE = "GRAPHHOOKS_MAX_SLOTS"


class Schedule:
    """Of one rank's chunks."""

    def __init__(self, names, config, chunks: int):
        self._stages = config.pipeline_model_parallel_size
        self._chunks = config.virtual_pipeline_model_parallel_size or 1
        self._stage = names.get_pipeline_model_parallel_rank() \
            if self._stages > 1 else 0
        group = config.microbatch_group_size_per_vp_stage or 0
        each = _slots(self._stages, self._stage, self._chunks,
                      group if self._chunks > 1 else 0,
                      bool(config.overlap_moe_expert_parallel_comm))
        # Who attaches chunk by chunk has not said which.
        self.slots = each if len(each) == chunks else [max(each)] * chunks

    def options(self, number: int, given: dict) -> dict:
        """Those of a chunk's session."""
        if given.get("max_slots") is not None:
            return given
        return {**given, "max_slots": max(_LEAST, self.slots[number])}

    def notes(self, given: dict) -> list[str]:
        """What has too few."""
        said = os.environ.get(_VARIABLE) or given.get("max_slots")
        most = max(self.slots)
        if said is None or not str(said).isdecimal() or int(said) >= most:
            return []
        return [f"max_slots is {said}, and the schedule has up to {most} "
                "microbatches in flight in a chunk: those beyond run eagerly"]

    def __str__(self) -> str:
        if self._stages == 1:
            return ""
        where = f"stage {self._stage} of {self._stages}"
        slots = " and ".join(map(str, self.slots))
        of = f", of {len(self.slots)} chunks" if len(self.slots) > 1 else ""
        return f"slots by the schedule, {where}{of}: {slots}"


def _slots(stages: int, stage: int, chunks: int, group: int,
           ahead: bool) -> list[int]:
    desc = _abi.gh_pipeline_desc(ctypes.sizeof(_abi.gh_pipeline_desc),
                                 stages, stage, chunks, group, ahead)
    slots, error = (ctypes.c_uint32 * chunks)(), _abi.gh_error()
    check(_library.load().plan_slots(
        ctypes.byref(desc), slots, ctypes.byref(error)), error)
    return list(slots)
