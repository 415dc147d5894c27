"""The te rows of bench/peers, with layers of Megatron's local spec.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest
from models import HAS_GPU, torch

pytest.importorskip("megatron.core",
                    reason="megatron-core is not installed")
_PEERS = Path(__file__).resolve().parents[2] / "bench/peers"
if not _PEERS.is_dir():
    pytest.skip("there is no bench/peers here", allow_module_level=True)
if HAS_GPU:
    pytest.skip("a GPU measures, and has Transformer Engine",
                allow_module_level=True)

import softmegatron  # noqa: E402

softmegatron.install()
softmegatron.take_any_transformer_engine()

from megatron.core import parallel_state  # noqa: E402

ROWS = {"dense": ["scope", "chunk"], "moe": ["scope"],
        "moe_pad": ["scope", "chunk"], "offload": ["scope", "scope+offload"],
        "delay": ["scope", "scope+delay"]}


@pytest.fixture
def measured(monkeypatch):
    """What measure.py says of a row."""
    monkeypatch.setattr(sys, "path", [str(_PEERS), *sys.path])
    for name in "transformer_engine", "transformer_engine.pytorch":
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setattr(
        sys.modules["transformer_engine"], "pytorch",
        sys.modules["transformer_engine.pytorch"], raising=False)
    import cases
    import measure
    import te_rows

    monkeypatch.setattr(te_rows.Eager, "spec", "local")
    monkeypatch.setattr(te_rows.megatron_model, "installed",
                        lambda name: name == "megatron.core")
    deterministic = torch.are_deterministic_algorithms_enabled()
    steps = cases.Steps(prepared=4, timed=5, issued=3)

    def run(row: str, kind: str) -> dict:
        case = cases.Case(2, 128, 32, 2, vocabulary=64, kind=kind, experts=4)
        assert cases.fits(f"te/{row}", kind)
        each = te_rows.ROWS[row](f"te/{row}", case, "cpu", steps.all)
        return measure.run(each, steps, measure.Device("cpu"), 60)

    yield run
    torch.use_deterministic_algorithms(deterministic)
    parallel_state.destroy_model_parallel()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    for name in "cases", "measure", "te_rows", "row", "megatron_model":
        sys.modules.pop(name, None)


@pytest.mark.parametrize("kind", ROWS)
def test_rows_have_eagers_losses_and_say_when_they_first_replayed(measured,
                                                                 kind):
    eager = measured("eager", kind)
    assert eager["first_replayed_s"] is None
    assert len(eager["losses"]) == 2 + 4 + 4 + 2  # few are enough
    for row in ROWS[kind]:
        said = measured(row, kind)
        assert len(said["losses"]) == 2 + 4 + 5 + 3
        assert said["losses"][:12] == eager["losses"], row
        assert said["stats"]["replays"] and not said["stats"]["refused"]
        assert said["prepare_s"] < said["first_replayed_s"] \
            <= said["prepare_s"] + sum(said["prepared_steps_s"])
        assert "settled" in said["memory"] and "rest_failed" not in said
