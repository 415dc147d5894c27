#!/usr/bin/env python3
"""banks_torch.py - training on padded lengths of real text, in PyTorch.

    banks_torch.py OUT.json                # some minutes on a GPU
    banks_torch.py OUT.json --device cpu --quick     # a look without one

GPT-2 and Llama of Hugging Face with random weights, a microbatch a step, whose
sequences are paragraphs, padded to the longest of them and then to a multiple
of 64.  Each row is a process of its own, and all have the same steps:

    eager            torch as it is
    before           graphs by an older package, of release 0.4 or before,
                     which knows one shape: --before FOLDER, that it is in
    one shape        graphs of one shape at once, max_banks=1
    banks            graphs of all of them
    compile          torch.compile(mode="reduce-overhead", dynamic=False)
    compile dynamic  the same with dynamic=True
    fixed            graphs of each length alone, one attach after the other:
                     what a step of that length takes, and what memory the
                     longest needs

The losses of a row are compared with eager's bit by bit.  `ratio` is the time
of the steps after the first half over that of the same ones at fixed shapes.

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import argparse
import collections
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
TEXT = TOP / "hosts" / "engine" / "data" / "shakespeare.txt"
MODELS = ("gpt2", "llama")
ROWS = ("eager", "before", "one shape", "banks", "compile",
        "compile dynamic", "fixed")
GRAPHS = ("before", "one shape", "banks", "fixed")
EACH = 12  # steps of a length, of which the first are not counted
WARM = 4
NOTHING = -100  # a label that is not learned


def model_of(name: str, options, torch):
    import transformers

    common = {"vocab_size": 256, "use_cache": False, "bos_token_id": None,
              "eos_token_id": None}
    if name == "gpt2":
        config = transformers.GPT2Config(
            n_embd=options.hidden, n_layer=options.layers,
            n_head=options.heads, n_positions=options.longest,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **common)
        kind = transformers.GPT2LMHeadModel
    else:
        config = transformers.LlamaConfig(
            hidden_size=options.hidden, num_hidden_layers=options.layers,
            num_attention_heads=options.heads,
            intermediate_size=options.hidden * 8 // 3 // 64 * 64 or 64,
            max_position_embeddings=options.longest, **common)
        kind = transformers.LlamaForCausalLM
    torch.manual_seed(1)
    dtype = torch.float32 if options.device == "cpu" else torch.bfloat16
    return kind(config).to(options.device, dtype).train()


def batches(options) -> list:
    """Of each step: a list of paragraphs, and the length they are padded to."""
    chance = random.Random(options.seed)
    paragraphs = [p for p in TEXT.read_bytes().split(b"\n\n") if len(p) > 8]
    found = []
    for _ in range(options.steps):
        at = chance.randrange(len(paragraphs) - options.batch)
        rows = [p[:options.longest] for p in paragraphs[at:at + options.batch]]
        longest = max(map(len, rows))
        found.append((rows, -(-longest // options.multiple)
                      * options.multiple))
    return found


def tensors(torch, rows, length: int, device):
    """Tokens and labels; what is padded is behind all that is learned."""
    tokens = torch.zeros(len(rows), length, dtype=torch.int64)
    labels = torch.full((len(rows), length), NOTHING)
    for i, row in enumerate(rows):
        values = torch.tensor(list(row[:length]))
        tokens[i, :len(values)] = labels[i, :len(values)] = values
    return tokens.to(device), labels.to(device)


class Training:
    """One model and its steps."""

    def __init__(self, torch, name: str, options):
        self.torch, self.options = torch, options
        self.model = self.call = model_of(name, options, torch)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=1e-4,
            fused=options.device == "cuda")
        self.attached = None

    def attach(self, **options) -> None:
        import graphhooks

        self.attached = graphhooks.attach(
            self.model, granularity=self.options.granularity, **options)

    def compile(self, dynamic: bool) -> None:
        import torch._dynamo

        torch._dynamo.config.recompile_limit = 64
        self.call = torch.compile(self.model, mode="reduce-overhead",
                                  dynamic=dynamic)

    def synchronize(self) -> None:
        if self.options.device == "cuda":
            self.torch.cuda.synchronize()

    def step(self, rows, length: int) -> tuple:
        """Milliseconds, and the bits of the loss."""
        torch = self.torch
        tokens, labels = tensors(torch, rows, length, self.options.device)
        self.synchronize()
        begin = time.perf_counter()
        if self.call is not self.model:
            torch.compiler.cudagraph_mark_step_begin()
        loss = self.call(input_ids=tokens, labels=labels).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.synchronize()
        ms = 1e3 * (time.perf_counter() - begin)
        return ms, loss.detach().float().cpu().numpy().tobytes().hex()


def memory(torch, options, free_before: int) -> dict:
    """Of torch's allocator, and of the device with all that is on it.  What is
    outside of the allocator has executable graphs, among other things."""
    if options.device != "cuda":
        return {}
    free, _ = torch.cuda.mem_get_info()
    device = free_before - free
    return {"allocated_bytes": torch.cuda.max_memory_allocated(),
            "reserved_bytes": torch.cuda.max_memory_reserved(),
            "device_bytes": device,
            "outside_bytes": device - torch.cuda.memory_reserved(),
            "pools": pools(torch)}


def pools(torch) -> dict:
    """What torch's allocator holds for graphs, and besides, and how much of
    either is in use."""
    found = {kind: {"reserved_bytes": 0, "used_bytes": 0, "segments": 0}
             for kind in ("graphs", "others")}
    for segment in torch.cuda.memory_snapshot():
        pool = tuple(segment.get("segment_pool_id", (0, 0)))
        of = found["others" if pool == (0, 0) else "graphs"]
        of["reserved_bytes"] += segment["total_size"]
        of["used_bytes"] += segment["active_size"]
        of["segments"] += 1
    return found


def free_bytes(torch, options) -> int:
    if options.device != "cuda":
        return 0
    torch.zeros(1, device="cuda")
    return torch.cuda.mem_get_info()[0]


def run_steps(torch, name: str, row: str, options, progress) -> dict:
    before = free_bytes(torch, options)
    training = Training(torch, name, options)
    if row in GRAPHS:
        most = {"banks": options.max_banks, "one shape": 1}
        training.attach(**({"max_banks": most[row]} if row in most else {}))
    elif row != "eager":
        training.compile(row.endswith("dynamic"))
    found = []
    for batch in batches(options):
        found.append(training.step(*batch))
        print(f"{found[-1][0]:.3f}", file=progress, flush=True)
    times = [ms for ms, _ in found]
    result = {"all_ms": times, "losses": [bits for _, bits in found],
              "total_ms": sum(times), "step_ms": spread(times[len(times)
                                                              // 2:]),
              **memory(torch, options, before)}
    if training.attached is not None:
        stats = training.attached.stats()
        result |= {key: stats[key] for key in
                   ("recordings", "replays", "eager_calls", "refused")}
        result["banks"] = stats.get("banks")
        training.attached.detach()
    return result


def run_fixed(torch, name: str, options) -> dict:
    """From the longest on, which alone says what memory it takes."""
    before = free_bytes(torch, options)
    by_length: dict = {}
    for rows, length in batches(options):
        by_length.setdefault(length, rows)
    result: dict = {"by_length": {}}
    for length in sorted(by_length, reverse=True):
        training = Training(torch, name, options)
        training.attach(max_banks=1)
        times = [training.step(by_length[length], length)[0]
                 for _ in range(EACH)]
        result["by_length"][str(length)] = statistics.median(times[WARM:])
        if "allocated_bytes" not in result:
            result |= memory(torch, options, before)
        training.attached.detach()
    return result


def spread(values: list) -> dict:
    cuts = statistics.quantiles(values, n=10) if len(values) > 1 \
        else [values[0]] * 9
    return {"p10": cuts[0], "median": statistics.median(values),
            "p90": cuts[8]}


# ---- one row, in a process of its own --------------------------------------


def worker(options) -> int:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    sys.path.append(str(TOP / "hosts" / "pytorch"))
    if options.before and options.row.endswith("/before"):
        sys.path.insert(0, options.before)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes to the log
    name, row = options.row.split("/")
    try:
        import torch

        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False
        result = run_fixed(torch, name, options) if row == "fixed" \
            else run_steps(torch, name, row, options, out)
        result["machine"] = {
            "torch": torch.__version__, "device": "cpu"
            if options.device == "cpu" else torch.cuda.get_device_name()}
    except Exception as failure:  # whatever the row raises
        import traceback

        traceback.print_exc()
        lines = str(failure).strip().splitlines() or [""]
        result = {"failed": f"{type(failure).__name__}: {lines[0]}"}
    json.dump(result, out)
    out.flush()
    os._exit(0)  # tearing down graphs takes time


def run_row(options, name: str, row: str) -> dict:
    words = [sys.executable, __file__, str(options.out), "--row",
             f"{name}/{row}"]
    for key in ("device", "steps", "batch", "layers", "hidden", "heads",
                "longest", "multiple", "max_banks", "granularity", "seed",
                "before"):
        words += [f"--{key.replace('_', '-')}", str(getattr(options, key))]
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True,
                              timeout=options.limit, check=False)
        return json.loads(done.stdout.rsplit("\n", 1)[-1])
    except subprocess.TimeoutExpired as late:
        return cut_short(late.stdout or b"", options)
    except ValueError:
        return {"failed": f"ended with status {done.returncode}"}


def cut_short(said, options) -> dict:
    """A row whose time is over: its steps so far, and what a step takes once
    its length has come a few times."""
    said = said if isinstance(said, str) else said.decode()
    times = [float(line) for line in said.split("\n")[:-1]]
    seen: collections.Counter = collections.Counter()
    settled: dict = {}
    for ms, (_, length) in zip(times, batches(options)):
        seen[length] += 1
        if seen[length] > WARM:
            settled.setdefault(str(length), []).append(ms)
    return {"failed": f"not done after {options.limit} seconds: "
                      f"{len(times)} of {options.steps} steps, of "
                      f"{len(seen)} lengths",
            "part_ms": times,
            "settled_ms": {length: statistics.median(ms)
                           for length, ms in settled.items()}}


# ---- all rows --------------------------------------------------------------


def judge(rows: dict, options) -> None:
    """What rows say of each other."""
    fixed = rows.get("fixed", {}).get("by_length")
    lengths = [length for _, length in batches(options)]
    eager = rows.get("eager", {})
    for name, row in rows.items():
        if "all_ms" not in row:
            continue
        if "losses" in eager:
            row["equal"] = row["losses"] == eager["losses"]
        if fixed:
            late = range(len(lengths) // 2, len(lengths))
            row["ratio"] = sum(row["all_ms"][i] for i in late) \
                / sum(fixed[str(lengths[i])] for i in late)
        if name == "banks" and "reserved_bytes" in rows.get("fixed", {}):
            for key in ("reserved_bytes", "device_bytes"):
                row[f"{key.split('_')[0]}_over_longest"] = \
                    row[key] / rows["fixed"][key]
    for row in rows.values():
        row.pop("losses", None)


def say(model: str, rows: dict) -> None:
    print(f"\n{model}: step ms, total s, recordings, replays, MiB reserved, "
          "bits, over fixed shapes")
    for name, row in rows.items():
        if "failed" in row:
            print(f"  {name:16} {row['failed']}")
            if row.get("settled_ms"):
                print(" " * 19 + "ms of a step, by length: " + ", ".join(
                    f"{length}: {ms:.2f}"
                    for length, ms in row["settled_ms"].items()))
        elif "step_ms" in row:
            mib = row.get("reserved_bytes", 0) / 2**20
            ratio = f"{row['ratio']:.3f}" if "ratio" in row else "-"
            print(f"  {name:16} {row['step_ms']['median']:8.2f} "
                  f"{row['total_ms'] / 1e3:7.1f} "
                  f"{row.get('recordings', '-'):>6} "
                  f"{row.get('replays', '-'):>7} {mib:8.0f} "
                  f"{'equal' if row.get('equal') else 'others':>7} {ratio:>6}")
    banks = rows.get("banks", {})
    if "reserved_over_longest" in banks:
        outside = [rows[row]["outside_bytes"] / 2**20
                   for row in ("banks", "fixed")]
        print(f"  memory of all lengths over the longest alone: "
              f"{banks['reserved_over_longest']:.3f} of torch's, "
              f"{banks['device_over_longest']:.3f} of the device's; outside "
              f"of torch's {outside[0]:.0f} MiB, and {outside[1]:.0f} for the "
              "longest alone")
        for row in "banks", "fixed":
            print(f"    {row}: " + "; ".join(
                f"{kind} {of['used_bytes'] / 2**20:.0f} MiB in use of "
                f"{of['reserved_bytes'] / 2**20:.0f} in {of['segments']} "
                "segments" for kind, of in rows[row]["pools"].items()))


def parse(arguments):
    parser = argparse.ArgumentParser(
        description="Trains on padded lengths of text, each way there is.")
    add = parser.add_argument
    add("out", type=Path, metavar="OUT.json")
    add("--models", default=",".join(MODELS))
    add("--rows", default=",".join(ROWS))
    add("--device", choices=("cuda", "cpu"), default="cuda")
    add("--steps", type=int, default=200)
    add("--batch", type=int, default=4)
    add("--layers", type=int, default=12)
    add("--hidden", type=int, default=768)
    add("--heads", type=int, default=12)
    add("--longest", type=int, default=512)
    add("--multiple", type=int, default=64)
    add("--max-banks", type=int, default=8)
    add("--granularity", choices=("layer", "chunk"), default="layer")
    add("--seed", type=int, default=1)
    add("--before", default="", metavar="FOLDER",
        help="where an older release's package lies, for the row before")
    add("--limit", type=int, default=300, help="seconds of a row")
    add("--quick", action="store_true", help="small, and few steps")
    add("--row", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.quick:
        options.steps, options.layers = 10, 2
        options.hidden, options.heads = 64, 4
    for key, known in (("models", MODELS), ("rows", ROWS)):
        names = getattr(options, key).split(",")
        unknown = [name for name in names if name not in known]
        if unknown:
            parser.error(f"--{key} has {unknown[0]}; there are "
                         f"{', '.join(known)}")
        setattr(options, key, names)
    if not options.before:
        options.rows = [row for row in options.rows if row != "before"]
    if options.device == "cpu":
        options.rows = [row for row in options.rows if row == "eager"]
    return options


def main(arguments=None) -> int:
    options = parse(arguments)
    if options.row:
        return worker(options)
    counts = collections.Counter(length for _, length in batches(options))
    print("steps of each length: " + ", ".join(
        f"{length}: {counts[length]}" for length in sorted(counts)))
    document: dict = {"bench": "banks_torch", "steps": options.steps,
                      "lengths": {str(k): counts[k] for k in sorted(counts)},
                      "max_banks": options.max_banks,
                      "granularity": options.granularity, "models": {}}
    for model in options.models:
        rows = {}
        for row in options.rows:
            began = time.perf_counter()
            rows[row] = run_row(options, model, row)
            print(f"{model}, {row}: {time.perf_counter() - began:.0f} s",
                  flush=True)
        judge(rows, options)
        say(model, rows)
        for row in rows.values():
            document.update(row.pop("machine", {}))
        document["models"][model] = [{"name": name, **row}
                                     for name, row in rows.items()]
        options.out.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if any("failed" in row for rows in document["models"].values()
                    for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
