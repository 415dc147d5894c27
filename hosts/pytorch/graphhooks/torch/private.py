"""What the package knows of torch beyond its documented interface.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import functools
import sys

import torch


def references(parameter) -> int:
    """How many Python has to the node that adds up a parameter's gradient."""
    return _references(parameter) - _references_of_nobody()


def _references(leaf) -> int:
    """With those of this function.  From 2.13 on torch adds one while
    something in C++ holds the node too: a view does here, in all versions."""
    with torch.enable_grad():
        view = leaf.view_as(leaf)
    node = view.grad_fn.next_functions[0][0]
    return sys.getrefcount(node)


@functools.cache
def _references_of_nobody() -> int:
    with torch.inference_mode(False):
        return _references(torch.zeros(1, device="cpu", requires_grad=True))
