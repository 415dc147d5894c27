"""Packed sequences, whole or in pieces over the ranks of a process group.

Megatron's own attention without Transformer Engine takes none.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import copy
import inspect
import sys
import types
from pathlib import Path

from models import DEVICE, torch
from training import (KINDS, LENGTH, WORDS, build_chunks,
                      get_gpt_layer_local_spec)

from megatron.core import parallel_state
from megatron.core.datasets.data_schedule import HybridCPDataLoaderWrapper
from megatron.core.models.common.embeddings.rotary_pos_embedding import (
    RotaryEmbedding)
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer.module import MegatronModule
from megatron.core.utils import get_batch_on_this_cp_rank

sys.path.append(str(Path(__file__).resolve().parents[2]
                    / "hosts/pytorch/examples"))
from megatron_packed import Attention as DealtAttention  # noqa: E402
from megatron_packed import Gathered, dealt  # noqa: E402

dist = torch.distributed
SEQUENCES = 4  # of a microbatch, on all its ranks
BETWEEN = 1  # tokens at least


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
            key, value = (Gathered.apply(t, group) for t in (key, value))
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


class KeepingAttention(Attention):
    """It keeps the process group of the last microbatch that has named one, as
    Transformer Engine's does, whose names these are."""

    cp_stream = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.set_context_parallel_group(None, None, None, "p2p")

    def set_context_parallel_group(self, group, ranks, stream, kind):
        self.cp_group, self.cp_global_ranks = group, ranks
        self.cp_stream, self.cp_comm_type = stream, kind

    def forward(self, query, key, value, *rest, packed_seq_params, **more):
        packed = copy.copy(packed_seq_params)
        if packed.cp_group is not None:
            self.set_context_parallel_group(
                packed.cp_group, dist.get_process_group_ranks(packed.cp_group),
                type(self).cp_stream, self.cp_comm_type)
        elif packed.local_cp_size is not None:
            self.set_context_parallel_group(None, None, None,
                                            self.cp_comm_type)
        packed.cp_group = self.cp_group
        return super().forward(query, key, value, *rest,
                               packed_seq_params=packed, **more)


_GROUP = ("cp_group=self.pg_collection.cp,",
          "cp_group=packed_seq_params.cp_group,")
_LATENT = ("get_query_key_value_tensors", (
    _GROUP, ("packed_seq_params.local_cp_size is None", "True"),
    ("self.config.context_parallel_size == 1", "False")))


def by_its_group(kind, is_latent: bool):
    """Megatron's attention, with rotary embeddings by the process group of the
    microbatch.  Its own go by one that is always the same, and its latent
    attention refuses another."""
    name, changes = _LATENT if is_latent else ("forward", (_GROUP,))
    source = inspect.getsource(getattr(kind, name))
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    made: dict = {}
    exec("class Of:\n" + source, vars(inspect.getmodule(
        getattr(kind, name))), made)
    return type(kind.__name__, (kind,), {name: vars(made["Of"])[name]})


def build_packed(kind, places="none", attention=Attention, **more):
    spec = get_gpt_layer_local_spec(
        num_experts=KINDS[kind].get("num_moe_experts")
        or more.get("num_moe_experts"),
        multi_latent_attention=kind == "mla")
    of = spec.submodules.self_attention
    of.submodules.core_attention = attention
    if attention is DealtAttention:
        of.module = by_its_group(of.module, kind == "mla")
    return build_chunks(kind, spec=spec, places=places, **more)


def build_dealt(kind, **more):
    return build_packed(kind, places="rope", attention=DealtAttention, **more)


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
            **self._batch(tokens, piece),
            packed_seq_params=PackedSeqParams(
                qkv_format="thd", cu_seqlens_q=offsets, cu_seqlens_kv=offsets,
                max_seqlen_q=self._longest, max_seqlen_kv=self._longest,
                local_cp_size=size if group is not None else None,
                cp_group=group))

    @staticmethod
    def _batch(tokens, piece) -> dict:
        """This rank's piece of the tokens, and of those after each."""
        return dict(
            input_ids=tokens[:, :-1][:, piece].contiguous().to(DEVICE),
            labels=tokens[:, 1:][:, piece].contiguous().to(DEVICE),
            position_ids=torch.arange(LENGTH, device=DEVICE)[None],
            attention_mask=None)


class Dealt(Packed):
    """Sequences with padding, so that each is as long on all ranks, and behind
    them one of padding alone.  Every now and then Megatron lets its tables of
    rotary embeddings go, as it does with those of many lengths."""

    def __next__(self):
        group = self._groups[self._count % len(self._groups)]
        count = self._sequences[self._count % len(self._sequences)]
        self._count += 1
        if self._count % 9 == 0:
            RotaryEmbedding.forward.cache_clear()
        size, mine = dist.get_world_size(group), dist.get_rank(group)
        unit = 2 * size  # of which there are so many in the buffer
        units = LENGTH // 2
        cuts = torch.randperm(units - 1, generator=self._numbers)
        cuts = cuts[:count].sort().values + 1
        padded = torch.tensor([0, *cuts.tolist(), units]) * unit
        room = padded[1:] - padded[:-1]
        actual = (torch.rand(count + 1, generator=self._numbers)
                  * room).int() + 1
        actual[-1] = 0
        tokens = torch.randint(0, WORDS, (1, size * LENGTH + 1),
                               generator=self._numbers)
        piece = dealt(padded, LENGTH, size, mine)
        actual, padded = (t.to(torch.int32).to(DEVICE) for t in (
            torch.tensor([0, *actual.cumsum(0).tolist()]), padded))
        return dict(
            **self._batch(tokens, piece),
            packed_seq_params=PackedSeqParams(
                qkv_format="thd", cu_seqlens_q=actual, cu_seqlens_kv=actual,
                cu_seqlens_q_padded=padded, cu_seqlens_kv_padded=padded,
                max_seqlen_q=self._longest, max_seqlen_kv=self._longest,
                local_cp_size=size, cp_group=group))


MOST = LENGTH  # tokens of a rank
# Of sequences, times that; 0 are as many as ranks.  By step, and by rank.
LENGTHS = ((1, 1), (2, 1)), ((0,), (1,)), ((2,), (1, 1, 1))


class Scheduled:
    """Batches of Megatron's dynamic context parallelism.  Each rank brings
    sequences of several lengths; Megatron's scheduler says which ranks have a
    piece of which, and its loader sends them there.  Its schedule takes a
    batch at a time, and gives the model one sequence after the other."""

    batch = 1

    def __init__(self):
        self._loader = HybridCPDataLoaderWrapper(
            self._samples(), types.SimpleNamespace(
                max_seqlen_per_dp_cp_rank=MOST))

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._loader)

    @staticmethod
    def _samples():
        rank = dist.get_rank()
        numbers = torch.Generator().manual_seed(7 + rank)
        for step in range(1 << 30):
            lengths = [(length or dist.get_world_size()) * MOST for length
                       in LENGTHS[step % len(LENGTHS)][rank % 2]]
            tokens = torch.randint(0, WORDS, (sum(lengths) + 1,),
                                   generator=numbers).to(DEVICE)
            yield [dict(
                tokens=tokens[:-1], labels=tokens[1:],
                position_ids=torch.cat([torch.arange(n) for n in lengths])
                .to(DEVICE), cu_seqlens=torch.tensor(
                    [0, *lengths], dtype=torch.int32).cumsum(0))]

    @staticmethod
    def take(sample) -> dict:
        """What the model gets of a sequence: this rank's piece, by Megatron's
        own division."""
        size, length = int(sample["local_cp_size"]), len(sample["tokens"])
        offsets = torch.tensor([0, length], dtype=torch.int32).to(DEVICE)
        names = "tokens", "labels", "position_ids"
        mine = get_batch_on_this_cp_rank(
            {**{n: sample[n][None] for n in names}, "cu_seqlens": offsets,
             "local_cp_size": sample["local_cp_size"]}, is_hybrid_cp=True,
            hybrid_cp_group_func=parallel_state
            .get_hybrid_data_context_parallel_groups)
        tokens, labels, places = (mine[n].contiguous() for n in names)
        return dict(
            input_ids=tokens, labels=labels, position_ids=places,
            attention_mask=None, packed_seq_params=PackedSeqParams(
                qkv_format="thd", cu_seqlens_q=offsets, cu_seqlens_kv=offsets,
                cu_seqlens_q_padded=offsets, cu_seqlens_kv_padded=offsets,
                max_seqlen_q=4 * MOST, max_seqlen_kv=4 * MOST,
                local_cp_size=size, cp_group=mine.get("hybrid_cp_group")))
