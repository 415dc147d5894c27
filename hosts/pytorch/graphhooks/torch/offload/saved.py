"""What autograd keeps of a group's tensors, by its hooks of saved tensors.

While a module runs, each tensor that autograd saves is looked at.  When it has
returned, those that may go are put together, storage by storage, and the group
moves them (carried.py, ringed.py).  Autograd's version checks are off where
hooks are, so they are made here: a tensor whose memory has gone keeps the
counter of what it was.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import torch

from ..base import private
from ..base.memory import is_dense
from ..base.private import version

ALIGNMENT = 256  # as the library's
_empty: dict = {}  # a tensor of each dtype, by device


def storages_of(value) -> set:
    """The addresses of all memory that an argument or a result has."""
    return {t.untyped_storage().data_ptr()
            for t in private.tree_flatten(value)[0]
            if isinstance(t, torch.Tensor) and t.layout == torch.strided}


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _empty_like(tensor):
    key = tensor.dtype, tensor.device
    if key not in _empty:
        _empty[key] = torch.empty(0, dtype=tensor.dtype,
                                   device=tensor.device)
    return _empty[key]


class Saved:
    """One tensor that autograd has saved; what its node holds."""

    __slots__ = ("tensor", "version", "form", "group", "at", "is_read",
                 "__weakref__")

    def __init__(self, tensor):
        # Not the tensor itself: an output's would hold its own node.
        self.tensor = tensor.detach()
        self.version = version(self.tensor)
        self.group = None  # that has its memory, once it has gone
        self.form = None  # dtype, size, stride
        self.at = 0  # bytes from the begin of the group's memory
        self.is_read = False

    def leave(self) -> None:
        """Its memory is let go; its counter stays."""
        tensor = self.tensor
        self.form = tensor.dtype, tensor.size(), tensor.stride()
        tensor.data = _empty_like(tensor)

    def get(self):
        """What autograd gets back."""
        self.is_read = True
        if version(self.tensor) != self.version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has "
                "been modified by an inplace operation: a tensor of "
                f"{self.form[1] if self.form else tuple(self.tensor.shape)} "
                f"is at version {version(self.tensor)}; expected version "
                f"{self.version} instead")
        memory = self.group.memory() if self.group is not None else None
        if self.form is None:
            return self.tensor
        dtype, size, stride = self.form
        return memory.view(dtype).as_strided(size, stride,
                                             self.at // dtype.itemsize)


def unpack(saved: Saved):
    return saved.get()


class Piece:
    """Memory that is copied in one."""

    __slots__ = ("saved", "start", "nbytes")

    def __init__(self, saved, start: int, nbytes: int):
        self.saved = saved
        self.start = start  # in its storage
        self.nbytes = nbytes

    def is_read(self) -> bool:
        """Its backward has been here, before it was committed."""
        return any(saved.is_read for saved in self.saved)

    def memory(self):
        """As bytes."""
        tensor = self.saved[0].tensor
        size = tensor.element_size()
        return tensor.as_strided((self.nbytes // size,), (1,),
                                 self.start // size).view(torch.uint8)

    def place(self, group, at: int) -> None:
        """It lies there in the group's memory."""
        for saved in self.saved:
            tensor = saved.tensor
            saved.group = group
            saved.at = at + tensor.storage_offset() * tensor.element_size() \
                - self.start


class Collector:
    """The tensors that autograd saves while a module runs."""

    def __init__(self, stay, least: int, test=None):
        self._stay = stay  # addresses of storages that others hold
        self._least = least  # bytes of a tensor that goes
        self._test = test  # of an engine's, which tensors go
        self._saved: list = []

    def pack(self, tensor) -> Saved:
        saved = Saved(tensor)
        if self._may_go(tensor):
            self._saved.append(saved)
        return saved

    def note(self, tensor) -> None:
        """The same for one that is somebody else's to keep."""
        if self._may_go(tensor):
            self._saved.append(Saved(tensor))

    def _may_go(self, tensor) -> bool:
        if type(tensor) is not torch.Tensor or not tensor.is_cuda \
                or tensor.layout != torch.strided or tensor.is_neg() \
                or tensor.is_conj() or self._test and not self._test(tensor):
            return False
        storage = tensor.untyped_storage()
        return storage.nbytes() >= max(self._least, 1) \
            and storage.data_ptr() not in self._stay

    def pieces(self, result) -> list:
        """Of what may go, when the module has returned; what it returns is
        held by others."""
        held = storages_of(result)
        storages: dict = {}
        for saved in self._saved:
            address = saved.tensor.untyped_storage().data_ptr()
            if address not in held:
                storages.setdefault(address, []).append(saved)
        self._saved = []
        pieces = [p for of in storages.values() for p in _pieces(of)]
        return [p for p in pieces if p.nbytes >= max(self._least, 1)
                and p.nbytes % p.saved[0].tensor.element_size() == 0
                and p.start % p.saved[0].tensor.element_size() == 0]


def _pieces(saved: list) -> list:
    """Of one storage: all of it, where what is saved is at least a half."""
    whole = saved[0].tensor.untyped_storage().nbytes()
    views: dict = {}
    for one in saved:
        views.setdefault(_extent(one.tensor), []).append(one)
    if 2 * sum(nbytes for _, nbytes, *_ in views) >= whole:
        return [Piece(saved, 0, whole)]
    return [Piece(of, start, nbytes)
            for (start, nbytes, *_), of in views.items()
            if is_dense(of[0].tensor)]


def _extent(tensor) -> tuple:
    """Where it begins and its bytes; and what else tells views apart."""
    size = tensor.element_size()
    return (tensor.storage_offset() * size, tensor.numel() * size,
            tensor.size(), tensor.stride())
