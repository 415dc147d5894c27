"""What a layer reads from Python, compared before each of its replays.

A graph repeats the flags, rates, numbers and functions that modules had when
it was recorded.  So a call first asks whether they are the same objects, by
dict and key, which is cheap; only where one is another, or one has come or
gone, are the values compared.  A call that finds another value runs eagerly.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib

import torch

from ..base.tree import Passing, Unfit
from .attributes import is_unknown
from .calls import in_words
from .reachable_values import NOTHING, Found
from .snapshot import GONE, Held
from .ran import ANY
from .tensor_twins import Tables
from .shared_objects import Things, copies, put_others_back

_FORWARD = frozenset(("forward",))


class Settings:
    """Those of some modules of a segment, as they are when this is made; the
    moment is for sentences."""

    def __init__(self, sites, things: Things,
                 moment: str = "when it was recorded",
                 like: "Settings | None" = None):
        self._sites = sites
        self._moment = moment
        self._things = things
        self._left_out: set = set()  # places that recordings alone change
        self._tables = Tables()
        # What functions were known to have run, when it was last looked.
        self._ran = things.ran if all(
            things.ran.may_have(_code_of(site)) for site in sites) else ANY
        self._modules: dict = {}  # and what the names in each begin with
        self._own: Found | None = None  # what is in those, as last found
        if like is not None:
            self._modules, self._own = like._modules, like._own
        found = like._found if like is not None and like._is_as_found() \
            else self._find()
        self._take(found)
        self._unfit = found.unfit
        self.generators = [*found.generators.values()]  # of random numbers
        # Until the recording has ended.
        self._before = copies(found)
        self._at = things.changes
        self._other: Held | None = None  # as the last look found it changed
        self._other_at = 0
        self.difference: tuple | None = None  # the last: name and sentence

    def now(self) -> "Settings":
        """Of the same modules at this moment, by the last look at things."""
        self.adopt()
        return Settings(self._sites, self._things, self._moment, self)

    def _is_as_found(self) -> bool:
        return self._found_at == self._things.changes and self._held.is_same()

    def _is_as_taken(self) -> bool:
        return self._at == self._things.changes and self._held.is_same()

    def are_kept(self) -> bool:
        if self._is_as_taken() and self._tables.are_unwritten():
            if self._ran is not self._things.ran:
                self.adopt()
            return True
        changes = self._things.changes
        if self._other is not None and self._other_at == changes \
                and self._other.is_same() and self._tables.are_unwritten():
            return False
        found = self._find()
        pairs: dict = {}
        place = self._differing(found, pairs)
        if place is not None:
            self._other, self._other_at = found.held, changes
            self.difference = "".join(place), self._told(place, found)
            return False
        self._take(found)
        self._tables.take(pairs)
        self._at = changes
        self.adopt()
        return True

    def adopt(self) -> None:
        """More functions are known to have run: what they read is what it is
        now, and what was known stays as it was."""
        if self._ran is self._things.ran:
            return
        self._things.look()
        is_known = self._is_as_taken()
        self._ran, known = self._things.ran, self._parts
        self._take(self._find())
        if is_known:
            return
        self._parts = {name: part.but(known.get(name))
                       for name, part in self._parts.items()}
        self._at = self._other = None  # which is looked at anew

    def refuse_unfit(self) -> None:
        """Before the recording runs, as nothing would put it back."""
        for name, what in self._unfit.items():
            raise Unfit(f"it has {what} in an attribute, {name}, and nobody "
                        "can tell how far that has come: keep it outside of "
                        "the layers, and give them what it gives")

    def note_recorded(self) -> None:
        """One more graph reads what is there now."""
        self._tables.read({(part, name): tensor
                           for part, each in self._parts.items()
                           for name, tensor in each.tensors.items()})

    def settle(self, who: str, kind=Passing) -> bool:
        """The recording has run.  What it has put in another object's place,
        of a kind that nothing is known of, is its own; it may change no
        value.  Returns whether functions ran of which nothing was known, and
        that may have changed something."""
        self._things.look()
        if not self._is_as_taken():
            self._refuse_changes(who, kind)
        ran = self._ran
        self.adopt()
        self._before = ()
        return not ran.is_guessed and len(ran.own) < len(self._ran.own)

    def _refuse_changes(self, who: str, kind) -> None:
        found = self._find()
        while True:
            place = self._differing(found, None)
            if place is None:
                break
            if not is_unknown(_at(self._parts, place, None)) \
                    or not is_unknown(_at(found.parts(), place, None)):
                raise kind(f"{who} {self._change(place, found)}")
            self._left_out.add(place)
        self._take(found)
        self._at = self._things.changes

    def _change(self, place: tuple, found: Found) -> str:
        """What a recording has done, and no replay would."""
        name = "".join(place)
        within = name.removesuffix("'s order")
        now = _at(found.parts(), place)
        if within == name and (
                now is GONE or _at(self._parts, place) is GONE):
            within, _, _ = name.rpartition("[")
        if within not in ("", name):
            return (f"changes what is in {within}, which a replay would not: "
                    "return what it puts there, and put it there outside of "
                    "the layers")
        if isinstance(now, torch.Tensor):
            return (f"leaves another tensor in an attribute, {name}, which a "
                    "replay would not: return it instead, or copy it into a "
                    "buffer")
        return (f"changes an attribute, {name}, which a replay would not: "
                "keep it in a buffer, or outside of the layers")

    def put_back(self) -> None:
        """The recording has not been: shared things are as before it."""
        self.as_now()()

    def as_now(self):
        """The same as a function, for who needs it when a recording has been
        settled."""
        before = self._before

        def put_back():
            for put in before:
                put()

        return put_back

    @contextlib.contextmanager
    def lent(self):
        """Flags, numbers and the like are what they were, for modules that run
        again: a region that was around them may be over."""
        before = [put for thing, held in (
            (None, self._found.held), *((thing, inner.held) for _, thing, inner
                                        in self._found.shared))
            for put in put_others_back(thing, held)]
        try:
            yield
        finally:
            for put in reversed(before):
                put()

    def tensors(self) -> list:
        return [tensor for part in self._parts.values()
                for tensor in part.tensors.values()]

    def _take(self, found: Found) -> None:
        self._found, self._held = found, found.held
        self._found_at = self._things.changes
        self._parts = found.parts()
        self.weights = found.weights

    def _find(self) -> Found:
        own: dict = {}
        for site in self._sites:
            prefix = f"{site.name}." if len(self._sites) > 1 else ""
            for name, module in site.module.named_modules():
                if module not in own:
                    own[module] = f"{prefix}{name}." if name else prefix
        if not (own == self._modules and self._own.is_all_of(self._ran)
                and self._own.held.is_same()):
            self._modules, self._own = own, self._find_own(own)
        found = self._own.again(self._ran)
        self._things.gather(found, own)
        if self._ran is not self._things.ran \
                or self._ran.and_names(found.named) is self._ran:
            return found
        self._things.know(found.named)
        self._ran = self._things.ran
        return self._find()

    def _find_own(self, own: dict) -> Found:
        found = Found(self._ran)
        roots = {site.module for site in self._sites}
        told: dict = {}
        for root in roots:
            told.update(getattr(root, "told", ()))
        for module, prefix in own.items():
            found.add_module(
                prefix, module, told.get(type(module), frozenset())
                | (_FORWARD if module in roots else frozenset()))
        return found.finish()

    def _differing(self, found: Found, pairs: dict | None) -> tuple | None:
        """The place of the first value that is another, and of what differs
        in it, if that has a place: names of a part and in it; with the tensors
        that are others of the same bits, or None, where nobody may wait for
        the device to know that."""
        now = found.parts()
        places = self._suspects(now, pairs)
        place = next((p for p in places
                      if self._differs(p, now, pairs)), None)
        if place is None or _at(self._parts, place) is GONE \
                or _at(now, place) is GONE:
            return place
        name = "".join(place)
        within = f"{name}.", f"{name}[", f"{name}'s "
        return next((p for p in places if "".join(p).startswith(within)
                     and _at(self._parts, p) is not GONE
                     and _at(now, p) is not GONE
                     and self._differs(p, now, pairs)), place)

    def _suspects(self, parts: dict, pairs: dict | None):
        """Places of other bits, and of tensors, of which graphs may have read
        others."""
        for name in {**self._parts, **parts}:
            then = self._parts.get(name, NOTHING)
            now = parts.get(name, NOTHING)
            tensors = () if pairs is None else then.tensors
            for key in tensors if then is now else {**then.bits, **now.bits}:
                if then.bits.get(key, GONE) != now.bits.get(key, GONE) \
                        or key in tensors:
                    yield name, key

    def _differs(self, place: tuple, parts: dict, pairs: dict | None) -> bool:
        """Of one that is suspect."""
        if place in self._left_out:
            return False
        then = _at(self._parts, place)
        if not isinstance(then, torch.Tensor) or pairs is None:
            return True
        return not self._tables.are_equal(place, then, _at(parts, place),
                                          pairs)

    def _told(self, place: tuple, found: Found) -> str:
        name = "".join(place)
        then = in_words(_at(self._parts, place))
        now = in_words(_at(found.parts(), place))
        if then == now:
            return f"{name} is another {now} than {self._moment}"
        return f"{name} was {then} {self._moment} and is {now} now"


def _at(parts: dict, place: tuple, other=GONE):
    part, name = place
    return parts.get(part, NOTHING).values.get(name, other)


def _code_of(site):
    return getattr(site.forward, "__code__", None)
