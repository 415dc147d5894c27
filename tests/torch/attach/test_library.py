"""The library or the driver is missing, or is another one.

Each in a process of its own: a library that is loaded stays.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from models import need_gpu

need_gpu()

PROGRAM = """
import sys
sys.path[:0] = [{package!r}, {here!r}]
from models import Run, torch
import graphhooks

run = Run()
try:
    graphhooks.attach(run.model, {options})
except graphhooks.Error as error:
    print("Error:", error)
else:
    print("attached")
run.steps([2, 2])
print(all("forward" not in vars(m) for m in run.model.modules()),
      bool(torch.isfinite(run.notes[-1])))
"""
# As tests/torch/package has it: answers to another major.
OTHER = """
#include <stdint.h>
static struct { uint32_t size, version; void *slots[64]; } table =
    { sizeof(table), 7 << 16, { 0 } };
uint32_t gh_abi_version(void) { return 7 << 16; }
int32_t gh_get_api(uint32_t major, const void **api_p, void *err)
{
    (void)err;
    *api_p = &table;
    return major == 7 ? 0 : -9;
}
"""


def attach(options="", **variables):
    """What is said; and the training has gone on."""
    import graphhooks

    program = PROGRAM.format(
        package=str(Path(graphhooks.__file__).parents[1]),
        here=str(Path(__file__).parent), options=options)
    ran = subprocess.run([sys.executable, "-c", program],
                         env={**os.environ, **variables}, text=True,
                         capture_output=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    first, last = ran.stdout.strip().splitlines()
    if first != "attached":
        assert last == "True True"
    return first


def test_a_library_that_is_missing():
    said = attach(GRAPHHOOKS_LIBRARY="/no/such/libgraphhooks.so.0")
    assert said.startswith("Error: GRAPHHOOKS_LIBRARY is "
                           "\"/no/such/libgraphhooks.so.0\": it cannot load: ")
    assert "correct or unset it" in said


def test_a_library_of_another_major(tmp_path):
    compiler = os.environ.get("CC", "cc").split()
    if shutil.which(compiler[0]) is None:
        pytest.skip("no C compiler to make a library with")
    (tmp_path / "other.c").write_text(OTHER)
    path = tmp_path / "libother.so"
    subprocess.run([*compiler, "-shared", "-fPIC", "-o", path,
                    tmp_path / "other.c"], check=True)
    said = attach(GRAPHHOOKS_LIBRARY=str(path))
    assert "speaks ABI 7.0, and this package needs ABI 1." in said


def test_a_driver_that_is_missing():
    said = attach("driver='/no/such/libcuda.so'")
    assert said.startswith("Error: ") and "/no/such/libcuda.so" in said


def test_a_driver_that_is_missing_does_not_matter_when_it_is_off():
    assert attach("driver='/no/such/libcuda.so', enable=0") == "attached"
