"""A plain GPT: what a nanoGPT user has.

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import torch
import torch.nn.functional as functional
from torch import nn


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.heads = heads
        self.inputs = nn.Linear(hidden, 3 * hidden)
        self.output = nn.Linear(hidden, hidden)

    def forward(self, x):
        batch, sequence, hidden = x.shape
        q, k, v = (part.view(batch, sequence, self.heads, -1).transpose(1, 2)
                   for part in self.inputs(x).split(hidden, dim=2))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.output(y.transpose(1, 2).reshape(batch, sequence, hidden))


class MLP(nn.Module):
    def __init__(self, hidden: int):
        super().__init__()
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        return self.down(functional.gelu(self.up(x), approximate="tanh"))


class Layer(nn.Module):
    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.attention_norm = nn.LayerNorm(hidden)
        self.attention = Attention(hidden, heads)
        self.mlp_norm = nn.LayerNorm(hidden)
        self.mlp = MLP(hidden)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class GPT(nn.Module):
    """Tokens and targets in, the mean loss out."""

    def __init__(self, layers: int, hidden: int, heads: int, sequence: int,
                 vocabulary: int):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, hidden)
        self.positions = nn.Embedding(sequence, hidden)
        self.layers = nn.ModuleList(Layer(hidden, heads)
                                    for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocabulary, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens, targets):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(places)
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x)).float()
        return functional.cross_entropy(logits.flatten(0, 1),
                                        targets.flatten())
