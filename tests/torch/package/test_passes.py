"""A training run on the software device, through ctypes alone.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import gc
import json
import threading

import pytest
from graphhooks import Error, _abi
from graphhooks.services import host_services
from softdevice import BYTES, Toy

COUNTS = (4, 6, 8, 3)


@pytest.fixture
def toy(soft):
    toys = []

    def make(**options):
        toys.append(Toy(soft, **options))
        return toys[-1]

    yield make
    for one in toys:
        one.close()


def eager(stats):
    return {k: v for k, v in stats["eager_by_reason"].items() if v}


def test_counts_that_change_are_recorded_once_and_replayed(toy):
    host = toy()
    for step, count in enumerate(COUNTS):
        host.step(count, seed=100 * step)
    first = host.session.stats()
    for step, count in enumerate(COUNTS):
        host.step(count, seed=7000 + 100 * step)
    last = host.session.stats()

    passes = 2 * host.layers
    assert eager(last) == {"warmup": COUNTS[0] * passes}
    assert first["recordings"] == 2 * passes  # two microbatches in flight
    assert last["recordings"] == first["recordings"]
    assert last["replays"] == (2 * sum(COUNTS) - COUNTS[0]) * passes
    assert (last["iterations"], last["slots"], last["reruns"]) == (8, 2, 0)


def test_without_exits_the_numbers_are_the_same_and_calls_are_fewer(toy):
    host = toy()
    host.flags = _abi.GH_PASS_NO_EXIT
    for step, count in enumerate(COUNTS):
        host.step(count, seed=100 * step)
    stats = host.session.stats()
    passes = 2 * host.layers * sum(COUNTS)
    replayed = stats["replays"] - stats["recordings"]
    assert replayed > 0
    assert stats["hook_calls"] == 2 * passes - replayed


def test_inputs_that_move_are_copied_and_chained_ones_are_not(toy):
    host = toy(layers=3)
    for step in range(3):
        host.step(2, seed=step)
    stats = host.session.stats()
    # Of three layers only the first each way, for each microbatch.
    assert stats["copies"] == 2 * 2 * 2
    assert stats["copied_bytes"] == stats["copies"] * BYTES
    assert stats["static_bytes"] >= BYTES


def test_a_capture_that_fails_runs_again_eagerly_and_right(toy):
    lines = []
    lent = host_services(log=lambda _level, line: lines.append(line))
    host = toy(services=lent)
    host.bad_at = (1, _abi.GH_BACKWARD)
    for step in range(4):
        host.step(2, seed=step)
    stats = host.session.stats()
    assert host.bad_done > 0
    assert stats["reruns"] == host.bad_done
    assert stats["eager_by_reason"]["capture"] > 0
    # The other three passes of both slots are graphs all the same.
    assert stats["recordings"] == 3 * 2
    assert ["to be recorded once more" in line for line in lines] \
        == [True, False]
    assert all("CAPTURE_INVALIDATED" in line for line in lines)


def test_warmup_of_none_records_in_the_first_step(toy):
    host = toy(warmup_steps=0)
    host.step(2, seed=1)
    assert eager(host.session.stats()) == {}


def test_one_slot_leaves_the_other_microbatch_eager(toy):
    host = toy(max_slots=1)
    for step in range(3):
        host.step(4, seed=step)
    stats = host.session.stats()
    assert eager(stats) == {"warmup": 2 * 4, "busy": 3 * 2 * 4}
    assert stats["slots"] == 1


def test_busy_fails_raises_the_sentence(toy):
    host = toy(max_slots=1, busy_fails=True, warmup_steps=0)
    host.forward(0, 1)
    with pytest.raises(Error, match="GRAPHHOOKS_MAX_SLOTS") as caught:
        host.forward(1, 2)
    assert caught.value.name == "GH_ERR_BUSY"
    host.backward(0, 3)
    host.end()


def test_enable_false_is_eager_and_says_so(toy):
    host = toy(enable=False)
    host.step(3, seed=4)
    assert eager(host.session.stats()) == {"disabled": 12}


def test_check_runs_both_ways_and_they_agree(toy):
    host = toy(check="bitwise")
    for step in range(3):
        host.step(2, seed=step)
    stats = host.session.stats()
    assert stats["checks"] > 0 and stats["check_failures"] == 0


def test_a_trace_is_written_when_the_session_closes(toy, tmp_path):
    path = tmp_path / "step.json"
    host = toy(trace=path)
    host.step(2, seed=1)
    host.session.close()
    assert json.loads(path.read_text())


def test_backward_passes_run_on_another_thread(toy, soft):
    host = toy()
    failed = []

    def backward(m):
        try:
            soft.call("cuCtxSetCurrent", soft.context)
            host.backward(m, 500 + m)
        except BaseException as error:
            failed.append(error)

    for step in range(4):
        host.forward(0, step)
        thread = threading.Thread(target=backward, args=(0,))
        thread.start()
        thread.join()
        host.end()
        host.check_microbatch(0, step, 500)
    assert failed == []
    stats = host.session.stats()
    assert stats["recordings"] == 4 and stats["reruns"] == 0


def test_a_host_that_fails_in_a_pass_gives_it_up_and_goes_on(toy):
    host = toy()
    host.step(1, seed=1)
    host.raise_at = (1, _abi.GH_FORWARD)
    with pytest.raises(RuntimeError):
        host.forward(0, 2)
    host.end()
    for step in range(3):
        host.step(2, seed=step)
    assert host.session.stats()["reruns"] == 0


def test_a_backward_without_its_forward_raises(toy):
    host = toy()
    with pytest.raises(Error) as caught:
        host.backward(0, 1)
    assert caught.value.name == "GH_ERR_STATE"


# ---- services --------------------------------------------------------------


def test_services_lend_memory_and_route_captures(toy, soft):
    live, seen = {}, []

    def alloc(size):
        address = soft.alloc(size)
        live[address] = size
        return address

    def free(address, size):
        assert live.pop(address) == size
        soft.free(address)

    host = toy(
        services=host_services(
            device_alloc=alloc,
            device_free=free,
            before_recording=lambda r: seen.append(("before", r.chunk)),
            record_begin=lambda r: seen.append(("begin", r.slot)),
            record_end=lambda r, kept: seen.append(("end", kept)),
        )
    )
    gc.collect()  # what keeps the callbacks is the session alone
    for step in range(3):
        host.step(2, seed=step)
    recordings = host.session.stats()["recordings"]
    assert sum(live.values()) >= BYTES
    assert seen.count(("end", True)) == recordings
    assert sum(kind == "begin" for kind, _ in seen) == recordings
    assert {slot for kind, slot in seen if kind == "begin"} == {0, 1}
    assert seen[0] == ("before", 0) and seen.count(("before", 0)) == 1
    host.session.close()
    assert live == {}


def test_a_service_that_raises_is_logged_and_the_pass_is_eager(toy, caplog):
    def begin(_recording):
        raise RuntimeError("no pool for this slot")

    host = toy(
        services=host_services(
            record_begin=begin,
            record_end=lambda *_: None,
            log=lambda *_: None,
        )
    )
    for step in range(3):
        host.step(2, seed=step)
    stats = host.session.stats()
    assert stats["recordings"] == 0 and stats["replays"] == 0
    assert "no pool for this slot" in caplog.text


class Capturer:
    """A host that captures and launches by itself."""

    def __init__(self, soft, lends_exec):
        self.soft, self.lends_exec = soft, lends_exec
        self.objects, self.launches, self.broken = {}, 0, False
        self.next_key = 1 << 40

    def end(self, stream):
        made = self.soft.end_capture(stream)
        if self.broken:
            self.soft.destroy(*made)
            raise RuntimeError("this capture is no good")
        self.next_key += 1
        self.objects[self.next_key] = made
        return self.next_key, made[0] if self.lends_exec else None

    def launch(self, key, stream):
        self.launches += 1
        self.soft.launch(self.objects[key][1], stream)
        return self.objects[key][1] if self.lends_exec else None

    def destroy(self, key):
        self.soft.destroy(*self.objects.pop(key))

    def services(self):
        return host_services(
            capture_begin=self.soft.begin_capture, capture_end=self.end,
            launch=self.launch, destroy=self.destroy,
        )  # fmt: skip


@pytest.mark.parametrize("lends_exec", [False, True])
def test_a_host_that_captures_gets_exact_results(toy, soft, lends_exec):
    capturer = Capturer(soft, lends_exec)
    host = toy(services=capturer.services())
    for step, count in enumerate(COUNTS):
        host.step(count, seed=100 * step)
    stats = host.session.stats()
    assert len(capturer.objects) == stats["recordings"] == 4 * host.layers
    assert capturer.launches == stats["recordings" if lends_exec else "replays"]
    assert (stats["nodes"] > 0) == lends_exec
    host.session.close()
    assert capturer.objects == {}


def test_a_capture_end_that_raises_leaves_the_pass_eager(toy, soft, caplog):
    capturer = Capturer(soft, False)
    capturer.broken = True
    host = toy(services=capturer.services())
    for step in range(3):
        host.step(2, seed=step)
    stats = host.session.stats()
    assert stats["recordings"] == 0 and stats["reruns"] == 4 * host.layers
    assert "this capture is no good" in caplog.text


def test_half_of_the_capture_services_is_refused(soft):
    from graphhooks import Model, Session

    lent = host_services(capture_begin=lambda stream: None)
    with Model() as model:
        model.add_layer("dense")
        with pytest.raises(Error, match="capture_begin without destroy"):
            Session(model, driver=soft.path, environment={}, services=lent)


def test_what_graphs_read_is_retained_until_the_close(api, soft):
    from graphhooks import Model, Session

    held = []
    lent = host_services(retain=held.append, release=held.remove)
    memory = soft.alloc(64)
    with Model() as model:
        model.add_layer("dense", family="mla")
        session = Session(
            model, driver=soft.path, environment={}, services=lent
        )
    err = _abi.gh_error()
    aux = _abi.make(
        _abi.gh_aux, name=b"rotary_cos", object=0x1234,
        buffer=_abi.gh_buffer(memory, 64),
    )  # fmt: skip
    assert api.aux_bind(session.handle, aux, err) == _abi.GH_OK, err.text
    assert held == [0x1234]
    session.close()
    assert held == []
    soft.free(memory)


def test_a_segment_that_is_not_entered_is_said_in_words_of_Python(toy, capfd):
    host = toy()
    host.layers -= 1  # of those that the session has
    host.step(2, seed=0)
    said = capfd.readouterr().err
    assert "were not entered in the first step" in said
    assert "bracket every segment that segments() lists" in said
