"""graphhooks: CUDA graphs for parts of a training step.

SPDX-License-Identifier: Apache-2.0
"""

import sys

from . import checkpoint
from ._version import __version__
from .errors import Error
from .model import Model
from .session import Segment, Session


def attach(model, layers=None, *, parts=None, generators=(),
           gradients="graph", **options):
    """Captures a stack of layers of a torch ``model``, and replays it.

    ``layers``: an ``nn.ModuleList``, any sequence of modules, or names by
    pattern ("blocks.*"); without it the longest ``nn.ModuleList``.
    ``parts``: with granularity "part", or a scope, the names of a layer's
    submodules, {"attn": "mixer", "mlp": "ffn"}; common names are known.
    ``generators``: random number generators that layers draw from besides the
    default one of the device.
    ``gradients``: "graph" puts those of parameters into ``.grad`` inside the
    graph, "autograd" leaves them to autograd.
    ``offload``: what is kept for the backward goes to the host's memory and
    comes back: True for all of each layer, or "attn", "mlp" or both;
    ``offload_fraction`` says how much of it.
    ``graphs``: False leaves layers eager, for an offload alone.
    ``max_banks``: how many shapes of what goes into the layers have graphs at
    once, 8.  Each runs eagerly when it comes first, is recorded when it comes
    a second time, and replayed from then on.
    ``eval``: True gives passes without gradients graphs of their own, in the
    memory of the training's.
    ``packed``: arguments that vary with how sequences are packed, and the most
    that they may be: {"cu_seqlens": 64, "max_seqlen": 4096}.
    ``group``: the process group of ranks that run layers with collectives
    together, or the name of the argument that has the one of each microbatch.
    ``scope``: "attn" or "mlp" with parts; "auto" measures the first steps with
    graphs and without, and modules of a kind that graphs make slower have none
    from then on.
    ``split_backward``: True where backwards are asked for inputs and for
    weights one after the other, as torch's zero-bubble schedules do
    (stage_backward_input() and stage_backward_weight()).
    ``verify``: "auto" runs some replays eagerly too and compares all bits,
    "always" all of them, "off" none; a segment that differs is eager from
    then on.
    ``suspends``: True reserves the addresses of graphs' memory, which
    ``suspend()`` gives back and ``resume()`` takes again.
    All other options are the environment variables GRAPHHOOKS_* in Python's
    spelling, such as ``granularity="chunk"``, ``warmup_steps``,
    ``max_slots``, ``enable=False``; a variable that is set wins.

    Returns an ``Attached``: ``explain()``, ``stats()``, ``memory()``,
    ``forecast()``, ``step()``, ``suspend()``, ``resume()``, ``detach()``, and
    a context manager.  Raises ``Error``.
    """
    try:
        from .torch import attach as attach_torch
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        raise Error("torch is missing: pip install torch") from None

    if "megatron.core" in sys.modules:
        from .megatron.names import point_out

        point_out(model)
    return attach_torch(model, layers, parts=parts, generators=generators,
                        gradients=gradients, **options)


def segment(run, modules=(), name="", delayed=None):
    """Makes of a function a module that ``attach`` takes for a layer.

    For an engine whose graphs are of something else than the forward of a
    module, such as a part of a layer: it calls the segment in the place of
    ``run``, with the same arguments, and ``attach(model, [segment, ...])``
    captures that.
    ``run``: takes and returns tensors, and what holds them.  It is called
    eagerly, to record, and not for a replay.
    ``modules``: those whose parameters and buffers ``run`` uses.  A tensor
    that is trained and in none of these is refused at the recording.
    ``name``: what the log calls it.
    ``delayed``: of modules whose backward puts the gradients of weights off:
    what is left then has a graph of its own, which ``backward_dw()`` of the
    segment replays, once for each backward and in their order.  An object
    with two methods.  ``apart()`` is a context manager: what backwards put
    off in it is taken out, and is what ``as`` gives.  ``run(work)`` computes
    the gradients of that, again and again if asked, and without work those of
    the modules' oldest backward; it puts them into ``.grad``, or adds them to
    buffers.
    """
    from .torch.attach.body import segment as make

    return make(run, modules, name, delayed)


__all__ = ["Error", "Model", "Segment", "Session", "__version__", "attach",
           "checkpoint", "segment"]
