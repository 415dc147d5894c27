"""What stands around a module whose saved tensors are a group.

A part within a layer is found by the forward that is lent to it while the
layer runs.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import functools
from types import SimpleNamespace

import torch

from ..base import private
from ..base.private import give_back, stand_in
from ..record import checkpoint
from .saved import storages_of


class Bracket:
    """In the place of a site's forward."""

    def __init__(self, offload, forward, module, layer: int, segment: int,
                 parts: dict):
        self.offload = offload
        self.forward = forward
        self.module = module
        self.layer = layer
        self.segment = segment  # of the plan
        self._parts = parts  # module by name, or None for all of it

    def __call__(self, *args, **kwargs):
        work = self.offload and self.offload.work(self)
        names = work and [n for n in self._parts
                          if self.offload.goes((self.layer, n))]
        if not names:
            return self.forward(*args, **kwargs)
        given = storages_of((args, kwargs))
        if self._parts[names[0]] is None:
            return self._watch(work, names[0], given, self.forward, args,
                               kwargs)
        with contextlib.ExitStack() as lent:
            hook = checkpoint.hooks()
            for name in names:
                lent.enter_context(self._lend(work, name, given, hook))
            return self.forward(*args, **kwargs)

    def _watch(self, work, name: str, given, forward, args, kwargs):
        group = work.group(self, (self.layer, name), given)
        with torch.autograd.graph.saved_tensors_hooks(group.pack,
                                                      group.unpack):
            result = forward(*args, **kwargs)
        with torch.no_grad():
            group.close(result)
        return result

    @contextlib.contextmanager
    def _lend(self, work, name: str, given, hook):
        """The part's module is watched, in its first call and where nobody
        else has hooks of saved tensors."""
        module = self._parts[name]
        own = vars(module)
        had = "forward" in own
        forward = module.forward
        calls = 0

        def watched(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls > 1:
                self.offload.tell((self.layer, name), "is called several times"
                                  " in a forward, and what the first call "
                                  "saves is offloaded alone")
            if calls > 1 or checkpoint.hooks() is not hook:
                return forward(*args, **kwargs)
            return self._watch(work, name, given, forward, args, kwargs)

        own["forward"] = watched
        try:
            yield
        finally:
            if own.get("forward") is watched:
                if had:
                    own["forward"] = forward
                else:
                    del own["forward"]

    def __reduce__(self):
        """A copy of the module has no groups."""
        return getattr, (self.module, "forward")

    def fixed(self) -> set:
        return fixed_of(self.module)


class Plain(Bracket):
    """In the place of the forward of a module that has no graphs."""

    def __init__(self, *args):
        super().__init__(*args)
        functools.update_wrapper(self, self.forward, updated=())
        self._has_own = "forward" in vars(self.module)
        stand_in(self.module, self)

    def __reduce__(self):
        if self._has_own:
            return getattr, (SimpleNamespace(forward=self.forward), "forward")
        return super().__reduce__()

    def detach(self) -> None:
        self.offload = None  # for who has kept this one
        if vars(self.module).get("forward") is self:
            give_back(self.module, self.forward if self._has_own else None)


def fixed_of(module) -> set:
    """The memory that a module has between calls."""
    found = set()
    for inner in module.modules():
        for values in (private.parameters_of(inner),
                       private.buffers_of(inner), vars(inner)):
            found |= storages_of([v for v in values.values()
                                  if isinstance(v, torch.Tensor)])
    return found
