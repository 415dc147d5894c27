"""What layers change in Python, in forwards and in backwards: a replay would
not, so they are eager.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections
import enum
import functools
import gc
import random
import types

import pytest
from models import COUNTS, WHOLE, WIDTH, Block, Mlp, nn, torch
from torch.testing._internal.two_tensor import TwoTensor

from graphhooks.torch.grad.parameters import Parameters
from graphhooks.torch.guard import attributes, flags

GRAIN = pytest.mark.parametrize("grain", WHOLE)


class Anneals(Block):
    """A schedule of its own."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x * (1 - 1 / (1 + self.calls)))


class Logs(Block):
    def __init__(self) -> None:
        super().__init__()
        self.seen: dict = {"lengths": []}

    def forward(self, x):
        self.seen["lengths"].append(x.shape[1])
        return super().forward(x)


class Marks(Block):

    def __init__(self) -> None:
        super().__init__()
        self.marks: set = set()

    def forward(self, x):
        self.marks.add(f"call {len(self.marks)}")
        return super().forward(x)


class Tallies(Block):
    """In dicts of other types, one in another."""

    def __init__(self) -> None:
        super().__init__()
        self.tallies = collections.OrderedDict(
            of=collections.defaultdict(int), by=collections.Counter())

    def forward(self, x):
        self.tallies["of"]["calls"] += 1
        self.tallies["by"]["calls"] += 1
        return super().forward(x)


class Numbers(Block):
    """In one of those alone."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = collections.Counter()

    def forward(self, x):
        self.numbers["calls"] += 1
        return super().forward(x)


class Turns(Block):
    """In its MLP, which is a module of its own."""

    def forward(self, x):
        self.mlp.turn = not getattr(self.mlp, "turn", False)
        return super().forward(x if self.mlp.turn else -x)


@GRAIN
@pytest.mark.parametrize("make, name", [(Anneals, "calls"), (Logs, "seen"),
                                        (Marks, "marks"), (Turns, "turn"),
                                        (Tallies, "tallies"),
                                        (Numbers, "numbers")])
def test_what_a_layer_counts_in_an_attribute(pair, grain, make, name):
    """A replay would not."""
    def train(run):
        run.steps(COUNTS[:3])
        for layer in run.model.layers:
            made = (getattr(layer, "calls", 0), str(getattr(
                layer, "seen", "")), len(getattr(layer, "marks", ())),
                getattr(layer.mlp, "turn", 0), str(getattr(
                    layer, "tallies", getattr(layer, "numbers", ""))))
            run.note(torch.tensor([*str(made).encode()]), "made")

    pair(train, grain=grain, make=make, replays=False,
         refused=f"it changes an attribute, {name}, which a replay")


class Mode(enum.Enum):
    FIRST, SECOND = 1, 2


def first(x):
    return torch.tanh(x)


def second(x):
    return torch.sigmoid(x)


class Held(Block):
    """Scales what comes in by what it has held in `kept` in turns."""

    kinds: tuple = ()
    rates: tuple = (0.5, 1.0)

    def __init__(self) -> None:
        super().__init__()
        self.kept = self.kinds[0]

    def turn(self) -> float:
        was_first = self.kept == self.kinds[0]
        self.kept = self.kinds[was_first]
        return self.rates[was_first]

    def forward(self, x):
        return super().forward(x * self.turn())


class OfEnum(Held):
    kinds = tuple(Mode)


class OfSet(Held):
    kinds = ({1}, {2})


class OfFrozenSet(Held):
    kinds = (frozenset((1, "a")), frozenset((1, "b")))


class OfFunction(Held):
    kinds = (first, second)


class OfMethod(Held):
    """Of its own."""

    def __init__(self) -> None:
        self.kinds = (self.turn, self.extra_repr)
        super().__init__()


class OfBuiltin(Held):
    kinds = (torch.tanh, torch.sigmoid)


class OfType(Held):
    kinds = (nn.GELU, nn.ReLU)


class OfTensor(Held):
    """Both are there all the time."""

    def __init__(self) -> None:
        self.both = self.kinds = (torch.ones(()), torch.zeros(()))
        super().__init__()

    def turn(self) -> float:
        was_first = self.kept is self.both[0]
        self.kept = self.both[was_first]
        return self.rates[was_first]


class OfPlaces(Block):
    """Which of its tensors is the first."""

    def __init__(self) -> None:
        super().__init__()
        self.all = (torch.ones(()), torch.zeros(()), torch.ones(()))
        self.kept = collections.deque(self.all)

    def forward(self, x):
        self.kept.rotate(1)
        is_first = self.kept[0] is self.all[0]
        return super().forward(x * (1.0 if is_first else 0.5))


class Made(Block):
    """Keeps a function that is made with another number each time."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = self.made(1.0)

    def forward(self, x):
        self.kept = self.made(0.9 * self.kept(1.0))
        return super().forward(self.kept(x))


class OfClosure(Made):
    def made(self, rate):
        return lambda x: x * rate


class OfDefault(Made):
    def made(self, rate):
        return lambda x, rate=rate: x * rate


class OfPartial(Made):
    def made(self, rate):
        return functools.partial(torch.mul, other=rate)

    def forward(self, x):
        self.kept = self.made(0.9 * self.kept.keywords["other"])
        return Block.forward(self, self.kept(x))


class OfKeys(Held):
    kinds = ({"a": 1}, {"b": 1})


class OfTallied(Held):
    kinds = (collections.Counter("a"), collections.Counter("b"))


class OfModule(Block):
    """Takes one of two in turns, where modules do not look for others."""

    def __init__(self) -> None:
        super().__init__()
        self.ways = (nn.LeakyReLU(0.1), nn.LeakyReLU(0.5))
        self.kept = (self.ways[0],)

    def forward(self, x):
        self.kept = (self.ways[self.kept[0] is self.ways[0]],)
        return self.kept[0](super().forward(x))


class Collects(Block):
    """What cannot be compared, and is one more each time."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = {object()}

    def forward(self, x):
        self.kept.add(object())
        return super().forward(x / len(self.kept))


KINDS = [OfEnum, OfSet, OfFrozenSet, OfFunction, OfMethod, OfBuiltin, OfType,
         OfTensor, OfPlaces, OfClosure, OfDefault, OfPartial, OfKeys,
         OfTallied, OfModule, Collects]


@GRAIN
@pytest.mark.parametrize("make", KINDS)
def test_what_a_layer_keeps_in_turns(pair, grain, make):
    pair(lambda r: r.steps(COUNTS[:4]), grain=grain, make=make,
         replays=False, refused="it changes an attribute, kept, which")


@GRAIN
@pytest.mark.parametrize("whole", [False, True], ids=["number", "array"])
def test_numbers_of_numpy(pair, grain, whole):
    """As a temperature that is annealed by numpy's functions."""
    numpy = pytest.importorskip("numpy")

    class Anneals(Block):
        def __init__(self) -> None:
            super().__init__()
            self.rate = numpy.ones(2) if whole else numpy.float64(1.0)

        def forward(self, x):
            self.rate = numpy.maximum(self.rate * numpy.exp(-0.1), 0.3)
            return super().forward(x * float(self.rate.sum()))

    pair(lambda r: r.steps(COUNTS[:4]), grain=grain, make=Anneals,
         replays=False, refused="it changes an attribute, rate, which")


class Easy(dict):
    """Its keys are attributes, also where dict has others."""

    __getattr__ = dict.__getitem__

    @property
    def values(self):
        return self["values"]


class Settles(Block):
    """Writes what is there already, or only once."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set = set()
        self.length, self.rate = 0, None
        self.config = Easy(values=3)
        self.itself: list = [1]
        self.itself.append(self.itself)
        self.deep: tuple = ()
        for _ in range(3000):
            self.deep = (self.deep,)

    def forward(self, x):
        self.length = x.shape[1]
        self.worst = float("nan")
        self.shape = x.shape
        self.rate = self.rate or float(len(self.seen) + 1)
        self.seen.add(self.length)
        return super().forward(x * self.rate)


def not_yet():
    """A function that reads what is not there."""
    def read():
        return late

    if WIDTH == 0:
        late = 1
    return read


class Settled(Block):
    """Writes in each call what is there already, of each of those kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp.up.weight.seen = 0
        self.mlp.up.weight.role = None
        self.register_buffer("rate", torch.ones(()))
        self.ready, self.late = False, not_yet()

    def forward(self, x):
        self.mode = Mode.SECOND
        self.names, self.pairs = {"a", "b"}, frozenset(((1, 2), (3, 4)))
        self.act, self.way = torch.tanh, lambda y: y + self.one()
        self.part = functools.partial(torch.mul, other=0.5)
        self.parts = {self.part, self.one}
        self.kind, self.inner = nn.GELU, (self.mlp,)
        self.mlp.up.weight.seen = float("1.5")
        self.mlp.up.weight.role = "up"
        if not self.ready:
            self.rate.of, self.ready = 0.5, True
        return self.way(self.act(super().forward(x * self.rate.of)))

    def one(self) -> float:
        return 1.0


@GRAIN
@pytest.mark.parametrize("make", [Settles, Settled])
def test_attributes_that_are_written_again_as_they_are(pair, grain, make):
    pair(lambda r: r.steps(), grain=grain, make=make)


# ---- attributes of weights -------------------------------------------------


class OfWeight(Block):
    """Keeps of its weight how large it has been, as a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp.up.weight.kept = torch.ones(())

    def forward(self, x):
        weight = self.mlp.up.weight
        weight.kept = 0.9 * weight.kept + weight.detach().abs().amax()
        return super().forward(x / weight.kept)


class CountedInWeight(Block):
    def __init__(self) -> None:
        super().__init__()
        self.mlp.up.weight.kept = 0

    def forward(self, x):
        self.mlp.up.weight.kept += 1
        return super().forward(x / self.mlp.up.weight.kept)


class LeftInWeight(Block):
    """What it has taken away again by its next call."""

    def forward(self, x):
        weight = self.mlp.up.weight
        had = hasattr(weight, "kept")
        if had:
            del weight.kept
        else:
            weight.kept = True
        return super().forward(x if had else -x)


class CountedInBuffer(Block):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rate", torch.ones(()))

    def forward(self, x):
        self.rate.kept = getattr(self.rate, "kept", 0) + 1
        return super().forward(x / self.rate.kept)


class InList(Block):
    def __init__(self) -> None:
        super().__init__()
        self.mlp.up.weight.kept = []

    def forward(self, x):
        self.mlp.up.weight.kept.append(1)
        return super().forward(x / len(self.mlp.up.weight.kept))


class CountedInFrozen(CountedInWeight):
    def __init__(self) -> None:
        super().__init__()
        self.mlp.up.weight.requires_grad_(False)


@GRAIN
@pytest.mark.parametrize("make", [OfWeight, CountedInWeight, LeftInWeight,
                                  CountedInBuffer, InList, CountedInFrozen])
def test_what_a_layer_sets_of_its_weights(pair, grain, make):
    pair(lambda r: r.steps(COUNTS[:4]), grain=grain, make=make, replays=False,
         refused="it (sets|changes) an attribute(| of a parameter| of a "
                 "buffer), kept, which")


# ---- backwards -------------------------------------------------------------


class Tells(torch.autograd.Function):
    """Asks a module what becomes of a gradient."""

    @staticmethod
    def forward(ctx, x, module):
        ctx.module = module
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return ctx.module.back(grad), None


class Told(Block):
    """Runs Python in its backward."""

    def forward(self, x):
        return super().forward(Tells.apply(x, self))

    def back(self, grad):
        return grad


class Counts(Told):
    kept = 0

    def back(self, grad):
        self.kept += 1
        return grad / self.kept


class Clips(Block):
    """By a mean of what has come by, in a hook that the forward puts."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = torch.ones(())

    def forward(self, x):
        out = super().forward(x)
        if out.requires_grad:
            out.register_hook(self.clip)
        return out.clone()

    def clip(self, grad):
        self.kept = 0.9 * self.kept + 0.1 * grad.norm()
        return grad / self.kept


class LogsBack(Told):
    """Changes no numbers of the training."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list = []

    def back(self, grad):
        self.kept.append(len(self.kept))
        return grad


def told(run):
    """And what was left in Python."""
    for count in COUNTS[:5]:
        run.step(count)
        for layer in run.model.layers:
            run.note(torch.as_tensor(layer.kept, dtype=torch.float), "kept")


@GRAIN
@pytest.mark.parametrize("make", [Counts, Clips, LogsBack])
def test_what_a_backward_changes(pair, grain, make):
    pair(told, grain=grain, make=make, replays=None, eager=["backward"],
         refused="its backward changes an attribute, kept, which")


class OfOwn(Told):
    """Changes attributes of its weight."""

    def __init__(self) -> None:
        super().__init__()
        self.more = nn.Parameter(0.1 * torch.eye(WIDTH))
        self.reset()

    def reset(self) -> None:
        """As an engine does before each step."""

    def forward(self, x):
        return super().forward(x @ self.more)


class CountsInWeight(OfOwn):
    def back(self, grad):
        self.more.kept = getattr(self.more, "kept", 0) + 1
        return grad / self.more.kept


class ClearsInWeight(OfOwn):
    """The first microbatch's is another."""

    def reset(self) -> None:
        self.more.kept = True

    def back(self, grad):
        was, self.more.kept = self.more.kept, False
        return grad * (1.0 if was else 0.5)


class LeavesInWeight(OfOwn):
    def back(self, grad):
        self.more.kept = grad.norm()
        return grad


class ListsInWeight(OfOwn):
    def __init__(self) -> None:
        super().__init__()
        self.more.kept = []

    def back(self, grad):
        self.more.kept.append(1)
        return grad / len(self.more.kept)


class TakesFromWeight(OfOwn):
    def reset(self) -> None:
        self.more.kept = 1

    def back(self, grad):
        vars(self.more).pop("kept", None)
        return grad


@GRAIN
@pytest.mark.parametrize("counts", [COUNTS[:5], [1] * 5],
                         ids=["several", "one"])
@pytest.mark.parametrize("make", [CountsInWeight, ClearsInWeight,
                                  LeavesInWeight, ListsInWeight,
                                  TakesFromWeight])
def test_what_a_backward_changes_of_weights(pair, grain, make, counts):
    def train(run):
        for count in counts:
            for layer in run.model.layers:
                layer.reset()
            run.step(count)
            for layer in run.model.layers:
                run.note(torch.as_tensor(getattr(layer.more, "kept", -1.0),
                                         dtype=torch.float), "kept")

    pair(train, grain=grain, make=make, replays=None, eager=["backward"],
         refused="its backward (sets|changes) an attribute(| of a parameter),"
                 " kept, ")


def test_flags_are_noted_also_where_they_are_up():
    weight, other = (nn.Parameter(torch.ones(2)) for _ in range(2))
    weight.up, weight.down, other.up = True, False, True
    alias = nn.Parameter(weight.data)
    vars(alias).update(vars(weight))
    with flags.noted([weight, other], [alias, other]) as marks:
        alias.up = True
        alias.new = True
        assert isinstance(alias, nn.Parameter)
    assert type(alias) is nn.Parameter and type(other) is nn.Parameter
    assert marks == [(vars(weight), "up"), (vars(weight), "new")]
    assert vars(alias) == vars(weight)


class AsksItsWeight(OfOwn):
    """And is not replayed."""

    def back(self, grad):
        self.more.count = getattr(self.more, "count", 0) + 1
        return grad * (1.0 if self.more.kept else 0.5)


@GRAIN
def test_what_is_said_of_weights_between_forward_and_backward(pair, grain):
    def train(run):
        weights = [layer.more for layer in run.model.layers]
        for _ in range(4):
            for weight in weights:
                weight.kept = False
            run.zero()
            loss = run.loss()
            for weight in weights:
                weight.kept = True
            loss.backward()
            run.optimizer.step()

    pair(train, grain=grain, make=AsksItsWeight, replays=None,
         eager=["backward"],
         refused="its backward sets an attribute of a parameter, count,")


class Drops(Told):
    def back(self, grad):
        return grad if random.random() < 0.7 else grad * 0


@GRAIN
def test_random_numbers_of_the_host_in_a_backward(pair, grain):
    def train(run):
        random.seed(1)
        run.steps(COUNTS[:5])
        run.note(torch.tensor(random.random()), "next")

    pair(train, grain=grain, make=Drops, replays=None, eager=["backward"],
         refused="its backward draws random numbers on the host")


class Plain(Told):
    """Sets in its backward what is there already."""

    def back(self, grad):
        self.last = tuple(grad.shape)
        return 2 * grad


@GRAIN
def test_a_backward_in_python_that_changes_nothing(pair, grain):
    pair(lambda r: r.steps(), grain=grain, make=Plain)


# ---- what stands in for a weight -------------------------------------------


class Rounds(nn.Parameter):
    """Another weight to a linear layer than it is, as in quantization."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is not nn.functional.linear:
            return super().__torch_function__(function, types, args,
                                              kwargs or {})
        x, weight, *others = args
        with torch._C.DisableTorchFunctionSubclass():
            rounded = weight + ((weight * 16).round() / 16 - weight).detach()
            return function(x, rounded, *others, **(kwargs or {}))


class Quantized(Mlp):
    def __init__(self) -> None:
        super().__init__()
        self.up.weight = Rounds(self.up.weight.data)


class QuantizedBlock(Block):
    def __init__(self) -> None:
        super().__init__()
        self.mlp = Quantized()


class Asks(Block):
    """Whether its weight is one."""

    def forward(self, x):
        own = isinstance(self.mlp.up.weight, nn.Parameter)
        return super().forward(x * (0.5 if own else 1.0))


@GRAIN
@pytest.mark.parametrize("make", [QuantizedBlock, Asks])
def test_a_weight_of_a_type_of_its_own(pair, grain, make):
    pair(lambda r: r.steps(), grain=grain, make=make)


def test_a_weight_that_is_made_of_others():
    """It has no memory of its own."""
    module = nn.Module()
    module.weight = nn.Parameter(TwoTensor(torch.ones(3), torch.zeros(3)))
    weight = module.weight
    alias, = Parameters([module]).aliases()
    assert type(alias) is TwoTensor and alias.requires_grad
    assert alias is not weight and alias.is_leaf
    assert torch.equal(alias.a, weight.a) and torch.equal(alias.b, weight.b)


@pytest.mark.parametrize("bits", [attributes.comparable, attributes.exact])
def test_equal_values_of_other_types_are_others(bits):
    values = [1, True, 1.0, 1 + 0j, "1", b"1", None, 0, False, 0.0, -0.0, "",
              b"", torch.Size([1]), torch.float32, torch.device("cpu")]
    for _ in range(2):
        for one in values:
            for other in values:
                assert (bits(one) == bits(other)) is (one is other)
    assert bits("word") is bits("".join(("wo", "rd")))
    for kind, many in (int, range(10000)), (str, ["a" * 1000]):
        for value in many:
            bits(value)
        assert len(attributes._pairs[kind]) <= attributes._MANY
    assert many[0] not in attributes._pairs[str]


def test_what_modules_hold_is_copied_into_few_objects():
    """As the garbage collector counts them, and each recording makes some."""
    model, count = nn.Module(), 200
    for i in range(count):
        inner = nn.Module()
        inner.empty, inner.function = [], lambda: 1
        model.add_module(f"inner{i}", inner)
    segment = types.SimpleNamespace(sites=[types.SimpleNamespace(
        module=model)])
    attributes.Attributes(segment)
    gc.collect()
    before = len(gc.get_objects())
    found = attributes.Attributes(segment)
    gc.collect()
    made = len(gc.get_objects()) - before
    assert made < 5 * count  # its dict, a function's bits
    model.inner3.empty.append(1)
    assert found.walk() is not None
    found.put_back()
    assert model.inner3.empty == [] and found.walk() is None


Pair = collections.namedtuple("Pair", "one other")
NESTED = {
    "a dict": lambda: {"a": 1, "b": [2.0, "c"]},
    "another key": lambda: {"a": 1, "c": [2.0, "c"]},
    "another order": lambda: {"b": [2.0, "c"], "a": 1},
    "an ordered dict": lambda: collections.OrderedDict(a=1, b=[2.0, "c"]),
    "a default dict": lambda: collections.defaultdict(list, a=1,
                                                      b=[2.0, "c"]),
    "another default": lambda: collections.defaultdict(dict, a=1,
                                                       b=[2.0, "c"]),
    "a tuple in it": lambda: {"a": 1, "b": (2.0, "c")},
    "deeper": lambda: {"a": 1, "b": [[2.0], "c"]},
    "a named tuple": lambda: Pair(1, [2.0, "c"]),
    "a tuple": lambda: (1, [2.0, "c"]),
    "a deque": lambda: collections.deque([1, [2.0, "c"]]),
    "nothing in it": lambda: [[]],
    "nothing": lambda: [()],
}


def bits_of_leaves(value):
    return [*map(attributes.comparable, attributes.leaves_of(value))]


def test_what_is_nested_is_told_apart():
    for name, make in NESTED.items():
        for other, others in NESTED.items():
            assert (bits_of_leaves(make()) == bits_of_leaves(others())) \
                is (name == other)
        assert attributes.leaves_of(make())[:-1] \
            == torch.utils._pytree.tree_leaves(make())


def test_what_is_nested_leaves_no_garbage():
    """Of torch's own way to flatten a tree a collector finds nine objects."""
    value, others = NESTED["a dict"](), (1, {"a": [2, None]})
    gc.collect()
    gc.disable()
    try:
        for _ in range(9):
            attributes.leaves_of(value), attributes.leaves_of(others)
        assert gc.collect() < 9
    finally:
        gc.enable()
