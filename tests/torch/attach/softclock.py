"""A clock for what scope="auto" measures: passes take what a test says.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import types

from graphhooks.torch.attach import measured
from graphhooks.torch.step import backward_entry, segment, forward_wrapper


class Clock:
    """`eager` and `replay` are milliseconds of a pass, by the scope; of a
    replay, half of it forward.  `busy`: so many steps pass until the device
    has done what is asked about."""

    def __init__(self, eager: dict, replay: dict, busy: int = 0):
        self.now = 0.0
        self.asked = 0  # about events that were not done yet
        clock = self

        class Event:
            def __init__(self, enable_timing=False):
                assert enable_timing
                self.at, self.left = None, busy

            def record(self) -> None:
                self.at = clock.now

            def query(self) -> bool:
                clock.asked += self.left > 0
                self.left -= 1
                return self.left < 0

            def elapsed_time(self, end) -> float:
                assert end.left < 0
                return end.at - self.at

        play, replays = forward_wrapper.Site.play, segment.replay
        replays_back = backward_entry.WayBack._replay_back

        def plays(self, *args, **kwargs):
            clock.now += eager.get(measured.scope_of(self.segment), 0)
            return play(self, *args, **kwargs)

        def forward(which, *how):
            clock.now += replay.get(measured.scope_of(which), 0) / 2
            return replays(which, *how)

        def backward(which, *how):
            clock.now += replay.get(measured.scope_of(which), 0) / 2
            return replays_back(which, *how)

        for own, put in ((play, plays), (replays, forward),
                         (replays_back, backward)):
            # Nothing of the layers: for the guard, of the package's file.
            put.__code__ = put.__code__.replace(
                co_filename=own.__code__.co_filename)
        self._puts = [(measured, "torch", types.SimpleNamespace(
                          cuda=types.SimpleNamespace(Event=Event))),
                      (forward_wrapper.Site, "play", plays),
                      (segment, "replay", forward),
                      (backward_entry.WayBack, "_replay_back", backward)]

    def __enter__(self) -> "Clock":
        self._before = [(thing, name, getattr(thing, name))
                        for thing, name, _ in self._puts]
        for put in self._puts:
            setattr(*put)
        return self

    def __exit__(self, *_) -> None:
        for put in self._before:
            setattr(*put)
