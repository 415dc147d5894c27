#!/usr/bin/env python3
"""exchange_picture.py - the JSON file of bench/exchange as a picture, as SVG.

    exchange_picture.py exchange.json > exchange.svg

How long one exchange in a graph takes, over the bytes that go to each peer:
bare copies, the library's exchange, and NCCL's.  Both axes are logarithmic.
The file alone decides what is drawn.

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import math
import sys

import picture
from picture import line, rule, text

LEFT, TOP, PLOT, HIGH = 76, 96, 840, 330  # pixels

WAYS = (("bare", "bound", "bare copies, which nobody waits for"),
        ("turns", "layer", "copies in turn"),
        ("kernel", "chunk", "kernel in turn"),
        ("auto", "auto", "auto, where nothing runs beside"),
        ("nccl", "peer", "NCCL"))

STYLE = picture.STYLE + """
.bound { fill: #bf8700 } .auto { fill: #1a7f37 }
polyline.way { fill: none; stroke-width: 2 }
.way.layer { stroke: #0969da } .way.chunk { stroke: #54aeff }
.way.peer { stroke: #8c959f } .way.auto { stroke: #1a7f37 }
.way.bound { stroke: #bf8700; stroke-dasharray: 5 4 }
"""


def ours(row: dict) -> float:
    return min(row["turns_ns"], row["kernel_ns"])


def title(rows: list[dict]) -> str:
    if not all("nccl_ns" in row for row in rows):
        return "An exchange in a graph, over the bytes to each peer"
    gains = [row["nccl_ns"] / ours(row) for row in rows]
    return (f"NCCL's exchange takes {min(gains):.2f} to {max(gains):.2f} times "
            "the library's")


def size(count: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count // unit} {name}"
    return f"{count} B"


class Plot:
    def __init__(self, rows: list[dict]) -> None:
        self.rows = rows
        times = [row[f"{way}_ns"] for row in rows for way, _, _ in WAYS
                 if f"{way}_ns" in row]
        self.least = math.floor(math.log10(min(times)))
        self.most = math.ceil(math.log10(max(times)))
        self.first = math.log2(rows[0]["bytes_a_peer"])
        self.wide = max(math.log2(rows[-1]["bytes_a_peer"]) - self.first, 1)

    def x(self, count: int) -> float:
        return round(LEFT + PLOT * (math.log2(count) - self.first) / self.wide,
                     1)

    def y(self, ns: float) -> float:
        share = (self.most - math.log10(ns)) / (self.most - self.least)
        return round(TOP + HIGH * share, 1)

    def axes(self) -> list[str]:
        parts = []
        for row in self.rows:
            x = self.x(row["bytes_a_peer"])
            parts += [line(x, TOP, TOP + HIGH, "grid"),
                      text(x, TOP + HIGH + 18, size(row["bytes_a_peer"]),
                           "dim middle")]
        for ten in range(self.least, self.most + 1):
            for digit in (1, 2, 5):
                ns = digit * 10.0 ** ten
                if ns <= 10.0 ** self.most:
                    y = self.y(ns)
                    parts += [rule(LEFT, LEFT + PLOT, y, "grid"),
                              text(LEFT - 8, y + 4, f"{ns / 1000:g} us",
                                   "dim end")]
        return parts

    def ways(self) -> list[str]:
        parts = []
        for way, kind, _ in WAYS:
            points = [(self.x(row["bytes_a_peer"]), self.y(row[f"{way}_ns"]))
                      for row in self.rows if f"{way}_ns" in row]
            parts += picture.way(points, kind)
        return parts


def draw(data: dict) -> str:
    rows = data["in_graphs"]
    plot = Plot(rows)
    height = TOP + HIGH + 72
    sub = (f"One exchange in a graph, by the bytes that go to each peer; "
           f"{data['ranks']} ranks on {data['devices']} {data['device']}.")
    keys = picture.legend([(kind, words) for way, kind, words in WAYS
                           if any(f"{way}_ns" in row for row in rows)],
                          height - 13)
    return picture.page(title(rows), sub, [*plot.axes(), *plot.ways(), *keys],
                        height, STYLE)


if __name__ == "__main__":
    sys.exit(picture.print_of_file(draw, __doc__, sys.argv[1:]))
