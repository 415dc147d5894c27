"""One of the processes of test_schedules.py.

    worker.py FOLDER RANK SIZE CASES [MOST]

Leaves FOLDER/RANK.json, with what each of the cases came to; of so many of them
at most, which are drawn by their name: always the same.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import json
import os
import random
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

import conftest  # noqa: F401 - the device, where there is none

warnings.simplefilter("ignore")

import softtorch  # noqa: E402
import training  # noqa: E402
from graphhooks import Error  # noqa: E402
from graphhooks.exchange import Exchange  # noqa: E402
from late import put_off  # noqa: E402
from megatron.core import dist_checkpointing  # noqa: E402
from megatron.core.distributed import finalize_model_grads  # noqa: E402
from megatron.core.optimizer import (  # noqa: E402
    OptimizerConfig, get_megatron_optimizer)
from megatron.core.transformer.module import Float16Module  # noqa: E402
from megatron.core.transformer.moe import (  # noqa: E402
    token_dispatcher as dispatchers)
from models import torch  # noqa: E402
from packing import (  # noqa: E402
    MOST, Attention, Dealt, DealtAttention, KeepingAttention, Packed,
    Scheduled, build_dealt, build_packed)
from softclock import Clock  # noqa: E402
from training import compare  # noqa: E402

COUNTS = [4, 6, 8, 3]
ROUND = [4, 6, 8, 2]  # as Megatron asks: multiples of the stages
THREES = [3, 6, 8, 3]
UNEVEN = [3, 5, 8, 6]  # a last group of two, or none
PIPELINE = dict(pipeline_model_parallel_size=2)
CHUNKS = dict(**PIPELINE, virtual_pipeline_model_parallel_size=2)
FOUR_EXPERTS = dict(expert_model_parallel_size=4)
FOUR = dict(pipeline_model_parallel_size=4)
EXPERTS = dict(expert_model_parallel_size=2)
TENSOR = dict(tensor_model_parallel_size=2)
OVERLAP = dict(bf16=True, params_dtype=torch.bfloat16,
               pipeline_dtype=torch.bfloat16,
               overlap_moe_expert_parallel_comm=True)
EXCHANGING = "attn,moe_router,moe_preprocess"
PACKED = dict(make=build_packed, data=Packed)


def trained(divided, kind, scope, counts=COUNTS, graphs=2, train=None,
            **how) -> dict:
    """What a training with graphs comes to, if its bits are those of one
    without.  `graphs`: of a layer, one for each direction."""
    training.divide(**divided)
    train = train or (training.with_buffers(counts=counts) if "wrap" in how
                      else lambda t: t.steps(counts))
    two = compare(train, kind, scope, **how)
    layers = two.cores if "granularity" in how.get("attach", ()) else \
        [layer for core in two.cores for layer in (
            *core.decoder.layers, *getattr(getattr(core, "mtp", None),
                                           "layers", ()))]
    return {"passes": graphs * sum(counts) * len(layers),
            "warmup": graphs * sum(two.stats["eager_calls"].values()),
            "first": graphs * counts[0] * len(layers),
            "replays": two.stats["replays"],
            "recordings": two.stats["recordings"], "layers": len(layers),
            "overlap": two.stats.get("overlap"),
            "exchange": two.stats.get("exchange"),
            "moved": [c["offload"]["out_bytes"] for c in two.stats["chunks"]
                      if "offload" in c],
            "schedule": two.stats["schedule"], "explained": two.explained,
            "banks": [len(c["banks"]) for c in two.stats["chunks"]],
            "slots": [c["slots"] for c in two.stats["chunks"]]}


def exchanged(word, divided, kind, scope, counts=COUNTS, order=None,
              room=None, **how) -> dict:
    """Of which Megatron's own calls no dispatcher makes."""
    options = {"exchange": word, "overlap": order, "exchange_tokens": room}
    calls = collections.Counter()
    own = dispatchers.all_to_all

    def count(*args, **kwargs):
        calls["own"] += 1
        return own(*args, **kwargs)

    dispatchers.all_to_all = count
    try:
        found = trained(divided, kind, scope, counts, attach=options, **how)
    finally:
        dispatchers.all_to_all = own
    return {**found, "own": calls["own"]}


def not_reached() -> dict:
    """One rank cannot open what the other has."""
    words = b"PAGEABLE=1 RACES=0 UNWRITTEN=0"
    fails = torch.distributed.get_rank() == 1
    softtorch._soft.call("softcuda_configure", words + (
        b" FAIL=cuIpcOpenMemHandle:1" if fails else b""))
    try:
        return exchanged("auto", EXPERTS, "moe", "attn")
    finally:
        softtorch._soft.call("softcuda_configure", words)


def build_lopsided(kind, **more) -> list:
    """Routers that send all tokens to the first two of four experts."""
    cores = training.build_chunks(kind, **more)
    for layer in cores[0].decoder.layers:
        layer.mlp.router.expert_bias[:2] += 10.0
    return cores


def of_several_sizes(divided=(), kind="dense", scope="attn", group=None,
                     **how) -> dict:
    """Context parallelism that is another in each microbatch."""
    alone, both = alone_and_both()
    return trained(dict(divided), kind, scope, make=build_packed,
                   data=lambda: Packed((alone, both, both)),
                   attach={"group": group or both}, **how)


def beside(step, scope: str):
    """Calls of the whole model, which Megatron's schedule has in parts, and
    steps with modules in eval().  COUNTS are of the others."""
    def train(each):
        layers = each.cores[0].decoder.layers
        for count in COUNTS[:2]:
            step(each, count)
        each.run(2, forward_only=True)
        with torch.no_grad():
            each.run(2, forward_only=True)
        if each.chunks is each.cores:
            output, loss_of = each._forward(each.data[0], each.model)
            loss, _ = loss_of(output)
            loss.backward()
            each.losses.append(loss.detach())
            each.optimizer.step()
            each.optimizer.zero_grad()
        for modules in ([layer.mlp for layer in layers], layers,
                        each.chunks) if scope != "attn" else ():
            for module in modules:
                module.eval()
            step(each, 3)
            if each.attached is not None:
                refuse_twice(each, scope)
            for module in modules:
                module.train()
        for count in COUNTS[2:]:
            step(each, count)

    return train


def refuse_twice(each, scope: str) -> None:
    """Megatron takes it for a model without graphs, and attach() does not."""
    try:
        each.attach(scope)
    except Error as error:
        assert "has graphs already: detach" in str(error)
    else:
        raise AssertionError("it was attached twice")


def in_buffers(each, count: int) -> None:
    training.with_buffers(counts=[count])(each)


def plain(each, count: int) -> None:
    each.steps([count])


class Larger(training.Tokens):
    """Of which rank 0 has four times as many in some microbatches, after those
    of the first step."""

    def __init__(self):
        super().__init__()
        self._count = 0

    def __next__(self):
        given, self._count = super().__next__(), self._count + 1
        if torch.distributed.get_rank() or self._count <= 3 \
                or self._count % 3:
            return given
        return {n: t if t is None else t.repeat(4, 1)
                for n, t in given.items()}


def of_lengths(divided, kind, scope, **how) -> dict:
    return trained(divided, kind, scope, [4, 4, 6, 4],
                   data=training.Lengths,
                   eager=("warmup", "input", "banks"),
                   variable_seq_lengths=True,
                   moe_token_dispatcher_type="alltoall", **how)


def with_larger_ones(**how) -> dict:
    """More tokens than the window has room for, on one rank alone."""
    return exchanged("copy", EXPERTS, "moe", counts=[3, 4, 5, 6],
                     data=Larger, eager=("warmup", "input", "banks"), **how)


def saved(divided, kind, scope, counts=COUNTS, **how) -> dict:
    """Megatron's checkpoint on disk, of a distributed optimizer: saved by all
    ranks, loaded some steps later, and trained from there again."""
    def train(each):
        optimizer = get_megatron_optimizer(
            OptimizerConfig(optimizer="adam", lr=0.01, bf16=True,
                            params_dtype=torch.bfloat16,
                            use_distributed_optimizer=True),
            each.chunks, use_gloo_process_groups=False)

        def step(count):
            for model in each.chunks:
                model.zero_grad_buffer()
            optimizer.zero_grad()
            each.run(count)
            assert optimizer.step()[0]

        def state(loading):
            models = {f"model{i}": model.module.module.sharded_state_dict()
                      for i, model in enumerate(each.chunks)}
            shards = {k: v for m in models.values() for k, v in m.items()}
            return {**models, "optimizer": optimizer.sharded_state_dict(
                shards, is_loading=loading, metadata=HOW)}

        folder = Path(sys.argv[1]) / f"saved {next(SAVED)}"
        folder.mkdir(exist_ok=True)
        torch.distributed.barrier()
        for count in counts:
            step(count)
        dist_checkpointing.save(state(False), str(folder))
        for count in counts[:2]:
            step(count)
        found = dist_checkpointing.load(state(True), str(folder))
        for i, model in enumerate(each.chunks):
            model.module.module.load_state_dict(found[f"model{i}"])
        optimizer.load_state_dict(found["optimizer"])
        for count in counts:
            step(count)

    training.divide(**divided)
    two = compare(train, kind, scope, wrap=in_half, bf16=True,
                  params_dtype=torch.bfloat16, **how)
    passes = 2 * (2 * sum(counts) + sum(counts[:2])) * sum(
        len(core.decoder.layers) for core in two.cores)
    return {"passes": passes, "replays": two.stats["replays"],
            "warmup": 2 * sum(two.stats["eager_calls"].values()),
            "slots": [c["slots"] for c in two.stats["chunks"]]}


HOW = {"distrib_optim_sharding_type": "dp_reshardable"}
SAVED = itertools.count()


def in_half(core):
    return training.wrapped(finalize_model_grads,
                            use_distributed_optimizer=True)(
        Float16Module(core.config, core))


PARTITIONS = [[[0, 1, 2, 3]], [[0, 1], [2, 3]], [[0, 1], [2], [3]],
              [[0], [1], [2, 3]], [[0], [1], [2], [3]]]


# Of no power of two; each rank is in groups of another size than others.
UNEVEN_PARTITIONS = [[[0, 1, 2], [3]], [[0], [1, 2, 3]], [[0, 3], [1, 2]],
                     [[0, 1, 2, 3]]]
OFFSETS = [f"packed_seq_params.cu_seqlens_{name}" for name in (
    "q", "kv", "q_padded", "kv_padded")]


def groups_of(partitions) -> list:
    """This rank's, in each of them."""
    rank, made = torch.distributed.get_rank(), {}
    for ranks in sorted({tuple(r) for p in partitions for r in p}):
        made[ranks] = torch.distributed.new_group(list(ranks))
    return [next(made[tuple(r)] for r in p if rank in r) for p in partitions]


def of_partitions(kind="dense", **options) -> dict:
    """Each microbatch divides the ranks in another way; all alone at the end
    of a step, some have more microbatches than others."""
    training.divide()
    rank = torch.distributed.get_rank()
    mine = groups_of(PARTITIONS)
    groups = mine + mine[-1:] * (1 + rank % 2)

    def steps(each):
        for _ in range(5):
            each.data[0] = Packed(groups)
            each.run(len(groups))
            each.optimizer.step()
            each.optimizer.zero_grad()

    return of_own_groups(steps, 5 * len(groups), groups, **options)


def of_own_groups(steps, count, groups, attention=Attention,
                  **options) -> dict:
    """A rank has banks for its own groups, and asks nobody else."""
    two = compare(steps, "dense", "attn", eager=("warmup", "banks", "input"),
                  make=build_packed, attention=attention,
                  data=lambda: Packed(groups),
                  attach={"group": "packed_seq_params.cp_group", **options})
    layers = len(two.core.decoder.layers)
    return {"passes": 2 * count * layers,
            "warmup": 2 * sum(two.stats["eager_calls"].values()),
            "replays": two.stats["replays"],
            "banks": [len(c["banks"]) for c in two.stats["chunks"]],
            "groups": len(set(groups)), "explained": two.explained,
            "slots": [c["slots"] for c in two.stats["chunks"]]}


def of_padded_sequences(kind="dense", scope="attn", divided=(),
                        group="packed_seq_params.cp_group", **how) -> dict:
    """Context parallelism of another size in each microbatch, not a power of
    two; sequences with padding, and one of that alone, as many as it comes."""
    training.divide(**dict(divided))
    groups = groups_of(UNEVEN_PARTITIONS)
    return trained(
        dict(divided), kind, scope, [8] * 3, make=build_dealt,
        data=lambda: Dealt(groups, 4 * training.LENGTH + 16, (3, 4, 3, 6, 5)),
        attach={"group": group, "packed": dict.fromkeys(OFFSETS, 8)}, **how)


def by_its_schedule(kind="dense", scope="attn", steps=16, wrap=None,
                    **how) -> dict:
    """Megatron's own schedule of dynamic context parallelism, its loader and
    its process groups; the attach is told nothing of them."""
    training.divide(hybrid_context_parallel=True)
    one_step = training.with_buffers(counts=[1])
    recordings: list = []

    def train(each):
        for _ in range(steps):
            one_step(each)
            if each.attached is not None:
                recordings.append(each.attached.stats()["recordings"])

    two = compare(train, kind, scope, eager=("warmup", "banks", "input"),
                  make=build_packed, attention=DealtAttention,
                  data=Scheduled, wrap=wrap or finalized(),
                  hybrid_context_parallel=True,
                  max_seqlen_per_dp_cp_rank=MOST, **how)
    layers = 1 if "granularity" in how.get("attach", ()) \
        else len(two.core.decoder.layers)
    return {"passes": 2 * len(two.losses) * layers, "layers": layers,
            "warmup": 2 * sum(two.stats["eager_calls"].values()),
            "replays": two.stats["replays"], "recordings": recordings,
            "banks": [len(c["banks"]) for c in two.stats["chunks"]],
            "verified": two.stats["verify"]["forwards"]}


def alone_and_both() -> tuple:
    training.divide()
    return [torch.distributed.new_group([rank]) for rank in range(2)][
        torch.distributed.get_rank()], torch.distributed.group.WORLD


def of_own_sizes(attention=Attention) -> dict:
    alone, both = alone_and_both()
    return of_own_groups(lambda t: t.steps(COUNTS), sum(COUNTS),
                         (alone, both, both), attention)


def of_kept_groups(scope="attn", **options) -> dict:
    """Every second microbatch names no group, and goes by that of the one
    before it; at the end it is there as if all had been eager."""
    alone, both = alone_and_both()
    left = []

    def steps(each):
        each.steps(COUNTS)
        left.append([(a.cp_group, a.cp_global_ranks) for a in (
            layer.self_attention.core_attention
            for layer in each.core.decoder.layers)])

    found = trained(
        {}, "dense", scope, train=steps, make=build_packed,
        attention=KeepingAttention,
        data=lambda: Packed((alone, None, both, None)),
        attach={"group": both, **options})
    assert left[0] == left[1] == [
        (alone, [torch.distributed.get_rank()])] * 2, left
    return found


def eager_where_refused(attach, clock=None) -> dict:
    """All ranks refuse what one does, when they meet; the same bits."""
    alone, both = alone_and_both()
    counts = [3] * 12
    one, two = (training.Training(
        "dense", scope, make=build_packed, attach=attach,
        data=lambda: Packed((alone, both, both)))
        for scope in (None, attach.pop("scope", "attn")))
    with clock or contextlib.nullcontext():
        for each in one, two:
            training.seed()
            each.steps(counts)
        stats = two.end()
    assert training.differing(one.state(), two.state()) == []
    return {"passes": 0, "warmup": 0, "replays": 0,
            "refused": [*stats["refused"].values()],
            "explained": two.explained,
            "slots": [c["slots"] for c in stats["chunks"]]}


def slower_on_one() -> dict:
    slow = 3.0 if torch.distributed.get_rank() == 0 else 1.0
    name = "whole layers"
    return eager_where_refused(
        {"group": "packed_seq_params.cp_group", "scope": "auto"},
        Clock({name: 2.0}, {name: slow}))


def measured(replays) -> dict:
    """A scope of which graphs are slower on some rank, or on none."""
    training.divide(**EXPERTS)
    counts = [2, 3] * 4
    one, two = (training.Training("moe", scope) for scope in (None, "auto"))
    replay = replays[torch.distributed.get_rank()]
    with Clock({EXCHANGING: 2.0}, {EXCHANGING: replay}):
        for each in one, two:
            training.seed()
            each.steps(counts)
        stats = two.end()
    assert training.differing(one.state(), two.state()) == []
    row, = stats["measured"]
    # As the others are checked: each pass that is to be replayed, is.
    return {"passes": stats["replays"], "warmup": 0,
            "replays": stats["replays"],
            "slots": [c["slots"] for c in stats["chunks"]],
            "kept": row["kept"], "refused": len(stats["refused"])}


def finalized():
    """Sums over stages and over parts of sequences, as at the end of a
    schedule."""
    return training.wrapped(finalize_model_grads)


def late(core):
    """Attention puts its weight gradients off, as Transformer Engine's."""
    model = finalized()(core)
    put_off(core, fused=True)
    return model


def with_a_hook_on_one(divided, kind, scope, chunk=0, **how) -> dict:
    """The last rank has one for a step, in a layer of the last stage."""
    size = torch.distributed.get_world_size()
    rank = torch.distributed.get_rank()
    training.divide(**divided)
    one, two = (training.Training(kind, words, **how)
                for words in (None, scope))
    for each in one, two:
        training.seed()
        each.steps([4, 4])
        hooked = each.cores[chunk].decoder.layers[0].mlp
        hook = getattr(hooked, "linear_fc1", hooked).register_forward_hook(
            lambda *_: None) if rank == size - 1 else None
        each.steps([4])
        if hook is not None:
            hook.remove()
        each.steps([4, 4])
    stats = two.end()
    assert training.differing(one.state(), two.state()) == []
    # As the others are checked: each pass that is to be replayed, is.
    return {"passes": stats["replays"], "warmup": 0,
            "replays": stats["replays"], "refused": stats["refused"],
            "eager": stats["eager_calls"],
            "slots": [c["slots"] for c in stats["chunks"]]}


def build_hooked(kind, **more) -> list:
    """Megatron calls neither layers nor their experts where these overlap."""
    cores = training.build_chunks(kind, **more)
    for layer in cores[0].decoder.layers:
        for module in layer, layer.mlp:
            module.register_forward_pre_hook(
                lambda module, given: tuple(2 * t for t in given))
            module.register_forward_hook(lambda module, given, result: None)
    return cores


class Killed(training.Tokens):
    """On the last rank, in the third step."""

    def __init__(self, left: int = 10):
        super().__init__()
        self._left = left if torch.distributed.get_rank() == 3 else -1

    def __next__(self):
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__next__()


class Lost(Scheduled):
    """The last rank, between two sequences of a batch."""

    def __init__(self, left: int):
        super().__init__()
        self._left = left if torch.distributed.get_rank() == 3 else -1

    def take(self, sample) -> dict:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().take(sample)


def ended(divided, kind, scope, stops=False, dies=False,
          data=training.Tokens, **how) -> dict:
    """What the others end with, and after how long.  `stops`: the last rank
    hangs between its embedding and its layers."""
    os.environ["GRAPHHOOKS_TIMEOUT"] = "6"
    training.divide(**divided)
    two = training.Training(kind, scope, data=data, **how)
    two.steps([4, 4])
    if stops and torch.distributed.get_rank() == 1:
        two.core.decoder.register_forward_pre_hook(
            lambda *_: os.kill(os.getpid(), signal.SIGSTOP))
    if dies and torch.distributed.get_rank() == 1:
        Exchange.all_to_all = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    try:
        two.steps([4])
    except Exception as failure:
        return {"said": str(failure), "after": time.monotonic() - began}
    return {"said": ""}


MOVED = {"offload": "core_attn", "offload_min_bytes": 1}


def all_at_once(**attach) -> dict:
    """Stages of two chunks, experts whose exchanges overlap, contexts of
    several sizes, weight gradients that are put off, and an offload."""
    training.divide(**EXPERTS, **CHUNKS)
    rank = torch.distributed.get_rank()
    alone = [torch.distributed.new_group([r]) for r in range(4)][rank]
    both = [torch.distributed.new_group([r, r + 1])
            for r in (0, 2)][rank // 2]
    return trained({**CHUNKS, **EXPERTS}, "moe", EXCHANGING, [4, 6, 4],
                   graphs=3, wrap=late, delay_wgrad_compute=True,
                   num_layers=12, attach={**MOVED, **attach}, make=build_packed,
                   data=lambda: Packed((alone, both, both)), **OVERLAP)


CASES = {
    "pipeline": {
        "1F1B": lambda: trained(PIPELINE, "dense", ""),
        "1F1B, MoE": lambda: trained(PIPELINE, "moe", EXCHANGING),
        "1F1B, packed": lambda: trained(PIPELINE, "dense", "attn", **PACKED),
        "interleaved": lambda: trained(CHUNKS, "dense", "", ROUND),
        "interleaved, MoE": lambda: trained(
            CHUNKS, "moe", EXCHANGING, ROUND, wrap=training.wrapped()),
        "interleaved, MoE, gathered": lambda: trained(
            CHUNKS, "moe", EXCHANGING, ROUND, wrap=training.wrapped(
                finalize_model_grads, overlap_grad_reduce=True,
                use_distributed_optimizer=True, overlap_param_gather=True)),
        "interleaved by threes": lambda: trained(
            CHUNKS, "dense", "attn", THREES,
            microbatch_group_size_per_vp_stage=3),
        **{f"{schedule}, whole chunks": lambda parts=parts: trained(
            parts, "dense", "", ROUND, attach={"granularity": "chunk"})
           for schedule, parts in (("1F1B", PIPELINE),
                                   ("interleaved", CHUNKS))}},
    # Scopes that are a part of a layer, in a pipeline of processes.
    "scopes": {
        **{f"1F1B, {kind}: {scope}": lambda kind=kind, scope=scope: trained(
            PIPELINE, kind, scope) for kind, scope in (
                ("dense", "attn"), ("dense", "mlp"), ("dense", "attn,mlp"),
                ("moe", "attn"), ("moe", "moe_router"),
                ("moe", "attn,moe_router"),
                ("moe", "moe_router,moe_preprocess"),
                ("shared", EXCHANGING), ("padded", "attn,moe"),
                ("mla", "attn"))},
        **{f"by threes, {kind}: {scope}": lambda kind=kind, scope=scope:
           trained(CHUNKS, kind, scope, UNEVEN,
                   microbatch_group_size_per_vp_stage=3)
           for kind, scope in (
               ("dense", "mlp"), ("moe", "moe_router"),
               ("moe", "attn,moe_router"), ("moe", EXCHANGING),
               ("padded", "attn,moe"))},
        **{f"{what}, whole chunks": lambda parts=parts, kind=kind, more=more:
           trained(parts, kind, "", [4, 6, 8, 2],
                   attach={"granularity": "chunk"}, **more)
           for what, parts, kind, more in (
               ("1F1B, packed", PIPELINE, "dense", PACKED),
               ("interleaved, packed", CHUNKS, "dense", PACKED),
               ("1F1B, a capacity", PIPELINE, "padded", {}),
               ("interleaved, a capacity", CHUNKS, "padded", {}))}},
    "experts": {
        "no overlap": lambda: trained(EXPERTS, "moe", EXCHANGING),
        **{f"capacity, {granularity}": lambda granularity=granularity:
            trained(EXPERTS, "padded", "",
                    attach={"granularity": granularity} if granularity ==
                    "chunk" else {}) for granularity in ("layer", "chunk")},
        "slower on one rank": lambda: measured([1.0, 3.0]),
        "faster on all": lambda: measured([1.0, 1.5]),
        **{f"overlap, {scope}": lambda scope=scope: trained(
            EXPERTS, "moe", scope, **OVERLAP)
           for scope in ("attn", "attn,moe_router", EXCHANGING)}},
    "overlap": {
        **{f"overlap, {scope}": lambda scope=scope: trained(
            EXPERTS, "moe", scope, **OVERLAP)
           for scope in ("moe_router", "moe_router,moe_preprocess")},
        **{f"overlap of {what}": lambda kind=kind, more=more: trained(
            EXPERTS, kind, EXCHANGING, **OVERLAP, **more)
           for what, kind, more in (
               ("dense layers and experts", "moe", {"moe_layer_freq": [0, 1]}),
               ("shared experts", "shared", {}),
               ("a sigmoid router", "sigmoid", {}),
               ("several tokens ahead", "moe", {"mtp_num_layers": 1}),
               ("latent attention", "mla", training.MOE),
               ("buckets", "moe", {"wrap": training.wrapped(
                   finalize_model_grads, overlap_grad_reduce=True)}))},
        # Routers' weights are not put off, and have no graph of their own.
        **{f"overlap, delayed weights, {scope}": lambda scope=scope: trained(
            EXPERTS, "moe", scope, graphs=2 + scope.startswith("attn"),
            wrap=late, delay_wgrad_compute=True, **OVERLAP)
           for scope in ("attn", "attn,moe_router", "moe_router",
                         "moe_router,moe_preprocess", EXCHANGING)},
        "overlap, hooks that nobody hears": lambda: trained(
            EXPERTS, "moe", EXCHANGING, make=build_hooked, **OVERLAP),
        **{f"overlap, and the model beside it, {scope}":
           lambda scope=scope: trained(
               EXPERTS, "moe", scope, train=beside(plain, scope),
               **OVERLAP)
           for scope in ("attn", "attn,moe_router", EXCHANGING)},
        "overlap, and the model beside it, delayed weights":
            lambda: trained(EXPERTS, "moe", EXCHANGING, graphs=3, wrap=late,
                            train=beside(in_buffers, EXCHANGING),
                            delay_wgrad_compute=True, **OVERLAP),
        # What Megatron's checks exclude from each other.
        "overlap of contexts, each by its own group":
            lambda: of_several_sizes(EXPERTS, "moe", "attn", **OVERLAP,
                                     group="packed_seq_params.cp_group"),
        **{f"overlap of contexts, {scope}": lambda scope=scope:
           of_several_sizes(EXPERTS, "moe", scope, **OVERLAP)
           for scope in ("attn", EXCHANGING)},
        "overlap of contexts, delayed weights": lambda: of_several_sizes(
            EXPERTS, "moe", EXCHANGING, graphs=3, wrap=late,
            delay_wgrad_compute=True, **OVERLAP)},
    # The library's exchange, in the place of Megatron's.
    "exchange": {
        **{f"exchange by {word}": lambda word=word: exchanged(
            word, EXPERTS, "moe", EXCHANGING) for word in (
                "copy", "kernel", "auto")},
        "exchange by nccl": lambda: exchanged("nccl", EXPERTS, "moe", "attn"),
        "exchange, all in one place": lambda: exchanged(
            "copy", EXPERTS, "sigmoid", EXCHANGING, make=build_lopsided),
        "exchange, a capacity": lambda: exchanged(
            "copy", EXPERTS, "padded", "attn,moe_router"),
        "exchange, dropped": lambda: exchanged(
            "copy", EXPERTS, "moe", "moe_router",
            moe_expert_capacity_factor=0.5),
        **{f"exchange, captured, {granularity}": lambda granularity=granularity:
           trained(EXPERTS, "padded", "", attach={
               "exchange": "copy", **({} if granularity == "layer" else {
                   "granularity": granularity})})
           for granularity in ("layer", "chunk")},
        "exchange beside shared experts": lambda: exchanged(
            "auto", EXPERTS, "shared", "attn,moe_router",
            moe_shared_expert_overlap=True),
        "exchange, more room": lambda: exchanged(
            "copy", EXPERTS, "moe", "attn", room=64),
        "exchange, not reached": not_reached},
    "exchange, larger": {
        **{f"exchange, larger, {scope}": lambda scope=scope: with_larger_ones(
            scope=scope) for scope in ("attn", EXCHANGING)},
        "exchange, larger, there is room": lambda: with_larger_ones(
            scope="attn", room=4 * training.BATCH * training.LENGTH),
        **{f"exchange, larger, overlap, {scope}": lambda scope=scope:
           with_larger_ones(scope=scope, **OVERLAP)
           for scope in ("attn", EXCHANGING)},
        "exchange, larger, overlap, delayed weights": lambda:
            with_larger_ones(scope=EXCHANGING, graphs=3, wrap=late,
                             delay_wgrad_compute=True, **OVERLAP)},
    "exchange, overlap": {
        **{f"exchange, overlap, {scope}": lambda scope=scope: exchanged(
            "copy", EXPERTS, "moe", scope, **OVERLAP)
           for scope in ("attn", "attn,moe_router",
                         "moe_router,moe_preprocess", EXCHANGING)},
        "exchange, overlap of shared experts": lambda: exchanged(
            "copy", EXPERTS, "shared", EXCHANGING, **OVERLAP),
        "exchange, overlap, delayed weights": lambda: exchanged(
            "auto", EXPERTS, "moe", EXCHANGING, graphs=3, wrap=late,
            delay_wgrad_compute=True, **OVERLAP),
        "exchange, overlap, dense layers between": lambda: exchanged(
            "auto", EXPERTS, "moe", EXCHANGING, num_layers=4,
            moe_layer_freq=[0, 1, 0, 1], mtp_num_layers=1, **OVERLAP),
        "exchange, order auto": lambda: exchanged(
            "auto", EXPERTS, "moe", EXCHANGING, [3, 4] * 3, graphs=3,
            wrap=late, delay_wgrad_compute=True, order="auto", **OVERLAP)},
    "exchange, four": {
        "exchange, all at once": lambda: all_at_once(exchange="auto"),
        "exchange, parts of a sequence": lambda: exchanged(
            "copy", {**TENSOR, **EXPERTS, "expert_tensor_parallel_size": 1},
            "moe", EXCHANGING, **TENSOR, sequence_parallel=True,
            expert_tensor_parallel_size=1, wrap=finalized()),
        "exchange, all at once, in an order": lambda: all_at_once(
            exchange="auto", overlap="auto"),
        "exchange of four": lambda: exchanged(
            "copy", FOUR_EXPERTS, "moe", EXCHANGING),
        "exchange of four, larger": lambda: exchanged(
            "copy", FOUR_EXPERTS, "moe", EXCHANGING, [3, 4, 5, 6],
            data=Larger, eager=("warmup", "input", "banks")),
        "exchange, order auto, interleaved": lambda: exchanged(
            "auto", {**CHUNKS, **EXPERTS}, "moe", EXCHANGING, [4, 6] * 3,
            graphs=3, wrap=late, delay_wgrad_compute=True, order="auto",
            **OVERLAP),
        "exchange, interleaved": lambda: exchanged(
            "auto", {**CHUNKS, **EXPERTS}, "moe", EXCHANGING, [4, 6, 4],
            **OVERLAP)},
    "killed, exchange": {"killed, exchange": lambda: ended(
        EXPERTS, "moe", EXCHANGING, dies=True, attach={"exchange": "copy"})},
    "killed": {"killed": lambda: ended(
        {**PIPELINE, **TENSOR}, "dense", "", data=Killed, **TENSOR)},
    "killed, interleaved": {"killed, interleaved": lambda: ended(
        {**CHUNKS, **TENSOR}, "dense", "attn", data=lambda: Killed(11),
        **TENSOR)},
    "killed, overlap": {"killed, overlap": lambda: ended(
        {**CHUNKS, **EXPERTS}, "moe", EXCHANGING, data=lambda: Killed(11),
        **OVERLAP)},
    "killed, its schedule": {"killed, its schedule": lambda: ended(
        dict(hybrid_context_parallel=True), "dense", "attn",
        data=lambda: Lost(6), make=build_packed, attention=DealtAttention,
        wrap=finalized(), hybrid_context_parallel=True,
        max_seqlen_per_dp_cp_rank=MOST)},
    "stopped": {"stopped": lambda: ended(
        TENSOR, "dense", "", stops=True, **TENSOR)},
    "order": {
        **{f"order {word}": lambda word=word: trained(
            EXPERTS, "moe", EXCHANGING, [3, 4] * 3, attach={"overlap": word},
            **OVERLAP) for word in ("off", "fixed", "auto")},
        "order auto, delayed weights": lambda: trained(
            EXPERTS, "moe", EXCHANGING, [3, 4] * 3, graphs=3, wrap=late,
            delay_wgrad_compute=True, attach={"overlap": "auto"}, **OVERLAP),
        "order auto, dense layers between": lambda: trained(
            EXPERTS, "moe", "attn", [3, 4] * 3, attach={"overlap": "auto"},
            num_layers=4, moe_layer_freq=[0, 1, 0, 1], mtp_num_layers=1,
            **OVERLAP)},
    "offload": {
        **{f"offload, {schedule}": lambda parts=parts, counts=counts: trained(
            parts, "dense", "attn", counts, num_layers=16, attach=MOVED)
           for schedule, parts, counts in (("1F1B", PIPELINE, COUNTS),
                                           ("interleaved", CHUNKS, ROUND))},
        "offload, more stays behind": lambda: trained(
            PIPELINE, "dense", "attn", num_layers=16, attach={
                "offload": "core_attn", "offload_min_bytes": 1},
            delta_offload_bytes_across_pp_ranks=4096),
        "offload, overlap": lambda: trained(
            EXPERTS, "moe", EXCHANGING, graphs=3, wrap=late, num_layers=4,
            delay_wgrad_compute=True, attach=MOVED, **OVERLAP)},
    "pieces": {
        "columns and rows": lambda: trained(
            TENSOR, "dense", "attn,mlp", **TENSOR),
        "columns and rows, computed again": lambda: trained(
            TENSOR, "dense", "attn", **TENSOR,
            recompute_granularity="selective",
            recompute_modules=["core_attn"]),
        "packed": lambda: trained({}, "dense", "attn", **PACKED),
        "contexts of several sizes": of_several_sizes,
        "contexts, each by its own group": of_own_sizes,
        "contexts, kept by the attention": lambda: of_own_sizes(
            KeepingAttention),
        "contexts, kept for later": of_kept_groups,
        "contexts, kept for later, whole chunks": lambda: of_kept_groups(
            "", granularity="chunk"),
        "contexts, slower on one": slower_on_one,
        "contexts, by no argument": lambda: eager_where_refused(
            {"group": "packed_seq_params.group"})},
    "stages": {
        "uneven, tied": lambda: trained(
            PIPELINE, "dense", "", tied=True, num_layers=4,
            num_layers_in_first_pipeline_stage=1,
            deallocate_pipeline_outputs=True, wrap=finalized()),
        "uneven, tied, whole chunks": lambda: trained(
            PIPELINE, "dense", "", tied=True, num_layers=4,
            num_layers_in_first_pipeline_stage=1,
            deallocate_pipeline_outputs=True, wrap=finalized(),
            attach={"granularity": "chunk"}),
        **{f"interleaved, uneven, tied, {what}":
           lambda kind=kind, scope=scope, options=options: trained(
               CHUNKS, kind, scope, ROUND, tied=True, num_layers=6,
               pipeline_model_parallel_layout="Ett|t|tt|tL",
               deallocate_pipeline_outputs=True, wrap=finalized(),
               attach=options)
           for what, kind, scope, options in (
               ("parts", "moe", EXCHANGING, {}), ("layers", "dense", "", {}),
               ("whole chunks", "dense", "", {"granularity": "chunk"}))},
        **{f"two lengths, {what}": lambda call=call: of_lengths(
            *call[:3], **call[3])
           for what, call in {
               "1F1B": (PIPELINE, "dense", "", {}),
               "whole chunks": (PIPELINE, "dense", "",
                                {"attach": {"granularity": "chunk"}}),
               "interleaved": (CHUNKS, "dense", "attn", {}),
               "experts": (EXPERTS, "moe", EXCHANGING, {})}.items()},
        "saved by two": lambda: saved({}, "dense", "attn,mlp"),
        "saved by stages": lambda: saved(
            PIPELINE, "dense", "", pipeline_dtype=torch.bfloat16),
        "saved by experts": lambda: saved(EXPERTS, "moe", EXCHANGING),
        "too few slots": lambda: trained(
            PIPELINE, "dense", "", eager=("warmup", "busy"),
            attach={"max_slots": 1}),
        **{f"parts of a sequence, {kind} {scope}":
           lambda kind=kind, scope=scope: trained(
               TENSOR, kind, scope, **TENSOR, sequence_parallel=True,
               wrap=finalized())
           for kind, scope in (("dense", ""), ("dense", "attn,mlp"),
                               ("moe", EXCHANGING))}},
    "partitions": {
        "five partitions": of_partitions,
        "too few banks": lambda: of_partitions(max_banks=2)},
    "schedule": {
        **{f"its schedule, {scope or 'layers'}": lambda scope=scope:
           by_its_schedule(scope=scope) for scope in ("attn", "")},
        "its schedule, buckets": lambda: by_its_schedule(
            wrap=training.wrapped(finalize_model_grads,
                                  overlap_grad_reduce=True))},
    "schedule, more": {
        "its schedule, experts": lambda: by_its_schedule(
            "moe", "attn,moe_router"),
        "its schedule, latent attention": lambda: by_its_schedule("mla"),
        "its schedule, whole chunks": lambda: by_its_schedule(
            scope="", attach={"granularity": "chunk"}),
        "its schedule, offload": lambda: by_its_schedule(
            num_layers=8, attach=MOVED)},
    "lengths": {
        "padded sequences": of_padded_sequences,
        "padded sequences of experts": lambda: of_padded_sequences(
            "moe", EXCHANGING),
        "padded sequences of latent attention": lambda: of_padded_sequences(
            "mla"),
        "overlap of padded sequences": lambda: of_padded_sequences(
            "moe", "attn", EXPERTS, **OVERLAP),
        "overlap of all": lambda: of_padded_sequences(
            "mla", EXCHANGING, EXPERTS, torch.distributed.group.WORLD,
            graphs=3, wrap=late, delay_wgrad_compute=True, **training.MOE,
            **OVERLAP)},
    "four": {
        "all at once": all_at_once,
        "four stages, uneven, tied": lambda: trained(
            FOUR, "dense", "", [4, 6, 8, 3], tied=True, num_layers=7,
            num_layers_in_first_pipeline_stage=1,
            deallocate_pipeline_outputs=True, wrap=finalized()),
        "four stages": lambda: trained(
            FOUR, "dense", "", [4, 6, 8, 3], wrap=finalized()),
        "four stages, interleaved by sixes, whole chunks": lambda: trained(
            {**FOUR, "virtual_pipeline_model_parallel_size": 2}, "dense", "",
            [12, 10, 16], microbatch_group_size_per_vp_stage=6,
            wrap=finalized(), attach={"granularity": "chunk"}),
        "a hook on one rank": lambda: with_a_hook_on_one(
            {**PIPELINE, **TENSOR}, "dense", "", **TENSOR),
        "a hook on one rank, experts": lambda: with_a_hook_on_one(
            {**CHUNKS, **EXPERTS}, "moe", EXCHANGING, chunk=1),
        "two stages, parts of a sequence": lambda: trained(
            {**CHUNKS, **TENSOR}, "dense", "", ROUND, **TENSOR,
            sequence_parallel=True, wrap=finalized()),
        "order auto, interleaved": lambda: trained(
            {**CHUNKS, **EXPERTS}, "moe", EXCHANGING, [4, 6] * 3, graphs=3,
            wrap=late, delay_wgrad_compute=True, attach={"overlap": "auto"},
            **OVERLAP),
        "overlap, interleaved": lambda: trained(
            {**CHUNKS, **EXPERTS}, "moe", EXCHANGING, [4, 6, 4],
            **OVERLAP)},
}


def drawn(name: str, most: int) -> dict:
    cases = CASES[name]
    if most == 0 or most >= len(cases):
        return cases
    kept = random.Random(name).sample([*cases], most)
    return {case: cases[case] for case in cases if case in kept}


def main(folder: Path, rank: int, size: int, name: str, most: int = 0) -> None:
    training.begin(rank, size, torch.distributed.FileStore(
        str(folder / "store"), size))
    results = {}
    for case, come_to in drawn(name, most).items():
        start = time.monotonic()
        try:
            results[case] = come_to()
        except Exception:
            results[case] = {"error": traceback.format_exc()}
        results[case]["seconds"] = time.monotonic() - start
        (folder / f"{rank}.json").write_text(json.dumps(results))
        if "error" in results[case]:
            break  # the ranks may be elsewhere
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:4]), sys.argv[4],
         *map(int, sys.argv[5:]))
