#!/usr/bin/env python3
"""timeline.py - one step of a pipeline, of the traces of its ranks.

    gh-engine --pp 2 --trace t.json ...
    timeline.py OUT.json t.json t.rank1.json ... [--step N]

OUT.json has the lanes of all files, a process for each, for Perfetto: of the
Nth step that graphs ran, counted from 0; by default the last one.

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import argparse
import json
import sys


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


def main(arguments: list) -> int:
    parser = argparse.ArgumentParser(
        prog="timeline.py", description="One step of a pipeline.")
    parser.add_argument("out")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--step", type=int, default=-1)
    o = parser.parse_args(arguments)
    ranks = []
    for file in o.files:
        with open(file, encoding="utf-8") as of_rank:
            events = json.load(of_rank)
        try:
            ranks.append(step_of(events, o.step))
        except IndexError:
            print(f"timeline.py: {file} has {len(steps_of(events))} steps "
                  f"with graphs, and no step {o.step}: trace a run with "
                  "graphs", file=sys.stderr)
            return 2
    begin = min(e["ts"] for events in ranks for e in events if "ts" in e)
    kept = []
    for rank, events in enumerate(ranks):
        for event in events:
            if event["ph"] == "M" and event["name"] == "process_name":
                event["args"]["name"] = f"rank {rank}"
            if "ts" in event:
                event["ts"] = round(event["ts"] - begin, 3)
            kept.append({**event, "pid": rank})
    with open(o.out, "w", encoding="utf-8") as out:
        json.dump(kept, out, separators=(",", ":"))
        out.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
