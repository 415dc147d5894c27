"""Who waits for the gradient of a parameter, and what a pass of autograd does
with it.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from torch.autograd.graph import get_gradient_edge

from ..base import private
from ..base.private import has_hooks, will_run
from ..guard.words import Field, used_of


class Unheard:
    """A parameter without hooks on its gradient, but for so many of ours."""

    def __init__(self, parameter, ours: int):
        self._parameter, self._ours = parameter, ours
        self._hooks = private.hooks_of_leaf(parameter)
        self._field = Field(private.hooks_of_leaf, parameter, self._hooks)

    def words(self) -> list:
        words = [used_of(each) for each in self._hooks if each is not None]
        words.append(self._field.words())
        return sum(words, []) if all(words) else []

    def is_same(self) -> bool:
        return self._field.is_same() \
            and not private.have_hooks([self._parameter], self._ours, bool)


def is_watched(parameter) -> bool:
    """Whether somebody waits for the parameter's gradient: who puts a hook on
    the node that adds it up keeps that node alive, as DDP does."""
    if has_hooks(parameter):
        return True
    get_gradient_edge(parameter).node.metadata["graphhooks"] = True
    again = get_gradient_edge(parameter).node
    return again.metadata.pop("graphhooks", None) is not None


def is_held(parameter, ours: int = 0) -> bool:
    """Whether Python keeps the node that adds its gradient up, as engines do
    that have a hook there, and we; a loss that is kept has no such
    reference."""
    return private.references(parameter) > ours


ADDED, GIVEN, LEFT = "added to .grad", "given to who asks", "left alone"


def fate(parameters) -> str:
    """What the pass of autograd at hand does with their gradients."""
    return fate_by(get_gradient_edge(p).node for p in parameters)


def fate_by(nodes) -> str:
    """What it does with gradients that come to these."""
    try:
        found = any(map(will_run, nodes))
    except RuntimeError:  # that one's is what autograd.grad() is asked for
        return GIVEN
    return ADDED if found else LEFT
