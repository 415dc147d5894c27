"""A file of helpers that a layer may import: what its functions read is
outside of the layer's own file (silent_cases.py).

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import types

SCALE = 1.0
STATE = {"scale": 1.0, "group": object()}
CONFIG = types.SimpleNamespace(model=types.SimpleNamespace(scale=1.0))


def scaled(x):
    return x * SCALE


def scaled_by_state(x):
    return x * STATE["scale"]


def scaled_by_config(x):
    return x * CONFIG.model.scale


def _first(x):
    return _second(x)


def _second(x):
    return _third(x)


def _third(x):
    return _fourth(x)


def _fourth(x):
    return _fifth(x)


def _fifth(x):
    return scaled_by_state(x)


def far_away(x):
    return _first(x)


LOSSES: list = []


def keep(loss) -> None:
    LOSSES.append(loss)
