"""The arithmetic of bench/peers: no device, no torch.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import importlib
import json
import sys

import pytest
from conftest import TOP

PEERS = TOP / "bench" / "peers"
if not PEERS.is_dir():
    pytest.skip("there is no bench/peers here", allow_module_level=True)


@pytest.fixture(scope="module")
def peers():
    """Its modules, by name; they are scripts beside each other."""
    sys.path.insert(0, str(PEERS))
    try:
        yield {name: importlib.import_module(name)
               for name in ("cases", "report", "run")}
    finally:
        sys.path.remove(str(PEERS))


@pytest.fixture
def report(peers):
    return peers["report"]


def turn(step=10.0, passes=5000.0, rest=200.0, prepare=1.0, device=2**30,
         losses=((2.5,), (2.25,)), steps=(0.5, 0.01, 0.01, 0.01)):
    return {"device_ms": [step] * 5, "wall_ms": [step] * 5,
            "passes_us": [passes] * 3, "step_us": [passes + 100] * 3,
            "rest_us": [rest] * 3, "prepare_s": prepare,
            "prepared_steps_s": list(steps),
            "memory": {"allocated": 1, "reserved": 2, "left_over": 0,
                       "device": device + 7, "device_before": 7},
            "losses": [list(step) for step in losses]}


def result(hidden=1024, sequence=256, microbatches=1, **rows):
    """A case; the names of rows have a double underscore for the slash."""
    return {"case": {"layers": 24, "hidden": hidden, "sequence": sequence,
                     "microbatches": microbatches, "batch": 1,
                     "vocabulary": 512},
            "machine": {}, "commands": [],
            "rows": {name.replace("__", "/"): row
                     for name, row in rows.items()}}


def judged(report, what):
    report.summarize(what)
    return {one["target"]: one for one in report.targets(what)}


def test_quantiles_are_between_the_values_next_to_them(report):
    values = [5.0, 1.0, 3.0, 2.0, 4.0]
    assert report.quantile(values, 0.5) == 3.0
    assert report.quantile(values, 0.1) == pytest.approx(1.4)
    assert report.quantile(values, 0.9) == pytest.approx(4.6)
    assert report.quantile([7.0], 0.9) == 7.0


def test_capture_time_is_without_what_replayed_steps_take(report):
    one = turn(prepare=1.0, steps=(0.5, 0.2, 0.01, 0.01))
    assert report.capture_ms(one) == pytest.approx(1680.0)


def test_host_time_of_a_layer_is_without_the_rest_of_the_model(report):
    turns = [turn(passes=10000.0, rest=400.0)]
    assert report.layer_us(turns, 24, 4) == pytest.approx(100.0)
    del turns[0]["rest_us"]
    assert report.layer_us(turns, 24, 4) is None


def test_medians_are_of_the_steps_of_all_turns(report):
    said = report.summary([turn(step=10.0), turn(step=11.0)],
                          result()["case"], None)
    assert said["step_ms"]["count"] == 10
    assert said["step_ms"]["median"] == 10.5
    assert said["turns_ms"] == [10.0, 11.0]
    assert said["spread"] == pytest.approx(0.1)
    assert said["memory"]["device"] == 2**30


def test_losses_are_compared_bit_for_bit_in_all_steps(report):
    eager = [[2.5, 2.0], [2.25, 1.0]]
    assert report.compare_losses(eager, eager)["equal"]
    said = report.compare_losses([[2.5, 2.0], [2.25, 1.125]], eager)
    assert not said["equal"]
    assert said["first_unequal_step"] == 1
    assert said["last_difference"] == 0.125
    early = report.compare_losses([[2.4, 2.0], [2.25, 1.0]], eager)
    assert not early["equal"] and early["last_difference"] == 0.0
    assert not report.compare_losses(eager[:1], eager)["equal"]


def test_each_target_is_met_up_to_its_limit_and_missed_above(report):
    for most in (report.MOST_HOST_RATIO, report.MOST_LAYER_OVER_FLOOR,
                 report.MOST_CHUNK_OVER_FLOOR, report.MOST_CAPTURE_RATIO):
        assert report.judge("x", most * 8, 8.0, most)["said"] == "met"
        assert report.judge("x", most * 8.01, 8.0, most)["said"] == "missed"
    assert (report.MOST_HOST_RATIO, report.MOST_STEP_RATIO,
            report.MOST_LAYER_OVER_FLOOR, report.MOST_CHUNK_OVER_FLOOR,
            report.MOST_MEMORY_RATIO, report.MOST_CAPTURE_RATIO) == (
                0.2, 1.0, 1.05, 1.02, 1.0, 0.5)


def test_a_difference_smaller_than_that_of_two_turns_is_said_so(report):
    assert (report.judge("x", 10.1, 10.0, 1.0, 0.015)["said"]
            == "met within the spread")
    assert report.judge("x", 10.2, 10.0, 1.0, 0.015)["said"] == "missed"
    # However far the turns are from each other.
    assert report.judge("x", 10.3, 10.0, 1.0, 0.5)["said"] == "missed"


def test_every_target_has_the_rows_and_the_numbers_that_it_is_about(report):
    rows = result(
        torch__eager={"turns": [turn()]},
        torch__graphed={"turns": [turn(passes=5000.0)]},
        torch__layer={"turns": [turn(step=10.4, passes=1000.0)]},
        torch__chunk={"turns": [turn(step=10.3)]},
        torch__step={"turns": [turn(step=10.0)]},
        megatron__local={"turns": [turn(prepare=4.0)]},
        megatron__layer={"turns": [turn(step=9.0, passes=1200.0)]},
        megatron__chunk={"turns": [turn(device=2**30 + 1)]})
    said = {what: one["said"] for what, one in judged(report, rows).items()}
    assert said == {
        "host time of a layer: torch/layer against torch/graphed": "met",
        # (1200 - 200) over (5000 - 200) is more than a fifth.
        "host time of a layer: megatron/layer against megatron/local":
            "missed",
        "step: torch/layer against torch/graphed": "missed",
        "step: torch/chunk against torch/graphed": "missed",
        "step: megatron/layer against megatron/local": "met",
        "step: megatron/chunk against megatron/local": "met",
        "step over the floor, launch-bound: torch/layer against torch/step":
            "met",
        "step over the floor: torch/chunk against torch/step": "missed",
        "peak memory of the device: megatron/layer against megatron/local":
            "met",
        "peak memory of the device: megatron/chunk against megatron/local":
            "missed",
        "capture time: megatron/layer against megatron/local": "met",
        "capture time: megatron/chunk against megatron/local": "met",
    }


def test_a_layer_is_held_to_the_floor_only_where_launches_bind(report):
    rows = {"torch__layer": {"turns": [turn()]},
            "torch__step": {"turns": [turn()]}}
    assert len(judged(report, result(**rows))) == 1
    assert not judged(report, result(hidden=2048, sequence=2048, **rows))


def test_a_row_that_failed_has_missed_and_one_that_was_left_out_has_not(
        report):
    failed = {"turns": [], "failed": "RuntimeError: no"}
    rows = result(torch__chunk=failed, torch__step={"turns": [turn()]},
                  torch__graphed=failed)
    said = judged(report, rows)
    assert said["step over the floor: torch/chunk against torch/step"][
        "said"] == "missed"
    both = result(torch__chunk={"turns": [turn()]}, torch__graphed=failed)
    assert [one["said"] for one in judged(report, both).values()] == [
        "not judged"]
    assert not judged(report, result(torch__chunk={"turns": [turn()]}))


def test_the_table_has_a_line_for_each_row_and_the_sentence_of_a_failure(
        report):
    rows = result(torch__eager={"turns": [turn()]},
                  torch__step={"turns": [turn(step=8.0)]},
                  torch__compile={"turns": [],
                                  "failed": "RuntimeError: overwritten"},
                  torch__graphed={"turns": [turn(losses=((2.5,), (2.0,)))]})
    report.summarize(rows)
    lines = report.table(rows).splitlines()
    assert "RuntimeError: overwritten" in "\n".join(lines)
    eager = next(line for line in lines if line.startswith("| eager"))
    assert "| 1.250 |" in eager and "| equal |" in eager
    graphed = next(line for line in lines if "graphed_callables" in line)
    assert "UNEQUAL from step 1, last by 0.25" in graphed
    width = lines[2].count("|")
    assert all(line.count("|") == width for line in lines[2:]
               if line.startswith("|"))


def test_the_exit_status_is_1_when_a_target_is_missed(
        report, tmp_path, capsys):
    met = result(torch__chunk={"turns": [turn()]},
                 torch__step={"turns": [turn()]})
    report.save(str(tmp_path), met)
    assert report.finish(str(tmp_path)) == 0
    assert "no target missed" in (tmp_path / "table.md").read_text()
    missed = result(hidden=2048, torch__chunk={"turns": [turn(step=10.3)]},
                    torch__step={"turns": [turn()]})
    report.save(str(tmp_path), missed)
    assert report.finish(str(tmp_path)) == 1
    assert "1 targets missed" in capsys.readouterr().out
    kept = json.loads((tmp_path / "peers_h2048s256m1.json").read_text())
    assert [one["said"] for one in kept["targets"]] == ["missed"]


def test_rows_take_turns_and_the_slow_one_has_a_single_turn(peers):
    options, work = peers["run"].parse(
        ["out", "--rows", "torch/eager,torch/compile,torch/layer",
         "--shapes", "h1024s256"])
    assert [case.name for case in work] == ["h1024s256m1", "h1024s256m4"]
    assert [(row, turn_) for row, turn_, _ in
            peers["run"].jobs_of(options, work)] == [
        ("torch/eager", 0), ("torch/compile", 0), ("torch/layer", 0),
        ("torch/eager", 1), ("torch/layer", 1)]
    options.apart = True
    assert len(peers["run"].jobs_of(options, work)) == 10


def test_a_wrong_row_or_shape_is_named_with_those_there_are(peers):
    for words, said in ((["--rows", "torch/fast"], "no row torch/fast"),
                        (["--shapes", "h1"], "no shape h1; there are")):
        with pytest.raises(SystemExit) as ended:
            peers["run"].parse(["out", *words])
        assert said in str(ended.value)


def test_a_full_run_has_the_shapes_and_steps_that_are_promised(peers):
    options, work = peers["run"].parse(["out"])
    assert [case.name for case in work] == [
        "h1024s256m1", "h1024s256m4", "h1024s1024m1", "h1024s1024m4",
        "h2048s2048m1", "h2048s2048m4"]
    assert all(case.layers == 24 for case in work)
    assert options.turns * (options.steps.timed - 1) >= 30
    assert set(options.rows) == set(peers["cases"].WORDS)
