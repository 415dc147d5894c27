"""What layers read by name in Python: files, classes and what is in globals.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextvars
import enum
import gc
import re
import sys
import types
import weakref

import pytest
from models import LAYERS, WHOLE, Block, Model

GRAIN = pytest.mark.parametrize("grain", WHOLE)


def file_of(name: str, text: str) -> types.ModuleType:
    made = types.ModuleType(name)
    exec(text, vars(made))
    sys.modules[name] = made
    return made


def shared_table():
    return pytest.importorskip("numpy").ones(2)


class Mode(enum.Enum):
    WHOLE = 1.0
    HALF = 0.5


class Source:
    """A number that a property reads in the class."""

    number = 1.0

    @property
    def scale(self) -> float:
        return Source.number


class Derived(Source):
    """Has its number from another class."""


SETTINGS = file_of("its_settings", "scale = 1.0")
SETTINGS.inner = file_of("its_settings.inner", "scale = 1.0")
STATE = file_of("its_state", "_scale = 1.0\n"
                "def scale():\n    return _scale\n")
SOURCE, ARRAYS, RAW = Source(), [], bytearray(b"\1")
CHOICE = types.SimpleNamespace(mode=Mode.WHOLE, depth=0)
WITHIN = contextvars.ContextVar("WITHIN", default=1.0)


def by_closure():
    file = SETTINGS
    return lambda: file.scale


def imported() -> float:
    import its_settings
    return its_settings.scale


def imported_from() -> float:
    from its_settings import scale
    return scale


def changes(thing, name: str, value):
    """Two functions: one changes it, another puts it back."""
    before = getattr(thing, name)
    return (lambda: setattr(thing, name, value),
            lambda: setattr(thing, name, before))


# What a layer reads, how that is changed and put back, and what is said.
ELSEWHERE = {
    "file": (lambda: SETTINGS.scale, changes(SETTINGS, "scale", 0.5),
             "SETTINGS.scale was 1.0"),
    "file by a text": (lambda: getattr(SETTINGS, "scale"),  # noqa: B009
                       changes(SETTINGS, "scale", 0.5),
                       "SETTINGS.scale was 1.0"),
    "file in a file": (lambda: SETTINGS.inner.scale,
                       changes(SETTINGS.inner, "scale", 0.5),
                       "SETTINGS.inner.scale was 1.0"),
    "function of a file": (lambda: STATE.scale(),
                           changes(STATE, "_scale", 0.5),
                           "STATE.scale's _scale was 1.0"),
    "file in a closure": (by_closure(), changes(SETTINGS, "scale", 0.5),
                          "file.scale was 1.0"),
    "file that is imported": (imported, changes(SETTINGS, "scale", 0.5),
                              "its_settings.scale was 1.0"),
    "name that is imported": (imported_from, changes(SETTINGS, "scale", 0.5),
                              "its_settings.scale was 1.0"),
    "class of an object": (lambda: SOURCE.scale,
                           changes(Source, "number", 0.5),
                           "Source.number was 1.0"),
    "class's own base": (lambda: Derived.number,
                         changes(Source, "number", 0.5),
                         "Derived.number was 1.0"),
    "array": (lambda: float(ARRAYS[0][0]),
              (lambda: ARRAYS[0].fill(0.5), lambda: ARRAYS[0].fill(1.0)),
              r"ARRAYS\[0\] is another ndarray"),
    "bytes": (lambda: RAW[0],
              (lambda: RAW.__setitem__(0, 2),
               lambda: RAW.__setitem__(0, 1)),
              r"RAW \(content\) was b'.x01'"),
    "enum of an object": (lambda: CHOICE.mode.value,
                          changes(CHOICE, "mode", Mode.HALF),
                          "CHOICE.mode is another Mode"),
    "context": (lambda: WITHIN.get(),
                (lambda: WITHIN.set(0.5), lambda: WITHIN.set(1.0)),
                "WITHIN's value was 1.0"),
}


@GRAIN
@pytest.mark.parametrize("what", ELSEWHERE)
def test_what_is_changed_in_files_and_globals_is_eager(pair, grain, what):
    read, (change, put_back), said = ELSEWHERE[what]
    if what == "array":
        ARRAYS[:] = [shared_table()]

    class Reads(Block):
        def forward(self, x):
            return super().forward(x) * read()

    def train(run):
        put_back()
        run.steps([2, 2, 2])
        change()
        run.steps([2, 2])
        put_back()
        run.steps([2])

    run = pair(train, grain=grain, make=Reads, eager=["attributes"])
    assert run.attached.stats()["eager_calls"]["attributes"] == 4 * (
        LAYERS if grain == "layer" else 1)
    assert re.search(said, run.attached.explain()), run.attached.explain()


@GRAIN
def test_an_array_in_a_shared_object_that_is_changed_in_place(pair, grain):
    """The object is the same, and so is the array."""
    config = types.SimpleNamespace(array=shared_table())

    class Reads(Block):
        def __init__(self) -> None:
            super().__init__()
            self.config = config

        def forward(self, x):
            return super().forward(x) * float(self.config.array[0])

    def train(run):
        config.array.fill(1.0)
        run.steps([2, 2, 2])
        config.array[0] = 0.5
        run.steps([2])

    run = pair(train, grain=grain, make=Reads, eager=["attributes"])
    assert "config.array is another ndarray" in run.attached.explain()


@GRAIN
def test_what_others_keep_in_a_file_is_nobodys(pair, grain):
    """A layer reads one of its names."""
    file = file_of("its_counts", "scale = 1.0\nstep = 0\n")

    class Reads(Block):
        def forward(self, x):
            return super().forward(x) * file.scale

    def train(run):
        for i in range(5):
            file.step = i
            run.step(2)

    pair(train, grain=grain, make=Reads)


@GRAIN
def test_a_mock_of_a_missing_package_is_no_iterator(pair, grain):
    """Which has all of one's methods."""
    file = file_of("its_imports", "from unittest.mock import MagicMock\n"
                   "missing = MagicMock()\n"
                   "def scale():\n    return 2.0 if missing is None else 1.0\n")

    class Reads(Block):
        def forward(self, x):
            return super().forward(x) * file.scale()

    pair(lambda run: run.steps([2, 2, 2]), grain=grain, make=Reads)


@GRAIN
def test_objects_that_are_replaced_in_each_step_do_not_stay(pair, grain):
    config = types.SimpleNamespace()
    left: list = []

    class Reads(Block):
        def __init__(self) -> None:
            super().__init__()
            self.config = config

    def train(run):
        made = []
        for _ in range(12):
            config.source = Source()
            made.append(weakref.ref(config.source))
            run.step(2)
        gc.collect()
        left.append(sum(ref() is not None for ref in made))

    pair(train, grain=grain, make=Reads, replays=None, eager=None)
    assert left[0] == 1 and left[1] <= 4


class Reads(Block):
    def forward(self, x):
        return super().forward(x) * (1 + CHOICE.depth)


class Deepens(Model):
    """Says to each layer, in an object that they share, which it is."""

    def run_layers(self, x):
        for CHOICE.depth, layer in enumerate(self.layers):
            x = layer(x)
        CHOICE.depth = 0
        return x


def test_a_chunk_between_whose_layers_a_shared_object_changes(pair):
    pair(lambda run: run.steps([2, 2, 2]), grain="chunk", make=Reads,
         model=Deepens, replays=None, eager=None, apart="layers.1 finds a change: "
         r"Reads.forward's CHOICE.depth was 0 when the one before it had "
         "returned and is 1 now")
