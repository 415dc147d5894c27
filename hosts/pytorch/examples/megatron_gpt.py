#!/usr/bin/env python3
"""A dense GPTModel of Megatron-Core, its layers captured whole.

    megatron_gpt.py --compare off,layer,chunk --dropout 0.1

The layers are those of Megatron's local spec, so neither Transformer Engine
nor apex is needed, and no file of Megatron is changed.  What a layer needs to
be captured is an option of Megatron's own: random states that a graph may
read.  Its tracker takes turns with them also where nothing is dropped.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import importlib.util
import sys
import warnings

import common
import options
import torch

VOCABULARY = 256  # bytes


def installed() -> bool:
    try:
        return importlib.util.find_spec("megatron.core") is not None
    except ModuleNotFoundError:  # not even megatron
        return False


def load() -> None:
    # It warns of each library that it does without.
    warnings.filterwarnings("ignore", module=r"megatron\.")
    try:
        import megatron.core.models.gpt.gpt_layer_specs  # noqa: F401
    except ImportError as failure:
        raise options.Fault(
            f"megatron-core cannot be imported ({failure}); "
            "pip install --upgrade megatron-core"
        ) from None


class Recipe(common.Recipe):
    autocast = False  # the weights are of the dtype themselves

    def look(self, args) -> None:
        if not installed():
            raise options.Fault(
                "megatron-core is missing; pip install megatron-core"
            )

    def open(self, world) -> None:
        load()
        from megatron.core import parallel_state

        if world.size > 1:
            raise options.Fault(
                "this example is for one process; train_gpt.py runs under "
                "torchrun"
            )
        # Megatron asks for groups of ranks, also when there is one rank.
        torch.distributed.init_process_group(
            "nccl", store=torch.distributed.HashStore(), rank=0, world_size=1
        )
        parallel_state.initialize_model_parallel(
            create_gloo_process_groups=False
        )

    def build(self, args, device):
        from megatron.core.models.gpt import GPTModel
        from megatron.core.models.gpt.gpt_layer_specs import (
            get_gpt_layer_local_spec,
        )
        from megatron.core.transformer import TransformerConfig

        self.seed(args.seed)
        dtype = common.DTYPES[args.dtype]
        config = TransformerConfig(
            num_layers=args.layers,
            hidden_size=args.hidden,
            num_attention_heads=args.heads,
            hidden_dropout=args.dropout,
            attention_dropout=args.dropout,
            bf16=args.dtype == "bf16",
            params_dtype=dtype,
            pipeline_dtype=dtype,
            # Its embedding then sums gradients in one order.
            deterministic_mode=True,
        )
        model = GPTModel(
            config, get_gpt_layer_local_spec(), VOCABULARY, args.sequence,
            share_embeddings_and_output_weights=True,
        )  # fmt: skip
        self.positions = torch.arange(args.sequence, device=device)
        # Norms are made in fp32, also where the rest is not.
        return model.to(device, dtype)

    def loss(self, model, tokens, targets):
        # Without a mask the layers make the causal one.
        each = model(
            tokens, self.positions.expand_as(tokens), None, labels=targets
        )
        return each.mean()

    def seed(self, seed: int) -> None:
        from megatron.core.tensor_parallel import random

        torch.manual_seed(seed)
        random.model_parallel_cuda_manual_seed(
            seed, use_cudagraphable_rng=True, force_reset_rng=True
        )

    def attach_options(self, mode: str) -> dict:
        from megatron.core.tensor_parallel import random

        chosen = {
            "layers": "decoder.layers.*",
            # Attention draws from the tracker's states, the rest from the
            # device's generator.  They stay the same objects inside.
            "generators": tuple(random.get_all_rng_states().values()),
        }
        if mode == "part":
            chosen["scope"] = "attn,mlp"
            chosen["parts"] = {"attn": "self_attention", "mlp": "mlp"}
        return chosen


def main(argv=None) -> int:
    parser = options.make_parser(
        "Megatron-Core's GPTModel on text, with or without graphs.",
        dtypes=("bf16", "fp32"),
    )
    parser.set_defaults(device="cuda", sync_every=False)
    return common.main(parser, Recipe(), argv)


if __name__ == "__main__":
    sys.exit(main())
