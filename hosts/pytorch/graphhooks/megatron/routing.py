"""Which experts tokens go to, where that is recorded or repeated: Megatron's
routing replay.

What a router is to do, and the experts that it is to repeat, are in attributes
beside it, and others for each microbatch.  A segment is given them as an
argument, and has them in these attributes while it runs.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib

import torch
from torch.cuda import is_current_stream_capturing as is_capturing

from ..torch.base.tree import Unfit
from .left import replays_of

# What it is to do; the experts of a forward, and those of forwards that run
# again in a backward.
_NAMES = ("router_replay_action", "target_topk_idx", "replay_backward_list")


class Routing:
    """That of the routers of a segment."""

    def __init__(self, body, runs_again=False):
        """`runs_again`: in its backward too, where a router reads what is
        beside it by then, and takes experts off the list."""
        self._replays = replays_of(body)
        self._is_unfit = runs_again and bool(self._replays)
        self._device = next((p.device for p in body.parameters()), None)
        self._actions: dict = {None: None}  # by their names
        body.tell(self._replays, _NAMES)

    def enter(self) -> dict:
        """Before a call; returns what it is given besides."""
        if not self._replays:  # as in most models
            return {}
        given = [*map(self._given, self._replays)]
        return {"routing": given} if any(
            name is not None for name, _ in given) else {}

    def _given(self, replay) -> tuple:
        """The name of the action, and the experts as a router takes them."""
        action = replay.router_replay_action
        name, experts = getattr(action, "name", None), None
        self._actions[name] = action
        if name == "REPLAY_FORWARD":
            experts = replay.target_topk_idx
        elif name == "REPLAY_BACKWARD" and replay.replay_backward_list:
            experts = replay.replay_backward_list.pop(0)
        return name, experts if experts is None \
            else experts.to(self._device)

    def leave(self, result) -> None:
        """After a call whose routers would run again in its backward, and do
        not: the list is there as if they had."""
        results = result if isinstance(result, (list, tuple)) else (result,)
        last = next((r for r in results if isinstance(r, torch.Tensor)
                     and r.requires_grad), None)
        if self._replays and last is not None:
            last.register_hook(self._take)

    def _take(self, _) -> None:
        for replay in self._replays:
            if getattr(replay.router_replay_action, "name", None) \
                    == "REPLAY_BACKWARD" and replay.replay_backward_list:
                del replay.replay_backward_list[0]

    @contextlib.contextmanager
    def inside(self, routing):
        """Within a call, with what enter() has given, or None."""
        if self._is_unfit and is_capturing():
            raise Unfit("its routers, which may repeat experts, run again in "
                        "its backward, and a graph would not see what they "
                        "are to do by then: leave moe_enable_routing_replay "
                        "out, or the recomputation")
        before = [[getattr(replay, name) for name in _NAMES]
                  for replay in self._replays]
        for replay, (name, experts) in zip(
                self._replays, routing or [(None, None)] * len(before)):
            _put(replay, (self._actions[name], experts,
                          [] if experts is None else [experts]))
        try:
            yield
        finally:
            for replay, values in zip(self._replays, before):
                _put(replay, values)


def _put(replay, values) -> None:
    for name, value in zip(_NAMES, values):
        setattr(replay, name, value)
