"""Seeds of attention's dropout that a graph has left on the device.

Memory-efficient attention keeps its seed on the device in a capture, and in
the memory of the host elsewhere; its backward looks where it would be then.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from ..base import private

# Which argument the dropout's rate is, and the seed, with the offset next.
_SEEDED = {
    private.attention_backward: (9, 7),
    private.efficient_attention_backward: (11, 12),
}


class OnTheHost(private.TorchDispatchMode):
    """For an eager backward of a forward that was a graph."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        rate, seed = _SEEDED.get(function, (None, 0))
        if rate is not None and args[rate] > 0:
            args = (*args[:seed], args[seed].cpu(), args[seed + 1].cpu(),
                    *args[seed + 2:])
        return function(*args, **(kwargs or {}))
