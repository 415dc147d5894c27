"""Transformer Engine's quantization in Megatron's layers: besides its regions
(torch/quantized), whether weights that are quantized already are kept.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import importlib

import torch

from ..errors import Error
from ..torch.quantized import regions
from ..torch.quantized.regions import (MODULE, OF_CALLS, OF_REGION, Usages,
                                       metas_of)

# Of modules that quantize weights in the first microbatch of a step; a number
# on the device stands for it.
_FLAG = "is_first_microbatch"
_ADDED = "grad_added_to_main_grad"  # since zero_grad_buffer()


class Quantization(regions.Quantization):
    """That of one process, as the layers of an attach need it."""

    # Of all attaches: the number on the device, its version, and what was
    # written to it.
    _skips: tuple = None, 0, None

    def __init__(self, manager, config, settings):
        super().__init__(manager)
        self._keeps = not config.disable_parameter_transpose_cache
        self._settings = settings

    @classmethod
    def of(cls, config, settings) -> "Quantization | None":
        """None: nothing can be quantized."""
        if config.fp8:
            with contextlib.suppress(ImportError):
                importlib.import_module(MODULE)
        manager = regions.manager()
        if manager is not None:
            return cls(manager, config, settings)
        if config.fp8:
            raise Error("config.fp8 is set, and transformer_engine.pytorch."
                        "quantization has no FP8GlobalStateManager with a "
                        "quantization_state, as 2.20 has: install that, or "
                        "leave the attach out")
        return None

    def enter(self, is_first_microbatch: bool) -> dict:
        """Before a segment is called; returns what it is given besides, as
        inside() takes it.  Who is the first of a region updates the scales of
        all on the way back."""
        state = self.state
        if not state.fp8_enabled:
            return {}
        number = self.look(not is_first_microbatch)
        if self._keeps:
            self._tell(state, not is_first_microbatch)
        return {"quantized": (number, self._manager.is_first_fp8_module())}

    def _tell(self, state, skips: bool) -> None:
        """By a number on the device, by which one graph does either.
        Transformer Engine's own graphs write it too."""
        number, version, told = Quantization._skips
        if told is not skips \
                or number is not state.skip_fp8_weight_update_tensor \
                or version != number._version:
            Quantization._skips = None, 0, None  # should the next line raise
            self._manager.set_skip_fp8_weight_update_tensor(skips)
            number = state.skip_fp8_weight_update_tensor
            Quantization._skips = number, number._version, skips

    def begin(self, is_first: bool, has_run: bool) -> None:
        """Inside of a segment; the first pass of a layer makes what it
        quantizes to, and says where its scales are."""
        self.state.is_first_fp8_module = is_first
        self.state.fp8_graph_capturing = self._keeps and has_run

    def end(self) -> bool:
        """Whether nobody inside has been the first."""
        state = self.state
        is_first = state.is_first_fp8_module
        state.is_first_fp8_module = state.fp8_graph_capturing = False
        return is_first

    def leave(self) -> None:
        """The first of a region is still to come."""
        self.state.is_first_fp8_module = True

    @contextlib.contextmanager
    def again(self, around):
        *_, skipped = Quantization._skips
        if self._keeps:
            self._tell(self.state, around.skips)
        try:
            with super().again(around), self._settings.again():
                yield
        finally:
            if self._keeps and skipped is not None:
                self._tell(self.state, skipped)


class Calls:
    """Those of one segment, in which something is quantized, or nothing."""

    def __init__(self, quantization: Quantization | None, body, settings):
        self._quantization = quantization
        self._body, self._names = body, vars(body)
        self._usages: Usages | None = None  # once it has run
        self._metas: list = []  # what its modules have noted by then
        flagged = [m for m in body.modules() if _FLAG in vars(m)]
        self._flags = [*map(vars, flagged)]
        again = _run_again([body.of, *body.modules()])
        self._fusing = [m for m in flagged if m not in again
                        and getattr(m, "fuse_wgrad_accumulation", False)]
        body.around = self._settings = settings
        self._left = regions.Left()
        body.__dict__["left_in"] = (self._left,)
        if quantization is not None:
            body.tell([quantization.state], OF_REGION + OF_CALLS)
            body.settle = self._put_back

    def is_first(self) -> bool:
        """As its modules know it."""
        return any(names[_FLAG] for names in self._flags)

    def enter(self, is_first: bool) -> dict:
        """Before it is called in the first microbatch of a step, or in a
        later one; returns what it is given besides."""
        if self._quantization is None:
            return {}
        given = self._quantization.enter(is_first)
        # Past Module.__setattr__, which is slow.
        self._names["around"] = self._quantization.around if given \
            else self._settings
        if given and self._usages is not None:
            self._put_back()
            for meta in self._metas:
                regions.regions.keep_in(meta)
        return given

    def leave(self, given: dict) -> None:
        """After the call that enter() has given this."""
        if given and self._left.is_first:
            self._quantization.leave()

    def flag(self, is_first: bool, given: dict) -> None:
        """Each call finds the same, but for the first that quantizes: what
        modules have kept until then is of another step."""
        told = is_first and self._usages is None and bool(given)
        for names in self._flags:
            names[_FLAG] = told

    def overwrites(self, is_first: bool, result) -> None:
        """The backward of the first microbatch writes over what is in
        `main_grad`, where modules add to that by themselves.  Here they are
        never told which it is, so what is there goes before they add."""
        if not (is_first and self._fusing):
            return
        left = [self._fusing]

        def clear(_) -> None:
            mains = [p.main_grad for m in (left.pop() if left else ())
                     for p in m.parameters()
                     if p.dim() > 1
                     and vars(p).get(_ADDED, True)
                     and getattr(p, "main_grad", None) is not None]
            if mains:
                torch._foreach_zero_(mains)

        for tensor in result if isinstance(result, tuple) else (result,):
            if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                tensor.register_hook(clear)

    @contextlib.contextmanager
    def inside(self, quantized):
        """Inside of it, with what enter() has given, or None."""
        if quantized is None:
            yield
            return
        self._quantization.begin(quantized[1], self._usages is not None)
        try:
            yield
        finally:
            self._left.is_first = self._quantization.end()
            # What one without gradients makes has no columns, and the next
            # makes it anew.
            if self._usages is None and torch.is_grad_enabled():
                self._usages = Usages(self._body)
                self._metas = metas_of(self._body)
            self._put_back()

    def _put_back(self) -> None:
        if self._usages is not None:
            self._usages.put_back()


def _run_again(modules) -> set:
    """Modules whose backward is that of a second run, by a recomputation of
    Megatron's: no microbatch is the first one there."""
    found: set = set()
    for module in modules:
        names = vars(module)
        again = []
        if names.get("recompute_mlp") or names.get("moe_layer_recompute"):
            again.append(getattr(module, "mlp", module))
        if names.get("shared_experts_recompute"):
            again.append(module.shared_experts)
        if names.get("recompute_up_proj"):
            again += [getattr(module, name, None) for name in
                      ("linear_q_up_proj", "linear_kv_up_proj")]
        for each in again:
            found.update(() if each is None else each.modules())
    return found
