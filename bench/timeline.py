#!/usr/bin/env python3
"""timeline.py - one step of several ranks, of the traces of each.

    gh-engine --pp 2 --trace t.json ...
    timeline.py OUT.json t.json t.rank1.json ... [--step N]

    torchrun ... megatron_ranks.py --trace DIR ...
    timeline.py OUT.svg DIR/*.json

OUT.json has the lanes of all files, a process for each, for Perfetto: of the
Nth step that graphs ran, counted from 0; by default the last one.  OUT.svg is
a picture of the rows and modes of all files, with the same time scale: of each
rank the share of the time in which kernels compute, and in which they
communicate.  The files alone decide what is drawn.

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import argparse
import json
import re
import sys


# ---- of gh-engine, for Perfetto ---------------------------------------------


def steps_of(events: list) -> list:
    """When each step begins: microbatch 0 goes into the first layers of the
    rank."""
    passes = [e for e in events if e.get("cat") == "replay"
              and e["args"]["direction"] == "forward"
              and e["args"]["microbatch"] == 0]
    first = min((e["args"]["segment"] for e in passes), default=0)
    return sorted(e["ts"] for e in passes if e["args"]["segment"] == first)


def step_of(events: list, number: int) -> list:
    """Its events, and what says the names of lanes; IndexError."""
    begins = steps_of(events)
    begin = begins[number]
    end = min((t for t in begins if t > begin), default=float("inf"))
    return [e for e in events if e["ph"] == "M" or begin <= e["ts"] < end]


def perfetto(files: list, number: int) -> str:
    ranks = []
    for file, events in files:
        try:
            ranks.append(step_of(events, number))
        except IndexError:
            raise ValueError(
                f"{file} has {len(steps_of(events))} steps with graphs, and "
                f"no step {number}: trace a run with graphs") from None
    begin = min(e["ts"] for events in ranks for e in events if "ts" in e)
    kept = []
    for rank, events in enumerate(ranks):
        for event in events:
            if event["ph"] == "M" and event["name"] == "process_name":
                event["args"]["name"] = f"rank {rank}"
            if "ts" in event:
                event["ts"] = round(event["ts"] - begin, 3)
            kept.append({**event, "pid": rank})
    return json.dumps(kept, separators=(",", ":")) + "\n"


# ---- of Megatron's ranks, as a picture --------------------------------------


LEFT, TOP, PLOT, LANE, COLUMN = 150, 112, 780, 16, 1.5  # pixels
KINDS = (("compute", "layer"), ("communication", "comm"))
MODES = {"off": "eager", "te": "Megatron's transformer_engine graphs",
         "scope": "graphhooks, the same scope",
         "layer": "graphhooks, a graph per layer",
         "chunk": "graphhooks, one for all layers"}
WORDS = {"auto": 'overlap="auto"', "fixed": 'overlap="fixed"',
         "exchange": 'exchange="auto"'}


def words_of(mode: str) -> str:
    name, _, scope = mode.partition(":")
    name, _, options = name.partition("@")
    words = ", ".join(WORDS.get(o, f'exchange="{o}"')
                      for o in options.split(",") if o)
    return (f"graphhooks, {scope}" if scope else MODES.get(name, name)) + (
        f", {words}" if words else "")


def columns(spans: list, begin: float, us: float) -> dict:
    """By number of a column of so many us, how much of it is taken."""
    found: dict = {}
    last = begin
    for start, end in sorted((start, end) for _, start, end in spans):
        start = max(start, last)
        while start < end:
            at = int((start - begin) / us)
            stop = min(end, begin + (at + 1) * us)
            if stop <= start:  # of a number that has been rounded
                break
            found[at] = found.get(at, 0) + (stop - start) / us
            start = stop
        last = max(last, end)
    return found


def lane(spans: list, begin: float, us: float, bottom: float,
         kind: str) -> str:
    """One path: a bar for each column, columns of one height together."""
    high = {at: round(min(share, 1) * LANE) or 1
            for at, share in columns(spans, begin, us).items()}
    path, at = [], 0
    while high:
        if at not in high:
            at += 1
            continue
        first, up = at, high[at]
        while high.get(at) == up:
            del high[at]
            at += 1
        path.append(f"M{LEFT + first * COLUMN:g} {bottom:g}v-{up}"
                    f"h{(at - first) * COLUMN:g}v{up}z")
    return f'<path d="{"".join(path)}" class="{kind}"/>'


def ticks(longest: float) -> list:
    """Round numbers of ms, some eight of them."""
    each = next(base * 10 ** power for power in range(-3, 6)
                for base in (1, 2, 5) if base * 10 ** power * 8e3 >= longest)
    return [i * each for i in range(int(longest / 1e3 / each) + 1)]


def panel(of: list, top: float, us: float) -> list:
    """A mode: its ranks, each with a lane for each kind."""
    from picture import rule, text

    exposed = "/".join(f"{one['shares']['exposed']:.1f}" for one in of)
    end = max(one["step"][1] for one in of)
    parts = [text(20, top + 12, words_of(of[0]["mode"])),
             text(LEFT + PLOT, top + 12, f"{end / 1e3:.1f} ms, exposed "
                  f"{exposed} %", "dim end")]
    for i, one in enumerate(of):
        for k, (name, kind) in enumerate(KINDS):
            bottom = top + 20 + (2 * i + k + 1) * (LANE + 3) + 5 * i
            label = f"rank {one['rank']}, {name}" if k == 0 else name
            parts += [text(LEFT - 8, bottom - 3, label, "dim end"),
                      rule(LEFT, LEFT + end / us * COLUMN, bottom, "grid"),
                      lane(one[name], 0, us, bottom, kind)]
    return parts


def height_of(of: list) -> float:
    return 20 + len(of) * (2 * (LANE + 3) + 5) + 14


def picture_of(files: list) -> str:
    import overlap_picture
    from picture import legend, line, page, text

    for file, one in files:
        if not isinstance(one, dict) or "shares" not in one:
            raise ValueError(f"{file} is no trace of megatron_ranks.py; a "
                             "picture is drawn of those of --trace")
    order = list(MODES)
    rows: dict = {}
    for _, one in files:
        rows.setdefault(one["row"], {}).setdefault(one["mode"], []).append(one)
    longest = max(one["step"][1] for _, one in files)
    us = longest * COLUMN / PLOT
    parts, top = [], TOP
    for row, modes in sorted(rows.items()):
        parts.append(text(20, top + 10, row, "ink head"))
        top += 14
        for mode in sorted(modes, key=lambda m: (
                order.index(re.split("[@:]", m)[0]), m)):
            of = sorted(modes[mode], key=lambda one: one["rank"])
            parts += panel(of, top, us)
            top += height_of(of)
        top += 10
    grid = []
    for ms in ticks(longest):
        x = round(LEFT + ms * 1e3 / us * COLUMN, 1)
        grid += [line(x, TOP - 14, top - 14, "grid"),
                 text(x, TOP - 18, f"{ms:g} ms", "dim middle")]
    ranks = {one["ranks"] for _, one in files}
    head = ("One training step of Megatron-Core on "
            f"{' and '.join(map(str, sorted(ranks)))} ranks")
    sub = ("Height: the share of the time in which kernels run. Exposed: of "
           "the step, communication runs and no compute does. "
           f"{files[0][1]['device']}.")
    return page(head, sub, [
        *legend([("layer", "compute"), ("comm", "communication, with its "
                                        "waiting for other ranks")], 80),
        *grid, *parts], top, overlap_picture.STYLE)


def read(file: str):
    try:
        with open(file, encoding="utf-8") as of_rank:
            return json.load(of_rank)
    except OSError as why:
        raise ValueError(f"{file} cannot be read ({why.strerror}): name the "
                         "traces of all ranks") from why
    except ValueError as why:
        raise ValueError(f"{file} is no trace: {why}; trace it anew") from why


def main(arguments: list) -> int:
    parser = argparse.ArgumentParser(
        prog="timeline.py", description="One step of several ranks.")
    parser.add_argument("out")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--step", type=int, default=-1)
    o = parser.parse_args(arguments)
    try:
        files = [(file, read(file)) for file in o.files]
        drawn = picture_of(files) if o.out.endswith(".svg") \
            else perfetto(files, o.step)
    except ValueError as why:
        print(f"timeline.py: {why}", file=sys.stderr)
        return 2
    with open(o.out, "w", encoding="utf-8") as out:
        out.write(drawn)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
