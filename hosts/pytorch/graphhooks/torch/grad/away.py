"""Gradients that an engine has elsewhere than in ``.grad``.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import weakref

_PUTTING: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def put_gradients(module, by: dict, engine=None):
    """Before an attach: of a module's parameters, for each a function that
    puts the gradient of what stands for it to where the engine wants it, and
    takes it out of `.grad`.  It is called in backwards that are recorded, and
    in eager ones of modules that run beside the training; autograd is given
    nothing then.

    `engine` has hooks on the nodes that add up these gradients, which it says
    of one by ``knows(hook)``.  If nobody else has, autograd leaves such a
    parameter alone, and the engine is told when a replay has put gradients,
    by ``tell(parameters)``.  ``waits`` says that its hooks want a gradient:
    then graphs put none of a parameter by which autograd comes."""
    _PUTTING[module] = by, engine


def putting(modules) -> tuple:
    """The functions of parameters, and the engines of these."""
    functions: dict = {}
    engines: dict = {}
    for by, engine in (_PUTTING[m] for m in modules if m in _PUTTING):
        functions.update(by)
        engines.update(dict.fromkeys(by, engine))
    return functions, engines
