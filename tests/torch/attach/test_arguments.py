"""What goes into a layer and comes out of it: tensors, and what holds them.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import gc
import math
import weakref

import pytest
from models import (COUNTS, GRAINS, HEADS, LAYERS, LENGTH, WHOLE, WIDTH,
                    Block, Model, nn, torch)
from torch.utils.checkpoint import checkpoint


Pair = collections.namedtuple("Pair", "x mask")


class Tagged(collections.namedtuple("Tagged", "x tag")):
    """Is not made of what it holds."""

    def __new__(cls, x):
        return super().__new__(cls, x, "tag")


class Mood(enum.Enum):
    CALM = 1


@dataclasses.dataclass
class State:
    x: torch.Tensor
    mask: torch.Tensor
    step: int = 0


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: torch.Tensor
    note: str = "text"


def mixed(x, mask):
    return x * mask.unsqueeze(-1)


def layer(read, write):
    """A class of layers: read(*args, **kwargs) finds (x, mask), and
    write(x, mask) makes the result."""

    class Layer(Block):
        def forward(self, *args, **kwargs):
            x, mask = read(*args, **kwargs)
            return write(super().forward(mixed(x, mask)), mask)

    return Layer


# name: (how a layer is called, read, write, how x and mask are found again)
FORMS = {
    "a keyword": (lambda f, x, m: f(x, mask=m),
                  lambda x, mask: (x, mask),
                  lambda x, m: x, lambda r, m: (r, m)),
    "keywords alone": (lambda f, x, m: f(x=x, mask=m),
                       lambda x, mask: (x, mask),
                       lambda x, m: x, lambda r, m: (r, m)),
    "constants": (lambda f, x, m: f(x, None, 2, 0.5, True, "text", Mood.CALM,
                                    m, torch.float32),
                  lambda x, none, n, f, b, t, e, m, d: (x * f * n, m),
                  lambda x, m: x, lambda r, m: (r, m)),
    "a tuple": (lambda f, x, m: f((x, m)), lambda pair: pair,
                lambda x, m: (x, m), lambda r, m: r),
    "a list": (lambda f, x, m: f([x, m]), lambda pair: pair,
               lambda x, m: [x, m], lambda r, m: r),
    "a dict": (lambda f, x, m: f({"x": x, "m": m}),
               lambda d: (d["x"], d["m"]),
               lambda x, m: {"x": x, "m": m, "none": None},
               lambda r, m: (r["x"], r["m"])),
    "a named tuple": (lambda f, x, m: f(Pair(x, m)), lambda pair: pair,
                      Pair, lambda r, m: (r.x, r.mask)),
    "a named tuple of its own": (
        lambda f, x, m: f(Tagged(x), m), lambda tagged, m: (tagged.x, m),
        lambda x, m: Tagged(x), lambda r, m: (r.x, m)),
    "a dataclass": (lambda f, x, m: f(State(x, m)),
                    lambda s: (s.x, s.mask),
                    lambda x, m: State(x, m, 3), lambda r, m: (r.x, r.mask)),
    "a frozen dataclass": (lambda f, x, m: f(Frozen(x), m),
                           lambda s, m: (s.x, m),
                           lambda x, m: Frozen(x, "other"),
                           lambda r, m: (r.x, m)),
    "nested": (lambda f, x, m: f([(x, {"deep": [m]})], none=None),
               lambda a, none: (a[0][0], a[0][1]["deep"][0]),
               lambda x, m: {"a": (x, [m, (None,)])},
               lambda r, m: (r["a"][0], r["a"][1][0])),
    "one tensor twice": (lambda f, x, m: f(x, m, x, m),
                         lambda x, m, y, n: ((x + y) / 2, m),
                         lambda x, m: (x, x), lambda r, m: (r[1], m)),
    "integers and flags": (lambda f, x, m: f(x, m), lambda x, m: (x, m),
                           lambda x, m: (x, (m > 0).sum(-1), m > 0),
                           lambda r, m: (r[0], m)),
    "none of many": (lambda f, x, m: f(x, m), lambda x, m: (x, m),
                     lambda x, m: (None, x, None), lambda r, m: (r[1], m)),
    "views of an input": (lambda f, x, m: f(x, m), lambda x, m: (x, m),
                          lambda x, m: (x, m[0], m.view(-1)),
                          lambda r, m: (r[0], m)),
}


def model_of(form):
    call, _, _, find = FORMS[form]

    class Fed(Model):
        def run_layers(self, x):
            mask = (x.detach()[..., 0] > -1).float()
            self.results = []
            for module in self.layers:
                self.results.append(call(module, x, mask))
                x, mask = find(self.results[-1], mask)
            return x

    return Fed


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("form", FORMS)
def test_a_form_goes_in_and_out(pair, grain, form):
    _, read, write, _ = FORMS[form]
    run = pair(lambda r: r.steps(), grain=grain, make=layer(read, write),
               model=model_of(form))
    assert run.attached.stats()["eager_calls"].keys() == {"warmup"}


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("form", ["a tuple", "a dataclass", "a named tuple"])
def test_an_output_that_is_an_input_is_that_very_tensor(runs, grain, form):
    _, read, write, find = FORMS[form]
    run = runs(grain=grain, make=layer(read, write), model=model_of(form))
    run.steps(COUNTS[:3])
    assert run.attached.stats()["replays"] > 0
    masks = {id(find(r, None)[1]) for r in run.model.results}
    assert len(run.model.results) == LAYERS and len(masks) == 1


class Outer(Block):
    """Gives its input on, beside the result."""

    def forward(self, x, first=None):
        first = x if first is None else first
        return super().forward(x) + 0.1 * first, first


class Residual(Model):
    def run_layers(self, x):
        first = None
        for module in self.layers:
            x, first = module(x, first)
        return x + first


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("in_flight", [1, 3])
def test_an_input_with_a_gradient_goes_through(pair, grain, in_flight):
    pair(lambda r: r.steps(in_flight=in_flight), grain=grain, make=Outer,
         model=Residual)


class Scaled(Block):
    def forward(self, x, scale):
        return super().forward(x * scale)


class Scales(Model):
    scale = 0.5

    def run_layers(self, x):
        for module in self.layers:
            x = module(x, self.scale)
        return x


@pytest.mark.parametrize("grain", WHOLE)
def test_a_constant_that_changes_is_eager(pair, grain):
    def train(run):
        for i, count in enumerate(COUNTS + COUNTS):
            run.model.scale = 0.25 if i in (3, 5) else 0.5
            run.step(count)

    run = pair(train, grain=grain, make=Scaled, model=Scales,
               eager=["input"])
    assert "scale is 0.25 in it and 0.5 in those" in run.attached.explain()


class Adds(Block):
    """Three tensors besides x."""

    def forward(self, x, a, b, c):
        return super().forward(x + a + b * c)


class Feeds(Model):
    def run_layers(self, x):
        a, b, c = (x.detach() * f for f in (0.1, 0.2, 0.3))
        for module in self.layers:
            x = module(x, a, b, c)
        return x


@pytest.mark.parametrize("grain", WHOLE)
def test_many_inputs_are_one_copy(pair, grain):
    run = pair(lambda r: r.steps(), grain=grain, make=Adds, model=Feeds)
    stats = run.attached.stats()
    forwards = {"layer": LAYERS, "chunk": 1}[grain] * sum(COUNTS)
    assert 0 < stats["copies"] <= forwards + 2 * sum(COUNTS)


class Breaks(Model):
    """Changes what is on its way between two layers."""

    def run_layers(self, x):
        for module in self.layers:
            x = module(x)
            x += 0.125
        return x


@pytest.mark.parametrize("grain, apart", [
    ("layer", None), ("chunk", "changed in place")])
def test_what_comes_out_is_changed_in_place(pair, grain, apart):
    pair(lambda r: r.steps(), grain=grain, model=Breaks, apart=apart)


class Overwrites(Block):
    """Changes what it is given."""

    def forward(self, x):
        x = x * 1.0
        return super().forward(x.mul_(0.5))


def test_a_layer_may_change_what_is_its_own(pair):
    pair(lambda r: r.steps(), make=Overwrites)


# ---- one tensor, several arguments -----------------------------------------


class Joins(Block):
    def forward(self, x, y, z=None):
        x = x + self.attn(self.norm1(y)) * torch.sigmoid(y)
        x = x + self.mlp(self.norm2(y))
        return x if z is None else x * torch.tanh(z) + self.norm1(z)


class Repeats(Model):
    times = 2

    def run_layers(self, x):
        for module in self.layers:
            x = module(*[x] * self.times)
        return x


class Thrice(Repeats):
    times = 3


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("model", [Repeats, Thrice])
def test_one_tensor_as_several_arguments(pair, grain, model):
    pair(lambda r: r.steps(), grain=grain, make=Joins, model=model)


class Attends(Block):
    def __init__(self) -> None:
        super().__init__()
        self.attn = None
        self.mixer = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.mixer(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


def test_query_key_and_value_are_one_tensor(pair):
    pair(lambda r: r.steps(), grain="part", make=Attends,
         parts={"attn": "mixer", "mlp": "mlp"})


# ---- tensors of a kind -----------------------------------------------------


class Continues(Block):
    def forward(self, x, past):
        return super().forward(torch.cat([past, x], 1))


class NoPast(Model):
    def run_layers(self, x):
        past = x.new_empty(len(x), 0, WIDTH)
        for module in self.layers:
            x = module(x, past)
        return x


@pytest.mark.parametrize("grain", WHOLE)
def test_an_empty_tensor(pair, grain):
    pair(lambda r: r.steps(), grain=grain, make=Continues, model=NoPast)


class PassesOn(Block):
    def forward(self, x, mask):
        return super().forward(x) + mask, mask


class Inferred(Model):
    def run_layers(self, x):
        with torch.inference_mode():
            mask = torch.full((LENGTH, 1), 0.5, device=x.device)
        for module in self.layers:
            x, mask = module(x, mask)
        return x


@pytest.mark.parametrize("grain", WHOLE)
def test_a_mask_that_was_made_in_inference_mode(pair, grain):
    pair(lambda r: r.steps(), grain=grain, make=PassesOn, model=Inferred,
         judge=False)


@pytest.mark.parametrize("grain", GRAINS)
def test_a_first_batch_that_is_shorter(pair, grain):
    def train(run):
        run.zero()
        run.loss(length=LENGTH // 2).backward()
        run.optimizer.step()
        run.steps()

    pair(train, grain=grain, eager=None)


# ---- what holds them -------------------------------------------------------


class Updates(Block):
    def forward(self, state):
        state["x"] = super().forward(state["x"])
        return state


class Updated(Model):
    def run_layers(self, x):
        state = {"x": x}
        for module in self.layers:
            module(state)
        return state["x"]


class Appends(Block):
    def forward(self, x, seen):
        seen.append(x.square().mean())
        return super().forward(x)


class Appended(Model):
    def run_layers(self, x):
        seen = []
        for module in self.layers:
            x = module(x, seen)
        return x + sum(seen)


@pytest.mark.parametrize("grain, make, model", [
    ("layer", Updates, Updated), ("chunk", Updates, Updated),
    ("layer", Appends, Appended)])
def test_a_layer_that_changes_what_holds_its_inputs(pair, grain, make, model):
    pair(lambda r: r.steps(), grain=grain, make=make, model=model,
         replays=False, refused="changes a list or dict")


@dataclasses.dataclass
class Output(collections.OrderedDict):
    """As Transformers has them: fields are items too."""

    x: torch.Tensor = None
    mask: torch.Tensor = None

    def __post_init__(self):
        self["x"] = self.x


class Gives(Block):
    kind = Output

    def forward(self, x):
        return self.kind(x=super().forward(x))


class GivesDefaults(Gives):
    @staticmethod
    def kind(x):
        return collections.defaultdict(list, x=x)


class Opens(Model):
    def run_layers(self, x):
        self.kinds = []
        for module in self.layers:
            result = module(x)
            self.kinds.append(type(result))
            x = result.x if type(result) is Output else result["x"]
        return x


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("make, kind", [
    (Gives, Output), (GivesDefaults, collections.defaultdict)])
def test_a_dict_that_is_more_than_one(pair, grain, make, kind):
    run = pair(lambda r: r.steps(), grain=grain, make=make, model=Opens,
               judge=False)
    assert run.model.kinds == [kind] * LAYERS
    stats = run.attached.stats()
    assert stats["refused"] or stats["eager_calls"].keys() > {"warmup"}


class Consults(Block):
    """What it may be given besides is used by all layers."""

    def forward(self, x, other=None):
        x = super().forward(x)
        return x if other is None else x + other.tanh() * other.sigmoid()


def given(first):
    class Gives(Model):
        calls = 0

        def run_layers(self, x):
            self.calls += 1
            other = x if (self.calls == 1) == first else None
            for layer in self.layers:
                x = layer(x, other)
            return x

    return Gives


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("grain", WHOLE)
def test_a_first_call_with_more_or_less(pair, grain, first):
    """What it has shown is not held against the others."""
    pair(lambda r: r.steps([1, 2, 3, 4]), grain=grain, make=Consults,
         model=given(first), eager=None)


class Many(Block):
    """Takes and gives more than a graph does."""

    def forward(self, x, *more):
        x = super().forward(x) + sum(more)
        return (x, *[x * i for i in range(self.gives)])


def many(takes, gives):
    class Passes(Model):
        def run_layers(self, x):
            for layer in self.layers:
                layer.gives = gives
                x, *more = layer(x, *[x.detach() * 0.01 for _ in range(takes)])
                x = x + sum(more) * 0.001
            return x

    return Passes


@pytest.mark.parametrize("takes, gives, how", [
    (1100, 0, {"eager": ["input"]}),
    (0, 1100,
     {"refused": "1101 tensors come out of it, and a graph gives 1024"})
])
def test_more_tensors_than_a_graph_takes(pair, takes, gives, how):
    run = pair(lambda r: r.steps([1, 1, 2]), make=Many,
               model=many(takes, gives), replays=False, **how)
    assert "tensors" in run.attached.explain()


class Divides(Block):
    def forward(self, x, zero):
        return super().forward(x) * torch.copysign(
            torch.ones(()), torch.tensor(zero)).item()


class Signs(Model):
    calls = 0

    def run_layers(self, x):
        self.calls += 1
        for layer in self.layers:
            x = layer(x, -0.0 if self.calls > 3 else 0.0)
        return x


@pytest.mark.parametrize("grain", WHOLE)
def test_zeros_of_other_signs_are_other_constants(pair, grain):
    pair(lambda r: r.steps([1] * 5), grain=grain, make=Divides, model=Signs,
         eager=["input"], judge=False)


class OfEqual(Block):
    """Reads what equal values do not have in common."""

    def forward(self, x, given):
        if isinstance(given, complex):
            return super().forward(x) * math.copysign(1.0, given.imag)
        return super().forward(x) * (0.5 if type(next(iter(given))) is bool
                                     else 1.0)


EQUAL = {
    "a complex zero": (complex(1.0, 0.0), complex(1.0, -0.0)),
    "keys 1 and True": ({1: 2.0}, {True: 2.0}),
    "keys 1.0 and True": ({1.0: 2.0}, {True: 2.0}),
}


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("what", EQUAL)
def test_equal_values_that_are_told_apart_are_other_constants(pair, grain,
                                                              what):
    class Given(Model):
        calls = 0

        def run_layers(self, x):
            self.calls += 1
            for layer in self.layers:
                x = layer(x, EQUAL[what][self.calls > 3])
            return x

    run = pair(lambda r: r.steps([1] * 5), grain=grain, make=OfEqual,
               model=Given, eager=["input"])
    assert "a call differs from those that are recorded: given" in \
        run.attached.explain()


class Grouped(Block):
    """A collective would be of the group that it is given."""

    groups: tuple = ()

    def forward(self, x, given):
        assert given.group in self.groups
        return super().forward(x) * (1 + self.groups.index(given.group))


@dataclasses.dataclass
class Of:
    group: object = None


@pytest.fixture
def groups():
    """Two of the same ranks."""
    dist = torch.distributed
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("torch has no gloo")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0,
                            world_size=1)
    Grouped.groups = tuple(dist.new_group([0], backend="gloo")
                           for _ in range(2))
    yield Grouped.groups
    Grouped.groups = ()
    dist.destroy_process_group()


@pytest.mark.parametrize("grain", WHOLE)
def test_each_process_group_has_graphs_of_its_own(pair, groups, grain):
    class Given(Model):
        calls = 0

        def run_layers(self, x):
            self.calls += 1
            for layer in self.layers:
                x = layer(x, Of(groups[self.calls % 2]))
            return x

    run = pair(lambda r: r.steps([1] * 8), grain=grain, make=Grouped,
               model=Given)
    stats = run.attached.stats()
    assert [bank["replays"] > 0 for bank in stats["banks"]] == [True, True]
    name = groups[0].group_name
    assert any(f"process group {name} of rank 0" in bank["besides"]
               for bank in stats["banks"])


class Unlimited(Block):
    def forward(self, x, limit):
        return super().forward(x)


@pytest.mark.parametrize("grain", WHOLE)
def test_a_number_that_does_not_equal_itself_is_a_constant(pair, grain):
    class Given(Model):
        def run_layers(self, x):
            for layer in self.layers:
                x = layer(x, float("nan"))
            return x

    run = pair(lambda r: r.steps([1] * 4), grain=grain, make=Unlimited,
               model=Given)
    assert "input" not in run.attached.stats()["eager_calls"]


class Complex(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(
            torch.randn(WIDTH, WIDTH, dtype=torch.complex64) / 8)

    def forward(self, x):
        return torch.tanh(x @ self.weight)


class Conjugates(Model):
    def run_layers(self, x):
        x = torch.complex(x, x.flip(-1))
        for layer in self.layers:
            x = layer(x).conj()
        return x.real + x.imag


def test_complex_tensors_are_left_alone(pair):
    run = pair(lambda r: r.steps([1, 1, 2]), make=Complex, model=Conjugates,
               replays=False, eager=["input"])
    assert "whether it is a conjugate" in run.attached.explain()


class Rotated(Block):
    """As in Llama 4: places are complex numbers, without a gradient."""

    def forward(self, x, turns):
        pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
        return super().forward(torch.view_as_real(pairs * turns).flatten(-2))


class Turns(Model):
    is_back = False

    def run_layers(self, x):
        angles = torch.arange(LENGTH * WIDTH // 2, device=x.device).view(
            LENGTH, -1) / 7
        turns = torch.polar(torch.ones_like(angles), angles)
        for layer in self.layers:
            x = layer(x, turns.conj() if self.is_back else turns)
        return x


@pytest.mark.parametrize("grain", WHOLE)
def test_complex_tensors_without_gradients_go_into_graphs(pair, grain):
    """But those whose memory has the other sign."""
    def train(run):
        for run.model.is_back in (False,) * 4 + (True, False):
            run.step(2)

    run = pair(train, grain=grain, make=Rotated, model=Turns,
               eager=["input"])
    assert run.attached.stats()["eager_calls"]["input"] == \
        2 * len(run.attached.segments)


class Signed(Block):
    def forward(self, x, by):
        return super().forward(x * by)


class Negates(Model):
    """A view of the other sign, which lies in the same memory."""

    calls = 0

    def run_layers(self, x):
        self.calls += 1
        by = torch.linspace(0.5, 1.0, WIDTH, device=x.device)
        if self.calls > 3:
            by = torch._neg_view(by)
        for layer in self.layers:
            x = layer(x, by)
        return x


@pytest.mark.parametrize("grain", WHOLE)
def test_negated_views_are_left_alone(pair, grain):
    run = pair(lambda r: r.steps([1] * 7), grain=grain, make=Signed,
               model=Negates, eager=["input"])
    assert "x.resolve_neg()" in run.attached.explain()


@dataclasses.dataclass
class Context:
    x: torch.Tensor
    scale = 1.0  # no field


class TakesContext(Block):
    def forward(self, context):
        return super().forward(context.x) * context.scale


class GivesContext(Model):
    calls = 0

    def run_layers(self, x):
        self.calls += 1
        for layer in self.layers:
            context = Context(x)
            context.scale = 1 / self.calls
            x = layer(context)
        return x


def test_a_dataclass_that_has_more_than_its_fields(pair):
    run = pair(lambda r: r.steps([1, 1, 2]), make=TakesContext,
               model=GivesContext, replays=False, eager=["input"])
    assert "more than its fields: scale" in run.attached.explain()


# ---- two tensors of one node of autograd -----------------------------------


class Twice(Block):
    """Its input is read by one node, which gives two tensors."""

    def both(self, x, other):
        y = self.attn(self.norm1(x)) + other
        return x + self.mlp(self.norm2(y)), y


class Checkpoints(Twice):
    def forward(self, x, other):
        return checkpoint(self.both, x, other, use_reentrant=True)


class Reverses(Twice):
    """As reversible blocks do."""

    def __init__(self) -> None:
        super().__init__()
        self.more = nn.Parameter(0.1 * torch.eye(WIDTH))

    def forward(self, x, other):
        return Reversible.apply(x, other, self.more)


class Reversible(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, other, weight):
        ctx.save_for_backward(x, other, weight)
        return Reversible.both(x, other, weight)

    @staticmethod
    def both(x, other, weight):
        y = x + torch.tanh(other @ weight)
        return y, other + torch.tanh(y @ weight)

    @staticmethod
    def backward(ctx, *grads):
        with torch.enable_grad():
            given = [t.detach().requires_grad_() for t in ctx.saved_tensors]
            return torch.autograd.grad(Reversible.both(*given), given, grads)


class Two(Model):
    def run_layers(self, x):
        other = x
        for layer in self.layers:
            x, other = layer(x, other)
        return x + other


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("make", [Checkpoints, Reverses])
def test_two_results_of_one_node_are_one_use(pair, grain, count, make):
    pair(lambda r: r.steps([count] * 4), grain=grain, make=make, model=Two)


# ---- what a layer is given and does not use --------------------------------


class Zeros(torch.autograd.Function):
    """Gives zeros back where nothing comes, as functions do by default."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class Spare(Model):
    def __init__(self, make) -> None:
        super().__init__(make)
        self.spare = nn.Parameter(torch.ones(WIDTH))

    def run_layers(self, x):
        constant, spare = self.spare.detach(), Zeros.apply(self.spare)
        for layer in self.layers:
            x = layer(x, constant, spare)
        return x


class Spares(Block):
    def forward(self, x, constant, spare):
        return super().forward(x)


@pytest.mark.parametrize("grain", WHOLE)
def test_nothing_comes_back_to_what_is_not_used(pair, grain):
    run = pair(lambda r: r.steps(), grain=grain, make=Spares, model=Spare)
    # Of what has no gradient there is nothing to hold back in each call.
    assert all(len(i.unused) == 1 for segment in run.attached.segments
               for i in segment.instances.values())


class Ignores(torch.autograd.Function):
    """Gives nothing back to what it has used."""

    @staticmethod
    def forward(ctx, x, other):
        return x + 0.1 * other

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class Ignoring(Block):
    def forward(self, x, constant, spare):
        return super().forward(Ignores.apply(x, spare))


@pytest.mark.parametrize("grain", WHOLE)
def test_nothing_comes_back_to_what_is_used(pair, grain):
    pair(lambda r: r.steps(), grain=grain, make=Ignoring, model=Spare)


# ---- memory that dimensions share -------------------------------------------


class Masked(Block):
    """As a mask that all heads share, and a query that all samples do."""

    def forward(self, x, mask, query):
        return super().forward(
            (x + query) * mask.mean(1).unsqueeze(-1) + mask.stride(1))


class Shares(Model):
    more = 0  # columns of the query that are left out

    def __init__(self, make):
        super().__init__(make)
        self.query = nn.Parameter(torch.randn(LENGTH, WIDTH + self.more))

    def run_layers(self, x):
        query = self.query[:, :WIDTH]
        for layer in self.layers:
            mask = (x.detach().mean(-1) > 0).to(x.dtype).unsqueeze(1)
            x = layer(x, mask.expand(-1, HEADS, -1),
                      query.expand(len(x), -1, -1))
        return x


@pytest.mark.parametrize("verify", ["off", "always"])
def test_an_expanded_tensor(pair, verify):
    """Which is read anew in each pass, and gets a gradient."""
    run = pair(lambda r: r.steps(), make=Masked, model=Shares, verify=verify)
    assert run.attached.stats()["verify"]["differences"] == {}


class Flexible(Block):
    """Its attention asks a mask of flex_attention, function and table."""

    def forward(self, x, mask):
        places = torch.arange(x.shape[1], device=x.device)
        allowed = mask.mask_mod(0, 0, places[:, None], places)
        scores = (x @ x.transpose(1, 2)).masked_fill(~allowed, -1e9)
        return super().forward(
            x + scores.softmax(-1) @ x * mask.kv_num_blocks.sum())


def block_mask(window: int):
    flex = pytest.importorskip("torch.nn.attention.flex_attention")

    def near(b, h, q, k):
        return (q >= k) & (q - k < window)

    return flex.create_block_mask(near, None, None, LENGTH, LENGTH,
                                  device=torch.zeros(()).cuda().device)


class GivesMask(Model):
    mask = None

    def run_layers(self, x):
        for layer in self.layers:
            x = layer(x, self.mask)
        return x


@pytest.mark.parametrize("grain", WHOLE)
def test_a_mask_of_flex_attention_is_itself(pair, grain):
    """The same one replays; another one is another shape, and so is one whose
    table somebody has set."""
    masks = [block_mask(4), block_mask(9)]

    def train(run):
        for i in (0, 0, 0, 1, 1, 1, 0, 1, 0):
            run.model.mask = masks[i]
            run.step(1)

    run = pair(train, grain=grain, make=Flexible, model=GivesMask,
               eager=["input"])
    assert len(run.attached.stats()["banks"]) == 2
    table = masks[0].kv_num_blocks
    before = run.attached.stats()["eager_calls"]
    run.model.mask = masks[0]
    run.step(1)
    assert run.attached.stats()["eager_calls"] == before
    masks[0].kv_num_blocks = table.clone()
    run.step(1)
    assert run.attached.stats()["eager_calls"]["input"] > before["input"]


def test_masks_that_come_once_are_not_kept(pair):
    """A new one in each call has no graph, and nobody holds it."""
    seen = []

    def train(run):
        for i in range(10):
            run.model.mask = block_mask(4)
            seen.append(weakref.ref(run.model.mask))
            run.step(1)

    run = pair(train, make=Flexible, model=GivesMask, replays=False)
    gc.collect()
    assert sum(mask() is not None for mask in seen[10:]) <= 2
    assert "mask is the BlockMask" in run.attached.explain()


class Sliced(Block):
    """Returns a slice of a larger tensor, as the weights of an attention that
    has sinks are."""

    def forward(self, x):
        y = super().forward(x)
        wide = torch.cat([y, y.sin()], -1)
        return y, wide[..., 1:WIDTH], wide.transpose(0, 1)[1:]


class Unpacks(Model):
    uses = True

    def run_layers(self, x):
        self.kept = []
        for layer in self.layers:
            x, part, other = layer(x)
            assert not part.is_contiguous()
            self.kept.append((part, other))
            if self.uses:
                x = x + part.mean(-1, keepdim=True) + other.sum()
        return x


@pytest.mark.parametrize("verify", ["off", "always"])
@pytest.mark.parametrize("uses", [True, False])
def test_an_output_with_holes(pair, uses, verify):
    """It has the strides that it has in eager, used or not, kept or not."""
    def train(run):
        for _ in range(5):
            run.step(2)
            for part, other in run.model.kept:
                run.note(part)
                run.note(other)
                run.note(torch.tensor(part.stride() + other.stride()))

    run = pair(train, make=Sliced, verify=verify,
               model=type("Case", (Unpacks,), {"uses": uses}))
    assert run.attached.stats()["replays"] > 0


def test_an_expanded_slice_has_holes(pair):
    class Slices(Shares):
        more = 1

    pair(lambda r: r.steps(), make=Masked, model=Slices, verify="always")


class Part(Block):
    """Is given its part of what is interleaved for all layers."""

    def forward(self, x, part):
        return super().forward(x + part @ self.mlp.down.weight[:, :WIDTH])


class Interleaved(Model):
    between = WIDTH  # columns of the next part

    def __init__(self, make):
        super().__init__(make)
        self.parts = nn.Linear(WIDTH, LAYERS * (WIDTH + self.between))

    def run_layers(self, x):
        parts = self.parts(x).unflatten(-1, (LAYERS, -1))
        for i, layer in enumerate(self.layers):
            x = layer(x, parts[:, :, i, :WIDTH])
        return x


class Near(Interleaved):
    """A part whose memory is mostly its own."""

    def run_layers(self, x):
        parts = self.parts(x).unflatten(-1, (LAYERS, -1))
        for i, layer in enumerate(self.layers):
            x = layer(x, parts[:, :, i].contiguous()[..., :WIDTH])
        return x


@pytest.mark.parametrize("grain", GRAINS)
@pytest.mark.parametrize("model, wide", [(Interleaved, True), (Near, False)])
def test_a_part_of_something_larger(pair, grain, model, wide):
    """It is read where it lies; or closed up, where that is not mostly its
    own memory."""
    run = pair(lambda r: r.steps(), grain=grain, make=Part, model=model,
               apart="no variable" if grain == "chunk" else None,
               verify="always")
    if grain == "layer":
        for bank in run.attached.banks.all.values():
            for signature in bank.of.values():
                assert signature.wide == ((1,) if wide else ())


def test_evaluation_of_a_part(pair):
    def train(run):
        for _ in range(4):
            run.step(1)
            run.model.eval()
            with torch.no_grad():
                run.loss()
            run.model.train()

    run = pair(train, make=Part, model=Interleaved, eval=True, eager=None)
    assert run.attached.stats()["eval"]["replays"] > 0


def test_who_reads_strides_of_a_part_is_found(pair):
    """They are others where it has been closed up."""
    class Strided(Part):
        def forward(self, x, part):
            return super().forward(x + part.stride(1), part)

    pair(lambda r: r.steps(), make=Strided, model=Interleaved,
         verify="off", replays=False,
         refused="without what lies between, as graphs have it: give it "
         r"x.contiguous\(\)")
