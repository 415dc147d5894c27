"""Whether a module's result depends on how many packed sequences there is room
for, seen before a graph has that much.

Attention does not see sequences without tokens.  Another module may: a mean
over sequences does, and so may a kernel that chooses its blocks by the longest.
So the first eager call of such a module runs once more, with what graphs would
be given, and all bits have to be the same.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import is_grad_enabled

from . import tree
from .attributes import Attributes
from .draws import HostNumbers
from .recording import undisturbed
from .settings import Settings


def can_be(site) -> bool:
    """Only in training."""
    return is_grad_enabled() and site.segment.refused is None \
        and site.module.training


def run(site, given, fixed, difference: str):
    """The result of the first; both are args and kwargs."""
    generators = site.segment.owner.captures.generators
    states = [g.get_state() for g in generators]
    versions = site.places.versions()
    result = site.play(*given[0], **given[1])
    if site.places.versions() != versions:
        return result  # it writes buffers, and would a second time
    after = [g.get_state() for g in generators]
    _put(generators, states)
    try:
        why = _compare(site, result, fixed, difference)
    finally:
        _put(generators, after)
    if why is not None:
        site.segment.refuse(why)
    return result


def _put(generators, states) -> None:
    for generator, state in zip(generators, states):
        generator.set_state(state)


def _compare(site, result, fixed, difference: str) -> str | None:
    """Why it is another one, where that is known without a wait."""
    owner = site.segment.owner
    try:
        other = _again(site, fixed)
    except tree.Unfit:
        return None  # the recording will say so
    except Exception as failure:  # whatever the module raises
        return (f"with {difference} it raises {type(failure).__name__}: "
                f"{str(failure).partition(chr(10))[0]}")
    why = (f"its result is another with {difference}, as graphs have it: "
           "leave the argument out of packed=, and out of what the layer "
           "computes with, or attach without it")
    tensors, others, key, other_key = [], [], [], []
    try:
        tree.gather(result, tensors, key)
        tree.gather(other, others, other_key)
    except tree.Unfit:
        return None
    if key != other_key:
        return why
    for one, two in zip(tensors, others):
        owner.comparisons.compare(_bits(one), _bits(two),
                                  lambda: site.segment.refuse(why))
    return None


def _again(site, fixed):
    """As if it had not been."""
    owner = site.segment.owner
    attributes = Attributes(SimpleNamespace(sites=[site]))
    owner.things.look()
    settings = Settings([site], owner.things)
    settings.refuse_unfit()
    numbers = HostNumbers(owner.captures.generators, settings.generators)
    try:
        with undisturbed(True):
            return site.plain(*fixed[0], **fixed[1])
    finally:
        attributes.put_back()
        settings.put_back()
        numbers.put_back()


def _bits(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
