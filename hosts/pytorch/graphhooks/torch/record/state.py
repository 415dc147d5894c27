"""What a pass begins with: what modules hold in Python, random numbers, and
what is in tensors that the pass may write.

A forward that is recorded has such a state from before its capture, in which
nothing could be copied.  Should the recording of its backward fail after
autograd has begun, its modules run once more from there (backwards.py):
functions may have dropped what they need.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import torch

from ..base import private
from ..grad.strides import memory_of
from ..guard.attributes import Attributes
from ..guard.draws import HostNumbers
from ..guard.settings import Settings


def before_pass(segment) -> "State":
    """Of a forward of the segment whose backward is to be recorded; no capture
    has begun."""
    read = segment.settings
    if read is None:
        segment.owner.things.look()
        read = Settings(segment.sites, segment.owner.things)
    state = State(segment, read.generators)
    state.read = None if read is segment.settings else read
    try:
        state.keep(written(segment, state.attributes, read))
    except torch.OutOfMemoryError:
        pass  # who runs again sees by the results what has changed since
    return state


class State:
    """That of a segment, as it is when this is made."""

    def __init__(self, segment, generators):
        captures = segment.owner.captures
        self._segment, self._generators = segment, generators
        self.attributes = Attributes(segment)
        self.numbers = HostNumbers(captures.generators, generators)
        self._drawn = HostNumbers((), captures.generators)
        self._kept: list = []  # tensors, and copies of what is in them
        self.versions: list = []  # tensors, and the versions that were read
        self.read: Settings | None = None  # if nobody had read them before

    def keep(self, tensors) -> None:
        with torch.no_grad():
            self._kept = [(t, memory_of(t.data).clone()) for t in tensors]

    def now(self) -> "State":
        """Of the same, by now."""
        other = State(self._segment, self._generators)
        other.keep([t for t, _ in self._kept])
        return other

    def put_back(self) -> None:
        self.attributes.put_back()
        self.numbers.put_back()
        self._drawn.put_back()
        for tensor, copy in self._kept:
            memory_of(tensor.data).copy_(copy)  # autograd does not hear of it

    def undo(self) -> None:
        """A recording has not been: nothing has run but Python."""
        self.attributes.put_back()
        self.numbers.put_back()

    def note_pass(self, instance, tensors, outputs) -> None:
        """It has run, on these, and the caller has the outputs."""
        instance.before = self
        read = [*self._segment.parameters.all, *(
            t for t, inside in zip(tensors, instance.inputs)
            if t.data_ptr() == inside.data_ptr())]
        self.versions = [(t.detach(), private.version(t)) for t in read]
        instance.given = [(o.detach(), private.version(o)) for o in outputs]

    def was_written(self) -> bool:
        """Whether one that was read is another by now, to autograd."""
        return any(private.version(t) != then for t, then in self.versions)


def written(segment, attributes: Attributes, settings: Settings) -> list:
    """Tensors that the modules may write: their buffers, what they have in
    attributes, and what they read elsewhere, as tables of quantizers are; none
    of the weights or of their gradients."""
    weights = {t.untyped_storage().data_ptr() for p in segment.parameters.all
               for t in (p, vars(p).get("main_grad"))
               if isinstance(t, torch.Tensor)}
    found = [b for site in segment.sites for m in site.module.modules()
             for b in private.buffers_of(m).values() if b is not None]
    found += attributes.tensors() + settings.tensors()
    return [t for t in {id(t): t for t in found}.values()
            if type(t) is torch.Tensor and t.layout == torch.strided
            and not (t.is_meta or t.is_inference())
            and t.untyped_storage().data_ptr() not in weights]
