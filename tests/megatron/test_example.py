"""hosts/pytorch/examples/megatron_te.py, small.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import gc
import json
import sys
import weakref
from pathlib import Path

import pytest
from models import HAS_GPU, torch

pytest.importorskip("megatron.core",
                    reason="megatron-core is not installed")
if not HAS_GPU:
    import softmegatron

    softmegatron.install()
    softmegatron.take_any_transformer_engine()

from megatron.core import parallel_state  # noqa: E402

_EXAMPLES = Path(__file__).resolve().parents[2] / "hosts/pytorch/examples"
_SMALL = ("--layers 2 --hidden 64 --heads 4 --sequence 32 --batch 2 "
          "--steps 5 --spec local").split()
_COUNTS = ["--microbatches", "2,3,4,3"]


@pytest.fixture
def example(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(_EXAMPLES), *sys.path])
    import common
    import megatron_te

    monkeypatch.setattr(common, "need_gpu", lambda args: None)
    deterministic = torch.are_deterministic_algorithms_enabled()
    device = [] if HAS_GPU else ["--device", "cpu", "--dtype", "fp32"]
    yield lambda *arguments: megatron_te.main([*_SMALL, *device, *arguments])
    torch.use_deterministic_algorithms(deterministic)
    parallel_state.destroy_model_parallel()


@pytest.mark.parametrize("kind, modes", [
    ("dense", ["layer", "scope", "chunk"]), ("moe", ["scope"]),
    ("moe_pad", ["layer", "scope", "chunk"])])
def test_all_is_equal_and_all_replays(example, tmp_path, kind, modes):
    out = tmp_path / "out.json"
    assert example("--kind", kind, *_COUNTS, "--json", str(out), "--compare",
                   ",".join(["off", *modes])) == 0
    found = json.loads(out.read_text())
    assert found["equal"] and len(found["runs"][0]["loss_bits"]) == 5
    for run in found["runs"][1:]:
        stats = run["stats"]
        # Forwards and backwards of all microbatches but those that warm up.
        assert stats["eager_calls"].keys() == {"warmup"}
        assert stats["refused"] == {}
        segments = 1 if run["mode"] == "chunk" else 2
        assert stats["replays"] == 2 * segments * (2 + 3 + 4 + 3 + 2) \
            - 2 * stats["eager_calls"]["warmup"]


@pytest.mark.parametrize("kind", ["dense", "moe", "moe_pad"])
@pytest.mark.parametrize("mode", ["off", "scope"])
def test_nothing_is_left_of_a_training_that_is_closed(example, kind, mode):
    import megatron_model as megatron

    device = torch.device("cuda", 0) if HAS_GPU else torch.device("cpu")
    megatron.start(device)
    megatron.divide(megatron.Shape())
    shape = megatron.Shape(kind, spec="local", layers=2, hidden=64, heads=4,
                           sequence=32, batch=2)
    training = megatron.Megatron(shape, mode, device)
    if mode == "scope":
        training.graphs.make()
    tokens = torch.arange(64, device=device).view(2, 32)
    for _ in range(3):
        training.step([(tokens, tokens)] * 2)
    weights = [weakref.ref(p) for p in training.core.parameters()]
    training.close()
    del training
    torch.distributed.destroy_process_group()
    for _ in range(2):  # what sessions had, once they are gone
        gc.collect()
    assert weights and all(w() is None for w in weights)


@pytest.mark.parametrize("arguments, says", [
    (["--in-flight", "2"], "--in-flight is the schedule's here"),
    (["--kind", "mla"], "local spec has no layers of mla; --spec te has"),
    (["--fp8", "delayed"], "--fp8 is of Transformer Engine's modules"),
])
def test_what_does_not_fit_is_said_before_all_else(example, capsys, arguments,
                                                   says):
    assert example(*arguments) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("missing, arguments, says", [
    ("megatron.core", [], "megatron-core is missing; pip install megatron"),
    ("transformer_engine", ["--spec", "te"], "whose modules --spec te is made"),
    ("transformer_engine", ["--compare", "off,te"], "or leave te out"),
    ("mamba_ssm", ["--spec", "te", "--kind", "hybrid"], "a --pattern without"),
])
def test_what_is_missing_is_said_with_what_installs_it(
        example, capsys, monkeypatch, missing, arguments, says):
    import megatron_model

    monkeypatch.setattr(megatron_model, "installed",
                        lambda name: name != missing)
    assert example(*arguments) == 2
    assert says in capsys.readouterr().err


@pytest.fixture
def all_of(example, tmp_path):
    """Lines of --all of some kinds, and what it says."""
    out = tmp_path / "all.jsonl"

    def run(*arguments):
        status = example("--all", str(out), *_COUNTS, "--modes",
                         "layer+scope:attn+scope+chunk", *arguments)
        return status, [json.loads(line) for line in
                        out.read_text().splitlines()]

    return run


def test_all_kinds_are_lines_of_one_file(all_of, capsys):
    status, found = all_of("--only", "dense,moe,mla", "--part", "1/2")
    said = capsys.readouterr().out
    by_name = {one["name"]: one for one in found}
    assert list(by_name)[:2] == ["dense", "moe"] and "mla" in by_name
    assert {"dense delayed", "dense dropout 0.1"} & by_name.keys() \
        == {"dense delayed"}  # the other is in the other part
    assert status == 0 and "bitwise equal: 5 of 5 trainings" in said
    for name, modes in {"dense": ["chunk", "layer", "scope:attn"],
                        "moe": ["scope", "scope:attn"]}.items():
        one = by_name[name]
        assert sorted(one["modes"]) == modes
        assert one["compared"]["losses"] == 2 + 3 + 4 + 3 + 2
        assert one["compared"]["weights"] and one["compared"]["optimizer"]
        for run in one["modes"].values():
            assert run["equal"] and run["replays"] and not run["refused"]
            assert run["eager_calls"].keys() == {"warmup"}
    assert "left out: Megatron's local spec has no layers of mla" in said


@pytest.mark.skipif(HAS_GPU, reason="an optimizer of mixed precision has "
                    "weights of its own, which become the model's")
def test_a_difference_is_named_and_what_is_there_is_not_run_again(
        all_of, monkeypatch, capsys):
    import megatron_all
    import megatron_model

    monkeypatch.setattr(megatron_all, "CONFIGURATIONS",
                        [megatron_all.Configuration("dense", ("layer",)),
                         megatron_all.Configuration("moe", ("scope",))])
    assert all_of("--only", "dense")[0] == 0
    made = megatron_model.Hooked.make

    def other(self, count=0):
        made(self, count)
        with torch.no_grad():
            self.training.core.embedding.word_embeddings.weight[0, 0] += 1

    monkeypatch.setattr(megatron_model.Hooked, "make", other)
    status, found = all_of()
    assert status == 1 and [one["name"] for one in found] == ["dense", "moe"]
    assert found[0]["modes"]["layer"]["equal"]
    assert not found[1]["modes"]["scope"]["equal"]
    said = capsys.readouterr().out
    assert "bitwise equal: 1 of 2 trainings in 2 configurations" in said
    assert "moe: scope: " in said and "weights differ from those of off" in said


def test_a_mode_that_fails_is_said_and_the_others_go_on(all_of, monkeypatch,
                                                        capsys):
    import megatron_model

    monkeypatch.setattr(megatron_model.Hooked, "make",
                        lambda self, count=0: 1 / 0)
    status, found = all_of("--only", "moe", "--part", "1/99")
    assert status == 1
    assert [run["error"] for run in found[0]["modes"].values()] == [
        "ZeroDivisionError: division by zero"] * 2
    assert "it did not finish: ZeroDivisionError" in capsys.readouterr().out


def test_time_may_be_up(all_of, monkeypatch, capsys):
    import megatron_all

    clock = iter(range(0, 10**6, 100))
    monkeypatch.setattr(megatron_all.time, "monotonic", lambda: next(clock))
    status, found = all_of("--only", "dense", "--budget", "150")
    assert [one["name"] for one in found] == ["dense"]
    assert "150 s are over: start it again" in capsys.readouterr().err
    assert status == 0
