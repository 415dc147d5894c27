#!/usr/bin/env python3
"""Loops of Hugging Face's on lines of Shakespeare, padded batch by batch.

    huggingface.py --loop trainer --model llama --compare off,layer,chunk
    huggingface.py --loop accelerate --model gpt2 --graphhooks layer

It needs transformers and accelerate.  What graphs take is the line attach();
the collator pads to a multiple of --pad-to.  A batch without padding is a shape of its own: transformers leaves
out a mask that masks nothing.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402
from options import TEXT, mode, modes, positive  # noqa: E402

IGNORED = -100  # by the loss


class Lines:
    """Those of a text, as bytes, each of which is an example."""

    def __init__(self, args):
        found = [s[: args.longest] for s in args.text.read_bytes().splitlines()]
        picked = [s for s in found if len(s) > 4]
        self.examples = [
            {"input_ids": list(s)} for s in picked[: args.batch * args.batches]
        ]
        self.pad_to = args.pad_to

    def collate(self, examples) -> dict:
        """Padded to the longest, up to a multiple."""
        longest = max(len(e["input_ids"]) for e in examples)
        length = -(-longest // self.pad_to) * self.pad_to
        rows = []
        for e in examples:
            ids, rest = e["input_ids"], length - len(e["input_ids"])
            rows.append((ids + [0] * rest, [1] * len(ids) + [0] * rest,
                         ids + [IGNORED] * rest))  # fmt: skip
        names = "input_ids", "attention_mask", "labels"
        return dict(zip(names, map(torch.tensor, zip(*rows))))


# ---- models, of random weights ---------------------------------------------


def gpt2(args):
    import transformers

    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=256, n_positions=args.longest + args.pad_to,
        n_embd=args.hidden, n_layer=args.layers, n_head=args.heads,
        attn_pdrop=0.0, bos_token_id=None, eos_token_id=None,
    ))  # fmt: skip


def llama(args):
    import transformers

    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=256, hidden_size=args.hidden, num_hidden_layers=args.layers,
        intermediate_size=4 * args.hidden, num_attention_heads=args.heads,
        num_key_value_heads=args.heads,
        max_position_embeddings=args.longest + args.pad_to,
    ))  # fmt: skip


MODELS = {"gpt2": gpt2, "llama": llama}

# ---- loops -----------------------------------------------------------------


def by_trainer(model, lines: Lines, args) -> None:
    import transformers

    class InOrder(transformers.Trainer):
        """Its batches come as the text has them."""

        def _get_train_sampler(self, *_):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder, per_device_train_batch_size=args.batch,
            gradient_accumulation_steps=args.accumulate,
            num_train_epochs=args.epochs, learning_rate=1e-3, seed=args.seed,
            use_cpu=not torch.cuda.device_count(), report_to=[],
            save_strategy="no", logging_strategy="no", disable_tqdm=True,
            dataloader_pin_memory=False, remove_unused_columns=False,
        )  # fmt: skip
        InOrder(model=model, args=arguments, train_dataset=lines.examples,
                data_collator=lines.collate).train()  # fmt: skip


def by_accelerate(model, lines: Lines, args) -> None:
    import accelerate

    accelerator = accelerate.Accelerator(
        cpu=not torch.cuda.device_count(),
        gradient_accumulation_steps=args.accumulate,
    )
    loader = torch.utils.data.DataLoader(
        lines.examples, args.batch, collate_fn=lines.collate
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _ in range(args.epochs):
        for batch in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(**batch).loss)
                optimizer.step()
                optimizer.zero_grad()


LOOPS = {"trainer": by_trainer, "accelerate": by_accelerate}

# ---- a training, and several that are compared -----------------------------


def train(args, name: str):
    """The weights as they end, and the stats and the plan of graphs."""
    import graphhooks

    torch.manual_seed(args.seed)
    model = MODELS[args.model](args).cuda().train()
    lines = Lines(args)
    if name == "off":
        torch.manual_seed(args.seed + 1)
        LOOPS[args.loop](model, lines, args)
        return model.state_dict(), {}, ""
    with graphhooks.attach(
        model, granularity=name, max_banks=args.max_banks
    ) as attached:
        torch.manual_seed(args.seed + 1)
        LOOPS[args.loop](model, lines, args)
        return model.state_dict(), attached.stats(), attached.explain()


def differing(one: dict, other: dict) -> list:
    """Names of weights that are not the same to the bit."""
    def bits(t):
        return t.contiguous().flatten().view(torch.uint8)

    return [n for n in one if not torch.equal(bits(one[n]), bits(other[n]))]


def arguments(words=None):
    parser = argparse.ArgumentParser(
        description="A loop of Hugging Face's on padded lines.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--graphhooks", type=mode, default="layer")
    which.add_argument("--compare", type=modes)
    add = parser.add_argument
    add("--loop", choices=LOOPS, default="trainer")
    add("--model", choices=MODELS, default="gpt2")
    add("--layers", type=positive, default=12)
    add("--hidden", type=positive, default=768)
    add("--heads", type=positive, default=12)
    add("--batch", type=positive, default=4, help="lines of a batch")
    add("--batches", type=positive, default=50, help="of an epoch")
    add("--epochs", type=positive, default=2)
    add("--accumulate", type=positive, default=1, help="batches of a step")
    add("--pad-to", type=positive, default=16)
    add("--longest", type=positive, default=48, help="bytes of a line")
    add("--max-banks", type=positive, default=8, help="shapes with graphs")
    add("--seed", type=int, default=1)
    add("--text", type=Path, default=TEXT)
    return parser.parse_args(words)


def main() -> int:
    args = arguments()
    torch.use_deterministic_algorithms(True)
    names = args.compare or [args.graphhooks]
    first = None
    equal = True
    for name in names:
        weights, stats, explained = train(args, name)
        print(f"{name}: {stats.get('recordings', 0)} recordings, "
              f"{stats.get('replays', 0)} replays, eager calls "
              f"{stats.get('eager_calls', 'all')}")
        for bank in stats.get("banks", ()):
            print(f"    {bank}")
        if first is None:
            first = weights
        elif differing(first, weights):
            equal = False
            print(f"{name} differs from {names[0]}: "
                  f"{differing(first, weights)[0]}")
            print(explained)
    if args.compare:
        print(f"bitwise equal: {'yes' if equal else 'no'}")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
