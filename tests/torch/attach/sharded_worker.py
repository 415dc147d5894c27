"""One of two ranks of test_sharded.py, by gloo; leaves JSON.

    sharded_worker.py CASE OUT.json            # with torch.distributed's
                                               # variables in the environment

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "package"),
                str(HERE.parents[2] / "hosts" / "pytorch")]

import softtorch  # noqa: E402
import torch._dynamo  # noqa: E402, F401 - before there is a device

softtorch.install()

import graphhooks  # noqa: E402
import models  # noqa: E402
import torch  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402


def sharded(model):
    mesh = init_device_mesh("cpu", (2,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def prepare(case: str, attach):
    """What is trained, its optimizer, and what is attached."""
    model = models.Model()
    options = {"lr": 1e-3}
    if case.startswith("zero"):
        model = DistributedDataParallel(model, bucket_cap_mb=0.1)
        attached = attach(model, granularity=case.split()[1])
        return model, ZeroRedundancyOptimizer(
            model.parameters(), torch.optim.AdamW, **options), attached
    attached = attach(model) if case == "before" else None
    model = sharded(model)
    if case == "after":
        attached = attach(model)
    return model, torch.optim.AdamW(model.parameters(), **options), attached


def train(case: str, attach) -> tuple:
    torch.manual_seed(7)
    model, optimizer, attached = prepare(case, attach)
    numbers = torch.Generator().manual_seed(torch.distributed.get_rank())
    found = []
    for _ in range(5):
        optimizer.zero_grad()
        for _ in range(2):
            tokens = torch.randint(0, models.WORDS, (2, 17),
                                   generator=numbers)
            loss = models.F.cross_entropy(
                model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            found.append(loss.detach().clone())
        optimizer.step()
    for p in model.parameters():
        found.append(getattr(p, "_local_tensor", p).detach().clone())
    return found, attached


def main() -> None:
    case, out = sys.argv[1:]
    torch.distributed.init_process_group("gloo")
    eager, _ = train(case, lambda *_, **__: None)
    result: dict = {}
    try:
        graphs, attached = train(case, graphhooks.attach)
        result.update(equal=all(map(models.same, eager, graphs)),
                      explain=attached.explain(),
                      replays=attached.stats()["replays"],
                      twice=attached.step())
        attached.detach()
    except graphhooks.Error as error:
        result["error"] = str(error)
    Path(out).write_text(json.dumps(result))
    torch.distributed.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
