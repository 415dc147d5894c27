"""What the tests share: runs that are detached, and eager against graphs.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import gc
import re
import sys
from pathlib import Path

import pytest

_TOP = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(_TOP / "tests" / "torch" / "package"))

from harness import (  # noqa: E402
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_configure,
)

try:
    import torch
except ModuleNotFoundError:  # which the tests say
    pass
else:
    import softtorch

    import torch._dynamo  # noqa: F401 - which optimizers load in the end

    if torch.cuda.device_count() == 0:
        softtorch.install()

__all__ = ["pytest_addoption", "pytest_collection_modifyitems",
           "pytest_configure"]


def pytest_collection_finish() -> None:
    """Each test collects what it leaves: what is there before them all, most
    of it torch's, is not looked through again."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # libraries look for leaks at the end


@pytest.fixture(autouse=True)
def turns_are_given_back():
    """Who has kept his turn to record holds up each recording after it, by as
    long as another thread waits for that."""
    yield
    memory = sys.modules.get("graphhooks.torch.base.memory")
    assert memory is None or not memory._turn._lock.locked()


@pytest.fixture
def without_a_gpu():
    """The CPU's tensors are taken for what they are."""
    with softtorch.uninstalled():
        yield


@pytest.fixture
def nobody_collects():
    """What is in a cycle stays, as it does for many steps of a training."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def runs(request):
    """Makes runs of models.Run; none is left attached, and none of their
    pools, which a failed test's frames would hold."""
    import softpool
    from models import Run

    made = []
    pools, failed = softpool.bytes_of_pools(), request.session.testsfailed

    def make(*args, **kwargs):
        made.append(Run(*args, **kwargs))
        return made[-1]

    yield make
    left = [run.attached for run in made if run.attached is not None]
    made.clear()
    while left:
        left.pop().detach()
    gc.collect()
    if request.session.testsfailed == failed:
        assert softpool.bytes_of_pools() <= pools


@pytest.fixture
def pair(runs):
    """Trains eagerly and with graphs, and demands the same bits.

    pair(train) calls train(run) with either run; before(run) is called when
    nothing is attached yet.  `grain` is one of
    models.GRAINS; `replays` whether any graph is to have been replayed;
    `refused` a pattern that fits why segments run eagerly for good, `eager`
    the reasons for which others do besides the warmup, None for any; `apart`
    a pattern that fits why a chunk has become graphs of its layers;
    all of that is left to the test without `judge`.
    """
    from models import differing

    def go(train, *, grain="layer", replays=True, refused=None, eager=(),
           apart=None, judge=True, make=None, model=None, before=None, **options):
        how = {"make": make, "model": model, "before": before}
        one = runs(**how)
        train(one)
        left = one.state()
        two = runs(grain=grain, **how, **options)
        train(two)
        assert differing(left, two.state()) == []
        if judge:
            check(two, replays, refused, eager, apart)
        return two

    return go


def check(run, replays, refused, eager, apart=None) -> None:
    """Graphs were replayed, and what was not has its reason.  Of what waits
    for the device, or checkpoints what draws, the pieces may have graphs by
    then, or the layers of a chunk."""
    stats = run.attached.stats()
    said = run.attached.explain()
    if refused is not None and re.search(
            "(waits for the device|state of random numbers), ", said):
        return
    if refused is None:
        assert stats["refused"] == {}
    else:
        assert stats["refused"]
        for name, why in stats["refused"].items():
            assert re.search(refused, why), why
            assert f"{name} runs eagerly: {why}" in said
    found = re.findall("(.*), so each of its layers has graphs of its own",
                       said)
    assert bool(found) == (apart is not None)
    assert all(re.search(apart, why) for why in found)
    if replays is not None:
        assert (stats["replays"] > 0) == replays, stats
    if eager is not None:
        usual = {"warmup", "gradients_moved", "refused", "partial_backward"}
        assert set(stats["eager_calls"]) - usual == set(eager), stats
