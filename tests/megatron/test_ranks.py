"""hosts/pytorch/examples/megatron_ranks.py, small.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import types
from pathlib import Path
from xml.etree import ElementTree

import pytest
from models import HAS_GPU, torch

pytest.importorskip("megatron.core",
                    reason="megatron-core is not installed")
if HAS_GPU:
    pytest.skip("a GPU for each of two ranks is asked of nobody",
                allow_module_level=True)
if not torch.distributed.is_gloo_available():
    pytest.skip("torch has no gloo", allow_module_level=True)

_SMALL = ("--device cpu --spec local --dtype fp32 --layers 4 --hidden 32 "
          "--heads 4 --sequence 16 --batch 2 --steps 3 --microbatches 2 "
          "--experts 4").split()
STARTER = Path(__file__).with_name("ranks.py")


@pytest.fixture
def ranks(tmp_path):
    """Its status, what it says, and the lines of results that are whole."""
    out = tmp_path / "out.jsonl"

    def run(*arguments, starts=0, size=2, **environment):
        process = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--standalone",
             "--nproc-per-node", str(size), "--max-restarts", str(starts),
             str(STARTER), "--out", str(out), *_SMALL, *arguments],
            env={**os.environ, **environment}, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            said, _ = process.communicate(timeout=200)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        lines = [json.loads(line) for line in out.read_text().splitlines()] \
            if out.exists() else []
        return process.returncode, said, {
            (each["row"], each["mode"]): each for each in lines
            if "begun" not in each}

    return run


def test_rows_are_equal_and_replay_and_are_not_run_again(ranks):
    status, said, found = ranks(
        "--only", "PP2 VPP2,EP2 overlap,DP2 overlap", "--modes",
        "layer+chunk+scope@auto+scope@auto,exchange+scope:attn,moe_router")
    assert status == 0, said
    assert found.keys() == {
        *(("PP2 VPP2", m) for m in ("off", "layer", "chunk")),
        *(("EP2 overlap", m) for m in ("off", "scope@auto",
                                       "scope@auto,exchange",
                                       "scope:attn,moe_router")),
        *(("DP2 overlap", m) for m in ("off", "layer", "chunk"))}
    for (row, mode), one in found.items():
        assert one["equal"] and one["tokens_per_s"] > 0
        sizes = [c["losses"] for c in one["compared"]]
        assert sizes == ([0, 6] if row == "PP2 VPP2" else [6, 6])
        if mode == "off":
            continue
        assert all(one["replays"]) and one["refused"] == [{}, {}]
        assert all(e.keys() == {"warmup"} for e in one["eager_calls"])
    assert all(o["runs"] for o in found["EP2 overlap", "scope@auto"]["order"])
    assert found["EP2 overlap", "scope@auto,exchange"]["exchange"] \
        == [["copy"]] * 2
    assert found["EP2 overlap", "scope@auto"]["exchange"] == [[], []]
    assert found["PP2 VPP2", "chunk"]["slots"] == [[2, 2], [2, 1]]
    assert "bitwise equal: 7 of 7 trainings in 3 rows" in said

    status, said, again = ranks("--only", "PP2 VPP2", "--modes", "layer")
    assert status == 0 and "bitwise equal: 7 of 7" in said
    assert again == found


def test_paragraphs_are_shared_by_all_ranks_or_by_as_many_as_they_need(ranks):
    """Each size has graphs of its own, which all microbatches of it share."""
    status, said, found = ranks(
        "--only", "CP2,CP2 dynamic,CP2 dynamic scheduled",
        "--modes", "scope:attn+chunk+layer", "--sequence", "128",
        "--microbatches", "3,4,2", "--steps", "5")
    assert status == 0 and "bitwise equal: 7 of 7" in said, said
    for (row, mode), one in found.items():
        losses = [c["losses"] for c in one["compared"]]
        if row.endswith("scheduled"):  # of each paragraph
            assert min(losses) > 16 and (mode == "off" or all(one["replays"]))
            # Few lengths, so that none lets go of another's graphs.
            assert mode == "off" or all(
                eager.keys() <= {"warmup", "input"}
                for eager in one["eager_calls"]), one
            continue
        assert losses == [3 + 4 + 2 + 3 + 4] * 2
        if mode == "off":
            continue
        sizes = 2 if row == "CP2 dynamic" else 1  # of groups
        layers = 1 if mode == "chunk" else 4
        assert one["refused"] == [{}] * 2
        assert one["recordings"] == [2 * sizes * layers] * 2
        for eager, replays in zip(one["eager_calls"], one["replays"]):
            assert eager.keys() <= {"warmup", "input"}
            assert replays == 2 * (16 * layers - sum(eager.values()))


@pytest.mark.parametrize("context, is_dynamic", [
    (2, False), (2, True), (4, False), (4, True)])
def test_each_token_is_in_one_microbatch_of_one_rank(monkeypatch, tmp_path,
                                                     context, is_dynamic):
    monkeypatch.setattr(sys, "path", [str(
        STARTER.parents[2] / "hosts/pytorch/examples"), *sys.path])
    import megatron_packed

    parts = [bytes([97 + i]) * n for i, n in enumerate(
        (1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 65, 200))]
    (tmp_path / "text").write_bytes(b"\n\n".join(parts))
    monkeypatch.setattr(
        megatron_packed.parallel_state,
        "get_hybrid_data_context_parallel_groups", lambda group_size: None)
    args = types.SimpleNamespace(sequence=16, seed=1, text=tmp_path / "text")
    shape = types.SimpleNamespace(context=context, dynamic=is_dynamic)
    ranks = [megatron_packed.Text(args, types.SimpleNamespace(
        rank=rank, device=torch.device("cpu")), shape)
        for rank in range(context)]
    counts, seen, sizes = [5, 3, 40], {}, set()
    for step, count in enumerate(counts):
        for each in zip(*(r.microbatches(step, count) for r in ranks)):
            for inputs, targets, more in each:
                packed = more["packed"]
                sizes.add(packed.local_cp_size or context)
                assert inputs.shape == (1, 16)
                assert packed.cu_seqlens_q_padded[-1] == packed.max_seqlen_q
                for values in zip(inputs[0].tolist(), targets[0].tolist(),
                                  more["places"][0].tolist(),
                                  more["weights"][0].tolist()):
                    if values[-1]:
                        seen[values[:-1]] = seen.get(values[:-1], 0) + 1
    assert sum(seen.values()) // len(counts) \
        == sum(r.tokens(counts) for r in ranks)
    assert sizes == ({1, 2, 4} & set(range(context + 1)) if is_dynamic
                     else {context})
    # Those of a paragraph come equally often, until it is cut off.
    for i, n in enumerate((1, 2, 3, 7, 8, 15, 16)):
        assert len({seen[97 + i, 97 + i if at < n - 1 else 10, at]
                    for at in range(n)}) == 1


def test_each_rank_brings_paragraphs_to_megatrons_schedule(monkeypatch,
                                                           tmp_path):
    """Also where one fills a microbatch of all ranks."""
    monkeypatch.setattr(sys, "path", [str(
        STARTER.parents[2] / "hosts/pytorch/examples"), *sys.path])
    import megatron_packed

    monkeypatch.setattr(megatron_packed, "HybridCPDataLoaderWrapper",
                        lambda batches, config: next(batches))
    (tmp_path / "text").write_bytes(b"\n\n".join([b"a" * 60, b"b" * 60]))
    args = types.SimpleNamespace(sequence=16, seed=1, text=tmp_path / "text")
    shape = types.SimpleNamespace(context=4, dynamic="schedule")
    for rank in range(4):
        text = megatron_packed.Text(args, types.SimpleNamespace(
            rank=rank, device=torch.device("cpu")), shape)
        for step, count in enumerate((1, 3, 6)):
            (of,), = text.microbatches(step, count)
            assert len(of["cu_seqlens"]) == (3 if count == 6 and rank < 2
                                             else 2)


def test_a_step_is_traced_after_all_that_is_compared(ranks, tmp_path):
    status, said, found = ranks(
        "--only", "PP2,EP2 overlap", "--modes", "layer+scope@auto,exchange",
        "--trace", str(tmp_path / "trace"))
    assert status == 0 and "exposed %" in said, said
    assert found["PP2", "layer"]["replays"] == [16, 16]  # of three steps
    files = {path.name: json.loads(path.read_text())
             for path in (tmp_path / "trace").iterdir()}
    assert files.keys() == {
        f"{name}-rank{rank}.json" for rank in range(2) for name in (
            "PP2-off", "PP2-layer", "EP2-overlap-off",
            "EP2-overlap-scope-auto-exchange")}
    for (row, mode), one in found.items():
        assert one["equal"] and all(
            c["losses"] in (0, 6) for c in one["compared"])
        of = [f for f in files.values() if (f["row"], f["mode"])
              == (row, mode)]
        of.sort(key=lambda each: each["rank"])
        assert [each["shares"] for each in of] == one["traced"]
        assert min(each["step"][0] for each in of) == 0
        for each in of:
            begin, end = each["step"]
            assert begin < 10**9 and each["communication"]
            for _, start, stop in each["compute"] + each["communication"]:
                assert begin - 1e3 < start <= stop < end + 1e3
            assert 0 <= each["shares"]["exposed"] \
                <= each["shares"]["communication"] <= 100

    # And drawn, all of them with the same scale.
    def draw(*files):
        return subprocess.run(
            [sys.executable, "-B",
             str(STARTER.parents[2] / "bench/timeline.py"),
             str(tmp_path / "step.svg"), *map(str, files)],
            capture_output=True, text=True)

    ordered = sorted((tmp_path / "trace").iterdir())
    drawn = draw(*ordered)
    assert drawn.returncode == 0, drawn.stderr
    of_files = (tmp_path / "step.svg").read_text()
    draw(*reversed(ordered))
    assert (tmp_path / "step.svg").read_text() == of_files
    picture = ElementTree.parse(tmp_path / "step.svg")
    tag = "{http://www.w3.org/2000/svg}"
    assert len(picture.findall(f"{tag}path")) == 2 * len(files)
    words = [text.text for text in picture.findall(f"{tag}text")]
    assert "EP2 overlap" in words and \
        'graphhooks, the same scope, overlap="auto", exchange="auto"' in words
    (tmp_path / "other.json").write_text("[]")
    drawn = draw(tmp_path / "other.json")
    assert drawn.returncode == 2 and "other.json is no trace of megatron_" \
        "ranks.py; a picture is drawn of those of --trace" in drawn.stderr
    (tmp_path / "other.json").write_text("[")
    assert "other.json is no trace: Expecting value" in draw(
        tmp_path / "other.json").stderr
    drawn = draw(tmp_path / "none.json")
    assert drawn.returncode == 2 and "none.json cannot be read (No such file " \
        "or directory): name the traces of all ranks" in drawn.stderr


def test_a_table_says_which_attention_ran(monkeypatch):
    examples = STARTER.parents[2] / "hosts/pytorch/examples"
    monkeypatch.setattr(sys, "path", [str(examples), *sys.path])
    import megatron_model
    import megatron_ranks

    name = "transformer_engine.pytorch.attention.dot_product_attention"
    module = types.SimpleNamespace()
    monkeypatch.setitem(sys.modules, f"{name}.dot_product_attention", module)
    assert megatron_model.attention() is None
    for kind in ("flash", "fused", "unfused"):
        module._attention_backends = {
            f"use_{each}_attention": each == kind
            for each in ("flash", "fused", "unfused")}
        assert megatron_model.attention() == kind
    known = {"capture_s": 0.0, "compared": [], "differences": {},
             "equal": True, "host_ms": 1.0, "peak_mib": [], "refused": [],
             "recordings": [], "replays": [], "slots": [], "eager_calls": [],
             "step_ms": 1.0, "tokens_per_s": 1.0}
    rows = {("PP2", 2, "[8]"): {"off": {**known, "attention": "unfused"},
                                "layer": {**known, "attention": "unfused"},
                                "chunk": known}}
    assert megatron_ranks.table(rows).splitlines()[-1] \
        == "attention of Transformer Engine: unfused"


def test_a_folder_for_traces_that_cannot_be_is_named(ranks, tmp_path):
    (tmp_path / "file").write_text("")
    status, said, found = ranks("--trace", str(tmp_path / "file"))
    assert status and not found
    assert f"--trace {tmp_path / 'file'}: no folder can be made there (File " \
        "exists); name another" in said


def test_kernels_are_told_apart(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(
        STARTER.parents[2] / "hosts/pytorch/examples"), *sys.path])
    import report

    def event(kind, name, stream, start, us):
        return {"cat": kind, "name": name, "tid": stream, "ts": start,
                "dur": us, "ph": "X"}

    spans = report.spans_of({"baseTimeNanoseconds": 5 * 10**18, "traceEvents": [
        {"ph": "M", "name": "process_name"},
        event("gpu_user_annotation", "nccl:all_to_all", 9, 0, 100),
        event("kernel", "before", 7, -9, 5),
        event("kernel", "sm90_xmma_gemm", 7, 10, 20),
        event("kernel", "ncclDevKernel_SendRecv(ncclDevKernelArgs)", 8, 20, 30),
        event("kernel", "gh_copy_batch_8", 7, 30, 5),
        event("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 7, 60, 5),
        event("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 11, 62, 10),
        event("gpu_memcpy", "Memcpy PtoP (Device -> Device)", 11, 70, 10),
        event("kernel", "gh_send", 7, 82, 4),
        event("gpu_memset", "Memset (Device)", 7, 90, 1)]}, 5 * 10**18 - 2000)
    assert spans == {
        "compute": [[7, 12, 32]],
        "communication": [[7, 84, 88], [8, 22, 52], [11, 64, 82]],
        "copy": [[7, 32, 37], [7, 62, 67], [7, 92, 93]]}
    assert report.shares_of(spans, 100.0) == {
        "step_us": 100.0, "compute": 20, "communication": 52,
        "exposed": 42, "idle": 35}
    assert report.Kernels(torch.device("cpu")).shares() == {}


def test_a_long_training_records_no_more_and_is_told_apart(ranks):
    """That of EP2, whose tokens go by the exchange, too."""
    modes = "scope+scope@exchange"
    long = "--only", "EP2", "--steps", "12", "--steady"
    status, said, found = ranks(*long, "4", "--modes", modes)
    assert status == 0, said
    for mode in modes.split("+"):
        one = found["EP2", mode]
        assert one["equal"] and one["compared"][0]["losses"] == 12 * 2
        for rank, steady in enumerate(one["steady"]):
            assert steady["grows"] == [] and steady["mib"] == []
            (step, recorded), = steady["recorded"]
            assert 1 < step <= 4 and recorded == one["recordings"][rank]
        assert f"{mode}; rank 0: last recording in step {step}; rank 1" in said
    assert [one["recorded"] for one in found["EP2", "off"]["steady"]] \
        == [[], []]


@pytest.mark.parametrize("recorded, last, grows", [
    (2, (100.5, 900.0, 15.0), []),
    (5, (100.5, 900.0, 15.0), ["recordings in step 5"]),
    (2, (102.0, 400.0, 10.0),
     ["allocated 100.0 MiB after step 4 and 102.0 after step 12"]),
    (2, (100.0, 400.0, 30.0),
     ["of the driver 10.0 MiB after step 4 and 30.0 after step 12"])])
def test_what_grows_is_told_apart(monkeypatch, recorded, last, grows):
    monkeypatch.setattr(sys, "path", [str(
        STARTER.parents[2] / "hosts/pytorch/examples"), *sys.path])
    import types

    import common
    import megatron_ranks

    run = common.Run("scope", "scope", recorded=[(recorded, 8)],
                     memory=[(100.0, 400.0, 10.0), last])
    args = types.SimpleNamespace(steady=4, steps=12)
    assert megatron_ranks.unsteady(args, run) == grows

    # It is said, and the program does not end well.
    found = {"equal": True, "steady": [
        {"recorded": run.recorded, "mib": run.memory, "grows": grows}]}
    said = megatron_ranks.steady_words(found)
    assert said.startswith(f"; rank 0: last recording in step {recorded}")
    assert said.endswith("GROWS: " + grows[0]) if grows \
        else "GROWS" not in said
    assert megatron_ranks.verdict({"PP2": {"layer": found}}) == (
        "bitwise equal: 1 of 1 trainings in 1 rows", not grows)


def test_a_mode_that_fails_on_one_rank_ends_no_other(ranks):
    status, said, found = ranks("--only", "PP2,TP2 SP EP2,PP2 MLA MoE",
                                starts=1, FAILS="layer")
    assert "waited 5 s for the others" in said
    # The eager one once more, by the processes that came after.
    assert found.keys() == {("PP2", "off"), ("PP2", "chunk")}
    assert found["PP2", "chunk"]["equal"]
    assert "layer, all: the processes ended, or some waited" in said
    assert "bitwise equal: 1 of 2 trainings" in said
    # What all ranks refuse.
    assert "TP2 SP EP2: left out: Megatron's local spec" in said
    assert "PP2 MLA MoE: left out: Megatron's local spec" in said


@pytest.mark.parametrize("fails", ["synchronize", "rand", None])
def test_a_device_that_works_no_more_is_seen(monkeypatch, fails):
    """An error of a kernel stays; so does a capture, for random numbers."""
    monkeypatch.setattr(sys, "path", [str(
        STARTER.parents[2] / "hosts/pytorch/examples"), *sys.path])
    import common

    def call(*_args, **_named):
        return torch.zeros(1)

    def fail(*_args, **_named):
        raise RuntimeError("Offset increment outside graph capture")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize",
                        fail if fails == "synchronize" else call)
    monkeypatch.setattr(torch, "rand", fail if fails == "rand" else call)
    assert common.alive() is (fails is None)


def test_the_distributed_optimizer_under_a_pipeline(ranks):
    """Parameters are gathered, and gradients scattered, beside the others."""
    row = "PP2 VPP2 DP2 distributed optimizer"
    status, said, found = ranks("--only", row, size=4)
    assert status == 0, said
    for mode in "layer", "chunk":
        one = found[row, mode]
        assert one["equal"] and one["refused"] == [{}] * 4
        assert all(e.keys() == {"warmup"} for e in one["eager_calls"])
        assert all(one["replays"])
