"""The wheel: built from the build tree, installed where nothing else is.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from conftest import FAMILIES, PACKAGE
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


def run(*arguments, python=sys.executable, cwd=None):
    return subprocess.run(
        ["sh", SCRIPT, *arguments], capture_output=True, text=True,
        env=clean(PYTHON=python), cwd=cwd,
    )  # fmt: skip


def build(build_tree, out):
    return run(build_tree, out)


def tree(folder):
    return sorted(
        path for path in folder.rglob("*") if "__pycache__" not in path.parts
    )


def can_build():
    try:
        import setuptools
    except ImportError:
        return False
    version = tuple(int(n) for n in setuptools.__version__.split(".")[:2])
    return version >= (70, 1) or importlib.util.find_spec("wheel") is not None


def environment(home):
    """A fresh one, with pip and nothing else."""
    try:
        venv.create(home, with_pip=True, symlinks=True)
    except subprocess.CalledProcessError:
        pytest.skip("no ensurepip: python3-venv is missing")
    return home


@pytest.fixture(scope="module")
def wheel(api, tmp_path_factory):
    if not can_build():
        pytest.skip("no setuptools of 70.1 or wheel to build a wheel with")
    top = Path(api.path).parent.parent
    if not (top / "plugins" / ".libs").is_dir():
        pytest.skip("the library that is tested is not in a build tree")
    before = tree(PACKAGE)
    said = build(top, tmp_path_factory.mktemp("wheel") / "dist")
    assert said.returncode == 0, said.stderr
    # One line, no warnings, and nothing left beside the source.
    assert (said.stdout.count("\n"), said.stderr) == (1, "")
    assert tree(PACKAGE) == before
    made = Path(said.stdout.rstrip("\n"))
    assert list(made.parent.iterdir()) == [made]
    return made


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
        *(f"{lib}/graphhooks/{family}.so" for family in FAMILIES),
    } <= names
    modules = {str(path.relative_to(PACKAGE))
               for path in (PACKAGE / "graphhooks").rglob("*.py")}  # fmt: skip
    assert modules <= names


def test_the_wheel_works_in_a_fresh_environment(wheel, tmp_path):
    home = environment(tmp_path / "venv")
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
    assert f"families  {', '.join(FAMILIES)}\n" in said.stdout
    assert "soft      usable" in said.stdout
    said = subprocess.run(
        [python, "-m", "graphhooks", "plan", "--family", "gpt"],
        capture_output=True, text=True, env=clean(), cwd=tmp_path,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr


def test_an_editable_install_is_found_beside_the_clone(wheel, tmp_path):
    """Whose folder has the package's name, and is none."""
    clone = tmp_path / "graphhooks" / "hosts" / "pytorch"
    shutil.copytree(PACKAGE, clone)
    home = environment(tmp_path / "venv")
    python = home / "bin" / "python"
    paths = os.pathsep.join(p for p in sys.path if "site-packages" in p
                            or "dist-packages" in p)  # fmt: skip
    said = subprocess.run(
        [python, "-m", "pip", "install", "-q", "--no-index", "--no-deps",
         "--no-build-isolation", "--disable-pip-version-check", "-e", clone],
        capture_output=True, text=True, cwd=tmp_path,
        env={**clean(), "PYTHONPATH": paths},
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    said = subprocess.run(
        [python, "-c", "import graphhooks; print(graphhooks.attach)"],
        capture_output=True, text=True, env=clean(), cwd=tmp_path,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr


# ---- what pip makes of a checkout ------------------------------------------


@pytest.fixture
def checkout(wheel, api, tmp_path):
    """With a configure that takes what is built already."""
    top = tmp_path / "checkout"
    shutil.copytree(PACKAGE, top / "hosts" / "pytorch")
    (top / "lib").mkdir()
    (top / "configure.ac").write_text("")
    built = Path(api.path).parent.parent
    (top / "configure").write_text(
        f"#!/bin/sh\nset -e\nmkdir plugins\n"
        f"printf 'libraries:\\n\\tcp -r {built}/.libs .\\n"
        f"\\tcp -r {built}/plugins/.libs plugins\\n' > Makefile\n"
    )
    (top / "configure").chmod(0o755)
    return top


def pip_wheel(checkout, out, *settings, **variables):
    """What the backend says, and the files of the wheel that it has made."""
    call = (
        "import backend, sys; print(backend.build_wheel(sys.argv[1], "
        "dict(a.split('=') for a in sys.argv[2:])))"
    )
    said = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", call, out, *settings],
        capture_output=True, text=True,
        cwd=checkout / "hosts" / "pytorch", env=clean(**variables),
    )  # fmt: skip
    made = list(out.glob("*.whl")) if out.exists() else []
    return said, {n for w in made for n in zipfile.ZipFile(w).namelist()}


LIBRARY = "graphhooks/lib/libgraphhooks.so.0"


def test_pip_builds_the_library_of_a_checkout(checkout, tmp_path):
    out = tmp_path / "out"
    before = tree(checkout)
    said, names = pip_wheel(checkout, out)
    assert said.returncode == 0, said.stderr
    (made,) = out.iterdir()
    assert said.stdout == f"{made.name}\n"
    assert made.name.endswith(f"-py3-none-linux_{platform.machine()}.whl")
    assert LIBRARY in names and "graphhooks/torch/__init__.py" in names
    assert tree(checkout) == before


def test_pip_takes_a_library_that_is_built(checkout, api, tmp_path):
    (checkout / "configure").write_text("#!/bin/sh\nexit 1\n")
    built = Path(api.path).parent.parent
    (checkout / "made").symlink_to(built)
    for number, library in enumerate((built, "made")):  # from the top
        out = tmp_path / f"out{number}"
        said, names = pip_wheel(checkout, out, f"library={library}")
        assert said.returncode == 0, said.stderr
        assert LIBRARY in names


def test_pip_leaves_the_library_out_when_asked(checkout, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    said, names = pip_wheel(checkout, out, "library=none")
    assert said.returncode == 0, said.stderr
    assert "graphhooks/__main__.py" in names and LIBRARY not in names


def test_pip_says_what_is_missing_to_build(checkout, tmp_path):
    (checkout / "configure").unlink()
    said, names = pip_wheel(checkout, tmp_path / "out", PATH=str(tmp_path))
    assert said.returncode == 1 and not names
    packages = "gcc make autoconf automake libtool pkg-config"
    assert f"takes {packages}: apt-get install {packages}; or" in said.stderr
    assert "library=none ./hosts/pytorch" in said.stderr
    assert "Traceback" not in said.stderr


def test_pip_shows_why_a_build_has_failed(checkout, tmp_path):
    (checkout / "configure").write_text("#!/bin/sh\necho no room\nexit 1\n")
    said, names = pip_wheel(checkout, tmp_path / "out")
    assert said.returncode == 1 and not names
    assert said.stderr.startswith("no room\n")
    assert "configure failed; or install" in said.stderr


def test_a_build_tree_without_a_library_is_refused(tmp_path):
    if not can_build():
        pytest.skip("no setuptools of 70.1 or wheel to build a wheel with")
    said = build(tmp_path, tmp_path / "out")
    assert said.returncode == 1
    assert "has no libgraphhooks.so.0; run make there first" in said.stderr
    assert not (tmp_path / "out").exists()


INSTALL = (
    "cannot build a wheel: python3 -m pip install -U setuptools wheel, or "
    "PYTHON=... build-wheel.sh\n"
)


@pytest.mark.parametrize(
    "setuptools, wheel, refused",
    [
        (None, True, True),
        ("60.9.3", True, True),
        ("65.5.0", False, True),
        ("65.5.0", True, False),
        ("70.1.0", False, False),
    ],
)
def test_the_interpreter_comes_first(tmp_path, setuptools, wheel, refused):
    modules = tmp_path / "modules"
    modules.mkdir()
    if setuptools is not None:
        command = modules / "setuptools" / "command"
        command.mkdir(parents=True)
        (command / "__init__.py").write_text("")
        (command.parent / "__init__.py").write_text(
            f"__version__ = '{setuptools}'\n"
        )
        if setuptools >= "70":
            (command / "bdist_wheel.py").write_text("")
    if wheel:
        (modules / "wheel.py").write_text("")
    python = tmp_path / "python"
    python.write_text(
        f"#!/bin/sh\nPYTHONPATH={modules} exec {sys.executable} -S \"$@\"\n"
    )
    python.chmod(0o755)
    # A folder that is named like a module is not one.
    (tmp_path / "setuptools").mkdir()
    said = run(tmp_path, tmp_path / "out", python="./python", cwd=tmp_path)
    assert said.returncode == 1
    text = INSTALL if refused else "has no libgraphhooks.so.0; run make"
    assert text in said.stderr and said.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_an_interpreter_that_is_not_there_is_named(tmp_path):
    said = run(tmp_path, tmp_path / "out", python="/no/such/python")
    assert said.returncode == 1
    assert said.stderr == f"build-wheel.sh: /no/such/python {INSTALL}"


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_the_script_says_how_it_is_used(word):
    said = run(word, python="/no/such/python")
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.startswith("usage: ") and "PYTHON is" in said.stdout
    wrong = run("one")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == said.stdout
