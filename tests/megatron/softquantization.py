"""Transformer Engine's quantization as far as an attach meets it, in plain
torch: `transformer_engine.pytorch.quantization`, and a linear layer.

Numbers are rounded to a grid instead of FP8.  Where state lies, who writes it
and when, is as in Transformer Engine 2.20.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import dataclasses

from models import torch

MOST = 15.0  # steps of a grid on either side
_FORWARD, _BACKWARD = "scaling_fwd", "scaling_bwd"


@dataclasses.dataclass
class Recipe:
    scaling: str = "delayed"
    margin: int = 0
    amax_history_len: int = 4

    def delayed(self) -> bool:
        return self.scaling == "delayed"


@dataclasses.dataclass(slots=True)
class State:
    """Of the process: FP8GlobalState."""

    fp8_enabled: bool = False
    fp8_calibration: bool = False
    fp8_recipe: Recipe | None = None
    fp8_distributed_group: object = None
    is_first_fp8_module: bool = False
    fp8_graph_capturing: bool = False
    autocast_depth: int = 0
    global_amax_buffer: dict = dataclasses.field(default_factory=dict)
    global_amax_history_buffer: dict = dataclasses.field(default_factory=dict)
    global_scale_buffer: dict = dataclasses.field(default_factory=dict)
    fp8_tensors_recompute_buffer: list = dataclasses.field(
        default_factory=list)
    autocast_arguments: dict = dataclasses.field(default_factory=dict)
    skip_fp8_weight_update_tensor: torch.Tensor | None = None


_OF_REGION = ("fp8_enabled", "fp8_calibration", "fp8_recipe",
              "fp8_distributed_group", "is_first_fp8_module",
              "fp8_graph_capturing")


class Manager:
    """FP8GlobalStateManager."""

    quantization_state = State()

    @classmethod
    def reset(cls):
        cls.quantization_state = State()

    @classmethod
    def fp8_graph_capturing(cls) -> bool:
        return cls.quantization_state.fp8_graph_capturing \
            or torch.cuda.is_current_stream_capturing()

    @classmethod
    def set_skip_fp8_weight_update_tensor(cls, skip):
        state = cls.quantization_state  # a number on the device
        if state.skip_fp8_weight_update_tensor is None:
            state.skip_fp8_weight_update_tensor = torch.empty(())
        state.skip_fp8_weight_update_tensor.fill_(skip)

    @classmethod
    def is_first_fp8_module(cls):
        first = cls.quantization_state.is_first_fp8_module
        cls.quantization_state.is_first_fp8_module = False
        return first

    @classmethod
    def add_to_buffers(cls, meta) -> None:
        if "buffer_index_and_autocast_key" in meta:
            return
        meta["buffer_index_and_autocast_key"] = []
        state = cls.quantization_state
        for way, name in (("forward", _FORWARD), ("backward", _BACKWARD)):
            key = f"{way}_{meta['recipe']}"
            for buffer, tensor in (
                    (state.global_amax_buffer, meta[name].amax_history[0]),
                    (state.global_amax_history_buffer,
                     meta[name].amax_history),
                    (state.global_scale_buffer, meta[name].scale)):
                buffer.setdefault(key, []).append(tensor)

    @classmethod
    def reduce_and_update(cls, forward: bool) -> None:
        """Scales for the next region, by the largest of some before."""
        state = cls.quantization_state
        for key, histories in state.global_amax_history_buffer.items():
            way, _, autocast_key = key.partition("_")
            if (way == "forward") != forward:
                continue
            recipe, _ = state.autocast_arguments[autocast_key]
            for history, scale in zip(histories,
                                      state.global_scale_buffer[key]):
                amax = history.max(0).values
                scale.copy_(torch.where(
                    amax > 0, MOST / amax / 2 ** recipe.margin, scale))
                history.copy_(history.roll(-1, 0))
                history[0].zero_()


class autocast:
    """A region."""

    def __init__(self, enabled=True, recipe=None):
        self._given = enabled, recipe or Recipe()
        self._before: list = []

    def __enter__(self):
        enabled, recipe = self._given
        state = Manager.quantization_state
        self._before = [(n, getattr(state, n)) for n in _OF_REGION]
        state.autocast_arguments[str(recipe)] = recipe, None
        state.fp8_enabled, state.fp8_recipe = enabled, recipe
        state.fp8_graph_capturing = False
        if state.autocast_depth == 0:
            state.is_first_fp8_module = True
        state.autocast_depth += 1

    def __exit__(self, *_):
        state = Manager.quantization_state
        for name, value in self._before:
            setattr(state, name, value)
        state.autocast_depth -= 1
        if self._given[0] and state.autocast_depth == 0 \
                and torch.is_grad_enabled():
            with torch.no_grad():
                Manager.reduce_and_update(forward=True)


class Scaling:
    """DelayedScalingRecipeState: of all that a module quantizes one way."""

    def __init__(self, recipe, count: int):
        self.scale = torch.ones(count)
        self.amax_history = torch.zeros(recipe.amax_history_len, count)

    def quantizers(self) -> list:
        return [Quantizer(self.scale[i], self.amax_history[0][i])
                for i in range(len(self.scale))]


class Quantizer:
    """By a scale that is there; without one, by the tensor's largest."""

    def __init__(self, scale=None, amax=None):
        self.scale, self.amax = scale, amax
        self.rowwise_usage = self.columnwise_usage = True

    def set_usage(self, rowwise: bool, columnwise: bool) -> None:
        self.rowwise_usage, self.columnwise_usage = rowwise, columnwise

    def __call__(self, tensor, kept=None, skips=None) -> "Quantized":
        """`kept`: what is made anew, unless the number `skips` says so."""
        amax = tensor.detach().abs().max()
        scale = MOST / amax if self.scale is None else self.scale
        steps = (tensor.detach() * scale).round().clamp(-MOST, MOST)
        made = Quantized(steps, 1 / scale, self.columnwise_usage)
        if self.amax is not None:
            largest = torch.maximum(self.amax, amax)
            self.amax.copy_(largest if skips is None else torch.where(
                skips > 0, self.amax, largest))
        if kept is None:
            return made
        for now, new in ((kept.steps, made.steps), (kept.inverse,
                                                    made.inverse)):
            now.copy_(new if skips is None else torch.where(
                skips > 0, now, new))
        return kept


class Quantized:
    """With the scale that it was made with, of which it is the inverse."""

    def __init__(self, steps, inverse, has_columns: bool):
        self.steps, self.inverse = steps, inverse.clone()
        self.has_columns = has_columns

    def dequantized(self):
        return self.steps * self.inverse


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, module, first, trains):
        quantizers = module.quantizers[_FORWARD]
        quantizers[0].set_usage(True, trains)
        ctx.x = quantizers[0](x)
        ctx.weight = module.quantized(weight, first, trains)
        ctx.parameter = weight
        ctx.first = first and not Manager.fp8_graph_capturing()
        ctx.module = module
        ctx.reduces = any(ctx.needs_input_grad[:2]) \
            and Manager.is_first_fp8_module()
        return ctx.x.dequantized() @ ctx.weight.dequantized().t()

    @staticmethod
    def backward(ctx, grad):
        quantizer = ctx.module.quantizers[_BACKWARD][0]
        quantizer.set_usage(True, False)  # and back by the next one
        ctx.module.quantizers[_FORWARD][0].set_usage(False, True)
        grad = quantizer(grad).dequantized()
        assert ctx.weight.has_columns
        of_x = grad @ ctx.weight.dequantized()
        of_weight = grad.flatten(0, -2).t() @ ctx.x.dequantized().flatten(
            0, -2)
        if ctx.reduces:
            Manager.reduce_and_update(forward=False)
        return of_x, _of_weight(ctx, of_weight), None, None, None


class _Fused(torch.autograd.Function):
    """Of one that is not quantized."""

    @staticmethod
    def forward(ctx, x, weight, module, first):
        ctx.save_for_backward(x, weight)
        ctx.module, ctx.parameter, ctx.first = module, weight, first
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        of_weight = grad.flatten(0, -2).t() @ x.flatten(0, -2)
        return grad @ weight, _of_weight(ctx, of_weight), None, None


def _of_weight(ctx, found):
    """Where it is fused the first microbatch writes over what is there, and
    autograd is given something that nobody reads."""
    if not ctx.module.fuse_wgrad_accumulation:
        return found
    main = ctx.parameter.main_grad
    main.copy_(found) if ctx.first else main.add_(found)
    ctx.parameter.grad_added_to_main_grad = True
    return torch.full_like(found, 7.0)


class Linear(torch.nn.Module):
    """With the weight of one of Megatron's own."""

    fuse_wgrad_accumulation = False

    def __init__(self, linear):
        super().__init__()
        self.linear = linear
        self.is_first_microbatch = True
        self.fp8 = self.fp8_initialized = False
        self.fp8_meta: dict = {}
        self.quantizers: dict = {}
        self._fp8_workspaces: dict = {}

    def forward(self, x):
        first, self.is_first_microbatch = self.is_first_microbatch, False
        product = self._product(x, first)
        if product is None and self.fuse_wgrad_accumulation:
            product = _Fused.apply(x, self.linear.weight, self, first)
        return self.linear(x) if product is None else (product, None)

    def _product(self, x, first):
        state = Manager.quantization_state
        self.fp8 = state.fp8_enabled
        if not self.fp8:
            self.fp8_initialized = False
            return None
        self._begin(state)
        return _Product.apply(x, self.linear.weight, self, first,
                              torch.is_grad_enabled())

    def _begin(self, state) -> None:
        meta = self.fp8_meta
        if not (self.fp8_initialized and state.fp8_recipe
                == meta.get("recipe")):
            meta["recipe"] = state.fp8_recipe
            if self.quantizers and state.fp8_recipe.delayed() \
                    is not (_FORWARD in meta):  # of another kind
                for some in (self.quantizers, self._fp8_workspaces):
                    some.clear()
                for name in _FORWARD, _BACKWARD:
                    meta.pop(name, None)
            if not self.quantizers and state.fp8_recipe.delayed():
                for name, count in ((_FORWARD, 3), (_BACKWARD, 2)):
                    meta[name] = Scaling(state.fp8_recipe, count)
                    self.quantizers[name] = meta[name].quantizers()
            elif not self.quantizers:
                for name, count in ((_FORWARD, 3), (_BACKWARD, 2)):
                    self.quantizers[name] = [Quantizer()
                                             for _ in range(count)]
            self.fp8_initialized = True
            meta["recipe"] = state.fp8_recipe
        if state.fp8_recipe.delayed() and not Manager.fp8_graph_capturing():
            Manager.add_to_buffers(meta)

    def quantized(self, weight, first: bool | None,
                  trains: bool) -> Quantized:
        """Anew in each call, if nobody says which microbatch is the first."""
        state = Manager.quantization_state
        skips = state.skip_fp8_weight_update_tensor \
            if Manager.fp8_graph_capturing() else None
        quantizer = self.quantizers[_FORWARD][1]
        quantizer.set_usage(True, trains)
        if first is None and skips is None:
            return quantizer(weight)
        kept = self._fp8_workspaces.get("weight")
        if kept is not None and quantizer.columnwise_usage \
                and not kept.has_columns:
            kept = None
        if kept is None:
            kept = self._fp8_workspaces["weight"] = quantizer(weight)
        elif skips is not None:
            quantizer(weight, kept, skips)
        elif first:
            quantizer(weight, kept)
        return kept


class Plain(Linear):
    """As Transformer Engine's own is called, outside of Megatron."""

    def __init__(self, linear):
        super().__init__(linear)
        del self.is_first_microbatch

    def forward(self, x, is_first_microbatch=None):
        product = self._product(x, is_first_microbatch)
        return self.linear(x) if product is None else product
