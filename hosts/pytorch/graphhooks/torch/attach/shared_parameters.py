"""Which parameters others wait for, or use: autograd adds up the gradients of
these.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from torch.nn.parallel import DistributedDataParallel

from ...errors import Error
from ..base import private


class Uses:
    """Of the parameters of an attach."""

    def __init__(self, model, gradients: str):
        self.gradients = gradients  # "autograd": it adds up all of them
        self._watched = _of_ddp(model)
        self._shared: set = set()

    def look(self, model, segments) -> None:
        """What more than one segment has, or the model besides."""
        home: dict = {}  # the segment of each module
        for segment in segments:
            for site in segment.sites:
                other = home.get(site.module, segment)
                if other is not segment:
                    raise Error(f"{site.name} is a part of {other.name}, and "
                                "both are in the stack: leave one of them out")
                home.update((m, segment) for m in site.module.modules())
        users: dict = {}
        for module in (*model.modules(), *home):
            for p in private.parameters_of(module).values():
                users.setdefault(p, set()).add(home.get(module))
        for segment in segments:
            for site in segment.sites:
                for p in site.module.parameters():
                    users[p].add(segment)
        self._shared = {p for p, of in users.items() if len(of) > 1}

    def by_autograd(self, parameter) -> bool:
        """Whether autograd is to add up its gradient, whoever watches."""
        return (self.gradients == "autograd" or parameter in self._shared
                or parameter in self._watched or private.ddp_runs())


def _of_ddp(model) -> set:
    """The parameters whose gradients DistributedDataParallel waits for."""
    return {p for m in model.modules()
            if isinstance(m, DistributedDataParallel)
            for p in m.parameters()}
