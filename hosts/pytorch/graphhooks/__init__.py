"""graphhooks: CUDA graphs for parts of a training step.

SPDX-License-Identifier: Apache-2.0
"""

from ._version import __version__
from .errors import Error
from .session import Model, Segment, Session


def attach(model, layers=None, **options):
    """graphhooks.torch.attach, which see; imports torch."""
    from .torch import attach as attach_torch

    return attach_torch(model, layers, **options)


__all__ = ["Error", "Model", "Segment", "Session", "__version__", "attach"]
