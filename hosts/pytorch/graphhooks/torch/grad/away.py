"""Gradients that an engine has elsewhere than in ``.grad``.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import weakref

_PUTTING: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def put_gradients(module, by: dict) -> None:
    """Before an attach: of a module's parameters, for each a function that
    puts the gradient of what stands for it to where the engine wants it, and
    takes it out of `.grad`.  It is called in backwards that are recorded, and
    in eager ones of modules that run beside the training; autograd is given
    nothing then."""
    _PUTTING[module] = by


def putting(modules) -> dict:
    return {p: put for m in modules for p, put in _PUTTING.get(m, {}).items()}
