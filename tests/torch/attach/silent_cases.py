"""Layers that read something outside of themselves, each in another way: a
table of cases for who tests that a replay never uses a value of long ago.

A case has `layer()`, which makes one layer of a stack, and `put(number)`,
which puts a number where that layer reads it: directly, or in a tensor or a
function.  So trainings that call `change(step)` before each step have the same
numbers each time, eagerly or not, and nothing else needs a reset.  Nothing
here knows of graphs, or of who compares what.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections
import contextlib
import contextvars
import dataclasses
import enum
import functools
import operator
import sys
import threading
import types
import weakref
from typing import Callable

import elsewhere
from elsewhere import far_away, scaled_by_state
from models import DEVICE, nn, torch

WIDTH = 8
CHANGES_AT = 3  # step: those before it show one value, all after it another


def factor(step: int) -> float:
    return 1.0 if step < CHANGES_AT else 1.5


@dataclasses.dataclass
class Case:
    name: str
    layer: Callable  # makes one
    put: Callable  # puts a number where it is read
    # What has graphs of a model, where that is not its layers; it is given
    # the model, and what makes a segment of a function.
    layers: Callable = staticmethod(lambda model, segment: None)

    def change(self, step: int) -> None:
        self.put(factor(step))


class Layer(nn.Module):
    @classmethod
    def of(cls, way):
        """Of a class of its own, whose forward goes that way."""
        kind = type(cls)("Layer", (cls,), {"way": staticmethod(way)})
        return kind()

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.way(torch.tanh(self.lin(x)))


class Model(nn.Module):
    """It has what layers may read of it, each in its own way."""

    latest = None  # that was made

    def __init__(self, layers) -> None:
        super().__init__()
        Model.latest = weakref.ref(self)
        self.layers = nn.ModuleList(layers)
        self.factor, self.flag = 1.0, False
        self.other = Holding()
        self.register_buffer("table", tensor(1.0))
        for layer in self.layers:
            getattr(layer, "enter", lambda model: None)(self)

    def scaled(self, x):
        return x * self.factor


def stack(case: Case, depth: int = 2):
    """A model with some of its layers."""
    return Model(case.layer() for _ in range(depth)).to(DEVICE)


class Holding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rate = 1.0


def batch(step: int):
    return torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(
        step)).to(DEVICE)


def train(model, change, steps: int = 8) -> tuple:
    """Losses and weights of a training, with change(step) before each."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        change(step)
        x = batch(step)
        for layer in model.layers:
            x = layer(x)
        loss = x.pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach().clone())
    return losses, [p.detach().clone() for p in model.parameters()]


CASES: dict = {}


def enter(name: str, layer, put, **more) -> None:
    assert name not in CASES
    CASES[name] = Case(name, layer, put, **more)


def case(name: str, put):
    """Enters a function that a layer calls."""
    def enter_way(way):
        enter(name, functools.partial(Layer.of, way), put)
        return way

    return enter_way


def tensor(number: float):
    return torch.full((), number, device=DEVICE)


def into(container, key, value=float):
    """Puts value(number) at a key."""
    def put(number):
        container[key] = value(number)

    return put


def onto(thing, name, value=float):
    """Puts value(number) in an attribute."""
    def put(number):
        setattr(thing, name, value(number))

    return put


def set_global(name: str, value=float):
    def put(number):
        globals()[name] = value(number)

    return put


# ---- globals ---------------------------------------------------------------

NUMBER = 1.0
TENSOR = tensor(1.0)
PAIR = (1.0, object())
FUNCTION = torch.tanh


@case("number in a global", set_global("NUMBER"))
def _(x):
    return x * NUMBER


@case("tensor in a global", set_global("TENSOR", tensor))
def _(x):
    return x * TENSOR


@case("tuple with an object in a global",
      set_global("PAIR", lambda n: (n, PAIR[1])))
def _(x):
    return x * PAIR[0]


@case("function in a global", set_global(
    "FUNCTION", lambda n: torch.tanh if n == 1.0 else torch.sin))
def _(x):
    return FUNCTION(x)


def scaled_one(x):
    return x * 1.0


def scaled_other(x):
    return x * 1.5


HELPER = scaled_one


@case("helper in a global, replaced", set_global(
    "HELPER", lambda n: scaled_one if n == 1.0 else scaled_other))
def _(x):
    return HELPER(x)


def patched(x):
    return x * 1.0


@case("code of a helper, replaced", lambda n: setattr(
    patched, "__code__",
    (scaled_one if n == 1.0 else scaled_other).__code__))
def _(x):
    return patched(x)


# ---- containers in globals -------------------------------------------------


class Thing:
    """An object of nobody's interest, such as a process group."""


class Holder:
    def __init__(self, scale=1.0) -> None:
        self.scale = scale

    def scaled(self, x):
        return x * self.scale

    def __call__(self, x):
        return x * self.scale


def beside(what):
    """A dict with a number and something beside it."""
    return {"scale": 1.0, "other": what}


def _enter_containers() -> None:
    """Numbers in a dict, whatever is beside them."""
    others = {
        "none": None, "object": object(), "own object": Thing(),
        "tensor": tensor(1.0), "function": scaled_one, "class": Thing,
        "module": elsewhere, "list with an object": [Thing()],
        "dict with a tensor": {"t": tensor(1.0)}, "lock": threading.Lock(),
        "generator of torch": torch.Generator(), "layer": nn.Linear(2, 2),
        "stream": threading.Event(),
    }
    for what, other in others.items():
        names = beside(other)
        case(f"number in a dict beside: {what}", into(names, "scale"))(
            _reading(names))


def _reading(names):
    """A function that has the dict in a global of its own."""
    space = {"DATA": names, "__name__": "outside"}
    exec("def way(x):\n    return x * DATA['scale']\n", space)
    return space["way"]


_enter_containers()

DATA = {"group": Thing(), "t": tensor(1.0)}
LIST = [Thing(), 1.0]
NESTED = {"a": {"b": [Thing(), {"c": (Thing(), [1.0])}]}}
DEQUE = collections.deque([Thing(), 1.0])
ORDERED = collections.OrderedDict(t=tensor(1.0), scale=1.0)
DEFAULTS = collections.defaultdict(Thing, thing=Thing(), scale=1.0)
USER_DICT = collections.UserDict(thing=Thing(), scale=1.0)
CHAINED = collections.ChainMap({"thing": Thing()}, {"scale": 1.0})
FLAGS = {Thing()}
GROWING = [tensor(1.0)]
OBJECTS = [Thing(), Holder()]
BY_NAME = {"thing": Thing(), "holder": Holder()}
BY_ID = {Thing(): 1.0}
PAIRS = [(Thing(), Holder())]
FUNCTIONS = {"act": scaled_one, "thing": Thing()}
READS_NUMBER = {"act": lambda x: x * NUMBER}
METHODS = {"act": Holder().scaled}
PARTIALS = [functools.partial(operator.mul, 1.0)]


class Names(dict):
    """Of somebody's own."""

    def __getattr__(self, name):
        return self[name]


NAMES = Names(scale=1.0, thing=Thing())


@case("tensor in a dict", into(DATA, "t", tensor))
def _(x):
    return x * DATA["t"]


@case("memory of a tensor in a dict", lambda n: setattr(
    DATA["kept"] if "kept" in DATA else DATA.setdefault("kept", tensor(1.0)),
    "data", tensor(n)))
def _(x):
    return x * DATA["kept"]


@case("key of a dict that has an object", lambda n: (
    DATA.pop("late", None) if n == 1.0 else DATA.update(late=Thing())))
def _(x):
    return x * 1.5 if "late" in DATA else x


@case("number in a list beside an object", into(LIST, 1))
def _(x):
    return x * LIST[1]


@case("number deep in containers of objects",
      lambda n: into(NESTED["a"]["b"][1]["c"][1], 0)(n))
def _(x):
    return x * NESTED["a"]["b"][1]["c"][1][0]


@case("number in a deque", into(DEQUE, 1))
def _(x):
    return x * DEQUE[1]


@case("number in an OrderedDict", into(ORDERED, "scale"))
def _(x):
    return x * ORDERED["scale"]


def _move(number: float) -> None:
    IN_ORDER.move_to_end("one", last=number != 1.0)


IN_ORDER = collections.OrderedDict(one=1.0, other=1.5)


@case("order of an OrderedDict", _move)
def _(x):
    return x * next(iter(IN_ORDER.values()))


@case("number in a defaultdict", into(DEFAULTS, "scale"))
def _(x):
    return x * DEFAULTS["scale"]


@case("number in a UserDict", into(USER_DICT, "scale"))
def _(x):
    return x * USER_DICT["scale"]


@case("number in a ChainMap", lambda n: into(CHAINED.maps[1], "scale")(n))
def _(x):
    return x * CHAINED["scale"]


@case("number in a dict of somebody's own", into(NAMES, "scale"))
def _(x):
    return x * NAMES.scale


@case("set that has an object", lambda n: (
    FLAGS.discard("on") if n == 1.0 else FLAGS.add("on")))
def _(x):
    return x * 1.5 if "on" in FLAGS else x


@case("length of a list of tensors", lambda n: GROWING.__setitem__(
    slice(1, None), [] if n == 1.0 else [tensor(2.0)]))
def _(x):
    return x * len(GROWING)


@case("object in a list", lambda n: setattr(OBJECTS[1], "scale", n))
def _(x):
    return x * OBJECTS[1].scale


@case("object in a list, replaced", into(OBJECTS, 1, Holder))
def _(x):
    return OBJECTS[1](x)


@case("object in a dict, its tensor", lambda n: setattr(
    BY_NAME["holder"], "scale", tensor(n)))
def _(x):
    return x * BY_NAME["holder"].scale


@case("object in a tuple in a list",
      lambda n: setattr(PAIRS[0][1], "scale", n))
def _(x):
    return PAIRS[0][1].scaled(x)


@case("number by an object", lambda n: into(BY_ID, next(iter(BY_ID)))(n))
def _(x):
    for number in BY_ID.values():
        x = x * number
    return x


@case("function in a dict, replaced", into(
    FUNCTIONS, "act", lambda n: scaled_one if n == 1.0 else scaled_other))
def _(x):
    return FUNCTIONS["act"](x)


@case("global that a function in a dict reads", set_global("NUMBER"))
def _(x):
    return READS_NUMBER["act"](x)


@case("object of a method in a dict",
      lambda n: setattr(METHODS["act"].__self__, "scale", n))
def _(x):
    return METHODS["act"](x)


@case("partial in a list, replaced", into(
    PARTIALS, 0, lambda n: functools.partial(operator.mul, n)))
def _(x):
    return PARTIALS[0](x)


# what ring attention keeps of the documents of a batch
DATA_PARAMS: dict = {}


def put_documents(number: float) -> None:
    """Other borders of documents, of the same number of them."""
    border = 2 if number == 1.0 else 3
    DATA_PARAMS.update(
        cu_seqlens=torch.tensor([0, border, 4], device=DEVICE,
                                dtype=torch.int32),
        max_seqlen=4, group=DATA_PARAMS.get("group") or Thing())


@case("borders of documents, as DATA_PARAMS of ring attention",
      put_documents)
def _(x):
    ends = DATA_PARAMS["cu_seqlens"]
    at = torch.arange(4, device=DEVICE)
    of = (at[:, None] >= ends[None, 1:]).sum(-1)  # the document of each
    mask = (of[:, None] == of[None, :]).float()
    return mask @ x / DATA_PARAMS["max_seqlen"]


# ---- objects, namespaces, classes ------------------------------------------


@dataclasses.dataclass
class Settings:
    scale: float = 1.0
    tensor: object = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    scale: float = 1.0


class Slotted:
    __slots__ = ("scale",)


class Singleton:
    _instance = None

    def __init__(self) -> None:
        self.scale = 1.0

    @classmethod
    def get(cls):
        if cls._instance is None:
            cls._instance = cls()
        return cls._instance

    @property
    def twice(self):
        return 2 * self.scale


class Scale:
    """As auxiliary losses are scaled by a tensor in a class."""

    value = tensor(1.0)
    number = 1.0
    names = {"scale": tensor(1.0), "thing": Thing()}

    @classmethod
    def put(cls, number: float) -> None:
        cls.value = tensor(number)

    @classmethod
    def scaled(cls, x):
        return x * cls.number

    @staticmethod
    def apply(x):
        return x * NUMBER

    class Inner:
        number = 1.0


class Derived(Scale):
    pass


class Lazy:
    """Makes up its attributes."""

    def __init__(self) -> None:
        self._names = {"scale": 1.0, "thing": Thing()}

    def __getattr__(self, name):
        return vars(self)["_names"][name]


class Table:
    def __init__(self) -> None:
        self.rows = [1.0, Thing()]

    def __getitem__(self, i):
        return self.rows[i]


class Described:
    """A value that a descriptor finds elsewhere."""

    class Find:
        def __get__(self, thing, kind):
            return DATA_OF_FIND["scale"]

    scale = Find()


class Meta(type):
    @property
    def scale(cls):
        return DATA_OF_FIND["scale"]


class WithMeta(metaclass=Meta):
    pass


DATA_OF_FIND = {"scale": 1.0, "thing": Thing()}
SPACE = types.SimpleNamespace(scale=1.0, thing=Thing(), tensor=tensor(1.0))
DEEP = types.SimpleNamespace(model=types.SimpleNamespace(
    attention=types.SimpleNamespace(rope=types.SimpleNamespace(
        inner=types.SimpleNamespace(more=types.SimpleNamespace(scale=1.0))))))
SETTINGS = Settings()
FROZEN = Frozen()
SLOTTED = Slotted()
LAZY, TABLE, DESCRIBED = Lazy(), Table(), Described()
HOLDER = Holder()
WEAK = weakref.ref(HOLDER)
VARIABLE = contextvars.ContextVar("VARIABLE")
LOCAL = threading.local()
FREE_MODULE = nn.Identity()


@case("number of a namespace", onto(SPACE, "scale"))
def _(x):
    return x * SPACE.scale


@case("tensor of a namespace", onto(SPACE, "tensor", tensor))
def _(x):
    return x * SPACE.tensor


@case("number of the sixth object", onto(
    DEEP.model.attention.rope.inner.more, "scale"))
def _(x):
    return x * DEEP.model.attention.rope.inner.more.scale


@case("number of a dataclass", onto(SETTINGS, "scale"))
def _(x):
    return x * SETTINGS.scale


@case("tensor of a dataclass", onto(SETTINGS, "tensor", tensor))
def _(x):
    return x * SETTINGS.tensor


@case("frozen dataclass, replaced", set_global("FROZEN", Frozen))
def _(x):
    return x * FROZEN.scale


@case("fields of a dataclass", onto(SETTINGS, "scale"))
def _(x):
    for field in dataclasses.fields(SETTINGS)[:1]:
        x = x * getattr(SETTINGS, field.name)
    return x


@case("tensor in a slot", onto(SLOTTED, "scale", tensor))
def _(x):
    return x * SLOTTED.scale


@case("number of a singleton", lambda n: onto(Singleton.get(), "scale")(n))
def _(x):
    return x * Singleton.get().scale


@case("tensor of a singleton",
      lambda n: onto(Singleton.get(), "tensor", tensor)(n))
def _(x):
    return x * Singleton.get().tensor


@case("property of a singleton",
      lambda n: onto(Singleton.get(), "scale")(n))
def _(x):
    return x * Singleton.get().twice


@case("tensor of a class", Scale.put)
def _(x):
    return x * Scale.value


@case("tensor of a base class", Scale.put)
def _(x):
    return x * Derived.value


@case("tensor in a dict of a class", into(Scale.names, "scale", tensor))
def _(x):
    return x * Scale.names["scale"]


@case("number of a class in a class", onto(Scale.Inner, "number"))
def _(x):
    return x * Scale.Inner.number


@case("number that a class method reads", onto(Scale, "number"))
def _(x):
    return Scale.scaled(x)


@case("global that a static method reads", set_global("NUMBER"))
def _(x):
    return Scale.apply(x)


@case("number that __getattr__ finds", lambda n: into(
    vars(LAZY)["_names"], "scale")(n))
def _(x):
    return x * LAZY.scale


@case("number that __getitem__ finds", lambda n: into(TABLE.rows, 0)(n))
def _(x):
    return x * TABLE[0]


@case("number that a descriptor finds", into(DATA_OF_FIND, "scale"))
def _(x):
    return x * DESCRIBED.scale


@case("number that a metaclass finds", into(DATA_OF_FIND, "scale"))
def _(x):
    return x * WithMeta.scale


@case("method of an object's class, replaced", lambda n: setattr(
    Thing, "scaled", (lambda self, x: x) if n == 1.0
    else (lambda self, x: x * 1.5)))
def _(x):
    return LIST[0].scaled(x)


@case("object behind a weak reference", onto(HOLDER, "scale"))
def _(x):
    return x * WEAK().scale


@case("number of a context variable",
      lambda n: VARIABLE.set({"scale": n, "thing": Thing()}))
def _(x):
    return x * VARIABLE.get()["scale"]


@case("number of a thread's own", onto(LOCAL, "scale"))
def _(x):
    return x * LOCAL.scale


@case("number of a module that is no submodule",
      onto(FREE_MODULE, "scale"))
def _(x):
    return FREE_MODULE(x) * FREE_MODULE.scale


@case("attribute by a name that is computed", onto(SPACE, "scale"))
def _(x):
    return x * getattr(SPACE, "".join(["sc", "ale"]))


@case("attribute by vars()", onto(SPACE, "scale"))
def _(x):
    return x * vars(SPACE)["".join(["sc", "ale"])]


GETTER = operator.attrgetter("far")


@case("attribute by attrgetter()", onto(SPACE, "far"))
def _(x):
    return x * GETTER(SPACE)


@case("global by a name that is computed", set_global("NUMBER"))
def _(x):
    return x * globals()["".join(["NUM", "BER"])]


# ---- classes of modules, of errors, of enumerations; patterns ---------------


class Expert(nn.Module):
    """Its layers have none: they read what is in the class."""

    scale = 1.0
    names = {"scale": tensor(1.0)}

    @classmethod
    def scaled(cls, x):
        return x * cls.names["scale"]


class Overflow(Exception):
    limit = 1.0


class Kind(enum.Enum):
    DENSE = 1


Kind.scale = 1.0
Expert.of_names = functools.partialmethod(
    lambda self, names: names["scale"], {"scale": 1.0})


@case("number of a module's class", onto(Expert, "scale"))
def _(x):
    return x * Expert.scale


@case("tensor that a class method of a module's class reads",
      into(Expert.names, "scale", tensor))
def _(x):
    return Expert.scaled(x)


@case("argument of a partial method",
      into(vars(Expert)["of_names"].args[0], "scale"))
def _(x):
    return x * Expert.of_names(None)


@case("number of an error's class", onto(Overflow, "limit"))
def _(x):
    try:
        raise Overflow
    except Overflow as error:
        return x * error.limit


@case("number of an enumeration", onto(Kind, "scale"))
def _(x):
    return x * Kind.scale


class Matched:
    __match_args__ = "".join(["fac", "tor"]),

    def __init__(self) -> None:
        self.factor = 1.0


MATCHED = Matched()
MATCHING = """
def way(x):
    match MATCHED:
        case Matched(%s):
            return x * number
"""


def matching(pattern: str):
    space = {"MATCHED": MATCHED, "Matched": Matched, "__name__": "outside"}
    exec(MATCHING % pattern, space)
    return space["way"]


if sys.version_info >= (3, 10):
    case("attribute that a pattern names", onto(MATCHED, "factor"))(
        matching("factor=number"))
    case("attribute that a pattern has by its place",
         onto(MATCHED, "factor"))(matching("number"))

PROXY = weakref.proxy(HOLDER)
WEAK_METHOD = weakref.WeakMethod(HOLDER.scaled)
VIEWED = {"scale": 1.0}
VIEW = VIEWED.values()
MISSING = collections.defaultdict(lambda: 1.0)


@case("object behind a weak proxy", onto(HOLDER, "scale"))
def _(x):
    return x * PROXY.scale


@case("object of a weak method", onto(HOLDER, "scale"))
def _(x):
    return WEAK_METHOD()(x)


@case("dict behind a view", into(VIEWED, "scale"))
def _(x):
    return x * sum(VIEW)


@case("default of a dict", lambda n: setattr(
    MISSING, "default_factory", (lambda: 1.0) if n == 1.0 else lambda: 1.5))
def _(x):
    MISSING.pop("scale", None)
    return x * MISSING.pop("scale", MISSING.default_factory())


def _enter_array() -> None:
    """With an object in it, if there are arrays."""
    try:
        import numpy
    except ModuleNotFoundError:
        return
    array = numpy.array([None, Holder()], dtype=object)
    case("object in an array of numpy", lambda n: setattr(
        array[1], "scale", n))(lambda x: array[1].scaled(x))


_enter_array()


@case("global of its own file, by sys.modules", set_global("NUMBER"))
def _(x):
    return x * sys.modules[__name__].NUMBER


# ---- functions -------------------------------------------------------------


def _closing():
    scale, names = 1.0, {"thing": Thing(), "scale": 1.0}

    def apply(x):
        return x * scale

    def apply_names(x):
        return x * names["scale"]

    def put(number):
        nonlocal scale
        scale = names["scale"] = number

    return apply, apply_names, put


CLOSING, CLOSING_NAMES, PUT_CLOSING = _closing()
IN_DICT, _, PUT_IN_DICT = _closing()
CLOSURES = {"act": IN_DICT, "thing": Thing()}


def decorated(function):
    @functools.wraps(function)
    def call(x):
        return function(x)

    return call


@decorated
def wrapped(x):
    return x * DATA_OF_FIND["scale"]


def scaled_by_own(x):
    return x * scaled_by_own.scale


def defaulted(x, names=[Thing(), 1.0]):  # noqa: B006
    return x * names[1]


def generating():
    yield DATA_OF_FIND["scale"]


@contextlib.contextmanager
def scaling():
    yield DATA_OF_FIND["scale"]


@functools.singledispatch
def dispatched(x):
    raise TypeError


@dispatched.register
def _(x: torch.Tensor):
    return x * DATA_OF_FIND["scale"]


@case("number in a closure", PUT_CLOSING)
def _(x):
    return CLOSING(x)


@case("number in a dict in a closure", PUT_CLOSING)
def _(x):
    return CLOSING_NAMES(x)


@case("number in a closure in a dict", PUT_IN_DICT)
def _(x):
    return CLOSURES["act"](x)


@case("attribute of a function", onto(scaled_by_own, "scale"))
def _(x):
    return scaled_by_own(x)


def put_later(number: float) -> None:
    if number == 1.0:
        globals().pop("LATER", None)
    else:
        globals()["LATER"] = number


@case("global that is created later", put_later)
def _(x):
    try:
        return x * LATER
    except NameError:
        return x


@case("global that a decorated function reads",
      into(DATA_OF_FIND, "scale"))
def _(x):
    return wrapped(x)


@case("default of a function", lambda n: into(
    defaulted.__defaults__[0], 1)(n))
def _(x):
    return defaulted(x)


@case("global that a generator reads", into(DATA_OF_FIND, "scale"))
def _(x):
    for number in generating():
        x = x * number
    return x


@case("global that a context manager reads", into(DATA_OF_FIND, "scale"))
def _(x):
    with scaling() as number:
        return x * number


@case("global that a comprehension reads", into(DATA_OF_FIND, "scale"))
def _(x):
    return x * sum([DATA_OF_FIND["scale"] for _ in range(2)])


@case("global that a function of a dispatch reads",
      into(DATA_OF_FIND, "scale"))
def _(x):
    return dispatched(x)


@case("global that a checkpointed function reads",
      into(DATA_OF_FIND, "scale"))
def _(x):
    return torch.utils.checkpoint.checkpoint(
        lambda x: torch.sin(x) * DATA_OF_FIND["scale"], x,
        use_reentrant=False)


@case("number of another file", onto(elsewhere, "SCALE"))
def _(x):
    return elsewhere.scaled(x)


@case("dict of another file", into(elsewhere.STATE, "scale"))
def _(x):
    return scaled_by_state(x)


@case("dict of another file, read here", into(elsewhere.STATE, "scale"))
def _(x):
    return x * elsewhere.STATE["scale"]


@case("object of another file", onto(elsewhere.CONFIG.model, "scale"))
def _(x):
    return elsewhere.scaled_by_config(x)


@case("dict behind six functions", into(elsewhere.STATE, "scale"))
def _(x):
    return far_away(x)


@case("file that is imported as the layer runs", onto(elsewhere, "SCALE"))
def _(x):
    from elsewhere import SCALE
    return x * SCALE


@case("file by sys.modules", onto(elsewhere, "SCALE"))
def _(x):
    return x * sys.modules["elsewhere"].SCALE


# ---- autograd's functions --------------------------------------------------


def function(forward=None, backward=None):
    """An autograd function with these in the place of the identity."""
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x) if forward is None else forward(x)

        @staticmethod
        def backward(ctx, grad):
            return grad if backward is None else backward(grad)

    return Function


class ForwardNumber(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * NUMBER

    @staticmethod
    def backward(ctx, grad):
        return grad


class BackwardNumber(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * NUMBER


class BackwardTensor(torch.autograd.Function):
    """As Megatron's MoEAuxLossAutoScaler."""

    main_scale = None

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * BackwardTensor.main_scale


class BackwardContext(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, holder):
        ctx.holder = holder
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.holder.scale, None


class TwoStep(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * DATA_OF_FIND["scale"]

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        return grad


BACKWARD_ELSEWHERE = function(backward=elsewhere.scaled_by_state)
BACKWARD_IN_DICT = function(backward=lambda g: CLOSURES["act"](g))
BACKWARD_DATA = function(backward=lambda g: g * DATA["t"])


@case("number that an autograd function's forward reads",
      set_global("NUMBER"))
def _(x):
    return ForwardNumber.apply(x)


@case("number that an autograd function's backward reads",
      set_global("NUMBER"))
def _(x):
    return BackwardNumber.apply(x)


@case("tensor of a class that its backward reads",
      onto(BackwardTensor, "main_scale", tensor))
def _(x):
    return BackwardTensor.apply(x)


@case("tensor of another class that a backward reads", Scale.put)
def _(x):
    return READS_CLASS.apply(x)


READS_CLASS = function(backward=lambda g: g * Scale.value)


@case("object that a forward gives to its backward",
      onto(HOLDER, "scale"))
def _(x):
    return BackwardContext.apply(x, HOLDER)


@case("number that a function with setup_context reads",
      into(DATA_OF_FIND, "scale"))
def _(x):
    return TwoStep.apply(x)


@case("dict of another file that a backward reads",
      into(elsewhere.STATE, "scale"))
def _(x):
    return BACKWARD_ELSEWHERE.apply(x)


@case("closure in a dict that a backward reads", PUT_IN_DICT)
def _(x):
    return BACKWARD_IN_DICT.apply(x)


@case("tensor in a dict that a backward reads", into(DATA, "t", tensor))
def _(x):
    return BACKWARD_DATA.apply(x)


@case("number that a gradient's hook reads", into(DATA_OF_FIND, "scale"))
def _(x):
    x = x.view_as(x)
    x.register_hook(lambda g: g * DATA_OF_FIND["scale"])
    return x * 1.0


# ---- what a layer has of its own -------------------------------------------


class Config:
    def __init__(self) -> None:
        self.scale = 1.0
        self.helper = Holder()

    def factor(self):
        return DATA_OF_FIND["scale"]


class OfItsOwn(Layer):
    """Has an object, of which a method reads something else."""

    def __init__(self) -> None:
        super().__init__()
        self.config = Config()
        self.things = [Thing(), SPACE]

    @property
    def factor(self):
        return DATA_OF_FIND["scale"]


class ReadsMethod(OfItsOwn):
    def forward(self, x):
        return super().forward(x) * self.config.factor()

    way = staticmethod(torch.sin)


class ReadsProperty(OfItsOwn):
    def forward(self, x):
        return super().forward(x) * self.factor

    way = staticmethod(torch.sin)


class ReadsThing(OfItsOwn):
    def forward(self, x):
        return super().forward(x) * self.things[1].tensor

    way = staticmethod(torch.sin)


class ReadsClass(OfItsOwn):
    scale = tensor(1.0)

    def forward(self, x):
        return super().forward(x) * type(self).scale

    way = staticmethod(torch.sin)


class ReadsWeight(OfItsOwn):
    """An attribute of a weight."""

    made = weakref.WeakSet()

    def __init__(self) -> None:
        super().__init__()
        self.made.add(self)

    @classmethod
    def put(cls, number: float) -> None:
        for layer in [*cls.made]:
            layer.lin.weight.scale = number

    def forward(self, x):
        return super().forward(x) * self.lin.weight.scale

    way = staticmethod(torch.sin)


enter("global that a method of a layer's object reads", ReadsMethod,
      into(DATA_OF_FIND, "scale"))
enter("global that a layer's property reads", ReadsProperty,
      into(DATA_OF_FIND, "scale"))
enter("tensor of an object in a layer's list", ReadsThing,
      onto(SPACE, "tensor", tensor))
enter("tensor of a layer's class", ReadsClass,
      onto(ReadsClass, "scale", tensor))
enter("number of a layer's weight", ReadsWeight, ReadsWeight.put)


# ---- what a layer has of the model that it is in ---------------------------

MODEL = None  # the one


class InModel(Layer):
    """Knows its model."""

    way = staticmethod(torch.sin)

    def enter(self, model) -> None:
        self.models = [model]

    def forward(self, x):
        return self.read(super().forward(x), self.models[0])

    @staticmethod
    def read(x, model):
        return x * model.factor


class ByReference(InModel):
    def enter(self, model) -> None:
        self.models = [None]
        self.model = weakref.ref(model)

    def forward(self, x):
        return self.read(Layer.forward(self, x), self.model())


class ByDict(InModel):
    def enter(self, model) -> None:
        vars(self)["model"] = model

    def forward(self, x):
        return self.read(Layer.forward(self, x), self.model)


class ByGlobal(InModel):
    def enter(self, model) -> None:
        global MODEL
        MODEL = model

    def forward(self, x):
        return Layer.forward(self, x) * MODEL.factor


class ByMethod(InModel):
    def enter(self, model) -> None:
        self.function = model.scaled

    def forward(self, x):
        return self.function(Layer.forward(self, x))


class ByFlag(InModel):
    @staticmethod
    def read(x, model):
        return x if model.training else x * 1.5


class ByBuffer(InModel):
    @staticmethod
    def read(x, model):
        return x * model.table


class ByNeighbour(InModel):
    """Of a module beside it."""

    @staticmethod
    def read(x, model):
        return x * model.other.rate


class Inner(nn.Module):
    def __init__(self, outer) -> None:
        super().__init__()
        self.lin = nn.Linear(WIDTH, WIDTH)
        vars(self)["outer"] = outer

    def forward(self, x):
        return torch.tanh(self.lin(x)) * self.outer.scale


class Outer(Layer):
    """Is no layer that has graphs, but has one."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 1.0
        self.inner = Inner(self)

    def forward(self, x):
        return x + self.inner(x)


class Partly(Layer):
    """Has a method that has graphs, and reads what it is bound to."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 1.0
        self.register_buffer("table", tensor(1.0))
        self.helper = Holding()
        vars(self)["call"] = self.run

    def run(self, x):
        return torch.tanh(self.lin(x)) * self.scale * self.table \
            * self.helper.rate

    def forward(self, x):
        return self.call(x)

    @staticmethod
    def segments(model, segment) -> list:
        for layer in model.layers:
            vars(layer)["call"] = segment(layer.run, [layer.lin])
        return [layer.call for layer in model.layers]


def of_model(change):
    """Changes the model that was made last."""
    return lambda number: Model.latest and Model.latest() is not None \
        and change(Model.latest(), number)


def of_layers(name: str, value=float, thing=lambda layer: layer):
    return of_model(lambda model, number: [
        setattr(thing(layer), name, value(number)) for layer in model.layers])


def _put_factor(model, number) -> None:
    model.factor = number


enter("number of the model, in a list", InModel, of_model(_put_factor))
enter("number of the model, by a weak reference", ByReference,
      of_model(_put_factor))
enter("number of the model, past Module", ByDict, of_model(_put_factor))
enter("number of the model, in a global", ByGlobal, of_model(_put_factor))
enter("number of the model, by a method", ByMethod, of_model(_put_factor))
enter("flag of the model", ByFlag, of_model(
    lambda model, number: setattr(model, "training", number == 1.0)))
enter("buffer of the model, replaced", ByBuffer, of_model(
    lambda model, number: setattr(model, "table", tensor(number))))
enter("number of a module beside the layer", ByNeighbour, of_model(
    lambda model, number: setattr(model.other, "rate", number)))
enter("number of what the layer is in", Outer, of_layers("scale"),
      layers=lambda model, segment: "layers.*.inner")
enter("number of a segment's object", Partly, of_layers("scale"),
      layers=Partly.segments)
enter("buffer of a segment's object", Partly, of_layers("table", tensor),
      layers=Partly.segments)
enter("number of a module that no segment names", Partly, of_layers(
    "rate", thing=operator.attrgetter("helper")), layers=Partly.segments)
