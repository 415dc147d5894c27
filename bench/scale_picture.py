#!/usr/bin/env python3
"""scale_picture.py - the JSON file of bench/scale as a picture, as SVG.

    scale_picture.py scale.json > scale.svg

Of the first model of the links, a panel for each shape: a run of both chunks
over its compute alone, for 8 to 1,024 ranks of experts, in both orders and at
best, which is the longer of compute and communication.  The file alone decides
what is drawn.

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import math
import sys

import picture
from picture import line, rule, text

LEFT, TOP, PLOT, HIGH, BETWEEN = 56, 116, 256, 230, 54  # pixels

WAYS = (("longer_ns", "bound", "the longer of compute and communication"),
        ("fixed_ns", "peer", "fixed order"),
        ("auto_ns", "layer", "the order that is found (auto)"))

STYLE = picture.STYLE + """
.bound { fill: #bf8700 }
polyline.way { fill: none; stroke-width: 2 }
.way.layer { stroke: #0969da } .way.peer { stroke: #8c959f }
.way.bound { stroke: #bf8700; stroke-dasharray: 5 4 }
"""


def title(rows: list[dict]) -> str:
    over = {key: max(row[key] / row["longer_ns"] for row in rows)
            for key in ("fixed_ns", "auto_ns")}
    return (f"On paper: auto at most {100 * (over['auto_ns'] - 1):.0f} % above "
            f"the longer of both, fixed {100 * (over['fixed_ns'] - 1):.0f} %")


class Panel:
    """One shape."""

    def __init__(self, left: float, name: str, rows: list[dict], most: float):
        self.left, self.name, self.rows, self.most = left, name, rows, most

    def x(self, ranks: int) -> float:
        return round(self.left + PLOT * (math.log2(ranks) - 3) / 7, 1)

    def y(self, ratio: float) -> float:
        return round(TOP + HIGH * (self.most - ratio) / (self.most - 0.95), 1)

    def axes(self) -> list[str]:
        parts = [text(self.left, TOP - 16, self.name, "ink head")]
        for row in self.rows:
            parts += [line(self.x(row["ep"]), TOP, TOP + HIGH, "grid"),
                      text(self.x(row["ep"]), TOP + HIGH + 16, str(row["ep"]),
                           "dim middle"),
                      text(self.x(row["ep"]), TOP + HIGH + 32,
                           f"{row['comm_over_compute']:.2f}", "dim middle")]
        step = 0.1 if self.most < 1.8 else 0.25
        ratio = 1.0
        while ratio <= self.most:
            kind = "floor" if ratio == 1.0 else "grid"
            y = self.y(ratio)
            parts += [rule(self.left, self.left + PLOT, y, kind),
                      text(self.left - 8, y + 4, f"{ratio:.2f}", "dim end")]
            ratio = round(ratio + step, 2)
        return parts

    def ways(self) -> list[str]:
        parts = []
        for key, kind, _ in WAYS:
            points = [(self.x(row["ep"]), self.y(row[key] / row["compute_ns"]))
                      for row in self.rows]
            parts += picture.way(points, kind, key != "longer_ns")
        return parts


def draw(data: dict) -> str:
    links = data["scale"][0]["links"]
    rows = [row for row in data["scale"] if row["links"] == links]
    names = list(dict.fromkeys(row["shape"] for row in rows))
    most = 0.05 + max(row["fixed_ns"] / row["compute_ns"] for row in rows)
    panels = [Panel(LEFT + i * (PLOT + BETWEEN), name,
                    [row for row in rows if row["shape"] == name],
                    max(most, 1.2))
              for i, name in enumerate(names)]
    height = TOP + HIGH + 86
    sub = (f"A run of both chunks over its compute alone, by ranks, below them "
           f"communication over compute. {links}; nodes of {data['costs_of']}.")
    drawn = [part for panel in panels for part in panel.axes() + panel.ways()]
    keys = picture.legend([way[1:] for way in WAYS], height - 13)
    return picture.page(title(rows), sub, drawn + keys, height, STYLE)


if __name__ == "__main__":
    sys.exit(picture.print_of_file(draw, __doc__, sys.argv[1:]))
