"""One of the two ranks of test_overlap.py, whose layers exchange tokens.

    overlap_worker.py FOLDER RANK

Leaves FOLDER/RANK.json.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import conftest  # noqa: F401 - the device, where there is none
import test_overlap
from graphhooks.overlap import Overlap
from test_overlap import Layers, apart, beside, equal
from torch import distributed as dist
import torch


class Exchange(torch.autograd.Function):
    """Half of the tokens goes to the other rank, and back."""

    @staticmethod
    def forward(ctx, x):
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x.contiguous())
        return out

    @staticmethod
    def backward(ctx, grad):
        return Exchange.apply(grad)


def exchanged(inner):
    return lambda x, *others: inner(Exchange.apply(x), *others)


def layers() -> Layers:
    found = Layers()
    for nodes in found.nodes[1:]:
        nodes[1], nodes[3] = map(exchanged, (nodes[1], nodes[3]))
    return found


def main(folder: Path, rank: int) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store",
                            rank=rank, world_size=2)
    test_overlap.SEED = rank
    found = {}
    for order in "fixed", "auto":
        mine = layers()
        with Overlap(mine.nodes, overlap=order,
                     group=dist.group.WORLD) as over:
            bits = beside(mine, over, 4, steps=4)
            stats = over.stats()
        found[order] = {"equal": equal(bits, apart(layers(), 4)), **stats}
    (folder / f"{rank}.json").write_text(json.dumps(found))
    dist.barrier()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
