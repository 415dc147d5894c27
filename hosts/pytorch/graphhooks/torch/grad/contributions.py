"""Gradients of what goes into a segment, one for each use of it.

Autograd adds the gradients of a tensor up as they come: that of a skip over
the layer, then those of its norm and of its residual.  A graph gives one
gradient, the sum of those within; where the tensor is used elsewhere too, that
is another order of additions, and other bits.  So while layers still run
eagerly it is found out which of their inputs are used elsewhere; of these the
graph gives every gradient by itself, and autograd adds them up as ever.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections
import operator
import weakref

import torch
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import GradientEdge, get_gradient_edge

from ..base import private
from ..base.comparisons import Comparisons
from ..base.private import current_pass


def uses(outputs, inputs, before=frozenset(), nodes=None) -> list:
    """For each input the edges by which the outputs depend on it: pairs of a
    node and the position among its inputs; not by nodes that were there
    before, or by what those depend on.  `nodes` has those of some leaves."""
    nodes = nodes or {}
    targets = [_target(t, nodes) for t in inputs]
    ends = {t[0] for t in targets if t is not None} | before
    found: dict = {}
    # A node may have given several of them.
    waiting = [*dict.fromkeys(t.grad_fn for t in outputs if t.grad_fn
                              is not None and t.grad_fn not in before)]
    seen = {*waiting, *ends}
    while waiting:
        node = waiting.pop()
        for position, (other, number) in enumerate(node.next_functions):
            if other in ends:
                found.setdefault((other, number), []).append((node, position))
            elif other is not None and other not in seen:
                seen.add(other)
                waiting.append(other)
    return [[] if t is None else found.get(t, []) for t in targets]


def casts(edges) -> list:
    """Those nodes of the edges that cast."""
    return [node for node, _ in edges
            if type(node).__name__ == "ToCopyBackward0"]


def _target(tensor, nodes):
    """Where its gradient goes."""
    if isinstance(tensor, GradientEdge):
        return tensor.node, tensor.output_nr
    if not tensor.requires_grad:
        return None
    node = nodes.get(tensor)
    if node is not None:
        return node, 0
    edge = get_gradient_edge(tensor)
    return edge.node, edge.output_nr


# Whose gradients are others than what they were given, in memory of their own.
_EMBEDDING = "EmbeddingBackward0"
_MAKE_THEIRS = ("ReplayBackward", _EMBEDDING, "MmBackward0",
                "BmmBackward0", "ConvolutionBackward0",
                "NativeDropoutBackward0", "NativeLayerNormBackward0")


def may_keep(tensor) -> bool:
    """Whether somebody may come to have the very gradient of an input, or a
    view of it: `autograd.grad()` returns that of a leaf, and a leaf behind
    views and additions takes a view of it for its own `.grad`."""
    if not tensor.requires_grad:
        return False
    waiting = [tensor.grad_fn]
    seen = set()
    while waiting:
        node = waiting.pop()
        kind = type(node).__name__
        if kind in _MAKE_THEIRS and not (
                kind == _EMBEDDING and private.gives_sparse(node)):
            continue  # a sparse one holds what an embedding was given
        if node is None or hasattr(node, "variable"):
            return True
        if node in seen:
            continue
        seen.add(node)
        edges = node.next_functions
        if kind == "AddmmBackward0":
            # What is added in the shape of the product gets the very gradient;
            # the factors do not, nor does a bias, whose is a sum over rows.
            edges = [e for e in edges[:1] if not hasattr(e[0], "variable")
                     or e[0].variable.dim() > 1]
        for other, _ in edges:
            if other is not None:
                waiting.append(other)
    return False


class Contributions:
    """The gradients that come by some edges, in their order."""

    def __init__(self, edges=()):
        self.found: list = []
        self._handles = listen([(self, edges)])

    def note(self, gradient) -> None:
        self.found.append(gradient)

    def take(self) -> list:
        found, self.found = self.found, []
        return found

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


class OfCall:
    """Those of one call, among those of all; `shape` tells calls apart of
    which one may have graphs where another runs eagerly."""

    def __init__(self, those_of_all: Contributions, shape=None):
        self._all = those_of_all
        self.shape = shape

    def note(self, gradient) -> None:
        self._all.note((self, gradient, current_pass()))


def listen(pairs) -> list:
    """Contributions, and the edges by which each has some; handles of it."""
    of_nodes: dict = {}
    for each, edges in pairs:
        for node, position in edges:
            of_nodes.setdefault(node, []).append((position, each))
    return [node.register_hook(_note(sorted(where, key=_position)))
            for node, where in of_nodes.items()]


_position = operator.itemgetter(0)


def _note(where):
    def note(of_inputs, _):
        for position, each in where:
            if of_inputs[position] is not None:
                each.note(of_inputs[position])

    return note


def added(gradients):
    """As autograd adds them up."""
    first, *others = gradients
    for other in others:
        first = first + other
    return first


def watch(inputs, uses_here, tell, comparisons: Comparisons) -> None:
    """tell(i) when it turns out that an input is used elsewhere too, and
    several times here."""
    for i, (tensor, edges) in enumerate(zip(inputs, uses_here)):
        if len(edges) > 1:
            _watch(tensor, Contributions(edges), lambda i=i: tell(i),
                   comparisons)


def watch_outputs(outputs, tell, comparisons: Comparisons) -> None:
    """tell(i) when a gradient comes to one from elsewhere than from others of
    them that are made from it."""
    known = {i: t for i, t in enumerate(outputs) if t.grad_fn is not None}
    for (i, output), edges in zip(known.items(), uses(
            known.values(), known.values())):
        output.grad_fn.register_prehook(_seen_by(
            output.output_nr, Contributions(edges), lambda i=i: tell(i),
            comparisons))


def _seen_by(number: int, ours: Contributions, tell, comparisons):
    def look(grads):
        ours.remove()
        total, found = grads[number], ours.take()
        if total is not None and not found:
            tell()
        elif total is not None:
            _compare(total, found, tell, comparisons)

    return look


def _watch(tensor, ours: Contributions, tell, comparisons) -> None:
    """By a hook of the tensor, as that of a node is not called when its
    gradient is what autograd.grad() is asked for."""

    def compare(total):
        handle.remove()
        ours.remove()
        if ours.found:
            _compare(total, ours.found, tell, comparisons)

    handle = tensor.register_hook(compare)


def _compare(total, found, tell, comparisons) -> None:
    """tell() if there is more in it than what has been found."""
    if len(found) == 1:
        if not _is(total, found[0]):
            tell()
    elif all(g.layout == torch.strided for g in found):
        comparisons.compare(total, added(found), tell)
    else:
        tell()  # nobody compares sparse ones


def _is(total, contribution) -> bool:
    """What came by one edge alone is handed on as it is."""
    if contribution.layout != torch.strided or total.layout != torch.strided:
        return total is contribution
    return total.data_ptr() == contribution.data_ptr()


class Shares:
    """Finds the parameters whose gradients come from elsewhere too: of a
    weight that the loss has besides, or that was used on the way to a call,
    or of a call that is none of these."""

    def __init__(self, comparisons: Comparisons | None = None):
        self._comparisons = comparisons or Comparisons()
        self._found: set = set()
        self.several: set = set()  # that had some of several calls in a pass
        self.casts: dict = {}  # how many a call has of a parameter, at most
        self.cast_for_others: set = set()  # those of which others use one too
        self._watched: dict = {}  # of each what comes of calls
        self._handles: list = []
        # Where each is added up: nodes that else live for a pass only.
        self.nodes: dict = {}
        self._calls = 0
        # Those that a call adds to in a pass within its own, and besides.
        self._mixed: set = set()
        self.hides = False  # a call that may have such passes has come
        self._unseen: dict = {}  # the same of those that no edge leads to
        self._came: collections.Counter = collections.Counter()  # to those

    @property
    def found(self) -> set:
        """Waits for the device, if something has been compared."""
        self._comparisons.settle()
        return self._found

    def watch(self, parameters, uses_here, behind=(), shape=None):
        """How a call of that shape uses them, and all that what goes into it
        depends on; returns those that are used."""
        used = [(p, edges) for p, edges in zip(parameters, uses_here) if edges]
        for p, _ in used:
            if p not in self._watched:
                ours = self._watched[p] = Contributions()
                node = self.nodes[p] = get_gradient_edge(p).node
                self._handles.append(
                    node.register_prehook(self._compare(p, ours)))
            if self.nodes[p] in behind:
                self._found.add(p)
        self._handles += listen([(OfCall(self._watched[p], shape), edges)
                                 for p, edges in used])
        return [p for p, _ in used]

    def watch_unseen(self, parameters) -> None:
        """Those to which no output of a call leads that may have a backward
        within its backward."""
        self.hides = True
        self._calls += 1
        for p in parameters:
            if p not in self._unseen:
                node = self._unseen[p] = get_gradient_edge(p).node
                self._handles.append(node.register_prehook(
                    lambda _, p=p: self._came.update([p])))

    def by_itself(self) -> dict:
        """Those that got gradients although none of their calls' outputs
        leads to them, and whether some call gave them several."""
        return {p: count > self._calls for p, count in self._came.items()
                if p not in self.nodes}

    def mixed(self) -> set:
        """Those of which a call adds some by themselves, and others not, or
        some calls do."""
        return self._mixed.union(p for p in self._came if p in self.nodes)

    def watch_casts(self, parameters, uses_here, outputs, before) -> None:
        """Autocast keeps a weight's cast for all that use it in its region,
        and eager adds up their gradients before it casts them back."""
        nodes = {node: p for p, edges in zip(parameters, uses_here)
                 for node in casts(edges)}
        if not nodes:
            return
        for p, count in collections.Counter(nodes.values()).items():
            self.casts[p] = max(self.casts.get(p, 0), count)
        of_nodes = uses(outputs, [GradientEdge(n, 0) for n in nodes], before)
        for (node, p), edges in zip(nodes.items(), of_nodes):
            ours = Contributions()
            self._handles += listen([(ours, edges)])
            self._handles.append(
                node.register_prehook(self._compare_casts(p, ours)))

    def _compare_casts(self, p, ours):
        def compare(gradients):
            total, found = gradients[0], ours.take()
            if len(found) == 1 and not _is(total, found[0]):
                self.cast_for_others.add(p)

        return compare

    def note_arguments(self, parameters, tensors) -> None:
        """A weight that a call is given, too, is not its own alone: a graph
        has another gradient for each."""
        self._found.update(p for p in parameters
                           if any(p is t for t in tensors))

    def _compare(self, p, ours):
        def tell():
            self._found.add(p)

        def compare(gradients):
            total, found = gradients[0], self._of_pass(ours)
            if not found:
                if self.hides and private.is_within():
                    self._mixed.add(p)
                return
            calls, found, _ = zip(*found)
            if len(set(calls)) > 1:
                self.several.add(p)
            if 1 < len(set(calls)) < len(calls) \
                    or len({call.shape for call in calls}) > 1:
                # Graphs add up those of each call, and eager one by one; or
                # some of the calls may be eager, as the first of a shape is.
                tell()
            else:
                _compare(total, found, tell, self._comparisons)

        return compare

    def _of_pass(self, ours) -> list:
        """What has come in the pass at hand; that around it goes on."""
        found = ours.take()
        if self.hides and private.is_within():
            now = current_pass()
            ours.found = [each for each in found if each[2] != now]
            found = [each for each in found if each[2] == now]
        return found

    def stop(self) -> dict:
        """Returns the nodes that add up the gradients of the parameters that
        calls have used."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._watched.clear()
        self._unseen.clear()
        nodes, self.nodes = self.nodes, {}
        return nodes


class Others:
    """Notices who adds to `.grad` in a backward in which a graph does.  Eager
    adds up what comes to a parameter, and that to `.grad`; here one comes
    after the other, which is the same only for two, and without a `.grad`."""

    _GRAPH, _OTHER, _BOTH = 1, 2, 3

    def __init__(self, nodes, tell, put=(), sums=None):
        """By the nodes that add up, by parameter; of `put`, whose nodes are
        come by in each pass, with nothing for them as a rule, by who is called
        but then.  `sums` is asked to take what has come."""
        self._tell = tell
        self._sums = sums
        self.nodes = dict(nodes)  # else they live for a pass only
        # A hook that held this could never be collected: a node holds it.
        come = weakref.WeakMethod(self._come)
        self._handles = [n.register_prehook(
            lambda g, p=p: come() and come()(g, p))
                         for p, n in self.nodes.items()]
        self._handles += [
            p.register_post_accumulate_grad_hook(
                lambda p: None if p.grad is None
                else come() and come()((p.grad,))) for p in put]
        self._pass = -1  # of autograd
        self._seen = 0  # who has come in it

    def _come(self, gradients, p=None):
        gradient, = gradients
        if self._sums is not None and p is not None \
                and (gradient is not None or self._sums.is_open) \
                and self._sums.take(p, gradient):
            return (None,)  # nothing for the node to add
        if gradient is not None:
            self.go(current_pass(), self._OTHER)
        return None

    def go(self, now: int, who: int = _GRAPH) -> None:
        """A graph is about to, or another has; tells once a pass."""
        before = self._seen if now == self._pass else 0
        self._pass, self._seen = now, before | who
        if self._seen == self._BOTH != before:
            self._tell()

    def stop(self) -> None:
        for handle in self._handles:
            handle.remove()
        self.nodes.clear()


class Way:
    """What the calls of a forward depend on, which has a walk for all calls:
    one for each goes back to the beginning, layer by layer."""

    def __init__(self):
        self._nodes: set = set()
        self._forward = None  # which it is

    def to(self, nodes, forward) -> set:
        """Those of tensors that go into a call, and what they depend on; with
        what earlier calls of the forward do."""
        if forward != self._forward:
            self._nodes, self._forward = set(), forward
        waiting = [n for n in nodes if n not in self._nodes]
        self._nodes.update(waiting)
        while waiting:
            for node, _ in waiting.pop().next_functions:
                if node is not None and node not in self._nodes:
                    self._nodes.add(node)
                    waiting.append(node)
        return self._nodes

    def forget(self) -> None:
        """What nodes have saved goes with them."""
        self._nodes.clear()


def leaves(outputs, known=()) -> set:
    """The tensors that the outputs' gradients come to in the end, without
    those that are known."""
    ends = {get_gradient_edge(t).node for t in known if t.requires_grad}
    return {node.variable for node in _nodes(outputs, ends)
            if hasattr(node, "variable")}


def tells_all(outputs, before=frozenset()) -> bool:
    """Whether autograd's graph knows all leaves: a function of somebody's may
    have a backward of its own within its backward; not of nodes that were
    there before, or of what those depend on."""
    return not any(isinstance(node, BackwardCFunction)
                   for node in _nodes(outputs, before))


def functions(outputs) -> frozenset:
    """The names of those by which autograd goes back."""
    return frozenset(node.name() for node in _nodes(outputs))


def _nodes(outputs, ends=frozenset()) -> set:
    """Those that the outputs' gradients come by."""
    seen = set(ends)
    waiting = [t.grad_fn for t in outputs if t.grad_fn is not None]
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        waiting += [other for other, _ in node.next_functions
                    if other is not None]
    return seen - ends
