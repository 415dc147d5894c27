"""Names of torch that it does not document are in one file of the package.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ast

import pytest
from harness import PACKAGE

FOLDER = PACKAGE / "graphhooks" / "torch"
TREES = {str(path.relative_to(FOLDER)): ast.parse(path.read_text())
         for path in sorted(FOLDER.rglob("*.py"))}
# Of Python's own objects.
PYTHONS = {"_getframe", "_fields", "_fields_"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def own_names(trees) -> set:
    """What the package itself calls something."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    return {node.name for node in nodes
            if isinstance(node, (ast.FunctionDef, ast.ClassDef))} \
        | {node.id for node in nodes
           if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)} \
        | {node.attr for node in nodes if isinstance(node, ast.Attribute)
           and isinstance(node.ctx, ast.Store)
           and isinstance(node.value, ast.Name) and node.value.id == "self"} \
        | {word for node in nodes if isinstance(node, ast.Assign)
           and getattr(node.targets[0], "id", "") == "__slots__"
           for word in ast.literal_eval(node.value)}


def theirs(tree, known: set) -> list:
    """Private names in a file that are not of the package."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.append(node.attr)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found += [*node.module.split("."), *(n.name for n in node.names)]
        elif isinstance(node, ast.Call) \
                and getattr(node.func, "id", "") in ("getattr", "hasattr"):
            found.append(getattr(node.args[1], "value", ""))
    return [name for name in found
            if is_private(str(name)) and name not in known | PYTHONS]


@pytest.mark.parametrize("name", [n for n in TREES if n != "base/private.py"])
def test_a_file_has_no_private_name_of_torch(name):
    assert theirs(TREES[name], own_names(TREES.values())) == []


def test_such_names_are_found():
    text = """
from torch._C import _one
from torch.utils import _two
import torch
a = torch._three, getattr(torch, "_four"), hasattr(torch, "_five")
class Ours:
    __slots__ = "_six",
    def _seven(self):
        self._eight = self._seven, self._six, self.__class__
"""
    tree = ast.parse(text)
    assert set(theirs(tree, own_names([tree]))) == {
        "_C", "_one", "_two", "_three", "_four", "_five"}


def test_the_one_file_has_them():
    found = set(theirs(TREES["base/private.py"],
                       own_names(tree for name, tree in TREES.items()
                                 if name != "private.py")))
    assert {"_current_graph_task_id", "_will_engine_execute_node",
            "_execution_engine"} <= found
