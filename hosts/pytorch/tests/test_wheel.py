"""The wheel: built from the build tree, installed where nothing else is.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from conftest import PACKAGE
from graphhooks import __version__

SCRIPT = PACKAGE / "build-wheel.sh"


def clean(**variables):
    """Nothing that leads to the build tree."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GRAPHHOOKS_", "PYTHON"))
        and name not in ("LD_LIBRARY_PATH", "builddir", "srcdir")
    }
    return {**env, **variables}


def build(build_tree, out):
    return subprocess.run(
        ["sh", SCRIPT, build_tree, out], capture_output=True, text=True,
        env=clean(PYTHON=sys.executable),
    )  # fmt: skip


def can_build():
    try:
        import setuptools
    except ImportError:
        return False
    version = tuple(int(n) for n in setuptools.__version__.split(".")[:2])
    return version >= (70, 1) or importlib.util.find_spec("wheel") is not None


@pytest.fixture(scope="module")
def wheel(api, tmp_path_factory):
    if not can_build():
        pytest.skip("no setuptools of 70.1 or wheel to build a wheel with")
    tree = Path(api.path).parent.parent
    if not (tree / "plugins" / ".libs").is_dir():
        pytest.skip("the library that is tested is not in a build tree")
    said = build(tree, tmp_path_factory.mktemp("wheel"))
    assert said.returncode == 0, said.stderr
    return Path(said.stdout.split()[-1])


def test_the_wheel_is_for_any_python_3_on_this_machine(wheel):
    tags = f"py3-none-linux_{platform.machine()}"
    assert wheel.name == f"graphhooks-{__version__}-{tags}.whl"


def test_the_wheel_carries_the_library_and_what_belongs_to_it(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    lib = "graphhooks/lib"
    assert {
        "graphhooks/__main__.py",
        f"{lib}/libgraphhooks.so.0",
        f"{lib}/graphhooks/libgraphhooks-softcuda.so",
        f"{lib}/graphhooks/gpt.so",
        f"{lib}/graphhooks/mamba.so",
        f"{lib}/graphhooks/mla.so",
        f"{lib}/graphhooks/stack.so",
    } <= names
    modules = {f"graphhooks/{p.name}"
               for p in (PACKAGE / "graphhooks").glob("*.py")}  # fmt: skip
    assert modules <= names


def test_the_wheel_works_in_a_fresh_environment(wheel, tmp_path):
    home = tmp_path / "venv"
    try:
        venv.create(home, with_pip=True, symlinks=True)
    except subprocess.CalledProcessError:
        pytest.skip("no ensurepip: python3-venv is missing")
    python = home / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "--no-index",
         "--disable-pip-version-check", wheel],
        check=True, env=clean(), cwd=tmp_path,
    )  # fmt: skip
    said = subprocess.run(
        [python, "-m", "graphhooks", "info"], capture_output=True, text=True,
        env=clean(), cwd=tmp_path,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert f"{home}/" in said.stdout
    assert "graphhooks/lib/libgraphhooks.so.0" in said.stdout
    assert "gpt, mamba, mla, stack" in said.stdout
    assert "soft      usable" in said.stdout
    said = subprocess.run(
        [python, "-m", "graphhooks", "plan", "--family", "gpt"],
        capture_output=True, text=True, env=clean(), cwd=tmp_path,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr


def test_a_build_tree_without_a_library_is_refused(tmp_path):
    said = build(tmp_path, tmp_path / "out")
    assert said.returncode == 1
    assert "has no libgraphhooks.so.0; run make there first" in said.stderr
    assert not (tmp_path / "out").exists()
