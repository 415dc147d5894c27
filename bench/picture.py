#!/usr/bin/env python3
"""picture.py - one picture of the JSON files of peers/run.py, as SVG.

    picture.py OUTDIR > step.svg

A bar for each row, from the floor to its step: how much longer the step takes
than the same step as one graph; for rows of Transformer Engine's layers, than
with the graphs that Megatron makes of them.  The files alone decide what is drawn, also
the title, so the same files give the same bytes.

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "peers"))
import report  # noqa: E402
from cases import fits  # noqa: E402

# Pixels.
LEFT, TOP, BAR, GAP = 168, 138, 13, 14
WIDTH, PLOT, NUMBER = 960, 300, 64  # of the picture, a panel, its last column
BETWEEN = 36                        # panels

# What the axis shows, in steps of the floor; eager is beyond it.
AXIS = (0.9, 1.45, 0.1)
TE_AXIS = (0.4, 1.8, 0.2)

PANELS = (
    ("PyTorch model", "torch/step", "the whole step as one torch.cuda.graph",
     (("torch/graphed", "peer", "make_graphed_callables"),
      ("torch/compile", "other", "torch.compile, reduce-overhead"),
      ("torch/layer", "layer", "graphhooks, a graph per layer"),
      ("torch/chunk", "chunk", "graphhooks, one for all layers"))),
    ("Megatron-Core model", "megatron/full_iteration",
     "Megatron's full_iteration graph",
     (("megatron/local", "peer", "local graphs"),
      ("megatron/layer", "layer", "graphhooks, a graph per layer"),
      ("megatron/chunk", "chunk", "graphhooks, one for all layers"))),
)

TE_PANELS = (
    ("Megatron-Core, Transformer Engine's layers", "te/te",
     "Megatron's transformer_engine graphs",
     (("te/full_iteration", "other", "full_iteration graph"),
      ("te/scope", "layer", "graphhooks, the same scope"),
      ("te/chunk", "chunk", "graphhooks, one for all layers"))),
)

STYLE = """
.back { fill: #ffffff } .ink { fill: #1f2328 } .dim { fill: #59636e }
.grid { stroke: #d9dee3 } .floor { stroke: #1f2328 }
.peer { fill: #8c959f } .other { fill: #c5cbd2 }
.layer { fill: #0969da } .chunk { fill: #54aeff }
@media (prefers-color-scheme: dark) {
.back { fill: #0d1117 } .ink { fill: #f0f6fc } .dim { fill: #9198a1 }
.grid { stroke: #30363d } .floor { stroke: #f0f6fc }
.peer { fill: #848d97 } .other { fill: #4d555e }
.layer { fill: #1f6feb } .chunk { fill: #79c0ff }
}
text { font: 12px system-ui, "Segoe UI", Helvetica, Arial, sans-serif }
.title { font-size: 19px; font-weight: 600 } .head { font-weight: 600 }
.end { text-anchor: end } .middle { text-anchor: middle }
"""


def over(result: dict, row: str, floor: str) -> float:
    """The step of a row over that of the panel's floor."""
    return (report.number_of(result["rows"][row], "step_ms")
            / report.number_of(result["rows"][floor], "step_ms"))


def escaped(words: str) -> str:
    return words.replace("&", "&amp;").replace("<", "&lt;")


def text(x: float, y: float, words: str, classes: str = "ink") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{classes}">{escaped(words)}</text>'


def line(x: float, top: float, bottom: float, classes: str) -> str:
    return (f'<line x1="{x:g}" x2="{x:g}" y1="{top:g}" y2="{bottom:g}" '
            f'class="{classes}"/>')


def rule(left: float, right: float, y: float, classes: str) -> str:
    return (f'<line x1="{left:g}" x2="{right:g}" y1="{y:g}" y2="{y:g}" '
            f'class="{classes}"/>')


def way(points: list[tuple[float, float]], kind: str,
        dots: bool = True) -> list[str]:
    """A line through points, and a dot at each."""
    path = " ".join(f"{x:g},{y:g}" for x, y in points)
    return [f'<polyline points="{path}" class="way {kind}"/>',
            *(f'<circle cx="{x:g}" cy="{y:g}" r="3" class="{kind}"/>'
              for x, y in points if dots)]


def mark(x: float, y: float, kind: str, words: str) -> list[str]:
    """One entry of a legend."""
    return [f'<rect x="{x:g}" y="{y - 9:g}" width="14" height="9" '
            f'class="{kind}"/>', text(x + 20, y, words)]


def legend(entries: list[tuple[str, str]], y: float) -> list[str]:
    """Entries of kinds and words, beside each other."""
    parts, at = [], 20
    for kind, words in entries:
        parts += mark(at, y, kind, words)
        at += 40 + 7 * len(words)
    return parts


def page(head: str, sub: str, parts: list[str], height: float,
         style: str = STYLE, width: int = WIDTH) -> str:
    """A picture, with its title and the line below it."""
    return "\n".join(
        [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
         f'height="{height:g}" viewBox="0 0 {width} {height:g}" role="img">',
         f"<title>{escaped(head)}</title>", f"<style>{style}</style>",
         f'<rect width="{width}" height="{height:g}" rx="6" class="back"/>',
         text(20, 34, head, "ink title"), text(20, 56, sub, "dim"),
         *parts, "</svg>", ""])


def print_of_file(draw, usage: str, arguments: list[str]) -> int:
    """The main of a program that draws what one JSON file has."""
    if len(arguments) != 1:
        print(usage.split("\n\n")[1].strip(), file=sys.stderr)
        return 2
    with open(arguments[0], encoding="utf-8") as file:
        sys.stdout.write(draw(json.load(file)))
    return 0


class Panel:
    """One model, its floor, and the rows that are held against it."""

    def __init__(self, left: float, scale, name, floor, floor_words, rows):
        self.left, self.name, self.floor = left, name, floor
        self.floor_words, self.rows = floor_words, rows
        self.least, self.most, self.tick = scale

    def x(self, ratio: float) -> float:
        return round(self.left + PLOT * (ratio - self.least)
                     / (self.most - self.least), 1)

    def axis(self, bottom: float) -> list[str]:
        """The grid, and what its numbers mean."""
        parts = [text(self.left, TOP - 50, self.name, "ink head"),
                 text(self.left, TOP - 34, f"1.0 = {self.floor_words}", "dim"),
                 text(self.left + PLOT + NUMBER, TOP - 14, "eager",
                      "dim end")]
        ticks = int(round((self.most - self.least) / self.tick))
        for i in range(ticks + 1):
            ratio = self.least + i * self.tick
            if ratio > self.most + 1e-9:
                continue
            kind = "floor" if abs(ratio - 1) < 1e-9 else "grid"
            parts += [line(self.x(ratio), TOP - 8, bottom, kind),
                      text(self.x(ratio), TOP - 14, f"{ratio:.1f}",
                           "dim middle")]
        return parts

    def case(self, result: dict, top: float, named: bool) -> list[str]:
        """The bars of a case, each with its number; the first ones also with
        their names."""
        parts = []
        rows = [row for row in self.rows if row[0] in result["rows"]]
        for i, (row, kind, words) in enumerate(rows):
            ratio = over(result, row, self.floor)
            y = top + i * BAR
            ends = sorted((self.x(1), self.x(ratio)))
            parts.append(f'<rect x="{ends[0]:g}" y="{y + 1:g}" '
                         f'width="{max(ends[1] - ends[0], 1):.1f}" '
                         f'height="{BAR - 2}" class="{kind}"/>')
            label = f"{ratio:.3f}" + (f"  {words}" if named else "")
            parts.append(text(ends[1] + 5, y + BAR - 2.5, label,
                              "ink" if kind in ("layer", "chunk") else "dim"))
        eager = over(result, self.floor.split("/")[0] + "/eager", self.floor)
        parts.append(text(self.left + PLOT + NUMBER, top + BAR * 2,
                          f"{eager:.2f}", "dim end"))
        return parts


def of_te(results: list[dict]) -> bool:
    return any("te/te" in result["rows"] for result in results)


def panels_of(results: list[dict]) -> tuple:
    return TE_PANELS if of_te(results) else PANELS


def panels(results: list[dict]) -> list[Panel]:
    step = PLOT + NUMBER + BETWEEN
    axis = TE_AXIS if of_te(results) else AXIS
    return [Panel(LEFT + i * step, axis, *panel)
            for i, panel in enumerate(panels_of(results))]


def worst(results: list[dict], ending: str) -> float:
    """The most that one of our rows takes over its floor, in percent."""
    return 100 * max(over(result, row, floor) - 1 for result in results
                     for _name, floor, _words, rows in panels_of(results)
                     for row, *_ in rows if row.endswith(ending)
                     and row in result["rows"])


def title(results: list[dict]) -> str:
    if of_te(results):
        ratios = [over(result, "te/scope", "te/te") for result in results]
        return (f"With graphs of the same scope a training step takes "
                f"{min(ratios):.2f} to {max(ratios):.2f} of Megatron's")
    return (f"With a graph per layer, a training step takes at most "
            f"{worst(results, '/layer'):.1f} % longer than as one graph")


def subtitle(results: list[dict]) -> str:
    if of_te(results):
        return (f"Bars: step over that with Megatron's transformer_engine "
                f"graphs, a ratio of medians; less is better. Eager is off "
                f"the axis, and a number. {results[0]['machine']['device']}.")
    return (f"With one graph for all layers: at most "
            f"{worst(results, '/chunk'):.1f} %. Bars: step over the floor, a "
            f"ratio of medians; less is better. Eager is off the axis, and a "
            f"number. {results[0]['machine']['device']}.")


def words_of_case(case: dict) -> tuple[str, str]:
    plural = "" if case["microbatches"] == 1 else "es"
    shape = f"hidden {case['hidden']}, seq. {case['sequence']}"
    count = f"{case['microbatches']} microbatch{plural}"
    if case.get("kind"):
        kind = case["kind"] + (", FP8" if case.get("fp8") else "")
        return kind, "h{hidden} s{sequence} m{microbatches}".format(**case)
    return shape, count


def picture(results: list[dict]) -> str:
    high = max(len(rows) for *_, rows in panels_of(results)) * BAR + GAP
    bottom = TOP + len(results) * high
    parts = []
    drawn = panels(results)
    for panel in drawn:
        parts += panel.axis(bottom - GAP)
    for i, result in enumerate(results):
        top = TOP + i * high
        shape, count = words_of_case(result["case"])
        parts += [text(20, top + 2 * BAR - 4, shape),
                  text(20, top + 3 * BAR - 2, count, "dim")]
        for panel in drawn:
            parts += panel.case(result, top, i == 0)
    return page(title(results), subtitle(results), parts, bottom + 6)


def missing(results: list[dict]) -> list[str]:
    """The rows that the picture needs and some case does not have."""
    needed = [row for _name, floor, _words, rows in panels_of(results)
              for row in (floor, floor.split("/")[0] + "/eager",
                          *(row for row, *_ in rows))]
    return sorted({row for row in needed for result in results
                   if "summary" not in result["rows"].get(row, {})
                   and fits(row, result["case"].get("kind", ""))})


def main(arguments: list[str]) -> int:
    directory = report.folder(arguments, "picture.py",
                              description="one picture, as SVG")
    results = report.read(directory)
    for result in results:
        report.summarize(result)
    if missing(results):
        print(f"picture.py: {directory} lacks a measurement of "
              f"{', '.join(missing(results))}; add it with run.py --merge "
              "--rows", file=sys.stderr)
        return 2
    sys.stdout.write(picture(results))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
