"""Finding the library, and what is said where that fails.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys

import pytest
from conftest import PACKAGE
from graphhooks import Error, __version__, _abi, _library

CC = os.environ.get("CC", "cc").split()

# A library of another major; `major` and `minor` are what it answers to.
OTHER = """
#include <stdint.h>
#include <stdio.h>
struct error { char text[256]; };
static struct { uint32_t size, version; void *slots[64]; } table =
    { sizeof(table), MAJOR << 16 | MINOR, { 0 } };
uint32_t gh_abi_version(void) { return MAJOR << 16 | MINOR; }
int32_t gh_get_api(uint32_t major, const void **api_p, struct error *err)
{
    if (major != MAJOR) {
        snprintf(err->text, sizeof(err->text), "not this major");
        return -9;
    }
    *api_p = &table;
    return 0;
}
"""


def build(folder, text, *flags):
    if shutil.which(CC[0]) is None:
        pytest.skip("no C compiler to make a library with")
    (folder / "other.c").write_text(text)
    path = folder / "libother.so"
    subprocess.run(
        [*CC, "-shared", "-fPIC", *flags, "-o", path, folder / "other.c"],
        check=True,
    )
    return str(path)


def refusal(path):
    with pytest.raises(Error) as caught:
        _library.open_library(path)
    text = str(caught.value)
    assert "\n" not in text
    assert "set GRAPHHOOKS_LIBRARY" in text
    return caught.value


def test_the_variable_comes_first(monkeypatch):
    monkeypatch.setenv("GRAPHHOOKS_LIBRARY", "/no/such/libgraphhooks.so")
    assert _library.find() == "/no/such/libgraphhooks.so"


def test_a_wrong_variable_is_named_first_with_its_value(monkeypatch, tmp_path):
    text = tmp_path / "text.so"
    text.write_text("this is text\n")
    for path in ("/no/such.so", _library.SONAME + ".7", str(text)):
        monkeypatch.setenv("GRAPHHOOKS_LIBRARY", path)
        with pytest.raises(Error) as caught:
            _library.open_library(_library.find())
        said = str(caught.value)
        assert said.startswith(f'GRAPHHOOKS_LIBRARY is "{path}": it cannot ')
        assert said.endswith("; correct or unset it")
        assert said.count(path) == 1


def test_a_variable_with_another_library_is_named_too(monkeypatch, tmp_path):
    path = build(tmp_path, "int nothing;\n")
    monkeypatch.setenv("GRAPHHOOKS_LIBRARY", path)
    with pytest.raises(Error) as caught:
        _library.open_library(path)
    assert str(caught.value) == (
        f'GRAPHHOOKS_LIBRARY is "{path}": it has no gh_get_api, and is not '
        "graphhooks; correct or unset it"
    )


def test_a_file_that_is_missing_is_named(monkeypatch):
    error = refusal("/no/such/libgraphhooks.so")
    assert "/no/such/libgraphhooks.so" in str(error)
    assert error.name == "GH_ERR_NOT_FOUND"
    assert error.status == _abi.GH_ERR_NOT_FOUND


def test_a_file_that_is_no_library_is_named(tmp_path):
    path = tmp_path / "text.so"
    path.write_text("this is text\n")
    assert str(path) in str(refusal(str(path)))


def test_a_library_that_is_not_graphhooks_is_named(tmp_path):
    path = build(tmp_path, "int nothing;\n")
    error = refusal(path)
    assert f"{path}: it has no gh_get_api, and is not" in str(error)
    assert error.name == "GH_ERR_ABI"


@pytest.mark.parametrize("major, minor", [(7, 3), (0, 5)])
def test_a_library_of_another_ABI_is_refused_with_both(tmp_path, major, minor):
    flags = [f"-DMAJOR={major}", f"-DMINOR={minor}"]
    error = refusal(build(tmp_path, OTHER, *flags))
    assert f"speaks ABI {major}.{minor}" in str(error)
    assert f"needs ABI 1.{_abi.GH_ABI_MINOR}" in str(error)
    assert error.name == "GH_ERR_ABI"


def python(*code, cwd, **variables):
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GRAPHHOOKS_") and name != "LD_LIBRARY_PATH"
    }
    return subprocess.run(
        [sys.executable, *code], cwd=cwd, env={**env, **variables},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip


@pytest.fixture
def elsewhere(tmp_path):
    """The package alone: no wheel, no checkout around it."""
    shutil.copytree(
        PACKAGE / "graphhooks", tmp_path / "graphhooks",
        ignore=shutil.ignore_patterns("__pycache__", "lib"),
    )  # fmt: skip
    return tmp_path


def test_without_any_library_info_says_where_it_looked(elsewhere):
    said = python("-m", "graphhooks", "info", cwd=elsewhere)
    if said.returncode == 0:
        pytest.skip("graphhooks is installed on this machine")
    assert said.stderr.startswith("graphhooks: libgraphhooks.so.0 is missing")
    assert f"not in {elsewhere}/graphhooks/lib" in said.stderr
    assert said.stderr.count("\n") == 1
    assert said.stdout == f"package   {__version__}\n"


def test_with_a_wrong_variable_info_says_the_version_and_the_name(elsewhere):
    said = python("-m", "graphhooks", "info", cwd=elsewhere,
                  GRAPHHOOKS_LIBRARY="/x/y.so")  # fmt: skip
    assert (said.returncode, said.stdout) == (1, f"package   {__version__}\n")
    assert said.stderr.startswith(
        'graphhooks: GRAPHHOOKS_LIBRARY is "/x/y.so": it cannot load: '
    )


def test_importing_the_package_needs_no_library(elsewhere):
    said = python("-c", "import graphhooks; graphhooks.Session", cwd=elsewhere)
    assert (said.returncode, said.stderr) == (0, "")


def test_the_loaders_path_comes_last(api, elsewhere):
    said = python("-m", "graphhooks", "info", cwd=elsewhere,
                  LD_LIBRARY_PATH=os.path.dirname(api.path))  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert os.path.dirname(api.path) in said.stdout


def test_the_wheels_own_library_comes_before_the_loaders(api, elsewhere):
    lib = elsewhere / "graphhooks" / "lib"
    lib.mkdir()
    shutil.copy(api.path, lib / "libgraphhooks.so.0")
    said = python("-m", "graphhooks", "info", cwd=elsewhere,
                  LD_LIBRARY_PATH=os.path.dirname(api.path))  # fmt: skip
    assert f"{lib}/libgraphhooks.so.0" in said.stdout, said.stderr


def test_a_checkout_has_its_newest_build(api, elsewhere):
    top = elsewhere / "checkout"
    package = top / "hosts" / "pytorch" / "graphhooks"
    package.parent.mkdir(parents=True)
    shutil.move(str(elsewhere / "graphhooks"), package)
    (top / "configure.ac").write_text("")
    for age, build_folder in enumerate(("new", "old")):
        libs = top / build_folder / ".libs"
        libs.mkdir(parents=True)
        shutil.copyfile(api.path, libs / "libgraphhooks.so.0")
        os.utime(libs / "libgraphhooks.so.0", (10 - age, 10 - age))
    said = python("-m", "graphhooks", "info", cwd=package.parent)
    assert f"{top}/new/.libs/" in said.stdout, said.stderr


def test_a_prefix_has_its_library(api, elsewhere):
    """That of conda, say."""
    lib = elsewhere / "prefix" / "lib"
    site = lib / "python3.12" / "site-packages"
    site.mkdir(parents=True)
    shutil.move(str(elsewhere / "graphhooks"), site / "graphhooks")
    shutil.copyfile(api.path, lib / "libgraphhooks.so.0")
    said = python("-m", "graphhooks", "info", cwd=site)
    assert f"{lib}/libgraphhooks.so.0" in said.stdout, said.stderr


def test_the_library_stays_out_of_the_global_names(api):
    import ctypes

    assert not hasattr(ctypes.CDLL(None), "gh_get_api")


def test_an_error_goes_through_pickle():
    error = pickle.loads(pickle.dumps(Error("text", _abi.GH_ERR_BUSY)))
    assert (str(error), error.name) == ("text", "GH_ERR_BUSY")
