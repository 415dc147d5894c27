"""What a layer reads from Python, compared before each of its replays.

A graph repeats the flags, rates, numbers and functions that modules had when
it was recorded.  So a call first asks whether they are the same objects, by
dict and key, which is cheap; only where one is another, or one has come or
gone, are the values compared.  A call that finds another value runs eagerly.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import torch

from ..base.tree import Passing, Unfit
from .attributes import PLAIN, is_unknown
from .calls import in_words
from .found import Found, bits_of
from .held import GONE, Held
from .ran import ANY
from .tables import Tables
from .things import Things, copies


class Settings:
    """Those of some modules of a segment, as they are when this is made; the
    moment is for sentences."""

    def __init__(self, sites, things: Things,
                 moment: str = "when it was recorded"):
        self._sites = sites
        self._moment = moment
        self._things = things
        self._left_out: set = set()  # names that recordings alone change
        self._tables = Tables()
        # What functions were known to have run, when it was last looked.
        self._ran = things.ran if all(
            things.ran.may_have(_code_of(site)) for site in sites) else ANY
        found = self._find()
        self._take(found)
        self._unfit = found.unfit
        self.generators = [*found.generators.values()]  # of random numbers
        # Until the recording has ended.
        self._before = copies(found)
        self._at = things.changes
        self._other: Held | None = None  # as the last look found it changed
        self._other_at = 0
        self.difference: tuple | None = None  # the last: name and sentence

    def are_kept(self) -> bool:
        changes = self._things.changes
        if self._at == changes and self._held.is_same() \
                and self._tables.are_unwritten():
            return True
        if self._other is not None and self._other_at == changes \
                and self._other.is_same() and self._tables.are_unwritten():
            return False
        found = self._find()
        pairs: dict = {}
        name = self._differing(found, pairs)
        if name is not None:
            self._other, self._other_at = found.held, changes
            self.difference = name, self._told(name, found)
            return False
        self._take(found)
        self._tables.take(pairs)
        self.adopt()
        self._at = changes
        return True

    def adopt(self) -> None:
        """More functions are known to have run: what they read is what it is
        now, and what was known stays as it was."""
        if self._ran is self._things.ran:
            return
        self._things.look()
        self._ran = self._things.ran
        known, bits = self._values, self._bits
        self._take(self._find())
        for name in self._values.keys() & known.keys():
            self._values[name], self._bits[name] = known[name], bits[name]
        self._at = self._other = None  # which is looked at anew

    def refuse_unfit(self) -> None:
        """Before the recording runs, as nothing would put it back."""
        for name, what in self._unfit.items():
            raise Unfit(f"it has {what} in an attribute, {name}, and nobody "
                        "can tell how far that has come: keep it outside of "
                        "the layers, and give them what it gives")

    def note_recorded(self) -> None:
        """One more graph reads what is there now."""
        self._tables.read(self._values)

    def settle(self, who: str, kind=Passing) -> bool:
        """The recording has run.  What it has put in another object's place,
        of a kind that nothing is known of, is its own; it may change no
        value.  Returns whether functions ran of which nothing was known, and
        that may have changed something."""
        self._things.look()
        found = self._find()
        while True:
            name = self._differing(found, None)
            if name is None:
                break
            if not is_unknown(self._values.get(name)) \
                    or not is_unknown(found.values.get(name)):
                raise kind(f"{who} {self._change(name, found)}")
            self._left_out.add(name)
        ran = self._ran
        self._take(found)
        self.adopt()
        self._at = self._things.changes
        self._before = ()
        return not ran.is_guessed and len(ran.own) < len(self._ran.own)

    def _change(self, name: str, found: Found) -> str:
        """What a recording has done, and no replay would."""
        within = name.removesuffix("'s order")
        if within == name and (name not in found.values
                               or name not in self._values):
            within, _, _ = name.rpartition("[")
        if within not in ("", name):
            return (f"changes what is in {within}, which a replay would not: "
                    "return what it puts there, and put it there outside of "
                    "the layers")
        if isinstance(found.values.get(name), torch.Tensor):
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

    def tensors(self) -> list:
        return [value for value in self._values.values()
                if isinstance(value, torch.Tensor)]

    def _take(self, found: Found) -> None:
        self._held, self._values = found.held, found.values
        self.weights = found.weights
        self._bits = {**found.bits()}  # adopt() writes there

    def _find(self) -> Found:
        found = Found(self._ran)
        own: dict = {}
        for site in self._sites:
            prefix = f"{site.name}." if len(self._sites) > 1 else ""
            for name, module in site.module.named_modules():
                if module not in own:
                    own[module] = None
                    found.add_module(f"{prefix}{name}." if name else prefix,
                                     module, {"forward"} if module
                                     is site.module else frozenset())
        self._things.gather(found.finish(), own)
        more = self._ran.and_names(found.named)
        if more is self._ran or self._ran is not self._things.ran:
            return found
        self._things.know(more)
        self._ran = more
        return self._find()

    def _differing(self, found: Found, pairs: dict | None) -> str | None:
        """The name of the first value that is another, and of what differs in
        it, if that has a name; with the tensors that are others of the same
        bits, or None, where nobody may wait for the device to know that."""
        names = iter({**self._values, **found.values})
        name = next((n for n in self._suspects(names, found, pairs)
                     if self._differs(n, found, pairs)), None)
        if name not in self._values or name not in found.values:
            return name
        within = f"{name}.", f"{name}[", f"{name}'s "
        return next((n for n in names if n.startswith(within)
                     and n in self._values and n in found.values
                     and self._differs(n, found, pairs)), name)

    def _suspects(self, names, found: Found, pairs: dict | None):
        """Of the names those of other bits, and of tensors, of which graphs
        may have read others."""
        then, now, values = self._bits, found.bits(), self._values
        for name in names:
            if then.get(name, GONE) != now.get(name, GONE) or (
                    pairs is not None
                    and isinstance(values.get(name), torch.Tensor)):
                yield name

    def _differs(self, name: str, found: Found, pairs: dict) -> bool:
        if name in self._left_out:
            return False
        then = self._values.get(name, GONE)
        now = found.values.get(name, GONE)
        if isinstance(then, torch.Tensor) and pairs is not None:
            return not self._tables.are_equal(name, then, now, pairs)
        if then is now and type(now) in PLAIN:
            return False
        return now is GONE or self._bits.get(name) != bits_of(now)

    def _told(self, name: str, found: Found) -> str:
        then = in_words(self._values.get(name, GONE))
        now = in_words(found.values.get(name, GONE))
        if then == now:
            return f"{name} is another {now} than {self._moment}"
        return f"{name} was {then} {self._moment} and is {now} now"


def _code_of(site):
    return getattr(site.forward, "__code__", None)
