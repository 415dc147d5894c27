"""Loops of Hugging Face's with dynamic padding: every shape has graphs from
its second batch on, and eager's bits.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections
import sys
from pathlib import Path

import pytest
from models import differing

for _name in ("transformers", "accelerate"):
    pytest.importorskip(_name, reason=f"{_name} is not installed")
sys.path.append(str(Path(__file__).resolve().parents[3]
                    / "hosts" / "pytorch" / "examples"))

import huggingface  # noqa: E402

SMALL = ("--layers 3 --hidden 32 --heads 2 --batch 2 --batches 14 --epochs 2 "
         "--pad-to 16 --longest 48").split()


def shapes(args) -> list:
    """Of the batches of an epoch, in order: their lengths, and whether there
    is padding, as transformers leaves out a mask that masks nothing."""
    lines = huggingface.Lines(args)
    batches = [lines.collate(lines.examples[i:i + args.batch])
               for i in range(0, len(lines.examples), args.batch)]
    return [(b["input_ids"].shape[1], bool(b["attention_mask"].all()))
            for b in batches]


@pytest.mark.parametrize("grain", ["layer", "chunk"])
@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("model", huggingface.MODELS)
@pytest.mark.parametrize("loop", huggingface.LOOPS)
def test_each_shape_replays_from_its_second_batch_on(loop, model, accumulate,
                                                     grain):
    args = huggingface.arguments([
        *SMALL, "--loop", loop, "--model", model,
        "--accumulate", str(accumulate)])
    eager, _, _ = huggingface.train(args, "off")
    graphed, stats, said = huggingface.train(args, grain)
    assert differing(eager, graphed) == []
    count = collections.Counter(shapes(args) * args.epochs)
    assert len({length for length, _ in count}) > 2
    assert len(stats["banks"]) == len(count), said
    calls = stats["eager_calls"]
    assert set(calls) <= {"warmup", "input", "gradients_moved"}, said
    # The first batch of each shape is eager, and those of the first step.
    first = shapes(args)[:accumulate]
    most = len(count) + len(first) - len(set(first))
    segments = args.layers if grain == "layer" else 1
    assert calls["warmup"] + calls.get("input", 0) == segments * most
    assert all(b["replays"] > 0 for b in stats["banks"])
