"""Hooks: of gradients, of what is between the layers, and of modules.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import functools
import inspect
import sys
import types

import pytest
from models import (BATCH, COUNTS, GRAINS, LAYERS, LENGTH, NO_PIECES, SEGMENTS,
                    WHOLE, WIDTH, Block, Deep, Model, Normed, Refused,
                    nn, note_gradients, step_in_hooks, torch)

from graphhooks import Error  # noqa: E402

GRAIN = pytest.mark.parametrize("grain", GRAINS)
FLIGHT = pytest.mark.parametrize("in_flight", [1, 3])


# ---- of parameters ---------------------------------------------------------


# Within a layer the order in which parameters come is not eager's.


def post_accumulate(run):
    for name, p in run.model.layers.named_parameters():
        p.register_post_accumulate_grad_hook(
            lambda p, name=name: run.note(p.grad, name))


def of_tensors(run):
    """Called with each gradient before it is added, and may change it."""
    def hook(grad, name):
        run.note(grad, name)
        return grad * 0.5

    for name, p in run.model.layers.named_parameters():
        p.register_hook(lambda grad, name=name: hook(grad, name))


def of_some(run):
    for name, p in run.model.layers[1].named_parameters():
        p.register_post_accumulate_grad_hook(
            lambda p, name=name: run.note(p.grad, name))


def of_nodes(run):
    """As engines of data parallelism have them."""
    run.nodes = []
    for name, p in run.model.layers.named_parameters():
        node = torch.autograd.graph.get_gradient_edge(p).node
        node.register_hook(
            lambda *_, p=p, name=name: run.note(p.grad, name))
        run.nodes.append(node)


HOOKS = [post_accumulate, of_tensors, of_some]


@GRAIN
@FLIGHT
@pytest.mark.parametrize("hook", [*HOOKS, of_nodes])
def test_hooks_of_gradients_see_finished_ones(pair, grain, in_flight, hook):
    pair(lambda r: r.steps(COUNTS[:3], in_flight=in_flight), grain=grain,
         before=hook)


@GRAIN
@pytest.mark.parametrize("hook", HOOKS)
def test_hooks_that_come_later(pair, grain, hook):
    """The graphs add those gradients themselves by then."""
    def train(run):
        run.steps(COUNTS[:3])
        hook(run)
        run.steps(COUNTS[:2])

    run = pair(train, grain=grain, judge=False)
    stats = run.attached.stats()
    assert stats["replays"] > 0 and stats["refused"]
    for why in stats["refused"].values():
        assert "come to wait for its gradients" in why
    if grain == "layer" and hook is of_some:
        assert list(stats["refused"]) == ["layers.1"]


def listens(run, hook) -> list:
    """What is to be removed again."""
    removed: list = []
    with pytest.MonkeyPatch.context() as patch:
        for of, name in ((torch.Tensor, "register_hook"),
                         (torch.nn.Module, "register_forward_hook"),
                         (torch.Tensor,
                          "register_post_accumulate_grad_hook")):
            register = getattr(of, name)
            patch.setattr(of, name, lambda *how, register=register:
                          removed.append(register(*how)))
        removed += hook(run) or ()
    return removed


def of_modules(run):
    """As a logger of activations has them."""
    for module in run.model.layers.modules():
        module.register_forward_hook(
            lambda m, args, out: run.note(out, type(m).__name__))


def of_all_modules(run):
    register = torch.nn.modules.module.register_module_forward_hook
    return [register(lambda m, args, out: run.note(out, "any"))]


@GRAIN
@pytest.mark.parametrize("hook", [*HOOKS, of_modules, of_all_modules])
@pytest.mark.parametrize("since", [0, 3])
def test_graphs_come_again_when_the_hooks_of_a_step_are_gone(pair, grain,
                                                             hook, since):
    """As those of a logger that looks now and then."""
    def train(run):
        run.steps(COUNTS[:since])
        for _ in range(2):
            handles = listens(run, hook)
            run.step(2)
            for handle in handles:
                handle.remove()
            before = run.attached and run.attached.stats()["replays"]
            run.steps([2, 2, 2])
        if run.attached is not None:
            assert run.attached.stats()["replays"] - before >= 2 * 2

    pair(train, grain=grain, eager=None)


@GRAIN
@pytest.mark.parametrize("hook", HOOKS)
def test_hooks_that_come_within_a_step(pair, grain, hook):
    def train(run):
        run.steps(COUNTS[:3])
        run.zero()
        run.backward(2)
        hook(run)
        run.backward(2)
        run.optimizer.step()
        run.steps(COUNTS[:2])

    run = pair(train, grain=grain, judge=False)
    stats = run.attached.stats()
    assert stats["eager_calls"]["hooks"] > 0 and stats["refused"]


@GRAIN
def test_an_engine_that_wraps_after_the_attach(pair, grain):
    def train(run):
        of_nodes(run)
        run.steps(COUNTS[:3])

    run = pair(train, grain=grain)
    for segment in run.attached.segments:
        assert not segment.parameters.own


@GRAIN
def test_a_hook_between_a_forward_and_its_backward(pair, grain):
    def train(run):
        run.steps(COUNTS[:3])
        run.zero()
        loss = run.loss()
        handles = [p.register_hook(lambda g: g * 0.5)
                   for p in run.model.layers.parameters()]
        loss.backward()
        for handle in handles:
            handle.remove()
        run.optimizer.step()
        run.steps(COUNTS[:2])

    pair(train, grain=grain, eager=["backward"])


@GRAIN
@pytest.mark.parametrize("register", ["register_hook",
                                      "register_post_accumulate_grad_hook"])
@pytest.mark.parametrize("name", ["norm1.weight", "mlp.up.bias"])
@pytest.mark.parametrize("steps", [1, 2])
def test_a_hook_before_a_backward_that_is_not_recorded(pair, grain, register,
                                                       name, steps):
    def train(run):
        run.steps([1] * steps)
        run.zero()
        hand = Hand(run, f"layers.1.{name}")
        loss = run.loss()
        hand.put(0.5, register)
        loss.backward()
        hand.take()
        note_gradients(run)
        run.optimizer.step()
        run.steps([2, 2])

    pair(train, grain=grain, make=Refused, judge=False)


class Shifted(Block):
    """Its gradients do not depend on what it adds."""

    def __init__(self):
        super().__init__()
        self.register_buffer("shift", torch.zeros(WIDTH))

    def forward(self, x):
        return super().forward(x) + self.shift


@pytest.mark.parametrize("grain", WHOLE)
def test_a_forward_that_gives_other_numbers_when_it_runs_again(pair, grain):
    """As what it reads has been written since: eagerly nobody minds."""
    def train(run):
        run.steps(COUNTS[:3])
        run.zero()
        loss = run.loss()
        handles = [p.register_hook(lambda g: g * 0.5)
                   for p in run.model.layers.parameters()]
        run.model.layers[-1].shift += 1.0
        loss.backward()
        for handle in handles:
            handle.remove()
        run.optimizer.step()
        run.steps(COUNTS[:2])

    run = pair(train, grain=grain, make=Shifted, eager=["backward"])
    assert run.attached.explain().count("gave other numbers when they ran") == 1


@GRAIN
def test_hooks_that_go_again(pair, grain):
    def train(run):
        handles = [p.register_hook(lambda g: None)
                   for p in run.model.layers.parameters()]
        for handle in handles:
            handle.remove()
        run.steps()

    run = pair(train, grain=grain)
    for segment in run.attached.segments:
        assert segment.parameters.returned == ()


@GRAIN
def test_optimizers_that_step_inside_the_backward(pair, grain):
    def train(run):
        step_in_hooks(run)
        run.steps(COUNTS[:3])

    pair(train, grain=grain)


@GRAIN
@pytest.mark.parametrize("name", ["norm1.weight", "norm1.bias"])
@pytest.mark.parametrize("ask", ["", "layers.1", "embed"])
@pytest.mark.parametrize("create_graph", [False, True])
def test_a_hook_that_comes_before_a_pass_for_some(pair, grain, name, ask,
                                                  create_graph):
    """Eager calls it with the whole gradient, and if that is asked for."""
    def train(run):
        def hook(grad):
            run.note(grad)
            return grad * 0.5

        run.steps(COUNTS[:3])
        for _ in range(2):
            loss = run.loss()
            handle = run.model.layers[1].get_parameter(name).register_hook(
                hook)
            for grad in torch.autograd.grad(
                    loss, [*run.model.get_submodule(ask).parameters()],
                    create_graph=create_graph):
                run.note(grad)
            handle.remove()

    run = pair(train, grain=grain, judge=False)
    assert run.attached.stats()["replays"] > 0


def go_back_for(run, loss, ask, adds, **how) -> None:
    those = [*run.model.get_submodule(ask).parameters()]
    if adds:
        loss.backward(inputs=those, **how)
        note_gradients(run)
        return
    for grad in torch.autograd.grad(loss, those, **how):
        run.note(grad)


class Hand:
    """Puts hooks on a weight, and takes them away."""

    def __init__(self, run, name):
        self.run, self.weight = run, run.model.get_parameter(name)
        self.handles: list = []

    def put(self, factor: float, register="register_hook") -> None:
        def hook(grad):
            of_sum = register != "register_hook"
            self.run.note((self.weight.grad if of_sum else grad) * factor,
                          f"hook {factor}")
            return None if of_sum else grad * factor

        self.handles.append(getattr(self.weight, register)(hook))

    def take(self, i: int = -1) -> None:
        self.handles.pop(i).remove()


def takes(hand) -> None:
    hand.take(0)


def puts(hand) -> None:
    hand.put(3.0)


def puts_in_front(hand) -> None:
    hand.take(0)
    hand.put(3.0)
    hand.put(0.5)


def at_the_loss(run, loss):
    return loss


def at_a_weight(name):
    return lambda run, loss: run.model.get_parameter(name)


OF_A_WEIGHT = "layers.1.norm1.weight"


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("early, act", [(2, takes), (0, puts),
                                        (2, puts_in_front)])
@pytest.mark.parametrize("begin", [
    at_the_loss, *map(at_a_weight, [
        "embed.weight", "layers.2.norm1.weight", "layers.0.norm1.weight",
        OF_A_WEIGHT])])
@pytest.mark.parametrize("ask", ["", "layers.1", "embed"])
@pytest.mark.parametrize("adds", [False, True])
def test_hooks_that_change_within_a_pass_for_some(pair, grain, act, begin,
                                                  ask, early, adds):
    """Those are called that are there when a gradient comes; one that is
    taken away is gone, and one that comes stays."""
    def train(run):
        run.steps(COUNTS[:3])
        for _ in range(2):
            hand = Hand(run, OF_A_WEIGHT)
            loss = run.loss()
            for factor in (0.5, 0.75)[:early]:
                hand.put(factor)
            acts = [act]

            def once(_):
                if acts:
                    acts.pop()(hand)

            handle = begin(run, loss).register_hook(once)
            go_back_for(run, loss, ask, adds)
            handle.remove()
            run.step(2)
            while hand.handles:
                hand.take()
            run.step(2)

    run = pair(train, grain=grain, judge=False)
    assert run.attached.stats()["replays"] > 0


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("register", ["register_hook",
                                      "register_post_accumulate_grad_hook"])
@pytest.mark.parametrize("name", [OF_A_WEIGHT, "layers.1.mlp.up.weight"])
@pytest.mark.parametrize("ask", ["", "layers.0", "layers.1.norm1", "embed"])
@pytest.mark.parametrize("adds", [False, True])
def test_late_hooks_and_a_pass_for_some(pair, grain, register, name, ask,
                                        adds):
    """Who is not asked for is not called, nor is who waits for a `.grad`
    that is left alone."""
    def train(run):
        run.steps(COUNTS[:3])
        for _ in range(2):
            run.zero()
            hand = Hand(run, name)
            loss = run.loss()
            hand.put(0.5, register)
            go_back_for(run, loss, ask, adds)
            hand.take()
            run.step(2)

    run = pair(train, grain=grain, judge=False)
    assert run.attached.stats()["replays"] > 0


@pytest.mark.parametrize("grain", WHOLE)
def test_a_late_hook_of_what_is_asked_for_twice(pair, grain):
    def train(run):
        run.steps(COUNTS[:3])
        hand = Hand(run, OF_A_WEIGHT)
        loss = run.loss()
        hand.put(0.5)
        for grad in torch.autograd.grad(loss, [hand.weight] * 2):
            run.note(grad)
        hand.take()
        run.step(2)

    pair(train, grain=grain, judge=False)


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("register", ["register_hook",
                                      "register_post_accumulate_grad_hook"])
@pytest.mark.parametrize("first", ["layers.1", "layers.0", "head"])
def test_a_late_hook_and_two_passes_for_some(pair, grain, register, first):
    """What is not asked for has nothing of the second one, either."""
    def train(run):
        run.steps(COUNTS[:3])
        for name in (OF_A_WEIGHT, "layers.0.mlp.up.weight"):
            run.zero()
            hand = Hand(run, name)
            loss = run.loss()
            hand.put(0.5, register)
            those = [*run.model.get_submodule(first).parameters()]
            rest = {*run.model.parameters()}.difference(those)
            loss.backward(inputs=those, retain_graph=True)
            note_gradients(run)
            loss.backward(inputs=[*rest])
            note_gradients(run)
            run.optimizer.step()
            hand.take()
            run.step(2)

    run = pair(train, grain=grain, judge=False)
    assert run.attached.stats()["replays"] > 0


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("ask", [[], [OF_A_WEIGHT],
                                 [OF_A_WEIGHT, "layers.1.norm1.bias"]])
@pytest.mark.parametrize("others", [0, 1])
def test_a_late_hook_sees_all_of_grad(pair, grain, ask, others):
    """What microbatches before have left there too; others have no slot, and
    none goes back."""
    def halve(p):
        p.grad.mul_(0.5)

    def train(run):
        run.steps(COUNTS[:3])
        for _ in range(2):
            run.zero()
            run.loss().backward()
            loss = run.loss()
            handle = run.model.get_parameter(OF_A_WEIGHT) \
                .register_post_accumulate_grad_hook(halve)
            kept = [run.loss() for _ in range(others)]
            loss.backward(inputs=[*map(run.model.get_parameter, ask)] or None)
            note_gradients(run)
            handle.remove()
            del kept
            run.step(2)

    run = pair(train, grain=grain, judge=False, eager=None)
    assert run.attached.stats()["replays"] > 0


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("register", ["register_hook",
                                      "register_post_accumulate_grad_hook"])
@pytest.mark.parametrize("of", [2, 1])
@pytest.mark.parametrize("ask", ["", "layers.0", "layers.1", "embed"])
@pytest.mark.parametrize("adds", [False, True])
def test_a_hook_of_an_output_that_puts_some(pair, grain, register, of, ask,
                                            adds):
    """Of weights, within a pass: one that waits for a `.grad` that the pass
    leaves alone is not called, nor who is not asked for."""
    def train(run):
        run.steps(COUNTS[:3])
        for _ in range(2):
            run.zero()
            hand = Hand(run, OF_A_WEIGHT)
            loss = run.loss()
            run.model.hidden[of].register_hook(
                lambda _: hand.put(0.5, register))
            go_back_for(run, loss, ask, adds)
            while hand.handles:
                hand.take()
            run.step(2)

    run = pair(train, grain=grain, model=Deep, judge=False)
    assert run.attached.stats()["replays"] > 0


# ---- of what is between a forward and its backward -------------------------


class Unrecorded(Block):
    """Its backward is not recorded, as it waits for the device."""

    def forward(self, x):
        return Asks.apply(super().forward(x))


class Asks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * float(grad.isfinite().all())


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("make", [Block, Unrecorded])
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("how", ["", "create_graph", "retain_graph"])
def test_a_weight_that_is_another_by_the_backward(pair, grain, make, steps,
                                                  how):
    """The backward is of the one before, and the other stays."""
    def train(run):
        run.steps([2] * steps)
        up = run.model.layers[1].mlp.up
        bias = up.bias
        for _ in range(2):
            run.zero()
            loss = run.loss()
            up.bias = nn.Parameter(bias.detach().clone())
            other = up.bias
            loss.backward(**{how: True} if how else {})
            if how == "retain_graph":
                loss.backward()
            assert up.bias is other and other.grad is None
            up.bias = bias
            note_gradients(run)
            run.optimizer.step()
        run.steps([2, 2])

    pair(train, grain=grain, make=make, judge=False, parts=NO_PIECES)


# ---- of what is between the layers -----------------------------------------


class Hooked(Model):
    """With a hook of each hidden state's gradient, which changes it."""

    def run_layers(self, x):
        for layer in self.layers:
            x = layer(x)
            if x.requires_grad:
                x.register_hook(self.see)
        return x


@pytest.mark.parametrize("grain, apart", [
    ("layer", None), ("part", None), ("chunk", "hook")])
def test_hooks_of_hidden_states(pair, grain, apart):
    """No gradient comes by there when a chunk is one launch."""
    def train(run):
        def see(grad):
            run.note(grad)
            return grad * 0.5

        run.model.see = see
        run.steps(COUNTS[:3])

    pair(train, grain=grain, model=Hooked, apart=apart,
         replays=None if apart else True)


class Halves(Block):
    """Puts a hook on what it is given, in its forward."""

    def forward(self, x):
        x.register_hook(lambda grad: grad * 0.5)
        return super().forward(x)


class HalvesAView(Block):
    def forward(self, x):
        x = x.view_as(x)
        x.register_hook(lambda grad: grad * 0.5)
        return super().forward(x)


class HalvesAWeight(Block):
    def forward(self, x):
        self.mlp.up.weight.register_hook(lambda grad: grad * 0.5)
        return super().forward(x)


class Skips(Model):
    """What goes into a layer is used elsewhere too."""

    def run_layers(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x


@pytest.mark.parametrize("model", [Model, Skips])
@pytest.mark.parametrize("grain", WHOLE)
def test_hooks_that_a_forward_puts_on_what_it_is_given(pair, grain, model):
    """A graph would call them with a part of what comes."""
    between = grain == "chunk" and model is Skips
    pair(lambda r: r.steps([1, 1, 1, 2, 1, 1]), grain=grain, make=Halves,
         model=model, replays=False, eager=None,
         apart="reads a tensor that neither" if between else None,
         refused="a hook on the gradient of what it is given")


@pytest.mark.parametrize("model", [Model, Skips])
def test_hooks_that_a_forward_puts_on_a_view_of_that(pair, model):
    pair(lambda r: r.steps([1, 1, 1, 2]), make=HalvesAView, model=model)


@pytest.mark.parametrize("grain", WHOLE)
def test_hooks_that_a_forward_puts_on_a_weight(pair, grain):
    """In each call one more."""
    pair(lambda r: r.steps([1, 1, 1, 2]), grain=grain, make=HalvesAWeight,
         refused="a hook on the gradient of a parameter", replays=False,
         eager=None)


class Retains(Model):
    def run_layers(self, x):
        self.hidden = []
        for layer in self.layers:
            x = layer(x)
            x.retain_grad()
            self.hidden.append(x)
        return x


@pytest.mark.parametrize("grain, apart", [
    ("layer", None), ("part", None), ("chunk", "hook|retain")])
def test_gradients_of_hidden_states_are_kept(pair, grain, apart):
    def train(run):
        for count in COUNTS[:3]:
            run.zero()
            kept = []
            for _ in range(count):
                run.loss().backward()
                kept += [x.grad for x in run.model.hidden]
            for grad in kept:
                run.note(grad)
            run.optimizer.step()

    pair(train, grain=grain, model=Retains, apart=apart,
         replays=None if apart else True)


class Heard(Model):
    """Somebody listens between its layers, or after them, in some passes."""

    between = after = None

    def run_layers(self, x):
        states = []
        for layer in self.layers:
            x = layer(x)
            if self.between is not None:
                self.between(x)
            states.append(x)
        if self.after is not None:
            self.after(states)
        return x


class Dropping(Block):
    def __init__(self):
        super().__init__(0.1)


def scaling(run):
    def hook(grad):
        run.note(grad.clone())
        return grad * 0.5

    return hook


def between(run):
    run.model.between = lambda x: x.register_hook(scaling(run))


def after(run):
    run.model.after = lambda states: [x.register_hook(scaling(run))
                                      for x in states]


def twice(run):
    """And one that goes again."""
    def listen(states):
        for x in states:
            x.register_hook(scaling(run)).remove()
            x.register_hook(scaling(run))
            x.register_hook(scaling(run))

    run.model.after = listen


def at_the_first(run):
    run.model.between = lambda x: run.model.after is None and (
        x.register_hook(scaling(run)), setattr(run.model, "after", id))


def together(run):
    """One of torch's that waits for all of them."""
    def see(grads):
        for grad in grads:
            run.note(grad)

    run.model.after = lambda states: \
        torch.autograd.graph.register_multi_grad_hook(states, see)


def in_forward_hooks(run):
    return [layer.register_forward_hook(
        lambda m, args, out: (out.register_hook(scaling(run)), None)[1])
        for layer in run.model.layers]


def in_pre_hooks(run):
    return [layer.register_forward_pre_hook(
        lambda m, args: (args[0].register_hook(scaling(run)), None)[1])
        for layer in run.model.layers]


def of_outputs(run):
    return [layer.register_forward_hook(lambda m, args, out: out * 0.5)
            for layer in run.model.layers]


def of_backwards(run):
    def see(m, of_inputs, of_outputs):
        for grad in (*of_inputs, *of_outputs):
            run.note(grad.clone())

    return [layer.register_full_backward_hook(see)
            for layer in run.model.layers]


def before_backwards(run):
    return [layer.register_full_backward_pre_hook(
        lambda m, of_outputs: (of_outputs[0] * 0.5,))
        for layer in run.model.layers]


def listen_in(run, hook, count=2, listening=2, **how) -> None:
    """A step, of whose microbatches the first ones have hooks."""
    run.zero()
    handles = hook(run) or []
    run.backward(listening, **how)
    run.model.between = run.model.after = None
    for handle in handles:
        handle.remove()
    run.backward(count - listening)
    run.optimizer.step()


BEGINNING = [between, after, twice, at_the_first, together, in_forward_hooks,
             in_pre_hooks, of_outputs, of_backwards, before_backwards]


@pytest.mark.parametrize("make, count, listening, in_flight", [
    (Block, 2, 2, 2), (Dropping, 3, 1, 1), (Normed, 2, 2, 1)])
@pytest.mark.parametrize("hook", BEGINNING)
def test_hooks_between_layers_that_begin_later(pair, make, count, listening,
                                               in_flight, hook):
    """A chunk keeps these gradients to itself, so layers run once more."""
    def train(run):
        run.steps([2, 2])
        for _ in range(2):
            listen_in(run, hook, count, listening, in_flight=in_flight)
            before = run.attached and run.attached.stats()["replays"]
            run.steps([2, 2])
            if run.attached is not None:
                assert run.attached.stats()["replays"] - before == 2 * 2 * 2

    run = pair(train, grain="chunk", make=make, model=Heard, verify="off",
               eager=None)
    assert "a hook" in run.attached.explain()
    assert run.attached.stats()["eager_calls"]["backward"] >= 2


@pytest.mark.parametrize("register", ["register_hook", "register_prehook"])
def test_hooks_of_nodes_between_layers_are_not_called(pair, register):
    """One node stands for all of them, and has no gradient there."""
    def train(run):
        run.steps([2, 2])
        run.model.between = lambda x: getattr(x.grad_fn, register)(
            lambda *given: given[-1][0].clone() is None or None)
        run.steps([2, 1])
        run.model.between = None
        run.steps([2])

    run = pair(train, grain="chunk", model=Heard)
    assert "was not called, as one node" in run.attached.explain()


@pytest.mark.parametrize("hook", [between, after, of_outputs])
def test_hooks_that_begin_later_and_stay_part_a_chunk(pair, hook):
    def train(run):
        run.steps([2, 2])
        hook(run)
        run.steps([2, 2, 2, 2, 2, 2])

    pair(train, grain="chunk", model=Heard, eager=None, verify="always",
         apart="a hook")


def test_gradients_that_are_kept_between_layers_later(pair):
    def train(run):
        run.steps([2, 2])
        for _ in range(2):
            run.zero()
            for _ in range(3):
                kept: list = []
                run.model.after = lambda states: [
                    (x.retain_grad(), kept.append(x)) for x in states]
                loss = run.loss() + sum(x.square().mean() for x in kept)
                loss.backward()
                for x in kept:
                    run.note(x.grad)
            run.model.after = x = None
            run.optimizer.step()
            run.steps([1, 1])

    pair(train, grain="chunk", make=Dropping, model=Heard, eager=None)


def test_both_at_once_and_a_second_backward(pair):
    """What comes from outside is part of it, and .grad adds up."""
    def train(run):
        run.steps([2, 2])
        run.zero()
        kept: list = []
        run.model.after = lambda states: [
            (x.register_hook(scaling(run)), x.retain_grad(), kept.append(x))
            for x in states]
        loss = run.loss() + sum(x.square().mean() for x in kept)
        loss.backward(retain_graph=True)
        loss.backward()
        for x in kept:
            run.note(x.grad)
        run.optimizer.step()

    pair(train, grain="chunk", make=Dropping, model=Heard, eager=None,
         refused="a second backward")


# ---- autograd.grad() of what is between the layers -------------------------


def of_one(loss, states, weight):
    return loss, states[1]


def of_the_first_alone(loss, states, weight):
    return loss, [states[0], states[2], weight, states[1]]


def of_one_to_another(loss, states, weight):
    return states[1].square().mean(), states[0]


def from_outside_too(loss, states, weight):
    return [loss, states[1].square().mean()], states[1]


def of_an_edge(loss, states, weight):
    return loss, [torch.autograd.graph.get_gradient_edge(states[0])]


def of_one_not_reached(loss, states, weight):
    return states[0].square().mean(), [states[1], states[0]]


ASKED = [of_one, of_the_first_alone, of_one_to_another, from_outside_too,
         of_an_edge, of_one_not_reached]


@pytest.mark.parametrize("options", [
    {}, {"verify": "off"}, {"gradients": "autograd"}], ids=str)
@pytest.mark.parametrize("begins, goes_on", [(0, True), (3, True), (3, False)])
@pytest.mark.parametrize("ask", ASKED)
def test_gradients_between_layers_that_are_asked_for(pair, ask, begins,
                                                     goes_on, options):
    """Autograd has none of them in a chunk but what comes from outside.  One
    that is not reached has none, which is said as ever."""
    def train(run):
        for i in range(7):
            run.zero()
            loss = run.loss()
            if begins <= i != 5:
                result, inputs = ask(loss, run.model.hidden,
                                     run.model.layers[0].mlp.up.weight)
                if ask is of_one_not_reached:
                    with pytest.raises(RuntimeError, match="not have been use"):
                        torch.autograd.grad(result, inputs, retain_graph=True)
                for gradient in torch.autograd.grad(
                        result, inputs, retain_graph=goes_on,
                        allow_unused=True):
                    assert gradient is not None or ask is of_one_not_reached
                    if gradient is not None:
                        run.note(gradient)
            if goes_on or not begins <= i != 5:
                loss.backward()
            run.optimizer.step()

    pair(train, grain="chunk", make=Dropping, model=Deep, judge=False,
         **options)


class Frozen(Deep):
    """Weights are all that the gradients of its graph are of."""

    def forward(self, tokens):
        for name, p in self.named_parameters():
            p.requires_grad_("layers" in name)
        return super().forward(tokens)


@pytest.mark.parametrize("ask", ASKED[:4])
def test_such_gradients_where_the_input_has_none(pair, ask):
    def train(run):
        run.steps([1, 1, 1])
        for _ in range(3):
            run.zero()
            loss = run.loss()
            result, inputs = ask(loss, run.model.hidden,
                                 run.model.layers[0].mlp.up.weight)
            for gradient in torch.autograd.grad(result, inputs,
                                                retain_graph=True):
                run.note(gradient)
            loss.backward()
            run.optimizer.step()

    pair(train, grain="chunk", model=Frozen, judge=False)


class Flown(torch.autograd.Function):
    """Somebody else's, with an attribute that nodes of graphs have."""

    @staticmethod
    def forward(ctx, x, flight):
        ctx.flight = flight
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2, None


@pytest.mark.parametrize("flight", [(), (1,), (1, 2)], ids=str)
def test_a_function_of_others_is_none_of_a_graph(runs, flight):
    runs(grain="chunk").steps([1, 1])
    x = torch.ones(3, requires_grad=True)
    y = Flown.apply(x, flight)
    gradient, = torch.autograd.grad((y * y).sum(), y)
    assert gradient.tolist() == [4, 4, 4]


class Shows(Block):
    """Besides, what its output is made from, and what nobody needs."""

    def forward(self, x):
        mixed = self.attn(self.norm1(x))
        x = x + mixed
        return x + self.mlp(self.norm2(x)), mixed, x.square().mean(-1)


class Watched(Model):
    listen = None

    def run_layers(self, x):
        for layer in self.layers:
            x, *more = layer(x)
            if self.listen is not None:
                self.listen([x, *more])
        return x


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("since", [0, 2])
@pytest.mark.parametrize("stays", [False, True])
def test_hooks_of_several_outputs(pair, grain, since, stays):
    """Those that nobody needs have no gradient, eagerly as with graphs."""
    def train(run):
        run.steps([2, 2][:since])
        for _ in range(6 if stays else 1):
            run.model.listen = lambda outputs: [
                o.register_hook(scaling(run)) for o in outputs]
            run.step(2)
        run.model.listen = None
        run.steps([2, 2, 2, 2])

    pair(train, grain=grain, make=Shows, model=Watched, judge=False)


def test_gradients_of_several_outputs_are_kept(pair):
    def train(run):
        for i in range(6):
            kept: list = []
            run.zero()
            run.model.listen = lambda outputs: [
                (o.retain_grad(), kept.append(o)) for o in outputs] \
                if i % 3 == 2 else None
            run.loss().backward()
            for o in kept:
                if o.grad is not None:
                    run.note(o.grad)
            run.model.listen = o = None
            run.optimizer.step()

    run = pair(train, make=Shows, model=Watched, eager=["backward"])
    assert "others are made from" in run.attached.explain()


# ---- of modules ------------------------------------------------------------


def counted(run, kind):
    """A hook that counts its calls, as a note at the end."""
    run.calls = 0

    def hook(*_):
        run.calls += 1

    return lambda module: getattr(module, f"register_{kind}")(hook)


KINDS = ["forward_pre_hook", "forward_hook", "full_backward_hook",
         "full_backward_pre_hook"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("later", [False, True])
def test_hooks_of_a_layer_are_called(pair, kind, later):
    def train(run):
        register = counted(run, kind)
        if later:
            run.steps(COUNTS[:3])
        for layer in run.model.layers:
            register(layer)
        run.steps()
        run.note(torch.tensor(run.calls))

    pair(train)


@pytest.mark.parametrize("kind", KINDS[:2])
def test_hooks_of_the_layers_of_a_chunk_are_called(pair, kind):
    def train(run):
        register = counted(run, kind)
        for layer in run.model.layers:
            register(layer)
        run.steps()
        run.note(torch.tensor(run.calls))

    pair(train, grain="chunk")


@pytest.mark.parametrize("grain", WHOLE)
def test_hooks_that_change_what_a_layer_returns(pair, grain):
    def train(run):
        for layer in run.model.layers:
            layer.register_forward_hook(lambda m, args, out: out * 0.5)
        run.steps()

    pair(train, grain=grain,
         apart=None if grain == "layer" else "neither the module before")


def hook_inside(run, kind):
    register = counted(run, kind)
    for layer in run.model.layers:
        register(layer.mlp.up)


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("kind", KINDS)
def test_hooks_of_a_submodule_make_its_layer_eager(pair, grain, kind):
    def train(run):
        run.steps()
        run.note(torch.tensor(run.calls))

    pair(train, grain=grain, before=lambda r: hook_inside(r, kind),
         replays=False,
         refused="mlp.up has hooks, which a replay would not call")


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("kind", KINDS[:2])
def test_hooks_of_a_submodule_that_come_later(pair, grain, kind):
    """The next step finds them."""
    def train(run):
        run.steps(COUNTS[:3])
        hook_inside(run, kind)
        run.steps()
        run.note(torch.tensor(run.calls))

    pair(train, grain=grain, refused="has hooks")


@GRAIN
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("later", [False, True])
def test_hooks_of_all_modules_are_called(pair, grain, kind, later):
    register = getattr(torch.nn.modules.module, f"register_module_{kind}")

    def begin(run):
        run.calls = 0

        def hook(*_):
            run.calls += 1

        run.handle = register(hook)

    def train(run):
        try:
            if later:
                run.steps(COUNTS[:3])
                begin(run)
            run.steps(COUNTS[:3])
        finally:
            run.handle.remove()
        run.note(torch.tensor(run.calls))

    pair(train, grain=grain, before=None if later else begin, judge=False)


class Wrapped(Model):
    """Layers with a forward of their own."""

    def __init__(self, make) -> None:
        super().__init__(make)
        for layer in self.layers:
            forward = layer.forward
            layer.forward = lambda x, forward=forward: forward(x) * 0.5


def test_a_forward_of_the_users_own_is_kept(pair):
    run = pair(lambda r: r.steps(), model=Wrapped)
    run.detach()
    assert all("forward" in vars(layer) for layer in run.model.layers)


# ---- engines with buffers of their own for gradients -----------------------


class Fuses(torch.autograd.Function):
    """Adds a gradient to `main_grad` by itself, and says so."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x)
        ctx.weight = weight
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        (x,), weight = ctx.saved_tensors, ctx.weight
        weight.main_grad.add_(grad.flatten(0, 1).t() @ x.flatten(0, 1))
        weight.added = True
        return grad @ weight, torch.full_like(weight, 7.0)


class Fused(Block):
    def __init__(self) -> None:
        super().__init__()
        self.more = nn.Parameter(0.1 * torch.eye(WIDTH))

    def forward(self, x):
        return super().forward(x + Fuses.apply(x, self.more))


def flags_down(run):
    run.zero()
    for p in run.model.parameters():
        p.main_grad.zero_()
        p.added = False


def add_what_is_left(run):
    """Where nobody has put up its flag."""
    for p in run.model.parameters():
        if not p.added:
            p.main_grad.add_(p.grad)
        p.grad = p.main_grad.clone()
    run.optimizer.step()


def with_buffers(run):
    for p in run.model.parameters():
        p.main_grad, p.added = torch.zeros_like(p), False


@GRAIN
@pytest.mark.parametrize("in_flight", [1, 2])
def test_gradients_that_a_backward_adds_to_a_buffer_by_itself(pair, grain,
                                                              in_flight):
    """What it returns for them is not to be added once more."""
    def take(parameter):
        if not parameter.added:
            parameter.main_grad.add_(parameter.grad)
        parameter.grad = None

    def before(run):
        with_buffers(run)
        for p in run.model.parameters():
            p.register_post_accumulate_grad_hook(take)

    def train(run):
        for count in COUNTS:
            flags_down(run)
            run.backward(count, in_flight)
            for p in run.model.parameters():
                p.grad = p.main_grad.clone()
            run.optimizer.step()

    pair(train, grain=grain, make=Fused, before=before)


class GivesNone(torch.autograd.Function):
    """Adds a gradient to `main_grad` by itself, and has none for autograd."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        weight.main_grad.add_(grad.flatten(0, 1).t() @ x.flatten(0, 1))
        return grad @ weight, None


class Alone(Fused):
    def forward(self, x):
        return Block.forward(self, x + GivesNone.apply(x, self.more))


class SetsAgain(GivesNone):
    """Puts the buffer to the weight once more, as Transformer Engine does
    where weights may have been copied without it."""

    @staticmethod
    def backward(ctx, grad):
        weight = ctx.saved_tensors[1]
        weight.main_grad = weight.main_grad
        return GivesNone.backward(ctx, grad)


class Again(Fused):
    def forward(self, x):
        return Block.forward(self, x + SetsAgain.apply(x, self.more))


def into_buffers(buffers):
    """Trains with that step's buffer for each layer's `main_grad`."""
    def train(run):
        weights = [layer.more for layer in run.model.layers]
        for weight in weights:
            weight.main_grad = torch.zeros_like(weight)
        for i, count in enumerate(COUNTS):
            for weight, main_grad in zip(weights, buffers(i, weights)):
                weight.main_grad = main_grad
                main_grad.zero_()
            run.zero()
            run.backward(count)
            for weight in weights:
                assert weight.grad is None
                weight.grad = weight.main_grad.clone()
            run.optimizer.step()

    return train


@GRAIN
@pytest.mark.parametrize("make", [Alone, Again])
def test_a_backward_that_has_no_gradient_for_autograd(pair, grain, make):
    def the_same(_, weights):
        return [w.main_grad for w in weights]

    pair(into_buffers(the_same), grain=grain, make=make)


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("what", ["in turns", "made anew",
                                  "transposed", "a view"])
def test_gradients_in_another_buffer(pair, grain, what):
    """What was recorded adds to the old one, which may be gone."""
    held: dict = {}

    def buffers(i, weights):
        if what == "made anew" or (what == "in turns" and i < 2):
            held[i % 2] = [torch.zeros_like(w) for w in weights]
        if what == "a view":
            return [w.main_grad.view(WIDTH, WIDTH) for w in weights]
        if what == "transposed":
            return [w.main_grad.t() if i > 3 else w.main_grad
                    for w in weights]
        return held[i % 2]

    pair(into_buffers(buffers), grain=grain, make=Alone,
         replays=True if what != "made anew" else None,
         eager=["replaced"] if what != "a view" else ())


class Flagged(Fused):
    """Random, so that it cannot run once more for its backward."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return self.drop(super().forward(x))


@GRAIN
@pytest.mark.parametrize("make", [Fused, Flagged])
def test_flags_that_are_up_until_the_forward_has_run(pair, grain, make):
    def train(run):
        for _ in range(5):
            loss = run.loss()
            flags_down(run)
            loss.backward()
            add_what_is_left(run)

    pair(train, grain=grain, make=make, before=with_buffers)


@GRAIN
def test_flags_that_are_up_already_when_they_are_recorded(pair, grain):
    def train(run):
        for _ in range(4):
            flags_down(run)
            run.backward(2)
            add_what_is_left(run)

    pair(train, grain=grain, make=Fused, before=with_buffers, warmup_steps=0)


@GRAIN
@pytest.mark.parametrize("make", [Fused, Flagged])
def test_buffers_for_gradients_that_come_after_the_forward(pair, grain, make):
    """And go before the next: nothing but that backward may know them."""
    def train(run):
        for _ in range(4):
            run.zero()
            loss = run.loss()
            with_buffers(run)
            loss.backward()
            add_what_is_left(run)
            for p in run.model.parameters():
                del p.main_grad

    pair(train, grain=grain, make=make, replays=None, eager=None,
         refused="the main_grad of a parameter was set to another buffer")


def test_buffers_for_gradients_are_no_tensors_of_the_modules(pair):
    """Which would keep what the forward has left for the backward."""
    def train(run):
        for _ in range(3):
            flags_down(run)
            run.backward(1)
            add_what_is_left(run)

    run = pair(train, make=Fused, before=with_buffers)
    assert [i.attributes for segment in run.attached.segments
            for i in segment.instances.values()] == [[]] * LAYERS


class Maybe(GivesNone):
    """Adds to `main_grad` where there is one."""

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        if hasattr(weight, "main_grad"):
            return GivesNone.backward(ctx, grad)
        return grad @ weight, grad.flatten(0, 1).t() @ x.flatten(0, 1)


class Either(Fused):
    def forward(self, x):
        return Block.forward(self, x + Maybe.apply(x, self.more))


@pytest.mark.parametrize("grain", WHOLE)
def test_buffers_for_gradients_that_come_later(pair, grain):
    def train(run):
        weights = [layer.more for layer in run.model.layers]
        for i in range(6):
            run.zero()
            if i == 3:
                for weight in weights:
                    weight.main_grad = torch.zeros_like(weight)
            run.backward(2)
            for weight in weights:
                if i >= 3:
                    weight.grad = weight.main_grad.clone()
                    weight.main_grad.zero_()
            run.optimizer.step()

    pair(train, grain=grain, make=Either, eager=["replaced"])


@pytest.mark.parametrize("grain", WHOLE)
def test_a_buffer_for_gradients_that_moves_after_a_forward(pair, grain):
    """What the graph reads is gone."""
    def train(run):
        for i in range(5):
            flags_down(run)
            loss = run.loss()
            if i == 3:
                with_buffers(run)
            loss.backward()
            add_what_is_left(run)

    pair(train, grain=grain, make=Fused, before=with_buffers, judge=False)


def test_a_forward_that_somebody_has_kept(runs):
    run = runs(grain="layer").steps([2, 2])
    layer = run.model.layers[0]
    kept = layer.forward
    run.detach()
    x = torch.ones(BATCH, LENGTH, WIDTH).cuda()
    assert kept != layer.forward and torch.equal(kept(x), layer(x))
    layer.forward = kept
    run.attach()
    run.steps([2, 2])
    assert run.attached.stats()["replays"] > 0


@GRAIN
def test_the_names_of_a_forwards_arguments_stay(runs, grain):
    def said(layer):
        forward = layer.forward
        return inspect.signature(forward), forward.__name__, forward.__doc__

    run = runs(grain=grain)
    attached = [said(layer) for layer in run.model.layers]
    run.detach()
    assert attached == [said(layer) for layer in run.model.layers]


class One(nn.Module):
    """A layer of one weight."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH) / 8)

    def forward(self, x):
        return torch.tanh(x @ self.weight)


@pytest.mark.parametrize("steps", [2, 5])
def test_an_engine_that_wraps_the_only_weight_later(pair, steps):
    def train(run):
        run.steps([1] * steps)
        of_nodes(run)
        run.steps([1] * 4)

    run = pair(train, make=One, judge=False)
    assert len(run.attached.stats()["refused"]) == LAYERS


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("trains", [True, False])
def test_references_are_counted_in_every_mode(mode, trains):
    """A step may begin with an evaluation, or with a frozen parameter."""
    from graphhooks.torch.base import private

    leaf = torch.nn.Parameter(torch.zeros(1), requires_grad=trains)
    with mode():
        assert private.references(leaf) == 0
    node = leaf.view_as(leaf).grad_fn.next_functions[0][0] if trains else None
    with mode():
        assert private.references(leaf) == (node is not None)


# ---- hooks that keep outputs for who asks for them --------------------------


class Kept:
    """As transformers has it: outputs by what was asked for, or None."""

    outputs = None

    def get(self):
        return self.outputs

    def set(self, outputs):
        before, Kept.outputs = self.outputs, outputs
        return before

    def reset(self, token) -> None:
        Kept.outputs = token


@pytest.fixture
def capturing(monkeypatch):
    name = "transformers.utils.output_capturing"
    module = types.ModuleType(name)
    module._active_collector = Kept()

    def install(inner, key, index=0):
        def hook(module, args, output):
            outputs = keeper.get()
            if outputs is None or key not in outputs:
                return
            if not isinstance(output, tuple):
                outputs[key].append(output)
            elif output[index] is not None:
                outputs[key].append(output[index])

        hook.__module__ = name
        inner.register_forward_hook(hook)

    keeper = module._active_collector
    module.install = install
    monkeypatch.setitem(sys.modules, name, module)
    yield module
    Kept.outputs = None


@pytest.mark.parametrize("grain", ["layer", "chunk"])
def test_hooks_that_nobody_asks_leave_the_graphs(pair, capturing, grain):
    """They came with one call, and stay; what is asked for is kept."""
    def train(run):
        for i, count in enumerate(COUNTS):
            if i == 2:
                for layer in run.model.layers:
                    capturing.install(layer.attn, "attentions")
            if i in (2, 3):
                Kept.outputs = {"attentions": [], "others": []}
            run.step(count)
            kept, Kept.outputs = Kept.outputs, None
            if kept is not None:
                assert len(kept["attentions"]) == count * LAYERS
                for each in kept["attentions"]:
                    run.note(each)

    run = pair(train, grain=grain, eager=["input"])
    assert "collected outputs is 'attentions' in it and none in those" \
        in run.attached.explain()
    before = run.attached.stats()
    run.step(2)
    after = run.attached.stats()
    assert after["eager_calls"] == before["eager_calls"]
    assert after["refused"] == {}


@pytest.mark.parametrize("grain", ["layer", "chunk"])
def test_hooks_that_are_asked_for_something_else(pair, capturing, grain):
    """Also while graphs are recorded, which depend on nothing of theirs."""
    def before(run):
        for layer in run.model.layers:
            capturing.install(layer.attn, "attentions")

    def train(run):
        for i, count in enumerate(COUNTS):
            Kept.outputs = {"hidden_states": [i]} if i in (0, 3) else None
            run.step(count)

    pair(train, grain=grain, before=before)


class Routed(Block):
    """Something of it is collected in each call: the second of two results,
    or none."""

    gives = True

    class Gate(torch.nn.Linear):
        gives = True

        def forward(self, x):
            y = super().forward(x)
            return y.softmax(-1), y if self.gives else None

    def __init__(self) -> None:
        super().__init__()
        self.gate = Routed.Gate(WIDTH, 4)

    def forward(self, x):
        return super().forward(x) * self.gate(x)[0].amax(-1, keepdim=True)


def collect_in(run, count, **more):
    """A step whose loss has what is collected."""
    run.zero()
    for _ in range(count):
        Kept.outputs = {"router_logits": [], **more}
        try:
            loss = run.loss()
            kept = Kept.outputs["router_logits"]
        finally:
            Kept.outputs = None
        assert len(kept) == sum(layer.gate.gives
                                for layer in run.model.layers)
        run.note(torch.stack(kept))
        (loss + sum(each.square().mean() for each in kept)).backward()
    run.optimizer.step()


def install_in(capturing):
    def before(run):
        for layer in run.model.layers:
            capturing.install(layer.gate, "router_logits", 1)

    return before


@pytest.mark.parametrize("grain", ["layer", "chunk"])
def test_what_each_step_collects_comes_from_graphs(pair, capturing, grain):
    """Routers' logits, of which the loss has a part."""
    run = pair(lambda r: [collect_in(r, n) for n in COUNTS], grain=grain,
               make=Routed, before=install_in(capturing))
    assert run.attached.stats()["replays"] == \
        2 * SEGMENTS[grain] * sum(COUNTS[1:])


@pytest.mark.parametrize("grain", ["layer", "chunk"])
def test_what_some_steps_collect_is_another_shape(pair, capturing, grain):
    def train(run):
        for i in range(8):
            (run.step if i % 2 else lambda n: collect_in(run, n))(2)

    run = pair(train, grain=grain, make=Routed, before=install_in(capturing))
    assert len(run.attached.stats()["banks"]) == 2


@pytest.mark.parametrize("grain", ["layer", "chunk"])
def test_a_layer_may_have_nothing_to_collect(pair, capturing, grain):
    """By what its hook is given, or as it has no such submodule."""
    def before(run):
        run.model.layers[0].gate.gives = False
        install_in(capturing)(run)

    run = pair(lambda r: [collect_in(r, n) for n in COUNTS], grain=grain,
               make=Routed, before=before)
    assert run.attached.stats()["refused"] == {}


def test_a_part_beside_one_that_is_asked(pair, capturing):
    """The step that ends in the part's call looks for hooks."""
    class Within(Block):
        def __init__(self) -> None:
            super().__init__()
            self.mlp.gate = self.gate = Routed.Gate(WIDTH, WIDTH)
            self.mlp.forward = functools.partial(Within.mix, self.mlp)

        @staticmethod
        def mix(mlp, x):
            return type(mlp).forward(mlp, x) * mlp.gate(x)[0]

    run = pair(lambda r: [collect_in(r, n) for n in COUNTS], grain="part",
               make=Within, before=install_in(capturing))
    assert run.attached.stats()["replays"] == \
        2 * SEGMENTS["part"] * sum(COUNTS[1:])


def test_evaluation_collects_too(pair, capturing):
    def train(run):
        for n in COUNTS:
            collect_in(run, n)
            run.model.eval()
            with torch.no_grad():
                Kept.outputs = {"router_logits": []}
                run.loss()
                kept, Kept.outputs = Kept.outputs, None
            run.model.train()
            run.note(torch.stack(kept["router_logits"]))

    run = pair(train, grain="layer", make=Routed, eval=True,
               before=install_in(capturing), eager=None)
    assert run.attached.stats()["eval"]["replays"] > 0


def test_the_states_between_layers_are_the_caller_s(pair, capturing):
    """Hooks of a layer itself are called around its graph."""
    def before(run):
        for layer in run.model.layers:
            capturing.install(layer, "hidden_states")

    def train(run):
        for n in COUNTS:
            Kept.outputs = {"hidden_states": []}
            run.step(n)
            kept, Kept.outputs = Kept.outputs["hidden_states"], None
            run.note(torch.stack(kept))

    pair(train, grain="layer", before=before, eager=None)
