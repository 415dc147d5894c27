"""What a training loop of Megatron's asks for graphs.

It makes a TECudaGraphHelper, and calls it between steps; this one has the same
methods, and attaches.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import logging

from .attach import attach

log = logging.getLogger("graphhooks")


class CudaGraphHelper:
    """In the place of Megatron's TECudaGraphHelper:

        megatron.training.training.TECudaGraphHelper = CudaGraphHelper

    Its graphs are recorded while the model trains, so that sequence lengths,
    microbatches and optimizers need not be known before.  `options`: as of
    graphhooks.megatron.attach, for all that are made.
    """

    options: dict = {}

    def __init__(self, model, config, seq_length=None, micro_batch_size=None,
                 optimizers=(), pg_collection=None):
        self.model, self.config = model, config
        self.attached = None  # between create_cudagraphs and the end
        self._has_finished = False

    def create_cudagraphs(self) -> None:
        """Between two steps; the next ones record."""
        self.attached = attach(self.model, self.config, **self.options)
        self._has_finished = True

    def capture_finished(self) -> bool:
        return self._has_finished

    def graphs_created(self) -> bool:
        return self.attached is not None and bool(self.attached.chunks)

    def cuda_graph_set_manual_hooks(self) -> None:
        """Those that wait for parameters, which the attach has put there."""
        self.attached.set_hooks()

    def delete_cuda_graphs(self) -> None:
        """At the end of a training."""
        attached, self.attached = self.attached, None
        log.info("%s", attached.explain())
        attached.detach()
