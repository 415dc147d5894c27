"""The place of a layer for a graph.

A layer with graphs calls `layer.cuda_graphs[microbatch % n](hidden_states,
...)` for the part that its scope names, writes the outputs to where the rest
of the layer looks for them, and runs that rest.  Here n is 1, and what is
called is a segment: its slots tell microbatches apart.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import types
from typing import NamedTuple

import torch
from torch.cuda import is_current_stream_capturing as is_capturing

from ..torch.attach.body import Body
from ..torch.base.private import (GLOBAL_HOOKS, copy_as_ever, copy_without,
                                  hooks_of, without_hooks)
from . import rope, scope, weights
from .fp8 import Calls
from .left import KeptGroups, Returned
from .offload import interface as offload
from .routing import Routing

log = logging.getLogger("graphhooks")

# What Megatron passes for graphs of others.
_FOR_OTHERS = ("cuda_graph_stream", "cuda_graph_event")
# What a schedule leaves in a layer between two calls; no scope reads it.
_OF_LAYER = ("current_microbatch", "mlp_norm_manager", "attn_norm_manager",
             "backward_dw_wrapper")
# What an attach has put there, with which a copy of the layer is another.
_REPLACED = ("_te_cuda_graph_replay", "_get_te_cuda_graph_replay_args",
             "_get_submodules_under_cudagraphs", "_should_call_te_cudagraph")
_OF_ATTACH = (*_REPLACED, "cuda_graphs", "cuda_graph_manual_hooks")
# What the rest of a layer leaves in its token dispatcher besides tensors.
_OF_DISPATCHER = ("d2h_event", "input_splits", "output_splits",
                  "output_splits_tp", "tokens_per_expert",
                  "num_global_tokens_per_local_expert")
_MANAGER = "_comm_manager"
# What a MoE layer works out of its input before it reads it; a graph that ends
# within the layer leaves it to the rest.
_OF_WHOLE = ("capacity", "num_out_tokens", "hidden_shape",
             "hidden_shape_before_permute")


_FLAGS = "megatron.core.transformer.cuda_graphs"
_FLAG = "is_graph_capturing"


def _is_plain(config) -> bool:
    """Nothing is quantized, and nothing drawn."""
    return not (config.fp8 or config.fp4 or config.hidden_dropout
                or config.attention_dropout)


@contextlib.contextmanager
def _recomputing(does: bool):
    """Megatron's checkpoints do nothing in a capture, by a flag that tells
    other code where a scope ends.  They ask for it anew each time, and others
    have its function since their import."""
    if not does:
        yield
        return
    flags = importlib.import_module(_FLAGS)
    own = getattr(flags, _FLAG)
    setattr(flags, _FLAG, lambda: False)
    try:
        yield
    finally:
        setattr(flags, _FLAG, own)


class Seam:
    """That of one layer: it stands in `layer.cuda_graphs`."""

    def __init__(self, names, layer, name: str, random, settings,
                 quantization=None):
        self.layer = layer
        self._random = random
        self._names = names
        self._packed = None  # of the call at hand
        self._beside = self._inside = None  # its groups, if some are marked
        covered = scope.covered(names, layer)
        # For hooks that Megatron calls by hand.
        layer._get_submodules_under_cudagraphs = lambda: covered
        self._delayed = weights.of(names, [
            m for each in covered for m in each.modules()])
        self.body = Body(self._run, covered, name, self._delayed)
        self.body.be_of(layer)
        self._calls = Calls(quantization, self.body, settings)
        self._groups = KeptGroups(self.body)
        self._returned = Returned(self.body)
        self._routing = Routing(self.body)
        self._hooks = [*hooks_of(layer), *GLOBAL_HOOKS]
        self.twice = scope.entered_twice(names, layer)
        self._hooks_twice = [h for m in self.twice for h in (
            *hooks_of(m), *GLOBAL_HOOKS)]
        # Where exchanges overlap Megatron calls what layers are made of, and
        # neither the layer nor its mlp: their hooks are not heard.
        self._overlaps = layer.config.overlap_moe_expert_parallel_comm
        self._not_heard = [h for m in self.twice for h in hooks_of(m)] \
            if self._overlaps else []
        self._has_said = False
        self.body.remedy = scope.remedy_of(layer)
        self.body.scope = scope.spelled(names, layer,
                                        layer.config.cuda_graph_modules)
        self._leftovers = Leftovers(layer, self._has(
            names.CudaGraphModule.moe))
        self.body.forget = self._leftovers.clear
        self._takes_attention = self._has(names.CudaGraphModule.attn)
        self._makes_numbers = getattr(getattr(getattr(
            layer, "mlp", None), "token_dispatcher", None), "drop_and_pad",
            False)
        # What is discarded in a graph and computed again is kept: the memory
        # of what it gives is of the graph.  Of a norm the one may be inside
        # and the other beside it.
        again = {*(layer.config.recompute_modules or ())} \
            if layer.config.recompute_granularity == "selective" else set()
        self._keeps = bool(again) and "layernorm" not in again
        self._drops_experts = "moe" in again \
            and self._has(names.CudaGraphModule.moe)
        # Experts leave other tensors behind if they are computed again, so
        # does FP8; and generators are put back that a graph draws from.
        self._checkpoints = bool(again.difference({"layernorm", "moe_act"})) \
            and again.isdisjoint({"moe", "shared_experts"}) \
            and self._takes_attention and _is_plain(layer.config)
        self.body.keeps_more = self._checkpoints
        if self._overlaps:
            # Who calls the layer itself wants all of it, and gets a part of it
            # from a graph.
            layer._should_call_te_cudagraph = _never
            layer.cuda_graphs = _InTraining(self.twice)
        layer.cuda_graphs.append(self)
        # Megatron's own makes a mask of zeros where there is none.
        base = names.GraphableMegatronModule._get_te_cuda_graph_replay_args
        layer._get_te_cuda_graph_replay_args = types.MethodType(base, layer)
        layer._te_cuda_graph_replay = self._replay
        copy_without(layer, _OF_ATTACH, {"cuda_graphs": list,
                                         "cuda_graph_manual_hooks": list})

    def _has(self, word) -> bool:
        words = self.layer.config.cuda_graph_modules
        return not words or word in words

    def _replay(self, *args, **kwargs):
        """In the place of the layer's own, to which Megatron goes past the
        layer's hooks and its forward."""
        if self._overlaps:
            return self._go(*args, **kwargs)
        layer = self.layer
        own = vars(layer).get("forward")
        if own is not None or any(self._hooks_twice) \
                or layer.training and not all(m.training for m in self.twice):
            self._pass_by(own, args, kwargs)
            for hook, given in layer.cuda_graph_manual_hooks:
                hook(*given)
            return torch.nn.Module.__call__(layer, *args, **kwargs)
        if not any(self._hooks):
            return self._go(*args, **kwargs)
        # Module.__call__ calls the hooks around this.
        layer.forward = self._go_within
        try:
            return torch.nn.Module.__call__(layer, *args, **kwargs)
        finally:
            vars(layer).pop("forward", None)

    def _go_within(self, *args, **kwargs):
        vars(self.layer).pop("forward", None)
        return self._go(*args, **kwargs)

    def _pass_by(self, own, args, kwargs) -> None:
        """The layer runs without graphs: why is said once, and the ranks that
        run its segment with this one are told."""
        why = "its forward is another than that of its class, which a graph " \
            "of a part of it would pass by" if own is not None else \
            "its mlp is in eval(), and Megatron ends no scope within such a " \
            "one" if not any(self._hooks_twice) else \
            "its mlp has hooks, and the scope ends within that, so a graph " \
            "and the rest would call them twice: leave moe_router out of " \
            "the scope"
        site = vars(self.body).get("forward")  # of who is attached
        if not self._takes_attention:  # as in a call of the segment
            kwargs = {}
        if site is not None and site.segment.pass_by(site, args, kwargs, why):
            return
        if not self._has_said:
            self._has_said = True
            log.warning("%s runs eagerly: %s", self.body.name, why)

    def _go(self, *args, **kwargs):
        """Megatron refuses packed sequences in graphs, as they are no tensor;
        a segment takes them as they are."""
        if self._takes_attention:
            self._packed = kwargs.pop("packed_seq_params", None)
        before = offload.enter(self._beside)
        try:
            return type(self.layer)._te_cuda_graph_replay(self.layer, *args,
                                                          **kwargs)
        finally:
            offload.leave(before)
            self._packed = None

    def __call__(self, *args, is_first_microbatch=None, **kwargs):
        given = {k: v for k, v in kwargs.items()
                 if v is not None and k not in _FOR_OTHERS}
        if self._packed is not None:
            given["packed_seq_params"] = self._packed
        self._random.follow()
        if not args:
            args = (given.pop("hidden_states"),)
        # Megatron counts microbatches, which an engine's own loop does not.
        is_first = self._calls.is_first()
        quantized = self._calls.enter(is_first)
        given.update(quantized)
        given.update(self._groups.enter(self._packed))
        given.update(self._routing.enter())
        self._calls.flag(is_first, quantized)
        with self._leftovers:
            result = self._returned.keep(self.body.forward(*args, **given))
        self._calls.leave(quantized)
        self._calls.overwrites(is_first, result)
        if self._drops_experts:
            self._routing.leave(result)
        return _to_host(result) if self._makes_numbers else result

    def _run(self, hidden_states, quantized=None, kept_groups=None,
             routing=None, **kwargs):
        """The part of the layer that the scope names."""
        layer, names = self.layer, self._names
        is_graph = is_capturing()
        self._groups.follow(kwargs.get("packed_seq_params"), kept_groups)
        names._set_capture_start()
        keeps = self._keeps and (is_graph or not self._checkpoints)
        if self._keeps:
            names._set_warmup_start()
            if not keeps:  # a recording may run what has run before
                names._set_warmup_end()
        try:
            with self._calls.inside(quantized), rope.on_the_device(
                    kwargs.get("packed_seq_params")), \
                    without_hooks(self._not_heard), \
                    self._returned.apart() as left, \
                    self._routing.inside(routing), \
                    _recomputing(not is_graph and self._checkpoints):
                before = offload.enter(self._inside)
                try:
                    result = layer._te_cuda_graph_capture(hidden_states,
                                                          **kwargs)
                finally:
                    offload.leave(before)
        finally:
            names._set_capture_end()
            if keeps:
                names._set_warmup_end()
            self._leftovers.clear()
        return self._returned.with_result(
            _to_numbers(result) if self._makes_numbers else result, left)

    def outer(self) -> list:
        """Modules around what it covers, and those in a segment that Megatron
        does not count, without parameters of their own: nobody waits for
        those."""
        return [m for m in self.layer.modules()
                if next(m.parameters(recurse=False), None) is None]

    def offloads(self, marks, index: int) -> None:
        """Its layer's groups, within the segment and beside it."""
        self._beside, self._inside = (marks, index, False), (marks, index,
                                                             True)

    def backward_dw(self) -> None:
        """Weight gradients that the oldest backward has put off."""
        if self._delayed is not None and self.body.backward_dw():
            self._delayed.tell()

    def reset(self) -> None:
        """As graphs of others have it: the graphs live until detach()."""

    def detach(self) -> None:
        layer = self.layer
        if self in layer.cuda_graphs:
            layer.cuda_graphs = []
        layer.cuda_graph_manual_hooks = []
        copy_as_ever(layer)
        for name in _REPLACED:
            vars(layer).pop(name, None)


def _never(*_, **__) -> bool:
    return False


class _InTraining(list):
    """Graphs of a layer: none, to Megatron, while a module is in eval() in
    which it ends scopes in training alone.  Its schedule has eager parts of
    the layer for that."""

    def __init__(self, modules):
        super().__init__()
        self._modules = modules

    def __bool__(self) -> bool:
        return all(m.training for m in self._modules) and len(self) > 0


class _OnHost(NamedTuple):
    """A tensor of the host, as the numbers that it is of."""

    values: list
    dtype: torch.dtype


def _to_numbers(outputs):
    """Experts that are padded to a capacity have the counts of their tokens on
    the host, made of the config and of a shape.  A segment gives back numbers
    as they were when it was recorded."""
    return tuple([
        _OnHost(o.tolist(), o.dtype)
        if isinstance(o, torch.Tensor) and not o.is_cuda else o
        for o in outputs]) if isinstance(outputs, tuple) else outputs


def _to_host(outputs):
    return tuple([
        torch.tensor(o.values, dtype=o.dtype) if type(o) is _OnHost else o
        for o in outputs]) if isinstance(outputs, tuple) else outputs


class Leftovers:
    """What is in a layer and its dispatcher between two calls, and is of
    other microbatches: taken out while a segment runs, so that each call
    finds the same, and put back, or left as the call has set it."""

    def __init__(self, layer, has_experts: bool):
        self._layer = vars(layer)
        self._names = _OF_DISPATCHER + _OF_WHOLE * has_experts
        dispatcher = getattr(getattr(layer, "mlp", None), "token_dispatcher",
                             None)
        self._dispatcher = None if dispatcher is None else vars(dispatcher)
        # Of one that has somebody else do it: tensors that a graph returns.
        self._manager = getattr(getattr(dispatcher, _MANAGER, None),
                                "__dict__", {})
        self._of_manager = [
            name.removeprefix(f"{_MANAGER}.")
            for name in getattr(dispatcher, "cudagraph_attrs", ())
            if name.startswith(f"{_MANAGER}.")]
        # Tensors that it has from the beginning, such as tables; it may have
        # run before the attach.
        self._own = frozenset(
            n for kind in type(dispatcher).__mro__ for n in _names_in(
                vars(kind).get("__init__")))
        self._kept: list = []

    def __enter__(self):
        layer = self._layer
        self._kept = [(n, layer[n]) for n in _OF_LAYER if n in layer]
        for name, _ in self._kept:
            layer[name] = None
        self.clear()

    def __exit__(self, *_):
        self._layer.update(self._kept)

    def clear(self) -> None:
        names = self._dispatcher
        if names is None:
            return
        for name, value in names.items():
            if name in self._names or (isinstance(value, torch.Tensor)
                                          and name not in self._own):
                names[name] = None
        self._manager.update(dict.fromkeys(self._of_manager))


def _names_in(function) -> tuple:
    code = getattr(function, "__code__", None)
    return () if code is None else code.co_names
