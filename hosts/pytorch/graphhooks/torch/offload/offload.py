"""Activations that go to the host's memory and come back.

What a module keeps for its backward is a group: of the attention, of the MLP,
or of a whole layer.  Where the module runs eagerly, its group is moved by
carried.py; where it is recorded, by the library (ringed.py).  Until the first
recording, or the end of the first step, all groups go and are measured.  The
library then settles which of them do, for both.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import ctypes
import difflib
import os

import torch
from torch import is_grad_enabled
from torch.cuda import is_current_stream_capturing as is_capturing

from ... import _abi
from ...errors import Error
from ...model import PARTS
from ..base import private
from ..record import checkpoint
from .bracket import Bracket, Plain
from .carried import Carrier
from .pinned import rounded
from .ringed import NoReading, Reading, Recorder
from .saved import Collector

NAMES = ("attn", "mlp", "layer")  # of groups, as the library is told them
_YES = ("1", "on", "yes", "true")
_NO = ("", "0", "off", "no", "false", "none")


def asked(options: dict) -> tuple:
    """The groups that options or the environment ask for; the options are
    left without what is the host's own business."""
    given = options.pop("offload", None)
    told = os.environ.get("GRAPHHOOKS_OFFLOAD")
    label = "GRAPHHOOKS_OFFLOAD" if told else "offload"
    value = told or given
    if value is None or value is False:
        return ()
    if value is True:
        return ("layer",)
    if isinstance(value, (list, tuple, set, frozenset)):
        value = ",".join(map(str, value))
    words = [word.strip() for word in str(value).split(",")]
    if len(words) == 1 and words[0].lower() in _YES + _NO:
        return ("layer",) if words[0].lower() in _YES else ()
    for word in words:
        if word not in NAMES:
            near = difflib.get_close_matches(word, NAMES, 1)
            raise Error(f"{label}: {word!r} is no group of tensors; " + (
                f"did you mean {near[0]}?" if near else
                f"there are {', '.join(NAMES)}"))
    if "layer" in words and len(words) > 1:
        raise Error(f"{label} is {','.join(words)}; a layer's tensors are "
                    "those of its parts too: name the layer or its parts")
    return tuple(name for name in NAMES if name in words)


class Nothing:
    """Of an attach that offloads nothing."""

    moves = False
    unsettled = False

    def attach(self, segment) -> None:
        pass

    def takes(self, segment) -> bool:
        return False

    def attach_rest(self, planned) -> None:
        pass

    def recording(self, instance):
        return contextlib.nullcontext()

    plain = recording

    def reading(self, segment, instance):
        return NoReading()

    def settle(self) -> None:
        pass

    check = step = close = settle

    def stats(self) -> dict:
        return {}

    def lines(self) -> list:
        return []


_NOT = object()  # no pass is recorded, or played once more


class Offload:
    """What an attach offloads."""

    moves = True
    names = NAMES

    def __init__(self, owner, words):
        self.owner = owner
        self.words = words
        self.unsettled = True
        self.least = int(_option(owner, "offload_min_bytes") or 1 << 20)
        self.sizes: dict = {}  # bytes of each group, in their first order
        self.segments: dict = {}  # of the pass that saves it
        self.why: dict = {}  # each of them stays; None: it goes
        self._limit = int(_option(owner, "offload_pool_bytes") or 0)
        self.carrier = Carrier(owner, max(len(words), 1), self._room,
                               int(_option(owner, "offload_in_flight") or 0))
        self._playing = _NOT
        self.reader = None  # the Reading of the pass that is open
        self._fixed: dict = {}  # storages that modules have, by bracket
        self._fixed_at = -1  # in which step
        self._told: set = set()
        self._has_some = False
        self._plain: list = []  # modules that have no graphs

    def takes(self, segment) -> bool:
        """Whether modules that can have no graphs may have groups: not those
        whose forward is none of Python's."""
        for site in segment.sites:
            if private.is_compiled(site.module) or any(
                    isinstance(m, torch.jit.ScriptModule)
                    for m in site.module.modules()):
                self.owner.say(segment.name, "nothing of it is offloaded: its "
                               "forward is none of Python's")
                return False
        return True

    def attach(self, segment) -> None:
        """Its modules are groups, or have some in them."""
        for site in segment.sites:
            index, parts = self._parts_of(site.module)
            if parts:
                self._has_some = True
                site.bracket = Bracket(self, site.plain, site.module, index,
                                       segment.index, parts)

    def attach_rest(self, planned) -> None:
        """What has no graphs: layers, or parts of those that have some."""
        taken = {site.module for segment in self.owner.segments
                 for site in segment.sites}
        for i, layer in enumerate(self.owner.layers):
            if layer.module in taken:
                continue
            parts = {name: getattr(layer.module, attribute)
                     for name, attribute in layer.parts.items()}
            if not taken.intersection(parts.values()):
                self._stand_in(planned, layer.module,
                               *self._parts_of(layer.module))
                continue
            for name, module in parts.items():
                if module not in taken:
                    self._stand_in(planned, module, *self._parts_of(module))

    def _stand_in(self, planned, module, layer: int, parts: dict) -> None:
        if parts:
            self._has_some = True
            self._plain.append(Plain(
                self, module.forward, module, layer,
                _segment_of(planned, layer, next(iter(parts))), parts))

    def check(self) -> None:
        """When all is attached."""
        if not self._has_some:
            raise Error("offload: no layer has a module that is its "
                        f"{' or '.join(self.words)}: say which it is, parts=, "
                        "or take whole layers, offload=True")

    def _parts_of(self, module) -> tuple:
        """The layer of a site, and its groups: modules by name, None for all
        of the site."""
        for i, layer in enumerate(self.owner.layers):
            if layer.module is module:
                if self.words == ("layer",):
                    return i, {"layer": None}
                self._tell_of_missing(i, layer)
                return i, {name: getattr(module, layer.parts[name])
                           for name in self.words if name in layer.parts}
            for name, attribute in layer.parts.items():
                if getattr(layer.module, attribute) is module:
                    asked = name in self.words or self.words == ("layer",)
                    return i, {name: None} if asked else {}
        return 0, {}

    def _tell_of_missing(self, index: int, layer) -> None:
        for name in self.words:
            if name not in layer.parts:
                self.tell((index, "layer"), "has no module that is its "
                          f"{name}: nothing of it is offloaded")

    def _room(self) -> int | None:
        """Bytes of pinned memory that eager passes may have; None: any."""
        if not self._limit:
            return None
        stats = self.owner.session.offload_stats()
        return self._limit - stats["pinned_bytes"]

    # ---- where modules run ----------------------------------------------

    def work(self, bracket):
        """What is to be done with the groups of a call, or None."""
        if self._playing is not _NOT:
            return self._playing
        if not is_grad_enabled() or not bracket.module.training \
                or private.is_transformed() or is_capturing() \
                or not private.takes_saved_tensors_hooks():
            return None
        if self.owner.stepped:
            self.owner.step()  # where no layer has graphs
        hook = checkpoint.hooks()
        if hook is None:
            return self.carrier
        if self.unsettled and not checkpoint.region(hook)[1]:
            return self.carrier.measuring
        return None

    def goes(self, key) -> bool:
        return self.unsettled or self.why.get(key, "") is None

    def collector(self, bracket, arguments) -> Collector:
        if self._fixed_at != self.owner.steps:
            self._fixed, self._fixed_at = {}, self.owner.steps
        if bracket not in self._fixed:
            self._fixed[bracket] = bracket.fixed()
        return Collector(self._fixed[bracket] | arguments, self.least,
                         self.may_go())

    def may_go(self):
        """Which tensors besides, or None."""
        return None

    @contextlib.contextmanager
    def _play(self, work):
        before, self._playing = self._playing, work
        try:
            yield
        finally:
            self._playing = before

    def recording(self, instance):
        """The modules run in a capture."""
        return self._play(None if self.unsettled
                          else Recorder(self, instance))

    def plain(self, instance):
        """They run, and nothing is offloaded."""
        return self._play(None)

    # ---- where backwards run --------------------------------------------

    def reading(self, segment, instance):
        """A backward of an instance, in an open pass."""
        return Reading(self, segment, instance)

    def memory_of(self, group):
        """Of one that is in the library's hands."""
        if self.reader is None:
            raise Error(f"{self.name_of(group.key)} is read outside of its "
                        "backward")
        return self.reader.memory(group)

    # ---- what goes ------------------------------------------------------

    def meet(self, key, segment: int, nbytes: int) -> None:
        """A group of that size was seen."""
        if nbytes and self.unsettled:
            self.sizes[key] = max(nbytes, self.sizes.get(key, 0))
            self.segments[key] = segment

    def settle(self) -> None:
        """Before anything is recorded."""
        if not self.sizes:
            return
        self.unsettled = False
        self.owner.captures.make_room()
        gaps = self.carrier.gaps()
        graphed = {s.index for s in self.owner.segments if s.refused is None}
        keys = self.declared()
        groups = (_abi.gh_offload_declared * len(keys))()
        for raw, key in zip(groups, keys):
            raw.struct_size = ctypes.sizeof(raw)
            raw.layer = key[0]
            raw.module = _abi.GH_MODULE_NAMED | self.names.index(key[1])
            raw.segment, raw.bytes = self.segments[key], self.sizes[key]
            raw.gap_ns = gaps.get(key, 0)
            raw.flags = _abi.GH_DECLARED_LATE
            if self.is_elsewhere(key, graphed):
                raw.flags |= _abi.GH_DECLARED_ELSEWHERE
                raw.bytes = rounded(raw.bytes)
        owner = self.owner
        status = owner.api.offload_declare(
            owner.handle, groups, len(groups), self.carrier.most_in_flight(),
            ctypes.byref(owner.error))
        if status == _abi.GH_ERR_NO_MEMORY:
            owner.say("offload", owner.error.text.decode())
        else:
            owner.check(status)
        # Those that the library knows nothing of all go.
        self.why = dict.fromkeys(self.sizes)
        for raw, key in zip(groups, keys):
            self.why[key] = raw.why and raw.why.decode()
        self.carrier.pool.give_up_free()

    def declared(self) -> list:
        """The groups of which the library decides whether they go."""
        return [*self.sizes]

    def is_elsewhere(self, key, graphed) -> bool:
        """Whether no graph has it."""
        return self.segments[key] not in graphed

    def layer_name(self, layer: int) -> str:
        return self.owner.layers[layer].name

    def step(self) -> None:
        """A training step is over."""
        if self.unsettled:
            self.settle()
        self.carrier.step()

    def close(self) -> None:
        for plain in self._plain:
            plain.detach()
        self.carrier.close()

    def tell(self, key, why: str) -> None:
        """Once."""
        if (key, why) not in self._told:
            self._told.add((key, why))
            self.owner.say(self.name_of(key), why)

    def name_of(self, key) -> str:
        layer, name = key
        at = self.layer_name(layer)
        text = at if name == "layer" else f"{at}'s {name}"
        notices = self.owner.notices
        notices.groups.add(text)
        notices.order.setdefault(text, layer)
        return text

    # ---- what a person asks ---------------------------------------------

    def stats(self) -> dict:
        return {"offload": {**self.owner.session.offload_stats(),
                            **self.carrier.stats(),
                            "going": [self.name_of(k) for k, why
                                      in self.why.items() if why is None]}}

    def lines(self) -> list:
        """Which groups go, and why others stay."""
        if self.unsettled:
            return ["offload: no group was seen yet that may go; what does "
                    "is settled when the first step ends"]
        reasons: dict = {}
        for key, why in self.why.items():
            reasons.setdefault((key[1], why), []).append(key)
        lines = []
        for (name, why), keys in reasons.items():
            mib = sum(self.sizes[k] for k in keys) / (1 << 20)
            verb = "go to the host's memory" if why is None else "stay"
            text = f"offload, {name}: {len(keys)} of " \
                f"{len([k for k in self.why if k[1] == name])} groups {verb}" \
                f", {mib:.1f} MiB of a microbatch"
            lines.append(text if why is None else f"{text}: {why}")
        return lines


def _segment_of(planned, layer: int, name: str) -> int:
    """The segment of the plan that a part, or a layer's first, is in."""
    place = layer, PARTS["mlp" if name == "mlp" else "attn"]
    for segment in planned:
        if (segment.first_layer, PARTS[segment.first_part]) <= place \
                <= (segment.last_layer, PARTS[segment.last_part]):
            return segment.index
    return next(s.index for s in planned
                if s.first_layer <= layer <= s.last_layer)


def _option(owner, name: str):
    """As the library has read it, which has refused what is no number."""
    variable = "GRAPHHOOKS_" + name.upper()
    return os.environ.get(variable) or owner.options.get(name)

