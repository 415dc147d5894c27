"""A host on the software device, by ctypes: its driver, and a toy to train.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Callable, List, Optional

from graphhooks import Model, Session, _abi
from graphhooks.errors import check

NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING


def beside(library: str) -> str:
    """The software device that belongs to a library."""
    folder = Path(library).parent
    name = "libgraphhooks-softcuda.so"
    for path in (folder / "graphhooks" / name, folder / name):
        if path.is_file():
            return str(path)
    return name


class _Counts(ctypes.Structure):
    """softcuda_counts, as far as it says what is alive."""

    _fields_ = [
        (name, c_uint64)
        for name in (
            "device_allocations device_bytes host_allocations host_bytes "
            "streams events graphs execs modules contexts_retained captures "
            "pending waits launches prioritized"
        ).split()
    ]


class SoftDevice:
    """The few driver entries that a toy needs, checked."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._library = ctypes.CDLL(
            path, mode=os.RTLD_LOCAL | os.RTLD_NODELETE
        )
        self.context = c_void_p()
        self._streams: List[c_void_p] = []
        self._library.softcuda_configure(b"RACES=1")
        self.before = self._counts()
        self.call("cuInit", c_uint(0))
        self.call("cuDevicePrimaryCtxRetain", byref(self.context), c_int(0))
        self.call("cuCtxSetCurrent", self.context)

    def call(self, entry: str, *arguments) -> None:
        code = getattr(self._library, entry)(*arguments)
        assert code == 0, f"{entry} returned {code}"

    def calls(self, entry: str) -> int:
        count = self._library.softcuda_calls
        count.restype = c_uint64
        return count(entry.encode())

    def stream(self) -> c_void_p:
        stream = c_void_p()
        self.call("cuStreamCreate", byref(stream), c_uint(NON_BLOCKING))
        self._streams.append(stream)
        return stream

    def alloc(self, size: int) -> int:
        address = c_uint64()
        self.call("cuMemAlloc", byref(address), c_size_t(size))
        return address.value

    def free(self, address: int) -> None:
        self.call("cuMemFree", c_uint64(address))

    def copy(self, target: int, source: int, size: int, stream) -> None:
        self.call("cuMemcpyDtoDAsync", c_uint64(target), c_uint64(source),
                  c_size_t(size), c_void_p(stream))  # fmt: skip

    def fill(self, target: int, value: int, words: int, stream) -> None:
        self.call("cuMemsetD32Async", c_uint64(target), c_uint(value),
                  c_size_t(words), c_void_p(stream))  # fmt: skip

    def read(self, address: int, words: int) -> List[int]:
        values = (ctypes.c_uint32 * words)()
        self.call("cuCtxSynchronize")
        self.call("cuMemcpyDtoH", values, c_uint64(address),
                  c_size_t(4 * words))  # fmt: skip
        return list(values)

    def begin_capture(self, stream) -> None:
        self.call("cuStreamBeginCapture", c_void_p(stream), c_int(1))

    def end_capture(self, stream):
        """The graph that was captured, and one that can be launched."""
        graph, executable = c_void_p(), c_void_p()
        self.call("cuStreamEndCapture", c_void_p(stream), byref(graph))
        self.call("cuGraphInstantiateWithFlags", byref(executable), graph,
                  c_uint64(0))  # fmt: skip
        return graph.value, executable.value

    def launch(self, executable: int, stream) -> None:
        self.call("cuGraphLaunch", c_void_p(executable), c_void_p(stream))

    def destroy(self, graph: int, executable: int) -> None:
        self.call("cuGraphExecDestroy", c_void_p(executable))
        self.call("cuGraphDestroy", c_void_p(graph))

    def synchronize_badly(self, stream) -> None:
        """A wait for a stream that is captured, which ends the capture."""
        self._library.cuStreamSynchronize(c_void_p(stream))

    def _counts(self) -> dict:
        counts = _Counts()
        self._library.softcuda_count(byref(counts))
        return {
            name: getattr(counts, name)
            for name, _ in _Counts._fields_
            if name not in ("waits", "launches", "prioritized")
        }

    def left_over(self) -> dict:
        after = self._counts()
        return {k: v for k, v in after.items() if v != self.before[k]}

    def races(self) -> List[str]:
        read = self._library.softcuda_races
        read.restype = c_uint64
        text = ctypes.c_char_p()
        found = []
        for i in range(read(c_uint64(0), byref(text))):
            read(c_uint64(i), byref(text))
            found.append((text.value or b"").decode())
        return found

    def close(self) -> None:
        self.call("cuCtxSynchronize")
        for stream in self._streams:
            self.call("cuStreamDestroy", stream)
        self.call("cuCtxSetCurrent", c_void_p())
        self.call("cuDevicePrimaryCtxRelease", c_int(0))


WORDS = 16
BYTES = 4 * WORDS
MOST = 16  # microbatches of a step
SLOTS = 8


class Toy:
    """Layers that are exact to check.

    Layer l copies its input forward and writes 1000 + l at word l; backward
    it copies the gradient and writes 2000 + l at word l, and leaves its input
    at weight[l].  Microbatch m of a step feeds a value of its own, at an
    address of its own, so a stale input shows.
    """

    def __init__(self, soft: SoftDevice, layers: int = 2, **options) -> None:
        self.soft, self.layers = soft, layers
        self.stream = soft.stream()
        self.flags = 0  # of every pass: GH_PASS_NO_EXIT, or none
        self.bad_at = None  # (segment, direction): what breaks a capture
        self.bad_done = 0
        self.raise_at = None
        per_set = 2 * layers
        self._size = BYTES * ((SLOTS + 1) * per_set + 4 * MOST + layers)
        self._memory = soft.alloc(self._size)
        soft.fill(self._memory, 0, self._size // 4, self.stream.value)
        self._next = self._memory
        # One set more, for passes that hold no slot.
        self.acts = [self._cut(layers) for _ in range(SLOTS + 1)]
        self.grads = [self._cut(layers) for _ in range(SLOTS + 1)]
        self.x, self.dy = self._cut(MOST), self._cut(MOST)
        self.y, self.dx = self._cut(MOST), self._cut(MOST)
        self.weights = self._cut(layers)

        options = {"environment": {}, "driver": soft.path, **options}
        with Model() as model:
            for _ in range(layers):
                model.add_layer("dense")
            self.session = Session(
                model, context=soft.context.value, **options
            )
        self.api = self.session.api
        self.err = _abi.gh_error()

    def _cut(self, n: int) -> List[int]:
        first = self._next
        self._next += n * BYTES
        return [first + i * BYTES for i in range(n)]

    def close(self) -> None:
        self.session.close()
        self.soft.free(self._memory)

    # The parts of one layer.

    def _forward(self, layer: int, slot: int, source: int, stream) -> int:
        out = self.acts[slot][layer]
        self.soft.copy(out, source, BYTES, stream)
        self.soft.fill(out + 4 * layer, 1000 + layer, 1, stream)
        return out

    def _backward(self, layer: int, slot: int, source: int, stream) -> int:
        out = self.grads[slot][layer]
        self.soft.copy(out, source, BYTES, stream)
        self.soft.fill(out + 4 * layer, 2000 + layer, 1, stream)
        self.soft.copy(
            self.weights[layer], self.acts[slot][layer], BYTES, stream
        )
        return out

    def run(self, layer: int, direction: int, m: int, source: int) -> int:
        """One pass, as graphhooks/layer.h says; where its output is."""
        parts: Callable = self._backward if direction else self._forward
        inputs = (_abi.gh_buffer * 1)((source, BYTES, 0, 0))
        outputs = (_abi.gh_buffer * 1)()
        pass_ = _abi.make(
            _abi.gh_pass, segment=layer, direction=direction, microbatch=m,
            flags=self.flags, n_inputs=1, inputs=inputs, stream=self.stream,
        )  # fmt: skip
        d = _abi.make(_abi.gh_decision)
        api, handle, err = self.api, self.session.handle, self.err
        status: Optional[int] = None
        while status is None or status == _abi.GH_RERUN:
            check(api.layer_enter(handle, pass_, d, err), err)
            if d.action == _abi.GH_ACTION_REPLAYED:
                out = d.outputs[0].address
                if self.flags & _abi.GH_PASS_NO_EXIT:
                    return out
            else:
                slot = min(d.slot, SLOTS)
                out = parts(layer, slot, d.inputs[0].address, d.stream)
                self._misbehave(layer, direction, d)
                outputs[0] = (out, BYTES, 0, 0)
                pass_.n_outputs, pass_.outputs = 1, outputs
            status = check(api.layer_exit(handle, pass_, err), err)
        return out

    def _misbehave(self, layer: int, direction: int, d) -> None:
        recording = d.action == _abi.GH_ACTION_RECORD
        if recording and self.bad_at == (layer, direction):
            self.bad_done += 1
            self.soft.synchronize_badly(d.stream)
        if self.raise_at == (layer, direction):
            self.raise_at = None
            check(self.api.layer_cancel(self.session.handle, self.err),
                  self.err)  # fmt: skip
            raise RuntimeError("the host's own code has failed")

    # A step.

    def forward(self, m: int, value: int) -> None:
        self.soft.fill(self.x[m], value, WORDS, self.stream.value)
        at = self.x[m]
        for layer in range(self.layers):
            at = self.run(layer, _abi.GH_FORWARD, m, at)
        self.soft.copy(self.y[m], at, BYTES, self.stream.value)

    def backward(self, m: int, value: int) -> None:
        self.soft.fill(self.dy[m], value, WORDS, self.stream.value)
        at = self.dy[m]
        for layer in reversed(range(self.layers)):
            at = self.run(layer, _abi.GH_BACKWARD, m, at)
        self.soft.copy(self.dx[m], at, BYTES, self.stream.value)

    def end(self) -> None:
        check(self.api.iteration_end(self.session.handle, self.err), self.err)

    def step(self, count: int, seed: int, in_flight: int = 2) -> None:
        """Forward in flights, then backward in the same order; checked."""
        for first in range(0, count, in_flight):
            flight = range(first, min(first + in_flight, count))
            for m in flight:
                self.forward(m, seed + m)
            for m in flight:
                self.backward(m, seed + 500 + m)
        self.end()
        for m in range(count):
            self.check_microbatch(m, seed + m, seed + 500 + m)
        for layer in range(self.layers):
            last = self.expect(seed + count - 1, 1000, layer + 1)
            assert self.soft.read(self.weights[layer], WORDS) == last

    def expect(self, value: int, mark: int, layers: int) -> List[int]:
        marks = [mark + layer for layer in range(layers)]
        return marks + [value] * (WORDS - layers)

    def check_microbatch(self, m: int, value: int, gradient: int) -> None:
        read, layers = self.soft.read, self.layers
        assert read(self.y[m], WORDS) == self.expect(value, 1000, layers)
        assert read(self.dx[m], WORDS) == self.expect(gradient, 2000, layers)
