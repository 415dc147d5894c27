"""Values are taken apart and put together again; needs no GPU.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections
import dataclasses
import enum

import pytest
from models import torch

from graphhooks.torch.base import tree

Pair = collections.namedtuple("Pair", "first second")


class Mood(enum.Enum):
    CALM = 1
    WILD = 2


@dataclasses.dataclass
class Open:
    x: object
    n: int = 0


@dataclasses.dataclass(frozen=True)
class Shut:
    x: object
    text: str = ""

    def __post_init__(self):
        assert self.text != "made anew"


class Tensor:
    """As much of a tensor on a GPU as is looked at."""

    is_cuda = True
    dtype = torch.float32

    def __init__(self, *shape, requires_grad=False, dtype=torch.float32):
        self.shape = torch.Size(shape)
        self.requires_grad = requires_grad
        self.dtype = dtype
        self._version = 0
        self._backward_hooks = None
        self.retains_grad = False
        self.grad_fn = None

    def stride(self):
        return tuple(range(len(self.shape), 0, -1))

    def is_inference(self):
        return False

    def is_neg(self):
        return False


@pytest.fixture(autouse=True)
def stubs(monkeypatch):
    monkeypatch.setattr(tree, "_TENSORS", (Tensor,))


A, B = Tensor(2, 3), Tensor(4)
VALUES = {
    "a tensor": A,
    "a tuple": (A, B),
    "an empty tuple": (),
    "a list": [A, None, B],
    "a dict": {"a": A, "b": 3},
    "a named tuple": Pair(A, B),
    "a dataclass": Open(A, 2),
    "a frozen dataclass": Shut(A, "text"),
    "constants": (1, 2.5, "text", b"bytes", None, True, Mood.CALM, ...,
                  torch.float16, torch.device("cpu"), torch.Size([1])),
    "nested": {"deep": [Open((A, Pair(B, None))), Shut([A])], "n": 1},
    "one tensor twice": [A, A],
}


def taken(value):
    tensors, key = [], []
    tree.gather(value, tensors, key)
    return tensors, key


def placed(value):
    tensors = []

    def place(tensor):
        tensors.append(tensor)
        return tree.Place(0, len(tensors) - 1)

    return tree.form(value, place), tensors


@pytest.mark.parametrize("name", VALUES)
def test_a_form_makes_its_value_again(name):
    value = VALUES[name]
    shape, tensors = placed(value)
    again = tree.fill(shape, (tensors,))
    assert type(again) is type(value) and again == value
    assert tree.matches(shape, value, (tensors,))


@pytest.mark.parametrize("name", VALUES)
def test_a_form_takes_tensors_in_the_order_of_gather(name):
    _, tensors = placed(VALUES[name])
    gathered, _ = taken(VALUES[name])
    assert list(dict.fromkeys(map(id, tensors))) == [id(t) for t in gathered]


@pytest.mark.parametrize("name", VALUES)
def test_a_form_is_filled_with_other_tensors(name):
    shape, tensors = placed(VALUES[name])
    others = [Tensor(*t.shape) for t in tensors]
    again = tree.fill(shape, (others,))
    assert [id(t) for t in taken(again)[0]] == [id(t) for t in others]


def test_a_form_points_into_several_sources():
    shape = tree.form((A, B), lambda t: tree.Place(0 if t is A else 1, 0))
    assert tree.fill(shape, ([B], [A])) == (B, A)


def test_a_frozen_dataclass_is_filled_without_its_constructor():
    value = Shut(A, "text")
    object.__setattr__(value, "text", "made anew")
    shape, tensors = placed(value)
    assert tree.fill(shape, (tensors,)).text == "made anew"


# Values that must not share a graph with the one before them.
OTHERS = [
    (A, Tensor(3, 2)),
    (A, Tensor(2, 3, requires_grad=True)),
    (A, Tensor(2, 3, dtype=torch.float16)),
    (A, None),
    ((A, B), [A, B]),
    ((A, B), (A,)),
    ((A, (B,)), ((A, B),)),
    (((A, B),), ((A,), B)),
    ((A, B), Pair(A, B)),
    ({"a": A}, {"b": A}),
    ({"a": A, "b": B}, {"b": A, "a": B}),
    (Open(A), Shut(A)),
    (Open(A, 1), Open(A, 2)),
    (1, 2), (1, True), (1, 1.0), (0.0, None), ("a", b"a"), (0.0, -0.0),
    (complex(1, 0.0), complex(1, -0.0)), (0j, -0j), ({1: A}, {True: A}),
    ({1: A}, {1.0: A}), ({0.0: 1}, {-0.0: 1}), ({0j: 1}, {-0j: 1}),
    (Mood.CALM, Mood.WILD), (torch.float16, torch.bfloat16),
]


@pytest.mark.parametrize("one, two", OTHERS,
                         ids=lambda v: type(v).__name__)
def test_calls_that_differ_have_different_keys(one, two):
    assert taken([one])[1] != taken([two])[1]


@pytest.mark.parametrize("one, two", [(o, t) for o, t in OTHERS
                                      if not isinstance(o, Tensor)],
                         ids=lambda v: type(v).__name__)
def test_values_that_differ_do_not_match(one, two):
    shape, tensors = placed(one)
    assert not tree.matches(shape, two, (tensors,))


def test_another_tensor_does_not_match():
    shape, tensors = placed((A, B))
    assert not tree.matches(shape, (A, Tensor(4)), (tensors,))
    assert not tree.matches(shape, (A, None), (tensors,))


def test_equal_calls_have_equal_keys():
    for value in VALUES.values():
        assert taken(value)[1] == taken(value)[1]
    assert taken((Tensor(2), 1))[1] == taken((Tensor(2), 1))[1]


class Thing:
    pass


@pytest.mark.parametrize("value", [Thing(), {1, 2}, lambda: 0, iter([])],
                         ids=lambda v: type(v).__name__)
def test_what_no_graph_knows_is_said(value):
    for look in (taken, placed):
        with pytest.raises(tree.Unfit, match="graphs know tensors, numbers"):
            look([value])


def test_a_tensor_on_the_CPU_is_said(without_a_gpu, monkeypatch):
    monkeypatch.undo()
    with pytest.raises(tree.Unfit, match="a tensor on cpu goes into the"):
        taken((1, torch.ones(2)))


def test_a_dict_of_tensors_with_keys_of_other_types():
    value = {1: A, (2, 3): B}
    shape, tensors = placed(value)
    assert tree.fill(shape, (tensors,)) == value
