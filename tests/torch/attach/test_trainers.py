"""Loops of Hugging Face's with dynamic padding: every shape has graphs from
its second batch on, and eager's bits.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections
import sys
from pathlib import Path

import pytest
from models import differing, torch

for _name in ("transformers", "accelerate"):
    pytest.importorskip(_name, reason=f"{_name} is not installed")
sys.path.append(str(Path(__file__).resolve().parents[3]
                    / "hosts" / "pytorch" / "examples"))

import graphhooks  # noqa: E402
import huggingface  # noqa: E402
import transformers  # noqa: E402

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


class InOrder(transformers.Trainer):
    """Its batches come as the text has them."""

    def _get_train_sampler(self, *_):
        return torch.utils.data.SequentialSampler(self.train_dataset)


STEPS, SAVED = 18, 9


def trainer(folder, grain, resume=None, **options):
    """Weights, losses of evaluations, and what was attached."""
    args = huggingface.arguments([*SMALL, "--model", "gpt2"])
    torch.manual_seed(3)
    model = huggingface.gpt2(args).cuda().train()
    lines = huggingface.Lines(args)
    attached = None if grain is None else graphhooks.attach(
        model, granularity=grain, **options)
    loop = InOrder(
        model=model, train_dataset=lines.examples,
        eval_dataset=lines.examples[:6], data_collator=lines.collate,
        args=transformers.TrainingArguments(
            output_dir=str(folder), per_device_train_batch_size=2,
            per_device_eval_batch_size=2, gradient_accumulation_steps=2,
            max_steps=STEPS, eval_strategy="steps", eval_steps=3,
            save_strategy="steps", save_steps=SAVED, learning_rate=1e-3,
            use_cpu=not torch.cuda.device_count(), report_to=[], seed=3,
            logging_strategy="no", disable_tqdm=True,
            dataloader_pin_memory=False, remove_unused_columns=False))
    loop.train(resume_from_checkpoint=resume)
    found = dict(model.state_dict())
    found.update((f"evaluation {i}", torch.tensor(each["eval_loss"]))
                 for i, each in enumerate(loop.state.log_history)
                 if "eval_loss" in each)
    return found, attached


@pytest.mark.parametrize("evaluates", [False, True])
@pytest.mark.parametrize("grain", ["layer", "chunk"])
def test_a_trainer_evaluates_saves_and_resumes(tmp_path, grain, evaluates):
    """With dropout, dynamic padding and accumulation; what resumes goes on as
    what was never interrupted."""
    eager, _ = trainer(tmp_path / "eager", None)
    graphed, attached = trainer(tmp_path / "graphed", grain, eval=evaluates)
    stats = attached.stats()
    attached.detach()
    assert differing(eager, graphed) == []
    assert sum(n.startswith("evaluation") for n in eager) == STEPS // 3
    assert stats["replays"] > 0
    assert bool(stats.get("eval", {}).get("replays")) == evaluates
    allowed = {"warmup", "input", "gradients_moved"}
    assert set(stats["eager_calls"]) <= allowed | (
        set() if evaluates else {"forward_only"})
    resumed, attached = trainer(
        tmp_path / "resumed", grain, eval=evaluates,
        resume=str(tmp_path / "graphed" / f"checkpoint-{SAVED}"))
    stats = attached.stats()
    attached.detach()
    assert differing(eager, resumed) == []
    assert stats["replays"] > 0 and stats["renewals"] == 0
