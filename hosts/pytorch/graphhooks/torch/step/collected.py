"""What transformers collects of submodules, such as the logits of routers.

Its models collect outputs by hooks, for as long as a call asks for them:
output_router_logits does in each step of a training.  A replay calls no hooks.
So a layer with such a submodule returns what is asked for besides its result,
as one of a graph's outputs, and whoever calls it puts that where the hook
would have.  What is asked for is an argument of the call, and so of its shape.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from ..base import private
from ..base.names import CAPTURING

WORD = "collected outputs"  # the argument, which no forward has
_NOT_THEIRS = "hidden_states"  # a layer's own, which its caller has


class Collected:
    """Of one site, where transformers is at work."""

    def __init__(self, site, collector):
        self._site = site
        self._collector = collector
        self._inner = [m for m in site.module.modules()
                       if m is not site.module]
        self._known: dict = {}  # hooks that were asked, by keys

    def asked(self):
        """Lists by key, of who asks for outputs; mostly none."""
        return self._collector.get()

    def call(self, asked, args, kwargs):
        keys = self._note(asked)
        if _NOT_THEIRS in _split(keys):
            return self._site.enter(args, kwargs)
        # Nobody asks meanwhile: the step that ends here looks for hooks.
        token = self._collector.set(None)
        try:
            result = self._site.enter(
                args, {**kwargs, WORD: keys} if keys else kwargs)
        finally:
            self._collector.reset(token)
        if not keys:
            return result
        result, found = result
        for key, outputs in zip(_split(keys), found):
            asked[key].extend(outputs)
        return result

    def _note(self, asked) -> str:
        """The keys of what is asked for, whose hooks are known then."""
        hooks = list(self._hooks(asked))
        keys = ", ".join(dict.fromkeys(key for _, key, _ in hooks))
        self._known[keys] = hooks
        return keys

    def _hooks(self, asked):
        for module in self._inner:
            for hook in private.forward_hooks_of(module):
                if getattr(hook, "__module__", None) == CAPTURING:
                    names = dict(zip(hook.__code__.co_freevars,
                                     hook.__closure__ or ()))
                    if "key" in names and names["key"].cell_contents in asked:
                        index = names.get("index")
                        yield (module, names["key"].cell_contents,
                               index and index.cell_contents)

    def run(self, forward, args, kwargs) -> tuple:
        """The module with hooks of ours in the place of theirs: a recording
        has none of these."""
        keys = kwargs.pop(WORD)
        found: dict = {key: [] for key in _split(keys)}
        if keys not in self._known:  # who called it was detached meanwhile
            self._note(found)
        handles = [module.register_forward_hook(_keeper(found[key], index))
                   for module, key, index in self._known[keys]]
        try:
            return forward(*args, **kwargs), tuple(
                map(tuple, found.values()))
        finally:
            for handle in handles:
                handle.remove()


def _split(keys: str) -> list:
    return keys.split(", ")


def _keeper(kept: list, index):
    def keep(_module, _args, output):
        if index is not None and isinstance(output, tuple):
            output = output[index]
        if output is not None:
            kept.append(output)

    return keep


def of(site):
    collector = private.collector_of_outputs()
    return None if collector is None else Collected(site, collector)
