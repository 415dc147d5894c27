#!/usr/bin/env python3
"""A small GPT learns speeches of Shakespeare's, padded to a few lengths.

    train_lengths.py --compare off,layer,chunk
    train_lengths.py --compare off,layer --pad-to 32 --max-banks 4

A microbatch is as long as the longest of its speeches, up to a multiple of
--pad-to.  Each length runs eagerly when it comes first, and has graphs from
the second time on.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import sys

import common
import options
import torch
import train_gpt
from options import Fault
from world import World

IGNORED = -100  # by the cross entropy, where a speech has ended
SHORTEST = 2  # bytes: one to read, one to guess


class Speeches:
    """Those of a text, and the last tenth to be judged by."""

    def __init__(self, args, world: World):
        try:
            data = args.text.read_bytes()
        except OSError as failure:
            raise Fault(
                f"no text is at {args.text} ({failure.strerror}); give one "
                "with --text FILE"
            ) from None
        self.args, self.world = args, world
        speeches = [s for s in data.split(b"\n\n") if len(s) >= SHORTEST]
        split = len(speeches) * 9 // 10
        self.train, self.held_out = speeches[:split], speeches[split:]
        if not self.train or len(self.held_out) < 4 * args.batch:
            raise Fault(
                f"--text {args.text} has {len(speeches)} speeches, that is "
                "pieces between empty lines; take a longer text or a smaller "
                "--batch"
            )

    def _batch(self, speeches):
        """Tokens and targets, padded."""
        longest = max(len(s) for s in speeches) - 1
        length = min(-(-longest // self.args.pad_to) * self.args.pad_to,
                     self.args.sequence)  # fmt: skip
        tokens = torch.zeros(len(speeches), length, dtype=torch.long)
        targets = torch.full_like(tokens, IGNORED)
        for row, speech in enumerate(speeches):
            values = torch.tensor(list(speech[: length + 1]))
            tokens[row, : len(values) - 1] = values[:-1]
            targets[row, : len(values) - 1] = values[1:]
        return tokens.to(self.world.device), targets.to(self.world.device)

    def microbatches(self, step: int, count: int) -> list:
        """The same for each run; other ones for each step and rank."""
        generator = torch.Generator().manual_seed(
            (self.args.seed * self.world.size + self.world.rank) * 1_000_003
            + step
        )
        picks = torch.randint(
            len(self.train), (count, self.args.batch), generator=generator
        ).tolist()
        return [self._batch([self.train[i] for i in row]) for row in picks]

    def judges(self) -> list:
        size = self.args.batch
        return [
            self._batch(self.held_out[i * size : (i + 1) * size])
            for i in range(4)
        ]


class Recipe(train_gpt.Recipe):
    text = Speeches


def main(argv=None) -> int:
    parser = options.make_parser(
        "A small GPT on speeches of several lengths, with or without graphs."
    )
    train_gpt.add_options(parser)
    add = parser.add_argument
    add("--pad-to", type=options.positive, default=64, metavar="N",
        help="lengths are multiples of it")  # fmt: skip
    add("--max-banks", type=options.positive, default=8, metavar="N",
        help="lengths that have graphs at once")  # fmt: skip
    return common.main(parser, Recipe(), argv)


if __name__ == "__main__":
    sys.exit(main())
