"""Packed sequences, whole or in pieces over the ranks of a process group.

Megatron's own attention without Transformer Engine takes none.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from models import DEVICE, torch
from training import (KINDS, LENGTH, WORDS, build_chunks,
                      get_gpt_layer_local_spec)

from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer.module import MegatronModule

dist = torch.distributed
SEQUENCES = 4  # of a microbatch, on all its ranks
BETWEEN = 1  # tokens at least


class _Gathered(torch.autograd.Function):
    """Along the sequence, from all ranks of a group."""

    @staticmethod
    def forward(ctx, piece, group):
        ctx.group, size = group, dist.get_world_size(group)
        whole = piece.new_empty(size * piece.shape[0], *piece.shape[1:])
        dist.all_gather_into_tensor(whole, piece.contiguous(), group=group)
        return whole

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad, group=ctx.group)
        return grad.chunk(dist.get_world_size(ctx.group))[
            dist.get_rank(ctx.group)], None


class Attention(MegatronModule):
    """Each token attends to those before it in its sequence."""

    def __init__(self, config, layer_number, attn_mask_type, attention_type,
                 **_):
        super().__init__(config)

    def forward(self, query, key, value, *_, packed_seq_params, **__):
        packed, group = packed_seq_params, packed_seq_params.cp_group
        first = 0
        if group is not None and dist.get_world_size(group) > 1:
            first = dist.get_rank(group) * query.shape[0]
            key, value = (_Gathered.apply(t, group) for t in (key, value))
        ours = torch.arange(first, first + query.shape[0],
                            device=query.device)
        all_ = torch.arange(key.shape[0], device=query.device)
        ends = packed.cu_seqlens_q[1:].contiguous()
        mask = (torch.bucketize(ours, ends, right=True)[:, None]
                == torch.bucketize(all_, ends, right=True)) \
            & (all_ <= ours[:, None])
        scores = torch.einsum("qhd,khd->hqk", query, key) \
            / query.shape[-1] ** 0.5
        scores = scores.masked_fill(~mask, -10000.0).softmax(-1)
        return torch.einsum("hqk,khd->qhd", scores, value)


def build_packed(kind, places="none", **more):
    spec = get_gpt_layer_local_spec(
        num_experts=KINDS[kind].get("num_moe_experts"),
        multi_latent_attention=kind == "mla")
    spec.submodules.self_attention.submodules.core_attention = Attention
    return build_chunks(kind, spec=spec, places=places, **more)


class Packed:
    """Microbatches, each of the process group that `groups` says, in turn;
    all ranks of one have pieces of the same."""

    batch = 1

    def __init__(self, groups=(None,), longest=LENGTH,
                 sequences=(SEQUENCES,)):
        self._numbers = torch.Generator().manual_seed(7)
        self._groups, self._count = groups, 0
        self._longest = longest  # as it says
        self._sequences = sequences

    def __iter__(self):
        return self

    def __next__(self):
        group = self._groups[self._count % len(self._groups)]
        sequences = self._sequences[self._count % len(self._sequences)]
        self._count += 1
        size = 1 if group is None else dist.get_world_size(group)
        mine = 0 if group is None else dist.get_rank(group)
        length = size * LENGTH
        tokens = torch.randint(0, WORDS, (1, length + 1),
                               generator=self._numbers)
        cuts = torch.randperm(length - 1, generator=self._numbers)
        cuts = cuts[:sequences - 1].sort().values + BETWEEN
        offsets = torch.tensor([0, *cuts.tolist(), length],
                               dtype=torch.int32).to(DEVICE)
        piece = slice(mine * LENGTH, (mine + 1) * LENGTH)
        return dict(
            input_ids=tokens[:, :-1][:, piece].contiguous().to(DEVICE),
            labels=tokens[:, 1:][:, piece].contiguous().to(DEVICE),
            position_ids=torch.arange(LENGTH, device=DEVICE)[None],
            attention_mask=None,
            packed_seq_params=PackedSeqParams(
                qkv_format="thd", cu_seqlens_q=offsets, cu_seqlens_kv=offsets,
                max_seqlen_q=self._longest, max_seqlen_kv=self._longest,
                local_cp_size=size if group is not None else None,
                cp_group=group))
