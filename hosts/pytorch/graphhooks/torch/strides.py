"""Gradients that are not dense: expanded, or with holes.

A sum gives one number back for all that went into it (stride 0), and a part
of a complex tensor lies between the numbers of the other part.  Kernels go
through these in another order than through dense ones, and so do their sums.
The library copies memory, not tensors: a graph reads and writes the memory
that such a gradient lies over, and autograd is given the gradient over it.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import torch

from ..errors import Error
from .memory import is_dense


class Over:
    """How a tensor lies over dense memory, from its first element to its
    last."""

    def __init__(self, tensor):
        self.size, self.stride = tensor.size(), tensor.stride()
        self.span = 1 + sum((n - 1) * s
                            for n, s in zip(self.size, self.stride))

    def memory_of(self, tensor):
        return tensor.as_strided((self.span,), (1,))

    def tensor_over(self, memory):
        return memory.as_strided(self.size, self.stride)

    def overlaps(self) -> bool:
        """Whether some memory is of several elements."""
        end = 0
        for stride, n in sorted(zip(self.stride, self.size)):
            if n > 1 and stride <= end:
                return True
            end += (n - 1) * stride
        return False


def layout_of(grad):
    """Its strides, if it is dense."""
    if is_dense(grad):
        return grad.stride()
    if grad.is_neg():  # its memory has the other sign
        return grad.contiguous().stride()
    return Over(grad)


def as_laid(memory, layout):
    """The gradient that autograd is given."""
    return layout.tensor_over(memory) if type(layout) is Over else memory


def memory_of(tensor):
    """What the library is told of: the tensor, if it is dense."""
    return tensor if is_dense(tensor) else Over(tensor).memory_of(tensor)


def copy_of(tensor):
    """With the same strides."""
    if tensor.layout != torch.strided or is_dense(tensor):
        return tensor.clone()
    layout = Over(tensor)
    return layout.tensor_over(layout.memory_of(tensor).clone())


def read(segment, i: int, grad, output, layout):
    """The memory of an output's gradient, of a layout that a recording knows;
    zeros for none."""
    over = layout if type(layout) is Over else None
    stride = over.stride if over else layout
    if grad is not None and _are_same(grad, stride):
        if over is None:
            return grad
        if not grad.is_neg():
            return over.memory_of(grad)
    if grad is not None:
        _tell_of_copy(segment, i, over)
    like = output if grad is None else grad
    memory = torch.zeros(over.span if over else like.numel(),
                         dtype=like.dtype, device=like.device)
    laid = memory.as_strided(like.size(), stride)
    if grad is not None:
        laid.copy_(grad)
    return memory if over else laid


def _tell_of_copy(segment, i: int, over) -> None:
    if over and over.overlaps():
        raise Error(f"{segment.name}: the gradient of output {i} was expanded "
                    "when the backward was recorded, as that of a sum is, and "
                    "now it is not so: detach and attach again")
    segment.owner.count("strides")
    segment.owner.say(f"{segment.name}: a gradient comes with other strides "
                      "than when the backward was recorded, and the graph "
                      "reads a copy: sums over it may come in another order")


def _are_same(grad, stride) -> bool:
    """Where there is one element, any stride is."""
    return grad.stride() == stride or all(
        n == 1 or s == other
        for n, s, other in zip(grad.size(), grad.stride(), stride))


class Laid:
    """Gradients that are laid out otherwise than what they are of, as they
    come to whom eager gives them; `.grad` is a copy that is not."""

    def __init__(self, inputs):
        self._found: dict = {}
        self._handles = [t.register_hook(self._note(i, t.stride()))
                         for i, t in enumerate(inputs) if t.requires_grad]

    def _note(self, i: int, stride):
        def note(grad):
            if grad is None or grad.layout != torch.strided:
                return
            if grad.stride() != stride:
                self._found[i] = copy_of(grad)  # it may be another's as well

        return note

    def out(self, grads) -> list:
        """Those in place of theirs."""
        for handle in self._handles:
            handle.remove()
        return [self._found.get(i, grad) for i, grad in enumerate(grads)]
