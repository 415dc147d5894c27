"""The process group whose ranks run the captured layers together.

Collectives of tensor, context and expert parallelism are within what a scope
names; all ranks of a collective record and launch a graph together.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import torch

from ..errors import Error

# Where context parallelism is dynamic, the argument that has a microbatch's.
OF_MICROBATCH = "packed_seq_params.cp_group"


def group_of(names, config, words, layers):
    """The smallest that has all ranks of all collectives in the segments, or
    None, if no other rank is in any."""
    used = [g for g in _used(names, config, words, layers) if _size(g) > 1]
    if not used:
        return None
    ranks = {r for g in used for r in _ranks(g)}
    fit = [g for g in _known(names) if ranks <= set(_ranks(g))]
    if not fit:
        raise Error("the captured layers have collectives of several process "
                    "groups, and none of Megatron's has all of their ranks: "
                    "give group=, one that has")
    return min(fit, key=_size)


def _used(names, config, words, layers):
    """Those of the collectives in what the words name."""
    parts = {w.name for w in words}
    has_experts = any(map(_dispatcher, layers))
    yield names.get_tensor_model_parallel_group(check_initialized=False)
    if not parts or parts & {"attn", "mamba"}:
        yield names.get_context_parallel_group(check_initialized=False)
    if not has_experts:
        return
    if not parts or parts & {"moe", "moe_router"}:
        yield names.get_tensor_and_context_parallel_group(
            check_initialized=False)
        if "global_aux_loss" in _balancing(config):
            yield _all(names)
    if not parts or parts & {"moe", "moe_preprocess"}:
        yield names.get_expert_tensor_and_model_parallel_group(
            check_initialized=False)


def _dispatcher(layer):
    return getattr(getattr(layer, "mlp", None), "token_dispatcher", None)


def _balancing(config) -> list:
    kinds = config.moe_router_load_balancing_type
    return [kinds] if isinstance(kinds, str) else kinds


def _known(names) -> list:
    """All that could be, of those that there are."""
    found = [get(check_initialized=False) for get in (
        names.get_tensor_model_parallel_group,
        names.get_context_parallel_group,
        names.get_tensor_and_context_parallel_group,
        names.get_expert_tensor_and_model_parallel_group)] + [_all(names)]
    return [g for g in found if g is not None]


def _all(names):
    """The ranks of a pipeline's stage."""
    return names.get_tensor_and_data_parallel_group(
        check_initialized=False, with_context_parallel=True)


def _size(group) -> int:
    return 1 if group is None else torch.distributed.get_world_size(group)


def _ranks(group) -> list:
    return torch.distributed.get_process_group_ranks(group)
