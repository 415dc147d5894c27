"""What is compared, on which shapes, in how many steps.

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import dataclasses

VOCABULARY = 50304


@dataclasses.dataclass(frozen=True)
class Case:
    """One shape with one number of microbatches a step."""

    layers: int
    hidden: int
    sequence: int
    microbatches: int
    vocabulary: int = VOCABULARY
    batch: int = 1

    @property
    def shape(self) -> str:
        return f"h{self.hidden}s{self.sequence}"

    @property
    def name(self) -> str:
        return f"{self.shape}m{self.microbatches}"

    @property
    def heads(self) -> int:
        return self.hidden // 64

    def to_dict(self) -> dict:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Steps:
    """Every row of a case takes the same steps, so that the losses of each
    can be compared."""

    plain: int = 2      # before anything is prepared
    prepared: int = 6   # while it records and warms up, one at a time
    timed: int = 20     # a turn
    issued: int = 24    # with an idle device at their start

    @property
    def all(self) -> int:
        return self.plain + self.prepared + self.timed + self.issued


SHAPES = {
    "h1024s256": (24, 1024, 256),
    "h1024s1024": (24, 1024, 1024),
    "h2048s2048": (24, 2048, 2048),
}
QUICK_SHAPES = {
    "h128s32": (3, 128, 32),
    "h128s64": (3, 128, 64),
}
MICROBATCHES = (1, 4)
QUICK_STEPS = Steps(timed=6, issued=4)

# The shape where the host is slower than the device.
LAUNCH_BOUND = ("h1024s256", "h128s32")

# In the order of a turn: what is compared with each other runs close by.
TORCH_ROWS = ("eager", "graphed", "compile", "layer", "chunk", "step")
MEGATRON_ROWS = ("eager", "local", "full_iteration", "layer", "chunk")
ROWS = tuple([f"torch/{row}" for row in TORCH_ROWS]
             + [f"megatron/{row}" for row in MEGATRON_ROWS])

WORDS = {
    "torch/eager": "eager",
    "torch/graphed": "torch.cuda.make_graphed_callables, a layer each",
    "torch/compile": "torch.compile(mode=\"reduce-overhead\")",
    "torch/layer": "graphhooks, layer",
    "torch/chunk": "graphhooks, chunk",
    "torch/step": "the whole step as one torch.cuda.graph (the floor)",
    "megatron/eager": "Megatron-Core, eager",
    "megatron/local": "Megatron-Core, local graphs",
    "megatron/full_iteration": "Megatron-Core, full_iteration graph",
    "megatron/layer": "Megatron-Core, graphhooks, layer",
    "megatron/chunk": "Megatron-Core, graphhooks, chunk",
}

# What a look without a GPU can have: neither graphs nor Megatron-Core.  One
# of them compiles for a minute, so only who names it gets it.
ON_CPU = ("torch/eager", "torch/compile")
ON_CPU_BY_DEFAULT = ("torch/eager",)

# What takes a minute to prepare does it once.
ONE_TURN = ("torch/compile",)


def cases(shapes: dict, microbatches) -> list[Case]:
    """Small shapes first: what a process leaves behind is then little."""
    vocabulary = VOCABULARY if shapes is SHAPES else 512
    return [Case(*shapes[shape], count, vocabulary)
            for shape in shapes for count in microbatches]
