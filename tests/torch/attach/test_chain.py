"""How the modules of a chunk are found to hang together; needs no GPU.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from types import SimpleNamespace

import models  # skips all where there is no torch
import pytest
from test_tree import Tensor

from graphhooks import Error
from graphhooks.torch.base import tree
from graphhooks.torch.shapes.banks import Signature
from graphhooks.torch.step.chain import Chain
from graphhooks.torch.guard.shared_objects import Things


@pytest.fixture(autouse=True)
def stubs(monkeypatch):
    monkeypatch.setattr(tree, "_TENSORS", (Tensor,))


class Stack:
    """A segment of three modules; each returns a new tensor, or what `makes`
    has for it."""

    def __init__(self, count=3, makes=None):
        self.calls = []
        self.makes = makes or {}
        module = models.nn.Module()
        places = SimpleNamespace(are_kept=lambda: True, versions=list)
        self.sites = [SimpleNamespace(position=i, name=f"layer {i}",
                                      module=module, places=places,
                                      run=self._forward(i),
                                      forward=self._forward(i),
                                      play=self._forward(i))
                      for i in range(count)]
        self.draws = None
        self.parameters = SimpleNamespace(sorted=True)
        self.drawn = 0  # random numbers
        self.owner = SimpleNamespace(
            things=Things(),
            ranks=SimpleNamespace(size=2),  # nothing is left to one of them
            captures=SimpleNamespace(numbers=lambda: [self.drawn]))
        self.chain = Chain(self)
        self.signature = Signature(None, [], {}, None)
        self.signature.serial = 1  # nobody watches what goes in

    def _forward(self, i):
        def forward(*args, **kwargs):
            self.calls.append(i)
            make = self.makes.get(i)
            return make(*args, **kwargs) if make else Tensor(2)

        return forward

    def first(self, *args, **kwargs):
        tensors = []
        tree.gather((args, kwargs), tensors, [])
        self.chain.stop()
        return self.chain.watch(self.signature, self.sites[0], tensors, args,
                                kwargs)

    def call(self, i, *args, **kwargs):
        return self.chain.follow(self.sites[i], args, kwargs)

    def learn(self) -> "Stack":
        x = self.first(Tensor(2))
        for site in self.sites[1:]:
            x = self.call(site.position, x)
        assert self.chain.is_known(self.signature)
        return self

    def recorded(self):
        """What a recording notes, as recording.py has it."""
        given = [Tensor(2)]
        instance = SimpleNamespace(shape=[], signature=self.signature,
                                   origin=None, apart=None)
        outputs = []

        def note(result):
            before = []
            tree.gather(result, before, [])

            def place(t):
                if t is given[0]:
                    return tree.Place(1, 0)
                outputs.append(t)
                return tree.Place(0, len(outputs) - 1)

            instance.shape.append(tree.form(result, place))
            return before

        self.chain.run(self.signature, (given[0],), {}, given, note)
        return instance, outputs


def test_a_chain_is_learned_from_one_pass():
    stack = Stack()
    assert not stack.chain.is_known(stack.signature)
    stack.learn()
    assert stack.calls == [0, 1, 2] and stack.signature.broken is None


def test_a_recording_runs_all_of_it():
    stack = Stack().learn()
    stack.calls.clear()
    _, outputs = stack.recorded()
    assert stack.calls == [0, 1, 2] and len(outputs) == 3


def test_a_replay_runs_nothing():
    stack = Stack().learn()
    instance, outputs = stack.recorded()
    stack.calls.clear()
    x = stack.chain.play(instance, outputs, [Tensor(2)])
    for i in (1, 2):
        assert x is outputs[i - 1]
        x = stack.call(i, x)
    assert x is outputs[2] and stack.calls == []


def test_after_a_replay_modules_run_by_themselves():
    stack = Stack().learn()
    instance, outputs = stack.recorded()
    x = stack.chain.play(instance, outputs, [Tensor(2)])
    for i in (1, 2):
        x = stack.call(i, x)
    stack.calls.clear()
    stack.call(1, Tensor(2))
    assert stack.calls == [1]


def test_what_the_first_was_given_comes_again():
    mask = Tensor(3)
    stack = Stack()
    x = stack.first(Tensor(2), mask=mask)
    x = stack.call(1, x, mask=mask)
    stack.call(2, x, mask=mask)
    assert stack.chain.is_known(stack.signature)


@pytest.mark.parametrize("call, why", [
    (lambda s, x: s.call(2, x), "layer 2 is not called after the one before"),
    (lambda s, x: s.call(1, Tensor(2)), "layer 1: it reads a tensor that "
                                        "neither"),
    (lambda s, x: s.call(1, x, object()), "layer 1: a builtins.object")])
def test_what_is_no_chain_is_said(call, why):
    stack = Stack()
    call(stack, stack.first(Tensor(2)))
    assert stack.signature.broken.startswith(why)
    assert not stack.chain.is_known(stack.signature)


def test_a_change_in_place_on_the_way_is_said():
    stack = Stack()
    x = stack.first(Tensor(2))
    x._version += 1
    stack.call(1, x)
    assert "changed in place on its way" in stack.signature.broken


def test_a_pass_that_does_not_reach_the_end_teaches_nothing():
    stack = Stack()
    for _ in range(2):
        stack.call(1, stack.first(Tensor(2)))
        assert not stack.chain.is_known(stack.signature)


def test_a_stack_that_never_reaches_the_end_is_no_chain():
    stack = Stack()
    for _ in range(9):
        stack.call(1, stack.first(Tensor(2)))
    assert stack.signature.broken == "layer 2 is not called"


def listened(x):
    x._backward_hooks = {1: print}


def retained(x):
    x.retains_grad = True


@pytest.mark.parametrize("wish", [listened, retained])
def test_a_gradient_that_somebody_wants_on_the_way_is_said(wish):
    stack = Stack()
    x = stack.first(Tensor(2))
    wish(x)
    stack.call(1, x)
    assert "layer 1 has a hook on its gradient" in stack.signature.broken


def test_random_numbers_are_noticed():
    stack = Stack().learn()
    assert stack.draws is False

    def draw(*_):
        stack.drawn += 4
        return Tensor(2)

    stack = Stack(makes={1: draw})
    stack.learn()
    assert stack.draws is True


def changed(x):
    x._version += 1
    return x


def playing():
    stack = Stack().learn()
    instance, outputs = stack.recorded()
    stack.calls.clear()
    return stack, stack.chain.play(instance, outputs, [Tensor(2)])


@pytest.mark.parametrize("call, why", [
    (lambda s, x: s.call(1, Tensor(2)), "is called otherwise"),
    (lambda s, x: s.call(1, x, 1), "is called otherwise"),
    (lambda s, x: s.call(1, x, flag=True), "is called otherwise"),
    (lambda s, x: s.call(1), "is called otherwise"),
    (lambda s, x: s.call(2, x), "is not called before"),
    (lambda s, x: s.call(1, s.call(1, x)), "is called once more"),
    (lambda s, x: s.call(1, changed(x)), "was changed in place on its way"),
], ids=["another tensor", "a constant more", "a keyword more", "nothing",
        "a module left out", "a module twice", "a change in place"])
def test_another_call_than_recorded_is_refused(call, why):
    stack, x = playing()
    with pytest.raises(Error, match=f"{why}.*granularity layer allows"):
        call(stack, x)
    # And the next pass is not disturbed.
    stack.calls.clear()
    stack.call(1, Tensor(2))
    assert stack.calls == [1]


@pytest.mark.parametrize("wish", [listened, retained])
def test_a_gradient_that_somebody_comes_to_want_is_of_the_way_back(wish):
    stack, x = playing()
    wish(x)
    stack.call(1, x)
    assert stack.calls == []


# ---- calls of other kinds than with the one tensor that came out -----------

OTHERS = {
    "a constant": lambda s, x: s.call(1, x, 2),
    "a keyword": lambda s, x: s.call(1, x=x),
    "a keyword more": lambda s, x: s.call(1, x, y=s.given),
    "what the first was given": lambda s, x: s.call(1, s.given),
    "two tensors": lambda s, x: s.call(1, x, s.given),
}


def going(how):
    """A replay of a stack whose second module is called like that."""
    stack = Stack()
    stack.given = Tensor(2)
    x = OTHERS[how](stack, stack.first(stack.given))
    stack.call(2, x)
    assert stack.chain.is_known(stack.signature)
    outputs = [Tensor(2) for _ in range(3)]
    shapes = [tree.Place(0, i) for i in range(3)]
    stack.given = Tensor(2)
    instance = SimpleNamespace(shape=shapes, signature=stack.signature,
                               origin=None, apart=None)
    return stack, stack.chain.play(instance, outputs, [stack.given])


@pytest.mark.parametrize("how", OTHERS)
@pytest.mark.parametrize("then", [*OTHERS, None])
def test_a_replay_is_called_as_the_pass_was(how, then):
    stack, x = going(how)
    call = OTHERS.get(then, lambda s, x: s.call(1, x))
    if then == how:
        stack.call(2, call(stack, x))
        return
    with pytest.raises(Error, match="is called otherwise"):
        call(stack, x)


@pytest.mark.parametrize("i", [0, 1])
def test_one_of_two_results_goes_on(i):
    stack = Stack(makes={0: lambda *_: (Tensor(2), Tensor(2))})
    stack.call(2, stack.call(1, stack.first(Tensor(2))[i]))
    instance, outputs = SimpleNamespace(
        origin=None, apart=None, signature=stack.signature, shape=[
        tree.form((Tensor(2), Tensor(2)),
                  lambda _, order=iter((0, 1)): tree.Place(0, next(order))),
        tree.Place(0, 2), tree.Place(0, 3)]), [Tensor(2) for _ in range(4)]
    for given in (i, 1 - i):
        pair = stack.chain.play(instance, outputs, [Tensor(2)])
        if given == i:
            stack.call(2, stack.call(1, pair[given]))
        else:
            with pytest.raises(Error, match="is called otherwise"):
                stack.call(1, pair[given])
        stack.chain.stop()
    pair = stack.chain.play(instance, outputs, [Tensor(2)])
    with pytest.raises(Error, match="is called otherwise"):
        stack.call(1, pair)
