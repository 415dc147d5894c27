"""Hooks by which Megatron's DistributedDataParallel waits for parameters that
are gathered while the model runs (`overlap_param_gather`).

A replay calls no hook of a module that it covers.  Megatron's own way is to
call them by hand before the graph, from `layer.cuda_graph_manual_hooks`, so
those of covered modules move there.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations


class _Removed:
    """A handle whose hook is gone; Megatron removes each once."""

    def remove(self) -> None:
        pass


class ParameterHooks:
    """Those of a chunk, if it is wrapped and has some."""

    def __init__(self, chunk, seams):
        self._ddp = _wrapper(chunk)
        self._seams = list(seams)
        if self._ddp is None:
            return
        self._move()
        # Megatron puts them on anew after an evaluation or a checkpoint.
        self._ddp.enable_forward_pre_hook = self._enable
        self.set()

    def set(self) -> None:
        """What is called by hand."""
        if self._ddp is not None:
            for seam in self._seams:
                seam.layer.setup_manual_hooks(
                    self._ddp._make_forward_pre_hook)

    def _enable(self) -> None:
        type(self._ddp).enable_forward_pre_hook(self._ddp)
        self._move()

    def _move(self) -> None:
        handles = self._ddp.remove_forward_pre_hook_handles
        for seam in self._seams:
            for module in (*seam.body.used.modules(), *seam.outer()):
                handle = handles.get(module)
                if handle is not None:
                    handle.remove()
                    handles[module] = _Removed()

    def put_back(self) -> None:
        if self._ddp is None:
            return
        vars(self._ddp).pop("enable_forward_pre_hook", None)
        handles = self._ddp.remove_forward_pre_hook_handles
        for module, handle in list(handles.items()):
            if isinstance(handle, _Removed):
                handles[module] = module.register_forward_pre_hook(
                    self._ddp._make_forward_pre_hook())
        self._ddp = None


def _wrapper(chunk):
    """The DistributedDataParallel among what wraps a chunk, if it has hooks
    that wait for parameters."""
    while chunk is not None:
        if getattr(chunk, "use_forward_hook", False):
            return chunk
        chunk = getattr(chunk, "module", None)
    return None
