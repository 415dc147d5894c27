"""hosts/pytorch/examples/megatron_te.py, small.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import sys
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
