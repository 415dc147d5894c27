"""A segment in passes without gradients: forwards that no backward follows.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib

import torch
from torch import is_grad_enabled
from torch.cuda import is_current_stream_capturing as is_capturing

from ... import _abi
from ..base import private, tree
from ..base.memory import versioned
from ..base.private import (are_heard, current_device, is_in_mode,
                            is_transformed, keeps_parametrized)
from ..guard.attributes import Attributes
from ..guard.draws import HostNumbers
from ..guard.settings import Settings
from ..record import checkpoint, recording
from ..record.beside import noted
from ..record.instance import Instance
from ..step.segment_base import Called
from ..step.chain import Chain
from ..step.eligibility import count_device, count_replaced, count_settings

_REPLAYED, _RECORD = _abi.GH_ACTION_REPLAYED, _abi.GH_ACTION_RECORD


class _Following(Chain):
    """The modules after the first, without gradients."""

    def is_beside(self) -> bool:
        return is_grad_enabled()

    def why_in_another_mode(self, site) -> str | None:
        if site.module.training is self.segment.trained[site.position]:
            return None
        return "has gone to train() or eval() since the first was called"

    def _foresee(self) -> None:
        pass

    def _watch_uses(self) -> None:
        self.signature.warm = True


class Evaluated(Called):
    """What a Segment is to calls with gradients."""

    def __init__(self, owner, segment):
        super().__init__(owner, segment.index, segment.name)
        self._segment = segment
        self.sites = segment.sites
        self.chain = _Following(self)
        self.trained: list = []  # modules' flags, in the call at hand
        self.settings: dict = {}  # what graphs of a bank read in Python
        self.seen = 0  # the last pass that came by

    @property
    def misfit(self) -> str | None:
        return self._segment.misfit

    def why_unfit(self, tensors) -> str | None:
        return recording.why_not(self, tensors)

    def part(self, why: str) -> None:
        self.refuse(why)

    def refuse(self, why: str) -> None:
        self.refused = why
        self.owner.count("refused", self.name, why)

    def leave_out(self, signature, why: str) -> None:
        signature.refused = why
        self.owner.count("refused", self.name, why)

    def forget_instances(self, bank: int) -> None:
        self.instances.pop((bank, 0), None)
        self.settings.pop(bank, None)

    # ---- a call ---------------------------------------------------------

    def lead(self, site, args, kwargs):
        """Of the first module."""
        self.end_pass()
        tensors, key = self._fit(args, kwargs)
        if tensors is None:
            return site.run(*args, **kwargs)
        owner = self.owner
        if self.seen == owner.passes:
            owner.begin()
        self.seen = owner.passes
        if not self._is_at_home():
            return site.run(*args, **kwargs)
        signature = owner.banks.find(self, key, tensors, args, kwargs)
        if signature is None:
            return site.run(*args, **kwargs)
        if not signature.warm or not self.chain.is_known(signature):
            return self.learn(signature, site, tensors, args, kwargs)
        if not self._may_run(signature):
            return site.run(*args, **kwargs)
        instance = self._run(signature, tensors, args, kwargs)
        if instance is None:
            return self.chain.watch(signature, site, tensors, args, kwargs)
        return self._results(instance, tensors)

    def end_pass(self) -> None:
        """One that did not come to the last module."""
        if self.chain.idle:
            return
        left_out = self.chain.left_out()
        self.chain.stop()
        if left_out is not None and self.refused is None:
            self.refuse(f"a pass ended before {left_out} was called, and "
                        "its graph had drawn random numbers, or written "
                        "buffers, for all layers; granularity layer "
                        "allows such passes")

    def _fit(self, args, kwargs) -> tuple:
        """The tensors of a call that a graph can serve, and what else it is;
        or None."""
        owner = self.owner
        if self.refused is not None:
            owner.count("refused")
        elif is_transformed():
            owner.count("torch_func")
        elif is_capturing():  # the caller is, who makes a graph of his own
            owner.count("host_capture")
        elif is_in_mode():
            owner.count("modes")
        elif self.misfit is not None:
            owner.count("packed", self.name, owner.packed.why(self))
        elif not owner.packed.have_tried(self):
            owner.count("warmup")
        elif len(self.sites) > 1 and self.draws \
                and checkpoint.is_first_of_reentrant():
            owner.count("checkpoint", self.name, "a graph draws for all its "
                        "layers at once, and the checkpoint around each keeps "
                        "where random numbers are at its own: "
                        "use_reentrant=False, or granularity layer")
        else:
            return self._gather(args, kwargs)
        return None, None

    def _gather(self, args, kwargs) -> tuple:
        self.trained = [s.module.training for s in self.sites]
        try:
            return self.gather(self.switches(), args, kwargs)
        except tree.Unfit as unfit:
            self.owner.count("input", self.name, str(unfit))
            return None, None

    def gather(self, switches, args, kwargs) -> tuple:
        tensors, key = super().gather(switches, args, kwargs)
        key.append(tuple(self.trained))
        return tensors, key

    def _is_at_home(self) -> bool:
        """As in training, but for gradients; weights may be lent for an
        evaluation, and come back."""
        owner, segment = self.owner, self._segment
        if current_device() != owner.device:
            return count_device(self)
        if not segment.places.are_kept():
            return count_replaced(self)
        if not segment.quiet.is_same() and are_heard(segment.hooks):
            owner.count("hooks", self.name, segment.left_alone())
            return False
        if keeps_parametrized() and segment.is_parametrized:
            owner.count("parametrize")
            return False
        return True

    def _may_run(self, signature) -> bool:
        owner, bank = self.owner, signature.bank
        if not bank.is_open:
            owner.banks.run_eagerly(self)
            return False
        if (bank.number, 0) not in self.instances and not owner.may_record():
            owner.count("frozen")
            return False
        if not owner.may_run():
            owner.count("busy", self.name, "a backward waits for what lies in "
                        "the memory that its graphs use: evaluate when the "
                        "backwards of what came before are over")
            return False
        settings = self.settings.get(bank.number)
        if settings is None or settings.are_kept():
            return True
        return count_settings(self, settings, "pass")

    def _run(self, signature, tensors, args, kwargs) -> Instance | None:
        """By a graph; None: the modules are to run."""
        owner, bank = self.owner, signature.bank
        if signature.serial:
            owner.make_way(signature.serial)
        read = owner.read(tensors)
        action = self.enter(0, read, 0, bank.number)
        if action == _REPLAYED:
            return self.instances[bank.number, 0]
        if action == _RECORD:
            return self._record(signature, read, tensors, args, kwargs)
        owner.cancel(self.decision.reason)
        return None

    def _results(self, instance, tensors):
        for names, values in instance.written:
            names.update(values)
        outputs = self.owner.give(instance)
        if len(self.sites) > 1:
            return self.chain.play(instance, outputs, tensors)
        return tree.fill(instance.shape[0], (outputs, tensors))

    # ---- a recording ----------------------------------------------------

    def _record(self, signature, read, tensors, args, kwargs):
        """Of a pass that is open."""
        owner, number = self.owner, signature.bank.number
        instance = Instance(signature)
        with recording.closing(owner):
            before = Attributes(self)
            first = number not in self.settings
            if first:
                owner.things.look()
            settings = Settings(self.sites, owner.things) if first \
                else self.settings[number]
            numbers = HostNumbers(owner.captures.generators,
                                  settings.generators)
            with versioned():
                instance.inputs = recording.static(self, read)
                for inside, outside in zip(instance.inputs, tensors):
                    inside.requires_grad_(outside.requires_grad)
            indices = {id(t): i for i, t in enumerate(tensors)}
            call = tree.form((args, kwargs),
                             lambda t: tree.Place(0, indices[id(t)]))
            if not recording.capture(self, signature, 0, lambda: self._play(
                    instance, call, before, first and settings, numbers)):
                before.put_back()
                numbers.put_back()
                settings.put_back()
                return None
        self.has_failed = False
        self.settings[number] = settings
        settings.adopt()
        settings.note_recorded()
        instance.flight = owner.captures.at
        instance.serial = owner.training.flights.next_serial()
        instance.pool = owner.captures.pool
        instance.attributes = before.tensors()
        instance.outputs = instance.live
        instance.inputs, instance.live = (), None
        self.instances[number, 0] = instance
        owner.banks.note_recorded(signature, instance)
        return instance

    def _play(self, instance, call, before, settings, numbers):
        """The modules run, in the capture."""
        if settings:
            settings.refuse_unfit()
        args, kwargs = tree.fill(call, (instance.inputs,))
        contents = recording.contents(args, kwargs)
        versions = [*map(private.version, instance.inputs)]
        results = recording.Results(instance)
        with noted(instance, self.sites), versioned(), _quiet(self.draws), \
                private.without_hooks(self._segment.hooks), \
                self.owner.things.watching(True):
            self.chain.run(instance.signature, args, kwargs, instance.inputs,
                           results.note)
        if versions != [*map(private.version, instance.inputs)]:
            raise tree.Unfit("it changes in place what it is given")
        numbers.refuse_draws("it")
        if contents != recording.contents(args, kwargs):
            raise tree.Unfit("it changes a list or dict that it is given")
        if not self._segment.places.are_kept():
            raise tree.Unfit("it replaces a parameter or a buffer")
        recording.refuse_many(results)
        if any(t.requires_grad for t in results.tensors):
            raise tree.Unfit("it turns gradients on, and a graph of "
                             "evaluation has no backward")
        found = before.walk()
        for name, _ in before.new(found):
            raise tree.Passing("it leaves another tensor in an attribute, "
                               f"{name}, which a replay would not: return it "
                               "instead, or copy it into a buffer")
        before.refuse_changes("it", found)
        if settings and settings.settle("it") and not self.has_failed:
            raise tree.Passing("it runs functions that it had not run before")
        instance.live = results.tensors
        return results.last


@contextlib.contextmanager
def _quiet(draws):
    with recording.apart_from_caches(), checkpoint.without_states(draws):
        yield
