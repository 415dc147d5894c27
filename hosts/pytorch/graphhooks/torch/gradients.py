"""How the gradients of parameters get into ``.grad``.

Autograd adds a gradient to ``.grad`` by one kernel for each parameter, issued
by itself.  So where nobody watches, the graph does it: there are two graphs
of a backward, one that writes gradients and one that adds to them, and the
first of a step writes, as ``zero_grad`` has left ``.grad`` None.  The tensors
that the first writes are ``.grad`` itself: nothing is copied.

Where somebody watches, autograd is given the gradients and does as ever: a
hook, DDP's buckets, or a parameter that others use too.

Several calls of a segment that one pass of autograd goes through, such as
those of two losses that were summed, are one gradient: it is added up by
itself, and then to what is in `.grad` (`Aside`).

Bits.  Writing is what autograd does with a first gradient, adding what it
does with a later one.  Where a graph has to add and there is nothing yet, it
adds to negative zeros: x + -0.0 is x for every x.

Memory.  What a writing backward frees on its way, a later recording of a
writing backward may use for gradients.  So none may run while gradients that
were recorded after it are in place: `Parameters.serial` has the order.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import sys

from torch._C import _will_engine_execute_node as will_run
from torch.autograd.graph import get_gradient_edge

from ..errors import Error
from .contributions import Shares
from .places import lent

WRITE, ADD = 0, 1  # gh_pass.variant of a backward


def has_hooks(parameter) -> bool:
    return bool(parameter._backward_hooks
                or parameter._post_accumulate_grad_hooks)


def is_watched(parameter) -> bool:
    """Whether somebody waits for the parameter's gradient: who puts a hook on
    the node that adds it up keeps that node alive, as DDP does."""
    if has_hooks(parameter):
        return True
    get_gradient_edge(parameter).node.metadata["graphhooks"] = True
    again = get_gradient_edge(parameter).node
    return again.metadata.pop("graphhooks", None) is not None


def is_held(parameter) -> bool:
    """Whether Python keeps the node that adds its gradient up, as engines do
    that have a hook there; a loss that is kept has no such reference."""
    node = get_gradient_edge(parameter).node
    return sys.getrefcount(node) > 2


ADDED, GIVEN, LEFT = "added to .grad", "given to who asks", "left alone"


def fate(parameters) -> str:
    """What the pass of autograd at hand does with their gradients."""
    try:
        found = any(will_run(get_gradient_edge(p).node) for p in parameters)
    except RuntimeError:  # that one's is what autograd.grad() is asked for
        return GIVEN
    return ADDED if found else LEFT


class Parameters:
    """Those of a segment that are trained."""

    def __init__(self, modules):
        held = [(m._parameters, name, p)
                for module in modules for m in module.modules()
                for name, p in m._parameters.items()
                if p is not None and p.requires_grad]
        self.places = held
        self.all = list(dict.fromkeys(p for _, _, p in held))
        # Later a loss that is kept keeps nodes alive too.
        self.watched = set(filter(is_watched, self.all))
        self.sorted = False
        self.shares = Shares()  # with others, as eager passes have them
        self.returned: tuple = ()  # autograd is given their gradients
        self.own: list = []  # the graph puts them in place
        self.sample: tuple = ()  # one of those, for autograd to come by
        self.behind: tuple = ()  # both, as they come after the inputs
        self._node = None  # where its gradient would be added up
        self.gradients: dict = {}  # where, once a backward is recorded
        self._memory: dict = {}  # the same, in nobody else's hands
        self._addresses: list = []
        self.serial = 0  # which recording made those, from 1

    def sort(self, by_autograd) -> None:
        """Once, at the first recording."""
        if self.sorted:
            return
        self.sorted = True
        self.shares.stop()
        self.returned = tuple(p for p in self.all if by_autograd(p)
                              or p in self.watched or p in self.shares.found
                              or has_hooks(p) or is_held(p)
                              or getattr(p, "grad_dtype", p.dtype) != p.dtype)
        returned = set(self.returned)
        self.own = [p for p in self.all if p not in returned]
        self.sample = tuple(self.own[:1])
        self.behind = self.returned + self.sample
        if self.own:
            self._node = get_gradient_edge(self.own[0]).node

    def are_accumulated(self) -> bool:
        """Whether the pass of autograd at hand adds gradients to `.grad`;
        autograd.grad() does not, nor backward(inputs=) of others."""
        if self._node is None:
            return not self.returned or fate(self.returned) == ADDED
        try:
            return will_run(self._node)
        except RuntimeError as failure:  # that one's is what is asked for
            raise Error("autograd.grad() asks for gradients of parameters, "
                        "which a graph puts into .grad: attach with "
                        "gradients=\"autograd\"") from failure

    def release(self) -> None:
        """Another attach is not to take this one for an engine."""
        self.shares.stop()
        self._node = None

    def have_hooks(self) -> bool:
        """Whether one has come since the first recording."""
        for p in self.own:
            if p._backward_hooks or p._post_accumulate_grad_hooks:
                return True
        return False

    def are_held(self) -> bool:
        return any(is_held(p) for p in self.own[1:] if p.requires_grad)

    def put_gradients(self, fresh: dict) -> None:
        """Where a recording leaves them."""
        self.gradients.update(fresh)
        self._memory.update((p, g.data) for p, g in fresh.items())
        self._addresses = [g.data_ptr() for g in self.gradients.values()]

    def take_back(self) -> bool:
        """Who sets `.grad.data` has made one of these tensors another's;
        whether somebody has."""
        if [g.data_ptr() for g in self.gradients.values()] == self._addresses:
            return False
        for p, memory in self._memory.items():
            if self.gradients[p].data_ptr() != memory.data_ptr():
                self.gradients[p] = memory.data
        return True

    def aliases(self) -> list:
        """Others at the same addresses: what autograd keeps of a recording
        has nothing to do with what it keeps of the training, such as the
        stream on which a parameter's gradient is added up, or how often an
        optimizer has written it."""
        found = []
        for p in self.all:
            found.append(p.data.requires_grad_())
            vars(found[-1]).update(vars(p))
        return found

    def replaced_by(self, aliases):
        """The modules with these for their parameters."""
        alias = dict(zip(self.all, aliases))
        return lent(self.places, [alias[p] for _, _, p in self.places])

    def are_in_place(self) -> bool:
        """Whether a gradient of a recording is somebody's now."""
        for p, g in self.gradients.items():
            if p.grad is g:
                return True
        return False

    def move_out(self) -> None:
        """Gradients in place become tensors of their own."""
        for p, g in self.gradients.items():
            if p.grad is g:
                p.grad = g.clone()


class Accumulation:
    """One replay of a backward: which of its graphs, and what is around."""

    __slots__ = ("variant", "foreign")

    def __init__(self, variant: int, foreign=()):
        self.variant = variant
        self.foreign = foreign  # (theirs, ours): tensors that are `.grad`


_WRITE, _ADD = Accumulation(WRITE), Accumulation(ADD)


def prepare(segment, backwards) -> Accumulation:
    """Decides by what is in `.grad` now, and makes it fit the graph."""
    owner = segment.owner
    segment.take_gradients_back()
    write, add = backwards
    for p in write.own:
        if p.grad is not None:
            break
    else:
        if owner.flights.may_write(write):
            return _WRITE
    if add is None:
        # So many microbatches were not expected: gradients make room.
        owner.move_gradients_out()
        return Accumulation(WRITE, _foreign(write))
    foreign = None
    for p, gradient in zip(add.own, add.gradients):
        grad = p.grad
        if grad is gradient:
            continue
        if grad is None:
            p.grad = gradient.fill_(-0.0)
        else:
            gradient.copy_(grad)
            foreign = True
    return _ADD if foreign is None else Accumulation(ADD, _foreign(add))


def _foreign(backward):
    return [(p.grad, g) for p, g in zip(backward.own, backward.gradients)
            if p.grad is not None and p.grad is not g]


def finish(accumulation: Accumulation, backward) -> None:
    """After the graph."""
    if accumulation.variant == WRITE:
        if not accumulation.foreign:
            for p, gradient in zip(backward.own, backward.gradients):
                p.grad = gradient
            return
        for p, gradient in zip(backward.own, backward.gradients):
            if p.grad is None:
                p.grad = gradient
        for theirs, ours in accumulation.foreign:
            theirs.add_(ours)
    else:
        for theirs, ours in accumulation.foreign:
            theirs.copy_(ours)


class Aside:
    """What is in `.grad`, while gradients are summed up apart from it."""

    def __init__(self, parameters: Parameters):
        places = parameters.gradients
        self.own = parameters.own
        self.held = [(p, p.grad, p.grad.clone()
                      if places.get(p) is p.grad else p.grad)
                     for p in self.own if p.grad is not None]
        for p, _, _ in self.held:
            p.grad = None

    def add(self) -> None:
        """The sum is added to it, as autograd adds to a gradient."""
        for p, theirs, values in self.held:
            if p.grad is None:
                p.grad = _put(theirs, values)
            elif theirs is values:
                p.grad = theirs.add_(p.grad)
            else:
                p.grad.add_(values)

    def restore(self) -> None:
        """The sum is nobody's."""
        for p in self.own:
            p.grad = None
        for p, theirs, values in self.held:
            p.grad = _put(theirs, values)


def _put(theirs, values):
    return theirs if theirs is values else theirs.copy_(values)


def add_eagerly(parameters, gradients) -> None:
    """As autograd does."""
    for p, gradient in zip(parameters, gradients):
        if gradient is None:
            continue
        if p.grad is None:
            p.grad = gradient
        else:
            p.grad.add_(gradient)
