"""The way back through a segment: autograd comes to it, and its backward is
replayed; the first time it is recorded (backwards.py).

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from functools import partial

from torch import is_grad_enabled

from ... import _abi
from ..base.private import current_pass
from ..base.tree import Unserved
from ..grad import chained, gradients, strides
from ..grad.gradient_buffers import Home
from ..grad.parameters import Parameters
from ..grad.sums import Sums
from ..record import backwards, heard, instead
from ..record.instance import Instance
from .segment_base import Called

_ALONE = "runs eagerly in backwards that are asked for some gradients alone"
_MOST_SLOTS = 64  # that max_slots takes
_PATIENCE = 3  # steps in a row in which passes have no use of a graph
_REPLAYED = _abi.GH_ACTION_REPLAYED


class WayBack(Called):
    """That of a segment with graphs, which has its parameters' gradients."""

    def __init__(self, owner, index: int, name: str, modules: dict):
        super().__init__(owner, index, name)
        self.parameters = Parameters(modules.values(), owner.comparisons)
        self.sums = Sums(self)
        self.parameters.are_awaited = self.is_awaited
        self.unfinished = False  # a backward is still to be recorded
        self.untold = ()  # parameters of which engines are to be told
        self.busy = -1, 0  # the last step with too few slots, and microbatches
        # The last step in which passes may have more than what graphs have
        # run, and how many calls were eager in it.
        self.mixed, self.eager = -1, 0
        self.useless = 0, -2  # steps from, to: graphs have run for nothing

    def has_begun(self) -> bool:
        """Whether a call has shown something of its parameters."""
        return self.parameters.sorted or bool(self.parameters.shares.nodes)

    def is_awaited(self) -> bool:
        """Whether a pass of autograd may come to what a graph has run."""
        nodes = [instance.node for instance in self.instances.values()]
        return any(node is not None and node() is not None
                   for node in (*nodes, *self.sums.again))

    def note_taken_back(self, home: Home) -> None:
        """It has other tensors now, which backwards are to name."""
        for instance in self.instances.values():
            backward = instance.backward
            if backward is not None and backward.home is home:
                backward.gradients = [home.gradients[p]
                                      for p in backward.own]

    def copy_out(self) -> None:
        """What somebody keeps of gradients, before graphs write there."""
        if self.sums.is_summing():
            return  # who keeps some itself
        for home in self.parameters.homes:
            if home.copy_out(sum(
                    i.backward is not None and i.backward.home is home
                    for i in self.instances.values())) and home.take_back():
                self.note_taken_back(home)

    def backward(self, instance: Instance, microbatch: int, grads):
        instance.node = None
        if self.parameters.gathered is not None:
            self.parameters.gathered.fill(self)
        now = current_pass()
        if now not in self.owner.passes:
            self.owner.passes.append(now)
        if self.split is not None:
            return self.split.back(instance, microbatch, grads)
        if not self.parameters.are_accumulated():
            self.owner.count("partial_backward")
            self.owner.say(self.name, "a backward was asked for some "
                           "gradients alone, and those that its graph adds "
                           "were kept apart from it" if not
                           self.parameters.put else _ALONE)
            return self.sums.run_beside(self.run_back, instance, microbatch,
                                        grads)
        others = self.parameters.others
        if self.parameters.own:
            others.go(now)
        left_out = self.parameters.left_out()
        if left_out:
            return self.sums.run_without(
                left_out, partial(self.sums.run_back, self.run_back),
                instance, microbatch, grads)
        if len(self.instances) == 1 and not self.sums.again \
                and self.mixed != self.owner.steps:
            return self.run_back(instance, microbatch, grads)
        return self.sums.run_back(self.run_back, instance, microbatch, grads)

    def backward_instead(self, run, instance, microbatch: int, grads):
        """By `run`, where the graph does not serve the pass at hand at all, as
        it comes late, or for the second time."""
        if self.parameters.gathered is not None:
            self.parameters.gathered.fill(self)
        if self.split is not None:
            return run(instance, microbatch, grads)
        derived = is_grad_enabled()  # the backward, too
        if not self.parameters.are_accumulated():
            return run(instance, microbatch, grads) if derived else \
                self.sums.run_beside(run, instance, microbatch, grads)
        if not self.parameters.have_hooks():  # which look at `.grad`
            run = partial(self.sums.run_back, run)
        left_out = not derived and self.parameters.left_out()
        if left_out:
            return self.sums.run_without(left_out, run, instance, microbatch,
                                         grads)
        return run(instance, microbatch, grads)

    def run_eagerly(self, why: Unserved, instance, microbatch: int, grads):
        """A backward whose graph does not add up as eager does; raises `why`
        where that cannot be."""
        if instance.live is None or self.owner.ranks.size > 1:
            return instead.run(self, instance.origin, instance, microbatch,
                               grads, why)
        if self.refused is None:
            self.refuse(why.what)
        instance.apart = None
        return backwards.begin(self, instance, microbatch, grads)

    def part(self, why: str) -> None:
        """A graph has run for a pass that it does not serve.  Where that is
        the rule, layers of a chunk get graphs of their own."""
        step = self.owner.steps
        since, last = self.useless
        since = since if step <= last + 1 else step
        self.useless = since, step
        if self.refused is not None or step - since + 1 < _PATIENCE:
            return
        if len(self.sites) > 1:
            self.broken = why
        self.refuse(why)

    def note_eager(self) -> None:
        """A call, whose backward may be one with that of others."""
        self.note_mixed()
        self.eager += 1

    def note_mixed(self) -> None:
        if self.mixed != self.owner.steps:
            self.mixed, self.eager = self.owner.steps, 0

    def note_others(self) -> None:
        self.owner.count("elsewhere")
        step, needed = self.busy
        if step == self.owner.steps:
            self.owner.say(self.name, f"one backward is of {needed} "
                           "microbatches or more, and those for which there "
                           "was no slot ran eagerly; autograd adds the "
                           "gradients of these up apart from those of graphs, "
                           "so bits may differ from eager's: attach with "
                           f"max_slots={min(needed, _MOST_SLOTS)}, or more")
            return
        if self.mixed == self.owner.steps and self.eager > 1:
            self.owner.say(self.name, "one backward is of several calls that "
                           "ran eagerly, as explain() says, and of graphs; "
                           "autograd adds the gradients of those up apart "
                           "from those of graphs, so bits may differ from "
                           "eager's: go back for each call by itself")
            return
        self.owner.say(self.name, "a parameter has got a gradient from "
                       "elsewhere in a backward in which the graph added its "
                       "own; eager adds up both before, so bits may differ: "
                       "detach, and attach again before a step that does so, "
                       "or with gradients=\"autograd\"")

    def leave_alone(self, instance) -> None:
        """No gradient comes, as from a function that gives none back: none
        leaves, and none is made of zeros."""
        instance.node = None
        self.sums.pass_by()

    def run_back(self, instance, microbatch: int, grads):
        """Replays an instance's backward; the first time records it."""
        try:
            origin = instance.origin
            if origin.count is not None:
                instance.apart = None
                raise Unserved(self.name, "its graph has run for all of its "
                               "modules, and counts for some", True)
            if origin.is_heard:
                instance.apart = None
                self.part(heard.WHY)
                raise Unserved(self.name, heard.WHY, True)
            if origin.reads_others():
                instead.go_back_as_checkpoints(self, instance)
            if instance.apart is not None:
                return self.owner.verify.backward(self, instance, microbatch,
                                                  grads)
            if instance.live is not None:
                return backwards.begin(self, instance, microbatch, grads, True)
            if instance.backward is None:  # a slot that is closed
                raise Unserved(self.name, "there was no memory for the graph "
                               "of its backward", True)
            return self._replay_back(instance, microbatch, grads)
        except Unserved as why:
            return instead.run(self, instance.origin, instance, microbatch,
                               grads, why)

    def _replay_back(self, instance, microbatch: int, grads):
        grads = self.read(instance, grads)
        parameters = self.parameters
        if not parameters.are_plain():
            self._see_to_parameters()
        if parameters.put and (parameters.is_asked() or self.sums.is_summing()
                               and parameters.adds_up()):
            if self.owner.ranks.size == 1:
                raise Unserved(self.name, *self.sums.why_apart())
            self.note_others()  # ranks that share graphs cannot part
        if instance.spoiled:
            raise Unserved(self.name, "backwards come in another order than "
                           "in the step that was recorded, and one of them "
                           "has used what this one reads; keep their order, "
                           "or detach")
        owner = self.owner
        owner.flights.runs_back(instance)
        owner.writes.order()
        backward = instance.backward
        foreign = gradients.prepare(self, backward)
        moved = None
        which = backward.chained and chained.moved(backward.chained, grads)
        if which:
            moved = chained.Moved(backward.chained, grads, which)
            grads = moved.grads
        action = self.enter(1, grads, microbatch, backward.flight[0])
        if action != _REPLAYED:
            owner.cancel(self.decision.reason)
            if moved is not None:
                moved.put_back(())
            raise Unserved(self.name, "its backward must run eagerly, and "
                           "what autograd needs for that is gone")
        if self.parameters.put:
            self.parameters.others.go(current_pass())
        results = backward.results
        if self.late is not None:
            instance.later = moved and moved.for_later()
        if moved is not None:
            results = moved.put_back(results)
        gradients.finish(self.parameters.adds, backward, foreign)
        if self.weights is not None:
            self.weights.came(instance, microbatch, True)
        for names, name in backward.marks:
            names[name] = True
        self.untold = backward.told
        return results if self.parameters.gathered is None \
            else self.parameters.gathered.take(results)

    def _see_to_parameters(self) -> None:
        """Not all is as it was."""
        if self.parameters.have_hooks():
            raise Unserved(self.name, backwards.HOOK, True)
        if self.parameters.mains.are_others():
            raise Unserved(self.name, "the main_grad of a parameter was set "
                           "to another buffer between a forward and its "
                           "backward, which adds to the old one: set it "
                           "before the forward", True)

    def tell(self) -> None:
        """Engines, at the end of a backward."""
        untold, self.untold = self.untold, ()
        self.parameters.tell(untold)

    def read(self, instance: Instance, grads):
        """The gradients that the recorded backward reads."""
        if len(grads) == 1 and grads[0] is not None \
                and [grads[0].stride()] == instance.layouts:
            return grads
        wanted = instance.wanted
        if len(wanted) != len(grads):
            for i, grad in enumerate(grads):
                if grad is not None and i not in wanted:
                    raise Unserved(
                        self.name, f"a gradient comes to output {i}, whose "
                        "gradient was none when the backward was recorded; "
                        "detach and attach again")
        for outputs in instance.alone:
            if all(grads[i] is None for i in outputs):
                raise Unserved(
                    self.name, "no gradient comes to output "
                    f"{' or '.join(map(str, outputs))}, which had one when "
                    "the backward was recorded, and parameters of its own; "
                    "detach and attach again")
        if any(grads[i] is None for i in wanted):
            self.owner.count("zeros")
            self.owner.say(self.name, "an output that had a gradient when "
                           "the backward was recorded has none, and the graph "
                           "reads zeros: where its derivative is infinite, "
                           "NaNs come of that")
        return [strides.read(self, i, grads[i], instance.outputs[i], layout)
                for i, layout in zip(wanted, instance.layouts)]

    # ---- a recording -----------------------------------------------------

    def look_unfinished(self) -> None:
        """Whether the backward of a recorded forward is still to come, maybe
        after another pass of the forward."""
        self.unfinished = any(
            instance.live is not None and instance.signature.refused is None
            for instance in self.instances.values())

    def has_given_up(self, instance) -> bool:
        """Its backward is never recorded."""
        return self.refused is not None and not self.is_heard \
            or instance.signature.refused is not None \
            or self.owner.room.is_closed(instance)

    def let_go_of_lost(self) -> None:
        """Of what a backward needs that does not come, as its loss is gone."""
        for instance in self.instances.values():
            if instance.live is not None and self.has_given_up(instance) \
                    and instance.node is not None and instance.node() is None:
                instance.let_go(self.settings)

    def must_run_again(self, instance) -> bool:
        """For an eager backward: autograd's graph of the recording may be
        gone, or is wanted for a recording that is still to come."""
        return instance.spent or (self.refused is None and
                                  instance.signature.refused is None)

    def can_run_again(self, instance) -> bool:
        """As eagerly, what the forward was given being there and the same."""
        return instead.may_run(self, instance.origin, instance)

    def decline_backward(self, instance, microbatch: int) -> None:
        """Its recording is not tried; where ranks share it they hear so."""
