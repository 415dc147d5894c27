"""Which functions ran, as a watch of the interpreter tells: the watch sees
them all, leaves others' tools alone, and without it values are still compared.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextvars
import cProfile
import functools
import gc
import sys
import threading
import types
import weakref

import pytest
import silent_cases
from models import same, torch
from silent_cases import CASES

import graphhooks
from graphhooks.torch.base.names import reads_by_any_name
from graphhooks.torch.guard import (compiled, ran, reachable_values,
                                    snapshot)


class Thing:
    """Has functions of several kinds."""

    @property
    def made(self):
        return 1

    @staticmethod
    def static():
        return [helper() for _ in range(2)]

    def __getitem__(self, i):
        return i


def helper():
    return 1


def count():
    yield helper()


def play() -> None:
    thing = Thing()
    thing.made, thing.static(), thing[0], [*count()]
    {"a": lambda: helper()}["a"]()


PLAYED = {"play", "Thing.made", "Thing.static", "Thing.__getitem__", "helper",
          "count", "play.<locals>.<lambda>"}


def seen(play=play):
    """What a watch says of it."""
    said = []
    with ran.watched(said.append):
        play()
    assert len(said) == 1
    return said[0]


def names(codes) -> set:
    return {getattr(c, "co_qualname", c.co_name) for c in codes}


def test_a_watch_sees_all_functions():
    assert names(seen()) >= PLAYED
    assert sys.getprofile() is None


def test_a_watch_ends_with_an_exception():
    def fail():
        raise LookupError

    said = []
    with pytest.raises(LookupError), ran.watched(said.append):
        fail()
    assert "test_a_watch_ends_with_an_exception.<locals>.fail" in names(
        said[0]) and sys.getprofile() is None


def test_a_watch_leaves_out_who_is_told_of_garbage():
    """As those who measure a process are: what they read changes."""
    times = []

    def told(phase, _):
        times.append(phase)

    def litter():
        return [[] for _ in range(10 * gc.get_threshold()[0])]

    gc.callbacks.append(told)
    try:
        litter()
        assert times and gc.isenabled()
        assert told.__code__ not in seen(litter)
        assert gc.isenabled()
    finally:
        gc.callbacks.remove(told)


@pytest.mark.skipif(hasattr(sys, "monitoring"), reason="a tool is used")
def test_another_profiler_is_left_alone():
    profile = cProfile.Profile()
    profile.enable()
    try:
        assert seen() is None
        assert sys.getprofile() is profile
    finally:
        profile.disable()


@pytest.mark.skipif(hasattr(sys, "monitoring"), reason="a tool is used")
def test_a_profiler_that_comes_in_between_stays():
    profile = cProfile.Profile()
    try:
        assert seen(profile.enable) is None
        assert sys.getprofile() is profile
    finally:
        profile.disable()


# ---- sys.monitoring --------------------------------------------------------


class Monitoring:
    """As far as it is used: one event, and places that are off."""

    DISABLE = object()
    events = types.SimpleNamespace(PY_START=4)

    def __init__(self, *taken) -> None:
        self.tools = dict.fromkeys(taken, "another")
        self.callbacks: dict = {}
        self.on: dict = {}
        self.off: set = set()

    def get_tool(self, tool):
        return self.tools.get(tool)

    def use_tool_id(self, tool, name):
        assert tool not in self.tools
        self.tools[tool] = name

    def free_tool_id(self, tool):
        del self.tools[tool]

    def register_callback(self, tool, event, function):
        assert tool in self.tools
        self.callbacks[tool, event] = function

    def set_events(self, tool, events):
        assert tool in self.tools
        self.on[tool] = events

    def restart_events(self):
        self.off.clear()

    def start(self, function) -> None:
        """A function begins."""
        code = function.__code__
        for (tool, event), callback in self.callbacks.items():
            if callback is not None and self.on[tool] & event \
                    and (tool, code) not in self.off:
                if callback(code, 0) is self.DISABLE:
                    self.off.add((tool, code))


@pytest.fixture
def monitoring(monkeypatch):
    def make(*taken):
        ran._Monitor.end()
        made = Monitoring(*taken)
        monkeypatch.setattr(sys, "monitoring", made, raising=False)
        return made

    yield make
    ran._Monitor.end()


def test_a_tool_sees_what_begins_and_no_more(monitoring):
    made = monitoring()
    for _ in range(2):  # the second time what was off is on again
        codes = seen(lambda: [made.start(f) for f in (helper, play, helper)])
        assert codes == {helper.__code__, play.__code__}
        assert len(made.off) == 2
        made.start(count)  # outside, and so nobody sees it


def test_a_tool_says_once_what_began(monitoring):
    """To the same, whose passes are many."""
    made = monitoring()
    one, other = Thing(), Thing()
    for who, functions, codes in (
            (one, (helper,), {helper.__code__}), (one, (helper,), set()),
            (one, (helper, play), {play.__code__}),
            (other, (helper,), {helper.__code__}),
            (one, (helper,), {helper.__code__})):
        said = []
        with ran.watched(said.append, who):
            for f in functions:
                made.start(f)
        assert said == [codes]


def test_a_tool_stays_until_much_has_run_outside(monitoring):
    made = monitoring()
    for _ in range(2):
        assert seen(lambda: made.start(helper)) == {helper.__code__}
        for _ in range(ran._Monitor._OUTSIDE):
            made.start(play)
            assert made.tools
        assert seen(lambda: made.start(helper)) == {helper.__code__}
        for _ in range(ran._Monitor._OUTSIDE + 1):
            made.start(play)
        assert made.tools == {}


def test_a_tool_within_another_is_one_of_its_own(monitoring):
    made = monitoring()

    def both():
        assert seen(lambda: made.start(play)) == {play.__code__}
        assert len(made.tools) == 1
        made.start(helper)

    assert seen(both) == {helper.__code__, play.__code__}


def test_a_tool_has_a_number_that_nobody_has(monitoring):
    made = monitoring(4, 1)
    assert seen(lambda: made.start(helper)) == {helper.__code__}
    assert made.tools == {4: "another", 1: "another", 3: "graphhooks"}
    assert monitoring(3, 4) and seen() is None


def test_a_tool_leaves_other_threads_out(monitoring):
    made = monitoring()

    def both():
        thread = threading.Thread(target=lambda: made.start(play))
        thread.start()
        thread.join()
        made.start(helper)

    assert seen(both) == {helper.__code__}


def test_threads_of_autograd_have_what_forwards_see(monkeypatch):
    """Contexts and locals of a backward's thread are others."""
    variable, local = contextvars.ContextVar("variable"), threading.local()
    variable.set(1.0)
    local.scale = 1.0
    looks = [lambda: snapshot.value_of(variable),
             lambda: snapshot.attributes_of(local).get("scale")]
    forwards = snapshot.Held()
    forwards.see(snapshot.seen_of(variable))
    assert snapshot.attributes_of(local, forwards) == {"scale": 1.0}
    assert [look() for look in looks] == [1.0, 1.0]
    with monkeypatch.context() as backwards, \
            concurrent.futures.ThreadPoolExecutor(1) as other:
        backwards.setattr(snapshot, "current_pass", lambda: 7)
        assert [other.submit(look).result() for look in looks] == [1.0, 1.0]


def test_what_forwards_see_is_let_go_with_who_sees_it():
    variable, local = contextvars.ContextVar("variable"), threading.local()
    first, second = collections.Counter(), collections.Counter()
    variable.set(first)
    local.value = second
    one = reachable_values.Found()
    one.add("variable", variable)
    snapshot.attributes_of(local, one.held)
    assert one.held.is_same()
    values = [weakref.ref(first), weakref.ref(second)]
    variable.set(None)
    del first, second, local, one
    gc.collect()
    assert [value() for value in values] == [None, None]


# ---- what is made of it ----------------------------------------------------


@pytest.mark.parametrize("function, by_any", [
    (lambda x: x.a, False),
    (lambda x: getattr(x, "a"), False),  # noqa: B009
    (lambda x: getattr(x.y, "a", 1.0), False),
    (lambda x: hasattr(x, "a") and getattr(x, "a", None), False),
    (lambda x, name: getattr(x, name), True),
    (lambda x, name: getattr(x, name, "a"), True),
    (lambda x, name: getattr(x, "a" + name), True),
    (lambda x: vars(x), True),
    (lambda x: x.__dict__, True),
])
def test_names_that_are_computed_are_known_as_such(function, by_any):
    assert reads_by_any_name(function.__code__) is by_any


@pytest.mark.parametrize("read, by_any", [
    ("getattr(x, 'a')", False), ("getattr(x, 'b', None)", False),
    ("getattr(x, y)", True), ("getattr(x, y, 'a')", True),
    ("hasattr(x, f'a{y}')", True)])
@pytest.mark.parametrize("many", [0, 300])
def test_names_are_known_among_many(read, by_any, many):
    """Whose numbers have more than a byte."""
    before = "".join(f" y = name{i} + {1000 + i}\n" for i in range(many))
    names: dict = {}
    exec(f"def function(x, y):\n{before} return {read}", names)
    assert reads_by_any_name(names["function"].__code__) is by_any


def closing(scale):
    return lambda: scale


def test_functions_of_many_codes_are_found_as_those_of_each():
    """In one look at all objects, which takes as long for any number."""
    def make(i):
        return eval(f"lambda: {i}", {}), (lambda: i)

    made = [make(i) for i in range(3 * ran._FEW)]
    codes = [f.__code__ for f, _ in made] + [made[0][1].__code__]
    found = ran.functions_of(codes)
    assert len(found) == len({*map(id, found)}) == 2 * len(made)
    assert {*map(id, found)} == {id(f) for each in made for f in each} \
        == {id(f) for code in codes for f in ran.functions_of([code])}


def test_functions_are_found_by_their_code():
    one, two = closing(1.0), closing(2.0)
    found = ran.functions_of([one.__code__])
    assert any(f is one for f in found) and any(f is two for f in found)
    gc.collect()
    gc.freeze()
    try:
        found = ran.functions_of([helper.__code__])
        assert found and all(f.__globals__ is globals() for f in found)
    finally:
        gc.unfreeze()


def trained(case, change, attach):
    torch.manual_seed(0)
    case.put(1.0)
    model = silent_cases.stack(case)
    attached = attach(model)
    losses, _ = silent_cases.train(model, change)
    return losses, attached


@pytest.mark.parametrize("name", [
    "number in a global", "number in a dict beside: object",
    "tensor in a dict", "tensor of a namespace",
    "number that an autograd function's backward reads",
    "global that a static method reads", "tensor of a class"])
def test_without_a_watch_values_are_compared_too(monkeypatch, name):
    monkeypatch.setattr(ran._Profiler, "start", lambda *_: False)
    monkeypatch.setattr(ran._Monitor, "start", lambda *_: False)
    case = CASES[name]
    losses, _ = trained(case, case.change, lambda model: None)
    now, attached = trained(
        case, case.change, functools.partial(graphhooks.attach, verify="off"))
    assert all(map(same, losses, now))
    assert attached.things.ran.is_guessed
    assert attached.stats()["replays"] > 0
    attached.detach()


def test_what_nobody_can_set_is_left(monkeypatch):
    """A type of somebody's own in C may make another object at each look."""
    from graphhooks.torch.guard import shared_objects
    from graphhooks.torch.guard.reachable_values import Found

    monkeypatch.setattr(shared_objects, "slots", lambda kind: ("real", "imag"))
    found = Found()
    found.held.put_one(lambda _: object(), None)  # is never the same
    found.shared = [("", 1j, found)]
    for put in shared_objects.copies(found):
        put()


# ---- functions that torch compiles -----------------------------------------


FACTOR = 2.0


def scaled(x):
    return torch.sigmoid(x.to(torch.float32)) * FACTOR


def fused(x, bias):
    shifted = [x + bias for _ in range(2)]
    return torch.nn.functional.gelu(scaled(shifted[0])).type_as(x)


def calling(function, x):
    return function(x)


def reading(thing):
    return thing.weight * thing.factor


def running(thing):
    return thing.act(thing.weight)


class Layer(torch.nn.Linear):
    """What a function compiled as its method is given."""

    def __init__(self) -> None:
        super().__init__(2, 2)
        self.factor, self.act = 2, torch.sigmoid

    @property
    def whole(self):
        return self.weight * self.factor


def finding(x):
    return getattr(torch, FACTOR)(x)


def importing(x):
    import silent_cases

    return x * len(silent_cases.CASES)


def through_others(x):
    return CASES["a"](x)


@pytest.mark.parametrize("function, known", [
    (scaled, {"scaled"}), (fused, {"fused", "scaled"}),
    (lambda x: fused(x, 1), {"<lambda>", "fused", "scaled"}),
    (calling, None), (reading, None), (running, None), (finding, None), (importing, None),
    (through_others, None), (torch.nn.Linear(2, 2), None),
    (lambda f: [f(x) for x in range(2)], None)],
    ids=lambda each: getattr(each, "__qualname__", ""))
def test_what_a_compiled_function_calls_is_read_off_its_code(function, known):
    codes = compiled.codes_of(function)
    assert known == (codes and {c.co_name for c in codes})


@pytest.mark.parametrize("function, known", [
    (reading, {"reading"}), (running, None), (lambda self: self.whole, None),
    (lambda self: self.bias.sum() + self.factor, {"<lambda>"}),
    (lambda self: self.act.weight, None)])
def test_a_compiled_method_may_read_numbers_of_its_object(function, known):
    codes = compiled.codes_of(function, (Layer(),))
    assert known == (codes and {c.co_name for c in codes})


needs_monitoring = pytest.mark.skipif(
    not hasattr(sys, "monitoring"), reason="before Python 3.12 a watch does "
    "not see who calls whom")


@pytest.fixture
def compiling():
    """Makes functions that torch compiles, in a way of no use but quick."""
    yield functools.partial(torch.compile, backend="aot_eager")
    torch._dynamo.reset()


@needs_monitoring
@pytest.mark.parametrize("function, known", [
    (fused, True), (reading, True), (running, False)])
def test_a_watch_knows_what_a_compiled_function_was(compiling, function,
                                                    known):
    made, name = compiling(function), function.__name__
    args = (torch.ones(2), torch.ones(2)) if name == "fused" else (Layer(),)

    def plays():
        made(*args).sum()
        helper()

    for is_made in False, True:  # compiles it, and calls what was made
        codes = seen(plays)
        now = ran.Ran(frozenset()).and_these(codes)
        assert now.is_guessed is not known
        assert names(codes) >= {"helper"}
        if known:
            others = names(now.own) - {name, "scaled", "helper"}
            assert not is_made or {o.rpartition(".")[2] for o in others} \
                == {"plays"}
            assert now.reads("FACTOR" if name == "fused" else "factor")


@needs_monitoring
def test_what_is_made_for_a_backward_is_no_function_of_anybody(compiling):
    made = compiling(fused)
    for is_made in False, True:
        x = torch.ones(2, requires_grad=True)
        total = made(x, torch.ones(2)).sum()
        codes = seen(lambda: (helper(), total.backward()))
        own = ran.Ran(frozenset()).and_these(codes).own
        assert not is_made or {c.co_name for c in own} == {
            "helper", "<lambda>"}


@needs_monitoring
def test_a_watch_below_a_compiled_function_sees_all(compiling):
    """As where a whole step is compiled around the layers."""
    said = []

    @torch.compiler.disable
    def inner():
        said.append(seen())

    @compiling
    def step(x):
        inner()
        return x + 1

    step(torch.ones(2))
    assert names(said[0]) >= PLAYED
