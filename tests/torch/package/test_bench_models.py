"""The table and the picture of bench/models.py, without a device or torch.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import importlib
import json
import sys
import xml.dom.minidom

import pytest
from conftest import TOP

BENCH = TOP / "bench"
if not (BENCH / "models.py").is_file():
    pytest.skip("there is no bench here", allow_module_level=True)

LOSSES = {"losses": [1.0, 2.0], "weights": "ab"}


@pytest.fixture
def bench(monkeypatch):
    """A module by its name."""
    monkeypatch.syspath_prepend(str(BENCH))
    monkeypatch.syspath_prepend(str(BENCH / "models"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return importlib.import_module


def graphs(step, ran=100, **more):
    return {"step_ms": step, "ready_s": 0.25, "ran": ran, "calls": 100,
            "refused": {}, **LOSSES, **more}


def model(**rows):
    return {"rows": {"eager": {"step_ms": 10.0, "ready_s": 0.0, **LOSSES},
                     **rows}}


@pytest.fixture
def files(tmp_path):
    """Of two runs: the second has a row more of the first's model."""
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    compiled = {"step_ms": 5.0, "ready_s": 42.0, "losses": [1.0, 2.5],
                "weights": "cd"}
    one.write_text(json.dumps({"device": "H", "torch": "2", "models": {
        "llama": model(layer=graphs(6.0), chunk=graphs(4.0, weights="ef"))}}))
    two.write_text(json.dumps({"device": "H", "torch": "2", "models": {
        "llama": {"rows": {"reduce-overhead": compiled}},
        "moe": model(layer=graphs(9.0, ran=20, refused={
            "layers.0": "it waits"}), chunk={"failed": "Error: a\nb"})}}))
    return [str(one), str(two)]


def test_rows_are_held_against_eager(bench, files, capsys):
    models = bench("models")
    assert models.main(["--table", *files]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:] == [
        "| llama | 10.00 | 0.50 | 0.60 | 0.40 other | 100 | other | 42.0 "
        "| 0.2 |",
        "| moe | 10.00 |  | 0.90 (20 %) | failed | 20 | equal |  | 0.2 |",
        "", "- moe, chunk: Error: a b",
        "- moe, layer: layers.0 runs eagerly: it waits"]


def test_memory_is_held_against_what_was_foretold(bench, tmp_path, capsys):
    models = bench("models")
    file = tmp_path / "x.json"
    has = {"inputs": 1 << 20, "pools": 4 << 20, "limit": 1 << 20,
           "foretold_inputs": 2 << 20, "foretold_pools": 3 << 20}
    file.write_text(json.dumps({"models": {"llama": model(
        limited=graphs(6.0, ran=50, memory=has))}}))
    assert models.main(["--memory", str(file)]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| llama | limited, 50 % | 2.00 | 1.00 | 3.00 | 4.00 | 0.75 | 1.00 "
        "| equal |"]


def test_the_best_row_is_one_that_replays(bench):
    models = bench("models")
    found = model(layer=graphs(5.0), chunk=graphs(4.0, ran=90))
    assert models.best(found) == "layer"
    assert models.best(model()) is None


def test_the_picture_has_a_bar_for_each_row(bench, files, capsys):
    models = bench("models")
    assert models.main(["--picture", *files]) == 0
    drawn = capsys.readouterr().out
    xml.dom.minidom.parseString(drawn)
    for words in ("llama", "moe", "0.40, other bits", "20 % replayed",
                  "failed", "42.0 s", "Training steps of 2 models"):
        assert words in drawn
    assert models.main(["--picture", *files]) == 0
    assert capsys.readouterr().out == drawn


@pytest.mark.parametrize("arguments, said", [
    (["x.json", "--rows", "eager,fast"], "--rows has fast"),
    (["x.json", "--first", "3"], "--first has to be at least 5"),
    (["x.json", "--rows", "eager,limited"], "limited, which needs layer"),
    ([], "name a file"), (["x.json", "y.json"], "name one file"),
])
def test_a_bad_option_is_named(bench, capsys, arguments, said):
    with pytest.raises(SystemExit):
        bench("models").parse(arguments)
    assert said in capsys.readouterr().err


def test_a_worker_that_dies_leaves_why(bench, tmp_path, monkeypatch):
    models = bench("models")
    worker = tmp_path / "worker.py"
    worker.write_text("import sys\nsys.exit('no GPU')\n")
    monkeypatch.setattr(models, "WORKER", worker)
    options = models.parse([str(tmp_path / "x.json")])[0]
    document = {"models": {}}
    models.wave(["llama"], options, document, 1e12, tmp_path)
    rows = document["models"]["llama"]["rows"]
    assert set(rows) == set(options.rows)
    assert all(row == {"failed": "exit 1: no GPU"} for row in rows.values())
