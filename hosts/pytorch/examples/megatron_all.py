"""All kinds of megatron_te.py in one process, each compared with itself.

    megatron_te.py --all results.jsonl [--part 1/4] [--budget 480] [--only moe]

A configuration is a kind of model with its dropout and its FP8; it is trained
eagerly, and then once for each of who makes its graphs.  Each gives a line of
JSON when it is done.  What the file has already is not run again, so a run
that was ended goes on when it is started once more, and several processes
(--part) may share the file.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import sys
import time
import traceback
from dataclasses import dataclass

import common
import megatron_model as megatron
import options
import report
import torch

# Small, as all that is asked is whether bits are equal.
SMALL = dict(layers=3, hidden=512, heads=8, sequence=128, batch=2,
             microbatches=[4, 6, 8, 3])
_ROUTER = "scope:attn,moe_router"
_WHOLE = ("te", "layer", "chunk")


@dataclass(frozen=True)
class Configuration:
    kind: str
    modes: tuple  # or scope:WORDS, for a scope that is not the kind's
    dropout: float = 0.0
    fp8: str = ""

    @property
    def name(self) -> str:
        return " ".join(filter(None, (
            self.kind, self.fp8, self.dropout and f"dropout {self.dropout}")))


def _each(kind: str, *modes: str, fp8=("",), dropouts=(0.0, 0.1)):
    return [Configuration(kind, modes, dropout, recipe)
            for recipe in fp8 for dropout in dropouts]


# What matters most comes first.  A failed capture of a whole step may leave a
# process without its device, so that mode is the last.
CONFIGURATIONS = [
    *_each("dense", *_WHOLE, "scope:attn", "scope:mlp", "scope:attn,mlp",
           "full_iteration"),
    *_each("moe", "te", "scope", "scope:attn", _ROUTER),
    *_each("moe_pad", *_WHOLE, "scope:attn,moe", "scope:moe",
           "full_iteration"),
    *_each("dense", *_WHOLE, "scope:attn", "full_iteration",
           fp8=("delayed",)),
    *_each("mla", *_WHOLE, "scope:attn"),
    *_each("mla_moe", "te", "scope", _ROUTER),
    *_each("hybrid", "te", "scope", "scope:attn"),
    *_each("dense", *_WHOLE, "scope:attn", fp8=("tensorwise", "blockwise"),
           dropouts=(0.0,)),
    *_each("moe", "te", "scope", fp8=("delayed",), dropouts=(0.0,)),
    *_each("moe_pad", *_WHOLE, fp8=("delayed",), dropouts=(0.0,)),
    *_each("mtp", "te", "layer", "scope:attn"),
    *_each("moe", "scope", fp8=("tensorwise", "blockwise"), dropouts=(0.0,)),
    *_each("mla_moe", "scope", fp8=("delayed",), dropouts=(0.0,)),
]


def add_arguments(add) -> None:
    add("--all", metavar="FILE",
        help="train all kinds, and add a line of JSON for each to FILE; what "
             "is there is not run again")  # fmt: skip
    add("--part", type=_part, default=(1, 1), metavar="I/N",
        help="of --all: each Nth configuration from the Ith on, for N "
             "processes that share FILE")  # fmt: skip
    add("--only", type=lambda text: text.split(","), metavar="KIND,...",
        help="of --all: configurations of these kinds")  # fmt: skip
    add("--modes", type=lambda text: text.split("+"), metavar="MODE+...",
        help="of --all: these modes, such as layer+scope:attn,mlp")  # fmt: skip
    add("--budget", type=options.interval, default=0, metavar="S",
        help="of --all: seconds after which none is begun; 0: no limit")  # fmt: skip


def _part(text: str) -> tuple:
    first, _, count = text.partition("/")
    if not (first.isdecimal() and count.isdecimal()
            and 1 <= int(first) <= int(count)):
        raise argparse.ArgumentTypeError(f"'{text}' is no part such as 1/4")
    return int(first), int(count)


def small(parser) -> None:
    """What --all takes where nothing else is said."""
    parser.set_defaults(**SMALL)


def wanted(args) -> list[Configuration]:
    first, count = args.part
    chosen = [c for c in CONFIGURATIONS if not args.only
              or c.kind in args.only]
    if args.modes:
        chosen = [Configuration(c.kind, tuple(m for m in c.modes
                                              if m in args.modes),
                                c.dropout, c.fp8) for c in chosen]
    return [c for c in chosen[first - 1::count] if c.modes]


def arguments_of(args, one: Configuration):
    """Those of one configuration."""
    args = copy.copy(args)
    args.kind, args.fp8, args.dropout = one.kind, one.fp8, one.dropout
    if one.kind == "hybrid" and "M" in args.pattern and not (
            args.spec == "te" and megatron.installed("mamba_ssm")):
        args.pattern = args.pattern.replace("M", "*")
    return args


def look(args, one: Configuration) -> str:
    """Why it cannot be had here, or nothing."""
    try:
        megatron.look(megatron.shape_of(arguments_of(args, one)), one.modes)
    except megatron.Missing as missing:
        return str(missing)
    return ""


def train(args, one: Configuration, name: str, world, text, recipe):
    args = arguments_of(args, one)
    mode, _, scope = name.partition(":")
    if scope:
        args.scope = scope
    run = common.Run(name, mode)
    try:
        common.train(run, args, world, text, recipe)
    except Exception as failure:  # the others are still worth it
        traceback.print_exc()
        said = str(failure).strip() or "no words"
        run.error = f"{type(failure).__name__}: {said.splitlines()[0]}"
    return run


def compared(first, run) -> dict:
    """What is known of a run, beside the eager one."""
    differences = report.differences(first, run)
    said = {"equal": not differences, "differences": differences}
    if run.error:
        return {**said, "error": run.error}
    return {
        **said,
        **{n: run.stats.get(n) for n in ("recordings", "replays",
                                         "eager_calls", "refused")},
        "final_loss": run.curve()[-1],
        "step_ms": run.median(run.step_ms),
        "host_ms": run.median(run.host_ms),
        "capture_s": run.capture_s(), "peak_mib": run.peak_mib}


def kinds_of(state: dict) -> dict:
    """How many tensors of each kind are compared."""
    count = {"weights": 0, "optimizer": 0, "fp8": 0}
    for name in state:
        count["optimizer" if name.startswith("optimizer ")
              else "fp8" if ".scaling_" in name else "weights"] += 1
    return count


def one_of(args, one: Configuration, world, text, recipe) -> dict:
    began = time.perf_counter()
    first = train(args, one, "off", world, text, recipe)
    found = {
        "name": one.name, "kind": one.kind, "fp8": one.fp8,
        "dropout": one.dropout, "spec": args.spec, "layers": args.layers,
        "hidden": args.hidden, "steps": args.steps,
        "microbatches": args.microbatches,
        "compared": {"losses": sum(len(x) for x in first.losses),
                     **kinds_of(first.weights)},
        "off": {"error": first.error} if first.error else compared(
            first, first), "modes": {}}
    for name in one.modes:
        run = train(args, one, name, world, text, recipe)
        found["modes"][name] = compared(first, run)
        run.weights = {}
        if run.error and not common.alive():
            found["lost"] = True  # and so is all that would come
            break
    return {**found, "seconds": time.perf_counter() - began}


def read(path: str) -> list[dict]:
    """Whole lines, of each configuration the last; one may be half, of a
    process that was ended."""
    found = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                try:
                    one = json.loads(line)
                except ValueError:
                    continue
                found[one["name"]] = one
    return list(found.values())


def append(path: str, found: dict) -> None:
    """At once, as other processes do."""
    line = json.dumps(found, default=str) + "\n"
    to = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(to, line.encode())
    finally:
        os.close(to)


HEAD = ["configuration", "mode", "equal", "recordings", "replays",
        "eager calls", "step ms", "host ms", "capture s"]


def table(records: list[dict]) -> str:
    rows = [HEAD]
    notes = []
    for found in records:
        if "skipped" in found:
            notes.append(f"{found['name']}: left out: {found['skipped']}")
            continue
        for name, said in {"off": found.get("off", {}),
                           **found["modes"]}.items():
            if name == "off" and "error" not in said:
                rows.append([found["name"], "off", "-", "-", "-", "all",
                             *_times(said)])
                continue
            rows.append([found["name"], name,
                         "failed" if "error" in said
                         else "yes" if said["equal"] else "NO",
                         *(_number(said.get(n)) for n in ("recordings",
                                                          "replays")),
                         _calls(said), *_times(said)])
            notes += [f"{found['name']}: {line}"
                      for line in said.get("differences", [])
                      or filter(None, [said.get("error")])]
            notes += [f"{found['name']}, {name}: {layer} is not captured: "
                      f"{why}" for layer, why in
                      (said.get("refused") or {}).items()]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip()
             for row in rows]
    return "\n".join(lines + notes)


def _number(value) -> str:
    return "?" if value is None else str(value)


def _calls(said: dict) -> str:
    calls = said.get("eager_calls")
    if calls is None:
        return "?"
    return ", ".join(f"{why} {n}" for why, n in calls.items() if n) or "none"


def _times(said: dict) -> list[str]:
    return [f"{said[n]:.1f}" if n in said else ""
            for n in ("step_ms", "host_ms", "capture_s")]


def verdict(records: list[dict]) -> tuple[str, bool]:
    records = [found for found in records if "skipped" not in found]
    modes = [said for found in records for said in found["modes"].values()]
    equal = sum(said["equal"] for said in modes)
    well = equal == len(modes) and bool(modes) and not any(
        found.get("off", {}).get("error") for found in records)
    tensors = [found["compared"] for found in records]
    said = {kind: sum(t[kind] for t in tensors) for kind in
            ("losses", "weights", "optimizer", "fp8")}
    return (f"bitwise equal: {equal} of {len(modes)} trainings in "
            f"{len(records)} configurations ({said['losses']} losses, "
            f"{said['weights']} weights, {said['optimizer']} states of the "
            f"optimizer and {said['fp8']} of FP8 each)", well)


def run(args, world, text, recipe) -> bool:
    began = time.monotonic()
    chosen = wanted(args)
    there = {found["name"] for found in read(args.all)
             if "skipped" not in found}
    for one in chosen:
        if one.name in there:
            continue
        if args.budget and time.monotonic() - began > args.budget:
            print(f"{args.budget} s are over: start it again for the rest",
                  file=sys.stderr)
            break
        why = look(args, one)
        found = {"name": one.name, "modes": {}, "skipped": why} if why \
            else one_of(args, one, world, text, recipe)
        append(args.all, found)
        print(f"{time.monotonic() - began:6.1f} s  {one.name}: "
              + (f"left out: {why}" if why else ", ".join(
                  f"{name} {'equal' if said['equal'] else 'UNEQUAL'}"
                  for name, said in found["modes"].items())),
              file=sys.stderr, flush=True)
        if found.get("lost"):
            print("the device is lost to this process: start it again for "
                  "the rest", file=sys.stderr)
            break
    records = read(args.all)
    print(table(records))
    words, well = verdict(records)
    print(words)
    return well
