"""Memory for the pools of graphs that can be given back and taken again at the
same addresses, as graphs hold these: the library's gh_pool, by which torch
allocates for a torch.cuda.MemPool.

torch calls the pool's functions also after the attach, and at the end of the
process: what makes an allocator of them is never destroyed.  A MemPool is let
go only where nothing is captured, as it returns its memory at once.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import os
import weakref

import torch

from ... import _abi
from ...errors import Error, check
from . import private

_allocators: dict = {}  # of torch's, by address of the function that allocates


class Arena:
    """Of an attach."""

    def __init__(self, api, device: int, driver=None):
        self.api, self._device = api, device
        self._handle = ctypes.c_void_p()
        self._pools: dict = {}  # torch's, by number, and of those let go
        self._gone: list = []  # numbers of those
        desc = _abi.make(_abi.gh_pool_desc, device=device, driver=None
                         if driver is None else os.fsencode(driver))
        err = _abi.gh_error()
        with torch.cuda.device(device):
            check(api.pool_create(desc, ctypes.byref(self._handle), err), err)
        weakref.finalize(self, api.pool_destroy,
                         self._handle).atexit = False
        functions = _abi.make(_abi.gh_pool_functions)
        check(api.pool_get_functions(self._handle, functions, err), err)
        self._allocator = _allocator(functions)

    def pool(self) -> tuple:
        """The number of another pool; not during a capture."""
        with torch.cuda.device(self._device):
            pool = torch.cuda.MemPool(self._allocator)
        self._pools[pool.id] = pool
        return pool.id

    def let_go(self, number) -> None:
        """Nobody records there any more."""
        self._gone.append(number)

    def sweep(self) -> None:
        """Nothing is captured now."""
        while self._gone:
            self._pools.pop(self._gone.pop(), None)

    def suspend(self) -> None:
        """Waits for the device; all that is there is lost."""
        err = _abi.gh_error()
        check(self.api.pool_suspend(self._handle, err), err)

    def resume(self) -> None:
        err = _abi.gh_error()
        check(self.api.pool_resume(self._handle, err), err)

    def stats(self) -> dict:
        raw, err = _abi.make(_abi.gh_pool_stats), _abi.gh_error()
        check(self.api.pool_get_stats(self._handle, raw, err), err)
        return {name: getattr(raw, name) for name, _
                in _abi.gh_pool_stats._fields_ if name != "struct_size"}


def _allocator(functions):
    """Of torch's kind, one for each pool of the library's that there ever
    was."""
    alloc, free = (ctypes.cast(function, ctypes.c_void_p).value
                   for function in (functions.alloc, functions.free))
    if alloc not in _allocators:
        made = _allocators[alloc] = private.custom_allocator(alloc, free)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
    return _allocators[alloc]


def check_settings() -> None:
    """torch has no pools of others' memory where segments expand."""
    for name in "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF":
        asked = os.environ.get(name, "").replace(" ", "").lower()
        if "expandable_segments:true" in asked:
            raise Error("suspends=True gives graphs a torch.cuda.MemPool, "
                        "which torch does not have with expandable segments: "
                        f"leave expandable_segments out of {name}, or "
                        "suspends out")
