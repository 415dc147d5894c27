"""Times and memory of one row on one case.

A step has no synchronization inside.  While steps are timed the host may be
one step ahead of the device, as a loop that prints the loss of the step
before is.

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import contextlib
import dataclasses
import gc
import signal
import time

import torch

from cases import FEW_STEPS, Steps
from row import Row


class OutOfTime(Exception):
    pass


@contextlib.contextmanager
def limit(seconds: int, what: str):
    """Raise in the main thread when it takes longer."""

    def late(_signal, _frame):
        raise OutOfTime(f"{what} took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Device:
    """A GPU, or for development the CPU in its place."""

    def __init__(self, device: str):
        self.cuda = torch.device(device).type == "cuda"

    def synchronize(self):
        if self.cuda:
            torch.cuda.synchronize()

    def mark(self):
        """A point in the stream."""
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def wait(self, mark):
        if self.cuda:
            mark.synchronize()

    def between(self, start, end) -> float:
        """Milliseconds."""
        if not self.cuda:
            return (end - start) * 1e3
        return start.elapsed_time(end)

    def used(self) -> int:
        """Of all who use the device: graphs are not the allocator's."""
        if not self.cuda:
            return 0
        free, total = torch.cuda.mem_get_info()
        return total - free

    def clean(self):
        gc.collect()
        if self.cuda:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def outside(self) -> int:
        """What is used and not the allocator's: contexts, graphs."""
        return self.used() - torch.cuda.memory_reserved() if self.cuda else 0

    def memory(self) -> dict:
        if not self.cuda:
            return {"allocated": 0, "reserved": 0}
        return {"allocated": torch.cuda.max_memory_allocated(),
                "reserved": torch.cuda.max_memory_reserved()}


def now_us() -> float:
    return time.perf_counter_ns() / 1e3


def whole_step(row: Row, step: int):
    row.passes(step)
    row.keep_losses(step)
    row.update()


def alone(row: Row, step: int, device: Device) -> float:
    """One step, waited for: seconds."""
    device.synchronize()
    start = time.perf_counter()
    whole_step(row, step)
    device.synchronize()
    return time.perf_counter() - start


def timed(row: Row, steps: range, device: Device) -> dict:
    """Steps one after the other."""
    device.synchronize()
    marks = [device.mark()]
    walls = []
    begin = time.perf_counter()
    for step in steps:
        whole_step(row, step)
        marks.append(device.mark())
        # The step before is waited for, this one runs.
        device.wait(marks[-2])
        walls.append(time.perf_counter())
    device.synchronize()
    end = time.perf_counter()
    return {
        "wall_ms": [(after - before) * 1e3
                    for before, after in zip(walls, walls[1:])],
        "device_ms": [device.between(before, after)
                      for before, after in zip(marks, marks[1:])][1:],
        "mean_ms": (end - begin) * 1e3 / len(steps),
    }


def issued(row: Row, steps: range, device: Device) -> dict:
    """What a step costs the host: nothing is waited for on the way, as the
    device has nothing to do when it begins."""
    passes, whole = [], []
    for step in steps:
        device.synchronize()
        start = now_us()
        row.passes(step)
        middle = now_us()
        row.keep_losses(step)
        row.update()
        whole.append(now_us() - start)
        passes.append(middle - start)
    device.synchronize()
    return {"passes_us": passes, "step_us": whole}


def rest(row: Row, count: int, device: Device) -> list[float]:
    """The same passes with no layer in the model."""
    row.without_layers()
    times = []
    for step in range(count + 2):
        device.synchronize()
        start = now_us()
        row.passes(step)
        times.append(now_us() - start)
    device.synchronize()
    return times[2:]


def settled(row: Row, device: Device) -> int:
    """What the device needs once all is recorded: nothing is left over."""
    device.clean()
    row.microbatch = 0
    outside = device.outside()
    for step in range(2):
        row.passes(step)
        row.update()
    device.synchronize()
    return device.memory()["reserved"] + max(outside, device.outside())


def losses_of(row: Row, steps: int) -> list[list[float]]:
    return row.history[:steps].double().cpu().tolist()


def run(row: Row, steps: Steps, device: Device, prepare_limit: int) -> dict:
    """All there is to know of a row on a case, as JSON has it."""
    device.clean()
    before = device.used()
    used, outside = [], []

    def look():
        used.append(device.used())
        outside.append(device.outside())

    row.plain = steps.plain
    if row.few:
        steps = dataclasses.replace(steps, **FEW_STEPS)
    row.build()
    for step in range(steps.plain):
        alone(row, step, device)
    look()

    at = steps.plain
    # Else who makes the most objects pays for a look at all that imports have
    # left, which comes once in any training.
    gc.collect()
    with limit(prepare_limit, "recording"):
        device.synchronize()
        start = time.perf_counter()
        row.prepare()
        device.synchronize()
        prepare = time.perf_counter() - start
        look()
        prepared, first = [], None
        for step in range(at, at + steps.prepared):
            made = row.recordings()
            prepared.append(alone(row, step, device))
            if first is None and made and row.recordings() == made:
                first = prepare + sum(prepared)
            look()
    at += steps.prepared

    gc.collect()
    times = timed(row, range(at, at + steps.timed), device)
    look()
    at += steps.timed
    host = issued(row, range(at, at + steps.issued), device)
    look()

    memory = device.memory()
    # The allocator's peak is between two looks, and what it does not know
    # only grows.
    memory["device"] = max(*used, memory["reserved"] + max(outside))
    memory["settled"] = settled(row, device)
    result = {
        "prepare_s": prepare,
        "first_replayed_s": first,
        "prepared_steps_s": prepared,
        **times,
        **host,
        "losses": losses_of(row, steps.all),
        "memory": {**memory, "device_before": before},
    }
    result.update(row.close())
    if row.by_layer:
        try:
            result["rest_us"] = rest(row, steps.issued, device)
        except Exception as error:  # the times are worth keeping
            result["rest_failed"] = f"{type(error).__name__}: {error}"
    return result
