"""Gradients of which a weight has several in one backward, or for which
somebody waits, where DistributedDataParallel adds them to `main_grad`.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import pytest

pytest.importorskip("megatron.core",
                    reason="megatron-core is not installed")

import training  # noqa: E402
from models import torch  # noqa: E402
from training import COUNTS, Training, compare, differing, wrapped  # noqa: E402

pytestmark = pytest.mark.usefixtures("world")

ROUTED = "attn,moe_router,moe_preprocess"
SCOPES = [("dense", ""), ("dense", "attn"), ("moe", ROUTED)]
CHUNK = dict(attach=dict(granularity="chunk"))


def step(each, backwards) -> None:
    """Of a training; each backward is of the losses of that function."""
    model = each.chunks[0]
    model.zero_grad_buffer()
    for loss in backwards(each):
        loss.backward()
        each.losses.append(loss.detach().clone())
    model.finish_grad_sync()
    for p in model.parameters():
        p.grad = p.main_grad.to(p.dtype)
    each.optimizer.step()
    each.optimizer.zero_grad()


def loss_of(each):
    return each.chunks[0](**next(each.data[0])).float().mean()


def single(each):
    yield loss_of(each)
    yield loss_of(each)


def pairs(each):
    """Two forwards of the model in one loss, as of what is preferred to
    something else."""
    for _ in range(2):
        yield loss_of(each) + 0.5 * loss_of(each)


def summed(each):
    yield loss_of(each)
    yield sum(loss_of(each) for _ in range(3))


def penalized(each):
    for loss in single(each):
        layer = each.core.decoder.layers[0]
        yield loss + 1e-3 * sum(p.square().sum() for p in layer.parameters())


def steps(*kinds):
    def train(each):
        for backwards in kinds:
            step(each, backwards)

    return train


@pytest.mark.parametrize("backwards", [pairs, summed, penalized])
@pytest.mark.parametrize("kind, scope", SCOPES)
def test_several_gradients_are_summed_before_they_are_added(
        kind, scope, backwards):
    two = compare(steps(*[backwards] * 5), kind, scope, wrap=wrapped())
    assert "elsewhere" not in two.explained


RECOMPUTED = pytest.mark.parametrize("kind, scope, modules", [
    ("dense", "", ["mlp"]), ("dense", "attn,mlp", ["mlp"]),
    ("dense", "", ["core_attn", "mlp"]), ("mla", "", ["mla_up_proj"]),
    ("mla", "attn", ["mla_up_proj", "core_attn"])])


def recomputing(modules) -> dict:
    return dict(recompute_granularity="selective", recompute_modules=modules)


@RECOMPUTED
def test_what_is_computed_again_is_added_call_by_call(kind, scope, modules):
    """Megatron's checkpoints have a backward within the backward, which a
    scope's graphs do not have."""
    compare(steps(*[pairs] * 5), kind, scope, wrap=wrapped(),
            **recomputing(modules))


@RECOMPUTED
def test_the_same_where_it_comes_later(kind, scope, modules):
    one, two = [Training(kind, each, wrapped(), **recomputing(modules))
                for each in (None, scope)]
    for each in one, two:
        training.seed()
        steps(*[single] * 4, *[pairs] * 3)(each)
    assert two.end()["replays"] > 0
    assert differing(one.state(), two.state()) == []


@pytest.mark.parametrize("backwards", [pairs, penalized])
def test_of_a_chunk(backwards):
    compare(steps(*[backwards] * 5), "dense", "", wrap=wrapped(), **CHUNK)


def both(train, scope="", before=lambda each: None):
    """Trains without graphs and with; what came of it, and the other."""
    found = []
    one, two = [Training("dense", None, wrapped()) for _ in range(2)]
    for each in one, two:
        training.seed()
        before(each)
        if each is two:
            each.attach(scope)
        found.append(train(each))
    two.stats = two.end()
    assert found[0] == found[1]
    return one, two


@pytest.mark.parametrize("begins", [[single] * 4, [summed, single, single]])
def test_several_that_come_later(begins):
    one, two = both(steps(*begins, *[pairs] * 3))
    assert differing(one.state(), two.state()) == []
    assert two.stats["refused"].keys() == ({
        "decoder.layers.0", "decoder.layers.1"} if single is begins[0]
        else set()), two.stats


def test_a_later_penalty_is_said():
    _, two = both(steps(*[single] * 4, penalized))
    assert [line.partition(":")[0] for line in two.explained.splitlines()
            if "a gradient from elsewhere" in line] == ["decoder.layers.0"]


def test_gradients_of_inputs_alone_are_added_nowhere():
    def alone(each):
        model, layer = each.chunks[0], each.core.decoder.layers[0]
        seen = []
        hook = layer.register_forward_pre_hook(
            lambda module, args, kwargs: seen.append(kwargs["hidden_states"]),
            with_kwargs=True)
        loss = model(**next(each.data[0])).float().mean()
        hook.remove()
        each.losses += torch.autograd.grad(loss, seen)
        yield from single(each)

    one, two = both(steps(*[single] * 3, *[alone] * 3))
    assert differing(one.state(), two.state()) == []
    assert two.stats["eager_calls"]["partial_backward"] > 0, two.stats
    assert two.stats["refused"] == {}, two.stats
    assert "asked for some gradients alone" in two.explained


WAITS = {
    "halves": lambda p, seen: p.register_hook(lambda g: g * 0.5),
    "looks": lambda p, seen: p.register_post_accumulate_grad_hook(
        lambda p: seen.append(float(p.grad.norm()))),
}


@pytest.mark.parametrize("scope", ["", "attn"])
@pytest.mark.parametrize("begins", [0, 3])
@pytest.mark.parametrize("waits", [*WAITS])
def test_who_waits_for_a_gradient_has_it(waits, begins, scope):
    seen: list = []
    hooks: list = []

    def put(each):
        some = [*each.core.decoder.layers[0].parameters()][:3]
        hooks.extend(WAITS[waits](p, seen) for p in some)

    def train(each):
        for i in range(8):
            if i == begins > 0:
                put(each)
            if i == 6:
                for hook in hooks:
                    hook.remove()
                hooks.clear()
            step(each, single)
        found = sorted(seen)
        seen.clear()
        return found

    one, two = both(train, scope, (lambda each: None) if begins else put)
    assert differing(one.state(), two.state()) == []
    assert two.stats["replays"] > 0 and two.stats["refused"] == {}


# ---- autograd does not come by parameters whose gradients a graph adds ----

OVERLAP = pytest.mark.parametrize("overlap", [False, True])


def wrap_of(overlap: bool):
    return wrapped(overlap_grad_reduce=overlap)


def node_of(p):
    return p.expand_as(p).grad_fn.next_functions[0][0]


def by_both(train, overlap: bool, before=lambda each: None):
    """As both(), with what the hooks of DistributedDataParallel say to groups
    of gradients."""
    found = []
    one, two = [Training("dense", None, wrap_of(overlap)) for _ in range(2)]
    for each in one, two:
        training.seed()
        names = {p: n for n, p in each.core.named_parameters()}
        each.ready = []
        for group in each.chunks[0].bucket_groups:
            def note(p, *more, group=group, each=each, names=names):
                each.ready.append(names[p])
                return type(group).register_grad_ready(group, p, *more)

            group.register_grad_ready = note
        before(each)
        if each is two:
            each.attach("")
        found.append(train(each))
    two.stats = two.end()
    assert found[0] == found[1]
    assert differing(one.state(), two.state()) == []
    assert sorted(one.ready) == sorted(two.ready)
    assert bool(one.ready) is overlap
    return two


def edges(each) -> list:
    """Of a layer that is called now, to parameters of its own."""
    layer = each.core.decoder.layers[0]
    given = torch.randn(training.LENGTH, training.BATCH, training.WIDTH,
                        requires_grad=True, device=training.DEVICE)
    out, _ = layer(given, attention_mask=None,
                   rotary_pos_emb=each.core.rotary_pos_emb(training.LENGTH))
    own = set(layer.parameters())
    return [node.variable for node, _ in out.grad_fn.next_functions
            if getattr(node, "variable", None) in own]


@OVERLAP
def test_autograd_leaves_them_alone(overlap):
    def train(each):
        steps(*[single] * 6)(each)
        if each.attached is not None:
            assert edges(each) == []

    two = by_both(train, overlap)
    assert two.stats["replays"] > 0 and two.stats["refused"] == {}
    assert "autograd adds up" not in two.explained.partition("lm_head")[0]


@OVERLAP
def test_several_that_come_later_are_summed(overlap):
    by_both(steps(*[single] * 4, *[pairs] * 3), overlap)


@OVERLAP
@pytest.mark.parametrize("before", [False, True])
def test_who_waits_at_its_node_is_called(overlap, before):
    seen: list = []

    def put(each):
        for p in [*each.core.decoder.layers[0].parameters()][:2]:
            node_of(p).register_hook(lambda *_: seen.append(1))

    def train(each):
        for i in range(6):
            if i == 3 and not before:
                put(each)
            step(each, single)
        found = len(seen)
        seen.clear()
        return found

    two = by_both(train, overlap, put if before else lambda each: None)
    assert two.stats["replays"] > 0


def asks(each, which: int):
    model = each.chunks[0]
    some = [*each.core.decoder.layers[0].parameters()][which:which + 2]
    loss = model(**next(each.data[0])).float().mean()
    each.losses += torch.autograd.grad(loss, some)
    yield from single(each)


def goes_back_to(each, which: int):
    model = each.chunks[0]
    some = [*each.core.decoder.layers[0].parameters()][which:which + 2]
    loss = model(**next(each.data[0])).float().mean()
    with model.no_sync():  # which is for passes that are not the last
        loss.backward(inputs=some)
    yield from single(each)


@OVERLAP
@pytest.mark.parametrize("which", [0, 1, 3])
@pytest.mark.parametrize("how", [asks, goes_back_to])
def test_a_pass_that_is_asked_for_some(overlap, how, which):
    def some(each):
        yield from how(each, which)

    two = by_both(steps(*[single] * 3, *[some] * 2, *[single] * 2), overlap)
    assert two.stats["refused"] == {}, two.stats
