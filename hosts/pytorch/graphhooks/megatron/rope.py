"""Rotary embeddings of packed sequences in a segment: Megatron's own without
fusion takes a buffer apart by lengths that it waits for, and a graph cannot.
Here each token finds its position on the device.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import importlib

import torch

_MODULE = "megatron.core.models.common.embeddings.rope_utils"
_OWN = "_apply_rotary_pos_emb_thd"
_OF_TOKENS = "_apply_rotary_pos_emb_bshd"


@contextlib.contextmanager
def on_the_device(packed):
    """While a segment runs on such sequences, or on none."""
    rope = None if packed is None else importlib.import_module(_MODULE)
    own = getattr(rope, _OWN, None)
    if own is None or not hasattr(rope, _OF_TOKENS):
        yield
        return
    setattr(rope, _OWN, _apply)
    try:
        yield
    finally:
        setattr(rope, _OWN, own)


def _apply(t, cu_seqlens, freqs, rotary_interleaved=False,
           mla_rotary_interleaved=False, mscale=1.0, cp_group=None,
           multi_latent_attention=None):
    """As Megatron's, to the bit."""
    rope = importlib.import_module(_MODULE)
    places = _places(t.size(0), cu_seqlens, freqs.size(0), cp_group.size(),
                     cp_group.rank())
    return getattr(rope, _OF_TOKENS)(
        t.unsqueeze(1), freqs.index_select(0, places),
        rotary_interleaved=rotary_interleaved,
        mla_rotary_interleaved=mla_rotary_interleaved
        if multi_latent_attention is None else multi_latent_attention,
        mscale=mscale).squeeze(1)


def _places(tokens: int, cu_seqlens, most: int, size: int, rank: int):
    """Of each token of this rank, which has the `rank`th piece of every
    sequence from its front and from its back, in embeddings of so many
    places: those of a sequence, or of the whole buffer, if it has as many."""
    lengths = (cu_seqlens[1:] - cu_seqlens[:-1]) // size
    ends = lengths.cumsum(0)
    each = torch.arange(tokens, device=ends.device)
    of = torch.bucketize(each, ends, right=True).clamp_(max=len(lengths) - 1)
    places = each - (ends - lengths)[of]
    if size > 1:
        half = lengths[of] // 2
        places = torch.where(
            places < half, places + rank * half,
            places + size * lengths[of] - (rank + 2) * half)
    if most == tokens * size:
        places = places + cu_seqlens[of]
    # A sequence may be longer than it says: no read past the end.
    return places.clamp(max=most - 1)
