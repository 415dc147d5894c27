"""Passes become graphs: the modules run once inside a capture.

The forward is recorded with autograd on, and autograd's graph of it is kept
until the backward has been recorded from it.  A backward is recorded before it
runs; it then runs as any other that is recorded.  Should that fail, it runs
eagerly: on autograd's graph, or where that has been let go on the way, on that
of modules that have run once more (`_can_run_again`).

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib

import torch

from .. import _abi
from ..errors import Error
from . import checkpoint, contributions, tree
from .attributes import Attributes, HostNumbers
from .contributions import Contributions
from .gradients import add_eagerly
from .landing import Landing
from .memory import is_dense, tensor_at
from .places import lent


class Instance:
    """A segment in one slot: what its graphs read and write."""

    __slots__ = ("slot", "flight", "serial", "call", "autocast", "inputs",
                 "before", "numbers", "leaves", "live", "spoiled", "spent",
                 "outputs", "shape", "constant", "uses", "again", "wanted",
                 "layouts", "alone", "backward", "first", "node",
                 "attributes", "kept")

    def __init__(self):
        self.slot = 0
        self.flight = ()  # the step and the microbatch that recorded it
        self.serial = 0  # the how manieth recording its forward was
        self.call = None  # the form of its arguments
        self.autocast = None  # its dtype, if it was on
        self.inputs = ()  # tensors at the graph's own addresses
        self.leaves = ()  # others at the addresses of the parameters
        self.live = None  # the outputs with autograd's graph, until recorded
        self.spoiled = False  # what its backward reads, for this time
        self.spent = False  # autograd's graph, by a recording
        self.before = None  # attributes of before the forward
        self.numbers = None  # the host's random ones, of then
        self.outputs = ()  # the same without
        self.shape = []  # the form of each module's result
        self.constant = ()  # the outputs that need no gradient
        self.uses = ()  # edges to inputs that are used elsewhere too
        self.again = ()  # those inputs, one time less than they are used
        self.kept = ()  # inputs whose gradients somebody may keep
        self.wanted = ()  # the outputs whose gradients the backward reads
        self.layouts = ()  # their strides
        self.alone = ()  # those of them that a parameter depends on alone
        self.backward: Backward | None = None  # that writes or adds
        self.first: Backward | None = None  # for a first gradient, or none
        self.node = None  # autograd's, for a forward without its backward
        self.attributes = ()  # tensors that the graph may read

    def backwards(self) -> list:
        return [b for b in (self.backward, self.first) if b is not None]


class Backward:
    """A graph of an instance's backward."""

    __slots__ = ("variant", "adds", "flight", "chained", "results", "own",
                 "gradients", "home", "serial", "marks")

    def __init__(self, variant: int, adds: bool, home, flight: tuple):
        self.variant = variant  # of gh_pass
        self.flight = flight  # whose memory it uses
        self.adds = adds  # to gradients, or puts them
        self.chained = ()  # gradients read where the next segment wrote them
        self.results = ()  # what autograd is given, one for each input
        self.own = ()  # parameters whose gradients the graph puts in place
        self.gradients = ()  # where
        self.home = home  # which has those
        self.serial = 0  # the how manieth it was recorded
        self.marks = ()  # attributes that it sets of parameters


def shaped(grad, output, layout):
    """A gradient of the strides that a recording knows; zeros for none."""
    if grad is None:
        grad = torch.zeros_like(output)
    if grad.stride() == layout:
        return grad
    copy = torch.empty_strided(grad.size(), layout, dtype=grad.dtype,
                               device=grad.device)
    return copy.copy_(grad)


def why_not(segment, tensors):
    """Why calls with such tensors are not recorded, or None."""
    if not tensors:
        return "no tensor goes into it"
    for tensor in tensors:
        if not is_dense(tensor):
            return "a tensor with holes or overlaps goes into it"
        if tensor.device.index != segment.owner.device:
            return f"a tensor on {tensor.device} goes into it"
    if not segment.parameters.all and not any(t.requires_grad
                                              for t in tensors):
        return "nothing in it is trained"
    return None


@contextlib.contextmanager
def _undisturbed(draws):
    """What autocast has cached outside of a graph goes when its region ends,
    and the graph would go on reading it; and hooks of saved tensors would be
    called once and never again."""
    cached = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        with checkpoint.unheard(), checkpoint.without_states(draws):
            yield
    finally:
        torch.set_autocast_cache_enabled(cached)


def _buffers_apart(segment):
    """The modules with others at the addresses of their buffers: autograd
    keeps some until the backward is recorded, and refuses those that somebody
    has written by then."""
    held = [(m._buffers, name, b) for site in segment.sites
            for m in site.module.modules()
            for name, b in m._buffers.items() if b is not None]
    return lent(held, [b.data for _, _, b in held])


@contextlib.contextmanager
def _closing(owner):
    """What goes wrong leaves no pass open."""
    try:
        yield
    except BaseException:
        owner.cancel(None)
        raise


def _static(segment, tensors):
    """Where the library wants the pass to read; of versions of their own, as
    the recording may be used when the tensors are others' again."""
    inputs = segment.decision.inputs
    addresses = [inputs[i].address or 0 for i in range(len(tensors))]
    return [t.data if address == t.data_ptr() else tensor_at(address, t)
            for address, t in zip(addresses, tensors)]


def _capture(segment, direction: int, run) -> bool:
    """run() returns the pass's outputs; False: it is no graph, and the pass
    is not open any more."""
    owner = segment.owner
    try:
        outputs = run()
    except Exception as failure:  # whatever the modules raise
        owner.cancel(None)
        why = str(failure).split("\n", 1)[0]
        if not isinstance(failure, tree.Unfit):
            why = f"{type(failure).__name__}: {why}"
        segment.refuse(why)
        return False
    except BaseException:
        owner.cancel(None)
        raise
    status = segment.exit(direction, outputs)
    if status == _abi.GH_RERUN:
        segment.refuse(owner.error.text.decode())
        return False
    owner.check(status)
    return True


# ---- forward ---------------------------------------------------------------


def forward(segment, tensors, args, kwargs) -> Instance | None:
    """Of a pass that is open; None: the modules are to run eagerly."""
    owner = segment.owner
    instance = Instance()
    attributes = instance.before = Attributes(segment)
    instance.numbers = HostNumbers(owner.captures.generators)
    with _closing(owner):
        segment.parameters.sort(owner.by_autograd)
        instance.slot = segment.decision.slot
        instance.flight = (owner.steps, owner.microbatch)
        instance.inputs = _static(segment, tensors)
        # Without parameters nothing tells autograd.grad() from backward().
        instance.kept = [i for i, t in enumerate(tensors)
                         if contributions.may_keep(t) or (
                             t.requires_grad and not segment.parameters.all)]
        for inside, outside in zip(instance.inputs, tensors):
            inside.requires_grad_(outside.requires_grad)
        if not _capture(segment, 0, lambda: _run(
                segment, instance, attributes, tensors, args, kwargs)):
            attributes.put_back()
            instance.numbers.put_back()
            return None
    instance.serial = owner.flights.next_serial()
    segment.parameters.note_old()
    instance.attributes = attributes.tensors()
    instance.outputs = [o.detach() for o in instance.live]
    instance.constant = [i for i, o in enumerate(instance.live)
                         if not o.requires_grad]
    segment.instances[instance.slot] = instance
    segment.serial = min(i.serial for i in segment.instances.values())
    return instance


def _run(segment, instance: Instance, attributes, tensors, args, kwargs):
    indices = {id(t): i for i, t in enumerate(tensors)}
    instance.call = tree.form((args, kwargs),
                              lambda t: tree.Place(0, indices[id(t)]))
    if torch.is_autocast_enabled():
        instance.autocast = torch.get_autocast_dtype("cuda")
    args, kwargs = tree.fill(instance.call, (instance.inputs,))
    contents = _contents(args, kwargs)
    versions = [t._version for t in instance.inputs]
    results = _play(segment, instance, args, kwargs)
    if versions != [t._version for t in instance.inputs]:
        raise tree.Unfit("it changes in place what it is given")
    if HostNumbers(segment.owner.captures.generators).have_moved(
            instance.numbers):
        raise tree.Unfit("it draws random numbers on the host, of Python, "
                         "numpy or torch, which a replay would not")
    if contents != _contents(args, kwargs):
        raise tree.Unfit("it changes a list or dict that it is given")
    if not segment.places.are_kept():
        raise tree.Unfit("it replaces a parameter or a buffer")
    if not any(t.requires_grad for t in results.tensors):
        raise tree.Unfit("nothing that comes out of it needs a gradient")
    _refuse_others(instance, attributes, results)
    instance.live = results.tensors
    _note_uses(segment, instance)
    return results.last


def _play(segment, instance: Instance, args, kwargs) -> "_Results":
    """Runs the modules, on tensors of autograd's that are the recording's."""
    results = _Results(instance)
    instance.leaves = segment.parameters.aliases()
    with _undisturbed(segment.draws), _buffers_apart(segment), \
            segment.parameters.replaced_by(instance.leaves):
        segment.chain.run(args, kwargs, instance.inputs, results.note)
    return results


def _contents(args, kwargs):
    """Of all that a call is given, to be compared."""
    tensors: list = []
    key: list = []
    try:
        tree.gather((args, kwargs), tensors, key)
    except tree.Unfit:
        return None
    return [id(t) for t in tensors], key


def _refuse_others(instance, attributes, results) -> None:
    """Gradients come in by the results, and leave by inputs and parameters."""
    for name, tensor in attributes.new():
        if tensor.requires_grad:
            raise tree.Unfit("it keeps a tensor with a gradient in an "
                             f"attribute, {name}: return it instead")
        raise tree.Unfit("it leaves another tensor in an attribute, "
                         f"{name}, which a replay would not: return it "
                         "instead, or copy it into a buffer")
    if contributions.leaves(results.tensors,
                            [*instance.inputs, *instance.leaves]):
        raise tree.Unfit("it reads a trained tensor that was neither given to "
                         "it nor is a parameter that it had at the attach")


def _note_uses(segment, instance: Instance) -> None:
    """Of inputs that are used elsewhere too."""
    uses = contributions.uses(instance.live, instance.inputs)
    instance.uses = {i: uses[i] for i in sorted(segment.elsewhere)}
    instance.again = [i for i, edges in instance.uses.items()
                      for _ in edges[1:]]


class _Results:
    """What comes out of the modules of a segment."""

    def __init__(self, instance: Instance):
        self.instance = instance
        self.tensors: list = []
        self.last: list = []

    def note(self, result) -> list:
        """Of the next module; returns its tensors."""
        self.last = []
        tree.gather(result, self.last, [])
        self.instance.shape.append(tree.form(result, self._place))
        return self.last

    def _place(self, tensor):
        for i, given in enumerate(self.instance.inputs):
            if given is tensor:
                return tree.Place(1, i)
        for i, other in enumerate(self.tensors):
            if other is tensor:
                return tree.Place(0, i)
        if not is_dense(tensor):
            raise tree.Unfit("a tensor with holes or overlaps comes out of it")
        self.tensors.append(tensor)
        return tree.Place(0, len(self.tensors) - 1)


# ---- backward --------------------------------------------------------------


def backward(segment, instance: Instance, microbatch: int, grads):
    """The first of an instance."""
    owner = segment.owner
    instance.wanted = [i for i, g in enumerate(grads) if g is not None]
    instance.layouts = [_layout(grads[i]) for i in instance.wanted]
    instance.alone = _alone(instance)
    given = segment.read(instance, grads)
    if instance.spent and segment.refused is None:
        segment.refuse("the recording of its backward was interrupted")
    if segment.refused is None:
        segment.parameters.decide(
            owner.accumulates or owner.microbatch > 0
            or segment.aside is not None)
        _record_all(segment, instance, microbatch, given)
    if segment.refused is not None or instance.backward is None:
        return _eagerly(segment, instance, microbatch, given)
    instance.inputs = instance.leaves = instance.uses = ()
    instance.live = instance.call = None
    instance.before = instance.numbers = None
    return segment.run_back(instance, microbatch, grads)


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


def _layout(grad):
    return grad.stride() if is_dense(grad) else grad.contiguous().stride()


def _record_all(segment, instance, microbatch: int, grads) -> None:
    """What writes gradients; or what adds, and what puts the first."""
    owner = segment.owner
    flight = owner.flights.of_backward(segment, instance)
    home = segment.parameters.home()
    segment.take_back(home)
    adds = segment.parameters.adds
    with _closing(owner):
        instance.backward = _record(segment, instance, microbatch, grads,
                                    Backward(0, adds, home, flight))
        if instance.backward is None:
            return
        owner.flights.note_backward(segment, instance, flight)
        if adds:
            instance.first = _record(segment, instance, microbatch, grads,
                                     Backward(1, False, home, flight))
    if instance.first is not None:
        owner.twins.know(*instance.backwards())
    segment.parameters.homes = list({b.home: None for i
                                     in segment.instances.values()
                                     for b in i.backwards()})


def _record(segment, instance, microbatch: int, grads, found: Backward):
    """None: it is no graph."""
    owner = segment.owner
    home = found.home
    places = segment.parameters.places_to_add(home)  # not in a pool
    grads = [owner.twins.of(g, found.variant) for g in grads]
    owner.recording = found.flight
    try:
        action = segment.enter(1, grads, microbatch, found.variant,
                               _abi.GH_PASS_PREPARE)
    finally:
        owner.recording = None
    if action != _abi.GH_ACTION_RECORD:
        owner.cancel(None)
        return None
    static = _static(segment, grads)

    def run():
        return _differentiate(segment, instance, static, found, places)

    if not _capture(segment, 1, run):
        return None
    found.serial = owner.flights.next_serial()
    home.put(zip(found.own, found.gradients))
    if not segment.parameters.adds:
        home.serial = found.serial
    found.chained = [s if s.data_ptr() == g.data_ptr() else None
                     for s, g in zip(static, grads)]
    if not any(c is not None for c in found.chained):
        found.chained = ()
    return found


def _take_grads(segment, instance: Instance, grads, keep=True):
    """Runs autograd's backward; what it finds for inputs, for parameters, and
    for inputs once more.  Reentrant checkpointing runs the modules in it.
    Where it may, autograd lets go on its way, and gradients come to lie there;
    not if it is to `keep` all for another time."""
    apart = {i: Contributions(edges) for i, edges in instance.uses.items()}
    instance.spent = not keep
    try:
        with _undisturbed(segment.draws), \
                segment.parameters.replaced_by(instance.leaves):
            torch.autograd.backward(
                [instance.live[i] for i in instance.wanted], grads,
                retain_graph=keep)
    finally:
        of_parameters = dict(zip(segment.parameters.all,
                                 _taken(instance.leaves)))
        of_inputs = _taken(instance.inputs)
        for each in apart.values():
            each.remove()
    again = []
    for i, each in apart.items():
        of_inputs[i], *others = each.found or [None]
        again += others + [None] * (instance.again.count(i) - len(others))
    return of_inputs, of_parameters, again


def _can_run_again(segment) -> bool:
    """Whether the modules then give the same: they draw nothing, and have no
    buffers that they might have changed."""
    return segment.draws is False and not any(
        b is not None for site in segment.sites
        for m in site.module.modules() for b in m._buffers.values())


def _run_again(segment, instance: Instance) -> None:
    """On what the forward has read, for autograd's graph.  Python is as it was
    then; should anything else have changed since, the outputs tell."""
    now = Attributes(segment)
    numbers = HostNumbers(segment.owner.captures.generators)
    again = Instance()
    again.inputs = instance.inputs
    args, kwargs = tree.fill(instance.call, (instance.inputs,))
    instance.before.put_back()
    instance.numbers.put_back()
    try:
        with torch.enable_grad(), torch.autocast(
                "cuda", instance.autocast, instance.autocast is not None):
            found = _play(segment, again, args, kwargs).tensors
    finally:
        now.put_back()
        numbers.put_back()
    if not all(map(_is_same, found, instance.outputs)):
        raise Error(f"{segment.name}: its backward cannot be recorded, and "
                    "its modules do not give again what they gave in the "
                    "forward; detach, or leave this one out of the layers")
    instance.live, instance.leaves, instance.spent = found, again.leaves, False
    _note_uses(segment, instance)


def _is_same(tensor, other) -> bool:
    """To the bit."""
    bits = [t.detach().contiguous().flatten().view(torch.uint8)
            for t in (tensor, other)]
    return torch.equal(*bits)


def _taken(leaves) -> list:
    grads = [leaf.grad for leaf in leaves]
    for leaf in leaves:
        leaf.grad = None
    return grads


def _differentiate(segment, instance, static, found, places):
    """A backward inside a capture, which leaves gradients in `places`, or
    where there are none, where autograd makes them."""
    parameters = segment.parameters
    landing = Landing(dict(zip(parameters.all, instance.leaves)), places,
                      found.adds, segment.owner.beside)
    before = [dict(vars(leaf)) for leaf in instance.leaves]
    try:
        of_inputs, of_parameters, again = _take_grads(
            segment, instance, static,
            keep=found.adds or not _can_run_again(segment))
    finally:
        landing.close()
    found.marks = _marks(parameters.all, instance.leaves, before)
    came = landing.end() if places else {
        p for p in parameters.own if of_parameters[p] is not None}
    found.results = (*of_inputs,
                     *(of_parameters[p] for p in parameters.returned),
                     *(None for _ in parameters.sample), *again)
    found.own = [p for p in parameters.own if p in came]
    found.gradients = [places.get(p, of_parameters[p]) for p in found.own]
    return [r for r in found.results if r is not None]


def _marks(parameters, leaves, before) -> list:
    """What a backward has said to who comes after it, as one that adds to a
    `main_grad` by itself does; and from now on says again."""
    marks = []
    for p, leaf, old in zip(parameters, leaves, before):
        for name, value in vars(leaf).items():
            if name not in old or old[name] is not value:
                marks.append((vars(p), name, value))
        vars(leaf).clear()
        vars(leaf).update(old)  # for the other graph of this backward
    return marks


def _eagerly(segment, instance: Instance, microbatch: int, grads):
    """The forward was a graph, the backward is not: it reads what the
    forward has left at its own addresses, or has read there."""
    owner = segment.owner
    parameters = segment.parameters
    owner.pause()
    try:
        segment.enter(1, grads, microbatch)
        try:
            if instance.spent:
                _run_again(segment, instance)
            before = [dict(vars(leaf)) for leaf in instance.leaves]
            of_inputs, of_parameters, again = _take_grads(
                segment, instance, grads)
        except BaseException:
            owner.cancel(None)
            raise
        owner.check(segment.exit(1, ()))
    finally:
        owner.resume()
    for names, name, value in _marks(parameters.all, instance.leaves, before):
        names[name] = value
    owner.count("backward")
    add_eagerly(parameters.own, [of_parameters[p] for p in parameters.own])
    return (*of_inputs, *(of_parameters[p] for p in parameters.returned),
            *(None for _ in parameters.sample), *again)
