"""What the examples print, write and draw of their runs.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import json
import platform
import re
import sys
import tempfile
import time

import torch

# ---- while it runs ---------------------------------------------------------


class Bar:
    """Progress on a terminal: tqdm's, or one line; else nothing."""

    def __init__(self, name: str, total: int, wanted: bool):
        self.name, self.total, self.done = name, total, 0
        self.bar = None
        self.plain = wanted and sys.stderr.isatty()
        if not self.plain:
            return
        try:
            from tqdm import tqdm
        except ImportError:
            return
        self.bar = tqdm(total=total, desc=f"{name:8}", unit="step")
        self.plain = False

    def advance(self, loss: float) -> None:
        self.done += 1
        if self.bar is not None:
            self.bar.set_postfix_str(f"loss {loss:.4f}", refresh=False)
            self.bar.update()
        elif self.plain:
            full = 30 * self.done // self.total
            sys.stderr.write(
                f"\r{self.name:8} [{'#' * full}{'.' * (30 - full)}] "
                f"{self.done}/{self.total} loss {loss:.4f} "
            )
            sys.stderr.flush()

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()
        elif self.plain:
            sys.stderr.write("\n")


# ---- kernels of a step -----------------------------------------------------

CLASSES = ("compute", "communication", "copy")
_SENDS = re.compile(r"nccl|gh_send\b|c10d::|gloo:|Memcpy PtoP")
_COPIES = re.compile(r"Mem(cpy|set)|gh_copy_batch|aten::(copy_|_?to)\b")


class Kernels:
    """A profiler of one step: when kernels ran, by class, on each stream.  Of
    a CPU, its operations on each thread.

        with Kernels(device) as kernels:
            with kernels.get_ready(): ...    # a step that counts for nothing
            with kernels.look(): ...         # ends when the device is through
    """

    def __init__(self, device):
        activity = torch.profiler.ProfilerActivity
        self.profiler = torch.profiler.profile(
            activities=[activity.CUDA if device.type == "cuda"
                        else activity.CPU],
            schedule=torch.profiler.schedule(wait=0, warmup=1, active=1))
        self.began = self.ended = 0  # ns, by the clock of all processes here
        self.spans: dict = {}

    def __enter__(self) -> "Kernels":
        self.profiler.__enter__()
        return self

    def __exit__(self, *failure) -> None:
        self.profiler.__exit__(*failure)
        if failure[0] is None:
            with tempfile.NamedTemporaryFile(suffix=".json") as file:
                self.profiler.export_chrome_trace(file.name)
                with open(file.name, encoding="utf-8") as trace:
                    self.spans = spans_of(json.load(trace), self.began)

    @contextlib.contextmanager
    def get_ready(self):
        yield
        self.profiler.step()

    @contextlib.contextmanager
    def look(self):
        self.began = time.time_ns()
        yield
        self.ended = time.time_ns()

    def shares(self) -> dict:
        """Nothing, if no kernel was seen."""
        if not any(self.spans.values()):
            return {}
        return shares_of(self.spans, (self.ended - self.began) / 1e3)

    def document(self, start: int) -> dict:
        """In us after `start`, a time in ns."""
        after = (self.began - start) / 1e3
        return {"step": [round(after, 1),
                         round((self.ended - start) / 1e3, 1)],
                **{name: [[stream, round(after + begin, 1),
                           round(after + end, 1)]
                          for stream, begin, end in spans]
                   for name, spans in self.spans.items()}}


def spans_of(trace: dict, began: int) -> dict:
    """Of a trace for Chrome: [stream, start, end] by class, in us after
    `began`, a time in ns."""
    before = (int(trace.get("baseTimeNanoseconds", 0)) - began) / 1e3
    found: dict = {name: [] for name in CLASSES}
    within = []  # copies within a device
    for event in trace["traceEvents"]:
        is_op = event.get("cat") == "cpu_op" and re.match(
            "aten::|c10d::|gloo:", event["name"])
        if not is_op and event.get("cat") not in (
                "kernel", "gpu_memcpy", "gpu_memset"):
            continue
        name, start = event["name"], event["ts"] + before
        if start + event["dur"] < 0:  # as ranks met
            continue
        to = (found["communication"] if _SENDS.match(name) else
              within if name.startswith("Memcpy DtoD") else
              found["copy"] if _COPIES.match(name) else found["compute"])
        to.append((event["tid"], start, start + event["dur"]))
    # A stream that computes nothing copies to another rank's memory, which
    # is on this device where ranks share one.
    computes = {stream for stream, *_ in found["compute"]}
    for span in within:
        found["copy" if span[0] in computes else "communication"].append(span)
    return {name: [*_joined(sorted(spans))] for name, spans in found.items()}


def _joined(spans: list):
    """Without those that are within others of their stream."""
    last = None
    for stream, begin, end in spans:
        if last and last[0] == stream and begin <= last[2]:
            last[2] = max(last[2], end)
            continue
        if last:
            yield last
        last = [stream, begin, end]
    if last:
        yield last


def _taken(*of: list) -> float:
    """The time in which any of them runs."""
    every = sorted([0, begin, end] for spans in of for _, begin, end in spans)
    return sum(end - begin for _, begin, end in _joined(every))


def shares_of(spans: dict, step_us: float) -> dict:
    """Of a step, in percent; exposed: communication runs and no compute."""
    compute, communication = spans["compute"], spans["communication"]
    found = {
        "compute": _taken(compute), "communication": _taken(communication),
        "exposed": _taken(compute, communication) - _taken(compute),
        "idle": step_us - _taken(*spans.values())}
    return {"step_us": round(step_us, 1), **{
        name: round(100 * us / step_us, 2) for name, us in found.items()}}


# ---- to the bit ------------------------------------------------------------


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Integers of the same bits, so that -0 is not 0 and NaN equals NaN."""
    sizes = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.contiguous().view(sizes[tensor.element_size()])


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(bits(a), bits(b))


def _of_numbers(first):
    """Trainings without numbers are alike, and show nothing."""
    for step, losses in enumerate(first.losses, 1):
        if not torch.isfinite(losses).all():
            yield (f"{first.name}: the loss is no number from step {step} "
                   "on, so that nothing is compared")
            return


def _of_losses(first, other):
    for step, (a, b) in enumerate(zip(first.losses, other.losses), 1):
        if not same(a, b):
            at = int((bits(a) != bits(b)).nonzero()[0])
            yield (
                f"{other.name}: from step {step}, microbatch {at + 1} on the "
                f"loss is {float(b[at])!r}, with {first.name} "
                f"{float(a[at])!r}"
            )
            return
    for (step, a), (_, b) in zip(first.judged, other.judged):
        if a != b and not (a != a and b != b):
            yield (
                f"{other.name}: the loss on held-out text at step {step} is "
                f"{b!r}, with {first.name} {a!r}"
            )
            return


def _of_weights(first, other):
    wrong = [
        name
        for name, value in first.weights.items()
        if name not in other.weights or not same(value, other.weights[name])
    ]
    if wrong or len(first.weights) != len(other.weights):
        yield (
            f"{other.name}: {len(wrong)} of {len(first.weights)} weights "
            f"differ from those of {first.name}"
            + (f", the first is {wrong[0]}" if wrong else "")
        )


def differences(first, other) -> list[str]:
    """A sentence for each kind of difference; none: equal to the bit."""
    for run in (first, other):
        if run.error:
            return [f"{run.name}: it did not finish: {run.error}"]
    if len(first.losses) != len(other.losses) or not first.losses:
        return [f"{other.name}: it has another count of steps"]
    return [*_of_numbers(first), *_of_losses(first, other),
            *_of_weights(first, other)]


def verdict(first, everyone: list[list[str]]) -> None:
    for rank, lines in enumerate(everyone):
        for line in lines:
            print(f"rank {rank}: {line}" if len(everyone) > 1 else line)
    if any(everyone):
        print("bitwise equal: no")
        return
    ranks = f" on {len(everyone)} ranks" if len(everyone) > 1 else ""
    print(
        f"bitwise equal: yes (the losses of {len(first.losses)} steps in "
        f"{sum(len(x) for x in first.losses)} microbatches, and "
        f"{len(first.weights)} final weights{ranks})"
    )


# ---- when it is over -------------------------------------------------------


def _eager(run) -> str:
    calls = run.stats.get("eager_calls", {})
    said = [f"{reason} {count}" for reason, count in calls.items() if count]
    return ", ".join(said) or "none"


def _row(run) -> list[str]:
    if run.error:
        return [run.name, "failed", *[""] * 8]
    graphs = run.mode != "off"
    return [
        run.name,
        f"{run.curve()[-1]:.6f}",
        f"{run.median(run.step_ms):.2f}",
        f"{run.median(run.host_ms):.2f}",
        f"{run.capture_s():.2f}",
        f"{run.peak_mib:.0f}",
        f"{run.device_mib:.0f}",
        str(run.stats.get("recordings", "?")) if graphs else "-",
        str(run.stats.get("replays", "?")) if graphs else "-",
        (_eager(run) if "eager_calls" in run.stats else "?") if graphs
        else "all",
    ]


HEAD = ["mode", "final loss", "step ms", "host ms", "capture s", "peak MiB",
        "device MiB", "recordings", "replays", "eager calls"]  # fmt: skip


def table(runs) -> None:
    """Medians of the steps after the first ones, which warm up and record."""
    rows = [HEAD] + [_row(run) for run in runs]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
    for row in rows:
        cells = [
            cell.ljust(width) if i in (0, len(row) - 1) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        ]
        print("  ".join(cells).rstrip())
    for run in runs:
        for step, loss in run.judged[-1:]:
            print(f"{run.name}: held-out loss {loss:.6f} at step {step}")
        for layer, why in run.stats.get("refused", {}).items():
            print(f"{run.name}: layer {layer} is not captured: {why}")
        if run.error:
            print(f"{run.name}: it failed: {run.error}")
        elif run.mode not in ("off", "eager") \
                and not run.stats.get("replays", bool(run.stats)):
            print(f"{run.name}: nothing was replayed, so this shows little")
        if run.stats.get("offload"):
            print(f"{run.name}: {_offloaded(run.stats['offload'])}")


def _offloaded(stats: dict) -> str:
    """What went to the host's memory, in a line."""
    out = stats["out_bytes"] + stats["eager_out_bytes"]
    back = stats["back_bytes"] + stats["eager_back_bytes"]
    if not out:
        return "nothing was offloaded; --explain says why"
    pinned = stats["pinned_bytes"] + stats["eager_pinned_bytes"]
    return (f"{len(stats['going'])} groups go, {out / 2**20:.0f} MiB went and "
            f"{back / 2**20:.0f} came back, by {pinned / 2**20:.0f} MiB of "
            f"pinned memory and {stats['ring_bytes'] / 2**20:.0f} of rings")


def explain(runs) -> None:
    for run in runs:
        if run.explained:
            print(f"\n{run.name}:\n{run.explained.rstrip()}")
    print()


def device_of(world) -> str:
    if world.device.type == "cuda":
        return torch.cuda.get_device_name(world.device)
    return platform.processor() or "cpu"


def write_json(args, world, runs, equal: bool) -> None:
    document = {
        "options": {
            name: str(value) if hasattr(value, "parent") else value
            for name, value in vars(args).items()
        },
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "device": device_of(world),
        "ranks": world.size,
        "equal": equal if args.compare else None,
        "runs": [
            {
                "name": run.name,
                "mode": run.mode,
                "error": run.error or None,
                "losses": run.curve(),
                "loss_bits": [bits(x).tolist() for x in run.losses],
                "held_out": run.judged,
                "step_ms": run.step_ms,
                "host_ms": run.host_ms,
                "median_step_ms": run.median(run.step_ms),
                "median_host_ms": run.median(run.host_ms),
                "capture_s": run.capture_s(),
                "traced_step": run.traced + 1 if run.traced >= 0 else None,
                "peak_mib": run.peak_mib,
                "device_mib": run.device_mib,
                "left_mib": run.left_mib,
                "stats": run.stats,
            }
            for run in runs
        ],
    }
    args.json.write_text(json.dumps(document, indent=1, default=str) + "\n")
    print(f"wrote {args.json}")


def plot(args, runs) -> None:
    """Curves that lie on each other are all seen: each is thinner than the
    one below it."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    drawn = [run for run in runs if run.losses]
    for i, run in enumerate(drawn):
        steps = range(1, len(run.losses) + 1)
        (line,) = axes.plot(
            steps, run.curve(), label=f"{run.name}, training",
            linewidth=2 + 3 * (len(drawn) - 1 - i),
            marker="o" if len(steps) == 1 else "",
        )  # fmt: skip
        if run.judged:
            axes.plot(
                *zip(*run.judged), "o", color=line.get_color(),
                markersize=4 + 3 * (len(drawn) - 1 - i),
                label=f"{run.name}, held out",
            )  # fmt: skip
    axes.set_title(
        f"{args.layers} layer{'s' if args.layers > 1 else ''} of "
        f"{args.hidden}, {args.dtype}, dropout {args.dropout:g}"
    )
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(
        ticker.MaxNLocator(integer=True, min_n_ticks=1)
    )
    axes.set_ylabel("loss (nats a byte)")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(args.plot, dpi=150)
    pyplot.close(figure)
    print(f"wrote {args.plot}")
