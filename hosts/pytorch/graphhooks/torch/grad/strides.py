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

from ..base.layouts import WIDE, overlaps
from ..base.memory import is_dense
from ..base.tree import Unserved


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

    def is_wide(self) -> bool:
        """As one row of many, whose memory is almost all of other rows."""
        return self.span > WIDE * self.size.numel()

    def copy(self, tensor):
        """Memory with the same numbers, or None where there is not enough:
        an element of it may be of several that are not the same there."""
        memory = torch.zeros(self.span, dtype=tensor.dtype,
                             device=tensor.device)
        laid = self.tensor_over(memory)
        for i, (n, stride) in enumerate(zip(self.size, self.stride)):
            if stride == 0 and n > 1:
                if tensor.stride(i) != 0:
                    return None
                laid, tensor = laid.narrow(i, 0, 1), tensor.narrow(i, 0, 1)
        if overlaps(laid):
            return None
        laid.copy_(tensor)
        return memory


def layout_of(grad):
    """Its strides, if it is dense; or those of a copy."""
    if is_dense(grad):
        return grad.stride()
    layout = Over(grad)
    return grad.contiguous().stride() if layout.is_wide() else layout


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


def like(parameter):
    """Memory for its gradient, laid out as autograd has it."""
    if not is_dense(parameter):
        return torch.empty(parameter.size(), dtype=parameter.dtype,
                           device=parameter.device)
    return torch.empty_strided(parameter.size(), parameter.stride(),
                               dtype=parameter.dtype,
                               device=parameter.device)


def read(segment, i: int, grad, output, layout):
    """The memory of an output's gradient, of a layout that a recording knows;
    zeros for none."""
    if type(layout) is Over:
        if grad is None:
            return output.new_zeros(layout.span)
        if _are_same(grad, layout.stride):
            return layout.memory_of(grad)
        _tell_of_copy(segment)
        memory = layout.copy(grad)
        if memory is None:
            raise Unserved(segment.name, f"the gradient of output {i} was "
                           "expanded when the backward was recorded, as that "
                           "of a sum is, and now it has a number for each "
                           "element: detach and attach again")
        return memory
    if grad is not None and _are_same(grad, layout):
        return grad
    like = output if grad is None else grad
    memory = torch.empty_strided(like.size(), layout, dtype=like.dtype,
                                 device=like.device)
    if grad is None:
        return memory.zero_()
    _tell_of_copy(segment)
    return memory.copy_(grad)


def _tell_of_copy(segment) -> None:
    segment.owner.count("strides")
    segment.owner.say(segment.name, "a gradient comes with other strides "
                      "than those of which the backward was recorded, and the "
                      "graph reads a copy: sums over it may come in another "
                      "order")


def _are_same(grad, stride) -> bool:
    """Where there is one element, any stride is."""
    return grad.stride() == stride or all(
        n == 1 or s == other
        for n, s, other in zip(grad.size(), grad.stride(), stride))


class Laid:
    """Gradients that are laid out otherwise than what they are of, as they
    come to whom eager gives them; `.grad` is a copy that is not."""

    def __init__(self, leaves):
        self._found: dict = {}
        self._came: set = set()
        self.several: set = set()  # of a backward within the backward, too
        self._handles = [t.register_hook(self._note(i, t.stride()))
                         for i, t in enumerate(leaves) if t.requires_grad]

    def _note(self, i: int, stride):
        def note(grad):
            if grad is None:
                return
            if i in self._came:  # autograd adds them up in `.grad`
                self.several.add(i)
                self._found.pop(i, None)
            elif grad.layout == torch.strided and grad.stride() != stride:
                self._found[i] = copy_of(grad)  # it may be another's as well
            self._came.add(i)

        return note

    def out(self, grads) -> list:
        """Those in place of theirs."""
        for handle in self._handles:
            handle.remove()
        return [self._found.get(i, grad) for i, grad in enumerate(grads)]
