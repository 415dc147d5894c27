"""A folder of graphhooks.torch reads those that its list has after it, and
the list has all that there is.  Lines of the package have 79 columns at most.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ast
import re

import pytest
from harness import PACKAGE

FOLDER = PACKAGE / "graphhooks" / "torch"
LIST = ast.get_docstring(ast.parse((FOLDER / "__init__.py").read_text()))
ORDER = re.findall(r"^    (\w+)/ ", LIST, re.MULTILINE)
FILES = sorted(p.relative_to(FOLDER) for p in FOLDER.glob("*/*.py")
               if p.name != "__init__.py")


def imported(tree) -> list:
    """Folders that a file of a folder reads."""
    return [node.module.partition(".")[0] for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.level == 2
            and node.module]


@pytest.mark.parametrize("path", FILES, ids=str)
def test_a_file_reads_no_folder_before_its_own(path):
    own = ORDER.index(path.parent.name)
    tree = ast.parse((FOLDER / path).read_text())
    before = [name for name in imported(tree) if ORDER.index(name) < own]
    assert before == []


def test_such_a_file_is_found():
    assert imported(ast.parse("from ..step.segment import Segment\n"
                              "from ... import _abi\n"
                              "from .tree import Unfit\n")) == ["step"]


def test_the_list_has_all_files():
    listed = re.findall(r"^    (\w+)/ |^      (\w+\.py) ", LIST,
                        re.MULTILINE)
    found, folder = [], ""
    for name, file in listed:
        folder = name or folder
        if file:
            found.append(f"{folder}/{file}")
    assert sorted(found) == sorted(map(str, FILES))


SOURCES = sorted(p.relative_to(PACKAGE) for p in (PACKAGE / "graphhooks")
                 .rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_no_line_is_too_long(path):
    lines = (PACKAGE / path).read_text(encoding="utf-8").splitlines()
    assert [i for i, line in enumerate(lines, 1) if len(line) > 79] == []
