"""mamba_ssm's kernels, which are for a GPU, as sums over all tokens before.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import importlib.machinery
import sys
import types

import torch
from torch.nn import functional as F


class RMSNorm(torch.nn.Module):
    """With a gate before it, as Megatron has it."""

    def __init__(self, width, eps=1e-5, group_size=None, **_):
        super().__init__()
        self.eps, self.group = eps, group_size or width
        self.weight = torch.nn.Parameter(torch.ones(width))

    def forward(self, x, z):
        x = x * F.silu(z)
        parts = x.unflatten(-1, (-1, self.group))
        scale = (parts.square().mean(-1, keepdim=True) + self.eps).rsqrt()
        return (parts * scale).flatten(-2) * self.weight


def scan(x, dt, A, B, C, chunk_size, D=None, z=None, dt_bias=None, **_):
    """x: batch, tokens, heads, width; B, C: batch, tokens, groups, state."""
    dt = F.softplus(dt.float() + dt_bias)
    B, C = (t.repeat_interleave(x.shape[2] // t.shape[2], 2) for t in (B, C))
    decay = (dt * A).cumsum(1).transpose(1, 2)
    decay = (decay[..., :, None] - decay[..., None, :]).exp().tril()
    weights = torch.einsum("bthn,bshn->bhts", C, B) * decay
    y = torch.einsum("bhts,bshp->bthp", weights, x * dt[..., None])
    y = y + x * D.reshape(D.shape[0], -1)
    return y if z is None else y * F.silu(z)


def install() -> None:
    """Before megatron.core is imported."""
    for name in ("mamba_ssm", "mamba_ssm.ops", "mamba_ssm.ops.triton",
                 "mamba_ssm.ops.triton.layernorm_gated",
                 "mamba_ssm.ops.triton.ssd_combined"):
        module = sys.modules[name] = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    sys.modules["mamba_ssm"].__version__ = "2.3.0"
    sys.modules["mamba_ssm.ops.triton.layernorm_gated"].RMSNorm = RMSNorm
    module.mamba_chunk_scan_combined = scan
    module.mamba_split_conv1d_scan_combined = scan  # which nobody calls
