"""Megatron-Core on a machine without a GPU: softtorch.py's device, as Megatron
asks for one.

Megatron makes tensors on `torch.cuda.current_device()`, which is the CPU for
whoever asks from there.  One generator stands for the host's and the device's,
so its tracker of random states has nothing to switch.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import functools
import sys
import types
import warnings

import softtorch
import torch

_CPU = torch.device("cpu")
_MAKES = ("zeros", "ones", "empty", "tensor", "arange", "full", "rand",
          "randn", "zeros_like", "empty_like", "eye", "as_tensor", "linspace")
_NOTHING = ("memory_allocated", "max_memory_allocated", "memory_reserved")


@functools.cache
def install() -> None:
    """Before megatron.core is imported; once, whoever asks."""
    warnings.filterwarnings("ignore", module=r"megatron\.")
    _put_device()
    torch.cuda.manual_seed = torch.manual_seed
    torch.cuda.is_available = torch.cuda.is_initialized = lambda: True
    torch.cuda.device_count = lambda: 1
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(
        multi_processor_count=132, total_memory=1 << 34, major=9, minor=0,
        name="soft")
    # Which optimizers ask whether it captures.
    torch.accelerator.current_accelerator = lambda *_, **__: None
    for name in _NOTHING:
        setattr(torch.cuda, name, lambda *_: 0)
    torch.Tensor.record_stream = lambda *_: None
    torch.cuda.nvtx.range_push = torch.cuda.nvtx.range_pop = lambda *_: None
    kind = torch.Tensor.type  # an optimizer asks by it who is on a device
    torch.Tensor.type = lambda self, *args, **kwargs: \
        kind(self, *args, **kwargs) if args or kwargs \
        else kind(self).replace("torch.", "torch.cuda.")
    _put_events()
    _put_lists()
    _put_random()


def _put_events() -> None:
    wait = softtorch._Event.wait
    softtorch._Event.wait = lambda self, stream=None: \
        wait(self) if stream is None else stream.wait_event(self)
    softtorch._Event.synchronize = lambda self: softtorch._synchronize()


def _put_lists() -> None:
    """A tensor that is made without a device is the host's: to read it waits
    for nothing, also while something is captured."""
    def of_host(make):
        @functools.wraps(make)
        def made(*args, **kwargs):
            tensor = make(*args, **kwargs)
            tensor._of_host = kwargs.get("device") is None
            return tensor

        return made

    def without_a_wait(read):
        @functools.wraps(read)
        def reads(self):
            if not getattr(self, "_of_host", False):
                return read(self)
            with softtorch._disable_current_modes():
                return read(self)

        return reads

    for name in "full", "tensor":
        setattr(torch, name, of_host(getattr(torch, name)))
    for name in "tolist", "item":
        setattr(torch.Tensor, name,
                without_a_wait(getattr(torch.Tensor, name)))


def _put_device() -> None:
    number = torch.cuda.current_device

    def current_device():
        asks = sys._getframe(1).f_globals.get("__name__", "")
        return _CPU if asks.startswith("megatron") else number()

    def on_the_cpu(make):
        @functools.wraps(make)
        def made(*args, **kwargs):
            if "cuda" in str(kwargs.get("device")):
                kwargs["device"] = _CPU
            return make(*args, **kwargs)

        return made

    torch.cuda.current_device = current_device
    for name in _MAKES:
        setattr(torch, name, on_the_cpu(getattr(torch, name)))


def _put_random() -> None:
    import megatron.core.jit
    from megatron.core.tensor_parallel import random

    megatron.core.jit.disable_jit_fuser()
    random.CudaRNGStatesTracker.fork = \
        lambda self, name=None: contextlib.nullcontext()
    random._set_cuda_rng_state = lambda *_, **__: None
    random._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()


def take_any_transformer_engine() -> None:
    """Megatron asks which version there is before it lets layers have graphs;
    of what it then does with it, an attach leaves nothing."""
    from megatron.core.transformer import (transformer_config,
                                           transformer_layer)

    for module in transformer_config, transformer_layer:
        module.is_te_min_version = lambda *_, **__: True
