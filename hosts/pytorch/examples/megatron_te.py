#!/usr/bin/env python3
"""Megatron-Core's models of Transformer Engine's layers, under Megatron's own
schedule and optimizer, with its graphs and with those of graphhooks.

    megatron_te.py --kind moe --compare off,te,scope
    megatron_te.py --all results.jsonl          # all kinds, one after the other

How a model is made and wrapped, and who makes its graphs, is in
megatron_model.py.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import sys
import warnings

import common
import megatron_all
import megatron_model as megatron
import options
import torch


class Training:
    """megatron_model.Megatron, as the loop of the examples has it."""

    def __init__(self, args, world, run):
        chosen = common.options_of(run, args, world, Recipe()) \
            if run.mode in megatron.HOOKED else {}
        self.inner = megatron.Megatron(
            megatron.shape_of(args), run.mode, world.device, number=args.seed,
            rate=args.rate, clip=args.clip, **chosen)
        self.step, self.state = self.inner.step, self.inner.state

    def judge(self, batches) -> float:
        model = self.inner.model
        model.eval()
        with torch.no_grad():
            losses = self.inner.passes(batches, forward_only=True)
        model.train()
        return float(torch.stack(losses).double().mean())


class Recipe(common.Recipe):
    def look(self, args) -> None:
        if args.all:
            return  # each configuration looks
        wanted = args.compare or [args.graphhooks]
        if args.in_flight > 1:
            raise options.Fault("--in-flight is the schedule's here, which "
                                "has one microbatch in flight on one rank")
        try:
            megatron.look(megatron.shape_of(args), wanted)
        except megatron.Missing as missing:
            raise options.Fault(str(missing)) from None

    def open(self, world) -> None:
        # It warns of each library that it does without.
        warnings.filterwarnings("ignore", module=r"megatron\.")
        if world.size > 1:
            raise options.Fault("this example is for one process; "
                                "train_gpt.py runs under torchrun")
        megatron.start(world.device)

    def run(self, args, world, text) -> bool:
        if args.all:
            return megatron_all.run(args, world, text, self)
        return super().run(args, world, text)

    def training(self, args, world, run):
        return Training(args, world, run)

    def attach(self, training, run, args, world):
        graphs = training.inner.graphs
        if run.mode in megatron.HOOKED:
            graphs.make()
        return graphs

    def attach_options(self, mode: str) -> dict:
        return {}

    def determine(self) -> None:
        """What has no such kernel in Megatron says so, and runs."""
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False


def make_parser():
    parser = options.make_parser(
        "Megatron-Core with Transformer Engine on text, by who makes graphs.",
        dtypes=("bf16", "fp32"), modes=megatron.GRAPHS)
    add = parser.add_argument
    add("--device", choices=("cuda", "cpu"), default="cuda",
        help="cpu: no GPU, with --graphhooks off")  # fmt: skip
    add("--kind", choices=megatron.KINDS, default="dense", help="of layers")
    add("--spec", choices=("te", "local"), default="te",
        help="whose modules layers are made of")
    add("--scope", metavar="WORD,...",
        help="what te, local and scope capture, in Megatron's words; '': "
             "whole layers; by default what the kind can")  # fmt: skip
    add("--fp8", choices=megatron.RECIPES, default="",
        help="how the numbers of FP8 are scaled; without it there are none")
    add("--experts", type=options.positive, default=8, help="of a MoE layer")
    add("--topk", type=options.positive, default=2,
        help="experts of a token")  # fmt: skip
    add("--pattern", default=megatron.PATTERN, metavar="LAYERS",
        help="of a hybrid, a letter a layer: M Mamba, * attention, - MLP, "
             "E experts")  # fmt: skip
    megatron_all.add_arguments(add)
    # Without a norm nothing waits for the device within a step.
    parser.set_defaults(sync_every=False, clip=0.0)
    return parser


def main(argv=None) -> int:
    parser = make_parser()
    if any(word.split("=")[0] == "--all" for word in
           (sys.argv[1:] if argv is None else argv)):
        megatron_all.small(parser)
    return common.main(parser, Recipe(), argv)


if __name__ == "__main__":
    sys.exit(main())
