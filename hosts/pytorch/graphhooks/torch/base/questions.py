"""What ranks of a group ask each other besides what the library does.

A question is asked by all of them, at one call of one segment; ranks.py brings
the answers together.  Whoever is elsewhere by then asks something else, or is
asked by the library, and all hear that they have parted.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

# As the library asks about passes, which it tells apart by smaller numbers.
BESIDE = 0xff0000  # a call that is no pass of a training
TRIAL = 0xff0001  # whether a module is tried
AGAIN = 0xff0002  # whether a forward runs again before a backward is recorded
SPENT = 0xff0003  # whether autograd's graph is gone, so modules run again
FLIGHT = 0xff0004  # which signature a microbatch is of
ROOM = 0xff0005  # whether a bank may give way for another one
VERIFY = 0xff0006  # whether a replay is run eagerly too, and what it has shown
MEASURE = 0xff0007  # what passes of a scope take, and whether that is known
SUSPEND = 0xff0008  # whether a rank can suspend its graphs
RESUME = 0xff0009  # whether it has memory for them again

_PLACES = {
    BESIDE: "a call of {} that is none of a training, as of an evaluation",
    TRIAL: "an eager call of {}",
    AGAIN: "the recording of a backward of {}",
    SPENT: "an eager backward of {}",
    FLIGHT: "the beginning of a microbatch, in {}",
    ROOM: "the recording of another shape, in {}",
    VERIFY: "a replay of {} that is run eagerly too",
    MEASURE: "the end of a step in which passes of {} are measured",
    SUSPEND: "suspend(), which begins with {}",
    RESUME: "resume(), which begins with {}",
}
WORDS = 7  # of a question; the library never says as many


def place(about: int, index: int, segments) -> str:
    """Where a rank is that asks this."""
    if about not in _PLACES or not 0 <= index < len(segments):
        return "a pass of its own"
    return _PLACES[about].format(segments[index].name)
