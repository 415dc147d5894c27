"""What stands in for a module's forward, and modules for which nothing may.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import functools
from types import FunctionType, SimpleNamespace

import torch

from ..base import private
from ..base.private import GLOBAL_HOOKS, are_heard, give_back, hooks_of
from ..guard.storage_addresses import places_of
from ..quantized import calls
from . import collected, shared_dicts
from .reached_inputs import WORD


class Site:
    """What stands in for a module's forward."""

    def __init__(self, segment, position: int, name, module):
        self.segment = segment
        self.name = name
        self.position = position
        self.module = module
        # None: that of its class, whichever it has by then.
        self.own = vars(module).get("forward")
        # Some look for the names of its arguments.
        functools.update_wrapper(self, self.forward, updated=())
        self.bracket = None  # what offload puts around it
        self.places = places_of([module], segment.owner.gathering)
        self.packed = None  # who changes arguments for graphs
        self.packs: list = []  # and which
        self.given = None  # what the caller gave, where graphs are given more
        self.tried: dict = {}  # names of arguments that were less, by rooms
        self.collected = collected.of(self)  # outputs of submodules
        self.shares = False  # it is given dicts that layers share
        self.quantized = None  # what it is in regions of te.autocast

    def __call__(self, *args, **kwargs):
        if self.quantized is None:
            # What most calls come to, without those in between.
            if self.collected is self.packed is None and not self.shares:
                return self.go(args, kwargs)
            return self._call(args, kwargs)
        kwargs = self.quantized.enter(kwargs)
        told = kwargs.get(calls.WORD)
        result = self._call(args, kwargs)
        self.quantized.leave(told)
        return result

    def _call(self, args, kwargs):
        if self.collected is not None:
            asked = self.collected.asked()
            if asked:
                return self.collected.call(asked, args, kwargs)
        return self.enter(args, kwargs)

    def enter(self, args, kwargs):
        if self.shares:
            return shared_dicts.call(self, args, kwargs)
        return self.enter_plain(args, kwargs)

    def enter_plain(self, args, kwargs):
        if self.packed is not None:
            return self.packed.call(self, args, kwargs)
        return self.go(args, kwargs)

    def go(self, args, kwargs):
        """With what a graph would be given."""
        if self.position == 0:
            segment = self.segment
            chain = segment.chain if segment.evaluated is None \
                else segment.following()
            if chain.reached.paths:
                kwargs = chain.reached.given(kwargs)
            return segment.lead(self, args, kwargs)
        return self.segment.follow(self, args, kwargs)

    @property
    def forward(self):
        """As the module would have it without us."""
        if self.own is not None:
            return self.own
        kind = type(self.module)
        forward = kind.forward
        return forward.__get__(self.module, kind) \
            if isinstance(forward, FunctionType) else forward

    def run(self, *args, **kwargs):
        """The module, eagerly: with what it was given."""
        if self.given is not None:
            return self.packed.run(self, args, kwargs)
        return self.play(*args, **kwargs)

    def play(self, *args, **kwargs):
        """The module with these, as in a recording."""
        kwargs.pop(WORD, None)
        return (self.bracket or self.plain)(*args, **kwargs)

    def plain(self, *args, **kwargs):
        if self.quantized is not None:
            return self.quantized.run(self._plain, args, kwargs)
        return self._plain(*args, **kwargs)

    def _plain(self, *args, **kwargs):
        if shared_dicts.WORD in kwargs:
            return shared_dicts.run(self._collect, args, kwargs)
        return self._collect(*args, **kwargs)

    def _collect(self, *args, **kwargs):
        if collected.WORD in kwargs:
            return self.collected.run(self.forward, args, kwargs)
        return self.forward(*args, **kwargs)

    def anew(self, args, kwargs):
        """By who has been attached since, if anybody has."""
        kwargs = {n: v for n, v in kwargs.items() if n != WORD}
        forward = self.module.forward
        return forward(*args, **kwargs) if isinstance(forward, Site) \
            else self.plain(*args, **kwargs)

    def __reduce__(self):
        """A copy of the module is one without graphs, and without us."""
        if self.own is not None:
            return getattr, (SimpleNamespace(forward=self.forward), "forward")
        return getattr, (self.module, "forward")

    def detach(self) -> None:
        self.bracket = None
        # For who has kept this one, or put a forward of his own around it.
        self.__class__ = Detached
        if vars(self.module).get("forward") is self:
            give_back(self.module, self.own)


class Detached(Site):
    """The module's forward again, for who has kept the other."""

    def __call__(self, *args, **kwargs):
        return self.forward(*args, **kwargs)


def be_opaque() -> None:
    """Who compiles a model around a site sees a call, and does not look into
    it: torch.compiler.disable() without its function more in each call."""
    private.hide_from_compile(Site.__call__, "it has graphs of graphhooks")


def is_called_around(inner, module) -> bool:
    """Whether the hooks of one of a module's are called outside of what stands
    in for its forward, with graphs or without."""
    return inner is module or inner is vars(module).get("outer")


def _puts_off(module) -> bool:
    """As Transformer Engine's do, in a queue."""
    store = getattr(module, "wgrad_store", None)
    return getattr(store, "context", None) is not None \
        and getattr(store, "enabled", True)


def why_left_alone(module, gathering) -> str | None:
    if private.is_compiled(module):
        return "it is compiled by torch.compile"
    if any(GLOBAL_HOOKS):
        return "all modules have hooks, which a replay would not call"
    for name, inner in module.named_modules():
        name = name or "it"
        if not is_called_around(inner, module) and are_heard(
                hooks_of(inner)):
            return f"{name} has hooks, which a replay would not call" + (
                ", as FSDP shards it by itself: fully_shard the whole layer "
                "alone, or attach to such parts, granularity=\"part\"" * (
                    private.is_fsdp2(inner)))
        if isinstance(inner, torch.jit.ScriptModule):
            return (f"{name} is made by torch.jit, and nobody can lend it "
                    "parameters for a recording")
        if isinstance(inner, torch.nn.RNNBase):
            return (f"{name} is a {type(inner).__name__}, which keeps its "
                    "weights in a list besides")
        if _puts_off(inner) and getattr(module, "delayed", None) is None:
            return (f"{name} puts the gradients of its weights off "
                    "(delay_wgrad_compute), which its caller computes by "
                    "backward_dw() of what its backward has kept, and a graph "
                    "keeps nothing: make a segment of the layer, with "
                    "delayed=, or leave the option out")
        if getattr(inner, "sparse", False) is True:
            return f"{name} has sparse gradients, whose sizes change"
        tensors = {n: t for n, t in (*private.parameters_of(inner).items(),
                                     *private.buffers_of(inner).items())
                   if t is not None and not gathering.holds(inner, n)}
        for n, t in tensors.items():
            if hasattr(t, "__tensor_flatten__"):
                return (f"{n} of {name} is a {type(t).__name__}, whose "
                        "numbers are in tensors within it, and these may be "
                        "others at any time: leave the layer out")
        if any(t.layout != torch.strided for t in tensors.values()):
            return (f"{name} has a sparse parameter or buffer, which has no "
                    "address")
    return None
