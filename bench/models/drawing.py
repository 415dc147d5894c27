"""One picture of what models.py has measured, as SVG.

Each model has bars: its step compiled and with graphs, over the eager step.
The files alone decide what is drawn, so the same files give the same bytes.

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from models import ratio, replayed  # noqa: E402
from picture import STYLE, escaped, line, text  # noqa: E402

# Pixels.
LEFT, TOP, BAR, GAP = 130, 92, 12, 10
COLUMN, PLOT, SECONDS = 480, 250, 90
MOST = 1.2  # where the axis ends
BARS = (("compile", "other", "torch.compile"),
        ("reduce-overhead", "peer", "torch.compile, reduce-overhead"),
        ("layer", "layer", "graphhooks, a graph per layer"),
        ("chunk", "chunk", "graphhooks, one for all layers"))


def _x(left: float, value: float) -> float:
    return round(left + PLOT * min(value, MOST) / MOST, 1)


def _bar(model: dict, row: str, kind: str, left: float, top: float) -> list:
    found = model["rows"].get(row)
    if found is None:
        return []
    value = ratio(model, row)
    if value is None:
        return [text(left + 4, top + BAR - 2, "failed", "dim")]
    x = _x(left, value)
    label = f"{value:.2f}"
    if "calls" in found and replayed(found) < 0.95:
        label += f", {100 * replayed(found):.0f} % replayed"
    if row in ("layer", "chunk") and not found.get("equal", True):
        label += ", other bits"
    return [f'<rect x="{left:g}" y="{top + 1:g}" width="{x - left:.1f}" '
            f'height="{BAR - 2}" class="{kind}"/>',
            text(x + 5, top + BAR - 2, label,
                 "ink" if kind in ("layer", "chunk") else "dim")]


def _seconds(model: dict, row: str) -> str:
    found = model["rows"].get(row, {}).get("ready_s")
    return "" if found is None else f"{found:.1f} s"


def picture(document: dict) -> str:
    models = {name: model for name, model in document["models"].items()
              if model["rows"].get("eager", {}).get("step_ms")}
    bars = [bar for bar in BARS if any(
        bar[0] in model["rows"] for model in models.values())]
    high = len(bars) * BAR + GAP
    rows = -(-len(models) // 2)
    bottom = TOP + rows * high
    width = 20 + 2 * COLUMN
    where = sorted({f"{model['device']}, torch {model['torch']}"
                    for model in models.values() if "device" in model})
    head = f"Training steps of {len(models)} models, over eager"
    parts = [text(20, 30, head, "ink title"),
             text(20, 50, "Less is better. Right: seconds until steps are at "
                  "their speed, compiled (reduce-overhead) and with "
                  f"graphhooks. {'; '.join(where)}", "dim")]
    x = 20.0
    for _row, kind, words in bars:
        parts += [f'<rect x="{x:g}" y="62" width="12" height="10" '
                  f'class="{kind}"/>', text(x + 17, 71, words, "dim")]
        x += 34 + 6.4 * len(words)
    for column in range(2):
        left = column * COLUMN + LEFT
        for value in (0.5, 1.0):
            parts += [line(_x(left, value), TOP - 4, bottom - GAP,
                           "floor" if value == 1 else "grid"),
                      text(_x(left, value), TOP - 8, f"{value:.1f}",
                           "dim middle")]
    for i, (name, model) in enumerate(models.items()):
        left = i // rows * COLUMN + LEFT
        top = TOP + i % rows * high
        eager = model["rows"]["eager"]["step_ms"]
        parts += [text(left - 110, top + BAR, name),
                  text(left - 110, top + 2 * BAR + 2, f"{eager:.1f} ms",
                       "dim")]
        for j, (row, kind, _words) in enumerate(bars):
            parts += _bar(model, row, kind, left, top + j * BAR)
            if row in ("reduce-overhead", "chunk"):
                parts.append(text(left + PLOT + SECONDS, top + (j + 1) * BAR
                                  - 2, _seconds(model, row), "dim end"))
    height = bottom + 6
    return "\n".join(
        [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
         f'height="{height}" viewBox="0 0 {width} {height}" role="img">',
         f"<title>{escaped(head)}</title>", f"<style>{STYLE}</style>",
         f'<rect width="{width}" height="{height}" rx="6" class="back"/>',
         *parts, "</svg>", ""])
