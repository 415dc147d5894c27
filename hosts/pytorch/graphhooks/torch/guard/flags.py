"""What backwards say of weights to who comes after them, by attributes: one
that adds to a `main_grad` by itself puts up a flag, and so do its replays.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib

from ..base.tree import Unfit


@contextlib.contextmanager
def noted(parameters, weights):
    """Yields a list, for who is to put up the same flags: each as (attributes
    of a parameter, name).  An attribute that is set to what it was, as some
    do with a `main_grad`, is none.  What stands in for parameters has none of
    them afterwards: nothing else has changed there.

    A flag may be up already, so what counts is that it is set, which types
    are told that are like the weights'."""
    found: set = set()
    kinds = {kind: noting(kind, found) for kind in {*map(type, weights)}}
    of = [*map(type, weights)]
    marks: list = []
    for weight, kind in zip(weights, of):
        weight.__class__ = kinds[kind]
    try:
        yield marks
    finally:
        for weight, kind in zip(weights, of):
            weight.__class__ = kind
    for parameter, weight in zip(parameters, weights):
        before, now = vars(parameter), vars(weight)
        for name in [n for n in now if (id(weight), n) in found]:
            if now[name] is not True and now[name] is before.get(name):
                continue
            if now[name] is not True:
                raise Unfit(f"its backward sets an attribute of a parameter, "
                            f"{name}, to something else than True, which a "
                            "replay would not: keep it in a buffer")
            marks.append((before, name))
            del now[name]
            if name in before:
                now[name] = before[name]


def noting(kind, found: set):
    """A type like that, which notes what attributes are set."""

    def note(self, name, value):
        found.add((id(self), name))
        kind.__setattr__(self, name, value)

    return type(kind)(kind.__name__, (kind,), {"__setattr__": note})


def catch_up(parameters, weights) -> None:
    """What stands in for parameters has their attributes of now."""
    for parameter, weight in zip(parameters, weights):
        vars(weight).clear()
        vars(weight).update(vars(parameter))


@contextlib.contextmanager
def carried(parameters, weights):
    """To parameters, what is said of what stands in for them."""
    before = [dict(vars(weight)) for weight in weights]
    yield
    for parameter, weight, old in zip(parameters, weights, before):
        names, now = vars(parameter), vars(weight)
        for name in old.keys() - now.keys():
            names.pop(name, None)
        names.update({name: value for name, value in now.items()
                      if name not in old or old[name] is not value})
