"""Graphs that are turned off: a script runs anywhere; needs no GPU.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import sys

import graphhooks
import pytest
from graphhooks import Error
from models import Block, Model


def turned_off(how, monkeypatch):
    """What attach() is told besides the variable, which wins."""
    if how == "option":
        monkeypatch.delenv("GRAPHHOOKS_ENABLE", raising=False)
        return {"enable": False}
    monkeypatch.setenv("GRAPHHOOKS_ENABLE", "0")
    return {"enable": True} if how == "both" else {}


@pytest.mark.parametrize("how", ["option", "variable", "both"])
def test_nothing_is_touched(monkeypatch, how):
    model = Model(Block)
    with graphhooks.attach(model, granularity="chunk",
                           **turned_off(how, monkeypatch)) as attached:
        assert all("forward" not in vars(m) for m in model.modules())
        attached.step()
        stats = attached.stats()
        assert stats["replays"] == stats["recordings"] == 0
        assert stats["refused"] == stats["eager_calls"] == {}
        assert "GRAPHHOOKS_ENABLE=0" in attached.explain()
    attached.detach()


def test_the_library_is_not_needed(monkeypatch):
    monkeypatch.setenv("GRAPHHOOKS_LIBRARY", "/no/such/library.so")
    graphhooks.attach(Model(Block), enable=0).detach()


def test_a_model_without_a_gpu_is_told_of_the_switch(monkeypatch):
    monkeypatch.setenv("GRAPHHOOKS_ENABLE", "1")
    with pytest.raises(Error, match="on cpu; .* or turn them off, enable=F"):
        graphhooks.attach(Model(Block))


def test_torch_that_is_missing_is_said(monkeypatch):
    for name in [n for n in sys.modules if n.startswith("graphhooks.torch")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(graphhooks, "torch", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(Error, match="torch is missing: pip install torch"):
        graphhooks.attach(None)
