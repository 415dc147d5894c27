"""Of each test a few cases, always the same.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import random
from types import SimpleNamespace

import harness
import pytest


class Config:
    """One that was given --most."""

    def __init__(self, most):
        self.most, self.gone = most, []
        self.hook = SimpleNamespace(
            pytest_deselected=lambda items: self.gone.extend(items))

    def getoption(self, name):
        assert name == "--most"
        return self.most


def kept(most, ids):
    items = [type("Item", (), {"nodeid": name})() for name in ids]
    config = Config(most)
    harness.pytest_collection_modifyitems(config, items)
    assert len(items) + len(config.gone) == len(ids)
    return [item.nodeid for item in items]


IDS = ["a", *[f"b[{i}]" for i in range(9)], *[f"c[{i}]" for i in range(2)]]


@pytest.mark.parametrize("most", [1, 3])
def test_each_test_keeps_so_many_of_its_cases(most):
    names = [name.partition("[")[0] for name in kept(most, IDS)]
    assert [names.count(name) for name in "abc"] == [1, most, min(most, 2)]


def test_they_are_the_same_each_time_and_in_their_order():
    first = kept(3, IDS)
    random.seed(5)
    assert kept(3, IDS) == first == sorted(first)


def test_without_the_option_all_stay():
    assert kept(None, IDS) == IDS
