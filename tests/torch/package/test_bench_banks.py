"""The arithmetic of bench/banks_torch.py, and the picture of what it leaves,
without a device or torch.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import importlib
import json
import sys

import pytest
from conftest import TOP

BENCH = TOP / "bench"
if not (BENCH / "banks_torch.py").is_file():
    pytest.skip("there is no bench here", allow_module_level=True)


@pytest.fixture
def bench(monkeypatch):
    """A module by its name."""
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return importlib.import_module


@pytest.fixture
def torch_bench(bench):
    return bench("banks_torch")


def test_lengths_are_those_of_the_text_and_the_same_each_time(torch_bench):
    options = torch_bench.parse(["x.json"])
    found = torch_bench.batches(options)
    assert found == torch_bench.batches(options) and len(found) == 200
    assert {length for _, length in found} == set(range(64, 513, 64))
    for rows, length in found:
        assert len(rows) == 4
        assert length - 64 < max(map(len, rows)) <= length


def test_a_row_is_held_against_eager_and_fixed_shapes(torch_bench):
    options = torch_bench.parse(["x.json", "--steps", "4"])
    lengths = [length for _, length in torch_bench.batches(options)]
    fixed = {str(length): length / 10 for length in lengths}

    def row(factor, losses, **more):
        times = [1e6, 1e6, *(factor * fixed[str(n)] for n in lengths[2:])]
        return {"all_ms": times, "losses": losses, **more}

    rows = {"eager": row(3, ["a"] * 4),
            "one shape": row(2, ["a", "a", "b", "a"]),
            "banks": row(1.05, ["a"] * 4, reserved_bytes=104,
                         device_bytes=208),
            "compile": {"failed": "RuntimeError: no"},
            "fixed": {"by_length": fixed, "reserved_bytes": 100,
                      "device_bytes": 160}}
    torch_bench.judge(rows, options)
    assert rows["banks"]["equal"] and not rows["one shape"]["equal"]
    assert rows["banks"]["ratio"] == pytest.approx(1.05)
    assert rows["eager"]["ratio"] == pytest.approx(3)
    assert rows["banks"]["reserved_over_longest"] == 1.04
    assert rows["banks"]["device_over_longest"] == 1.3
    assert "losses" not in rows["eager"]


def test_what_there_is_none_of_is_one_sentence(torch_bench, capsys):
    with pytest.raises(SystemExit):
        torch_bench.parse(["x.json", "--rows", "eager,bank"])
    assert "--rows has bank; there are eager, before" \
        in capsys.readouterr().err


def test_the_picture_has_a_panel_of_them(bench, results, tmp_path):
    for name in ("banks.json", "banks_select.json"):
        (tmp_path / name).write_text((results / "h200" / name).read_text())
    picture = bench("banks_picture")
    assert "PyTorch" not in picture.draw(str(tmp_path))
    (tmp_path / "banks_torch.json").write_text(json.dumps({
        "torch": "2.15.0", "steps": 200, "models": {"gpt2": [
            {"name": "eager", "step_ms": {"median": 30.0}},
            {"name": "banks", "step_ms": {"median": 10.0}},
            {"name": "compile", "failed": "RuntimeError: no"}]}}))
    drawn = picture.draw(str(tmp_path))
    assert ">PyTorch 2.15.0, 200 steps of lengths of text<" in drawn
    assert ">gpt2, banks<" in drawn and ">10.00 ms<" in drawn
    assert "gpt2, compile" not in drawn
