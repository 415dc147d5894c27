"""Dicts that layers share, in which one leaves what later ones read.

Gemma 3n and Gemma 4 of transformers give all layers one collections.UserDict:
a layer puts its keys and values there, and later layers take them.  A replay
puts nothing anywhere.  So a graph is given what such a dict has, as a plain
one, and returns what the layer has put there besides its result; whoever calls
it puts that where the layer would have.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections

WORD = "dicts that layers share"  # the argument, which no forward has


_kinds: dict = {}  # by names, which are part of a call's shape


def is_shared(value) -> bool:
    return isinstance(value, collections.UserDict) \
        and vars(value).keys() == {"data"}


def expect(segment, kwargs) -> bool:
    """From the next call on, where the call at hand has one."""
    if segment.sites[0].shares or not any(map(is_shared, kwargs.values())):
        return False
    for site in segment.sites:
        site.shares = True
    return True


def call(site, args, kwargs):
    """With plain dicts; those of the caller get what the layer has put into
    them."""
    shared = {n: v for n, v in kwargs.items() if is_shared(v)}
    if not shared or WORD in kwargs:
        return site.enter_plain(args, kwargs)
    result, found = site.enter_plain(args, {
        **kwargs, **{n: dict(v.data) for n, v in shared.items()},
        WORD: {n: _name_of(type(v)) for n, v in shared.items()}})
    for name, (put, gone) in found.items():
        data = shared[name].data
        data.update(put)
        for key in gone:
            del data[key]
    return result


def run(forward, args, kwargs) -> tuple:
    """The module with dicts of its own, of the caller's kinds: its result,
    and what it has put into them and taken out."""
    kinds = kwargs.pop(WORD)
    before = {name: kwargs[name] for name in kinds}
    after = {name: _of_kind(_kinds[kind], before[name])
             for name, kind in kinds.items()}
    result = forward(*args, **{**kwargs, **after})
    return result, {name: _difference(before[name], after[name].data)
                    for name in kinds}


def _name_of(kind) -> str:
    name = f"{kind.__module__}.{kind.__qualname__} at {id(kind):#x}"
    _kinds[name] = kind
    return name


def _of_kind(kind, content: dict):
    value = kind.__new__(kind)
    value.data = dict(content)
    return value


def _difference(before: dict, after: dict) -> tuple:
    put = {key: value for key, value in after.items()
           if key not in before or before[key] is not value}
    return put, tuple(key for key in before if key not in after)
