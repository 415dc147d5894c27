"""The one exception, with the sentences of the C library.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

from . import _abi

_NAMES = {
    value: name
    for name, value in vars(_abi).items()
    if name.startswith("GH_ERR_")
}


class Error(Exception):
    """Something that graphhooks refuses or cannot do.

    str() of it is one sentence: the thing, the rule, the remedy.
    """

    def __init__(self, text: str, status: int = _abi.GH_ERR_INVALID) -> None:
        super().__init__(text)
        self.status = status  # as in C: _abi.GH_ERR_CONFIG
        self.name = _NAMES.get(status, "GH_ERR_?")  # "GH_ERR_CONFIG"

    def __reduce__(self):
        return type(self), (str(self), self.status)


def check(status: int, err: _abi.gh_error) -> int:
    """Raises what a call has failed with; GH_OK and GH_RERUN pass."""
    if status < 0:
        raise Error(err.text.decode("utf-8", "replace"), status)
    return status
