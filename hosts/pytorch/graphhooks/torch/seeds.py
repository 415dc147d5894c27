"""Seeds of attention's dropout that a graph has left on the device.

Memory-efficient attention keeps its seed on the device in a capture, and in
the memory of the host elsewhere; its backward looks where it would be then.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_aten = torch.ops.aten

# Which argument the dropout's rate is, and the seed, with the offset next.
_SEEDED = {
    _aten._scaled_dot_product_efficient_attention_backward.default: (9, 7),
    _aten._efficient_attention_backward.default: (11, 12),
}


class OnTheHost(TorchDispatchMode):
    """For an eager backward of a forward that was a graph."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        rate, seed = _SEEDED.get(function, (None, 0))
        if rate is not None and args[rate] > 0:
            args = (*args[:seed], args[seed].cpu(), args[seed + 1].cpu(),
                    *args[seed + 2:])
        return function(*args, **(kwargs or {}))
