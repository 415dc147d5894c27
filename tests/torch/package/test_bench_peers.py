"""The arithmetic of bench/peers, without a device or torch; and what its
programs say where something is missing.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
from conftest import TOP, scripts

PEERS = TOP / "bench" / "peers"
if not PEERS.is_dir():
    pytest.skip("there is no bench/peers here", allow_module_level=True)


@pytest.fixture(scope="module")
def peers():
    """Its modules, by name."""
    names = ("brief", "cases", "report", "run")
    with scripts(PEERS, *names) as modules:
        yield dict(zip(names, modules))


@pytest.fixture
def report(peers):
    return peers["report"]


def test_scripts_of_two_folders_may_have_one_name(report, tmp_path):
    (tmp_path / "report.py").write_text("title = 'another one'\n")
    with scripts(tmp_path, "report") as (other,):
        assert other.title == "another one"
    assert sys.modules["report"] is report


def turn(step=10.0, passes=5000.0, rest=200.0, prepare=1.0, device=2**30,
         losses=((2.5,), (2.25,)), steps=(0.5, 0.01, 0.01, 0.01)):
    return {"device_ms": [step] * 5, "wall_ms": [step] * 5,
            "passes_us": [passes] * 3, "step_us": [passes + 100] * 3,
            "rest_us": [rest] * 3, "prepare_s": prepare,
            "prepared_steps_s": list(steps),
            "memory": {"allocated": 1, "reserved": 2,
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
    assert not report.compare_losses([], eager)["equal"]


@pytest.mark.parametrize("losses, words", [
    ([[2.5], [2.25]], "equal"), ([[2.5]], "equal in 1 step"),
    ([[2.5], [2.25], [2.0]], "equal in 2 steps"), ([], "not compared"),
    ([[2.5], [2.0], [2.0]], "UNEQUAL from step 1, last by 0.25")])
def test_of_a_row_with_other_steps_those_that_both_have_are_compared(
        report, losses, words):
    said = report.compare_losses(losses, [[2.5], [2.25]])
    assert report.words_of_losses(said) == words


def test_the_table_says_what_is_noted_of_a_row(report):
    one = result(torch__eager={"turns": [turn()], "note": "of yesterday"})
    report.summarize(one)
    assert "\n- eager: of yesterday\n" in report.table(one)


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


def test_a_target_whose_row_failed_is_not_measured_and_says_why(report):
    failed = {"turns": [], "failed": "RuntimeError: no"}
    there = {"turns": [turn()]}
    for rows in ({"torch__chunk": failed, "torch__step": there},
                 {"torch__chunk": there, "torch__step": failed}):
        (said,) = judged(report, result(**rows)).values()
        assert said["said"] == "not measured"
        which = "chunk" if rows["torch__chunk"] is failed else "step"
        assert said["why"] == f"torch/{which}: RuntimeError: no"
        (line,) = report.table_of_targets([said]).splitlines()[2:]
        assert line.endswith(
            f"| not measured: torch/{which}: RuntimeError: no |")
        assert line.count("|") == 7
    assert not judged(report, result(torch__chunk=there))


def test_a_target_without_its_number_is_not_measured(report):
    short = turn()
    del short["rest_us"]
    rows = result(torch__layer={"turns": [short]},
                  torch__graphed={"turns": [turn()]})
    said = judged(report, rows)[
        "host time of a layer: torch/layer against torch/graphed"]
    assert (said["said"], said["why"]) == ("not measured",
                                           "torch/layer: no such time")
    # Both rows ran, and yet not all is known.
    words, well = report.everything([rows])
    assert not well
    assert words.endswith("\nno target missed, 1 target not measured\n")


def test_without_a_gpu_nothing_is_judged(report):
    rows = result(torch__chunk={"turns": [turn()]},
                  torch__step={"turns": [turn(step=1.0)]})
    rows["machine"]["device"] = "cpu"
    words, well = report.everything([rows])
    assert well and words.endswith("no target judged\n")
    assert "| target |" not in words
    rows["machine"]["device"] = "NVIDIA H200"
    words, well = report.everything([rows])
    assert not well and "| target |" in words


def test_the_table_has_the_commands_of_all_cases_once(report):
    first, second, third = result(), result(hidden=2048), result(sequence=512)
    first["commands"] = third["commands"] = ["run.py a"]
    second["commands"] = ["run.py a", "run.py b --merge"]
    words = report.everything([first, second, third])[0]
    assert [line for line in words.splitlines() if "run.py" in line] == [
        "    run.py a", "    run.py b --merge"]


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
    assert "1 target missed\n" in capsys.readouterr().out
    kept = json.loads((tmp_path / "peers_h2048s256m1.json").read_text())
    assert [one["said"] for one in kept["targets"]] == ["missed"]


@pytest.mark.parametrize("row, words", [
    ({"turns": [], "failed": "RuntimeError: no"},
     "no target judged, 1 row failed\n"),
    ({"turns": [turn()], "failed": "RuntimeError: another turn"},
     "no target judged, 1 row failed\n"),
    ({"turns": []}, "no target judged, 1 row failed\n"),
    # Its first turn stays, and the second was not begun.
    ({"turns": [turn()], "failed": "left out: 9 s are over"},
     "no target judged\n"),
    ({"turns": [], "failed": "left out: 9 s are over"},
     "no target judged, 1 row failed\n"),
])
def test_the_exit_status_is_1_when_a_row_failed(report, tmp_path, row, words):
    report.save(str(tmp_path), result(torch__eager={"turns": [turn()]},
                                      torch__compile=row))
    assert report.finish(str(tmp_path)) == ("failed" in words)
    assert (tmp_path / "table.md").read_text().endswith("\n" + words)


def test_rows_take_turns_and_the_slow_one_has_a_single_turn(peers):
    options, work = peers["run"].parse(
        ["out", "--rows", "torch/eager,torch/compile,torch/layer",
         "--shapes", "h1024s256"])
    assert [case.name for case in work] == ["h1024s256m1", "h1024s256m4"]
    jobs = peers["run"].jobs_of(options, work)
    assert [(row, turn_) for row, turn_, case in jobs if case is work[1]] == [
        ("torch/eager", 0), ("torch/compile", 0), ("torch/layer", 0),
        ("torch/eager", 1), ("torch/layer", 1)]
    assert [case for _, _, case in jobs] == 5 * work


@pytest.mark.parametrize("words, said", [
    (["--rows", "torch/fast"], "run.py: no row torch/fast; there are torch/"),
    (["--rows", ","], "run.py: no row is named; there are torch/eager"),
    (["--shapes", "h1"], "run.py: no shape h1; there are h1024s256, h1024"),
    (["--shapes", "h1024s256", "--quick"], "there are h128s32, h128s64"),
    (["--device", "cpu", "--merge"], "--merge is for results of a GPU"),
    (["--microbatches", "1,x"], "'x' is no number from 1 on"),
    (["--turns", "0"], "'0' is no number from 1 on"),
    (["--timed", "1"], "'1' is no number from 2 on"),
    (["--device", "cpu", "--resume"], "--resume is for results of a GPU"),
    (["--cases", "moe:4"], "--cases is for the te rows: add --rows te"),
    (["--rows", "te", "--cases", "moe:4,no:4"], "no case no:4; there are d"),
    (["--rows", "te", "--cases", "moe"], "no case moe; there are dense"),
], ids=" ".join)
def test_a_wrong_argument_is_named_with_those_there_are(peers, capsys, words,
                                                        said):
    with pytest.raises(SystemExit) as ended:
        peers["run"].parse(["out", *words])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_what_is_offloaded_is_a_set_of_rows(peers):
    options, work = peers["run"].parse(
        ["out", "--rows", "offload", "--shapes", "h4096s8192",
         "--microbatches", "4", "--in-flight", "8"])
    assert options.rows[0] == "torch/eager"
    assert "torch/layer+offload" in options.rows
    assert [case.name for case in work] == ["h4096s8192m4f4"]
    assert work[0].vocabulary == peers["cases"].VOCABULARY
    options, work = peers["run"].parse(["out"])
    assert not any("offload" in row for row in options.rows)
    assert "h4096s8192" not in [case.shape for case in work]


def test_rows_of_transformer_engine_have_shapes_of_their_own(peers, capsys):
    options, work = peers["run"].parse(
        ["out", "--rows", "te", "--shapes", "dense_fp8,moe",
         "--microbatches", "8", "--turns", "1"])
    assert [case.name for case in work] == ["dense_fp8_h1024s512m8",
                                            "moe_h1024s512m8"]
    jobs = [(row, case.kind) for row, _, case
            in peers["run"].jobs_of(options, work)]
    assert ("te/chunk", "dense") in jobs and ("te/scope", "moe") in jobs
    # Experts whose tokens the host counts are in no graph of the whole.
    assert ("te/chunk", "moe") not in jobs
    assert ("te/full_iteration", "moe") not in jobs
    assert ("te/local", "moe") not in jobs
    assert [job[2].kind for job in peers["run"].jobs_of(options, work)] \
        == ["dense"] * 6 + ["moe"] * 3
    with pytest.raises(SystemExit):
        peers["run"].parse(["out", "--rows", "te/te,torch/eager"])
    assert "shapes of their own" in capsys.readouterr().err


def test_targets_of_transformer_engines_rows(report):
    said = result(te__te={"turns": [turn(10.0)]},
                  te__scope={"turns": [turn(9.0, passes=2000.0)]},
                  te__full_iteration={"turns": [turn(8.0)]},
                  te__chunk={"turns": [turn(8.5)]})
    said["case"]["kind"] = "dense"
    report.summarize(said)
    judged = {one["target"]: one["said"] for one in report.targets(said)}
    assert judged["step: te/scope against te/te"] == "met"
    assert judged["host time of the passes: te/scope against te/te"] == "met"
    assert judged["capture time: te/scope against te/te"] == "missed"
    assert judged["step: te/chunk against te/full_iteration"] == "missed"
    assert len(judged) == 5
    assert "## dense: 24 layers" in report.table(said)


def test_time_to_the_first_replayed_step_is_in_steps_of_eager(peers, report):
    slow = {**turn(9.0), "first_replayed_s": 0.2}
    said = result(te__eager={"turns": [turn(40.0)]},
                  te__scope={"turns": [slow, {**slow,
                                              "first_replayed_s": 0.196}]},
                  te__chunk={"turns": [{**slow, "first_replayed_s": 0.21}]})
    said["case"]["kind"] = "dense"
    found = judged(report, said)
    what = "time to the first replayed step, in steps: te/{} against te/eager"
    assert found[what.format("scope")]["ratio"] == pytest.approx(4.95)
    assert found[what.format("scope")]["said"] == "met"
    assert found[what.format("chunk")]["said"] == "missed"
    table = cells(peers["brief"].table("first", peers["brief"].first, [said]))
    assert [row[1] for row in table[2:]] == ["5.0", "5.2"]


def test_what_offload_frees_is_said_beside_what_it_can_free(peers, report):
    def settled(step, size):
        one = turn(step)
        one["memory"]["settled"] = size + one["memory"]["device_before"]
        return {"turns": [one]}

    case = peers["cases"].te_cases(["offload:4"])[0]
    could = 4 * 2 * 2 * 4096 * 2048 * 7
    said = result(te__te=settled(10.0, 4 * could),
                  te__scope=settled(8.0, 3 * could),
                  **{"te__te+offload": settled(15.0, 3.5 * could),
                     "te__scope+offload": settled(10.0, 2.25 * could)})
    said["case"] = case.to_dict()
    found = judged(report, said)
    assert found["step: te/scope+offload against te/te+offload"]["ratio"] \
        == pytest.approx(2 / 3)
    rows = cells(report.table(said).split("\n\n")[-1])
    assert [row[1:] for row in rows[2:]] == [
        ["1.500", "0.44", "0.88", "0.50"], ["1.250", "0.66", "0.88", "0.75"]]


def test_cases_of_transformer_engine_come_in_their_order(peers):
    parse = peers["run"].parse
    _, work = parse(["out", "--rows", "te"])
    assert [f"{case.kind}:{case.microbatches}" for case in work[:3]] \
        == ["dense:4", "moe:4", "moe_pad:4"]
    assert len({case.name for case in work}) == len(work) \
        == len(peers["cases"].TE_CASES)
    assert {case.microbatches for case in work} == {1, 4, 8}
    _, work = parse(["out", "--rows", "te", "--cases", "delay:2,dense:1"])
    assert [case.kind for case in work] == ["delay", "dense"]
    _, work = parse(["out", "--rows", "te", "--shapes", "dense_large"])
    assert [(case.layers, case.hidden, case.sequence, case.microbatches)
            for case in work] == [(16, 4096, 4096, 4)]
    # What has more is beside the same without, in a case of its own.
    fits, rows = peers["cases"].fits, peers["cases"].TE_ROWS
    assert [row for row in rows if fits(row, "offload")] == [
        "te/eager", "te/te", "te/scope", "te/te+offload", "te/scope+offload",
        "te/eager+recompute"]
    assert not any("+" in row for row in rows if fits(row, "moe"))


def test_a_run_goes_on_where_time_was_up(peers, report, tmp_path):
    run = peers["run"]
    words = [str(tmp_path), "--rows", "te/te,te/scope,te/chunk",
             "--cases", "dense:4,moe:4"]
    options, work = run.parse(words)
    book = run.Book(options, work, "first")
    job = ("te/te", 0, work[0])
    assert not book.has(*job)
    book.add(*job, {"result": turn(), "machine": {}})
    book.add("te/scope", 0, work[0], {"failed": "RuntimeError: no"})
    run.leave(("te/te", 1, work[0]), 480, book)
    run.leave(("te/chunk", 0, work[0]), 480, book)
    options, work = run.parse([*words, "--resume"])
    book = run.Book(options, work, "second")
    left = [job for job in run.jobs_of(options, work) if not book.has(*job)]
    assert [(row, turn_, case.kind) for row, turn_, case in left] == [
        ("te/chunk", 0, "dense"), ("te/te", 1, "dense"),
        ("te/chunk", 1, "dense"), ("te/te", 0, "moe"), ("te/scope", 0, "moe"),
        ("te/te", 1, "moe"), ("te/scope", 1, "moe")]
    there = book.results[work[0].name]
    assert there["commands"] == ["first", "second"]
    assert there["rows"]["te/scope"]["failed"] == "RuntimeError: no"
    assert "failed" not in there["rows"]["te/te"]
    options, work = run.parse(words)
    assert run.Book(options, work, "")\
        .results[work[0].name]["rows"]["te/te"] == {"turns": []}


def test_pieces_give_their_fullest_cases(report, tmp_path):
    for name, cases in {
            "a": [result(te__te={"turns": [turn(1.0)]}),
                  result(hidden=2048, te__te={"turns": [turn(2.0)] * 2})],
            "b": [result(te__te={"turns": [turn(3.0)] * 2}),
                  result(hidden=2048, te__te={"turns": [turn(4.0)]})]}.items():
        (tmp_path / name).mkdir()
        for case in cases:
            report.save(str(tmp_path / name), case)
    out = str(tmp_path / "out")
    assert report.main([out, str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert [case["rows"]["te/te"]["summary"]["step_ms"]["median"]
            for case in report.read(out)] == [3.0, 2.0]


def test_what_would_not_end_in_time_is_not_begun(peers, tmp_path, monkeypatch):
    run = peers["run"]
    options, work = run.parse([str(tmp_path), "--rows", "te/te,te/scope",
                               "--cases", "dense:4", "--budget", "5"])
    monkeypatch.setattr(run, "Worker", lambda *_: pytest.fail("it began"))
    book = run.run(options, work, {})
    rows = book.results[work[0].name]["rows"]
    assert [row["failed"] for row in rows.values()] \
        == ["left out: 5 s are over"] * 2
    words = run.listed(options, work)
    assert words.startswith("dense_h1024s512m4: ") and "te/scope" in words


def test_without_mamba_its_cases_are_left_out(peers, capsys):
    run, te_cases = peers["run"], peers["cases"].te_cases
    work = te_cases(["mamba:4", "moe:4"])
    assert run.without_mamba(work, ALL) == work
    assert run.without_mamba(work, {**ALL, "mamba": False}) == work[1:]
    assert "mamba left out: mamba_ssm is missing" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run.without_mamba(work[:1], {**ALL, "mamba": False})


ALL = {"torch": "", "gpu": True, "megatron": True, "te": True, "mamba": True}


def test_with_all_there_is_every_row_runs(peers, capsys):
    rows = list(peers["cases"].ROWS)
    assert peers["run"].able(rows, ALL, "cuda") == rows
    assert capsys.readouterr().err == ""


def test_rows_of_a_missing_package_are_left_out_if_others_remain(
        peers, capsys):
    rows = ["torch/eager", "megatron/local", "megatron/layer"]
    found = {**ALL, "megatron": False}
    assert peers["run"].able(rows, found, "cuda") == ["torch/eager"]
    assert capsys.readouterr().err == (
        "run.py: megatron/local, megatron/layer left out: megatron-core is "
        "missing; pip install megatron-core, or put it in PYTHONPATH\n")


@pytest.mark.parametrize("rows, found, device, said", [
    (["torch/eager", "megatron/eager"], {"torch": "No module named 'torch'"},
     "cuda", "torch cannot be imported (No module named 'torch'); pip install "
     "torch"),
    (["torch/eager"], {"torch": "gone"}, "cpu", "pip install torch"),
    (["torch/eager", "megatron/eager"], {"gpu": False, "megatron": False},
     "cuda", "torch sees no GPU; --device cpu --quick is a look without one"),
    (["megatron/eager"], {"gpu": False, "megatron": False}, "cuda",
     "megatron-core is missing"),
    (["te/te"], {"te": False}, "cuda", "transformer_engine is missing; pip"),
    (["te/te"], {"megatron": False}, "cuda", "megatron-core is missing"),
    (["torch/layer", "megatron/eager"], {"gpu": False}, "cpu",
     "only the rows torch/eager, torch/compile; leave --device cpu out"),
])
def test_without_any_row_one_sentence_ends_it(peers, capsys, rows, found,
                                              device, said):
    with pytest.raises(SystemExit) as ended:
        peers["run"].able(rows, {**ALL, **found}, device)
    assert ended.value.code == 2
    words = capsys.readouterr().err
    assert said in words and words.count("\n") == 1


def test_a_cpu_has_the_eager_row_and_the_compiled_one_if_named(peers):
    options, _ = peers["run"].parse(["out", "--device", "cpu"])
    assert options.rows == ["torch/eager"]
    options, _ = peers["run"].parse(
        ["out", "--device", "cpu", "--rows",
         "torch/compile,torch/layer,torch/eager"])
    found = {**ALL, "gpu": False, "megatron": False}
    assert peers["run"].able(options.rows, found, "cpu") == [
        "torch/compile", "torch/eager"]


def test_every_option_has_a_text(peers):
    for action in peers["run"].make_parser()._actions:
        assert action.help, action.dest


def test_a_full_run_has_the_shapes_and_steps_that_are_promised(peers):
    options, work = peers["run"].parse(["out"])
    assert [case.name for case in work] == [
        "h1024s256m1", "h1024s256m4", "h1024s1024m1", "h1024s1024m4",
        "h2048s2048m1", "h2048s2048m4"]
    assert all(case.layers == 24 for case in work)
    assert options.turns * (options.steps.timed - 1) >= 30
    assert options.rows == list(peers["cases"].DEFAULT_ROWS)
    assert set(peers["cases"].ROWS) == set(peers["cases"].WORDS)


@pytest.mark.parametrize("asked, timed, issued", [
    ([], 20, 24), (["--timed", "3"], 3, 24), (["--issued", "2"], 20, 2),
    (["--timed", "3", "--issued", "2"], 3, 2),
    (["--quick", "--issued", "2"], 6, 2)])
def test_as_many_steps_are_measured_as_are_asked_for(peers, asked, timed,
                                                     issued):
    steps = peers["run"].parse(["out", *asked])[0].steps
    assert (steps.timed, steps.issued) == (timed, issued)


# ---- the tables of bench/README --------------------------------------------


@pytest.fixture
def two_cases(report):
    """One with a floor, and one in which a row had no time."""
    first = result(torch__layer={"turns": [turn(step=10.5)]},
                   torch__step={"turns": [turn()]},
                   megatron__local={"turns": [turn(step=20.0)]},
                   megatron__layer={"turns": [turn(step=19.0)]})
    second = result(hidden=2048, torch__eager={"turns": [turn()]},
                    torch__layer={"turns": [turn(losses=((2.5,), (2.0,)))]},
                    megatron__local={"turns": [turn(step=20.0)]},
                    megatron__layer={"turns": [], "failed": "left out: 9 s"})
    for case in (first, second):
        report.summarize(case)
    return [first, second]


def cells(text):
    return [line.strip("| ").split(" | ") for line in text.splitlines()]


def test_a_table_has_a_line_for_each_row_and_a_column_for_each_case(
        peers, two_cases):
    brief = peers["brief"]
    head, _, *body = cells(brief.table("step", brief.step, two_cases))
    assert head == ["step", "h1024 s256 m1", "h2048 s256 m1"]
    assert body == [
        ["eager", "not measured", "10.00"],
        ["graphhooks, layer", "10.50 (1.050)", "10.00"],
        ["the whole step as one torch.cuda.graph (the floor)",
         "10.00 (1.000)", "not measured"],
        ["Megatron-Core, local graphs", "20.00", "20.00"],
        ["Megatron-Core, graphhooks, layer", "19.00", "not measured"]]


def test_a_row_without_such_a_number_has_no_line(peers, two_cases):
    brief = peers["brief"]
    _, _, *body = cells(brief.table("capture", brief.capture, two_cases))
    assert [name for name, *_ in body] == [
        "graphhooks, layer",
        "the whole step as one torch.cuda.graph (the floor)",
        "Megatron-Core, local graphs", "Megatron-Core, graphhooks, layer"]


def test_rows_with_other_losses_are_named_with_their_cases(peers, two_cases):
    assert "in every row but: graphhooks, layer (h2048 s256 m1).\n" \
        in peers["brief"].bits(two_cases)
    assert peers["brief"].bits(two_cases[:1]).endswith("in every row.\n")
    assert peers["brief"].bits(two_cases[1:]).endswith(
        "in every row but: graphhooks, layer.\n")
    del two_cases[0]["rows"]["torch/layer"]
    assert peers["brief"].bits(two_cases).endswith(
        "in every row but: graphhooks, layer.\n")


def test_a_target_that_was_not_measured_is_not_met(peers, two_cases):
    outcome = cells(peers["brief"].outcome(two_cases))
    assert ["step: megatron/layer against megatron/local", "1", "0.950",
            "1 of 2"] in outcome
    assert ["step over the floor, launch-bound: torch/layer against "
            "torch/step", "1.05", "1.050", "1 of 1"] in outcome


def test_readme_has_the_tables_of_the_results(peers, results, capsys):
    assert peers["brief"].main([str(results / "h200/peers")]) == 0
    readme = (TOP / "bench/README.md").read_text()
    for part in capsys.readouterr().out.split("\n\n"):
        assert part.strip() in readme


def test_readme_has_the_steps_of_the_examples(results):
    """In its table's order; all of them with the bits of eager."""
    said = re.findall(r"^\| .*((?: \| [0-9.]+ ms){3}) \|$",
                      (TOP / "bench/README.md").read_text(), re.MULTILINE)
    found = []
    for name in ("train_gpt", "train_gpt_dropout", "megatron_gpt",
                 "megatron_gpt_dropout", "train_gpt_ddp",
                 "train_gpt_ddp_dropout"):
        path = results / "h200/examples" / f"{name}.json"
        ran = json.loads(path.read_text())
        assert ran["equal"] is True
        found.append("".join(f" | {run['median_step_ms']:.1f} ms"
                             for run in ran["runs"]))
    assert said == found


# ---- the programs ----------------------------------------------------------


def program(name, *arguments, **variables):
    return subprocess.run(
        [sys.executable, PEERS / f"{name}.py", *arguments],
        capture_output=True, text=True, timeout=600,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **variables})


def test_help_is_given():
    for name in ("run", "report"):
        said = program(name, "--help")
        assert said.returncode == 0, said.stderr
        assert said.stdout.startswith(f"usage: {name}.py ")
        assert "Exit status" in said.stdout


def test_tables_of_nothing_are_one_sentence(tmp_path):
    done = program("brief", str(tmp_path))
    assert done.returncode == 2 and "no peers_*.json is in" in done.stderr
    assert program("brief").returncode == 2
    assert "OUTDIR" in program("brief", "--help").stdout


def test_a_report_of_nothing_is_one_sentence(tmp_path):
    for folder in (tmp_path, tmp_path / "none"):
        said = program("report", folder)
        assert said.returncode == 2
        assert said.stderr == (f"report.py: no peers_*.json is in {folder}; "
                               "name a folder that run.py has written to\n")


def test_a_file_is_no_place_for_results(tmp_path):
    (tmp_path / "x").touch()
    said = program("run", tmp_path / "x")
    assert said.returncode == 2
    assert said.stderr.startswith(f"run.py: {tmp_path}/x is no folder to")
    assert said.stderr.count("\n") == 1


def test_without_torch_one_sentence_says_so(tmp_path):
    (tmp_path / "torch.py").write_text(
        "raise ModuleNotFoundError('No module named torch')\n")
    for device in ("cuda", "cpu"):
        said = program("run", tmp_path / "out", "--device", device,
                       PYTHONPATH=str(tmp_path))
        assert said.returncode == 2
        assert said.stderr == ("run.py: torch cannot be imported (No module "
                               "named torch); pip install torch\n")


def test_without_a_gpu_one_sentence_says_so(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    said = program("run", tmp_path / "out")
    assert said.returncode == 2
    assert said.stderr == ("run.py: torch sees no GPU; --device cpu --quick "
                           "is a look without one\n")


def test_a_look_without_a_gpu_has_a_table_and_no_targets(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed")
    said = program("run", tmp_path, "--device", "cpu", "--quick", "--shapes",
                   "h128s32", "--microbatches", "1")
    assert said.returncode == 0, said.stderr
    assert said.stdout.endswith("\nno target judged\n\n")
    assert "| eager |" in said.stdout and "| target |" not in said.stdout
    kept = json.loads((tmp_path / "peers_h128s32m1.json").read_text())
    assert list(kept["rows"]) == ["torch/eager"] and kept["targets"] == []
    again = program("report", tmp_path)
    assert again.returncode == 0 and again.stdout == said.stdout
