"""Passes become graphs: the modules run once inside a capture.

What forwards.py and backwards.py share: how a capture is made, and how the
modules run in it.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import sys

import torch
from torch.cuda import is_current_stream_capturing

from ... import _abi
from ..base import private, tree
from ..base.layouts import is_laid_out, overlaps
from ..base.memory import tensor_at
from ..grad import contributions
from ..grad.strides import copy_of
from ..guard.attributes import refuse_set
from ..guard.storage_addresses import lent
from . import checkpoint
from .failures import SPOILT, is_spoilt, sentence
from .instance import Instance

_MUCH = 1 << 20  # bytes of buffers that are copied in each pass


def why_not(segment, tensors):
    """Why calls with such tensors are not recorded, or None."""
    if not tensors:
        return "no tensor goes into it"
    if len(tensors) > _abi.GH_MAX_BUFFERS:
        return (f"{len(tensors)} tensors go into it, and a graph takes "
                f"{_abi.GH_MAX_BUFFERS} at most")
    for tensor in tensors:
        if tensor.is_neg():
            return ("a negated view goes into it: the sign is a bit beside "
                    "its memory, which is all that a graph reads; give it "
                    "x.resolve_neg()")
        if not is_laid_out(tensor):
            return ("a tensor with overlaps goes into it, as what unfold() "
                    "returns; give it x.contiguous()")
        if tensor.device.index != segment.owner.device:
            return f"a tensor on {tensor.device} goes into it"
    return None


@contextlib.contextmanager
def closing(owner):
    """What goes wrong leaves no pass open."""
    try:
        yield
    except BaseException:
        owner.cancel(None)
        raise


def static(segment, tensors, owns=True):
    """Where the library wants the pass to read; of versions of their own, as
    the recording may be used when the tensors are others' again.  What another
    graph has left there is its own: owns=False if whoever has it besides would
    count as somebody who keeps it (outputs.py)."""
    inputs = segment.decision.inputs
    addresses = [inputs[i].address or 0 for i in range(len(tensors))]
    return [t.data if address == t.data_ptr() and (owns or not t.numel())
            else tensor_at(address, t)
            for address, t in zip(addresses, tensors)]


def capture(segment, signature, direction: int, run) -> bool:
    """run() returns the pass's outputs; False: it is no graph, and the pass
    is not open any more."""
    owner = segment.owner
    try:
        outputs = owner.ranks.recorded(run)
        torch.cuda.Event().record()  # raises, if something has ended it
    except Exception as failure:  # whatever the modules raise
        spoilt = is_spoilt(failure) or isinstance(
            failure, tree.Passing) and _has_ended()
        owner.captures.is_given_up = True
        owner.cancel(None)
        # Autograd lets go of a graph that it goes back through.
        if (spoilt or isinstance(failure, tree.Passing)) and direction == 0 \
                and not segment.has_failed and owner.ranks.tries_again:
            segment.has_failed = True
            owner.count("warmup")
            if spoilt:
                owner.say(segment.name, f"{SPOILT}; it is recorded once more")
        else:
            segment.give_up(signature, sentence(segment, failure))
        return False
    except BaseException:
        owner.cancel(None)
        raise
    status = segment.exit(direction, outputs)
    if status == _abi.GH_RERUN:
        segment.give_up(signature, owner.error.text.decode())
        return False
    owner.check(status)
    return True


def enter_weights(segment, instance, microbatch: int, more: int = 0) -> int:
    """The pass of weight gradients, behind a backward that put them off."""
    return segment.enter(2, (), microbatch, instance.flight[0], more)


@contextlib.contextmanager
def prepared(owner, flight):
    """A pass is entered for its recording alone, in that flight."""
    owner.recording = flight
    try:
        yield
    finally:
        owner.recording = None


def capture_weights(segment, instance, microbatch: int, found, run):
    """`found` with the pool of such a pass, or None: it is no graph."""
    owner = segment.owner
    with closing(owner):
        with prepared(owner, found.flight):
            action = enter_weights(segment, instance, microbatch,
                                   _abi.GH_PASS_PREPARE)
        if action != _abi.GH_ACTION_RECORD:
            owner.cancel(None)
            return None
        if not capture(segment, instance.signature, 2, run):
            return None
    found.pool = owner.captures.pool
    return found


@contextlib.contextmanager
def eagerly(segment, direction: int, enter):
    """What the block computes is a pass of that direction, as the library is
    told of it by enter()."""
    owner = segment.owner
    owner.pause()
    try:
        enter()
        try:
            yield
        except BaseException:
            owner.cancel(None)
            raise
        owner.check(segment.exit(direction, ()))
    finally:
        owner.unpause()


@contextlib.contextmanager
def eager_weights(segment, instance, microbatch: int):
    """Such a pass of weights' gradients."""
    with eagerly(segment, 2,
                 lambda: enter_weights(segment, instance, microbatch)):
        yield
    segment.owner.count("weights")


def _has_ended() -> bool:
    """Whether something has ended the capture, of which nobody has heard."""
    try:
        torch.cuda.Event().record()
    except RuntimeError as failure:
        return is_spoilt(failure)
    return False


@contextlib.contextmanager
def undisturbed(draws):
    """Hooks of saved tensors would be called once and never again; the rest as
    apart_from_caches().  Outside of a capture states of random numbers can be
    read, as hooks of gradients do that run the whole model."""
    with apart_from_caches(), checkpoint.unheard(), \
            checkpoint.without_states(draws) if is_current_stream_capturing() \
            else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def apart_from_caches():
    """What autocast has cached outside of a graph goes when its region ends,
    and the graph would go on reading it.  Outside of such a region the setting
    is left alone: functions that torch.compile has made are made anew where it
    is another, and a compiler at work in a capture leaves other kernels, or
    draws random numbers, so that a graph with these is refused."""
    with contextlib.ExitStack() as stack:
        if any(map(torch.is_autocast_enabled, ("cuda", "cpu"))):
            stack.callback(torch.set_autocast_cache_enabled,
                           torch.is_autocast_cache_enabled())
            torch.set_autocast_cache_enabled(False)
        # Below a mode that sees every operation it compiles nothing anyway.
        if "torch._dynamo" in sys.modules and is_current_stream_capturing() \
                and private.dispatch_mode() is None:
            stack.enter_context(
                torch.compiler.set_stance("fail_on_recompile"))
        yield


@contextlib.contextmanager
def _buffers_apart(segment):
    """The modules with others at the addresses of their buffers: autograd
    keeps some until the backward is recorded, and refuses those that somebody
    has written by then."""
    held = [(registry, name, b) for site in segment.sites
            for registry in map(private.buffers_of, site.module.modules())
            for name, b in registry.items() if b is not None]
    aliases = [b.data for _, _, b in held]
    for (_, _, b), alias in zip(held, aliases):
        vars(alias).update(vars(b))
    with lent(held, aliases):
        yield
    refuse_set([b for _, _, b in held], aliases, "a buffer")


def play(segment, instance: Instance, args, kwargs, offload, leaves=None,
         count=None) -> "Results":
    """Runs the modules, or so many of them, on tensors of autograd's that are
    the recording's, or on `leaves` for parameters; `offload(instance)` says
    what becomes of those that it keeps."""
    results = Results(instance)
    instance.leaves = leaves or segment.parameters.aliases()
    with undisturbed(segment.draws), _buffers_apart(segment), \
            private.without_hooks(segment.hooks), \
            segment.parameters.replaced_by(
                instance.leaves,
                None if is_current_stream_capturing() else True), \
            offload(instance), segment.owner.things.watching(True):
        segment.chain.run(instance.signature, args, kwargs, instance.inputs,
                          results.note, count)
    return results


def contents(args, kwargs):
    """Of all that a call is given, to be compared."""
    tensors: list = []
    key: list = []
    try:
        tree.gather((args, kwargs), tensors, key)
    except tree.Unfit:
        return None
    return [id(t) for t in tensors], key


def found_in_buffers(segment) -> list:
    """What a pass finds there, which it may write, as the graph keeps it for
    who runs the modules once more; of large ones nothing."""
    found = {id(b): b for site in segment.sites for m in site.module.modules()
             for b in private.buffers_of(m).values()
             if b is not None and b.layout == torch.strided}
    return [(b, b.detach().clone()) for b in found.values()] \
        if sum(b.nbytes for b in found.values()) <= _MUCH else []


def refuse_many(results: "Results") -> None:
    if len(results.last) > _abi.GH_MAX_BUFFERS:
        raise tree.Unfit(f"{len(results.last)} tensors come out of it, and a "
                         f"graph gives {_abi.GH_MAX_BUFFERS} at most")


class Results:
    """What comes out of the modules of a segment."""

    def __init__(self, instance: Instance):
        self.instance = instance
        self.tensors: list = []
        self.last: list = []
        self._places: dict = {}  # of what came out, by identity
        self._given = {t.untyped_storage().data_ptr()
                       for t in instance.inputs if t.numel()}

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
        if id(tensor) in self._places:
            return self._places[id(tensor)][0]
        if tensor.is_neg() or tensor.is_conj() or overlaps(tensor):
            raise tree.Unfit("a tensor with overlaps, or of another sign than "
                             "its memory, comes out of it")
        place = tree.Place(0, len(self.tensors))
        self._places[id(tensor)] = place, tensor  # whose identity stays
        if tensor.untyped_storage().data_ptr() in self._given:
            tensor = copy_of(tensor)  # a view of what the library lets go
        self.tensors.append(tensor)
        return place


def note_uses(segment, instance: Instance) -> None:
    """Of inputs that are used elsewhere too, or not at all."""
    uses = contributions.uses(instance.live, instance.inputs)
    instance.unused = [i for i, edges in enumerate(uses) if not edges
                       and instance.inputs[i].requires_grad]
    instance.unused += _unused_weights(segment, instance)
    instance.uses = {i: uses[i] for i in sorted(instance.signature.elsewhere)}
    instance.again = [i for i, edges in instance.uses.items()
                      for _ in edges[1:]]


def _unused_weights(segment, instance: Instance) -> list:
    """Of those that come behind the inputs: their hooks are not to be called
    with nothing."""
    parameters = segment.parameters
    if not parameters.returned or not contributions.tells_all(instance.live):
        return []
    used = contributions.leaves(instance.live)
    leaves = dict(zip(parameters.all, instance.leaves))
    return [i for i, p in enumerate(parameters.returned, len(instance.inputs))
            if leaves[p] not in used]
