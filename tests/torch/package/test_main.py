"""python -m graphhooks.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import FAMILIES, PACKAGE, TOP
from graphhooks import __main__ as program
from graphhooks.options import variable_of


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
    assert f"{api.version}, ABI 1.0, {api.path}" in out
    assert f"families  {', '.join(FAMILIES)}\n" in out
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


def test_plan_says_what_each_of_its_options_is_for(run, capsys):
    with pytest.raises(SystemExit) as caught:
        run("plan", "--help")
    assert caught.value.code == 0
    said = capsys.readouterr().out
    # An option, and its text on the same line or on the next.
    options = re.findall(
        r"^  (-\S+(?: \S+)?)(?: {2,}|\n {20,})(\S.*)$", said, re.M
    )
    assert len(options) == len(re.findall(r"^  -", said, re.M)) == 9
    assert "which is built from source: graphhooks plan FILE" in " ".join(
        said.split()
    )


def test_plan_does_not_read_files_and_says_what_does(run):
    status, out, err = run("plan", "model.json")
    assert (status, out) == (1, "")
    assert err.startswith("graphhooks: model.json is not read: a FILE")
    assert err.endswith("built from source: graphhooks plan FILE\n")


@pytest.mark.parametrize("number", ["0", "-1", "x", "1000001", "1.5"])
def test_plan_refuses_a_number_of_layers_that_is_none(run, capsys, number):
    with pytest.raises(SystemExit) as caught:
        run("plan", f"--layers={number}")
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert f"--layers: {number} is no number from 1 to 1000000" in said


# ---- demo ------------------------------------------------------------------


def demo(*arguments, library, **variables):
    return subprocess.run(
        [sys.executable, "-m", "graphhooks", "demo", *arguments],
        capture_output=True, text=True, cwd=PACKAGE,
        env={**os.environ, "GRAPHHOOKS_LIBRARY": str(library), **variables},
    )  # fmt: skip


def engine_of(api):
    engine = Path(api.path).parent.parent / program.ENGINE
    if not engine.is_file():
        pytest.skip("the library that is tested has no gh-engine beside it")
    return engine


def test_demo_trains_with_the_library_and_has_the_engines_status(api):
    engine_of(api)
    said = demo("--driver", "soft", "--steps", "2", library=api.path)
    assert said.returncode == 0, said.stderr
    assert said.stdout.endswith("bitwise equal: yes\n")
    wrong = demo("--micro", "x", library=api.path)
    assert wrong.returncode == 2, wrong.stderr
    assert wrong.stderr.startswith("gh-engine: --micro")
    for asks in "-h", "--help":
        said = demo(asks, library=api.path)
        assert said.returncode == 0, said.stderr
        assert said.stdout.startswith("usage: gh-engine")


def test_demo_ends_with_its_reader(api):
    engine_of(api)
    reading, writing = os.pipe()
    os.close(reading)
    said = subprocess.run(
        [sys.executable, "-m", "graphhooks", "demo", "--driver", "soft",
         "--steps", "2"], stdout=writing, cwd=PACKAGE,
        stderr=subprocess.DEVNULL, env={**os.environ,
                                        "GRAPHHOOKS_LIBRARY": api.path},
    )  # fmt: skip
    os.close(writing)
    assert said.returncode == -signal.SIGPIPE


def test_demo_without_the_engine_says_what_has_it(api, tmp_path):
    alone = tmp_path / "lib" / "libgraphhooks.so.0"
    alone.parent.mkdir()
    alone.symlink_to(api.path)
    said = demo(library=alone, PATH=str(tmp_path))
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr.startswith("graphhooks: gh-engine, which trains, is ")
    assert said.stderr.endswith(
        "; install a wheel, which carries it, or Debian's graphhooks-tools, "
        "or build it from source: make\n"
    )


def test_demo_that_cannot_run_is_no_traceback(api, tmp_path):
    alone = tmp_path / "lib" / "libgraphhooks.so.0"
    for folder in (alone.parent, tmp_path / "bin"):
        folder.mkdir()
    alone.symlink_to(api.path)
    engine = tmp_path / "bin" / program.ENGINE
    engine.write_text("")
    said = demo(library=alone)
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr == (
        f"graphhooks: {engine} cannot run: Permission denied; install the "
        "wheel anew, by pip\n"
    )


def test_only_the_demo_takes_options_that_are_not_its_own(run, capsys):
    with pytest.raises(SystemExit) as caught:
        run("info", "--steps", "2")
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert said.endswith("unrecognized arguments: --steps 2\n")


# ---- env -------------------------------------------------------------------


def test_env_shows_what_is_set_and_what_is_wrong(run, monkeypatch):
    monkeypatch.setenv("GRAPHHOOKS_DRIVER", "soft")
    status, out, _ = run("env")
    assert status == 0
    assert "GRAPHHOOKS_DRIVER=soft  (set)\n" in out
    assert "GRAPHHOOKS_FREEZE=0\n" in out
    assert "GRAPHHOOKS_SCOPE=\n" in out
    monkeypatch.setenv("GRAPHHOOKS_MAX_SLOTS", "400")
    status, out, _ = run("env")
    assert status == 1
    assert 'wrong: GRAPHHOOKS_MAX_SLOTS is "400"; set it to a number' in out


def test_env_reports_every_fault_and_every_unknown_name(run, monkeypatch):
    for name, value in (
        ("MAX_SLOTS", "x"), ("SCOPE", "bad"), ("LOG", "loud"),
        ("MAX_SLOT", "4"), ("XYZ", "1"), ("TEST_ANY", "1"), ("FREEZE", ""),
    ):  # fmt: skip
        monkeypatch.setenv("GRAPHHOOKS_" + name, value)
    status, out, _ = run("env")
    assert status == 1
    for name in ("MAX_SLOTS", "SCOPE", "LOG"):
        assert f"wrong: GRAPHHOOKS_{name}" in out
    assert out.count("wrong: ") == 3
    assert "note: GRAPHHOOKS_MAX_SLOT is not a variable of this release; " \
        "did you mean GRAPHHOOKS_MAX_SLOTS?\n" in out  # fmt: skip
    assert "note: GRAPHHOOKS_XYZ is not a variable of this release; " \
        "`python -m graphhooks env` lists them\n" in out  # fmt: skip
    assert out.count("note: ") == 2


def test_an_unknown_name_alone_is_no_fault(run, monkeypatch):
    monkeypatch.setenv("GRAPHHOOKS_MAX_SLOT", "4")
    status, out, _ = run("env")
    assert status == 0 and out.count("note: ") == 1


def test_env_opens_nothing(api, tmp_path):
    said = subprocess.run(
        [sys.executable, "-c", "import sys\n"
         "from graphhooks import __main__ as program\n"
         "sys.argv[1:] = ['env']\n"
         "status = program.main()\n"
         "print('softcuda' in open('/proc/self/maps').read())\n"
         "sys.exit(status)"],
        capture_output=True, text=True, cwd=PACKAGE,
        env={**os.environ, "GRAPHHOOKS_LIBRARY": api.path,
             "GRAPHHOOKS_DRIVER": "soft",
             "GRAPHHOOKS_TRACE": str(tmp_path / "trace.json")},
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert said.stdout.endswith("\nFalse\n")
    assert list(tmp_path.iterdir()) == []


def test_env_cuts_short_and_cleans_what_is_set(run, monkeypatch):
    monkeypatch.setenv("GRAPHHOOKS_TRACE", "a\nb" + 100 * "c")
    assert f"GRAPHHOOKS_TRACE=a?b{73 * 'c'}...  (set)\n" in run("env")[1]


def test_env_has_the_table_of_the_README():
    rows = re.findall(
        r"^\| `(GRAPHHOOKS_[A-Z_]+)` \| (.*) \| (.*) \| (.*) \|$",
        (TOP / "README.md").read_text(), re.M,
    )  # fmt: skip
    assert rows == [
        (variable_of(option), *texts)
        for option, texts in program.MEANINGS.items()
    ]


def test_env_says_what_the_command_says(api):
    command = Path(api.path).parent.parent / "graphhooks"
    if not command.is_file():
        pytest.skip("the library that is tested has no command beside it")
    environment = {**os.environ, "GRAPHHOOKS_LIBRARY": api.path,
                   "GRAPHHOOKS_LOG": "loud", "GRAPHHOOKS_SCOP": "x",
                   "GRAPHHOOKS_CHECK": "bitwise"}  # fmt: skip
    theirs, ours = (
        subprocess.run([*words, "env"], capture_output=True, text=True,
                       env=environment, cwd=PACKAGE)
        for words in ([command], [sys.executable, "-m", "graphhooks"])
    )  # fmt: skip
    assert ours.returncode == theirs.returncode == 1
    rows = ours.stdout.split("\n\n")
    assert [row for row in rows if "GRAPHHOOKS_LIBRARY=" in row] == [
        f"GRAPHHOOKS_LIBRARY={program._shown(api.path)}  (set)\n    "
        + "\n    ".join((program._LIBRARY[2], "a path; default none"))
    ]
    assert [
        row for row in rows if "GRAPHHOOKS_LIBRARY=" not in row
    ] == theirs.stdout.split("\n\n")


def test_env_without_the_library_lists_the_variables_still(api):
    said = subprocess.run(
        [sys.executable, "-m", "graphhooks", "env"], capture_output=True,
        text=True, cwd=PACKAGE,
        env={**os.environ, "GRAPHHOOKS_LIBRARY": "/x/y.so"},
    )  # fmt: skip
    assert said.returncode == 1
    assert "GRAPHHOOKS_MAX_SLOTS=8\n" in said.stdout
    assert "GRAPHHOOKS_LIBRARY=/x/y.so  (set)\n" in said.stdout
    assert "note: without the library, no value was looked at" in said.stdout
    assert said.stderr.startswith("graphhooks: GRAPHHOOKS_LIBRARY is ")


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
