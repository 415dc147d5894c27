"""Weight gradients that Transformer Engine's modules put off
(`delay_wgrad_compute`): each has a queue of what its backwards leave.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import queue

import torch
from torch.cuda import is_current_stream_capturing as is_capturing


def of(names, modules):
    """Of those modules that put weight gradients off, or None."""
    found = [m for m in modules if _puts_off(m)]
    return Delayed(names, found) if found else None


def _puts_off(module) -> bool:
    """Modules that have no queue of their own hand the call on."""
    return getattr(getattr(module, "wgrad_store", None), "context",
                   None) is not None and hasattr(module, "backward_dw")


class Delayed:
    """As graphhooks.segment takes it."""

    def __init__(self, names, modules):
        self._names = names
        self._modules = modules

    @contextlib.contextmanager
    def apart(self):
        before = [m.wgrad_store.context for m in self._modules]
        work: list = []
        for module in self._modules:
            module.wgrad_store.context = queue.Queue()
        try:
            yield work
        finally:
            for module, old in zip(self._modules, before):
                store = module.wgrad_store
                work.append([*store.context.queue])
                store.context = old

    def run(self, work) -> None:
        if work is None:
            for module in self._modules:
                if not module.wgrad_store.context.empty():
                    module.backward_dw()
            return
        flag = is_capturing()  # which keeps hooks of others still
        if flag:
            self._names._set_capture_start()
        try:
            with self.apart():
                for module, entries in zip(self._modules, work):
                    for tensors, function in entries:
                        # Some let go of what they are given.
                        module.wgrad_store.context.put([[
                            t.data if type(t) is torch.Tensor else t
                            for t in tensors], function])
                        module.backward_dw()
        finally:
            if flag:
                self._names._set_capture_end()

    def tell(self) -> None:
        """Hooks that wait for the gradients, after a replay."""
        for module in self._modules:
            tell = getattr(module, "_trigger_wgrad_accumulation_and_reduce_"
                           "hooks", None)
            if tell is not None:
                tell()
