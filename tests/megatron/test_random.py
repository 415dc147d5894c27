"""Random numbers of Megatron's tracker, seeded or set anew after an attach.

On a machine without a GPU its tracker switches nothing, so here attention
draws from one of its generators itself.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import pytest

pytest.importorskip("megatron.core",
                    reason="megatron-core is not installed")

from models import DEVICE, torch  # noqa: E402
from training import (Attention, Training, differing,  # noqa: E402
                      get_gpt_layer_local_spec, random)

COUNTS = [2, 3, 2]
NAME = "model-parallel-rng"


pytestmark = pytest.mark.usefixtures("world")


class Dropping(Attention):
    """Some of what it computes, at random."""

    def forward(self, *args, **kwargs):
        out = super().forward(*args, **kwargs)
        generator = random.get_all_rng_states()[NAME]
        return out * torch.rand(out.shape, generator=generator,
                                device=out.device)


def states(seed: int) -> dict:
    return {NAME: torch.Generator(DEVICE).manual_seed(seed)}


def set_states(seed: int) -> None:
    random.get_cuda_rng_tracker().set_states(states(seed))


def reset_and_add(seed: int) -> None:
    tracker = random.get_cuda_rng_tracker()
    tracker.reset()
    tracker.states_.update(states(seed))


def make_another(seed: int) -> None:
    random.initialize_rng_tracker(force_reset=True)
    set_states(seed)


def seed_in_place(seed: int) -> None:
    random.get_all_rng_states()[NAME].manual_seed(seed)


@pytest.mark.parametrize("granularity", ["layer", "chunk"])
@pytest.mark.parametrize("seed", [set_states, reset_and_add, make_another,
                                  seed_in_place])
def test_a_tracker_that_is_seeded_again(seed, granularity):
    spec = get_gpt_layer_local_spec()
    spec.submodules.self_attention.submodules.core_attention = Dropping
    found, replays = [], []
    for attaches in False, True:
        each = Training("dense", spec=spec)
        make_another(1)
        if attaches:
            each.attach("", granularity=granularity)
        for i in 1, 2, 1:
            seed(i)
            each.steps(COUNTS)
            replays.append(each.attached.stats()["replays"]
                           if attaches else 0)
        drawn = random.get_all_rng_states()[NAME].get_state()
        found.append({**each.state(), "drawn": drawn})
        stats = each.end()
    assert differing(*found) == []
    assert stats["refused"] == {}
    if seed is make_another:  # of which the guard says that it is another
        assert "attributes" in stats["eager_calls"]
    else:
        assert replays[3] < replays[4] < replays[5], stats["eager_calls"]
