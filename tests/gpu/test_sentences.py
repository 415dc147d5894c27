"""What is said of calls that are eager blames what is to blame.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from models import LAYERS, Block
from models import torch


class Raises(Block):
    calls = 0

    def forward(self, x):
        if torch._C._cuda_isCurrentStreamCapturing():
            raise ValueError("no")
        return super().forward(x)


def test_what_a_layer_raises_is_no_wait(pair):
    pair(lambda r: r.steps([1, 1, 1]), make=Raises, replays=False,
         refused="^ValueError: no")


# ---- many layers -----------------------------------------------------------


def test_equal_sentences_of_many_layers_are_one_line(pair, caplog):
    run = pair(lambda r: r.steps([1, 1, 1]), make=Raises, replays=False,
               refused="^ValueError: no")
    lines = [r.getMessage() for r in caplog.records]
    assert len(lines) == 1 and lines[0].startswith(
        f"{LAYERS} layers (layers.0 to layers.2) run eagerly from now on: "
        "ValueError: no (at test_sentences.py line ")
    assert len(run.attached.stats()["refused"]) == LAYERS


def test_two_layers_are_named_and_one_is_as_ever(pair, caplog):
    def before(run):
        run.model.layers[0].__class__ = run.model.layers[2].__class__ = Raises

    pair(lambda r: r.steps([1, 1, 1]), before=before, refused="ValueError")
    assert [r.getMessage().split(" run eagerly")[0] for r in caplog.records] \
        == ["2 layers (layers.0, layers.2)"]
    caplog.clear()

    def before_one(run):
        run.model.layers[1].__class__ = Raises

    pair(lambda r: r.steps([1, 1, 1]), before=before_one,
         refused="ValueError")
    assert [r.getMessage().split(" runs eagerly")[0]
            for r in caplog.records] == ["layers.1"]


def test_what_waits_to_be_said_is_said_at_the_end(runs, caplog):
    run = runs(grain="layer", make=Raises, warmup_steps=0)
    run.backward(2)
    assert caplog.text == ""
    run.detach()
    assert "ValueError: no" in caplog.text
