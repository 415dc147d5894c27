#!/usr/bin/env python3
"""A small GPT on whole paragraphs, packed into one buffer, with and without
graphs.

    packed_gpt.py --compare off,layer,chunk --microbatches 4,6,8,3
    packed_gpt.py --compare off,layer --documents 16    # some do not fit

Each microbatch has other paragraphs, so `cu_seqlens` has another length each
time, and the longest is another number.  `attach` is told the most of both.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import sys

import common
import options
import torch
import torch.nn as nn
import torch.nn.functional as F
import world
from train_gpt import BYTES, MLP

NOTHING = -100  # a target that is not learned


def places_in(cu_seqlens, count: int):
    """The sequence of each token, and its place in that, without a wait."""
    at = torch.arange(count, device=cu_seqlens.device, dtype=torch.int32)
    which = torch.searchsorted(cu_seqlens[1:].contiguous(), at, right=True)
    return which, at - cu_seqlens[which]


def plain_attention(q, k, v, cu_seqlens, max_seqlen):
    """Of each token to those before it in its sequence; for any device, and
    the same bits twice."""
    which, place = places_in(cu_seqlens, len(q))
    allowed = (which[:, None] == which) & (place[:, None] >= place)
    q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    scores = (q @ k.transpose(1, 2)).float() * q.shape[-1] ** -0.5
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(-1)
    return (weights.type_as(v) @ v).transpose(0, 1)


def varlen_attention(q, k, v, cu_seqlens, max_seqlen):
    """The same by torch's flash attention: on a GPU, and in 16 bits."""
    from torch.nn.attention.varlen import varlen_attn

    return varlen_attn(q, k, v, cu_seqlens, cu_seqlens, max_seqlen,
                       max_seqlen, window_size=(-1, 0))  # fmt: skip


ATTENTIONS = {"plain": plain_attention, "varlen": varlen_attention}


class Attention(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.heads, self.dropout = args.heads, args.dropout
        self.attend = ATTENTIONS[args.attention]
        self.qkv = nn.Linear(args.hidden, 3 * args.hidden)
        self.out = nn.Linear(args.hidden, args.hidden)

    def forward(self, x, cu_seqlens, max_seqlen):
        count, hidden = x.shape
        qkv = self.qkv(x).view(count, 3, self.heads, -1)
        y = self.attend(*qkv.unbind(1), cu_seqlens, max_seqlen)
        y = self.out(y.reshape(count, hidden))
        return F.dropout(y, self.dropout, self.training)


class Block(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.attn_norm = nn.LayerNorm(args.hidden)
        self.attn = Attention(args)
        self.mlp_norm = nn.LayerNorm(args.hidden)
        self.mlp = MLP(args.hidden, args.dropout)

    def forward(self, x, cu_seqlens, max_seqlen):
        x = x + self.attn(self.attn_norm(x), cu_seqlens, max_seqlen)
        return x + self.mlp(self.mlp_norm(x))


class GPT(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.dropout = args.dropout
        self.tokens = nn.Embedding(BYTES, args.hidden)
        self.positions = nn.Embedding(args.sequence, args.hidden)
        self.blocks = nn.ModuleList(Block(args) for _ in range(args.layers))
        self.norm = nn.LayerNorm(args.hidden)
        self.head = nn.Linear(args.hidden, BYTES, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, tokens, targets, cu_seqlens, max_seqlen):
        _, place = places_in(cu_seqlens, len(tokens))
        x = self.tokens(tokens) + self.positions(place)
        x = F.dropout(x, self.dropout, self.training)
        for block in self.blocks:
            x = block(x, cu_seqlens, max_seqlen)
        return F.cross_entropy(self.head(self.norm(x)), targets,
                               ignore_index=NOTHING)  # fmt: skip


class Documents(world.Text):
    """The paragraphs of a text, each cut to the longest sequence."""

    def __init__(self, args, world):
        super().__init__(args, world)
        self.room = args.batch * args.sequence
        self.of = {
            part: [
                torch.tensor(list(paragraph[: self.window]))
                for paragraph in bytes(part.tolist()).split(b"\n\n")
                if len(paragraph) > 1
            ]
            for part in (self.train, self.held_out)
        }

    def _pack(self, part, at: int):
        """As many as fit, from one of them on.  The rest of the buffer is
        sequences too, of which nothing is learned: attention leaves what is
        in no sequence unwritten."""
        documents = self.of[part]
        tokens = torch.zeros(self.room, dtype=torch.int64)
        targets = torch.full((self.room,), NOTHING)
        offsets, end = [0], 0
        while True:
            document = documents[at % len(documents)]
            count = len(document) - 1
            if end + count > self.room:
                break
            tokens[end : end + count] = document[:-1]
            targets[end : end + count] = document[1:]
            end, at = end + count, at + 1
            offsets.append(end)
        while offsets[-1] < self.room:
            offsets.append(min(offsets[-1] + self.window - 1, self.room))
        longest = max(b - a for a, b in zip(offsets, offsets[1:]))
        device = self.world.device
        offsets = torch.tensor(offsets, dtype=torch.int32)
        return tokens.to(device), targets.to(device), offsets.to(device), \
            longest  # fmt: skip

    def microbatches(self, step: int, count: int) -> list:
        generator = torch.Generator().manual_seed(
            (self.args.seed * self.world.size + self.world.rank) * 1_000_003
            + step
        )
        starts = torch.randint(
            len(self.of[self.train]), (count,), generator=generator
        )
        return [self._pack(self.train, at) for at in starts.tolist()]

    def judges(self) -> list:
        count = len(self.of[self.held_out])
        return [self._pack(self.held_out, i * count // 4) for i in range(4)]


class Recipe(common.Recipe):
    without_gpu = "; --device cpu --graphhooks off trains without one"
    text = Documents

    def build(self, args, device):
        self.args = args
        return GPT(args).to(device)

    def loss(self, model, *batch):
        return model(*batch)

    def attach_options(self, mode: str) -> dict:
        if mode in ("off", "eager"):
            return {}
        packed = {"cu_seqlens": self.args.documents,
                  "max_seqlen": self.args.sequence}  # fmt: skip
        return {**super().attach_options(mode), "packed": packed}


def main(argv=None) -> int:
    parser = options.make_parser(
        "A small GPT on packed paragraphs, with or without graphs."
    )
    parser.set_defaults(checkpoint=False)
    add = parser.add_argument
    add("--documents", type=options.positive, default=64,
        help="sequences that a graph has room for")  # fmt: skip
    add("--attention", choices=ATTENTIONS, default="plain",
        help="varlen is torch's flash attention, on a GPU")  # fmt: skip
    add("--sync-every", action="store_true",
        help="DDP's gradients of each microbatch, not of a step")  # fmt: skip
    add("--device", choices=("cuda", "cpu"), default="cuda",
        help="cpu goes with --graphhooks off")  # fmt: skip
    return common.main(parser, Recipe(), argv)


if __name__ == "__main__":
    sys.exit(main())
