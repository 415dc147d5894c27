"""Tensors that are not dense, as a graph is given them.

The library copies memory, not tensors: of a tensor with holes all that lies
between its first element and its last.  Where that is mostly not the tensor's,
as one layer's part of what is interleaved for all layers, a graph is given the
numbers alone, closed up in the same order.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import torch

from .memory import is_dense, span_of

WIDE = 4  # times a tensor's own elements, in what it lies over


def is_laid_out(tensor: torch.Tensor) -> bool:
    """Whether no two elements share memory, but along dimensions that repeat
    all of it, as those of a mask do that all heads share."""
    return is_dense(tensor) or not (
        tensor.is_neg() or overlaps(_without_repeats(tensor)))


def overlaps(tensor: torch.Tensor) -> bool:
    """Whether some memory is of several elements."""
    end = 0
    for stride, n in sorted(zip(tensor.stride(), tensor.size())):
        if n > 1 and stride <= end:
            return True
        end += (n - 1) * stride
    return False


def wide_ones(tensors) -> tuple:
    """Indices of those to be closed up."""
    return tuple([i for i, t in enumerate(tensors) if not t.is_contiguous()
                  and span_of(t) > WIDE * _without_repeats(t).numel()])


def close_up(tensors, wide) -> list:
    """Copies in the place of these."""
    tensors = [*tensors]
    for i in wide:
        tensors[i] = _without_repeats(tensors[i].detach()).clone().expand(
            tensors[i].size())
    return tensors


def _without_repeats(tensor: torch.Tensor) -> torch.Tensor:
    for i, (n, stride) in enumerate(zip(tensor.size(), tensor.stride())):
        if stride == 0 and n > 1:
            tensor = tensor.narrow(i, 0, 1)
    return tensor
