"""How a backward becomes a graph.

It is recorded before it runs, once; it then runs as any other that is
recorded.  Should that fail, it runs eagerly: on autograd's graph, or where
autograd has begun, which lets go on its way as functions do, on that of
modules that have run once more (again.py).

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import functools

import torch
from torch.cuda import is_current_stream_capturing as is_capturing

from ... import _abi
from ...errors import Error
from ..base import private, tree
from ..base.tree import Unserved
from ..grad import chained, contributions, strides
from ..grad.contributions import Contributions
from ..grad.first import First
from ..grad.gradients import add_eagerly
from ..grad.staged_gradients import Landing
from ..grad.seeds import OnTheHost
from ..guard import flags
from ..guard.attributes import Attributes
from ..guard.draws import HostNumbers
from . import again
from .instance import Backward, Instance
from .outputs import counting_work
from .recording import (capture, closing, eagerly, prepared, static,
                        undisturbed)

HOOK = ("a hook has come to a parameter between a forward and its backward, "
        "which puts gradients in place: register it before the forward")
_NO_MEMORY = "the driver has no graph for its backward, or no memory, as " \
    "the log says; where that is for GRAPHHOOKS_MEMORY_LIMIT, raise it"


def begin(segment, instance: Instance, microbatch: int, grads,
          hears=False):
    """The first of an instance; hears: Unserved, where hooks have come that
    autograd's graph of the recording does not call."""
    owner = segment.owner
    instance.wanted = [i for i, g in enumerate(grads) if g is not None]
    instance.layouts = [strides.layout_of(grads[i])
                        for i in instance.wanted]
    instance.alone = _alone(instance)
    segment.varies |= len(instance.wanted) < len(grads) or any(
        type(layout) is strides.Over for layout in instance.layouts)
    given = segment.read(instance, grads)
    flags.catch_up(segment.parameters.all, instance.leaves)
    if segment.refused is None and segment.parameters.mains.are_others():
        segment.refuse("the main_grad of a parameter was set to another "
                       "buffer between a forward and its backward; set it "
                       "before the forward")
    if segment.refused is None and instance.before.was_written():
        segment.refuse("a parameter, or what it was given, was written in "
                       "place between a forward and its backward; write it "
                       "before the forward, or after the backward")
    if instance.spent and segment.refused is None:
        _leave_out(segment, instance.signature)
    twin = again.beforehand(segment, instance, is_wanted(segment, instance))
    if is_wanted(segment, instance):
        segment.parameters.decide(
            owner.accumulates or owner.microbatch > 0
            or segment.sums.is_summing())
        with counting_work(segment, instance):
            _record(segment, instance, microbatch, given)
            if _is_recorded(segment, instance):
                instance.end_recording()
    else:
        segment.decline_backward(instance, microbatch)
    if not _is_recorded(segment, instance):
        if hears and segment.parameters.have_hooks() \
                and segment.can_run_again(instance):
            raise Unserved(segment.name, HOOK, True)
        results = _eagerly(segment, instance, microbatch, given, twin)
        if segment.has_given_up(instance):
            instance.let_go(segment.settings)
        segment.look_unfinished()
        return results
    instance.let_go(segment.settings)
    segment.look_unfinished()
    return segment.run_back(instance, microbatch, grads)


def is_wanted(segment, instance: Instance) -> bool:
    """A graph of it."""
    return segment.refused is None and instance.signature.refused is None \
        and not segment.owner.room.is_closed(instance)


def _is_recorded(segment, instance: Instance) -> bool:
    return is_wanted(segment, instance) and instance.backward is not None


def _leave_out(segment, signature) -> None:
    """An interrupt says nothing of other shapes."""
    why = "the recording of its backward was interrupted"
    if len(segment.owner.banks.all) == 1:
        segment.refuse(why)
    else:
        segment.leave_out(signature, why)


def _alone(instance: Instance) -> list:
    """Wanted outputs without all of which some parameter has no gradient."""
    if len(instance.wanted) == 1:
        return []
    by: dict = {}  # outputs by the leaf that each of them reaches
    for i in instance.wanted:
        for leaf in contributions.leaves([instance.live[i]]):
            by.setdefault(leaf, []).append(i)
    every = set(map(tuple, by.values())) - {tuple(instance.wanted)}
    return sorted(every, key=lambda outputs: (len(outputs), outputs))


def _record(segment, instance, microbatch: int, grads) -> None:
    """Once, as some functions let go of what they need when their backward
    has run."""
    owner = segment.owner
    flight = owner.flights.of_backward(segment, instance)
    home = segment.parameters.home(flight[0])
    functions = contributions.functions(instance.live)
    if home.take_back():
        segment.note_taken_back(home)
    with closing(owner):
        instance.backward = _capture(segment, instance, microbatch, grads,
                                     Backward(home, flight))
    if instance.backward is not None:
        owner.flights.note_backward(segment, instance, flight)
        owner.gone_back.add(functions)
        # Each forward looks for gradients in these.
        segment.parameters.homes = list({
            i.backward.home: None for i in segment.instances.values()
            if i.backward is not None and i.backward.home.gradients})


def _capture(segment, instance, microbatch: int, grads, found: Backward):
    """None: it is no graph."""
    owner = segment.owner
    home = found.home
    places = segment.parameters.places_to_add(home)  # not in a pool
    if places and owner.nothing.first is None:
        owner.nothing.first = First(owner, next(iter(places.values())))
    grads = chained.told_apart(grads)
    with prepared(owner, found.flight):
        action = segment.enter(1, grads, microbatch, found.flight[0],
                               _abi.GH_PASS_PREPARE)
    if action != _abi.GH_ACTION_RECORD:
        reason = segment.decision.reason
        owner.cancel(None)
        if reason == _abi.GH_REASON_DEVICE and owner.ranks.size == 1 \
                and not owner.room.close(instance):
            # Each pass would run the forward's graph, and its modules again.
            segment.give_up(instance.signature, _NO_MEMORY)
        return None
    inputs = static(segment, grads)

    def run():
        return _differentiate(segment, instance, inputs, found, places)

    if not capture(segment, instance.signature, 1, run):
        return None
    segment.settings.adopt()
    segment.settings.note_recorded()
    found.pool = owner.captures.pool
    found.serial = owner.flights.next_serial()
    home.put(zip(found.own, found.gradients))
    if not segment.parameters.adds:
        home.serial = found.serial
    found.chained = [s if s.data_ptr() == g.data_ptr() else None
                     for s, g in zip(inputs, grads)]
    if not any(c is not None for c in found.chained):
        found.chained = ()
    return found


def take_grads(segment, instance: Instance, grads, puts: set | None = None):
    """Runs autograd's backward; what it finds for inputs, for parameters, and
    for inputs once more.  `puts`: without those of parameters that graphs put
    where an engine has them, which come to that.  Reentrant checkpointing runs
    the modules in it.  Autograd lets go on its way, and gradients come to lie
    there."""
    grads = list(map(strides.as_laid, grads, instance.layouts))
    apart = {i: Contributions(edges) for i, edges in instance.uses.items()}
    parameters = segment.parameters
    leaves = {p: leaf for p, leaf in zip(parameters.all, instance.leaves)
              if leaf is not p}  # whose gradient autograd adds up
    inputs = strides.Laid(instance.inputs)
    returned = strides.Laid([leaves[p] for p in parameters.returned])
    instance.spent = True
    putting = () if puts is None else \
        parameters.put_away(instance.leaves, puts)
    reading = segment.owner.offload.reading(segment, instance)
    order = segment.sums.listen(instance)
    try:
        with undisturbed(segment.draws), \
                parameters.replaced_by(
                    instance.leaves, None if is_capturing() else False), \
                reading:
            outputs = [instance.live[i] for i in instance.wanted]
            if segment.split is not None and is_capturing():
                segment.split.go_back(instance, outputs, grads)
            else:
                with private.whole_pass():
                    torch.autograd.backward(outputs, grads)
    finally:
        if order is not None:
            order.remove()
        for handle in putting:
            handle.remove()
        segment.settle()
        of_inputs = inputs.out(_taken(instance.inputs))
        of_parameters = dict(zip(leaves, _taken(leaves.values())))
        of_parameters.update(zip(parameters.returned, returned.out(
            [of_parameters[p] for p in parameters.returned])))
        for each in apart.values():
            each.remove()
    if order is not None:
        order.take(of_parameters)
    again = []
    for i, each in apart.items():
        others = []
        if i not in inputs.several:
            of_inputs[i], *others = each.found or [None]
        again += others + [None] * (instance.again.count(i) - len(others))
    return reading.end(of_inputs, of_parameters, again)


def _taken(leaves) -> list:
    grads = [leaf.grad for leaf in leaves]
    for leaf in leaves:
        leaf.grad = None
    return grads


def _differentiate(segment, instance, grads, found, places):
    """A backward inside a capture, which leaves gradients in `places`, or
    where there are none, where autograd makes them."""
    parameters = segment.parameters
    segment.settle()
    landing = Landing(dict(zip(parameters.all, instance.leaves)), places,
                      segment.owner.nothing.first)
    puts: set = set()
    try:
        with _strided(parameters, instance), \
                _unchanged(segment, instance), \
                flags.noted(parameters.all, instance.leaves) as marks, \
                segment.owner.things.watching(True):
            with contextlib.nullcontext() if segment.weights is None \
                    else segment.weights.apart(instance):
                of_inputs, of_parameters, more = take_grads(
                    segment, instance, grads, puts)
    finally:
        landing.close()
    found.marks = marks
    found.told = [p for p in parameters.silent if p in puts]
    came = landing.end() if places else {
        p for p in parameters.own if of_parameters[p] is not None}
    found.results = (*of_inputs, *parameters.land(of_parameters),
                     *(None for _ in parameters.sample), *more)
    found.own = [p for p in parameters.own if p in came]
    found.taken = landing.taken
    found.gradients = [places[p] for p in found.own] if places else \
        chained.apart_from(grads, [of_parameters[p] for p in found.own])
    gathered = parameters.gathered
    return [strides.memory_of(r) for r in found.results if r is not None
            and not (gathered and gathered.is_shared(r))]


@contextlib.contextmanager
def _strided(parameters, instance: Instance):
    """Refuses gradients whose memory grows with what they are of."""
    names = {p: name for _, name, p in parameters.places}
    of = [(t, "an input") for t in instance.inputs if t.requires_grad]
    of += [(leaf, names[p]) for p, leaf in zip(parameters.all,
                                               instance.leaves)]
    handles = [t.register_hook(functools.partial(_refuse_sparse, name))
               for t, name in of]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _refuse_sparse(name: str, grad) -> None:
    if grad is not None and grad.layout != torch.strided:
        raise tree.Unfit(f"{name} has sparse gradients, whose sizes change")


@contextlib.contextmanager
def _unchanged(segment, instance: Instance):
    """What modules and weights hold in Python, and the host's random numbers:
    hooks of tensors and functions' backwards run here, and never again."""
    attributes = Attributes(segment, instance.leaves)
    segment.owner.things.look()
    settings = segment.settings.now()
    numbers = HostNumbers(segment.owner.captures.generators,
                          segment.settings.generators)
    try:
        yield
        numbers.refuse_draws("its backward")
        found = attributes.walk()
        for name, _ in attributes.new(found):
            raise tree.Unfit(f"its backward changes an attribute, {name}, "
                             "which a replay would not: copy it into a buffer")
        # What it does not change the next time, it may after that.
        attributes.refuse_changes("its backward", found, tree.Unfit)
        settings.settle("its backward", tree.Unfit)
    except BaseException:
        attributes.put_back()
        settings.put_back()
        numbers.put_back()
        raise


@contextlib.contextmanager
def eager_pass(segment, instance: Instance, microbatch: int, grads):
    """A backward, as the library is told of it."""
    with eagerly(segment, 1, lambda: segment.enter(
            1, grads, microbatch, instance.flight[0])):
        yield
    if segment.weights is not None:
        segment.weights.came(instance, microbatch, False)
    segment.owner.count("backward")


def _eagerly(segment, instance: Instance, microbatch: int, grads, twin):
    """The forward was a graph, the backward is not: it reads what the
    forward has left at its own addresses, or has read there."""
    parameters = segment.parameters
    with eager_pass(segment, instance, microbatch, grads):
        if segment.must_run_again(instance):
            instance = again.after(segment, instance, twin)
        with flags.carried(parameters.all, instance.leaves), OnTheHost():
            of_inputs, of_parameters, more = take_grads(
                segment, instance, grads)
    add_eagerly(parameters.own, [of_parameters[p] for p in parameters.own])
    segment.sums.give(of_parameters)
    return (*of_inputs, *(of_parameters[p] for p in parameters.returned),
            *(None for _ in parameters.sample), *more)
