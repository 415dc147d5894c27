"""The wheel: built from the build tree, installed where nothing else is.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from conftest import FAMILIES, PACKAGE, TOP
from graphhooks import __version__

SCRIPT = PACKAGE / "build-wheel.sh"
SONAME = "libgraphhooks.so.0"
SOFTCUDA = "libgraphhooks-softcuda.so"


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
        "graphhooks/bin/gh-engine",
        "graphhooks/share/graphhooks/text/shakespeare.txt",
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
    said = subprocess.run(
        [python, "-m", "graphhooks", "demo", "--driver", "soft", "--steps",
         "3"], capture_output=True, text=True, env=clean(), cwd=tmp_path,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert said.stdout.endswith("bitwise equal: yes\n")


# ---- a wheel for an older glibc --------------------------------------------


def newest_glibc(build_tree):
    """What the library needs, in the words of a tag."""
    said = subprocess.run(
        ["readelf", "-W", "--dyn-syms", build_tree / ".libs" / SONAME],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return max((tuple(map(int, version.split(".")))
                for version in re.findall(r"@GLIBC_([0-9]+\.[0-9]+)", said)),
               default=(2, 2))  # fmt: skip


@pytest.fixture
def built(wheel, api):
    if shutil.which("readelf") is None:
        pytest.skip("no readelf, with which a platform is checked")
    return Path(api.path).parent.parent


def test_a_platform_of_what_the_library_needs_is_taken(built, tmp_path):
    major, minor = newest_glibc(built)
    platform_tag = f"manylinux_{major}_{minor}_{platform.machine()}"
    said = run(built, tmp_path, platform_tag)
    assert said.returncode == 0, said.stderr
    (made,) = tmp_path.iterdir()
    assert made.name == f"graphhooks-{__version__}-py3-none-{platform_tag}.whl"
    text = zipfile.ZipFile(made).read(
        f"graphhooks-{__version__}.dist-info/WHEEL").decode()  # fmt: skip
    assert f"Tag: py3-none-{platform_tag}\n" in text


def test_a_platform_of_an_older_glibc_is_refused(built, tmp_path):
    major, minor = newest_glibc(built)
    older = f"manylinux_{major}_{minor - 1}_{platform.machine()}"
    said = run(built, tmp_path / "out", older)
    assert (said.returncode, said.stdout) == (1, "")
    assert f" of GLIBC_{major}.{minor}, and {older} promises " in said.stderr
    assert "build-aux/wheels.sh builds for an older glibc" in said.stderr
    assert not (tmp_path / "out").exists()


def test_a_platform_of_another_machine_is_refused(built, tmp_path):
    other = "aarch64" if platform.machine() != "aarch64" else "x86_64"
    said = run(built, tmp_path / "out", f"manylinux_2_99_{other}")
    assert said.returncode == 1
    assert f", and the wheel would say {other}\n" in said.stderr


def test_a_library_that_needs_more_than_libc_is_refused(built, tmp_path):
    """Here the software device does."""
    copy = tmp_path / "copy"
    shutil.copytree(built / ".libs", copy / ".libs",
                    ignore=shutil.ignore_patterns("*.a", "*.la", "gh-engine",
                                                  "graphhooks"))
    shutil.copytree(built / "plugins" / ".libs", copy / "plugins" / ".libs")
    shutil.copy(built / "gh-engine", copy)
    more = copy / ".libs" / "libmore.so"
    link = [*os.environ.get("CC", "cc").split(), "-shared", "-nostdlib"]
    link += ["-x", "c", "/dev/null", "-x", "none"]
    try:
        for command in ([*link, "-Wl,-soname,libmore.so.1", "-o", more],
                        [*link, "-Wl,--no-as-needed", more, "-o",
                         copy / ".libs" / SOFTCUDA]):  # fmt: skip
            subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no compiler that links a library")
    said = run(copy, tmp_path / "out", f"manylinux_2_99_{platform.machine()}")
    assert said.returncode == 1
    assert f"{SOFTCUDA} needs libmore.so.1, which manylinux_" in said.stderr


def test_wheels_for_a_machine_that_nobody_knows_are_refused(tmp_path):
    said = subprocess.run(
        ["sh", TOP / "build-aux" / "wheels.sh", tmp_path / "out", "vax"],
        capture_output=True, text=True, env=clean(WORK=str(tmp_path / "work")),
    )  # fmt: skip
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr == (
        "wheels.sh: there is no wheel for vax: x86_64 and aarch64 are known\n"
    )
    assert list(tmp_path.iterdir()) == []


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
    shutil.copytree(TOP / "hosts" / "engine" / "data",
                    top / "hosts" / "engine" / "data")  # fmt: skip
    (top / "lib").mkdir()
    (top / "configure.ac").write_text("")
    built = Path(api.path).parent.parent
    (top / "configure").write_text(
        f"#!/bin/sh\nset -e\nmkdir plugins\n"
        f"printf 'in-wheel:\\n\\tcp -r {built}/.libs .\\n"
        f"\\tcp {built}/gh-engine .\\n"
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


def test_a_source_archive_without_the_library_is_refused(checkout, tmp_path):
    said = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", "import backend, sys; "
         "backend.build_sdist(sys.argv[1])", tmp_path / "out"],
        capture_output=True, text=True, env=clean(),
        cwd=checkout / "hosts" / "pytorch",
    )  # fmt: skip
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr.startswith("graphhooks: a source archive of the pack")
    assert "make dist makes one of all" in said.stderr
    assert not (tmp_path / "out").exists()


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
