#!/usr/bin/env python3
"""verify_torch.py - what verify="auto" costs a training, in PyTorch.

    verify_torch.py OUT.json               # some minutes on a GPU

Three models with random weights learn real text: the GPT of
hosts/pytorch/examples/train_gpt.py, and GPT-2 and Llama of Hugging Face.  Each
trains twice in one process, from the same weights and text: with verify="off"
and with verify="auto".  The two take turns, some steps each, in the order
off, auto, auto, off, so that a change of the GPU's clock meets both.  Verify
may take a share of the time that has passed: its clock stands still while the
other trains.

`overhead` is the time of all steps with "auto" over that with "off", minus
one, the first steps left out, in which both record; `settled` is the same of
the second half.  Losses are compared bit for bit.

The prediction: at most 0.01 of the time, whatever the model, as verify spends
no more than that by its own clock.

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import types
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
EXAMPLES = TOP / "hosts" / "pytorch" / "examples"
MODELS = ("gpt", "gpt2", "llama")
MODES = ("off", "auto")
RECORDS = 8  # steps in which graphs are made
TARGET = 0.01


def model_of(name: str, options, torch):
    if name != "gpt":
        import banks_torch

        return banks_torch.model_of(name, options, torch)
    import train_gpt

    torch.manual_seed(1)
    return train_gpt.GPT(types.SimpleNamespace(
        hidden=options.hidden, heads=options.heads, layers=options.layers,
        sequence=options.longest, checkpoint=False, dropout=options.dropout,
    )).to(options.device, torch.bfloat16).train()


class Training:
    """One model and its steps, with one way to verify."""

    def __init__(self, torch, name: str, mode: str, options):
        import graphhooks

        self.torch, self.options = torch, options
        self.is_plain = name == "gpt"
        self.model = model_of(name, options, torch)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4,
                                           fused=options.device == "cuda")
        self.attached = graphhooks.attach(
            self.model, granularity=options.granularity, verify=mode)
        self.random = torch.get_rng_state(), torch.cuda.get_rng_state()
        self.losses: list = []
        self.ms: list = []
        self.seconds = 0.0  # of its own turns that have ended
        self.begin = None  # of the turn that runs

    def clock(self) -> float:
        return self.seconds + (0.0 if self.begin is None
                               else time.perf_counter() - self.begin)

    def steps(self, batches) -> None:
        """Each is of several microbatches, and waits for the device before
        and after all of them; random numbers are this training's own."""
        torch = self.torch
        torch.set_rng_state(self.random[0])
        torch.cuda.set_rng_state(self.random[1])
        torch.cuda.synchronize()
        self.begin = time.perf_counter()
        for microbatches in batches:
            for tokens in microbatches:
                loss = self._loss(tokens)
                (loss / len(microbatches)).backward()
                self.losses.append(loss.detach())
            self.optimizer.step()
            self.optimizer.zero_grad()
        torch.cuda.synchronize()
        took = time.perf_counter() - self.begin
        self.seconds, self.begin = self.seconds + took, None
        self.ms.append(1e3 * took / len(batches))
        self.random = torch.get_rng_state(), torch.cuda.get_rng_state()

    def _loss(self, tokens):
        if self.is_plain:
            return self.model(tokens[:, :-1], tokens[:, 1:])
        return self.model(input_ids=tokens[:, :-1], labels=tokens[:, :-1]).loss

    def end(self) -> dict:
        stats = self.attached.stats()
        self.attached.detach()
        return {key: stats[key] for key in
                ("recordings", "replays", "eager_calls", "refused", "verify")
                if key in stats}


def text_of(torch, options):
    """Of each step its microbatches: tokens, by the same numbers each time."""
    import banks_torch

    data = torch.frombuffer(bytearray(banks_torch.TEXT.read_bytes()),
                            dtype=torch.uint8).long().to(options.device)
    chance = torch.Generator().manual_seed(options.seed)
    length = options.longest + 1
    while True:
        at = torch.randint(len(data) - length, (
            options.microbatches, options.batch), generator=chance)
        yield [torch.stack([data[i:i + length] for i in row]) for row in at]


def measure(torch, name: str, options) -> dict:
    from graphhooks.torch.step import verify

    trainings: dict = {}
    verify.time = types.SimpleNamespace(perf_counter=lambda: (
        trainings["auto"].clock() if "auto" in trainings else 0.0))
    for mode in MODES:
        trainings[mode] = Training(torch, name, mode, options)
    text = text_of(torch, options)
    blocks = [[next(text) for _ in range(RECORDS)]]
    for _ in range(options.steps // options.block):
        blocks.append([next(text) for _ in range(options.block)])
    for i, block in enumerate(blocks):
        for mode in MODES if i % 2 else MODES[::-1]:
            trainings[mode].steps(block)
    result: dict = judge({mode: t.ms for mode, t in trainings.items()})
    losses = [torch.stack(t.losses).view(torch.uint8)
              for t in trainings.values()]
    result["equal"] = bool(torch.equal(*losses))
    result["stats"] = {mode: t.end() for mode, t in trainings.items()}
    return result


def judge(ms: dict) -> dict:
    """What the times of the blocks say; the first block records."""
    off, auto = (ms[mode][1:] for mode in MODES)
    half = len(off) // 2
    return {"step_ms": {mode: statistics.median(ms[mode][1:])
                        for mode in MODES},
            "overhead": sum(auto) / sum(off) - 1,
            "settled": sum(auto[half:]) / sum(off[half:]) - 1,
            "spread": statistics.stdev(a / o for a, o in zip(auto, off))
            if half else 0.0, "block_ms": ms}


def parse(arguments):
    parser = argparse.ArgumentParser(
        description="Trains with and without verify, in turns.")
    add = parser.add_argument
    add("out", type=Path, metavar="OUT.json")
    add("--models", default=",".join(MODELS))
    add("--device", choices=("cuda",), default="cuda")
    add("--granularity", choices=("layer", "chunk"), default="layer")
    add("--steps", type=int, default=400)
    add("--block", type=int, default=20, help="steps of a turn")
    add("--microbatches", type=int, default=2)
    add("--batch", type=int, default=4)
    add("--layers", type=int, default=12)
    add("--hidden", type=int, default=768)
    add("--heads", type=int, default=12)
    add("--longest", type=int, default=512)
    add("--dropout", type=float, default=0.1, help="of gpt alone")
    add("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    names = options.models.split(",")
    unknown = [name for name in names if name not in MODELS]
    if unknown:
        parser.error(f"--models has {unknown[0]}; there are "
                     f"{', '.join(MODELS)}")
    if options.steps < options.block or options.block < 1:
        parser.error("--steps has to be at least --block, which is at least 1")
    options.models = names
    return options


def main(arguments=None) -> int:
    options = parse(arguments)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    sys.path += [str(TOP / "hosts" / "pytorch"), str(EXAMPLES),
                 str(Path(__file__).resolve().parent)]
    import torch

    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    document: dict = {
        "bench": "verify_torch", "torch": torch.__version__,
        "device": torch.cuda.get_device_name(), "steps": options.steps,
        "microbatches": options.microbatches,
        "granularity": options.granularity, "models": {}}
    print("model: step ms without and with verify, overhead, of the second "
          f"half (target {TARGET}), bits")
    good = True
    for name in options.models:
        row = document["models"][name] = measure(torch, name, options)
        good = good and row["equal"] and row["overhead"] <= TARGET
        print(f"  {name:6} {row['step_ms']['off']:9.3f} "
              f"{row['step_ms']['auto']:9.3f} {row['overhead']:8.4f} "
              f"{row['settled']:8.4f} "
              f"{'equal' if row['equal'] else 'others':>7} "
              f"{row['stats']['auto'].get('verify')}", flush=True)
        options.out.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
