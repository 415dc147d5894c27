"""Groups that an engine marks in its own code, by names of its own.

A group is what autograd saves between begin() and end(); commit() says that
the memory may go.  What is marked while a segment runs is recorded with it,
as any group of a module is; the rest of a layer runs eagerly, and so do its
groups.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import torch

from .bracket import fixed_of
from .offload import NAMES, Nothing, Offload, asked as asked_words


def asked(options: dict):
    """What is asked for: words, or an engine's Marks."""
    if isinstance(options.get("offload"), Marks):
        return options.pop("offload")
    return asked_words(options)


def names_of(words) -> tuple:
    """Of groups, as the library is told them."""
    return words.names if isinstance(words, Marks) else NAMES


def of(owner, words):
    """What an attach offloads."""
    if isinstance(words, Marks):
        return MarkedOffload(owner, words)
    return Offload(owner, words) if words else Nothing()


class Marks:
    """What attach(offload=) takes of an engine, and what that calls then.

    `layers`: (name, module, whether it has a segment) of each, those with a
    segment first and in the order of the attach; `may_go(tensor)` says which
    of the saved tensors go, besides those that never do."""

    def __init__(self, names, layers, may_go=None):
        self.names = tuple(names)
        self.may_go = may_go
        self.layers = [Place(i, *layer) for i, layer in enumerate(layers)]
        self.offload: MarkedOffload | None = None
        self.paused = False  # nothing is moved, but by graphs that do
        self._late: list = []  # groups to be committed in the next gap

    def begin(self, layer: int, name: str, inside: bool):
        """A group, or None where nothing of it is moved; `inside` the run of
        the layer's segment, or beside it."""
        offload = self.offload
        if offload is None or self.paused:
            return None
        place = self.layers[layer]
        work, key = offload.work(place), (layer, name)
        if not work or not offload.goes(key):
            return None
        if not inside:
            offload.beside.add(key)
        return Marked(self, work.group(place, key, frozenset()))

    def later(self, marked) -> None:
        """It is copied in the next flush()."""
        self._late.append(marked)

    def flush(self) -> None:
        late, self._late = self._late, []
        for marked in late:
            marked.close()


class Marked:
    """One group, open from begin() to end()."""

    def __init__(self, marks, group):
        self._marks = marks
        self._group = group
        self._hooks = torch.autograd.graph.saved_tensors_hooks(group.pack,
                                                               group.unpack)
        self._hooks.__enter__()

    def end(self) -> None:
        self._hooks.__exit__()
        self._hooks = None

    def commit(self, late: bool = False) -> None:
        if late:
            self._marks.later(self)
        else:
            self.close()

    def close(self) -> None:
        with torch.no_grad():
            self._group.close(())


class Place:
    """A layer, as groups ask for it (bracket.py)."""

    def __init__(self, layer: int, name: str, module, has_segment: bool):
        self.layer = layer
        self.name = name
        self.module = module
        self.has_segment = has_segment
        self.segment: int | None = None  # of the plan

    def fixed(self) -> set:
        return fixed_of(self.module)


class MarkedOffload(Offload):
    """Of an attach whose engine marks its groups."""

    def __init__(self, owner, marks: Marks):
        super().__init__(owner, marks.names)
        self.names = marks.names
        self.beside: set = set()  # keys of groups that no segment runs
        self._marks = marks
        marks.offload = self

    def attach(self, segment) -> None:
        """Its layers have their groups marked."""

    def attach_rest(self, planned) -> None:
        for segment in planned:
            for i in range(segment.first_layer, segment.last_layer + 1):
                self._marks.layers[i].segment = segment.index

    def check(self) -> None:
        """Whether there are some shows when layers run."""

    def declared(self) -> list:
        return [key for key in self.sizes
                if self.segments[key] is not None]

    def is_elsewhere(self, key, graphed) -> bool:
        return key in self.beside or super().is_elsewhere(key, graphed)

    def may_go(self):
        return self._marks.may_go

    def layer_name(self, layer: int) -> str:
        return self._marks.layers[layer].name

    def settle(self) -> None:
        self._marks.flush()  # those of the last layer, too
        super().settle()

    def step(self) -> None:
        self._marks.flush()
        super().step()

    def close(self) -> None:
        self._marks.offload = None
        super().close()
