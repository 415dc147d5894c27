"""Whether a module's result depends on how many packed sequences there is room
for, or on how a tensor lies in memory, seen before a graph has it otherwise.

Attention does not see sequences without tokens.  Another module may: a mean
over sequences does, and so may a kernel that chooses its blocks by the
longest.  So the first eager call of such a module runs once more, with what
graphs would be given, and all bits have to be the same; and so does the first
call in which an argument is less than its room that never was before.  That
run has copies of all that it could write: of tensors and containers that the
call is given, of parameters and of buffers.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import is_grad_enabled

from ..base import private, tree
from ..base.memory import is_dense
from ..guard.attributes import Attributes
from ..guard.draws import HostNumbers, all_numbers
from ..guard.storage_addresses import lent
from ..guard.settings import Settings
from ..record.again import Contents, elsewhere, traceless
from ..record.recording import undisturbed


def can_be(site, call) -> bool:
    """Only in training, and with what can be copied; other calls are none for
    graphs, and what they are given may count how often."""
    if not is_grad_enabled() or site.segment.refused is not None \
            or not site.module.training:
        return False
    try:
        tree.gather(call, [], [])
    except tree.Unfit:
        return False
    return True


def is_fit(site) -> bool:
    """Where other ranks try it too nothing is in the way once they do: they
    would wait in the module's collectives."""
    owner = site.segment.owner
    owner.things.look()
    try:
        Settings([site], owner.things).refuse_unfit()
    except tree.Unfit as unfit:
        site.segment.refuse(str(unfit))
        return False
    return True


_PACKED = ("leave the argument out of packed=, and out of what the layer "
           "computes with, or attach without it")


def run(site, given, fixed, difference: str, remedy: str = _PACKED):
    """The result of what the caller gave."""
    before = _drawn(site)
    apart = _Apart(site, *fixed)  # as it is before
    args, kwargs = given
    result = site.play(*args, **kwargs)
    after = before.now()
    before.put_back()
    try:
        why = _compare(site, result, [held[2] for held in apart.buffers],
                       apart, difference, remedy)
    finally:
        after.put_back()
    if why is not None:
        site.segment.refuse(why)
    return result


def late(site, given, fixed, difference: str) -> str | None:
    """Of a module for which a graph has run already: why its result is
    another, or None.  Waits for the device."""
    before = _drawn(site)
    try:
        apart = _Apart(site, *fixed)
        first = _Apart(site, *given)
        result = _again(site, first)
        before.put_back()
        why = _compare(site, result, [held[3] for held in first.buffers],
                       apart, difference)
    except tree.Unfit as unfit:
        return str(unfit)
    finally:
        before.put_back()
    site.segment.owner.comparisons.settle()
    return why or site.segment.refused


class _Apart:
    """A call, with copies of what the module could write."""

    def __init__(self, site, args, kwargs):
        self._made: dict = {}  # by identity: the tensor and its copy
        shape = tree.form((args, kwargs),
                          lambda t: tree.Place(0, self._copy(t)))
        self.args, self.kwargs = tree.fill(
            shape, ({i: copy for i, (_, copy) in self._made.items()},))
        modules = [*site.module.modules()]
        self.buffers = self._copies(map(private.buffers_of, modules))
        self._held = self._copies(map(private.parameters_of, modules)) \
            + self.buffers
        things = site.segment.owner.things
        self.contents = Contents(elsewhere(
            [site], Attributes(SimpleNamespace(sites=[site])),
            Settings([site], things)))

    def _copies(self, registries) -> list:
        return [(names, name, t, self._made[self._copy(t)][1])
                for names in registries for name, t in names.items()
                if t is not None]

    def _copy(self, tensor) -> int:
        key = id(tensor)
        if key not in self._made:
            self._made[key] = tensor, _copy(tensor)
        return key

    def lent(self):
        """The module has the copies for its own."""
        return lent([held[:3] for held in self._held],
                    [copy for *_, copy in self._held])


def _copy(tensor):
    """Of its layout, as its bits may depend on that; and a leaf of autograd's
    if it is one."""
    with torch.enable_grad():
        one = tensor.detach().requires_grad_(
            tensor.requires_grad and not tensor.is_leaf)
        if is_dense(tensor):
            copy = one.clone()
        else:
            extent = 1 + sum((n - 1) * step for n, step in zip(
                tensor.shape, tensor.stride()))
            copy = one.as_strided((extent,), (1,)).clone().as_strided(
                tensor.shape, tensor.stride(), 0)
    if tensor.is_leaf:
        copy = private.make_subclass(type(tensor), copy, tensor.requires_grad)
    vars(copy).update(vars(tensor))
    return copy


def _drawn(site):
    """The numbers that graphs draw, and all others, by now."""
    return all_numbers(site.segment.owner.captures.generators)


def _compare(site, result, buffers, apart, difference: str,
             remedy: str = _PACKED) -> str | None:
    """Why it is another one, or the buffers are by now, where that is known
    without a wait."""
    owner = site.segment.owner
    try:
        other = _again(site, apart)
    except tree.Unfit:
        return None  # the recording will say so
    except Exception as failure:  # whatever the module raises
        return (f"with {difference} it raises {type(failure).__name__}: "
                f"{str(failure).partition(chr(10))[0]}")
    why = f"its result is another with {difference}, as graphs have it: " \
        + remedy
    tensors, others, key, other_key = [], [], [], []
    try:
        tree.gather(result, tensors, key)
        tree.gather(other, others, other_key)
    except tree.Unfit:
        return None
    if key != other_key:
        return why
    for buffer, (*_, copy) in zip(buffers, apart.buffers):
        if buffer.is_cuda and buffer.shape == copy.shape:
            tensors.append(buffer)
            others.append(copy)
    for one, two in zip(tensors, others):
        owner.comparisons.compare(_bits(one), _bits(two),
                                  lambda: site.segment.refuse(why))
    return None


def _again(site, apart):
    """As if it had not been."""
    owner = site.segment.owner
    with traceless(owner, [site]) as settings:
        if owner.ranks.size == 1:  # else it was before
            settings.refuse_unfit()
        numbers = HostNumbers(owner.captures.generators, settings.generators)
        try:
            apart.contents.put_back()
            with undisturbed(True), apart.lent():
                return site.plain(*apart.args, **apart.kwargs)
        finally:
            numbers.put_back()


def _bits(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
