"""Layers of a chunk with inputs of their own, such as masks.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import weakref

import graphhooks
import pytest
from models import (COUNTS, HAS_GPU, HEADS, LENGTH, WIDTH, Block, F, Model, nn,
                    same, torch)


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x, mask):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, HEADS, c // HEADS).permute(
            2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Layer(nn.Module):
    """As those of Gemma 3, GPT-OSS and ModernBERT."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.attn = Block(), Masked()

    def forward(self, x, mask=None, shift=None):
        x = x + self.attn(x, mask)
        return self.block(x if shift is None else x * shift[0] + shift[1])


class Kinds(Model):
    """Each layer has the mask of its kind, and positions with gradients."""

    kinds = ["near", "far", "near"]
    more = False  # uses positions elsewhere, too

    def __init__(self, make) -> None:
        super().__init__(make)
        self.positions = nn.Parameter(torch.randn(2, LENGTH, WIDTH) / 8)

    def masks(self, x):
        far = torch.ones(LENGTH, LENGTH, dtype=torch.bool,
                         device=x.device).tril()
        return {"near": far.triu(-4).expand(len(x), 1, -1, -1), "far": far}

    def run_layers(self, x):
        masks = self.masks(x)
        shifts = {kind: (1 + self.positions[i], self.positions[i].sin())
                  for i, kind in enumerate(("near", "far"))}
        for layer, kind in zip(self.layers, self.kinds):
            x = layer(x, mask=masks[kind], shift=shifts[kind])
        return x + shifts["far"][1] if self.more else x


class Listed(Kinds):
    """As the blocks of a UNet on its way up: what is left of a tuple."""

    def run_layers(self, x):
        left = tuple(m.clone() for m in (*self.masks(x).values(),
                                         self.masks(x)["far"]))
        for layer in self.layers:
            mask, left = left[-1:], left[:-1]
            x = layer(x, *mask)
        return x


def is_one_chunk(run):
    stats, said = run.attached.stats(), run.attached.explain()
    assert len(run.attached.segments) == 1, said
    assert stats["renewals"] == 0 and stats["refused"] == {}, said
    assert set(stats["eager_calls"]) <= {"warmup", "gradients_moved",
                                         "verify"}, said
    return stats


@pytest.mark.parametrize("in_flight", [1, 2])
@pytest.mark.parametrize("verify", ["auto", "always"])
@pytest.mark.parametrize("model", [Kinds, Listed])
def test_they_are_inputs_of_the_chunk(pair, model, in_flight, verify):
    run = pair(lambda r: r.steps(in_flight=in_flight), grain="chunk",
               model=model, make=Layer, verify=verify)
    is_one_chunk(run)


def test_the_first_pass_shows_them_all(runs):
    """One eager step is enough, as without them."""
    run = runs(grain="chunk", model=Kinds, make=Layer).steps([1] * 10)
    assert is_one_chunk(run)["eager_calls"]["warmup"] == 1


class Elsewhere(Kinds):
    more = True


def test_gradients_of_what_is_used_elsewhere_add_up(pair):
    is_one_chunk(pair(lambda r: r.steps(), grain="chunk", model=Elsewhere,
                      make=Layer))


def test_they_may_be_there_or_not(pair):
    """A batch without padding has no masks, and graphs of its own."""
    class Some(Kinds):
        def run_layers(self, x):
            masks = self.masks(x) if self.padded else dict.fromkeys(
                self.kinds)
            for layer, kind in zip(self.layers, self.kinds):
                x = layer(x, mask=masks[kind])
            return x

    def train(run):
        for padded in (False, False, True, True, False, True, False, True):
            run.model.padded = padded
            run.step(2)

    run = pair(train, grain="chunk", model=Some, make=Layer, eager=("input",))
    assert len(run.attached.segments) == 1
    assert [b["recordings"] > 0 for b in run.attached.stats()["banks"]] == \
        [True, True]


def test_evaluation_has_them_too(pair):
    def train(run):
        for count in COUNTS:
            run.step(count)
            run.model.eval()
            with torch.no_grad():
                run.loss()
                run.loss()
            run.model.train()

    run = pair(train, grain="chunk", model=Kinds, make=Layer, eval=True)
    is_one_chunk(run)
    assert run.attached.stats()["eval"]["replays"] > 0


def test_another_than_recorded_runs_eagerly(pair):
    """The variable has it still, and the layer is given something else."""
    class Other(Kinds):
        other = False

        def run_layers(self, x):
            masks = self.masks(x)
            for i, (layer, kind) in enumerate(zip(self.layers, self.kinds)):
                x = layer(x, mask=masks[kind].logical_not() if self.other
                          and i == 1 else masks[kind])
            return x

    def train(run):
        run.steps(COUNTS[:3])
        run.model.other = True
        run.steps(COUNTS[:2])

    pair(train, grain="chunk", model=Other, make=Layer, eager=None,
         refused="^layers.1 is called otherwise than when it was recorded")


def test_one_that_is_written_on_the_way_is_none(pair):
    class Written(Kinds):
        def run_layers(self, x):
            masks = {kind: mask.clone() for kind, mask in
                     self.masks(x).items()}
            for i, (layer, kind) in enumerate(zip(self.layers, self.kinds)):
                x = layer(x, mask=masks[kind])
                if i == 0:
                    masks["far"][0, 1] = True
            return x

    pair(lambda r: r.steps([1] * 6), grain="chunk", model=Written, make=Layer,
         apart="was changed in place before layers.1 is called")


def test_one_that_is_made_on_the_way_is_none(pair):
    class Made(Kinds):
        def run_layers(self, x):
            masks = self.masks(x)
            for layer in self.layers:
                x = layer(x, mask=masks["near"])
                masks["near"] = masks["near"].clone()
            return x

    pair(lambda r: r.steps(), grain="chunk", model=Made, make=Layer,
         apart="no variable of their caller had by then")


def test_the_dict_of_who_calls_locals_is_left_alone(pair):
    class Keeps(Kinds):
        def run_layers(self, x):
            masks = self.masks(x)
            kept = locals()
            for layer, kind in zip(self.layers, self.kinds):
                x = layer(x, mask=masks[kind])
            assert kept["masks"] is masks
            return x

    pair(lambda r: r.steps(), grain="chunk", model=Keeps, make=Layer,
         apart="no variable of their caller had by then")


def end_of_a_local(run):
    """That of a function around a step, of which pytest makes no other."""
    local = torch.ones(2, device=next(run.model.parameters()).device)
    gone = weakref.ref(local)
    run.step(1)
    local = None  # noqa: F841
    return gone()


def test_no_frame_keeps_what_was_in_its_variables(runs):
    run = runs(grain="chunk", model=Kinds, make=Layer)
    assert [end_of_a_local(run) for _ in range(3)] == [None] * 3


class Shared(Kinds):
    """What they are given is made of a layer's weights."""

    def run_layers(self, x):
        norm = self.layers[0].block.norm1
        shifts = {"near": None, "far": (norm.weight.cos(), norm.bias.exp())}
        for layer, kind in zip(self.layers, self.kinds):
            x = layer(x, shift=shifts[kind])
        return x


def test_they_may_be_made_of_weights_of_the_layers(pair):
    is_one_chunk(pair(lambda r: r.steps(), grain="chunk", model=Shared,
                      make=Layer))


# ---- models of transformers ------------------------------------------------


def gemma3(transformers, sizes):
    return transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(
        **sizes, head_dim=8, sliding_window=8, layer_types=[
            "sliding_attention", "full_attention"] * 2))


def gpt_oss(transformers, sizes):
    return transformers.GptOssForCausalLM(transformers.GptOssConfig(
        **sizes, head_dim=8, num_local_experts=4, num_experts_per_tok=2,
        sliding_window=8))


def modernbert(transformers, sizes):
    del sizes["num_key_value_heads"]
    return transformers.ModernBertForMaskedLM(transformers.ModernBertConfig(
        **sizes, local_attention=8, bos_token_id=1, eos_token_id=2,
        cls_token_id=1, sep_token_id=2, global_attn_every_n_layers=2))


def steps_of(make, padded: bool, **options):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(3)
    model = make(transformers, dict(
        vocab_size=64, hidden_size=32, intermediate_size=32, pad_token_id=0,
        num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2)).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    numbers = torch.Generator().manual_seed(4)
    attached = graphhooks.attach(model, **options) if options else None
    found = []
    for _ in range(8):
        tokens = torch.randint(3, 64, (2, 16), generator=numbers).cuda()
        mask = torch.ones_like(tokens)
        mask[0, 12:] = 1 - padded
        loss = model(tokens, labels=tokens, attention_mask=mask).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.detach().clone())
    return [*found, *(p.detach() for p in model.parameters())], attached


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("make", [gemma3, gpt_oss, modernbert])
def test_models_with_masks_of_layers_are_one_chunk(make, padded):
    eager, _ = steps_of(make, padded)
    graphed, attached = steps_of(make, padded, granularity="chunk")
    with attached:
        said = attached.explain()
    assert all(map(same, eager, graphed))
    if HAS_GPU and make is gpt_oss:  # its experts ask how many tokens they get
        assert "graphs have self_attn, mlp.router alone" in said
    else:
        assert said.startswith("graphs ran 7 of 8 calls; eagerly: warmup 1\n")
