"""One row on one case: what its subclasses have to say.

A row builds a model and an optimizer, and knows how to run the passes of a
step.  Everything that is timed is timed by measure.py, the same for all.

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import torch

from cases import Case

SEED = 20240917
LEARNING_RATE = 1e-4


class Row:
    """Subclasses set ``model`` and ``optimizer`` in ``build``."""

    # Whether there are layers that are started one by one, so that host time
    # can be given for one.
    by_layer = True
    # Whether gradients are dropped or set to zero: the cheapest that is right
    # for the row, as each says.
    drop_gradients = True
    plain = 2  # steps before prepare()
    few = False  # whether a few timed steps are enough

    def recordings(self):
        """How many graphs there are, or None of a row without; the first step
        that adds none has replayed."""
        return None

    def __init__(self, name: str, case: Case, device: str, steps: int):
        self.name = name
        self.case = case
        self.device = torch.device(device)
        self.microbatch = 0
        self.make_data(steps)

    def make_data(self, steps: int):
        """All tokens of a run, the same for every row: nothing is read from
        the host inside a step."""
        source = torch.Generator().manual_seed(SEED)
        case = self.case
        text = torch.randint(0, case.vocabulary,
                             (steps, case.microbatches, case.batch,
                              case.sequence + 1), generator=source)
        self.tokens = text[..., :-1].contiguous().to(self.device)
        self.targets = text[..., 1:].contiguous().to(self.device)
        self.losses = torch.zeros(case.microbatches, device=self.device)
        self.history = torch.zeros(steps, case.microbatches,
                                   device=self.device)

    def make_optimizer(self, parameters):
        """The same for all rows: capturable, as the floor needs it."""
        cuda = self.device.type == "cuda"
        return torch.optim.AdamW(parameters, lr=LEARNING_RATE,
                                 fused=cuda or None, capturable=cuda)

    # ---- what a subclass says --------------------------------------------

    def build(self):
        raise NotImplementedError

    def prepare(self):
        """Turn on what the row is about."""

    def passes(self, step: int):
        """Issue forward and backward of all microbatches; keep the losses."""
        raise NotImplementedError

    def without_layers(self):
        """Leave the embedding and the head, run eagerly."""
        raise NotImplementedError

    def close(self) -> dict:
        """Turn off again; what there is to say besides the times."""
        return {}

    # ---- the same for all, unless the step is one graph -------------------

    def update(self):
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=self.drop_gradients)

    def keep_losses(self, step: int):
        self.history[step].copy_(self.losses)


def keep_gradients(parameters):
    """Gradients at addresses of their own from the beginning."""
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)


def attach(model, row: str, **more):
    """graphhooks on a model.  Options are the defaults of a user, but for
    verify: its first looks come in the steps that are timed."""
    import graphhooks

    kind = row.split("/")[1].split("+")[0]
    if kind == "eager":
        return graphhooks.attach(model, graphs=False, **more)
    return graphhooks.attach(model, granularity=kind, verify="off", **more)


def words_of(attached) -> dict:
    """The counters, and what was not captured."""
    stats = dict(attached.stats())
    attached.detach()
    return {"stats": stats}
