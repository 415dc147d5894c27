"""What is used of Megatron-Core beyond what it documents, and looked for at
each attach, so that another version is refused by the name that it lacks.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import importlib
import logging
import types

import torch

from ..errors import Error

log = logging.getLogger("graphhooks")

CHECKED = ("0.19.2",)

# Where, and what of it.
_NAMES = {
    "megatron.core.transformer.module": (
        "GraphableMegatronModule._te_cuda_graph_replay",
        "GraphableMegatronModule._te_cuda_graph_capture",
        "GraphableMegatronModule._get_te_cuda_graph_replay_args",
        "GraphableMegatronModule._get_submodules_under_cudagraphs",
        "GraphableMegatronModule.setup_manual_hooks"),
    "megatron.core.transformer.cuda_graphs": (
        "_layer_is_graphable", "_set_capture_start", "_set_capture_end",
        "_set_warmup_start", "_set_warmup_end", "is_graph_capturing"),
    "megatron.core.transformer.identity_op": ("IdentityOp",),
    "megatron.core.pipeline_parallel.fine_grained_activation_offload": (
        "FineGrainedActivationOffloadingInterface.group_offload",
        "FineGrainedActivationOffloadingInterface.flush_delayed_groups",
        "PipelineOffloadManager.get_instance"),
    "megatron.core": ("parallel_state",),
    "megatron.core.transformer.enums": ("CudaGraphModule",),
    "megatron.core.transformer.moe.token_dispatcher": (
        "MoETokenDispatcher", "MoEAlltoAllTokenDispatcher.token_dispatch",
        "MoEAlltoAllTokenDispatcher.token_combine", "all_to_all"),
    "megatron.core.tensor_parallel.random": ("get_all_rng_states",),
    "megatron.core.parallel_state": (
        "get_tensor_model_parallel_group", "get_context_parallel_group",
        "get_tensor_and_context_parallel_group",
        "get_expert_tensor_and_model_parallel_group",
        "get_tensor_and_data_parallel_group",
        "get_pipeline_model_parallel_rank"),
    "megatron.core.utils": ("get_attr_wrapped_model",),
    "megatron.core.pipeline_parallel.utils": ("get_comm_stream",),
    "megatron.core.models.common.model_chunk_schedule_plan": (
        "TransformerModelChunkSchedulePlan.run",),
}


def load() -> types.SimpleNamespace:
    """All of them, by their last names."""
    try:
        import megatron.core as core
    except ImportError as missing:
        raise Error(f"megatron-core cannot be imported ({missing}): "
                    "pip install megatron-core") from None
    version = getattr(core, "__version__", "?")
    found = types.SimpleNamespace(version=version)
    for where, names in _NAMES.items():
        for name in names:
            value = _find(where, name)
            if value is None:
                raise Error(
                    f"megatron-core {version} has no {where}.{name}, by which "
                    f"graphs of layers are called; {' and '.join(CHECKED)} "
                    "have it: install that, or leave the attach out")
            setattr(found, name.split(".")[0], _find(where,
                                                     name.split(".")[0]))
    return found


def point_out(model) -> None:
    """That a model which is attached as any other one is Megatron's."""
    layer = _find("megatron.core.transformer.module",
                  "GraphableMegatronModule")
    if layer is None or not isinstance(model, torch.nn.Module):
        return
    if any(isinstance(module, layer) for module in model.modules()):
        log.warning("the model has layers of Megatron-Core: graphhooks."
                    "megatron.attach knows its scopes, process groups and "
                    "schedules, and what these leave in a layer")


def _find(where: str, name: str):
    try:
        value = importlib.import_module(where)
    except ImportError:
        return None
    for part in name.split("."):
        value = getattr(value, part, None)
    return value
