"""Which experts tokens go to, where that is recorded or repeated: Megatron's
routing replay.

What a router is to do, and the experts that it is to repeat, are in attributes
beside it, and others for each microbatch.  A segment is given them as an
argument, and has them in these attributes while it runs.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib

from .left import replays_of

# What it is to do; the experts of a forward, and those of forwards that run
# again in a backward.
_NAMES = ("router_replay_action", "target_topk_idx", "replay_backward_list")
_LEFT = ("recorded_topk_idx",)


class Routing:
    """That of the routers of a segment."""

    def __init__(self, body):
        self._replays = replays_of(body)
        self._device = next((p.device for p in body.parameters()), None)
        self._actions: dict = {None: None}  # by their names
        body.told = {**body.told, **dict.fromkeys(map(type, self._replays),
                                                  _NAMES + _LEFT)}

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

    @contextlib.contextmanager
    def inside(self, routing):
        """Within a call, with what enter() has given, or None."""
        before = [[getattr(replay, name) for name in _NAMES]
                  for replay in self._replays]
        for replay, (name, experts) in zip(
                self._replays, routing or [(None, None)] * len(before)):
            _put(replay, (self._actions[name], experts, [experts]))
        try:
            yield
        finally:
            for replay, values in zip(self._replays, before):
                _put(replay, values)


def _put(replay, values) -> None:
    for name, value in zip(_NAMES, values):
        setattr(replay, name, value)
