"""Variables of the environment, and wrappers of a model, that decide whether
and how graphs run.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os

from ..errors import Error

_FSDP = ("FullyShardedDataParallel", "TorchFullyShardedDataParallel",
         "MegatronFSDP")
_CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"


def refuse_fsdp(chunk) -> None:
    """Among what wraps a chunk."""
    while chunk is not None:
        for kind in type(chunk).__mro__:
            if kind.__name__ in _FSDP:
                raise Error(f"the model is in {kind.__name__}, whose "
                            "parameters come and go; graphs need them in "
                            "place: use Megatron's DistributedDataParallel, "
                            "with the distributed optimizer")
        chunk = getattr(chunk, "module", None)


def refuse_registration(group) -> None:
    """Of memory that moves, by NCCL in graphs."""
    allocator = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "") \
        + os.environ.get("PYTORCH_ALLOC_CONF", "")
    if group is not None and "expandable_segments:True" in allocator \
            and os.environ.get("NCCL_GRAPH_REGISTER") != "0":
        raise Error("expandable_segments:True: NCCL registers the memory of "
                    "collectives in graphs, which that allocator unmaps: set "
                    "NCCL_GRAPH_REGISTER=0, or leave expandable_segments out")


def is_apart(config) -> bool:
    """Whether each microbatch has a process group of its own."""
    return bool(getattr(config, "hybrid_context_parallel", False))


def has_attention(words) -> bool:
    return not words or any(word.name == "attn" for word in words)


def refuse_apart() -> None:
    """Ranks of one process group have the same microbatches."""
    raise Error("hybrid_context_parallel gives each microbatch a process "
                "group of its own, and these layers run in another one: "
                "without tensor and expert parallelism leave group= out, else "
                "leave attn out of the scope")


def notes_of(config, chunks) -> list:
    """What matters for speed, and what eager steps get wrong too."""
    return _of_connections(config) + _of_wrapping(config, chunks)


def _of_connections(config) -> list:
    connections = os.environ.get(_CONNECTIONS)
    if connections == "1" and config.overlap_moe_expert_parallel_comm:
        return [f"{_CONNECTIONS}=1 puts the work of all streams into one "
                "queue, so that exchanges of overlap_moe_expert_parallel_comm "
                "wait for computing: leave it out, or set it to 32"]
    if connections != "1" and config.sequence_parallel:
        return [f"{_CONNECTIONS} is {connections or 'not set'}: with "
                "sequence_parallel, and a GPU before Blackwell, Megatron asks "
                "for 1, so that collectives start before what they overlap "
                "with, also in graphs"]
    return []


def _of_wrapping(config, chunks) -> list:
    """Hooks of a wrapper that take a gradient before it is there."""
    if not config.delay_wgrad_compute:
        return []
    for chunk in chunks:
        while chunk is not None:
            wraps = getattr(chunk, "ddp_config", None)
            if wraps is not None and not wraps.delay_wgrad_compute:
                return ["delay_wgrad_compute is on in the model's config and "
                        "off in DistributedDataParallelConfig, so that "
                        "main_grad gets weight gradients which are not "
                        "computed yet, in eager steps too: set it in both"]
            chunk = getattr(chunk, "module", None)
    return []
