"""Whether tensors are equal, asked of the device now and read later.

Who reads at once waits for the device, and a backward has a question for each
layer: large layers take half as long again.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import torch

_MANY = 1024  # answers that wait, of a loop that never comes to read them


class Comparisons:
    """Those of an attach."""

    def __init__(self):
        self.waiting: list = []  # answers, and who is to be told

    def compare(self, tensor, other, tell) -> None:
        """Of one shape and dtype: tell(), by the end of the next settle(), if
        they differ.  NaNs do."""
        self.waiting.append((torch.ne(tensor, other).any(), tell))
        if len(self.waiting) >= _MANY:
            self.settle()

    def settle(self) -> None:
        """Waits for the device, if somebody has asked."""
        if not self.waiting:
            return
        waiting, self.waiting = self.waiting, []
        if waiting[0][0].is_cuda:  # backwards have streams of their own
            torch.cuda.synchronize(waiting[0][0].device)
        answers = torch.stack([answer for answer, _ in waiting])
        for differ, (_, tell) in zip(answers.tolist(), waiting):
            if differ:
                tell()
