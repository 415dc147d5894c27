"""Whose optimizer has stepped: one of the stack's ends a step of the training.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import weakref

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook


class Optimizers:
    """Those that step while an attach is there."""

    def __init__(self, owner):
        self._owner = owner
        # Of each: how many parameters it has, and whether any is ours.
        self._known = weakref.WeakKeyDictionary()
        self.are_by_hand = True  # none of them has stepped, so far
        self._written: list | None = None  # versions of weights, by then
        self._hook = register_optimizer_step_post_hook(_when_alive(self))
        weakref.finalize(self, self._hook.remove)

    def close(self) -> None:
        self._hook.remove()

    def note_step(self, optimizer) -> None:
        """The next forward begins a step, if it is an optimizer of the
        stack's.  Not now: one that works inside the backward steps once for
        each parameter."""
        if self._is_ours(optimizer):
            self._owner.stepped = True
            self.are_by_hand = False

    def has_stepped_by_hand(self) -> bool:
        """Whether somebody without such an optimizer has written the weights
        since the last call, in place."""
        if not self.are_by_hand:
            return False
        before, self._written = self._written, [
            self._owner.gathering.version(),
            *(s.parameters.version() for s in self._owner.segments)]
        return before not in (None, self._written)

    def _is_ours(self, optimizer) -> bool:
        count, ours = self._known.get(optimizer, (0, False))
        now = sum(len(group["params"]) for group in optimizer.param_groups)
        if now != count:  # some come later
            theirs = [p for s in self._owner.segments
                      for p in s.parameters.all]
            theirs += [p for layer in self._owner.layers
                       for p in layer.module.parameters()]  # some came later
            known = {*map(id, theirs)}
            # Layers that are not trained lead to what is, such as a prompt.
            # What is no Parameter is an engine's copy of one, in fp32 or a
            # shard; of which one it does not say.
            ours = not any(p.requires_grad for p in theirs) or any(
                id(p) in known or not isinstance(p, torch.nn.Parameter)
                for group in optimizer.param_groups for p in group["params"])
            self._known[optimizer] = now, ours
        return ours


def _when_alive(optimizers):
    """torch keeps the hook for ever, and must not keep the model by it."""
    reference = weakref.ref(optimizers)

    def hook(optimizer, *_):
        alive = reference()
        if alive is not None:
            alive.note_step(optimizer)

    return hook
