"""Activation checkpointing, in captured modules and around them.

Around.  What autograd saves goes through hooks there, and on the way back the
modules run once more for those hooks alone.  A replay has nothing to save.  So
where a pass was a replay, its modules run again eagerly with nothing said to
the hooks: what autograd would save of them is not what was asked for.  The
backward is then of what the first run drew.  Where the second run begins with
other random numbers, as with preserve_rng_state=False, or for generators that
torch's checkpointing does not set back, eager's is not; both runs are eager.
The second run is with what the modules hold by then, and where that is not
what a graph has read, the backward runs them again, too.

Inside.  The states of random number generators cannot be read in a capture.
Where the modules draw none, as the passes before the recording have shown,
checkpointing is told that no device has one.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref

import torch
import torch.utils.checkpoint

from ..base import private
from ..base.tree import Unfit


def hooks():
    """What saved tensors are given to now, or None."""
    both = private.top_saved_tensors_hooks(True)
    return both and both[0]


def hooks_around() -> list:
    """What saved tensors would be given to without those."""
    found = []
    while (both := private.top_saved_tensors_hooks(True)) is not None:
        found.append(both)
        private.pop_saved_tensors_hooks()
    for both in reversed(found):
        private.push_saved_tensors_hooks(*both)
    return [pack for pack, _ in found[1:]]


def keeps_bits(hook) -> bool:
    """Whether hooks of saved tensors give back what they were given: those of
    torch's own save_on_cpu do; of others nobody knows."""
    return getattr(hook, "__qualname__", "").startswith("save_on_cpu.")


def is_selective() -> bool:
    """Whether a mode looks at every operation, as that of selective
    checkpointing does, which keeps some of their results."""
    return private.dispatch_mode() is not None


OTHERS = ("weights were changed between a forward and its backward in a "
          "checkpoint, which runs its modules with those that they have by "
          "then")
UNLIKE = (OTHERS + ": the graph has gone back with those of before, so "
          "gradients of such a pass are not eager's")
UNKNOWN = (OTHERS + ", and something runs there before them: gradients of "
           "such a pass may not be eager's: have a checkpoint for each layer")


class Replays:
    """Those of the first run of a checkpointed piece.  Who holds this holds
    no model."""

    def __init__(self):
        self._all: list = []

    def note(self, segment) -> int:
        self._all.append((weakref.ref(segment),
                          segment.places.versions_of_weights()))
        return len(self._all) - 1

    def read_others(self, place: int) -> bool:
        """Whether those up to there have other weights by now than they read.
        Those behind may have been stepped within this pass."""
        return any(segment is not None and segment.parameters.gathered is None
                   and (segment.places.versions_of_weights() != then
                        or not segment.places.are_same()
                        or segment.places.have_moved())
                   for ref, then in self._all[:place + 1]
                   for segment in [ref()])


class Region:
    """Calls between the ends of a checkpointed piece, in their order."""

    def __init__(self, kind):
        self.kind = kind
        self.replays = Replays()
        self._calls: list[tuple] = []
        self._hook = None  # of the run at hand, which is not the first
        self._at = 0

    def note(self, replayed: bool, states) -> None:
        """Of the first run, with where the generators were at its call."""
        self._calls.append((replayed, states))

    def look_up(self, hook) -> tuple:
        """The next call, the first time."""
        if self._hook is not hook:
            self._hook, self._at = hook, 0
        self._at += 1
        return (self._calls[self._at - 1:self._at] or [(False, None)])[0]


def region(hook) -> tuple:
    """Of the call at hand, and whether it runs once more; (None, False) for
    hooks of another kind."""
    frame, again = private.frame_behind(hook)
    if frame is None:
        return None, False
    if not hasattr(frame, "graphhooks"):
        frame.graphhooks = Region(private.kind_of_frame(frame))
    return frame.graphhooks, again


@contextlib.contextmanager
def unheard():
    """What autograd saves is kept as if there were no hooks."""
    with torch.enable_grad():
        if hooks() is None:
            yield
        else:
            with torch.autograd.graph.saved_tensors_hooks(
                    torch.Tensor.detach, lambda tensor: tensor):
                yield


@contextlib.contextmanager
def without_states(draws):
    """For a recording; `draws` says whether the modules draw random numbers,
    as far as anybody knows."""
    before = _recording.draws
    _recording.draws = draws
    try:
        yield
    finally:
        _recording.draws = before


_reentrant = torch.utils.checkpoint.CheckpointFunction.forward.__code__


def is_first_of_reentrant() -> bool:
    """Whether the call at hand is in the run of a reentrant checkpoint that
    keeps nothing, by whoever has called; which is slow to see."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _reentrant:
            return True
        frame = frame.f_back
    return False


_NOTHING = object()


class _Recording(threading.local):
    draws = _NOTHING  # or what without_states() was told in this thread


_recording = _Recording()
_get_device_states = torch.utils.checkpoint.get_device_states


class Keeps(Unfit):
    """Of who checkpoints what draws: not of that itself."""

    about = "checkpointing inside it keeps the state of random numbers"


def _device_states(*args):
    """torch's own, but in a recording of this thread."""
    if _recording.draws is _NOTHING:
        return _get_device_states(*args)
    if _recording.draws is not False:
        raise Keeps("checkpointing inside it keeps the state of random "
                    "numbers that it draws, which a capture cannot: attach "
                    "with granularity=\"part\", scope=\"attn,mlp\", whose "
                    "graphs are of what is checkpointed")
    return [], []


torch.utils.checkpoint.get_device_states = _device_states
