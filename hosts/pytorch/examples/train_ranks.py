#!/usr/bin/env python3
"""A small GPT whose MLPs are spread over ranks, with and without graphs.

    torchrun --nproc-per-node 2 train_ranks.py --compare off,layer
    torchrun --nproc-per-node 2 train_ranks.py --compare off,layer,chunk \\
        --microbatches 4,6,8,3 --eval-every 10

All ranks learn from the same text.  A rank has some columns of the one matrix
of an MLP and as many rows of the other: what it computes is a part of a sum,
which an all-reduce inside of the layer adds up, and another one its gradient.
So graphs hold collectives, and attach() is told whose: group=.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import sys

import common
import options
import torch
import torch.nn as nn
import torch.nn.functional as F
import train_gpt
from torch import distributed
from world import Text


class Add(torch.autograd.Function):
    """Over the ranks of a group.  Each goes on with the whole, so that the
    gradient of its part is that of the whole."""

    @staticmethod
    def forward(ctx, part, group):
        whole = part.clone()
        distributed.all_reduce(whole, group=group)
        return whole

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Share(torch.autograd.Function):
    """With the ranks of a group, of which each has a part of the gradient."""

    @staticmethod
    def forward(ctx, whole, group):
        ctx.group = group
        return whole.view_as(whole)

    @staticmethod
    def backward(ctx, part):
        whole = part.clone()
        distributed.all_reduce(whole, group=ctx.group)
        return whole, None


class MLP(nn.Module):
    """This rank's part of one."""

    def __init__(self, whole: train_gpt.MLP, group, rank: int, size: int):
        super().__init__()
        self.dropout, self.group = whole.dropout, group
        self.up = nn.Linear(whole.up.in_features,
                            whole.up.out_features // size)
        self.down = nn.Linear(whole.down.in_features // size,
                              whole.down.out_features, bias=False)
        self.bias = whole.down.bias
        with torch.no_grad():
            for mine, all_of_it, dim in (
                (self.up.weight, whole.up.weight, 0),
                (self.up.bias, whole.up.bias, 0),
                (self.down.weight, whole.down.weight, 1),
            ):
                mine.copy_(all_of_it.chunk(size, dim)[rank])

    def forward(self, x):
        y = self.down(F.gelu(self.up(Share.apply(x, self.group))))
        y = Add.apply(y, self.group) + self.bias
        return F.dropout(y, self.dropout, self.training)


class Recipe(common.Recipe):
    without_gpu = "; --device cpu --graphhooks off trains without one"
    shares = True
    group = None  # of all ranks

    @staticmethod
    def text(args, world) -> Text:
        return Text(args, world, shared=True)

    def open(self, world) -> None:
        self.world = world
        if world.size > 1:
            self.group = distributed.group.WORLD

    def build(self, args, device):
        rank, size = self.world.rank, self.world.size
        if 4 * args.hidden % size:
            raise options.Fault(f"--hidden {args.hidden}: {4 * args.hidden} "
                                f"columns are not divisible by {size} ranks")
        if size > 1 and args.clip:
            raise options.Fault(f"--clip {args.clip:g}: a rank knows the norm "
                                "of its own gradients alone; leave it at 0")
        model = train_gpt.GPT(args)
        if size > 1:
            for block in model.blocks:
                block.mlp = MLP(block.mlp, self.group, rank, size)
        return model.to(device)

    def attach_options(self, mode: str) -> dict:
        return {**super().attach_options(mode), "group": self.group}


def main(argv=None) -> int:
    parser = options.make_parser(
        "A small GPT whose MLPs are spread over ranks, with or without graphs."
    )
    add = parser.add_argument
    add("--checkpoint", action="store_true",
        help="keep no activations of a block, but run it again")  # fmt: skip
    add("--device", choices=("cuda", "cpu"), default="cuda",
        help="cpu goes with --graphhooks off")  # fmt: skip
    parser.set_defaults(sync_every=False, clip=0.0)
    return common.main(parser, Recipe(), argv)


if __name__ == "__main__":
    sys.exit(main())
