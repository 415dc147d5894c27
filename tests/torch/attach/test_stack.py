"""Which modules are meant, and how the library plans them; needs no GPU.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import pytest
from models import GRAINS, LAYERS, Block, F, Mlp, Model, nn

from graphhooks import Error, Session
from graphhooks.torch.attach import stack
from graphhooks.torch.base.gathered import Gathering

NONE = Gathering(nn.Module(), {})  # of whose parameters none moves


def found(model, layers=None, parts=None):
    return [layer.name for layer in stack.find(model, layers, parts)]


ALL = [f"layers.{i}" for i in range(LAYERS)]


class Two(nn.Module):
    """A stack of its own inside another module, and a shorter one."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Model()
        self.few = nn.ModuleList([Block(), Block()])


@pytest.mark.parametrize("layers, names", [
    (None, ALL),
    ("layers.*", ALL),
    ("layers.1", ["layers.1"]),
    (["layers.0", "layers.2"], ["layers.0", "layers.2"]),
    (("layers.*",), ALL),
    ("*.1", ["layers.1"]),
    ("lay*.?", ALL),
    ("layers.[12]", ["layers.1", "layers.2"]),
    ("layers", ALL),
    (["layers.0", Model().layers[1]], ["layers.0", "layer 1"]),
    ("layers.*.mlp", [f"layers.{i}.mlp" for i in range(LAYERS)])])
def test_layers_are_found(layers, names):
    assert found(Model(), layers) == names


class Stage(nn.Module):
    """Holds its layers by names, as those of timm's RegNet do."""

    def __init__(self, make, count) -> None:
        super().__init__()
        for i in range(count):
            self.add_module(f"b{i + 1}", make())


class Stages(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.s1, self.s2 = Stage(Block, 1), Stage(Block, 3)
        self.s3 = Stage(lambda: nn.Linear(2, 2), 2)
        self.ends = Stage(Block, 2)
        self.ends.head = nn.Linear(2, 2)


def test_layers_of_numbered_names_are_found():
    """Where there is no list, and nothing else beside them."""
    assert found(Stages()) == ["s2.b1", "s2.b2", "s2.b3"]
    model = nn.ModuleDict({"body": Model(), "stages": Stages()})
    assert found(model) == [f"body.{name}" for name in ALL]


def several(make, count=2):
    return nn.Sequential(*(make() for _ in range(count)))


class Ends(nn.Module):
    """Lists that are no stacks: of one module each, and of several classes."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(2, 2) for _ in range(8))
        self.blocks = several(Block, LAYERS)
        self.mixed = nn.Sequential(Block(), nn.Sequential(Mlp()))


class Mixed(nn.Module):
    """Its longest list has layers of two classes, and a list in a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block(), Mlp(), several(Block, 4)])


class Measureless(Block):
    """As what torch.compile makes: to ask whether it is true raises."""

    def __len__(self) -> int:
        raise TypeError("a layer has no length")


@pytest.mark.parametrize("model, names", [
    (several(Measureless), ["0", "1"]),
    (Two(), [f"body.layers.{i}" for i in range(LAYERS)]
     + ["few.0", "few.1"]),
    (nn.ModuleDict({"encoder": Model(), "decoder": Model()}),
     [f"{each}.layers.{i}" for each in ("encoder", "decoder")
      for i in range(LAYERS)]),
    (Ends(), [f"blocks.{i}" for i in range(LAYERS)]),
    (Mixed(), ["layers.0", "layers.1", "layers.2"]),
    (nn.ModuleDict({"layers": nn.ModuleDict({"0": Block(), "1": Block()})}),
     ["layers.0", "layers.1"]),
    (several(Block), ["0", "1"])])
def test_all_stacks_are_meant(model, names):
    assert found(model) == names


def test_a_list_of_modules_is_taken_as_it_is():
    model = Two()
    assert found(model, model.few) == ["few.0", "few.1"]
    assert found(model, [model.few[1], model.body.layers[0]]) == \
        ["few.1", "body.layers.0"]
    assert found(model, [nn.Linear(2, 2)]) == ["layer 0"]


def test_a_star_is_one_component():
    said = ("is called '\\*.qkv', where \\* stands for one component.*"
            "there are embed")
    with pytest.raises(Error, match=said):
        found(Model(), "*.qkv")


def test_a_dot_is_a_dot():
    with pytest.raises(Error, match="no module"):
        found(Model(), "layersx1")


@pytest.mark.parametrize("model, layers, why", [
    (nn.Linear(2, 2), None, "no list of layers, as an nn.ModuleList"),
    (Model(), [], "there is no layer"),
    (Model(), nn.ModuleList(), "there is no layer"),
    (Model(), [F.gelu], "it takes modules, or names by pattern"),
    (Model(), ["layers.0", 3], "layers has 3"),
    (Model(), 3, "layers is 3; it takes modules, or names by pattern"),
    (Model(), "", "no module of the model is called ''"),
    (None, None, "model is None; attach takes a torch.nn.Module"),
    (Model, None, "model is <class .*; attach takes a torch.nn.Module"),
    (Model(), "blocks.*", "no module of the model is called 'blocks")])
def test_what_is_not_found_is_said(model, layers, why):
    with pytest.raises(Error, match=why) as caught:
        found(model, layers)
    assert "\n" not in str(caught.value)


# ---- parts -----------------------------------------------------------------


class Named(nn.Module):
    def __init__(self, attn, mlp) -> None:
        super().__init__()
        for name in (attn, mlp):
            if name:
                setattr(self, name, Mlp())


def layers_of(attn, mlp, parts=None):
    return stack.find(nn.ModuleList([Named(attn, mlp)]), ["0"], parts)


@pytest.mark.parametrize("attn, mlp, kind", [
    ("attn", "mlp", "dense"), ("self_attn", "mlp", "dense"),
    ("self_attention", "ffn", "dense"), ("attention", "feed_forward",
                                         "dense"),
    ("attn", None, "attn_only"), (None, "ff", "mlp_only"),
    (None, None, "mlp_only")])
def test_common_names_of_parts_are_found(attn, mlp, kind):
    layer, = layers_of(attn, mlp)
    assert layer.kind() == kind
    assert layer.parts == {p: n for p, n in (("attn", attn), ("mlp", mlp))
                           if n}


def test_parts_by_names_of_the_callers():
    layer, = layers_of("mixer", "wide", {"attn": "mixer", "mlp": "wide"})
    assert layer.kind() == "dense"
    assert list(layer.modules("attn", "attn")) == ["0.mixer"]
    assert list(layer.modules("mlp", "mlp")) == ["0.wide"]
    assert list(layer.modules("attn", "mlp")) == ["0"]


@pytest.mark.parametrize("parts, why", [
    ({"attn": "mixed"}, "0 has no module 'mixed', which parts calls its"),
    ({"mix": "mixer"}, "parts has 'mix'; it takes attn, mlp, and classes")])
def test_parts_that_are_not_there_are_said(parts, why):
    with pytest.raises(Error, match=why):
        layers_of("mixer", "wide", parts)


# ---- devices ---------------------------------------------------------------


def test_layers_on_the_CPU_are_refused(without_a_gpu):
    with pytest.raises(Error, match="the layers are on cpu; graphs are of a "
                                    "GPU: move the model there"):
        stack.device_of(stack.find(Model(), None, None), NONE)


def test_layers_that_are_nowhere_yet_are_refused(without_a_gpu):
    with pytest.raises(Error, match="the layers are on meta"):
        stack.device_of(stack.find(Model().to("meta"), None, None), NONE)


# ---- the plan --------------------------------------------------------------


@pytest.fixture(scope="module")
def soft():
    import softdevice
    from graphhooks import _library

    return softdevice.beside(_library.load().path)


def plan(soft, model, layers=None, parts=None, **options):
    described = stack.describe(stack.find(model, layers, parts))
    with Session(described, driver=soft, environment={}, **options) as s:
        return s.segments(), s.explain()


@pytest.mark.parametrize("grain, shape", [
    ("layer", [(i, i, "attn", "mlp") for i in range(LAYERS)]),
    ("chunk", [(0, LAYERS - 1, "attn", "mlp")]),
    ("part", [(i, i, p, p) for i in range(LAYERS) for p in ("attn", "mlp")])])
def test_the_plan_of_a_stack(soft, grain, shape):
    segments, text = plan(soft, Model(), **GRAINS[grain])
    assert [(s.first_layer, s.last_layer, s.first_part, s.last_part)
            for s in segments] == shape
    assert all(s.graphed for s in segments)
    assert "layers.0" in text or "layer 0" in text


@pytest.mark.parametrize("layers, count", [
    (None, 2), ("body.layers.*", 1), (["few.*", "body.layers.*"], 2),
    (["body.embed", "body.layers.*", "body.head"], 1)])
def test_each_stack_is_a_chunk(soft, layers, count):
    segments, _ = plan(soft, Two(), layers, granularity="chunk")
    assert [s.graphed for s in segments] == [True] * count


@pytest.mark.parametrize("scope", ["attn", "mlp"])
def test_the_plan_of_one_part(soft, scope):
    segments, _ = plan(soft, Model(), granularity="part", scope=scope)
    for s in segments:
        assert s.graphed == (s.first_part == scope), s


def test_the_plan_of_modules_without_parts(soft):
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stack = nn.ModuleList(nn.Linear(2, 2) for _ in range(4))

    for grain, count in (("layer", 4), ("chunk", 1)):
        segments, _ = plan(soft, Plain(), granularity=grain)
        assert [s.graphed for s in segments] == [True] * count


class FullyShardedDataParallel(nn.Module):
    """FSDP's older wrapper, by its name."""


def test_layers_that_are_sharded_by_the_wrapper_have_no_graphs():
    assert stack.why_unfit(nn.Sequential(nn.Linear(2, 2))) is None
    assert "use fully_shard" in stack.why_unfit(nn.Sequential(
        FullyShardedDataParallel()))
