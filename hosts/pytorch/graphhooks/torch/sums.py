"""Gradients that are summed up apart from what is in `.grad`.

Several calls of a segment that one pass of autograd goes through, such as
those of two losses that were summed, are one gradient to eager: it is added
up by itself, and then to what is in `.grad`.  And what autograd.grad() asks
for is not to be there at all.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import threading

import torch

from . import private
from .private import current_pass, will_run
from .strides import copy_of


class Aside:
    """What is in `.grad`, while gradients are summed up apart from it; of all
    that graphs have the gradients of, or of some."""

    def __init__(self, parameters, some=None):
        self.own = parameters.own if some is None else some
        self.held = [(p, p.grad, p.grad.clone()
                      if parameters.is_in_place(p) else p.grad)
                     for p in self.own if p.grad is not None]
        for p, _, _ in self.held:
            p.grad = None
        self.left = [None for _ in self.own]  # what is summed up so far

    def note(self) -> None:
        """A backward has come by."""
        self.left = [p.grad for p in self.own]

    def give_up(self) -> None:
        """The pass has failed: autograd would have added nothing yet.  Who
        has set `.grad` since means that."""
        if all(p.grad is g for p, g in zip(self.own, self.left)):
            self.restore()

    def add(self) -> None:
        """The sum is added to it, as autograd adds to a gradient."""
        for p, theirs, values in self.held:
            if p.grad is None:
                p.grad = _put(theirs, values)
            elif theirs is values:
                p.grad = theirs.add_(p.grad)
            else:
                p.grad.add_(values)

    def restore(self) -> None:
        """The sum is nobody's."""
        for p in self.own:
            p.grad = None
        for p, theirs, values in self.held:
            p.grad = _put(theirs, values)


def _put(theirs, values):
    return theirs if theirs is values else theirs.copy_(values)


class Failure:
    """Autograd calls it at the end of a pass, and lets go of it when the pass
    fails: on a thread of autograd's, while the caller may go on already."""

    def __init__(self, sums: "Sums"):
        self.sums = sums
        self.aside = sums.aside
        self.stream = torch.cuda.current_stream()

    def __call__(self) -> None:
        pass

    def __del__(self):
        with self.sums.lock:
            if self.sums.aside is self.aside:
                with torch.cuda.stream(self.stream):
                    self.sums.give_up()


class Sums:
    """Those of a segment."""

    def __init__(self, segment):
        self.segment = segment
        self.aside: Aside | None = None  # `.grad` of before
        self._pass = -1  # of autograd, which comes by several times
        self.lock = threading.RLock()  # one gives up, and others wait

    def run_back(self, instance, microbatch: int, grads):
        """There may be more to come by in this pass of autograd."""
        now = current_pass()
        more = self._comes_again()
        if self._pass != now:
            self.give_up()
        if more and self._pass != now:
            self._pass = now
            self.aside = Aside(self.segment.parameters)
            private.at_end_of_pass(Failure(self))
        try:
            results = self.segment.run_back(instance, microbatch, grads)
        except BaseException:
            self.give_up()  # before anybody else can look
            raise
        if self.aside is not None:
            self.aside.note()
            if not more:
                self._add()
        return results

    def pass_by(self) -> None:
        """A call to which no gradient comes."""
        if self.aside is not None and self._pass == current_pass() \
                and not self._comes_again():
            self._add()

    def run_beside(self, instance, microbatch: int, grads):
        """For autograd.grad() and backward(inputs=...), which leave `.grad`
        alone, and whose results are the caller's."""
        self.aside = Aside(self.segment.parameters)
        try:
            results = self.segment.run_back(instance, microbatch, grads)
            return [r if r is None else copy_of(r) for r in results]
        finally:
            self.aside.restore()
            self.aside = None

    def run_without(self, frozen, run, *what):
        """For a pass that comes after these were frozen: autograd drops what
        comes to them, whatever they were in the forward."""
        aside = Aside(self.segment.parameters, frozen)
        try:
            return run(*what)
        finally:
            aside.restore()

    def _add(self) -> None:
        self.aside.add()
        self.aside = None

    def give_up(self) -> None:
        """The pass of autograd that summed up, if there is one, has failed."""
        if self.aside is None:
            return
        with self.lock:
            if self.aside is not None:
                self.aside.give_up()
                self.aside = None  # not before: who sees it does not wait

    def _comes_again(self) -> bool:
        for other in self.segment.instances.values():
            node = other.node and other.node()
            if node is not None and will_run(node):
                return True
        return False
