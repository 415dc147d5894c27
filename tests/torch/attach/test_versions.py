"""Versions of torch: those that are known, and what becomes of others.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
from models import torch

import graphhooks
from graphhooks import Error
from graphhooks.torch.attach import versions
from graphhooks.torch.base import private
from graphhooks.torch.grad import contributions
from graphhooks.torch.record import checkpoint


@pytest.fixture
def unknown(monkeypatch):
    """Another version of torch, by its number."""
    versions.check.cache_clear()
    monkeypatch.setattr(torch, "__version__", "2.99.1+cu140")
    yield
    versions.check.cache_clear()


@pytest.mark.parametrize("what", versions.RELIED_ON)
def test_this_torch_is_as_graphs_rely_on(what):
    with torch.no_grad():  # as a caller of attach may have it
        assert versions._tried(versions.RELIED_ON[what])


@pytest.mark.parametrize("version, known", [
    ("2.11.0", True), ("2.12.1+cu130", True), ("2.1.1", False),
    ("2.10.0", False), ("2.16.0.dev20270101", False), ("3.0", False)])
def test_versions_that_are_checked(version, known):
    assert versions.is_checked(version) == known


def test_an_unknown_version_is_said_once(runs, unknown, caplog):
    with caplog.at_level(logging.WARNING, "graphhooks"):
        for _ in range(2):
            runs(grain="layer").steps()
    said = [r.getMessage() for r in caplog.records
            if "2.99.1+cu140" in r.getMessage()]
    assert len(said) == 1 and "2.11, 2.12" in said[0]
    assert "\n" not in said[0]


def test_a_known_one_is_not_spoken_of_and_nothing_is_tried(
        runs, monkeypatch, caplog):
    versions.check.cache_clear()
    monkeypatch.setattr(torch, "__version__", "2.11.7")
    monkeypatch.setattr(versions, "RELIED_ON", None)
    with caplog.at_level(logging.WARNING, "graphhooks"):
        runs(grain="layer").steps()
    assert "torch" not in caplog.text


def test_one_without_graphs_for_others_is_refused(runs, unknown, monkeypatch):
    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    with pytest.raises(Error, match="too old: .* 2.11 is the first"):
        runs(grain="layer")


# How a torch that is not known might be otherwise.
OTHERWISE = {
    "which run of a checkpointed piece is at hand":
        (private.inspect, "unwrap", lambda _: None),
    "what a cast is called": (contributions, "casts", lambda _: []),
    "who holds a node of autograd's": (private, "references", lambda _: 1),
    "where hooks are kept": (private, "has_hooks", lambda _: False),
    "how often a tensor was written": (private, "version", lambda _: 1),
    "what a pass of autograd tells of itself":
        (private, "will_run", lambda _: 1 / 0),
}


@pytest.mark.parametrize("what", OTHERWISE)
def test_one_that_works_otherwise_is_refused(runs, unknown, monkeypatch, what):
    monkeypatch.setattr(*OTHERWISE[what])
    with pytest.raises(Error, match=re.escape(what)) as refused:
        runs(grain="layer")
    assert "2.99.1" in str(refused.value)


def test_hooks_of_nobodys_have_no_region():
    def pack(tensor):
        return tensor

    assert checkpoint.region(pack) == (None, False)
    assert checkpoint.region(torch.Tensor.detach) == (None, False)


def test_the_README_has_the_versions():
    readme = Path(graphhooks.__file__).parents[1] / "README.md"
    rows = re.findall(r"^\| (\d+\.\d+) \|", readme.read_text(), re.M)
    assert tuple(rows) == versions.CHECKED
