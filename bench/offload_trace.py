#!/usr/bin/env python3
"""Says whether copies to the host ran beside graphs, from a trace.

    bench/offload_trace.py TRACE.json [--at-least N]

TRACE.json is what GRAPHHOOKS_TRACE wrote of a session that offloads.  Of each
copy to the host it looks for the graph that wrote the group, and for the next
graph on the same stream.  A copy is a witness when

  - it began before the graph that wrote its group had ended, and
  - the next graph ran beside it.

It prints how many there are, and what the clearest looked like.  It exits 0 when
there are N witnesses (1) or more, 1 when there are fewer, and 2 for a file that
is no such trace.

SPDX-License-Identifier: Apache-2.0
"""
import argparse
import bisect
import json
import sys


def spans(events, category):
    """The spans of the category, by when they began."""
    found = [e for e in events
             if e.get("ph") == "X" and e.get("cat") == category]
    return sorted(found, key=lambda e: e["ts"])


def end(span):
    return span["ts"] + span["dur"]


def writers(graphs):
    """For each session, layer and microbatch, the graphs that may write it."""
    table = {}
    for graph in graphs:
        args = graph["args"]
        if args["direction"] != "forward":
            continue
        for layer in range(args["first_layer"], args["last_layer"] + 1):
            key = (graph["pid"], graph["tid"] // 100, layer,
                   args["microbatch"])
            table.setdefault(key, []).append(graph)
    return table


def followers(graphs):
    """For each graph, by identity, the next on its stream."""
    last, table = {}, {}
    for graph in graphs:
        lane = (graph["pid"], graph["tid"])
        if lane in last:
            table[id(last[lane])] = graph
        last[lane] = graph
    return table


def look(events):
    """(copy, its graph, ns before the graph's end, ns beside the next)."""
    graphs = spans(events, "graph")
    by_group, after = writers(graphs), followers(graphs)
    rows = []
    for copy in spans(events, "out"):
        args = copy["args"]
        mine = by_group.get((copy["pid"], copy["tid"] // 100, args["layer"],
                             args["microbatch"]), [])
        at = bisect.bisect_right([g["ts"] for g in mine], copy["ts"])
        if at == 0:
            continue
        graph = mine[at - 1]
        ahead = end(graph) - copy["ts"]
        follower = after.get(id(graph))
        beside = 0.0 if follower is None else (
            min(end(copy), end(follower)) - max(copy["ts"], follower["ts"]))
        rows.append((copy, graph, ahead, beside))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("trace")
    parser.add_argument("--at-least", type=int, default=1, metavar="N")
    options = parser.parse_args()
    try:
        with open(options.trace, encoding="utf-8") as file:
            text = file.read().rstrip()
        events = json.loads(text if text.endswith("]") else text + "]")
        rows = look(events)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as why:
        print(f"{options.trace}: no trace of graphhooks: {why}",
              file=sys.stderr)
        return 2
    early = [r for r in rows if r[2] > 0]
    beside = [r for r in rows if r[3] > 0]
    both = [r for r in early if r[3] > 0]
    print(f"{len(rows)} copies to the host behind graphs: {len(early)} began "
          f"before the graph that wrote them had ended, {len(beside)} had the "
          f"next graph beside them, {len(both)} both")
    if both:
        copy, graph, ahead, shared = max(both, key=lambda r: min(r[2], r[3]))
        mib = copy["args"]["bytes"] / 1048576
        print(f"{copy['name']} ({mib:.1f} MiB in {copy['dur'] / 1000:.3f} ms, "
              f"{copy['args']['bytes'] / copy['dur'] / 1000:.1f} GB/s) began "
              f"{ahead / 1000:.3f} ms before '{graph['name']}' ended, and ran "
              f"{shared / 1000:.3f} ms beside the next graph")
    print("yes" if len(both) >= options.at_least else "no")
    return 0 if len(both) >= options.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
