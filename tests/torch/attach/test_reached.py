"""What layers reach in Python beyond their own attributes: objects in objects,
classes, modules that are none of theirs, and what functions carry.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import gc
import itertools
import os
import random
import re
import sys
import threading
import types
import weakref

import pytest
from models import DEVICE, LAYERS, WHOLE, WIDTH, Block, nn, torch

from graphhooks.torch.guard import (ran, reachable_values, snapshot,
                                    shared_objects)

GRAIN = pytest.mark.parametrize("grain", WHOLE)
FACTOR = 1.0  # that a layer reads
CALLS = 0  # and one that a layer counts
RATES = types.SimpleNamespace(rate=1.0)


class Slotted:
    __slots__ = ("scale", "late")

    def __init__(self) -> None:
        self.scale = 1.0


@dataclasses.dataclass
class Base:
    width: float = 1.0


class Config(Base):
    rate = 1.0  # in the class

    def __init__(self) -> None:
        super().__init__()
        self.inner = types.SimpleNamespace(
            scale=1.0, more=types.SimpleNamespace(scale=1.0))
        self.functions = {"act": torch.tanh}
        self.listed = [types.SimpleNamespace(scale=1.0)]
        self.act = torch.tanh

    def factor(self) -> float:
        return 1.0


class Names(dict):
    """A dict of somebody's own."""

    def __getattr__(self, name):
        return self[name]


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = 1.0
        self.register_buffer("table", torch.ones((), device=DEVICE))

    def forward(self, x):
        return x * self.scale * self.table if self.training else x


class Power:
    def __init__(self) -> None:
        self.scale = 1.0

    def __call__(self, x):
        return x * self.scale


class Held:
    scale = 1.0


def closing_over():
    scale = 1.0

    def apply(x):
        return x * scale

    def put(number):
        nonlocal scale
        scale = number

    return apply, put


def scaled(x, scale=1.0, *, more=1.0):
    return x * scale * more


def scaled_by_two(x, scale=1.0, *, more=1.0):
    return x * 2.0


def halved(self, x):
    return FORWARD(self, x) * 0.5


class Reaches(Block):
    shared = types.SimpleNamespace(scale=1.0)  # in the class

    def __init__(self) -> None:
        super().__init__()
        self.slotted = Slotted()
        self.config = Config()
        self.names = Names(scale=1.0)
        self.others = [Scale()]
        self.by_name = {"scale": {"inner": Scale()}}
        self.part = functools.partial(scaled, scale=1.0)
        self.power = Power()
        self.method = Power().__call__
        self.apply, self.put = closing_over()
        self.kept = {1: 2.0}
        self.order = {"a": 0.1, "b": 0.2}
        self.held = Held
        self.plain = scaled
        self.moved = torch.ones((), device=DEVICE)

    def forward(self, x):
        x = super().forward(x) * FACTOR * RATES.rate
        x = x * self.slotted.scale * getattr(self.slotted, "late", 1.0)
        config = self.config
        x = x * config.inner.scale * config.inner.more.scale * config.rate
        x = x * config.listed[0].scale * config.factor() * config.width
        x = config.act(config.functions["act"](x))
        x = x * self.shared.scale * self.names.scale * self.held.scale
        x = self.by_name["scale"]["inner"](self.others[0](x))
        x = self.method(self.power(self.part(self.plain(x))))
        x = x * (2.0 if type(next(iter(self.kept))) is bool else 1.0)
        for number in self.order.values():
            x = x * 0.3 + number
        return self.apply(x) * self.moved


FORWARD = Reaches.forward


def put(where: str, name: str, value):
    """setattr() at a path of attributes."""
    def change(layer):
        thing = layer
        for step in filter(None, where.split(".")):
            thing = thing[int(step)] if step.isdigit() else (
                thing[step] if isinstance(thing, dict)
                else getattr(thing, step))
        setattr(thing, name, value)

    return change


def other_key(layer) -> None:
    layer.kept[True] = layer.kept.pop(1)


def other_order(layer) -> None:
    layer.order["a"] = layer.order.pop("a")


class Other(Config):
    def factor(self) -> float:
        return 0.5


class OtherBlock(Reaches):
    def forward(self, x):
        return super().forward(x) * 0.5


def of_module(name: str, value):
    def change(layer):
        setattr(sys.modules[__name__], name, value)

    return change


CHANGES = {
    "slot": (put("slotted", "scale", 0.5),
             "slotted.scale was 1.0 when it was recorded and is 0.5 now"),
    "new slot": (put("slotted", "late", 0.5), "slotted.late was not there"),
    "object in an object": (put("config.inner", "scale", 0.5),
                            "config.inner.scale was 1.0"),
    "third object": (put("config.inner.more", "scale", 0.5),
                     "config.inner.more.scale was 1.0"),
    "object in a list": (put("config.listed.0", "scale", 0.5),
                         r"config.listed\[0\].scale was 1.0"),
    "other object": (put("config", "inner", types.SimpleNamespace(
        scale=0.5, more=types.SimpleNamespace(scale=1.0))),
        "config.inner.scale was 1.0"),
    "other object of a kind": (
        lambda m: setattr(m.config, "listed", [Slotted()]),
        r"config.listed\[0\].__class__ was a SimpleNamespace .* a Slotted"),
    "function of an object": (put("config", "act", torch.sin),
                              "config.act was tanh .* and is sin now"),
    "function in a dict": (
        lambda m: m.config.functions.update(act=torch.sin),
        r"config.functions\['act'\] was tanh when"),
    "number in a class": (lambda m: setattr(Config, "rate", 0.5),
                          "Config.rate was 1.0 when"),
    "method of a class": (
        lambda m: setattr(Config, "factor", lambda self: 0.5),
        "Config.factor was Config.factor"),
    "number in a base": (lambda m: (delattr(m.config, "width"),
                                    setattr(Base, "width", 0.5)),
                         "(Base|config).width was 1.0"),
    "object in a class": (lambda m: setattr(Reaches.shared, "scale", 0.5),
                          "Reaches.shared.scale was 1.0"),
    "class in an attribute": (lambda m: setattr(Held, "scale", 0.5),
                              "held.scale was 1.0"),
    "dict of somebody's": (lambda m: m.names.update(scale=0.5),
                           r"names\['scale'\] was 1.0"),
    "module in a list": (put("others.0", "scale", 0.5),
                         r"others\[0\].scale was 1.0"),
    "eval of a module in a list": (lambda m: m.others[0].eval(),
                                   r"others\[0\].training was True"),
    "module in a dict": (put("by_name.scale.inner", "scale", 0.5),
                         r"by_name\['scale'\]\['inner'\].scale was 1.0"),
    "buffer of a module in a list": (
        lambda m: setattr(m.others[0], "table",
                          torch.full((), 0.5, device=DEVICE)),
        r"others\[0\].table is another Tensor"),
    "keyword of a partial": (lambda m: m.part.keywords.update(scale=0.5),
                             r"part.keywords\['scale'\] was 1.0"),
    "callable": (put("power", "scale", 0.5), "power.scale was 1.0"),
    "bound method": (lambda m: setattr(m.method.__self__, "scale", 0.5),
                     "method.__self__.scale was 1.0"),
    "closure": (lambda m: m.put(0.5), "apply's scale was 1.0"),
    "default": (lambda m: setattr(scaled, "__defaults__", (0.5,)),
                "part.func's default 0 was 1.0"),
    "default by name": (lambda m: scaled.__kwdefaults__.update(more=0.5),
                        r"'s defaults\['more'\] was 1.0"),
    "code": (lambda m: setattr(scaled, "__code__", scaled_by_two.__code__),
             "part.func is another scaled"),
    "forward of a class": (lambda m: setattr(Reaches, "forward", halved),
                           "Reaches.forward was Reaches.forward .* is halved"),
    "key": (other_key, r"kept\[1\] was 2.0 when .* is not there now"),
    "order": (other_order, "(layers.1.)?order's order was "
              "\"'a', 'b'\" when it was recorded and is \"'b', 'a'\" now"),
    "global": (of_module("FACTOR", 0.5), "forward's FACTOR was 1.0"),
    "object in a global": (lambda m: setattr(RATES, "rate", 0.5),
                           "forward's RATES.rate was 1.0"),
    "class of a module": (lambda m: setattr(m, "__class__", OtherBlock),
                          "__class__ was a Reaches .* is a OtherBlock now"),
    "class of an object": (lambda m: setattr(m.config, "__class__", Other),
                           "config.__class__ was a Config"),
    "memory": (lambda m: setattr(m.moved, "data",
                                 torch.full((), 0.5, device=DEVICE)),
               "moved is another Tensor"),
}
# Of these all layers have one.
OF_ALL = {"number in a class", "method of a class", "object in a class",
          "class in an attribute", "default", "default by name", "code",
          "forward of a class",
          "global", "object in a global", "number in a base"}


@pytest.fixture
def shared():
    """What all layers have, and others do not put back."""
    was = (Config.rate, Config.factor, Base.width, scaled.__code__)

    def put_back():
        Config.rate, Config.factor, Base.width, scaled.__code__ = was
        Reaches.shared.scale = Held.scale = RATES.rate = 1.0
        scaled.__defaults__, scaled.__kwdefaults__ = (1.0,), {"more": 1.0}
        sys.modules[__name__].FACTOR, Reaches.forward = 1.0, FORWARD

    yield put_back
    put_back()


@GRAIN
@pytest.mark.parametrize("what", CHANGES)
def test_what_is_changed_after_the_recording_is_eager(pair, shared, grain,
                                                      what):
    change, said = CHANGES[what]

    def train(run):
        shared()
        run.steps([2, 2, 2])
        change(run.model.layers[1])
        run.steps([2, 2])

    run = pair(train, grain=grain, make=Reaches, eager=["attributes"])
    if grain == "layer" and what not in OF_ALL:
        assert run.attached.stats()["eager_calls"]["attributes"] == 4
    assert re.search(said, run.attached.explain()), run.attached.explain()


@GRAIN
def test_what_is_not_changed_is_replayed(pair, shared, grain):
    """Equal values in other objects, too, where these are known."""
    def train(run):
        shared()
        for i in range(6):
            for layer in run.model.layers:
                layer.config.inner.scale = float("1.0")
                layer.slotted.scale = float("1.0")
                layer.part = functools.partial(scaled, scale=float("1.0"))
                layer.put(float("1.0"))
                layer.names["scale"] = float("1.0")
            run.step(2)

    pair(train, grain=grain, make=Reaches)


def config_of(number: float):
    """An object of a class whose name others have, too."""
    class Config:
        scale = number

    return Config()


@GRAIN
@pytest.mark.parametrize("which", ["one", "other"])
def test_objects_of_classes_of_one_name_are_told_apart(pair, grain, which):
    class Twins(Block):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = config_of(1.0), config_of(2.0)

        def forward(self, x):
            return super().forward(x) * self.one.scale * self.other.scale

    def train(run):
        run.steps([1, 1, 1])
        for layer in run.model.layers:
            type(getattr(layer, which)).scale = 0.5
        run.steps([1])

    run = pair(train, grain=grain, make=Twins, eager=["attributes"])
    assert re.search(r"Config( \(2\))?\.scale was ", run.attached.explain())


class Timers:
    """As a trainer keeps in a config, for its own use."""

    def __init__(self) -> None:
        self.elapsed = 0.0
        self.starts = itertools.count()


class OwnOptimizer(torch.optim.SGD):
    """Has numbers of its own."""


@GRAIN
def test_what_others_keep_in_a_config_is_nobodys(pair, grain):
    def before(run):
        run.config = types.SimpleNamespace(
            timers=Timers(), optimizer=OwnOptimizer([nn.Parameter(
                torch.ones(1))], lr=1.0),
            seen=weakref.WeakSet(), lock=threading.Condition(),
            log=open(os.devnull, "w"))
        for layer in run.model.layers:
            layer.config = run.config

    def train(run):
        kept = []
        for i in range(5):
            kept.append(Timers())
            run.config.timers.elapsed += next(run.config.timers.starts)
            run.config.seen.add(kept[-1])
            run.config.optimizer.param_groups[0]["lr"] = 1.0 / (1 + i)
            with run.config.lock:
                run.step(2)
            run.config.log.write("step")
        run.config.log.close()

    pair(train, grain=grain, before=before)


class Tracker:
    """States of random numbers, as some keep them for all layers."""

    def __init__(self) -> None:
        self.seeds = {1}
        self.states = {}


TRACKER, KEPT = Tracker(), {}


class Tracks(Block):
    def forward(self, x):
        if TRACKER.seeds == {2}:
            return x * len(TRACKER.states) * len(KEPT)
        return super().forward(x)


@GRAIN
def test_what_others_keep_in_a_global_is_nobodys(pair, grain):
    def train(run):
        TRACKER.seeds = {1}
        for i in range(5):
            TRACKER.states[i] = KEPT[i] = torch.full((), i, device=DEVICE)
            run.step(2)
        TRACKER.seeds = {2}
        run.step(2)

    run = pair(train, grain=grain, make=Tracks, eager=["attributes"])
    assert run.attached.stats()["eager_calls"]["attributes"] == 2 * (
        LAYERS if grain == "layer" else 1)
    assert "TRACKER.seeds was frozenset({1}) when" in run.attached.explain()


# ---- one table in two slots ------------------------------------------------


class Tabled(Block):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.ones(WIDTH, device=DEVICE)

    def forward(self, x):
        return super().forward(x * self.table)


@GRAIN
def test_a_table_that_stood_in_while_another_slot_was_recorded(pair, grain):
    def train(run):
        run.steps([1, 1, 1])
        first = [layer.table for layer in run.model.layers]
        for layer in run.model.layers:
            layer.table = layer.table.clone()
        run.step(2, in_flight=2)
        run.step(2, in_flight=2)
        for layer, table in zip(run.model.layers, first):
            layer.table = table
        run.step(2, in_flight=2)  # all are equal
        for table in first:
            table[0] = 0.5
        run.step(2, in_flight=2)

    run = pair(train, grain=grain, make=Tabled, eager=["attributes"])
    assert run.attached.stats()["eager_calls"]["attributes"] == 2 * (
        LAYERS if grain == "layer" else 1)
    assert "table is another Tensor" in run.attached.explain()


# ---- what nobody can compare -----------------------------------------------


def numpy_generator():
    return pytest.importorskip("numpy").random.default_rng(1)


def numpy_state():
    return pytest.importorskip("numpy").random.RandomState(1)


DRAWS = {
    "Python": (lambda: random.Random(1), lambda g: g.random()),
    "numpy": (numpy_generator, lambda g: g.random()),
    "numpy, of old": (numpy_state, lambda g: g.random_sample()),
    "torch": (lambda: torch.Generator().manual_seed(1),
              lambda g: torch.rand((), generator=g, device="cpu").item()),
}


@GRAIN
@pytest.mark.parametrize("where", ["attribute", "object"])
@pytest.mark.parametrize("what", DRAWS)
def test_a_layer_that_draws_from_a_generator_of_its_own(pair, grain, what,
                                                        where):
    generator, draw = DRAWS[what]

    class Draws(Block):
        def __init__(self) -> None:
            super().__init__()
            self.config = types.SimpleNamespace(rng=generator())

        def forward(self, x):
            return super().forward(x) * (1 + draw(self.config.rng))

    class DrawsOfItsOwn(Block):
        def __init__(self) -> None:
            super().__init__()
            self.rng = generator()

        def forward(self, x):
            return super().forward(x) * (1 + draw(self.rng))

    pair(lambda r: r.steps([2, 2, 2]), grain=grain, replays=False,
         make=Draws if where == "object" else DrawsOfItsOwn,
         refused="draws random numbers (on the host|from a generator)")


class DrawsBack(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, rng):
        ctx.rng = rng
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * (1 + ctx.rng.random()), None


@GRAIN
def test_a_backward_that_draws_from_a_generator_of_the_layer(pair, grain):
    class Draws(Block):
        def __init__(self) -> None:
            super().__init__()
            self.rng = random.Random(1)

        def forward(self, x):
            return super().forward(DrawsBack.apply(x, self.rng))

    pair(lambda r: r.steps([2, 2, 2]), grain=grain, make=Draws,
         replays=None, eager=["backward"],
         refused="its backward draws random numbers")


@GRAIN
def test_a_generator_of_its_own_that_it_leaves_alone(pair, grain):
    class Has(Block):
        def __init__(self) -> None:
            super().__init__()
            self.rngs = [make() for make, _ in DRAWS.values()]

        def forward(self, x):
            if not self.training:
                self.rngs[0].random()
            return super().forward(x)

    def train(run):
        run.steps([2, 2])
        run.model.eval()
        run.loss()
        run.model.train()
        run.steps([2])

    pair(train, grain=grain, make=Has, eager=["forward_only"])


def ones_and_halves():
    while True:
        yield 1.0
        yield 0.5


ITERATORS = {
    "count": (lambda: itertools.count(1), lambda i: 1.0 / next(i)),
    "cycle": (lambda: itertools.cycle([1.0, 0.5]), next),
    "generator": (ones_and_halves, next),
    "list_iterator": (lambda: iter([1.0, 0.5] * 99), next),
}


@GRAIN
@pytest.mark.parametrize("where", ["attribute", "object", "method"])
@pytest.mark.parametrize("what", ITERATORS)
def test_a_layer_that_has_an_iterator_is_refused_by_name(pair, grain, what,
                                                         where):
    make, step = ITERATORS[what]

    class Steps(Block):
        def __init__(self) -> None:
            super().__init__()
            if where == "attribute":
                self.steps = make()
            elif where == "object":
                self.steps = types.SimpleNamespace(at=[make()])
            else:
                self.steps = make().__next__

        def forward(self, x):
            if where == "method":
                at = step(iter(self.steps, None))
            else:
                at = step(self.steps if where == "attribute"
                          else self.steps.at[0])
            return super().forward(x) * at

    name = {"attribute": "steps", "object": r"steps.at\[0\]",
            "method": "steps.__self__"}[where]
    pair(lambda r: r.steps([2, 2, 2]), grain=grain, make=Steps,
         replays=False, refused=rf"it has an iterator \({what}\) in an "
         rf"attribute, (layers.0.)?{name}, and nobody can tell how far")


# ---- what a recording that is none leaves ----------------------------------


class CountsInSlot(Block):
    def __init__(self) -> None:
        super().__init__()
        self.config = types.SimpleNamespace(meter=Slotted())

    def forward(self, x):
        self.config.meter.scale += 1
        return super().forward(x / self.config.meter.scale)


class CountsInNames(Block):
    def __init__(self) -> None:
        super().__init__()
        self.meter = Names(calls=0)

    def forward(self, x):
        self.meter["calls"] += 1
        return super().forward(x / self.meter["calls"])


class CountsElsewhere(Block):
    def __init__(self) -> None:
        super().__init__()
        self.others = [Scale()]

    def forward(self, x):
        self.others[0].scale += 1
        return super().forward(x / self.others[0].scale)


class CountsInGlobal(Block):
    def forward(self, x):
        global CALLS
        CALLS += 1
        return super().forward(x / CALLS)


class CountsInCell(Block):
    def __init__(self) -> None:
        super().__init__()
        calls = 0

        def count() -> int:
            nonlocal calls
            calls += 1
            return calls

        self.count = count

    def forward(self, x):
        return super().forward(x / self.count())


class CountsInPartial(Block):
    def __init__(self) -> None:
        super().__init__()
        self.part = functools.partial(scaled, scale=1.0)

    def forward(self, x):
        self.part.keywords["scale"] += 1.0
        return super().forward(self.part(x))


class CountsInDefault(Block):
    def forward(self, x, calls=[0]):
        calls[0] += 1
        return super().forward(x / calls[0])


class CountsInArray(Block):
    def __init__(self) -> None:
        super().__init__()
        self.calls = pytest.importorskip("numpy").zeros(2)

    def forward(self, x):
        self.calls[0] += 1
        return super().forward(x / float(self.calls[0]))


@GRAIN
@pytest.mark.parametrize("make", [CountsInSlot, CountsInNames,
                                  CountsElsewhere, CountsInGlobal,
                                  CountsInCell, CountsInPartial,
                                  CountsInDefault, CountsInArray])
def test_what_a_layer_counts_there_is_put_back(pair, grain, make):
    def train(run):
        sys.modules[__name__].CALLS = CountsInDefault.forward.__defaults__[0][
            0] = 0
        run.steps([2, 2, 2])

    pair(train, grain=grain, make=make, replays=False,
         refused="it changes an attribute, ")


# ---- memory of the host ----------------------------------------------------


class ReadsHost(Block):
    def __init__(self) -> None:
        super().__init__()
        self.array = pytest.importorskip("numpy").ones(4)

    def forward(self, x):
        return super().forward(x) * float(self.array[1])


@GRAIN
def test_an_array_that_is_changed_in_place(pair, grain):
    def train(run):
        run.steps([2, 2, 2])
        run.model.layers[1].array[1] = 0.5
        run.steps([2])
        run.model.layers[1].array[1] = 1.0
        run.steps([2])

    run = pair(train, grain=grain, make=ReadsHost, eager=["attributes"])
    assert run.attached.stats()["eager_calls"]["attributes"] == 2
    assert "array is another ndarray" in run.attached.explain()


@pytest.mark.parametrize("write", [lambda t: t.fill_(2.0),
                                   lambda t: setattr(t, "data", t * 2)])
@pytest.mark.parametrize("shape", [(), (3,), (1 << 17,)])
def test_a_tensor_of_the_host_that_is_written(monkeypatch, shape, write):
    """As a graph has what was in it."""
    monkeypatch.setattr(reachable_values, "on_host", lambda tensor: True)
    tensor = torch.ones(shape, device="cpu")
    one = reachable_values.Found()
    one.add("scale", tensor)
    assert one.held.is_same()
    if len(shape) == 1 and shape[0] > 9 and write(torch.ones(1)) is None:
        pytest.skip("a large tensor is told by its version alone")
    write(tensor)
    assert not one.held.is_same()
    other = reachable_values.Found()
    other.add("scale", tensor)
    assert one.part().bits != other.part().bits


# ---- what is put back ------------------------------------------------------


class Odd(dict):
    def __len__(self):
        raise AssertionError

    __iter__ = items = keys = update = __setitem__ = clear = __len__


NUMBERS = {i: i for i in range(3)}
CONTAINERS = {
    "dict": lambda: dict(NUMBERS), "no dict": dict, "list": lambda: [1, 2],
    "no list": list, "set": lambda: {1, 2}, "deque": lambda:
    collections.deque((1, 2), maxlen=2), "an ordered dict": lambda:
    collections.OrderedDict(NUMBERS), "a default dict": lambda:
    collections.defaultdict(int, NUMBERS), "a counter": lambda:
    collections.Counter("aab"), "a type of one's own": lambda: Odd(NUMBERS),
    "an array": lambda: bytearray(b"12")}


def inside(value):
    kind = collections.OrderedDict if isinstance(
        value, collections.OrderedDict) else dict
    return [*(kind.items(value) if isinstance(value, dict) else value)]


def write_into(value) -> None:
    if isinstance(value, collections.OrderedDict):
        value.move_to_end(0)
    elif isinstance(value, dict):
        dict.clear(value)
        dict.__setitem__(value, "other", 1)
    elif isinstance(value, (list, collections.deque)):
        value.append(7)
    elif isinstance(value, set):
        value.add(7)
    else:
        value[0] = 7


@pytest.mark.parametrize("make", CONTAINERS.values(), ids=CONTAINERS)
def test_what_a_recording_writes_into_is_put_back(make):
    value, found = make(), reachable_values.Found()
    before = inside(value)
    found.add("value", value)
    copies = found.copies()
    write_into(value)
    assert inside(value) != before
    for put in copies:
        put()
    assert inside(value) == before


def test_globals_and_cells_are_put_back():
    """As they are when the copies are made, not when they are found."""
    inner = 1

    def function():
        return here, inner

    function = types.FunctionType(function.__code__, {"here": 1}, None, None,
                                  function.__closure__)
    function.__module__ = "ours"
    function.known = 1
    cell, = function.__closure__
    found = reachable_values.Found(ran.Ran({function.__code__}, {"known"}))
    found.add("function", function)
    found.finish()
    cell.cell_contents = function.__globals__["here"] = function.known = 2
    copies = found.copies()
    cell.cell_contents = function.__globals__["here"] = function.known = 3
    for put in copies:
        put()
    assert (cell.cell_contents, function.__globals__["here"],
            function.known) == (2, 2, 2)


def test_copies_are_few_objects():
    """As the garbage collector counts them, and each recording makes some."""
    found, keys = reachable_values.Found(), [f"key{i}" for i in range(500)]
    values = dict.fromkeys(keys, 1)
    found._add_globals("", values, keys)
    for _ in range(500):
        found.add("empty", {})
    shared = reachable_values.Found()
    shared.shared = [("", types.SimpleNamespace(one=1),
                      reachable_values.Found()) for _ in range(500)]
    gc.collect()
    before = len(gc.get_objects())
    copies = shared_objects.copies(found) + shared_objects.copies(shared)
    gc.collect()
    assert len(gc.get_objects()) - before < 3 * 500
    assert copies


# ---- what it costs ---------------------------------------------------------


def test_all_that_is_shared_is_looked_at_once(monkeypatch, runs):
    """A microbatch: and in one look while nothing has changed."""
    looks = []
    is_same = snapshot.Held.is_same
    monkeypatch.setattr(snapshot.Held, "is_same",
                        lambda self: looks.append(self) or is_same(self))
    run = runs(grain="layer", make=Reaches, verify="off")
    run.steps([2, 2, 2])
    looks.clear()
    run.steps([2])
    of_all = [look for look in looks if look is run.attached.things._all]
    assert len(of_all) == 2 and len(looks) == 2 + 2 * LAYERS


@pytest.mark.parametrize("known", [
    lambda model: [model], lambda model: [weakref.proxy(model)], weakref.ref,
    lambda model: model.forward,
    lambda model: types.SimpleNamespace(model={"model": model})])
def test_a_model_that_a_layer_knows_is_not_looked_through(runs, known):
    def before(run):
        for layer in run.model.layers:
            layer.parent = known(run.model)

    run = runs(grain="layer", before=before)
    run.steps([1, 1, 1])
    known = {thing for thing, _ in run.attached.things._things.values()
             if isinstance(thing, nn.Module)}
    assert known <= {run.model, run.model.layers}  # not a layer of it
    assert run.attached.stats()["eager_calls"] == {"warmup": LAYERS}


def test_own_types_are_read_past_what_they_make_of_it():
    class Odd(collections.OrderedDict):
        def __iter__(self):
            raise AssertionError

        items = keys = values = __getitem__ = __len__ = __iter__

    odd = Odd(a=1)
    one = reachable_values.Found()
    one.add("odd", odd)
    assert one.values["odd['a']"] == 1 and one.held.is_same()
    dict.__setitem__(odd, "a", 2)
    assert not one.held.is_same()
    assert shared_objects.Things().changes == 0


def test_what_has_not_changed_is_not_looked_through_again(runs, monkeypatch):
    """A recording asks several times what modules have in Python: before it,
    after it, and of the way back."""
    looked = collections.Counter()
    look = reachable_values.Found.add_module

    def note(self, prefix, module, *more):
        looked[module] += 1
        look(self, prefix, module, *more)

    monkeypatch.setattr(reachable_values.Found, "add_module", note)
    run = runs(grain="layer", verify="off")
    run.steps([1, 1, 1])
    stats = run.attached.stats()
    assert stats["recordings"] == 2 * len(run.model.layers)
    assert stats["replays"] > 0
    inner = [m for layer in run.model.layers for m in layer.modules()]
    assert {looked[m] for m in inner} <= {1, 2}


def test_a_part_with_what_none_has():
    part = reachable_values.Part({"a": 1}, {"a": 1})
    other = reachable_values.Part({"a": 2}, {"a": 2})
    assert part.but(None) is part
    assert part.but(other).values == {"a": 2}
    assert part.but(None) is part


def test_what_comes_anew_in_each_microbatch_is_looked_at_alone(
        runs, monkeypatch):
    """Equal numbers in a new object: all else stays held as it is."""
    monkeypatch.setattr(RATES, "rate", [1.0])

    class Rated(Block):
        def forward(self, x):
            return super().forward(x) * RATES.rate[0]

    run = runs(Rated, grain="layer", verify="off")
    now = 1.0
    run.model.register_forward_pre_hook(
        lambda *_: setattr(RATES, "rate", [now]))
    run.steps([3] * 4)
    times = []
    monkeypatch.setattr(shared_objects.Things, "_hold",
                        lambda self: times.append(self))
    run.steps([3] * 4)
    assert times == []
    assert run.attached.stats()["eager_calls"].keys() == {"warmup"}
    now = 0.5
    run.steps([1])
    assert run.attached.stats()["eager_calls"]["attributes"] == LAYERS
