"""The streams that gradients are written on, one after the other.

Autograd goes back on the stream of each forward; what several add to `.grad`
they must add one after the other, and before the caller of the pass goes on.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import torch

from ..base.private import at_end_of_pass, current_pass, raw_stream


class Writes:
    """Those of an attach."""

    def __init__(self, device: int):
        self._device = device
        # The stream that wrote last, and in which pass of autograd.
        self._last: tuple = None, None, -1

    def order(self) -> None:
        """Somebody is about to, on the current stream."""
        before, stream, its_pass = self._last
        raw, now = raw_stream(self._device), current_pass()
        if raw == before and now == its_pass:
            return
        current = torch.cuda.current_stream(self._device)
        if stream is not None and raw != before:
            current.wait_stream(stream)
        if now != its_pass and now >= 0:  # there is one
            at_end_of_pass(self._join)
        self._last = raw, current, now

    def _join(self) -> None:
        raw, stream, _ = self._last
        if raw != raw_stream(self._device):
            torch.cuda.current_stream(self._device).wait_stream(stream)
