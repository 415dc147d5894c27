"""Hooks on Megatron's layers, which it goes past where a layer has graphs.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import pytest

pytest.importorskip("megatron.core",
                    reason="megatron-core is not installed")

import training  # noqa: E402
from torch.nn.modules import module as of_all  # noqa: E402
from training import COUNTS, Training, compare, differing  # noqa: E402

MOST = "attn,moe_router,moe_preprocess"
SCOPES = [("dense", scope) for scope in ("attn", "mlp", "attn,mlp", "")] + [
    ("moe", MOST), ("padded", "")]


pytestmark = pytest.mark.usefixtures("world")


def layers_of(each) -> list:
    return [*each.core.decoder.layers]


def put(layer, calls) -> list:
    """One of each kind, which change what they are called with."""
    def before(module, args, kwargs):
        calls.append("before")
        return args, {**kwargs,
                      "hidden_states": kwargs["hidden_states"] * 0.75}

    def after(module, args, kwargs, out):
        calls.append(("after", *sorted(k for k, v in kwargs.items()
                                       if v is not None)))
        return out[0] * 0.5, *out[1:]

    def before_back(module, grads):
        calls.append("before back")
        return grads[0] * 2, *grads[1:]

    def back(module, inputs, outputs):
        calls.append(("back", len(inputs)))

    return [layer.register_forward_pre_hook(before, with_kwargs=True),
            layer.register_forward_hook(after, with_kwargs=True,
                                        always_call=True),
            layer.register_full_backward_pre_hook(before_back),
            layer.register_full_backward_hook(back)]


def run(kind, scope, train, **how):
    """Trains both ways; what was called, of each."""
    found, trainings = [], [Training(kind, None), Training(kind, scope, **how)]
    for each in trainings:
        training.seed()
        found.append(train(each))
    stats = trainings[1].end()
    assert differing(*[each.state() for each in trainings]) == []
    assert found[0] == found[1] and found[0]
    assert stats["refused"] == {}
    return stats


def count(kind, scope, **how) -> int:
    stats = compare(lambda each: each.steps(COUNTS * 3), kind, scope,
                    **how).stats
    return stats["replays"]


@pytest.mark.parametrize("kind, scope", SCOPES)
def test_hooks_come_and_go(kind, scope):
    def train(each):
        calls: list = []
        each.steps(COUNTS)
        hooks = [h for layer in layers_of(each) for h in put(layer, calls)]
        each.steps(COUNTS)
        for hook in hooks:
            hook.remove()
        each.steps(COUNTS)
        return calls

    assert run(kind, scope, train)["replays"] == count(kind, scope)


@pytest.mark.parametrize("kind, scope", SCOPES)
def test_hooks_are_there_before_the_attach(kind, scope):
    def train(each):
        calls: list = []
        graphs = each.attached is not None
        if graphs:
            each.end()
        for layer in layers_of(each):
            put(layer, calls)
        if graphs:
            each.attach(scope)
        each.steps(COUNTS * 3)
        return calls

    assert run(kind, scope, train)["replays"] == count(kind, scope)


@pytest.mark.parametrize("kind, scope", [("dense", "attn"), ("dense", ""),
                                         ("moe", MOST)])
def test_hooks_of_all_modules(kind, scope):
    def train(each):
        calls: list = []
        each.steps(COUNTS)
        hooks = [of_all.register_module_forward_hook(
            lambda module, *_: calls.append(type(module).__name__))]
        each.steps([2])
        for hook in hooks:
            hook.remove()
        each.steps(COUNTS)
        return calls

    run(kind, scope, train)


@pytest.mark.parametrize("scope", [MOST, "attn,moe_router"])
def test_hooks_of_what_a_graph_and_the_rest_would_call(scope, caplog):
    def train(each):
        calls: list = []
        each.steps(COUNTS)
        hooks = [layer.mlp.register_forward_pre_hook(
            lambda module, args: calls.append(1) or (args[0] * 0.5,))
            for layer in layers_of(each)]
        each.steps(COUNTS)
        for hook in hooks:
            hook.remove()
        each.steps(COUNTS)
        return calls

    run("moe", scope, train)
    assert caplog.text.count("leave moe_router out of the scope") == 2


@pytest.mark.parametrize("scope", ["attn", ""])
def test_another_forward_of_a_layer(scope, caplog):
    def train(each):
        calls: list = []

        def changed(forward):
            def call(*args, **kwargs):
                calls.append(1)
                out = forward(*args, **kwargs)
                return out[0] * 0.5, *out[1:]

            return call

        each.steps(COUNTS)
        for layer in layers_of(each):
            layer.forward = changed(layer.forward)
        each.steps(COUNTS)
        for layer in layers_of(each):
            del layer.forward
        each.steps(COUNTS)
        return calls

    run("dense", scope, train)
    assert caplog.text.count("its forward is another than that of") == 2


def test_an_exception_in_a_hook():
    class Stops(Exception):
        pass

    def train(each):
        calls: list = []
        each.steps(COUNTS)
        layer = layers_of(each)[0]

        def fails(*_):
            calls.append(1)
            raise Stops

        with layer.register_forward_pre_hook(fails):
            with pytest.raises(Stops):
                each.steps([2])
        each.optimizer.zero_grad()
        each.steps(COUNTS)
        return calls

    run("dense", "attn", train)


def test_hooks_that_come_by_a_chunk():
    def train(each):
        calls: list = []
        each.steps(COUNTS)
        hook = each.core.decoder.register_forward_hook(
            lambda *_: calls.append(1))
        each.steps(COUNTS)
        hook.remove()
        return calls

    stats = run("dense", "", train, attach={"granularity": "chunk"})
    assert "hooks" not in stats["eager_calls"]


def test_hooks_within_a_graph_are_said_while_they_are_there_and_later(caplog):
    def train(each):
        calls: list = []
        each.steps(COUNTS)
        hook = each.core.decoder.layers[1].mlp.register_forward_pre_hook(
            lambda module, args: calls.append(1))
        each.steps([2])
        hook.remove()
        each.steps(COUNTS)
        explained.append(each.attached and each.attached.explain())
        return calls

    explained: list = []
    run("dense", "", train)
    said = "runs eagerly: decoder.layers.1: mlp has hooks, which a replay " \
        "would not call; without hooks it has its graphs again"
    assert explained[1].count(said) == 1 and caplog.text.count(said) == 1
    assert "from now on" not in caplog.text
