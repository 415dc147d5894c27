"""Graphs that are turned off: a script runs anywhere; needs no GPU.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import graphhooks
import pytest
from graphhooks import Error
from models import Block, Model


def turned_off(how, monkeypatch):
    """What attach() is told besides the variable, which wins."""
    if how == "option":
        monkeypatch.delenv("GRAPHHOOKS_ENABLE", raising=False)
        return {"enable": False}
    monkeypatch.setenv("GRAPHHOOKS_ENABLE", "no" if how == "word" else "0")
    return {"enable": True} if how == "both" else {}


@pytest.mark.parametrize("how", ["option", "variable", "word", "both"])
def test_nothing_is_touched(monkeypatch, how):
    model = Model(Block)
    with graphhooks.attach(model, granularity="chunk",
                           **turned_off(how, monkeypatch)) as attached:
        assert all("forward" not in vars(m) for m in model.modules())
        attached.step()
        stats = attached.stats()
        assert stats["replays"] == stats["recordings"] == 0
        assert stats["refused"] == stats["eager_calls"] == {}
        assert "graphs are turned off" in attached.explain()
    attached.detach()


def test_the_library_is_not_needed(monkeypatch):
    monkeypatch.setenv("GRAPHHOOKS_LIBRARY", "/no/such/library.so")
    graphhooks.attach(Model(Block), enable=0).detach()


def test_a_model_without_a_gpu_is_told_of_the_switch(monkeypatch,
                                                     without_a_gpu):
    monkeypatch.setenv("GRAPHHOOKS_ENABLE", "1")
    with pytest.raises(Error, match="on cpu; .* or turn them off, enable=F"):
        graphhooks.attach(Model(Block))


WITHOUT_CUDA = """
import sys, torch
for name in [n for n in dir(torch._C) if n.startswith("_cuda")]:
    delattr(torch._C, name)
torch.backends.cuda.is_built = lambda: False
import graphhooks
model = torch.nn.ModuleList([torch.nn.Linear(2, 2)])
graphhooks.attach(model, enable=False).detach()
try:
    graphhooks.attach(model)
except graphhooks.Error as error:
    print(error)
"""


def test_a_torch_without_cuda_can_be_turned_off_and_is_said():
    package = str(Path(graphhooks.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": package}
    env.pop("GRAPHHOOKS_ENABLE", None)
    ran = subprocess.run([sys.executable, "-c", WITHOUT_CUDA], env=env,
                         text=True, capture_output=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("this torch is built without CUDA")


def test_torch_that_is_missing_is_said(monkeypatch):
    for name in [n for n in sys.modules if n.startswith("graphhooks.torch")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(graphhooks, "torch", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(Error, match="torch is missing: pip install torch"):
        graphhooks.attach(None)
