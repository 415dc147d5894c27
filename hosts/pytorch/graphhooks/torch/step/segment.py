"""The step path: calls of modules (backward_entry.py has the way back).

A segment of the library's plan is one module, or with granularity chunk a run
of them.  The library decides what becomes of each pass of it:

    recorded  the modules run once inside a capture (forwards.py,
              backwards.py)
    replayed  the graph has been launched; the outputs are where they were
    run       the modules run as if nobody were attached

Python is slow, so a replay touches as little of it as it can: structs for C
are made once, and of a call only what may change is looked at.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from torch import is_anomaly_enabled, is_grad_enabled
from torch.cuda import is_current_stream_capturing as is_capturing
from torch.nn.utils import parametrize

from ... import _abi
from ..base import private, tree
from ..base.layouts import close_up, wide_ones
from ..base.names import package
from ..base.notices import EAGER, REFUSED
from ..base.private import (GLOBAL_HOOKS, are_heard, current_pass, hooks_of,
                            stand_in)
from ..grad import watchers
from ..grad.parameters import Parameters
from ..guard.storage_addresses import Places, places_of
from ..guard.settings import Settings
from ..guard.words import AtOnce, Empty, Words
from ..record import checkpoint, forwards, recording, weights
from ..record.outputs import is_under_way
from ..record.split import Split
from ..record.state import before_pass
from .backward_entry import WayBack
from .chain import Chain
from .replay import LATE, replay
from .eligibility import fit, is_at_home
from .forward_wrapper import Site, is_called_around, why_left_alone

_REPLAYED, _RECORD = _abi.GH_ACTION_REPLAYED, _abi.GH_ACTION_RECORD


_BUSY = "some passes find no slot, as more microbatches are under way than " \
    "it has slots: attach with max_slots= as many"
_ALONE = 3  # such backwards, before it is said
# By which layers of Megatron-Core are known.
_MEGATRON = "_te_cuda_graph_replay"


class Segment(WayBack):
    """A graphed segment of the plan, and the modules that it is."""

    def __init__(self, owner, index: int, name: str, modules: dict):
        super().__init__(owner, index, name, modules)
        self.sites = [owner.ranks.site(self, i, *m)
                      for i, m in enumerate(modules.items())]
        # Of an engine's own work, which says what is around its calls.
        self.bodies = [m for m in modules.values()
                       if package(type(m)) == "graphhooks"]
        self.chain = Chain(self)  # of the modules after the first
        self.hooks = [h for m in modules.values() for inner in m.modules()
                      if not is_called_around(inner, m)
                      for h in hooks_of(inner)]
        self.hooks += GLOBAL_HOOKS
        self.quiet = Words(map(Empty, self.hooks))  # while there are none
        self.at_once = AtOnce()  # that, and what else is_at_home() asks
        self.settings: Settings | None = None  # what graphs read in Python
        self.state = None  # before the pass at hand, if it is recorded
        self.misfit: str | None = None  # of a call's packed arguments
        self.seen = -1  # the last microbatch that came by
        self.seen_version = 0  # of weights, by then, where no optimizer steps
        self.places = places_of(modules.values(), owner.gathering)
        self.region = None  # of checkpointing, around the call at hand
        self.is_parametrized = any(map(parametrize.is_parametrized, (
            inner for m in modules.values() for inner in m.modules())))
        self.replayed = False  # the last call was, or will have been
        self.evaluated = None  # what it is without gradients, if anything
        self.is_lost = False  # it is refused, as it is not what it was
        self.is_heard = False  # it is refused for as long as it has hooks
        self.copies = False  # of its outputs are what it returns
        self.due = False  # one of its next replays may be verified
        # What its backwards put off, if they do.
        self.weights = weights.of(self, [*modules.values()])
        self.split = Split(self) if owner.splits and self.weights is None \
            else None  # its backward, into two
        self.late = self.weights or self.split
        self.alone = 0  # backwards that were asked for inputs alone
        if owner.delays and self.late is None:
            self.flags[1] = _abi.GH_PASS_NO_WGRAD

    def leave_whole(self) -> None:
        """Its backward: nothing that goes into it needs a gradient, as behind
        a frozen embedding, so that whoever comes here asks for weights."""
        self.split = self.late = None
        self.flags[1] = _abi.GH_PASS_NO_WGRAD

    def attach(self) -> None:
        why = self.left_alone()
        if why is not None:
            self.refuse(why)
            if not self.owner.offload.takes(self):
                return
        for site in self.sites:
            stand_in(site.module, site)
            if self.weights is not None:
                site.module.put_off = self.weights
        self.owner.offload.attach(self)

    def left_alone(self) -> str | None:
        """Why its modules are none for graphs, or None."""
        for site in self.sites:
            why = why_left_alone(site.module, self.owner.gathering)
            if why is not None:
                return why if len(self.sites) == 1 else f"{site.name}: {why}"
        return None

    def look_anew(self) -> bool:
        """Before the first call: who has wrapped the model since the attach
        may have given its parameters other memory, or another type.  Before
        the first graph: calls make some buffers anew, such as tables of
        places in the type of what they are given."""
        modules = [site.module for site in self.sites]
        is_new = not self.has_begun() and self.places.are_same()
        gathering = self.owner.gathering
        gathered = gathering.of(modules) if is_new else None
        if is_new and gathered is None and gathering.has(modules):
            return False  # a call around FSDP's hooks
        now = Places(modules, gathered)
        if not (is_new or not self.instances
                and now.differs_in_buffers(self.places)):
            return False
        for site in self.sites:
            site.places = Places([site.module], gathered)
        self.places = now
        if is_new:
            self.parameters.release()
            self.parameters = Parameters(modules, self.owner.comparisons,
                                         gathered)
            self.parameters.are_awaited = self.is_awaited
        return True

    def detach(self) -> None:
        self._end_pass()  # whose results would hold all of it by their nodes
        for site in self.sites:
            site.detach()
            if self.weights is not None:
                site.module.put_off = None
        if self.split is not None:
            self.split.step()  # it holds nodes that lead here
        for key in [*self.instances]:
            self._forget(key)
        self.settings = None
        self.parameters.release()

    def refuse(self, why: str) -> None:
        if any(hasattr(type(s.module), _MEGATRON) for s in self.sites):
            why += "; graphhooks.megatron.attach() has graphs for parts of " \
                "such layers"
        self.refused = why
        self.owner.notices.add(REFUSED, self.name, why)
        self.let_go_of_lost()

    def drop(self, why: str) -> None:
        """For a reason that all who run it together have at this step."""
        self.refuse(why)

    def why_heard(self) -> str | None:
        """Hooks that have come since the attach, of which a logger's may go
        again."""
        if are_heard(self.hooks):
            return self.left_alone()
        if self.parameters.sorted and (self.parameters.have_hooks()
                                       or self.parameters.have_listeners()):
            return ("somebody has come to wait for its gradients, by a hook "
                    "of a parameter: register it before the attach")
        return None

    def refuse_while_heard(self, why: str) -> None:
        self.refused = f"{why}; without hooks it has its graphs again"
        self.is_heard = True
        self.owner.notices.add(EAGER, self.name, self.refused)

    def readmit(self) -> None:
        """Its hooks are gone."""
        self.is_heard, self.refused = False, None

    def is_under_way(self) -> bool:
        """A graph has run its forward, whose backward may still come in the
        step at hand."""
        return any(is_under_way(instance, self.owner.steps)
                   for instance in self.instances.values())

    def why_unfit(self, tensors) -> str | None:
        """Why calls with such tensors are not recorded, or None."""
        why = recording.why_not(self, tensors)
        if why is None and not self.parameters.all and not any(
                t.requires_grad for t in tensors):
            return "nothing in it is trained"
        return why

    def wide_ones(self, tensors) -> tuple:
        """Those that are closed up, of modules for which that is tried."""
        if len(self.sites) > 1 or self.owner.ranks.size > 1 \
                or self.sites[0].packed is not None:
            return ()
        return wide_ones(tensors)

    def leave_out(self, signature, why: str) -> None:
        """It is eager in that bank."""
        signature.refused = why
        self.owner.notices.add(EAGER, self.name, "of "
                               f"{signature.bank.name}: {why}")

    def forget_instances(self, bank: int) -> None:
        """Their graphs are gone.  What is added lies apart from them."""
        for key in [k for k in self.instances if k[0] == bank]:
            self._forget(key)
        self.look_unfinished()
        if not self.parameters.adds:
            self.parameters.homes = [h for h in self.parameters.homes
                                     if h.bank != bank]

    def _forget(self, key) -> None:
        self.sums.note_late(self.instances.pop(key))

    @property
    def around(self):
        """What the call at hand finds outside of its modules, for a later run
        of them; None: nothing that would be other then."""
        quantized = self.sites[0].quantized
        if quantized is not None:
            return quantized.around
        return self.bodies[0].around if self.bodies else None

    def settle(self) -> None:
        """What a backward has left in modules is of no use to another."""
        for body in self.bodies:
            if body.settle is not None:
                body.settle()
        for site in self.sites:
            if site.quantized is not None:
                site.quantized.settle()

    # ---- forward --------------------------------------------------------

    def lead(self, site: Site, args, kwargs):
        """The call of the first module."""
        if not self.chain.idle:
            self._end_pass()
        if self.evaluated is not None and not is_grad_enabled():
            return self.evaluated.lead(site, args, kwargs)
        hook = checkpoint.hooks()
        found = self._lead(site, args, kwargs) if hook is None \
            else self._lead_under(hook, site, args, kwargs)
        if not self.replayed and is_grad_enabled() and current_pass() < 0:
            self.note_eager()
        return found

    def pass_by(self, site, args, kwargs, why: str) -> bool:
        """Instead of lead(): its caller runs other work in its place.  Whether
        that has been said."""
        return False

    def follow(self, site, args, kwargs):
        """The call of a module after that."""
        return self.following().follow(site, args, kwargs)

    def following(self) -> Chain:
        """Who has it."""
        if self.evaluated is not None and not is_grad_enabled():
            return self.evaluated.chain
        return self.chain

    def _end_pass(self) -> None:
        """One that did not come to the last module."""
        left_out = self.chain.left_out()
        self.chain.stop()
        if left_out is not None:
            self.refuse(f"a pass ended before {left_out} was called, and its "
                        "graph had drawn random numbers, or written buffers, "
                        "for all layers: if these are not set anew, the "
                        "training is another than eagerly from there on; "
                        "granularity layer allows such passes")

    def _lead_under(self, hook, site, args, kwargs):
        """Checkpointing around the module, or what is like it."""
        self.replayed = False
        region, again = checkpoint.region(hook)
        if region is None and not checkpoint.keeps_bits(hook):
            self.owner.count("saved_tensors")
            return site.run(*args, **kwargs)
        if region is None or is_capturing():
            return self._lead(site, args, kwargs)
        states = self.owner.captures.states()
        if again:
            self.owner.count("checkpoint")
            if not self._look_again(region, hook, states):
                return site.run(*args, **kwargs)
            self.chain.hush(hook)
            with checkpoint.unheard():
                return site.run(*args, **kwargs)
        why = self._why_twice(region, self._regions_around(states))
        if why is None:
            self.region = region
            try:
                result = self._lead(site, args, kwargs)
            finally:
                self.region = None
            region.note(self.replayed, states)
            return result
        self.owner.count("checkpoint", self.name, why)
        region.note(False, states)
        return site.run(*args, **kwargs)

    def _look_again(self, region, hook, states) -> bool:
        """At the second run of a call: whether the first was a replay."""
        replayed, then = region.look_up(hook)
        if then is not None:
            self.sets_back[region.kind] = then == states and \
                self.sets_back.get(region.kind, True)
        return replayed

    def _regions_around(self, states) -> list:
        """Those of checkpoints around the innermost one, which run first."""
        found = []
        for hook in checkpoint.hooks_around():
            region, again = checkpoint.region(hook)
            if again:
                self._look_again(region, hook, states)
            elif region is not None:
                region.note(False, states)
                found.append(region)
        return found

    def _why_twice(self, region, around) -> str | None:
        """Why both runs of a checkpointed piece have to be eager ones."""
        if self.writes or checkpoint.is_selective():
            return ("checkpointing runs it twice, and it writes buffers, or a "
                    "mode keeps some results, as selective checkpointing does")
        known = [self.sets_back.get(r.kind) for r in (region, *around)]
        if False in known:
            return ("checkpointing runs it twice, and the second run begins "
                    "with other random numbers than the first: let it set "
                    "all generators back, as preserve_rng_state=True does for "
                    "torch's own, and Megatron's checkpoint for its tracker's")
        if None in known and self.draws is not None:
            return ("checkpointing is new around it, and one eager run shows "
                    "whether it sets random numbers back")
        return None

    def _lead(self, site, args, kwargs):
        owner = self.owner
        self.replayed = False
        tensors, key = fit(self, args, kwargs)
        if tensors is not None and owner.stepped:
            owner.step()
        if self.owner is not owner:  # attached anew
            return site.anew(args, kwargs)
        if tensors is None:
            return site.run(*args, **kwargs)
        if self.refused is not None:
            return site.run(*args, **kwargs)
        if self.seen == owner.microbatch:
            if private.is_within_any(owner.passes):
                # Of reentrant checkpointing.  The slot of a graph that has
                # gone back may be free, and autograd waits for the rest of
                # what it adds to the gradients that lie there.
                owner.count("reentrant")
                return site.run(*args, **kwargs)
            if owner.optimizers.has_stepped_by_hand():
                owner.step()
            else:
                owner.next_microbatch(self.seen + 1)
        elif owner.optimizers.are_by_hand and current_pass() < 0 \
                and self.seen >= 0 and self.seen_version \
                != self.parameters.version() \
                and owner.optimizers.has_stepped_by_hand():
            owner.step()
        self.seen = microbatch = owner.microbatch
        if owner.optimizers.are_by_hand:
            self.seen_version = self.parameters.version()
        if not is_at_home(self):
            return site.run(*args, **kwargs)
        if owner.comparisons.waiting:
            owner.comparisons.settle()  # a recording cannot wait
            if self.refused is not None:
                owner.count("refused")
                return site.run(*args, **kwargs)
        signature = owner.banks.find(self, key, tensors, args, kwargs)
        if signature is None:
            return site.run(*args, **kwargs)
        if not signature.warm or len(signature.calls) != len(self.sites) - 1:
            return self.learn(signature, site, tensors, args, kwargs)
        if self.sites[0].given is not None \
                and not owner.packed.have_tried(self):
            owner.packed.is_wanted = signature.bank.is_open
            owner.count("warmup")
            return site.run(*args, **kwargs)
        bank = signature.bank
        if not bank.is_open:
            owner.banks.run_eagerly(self)
            return site.run(*args, **kwargs)
        if not owner.flights.may_follow(self, microbatch, bank.number):
            owner.count("order")
            return site.run(*args, **kwargs)
        if owner.room.is_limited \
                and not owner.room.may_run(self, bank.number):
            return site.run(*args, **kwargs)
        if not owner.outputs.may_run(self):
            return site.run(*args, **kwargs)
        if signature.serial:
            if not owner.flights.may_run(signature.serial, bank.number):
                owner.move_gradients_out()
        elif owner.offload.unsettled:
            owner.offload.settle()
        gathered = self.parameters.gathered
        if gathered is not None and not gathered.come(self):
            return site.run(*args, **kwargs)
        instance = None
        if owner.evaluation.was_here:
            owner.evaluation.leave()
        before = owner.verify.before(self) if self.due else None
        if self.unfinished:
            self.state = before_pass(self)
        read = tensors if not signature.wide \
            else close_up(tensors, signature.wide)
        action = self.enter(0, read, microbatch, bank.number)
        if action == _REPLAYED:
            instance = self.instances[bank.number, self.decision.slot]
        elif action == _RECORD and is_anomaly_enabled():
            owner.cancel(None)
            owner.count("anomaly", self.name, "anomaly detection looks at "
                        "every number, which a recording does not let it: "
                        "its graphs come once that is off")
        elif action == _RECORD:
            instance = forwards.record(self, signature, read, tensors, args,
                                       kwargs)
        else:
            if self.decision.reason == _abi.GH_REASON_BUSY:
                self.busy = owner.steps, microbatch + 1
                owner.notices.add(EAGER, self.name, _BUSY)
            owner.cancel(self.decision.reason)
        if instance is None:
            return self.chain.watch(signature, site, tensors, args, kwargs)
        self.replayed = True
        owner.ran += 1
        for names, values in instance.written:
            names.update(values)
        owner.flights.ran(instance, microbatch)
        instance.apart = None
        instance.left -= 1
        if instance.left <= 1 and owner.verify.look(self, instance, before,
                                                    site, args, kwargs):
            return site.run(*args, **kwargs)
        outputs = replay(self, instance, microbatch, tensors)
        if type(outputs) is not tuple:
            outputs = (outputs,)
        if instance.live is not None:  # its backward is to be recorded
            self.state.note_pass(instance, tensors, outputs)
            self.state = None
        if len(self.sites) > 1:
            return self.chain.play(instance, outputs, tensors)
        shape = instance.shape[0]
        if type(shape) is tree.Place:
            return outputs[0]
        return tree.fill(shape, (outputs, tensors))

    def warm_up(self, signature, parameters, passes: set, step: int) -> None:
        """An eager backward comes by, of outputs of that step that depend on
        these, and in which passes of autograd it has.  One that leaves them
        alone, as autograd.grad() of an input does, shows nothing of their
        use."""
        self.owner.way.forget()
        passes.add(current_pass())
        if step != self.owner.steps >= 0 and self.refused is None:
            self.refuse(LATE)
        if is_grad_enabled() and current_pass() >= 0 \
                and self.refused is None:
            self.refuse("the derivative of its backward is asked for, as with "
                        "create_graph=True, and a graph has none")
        elif len(passes) > 1 and self.refused is None and self.split is None:
            self.refuse("a second backward goes through one forward of it, as "
                        "of two losses one by one or with retain_graph=True, "
                        "and a graph keeps nothing for that: add the losses "
                        "up and go back once")
        if not parameters or self.split is not None \
                or watchers.fate(parameters) != watchers.LEFT:
            signature.warm = True
            return
        self.alone += 1
        if self.alone == _ALONE:
            self.owner.say(self.name, "runs eagerly, as its backwards are "
                           "asked for the gradients of inputs alone: where "
                           "those of weights are asked for later, as torch's "
                           "zero-bubble schedules do, attach with "
                           "split_backward=True")
