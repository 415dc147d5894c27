#!/usr/bin/env python3
"""offload_picture.py - the JSON file of bench/offload as a picture, as SVG.

    offload_picture.py offload.json > offload.svg

A line for each way of running the step: how much longer it takes with its
activations on the host, over the share of a layer's forward that the copy of
its group takes.  The file alone decides what is drawn.

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import sys

import picture
from picture import rule, text

LEFT, TOP, PLOT, HIGH = 70, 92, 640, 240  # pixels
MOST_X, LEAST_Y, MOST_Y = 1.7, 0.98, 1.22

WAYS = ((("graphs", False), "layer", "a graph per layer"),
        (("graphs", True), "chunk", "the same, commits delayed"),
        (("eager", False), "peer", "eager"))

STYLE = picture.STYLE + """
.way { fill: none; stroke-width: 2 }
.way.layer { stroke: #0969da } .way.chunk { stroke: #54aeff }
.way.peer { stroke: #8c959f }
"""


def x(share: float) -> float:
    return round(LEFT + PLOT * share / MOST_X, 1)


def y(ratio: float) -> float:
    return round(TOP + HIGH * (MOST_Y - ratio) / (MOST_Y - LEAST_Y), 1)


def rows_of(data: dict, way) -> list[tuple[float, float]]:
    return [(row["copy_over_forward"], row["ratio"]) for row in data["steps"]
            if (row["passes"], row["delay"]) == way]


def title(data: dict) -> str:
    hidden = [row for row in data["steps"] if row["copy_over_forward"] < 0.9]
    worst = max(row["ratio"] for row in hidden)
    share = max(row["copy_over_forward"] for row in hidden)
    return (f"Copies of up to {100 * share:.0f} % of a forward cost at most "
            f"{100 * max(worst - 1, 0):.2f} % of a step")


def axes() -> list[str]:
    parts = []
    for i in range(9):
        share = i * 0.2
        parts += [picture.line(x(share), TOP, TOP + HIGH, "grid"),
                  text(x(share), TOP + HIGH + 16, f"{100 * share:.0f} %",
                       "dim middle")]
    for i in range(6):
        ratio = 1 + i * 0.04
        kind = "floor" if i == 0 else "grid"
        parts += [rule(LEFT, LEFT + PLOT, y(ratio), kind),
                  text(LEFT - 8, y(ratio) + 4, f"{ratio:.2f}", "dim end")]
    parts.append(text(LEFT, TOP + HIGH + 36, "a group's copy, in parts of its "
                      "layer's forward", "dim"))
    return parts


def ways(data: dict) -> list[str]:
    parts = []
    for i, (way, kind, words) in enumerate(WAYS):
        parts += picture.way([(x(a), y(b)) for a, b in rows_of(data, way)],
                             kind)
        parts += picture.mark(LEFT + PLOT + 24, TOP + 20 + 22 * i, kind, words)
    return parts


def draw(data: dict) -> str:
    sub = (f"Step with activations on the host over the same step without, "
           f"medians of one run. {data['device']}, {data['layers']} layers, "
           f"{data['microbatches']} microbatches.")
    return picture.page(title(data), sub, axes() + ways(data),
                        TOP + HIGH + 50, STYLE)


if __name__ == "__main__":
    sys.exit(picture.print_of_file(draw, __doc__, sys.argv[1:]))
