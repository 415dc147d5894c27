"""Layers that wait for the device, as those with experts do: what of them has
graphs.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import graphhooks
import pytest
import torch.utils.checkpoint
from models import (COUNTS, LAYERS, WIDTH, Attention, Block, F, Mlp, Model,
                    nn, same, torch)

from graphhooks import Error

MANY = [*COUNTS, 2, 2]  # microbatches of steps, as attaches anew take some


class Experts(nn.Module):
    """As transformers has them, one by one: the host asks who has tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, WIDTH, WIDTH) / 8)

    def forward(self, x, weight, index):
        result = torch.zeros_like(x)
        for expert in range(len(self.w)):
            at = (index == expert).nonzero()[:, 0]
            result = result.index_add(
                0, at, x[at] @ self.w[expert] * weight[at])
        return result


class Router(nn.Linear):
    def __init__(self) -> None:
        super().__init__(WIDTH, 4)

    def forward(self, x):
        return tuple(super().forward(x).softmax(-1).max(-1, keepdim=True))


class Mixture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = Router()
        self.experts = Experts()
        self.shared_experts = Mlp()

    def forward(self, x):
        flat = x.reshape(-1, WIDTH)
        weight, index = self.gate(flat)
        return (self.shared_experts(flat) + self.experts(
            flat, weight, index[:, 0])).view_as(x)


class Sparse(Block):
    def __init__(self) -> None:
        super().__init__()
        self.mlp = Mixture()


class Mamba(nn.Module):
    """No attention, under another name."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.mamba = Attention()
        self.feed_forward = Mixture()

    def forward(self, x):
        return x + self.feed_forward(self.mamba(self.norm(x)))


PIECES = {Sparse: ["attn", "mlp.gate", "mlp.shared_experts"],
          Mamba: ["mamba", "feed_forward.gate",
                  "feed_forward.shared_experts"]}


def pieces_of(make, layers=range(LAYERS)):
    return [f"layers.{i}.{p}" for i in layers for p in PIECES[make]]


def names(run):
    return [s.name for s in run.attached.segments]


def count(run, eager=("refused",), **more):
    """Of a run that is to have graphs at last."""
    stats = run.attached.stats()
    assert stats["refused"] == {} and stats["replays"] > 0
    assert set(stats["eager_calls"]) <= {"warmup", "gradients_moved",
                                         "verify", *eager}
    return stats


@pytest.mark.parametrize("make", PIECES)
@pytest.mark.parametrize("grain", ["layer", "chunk"])
def test_the_pieces_of_layers_have_graphs(pair, grain, make, caplog):
    run = pair(lambda r: r.steps(MANY), grain=grain, make=make, judge=False)
    assert names(run) == pieces_of(make)
    count(run)
    said = f"as it waits for the device, graphs have " \
        f"{', '.join(PIECES[make])} alone, and the rest runs eagerly"
    assert f"layers.0 and {LAYERS - 1} more: {said}\n" \
        in run.attached.explain()
    text = caplog.text
    assert f"3 layers (layers.0 to layers.2): {said}: " in text
    assert "not permitted when stream is capturing (at " in text
    assert "from now on" not in text


def test_a_part_that_waits_has_pieces_itself(pair):
    run = pair(lambda r: r.steps(MANY), grain="part", make=Sparse,
               judge=False)
    assert names(run) == pieces_of(Sparse)
    count(run)


def test_a_scope_holds_for_pieces(pair):
    run = pair(lambda r: r.steps(MANY), grain="part", scope="mlp",
               make=Sparse, judge=False)
    assert names(run) == [n for n in pieces_of(Sparse) if "mlp" in n]
    count(run)


def test_pieces_are_measured_by_their_class(pair):
    run = pair(lambda r: r.steps([2] * 14), grain="layer", make=Sparse,
               scope="auto", judge=False)
    assert {s.name for s in run.attached.measured.scopes} == {
        "Attention", "Router", "Mlp"}


def test_other_layers_stay_as_they_are(pair):
    class Some(Model):
        def __init__(self, make) -> None:
            super().__init__(make)
            self.layers[1] = Sparse()

    run = pair(lambda r: r.steps(MANY), grain="layer", model=Some,
               judge=False)
    assert names(run) == ["layers.0", *pieces_of(Sparse, [1]), "layers.2"]
    count(run)


class Hidden(nn.Module):
    """What is in it has names that nobody else gives."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Attention(), Mixture()

    def forward(self, x):
        return x + self.second(self.first(x))


def test_a_layer_of_which_nothing_is_known_stays_eager(pair):
    run = pair(lambda r: r.steps(), grain="layer", make=Hidden,
               replays=False, refused="waits for the device",
               eager=())
    assert run.attached.stats()["renewals"] == 0


@pytest.mark.parametrize("key", [Hidden, "Hidden"])
@pytest.mark.parametrize("paths", ["first", ["first", "second.gate"],
                                   ("second.shared_experts",)])
def test_pieces_are_named_by_class(pair, key, paths):
    run = pair(lambda r: r.steps(MANY), grain="layer", make=Hidden,
               parts={key: paths}, judge=False)
    paths = [paths] if isinstance(paths, str) else paths
    assert names(run) == [f"layers.{i}.{p}" for i in range(LAYERS)
                          for p in paths]
    count(run)


class Sublayer(nn.Module):
    """As T5 has them, in a list."""

    def __init__(self, **inner) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        for name, module in inner.items():
            self.add_module(name, module)

    def forward(self, x):
        inner = [*self.children()][-1]
        return x + inner(self.norm(x))


class Listed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.ModuleList((
            Sublayer(SelfAttention=Attention()),
            Sublayer(EncDecAttention=Attention()),
            Sublayer(DenseReluDense=Mlp()), Sublayer(mlp=Mixture())))

    def forward(self, x):
        for layer in self.layer:
            x = layer(x)
        return x


def test_pieces_may_be_in_lists_of_sublayers(pair):
    """As in Switch Transformers, and in T5 with checkpoints and dropout."""
    run = pair(lambda r: r.steps(MANY), grain="layer", make=Listed,
               judge=False)
    assert names(run) == [f"layers.{i}.layer.{p}" for i in range(LAYERS)
                          for p in ("0.SelfAttention", "1.EncDecAttention",
                                    "2.DenseReluDense", "3.mlp.gate",
                                    "3.mlp.shared_experts")]
    count(run)


def test_a_class_may_be_what_a_layer_holds(pair):
    run = pair(lambda r: r.steps(MANY), grain="layer", make=Sparse,
               parts={Mixture: "shared_experts"}, judge=False)
    assert names(run) == [n for n in pieces_of(Sparse) if "gate" not in n]


def test_a_piece_that_waits_stays_eager_or_has_pieces(pair):
    """Those of a class within another."""
    run = pair(lambda r: r.steps(MANY), grain="layer", make=Hidden,
               parts={Hidden: ["first", "second"]}, judge=False)
    assert names(run) == [f"layers.{i}.{p}" for i in range(LAYERS) for p in
                          ("first", "second.gate", "second.shared_experts")]
    count(run)


@pytest.mark.parametrize("parts, why", [
    ({"Dense": "mlp"}, "parts has 'Dense'; it takes attn, mlp, and classes "
                       "of the model's modules"),
    ({Mlp: "up"}, None),
    ({"Sparse": "mlp.up"}, "Sparse has no module 'mlp.up', which parts has "
                           "of it")])
def test_what_parts_says_of_classes_is_checked(runs, parts, why):
    if why is None:
        runs(grain="layer", make=Sparse, parts=parts)
        return
    with pytest.raises(Error, match=why):
        runs(grain="layer", make=Sparse, parts=parts)


def test_offload_goes_by_the_layers_that_it_knows(pair):
    run = pair(lambda r: r.steps(), grain="layer", make=Sparse, offload=True,
               offload_min_bytes=1, judge=False)
    assert names(run) == [f"layers.{i}" for i in range(LAYERS)]


def test_a_loss_that_is_kept_is_nobody_who_waits(runs):
    """The graphs after an attach anew put gradients in place, too."""
    run = runs(grain="layer", make=Sparse)
    for _ in range(6):
        run.zero()
        loss = run.loss()
        loss.backward()
        run.optimizer.step()
    assert names(run) == pieces_of(Sparse)
    assert "autograd adds up" not in run.attached.explain()


class Late(Attention):
    """Its backward waits, and its forward does not."""

    def forward(self, x):
        return _Waits.apply(super().forward(x))


class _Waits(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        return grad * (1 if grad.sum().item() < 1e9 else 2)


class Backwards(Block):
    def __init__(self) -> None:
        super().__init__()
        self.attn = Late()


def test_a_backward_that_waits_leaves_the_others(pair):
    run = pair(lambda r: r.steps(MANY), grain="layer", make=Backwards,
               judge=False)
    assert names(run) == [f"layers.{i}.{p}" for i in range(LAYERS)
                          for p in ("attn", "mlp")]
    refused = run.attached.stats()["refused"]
    assert {*refused} == {f"layers.{i}.attn" for i in range(LAYERS)}
    assert run.attached.stats()["replays"] > 0


class Checkpointed(Block):
    """As transformers has its layers with gradient checkpointing on: the call
    around the forward is a part of the module."""

    def __init__(self) -> None:
        super().__init__(0.1, 0.1)

    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(super().forward, x,
                                                 use_reentrant=False)


@pytest.mark.parametrize("grain", ["layer", "chunk"])
def test_what_is_checkpointed_and_draws_has_graphs(pair, grain):
    run = pair(lambda r: r.steps(MANY), grain=grain, make=Checkpointed,
               judge=False)
    assert names(run) == [f"layers.{i}.{p}" for i in range(LAYERS)
                          for p in ("attn", "mlp")]
    count(run, eager=("refused", "checkpoint"))
    assert "as checkpointing inside it keeps the state of random numbers, " \
        "graphs have attn, mlp alone" in run.attached.explain()


def gpt_oss():
    """Random weights for all, as its router begins with zeros."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(3)
    model = transformers.GptOssForCausalLM(transformers.GptOssConfig(
        vocab_size=64, hidden_size=32, intermediate_size=32,
        num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        head_dim=8, num_local_experts=4, num_experts_per_tok=2,
        sliding_window=8, pad_token_id=0, experts_implementation="eager"))
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.1)
    return model.cuda().train()


def steps_of(model) -> list:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    numbers = torch.Generator().manual_seed(4)
    found = []
    for _ in range(8):
        tokens = torch.randint(1, 64, (2, 16), generator=numbers).cuda()
        loss = model(tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.detach().clone())
    return found + [p.detach() for p in model.parameters()]


def test_the_attention_of_gpt_oss_has_graphs():
    """It returns its weights without the sink, a slice of a larger tensor."""
    eager = steps_of(gpt_oss())
    model = gpt_oss()
    with graphhooks.attach(model) as attached:
        graphed = steps_of(model)
        stats, said = attached.stats(), attached.explain()
    assert all(map(same, eager, graphed))
    assert "graphs have self_attn, mlp.router alone" in said
    assert stats["replays"] > 0 and not stats["refused"], said
