#!/usr/bin/env python3
"""stages_picture.py - the JSON file of bench/stages as a picture, as SVG.

    stages_picture.py stages.json > stages.svg

For each schedule: how long stages are idle, by stages and by microbatches; and
how many microbatches the first stage keeps.  The file alone decides what is
drawn.

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import math
import sys

import picture
from picture import line, rule, text

LEFT, TOP, WIDTH, PLOT, HIGH, BETWEEN = 56, 116, 960, 240, 230, 64  # pixels

WAYS = (("1f1b", "peer", "1f1b"),
        ("interleaved-2", "chunk", "interleaved, 2 chunks"),
        ("interleaved-4", "layer", "interleaved, 4 chunks"),
        ("zero-bubble", "bound", "zero-bubble (ZB-H1)"),
        ("dualpipev", "both", "dualpipev"))

STYLE = picture.STYLE + """
.bound { fill: #bf8700 } .both { fill: #8250df }
polyline.way { fill: none; stroke-width: 2 }
.way.layer { stroke: #0969da } .way.peer { stroke: #8c959f }
.way.chunk { stroke: #54aeff } .way.bound { stroke: #bf8700 }
.way.both { stroke: #8250df }
"""


class Panel:
    """Some rows, by one of their numbers."""

    def __init__(self, left: float, name: str, rows: list[dict], by: str,
                 key: str, most: float, step: float):
        self.left, self.name, self.rows, self.by = left, name, rows, by
        self.key, self.most, self.step = key, most, step
        self.at = sorted({row[by] for row in rows})

    def x(self, number: int) -> float:
        low, high = math.log2(self.at[0]), math.log2(self.at[-1])
        return round(self.left + PLOT * (math.log2(number) - low)
                     / (high - low), 1)

    def y(self, value: float) -> float:
        return round(TOP + HIGH * (self.most - value) / self.most, 1)

    def axes(self) -> list[str]:
        parts = [text(self.left, TOP - 16, self.name, "ink head")]
        for number in self.at:
            parts += [line(self.x(number), TOP, TOP + HIGH, "grid"),
                      text(self.x(number), TOP + HIGH + 16, str(number),
                           "dim middle")]
        value = 0.0
        while value <= self.most + 1e-9:
            words = f"{100 * value:.0f} %" if self.key == "idle" \
                else f"{value:.0f}"
            parts += [rule(self.left, self.left + PLOT, self.y(value), "grid"),
                      text(self.left - 8, self.y(value) + 4, words, "dim end")]
            value += self.step
        return parts

    def ways(self) -> list[str]:
        parts = []
        for name, kind, _ in WAYS:
            points = [(self.x(row[self.by]), self.y(row[self.key]))
                      for row in self.rows if row["schedule"] == name]
            parts += picture.way(sorted(points), kind)
        return parts


def panel(left: float, name: str, rows: list[dict], by: str, key: str) -> Panel:
    """A panel whose axis ends above all its rows."""
    step = 0.1 if key == "idle" else 32
    most = max(row[key] for row in rows)
    return Panel(left, name, rows, by, key, step * math.ceil(most / step), step)


def draw(data: dict) -> str:
    rows = [row for row in data["rows"] if row["send"] == 0]
    most = max(row["stages"] for row in rows)
    by_stages = [row for row in rows if row["microbatches"] == 128]
    by_count = [row for row in rows if row["stages"] == most]
    idle = {row["schedule"]: 100 * row["idle"] for row in by_stages
            if row["stages"] == most}
    panels = [
        panel(LEFT, "idle, by stages, of 128 microbatches", by_stages,
              "stages", "idle"),
        panel(LEFT + PLOT + BETWEEN,
              f"idle of {most} stages, by microbatches", by_count,
              "microbatches", "idle"),
        panel(LEFT + 2 * (PLOT + BETWEEN),
              "microbatches kept by the first stage", by_stages, "stages",
              "kept")]
    title = (f"{most} stages are idle for {idle['1f1b']:.0f} % of a step of "
             f"128 microbatches, and for {idle['dualpipev']:.0f} % under "
             "DualPipeV")
    sub = ("On a clock: a backward takes two forwards, and a tensor no time. A "
           "slot of one of two chunks is half a microbatch.")
    drawn = [part for one in panels for part in one.axes() + one.ways()]
    height = TOP + HIGH + 66
    keys = picture.legend([way[1:] for way in WAYS], height - 13)
    return picture.page(title, sub, drawn + keys, height, STYLE, WIDTH)


if __name__ == "__main__":
    sys.exit(picture.print_of_file(draw, __doc__, sys.argv[1:]))
