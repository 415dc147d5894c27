"""An eager backward of a forward that a graph has run.

Where the graph of a backward cannot serve, as when a hook has come in the
meantime, or when the derivative of a derivative is asked for, the modules run
once more, on what the forward was given, and autograd goes back through that.
Where other numbers come out than the graph has given, that is said.  The
parameters whose gradients a graph puts in place are themselves in it, so
autograd adds theirs up and calls their hooks, as ever.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import weakref

import torch

from ...errors import Error
from ..base import private, tree
from ..base.comparisons import are_alike, same_bits
from ..base.private import KEEPS
from ..base.tree import Unserved
from ..guard import flags
from ..guard.storage_addresses import held_at
from . import checkpoint
from .again import run as once_more
from .apart import Before
from .backwards import take_grads
from .heard import calling
from .instance import Instance
from .recording import note_uses


_WRITTEN = "; its weights, or what it was given, were written since, so its " \
    "modules cannot run once more as they have: let the optimizer step when " \
    "all backwards of a forward have run, or leave the layer out of the graphs"


class Origin:
    """What a forward was of."""

    __slots__ = ("tensors", "version", "numbers", "around", "count",
                 "written", "is_back", "is_eager", "outputs", "hooks",
                 "is_heard", "retained", "replays", "place", "__weakref__")

    def __init__(self, tensors, version: int, numbers, around):
        self.tensors = tensors  # that it was given; None: let go
        self.version = version  # of these and of the weights, by then
        self.numbers = numbers  # random ones by then, if it draws some
        self.around = around  # the modules, by then
        self.count = None  # modules of which it counts; None: all
        self.written = False  # the last result of these, by the caller
        self.is_back = False  # a backward has come, which frees the slot
        self.is_eager = False  # and it was no graph
        self.outputs = ()  # weakly, where others are made from some
        self.hooks = None  # of their gradients, by output (heard.py)
        self.is_heard = False  # and the backward at hand is to call some
        self.retained = None  # what it has left in .grad of outputs
        self.replays = None  # of the checkpointed piece that it is in
        self.place = 0  # among them

    def be_within(self, segment, replays) -> None:
        """Its weights may be written until it is run once more."""
        self.replays, self.place = replays, replays.note(segment)
        self.version -= segment.parameters.version()

    def reads_others(self) -> bool:
        """Than the weights of before, if eager runs it again in its pass."""
        return self.replays is not None \
            and self.replays.read_others(self.place)

    def let_go(self, node, sums) -> None:
        """A backward has come by, and none comes again."""
        if KEEPS:
            sums.note_again(node)
        else:
            self.tensors = self.around = None
            node.flight = Over(*node.flight)


class Over:
    """The flight of a node after its backward.  Who keeps an output keeps the
    node, and a module that keeps its own last output would be kept by itself:
    autograd's graph is nothing that Python's collector sees through."""

    __slots__ = ("_segment", "_instance", "_rest")

    def __init__(self, segment, instance, *rest):
        self._segment = weakref.ref(segment)
        self._instance = weakref.ref(instance)
        self._rest = rest

    def __iter__(self):
        segment, instance = self._segment(), self._instance()
        if segment is None or instance is None:
            raise Error("a second backward through one forward, after its "
                        "model has gone: keep the model until then")
        return iter((segment, instance, *self._rest))

    def __getitem__(self, i: int):
        return (*self,)[i]


def version(segment, tensors) -> int:
    """Another once autograd would find something written that a pass of these
    has read."""
    return segment.parameters.version() + _version_of(tensors)


def _version_of(tensors) -> int:
    found = 0
    for t in tensors:
        if t.requires_grad:
            found += private.version(t)
    return found


def _is_written(segment, origin) -> bool:
    """Something that the forward has read, and not anew by its backward."""
    return origin.version != (
        version(segment, origin.tensors) if origin.replays is None
        else _version_of(origin.tensors))


def may_run(segment, origin, instance) -> bool:
    """What the forward was given is there, and nobody has written it."""
    return not (origin is None or origin.tensors is None
                or instance.call is None
                or _is_written(segment, origin)
                or segment.owner.ranks.size > 1)


def run(segment, origin, instance, microbatch: int, grads, why, late=False):
    """Raises `why` where that cannot be, or gives another form; late: the step
    of the forward is over."""
    owner = segment.owner
    if not may_run(segment, origin, instance):
        if origin is not None and origin.tensors is not None \
                and _is_written(segment, origin):
            raise Unserved(segment.name, why.what + _WRITTEN)
        raise why
    late |= instance.origin is not origin  # another forward of the slot came
    instance.apart = None  # which is of the graph
    derived = torch.is_grad_enabled()  # the backward, too
    again = _forward(segment, instance, origin, derived, why, late)
    is_open = owner.steps >= 0 and not (origin.is_back or late)
    origin.is_back = origin.is_eager = True
    if is_open:
        owner.flights.leaves(instance)
        owner.pause()
    try:
        if is_open:
            segment.enter(1, [g for g in grads if g is not None], microbatch,
                          instance.flight[0])
        try:
            owner.writes.order()
            with calling(origin, instance.inner, again.live,
                         segment.parameters):
                results = (_derive if derived else _go_back)(
                    segment, again, instance, grads)
        except BaseException:
            if is_open:
                owner.cancel(None)
            raise
        if is_open:
            owner.check(segment.exit(1, ()))
            if segment.weights is not None:
                segment.weights.came(instance, microbatch, False)
    finally:
        if is_open:
            owner.unpause()
    owner.count("backward")
    if segment.refused is None and owner.steps >= 0:
        if why.passes:
            owner.say(segment.name, f"{why.what}: its modules have run once "
                      "more, for an eager backward")
        else:
            segment.refuse(why.what)
    return results


def go_back_as_checkpoints(segment, instance) -> None:
    """Of a checkpointed piece whose second run is with other weights: its
    caller is to run the modules again, if that can be."""
    if not may_run(segment, instance.origin, instance):
        segment.owner.say(segment.name, checkpoint.UNLIKE)
        return
    instance.apart = None
    raise Unserved(segment.name, checkpoint.OTHERS, True)


def take_back(segment, instance, count: int) -> bool:
    """Whether random numbers and buffers are as so many modules of a pass
    leave them, and not as all do for which a graph has run."""
    origin = instance.origin
    if origin is None or segment.writes and not instance.buffers:
        return False
    if origin.numbers is not None:
        segment.owner.captures.put_numbers(origin.numbers)
    for buffer, found in instance.buffers:
        buffer.data.copy_(found)
    try:
        once_more(segment, instance, [
            t.detach().requires_grad_(t.requires_grad)
            for t in origin.tensors], origin.around, None, count)
    except tree.Unfit:
        return False
    return True


def _forward(segment, instance, origin, derived: bool, why,
             late: bool) -> Instance:
    """Once more, without a trace."""
    owner, parameters = segment.owner, segment.parameters
    if derived:
        inputs = [*map(_view, origin.tensors)]
        leaves = [*map(_view, parameters.all)]
    else:
        inputs = [t.detach().requires_grad_(t.requires_grad)
                  for t in origin.tensors]
        # Autograd comes to the sample anyhow: with what is given back for it,
        # if somebody's hook is to see that.
        own = set(parameters.own[parameters.have_hooks():])
        if segment.sums.is_in_order():
            own -= parameters.joined
        leaves = [p if p in own else alias for p, alias
                  in zip(parameters.all, parameters.aliases())]
    is_other = origin.reads_others()
    if is_other and origin.place > 0:
        owner.say(segment.name, checkpoint.UNKNOWN)
    now = Before(segment)
    if origin.numbers is not None:
        owner.captures.put_numbers(origin.numbers)
    for buffer, found in () if late else instance.buffers:
        buffer.data.copy_(found)
    try:
        again, results = once_more(
            segment, instance, inputs, origin.around,
            _as_held(parameters, leaves) if is_other else leaves,
            origin.count)
        again.leaves = leaves
    except tree.Unfit:
        raise why from None
    finally:
        now.put_back()
    if late:  # graphs have written since where it left its outputs
        if segment.writes:
            owner.say(segment.name, "a backward ran eagerly after later "
                      "passes of its layer, which writes buffers: where it "
                      "reads them too, gradients of such a pass are not "
                      "eager's")
        return again
    if is_other:
        return again
    known = len(again.live)
    if origin.written:
        known -= len({id(t) for t in results.last}
                     & {id(t) for t in again.live})
    live = again.live[:known]
    if not all(map(are_alike, live, instance.outputs)):
        raise why
    if not all(map(same_bits, live, instance.outputs)):
        # As eager, it goes on with what there is.
        owner.say(segment.name, "a backward ran eagerly, and its modules gave "
                  "other numbers when they ran again for that, so gradients "
                  "of such a pass may not be eager's to the bit: give them "
                  "what changes between a forward and its backward as an "
                  "argument")
    return again


def _view(tensor):
    """By which a derivative comes to it, and that of this call alone: what a
    call is given may depend on its weights, too, or on each other."""
    if not tensor.requires_grad:
        return tensor
    with torch.enable_grad():
        view = tensor.as_subclass(type(tensor))
    vars(view).update(vars(tensor))
    return view


def _as_held(parameters, leaves) -> list:
    """With what is in the modules by now, and gradients that go to what was
    there."""
    held = {p: other for names, name, p in parameters.places
            for other in [held_at(names, name)] if other is not p}
    if not all(map(are_alike, held, held.values())):
        raise tree.Unfit("a parameter has got another shape or type")
    with torch.enable_grad():
        return [_WithValueOf.apply(leaf, held[p]) if p in held else leaf
                for p, leaf in zip(parameters.all, leaves)]


class _WithValueOf(torch.autograd.Function):
    """Another tensor, whose gradient is the leaf's."""

    @staticmethod
    def forward(ctx, leaf, held):
        return held.detach()

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def _go_back(segment, again, instance, grads) -> tuple:
    parameters = segment.parameters
    again.wanted = [i for i, g in enumerate(grads) if g is not None
                    and again.live[i].requires_grad]
    again.layouts = [None] * len(again.wanted)
    note_uses(segment, again)
    lent = [(p, leaf) for p, leaf in zip(parameters.all, again.leaves)
            if leaf is not p]
    again.again = instance.again  # as autograd's node has it
    with flags.carried(*zip(*lent) if lent else ((), ())):
        of_inputs, of_parameters, more = take_grads(
            segment, again, [grads[i] for i in again.wanted])
    segment.sums.give(of_parameters)
    return (*of_inputs, *parameters.results(of_parameters), *more)


def _derive(segment, again, instance, grads) -> tuple:
    """With autograd's graph of the backward."""
    parameters = segment.parameters
    adds = parameters.are_accumulated()
    own = parameters.own if adds or parameters.is_asked() else []
    wanted = [i for i, g in enumerate(grads) if g is not None
              and again.live[i].requires_grad]
    views = dict(zip(parameters.all, again.leaves))
    targets = [t for t in (*again.inputs, *(views[p] for p in dict.fromkeys(
        (*parameters.returned, *parameters.silent, *own))))
               if t.requires_grad]
    with private.whole_pass() if private.is_of_all() \
            else contextlib.nullcontext():
        of_views = dict(zip(targets, torch.autograd.grad(
            [again.live[i] for i in wanted], targets,
            [grads[i] for i in wanted], create_graph=True,
            allow_unused=True)))
    found = {p: of_views.get(view) for p, view in views.items()}
    if adds:
        left_out = {*parameters.left_out()}
        parameters.deliver({p: found[p] for p in own[1:]
                            if p not in left_out}, derived=True)
    elif own:
        parameters.asked.note(own, [found[p] for p in own])
    if adds or parameters.is_asked():
        segment.sums.give(found)
    return (*(of_views.get(t) for t in again.inputs),
            *(found[p] for p in parameters.returned),
            *(found.get(p) if adds else None for p in parameters.sample),
            *(None for _ in instance.again))
