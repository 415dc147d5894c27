#!/usr/bin/env python3
"""overlap_picture.py - the JSON file of bench/overlap as a picture, as SVG.

    overlap_picture.py overlap.json > overlap.svg

Above, for each shape, the share of the communication that nothing hides: in
the fixed order and in the one that is found.  Below, when each node of one
run was on the device, in both orders.  The file alone decides what is drawn.

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import json
import sys

import picture
from picture import escaped, line, text

LEFT, TOP, WIDTH, PLOT, BAR, ROW = 250, 106, 960, 560, 13, 40  # pixels
LANE, LANES_LEFT, LANES = 22, 90, 840
MOST = 0.35   # of the axis
TICK = 0.05
TARGET = 0.05
LAYERS = 2    # of which nodes are shown

ORDERS = (("fixed", "peer", "fixed order"),
          ("auto", "layer", "the order that is found (auto)"))

STYLE = picture.STYLE + """
.before { fill: #0969da } .experts { fill: #54aeff } .after { fill: #54aeff }
.wgrad { fill: #c5cbd2 } .comm { fill: #bf8700 }
.box { stroke: #ffffff; stroke-width: 0.6 }
.small { font-size: 10px }
"""


def mode_of(shape: dict, way: str) -> dict:
    return next(mode for mode in shape["modes"]
                if mode["way"] == way and mode["graphs"])


def x(share: float) -> float:
    return round(LEFT + PLOT * min(share, MOST) / MOST, 1)


def percent(share: float) -> str:
    return f"{100 * max(share, 0):.1f} %"


def title(data: dict) -> str:
    hidden = [shape for shape in data["shapes"]
              if shape["comm_over_compute"] <= 1]
    worst = {way: max(mode_of(shape, way)["exposed"] for shape in hidden)
             for way, _, _ in ORDERS}
    return (f"Exposed, where compute is longer: {percent(worst['auto'])} at "
            f"most, in the fixed order {percent(worst['fixed'])}")


def bars(data: dict) -> list[str]:
    bottom = TOP + ROW * len(data["shapes"])
    parts = []
    for i in range(round(MOST / TICK) + 1):
        share = i * TICK
        kind = "floor" if abs(share - TARGET) < 1e-9 else "grid"
        parts += [line(x(share), TOP - 8, bottom, kind),
                  text(x(share), TOP - 14, f"{100 * share:.0f} %",
                       "dim middle")]
    for i, shape in enumerate(data["shapes"]):
        top = TOP + ROW * i
        parts += [text(LEFT - 10, top + 13, shape["name"], "ink end"),
                  text(LEFT - 10, top + 27, "communication "
                       f"{shape['comm_over_compute']:.2f} of compute",
                       "dim end")]
        for k, (way, kind, words) in enumerate(ORDERS):
            share = mode_of(shape, way)["exposed"]
            y = top + BAR * k
            label = f"{100 * share:.1f} %" + (f"  {words}" if i == 0 else "")
            parts += [f'<rect x="{LEFT}" y="{y + 3:g}" '
                      f'width="{max(x(share) - LEFT, 1):.1f}" '
                      f'height="{BAR - 2}" class="{kind}"/>',
                      text(max(x(share), LEFT + 1) + 5, y + BAR, label,
                           "ink" if way == "auto" else "dim")]
    return parts


def shown(shape: dict) -> float:
    """Until when nodes are drawn: all of so many layers, in both orders."""
    return max(end for way, _, _ in ORDERS
               for direction, _, layer, _, end in shape[f"timeline_{way}"]
               if direction == "forward" and layer < LAYERS)


def lanes(shape: dict, top: float) -> list[str]:
    scale = LANES / shown(shape)
    parts = []
    for i, (way, _, words) in enumerate(ORDERS):
        y0 = top + i * (2 * LANE + 26)
        parts += [text(20, y0 - 5, words, "ink head"),
                  text(LANES_LEFT - 8, y0 + 15, "compute", "dim end"),
                  text(LANES_LEFT - 8, y0 + LANE + 15, "exchange", "dim end")]
        for direction, stage, _, begin, end in shape[f"timeline_{way}"]:
            comm = stage in ("dispatch", "combine")
            left, right = begin * scale, min(end * scale, LANES)
            if left >= LANES or right - left < 0.5:
                continue
            kind = ("comm" if comm else
                    "wgrad" if direction == "wgrad" else stage)
            y = y0 + (LANE if comm else 0)
            parts.append(f'<rect x="{LANES_LEFT + left:.1f}" y="{y:g}" '
                         f'width="{right - left:.1f}" height="{LANE - 2}" '
                         f'class="{kind} box"/>')
            if right - left > 22:
                name = {"forward": "F", "backward": "B",
                        "wgrad": "W"}[direction]
                middle = LANES_LEFT + (left + right) / 2
                parts.append(text(middle, y + 14, name,
                                  "back middle small" if kind != "wgrad"
                                  else "middle small"))
    return parts


def draw(data: dict) -> str:
    head = title(data)
    lane_top = TOP + ROW * len(data["shapes"]) + 58
    height = lane_top + 2 * (2 * LANE + 26) + 12
    shape = min(data["shapes"],
                key=lambda one: abs(one["comm_over_compute"] - 1))
    sub = (f"Exposed: what a run of both chunks takes longer than its compute "
           f"alone, over its communication alone. {data['device']}.")
    below = (f"Nodes of {LAYERS} pairs of layers, communication "
             f"{shape['comm_over_compute']:.2f} of compute, "
             f"{shown(shape) / 1e6:.1f} ms: dark before the dispatch, light "
             "experts, grey weight gradients")
    return "\n".join(
        [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" '
         f'height="{height}" viewBox="0 0 {WIDTH} {height}" role="img">',
         f"<title>{escaped(head)}</title>", f"<style>{STYLE}</style>",
         f'<rect width="{WIDTH}" height="{height}" rx="6" class="back"/>',
         text(20, 34, head, "ink title"), text(20, 56, sub, "dim"),
         *bars(data), text(20, lane_top - 26, below, "dim"),
         *lanes(shape, lane_top), "</svg>", ""])


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__.split("\n\n")[1].strip(), file=sys.stderr)
        return 2
    with open(arguments[0], encoding="utf-8") as file:
        sys.stdout.write(draw(json.load(file)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
