#!/usr/bin/env python3
"""worker.py - one row on one case, in a process of its own.

    worker.py ROW --case JSON --steps JSON --device cuda|cpu

Imports first, says that it is ready, and waits for a line on its input before
it touches the device: run.py starts many at once and lets one go at a time.
Writes one more line of JSON then: the result, or why there is none.

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import traceback


def protocol():
    """What libraries print goes to the log, with everything else."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return lambda what: print(json.dumps(what), file=out, flush=True)


def machine(torch, device: str) -> dict:
    said = {"python": sys.version.split()[0], "torch": torch.__version__,
            "cuda": torch.version.cuda, "device": device}
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        said["device"] = properties.name
        said["device_bytes"] = properties.total_memory
    megatron = sys.modules.get("megatron.core")
    if megatron is not None:
        said["megatron"] = getattr(megatron, "__version__", "unknown")
    engine = sys.modules.get("transformer_engine")
    if engine is not None:
        said["transformer_engine"] = getattr(engine, "__version__", "unknown")
    hooks = sys.modules.get("graphhooks")
    if hooks is not None:
        said["graphhooks"] = getattr(hooks, "__version__", "unknown")
    return said


def clocks() -> str:
    """As the driver says, or nothing."""
    fields = "clocks.sm,clocks.mem,temperature.gpu,power.draw,driver_version"
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip().splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return ""


def sentence(error: BaseException) -> str:
    """The first line that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no words'}"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("row")
    parser.add_argument("--case", type=json.loads, required=True)
    parser.add_argument("--steps", type=json.loads, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--prepare-limit", type=int, default=60)
    options = parser.parse_args()
    say = protocol()
    backend, kind = options.row.split("/")

    try:
        import torch

        from cases import Case, Steps
        if backend == "megatron":
            import megatron_rows as rows
        elif backend == "te":
            import te_rows as rows
        else:
            import torch_rows as rows
        if kind.split("+")[0] in ("layer", "scope", "chunk") \
                or backend == "torch" and kind.endswith("+offload"):
            import graphhooks.torch.attach.attached  # noqa: F401 - in time
        import measure
    except Exception as error:
        traceback.print_exc()
        say({"failed": sentence(error)})
        return 1

    say({"ready": True})
    if not sys.stdin.readline():
        return 1
    steps = Steps(**options.steps)
    try:
        row = rows.ROWS[kind](options.row, Case(**options.case),
                              options.device, steps.all)
        result = measure.run(row, steps, measure.Device(options.device),
                             options.prepare_limit)
    except Exception as error:
        traceback.print_exc()
        say({"failed": sentence(error)})
        return 1
    result["clocks"] = clocks()
    say({"result": result, "machine": machine(torch, options.device)})
    return 0


status = main()
sys.stderr.flush()
# Nothing is left to be done, and tearing down a communicator takes time.
os._exit(status)
