"""What the tests share: the library and a device.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import tarfile

import pytest
from harness import (
    PACKAGE,
    TOP,
    pytest_addoption,
    pytest_configure,
    scripts,
)

__all__ = ["FAMILIES", "PACKAGE", "TOP", "pytest_addoption",
           "pytest_configure", "scripts"]

# Each is built from a file of its name.
FAMILIES = sorted(path.stem for path in (TOP / "plugins").glob("*.c"))


@pytest.fixture(scope="session")
def api():
    from graphhooks import _library

    return _library.load()


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    """What the benches have measured, out of its archive."""
    folder = tmp_path_factory.mktemp("results")
    with tarfile.open(TOP / "bench/results/raw.tar.xz") as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture
def soft(api):
    """The software device, and nothing left on it by the test."""
    import softdevice

    device = softdevice.SoftDevice(softdevice.beside(api.path))
    yield device
    device.close()
    assert device.left_over() == {}
    assert device.races() == []
