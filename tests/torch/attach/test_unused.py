"""Weights that a layer has and does not use: eager never comes by their hooks.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import pytest
from models import WHOLE, WIDTH, nn, torch

from torch.utils.checkpoint import checkpoint


class Spare(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.spare = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return x + torch.tanh(self.linear(x))


class Hidden(Spare):
    """A checkpoint within uses its weights, which autograd's graph does not
    tell."""

    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=True) + self.spare


def clamped(run):
    for p in run.model.layers.parameters():
        p.register_hook(lambda grad: grad.clamp(-1e-3, 1e-3))


def halved(run):
    def halve(p):
        p.grad.mul_(0.5)

    for p in run.model.layers.parameters():
        p.register_post_accumulate_grad_hook(halve)


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("gradients", ["graph", "autograd"])
@pytest.mark.parametrize("hooks", [clamped, halved])
@pytest.mark.parametrize("make", [Spare, Hidden])
def test_hooks_of_a_weight(pair, grain, gradients, hooks, make):
    pair(lambda run: run.steps(), grain=grain, make=make, before=hooks,
         gradients=gradients)
