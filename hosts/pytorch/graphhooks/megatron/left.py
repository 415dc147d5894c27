"""What calls leave in attributes, for other calls or for who asks for it.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib

import torch

dist = torch.distributed

# What sets the process group of an attention, and what that is in.
_SET = "set_context_parallel_group"
_KEPT = {"cp_group", "cp_global_ranks", "cp_stream"}
_LOGITS, _EXPERTS = "current_max_attn_logits", "recorded_topk_idx"


class KeptGroups:
    """What the attention of a segment keeps of process groups: Transformer
    Engine's has that of the last microbatch that has named one.  It is set
    before each call, as the attention would set it, so that graphs of several
    groups find and leave it as eager calls do."""

    def __init__(self, body):
        self._modules = [m for m in body.modules()
                         if hasattr(m, _SET) and _KEPT <= vars(m).keys()]
        self._first = [m.cp_group for m in self._modules]
        body.tell(self._modules, _KEPT)

    def enter(self, packed) -> dict:
        """Before a call on such sequences, or on none; returns what it is
        given besides, as it has to know which group is left there."""
        if _names_one(packed):
            self._set([packed.cp_group] * len(self._modules))
            return {}
        for module, first in zip(self._modules, self._first):
            if module.cp_group is not first:
                return {"kept_groups": [m.cp_group for m in self._modules]}
        return {}

    def follow(self, packed, kept) -> None:
        """Within a call, which may run again when others have been; `kept` is
        what enter() has given, or None."""
        if not _names_one(packed):
            self._set(kept or self._first)

    def _set(self, groups) -> None:
        for module, group in zip(self._modules, groups):
            if module.cp_group is not group:
                given = (None, None, None) if group is None else (
                    group, dist.get_process_group_ranks(group),
                    type(module).cp_stream)
                getattr(module, _SET)(*given, module.cp_comm_type)


def _names_one(packed) -> bool:
    """None with a size of 1 is this rank alone."""
    return getattr(packed, "cp_group", None) is not None \
        or getattr(packed, "local_cp_size", None) is not None


class Returned:
    """Attributes that calls leave for who asks for them later: the largest
    logits of attention until they are taken away (qk_clip,
    log_max_attention_logit), and the experts that routers have chosen, where
    they record that.  A segment returns what its call has left, and who calls
    it leaves that, as the call does."""

    def __init__(self, body):
        modules = [m for m in body.modules() if _LOGITS in vars(m)]
        replays = replays_of(body)
        self._places = [(m, _LOGITS, _largest) for m in modules] \
            + [(replay, _EXPERTS, _recorded) for replay in replays]
        body.tell(modules, [_LOGITS])
        body.tell(replays, [_EXPERTS])

    @contextlib.contextmanager
    def apart(self):
        """Within a segment, which may also run again: a list, in which those
        of the call are in the end."""
        found: list = []
        before = self._values()
        self._put([None] * len(before))
        try:
            yield found
            found += self._values()
        finally:
            self._put(before)

    def with_result(self, result, found: list):
        """What a segment returns."""
        return {"result": result, "left": found} if self._places else result

    def keep(self, returned):
        """What the layer returns."""
        if not self._places:
            return returned
        self._put([kept if new is None else keep(thing, kept, new)
                   for (thing, _, keep), kept, new in zip(
                       self._places, self._values(), returned["left"])])
        return returned["result"]

    def _values(self) -> list:
        return [vars(thing)[name] for thing, name, _ in self._places]

    def _put(self, values: list) -> None:
        for (thing, name, _), value in zip(self._places, values):
            vars(thing)[name] = value


def replays_of(body) -> list:
    """What routers have for routing replay."""
    return [replay for m in body.modules() for replay in [
        vars(m).get("router_replay")] if replay is not None]


def _largest(_, kept, new):
    return new.clone() if kept is None else torch.max(kept, new)


def _recorded(replay, _, new):
    """A buffer that the call has copied them to has them already."""
    return new.clone() if replay.static_buffer is None \
        else replay.static_buffer[:len(new)]
