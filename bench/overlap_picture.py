#!/usr/bin/env python3
"""overlap_picture.py - the JSON file of bench/overlap as a picture, as SVG.

    overlap_picture.py overlap.json > overlap.svg

Above, for each shape, the share of the communication that nothing hides.
Below, when each node of one run was on the device.  Of one rank both show the
fixed order and the one that is found; of several ranks, with the order that is
found, exchanges by copies and by NCCL.  The file alone decides what is drawn.

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import sys

import picture
from picture import line, text

LEFT, TOP, PLOT, BAR, ROW = 250, 106, 560, 13, 40  # pixels
LANE, LANES_LEFT, LANES = 22, 90, 840
LAYERS = 2    # of which nodes are shown


class Axis:
    def __init__(self, data: dict) -> None:
        several = data.get("ranks", 1) > 1
        self.most = 0.6 if several else 0.35
        self.tick = 0.1 if several else 0.05
        self.target = 0.1 if several else 0.05

    def x(self, share: float) -> float:
        return round(LEFT + PLOT * min(share, self.most) / self.most, 1)


STYLE = picture.STYLE + """
.before { fill: #0969da } .experts { fill: #54aeff } .after { fill: #54aeff }
.wgrad { fill: #c5cbd2 } .comm { fill: #bf8700 }
.box { stroke: #ffffff; stroke-width: 0.6 }
.small { font-size: 10px }
"""


def mode_of(shape: dict, way: str) -> dict:
    return next(mode for mode in shape["modes"]
                if mode["way"] == way and mode["graphs"])


class Side:
    """A shape, in one of the two ways that are compared."""

    def __init__(self, shape: dict, way: str, kind: str, words: str) -> None:
        self.kind, self.words = kind, words
        self.exposed = mode_of(shape, way)["exposed"]
        self.spans = shape[f"timeline_{way}"]


class Pair:
    """A shape in both ways, the better one last."""

    def __init__(self, shape: dict, sides: list[Side]) -> None:
        self.name = shape["name"]
        self.ratio = shape["comm_over_compute"]
        self.sides = sides


def pairs_of(data: dict) -> list[Pair]:
    by = {}
    for shape in data["shapes"]:
        by.setdefault((shape["name"], shape["aim"]), {})[
            shape.get("by", "host")] = shape
    pairs = []
    for of in by.values():
        if "nccl" in of:
            pairs.append(Pair(of["copy"], [
                Side(of["nccl"], "auto", "peer", "NCCL"),
                Side(of["copy"], "auto", "layer", "copies")]))
        else:
            (shape,) = of.values()
            pairs.append(Pair(shape, [
                Side(shape, "fixed", "peer", "fixed order"),
                Side(shape, "auto", "layer",
                     "the order that is found (auto)")]))
    return pairs


def percent(share: float) -> str:
    return f"{100 * max(share, 0):.1f} %"


def title(pairs: list[Pair]) -> str:
    hidden = [pair for pair in pairs if pair.ratio <= 1] or pairs
    other, ours = (max(pair.sides[i].exposed for pair in hidden)
                   for i in range(2))
    words = pairs[0].sides
    if words[0].words == "NCCL":
        return (f"Exposed with exchanges by copies: {percent(ours)} at most, "
                f"by NCCL {percent(other)}")
    return (f"Exposed, where compute is longer: {percent(ours)} at most, in "
            f"the fixed order {percent(other)}")


def bars(pairs: list[Pair], axis: Axis) -> list[str]:
    bottom = TOP + ROW * len(pairs)
    parts = []
    for i in range(round(axis.most / axis.tick) + 1):
        share = i * axis.tick
        kind = "floor" if abs(share - axis.target) < 1e-9 else "grid"
        parts += [line(axis.x(share), TOP - 8, bottom, kind),
                  text(axis.x(share), TOP - 14, f"{100 * share:.0f} %",
                       "dim middle")]
    for i, pair in enumerate(pairs):
        top = TOP + ROW * i
        parts += [text(LEFT - 10, top + 13, pair.name, "ink end"),
                  text(LEFT - 10, top + 27, "communication "
                       f"{pair.ratio:.2f} of compute", "dim end")]
        for k, side in enumerate(pair.sides):
            x, y = axis.x(side.exposed), top + BAR * k
            label = f"{100 * side.exposed:.1f} %" + (
                f"  {side.words}" if i == 0 else "")
            parts += [f'<rect x="{LEFT}" y="{y + 3:g}" '
                      f'width="{max(x - LEFT, 1):.1f}" '
                      f'height="{BAR - 2}" class="{side.kind}"/>',
                      text(max(x, LEFT + 1) + 5, y + BAR, label,
                           "ink" if side.kind == "layer" else "dim")]
    return parts


def shown(pair: Pair) -> float:
    """Until when nodes are drawn: all of so many layers, in both ways."""
    return max(end for side in pair.sides
               for direction, _, layer, _, end in side.spans
               if direction == "forward" and layer < LAYERS)


def lanes(pair: Pair, top: float) -> list[str]:
    scale = LANES / shown(pair)
    parts = []
    for i, side in enumerate(pair.sides):
        y0 = top + i * (2 * LANE + 26)
        parts += [text(20, y0 - 5, side.words, "ink head"),
                  text(LANES_LEFT - 8, y0 + 15, "compute", "dim end"),
                  text(LANES_LEFT - 8, y0 + LANE + 15, "exchange", "dim end")]
        for direction, stage, _, begin, end in side.spans:
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
    pairs = pairs_of(data)
    lane_top = TOP + ROW * len(pairs) + 58
    height = lane_top + 2 * (2 * LANE + 26) + 12
    pair = min(pairs, key=lambda one: abs(one.ratio - 1))
    on = (f"{data['ranks']} ranks, a {data['device']} each"
          if data.get("devices", 1) > 1 else data["device"])
    sub = (f"Exposed: what a run of both chunks takes longer than its compute "
           f"alone, over its communication alone. {on}.")
    below = (f"Nodes of {LAYERS} pairs of layers, communication "
             f"{pair.ratio:.2f} of compute, "
             f"{shown(pair) / 1e6:.1f} ms: dark before the dispatch, light "
             "experts, grey weight gradients")
    return picture.page(title(pairs), sub,
                        [*bars(pairs, Axis(data)),
                         text(20, lane_top - 26, below, "dim"),
                         *lanes(pair, lane_top)], height, STYLE)


if __name__ == "__main__":
    sys.exit(picture.print_of_file(draw, __doc__, sys.argv[1:]))
