"""Calls that graphs cannot serve: of another device, with lent weights; and
the streams that gradients are written on.  Needs no GPU.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import weakref
from types import SimpleNamespace

import pytest
from models import nn, torch

from graphhooks.torch.base import memory
from graphhooks.torch.step import eligibility
from graphhooks.torch.grad import write_streams
from graphhooks.torch.grad.parameters import Parameters
from graphhooks.torch.guard.storage_addresses import Places
from graphhooks.torch.guard.words import AtOnce, Words
from graphhooks.torch.step.eligibility import is_at_home


@pytest.fixture
def layer(monkeypatch):
    """A segment on device 1, which is the current one."""
    monkeypatch.setattr(eligibility, "current_device", lambda: 1)
    module = nn.Linear(2, 2)
    counted, suspects = [], []
    owner = SimpleNamespace(device=1,
                            watch=SimpleNamespace(suspects=suspects,
                                                  suspect=suspects.append,
                                                  clear=suspects.remove),
                            count=lambda *why: counted.append(why))
    found = SimpleNamespace(
        name="layer 0", owner=owner, module=module, counted=counted,
        suspects=suspects, sites=[SimpleNamespace(module=module)],
        hooks=[], quiet=Words(()), at_once=AtOnce(),
        is_parametrized=False,
        parameters=Parameters([module]), settings=None,
        look_anew=lambda: False)
    found.parameters.own = list(module.parameters())
    found.places = Places([module])
    return found


def test_a_call_with_its_own_weights_on_its_device_is_served(layer):
    assert is_at_home(layer)
    assert layer.counted == layer.suspects == []


def test_a_call_with_its_own_weights_clears_it_of_suspicion(layer):
    layer.suspects.append(layer)
    assert is_at_home(layer)
    assert layer.suspects == []


def test_another_current_device_is_eager_and_said(layer, monkeypatch):
    monkeypatch.setattr(eligibility, "current_device", lambda: 0)
    assert not is_at_home(layer)
    (reason, who, why), = layer.counted
    assert who == "layer 0"
    assert reason == "device"
    assert "it is on cuda:1, and the current device is cuda:0" in why
    assert "torch.cuda.set_device" in why


def test_lent_weights_are_eager_and_said(layer):
    layer.module._parameters["weight"] = torch.ones(2, 2)
    assert not is_at_home(layer)
    (reason, who, why), = layer.counted
    assert who == "layer 0"
    assert reason == "replaced" and "its parameters, buffers or" in why
    assert layer.suspects == [layer]


@pytest.mark.parametrize("register", ["register_hook",
                                      "register_post_accumulate_grad_hook"])
def test_a_hook_on_a_parameter_is_eager_and_said(layer, register):
    handle = getattr(layer.module.bias, register)(lambda _: None)
    assert not is_at_home(layer)
    (reason, who, why), = layer.counted
    assert who == "layer 0"
    assert reason == "hooks" and "a parameter whose gradient" in why
    handle.remove()
    assert is_at_home(layer)


# ---- streams ---------------------------------------------------------------


class Stream:
    def __init__(self, number: int, waits: list):
        self.cuda_stream = number
        self.waits = waits

    def wait_stream(self, other):
        self.waits.append((self.cuda_stream, other.cuda_stream))


@pytest.fixture
def writer(monkeypatch):
    """Writes that come on stream `now`, in pass `at`; waits has who
    waited for whom, ends what runs at the end of a pass of autograd."""
    waits, ends = [], []
    streams = {n: Stream(n, waits) for n in (1, 2, 3)}
    found = SimpleNamespace(writes=write_streams.Writes(0), now=1, at=0,
                            waits=waits,
                            ends=ends)
    monkeypatch.setattr(write_streams, "raw_stream", lambda _: found.now)
    monkeypatch.setattr(write_streams, "current_pass", lambda: found.at)
    monkeypatch.setattr(torch.cuda, "current_stream",
                        lambda _: streams[found.now])
    monkeypatch.setattr(torch.autograd.Variable, "_execution_engine",
                        SimpleNamespace(queue_callback=ends.append))
    return found


def write(writer, stream: int) -> None:
    writer.now = stream
    writer.writes.order()


def test_one_stream_waits_for_nobody(writer):
    for _ in range(3):
        write(writer, 1)
    writer.ends.pop()()
    assert writer.waits == [] and writer.ends == []


def test_each_stream_waits_for_the_one_that_wrote_before(writer):
    for stream in (1, 2, 2, 3):
        write(writer, stream)
    assert writer.waits == [(2, 1), (3, 2)]


def test_who_called_autograd_waits_for_the_last_that_wrote(writer):
    write(writer, 1)
    write(writer, 2)
    writer.now = 3
    writer.ends.pop()()
    assert writer.waits == [(2, 1), (3, 2)] and writer.ends == []


def test_who_calls_it_in_each_pass_waits_in_each(writer):
    for writer.at in range(3):
        write(writer, 1)
        write(writer, 1)
        writer.now = 3
        writer.ends.pop()()
        assert writer.ends == []
    assert writer.waits == [(3, 1)] * 3


def test_graphs_that_draw_take_turns(monkeypatch):
    """On whatever streams: torch has one seed and one offset for all."""
    waits: list = []
    streams = {n: Stream(n, waits) for n in (1, 2)}
    graph = SimpleNamespace(replay=lambda: waits.append("replay"),
                            raw_cuda_graph_exec=lambda: 0)
    captures = SimpleNamespace(graphs={7: graph}, _drawn=None,
                               numbers=lambda: 0, stream_of=streams.get)
    monkeypatch.setattr(torch.cuda, "stream", contextlib.nullcontext)
    for stream in (1, 1, 2, 1):
        memory.Captures._launch(captures, 7, stream)
    assert waits == ["replay", "replay", (2, 1), "replay", (1, 2), "replay"]


def test_a_capture_waits_for_what_is_drawn(monkeypatch):
    """As torch sets the offset back when one begins."""
    waits: list = []
    streams = {n: Stream(n, waits) for n in (1, 2, 3)}
    graph = SimpleNamespace(capture_begin=lambda **_: waits.append("begin"))
    monkeypatch.setattr(torch.cuda, "stream", contextlib.nullcontext)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: streams[3])
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda **_: graph)
    monkeypatch.setattr(torch.cuda, "ExternalStream",
                        lambda number, **_: streams[number])
    monkeypatch.setattr(memory, "gc", SimpleNamespace(
        isenabled=lambda: True, disable=lambda: None))
    memory.Captures._begin(SimpleNamespace(
        device=0, generators=(None,), _drawn=streams[1],
        pool=SimpleNamespace(handle=(0, 1))), 2)
    memory._turn.give()
    assert waits == [(2, 3), (2, 1), "begin"]


def test_a_pool_goes_with_its_last_graph():
    torch.zeros(1).cuda()  # there are generators then
    captures = memory.Captures(0)
    captures.pool = captures.pools[0, 0] = memory.Pool(0)
    gone: list = []
    for key in 1, 2:
        captures.graphs[key] = SimpleNamespace(reset=lambda: gone.append(1))
        captures._of_pool[key] = captures.pool
    kept = weakref.ref(captures.pool)
    captures._destroy(1)
    assert kept() is captures.pools[0, 0]
    captures._destroy(2)
    assert len(gone) == 2 and kept() is None


def test_a_capture_that_cannot_be_mended_is_left(monkeypatch):
    def fail(*_):
        raise RuntimeError("the pool is not being allocated to")

    left: list = []
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: "capture")
    with pytest.raises(RuntimeError, match="the pool"):
        memory.Captures._end(SimpleNamespace(
            device=0, _graph=SimpleNamespace(capture_end=fail), _mend=fail,
            is_given_up=False, _leave=left.append), 2)
    assert left == ["capture"]
