"""What a layer reads outside of itself is compared before each replay, in all
ways of silent_cases.py; and a layer that writes there is refused.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import functools
import re

import elsewhere
import pytest
import silent_cases
from models import GRAINS, WHOLE, same, torch
from silent_cases import CASES

import graphhooks

STEPS = 8


def trained(case, change, grain=None) -> tuple:
    """Losses and weights, and what is known of the graphs."""
    torch.manual_seed(0)
    model = silent_cases.stack(case)
    case.change(0)
    if grain is None:
        return *silent_cases.train(model, change, STEPS), None
    layers = case.layers(model, graphhooks.segment)
    with graphhooks.attach(model, layers, verify="off",
                           **GRAINS[grain]) as attached:
        losses, weights = silent_cases.train(model, change, STEPS)
        return losses, weights, attached.stats()


@pytest.mark.parametrize("name", CASES)
def test_a_value_from_outside_is_never_one_of_long_ago(name):
    case = CASES[name]
    losses, weights, _ = trained(case, case.change)
    unchanged, _, _ = trained(case, lambda step: None)
    assert not same(losses[-1], unchanged[-1])
    for grain in WHOLE:
        now, weights_now, stats = trained(case, case.change, grain)
        assert all(map(same, losses, now)), grain
        assert all(map(same, weights, weights_now)), grain
        assert stats["replays"] > 0 or stats["refused"], stats


# ---- what is not read ------------------------------------------------------


class Config:
    def __init__(self) -> None:
        self.scale, self.step, self.inner = 1.0, 0, Config.Inner()

    class Inner:
        count = 0


class HasConfig(silent_cases.Layer):
    config = Config()
    way = staticmethod(torch.sin)

    def __init__(self) -> None:
        super().__init__()
        self.own = Config()
        self.current_microbatch = 0

    def forward(self, x):
        return super().forward(x) * self.config.scale * self.own.scale \
            * STATE.scale

    def count(self) -> None:
        """As a schedule does, which no layer calls."""
        self.current_microbatch += 1
        self.own.step += 1
        self.own.inner.count += 1
        STATE.step += 1
        STATE.kept = object()


STATE = Config()


@pytest.mark.parametrize("grain", WHOLE)
def test_what_no_function_reads_may_change(grain):
    case = silent_cases.Case("", HasConfig, lambda number: None)
    torch.manual_seed(0)
    model = silent_cases.stack(case)

    def change(step):
        for layer in model.layers:
            layer.count()
            layer.seen = step
        HasConfig.steps = step

    with graphhooks.attach(model, verify="off",
                           **GRAINS[grain]) as attached:
        silent_cases.train(model, change, STEPS)
        stats = attached.stats()
    assert stats["eager_calls"] == {"warmup": 2 if grain == "layer" else 1}
    assert stats["refused"] == {}


# As Transformer Engine's file has it: the attention of the last call.
CACHE = """
_attention_backends = {"params": None, "factor": None}

def scale(x, width, is_training):
    params = width, is_training
    if _attention_backends["params"] != params:
        _attention_backends["params"] = params
        _attention_backends["factor"] = 1 / (width + is_training)
    return x * _attention_backends["factor"]
"""
DISPATCH = "transformer_engine.pytorch.attention.dot_product_attention." \
    "dot_product_attention"


class OfAWidth(silent_cases.Layer):
    widths = 0

    def __init__(self, names) -> None:
        super().__init__()
        OfAWidth.widths += 1
        self.scale, self.width = names["scale"], OfAWidth.widths

    def forward(self, x):
        return self.scale(super().forward(x), self.width, self.training)


@pytest.mark.parametrize("file, replays", [(DISPATCH, True), ("mine", False)])
@pytest.mark.parametrize("grain", WHOLE)
def test_a_cache_of_the_last_call_may_have_another(file, replays, grain):
    names = {"__name__": file}
    exec(CACHE, names)
    OfAWidth.way = staticmethod(torch.sin)

    def trained(grain):
        OfAWidth.widths = 0
        case = silent_cases.Case("", lambda: OfAWidth(names), lambda _: None)
        torch.manual_seed(0)
        model = silent_cases.stack(case)

        def evaluate(step):
            model.eval()
            with torch.no_grad():
                model.layers[0](silent_cases.batch(step))
            model.train()

        if grain is None:
            return silent_cases.train(model, evaluate, STEPS), None
        with graphhooks.attach(model, verify="off",
                               **GRAINS[grain]) as attached:
            return silent_cases.train(model, evaluate, STEPS), \
                attached.stats()

    (one, _), (two, stats) = trained(None), trained(grain)
    assert all(same(a, b) for a, b in zip(one[0] + one[1], two[0] + two[1]))
    assert (stats["replays"] > 0) is replays
    assert (stats["refused"] == {}) is replays


# As Triton calls a kernel: by a launcher that it has made from a text, of what
# was found to be best.
LAUNCHER = """
def dynamic_func(x):
    return backend.add(x)
"""


class Backend:
    def add(self, x):
        return x + 1


class Kernel:
    def __init__(self) -> None:
        self.best_config = 1

    def run(self, x):
        return self.launch(x) + self.best_config // 8


KERNEL = Kernel()


def made(classes) -> None:
    names = {"backend": Backend(), **{k.__name__: k for k in classes}}
    exec(LAUNCHER, names)
    KERNEL.launch = names["dynamic_func"]


class OfAKernel(silent_cases.Layer):
    way = staticmethod(torch.sin)

    def forward(self, x):
        return KERNEL.run(super().forward(x))


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("what", ["launcher", "best_config"])
@pytest.mark.parametrize("whose", ["triton.runtime.jit", "mine"])
def test_what_triton_finds_to_be_best_may_change(monkeypatch, whose, what,
                                                 grain):
    for thing in (Backend, Kernel, Kernel.run, Backend.add):
        monkeypatch.setattr(thing, "__module__", whose)

    def train(grain):
        made([Backend])
        KERNEL.best_config = 1
        case = silent_cases.Case("", OfAKernel, lambda _: None)
        torch.manual_seed(0)
        model = silent_cases.stack(case)

        def change(step):
            if step == 4 and what == "launcher":
                made([Backend])
            elif step == 4:
                KERNEL.best_config = step

        if grain is None:
            return silent_cases.train(model, change, STEPS), None
        with graphhooks.attach(model, verify="off",
                               **GRAINS[grain]) as attached:
            return silent_cases.train(model, change, STEPS), attached.stats()

    (one, _), (two, stats) = train(None), train(grain)
    assert all(same(a, b) for a, b in zip(one[0] + one[1], two[0] + two[1]))
    assert (set(stats["eager_calls"]) == {"warmup"}) \
        is (whose != "mine"), stats["eager_calls"]


@functools.lru_cache(maxsize=None)
def launch_of(number):
    """In a table that Python does not see through, as Triton's of devices."""
    names = {"backend": Backend(), "Backend": Backend}
    exec(LAUNCHER, names)
    return names["dynamic_func"]


class OfATable(silent_cases.Layer):
    way = staticmethod(torch.sin)

    def forward(self, x):
        return launch_of(0)(super().forward(x))


@pytest.mark.parametrize("whose", ["triton.runtime.jit", "mine"])
def test_a_launcher_in_a_table_of_triton_is_not_looked_at(monkeypatch, whose):
    for thing in (Backend, Backend.add):
        monkeypatch.setattr(thing, "__module__", whose)
    launch_of.cache_clear()
    launch_of(0)
    case = silent_cases.Case("", OfATable, lambda _: None)
    model = silent_cases.stack(case)
    with graphhooks.attach(model, verify="off") as attached:
        silent_cases.train(model, lambda step: None, STEPS)
        names = {name for segment in attached.segments
                 for name in segment.settings._parts}
    assert ("dynamic_func" in names) is (whose == "mine"), names


@pytest.mark.parametrize("classes, is_theirs", [
    ([Backend], True), ([], False), ([Backend, int], False)])
def test_who_makes_a_function_from_a_text(monkeypatch, classes, is_theirs):
    from graphhooks.torch.base.names import is_of_others

    monkeypatch.setattr(Backend, "__module__", "triton.runtime.jit")
    made(classes)
    assert is_of_others(KERNEL.launch) is is_theirs


class Wanted:
    version = None


class ReadsVersion(silent_cases.Layer):
    way = staticmethod(torch.sin)

    def forward(self, x):
        return super().forward(x) * len(Wanted.version.release)


@pytest.mark.parametrize("text, replays", [("2.1.1", True), ("2.1", False)])
@pytest.mark.parametrize("grain", WHOLE)
def test_a_version_is_compared_by_what_it_is(text, replays, grain):
    """A library may ask for one anew in each evaluation."""
    version = pytest.importorskip("packaging.version")

    def change(step):
        Wanted.version = version.Version(text if step > 4 else "2.1.1")

    case = silent_cases.Case("", ReadsVersion, change)
    losses, weights, _ = trained(case, change)
    now, weights_now, stats = trained(case, change, grain)
    assert all(map(same, losses + weights, now + weights_now))
    assert stats["replays"] > 0
    assert ("attributes" not in stats["eager_calls"]) is replays


# ---- what a layer writes outside of itself ---------------------------------

LOSSES = {"group": object(), "losses": []}


class Appends(silent_cases.Layer):
    """Leaves an auxiliary loss in a list that nobody passes to it."""

    way = staticmethod(torch.sin)
    keeps = True  # what the gradient of the loss comes by

    def forward(self, x):
        y = super().forward(x)
        loss = y.square().mean()
        LOSSES["losses"].append(loss if self.keeps else loss.detach())
        return y


class Detached(Appends):
    keeps = False


class AppendsElsewhere(Appends):
    """By a function of another file."""

    def forward(self, x):
        y = silent_cases.Layer.forward(self, x)
        elsewhere.keep(y.square().mean())
        return y


class AppendsBack(Appends):
    """In its backward."""

    def forward(self, x):
        return NotesGradient.apply(silent_cases.Layer.forward(self, x))


class NotesGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        LOSSES["losses"].append(grad.mean())
        return grad


class PutsByName(Appends):
    def forward(self, x):
        y = silent_cases.Layer.forward(self, x)
        LOSSES[f"loss {len(LOSSES)}"] = y.square().mean()
        return y


class Returns(Appends):
    """What the sentence says: its caller puts it there."""

    def forward(self, x):
        y = silent_cases.Layer.forward(self, x)
        return y, y.square().mean()


def with_losses(make, grain=None) -> tuple:
    """Losses of a training that adds up what its layers leave."""
    torch.manual_seed(0)
    model = silent_cases.stack(silent_cases.Case("", make, None))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attached = graphhooks.attach(model, verify="off",
                           **GRAINS[grain]) if grain else None
    found = []
    for step in range(STEPS):
        LOSSES["losses"], elsewhere.LOSSES[:] = [], []
        for name in [n for n in LOSSES if n.startswith("loss ")]:
            del LOSSES[name]
        x = silent_cases.batch(step)
        for layer in model.layers:
            x = layer(x)
            if make is Returns:
                x, loss = x
                LOSSES["losses"].append(loss)
        left = [*LOSSES["losses"], *elsewhere.LOSSES, *(
            value for name, value in LOSSES.items()
            if name.startswith("loss "))]
        loss = x.square().mean() + sum(left)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found += [loss.detach().clone(), torch.tensor(len(left)), torch.tensor(
            len(LOSSES["losses"]))]
    if attached is not None:
        attached.detach()
    return found, attached and attached.stats()


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("make, name", [
    (Appends, r"LOSSES\['losses'\]"), (Detached, r"LOSSES\['losses'\]"),
    (AppendsElsewhere, "LOSSES"), (PutsByName, "LOSSES"),
    (Returns, None)])
def test_a_layer_that_leaves_something_outside(make, name, grain):
    losses, _ = with_losses(make)
    now, stats = with_losses(make, grain)
    assert all(map(same, losses, now))
    if name is None:
        assert stats["refused"] == {} and stats["replays"] > 0
        return
    assert len(stats["refused"]) == (2 if grain == "layer" else 1)
    for why in stats["refused"].values():
        assert re.search(f"{name}, which a replay would not: return", why)


@pytest.mark.parametrize("grain", WHOLE)
def test_a_backward_that_leaves_something_outside(grain):
    """What it runs is known once it has been recorded."""
    losses, _ = with_losses(AppendsBack)
    now, stats = with_losses(AppendsBack, grain)
    assert all(map(same, losses, now))
    assert bool(stats["refused"]) == (grain == "layer")
    for why in stats["refused"].values():
        assert re.search(r"its backward changes what is in .*LOSSES\['losses'"
                         r"\], which a replay would not: return", why)


# ---- objects of a layer ----------------------------------------------------


class Keeps(silent_cases.Layer):
    """A plain object keeps a tensor of the call, as a dispatcher of tokens."""

    way = staticmethod(torch.sin)

    def __init__(self) -> None:
        super().__init__()
        self.dispatcher = silent_cases.Thing()
        self.dispatcher.map = None
        self.register_buffer("mask", torch.zeros(4, silent_cases.WIDTH))

    def forward(self, x):
        self.dispatcher.map = x.detach() > 0
        return x + super().forward(x)


class Copies(Keeps):
    """What the sentence says: it copies that into a buffer."""

    def forward(self, x):
        self.mask.copy_(x.detach() > 0)
        return x + silent_cases.Layer.forward(self, x)


class HoldsWeight(silent_cases.Layer):
    """A plain object holds a parameter, too."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(silent_cases.WIDTH))
        self.holder = silent_cases.Thing()
        self.holder.names = {"scale": self.scale}
        self.holder.weight = self.lin.weight

    def way(self, x):
        return x * self.holder.names["scale"] @ self.holder.weight


class Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, weight):
        ctx.save_for_backward(x, scale, weight)
        return x * scale @ weight

    @staticmethod
    def backward(ctx, grad):
        x, scale, weight = ctx.saved_tensors
        of_x = grad @ weight.t()
        return of_x * scale, (of_x * x).sum(0), (x * scale).t() @ grad


class ListsWeights(silent_cases.Layer):
    """It is made in the first call, as what fuses operations."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(silent_cases.WIDTH))
        self.fusers = None

    def way(self, x):
        if self.fusers is None:
            self.fusers = [silent_cases.Thing()]
            self.fusers[0].each = [[self.scale], [self.lin.weight]]
            self.fusers[0].flat = sum(self.fusers[0].each, [])
        return Fused.apply(x, *self.fusers[0].flat)


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("make, refused", [
    (Keeps, r"it leaves another tensor in an attribute, .*dispatcher.map, "
     "which a replay would not: return it instead, or copy it into a buffer"),
    (Copies, None), (HoldsWeight, None), (ListsWeights, None)])
def test_an_object_of_a_layer_that_holds_tensors(make, refused, grain):
    case = silent_cases.Case("", make, lambda number: None)
    losses, weights, _ = trained(case, case.change)
    now, weights_now, stats = trained(case, case.change, grain)
    assert all(map(same, losses, now))
    assert all(map(same, weights, weights_now))
    assert bool(stats["refused"]) == (refused is not None)
    for why in stats["refused"].values():
        assert re.search(refused, why), why


# ---- regions that are over when a backward runs its forward again -----------


class Slotted:
    __slots__ = ("is_on",)


class OfClass:
    is_on = False


OBJECT, SLOTTED, NAMED, LISTED = Config(), Slotted(), {"on": False}, [False]
is_on = False


class Regional(silent_cases.Layer):
    """With another factor in a region that is around the model."""

    def __init__(self, factor) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return torch.tanh(self.lin(x)) * (2.0 if self.factor() else 0.5)


def turn_all(on: bool) -> None:
    global is_on
    is_on = OBJECT.is_on = SLOTTED.is_on = OfClass.is_on = on
    NAMED["on"] = LISTED[0] = on


FLAGS = {"global": lambda: is_on, "object": lambda: OBJECT.is_on,
         "slots": lambda: SLOTTED.is_on, "class": lambda: OfClass.is_on,
         "dict": lambda: NAMED["on"], "list": lambda: LISTED[0]}


@pytest.mark.parametrize("where", FLAGS)
@pytest.mark.parametrize("what", ["hook", "detach"])
@pytest.mark.parametrize("grain", WHOLE)
def test_a_region_around_a_forward_in_flight(where, what, grain):
    def forward(model, step):
        turn_all(True)
        x = silent_cases.batch(step)
        for layer in model.layers:
            x = layer(x)
        turn_all(False)
        return x.pow(2).mean()

    def gradients(**how):
        torch.manual_seed(0)
        model = silent_cases.Model(Regional(FLAGS[where]) for _ in range(2)) \
            .to(silent_cases.DEVICE)
        attached = how and graphhooks.attach(model, **how)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(STEPS):
            forward(model, step).backward()
            optimizer.step()
            optimizer.zero_grad()
        losses = [forward(model, STEPS + i) for i in range(2)]
        if what == "hook":
            for p in model.layers[0].parameters():
                p.register_hook(lambda grad: grad * 2)
        elif attached:
            assert attached.stats()["replays"] >= STEPS
            attached.detach()
        for loss in losses:
            loss.backward()
        if attached:
            attached.detach()
        assert not (is_on or OBJECT.is_on or SLOTTED.is_on or OfClass.is_on
                    or NAMED["on"] or LISTED[0])
        return [p.grad for p in model.parameters()]

    graphed = gradients(verify="off", **GRAINS[grain])
    assert all(map(same, gradients(), graphed))
