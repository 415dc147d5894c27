"""graphhooks.megatron: Megatron-Core's layers as CUDA graphs, by its own seam.

A folder of its own, and the only place that knows Megatron's names:

    attach.py      attach(): chunks of a model, their graphs and how these end
    seam.py        a layer's place for a graph: what is called there, and what
                   a schedule leaves in a layer between two calls
    chunk.py       all layers of a chunk as one segment
    scope.py       which part of a layer is captured, in Megatron's words
    exchange.py    tokens by the library's exchange
    left.py        what calls leave in attributes
    routing.py     experts of tokens that somebody has said
    groups.py      whose ranks run the layers together
    fp8.py         state of Transformer Engine outside of layers
    random.py      generators of random numbers that layers draw from
    offload.py     what goes to the host's memory, by Megatron's names
    weights.py     gradients of weights that its modules put off
    gradients.py   gradients that its DistributedDataParallel adds up
    hooks.py       hooks of its DistributedDataParallel on covered modules
    environment.py variables and wrappers that graphs depend on
    helper.py      the methods that a training loop of Megatron's calls
    names.py       what is used of Megatron's, looked for at the attach

SPDX-License-Identifier: Apache-2.0
"""

from .attach import Attached, attach
from .helper import CudaGraphHelper

__all__ = ["Attached", "CudaGraphHelper", "attach"]
