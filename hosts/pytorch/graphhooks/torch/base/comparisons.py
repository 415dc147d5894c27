"""Whether tensors are equal, asked of the device now and read later.

Who reads at once waits for the device, and a backward has a question for each
layer: large layers take half as long again.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import torch

from . import private
from .memory import synchronize

_MANY = 1024  # answers that wait, of a loop that never comes to read them
_AT_ONCE = 64 << 20  # bytes of tensors that are compared by one launch
_ROUNDINGS = 8


class Comparisons:
    """Those of an attach."""

    def __init__(self):
        self.waiting: list = []  # answers, and who is to be told

    def compare(self, tensor, other, tell) -> None:
        """Of one shape and dtype: tell(), by the end of the next settle(), if
        they differ.  NaNs do."""
        self.waiting.append((torch.ne(tensor, other).any(), tell))
        if len(self.waiting) >= _MANY:
            self.settle()

    def settle(self) -> None:
        """Waits for the device, if somebody has asked."""
        if not self.waiting:
            return
        waiting, self.waiting = self.waiting, []
        if waiting[0][0].is_cuda:  # backwards have streams of their own
            synchronize(waiting[0][0].device)
        answers = torch.stack([answer for answer, _ in waiting])
        for differ, (_, tell) in zip(answers.tolist(), waiting):
            if differ:
                tell()


def first_difference(pairs) -> int | None:
    """The first pair of tensors, or of None, that are not the same bits: a
    NaN is itself, and zeros have a sign.  Waits for the device once."""
    unlike = len(pairs)  # the first of which that is known at once
    answers, batch, nbytes = [], [], 0
    for i, (one, other) in enumerate(pairs):
        if one is None and other is None:
            continue
        if not are_alike(one, other):
            unlike = i
            break
        if one is other or not one.numel():
            continue
        batch.append((i, _bits(one), _bits(other)))
        nbytes += batch[-1][1].numel()
        if nbytes >= _AT_ONCE:
            answers += _compare(batch)
            batch, nbytes = [], 0
    answers += _compare(batch)
    if answers:
        where, flags = zip(*answers)
        on = flags[0].device
        flags = torch.stack([flag.to(on, non_blocking=True)
                             for flag in flags]).tolist()
        unlike = min([unlike] + [i for i, flag in zip(where, flags) if flag])
    return unlike if unlike < len(pairs) else None


def same_bits(one, other) -> bool:
    """As the same for two tensors."""
    return first_difference([(one, other)]) is None


def are_of_rounding(pairs) -> bool:
    """Whether those that differ do so as one sum does in another order: by at
    most some units in the last place of the largest number there.  Waits for
    the device."""
    unlike = [(one, other) for one, other in pairs
              if first_difference([(one, other)]) is not None]
    return bool(unlike) and all(
        are_alike(one, other) and one.is_floating_point()
        and _most(_wide(one) - _wide(other)) <= _ROUNDINGS
        * torch.finfo(one.dtype).eps * _most(_wide(one))
        for one, other in unlike)


def _wide(tensor):
    return tensor.detach().to(max(tensor.dtype, torch.float32,
                                  key=lambda dtype: dtype.itemsize))


def _most(tensor) -> float:
    return tensor.abs().max().item()


def are_alike(one, other) -> bool:
    """Whether nothing but the numbers can be other ones."""
    return one is not None and other is not None and (
        one.shape, one.dtype, one.device, one.layout) == (
        other.shape, other.dtype, other.device, other.layout) \
        and one.layout == torch.strided


def _bits(tensor):
    return tensor.detach().resolve_neg().contiguous().reshape(-1).view(
        torch.uint8)


def _compare(batch) -> list:
    """Of each which it is, and a tensor that is not 0 if they differ."""
    found: list = []
    by_device: dict = {}
    for i, one, other in batch:
        by_device.setdefault(one.device, []).append((i, one, other))
    for of in by_device.values():
        where, ours, theirs = map(list, zip(*of))
        found += zip(where, private.foreach_max(
            private.foreach_sub(ours, theirs)))
    return found
