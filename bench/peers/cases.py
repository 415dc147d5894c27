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
    in_flight: int = 1  # forwards before the first backward, of torch rows
    # Of the rows of Transformer Engine's layers:
    kind: str = ""
    fp8: str = ""
    experts: int = 16
    pattern: str = ""

    @property
    def shape(self) -> str:
        return shape_of(self.to_dict())

    @property
    def name(self) -> str:
        several = f"f{self.in_flight}" if self.in_flight > 1 else ""
        return f"{self.shape}m{self.microbatches}{several}"

    @property
    def heads(self) -> int:
        return self.hidden // 64

    def to_dict(self) -> dict:
        return dataclasses.asdict(self)


def shape_of(case: dict) -> str:
    """Also of a case that a file has, which may lack what is new."""
    kind, fp8 = (case.get(name) for name in ("kind", "fp8"))
    return "".join(filter(None, (
        kind and f"{kind}_", fp8 and "fp8_",
        f"h{case['hidden']}s{case['sequence']}")))


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
# Only who names one gets it: where copies to the host's memory take as long as
# the compute beside them.
LONG_SHAPES = {
    "h4096s8192": (6, 4096, 8192),
}
QUICK_SHAPES = {
    "h128s32": (3, 128, 32),
    "h128s64": (3, 128, 64),
}
# Those of the rows of Transformer Engine's layers; hybrids have as many
# layers as their patterns.  The large ones need an H200 for their optimizer,
# and have fewer words to fit there.
_SMALL, _EXPERTS, _LARGE = (24, 1024, 512), (12, 1024, 512), (16, 4096, 4096)
_OF_LARGE = {"kind": "dense", "vocabulary": 8192}
TE_KINDS = {
    "dense": (_SMALL, {"kind": "dense"}),
    "dense_fp8": (_SMALL, {"kind": "dense", "fp8": "delayed"}),
    "moe": (_EXPERTS, {"kind": "moe"}),
    "moe_fp8": (_EXPERTS, {"kind": "moe", "fp8": "delayed"}),
    "moe_pad": (_EXPERTS, {"kind": "moe_pad"}),
    "moe_pad_fp8": (_EXPERTS, {"kind": "moe_pad", "fp8": "delayed"}),
    "mla_moe": (_EXPERTS, {"kind": "mla_moe"}),
    "hybrid": (_EXPERTS, {"kind": "hybrid", "pattern": "*-*E" * 3}),
    "mamba": (_EXPERTS, {"kind": "mamba", "pattern": "M*-E" * 3}),
    "dense_large": (_LARGE, _OF_LARGE),
    "dense_large_fp8": (_LARGE, {**_OF_LARGE, "fp8": "delayed"}),
    "offload": ((8, 2048, 4096), {"kind": "offload", "batch": 2,
                                  "vocabulary": 8192}),
    "delay": (_EXPERTS, {"kind": "delay"}),
}
# What is most worth knowing first, as time on a GPU may end.
TE_CASES = tuple(
    f"{kind}:{count}" for count, kinds in (
        (4, "dense moe moe_pad dense_fp8 offload delay dense_large mla_moe "
            "hybrid"), (1, "dense moe"), (8, "dense moe"),
        (4, "dense_large_fp8 moe_pad_fp8 moe_fp8 mamba"),
        (1, "moe_pad dense_fp8 mla_moe"), (8, "moe_pad dense_fp8 mla_moe"))
    for kind in kinds.split())
# Experts whose tokens the host counts are in no graph of more than a scope;
# Megatron's local graphs of such a scope end with a CUDA error as they are
# captured.
TE_WHOLE = ("te/local", "te/full_iteration", "te/chunk")
TE_COUNTED = ("moe", "mla_moe", "hybrid", "mamba", "delay")
MICROBATCHES = (1, 4)
QUICK_STEPS = Steps(timed=6, issued=4)
TE_STEPS = Steps(timed=10, issued=6)
# Of a row that nothing but losses and a rough time is wanted of.
FEW_STEPS = {"timed": 4, "issued": 2}

# The shape where the host is slower than the device.
LAUNCH_BOUND = ("h1024s256", "h128s32")

# In the order of a turn: what is compared with each other runs close by.
TORCH_ROWS = ("eager", "graphed", "compile", "layer", "chunk", "step")
MEGATRON_ROWS = ("eager", "local", "full_iteration", "layer", "chunk")
DEFAULT_ROWS = tuple([f"torch/{row}" for row in TORCH_ROWS]
                     + [f"megatron/{row}" for row in MEGATRON_ROWS])
# What goes to the host's memory and comes back: who names one gets it, or all
# of torch's and what they are compared with by the name `offload`.
OFFLOAD_ROWS = ("torch/save_on_cpu", "torch/eager+offload",
                "torch/layer+offload", "torch/chunk+offload",
                "megatron/offload")
TE_ROWS = tuple(f"te/{row}" for row in (
    "eager", "te", "scope", "te+offload", "scope+offload", "eager+recompute",
    "te+delay", "scope+delay", "chunk", "full_iteration", "local"))
# A row with something more has a case of its own, and is compared with the
# same row without.
_MORE = ("offload", "delay")
ROWS = DEFAULT_ROWS + OFFLOAD_ROWS + TE_ROWS
SETS = {"te": TE_ROWS,
        "offload": ("torch/eager", "torch/layer", "torch/chunk",
                    *OFFLOAD_ROWS[:4])}

WORDS = {
    "torch/eager": "eager",
    "torch/graphed": "torch.cuda.make_graphed_callables, a layer each",
    "torch/compile": "torch.compile(mode=\"reduce-overhead\")",
    "torch/layer": "graphhooks, layer",
    "torch/chunk": "graphhooks, chunk",
    "torch/step": "the whole step as one torch.cuda.graph (the floor)",
    "torch/save_on_cpu": "torch.autograd.graph.save_on_cpu, pinned",
    "torch/eager+offload": "graphhooks, eager, offload",
    "torch/layer+offload": "graphhooks, layer, offload",
    "torch/chunk+offload": "graphhooks, chunk, offload",
    "megatron/offload": "Megatron-Core, eager, fine-grained offload",
    "megatron/eager": "Megatron-Core, eager",
    "megatron/local": "Megatron-Core, local graphs",
    "megatron/full_iteration": "Megatron-Core, full_iteration graph",
    "megatron/layer": "Megatron-Core, graphhooks, layer",
    "megatron/chunk": "Megatron-Core, graphhooks, chunk",
    "te/eager": "Megatron-Core, Transformer Engine's layers, eager",
    "te/te": "Megatron-Core, transformer_engine graphs",
    "te/local": "Megatron-Core, local graphs",
    "te/full_iteration": "Megatron-Core, full_iteration graph",
    "te/scope": "graphhooks, the scope of transformer_engine graphs",
    "te/te+offload": "transformer_engine graphs, offload",
    "te/scope+offload": "graphhooks, the same scope, offload",
    "te/eager+recompute": "Megatron-Core, eager, the same computed again",
    "te/te+delay": "transformer_engine graphs, delayed weight gradients",
    "te/scope+delay": "graphhooks, the same scope, delayed weight gradients",
    "te/chunk": "graphhooks, chunk",
}

# What a look without a GPU can have: neither graphs nor Megatron-Core.  One
# of them compiles for a minute, so only who names it gets it.
ON_CPU = ("torch/eager", "torch/compile")
ON_CPU_BY_DEFAULT = ("torch/eager",)

# What takes a minute to prepare, or most of a case's time, does it once.
ONE_TURN = ("torch/compile", "te/eager")


def cases(shapes: dict, microbatches, in_flight: int = 1) -> list[Case]:
    """Small shapes first: what a process leaves behind is then little."""
    quick = shapes.keys() <= QUICK_SHAPES.keys()
    vocabulary = 512 if quick else VOCABULARY
    return [Case(*shapes[shape], count, vocabulary,
                 in_flight=min(in_flight, count))
            for shape in shapes for count in microbatches]


def te_cases(words) -> list[Case]:
    """Of words such as moe:4."""
    return [_te_case(*word.split(":")) for word in words]


def _te_case(kind: str, count: str) -> Case:
    shape, more = TE_KINDS[kind]
    return Case(*shape, int(count), **more)


def bare(row: str) -> str:
    """The same row with nothing more, which it is compared with."""
    return row.split("+")[0]


def fits(row: str, kind: str) -> bool:
    """Whether a case of that kind has such a row."""
    if row.startswith("te/") and kind in _MORE:
        return row in ("te/eager", "te/te", "te/scope") \
            or row.endswith(f"+{kind}") \
            or row.endswith("+recompute") and kind == "offload"
    return not (row in TE_WHOLE and kind in TE_COUNTED
                or row.startswith("te/") and "+" in row)


# Milliseconds of the host for a layer and a microbatch, eagerly, and the share
# of them that a row takes; as seen with an H100.
_EAGER_MS = {"dense": 6.6, "offload": 25.0, "moe_pad": 18.0}
_SHARES = {"te/eager": 1.0, "te/local": 0.3, "te/full_iteration": 0.1}


def seconds(row: str, case: Case, steps: Steps) -> float:
    """About what a turn of a te row takes; 0 of others."""
    if not row.startswith("te/"):
        return 0.0
    counted = case.kind in TE_COUNTED
    eager = case.layers * case.microbatches * _EAGER_MS.get(case.kind, 18.0)
    if case.hidden > 2048:
        share, eager = 1.0, 200.0 * case.microbatches  # the device's
    else:
        share = _SHARES.get(row, 0.6 if counted or case.kind == "offload"
                            else 0.25)
    count = steps.all + steps.issued
    if row == "te/eager":
        count += sum(FEW_STEPS.values()) - steps.timed - steps.issued
    return (20.0 if case.hidden > 2048 else 10.0) \
        + count * eager * share * 1e-3
