#!/usr/bin/env python3
"""brief.py - the tables of bench/README.md, of the JSON files of run.py.

    brief.py OUTDIR

A line for each row and a column for each case; then, for each target, what
has come of it in all cases.

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import sys

import report
from cases import ROWS, WORDS


def heads(results: list[dict]) -> list[str]:
    return [" ".join(filter(None, (
        r["case"].get("kind"), r["case"].get("fp8") and "FP8",
        "h{hidden} s{sequence} m{microbatches}".format(**r["case"]))))
        for r in results]


def step(name: str, row: dict, rows: dict) -> str:
    """Milliseconds; of a row with the floor's model, how often the floor."""
    number = report.number_of(row, "step_ms")
    floor = rows.get("torch/step", {})
    if not name.startswith("torch/") or "summary" not in floor:
        return f"{number:.2f}"
    return f"{number:.2f} ({number / report.number_of(floor, 'step_ms'):.3f})"


def host(_name: str, row: dict, _rows: dict) -> str:
    number = report.number_of(row, "host_layer_us")
    return "" if number is None else f"{number:.0f}"


def capture(name: str, row: dict, _rows: dict) -> str:
    if name.endswith("/eager"):
        return ""  # there is none; its steps differ by more
    return f"{report.number_of(row, 'capture_ms'):.0f}"


def first(name: str, row: dict, rows: dict) -> str:
    """In steps of eager."""
    number = report.number_of(row, "first_replayed_ms")
    eager = rows.get(name.split("/")[0] + "/eager", {})
    if number is None or "summary" not in eager:
        return ""
    return f"{number / report.number_of(eager, 'step_ms'):.1f}"


def memory(_name: str, row: dict, _rows: dict) -> str:
    return report.gib(report.number_of(row, "memory"))


TABLES = (("step, ms (over the floor)", step),
          ("host time of a layer, us", host),
          ("capture, ms", capture),
          ("time to the first replayed step, in eager steps", first),
          ("peak memory of the device, GiB", memory))


def table(what: str, cell, results: list[dict]) -> str:
    body = []
    for name in ROWS:
        if all(name not in result["rows"] for result in results):
            continue
        cells = [cell(name, rows[name], rows)
                 if "summary" in rows.get(name, {}) else None
                 for rows in (result["rows"] for result in results)]
        known = [text for text in cells if text is not None]
        if known and not any(known):
            continue  # it has nothing of the kind
        body.append([WORDS[name], *("not measured" if text is None else text
                                    for text in cells)])
    return report.markdown([what, *heads(results)], body) if body else ""


def bits(results: list[dict]) -> str:
    """Which rows have other losses than eager, and in which cases."""
    measured: dict = {}
    unequal: dict = {}
    for head, result in zip(heads(results), results):
        for name, row in result["rows"].items():
            if "summary" not in row:
                continue
            measured.setdefault(WORDS[name], []).append(head)
            losses = row["summary"].get("losses")
            if losses and not losses["equal"]:
                unequal.setdefault(WORDS[name], []).append(head)
    but = [words if where == measured[words]
           else f"{words} ({', '.join(where)})"
           for words, where in unequal.items()]
    return ("Losses are eager's bit for bit in every row"
            + (f" but: {'; '.join(but)}" if but else "") + ".\n")


def ratio_of(judged: dict) -> str:
    """A miss is not rounded to the target."""
    ratio, most = judged["ratio"], judged["most"]
    digits = 3
    while ratio > most and float(f"{ratio:.{digits}f}") <= most:
        digits += 1
    return f"{ratio:.{digits}f}"


def outcome(results: list[dict]) -> str:
    """Each target over all cases."""
    ratios: dict = {}
    for result in results:
        for judged in report.targets(result):
            ratios.setdefault((judged["target"], judged["most"]),
                              []).append(judged)
    body = []
    for (what, most), all_ in ratios.items():
        there = [ratio_of(one) for one in all_ if "ratio" in one]
        met = sum(one["said"].startswith("met") for one in all_)
        body.append([what, f"{most:g}",
                     " ".join(there),
                     f"{met} of {len(all_)}"])
    return report.markdown(
        ["target", "at most", "ratios, case by case", "met"], body)


def main(arguments: list[str]) -> int:
    results = report.read(report.folder(
        arguments, "brief.py", description="the tables of bench/README.md"))
    for result in results:
        report.summarize(result)
    for what, cell in TABLES:
        text = table(what, cell, results)
        if text:
            print(text)
    found = [pair for result in results for pair in report.pairs(result)]
    if found:
        print(report.table_of_pairs(found))
    print(bits(results))
    print(outcome(results), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
