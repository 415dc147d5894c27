"""What the examples print, write and draw of their runs.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import platform
import sys

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


def _device(world) -> str:
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
        "device": _device(world),
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
