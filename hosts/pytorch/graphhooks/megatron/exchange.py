"""The library's exchange in the place of the all-to-alls of Megatron's token
dispatcher.

A dispatcher calls its module's `all_to_all`, for tokens, for their
probabilities, and for what the experts have made of them.  While one of the
model's does so, another function stands there.  The gradients take the same
way back.  One window serves all layers.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import math
import sys

import torch

from ..errors import Error
from ..exchange import KINDS, Exchange
from ..torch.base.private import copy_as_ever, copy_without

IN_GRAPHS = "exchange: the scope has all-to-alls in its graphs, and these " \
    "stay Megatron's: exchange is for those beside graphs"
_METHODS = ("token_dispatch", "token_combine")


def of(names, config, word, tokens, chunks, words):
    """What stands there, or None.  `words`: of the scope."""
    if word is None:
        if tokens is not None:
            raise Error("exchange_tokens is the room for exchange=, which is "
                        "not given: give \"auto\", or leave both out")
        return None
    if word not in KINDS:
        raise Error(f"exchange is {word!r}; there are {', '.join(KINDS)}, and "
                    "None for Megatron's own")
    if tokens is not None and (not isinstance(tokens, int) or tokens < 1):
        raise Error(f"exchange_tokens is {tokens!r}; it is the most tokens "
                    "that a rank has in a microbatch")
    found = {id(m.token_dispatcher): m.token_dispatcher for chunk in chunks
             for m in chunk.modules() if isinstance(
                 getattr(m, "token_dispatcher", None),
                 names.MoEAlltoAllTokenDispatcher)}
    if config.num_moe_experts and not found \
            and config.moe_token_dispatcher_type != "alltoall":
        raise Error("exchange= is for moe_token_dispatcher_type=\"alltoall\", "
                    f"and the config has {config.moe_token_dispatcher_type!r}:"
                    " leave exchange out")
    # Graphs that hold all-to-alls have Megatron's.
    inside = not words or names.CudaGraphModule.moe in words
    return Exchanges(names, config, word, tokens, [
        d for d in found.values() if not (inside and d.drop_and_pad)],
        IN_GRAPHS if inside and any(
            d.drop_and_pad for d in found.values()) else None)


class _OfTokens(Exchange):
    """Which says how many tokens it would need room for."""

    tokens = 0  # the most that this rank has had in a microbatch
    bytes_of_one = 1  # that go to one rank, at most

    def _remedy(self, bytes_: int) -> str:
        most = max(self.tokens, -(-bytes_ // self.bytes_of_one))
        return "attach with exchange_tokens=, the most tokens that a rank " \
            f"has in a microbatch, here {most}"


class Exchanges:
    """One for each group of ranks that have experts of a layer."""

    def __init__(self, names, config, word: str, tokens, dispatchers, note):
        self._module = sys.modules[
            names.MoEAlltoAllTokenDispatcher.__module__]
        self._word, self._config = word, config
        self._tokens = tokens
        self._dispatchers = dispatchers
        self.note = note
        self._alone = not (config.overlap_moe_expert_parallel_comm
                           or config.moe_shared_expert_overlap)
        self._made: dict = {}  # by process group
        for dispatcher in dispatchers:
            for name in _METHODS:
                setattr(dispatcher, name, self._around(dispatcher, name))
            copy_without(dispatcher, _METHODS, {})

    def put_back(self) -> None:
        """All ranks."""
        for dispatcher in self._dispatchers:
            copy_as_ever(dispatcher)
            for name in _METHODS:
                vars(dispatcher).pop(name, None)
        self._dispatchers = []
        while self._made:
            self._made.pop(next(iter(self._made))).close()

    def _around(self, dispatcher, name: str):
        method, module = getattr(type(dispatcher), name), self._module

        def call(*args, **kwargs):
            own = module.all_to_all

            def all_to_all(group, x, come=None, go=None, **how):
                found = None if group.size() == 1 \
                    or torch.cuda.is_current_stream_capturing() \
                    else self._of(dispatcher, group, x)
                if found is None or found.kind == "nccl":
                    return own(group, x, come, go, **how)
                found.tokens = max(found.tokens, math.prod(
                    dispatcher.hidden_shape[:-1]))
                return found.all_to_all(x, come, go)

            module.all_to_all = all_to_all
            try:
                return method(dispatcher, *args, **kwargs)
            finally:
                module.all_to_all = own

        return call

    def _of(self, dispatcher, group, x) -> Exchange:
        """All ranks of the group come here at the same call."""
        if group not in self._made:
            row = math.prod(x.shape[1:]) * x.element_size()
            tokens = math.prod(dispatcher.hidden_shape[:-1])
            most = max(tokens, self._tokens or getattr(
                self._config, "max_seqlen_per_dp_cp_rank", None) or 0)
            part = row * self._rows(dispatcher, group, x, tokens, most)
            made = self._made[group] = _OfTokens(
                group, kind=self._word, alone=self._alone, part_bytes=part)
            made.bytes_of_one = max(part // most, 1)
        return self._made[group]

    def _rows(self, dispatcher, group, x, tokens: int, most: int) -> int:
        """The most that a rank sends to another one, of `most` tokens;
        `tokens` are those of `x`."""
        config = self._config
        if dispatcher.drop_and_pad:  # as many for each expert
            return -(-x.shape[0] * most // (tokens * group.size())) \
                + dispatcher.num_local_experts
        # A token goes to an expert once.
        each = dispatcher.num_local_experts
        if not config.moe_router_padding_for_quantization:
            each = min(each, config.moe_router_topk)
        return most * each

    # ---- what is said ---------------------------------------------------

    def stats(self) -> list:
        """Of each group."""
        return [{"ranks": x.size, "reason": x.reason, **x.stats()}
                for x in self._made.values()]

    def __str__(self) -> str:
        return "\n".join(
            f"exchange of tokens by {x.kind}, {x.size} ranks"
            + (f": {x.reason}" if x.reason else
               f", a window of {2 * x.size * x.part_bytes >> 20} MiB"
               if x.kind != "nccl" else "")
            + (f", and {x.large_parts} parts that are larger than a rank's "
               f"room of {x.part_bytes} bytes, of up to {x.largest_bytes}, "
               f"by torch.distributed: {x._remedy(x.largest_bytes)}"
               if x.large_parts else "") for x in self._made.values())
