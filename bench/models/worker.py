"""The rows of one model, in a process of its own.

    worker.py OPTIONS(JSON)

It prepares its first row, says so in a line on standard output, and measures
when a line comes on standard input, as nothing else is to use the machine
then.  After each row it writes the JSON file of the options.

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import signal
import statistics
import sys
import time
import traceback
import types
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
# What attach() or torch.compile() gets.
GRAPHS = {"layer": {"granularity": "layer"}, "chunk": {"granularity": "chunk"},
          "part": {"granularity": "part"}, "auto": {"scope": "auto"},
          "limited": {"granularity": "layer"}}
LIMIT = "GRAPHHOOKS_MEMORY_LIMIT"
COMPILED = {"compile": {}, "reduce-overhead": {"mode": "reduce-overhead"}}
NEAR = 1.5  # of the median step: one that is not slower is ready
RAN = re.compile(r"graphs ran (\d+) of (\d+) calls")


class OutOfTime(Exception):
    pass


@contextlib.contextmanager
def limit(seconds: float):
    def late(_signal, _frame):
        raise OutOfTime(f"not done after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def sum_of(model, torch) -> str:
    """Of the bits of all weights and buffers, with their places."""
    total = 0
    for tensor in (*model.parameters(), *model.buffers()):
        bits = tensor.detach().contiguous().flatten().view(torch.uint8)
        bits = bits[:bits.numel() // 2 * 2].view(torch.int16).long()
        places = torch.arange(bits.numel(), device=bits.device) % 8191 + 1
        total = total * 31 + int((bits * places).sum())
    return f"{total % (1 << 64):016x}"


class Row:
    """A training of the model, in one way."""

    def __init__(self, torch, kind: str, o):
        import zoo

        self.torch, self.kind, self.o = torch, kind, o
        self.attached = None
        self.told: dict = {}  # by forecast(), before anything is recorded
        self.step = 0
        self.losses: list = []
        gc.collect()
        if o.device == "cuda":
            torch.cuda.empty_cache()
        soft = o.device == "soft"  # whose tensors are the CPU's
        self.device = "cpu" if soft else o.device
        self.model, self.loss = zoo.make(o.name, o.size, self.device)
        self.model.to(torch.float32 if soft else torch.bfloat16).train()
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=1e-4, fused=o.device == "cuda")
        self.called = self.model

    def begin(self) -> None:
        """Steps until the row is at its speed, each waited for."""
        torch, o = self.torch, self.o
        if o.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        torch.manual_seed(2)
        torch.cuda.synchronize()
        start = time.perf_counter()
        if self.kind in GRAPHS:
            import graphhooks

            self.attached = graphhooks.attach(self.model, **GRAPHS[self.kind])
        elif self.kind in COMPILED:
            self.called = torch.compile(self.model, **COMPILED[self.kind])
        self.ends = []
        for _ in range(o.first):
            self.one()
            torch.cuda.synchronize()
            self.ends.append(time.perf_counter() - start)
            if self.attached and not self.attached.stats()["recordings"]:
                self.told = self.attached.forecast()
        self.bits = sum_of(self.model, torch)
        self.kept = torch.stack(self.losses).float().tolist()

    def one(self) -> None:
        torch = self.torch
        if self.kind == "reduce-overhead":
            torch.compiler.cudagraph_mark_step_begin()
        loss = self.loss(self.called, self.step, self.device)
        if len(self.losses) < self.o.first:
            self.losses.append(loss.detach().clone())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1

    def measure(self) -> dict:
        torch = self.torch
        self.one()  # what the machine has forgotten
        torch.cuda.synchronize()
        ran = self.ran()
        begin = time.perf_counter()
        self.one()
        torch.cuda.synchronize()
        count = max(2, min(100, int(self.o.seconds / 3 / (
            time.perf_counter() - begin))))
        blocks = []
        for _ in range(3):
            begin = time.perf_counter()
            for _ in range(count):
                self.one()
            torch.cuda.synchronize()
            blocks.append(1e3 * (time.perf_counter() - begin) / count)
        host = []
        for _ in range(min(5, count)):
            begin = time.perf_counter()
            self.one()
            host.append(1e3 * (time.perf_counter() - begin))
            torch.cuda.synchronize()
        found = {"step_ms": statistics.median(blocks), "blocks_ms": blocks,
                 "steps_a_block": count, "host_ms": statistics.median(host),
                 "ends_s": self.ends, "five_s": self.ends[4],
                 "ready_s": self.ready(statistics.median(blocks) / 1e3),
                 "losses": self.kept, "weights": self.bits}
        if self.o.device == "cuda":
            found["allocated"] = torch.cuda.max_memory_allocated()
            found["reserved"] = torch.cuda.max_memory_reserved()
        if self.attached is not None:
            now = self.ran()
            stats = self.attached.stats()
            found.update(
                ran=now[0] - ran[0], calls=now[1] - ran[1],
                recordings=stats["recordings"], refused=stats["refused"],
                eager_calls=stats["eager_calls"],
                explain=self.attached.explain(), memory=self.memory())
        return found

    def memory(self) -> dict:
        """Bytes of graphs, with what was foretold of them."""
        has = self.attached.memory()
        return {"inputs": has["slot_bytes"] + has["bank_bytes"],
                "pools": has["pool_bytes"],
                "foretold_inputs": self.told.get("input_bytes"),
                "foretold_pools": self.told.get("pool_bytes"),
                "limit": int(os.environ.get(LIMIT, "0"))}

    def ready(self, step: float) -> float:
        """Seconds until the first step after which none takes longer than a
        step takes by far."""
        starts = [0.0, *self.ends]
        late = [end for begin, end in zip(starts, self.ends)
                if end - begin > NEAR * step + 2e-3]
        return late[-1] if late else 0.0

    def ran(self) -> tuple:
        """Calls that graphs ran, and all."""
        if self.attached is None:
            return 0, 0
        found = RAN.search(self.attached.explain())
        return tuple(map(int, found.groups())) if found else (0, 0)

    def close(self) -> None:
        if self.attached is not None:
            self.attached.detach()
        self.model = self.called = self.optimizer = self.attached = None


def prepared(torch, kind: str, o):
    """The row, or why there is none.  Where an operation has no deterministic
    kernel, all rows of the model are without that demand."""
    found = _prepared(torch, kind, o)
    if isinstance(found, dict) and "deterministic" in found["failed"] \
            and not torch.is_deterministic_algorithms_warn_only_enabled():
        torch.use_deterministic_algorithms(True, warn_only=True)
        return prepared(torch, kind, o)
    return found


def _prepared(torch, kind: str, o):
    row = None
    try:
        with limit(o.limit):
            row = Row(torch, kind, o)
            row.begin()
        return row
    except Exception as error:
        traceback.print_exc()
        if row is not None:
            with contextlib.suppress(Exception):
                row.close()
        return {"failed": f"{type(error).__name__}: {error}"[:600]}


def measured(row, o) -> dict:
    if isinstance(row, dict):
        return row
    try:
        with limit(o.limit):
            return row.measure()
    except Exception as error:
        traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {error}"[:600]}
    finally:
        with contextlib.suppress(Exception):
            row.close()


def main() -> int:
    o = types.SimpleNamespace(**json.loads(sys.argv[1]))
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    sys.path[:0] = [str(TOP / "hosts" / "pytorch"), str(TOP / "bench" /
                                                        "models")]
    import torch

    if o.device == "soft":
        sys.path += [str(TOP / "tests" / "torch" / part)
                     for part in ("attach", "package")]
        import softtorch
        import torch._dynamo  # noqa: F401 - before the device is replaced

        softtorch.install()
    torch.use_deterministic_algorithms(o.deterministic)
    torch.utils.deterministic.fill_uninitialized_memory = False
    document = {"torch": torch.__version__, "rows": {},
                "device": torch.cuda.get_device_name()
                if o.device == "cuda" else "softcuda"}
    with contextlib.suppress(ImportError):
        import transformers

        transformers.logging.set_verbosity_error()
        document["transformers"] = transformers.__version__
    row = prepared(torch, o.rows[0], o)
    print("ready", flush=True)
    sys.stdin.readline()
    for i, kind in enumerate(o.rows):
        if kind == "limited":  # to half of what graphs of layers have
            whole = document["rows"]["layer"].get("memory", {"inputs": 0})
            os.environ[LIMIT] = str(max(1, whole["inputs"] // 2))
        if i:
            row = prepared(torch, kind, o)
        document["rows"][kind] = measured(row, o)
        os.environ.pop(LIMIT, None)
        document["any_order"] = \
            torch.is_deterministic_algorithms_warn_only_enabled()
        row = None
        Path(o.out).write_text(json.dumps(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
