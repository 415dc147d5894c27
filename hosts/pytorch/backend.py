"""For pip: a wheel from a checkout has the library inside, which is built for
it; all else is setuptools' own.

    pip install ./hosts/pytorch
    pip install --config-settings library=none ./hosts/pytorch
    pip install --config-settings library=BUILD ./hosts/pytorch

`library=none` leaves it out, for a machine that has it already, and
`library=BUILD` takes it from a folder in which make has run: a full path, or
one from the checkout's top, as pip calls this in another folder.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403 - the hooks

_HERE = Path(__file__).resolve().parent
_TOP = _HERE.parent.parent
_WITHOUT = ("or install the package alone, for a machine that has the library "
            "already: pip install --config-settings library=none "
            "./hosts/pytorch")  # fmt: skip
# By the name that Debian has for each.
_TO_BUILD = {"make": "make"}
_TO_CONFIGURE = {"autoreconf": "autoconf", "automake": "automake",
                 "libtoolize": "libtool",
                 "pkg-config": "pkg-config"}  # fmt: skip


def build_wheel(wheel_directory, config_settings=None, metadata=None):
    """As PEP 517 has it."""
    library = (config_settings or {}).get("library")
    if library == "none" or library is None and not _is_checkout():
        return build_meta.build_wheel(
            wheel_directory, _rest(config_settings), metadata)  # fmt: skip
    if library is not None:
        return _wheel_of(_TOP / library, wheel_directory)
    with tempfile.TemporaryDirectory(prefix="graphhooks.") as build:
        _build(build)
        return _wheel_of(build, wheel_directory)


def build_sdist(sdist_directory, config_settings=None):
    """That of setuptools would have neither the library nor this file."""
    _fail("a source archive of the package alone has no library to build: "
          "make dist makes one of all, and python -m build --wheel "
          "hosts/pytorch a wheel")  # fmt: skip


def _rest(settings):
    """Those of setuptools."""
    return {k: v for k, v in (settings or {}).items() if k != "library"}


def _is_checkout() -> bool:
    """Or a source archive: the library's sources lie beside the package."""
    return (_TOP / "configure.ac").exists() and (_TOP / "lib").is_dir()


def _build(build: str) -> None:
    _refuse_missing()
    if not (_TOP / "configure").exists():
        _run("autoreconf", "-fi", cwd=_TOP)
    _run(str(_TOP / "configure"), "-q", cwd=build)
    _run("make", "-s", f"-j{os.cpu_count() or 1}", "in-wheel", cwd=build)


def _refuse_missing() -> None:
    tools = dict(_TO_BUILD)
    if not (_TOP / "configure").exists():
        tools.update(_TO_CONFIGURE)
    missing = [tools[tool] for tool in tools if shutil.which(tool) is None]
    if not any(map(shutil.which, (os.environ.get("CC") or "gcc", "cc"))):
        missing.insert(0, "gcc")
    if missing:
        _fail(f"to build the library takes {' '.join(missing)}: "
              f"apt-get install {' '.join(missing)}; {_WITHOUT}")  # fmt: skip


def _run(*command, cwd) -> None:
    done = subprocess.run(command, cwd=cwd, text=True, errors="replace",
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)  # fmt: skip
    if done.returncode != 0:
        sys.stderr.write("\n".join(done.stdout.splitlines()[-20:]) + "\n")
        _fail(f"the library was not built, as {command[0]} failed; {_WITHOUT}")


def _wheel_of(build, wheel_directory) -> str:
    done = subprocess.run(
        ["sh", _HERE / "build-wheel.sh", build, wheel_directory], text=True,
        stdout=subprocess.PIPE, env={**os.environ, "PYTHON": sys.executable},
    )  # fmt: skip
    if done.returncode != 0:
        sys.exit(1)
    return os.path.basename(done.stdout.rstrip("\n"))


def _fail(why: str):
    sys.exit(f"graphhooks: {why}")
