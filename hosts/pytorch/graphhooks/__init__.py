"""graphhooks: CUDA graphs for parts of a training step.

SPDX-License-Identifier: Apache-2.0
"""

from ._version import __version__
from .errors import Error
from .session import Model, Segment, Session

__all__ = ["Error", "Model", "Segment", "Session", "__version__"]
