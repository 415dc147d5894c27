#!/usr/bin/env python3
"""A small GPT learns to write like Shakespeare, with and without graphs.

    train_gpt.py --graphhooks layer
    train_gpt.py --compare off,layer,chunk --microbatches 4,6,8,3
    torchrun --nproc-per-node 2 train_gpt.py --compare off,layer,chunk

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import sys

import common
import options
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

BYTES = 256  # of an alphabet


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x):
        b, t, c = x.shape
        qkv = self.qkv(x).view(b, t, 3, self.heads, c // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(
            q, k, v, is_causal=True,
            dropout_p=self.dropout if self.training else 0.0,
        )  # fmt: skip
        y = self.out(y.transpose(1, 2).reshape(b, t, c))
        return F.dropout(y, self.dropout, self.training)


class MLP(nn.Module):
    def __init__(self, hidden: int, dropout: float):
        super().__init__()
        self.dropout = dropout
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        y = self.down(F.gelu(self.up(x)))
        return F.dropout(y, self.dropout, self.training)


class Block(nn.Module):
    def __init__(self, hidden: int, heads: int, dropout: float):
        super().__init__()
        self.attn_norm = nn.LayerNorm(hidden)
        self.attn = Attention(hidden, heads, dropout)
        self.mlp_norm = nn.LayerNorm(hidden)
        self.mlp = MLP(hidden, dropout)

    def forward(self, x):
        x = x + self.attn(self.attn_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class GPT(nn.Module):
    def __init__(self, args):
        super().__init__()
        hidden = args.hidden
        self.checkpoint, self.dropout = args.checkpoint, args.dropout
        self.tokens = nn.Embedding(BYTES, hidden)
        self.positions = nn.Embedding(args.sequence, hidden)
        self.blocks = nn.ModuleList(
            Block(hidden, args.heads, args.dropout) for _ in range(args.layers)
        )
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, BYTES, bias=False)
        self.apply(self._initialize)
        for block in self.blocks:
            for linear in (block.attn.out, block.mlp.down):
                # Each block adds two, so their sum stays as large.
                with torch.no_grad():
                    linear.weight.mul_((2 * args.layers) ** -0.5)
        self.head.weight = self.tokens.weight

    @staticmethod
    def _initialize(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        x = F.dropout(x, self.dropout, self.training)
        for block in self.blocks:
            if self.checkpoint and self.training:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Recipe(common.Recipe):
    without_gpu = "; --device cpu --graphhooks off trains without one"

    def build(self, args, device):
        return GPT(args).to(device)


def add_options(parser) -> None:
    add = parser.add_argument
    add("--checkpoint", action="store_true",
        help="keep no activations of a block, but run it again")  # fmt: skip
    add("--sync-every", action="store_true",
        help="DDP's gradients of each microbatch, not of a step")  # fmt: skip
    add("--device", choices=("cuda", "cpu"), default="cuda",
        help="cpu goes with --graphhooks off")  # fmt: skip


def main(argv=None) -> int:
    parser = options.make_parser("A small GPT on text, with or without graphs.")
    add_options(parser)
    return common.main(parser, Recipe(), argv)


if __name__ == "__main__":
    sys.exit(main())
