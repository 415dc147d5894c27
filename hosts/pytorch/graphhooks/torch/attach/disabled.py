"""What attach returns where graphs are turned off: nothing is touched.

So a training script with graphs in it runs anywhere, also without a GPU or
without the library.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os

from ... import _abi


def is_off(options) -> bool:
    """As GRAPHHOOKS_ENABLE says, and else the option."""
    enable = os.environ.get("GRAPHHOOKS_ENABLE") or options.get("enable")
    return str(enable).lower() in ("0", "off", "no", "false")


class Off:
    """An Attached without graphs."""

    def explain(self) -> str:
        return "graphs are turned off (GRAPHHOOKS_ENABLE, enable=): all of " \
            "it runs eagerly\n"

    def stats(self) -> dict:
        counters = {name: 0 for name, _ in _abi.gh_stats._fields_
                    if name != "struct_size"}
        return {**counters, "eager_by_reason": {}, "eager_calls": {},
                "refused": {}, "banks": []}

    def memory(self) -> dict:
        return {}

    def suspend(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def forecast(self) -> dict:
        return {}

    def step(self) -> None:
        pass

    def wait(self) -> None:
        pass

    def detach(self) -> None:
        pass

    def __enter__(self) -> "Off":
        return self

    def __exit__(self, *_) -> None:
        pass
