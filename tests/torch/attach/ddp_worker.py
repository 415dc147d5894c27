"""One rank of test_ddp.py, under torchrun; leaves JSON of all ranks.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import traceback
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent),
                str(Path(__file__).resolve().parents[3] / "hosts" /
                    "pytorch")]

from models import (COUNTS, GRAINS, Block, F, Run, differing,  # noqa: E402
                    torch)
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

CASES = {
    f"{grain}{', ' * bool(what)}{what}": dict(grain=grain, **how)
    for grain in GRAINS
    for what, how in {
        "": {},
        "in flight": {"in_flight": 2},
        "attached before": {"first": True},
        "the bare model": {"bare": True},
        "dropout": {"dropout": 0.1},
        "a last microbatch that reduces": {"no_sync": True},
        "views of buckets": {"gradient_as_bucket_view": True},
        "a static graph": {"static_graph": True},
        "offload": {"in_flight": 3, "attached": {
            "offload": "attn,mlp", "offload_min_bytes": 256}},
    }.items()
    if grain != "part" or what in ("", "in flight", "offload")
}


class Rank(Run):
    """A run whose forward goes through DistributedDataParallel."""

    def __init__(self, graphs, grain, first=False, bare=False, dropout=0.0,
                 no_sync=False, in_flight=1, attached={}, **options) -> None:
        super().__init__(make=lambda: Block(dropout))
        self.no_sync, self.in_flight = no_sync, in_flight
        self.generator.manual_seed(1 + torch.distributed.get_rank())
        self.grain, inner = grain, self.model
        if graphs and first:
            self.attach(**attached)
        self.ddp = DistributedDataParallel(inner, bucket_cap_mb=0.1,
                                           **options)
        if graphs and not first:
            self.model = inner if bare else self.ddp
            self.attach(**attached)
        self.model = inner
        torch.manual_seed(8)

    def loss(self):
        tokens = self.tokens()
        logits = self.ddp(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        self.note(loss)
        return loss

    def train(self) -> dict:
        for count in COUNTS:
            self.zero()
            if self.in_flight > 1:
                for _ in range(count // 2):
                    # DDP prepares its buckets in the forward: one reduces.
                    with self.ddp.no_sync():
                        losses = [self.loss() for _ in range(self.in_flight)]
                        for loss in losses:
                            loss.backward()
                self.loss().backward()
            else:
                for m in range(count):
                    quiet = self.no_sync and m < count - 1
                    with self.ddp.no_sync() if quiet \
                            else contextlib.nullcontext():
                        self.loss().backward()
            self.optimizer.step()
        return self.state()


def result_of(case: dict) -> dict:
    result = {"error": None, "differing": None, "refused": None, "replays": 0}
    run = None
    try:
        eager = Rank(False, **case).train()
        run = Rank(True, **case)
        result["differing"] = differing(eager, run.train())
        stats = run.attached.stats()
        result["refused"] = stats["refused"]
        result["replays"] = stats["replays"]
    except Exception:
        result["error"] = traceback.format_exc()
    if run is not None:
        run.detach()
    return result


def main(out: str, backend: str) -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"])
                          % torch.cuda.device_count())
    torch.distributed.init_process_group(backend)
    results: dict = {}
    for name, case in CASES.items():
        results[name] = result_of(case)
        every = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(every, results)
        if torch.distributed.get_rank() == 0:
            Path(out).write_text(json.dumps(every))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
