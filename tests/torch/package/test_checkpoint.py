"""A process is taken off its GPU, and put back: this one, as the software
device is nobody else's.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from ctypes import c_uint, c_uint64

import pytest
from graphhooks import Error, checkpoint
from graphhooks import __main__ as program

ME = os.getpid()


@pytest.fixture
def driver(soft, monkeypatch):
    """The device of a process that runs, before and after."""
    monkeypatch.setenv("GRAPHHOOKS_DRIVER", soft.path)
    yield soft
    configure(soft, "")
    left = checkpoint.state(ME)
    if left != "running":  # or whatever comes next waits
        checkpoint.restore(ME)
    assert left == "running"


def configure(driver, words):
    driver.call("softcuda_configure", words.encode())


def refused(name, call, *arguments):
    with pytest.raises(Error) as caught:
        call(*arguments)
    assert caught.value.name == name
    return str(caught.value)


# ---- what it does ----------------------------------------------------------


def test_a_process_is_checkpointed_and_restored(driver):
    assert checkpoint.why_not() is None
    assert checkpoint.state(ME) == "running"
    checkpoint.pause(ME)
    assert checkpoint.state(ME) == "checkpointed"
    checkpoint.restore(ME)
    assert checkpoint.state(ME) == "running"


def test_its_calls_wait_until_it_is_restored(driver):
    checkpoint.pause(ME)
    thread = threading.Thread(target=driver.call,
                              args=("cuCtxSetCurrent", driver.context))
    thread.start()
    thread.join(0.02)
    assert thread.is_alive()
    checkpoint.restore(ME)
    thread.join()


def test_a_lock_that_somebody_left_is_undone(driver):
    driver.call("cuCheckpointProcessLock", ME, None)
    text = refused("GH_ERR_STATE", checkpoint.pause, ME)
    assert text == (f"process {ME} is locked, and pause() takes one that is "
                    "running: restore() unlocks it")
    checkpoint.restore(ME)


def test_the_command_does_it(driver, monkeypatch, capsys):
    for command, state in ("checkpoint", "checkpointed"), ("restore", "running"):
        monkeypatch.setattr("sys.argv", ["graphhooks", command, str(ME)])
        assert program.main() == 0
        assert f"process {ME} is {state}, after " in capsys.readouterr().out
    assert program.main() == 1  # again
    assert "call pause() first" in capsys.readouterr().err
    monkeypatch.setattr("sys.argv", ["graphhooks", "info"])
    assert program.main() == 0
    assert "checkpoint usable\n" in capsys.readouterr().out


# ---- what it refuses -------------------------------------------------------


def test_each_call_takes_its_state_alone(driver):
    text = refused("GH_ERR_STATE", checkpoint.restore, ME)
    assert text.endswith("is checkpointed: call pause() first")
    checkpoint.pause(ME)
    text = refused("GH_ERR_STATE", checkpoint.pause, ME)
    assert text.endswith("is running: call restore() first")
    checkpoint.restore(ME)


@pytest.mark.parametrize("pid", [0, -1, True, 1 << 31, "1", None, 1.0])
def test_a_pid_is_a_number(driver, pid):
    for call in checkpoint.state, checkpoint.pause, checkpoint.restore:
        assert refused("GH_ERR_INVALID", call, pid) == \
            f"pid is {pid!r}; it is the number of a process"


def test_a_process_that_is_not_there(driver):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    text = refused("GH_ERR_NOT_FOUND", checkpoint.pause, gone.pid)
    assert text.startswith(f"there is no process {gone.pid}: ")


def test_a_process_without_this_device(driver):
    text = refused("GH_ERR_DEVICE", checkpoint.pause, os.getppid())
    assert text.startswith(f"process {os.getppid()} cannot be asked, as one ")
    assert "CUDA_ERROR_INVALID_VALUE" in text


@pytest.mark.parametrize("timeout", [
    0, -1, True, "1", None, float("nan"), float("inf"), 1e9])
def test_a_timeout_is_a_number_of_seconds(driver, timeout):
    text = refused("GH_ERR_INVALID", checkpoint.pause, ME, timeout)
    assert text.startswith(f"timeout is {timeout!r}; it is a number of sec")


def test_work_that_does_not_end_is_not_waited_for(driver):
    stream, word = driver.stream(), c_uint64(driver.alloc(4))
    driver.call("cuMemsetD32Async", word, c_uint(0), c_uint64(1), stream)
    driver.call("cuStreamWaitValue32", stream, word, c_uint(5), c_uint(0))
    text = refused("GH_ERR_DEVICE", checkpoint.pause, ME, 0.02)
    assert "cuCheckpointProcessLock returned CUDA_ERROR_NOT_READY (600): " \
        "work of its GPU has not ended in time" in text
    assert text.endswith("; it is running now")
    other = driver.stream()
    driver.call("cuStreamWriteValue32", other, word, c_uint(5), c_uint(0))
    checkpoint.pause(ME, 5)
    checkpoint.restore(ME)
    driver.call("cuStreamSynchronize", stream)
    driver.free(word.value)


# ---- what fails ------------------------------------------------------------


def test_a_checkpoint_that_fails_lets_it_go_on(driver):
    configure(driver, "FAIL=cuCheckpointProcessCheckpoint:1:801")
    text = refused("GH_ERR_DEVICE", checkpoint.pause, ME)
    assert text.startswith(f"process {ME}: cuCheckpointProcessCheckpoint "
                           "returned CUDA_ERROR_NOT_SUPPORTED (801): the ")
    assert text.endswith("; it is running now")


@pytest.mark.parametrize("entry, call", [
    ("Lock", checkpoint.pause), ("Checkpoint", checkpoint.pause),
    ("Restore", checkpoint.restore), ("Unlock", checkpoint.restore)])
def test_an_interrupt_lets_it_go_on(driver, monkeypatch, entry, call):
    """Python raises it when the driver's call has returned."""
    do = checkpoint._Driver.do
    left = [entry]

    def interrupted(self, what, *arguments):
        do(self, what, *arguments)
        if what in left:
            left.remove(what)
            raise KeyboardInterrupt

    if call is checkpoint.restore:
        checkpoint.pause(ME)
    monkeypatch.setattr(checkpoint._Driver, "do", interrupted)
    with pytest.raises(KeyboardInterrupt):
        call(ME)
    assert not left and checkpoint.state(ME) == "running"


def test_where_it_stays_locked_the_error_says_what_to_do(driver, monkeypatch):
    configure(driver, "FAIL=cuCheckpointProcessCheckpoint:1:2")
    do = checkpoint._Driver.do

    def without(self, what, *arguments):
        if what != "Unlock":
            do(self, what, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint._Driver, "do", without)
        text = refused("GH_ERR_NO_MEMORY", checkpoint.pause, ME)
    assert text.endswith("it is locked now: restore() unlocks it")
    checkpoint.restore(ME)


@pytest.mark.parametrize("entry, code, remedy", [
    ("Lock", 600, "longer timeout"), ("Checkpoint", 801, "does not save"),
    ("Restore", 600, ""), ("Restore", 801, "")])
def test_what_a_code_means_is_of_its_entry(driver, entry, code, remedy):
    """A restore has no timeout, and saves nothing."""
    text = checkpoint._open()._failure(f"cuCheckpointProcess{entry}",
                                       code).args[0]
    assert remedy in text if remedy else text.endswith(f"({code})")


def test_a_restore_that_fails_is_called_again(driver):
    checkpoint.pause(ME)
    configure(driver, "FAIL=cuCheckpointProcessRestore:1:2")
    text = refused("GH_ERR_NO_MEMORY", checkpoint.restore, ME)
    assert "free memory of its GPUs" in text
    assert text.endswith("; it is checkpointed now")
    checkpoint.restore(ME)


def test_a_driver_that_is_not_there(monkeypatch):
    monkeypatch.setenv("GRAPHHOOKS_DRIVER", "/no/such.so")
    text = refused("GH_ERR_NO_DRIVER", checkpoint.state, ME)
    assert text.startswith("the CUDA driver cannot load: /no/such.so")
    assert checkpoint.why_not() == text
    monkeypatch.setenv("GRAPHHOOKS_DRIVER", "soft")
    text = refused("GH_ERR_UNSUPPORTED", checkpoint.state, ME)
    assert text.endswith("set it to cuda")
    monkeypatch.setenv("GRAPHHOOKS_DRIVER", "bogus")
    text = refused("GH_ERR_CONFIG", checkpoint.state, ME)
    assert text.startswith('GRAPHHOOKS_DRIVER is "bogus"; set it to cuda or a')


def test_a_driver_that_is_too_old(driver, monkeypatch):
    checkpoint._opened.cache_clear()
    with monkeypatch.context() as newer:
        newer.setattr(checkpoint, "_ENTRIES", (*checkpoint._ENTRIES, "cuNo"))
        text = refused("GH_ERR_UNSUPPORTED", checkpoint.pause, ME)
    assert text == (f"{driver.path} has no cuNo: a checkpoint needs a driver "
                    "of CUDA 12.8 or newer, 570 or newer; install one")


def test_a_state_that_is_newer_has_its_number(driver, monkeypatch):
    with monkeypatch.context() as older:
        older.setattr(checkpoint, "STATES", ())
        assert checkpoint.state(ME) == "state 0"
        text = refused("GH_ERR_STATE", checkpoint.pause, ME)
    assert text.endswith("take a newer package, which knows that state")
