#!/usr/bin/env python3
"""suspend_torch.py - trainings that give the memory of graphs back, in PyTorch.

    suspend_torch.py OUT.json              # some minutes on a GPU
    torchrun --nproc-per-node 2 suspend_torch.py OUT.json     # on two

GPT-2 and Llama of Hugging Face with random weights learn text, from the same
weights and on the same batches: eagerly, with graphs, and with graphs that are
suspended after each fourth step.  Meanwhile others use the memory: a cache as
large as what was given back is filled with NaN, and the model evaluates; then
all of that is freed, and the graphs are resumed.  Rows are of one microbatch a
step, whose gradients lie in the memory of graphs, and of four; of a graph for
each layer, and for all of them.

Losses of all steps, and weights at the end, are compared with eager's bit by
bit.  `given` is the share of the package's device memory, of pools and of the
library, that suspend() has given back, and `device_given_bytes` what the
driver says is free after it and was not before.

With several ranks the model is wrapped by DistributedDataParallel, each rank
has batches of its own, and all record, replay and suspend together.  Rows are
those of the first rank, with the longest times of any.

What attached.forecast() says after the first step is compared with what there
is at the end.

The aims: 97 % in 50 ms, resumed in 200 ms for 10 GiB, and a first step of at
most 1.05 times a later one.

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import statistics
import sys
import time
from pathlib import Path

import banks_torch

EVERY = 4  # steps between suspends
WARM = 6  # steps that are not counted


class Training:
    """One model and its steps."""

    def __init__(self, torch, name: str, options):
        self.torch, self.options = torch, options
        self.model = banks_torch.model_of(name, options, torch)
        if options.ranks > 1:
            self.model = torch.nn.parallel.DistributedDataParallel(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4,
                                           fused=options.device == "cuda")
        self.attached = None
        self.losses: list = []
        self.ms: list = []

    def step(self, microbatches) -> None:
        self.torch.cuda.synchronize()
        begin = time.perf_counter()
        for i, tokens in enumerate(microbatches):
            summed = self.options.ranks == 1 or i == len(microbatches) - 1
            with contextlib.nullcontext() if summed else self.model.no_sync():
                loss = self.model(input_ids=tokens, labels=tokens).loss
                (loss / len(microbatches)).backward()
            self.losses.append(loss.detach())
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.torch.cuda.synchronize()
        self.ms.append(1e3 * (time.perf_counter() - begin))

    def evaluate(self, tokens) -> None:
        self.model.eval()
        with self.torch.no_grad():
            self.model(input_ids=tokens)
        self.model.train()

    def bits(self) -> str:
        """Of losses and weights."""
        found = hashlib.sha256()
        for tensor in (*self.losses, *self.model.parameters()):
            found.update(tensor.detach().cpu().contiguous().view(-1)
                         .view(self.torch.uint8).numpy().tobytes())
        return found.hexdigest()


def free_bytes(torch) -> int:
    return torch.cuda.mem_get_info()[0]


def suspended(torch, training, tokens) -> dict:
    """What a suspension gives and takes, with others in between."""
    attached = training.attached
    torch.cuda.empty_cache()
    had = attached.memory()
    free = free_bytes(torch)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    attached.suspend()
    suspend_ms = 1e3 * (time.perf_counter() - begin)
    given = free_bytes(torch) - free
    has = attached.memory()
    cache = torch.full((max(given, 1 << 20) // 4,), float("nan"),
                       device=tokens.device)
    training.evaluate(tokens)
    torch.cuda.synchronize()
    del cache
    torch.cuda.empty_cache()
    begin = time.perf_counter()
    attached.resume()
    resume_ms = 1e3 * (time.perf_counter() - begin)
    all_bytes = had["device_bytes"] + had["pool_bytes"]
    return {"suspend_ms": suspend_ms, "resume_ms": resume_ms,
            "bytes": all_bytes, "device_given_bytes": given,
            "given": (has["pool_given"] + has["device_given"])
            / max(all_bytes, 1),
            "pool_given_bytes": has["pool_given"],
            "library_given_bytes": has["device_given"]}


def train(torch, name: str, options, count: int, mode: str,
          granularity: str) -> dict:
    """The row of a mode: eager, graphs or suspended."""
    import graphhooks

    training = Training(torch, name, options)
    if mode != "eager":
        training.attached = graphhooks.attach(
            training.model, granularity=granularity,
            suspends=mode == "suspended",
            group=torch.distributed.group.WORLD if options.ranks > 1 else None)
    chance = torch.Generator().manual_seed(options.seed + options.rank)
    events: list = []
    after: list = []  # steps that come after a suspension
    for i in range(options.steps):
        batch = [torch.randint(0, 256, (options.batch, options.longest),
                               generator=chance).to(options.device)
                 for _ in range(count)]
        training.step(batch)
        if i == 0 and training.attached is not None:
            told = training.attached.forecast()
        if i >= WARM and i % EVERY == 0:
            if mode == "suspended":
                events.append(suspended(torch, training, batch[0]))
            else:
                training.evaluate(batch[0])
            after.append(i + 1)
    ms = training.ms[WARM:]
    later = [t for i, t in enumerate(training.ms)
             if i >= WARM and i not in after]
    first = [training.ms[i] for i in after if i < len(training.ms)]
    row = {"mode": mode, "bits": training.bits(),
           "step_ms": statistics.median(ms),
           "first_over_later": statistics.median(first)
           / statistics.median(later)}
    if events:
        for key in events[0]:
            row[key] = statistics.median(e[key] for e in events)
        row["suspends"] = len(events)
    if training.attached is not None:
        stats = training.attached.stats()
        row.update({key: stats[key] for key in
                    ("recordings", "replays", "eager_calls", "refused")})
        has = training.attached.memory()
        row.update(foretold_bytes=told.get("input_bytes"),
                   input_bytes=has["slot_bytes"] + has["bank_bytes"],
                   foretold_pool_bytes=told.get("pool_bytes"),
                   pool_bytes=has["pool_bytes"])
        training.attached.detach()
    return row


def of_all(torch, row, eager) -> None:
    """The row of all ranks: equal on each, and the longest times."""
    row["equal"] = row["bits"] == eager["bits"]
    rows = [row]
    if torch.distributed.is_initialized():
        rows = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(rows, row)
    row["equal"] = all(r["equal"] for r in rows)
    for key in "suspend_ms", "resume_ms", "step_ms":
        if key in row:
            row[key] = max(r[key] for r in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--models", default="gpt2,llama")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--longest", type=int, default=512)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.device = "cuda"
    options.ranks = int(os.environ.get("WORLD_SIZE", "1"))
    options.rank = int(os.environ.get("RANK", "0"))
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    # Attention's backward adds up in any order by default.
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    if options.ranks > 1:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        torch.distributed.init_process_group("nccl")

    found, fine = [], True
    for name in options.models.split(","):
        for count in 1, 4:
            eager = train(torch, name, options, count, "eager", "layer")
            for granularity in "layer", "chunk":
                for mode in "graphs", "suspended":
                    row = train(torch, name, options, count, mode,
                                granularity)
                    row.update(model=name, microbatches=count,
                               granularity=granularity,
                               eager_ms=eager["step_ms"])
                    of_all(torch, row, eager)
                    found.append(row)
                    fine &= row["equal"] and not row["refused"]
                    if options.rank == 0:
                        print(line_of(row), flush=True)
                    torch.cuda.empty_cache()
    if options.ranks > 1:
        torch.distributed.destroy_process_group()
    if options.rank:
        return 0 if fine else 1
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({
        "device": torch.cuda.get_device_name(), "torch": torch.__version__,
        "options": {k: v for k, v in vars(options).items() if k != "out"},
        "rows": found}, indent=1) + "\n")
    return 0 if fine else 1


def line_of(row) -> str:
    text = (f"{row['model']:6} {row['microbatches']} microbatches, "
            f"{row['granularity']:5} {row['mode']:9} "
            f"{'equal' if row['equal'] else 'DIFFERS'}; step "
            f"{row['step_ms']:.2f} ms, eager {row['eager_ms']:.2f}, replays "
            f"{row['replays']}")
    if "suspends" in row:
        text += (f"; of {row['bytes'] / 2**20:.1f} MiB {row['given']:.1%} "
                 f"given (device {row['device_given_bytes'] / 2**20:.1f}) in "
                 f"{row['suspend_ms']:.1f} ms, resumed in "
                 f"{row['resume_ms']:.1f}; first step "
                 f"{row['first_over_later']:.3f} x later, {row['suspends']} "
                 "times")
    if row["foretold_bytes"]:
        text += (f"; foretold inputs "
                 f"{row['foretold_bytes'] / row['input_bytes']:.3f} of what "
                 f"they are, pools "
                 f"{row['foretold_pool_bytes'] / row['pool_bytes']:.3f}")
    return text + (f"; refused {row['refused']}" if row["refused"] else "")


if __name__ == "__main__":
    sys.exit(main())
