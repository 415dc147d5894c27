"""The random numbers that modules draw on the host, which no replay would.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import pickle
import random
import sys

import torch

from ..base.tree import Passing


def is_generator(value) -> bool:
    """Of random numbers of the host, whose state can be asked for."""
    if isinstance(value, random.Random):
        return not isinstance(value, random.SystemRandom)
    if isinstance(value, torch.Generator):
        return value.device.type == "cpu"
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (
        numpy.random.Generator, numpy.random.RandomState,
        numpy.random.BitGenerator))


def _state(generator):
    if isinstance(generator, random.Random):
        return generator.getstate()
    if hasattr(generator, "bit_generator"):
        return generator.bit_generator.state
    if hasattr(generator, "state"):
        return generator.state
    return generator.get_state()


def _put_state(generator, state) -> None:
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = state
    elif hasattr(generator, "state"):
        generator.state = state
    else:
        generator.set_state(state)


def _are_equal(state, other) -> bool:
    if isinstance(state, torch.Tensor):
        return state.tolist() == other.tolist()  # on the host
    if isinstance(state, tuple) and type(state[0]) is int:  # of Python's own
        return state == other
    return pickle.dumps(state) == pickle.dumps(other)


class HostNumbers:
    """The state of all that draw, as it is when this is made: those that are
    for everybody, and a layer's `own`.  What a graph draws from is none."""

    def __init__(self, graphs, own=()):
        everybody = [random.getstate.__self__]
        if "numpy" in sys.modules:
            everybody.append(sys.modules["numpy"].random.get_state.__self__)
        everybody.append(torch.default_generator)
        self._states = [(each, _state(each)) for each in (*everybody, *own)
                        if not any(each is other for other in graphs)]

    def refuse_draws(self, who: str) -> None:
        """Those of since then."""
        if not self.are_same(self.now()):
            raise Passing(f"{who} draws random numbers on the host, of "
                          "Python, numpy or torch, which a replay would not")

    def put_back(self) -> None:
        for each, before in self._states:
            _put_state(each, before)

    def now(self) -> "HostNumbers":
        """Of the same that draw."""
        other = object.__new__(type(self))
        other._states = [(each, _state(each)) for each, _ in self._states]
        return other

    def are_same(self, other: "HostNumbers") -> bool:
        return all(_are_equal(mine, theirs) for (_, mine), (_, theirs)
                   in zip(self._states, other._states))


def all_numbers(graphs, own=()) -> HostNumbers:
    """Those that graphs draw from, too."""
    return HostNumbers((), (*graphs, *own))
