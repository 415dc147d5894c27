"""One of the ranks of test_exchange.py.

    exchange_worker.py FOLDER RANK SIZE CASE...

Leaves FOLDER/RANK.json, with what each case came to.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import time
import traceback
from pathlib import Path

import conftest  # noqa: F401 - the device, where there is none
import softtorch
import torch
from graphhooks import Error
from graphhooks.exchange import Exchange
from torch import distributed as dist

SECONDS = 6
MOST = 1 << 16


class Plain(torch.autograd.Function):
    """torch.distributed's, with the same arguments."""

    @staticmethod
    def forward(ctx, x, come, go):
        ctx.splits = go, come
        out = x.new_empty((sum(come), *x.shape[1:]))
        dist.all_to_all_single(out, x.contiguous(), come, go)
        return out

    @staticmethod
    def backward(ctx, grad):
        return Plain.apply(grad, *ctx.splits), None, None


def splits(seed: int, most: int) -> tuple:
    """A matrix that all ranks know; some parts are empty, or all."""
    numbers, size = random.Random(seed), dist.get_world_size()
    rows = [[numbers.choice([0, numbers.randint(0, most)])
             for _ in range(size)] for _ in range(size)]
    rank = dist.get_rank()
    return [r[rank] for r in rows], rows[rank]


def values(shape, dtype):
    if dtype.is_floating_point:
        return torch.randn(shape).to(dtype)
    return torch.randint(-100, 100, shape, dtype=dtype)


def compared(x: Exchange, rounds=24) -> None:
    """With torch.distributed's, there and back."""
    torch.manual_seed(dist.get_rank())
    for i in range(rounds):
        come, go = splits(i, 9 if i % 5 else 0)
        dtype = [torch.float32, torch.bfloat16, torch.int64][i % 3]
        shape = [(), (8,), (3, 5)][i // 3 % 3]
        one = values((sum(go), *shape), dtype)
        if i % 4 == 3:  # rows that are not contiguous
            one = values((2, sum(go), *shape), dtype).transpose(0, 1)[:, 1]
        two = one.detach().clone()
        if dtype.is_floating_point:
            one.requires_grad_(), two.requires_grad_()
        on = torch.cuda.stream(torch.cuda.Stream()) if i % 7 == 6 \
            else contextlib.nullcontext()
        with on:
            mine = x.all_to_all(one, come, go)
        theirs = Plain.apply(two, come, go)
        assert torch.equal(mine, theirs) and mine.dtype == dtype
        if dtype.is_floating_point:
            grad = torch.randn_like(theirs)
            mine.backward(grad), theirs.backward(grad)
            assert torch.equal(one.grad, two.grad)


def exact(**how) -> dict:
    with Exchange(part_bytes=MOST, **how) as x:
        compared(x)
        equal = torch.arange(2 * x.size) + 100 * x.rank
        found = x.all_to_all(equal).view(x.size, 2)
        assert found[:, 0].tolist() == [2 * x.rank + 100 * i
                                        for i in range(x.size)]
        x.wait()
        return {**x.stats(), "reason": x.reason}


def not_reached(kind="auto") -> dict:
    """The last rank cannot open what the others have."""
    fails = dist.get_rank() == dist.get_world_size() - 1
    words = b"PAGEABLE=1 RACES=0 UNWRITTEN=0"
    if fails:
        softtorch._soft.call("softcuda_configure",
                             words + b" FAIL=cuIpcOpenMemHandle:1")
    try:
        return exact(kind=kind)
    except Error as error:
        return {"said": str(error), "name": error.name}
    finally:
        softtorch._soft.call("softcuda_configure", words)


def refused(make) -> dict:
    try:
        make()
    except Error as error:
        return {"said": str(error), "name": error.name}
    return {"said": ""}


def other_sizes() -> dict:
    with Exchange(part_bytes=40 - 8 * dist.get_rank()) as x:
        compared(x, rounds=1)
        return {"part_bytes": x.part_bytes}


def too_large() -> dict:
    """Parts that the window has no room for, among others that it has; then
    from one rank alone, and back."""
    with Exchange(part_bytes=32) as x:
        compared(x)
        before = x.stats()
        go = [9 if x.rank == 0 and i else 2 for i in range(x.size)]
        come = [9 if i == 0 and x.rank else 2 for i in range(x.size)]
        one = torch.randn(sum(go), 4, requires_grad=True)
        two = one.detach().clone().requires_grad_()
        mine, theirs = x.all_to_all(one, come, go), Plain.apply(two, come, go)
        grad = torch.randn_like(theirs)
        mine.backward(grad), theirs.backward(grad)
        assert torch.equal(mine, theirs) and torch.equal(one.grad, two.grad)
        after = x.stats()
        return {"before": before["large_parts"], "calls": after["calls"],
                "there and back": after["large_parts"]
                - before["large_parts"], "most": after["largest_bytes"]}


def reads_late() -> dict:
    """A rank has not taken what has come when the others make the next
    call."""
    with Exchange(part_bytes=MOST) as x:
        issue = x._issue
        if x.rank == 0:
            x._issue = lambda op: (issue(op), time.sleep(0.1))
        for i in range(6):
            out = x.all_to_all(torch.full((x.size,), 10 * i + x.rank))
            assert out.tolist() == [10 * i + r for r in range(x.size)]
        return x.stats()


def captured() -> dict:
    """torch.distributed's is in the graph."""
    with Exchange(part_bytes=MOST) as x:
        values = torch.arange(2.0 * x.size) + x.rank
        expected = x.all_to_all(values)
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin()
        out = x.all_to_all(values)
        graph.capture_end()
        for i in range(3):
            graph.replay()
            assert torch.equal(out, expected)
            assert torch.equal(x.all_to_all(values), expected)
        return x.stats()


def ended(how, most=MOST) -> dict:
    """The last rank ends without a word, or stops."""
    x = Exchange(part_bytes=most)
    values = torch.ones(x.size)
    x.all_to_all(values)
    if x.rank == x.size - 1:
        how(x)
    began = time.monotonic()
    try:
        for _ in range(3):
            x.all_to_all(values)
    except Error as error:
        found = {"said": str(error), "name": error.name,
                 "after": time.monotonic() - began}
    began = time.monotonic()
    x.close()
    return {**found, "closed": time.monotonic() - began}


def given_up() -> dict:
    """The first rank waits for too long for the last one, and the one between
    them came later."""
    x = Exchange(part_bytes=MOST)
    values = torch.ones(x.size)
    x.all_to_all(values)
    time.sleep((0, SECONDS / 2, SECONDS + 1)[x.rank])
    found = {}
    try:
        x.all_to_all(values)
        time.sleep(1.5)
        began = time.monotonic()
        x.all_to_all(values)
    except Error as error:
        found = {"said": str(error), "name": error.name,
                 "after": time.monotonic() - began if x.rank else 0}
    x.close()
    return found


def hangs(x) -> None:
    """For longer than the others wait."""
    time.sleep(4 * SECONDS)
    os._exit(0)


def dies(x) -> None:
    os._exit(0)


CASES = {
    "copy": lambda: exact(kind="copy"),
    "kernel": lambda: exact(kind="kernel"),
    "auto": lambda: exact(alone=True),
    "nccl": lambda: exact(kind="nccl"),
    "not reached": not_reached,
    "not reached, copy": lambda: not_reached("copy"),
    "too large": too_large,
    "reads late": reads_late,
    "captured": captured,
    "other kinds": lambda: refused(lambda: Exchange(
        part_bytes=MOST, kind=["auto", "nccl"][dist.get_rank() % 2])),
    "other sizes": other_sizes,
    "a rank gives up": given_up,
    "a rank ends": lambda: ended(dies),
    "a rank hangs, too large": lambda: ended(hangs, most=2),
}


def main(folder: Path, rank: int, size: int, names) -> None:
    os.environ["GRAPHHOOKS_TIMEOUT"] = str(SECONDS)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store",
                            rank=rank, world_size=size)
    results = {}
    for name in names:
        try:
            results[name] = CASES[name]()
        except Exception:
            results[name] = {"error": traceback.format_exc()}
        (folder / f"{rank}.json").write_text(json.dumps(results))
    sys.stdout.flush()
    os._exit(0)  # what waits for a rank that has gone is not waited for


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:4]), sys.argv[4:])
