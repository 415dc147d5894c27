"""Why a recording has failed, and what to do about it.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import torch

from ..base.tree import Unfit
from .checkpoint import Keeps

# Files of torch's and of ours.
_NOT_THEIRS = (os.path.dirname(torch.__file__) + os.sep,
               str(Path(__file__).parents[2]) + os.sep)
# What torch says of a function that it would compile in a recording.
_COMPILES = "'fail_on_recompile'"
# What torch says of who writes an input, which is a leaf in a recording.
_LEAF = "a leaf Variable that requires grad"
# What CUDA and torch say of a wait for the device in a capture.
_WAITS = ("not permitted when stream is capturing",
          "not permitted on an event last recorded in a capturing stream",
          "during CUDA graph capture unless the CPU tensor is pinned")


_WAITING = "it waits for the device"
# What torch says of a generator in a capture that was not told of it.
_UNTOLD = "not in capture mode"

# What they say of work in a capture that something has ended before.
_ENDED = "failed due to a previous error during capture"
SPOILT = ("something else has ended the capture: another thread's "
          "torch.cuda.synchronize() does, and so does a wait for the device "
          "whose exception the layer has caught")


def is_spoilt(failure) -> bool:
    """Whether a recording has failed by nothing that its own code has
    raised."""
    return _ENDED in str(failure)


def sentence(segment, failure) -> str:
    """What the modules have raised, and where: in the last of their files."""
    why = str(failure).split("\n", 1)[0]
    if isinstance(failure, Unfit):
        if isinstance(failure, Keeps):
            segment.splits = failure.about, ""
        return why
    if is_spoilt(failure):
        return SPOILT + ", and has done so twice" * segment.has_failed
    if _COMPILES in why:
        return ("torch.compile has not compiled a function of it for a call "
                "like this, and a graph cannot have the compiler's work in "
                "it: with autocast, give that cache_enabled=False; else see "
                "TORCH_LOGS=recompiles")
    places = [f"{os.path.basename(frame.filename)} line {frame.lineno}"
              for frame in traceback.extract_tb(failure.__traceback__)
              if not frame.filename.startswith(_NOT_THEIRS)]
    if _LEAF in why:
        place = f" ({places[-1]})" if places else ""
        return ("it changes in place what it is given, or a view of that, and "
                "what a graph is given stays for others: let it change a "
                f"copy, x = x.clone(){place}")
    if _UNTOLD in why:
        return ("it draws random numbers from a generator that the attach was "
                "not told of: give that as generators=")
    waits = any(text in why for text in _WAITS)
    # What a launch has done wrong shows at the next call that asks.
    at = "at" if waits or not why.startswith("CUDA error") else "at or before"
    place = f" ({at} {places[-1]})" if places else ""
    error = f"{type(failure).__name__}: {why}{place}"
    if not waits:
        return error
    segment.splits = _WAITING, f": {error}"
    return ("it waits for the device, as .item() or a copy to the CPU does, "
            f"and a graph cannot: {_remedy(segment, failure)}: {error}")


def _remedy(segment, failure) -> str:
    """What keeps the rest in graphs, as far as there is a rest."""
    told = getattr(segment.sites[0].module, "remedy", None)
    if isinstance(told, str):  # by an engine whose segment it is
        return told
    out = "do that outside of the layers"
    if len(segment.sites) > 1:
        return f"{out}, or attach with granularity=\"layer\", which leaves " \
            "the other layers their graphs"
    layer = next((layer for layer in segment.owner.layers
                  if layer.module is segment.sites[0].module), None)
    if layer is None or not layer.parts:
        return out
    waiting = _part_of(layer, failure)
    others = [part for part in layer.parts if part != waiting]
    if not others:
        return out
    return f"{out}, or attach with granularity=\"part\", " \
        f"scope=\"{','.join(others)}\", which leaves that out of the graphs"


def _part_of(layer, failure) -> str | None:
    """The part of a layer in which it was raised; None: between them.  Before
    Python 3.13 a frame keeps what it is asked for here: the one that has
    caught the failure would keep that, which keeps the frame, and so all that
    the recording has made until the collector comes."""
    running = [frame.f_locals.get("self") for frame, _
               in traceback.walk_tb(failure.__traceback__.tb_next)]
    for part, name in layer.parts.items():
        module = getattr(layer.module, name, None)
        if any(each is module for each in running):
            return part
    return None
