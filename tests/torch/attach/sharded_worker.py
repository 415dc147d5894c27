"""One of two ranks of test_sharded.py, by gloo; leaves JSON.

    sharded_worker.py CASE,... OUT.json        # with torch.distributed's
                                               # variables in the environment

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "package"),
                str(HERE.parents[2] / "hosts" / "pytorch")]

import softtorch  # noqa: E402
import torch._dynamo  # noqa: E402, F401 - before there is a device

softtorch.install()

import graphhooks  # noqa: E402
import models  # noqa: E402
import torch  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import (CPUOffloadPolicy,  # noqa: E402
                                    MixedPrecisionPolicy, fully_shard)
from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402


class Tied(models.Block):
    """Has a frozen weight, and one of two names."""

    def __init__(self) -> None:
        super().__init__()
        self.same = self.norm1
        self.mlp.up.weight.requires_grad_(False)

    def forward(self, x):
        return super().forward(self.same(x))


def policy(words):
    if "bf16" not in words:
        return {}
    return {"mp_policy": MixedPrecisionPolicy(
        param_dtype=torch.bfloat16, reduce_dtype=torch.float32)}


def sharded(model, words):
    how = {"mesh": init_device_mesh("cpu", (2,)), **policy(words)}
    if "keep" in words:
        how["reshard_after_forward"] = False
    if "host" in words:
        how["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    if "grouped" in words:
        first, *others, last = model.layers
        fully_shard([first, *others], **how)
        fully_shard(last, **how)
        return fully_shard(model, **how)
    if "nested" in words:
        for layer in model.layers:
            fully_shard(layer.mlp, **how)
    for layer in model.layers if "root" not in words else ():
        fully_shard(layer, **how)
    return fully_shard(model, **how)


class Kept(models.Model):
    """Checkpoints its layers."""

    def run_layers(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x


class Twice(models.Model):
    """Calls each layer twice, whose gradients autograd adds up."""

    def run_layers(self, x):
        return super().run_layers(super().run_layers(x))


class Llama(torch.nn.Module):
    """As transformers has it."""

    def __init__(self, keeps: bool) -> None:
        super().__init__()
        import transformers

        self.inner = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=models.WORDS, hidden_size=32, num_hidden_layers=3,
            intermediate_size=64, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64)).train()
        if keeps:
            self.inner.gradient_checkpointing_enable()

    @property
    def layers(self):
        return self.inner.model.layers

    def forward(self, tokens):
        return self.inner(tokens).logits


def model_of(words):
    if "llama" in words:
        return Llama("checkpoint" in words)
    kind = Kept if "checkpoint" in words else \
        Twice if "twice" in words else models.Model
    return kind(
        Tied if "tied" in words else models.Block)


def prepare(words, attach):
    """What is trained, its optimizer, and what is attached."""
    model = model_of(words)
    options = {"lr": 1e-3}
    how = {"granularity": next(g for g in ("chunk", "part", "layer")
                               if g in words or g == "layer")}
    if how["granularity"] == "part":
        how["scope"] = "attn,mlp"
    if "always" in words:
        how["verify"] = "always"
    if "eval" in words:
        how["eval"] = True
    if "zero" in words:
        model = DistributedDataParallel(model, bucket_cap_mb=0.1)
        attached = attach(model, **how)
        return model, ZeroRedundancyOptimizer(
            model.parameters(), torch.optim.AdamW, **options), attached
    attached = attach(model, **how) if "before" in words else None
    model = sharded(model, words)
    if "after" in words:
        attached = attach(model, **how)
    return model, torch.optim.AdamW(model.parameters(), **options), attached


def numbers_of(model) -> list:
    return [getattr(t, "_local_tensor", t).detach().clone()
            for p in model.parameters() for t in (p, p.grad)
            if t is not None]


def evaluate(model, step: int):
    """And what a checkpoint does: saves, and loads now and then."""
    state = model.state_dict()
    if step == 3:
        model.load_state_dict({n: t.clone() for n, t in state.items()})
    model.eval()
    with torch.no_grad():
        found = model(torch.arange(16)[None]).detach().clone()
    model.train()
    return found


def stop_halfway(model) -> None:
    """A forward that ends before the head; the next one begins anew."""
    def stop(*_):
        raise KeyError

    handle = model.head.register_forward_pre_hook(stop)
    try:
        model(torch.arange(16)[None])
    except KeyError:
        pass
    handle.remove()
    model.reset_iter_state()


def step_by_hand(model) -> None:
    with torch.no_grad():
        for p in model.parameters():
            if p.grad is not None:
                p._local_tensor.sub_(p.grad._local_tensor, alpha=0.01)
                p.grad = None


def train(case: str, attach) -> tuple:
    words = case.split()
    torch.manual_seed(7)
    model, optimizer, attached = prepare(words, attach)
    numbers = torch.Generator().manual_seed(torch.distributed.get_rank())
    found = []
    for step in range(6):
        optimizer.zero_grad()
        for last in (False, True):
            if "sync" in words:
                model.set_requires_gradient_sync(last)
            if "apart" in words and step == 4:
                for layer in model.layers:
                    layer.set_unshard_in_backward(False)
            if "freeze" in words and step > 2:
                model.layers[1].norm1.weight.requires_grad_(False)
            if "prefetch" in words and step == 0:
                for one, next_ in zip(model.layers, [*model.layers][1:]):
                    one.set_modules_to_forward_prefetch([next_])
                    next_.set_modules_to_backward_prefetch([one])
            if "stay" in words:
                model.set_reshard_after_backward(last)
            if "evaluate" in words:
                found.append(evaluate(model, step))
            if "stop" in words and step == 3 and last:
                stop_halfway(model)
            tokens = torch.randint(0, models.WORDS, (2, 17),
                                   generator=numbers)
            loss = models.F.cross_entropy(
                model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            found.append(loss.detach().clone())
        if "clip" in words:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        found += numbers_of(model)
        if "hand" in words:
            step_by_hand(model)
        else:
            optimizer.step()
    return found + numbers_of(model), attached


def result_of(case: str) -> dict:
    eager, _ = train(case, lambda *_, **__: None)
    try:
        graphs, attached = train(case, graphhooks.attach)
    except graphhooks.Error as error:
        return {"error": str(error)}
    stats = attached.stats()
    found = dict(
        equal=len(eager) == len(graphs)
        and all(map(models.same, eager, graphs)),
        explain=attached.explain(), replays=stats["replays"],
        eager=stats["eager_calls"], refused=stats["refused"],
        shared=attached.gathering.nbytes(), verify=stats["verify"])
    attached.detach()
    return found


def main() -> None:
    cases, out = sys.argv[1:]
    torch.distributed.init_process_group("gloo")
    results = [result_of(case) for case in cases.split(",")]
    Path(out).write_text(json.dumps(results))
    torch.distributed.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
