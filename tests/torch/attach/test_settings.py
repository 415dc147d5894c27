"""What layers read from Python and somebody changes between calls: such a call
is eager, and is named.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections
import dataclasses
import re
import types

import pytest
from models import DEVICE, LAYERS, WHOLE, WIDTH, Block, F, nn, torch

GRAIN = pytest.mark.parametrize("grain", WHOLE)


class Reads(Block):
    """Numbers in all places where layers keep them."""

    by_class = 1.0

    def __init__(self) -> None:
        super().__init__(0.1)
        self.scaling = {"default": 1.0}
        self.widths = [1.0, [1.0]]
        self.slope = 0.1
        self.factor = None
        self.pair = (1.0, 2)
        self.names = {"a"}
        self.rates = collections.defaultdict(float, a=1.0)
        self.activation = F.gelu
        self.mask = torch.ones(())
        self.config = types.SimpleNamespace(scale=1.0, rope={"theta": 1.0},
                                            steps=[1.0])

    def _apply(self, function, recurse=True):
        """The mask goes where the weights go, as a copy would wait."""
        self.mask = function(self.mask)
        return super()._apply(function, recurse)

    def forward(self, x):
        x = F.leaky_relu(super().forward(x), self.slope)
        x = x * self.scaling["default"] * self.widths[0] * self.widths[1][0]
        x = x * self.pair[0] * self.by_class * (0.5 if self.factor else 1.0)
        x = x * self.config.scale * self.config.rope["theta"]
        x = x * self.config.steps[0] * self.mask
        x = x * (1.0 if "a" in self.names else 0.5)
        x = x * sum(self.rates.values())
        return self.activation(x) + x * getattr(self, "late", 0.0)


def put(name: str, value, inner=None):
    def change(layer) -> None:
        of = layer.get_submodule(inner) if inner else layer
        setattr(of, name, value)

    return change


def drop_in_eval(layer) -> None:
    layer.mlp.drop.eval()


def put_in(find, key, value):
    def change(layer) -> None:
        find(layer)[key] = value

    return change


def by_class(layer) -> None:
    Reads.by_class = 0.5


def forget_name(layer) -> None:
    layer.names.clear()
    layer.names.add("b")


CHANGES = {
    "eval": (drop_in_eval, "mlp.drop.training was True when it was recorded "
             "and is False now"),
    "rate": (put("p", 0.2, "mlp.drop"), "mlp.drop.p was 0.1 when it was "
             "recorded and is 0.2 now"),
    "eps": (put("eps", 0.1, "norm1"), "norm1.eps was 1e-05 when .* is 0.1 "),
    "slope": (put("slope", 0.5), "slope was 0.1 when"),
    "none": (put("factor", 2), "factor was None when it .* and is 2 now"),
    "tuple": (put("pair", (0.5, 2)), r"pair\[0\] was 1.0 when"),
    "dict": (put_in(lambda m: m.scaling, "default", 2.0),
             r"scaling\['default'\] was 1.0 when it .* and is 2.0 now"),
    "key": (lambda m: (m.scaling.clear(), m.scaling.update(default=0.5)),
            r"scaling\['default'\] was 1.0"),
    "list": (put_in(lambda m: m.widths, 0, 0.5), r"widths\[0\] was 1.0"),
    "inner list": (put_in(lambda m: m.widths[1], 0, 0.5),
                   r"widths\[1\]\[0\] was 1.0"),
    "set": (forget_name, r"names was frozenset\(\{'a'\}\) when"),
    "default": (lambda m: (m.rates.pop("a"), m.rates.update(b=0.5)),
                r"rates\['a'\] was 1.0 when .* is not there now"),
    "function": (put("activation", F.relu),
                 "activation was gelu when it was recorded and is relu now"),
    "tensor": (lambda m: setattr(m, "mask", torch.full((), 0.5)),
               "mask is another Tensor than when it was recorded"),
    "object": (lambda m: setattr(m.config, "scale", 0.5),
               "config.scale was 1.0 when it was recorded and is 0.5 now"),
    "dict of object": (put_in(lambda m: m.config.rope, "theta", 0.5),
                       r"config.rope\['theta'\] was 1.0"),
    "list of object": (put_in(lambda m: m.config.steps, 0, 0.5),
                       r"config.steps\[0\] was 1.0"),
    "new": (put("late", 0.5), "late was not there when it was recorded and "
            "is 0.5 now"),
    "class": (by_class, "Reads.by_class was 1.0 when"),
    "forward": (lambda m: setattr(m.mlp, "forward", m.mlp.drop.forward),
                "mlp.forward was not there"),
    "integer": (put("slope", False), "slope was 0.1 when .* is False"),
}


@pytest.fixture
def of_class():
    yield
    Reads.by_class = 1.0


@GRAIN
@pytest.mark.parametrize("what", CHANGES)
def test_what_is_changed_after_the_recording_is_eager(pair, of_class, grain,
                                                      what):
    change, said = CHANGES[what]

    def train(run):
        Reads.by_class = 1.0
        run.steps([2, 2, 2])
        change(run.model.layers[1])
        run.steps([2, 2])

    run = pair(train, grain=grain, make=Reads, eager=["attributes"])
    layers = LAYERS if what == "class" else 1
    stats = run.attached.stats()
    assert stats["eager_calls"]["attributes"] == 4 * (
        layers if grain == "layer" else 1)
    assert re.search(said, run.attached.explain()), run.attached.explain()


@GRAIN
@pytest.mark.parametrize("name", ["slope", "config"])
def test_what_changes_between_two_microbatches_is_seen(pair, grain, name):
    def train(run):
        run.steps([4, 4])
        run.zero()
        for m in range(4):
            for layer in run.model.layers:
                if name == "slope":
                    layer.slope = 0.5 if m == 2 else 0.1
                else:
                    layer.config.scale = 0.5 if m == 2 else 1.0
            run.loss().backward()
        run.optimizer.step()

    run = pair(train, grain=grain, make=Reads, eager=["attributes"])
    assert run.attached.stats()["eager_calls"]["attributes"] == \
        (LAYERS if grain == "layer" else 1)


@GRAIN
def test_what_is_put_back_is_replayed_and_nothing_recorded_anew(pair, grain):
    """As a submodule that goes to eval() and back.  The first time shows that
    what goes into the next layer comes from elsewhere at times."""
    recordings = []

    def train(run):
        run.steps([2, 2, 2])
        for _ in range(3):
            run.model.layers[1].mlp.drop.eval()
            run.steps([2])
            run.model.train()
            run.steps([2])
            if run.attached is not None:
                recordings.append(run.attached.stats()["recordings"])

    run = pair(train, grain=grain, make=Reads, eager=["attributes"])
    assert len(recordings) == 3 and len(set(recordings)) == 1
    assert run.attached.stats()["eager_calls"]["attributes"] == 6


@GRAIN
def test_what_is_written_again_as_it_was_is_replayed(pair, grain):
    """Other objects of equal values, in containers of their own too."""
    def train(run):
        for i in range(5):
            for layer in run.model.layers:
                layer.slope = float("0.1")
                layer.scaling = {"default": float("1.0")}
                layer.widths[1] = [float("1.0")]
                layer.config.scale = float("1.0")
            run.step(2)

    pair(train, grain=grain, make=Reads)


@GRAIN
def test_evaluation_between_steps_records_nothing_anew(pair, grain):
    def train(run):
        for _ in range(4):
            run.step(2)
            run.model.eval()
            with torch.no_grad():
                run.loss()
            run.model.train()

    run = pair(train, grain=grain, make=Reads, eager=["forward_only"])
    once = pair(lambda r: r.steps([2, 2, 2, 2]), grain=grain, make=Reads)
    assert run.attached.stats()["recordings"] == \
        once.attached.stats()["recordings"]


def test_a_rate_that_is_another_in_each_step_is_said_once(pair, caplog):
    def train(run):
        for i in range(6):
            run.model.layers[1].mlp.drop.p = 0.1 + 0.01 * i
            run.step(1)

    pair(train, make=Reads, eager=["attributes"])
    said = [r.getMessage() for r in caplog.records if "drop.p" in r.message]
    assert len(said) == 1 and "put it back, or detach and attach" in said[0]


@GRAIN
@pytest.mark.parametrize("now", [True, 1, -0.0])
def test_an_equal_value_of_another_type_or_sign_is_another(pair, grain, now):
    """1.0 == True, and 0.0 == -0.0."""
    then = 0.0 if now == 0 else 1.0

    class Adds(Block):
        def __init__(self) -> None:
            super().__init__()
            self.number = then

        def forward(self, x):
            return super().forward(x) + self.number

    def train(run):
        run.steps([1, 1, 1])
        for layer in run.model.layers:
            layer.number = now
        run.steps([1])

    pair(train, grain=grain, make=Adds, eager=["attributes"])


class Meters(Block):
    """Counts in an object of its own, which is a schedule."""

    def __init__(self) -> None:
        super().__init__()
        self.meter = types.SimpleNamespace(calls=0)

    def forward(self, x):
        self.meter.calls += 1
        return super().forward(x / self.meter.calls)


class CountsInClass(Block):
    calls = 0

    def forward(self, x):
        CountsInClass.calls += 1
        return super().forward(x / CountsInClass.calls)


@GRAIN
@pytest.mark.parametrize("make, name", [(Meters, "meter.calls"),
                                        (CountsInClass,
                                         "CountsInClass.calls")])
def test_what_a_layer_counts_in_an_object_or_class(pair, grain, make, name):
    def train(run):
        CountsInClass.calls = 0
        run.steps([2, 2, 2])

    pair(train, grain=grain, make=make, replays=False,
         refused=f"it changes an attribute, (layers.0.)?{name}, which")


class CountsEvaluations(Block):
    calls = 0

    def forward(self, x):
        self.calls += not self.training
        return super().forward(x / (1 + self.calls))


@GRAIN
def test_what_an_evaluation_counts_is_named(pair, grain):
    """It is another each time: nothing is recorded anew for it."""
    def train(run):
        run.steps([1, 1, 1])
        for _ in range(3):
            run.model.eval()
            run.loss()
            run.model.train()
            run.steps([1])

    run = pair(train, grain=grain, make=CountsEvaluations,
               eager=["attributes", "forward_only"])
    assert "calls was 0 when it was recorded and is 1 now" in \
        run.attached.explain()


class Renews(Block):
    """Puts an object of which nothing is known into an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.handle = object()

    def forward(self, x):
        self.handle = object()
        return super().forward(x)


@GRAIN
def test_an_object_that_each_call_renews_is_left_out(pair, grain):
    def train(run):
        for _ in range(4):
            run.step(2)
            run.model.eval()
            run.loss()
            run.model.train()

    pair(train, grain=grain, make=Renews, eager=["forward_only"])


def test_a_config_that_all_layers_share_is_looked_at_once(pair):
    """And what saving a model writes into it is nobody's."""
    def before(run):
        run.config = types.SimpleNamespace(
            scale=1.0, rope={"theta": 1.0}, steps=[1.0], architectures=None)
        for layer in run.model.layers:
            layer.config = run.config

    def train(run):
        run.steps([2, 2, 2])
        run.config.architectures = ["Model"]
        run.config.transformers_version = "1"
        run.steps([2])
        run.config.scale = 0.5
        run.steps([2])
        run.config.scale = 1.0
        run.steps([2])

    run = pair(train, make=Reads, before=before, eager=["attributes"])
    assert run.attached.stats()["eager_calls"]["attributes"] == 2 * LAYERS


class LowRank(nn.Module):
    """As an adapter around a linear layer is."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(WIDTH, 4, bias=False)
        self.b = nn.Linear(4, WIDTH, bias=False)
        self.scaling = {"default": 2.0}
        self.active_adapters = ["default"]

    def forward(self, x):
        for name in self.active_adapters:
            x = x + self.b(self.a(x)) * self.scaling[name]
        return x


class Adapted(Block):
    def __init__(self) -> None:
        super().__init__()
        self.adapter = LowRank()

    def forward(self, x):
        return super().forward(self.adapter(x))


@GRAIN
@pytest.mark.parametrize("change, said", [
    (lambda a: a.scaling.update(default=0.5),
     "adapter.scaling['default'] was 2.0 when it was recorded and is 0.5"),
    (lambda a: a.active_adapters.clear(),
     "adapter.active_adapters[0] was 'default' when it was recorded and is "
     "not there")])
def test_adapters_that_are_scaled_or_turned_off(pair, grain, change, said):
    def train(run):
        run.steps([2, 2, 2])
        for layer in run.model.layers:
            change(layer.adapter)
        run.steps([2], set_to_none=False)

    run = pair(train, grain=grain, make=Adapted, eager=["attributes"])
    assert said in run.attached.explain()


class Tabled(Block):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.ones(WIDTH)
        if DEVICE == "cuda":
            self.table = self.table.cuda()

    def forward(self, x):
        return super().forward(x * self.table)


@GRAIN
def test_a_table_that_is_made_again_is_replayed_until_it_is_written(pair,
                                                                    grain):
    """Another tensor of the same bits; 0.0 and -0.0 are not."""
    def train(run):
        run.steps([2, 2, 2])
        for layer in run.model.layers:
            layer.table = layer.table.clone()
        run.steps([2])
        for layer in run.model.layers:
            layer.table[0] = 0.0
        run.steps([2])
        for layer in run.model.layers:
            layer.table[0] = 1.0
        run.steps([2])
        for layer in run.model.layers:
            layer.table = layer.table.neg().neg_()
        run.steps([2])

    run = pair(train, grain=grain, make=Tabled, eager=["attributes"])
    assert run.attached.stats()["eager_calls"]["attributes"] == 2 * (
        LAYERS if grain == "layer" else 1)
    assert "table is another Tensor" in run.attached.explain()


def test_a_zero_of_another_sign_is_another_table(pair):
    def before(run):
        for layer in run.model.layers:
            layer.table *= 0.0

    def train(run):
        run.steps([1, 1, 1])
        for layer in run.model.layers:
            layer.table = -layer.table
        run.steps([1])

    pair(train, make=Tabled, before=before, eager=["attributes"])


def scaling(number: float):
    """A class of a name that others have, too."""
    class Scales(nn.Module):
        rate = number

        def forward(self, x):
            return x * self.rate

    return Scales


class Twins(Block):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = scaling(1.0)(), scaling(2.0)()

    def forward(self, x):
        return self.other(self.one(super().forward(x)))


@GRAIN
@pytest.mark.parametrize("name", ["one", "other"])
def test_classes_of_one_name_are_told_apart(pair, grain, name):
    def train(run):
        run.steps([1, 1, 1])
        for layer in run.model.layers:
            type(getattr(layer, name)).rate = 0.5
        run.steps([1])

    run = pair(train, grain=grain, make=Twins, eager=["attributes"])
    assert "rate was " in run.attached.explain()


@dataclasses.dataclass(frozen=True)
class Frozen:
    """Forbids to set what its own methods change."""

    calls: int = 0

    def count(self) -> int:
        vars(self)["calls"] += 1
        return self.calls


class CountsInFrozen(Block):
    def __init__(self) -> None:
        super().__init__()
        self.meter = Frozen()

    def forward(self, x):
        return super().forward(x / self.meter.count())


@GRAIN
def test_an_object_that_forbids_to_be_set_is_put_back(pair, grain):
    pair(lambda r: r.steps([2, 2, 2]), grain=grain, make=CountsInFrozen,
         replays=False, refused="it changes an attribute, (layers.0.)?meter.c")
