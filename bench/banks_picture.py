#!/usr/bin/env python3
"""banks_picture.py - what banks cost, from the JSON files of a run, as SVG.

    banks_picture.py OUTDIR > banks.svg

Three panels: the memory of several lengths over that of the largest
(banks.json), how long it takes to give the device a microbatch's sequences (the
same), and the instructions of a pass for one bank and for many
(banks_select.json).  A fourth has the steps of PyTorch (banks_torch.json),
where that was measured.  The files alone decide what is drawn.

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import json
import os
import sys

import picture
from picture import text

LEFT, TOP, BAR, GAP = 20, 92, 18, 30  # pixels
NAMES, PLOT, NUMBER = 250, 560, 110  # a bar's name, its axis, its number

MOST = {"memory": 1.05, "packed": 5.0, "select": 450, "torch": None}


def read(directory: str, name: str) -> dict | None:
    path = os.path.join(directory, name)
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def memory_bars(banks: dict) -> list[tuple[str, str, float, str]]:
    """The name, class, length and number of each bar."""
    memory = banks["memory"]
    n, alone = memory["lengths"], memory["largest_alone"]
    bars = [("the largest length alone", "peer", 1.0),
            (f"{n} lengths, the largest first", "layer", memory["ratio"]),
            (f"{n} lengths, the smallest first", "layer",
             memory["ratio_smallest_first"])]
    if "apart" in memory:
        bars.append((f"{n} lengths, each on its own", "other",
                     memory["apart"] / alone))
    return [(*bar, f"{bar[2]:.2f}") for bar in bars]


def packed_bars(banks: dict) -> list[tuple[str, str, float, str]]:
    bars = []
    for case in banks["packed"]:
        if case["launches"] == 1:
            us = max(case[key]["median"]
                     for key in ("host_ns", "device_ns")) / 1000
            plural = "" if case["sequences"] == 1 else "s"
            bars.append((f"{case['sequences']} sequence{plural}", "layer", us,
                         f"{us:.2f} us"))
    return bars


def select_bars(select: dict) -> list[tuple[str, str, float, str]]:
    """One bar for each number of banks."""
    counted = {case["captured_passes"]: case["instructions"]
               for case in select["cases"]}
    return [(f"{n:,} bank{'' if n == 1 else 's'}", "layer", counted[n],
             f"{counted[n]}") for n in sorted(counted)]


def torch_bars(result: dict) -> list[tuple[str, str, float, str]]:
    kinds = {"banks": "layer", "one shape": "chunk", "eager": "peer"}
    return [(f"{model}, {row['name']}", kinds.get(row["name"], "other"),
             row["step_ms"]["median"], f"{row['step_ms']['median']:.2f} ms")
            for model, rows in result["models"].items() for row in rows
            if "step_ms" in row]


def panels(directory: str) -> list[tuple[str, str, list]]:
    """The key, the heading and the bars of each."""
    banks = read(directory, "banks.json")
    if banks is None:
        raise FileNotFoundError(f"{directory} has no banks.json; make it with "
                                "bench/banks --json")
    found = [("memory", "Memory of the library, over the largest length "
              "alone", memory_bars(banks)),
             ("packed", "Giving the device a microbatch's sequences, by one "
              "launch", packed_bars(banks))]
    select = read(directory, "banks_select.json")
    if select is not None:
        found.append(("select", "Instructions of a replayed pass, the "
                      "driver's left out", select_bars(select)))
    steps = read(directory, "banks_torch.json")
    if steps is not None:
        found.append(("torch", f"PyTorch {steps['torch']}, {steps['steps']} "
                      "steps of lengths of text", torch_bars(steps)))
    return found


def panel(key: str, heading: str, bars: list, top: float) -> list[str]:
    most = MOST[key]
    scale = PLOT / max([bar[2] for bar in bars] + [most or 0])
    left, bottom = LEFT + NAMES, top + 12 + len(bars) * BAR
    parts = [text(LEFT, top, heading, "ink head")]
    for i, (name, kind, length, number) in enumerate(bars):
        y = top + 12 + i * BAR
        width = max(length * scale, 1)
        parts += [text(LEFT, y + BAR - 5, name, "dim"),
                  f'<rect x="{left}" y="{y + 2:g}" width="{width:.1f}" '
                  f'height="{BAR - 5}" class="{kind}"/>',
                  text(left + PLOT + NUMBER, y + BAR - 5, number,
                       "ink end" if kind == "layer" else "dim end")]
    if most is not None:
        x = round(left + most * scale, 1)
        parts += [picture.line(x, top + 8, bottom, "floor"),
                  text(x, top + 4, f"at most {most:g}", "dim middle")]
    return parts


def title(drawn: list) -> str:
    memory = dict((key, bars) for key, _heading, bars in drawn)["memory"]
    return (f"{memory[1][0].split(',')[0]} take {memory[1][3]} times the "
            "memory of the largest")


def draw(directory: str) -> str:
    drawn = panels(directory)
    banks = read(directory, "banks.json")
    parts, top = [], TOP
    for key, heading, bars in drawn:
        parts += panel(key, heading, bars, top)
        top += 12 + len(bars) * BAR + GAP
    sub = (f"{banks['device']}, library {banks['library']}. Medians; the line "
           "is what was predicted at most.")
    return picture.page(title(drawn), sub, parts, top - 10)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__.split("\n\n")[1].strip(), file=sys.stderr)
        return 2
    try:
        sys.stdout.write(draw(arguments[0]))
    except FileNotFoundError as error:
        print(f"banks_picture.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
