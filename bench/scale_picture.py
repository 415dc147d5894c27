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

import json
import math
import sys

import picture
from picture import escaped, line, text

LEFT, TOP, WIDTH, PLOT, HIGH, BETWEEN = 56, 116, 960, 256, 230, 54  # pixels

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
            parts += [f'<line x1="{self.left}" x2="{self.left + PLOT}" '
                      f'y1="{y:g}" y2="{y:g}" class="{kind}"/>',
                      text(self.left - 8, y + 4, f"{ratio:.2f}", "dim end")]
            ratio = round(ratio + step, 2)
        return parts

    def ways(self) -> list[str]:
        parts = []
        for key, kind, _ in WAYS:
            points = [(self.x(row["ep"]), self.y(row[key] / row["compute_ns"]))
                      for row in self.rows]
            path = " ".join(f"{a:g},{b:g}" for a, b in points)
            parts.append(f'<polyline points="{path}" class="way {kind}"/>')
            if key != "longer_ns":
                parts += [f'<circle cx="{a:g}" cy="{b:g}" r="3" '
                          f'class="{kind}"/>' for a, b in points]
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
    head, height = title(rows), TOP + HIGH + 86
    sub = (f"A run of both chunks over its compute alone, by ranks, below them "
           f"communication over compute. {links}; nodes of {data['costs_of']}.")
    parts, at = [], 20
    for _, kind, words in WAYS:
        parts += [f'<rect x="{at}" y="{height - 22}" width="14" height="9" '
                  f'class="{kind}"/>', text(at + 20, height - 13, words)]
        at += 40 + 7 * len(words)
    return "\n".join(
        [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
         f'height="{height}" viewBox="0 0 {WIDTH} {height}" role="img">',
         f"<title>{escaped(head)}</title>", f"<style>{STYLE}</style>",
         f'<rect width="{WIDTH}" height="{height}" rx="6" class="back"/>',
         text(20, 34, head, "ink title"), text(20, 56, sub, "dim"),
         *(part for panel in panels for part in panel.axes() + panel.ways()),
         *parts, "</svg>", ""])


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__.split("\n\n")[1].strip(), file=sys.stderr)
        return 2
    with open(arguments[0], encoding="utf-8") as file:
        sys.stdout.write(draw(json.load(file)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
