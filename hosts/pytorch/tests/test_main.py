"""python -m graphhooks.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from conftest import PACKAGE
from graphhooks import __main__ as program


@pytest.fixture
def run(api, monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["graphhooks", *arguments])
        status = program.main()
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


def test_info_has_versions_the_library_and_the_drivers(run, api, monkeypatch):
    monkeypatch.setenv("GRAPHHOOKS_DRIVER", "/no/such.so")
    status, out, _ = run("info")
    assert status == 0
    assert f"{api.version}, ABI 0.2, {api.path}" in out
    assert "gpt, mamba, mla, stack" in out
    assert "soft      usable" in out
    assert "/no/such.so not usable: " in out
    assert "\ncuda " in out


def test_plan_is_text_or_json(run):
    status, out, _ = run("plan", "--layers", "3", "--granularity", "chunk")
    assert status == 0 and "layer 0 attn..layer 2 mlp" in out
    status, out, _ = run("plan", "--json", "--scope", "attn")
    assert status == 0 and len(json.loads(out)["segments"]) == 4


def test_plan_needs_no_driver_and_writes_no_trace(run, monkeypatch, tmp_path):
    monkeypatch.setenv("GRAPHHOOKS_DRIVER", "/no/such.so")
    monkeypatch.setenv("GRAPHHOOKS_TRACE", str(tmp_path / "trace.json"))
    assert run("plan")[0] == 0
    assert list(tmp_path.iterdir()) == []


def test_plan_refuses_with_the_sentence_of_C(run):
    status, out, err = run("plan", "--scope", "moo")
    assert (status, out) == (1, "")
    assert err.startswith("graphhooks: ") and '"moo"' in err


def test_env_shows_what_is_set_and_what_is_wrong(run, monkeypatch):
    monkeypatch.setenv("GRAPHHOOKS_DRIVER", "soft")
    status, out, _ = run("env")
    assert status == 0
    assert "GRAPHHOOKS_DRIVER=soft\n" in out
    assert "GRAPHHOOKS_FREEZE  (not set)\n" in out
    monkeypatch.setenv("GRAPHHOOKS_MAX_SLOT", "4")
    assert "did you mean GRAPHHOOKS_MAX_SLOTS?" in run("env")[1]
    monkeypatch.setenv("GRAPHHOOKS_MAX_SLOTS", "400")
    status, out, _ = run("env")
    assert status == 1 and 'wrong: GRAPHHOOKS_MAX_SLOTS is "400"' in out


def test_an_unknown_command_is_refused(run, capsys):
    with pytest.raises(SystemExit) as caught:
        run("inof")
    assert caught.value.code == 2
    assert "inof" in capsys.readouterr().err


def test_a_reader_that_has_had_enough_is_no_traceback(api):
    reading, writing = os.pipe()
    os.close(reading)
    said = subprocess.run(
        [sys.executable, "-m", "graphhooks", "env"], stdout=writing,
        stderr=subprocess.PIPE, cwd=PACKAGE, text=True,
    )  # fmt: skip
    os.close(writing)
    assert (said.returncode, said.stderr) == (1, "")
