"""Paragraphs of a text, packed into microbatches for ranks that share them by
Megatron's context parallelism.

A rank has as many tokens of each microbatch as args.sequence says.  Static: all
ranks of a context-parallel group have a piece of each paragraph.  Dynamic: a
paragraph is on as few ranks as it fits on, one, two, four and so on, and the
other ranks have paragraphs of their own meanwhile, without a collective for
all of them.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import re
from types import SimpleNamespace

import torch
from megatron.core import parallel_state
from megatron.core.datasets.data_schedule import HybridCPDataLoaderWrapper
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer.module import MegatronModule
from options import Fault

distributed = torch.distributed
# Of a microbatch at most, with one of padding alone.  Transformer Engine's
# deterministic attention takes no 64 of up to 1,024 tokens on Hopper.
SEQUENCES = 32
# Tokens that a paragraph of Megatron's schedule is a multiple of: it is a
# microbatch by itself, and one of another length has graphs of its own.
_LENGTH = 64
# What graphs get as many of as there may be.
OFFSETS = tuple(f"packed_seq_params.cu_seqlens_{name}" for name in (
    "q", "kv", "q_padded", "kv_padded"))
_OF_MICROBATCH = "packed_seq_params.cp_group"


def attach_options(shape) -> dict:
    """Of a model that is trained on these."""
    if shape.dynamic == "schedule":  # whose groups Megatron's config says
        return {"max_banks": shape.context * shape.sequence // _LENGTH + 1}
    options = {"packed": dict.fromkeys(OFFSETS, SEQUENCES)}
    return {**options, "group": _OF_MICROBATCH} if shape.dynamic else options


def dealt(offsets, tokens: int, size: int, rank: int):
    """Where the tokens of a rank are in the whole buffer: it has the `rank`th
    piece of each sequence from its front and from its back, as Megatron deals
    them out.  `offsets`: of sequences with their padding, on any device."""
    lengths = (offsets[1:] - offsets[:-1]) // size
    ends = lengths.cumsum(0)
    each = torch.arange(tokens, device=offsets.device)
    of = torch.bucketize(each, ends, right=True).clamp(max=len(lengths) - 1)
    places, half = each - (ends - lengths)[of], lengths[of] // 2
    places = torch.where(places < half, places + rank * half,
                         places + size * lengths[of] - (rank + 2) * half)
    return places + offsets[of] if size > 1 else each


class Gathered(torch.autograd.Function):
    """Along the sequence, from all ranks of a group."""

    @staticmethod
    def forward(ctx, piece, group):
        ctx.group, size = group, distributed.get_world_size(group)
        whole = piece.new_empty(size * piece.shape[0], *piece.shape[1:])
        distributed.all_gather_into_tensor(whole, piece.contiguous(),
                                           group=group)
        return whole

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        distributed.all_reduce(grad, group=ctx.group)
        return grad.chunk(distributed.get_world_size(ctx.group))[
            distributed.get_rank(ctx.group)], None


class Attention(MegatronModule):
    """Of sequences with padding behind them, which nobody attends to: for
    Megatron's local spec, whose own takes none that are packed."""

    def __init__(self, config, layer_number, attn_mask_type, attention_type,
                 **_):
        super().__init__(config)

    def forward(self, query, key, value, *_, packed_seq_params, **__):
        packed, group = packed_seq_params, packed_seq_params.cp_group
        if packed.local_cp_size is None:
            group = parallel_state.get_context_parallel_group()
        size = 1 if group is None else distributed.get_world_size(group)
        rank = distributed.get_rank(group) if size > 1 else 0
        offsets = packed.cu_seqlens_q_padded
        actual = packed.cu_seqlens_q[1:] - packed.cu_seqlens_q[:-1]
        ranks = [dealt(offsets, len(query), size, r) for r in range(size)]
        if size > 1:
            key, value = (Gathered.apply(t, group) for t in (key, value))
        ours, all_ = ranks[rank], torch.cat(ranks)
        ends = offsets[1:].contiguous()
        of = torch.bucketize(all_, ends, right=True).clamp(max=len(ends) - 1)
        is_token = all_ - offsets[of] < actual[of]
        mask = (torch.bucketize(ours, ends, right=True)[:, None] == of) \
            & (all_ <= ours[:, None]) & is_token
        scores = torch.einsum("qhd,khd->hqk", query, key) \
            / query.shape[-1] ** 0.5
        scores = scores.masked_fill(~mask, -10000.0).softmax(-1)
        return torch.einsum("hqk,khd->qhd", scores, value)


def padded(tokens: int, size: int) -> int:
    """Of a sequence that so many ranks have two pieces of each."""
    return -(-tokens // (2 * size)) * 2 * size


class Text:
    """What the ranks of a row learn.  The same microbatches for each training,
    other ones for each group of ranks that share paragraphs."""

    def __init__(self, args, world, shape):
        self._room, self._device = args.sequence, world.device
        self._context, self._dynamic = shape.context, shape.dynamic
        block, self._mine = divmod(world.rank, shape.context)
        if self._room % 2:
            raise Fault(f"--sequence {self._room}: a rank has two pieces of "
                        "each packed sequence, so give an even number")
        self._most = shape.context * self._room
        self._text = [torch.frombuffer(bytearray(part), dtype=torch.uint8)
                      for part in self._parts(args.text)]
        self._numbers = torch.Generator().manual_seed(
            args.seed * 1_000_003 + block)
        self._all, self._steps = self._rounds(), []

    def _parts(self, path):
        """With one token more than there are inputs, as each predicts the
        next."""
        for part in re.split(rb"\n\s*\n", path.read_bytes()):
            part = part.strip() + b"\n"
            for at in range(0, len(part) - 1, self._most):
                yield part[at:at + self._most + 1]

    # ---- who has what ------------------------------------------------------

    def _sequences(self):
        while True:
            for i in torch.randperm(len(self._text), generator=self._numbers):
                yield self._text[i]

    def _rounds(self):
        """Of each microbatch on how many ranks a paragraph of it is, and the
        paragraphs of each group of so many."""
        context, room = self._context, self._room
        sizes = [1 << i for i in range(context.bit_length())] \
            if self._dynamic else [context]
        open_ = {s: [[] for _ in range(context // s)] for s in sizes}

        def takes(group, size) -> int:
            return sum(padded(len(t) - 1, size) for t in group)

        for text in self._sequences():
            size = next(s for s in sizes
                        if padded(len(text) - 1, s) <= s * room)
            group = min(open_[size], key=lambda g: takes(g, size))
            if takes([*group, text], size) > size * room \
                    or len(group) == SEQUENCES - 1:
                yield size, open_[size]
                open_[size] = [[] for _ in range(context // size)]
                group = open_[size][0]
            group.append(text)

    def _step(self, step: int, count: int) -> list:
        while len(self._steps) <= step:
            rounds = [next(self._all) for _ in range(count)]
            # To Megatron's loader each rank brings a paragraph at least.
            while self._dynamic == "schedule" \
                    and len(_texts(rounds)) < self._context:
                rounds.append(next(self._all))
            self._steps.append(rounds)
        return self._steps[step]

    # ---- microbatches ------------------------------------------------------

    def microbatches(self, step: int, count: int) -> list:
        """Inputs, targets, and what else the model gets."""
        if self._dynamic == "schedule":
            return [self._scheduled(step, count)]
        return [self._batch(size, groups[self._mine // size])
                for size, groups in self._step(step, count)]

    def tokens(self, counts) -> int:
        """Of a step, without padding, on average; the first rank of a group
        has them all."""
        texts = [t for step, count in enumerate(counts)
                 for t in _texts(self._step(step, count))]
        return sum(len(t) - 1 for t in texts) // len(counts) \
            if self._mine == 0 else 0

    def _scheduled(self, step: int, count: int):
        """The paragraphs of as many microbatches, as Megatron's loader gives
        them to its schedule."""
        texts = _texts(self._step(step, count))
        samples = [_sample(text, min(-(-(len(text) - 1) // _LENGTH) * _LENGTH,
                                     self._most))
                   for text in texts[self._mine::self._context]]
        whole = {name: torch.cat([one[name] for one in samples])
                 .to(self._device) for name in samples[0]}
        lengths = [len(one["tokens"]) for one in samples]
        whole["cu_seqlens"] = torch.tensor([0, *lengths],
                                           dtype=torch.int32).cumsum(0)
        return HybridCPDataLoaderWrapper(iter([[whole]]), SimpleNamespace(
            max_seqlen_per_dp_cp_rank=self._room))

    def _batch(self, size: int, sequences) -> tuple:
        total = size * self._room
        inputs, targets, places = torch.zeros(3, total, dtype=torch.long)
        weights = torch.zeros(total)
        ends, offsets = [0], [0]
        for text in sequences:
            count, at = len(text) - 1, offsets[-1]
            of = slice(at, at + count)
            inputs[of], targets[of] = text[:-1], text[1:]
            places[of], weights[of] = torch.arange(count), 1.0
            ends.append(ends[-1] + count)
            offsets.append(at + padded(count, size))
        # What is left is a sequence of padding alone.
        ends, offsets = (torch.tensor(t, dtype=torch.int32) for t in (
            [*ends, ends[-1]], [*offsets, total]))
        piece = dealt(offsets, self._room, size, self._mine % size)
        inputs, targets, places, weights = (
            t[piece][None].to(self._device)
            for t in (inputs, targets, places, weights))
        ends, offsets = ends.to(self._device), offsets.to(self._device)
        return inputs, targets, {
            "places": places,
            "weights": weights / weights.sum().clamp(min=1.0),
            "packed": PackedSeqParams(
                qkv_format="thd", cu_seqlens_q=ends, cu_seqlens_kv=ends,
                cu_seqlens_q_padded=offsets, cu_seqlens_kv_padded=offsets,
                # Bounds, so that microbatches have graphs in common.
                max_seqlen_q=total, max_seqlen_kv=total,
                local_cp_size=size if self._dynamic else None,
                cp_group=parallel_state
                .get_hybrid_data_context_parallel_groups(group_size=size)
                if self._dynamic and size > 1 else None,
                pad_between_seqs=True)}


def _texts(rounds) -> list:
    return [text for _, groups in rounds for group in groups
            for text in group]


def _sample(text, length: int) -> dict:
    """With padding behind it, so that it has so many tokens."""
    count = len(text) - 1
    tokens, targets, places, weights = (
        torch.nn.functional.pad(t, (0, length - count)) for t in (
            text[:-1].long(), text[1:].long(), torch.arange(count),
            torch.ones(count)))
    return {"tokens": tokens, "targets": targets, "places": places,
            "weights": weights, "ends": torch.full_like(tokens, count)}


def piece_of(sample: dict) -> dict:
    """What the model gets of a paragraph that Megatron's schedule gives to
    this rank and to others."""
    size, length = int(sample["local_cp_size"]), len(sample["tokens"])
    device, group, rank = sample["tokens"].device, None, 0
    if size > 1:
        group = parallel_state.get_hybrid_data_context_parallel_groups(
            group_size=size)
        rank = distributed.get_rank(group)
    offsets = torch.tensor([0, length], dtype=torch.int32, device=device)
    piece = dealt(offsets, length // size, size, rank)
    batch = {name: sample[name][piece][None] for name in (
        "tokens", "targets", "places", "weights")}
    batch["weights"] /= batch["weights"].sum().clamp(min=1.0)
    ends = torch.cat((offsets[:1], sample["ends"][:1].int()))
    return {**batch, "packed": PackedSeqParams(
        qkv_format="thd", cu_seqlens_q=ends, cu_seqlens_kv=ends,
        cu_seqlens_q_padded=offsets, cu_seqlens_kv_padded=offsets,
        max_seqlen_q=length, max_seqlen_kv=length, local_cp_size=size,
        cp_group=group, pad_between_seqs=True)}
