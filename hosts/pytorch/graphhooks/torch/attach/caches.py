"""Training passes of transformers' models without a cache of keys and values.

Their configurations ask for one by default (use_cache=True), in training too,
where nobody reads it.  A layer writes to its cache in Python, which no graph
does.  So a call that does not say what it wants gets use_cache=False while the
model trains, as transformers itself does where it checkpoints activations; the
output then has no cache.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import inspect

import torch

_WORD = "use_cache"
_GIVEN = ("cache", "past_key_values")  # by who wants to go on with one


class Caches:
    """Of a model, while an attach is there."""

    def __init__(self, model, layers):
        inside = {id(module) for layer in layers
                  for module in layer.module.modules()}
        self.asked = 0  # calls that had none for this reason
        self._hooks = [
            module.register_forward_pre_hook(_Hook(self, place),
                                             with_kwargs=True)
            for module in model.modules()
            if id(module) not in inside and _has_one(module)
            and (place := _place(module)) is not None]

    def close(self) -> None:
        while self._hooks:
            self._hooks.pop().remove()

    def lines(self) -> list:
        return [f"{self.asked} training calls ran with use_cache=False, as a "
                "layer writes to a cache in Python; give use_cache=True to a "
                "call that needs one, and it runs eagerly"] \
            if self.asked else []


class _Hook:
    """Of a module whose calls go without."""

    def __init__(self, caches, place: int):
        self._caches = caches
        self._place = place

    def __call__(self, module, args, kwargs):
        place = self._place
        if not module.training or not torch.is_grad_enabled() \
                or kwargs.get(_WORD) is not None \
                or len(args) > place and args[place] is not None \
                or any(kwargs.get(name) is not None for name in _GIVEN):
            return None
        self._caches.asked += 1
        if len(args) > place:
            return (*args[:place], False, *args[place + 1:]), kwargs
        return args, {**kwargs, _WORD: False}

    def __reduce__(self):
        """A copy of the module is without us: something of Python's own that
        takes all and does nothing."""
        return getattr, (contextlib.nullcontext(), "__exit__")


def _has_one(module) -> bool:
    return getattr(getattr(module, "config", None), _WORD, None) is True


def _place(module):
    """Of the argument in a call, None where there is none."""
    try:
        names = [*inspect.signature(module.forward).parameters]
    except (TypeError, ValueError):
        return None
    return names.index(_WORD) if _WORD in names else None
