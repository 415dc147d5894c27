#!/usr/bin/env python3
"""Megatron-Core's models over several ranks: pipelines, experts, tensor and
data parallelism, each by Megatron's own schedule, with its graphs and with
those of graphhooks, bit by bit.

    torchrun --nproc-per-node 2 --max-restarts 4 megatron_ranks.py \
        --out two.jsonl
    python megatron_ranks.py --out two.jsonl --table

Each row is a way to divide the ranks; it is trained eagerly, and then once for
each of who makes its graphs.  A row gives a line of JSON when it is done, and
what the file has is not run again.  A mode that ends the processes, or leaves
some ranks waiting for others, is a failure of that mode: torchrun starts them
again, and they go on with the next one.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import dataclasses
import datetime
import gc
import itertools
import json
import os
import re
import statistics
import sys
import time
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path

# Exchanges beside compute need more than one queue, and sums over ranks are to
# be in one order.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
os.environ.setdefault("NCCL_ALGO", "Ring")
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")

import common
import megatron_model as megatron
import options
import report
import torch

_WHOLE = ("te", "layer", "chunk")
_PARTS = ("te", "scope")
# More of it than so much is growth: what torch has allocated, what it holds,
# which depends on what sizes have come, and what the driver and others have.
MIB = 1.0, float("inf"), 16.0
SECONDS = 60  # that a rank which is done waits for the others


@dataclass(frozen=True)
class Row:
    """A way to divide the ranks, and what is trained so."""

    name: str
    kind: str
    # scope:WORDS for another scope than the kind's; scope@auto for exchanges in
    # the order of attach(overlap="auto"), scope@exchange for tokens by
    # attach(exchange="auto"), scope@auto,copy for both, by copies.
    modes: tuple
    ways: dict = field(default_factory=dict)  # fields of Shape
    base: str = ""  # another row, whose eager one it is to be faster than

    @property
    def ranks(self) -> int:
        """The fewest that it takes."""
        sizes = {"tensor": 1, "pipeline": 1, "ranks_of_experts": 1,
                 "context": 1, **self.ways}
        least = sizes["pipeline"] * sizes["context"] * max(
            sizes["tensor"], sizes["ranks_of_experts"])
        shares = self.ways.get("reduces") or self.ways.get("gathers")
        return least * (2 if shares and sizes["ranks_of_experts"] == 1 else 1)


def _rows() -> list[Row]:
    two = dict(pipeline=2)
    four = dict(pipeline=4)
    experts = dict(ranks_of_experts=2)
    overlap = dict(**experts, overlap=True)
    ours = ("scope@exchange", "scope@auto,exchange")
    subsets = ("te", "scope", "scope@auto", *ours, "scope:attn",
               "scope:attn,moe_router")
    ordered = ("te", "scope", "scope@auto", *ours)
    parts = (*_PARTS, "scope@exchange")
    shared = ("scope:attn", "layer", "chunk")
    return [
        Row("PP2", "dense", _WHOLE, two),
        Row("PP2 VPP2", "dense", _WHOLE, dict(**two, chunks=2)),
        Row("EP2", "moe", parts, experts),
        Row("EP2 overlap", "moe", subsets, overlap, "EP2"),
        Row("TP2 SP", "dense", _WHOLE, dict(tensor=2)),
        Row("DP2 overlap", "dense", _WHOLE, dict(reduces=True)),
        Row("DP2 distributed optimizer", "dense", _WHOLE,
            dict(gathers=True)),
        Row("EP2 overlap delayed weights", "moe", subsets,
            dict(**overlap, delay=True), "EP2"),
        Row("PP2 uneven tied", "dense", _WHOLE,
            dict(**two, first=3, tied=True)),
        Row("PP2 MLA MoE", "mla_moe", _PARTS, two),
        Row("PP2 VPP2 MoE", "moe", _PARTS, dict(**two, chunks=2)),
        Row("EP2 capacity", "moe_pad", ("te", "layer", "chunk"), experts),
        Row("EP2 MLA", "mla_moe", parts, experts),
        Row("EP2 MLA overlap", "mla_moe", ordered, overlap, "EP2 MLA"),
        Row("CP2", "dense", shared, dict(context=2)),
        Row("CP2 dynamic", "dense", shared,
            dict(context=2, dynamic="packed"), "CP2"),
        Row("CP2 dynamic scheduled", "dense", ("layer",),
            dict(context=2, dynamic="schedule"), "CP2"),
        # Four ranks.
        Row("EP4", "moe", parts, dict(ranks_of_experts=4)),
        Row("PP2 VPP2 EP2", "moe", parts,
            dict(**two, chunks=2, **experts)),
        Row("PP2 VPP2 EP2 overlap", "moe", subsets,
            dict(**two, chunks=2, **overlap), "PP2 VPP2 EP2"),
        Row("PP2 VPP2 EP2 MLA overlap delayed weights", "mla_moe", ordered,
            dict(**two, chunks=2, **overlap, delay=True)),
        Row("PP4", "dense", _WHOLE, four),
        Row("PP4 VPP2", "dense", _WHOLE, dict(**four, chunks=2)),
        Row("PP2 TP2 SP", "dense", _WHOLE, dict(**two, tensor=2)),
        Row("PP2 DP2 overlap", "dense", _WHOLE, dict(**two, reduces=True)),
        Row("PP2 VPP2 DP2 distributed optimizer", "dense", _WHOLE,
            dict(**two, chunks=2, gathers=True)),
        Row("CP4", "dense", shared, dict(context=4)),
        Row("CP4 dynamic", "dense", shared,
            dict(context=4, dynamic="packed"), "CP4"),
        Row("TP2 SP EP2", "moe", _PARTS, dict(tensor=2, **experts)),
    ]


ROWS = _rows()


def make_parser():
    parser = options.Parser(description=__doc__.split("\n\n")[0],
                            formatter_class=options.Help)
    add = parser.add_argument
    add("--out", required=True, metavar="FILE",
        help="a line of JSON for each row; what is there is not run again")
    add("--table", action="store_true",
        help="only say what FILE has")  # fmt: skip
    add("--list", action="store_true", help="only say which rows there are")
    add("--only", type=lambda text: text.split(","), metavar="ROW,...",
        help="these rows")  # fmt: skip
    add("--modes", type=lambda text: text.split("+"), metavar="MODE+...",
        help="these modes, such as layer+scope:attn")  # fmt: skip
    add("--budget", type=options.interval, default=0, metavar="S",
        help="seconds after which no mode is begun; 0: no limit")  # fmt: skip
    add("--exact", action="store_true",
        help="only rows that take all of the ranks")  # fmt: skip
    add("--device", choices=("cuda", "cpu"), default="cuda")
    add("--spec", choices=("te", "local"), default="te",
        help="whose modules layers are made of")
    add("--dtype", choices=("bf16", "fp32"), default="bf16",
        help="of arithmetic; rows with an overlap take bf16")
    add("--steps", type=options.positive, default=14, help="optimizer steps")
    add("--microbatches", type=options.counts, default="8", metavar="N,...",
        help="of a step; several numbers take turns, without te")
    add("--layers", type=options.positive, default=8, help="of the model")
    add("--hidden", type=options.positive, default=1024, help="its width")
    add("--heads", type=options.positive, default=16, help="of attention")
    add("--sequence", type=options.positive, default=1024,
        help="tokens of a sequence")  # fmt: skip
    add("--batch", type=options.positive, default=1,
        help="sequences of a microbatch")  # fmt: skip
    add("--experts", type=options.positive, default=8, help="of a MoE layer")
    add("--topk", type=options.positive, default=2, help="experts of a token")
    add("--dropout", type=options.rate, default=0.0)
    add("--rate", type=options.above_zero, default=1e-3, help="of learning")
    add("--seed", type=int, default=1, help="of weights and text")
    add("--text", type=type(options.TEXT), default=options.TEXT,
        metavar="FILE", help="what is learned, as bytes")  # fmt: skip
    add("--steady", type=options.positive, default=0, metavar="STEP",
        help="after so many steps nothing more is recorded, and no device "
        "memory taken: a training that does either is a failure")
    add("--verify", choices=("off", "auto", "always"), default="off",
        help="attach()'s: the first looks of auto come in the steps that are "
        "timed, and bits are compared here anyway")  # fmt: skip
    add("--explain", action="store_true", help="say what was captured")
    add("--trace", type=Path, metavar="DIR",
        help="two more steps for each mode, under a profiler: when each "
        "kernel of the last one ran goes to a file of each rank")
    return parser


def shape_of(args, row: Row) -> megatron.Shape:
    names = {f.name for f in dataclasses.fields(megatron.Shape)}
    given = {n: v for n, v in vars(args).items() if n in names}
    if row.ways.get("overlap"):
        given["dtype"] = "bf16"
    return megatron.Shape(**{**given, "kind": row.kind, **row.ways})


# ---- the ranks -------------------------------------------------------------


class Lost(Exception):
    """The ranks no longer go together."""


class Ranks:
    """All of them, and whether they are still together."""

    def __init__(self, world):
        self.world = world
        self.beside = torch.distributed.new_group(
            backend="gloo", timeout=datetime.timedelta(seconds=SECONDS))

    def gather(self, mine) -> list:
        everyone = [None] * self.world.size
        try:
            torch.distributed.all_gather_object(everyone, mine,
                                                group=self.beside)
        except RuntimeError as failure:
            raise Lost(f"rank {self.world.rank} waited {SECONDS} s for the "
                       "others") from failure
        return everyone

    def meet(self, what: str) -> None:
        """All of them, or Lost: another may have failed meanwhile."""
        if any(one != what for one in self.gather(what)):
            raise Lost(f"rank {self.world.rank} meets no others for {what}")


# ---- a training ------------------------------------------------------------


def loop(run: common.Run, training, args, world, text) -> None:
    for step in range(args.steps):
        count = args.microbatches[step % len(args.microbatches)]
        batches = text.microbatches(step, count)
        world.synchronize()
        torch.distributed.barrier()
        common.timed(training, run, batches, world)
        if args.steady:
            look_at(run, training, step + 1, step + 1 in (args.steady,
                                                          args.steps))
    common.ended(training, run, world)


def look_at(run: common.Run, training, step: int, is_mark: bool) -> None:
    """After a step: what is recorded by then, and what memory is taken."""
    recorded = training.graphs.stats().get("recordings", 0)
    if recorded != (run.recorded[-1][1] if run.recorded else 0):
        run.recorded.append((step, recorded))
    if not is_mark or training.device.type != "cuda":
        return
    gc.collect()
    free, total = torch.cuda.mem_get_info(training.device)
    held = torch.cuda.memory_reserved(training.device)
    run.memory.append([x / 2**20 for x in (
        torch.cuda.memory_allocated(training.device), held,
        total - free - held)])


def unsteady(args, run: common.Run) -> list[str]:
    """What has gone on growing."""
    found = []
    if run.recorded and run.recorded[-1][0] > args.steady:
        found.append(f"recordings in step {run.recorded[-1][0]}")
    if len(run.memory) > 1:
        for name, most, first, last in zip(
                ("allocated", "", "of the driver"), MIB, *run.memory):
            if last - first > most:
                found.append(f"{name} {first:.1f} MiB after step "
                             f"{args.steady} and {last:.1f} after step "
                             f"{args.steps}")
    return found


def trace(run: common.Run, training, args, row: Row, ranks, text) -> None:
    """After all that is compared was taken, so that no bit of it changes."""
    world = ranks.world
    count = args.microbatches[args.steps % len(args.microbatches)]
    batches = text.microbatches(args.steps, count)
    with report.Kernels(training.device) as kernels:
        for each in (kernels.get_ready, kernels.look):
            world.synchronize()
            ranks.meet("trace")
            with each():
                training.step(batches)
                world.synchronize()
    start = min(ranks.gather(kernels.began))
    run.traced_shares = kernels.shares()
    if not run.traced_shares:
        print(f"{row.name}: {run.name}: rank {world.rank}: the profiler has "
              "seen no kernel, so that there is nothing to draw",
              file=sys.stderr, flush=True)
        return
    name = "-".join(re.findall(r"\w+", f"{row.name} {run.name}"))
    path = args.trace / f"{name}-rank{world.rank}.json"
    path.write_text(json.dumps({
        "row": row.name, "mode": run.name, "rank": world.rank,
        "ranks": world.size, "device": report.device_of(world),
        **kernels.document(start), "shares": run.traced_shares},
        separators=(",", ":")) + "\n")


def options_of(words: str) -> dict:
    """Of attach()."""
    each = {"exchange": "auto"}
    return {"overlap" if word in ("off", "fixed", "auto") else "exchange":
            each.get(word, word) for word in words.split(",") if word}


def train(run: common.Run, args, row: Row, ranks, text, traced) -> None:
    world = ranks.world
    mode, _, scope = run.name.partition(":")
    mode, _, words = mode.partition("@")
    shape = shape_of(args, row)
    if scope:
        shape = dataclasses.replace(shape, scope=scope)
    left = 0.0  # of the trainings before
    if world.device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(world.device)
        left = torch.cuda.memory_allocated(world.device) / 2**20
    hooked = mode in megatron.HOOKED
    training = megatron.Megatron(
        shape, mode, world.device, number=args.seed, rate=args.rate,
        **options_of(words), **({"verify": args.verify} if hooked else {}))
    try:
        if hooked:
            training.graphs.make()
        loop(run, training, args, world, text)
        run.peak_mib -= left
        run.stats = training.graphs.stats()
        run.explained = training.graphs.explain()
        if traced:
            trace(run, training, args, row, ranks, text)
    finally:
        training.close()
        del training
        gc.collect()


def attempt(args, row: Row, name: str, ranks, text,
            traced=False) -> common.Run:
    world = ranks.world
    run = common.Run(name, name.partition(":")[0])
    try:
        train(run, args, row, ranks, text, traced)
    except Lost:
        raise
    except Exception as failure:  # the others are still worth it
        if world.rank == 0 or world.size > 1:
            traceback.print_exc()
        said = str(failure).strip() or "no words"
        run.error = f"{type(failure).__name__}: {said.splitlines()[0]}"
    return run


def settled(run: common.Run) -> float:
    """Of a step, in ms, when all graphs are there."""
    return statistics.median(run.step_ms[len(run.step_ms) // 2:])


def capture_s(args, run: common.Run) -> float:
    """What the first steps took beyond as many microbatches of later ones."""
    each = [t / n for t, n in zip(run.step_ms, itertools.cycle(
        args.microbatches))]
    usual = statistics.median(each[len(each) // 2:])
    return sum(t * (1 - usual / one) for t, one in zip(
        run.step_ms[:common.FIRST], each)) / 1e3


def said_of(args, run: common.Run, first: common.Run) -> dict:
    """What one rank knows of a run."""
    if run.error:
        return {"error": run.error}
    found = {
        "differences": report.differences(first, run),
        "step_ms": settled(run), "host_ms": run.median(run.host_ms),
        "capture_s": capture_s(args, run), "peak_mib": run.peak_mib,
        "losses": run.curve()[-1:], "attention": megatron.attention(),
        "compared": {"losses": sum(len(x) for x in run.losses),
                     "tensors": len(run.weights)}}
    if run.traced_shares:
        found["traced"] = run.traced_shares
    if args.steady:
        found["steady"] = {"recorded": run.recorded, "mib": run.memory,
                           "grows": unsteady(args, run)}
    stats = {n: run.stats.get(n) for n in (
        "recordings", "replays", "eager_calls", "refused")}
    stats["order"] = run.stats.get("overlap")
    stats["exchange"] = [x["kind"] for x in run.stats.get("exchange", ())]
    stats["slots"] = [c["slots"] for c in run.stats.get("chunks", ())]
    return {**found, **stats}


def together(each: list[dict], tokens: int) -> dict:
    """What all ranks say of a run."""
    errors = {f"rank {i}": one["error"] for i, one in enumerate(each)
              if "error" in one}
    if errors:
        return {"equal": False, "errors": errors}
    slowest = max(one["step_ms"] for one in each)
    losses = [x for one in each for x in one["losses"] if x == x]
    steady = [one["steady"] for one in each if "steady" in one]
    return {
        **({"steady": steady} if steady else {}),
        **({"traced": [one.get("traced") for one in each]}
           if any("traced" in one for one in each) else {}),
        "equal": not any(one["differences"] for one in each),
        "differences": {f"rank {i}": one["differences"] for i, one in
                        enumerate(each) if one["differences"]},
        "tokens_per_s": 1e3 * tokens / slowest, "step_ms": slowest,
        "host_ms": max(one["host_ms"] for one in each),
        "capture_s": max(one["capture_s"] for one in each),
        "peak_mib": [one["peak_mib"] for one in each],
        "final_loss": losses and sum(losses) / len(losses),
        "attention": each[0]["attention"],
        "compared": [one["compared"] for one in each],
        **{n: [one[n] for one in each] for n in (
            "recordings", "replays", "eager_calls", "refused", "slots",
            "order", "exchange")}}


# ---- rows ------------------------------------------------------------------


def tokens_of(args, row: Row, size: int) -> int:
    """Of a step, on all ranks together; of several counts, their mean."""
    shape = shape_of(args, row)
    apart = size // (shape.tensor * shape.pipeline)
    mean = sum(args.microbatches) / len(args.microbatches)
    return int(mean * args.batch * args.sequence * apart)


def place(text) -> None:
    """Ranks that run one model together have the same text."""
    from megatron.core import parallel_state

    text.rank = parallel_state.get_data_parallel_rank()
    text.ranks = parallel_state.get_data_parallel_world_size()


def modes_of(args, row: Row, done) -> list[str]:
    wanted = [m for m in row.modes if not args.modes or m in args.modes]
    if len(set(args.microbatches)) > 1:  # whose graphs are of one number
        wanted = [m for m in wanted if m != "te"]
    if not megatron.installed("transformer_engine"):
        wanted = [m for m in wanted if m != "te"]
    return [m for m in wanted if m not in done]


def look(args, row: Row, size: int) -> str:
    """Why it cannot be had here, or nothing."""
    if size % row.ranks or args.exact and size != row.ranks:
        return f"it takes {row.ranks} ranks"
    try:
        megatron.look(shape_of(args, row), ())
    except megatron.Missing as missing:
        return str(missing)
    return ""


def run_row(args, row: Row, ranks: Ranks, text, done: dict, late) -> bool:
    """Whether the next one may be begun."""
    world = ranks.world
    if any("errors" in said for name, said in done.items() if name == "off"):
        return True
    wanted = modes_of(args, row, done)
    if not wanted and (done or not args.modes):
        return True
    shape = shape_of(args, row)
    megatron.divide(shape)
    if shape.context > 1:
        import megatron_packed  # which needs Megatron

        text = megatron_packed.Text(args, world, shape)
        tokens = sum(ranks.gather(text.tokens([*itertools.islice(
            itertools.cycle(args.microbatches), args.steps)])))
    else:
        place(text)
        tokens = tokens_of(args, row, world.size)
    first = None
    for name in ["off", *wanted]:
        if late():
            return False
        note(args, world, row, name, {"begun": True})
        run = attempt(args, row, name, ranks, text, bool(args.trace))
        first = first or run
        found = together(ranks.gather(said_of(args, run, first)), tokens)
        if not found["equal"] and "errors" not in found:
            again = attempt(args, row, "off", ranks, text)
            once_more = together(
                ranks.gather(said_of(args, again, first)), tokens)
            found["eager_is_equal"] = once_more["equal"]
        if args.explain and world.rank == 0 and run.explained:
            print(run.explained, flush=True)
        run.weights = run.weights if run is first else {}
        note(args, world, row, name, found)
        if world.rank == 0:
            print(f"{row.name}: {name}: {words_of(found)}", file=sys.stderr,
                  flush=True)
        if name == "off" and "errors" in found:
            break
        if not all(ranks.gather(common.alive())):
            raise Lost("the device of a rank is lost")
    return True


def note(args, world, row: Row, name: str, found: dict) -> None:
    if world.rank == 0:
        with open(args.out, "a", encoding="utf-8") as out:
            out.write(json.dumps(
                {"row": row.name, "mode": name, "ranks": world.size,
                 "counts": args.microbatches, **found}, default=str) + "\n")


def read(args, size: int = 0) -> dict:
    """By row, what each mode came to; of those that were begun and came to
    nothing, so much.  `size`: of so many ranks."""
    rows: dict = {}
    try:
        lines = open(args.out, encoding="utf-8").read().splitlines()
    except FileNotFoundError:
        return rows
    for line in lines:
        try:
            found = json.loads(line)
        except ValueError:  # half of one
            continue
        if size and (found["ranks"] != size
                     or found["counts"] != args.microbatches):
            continue
        key = found["row"], found["ranks"], str(found["counts"])
        if found.pop("begun", False):
            found.update(equal=False, errors={
                "all": "the processes ended, or some waited for others"})
            if found["mode"] in rows.get(key, {}):
                continue  # the eager one, once more
        rows.setdefault(key, {})[found["mode"]] = found
    return rows


def words_of(found: dict) -> str:
    if "errors" in found:
        return "failed: " + "; ".join(
            f"{who}: {what}" for who, what in found["errors"].items())
    bits = "equal" if found["equal"] else "UNEQUAL" + (
        "" if found.get("eager_is_equal") else ", as eager is to itself")
    return (f"{bits}, {found['tokens_per_s']:,.0f} tokens/s, "
            f"replays {found['replays']}" + steady_words(found))


def is_well(found: dict) -> bool:
    return found["equal"] and not any(
        one["grows"] for one in found.get("steady", ()))


def steady_words(found: dict) -> str:
    """When the last graph was recorded, and allocated, held and other MiB, at
    the one step and at the other."""
    return "".join(
        f"; rank {i}: last recording in step "
        f"{(one['recorded'] or [[0]])[-1][0]}" + (
            ", MiB " + " to ".join("+".join(f"{x:.0f}" for x in at)
                                   for at in one["mib"])
            if one["mib"] else "")
        + "".join(", GROWS: " + why for why in one["grows"])
        for i, one in enumerate(found.get("steady", ())))


HEAD = ["row", "mode", "equal", "tokens/s", "to eager", "to its base",
        "step ms", "host ms", "capture s", "peak MiB", "recordings", "replays",
        "slots", "eager calls", "exposed %"]


def table(rows: dict) -> str:
    lines, notes = [HEAD], []
    bases = {row.name: row.base for row in ROWS}
    for (row, ranks, counts), modes in rows.items():
        base = rows.get((bases.get(row), ranks, counts), {}).get("off", {}) \
            .get("tokens_per_s")
        eager = modes.get("off", {}).get("tokens_per_s")
        label = f"{row}, {ranks} ranks, {counts}"
        for name, found in modes.items():
            if "errors" in found:
                lines.append([label, name, "failed", *[""] * (len(HEAD) - 3)])
                notes += [f"{label}, {name}, {who}: {what}"
                          for who, what in found["errors"].items()]
                continue
            speed = found["tokens_per_s"]
            lines.append([
                label, name, "-" if name == "off" else
                "yes" if found["equal"] else "NO", f"{speed:,.0f}",
                *(f"{speed / of:.2f}" if of else "" for of in (eager, base)),
                *(f"{found[n]:.1f}" for n in ("step_ms", "host_ms",
                                              "capture_s")),
                "/".join(f"{x:.0f}" for x in found["peak_mib"]),
                *(_each(found[n]) for n in ("recordings", "replays",
                                            "slots", "eager_calls")),
                "/".join(f"{one['exposed']:.1f}" if one else "-"
                         for one in found.get("traced", ()))])
            notes += [f"{label}, {name}, {who}: {x}" for who, what in
                      found["differences"].items() for x in what]
            if "steady" in found:
                notes.append(f"{label}, {name}{steady_words(found)}")
            notes += [f"{label}, {name}, rank {i}: {layer} is not captured: "
                      f"{why}" for i, refused in enumerate(found["refused"])
                      for layer, why in (refused or {}).items()]
    notes += [f"attention of Transformer Engine: {kind}" for kind in sorted({
        found["attention"] for modes in rows.values()
        for found in modes.values() if found.get("attention")})]
    lines = [*zip(*(column for column in zip(*lines)
                    if len(lines) == 1 or any(column[1:])))]
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join(["  ".join(
        c.ljust(w) for c, w in zip(line, widths)).rstrip()
        for line in lines] + notes)


def _each(values: list) -> str:
    """Of all ranks, once where they are the same."""
    said = [json.dumps(v) for v in values if v is not None]
    return said[0] if len(set(said)) == 1 else "/".join(said)


def verdict(rows: dict) -> tuple[str, bool]:
    modes = [found for each in rows.values() for name, found in each.items()
             if name != "off"]
    equal = sum(found["equal"] for found in modes)
    well = [is_well(found) for each in rows.values()
            for found in each.values()]
    return (f"bitwise equal: {equal} of {len(modes)} trainings in "
            f"{len(rows)} rows", bool(modes) and all(well))


def run(args, world, text) -> int:
    warnings.filterwarnings("ignore", module=r"megatron\.")
    warnings.filterwarnings("ignore", module=r"torch\.distributed")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    ranks = Ranks(world)
    began = time.monotonic()
    before = ranks.gather(read(args, world.size))[0]

    def late() -> bool:
        return bool(args.budget and max(ranks.gather(
            time.monotonic() - began)) > args.budget)

    for row in ROWS:
        if args.only and row.name not in args.only:
            continue
        why = look(args, row, world.size)
        if why:
            if world.rank == 0:
                print(f"{row.name}: left out: {why}", file=sys.stderr)
            continue
        done = before.get((row.name, world.size, str(args.microbatches)), {})
        try:
            if not run_row(args, row, ranks, text, done, late):
                break
        except Exception as failure:
            if not isinstance(failure, Lost):
                traceback.print_exc()
            print(f"{row.name}: {failure}", file=sys.stderr, flush=True)
            os._exit(1)  # torchrun ends the others, and starts all again
    if world.rank:
        return 0
    rows = read(args)
    print(table(rows))
    words, well = verdict(rows)
    print(words)
    return 0 if well else 1


def make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise options.Fault(f"--trace {path}: no folder can be made there "
                            f"({failure.strerror}); name another") from failure


def main(argv=None) -> int:
    parser = make_parser()
    args = parser.parse_args(argv)
    if args.list:
        for row in ROWS:
            print(f"{row.name}: {row.kind}, {row.ranks} ranks, "
                  f"{' '.join(row.modes)}")
        return 0
    if args.table:
        rows = read(args)
        print(table(rows))
        print(verdict(rows)[0])
        return 0
    world = None
    try:
        if not megatron.installed("megatron.core"):
            raise options.Fault("megatron-core is missing; pip install "
                                "megatron-core")
        world = common.World(args.device, "")
        if world.size == 1:
            raise options.Fault("it trains over several ranks: start it with "
                                "torchrun --nproc-per-node 2, or 4")
        if args.trace:
            make_folder(args.trace)
        return run(args, world, common.Text(args, world))
    except options.Fault as fault:
        print(f"{parser.prog}: {fault}", file=sys.stderr)
        return 2
    finally:
        if world is not None:
            world.close()


if __name__ == "__main__":
    sys.exit(main())
