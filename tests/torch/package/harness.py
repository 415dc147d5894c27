"""What pytest is told before any test: the checkout, the library, and TAP.

For tests/torch/package and tests/torch/attach.  make check sets srcdir and builddir;
without them the tests use whatever library the package finds.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import importlib
import os
import random
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]
PACKAGE = TOP / "hosts" / "pytorch"
# What is tested is the checkout, also where a wheel is installed.
sys.path.insert(0, str(PACKAGE))

# Nothing of the caller's environment is to decide a point.
for _name in [name for name in os.environ if name.startswith("GRAPHHOOKS_")]:
    if _name != "GRAPHHOOKS_LIBRARY":
        del os.environ[_name]
if os.environ.get("builddir"):
    os.environ["GRAPHHOOKS_LIBRARY"] = os.path.join(
        os.environ["builddir"], ".libs", "libgraphhooks.so.0"
    )


@contextlib.contextmanager
def scripts(folder: Path, *names: str):
    """These modules of a folder of scripts, in this process.  They import
    each other by names that scripts of another folder may have too: outside
    of the block nobody finds them."""
    found = {file.stem for file in folder.glob("*.py")}
    others = {name: sys.modules.pop(name)
              for name in found & sys.modules.keys()}
    sys.path.insert(0, str(folder))
    try:
        yield [importlib.import_module(name) for name in names]
    finally:
        sys.path.remove(str(folder))
        for name in found:
            sys.modules.pop(name, None)
        sys.modules.update(others)


# ---- TAP -------------------------------------------------------------------


class Tap:
    """The Test Anything Protocol on the standard output: a point a test,
    named by its function in words."""

    def __init__(self) -> None:
        self.points = 0

    def say(self, result: str, name: str, remark: str = "") -> None:
        self.points += 1
        print(f"{result} {self.points} {remark or '- ' + name}", flush=True)

    @staticmethod
    def name(nodeid: str) -> str:
        function = nodeid.split("::")[-1]
        case = ""
        if "[" in function:
            function, case = function.rstrip("]").split("[", 1)
        words = function.replace("test_", "", 1).replace("_", " ")
        return f"{words}: {case}" if case else words

    def pytest_runtest_logreport(self, report) -> None:
        name = self.name(report.nodeid)
        if report.failed:
            self.say("not ok", name if report.when == "call" else
                     f"{name} ({report.when})")  # fmt: skip
            for line in report.longreprtext.splitlines():
                print(f"# {line}")
        elif report.skipped:
            reason = report.longrepr[2].replace("Skipped: ", "", 1)
            self.say("ok", name, f"# SKIP {reason}")
        elif report.when == "call":
            self.say("ok", name)

    def pytest_collectreport(self, report) -> None:
        if report.failed:
            self.say("not ok", f"{report.nodeid} can be collected")
            for line in report.longreprtext.splitlines():
                print(f"# {line}")
        elif report.skipped:
            reason = report.longrepr[2].replace("Skipped: ", "", 1)
            self.say("ok", report.nodeid, f"# SKIP {reason}")

    def pytest_sessionfinish(self) -> None:
        print(f"1..{self.points}")


def pytest_addoption(parser) -> None:
    parser.addoption("--tap", action="store_true", help="report as TAP")
    # pytest asks for it to say how two things differ, and it comes with the
    # terminal's report, which the TAP has no use for.
    parser.addoption("--tap-verbosity", dest="verbose", type=int, default=0,
                     help="how much is said of what differs")
    parser.addoption("--most", type=int, metavar="N",
                     help="of each test, N of its cases at most")


def pytest_collection_modifyitems(config, items) -> None:
    """Which cases stay is drawn by the test's name: always the same."""
    most = config.getoption("--most")
    cases: dict[str, list] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left = [item for name, of in cases.items() if most and len(of) > most
            for item in random.Random(name).sample(of, len(of) - most)]
    if left:
        config.hook.pytest_deselected(items=left)
        gone = set(left)
        items[:] = [item for item in items if item not in gone]


def pytest_configure(config) -> None:
    # What goes wrong inside a callback reaches nobody else.
    config.addinivalue_line(
        "filterwarnings", "error::pytest.PytestUnraisableExceptionWarning"
    )
    # A worker of pytest-xdist tells the one that reports.
    if config.getoption("--tap") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Tap(), "tap")
