"""A change of what is held is noticed, by who asks once and who asks often.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections
import gc
import operator
import sys
import types

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from graphhooks.torch.guard import snapshot, words
from graphhooks.torch.guard.snapshot import Held


class Thing:
    kind = "of the class"

    def __init__(self):
        self.number, self.other = 1000, 2000


class World:
    """What is held: some of each."""

    def __init__(self):
        self.thing = Thing()
        self.kind = type("Kind", (), {"flag": True})
        self.names = {"a": 1000, "b": 2000, "c": 3000}
        self.ordered = collections.OrderedDict(a=1000, b=2000)
        self.items = [1000, 2000]
        self.more = [3000]
        self.function = types.FunctionType(
            (lambda x=1: x).__code__, {}, argdefs=(1,))
        self.array = bytearray(b"12")
        self.cell = types.CellType(1000)
        self.derived = type("Derived", (self.kind,), {})
        self.held = held = Held()
        held.put(vars(self.thing), ["number"])
        held.put(vars(self.kind), ["flag"])
        held.put_items(self.names, ["a", "b"])
        held.put(self.ordered, [*self.ordered])
        held.put_all(collections.OrderedDict.__iter__, self.ordered)
        for each in self.items, self.more:
            held.put(each, range(len(each)))
        held.put_one(type, self.thing)
        held.put_all(words.defaults_of, self.function)
        held.put_one(words.contents_of, self.cell)
        held.put_one(words.mro_of, self.derived)
        held.put_one(snapshot.item_of, (self.names, "z"))
        held.put_equal(bytes, self.array)


def by_hot_code(world):
    for i in range(64):
        world.thing.number = 5000 + i


def from_one_list_to_the_other(world):
    world.more.insert(0, world.items.pop())


CHANGES = {
    "an attribute": lambda w: setattr(w.thing, "number", 1),
    "an attribute, by hot code": by_hot_code,
    "an attribute more": lambda w: setattr(w.thing, "more", 1),
    "an attribute less": lambda w: delattr(w.thing, "other"),
    "an equal number": lambda w: setattr(w.thing, "number", int("1000")),
    "of a class": lambda w: setattr(w.kind, "flag", False),
    "of a dict": lambda w: operator.setitem(w.names, "b", 1),
    "a key less": lambda w: w.names.pop("a"),
    "an order": lambda w: w.ordered.move_to_end("a"),
    "of an ordered dict": lambda w: operator.setitem(w.ordered, "b", 1),
    "of a list": lambda w: operator.setitem(w.items, 1, 1),
    "a list grows": lambda w: w.items.append(1),
    "from a list": from_one_list_to_the_other,
    "a type": lambda w: setattr(w.thing, "__class__", type("T", (), {})),
    "defaults": lambda w: setattr(w.function, "__defaults__", (2,)),
    "no defaults": lambda w: setattr(w.function, "__defaults__", None),
    "defaults by name": lambda w: setattr(w.function, "__kwdefaults__", {}),
    "a code": lambda w: setattr(w.function, "__code__",
                                (lambda x=1: -x).__code__),
    "what a cell has": lambda w: setattr(w.cell, "cell_contents", 1),
    "an empty cell": lambda w: delattr(w.cell, "cell_contents"),
    "the bases of a class": lambda w: setattr(w.derived, "__bases__",
                                              (Thing,)),
    "a key that was not there": lambda w: operator.setitem(w.names, "z", 1),
    "an array": lambda w: operator.setitem(w.array, 0, 0),
}
OTHERS = {
    "a key that is not held": lambda w: operator.setitem(w.names, "c", 1),
    "a key more, of any size": lambda w: operator.setitem(w.names, "d", 1),
    "an attribute that is not held": lambda w: setattr(w.thing, "other", 1),
    "back again": lambda w: (operator.setitem(w.names, "b", 1),
                             operator.setitem(w.names, "b", w.names["e"])),
}


def unversioned(monkeypatch):
    monkeypatch.setattr(words, "_HAVE_VERSIONS", False)


def without_words(monkeypatch):
    unversioned(monkeypatch)
    monkeypatch.setattr(words, "FIELDS", {})


WAYS = pytest.mark.parametrize("way", [
    lambda _: None, unversioned, without_words],
    ids=["as it is", "without versions", "without words"])
ASKED = pytest.mark.parametrize("asked", [1, 2, 3, 8])


@WAYS
@ASKED
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changes(monkeypatch, way, asked, change):
    way(monkeypatch)
    world = World()
    for _ in range(asked):
        assert world.held.is_same()
    change(world)
    assert not world.held.is_same()
    assert not world.held.is_same()


@WAYS
@ASKED
@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_what_is_not_held_may_change(monkeypatch, way, asked, change):
    way(monkeypatch)
    world = World()
    world.names["e"] = world.names["b"]
    for _ in range(asked):
        assert world.held.is_same()
    change(world)
    assert world.held.is_same()
    world.names["b"] = 5
    assert not world.held.is_same()


@ASKED
def test_what_is_put_later_is_held(asked):
    world = World()
    for _ in range(asked):
        assert world.held.is_same()
    late = {"late": 1}
    more = Held()
    more.put(late, ["late"])
    world.held.add(more)
    for _ in range(asked):
        assert world.held.is_same()
    late["late"] = 2
    assert not world.held.is_same()


def test_this_interpreter_is_known():
    """Where it is not, each thing is looked at, which is slower."""
    assert words._HAVE_VERSIONS is (sys.version_info < (3, 13))
    assert words._HAVE_USED
    assert all(words.FIELDS.values())


def test_empty_dicts():
    dicts = {}, collections.OrderedDict(), {}
    asked = words.Words(map(words.Empty, dicts))
    for each in dicts:
        assert asked.is_same() and asked.is_same()
        each["a"] = 1
        assert not asked.is_same() and not asked.is_same()
        del each["a"]
    assert asked.is_same()


def test_several_words_at_once():
    """As each of them: written, put back, replaced by another, not known."""
    def empty(names):
        return words.Words([words.Empty(names)])

    class Thing:  # that has no words
        value = 1

        def words(self):
            return []

        def is_same(self):
            return self.value == 1

    dicts, thing = [{}, {}, {}], Thing()
    each = [*map(empty, dicts), words.Words([thing, words.Empty({})])]
    asked = words.AtOnce()
    assert not asked.are_same(each[0], None)
    assert asked.are_same(*each) and asked.are_same(*each)
    for names in dicts:
        names["a"] = 1
        assert not asked.are_same(*each) and not asked.are_same(*each)
        names.clear()
        assert asked.are_same(*each) and asked.are_same(*each)
    thing.value = 2
    assert not asked.are_same(*each) and not asked.are_same(*each)
    thing.value = 1
    assert asked.are_same(*each)
    other = {"a": 1}
    for i in range(3):
        assert not asked.are_same(*each[:i], empty(other), *each[i + 1:])
        assert asked.are_same(*each)
    each[1] = empty(other)
    other.clear()
    assert asked.are_same(*each)
    dicts[1]["a"] = 1  # which nobody asks for any more
    assert asked.are_same(*each)


@pytest.mark.skipif(sys.version_info >= (3, 13),
                    reason="dicts have no versions")
def test_who_has_other_words_alone_is_looked_at():
    looked = []

    class Places(snapshot.Places):
        def is_same(self, number):
            looked.append(number)
            return super().is_same(number)

    one, two = {"a": 1}, {"b": 2}
    places = Places((), ())
    places.put([one, two], ["a", "b"], [1, 2])
    asked = words.Words((), [places])
    for _ in range(3):
        assert asked.is_same()
    two["c"] = 3
    for _ in range(3):
        assert asked.is_same()
    assert looked == [1]


@WAYS
def test_a_write_while_all_is_looked_at_is_seen(monkeypatch, way):
    """Also in the look after which words are compared."""
    way(monkeypatch)
    for asked in range(1, 8):
        names, times = {"a": 1000}, []

        def look(_):
            times.append(None)
            if len(times) == asked + 1:  # the first is of who puts it there
                names["a"] = 2000

        held = Held()
        held.put(names, ["a"])
        held.put_equal(look, names)
        for _ in range(asked):
            assert held.is_same()
        assert not held.is_same()


@WAYS
def test_who_asks_often_makes_few_objects(monkeypatch, way):
    """Of which the garbage collector would keep count."""
    way(monkeypatch)
    held, dicts = Held(), [{i: i for i in range(9)} for _ in range(500)]
    for names in dicts:
        held.put(names, names)
        held.put_items(names, [0])
        held.put_one(snapshot.item_of, (names, "b"))
        held.put_one(words.contents_of, types.CellType(held))
        held.put_all(words.defaults_of, lambda x=1: x)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(8):
        assert held.is_same()
    assert len(gc.get_objects()) - before < 200
