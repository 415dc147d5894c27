"""Work of an engine's own that attach() takes for a layer.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import torch

from ...errors import Error


class Body(torch.nn.Module):
    """A module whose forward is `run`.

    Its submodules are those that `run` uses, so that parameters and buffers
    are found as in any layer.  What `run` is bound to, its `owner`, is no
    submodule: an engine's layer may have more than the part that `run`
    calls."""

    def __init__(self, run, modules, name: str, delayed=None):
        super().__init__()
        self.delayed = delayed  # weight gradients, see segment()
        self.put_off = None  # the same, where it has graphs
        self.used = torch.nn.ModuleList(modules)
        self.name = name
        self.remedy: str | None = None  # where it waits for the device
        self.scope: str | None = None  # what it is of a layer, in words
        # Takes away what an earlier call has left outside of the modules.
        self.forget = None
        # What its last call has found outside of the modules, if that is to be
        # so for who runs it again later: `again()` is a context in which it
        # is, and here no more than itself.
        self.__dict__["around"] = None
        # A recording keeps what is computed again in calls that are eager.
        self.keeps_more = False
        # Puts back what its backward leaves in modules, and nobody reads.
        self.settle = None
        # Attributes that each call is told of in its arguments, or returns, by
        # the type of the objects or modules that have them: nobody else looks
        # at them.
        self.told: dict = {}
        # Past Module.__setattr__, which would register a module.
        self.__dict__["run"] = run
        self._known: dict = {}  # names that the model has for its modules
        self.__dict__["outer"] = None  # a module whose hooks its caller calls
        # Whose attributes run may write beside those of the modules.
        self.__dict__["owner"] = getattr(run, "__self__", None)
        # Objects whose attributes it may write too, of who called it.
        self.__dict__["left_in"] = ()

    def be_of(self, module) -> None:
        """It is the work of that one, or a part of it."""
        self.__dict__.update(outer=module, owner=module)

    @property
    def of(self):
        """Its owner, if that is a module."""
        return self.owner if isinstance(self.owner, torch.nn.Module) else None

    @property
    def layer(self):
        """The same, if it has more than the segment: attributes that `run`
        may read."""
        return None if self.of in {*self.modules()} else self.of

    def forward(self, *args, **kwargs):
        result = self.run(*args, **kwargs)
        if self.put_off is not None:
            self.put_off.note(result)
        return result

    def tell(self, things, names) -> None:
        """Calls do, of these attributes of these things."""
        for kind in {*map(type, things)}:
            self.told[kind] = self.told.get(kind, frozenset()).union(names)

    def know(self, names: dict) -> None:
        """What a model calls its modules, and all within the segment's layer
        as that does."""
        within = f"{names[self.of]}." if self.of in names else ""
        self._known = {
            module: f"{names[module]}.".removeprefix(within)[:-1]
            for module in self.modules() if module in names}

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        """By names that their user knows."""
        for name, module in super().named_modules(memo, prefix,
                                                  remove_duplicate):
            yield (name if prefix else self._known.get(module, name)), module

    def backward_dw(self) -> bool:
        """Runs what the oldest backward of it has put off; whether a graph
        has."""
        if self.put_off is not None:
            return self.put_off.run()
        if self.delayed is not None:
            self.delayed.run(None)
        return False


def segment(run, modules=(), name: str = "", delayed=None) -> Body:
    """As graphhooks.segment."""
    if not callable(run):
        raise Error(f"run is {run!r}; segment takes a function, which is "
                    "called with what the segment is called with")
    modules = [modules] if isinstance(modules, torch.nn.Module) \
        else list(modules)
    for module in modules:
        if not isinstance(module, torch.nn.Module):
            raise Error(f"modules has {module!r}; segment takes those "
                        "torch.nn.Modules whose parameters run uses")
    for method in ("apart", "run") if delayed is not None else ():
        if not callable(getattr(delayed, method, None)):
            raise Error(f"delayed is {delayed!r}; segment takes an object "
                        "with the methods apart() and run(work)")
    return Body(run, modules, name, delayed)
