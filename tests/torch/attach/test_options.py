"""Options, in Python's spelling, and the variables that win over them.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from models import COUNTS, GRAINS, LAYERS, Run, torch

import graphhooks
from graphhooks import Error

GRAIN = pytest.mark.parametrize("grain", GRAINS)


def off(how):
    return {"enable": 0} if how == "option" else {}


@GRAIN
@pytest.mark.parametrize("how", ["option", "variable"])
def test_all_is_eager_when_it_is_off(pair, monkeypatch, grain, how):
    if how == "variable":
        monkeypatch.setenv("GRAPHHOOKS_ENABLE", "0")
    run = pair(lambda r: r.steps(), grain=grain, replays=False, judge=False,
               **off(how))
    stats = run.attached.stats()
    assert stats["replays"] == stats["recordings"] == 0
    assert "graphs are turned off" in run.attached.explain() \
        or stats["eager_calls"].get("disabled", 0) > 0


def test_warmup_steps(pair):
    run = pair(lambda r: r.steps(), warmup_steps=3)
    assert run.attached.stats()["eager_calls"] == \
        {"warmup": LAYERS * sum(COUNTS[:3])}


@GRAIN
def test_no_warmup(pair, grain):
    pair(lambda r: r.steps(), grain=grain, warmup_steps=0)


def test_a_variable_wins(pair, monkeypatch):
    monkeypatch.setenv("GRAPHHOOKS_MAX_SLOTS", "1")
    run = pair(lambda r: r.steps(in_flight=3), max_slots=8, eager=["busy"])
    assert run.attached.stats()["slots"] == 1


def test_recordings_are_frozen(pair):
    """What is not recorded when the second step is over stays eager."""
    def train(run):
        run.steps([2, 2])
        run.steps([4, 4], in_flight=3)

    run = pair(train, freeze=1, eager=["frozen"])
    assert run.attached.stats()["slots"] >= 1


@GRAIN
@pytest.mark.parametrize("how", ["option", "variable"])
def test_strict_lets_graphs_and_the_warmup_through(pair, monkeypatch, grain,
                                                   how):
    if how == "variable":
        monkeypatch.setenv("GRAPHHOOKS_STRICT", "1")

    def train(run):
        run.steps()
        with torch.no_grad():
            run.note(run.loss())

    pair(train, grain=grain, eager=["forward_only"],
         **{"strict": True} if how == "option" else {})


def test_strict_raises_where_a_call_is_eager(runs):
    run = runs(grain="layer", strict=True, max_slots=1)
    with pytest.raises(Error, match=r"would run eagerly \(busy\)"):
        run.steps(in_flight=3)
    assert run.attached.stats()["eager_calls"]["busy"] == 1


def test_strict_says_why_a_layer_is_refused(runs):
    run = runs(grain="layer", strict=True)
    run.steps([1])
    run.attached.segments[1].refuse("because")
    with pytest.raises(Error, match=r"run eagerly \(refused\): because"):
        run.steps([1])


@GRAIN
def test_ranges_change_no_bit(pair, grain):
    pair(lambda r: r.steps(), grain=grain, nvtx=True)


@GRAIN
@pytest.mark.parametrize("how", ["option", "variable", "off"])
def test_passes_are_ranges_of_torchs_profiler(runs, monkeypatch, grain, how):
    if how == "variable":
        monkeypatch.setenv("GRAPHHOOKS_NVTX", "1")
    run = runs(grain=grain, **{"nvtx": True} if how == "option" else {})
    run.steps([2])
    with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        run.steps([2, 3])
    replays = run.attached.stats()["replays"]
    assert replays > 0
    found = {e.key: e.count for e in profile.key_averages()}
    for segment in run.attached.segments:
        for direction in "forward", "backward":
            name = f"{segment.name} {direction}"
            assert (name in found) == (how != "off")
            if how != "off":
                assert found[name] >= 2 + 3


def test_a_trace_is_written(runs, tmp_path):
    path = tmp_path / "trace.json"
    run = runs(grain="layer", trace=str(path)).steps()
    run.detach()
    assert json.loads(path.read_text())


@pytest.mark.parametrize("backend", ["cudaMallocAsync", "pluggable"])
def test_memory_of_other_allocators_is_refused(runs, monkeypatch, backend):
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: backend)
    with pytest.raises(Error, match=f"of the {backend} allocator"):
        runs(grain="layer")


@pytest.mark.parametrize("options, why", [
    ({"max_slot": 3}, "max_slot is no option"),
    ({"granularity": "layers"}, "granularity"),
    ({"scope": "atn"}, "scope|did you mean"),
    ({"max_slots": 65}, "64"),
    ({"check": "bytewise"}, "check is|did you mean"),
    ({"gradients": "later"}, "gradients is 'later'; it is graph or")])
def test_options_that_are_wrong(options, why):
    run = Run()
    with pytest.raises(Error, match=why):
        run.grain = "layer"
        run.attach(**options)
    assert all("forward" not in vars(m) for m in run.model.modules())
    run.steps(COUNTS[:1])
    assert torch.isfinite(run.notes[-1])


def test_the_README_has_every_reason():
    package = Path(graphhooks.__file__).parent
    counted = {reason for path in (package / "torch").rglob("*.py")
               for reason in re.findall(r'count\("(\w+)"', path.read_text())}
    text = (package.parent / "README.md").read_text()
    rows = set(re.findall(r"^\| `(\w+)` \| (?:is|has|finds|comes|would)",
                          text, re.M))
    assert counted <= rows
    assert rows - counted == {"ranks"}  # the library's own
