"""How calls in a checkpointed piece are told apart; needs no GPU.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import models  # noqa: F401, skips all where there is no torch
import pytest
import torch
from torch.utils.checkpoint import checkpoint

from graphhooks.torch.record import checkpoint as ours
from graphhooks.torch.base.tree import Unfit


class Calls:
    """Stands for modules: says that some calls were replays."""

    def __init__(self, replayed):
        self.replayed = list(replayed)
        self.again: list = []

    def __call__(self, x):
        for _ in range(3):
            hook = ours.hooks()
            region, again = ours.region(hook)
            if again:
                self.again.append(region.look_up(hook)[0])
            else:
                region.note(self.replayed.pop(0), None)
            x = torch.tanh(x)
        return x


def test_the_second_run_of_a_piece_knows_the_first():
    calls = Calls([True, False, True])
    x = torch.zeros(2, requires_grad=True)
    checkpoint(calls, x, use_reentrant=False).sum().backward()
    assert calls.again == [True, False, True]


def test_pieces_are_told_apart():
    calls = Calls([True] * 3 + [False] * 3)
    x = torch.zeros(2, requires_grad=True)
    one = checkpoint(calls, x, use_reentrant=False)
    two = checkpoint(calls, x, use_reentrant=False)
    one.sum().backward()
    assert calls.again == [True] * 3
    two.sum().backward()
    assert calls.again[3:] == [False] * 3


def test_every_further_run_begins_at_the_first_call():
    calls = Calls([True, False, False])
    x = torch.zeros(2, requires_grad=True)
    loss = checkpoint(calls, x, use_reentrant=False).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    assert calls.again == [True, False, False] * 2


def test_other_hooks_are_no_checkpointing():
    assert ours.hooks() is None
    with torch.autograd.graph.save_on_cpu():
        assert ours.region(ours.hooks()) == (None, False)


def test_nothing_is_said_to_hooks_where_they_are_not_to_hear():
    heard = []
    with torch.autograd.graph.saved_tensors_hooks(heard.append, heard.append):
        with ours.unheard():
            torch.zeros(2, requires_grad=True).tanh()
        assert heard == []
        torch.zeros(2, requires_grad=True).tanh()
    assert len(heard) == 1


@pytest.mark.parametrize("draws", [None, True])
def test_states_of_random_numbers_that_count_are_refused(draws):
    with ours.without_states(draws):
        with pytest.raises(Unfit, match="keeps the state of random numbers"):
            torch.utils.checkpoint.get_device_states(torch.zeros(1))


def test_states_of_random_numbers_that_nobody_draws_are_none():
    own = torch.utils.checkpoint.get_device_states
    with ours.without_states(False):
        assert torch.utils.checkpoint.get_device_states() == ([], [])
    assert torch.utils.checkpoint.get_device_states is own
