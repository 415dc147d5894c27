"""Activation checkpointing, in captured modules and around them.

Around.  What autograd saves goes through hooks there, and on the way back the
modules run once more for those hooks alone.  A replay has nothing to save.  So
where a pass was a replay, its modules run again eagerly with nothing said to
the hooks: what autograd would save of them is not what was asked for.

Inside.  The states of random number generators cannot be read in a capture.
Where the modules draw none, as the passes before the recording have shown,
checkpointing is told that no device has one.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib

import torch
import torch.utils.checkpoint
from torch._C import _current_graph_task_id as current_pass
from torch._C._autograd import _top_saved_tensors_default_hooks

from .tree import Unfit


def hooks():
    """Those that saved tensors go through now, or None."""
    both = _top_saved_tensors_default_hooks(True)
    return both and both[0]


def runs_again() -> bool:
    """Whether autograd is on its way back."""
    return current_pass() != -1


@contextlib.contextmanager
def unheard():
    """What autograd saves is kept as if there were no hooks."""
    with torch.enable_grad():
        if hooks() is None:
            yield
        else:
            with torch.autograd.graph.saved_tensors_hooks(
                    torch.Tensor.detach, lambda tensor: tensor):
                yield


@contextlib.contextmanager
def without_states(draws):
    """For a recording; `draws` says whether the modules draw random numbers,
    as far as anybody knows."""
    def none(*args):
        if draws is not False:
            raise Unfit("checkpointing inside it keeps the state of random "
                        "numbers that it draws, which a capture cannot")
        return [], []

    module = torch.utils.checkpoint
    own = module.get_device_states
    module.get_device_states = none
    try:
        yield
    finally:
        module.get_device_states = own
