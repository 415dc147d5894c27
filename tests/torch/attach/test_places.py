"""Parameters and buffers that go elsewhere are noticed; needs no GPU.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from models import nn, torch

from graphhooks.torch.guard.storage_addresses import (Places, Watch, held_at,
                                                      lent_anyhow)


class Segment(SimpleNamespace):
    __hash__ = object.__hash__
    __eq__ = object.__eq__


def segment():
    module = nn.Sequential(nn.Linear(2, 2, bias=False), nn.BatchNorm1d(2))
    found = Segment(sites=[SimpleNamespace(module=module)], module=module)
    found.places = Places([found.module])
    return found


@pytest.fixture
def three():
    return [segment() for _ in range(3)], Watch()


def look(segments, watch):
    """A step whose calls find what there is, and the next one's beginning."""
    for s in segments:
        if not s.places.are_kept():
            watch.suspect(s)
    return watch.lost()


def moved(module):
    module[0].weight.data = module[0].weight.data.clone()


def replaced(module):
    module[0].weight = nn.Parameter(module[0].weight.data)


def frozen(module):
    module[1].weight.requires_grad_(False)


def without(module):
    module[1].bias = None


def with_one_more(module):
    module[0].register_parameter("more", nn.Parameter(torch.ones(2)))


def another_buffer(module):
    module[1].running_mean = module[1].running_mean.clone()


def swapped(module):
    held = module[1]._parameters
    held["weight"], held["bias"] = held["bias"], held["weight"]


def passed_on(module):
    """To the next module: as many, in the same order."""
    weight = module[1]._parameters.pop("weight")
    module[0]._parameters["more"] = weight


def shorter(module):
    """At the same address, with the same strides."""
    module[1].weight.data = module[1].weight.data[:1]


def resized(module):
    module[1].running_mean.resize_(1)


def read_as_another_type(module):
    buffer = module[1].running_mean
    buffer.data = buffer.data.view(torch.int32)


def another_module(module):
    module[0] = nn.Linear(2, 2, bias=False)


def a_module_more(module):
    module.append(nn.GELU())


@pytest.mark.parametrize("change", [
    moved, replaced, frozen, without, with_one_more, another_buffer, swapped,
    passed_on, shorter, resized, read_as_another_type, another_module,
    a_module_more])
def test_the_segment_is_told_of_at_the_second_look(three, change):
    segments, watch = three
    assert look(*three) == []
    for i in (1, 2):
        change(segments[i].module)
        assert [look(*three), look(*three)] == [[], [segments[i]]]
        assert watch.lost() == []  # no call comes by once it is refused
        segments[i] = segment()


def test_what_is_back_in_time_was_lent(three):
    segments, watch = three
    own = segments[1].module[0]
    for _ in range(2):
        segments[1].module[0] = nn.Linear(2, 2)
        assert look(*three) == []
        segments[1].module[0] = own
        assert look(*three) == []


def test_what_was_lent_to_a_call_is_back_at_the_look(three):
    segments, watch = three
    own = segments[1].module[0]
    for _ in range(3):
        segments[1].module[0] = nn.Linear(2, 2)
        watch.suspect(segments[1])
        segments[1].module[0] = own
        assert watch.lost() == []


def test_values_may_change(three):
    segments, watch = three
    with torch.no_grad():
        for tensor in segments[0].module.state_dict().values():
            tensor.add_(1)
    assert segments[0].places.are_kept() and look(*three) == []


@pytest.mark.parametrize("there", ["weight", "other", "nothing"])
@pytest.mark.parametrize("by_force", [False, True])
@pytest.mark.parametrize("kind", [list, dict])
def test_what_is_in_a_weights_place_is_there_again(kind, by_force, there):
    weight, other, alias, bias = (torch.zeros(4) for _ in range(4))
    found = {"weight": weight, "other": other}.get(there)
    if kind is list:
        names = [bias] if found is None else [bias, found]
    else:
        names = {0: bias} if found is None else {0: bias, 1: found}
    before = [*map(id, names)]
    is_lent = there == "weight" or by_force and kind is dict
    with lent_anyhow([(names, 1, weight)], [alias], by_force):
        assert held_at(names, 1) is (alias if is_lent else found)
    assert held_at(names, 1) is found and names[0] is bias
    assert [*map(id, names)] == before
