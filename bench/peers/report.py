#!/usr/bin/env python3
"""report.py - the table and the targets of the JSON files of run.py.

    report.py OUTDIR [PIECE...]

PIECEs are folders of other runs, of which OUTDIR gets each case that has more
there.

Exit status: 0; 1 when a target is missed or a row failed; 2 when there is
nothing to report.

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import argparse
import glob
import json
import os
import statistics
import sys

from cases import LAUNCH_BOUND, ROWS, WORDS, bare, shape_of

# As bench/README.md has them.
MOST_HOST_RATIO = 1 / 5
MOST_STEP_RATIO = 1.0
MOST_LAYER_OVER_FLOOR = 1.05
MOST_CHUNK_OVER_FLOOR = 1.02
MOST_MEMORY_RATIO = 1.0
MOST_CAPTURE_RATIO = 1 / 2
MOST_CHUNK_OVER_FULL = 1.03
MOST_HOST_OVER_TE = 0.6
MOST_FIRST_STEPS = 5
# Two turns of the same row may differ; more than this is no excuse.
MOST_SPREAD = 0.02

# How the reason begins when no time was left for a turn.
LEFT_OUT = "left out: "


def quantile(values: list[float], q: float) -> float:
    """By linear interpolation, as numpy does."""
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def spread_of(values: list[float]) -> dict:
    return {"median": statistics.median(values), "p10": quantile(values, 0.1),
            "p90": quantile(values, 0.9), "count": len(values)}


def capture_ms(turn: dict) -> float:
    """From before the preparation to the first replayed step, without what
    the same number of replayed steps takes."""
    steps = turn["prepared_steps_s"]
    settled = min(steps[-3:])
    return max(0.0, turn["prepare_s"] + sum(steps)
               - settled * len(steps)) * 1e3


def layer_us(turns: list[dict], layers: int, microbatches: int):
    """Host time of a layer, forward and backward: what the passes of a model
    take without what they take when it has no layers."""
    rest = [time for turn in turns for time in turn.get("rest_us", [])]
    if not rest:
        return None
    passes = [time for turn in turns for time in turn["passes_us"]]
    return ((statistics.median(passes) - statistics.median(rest))
            / (layers * microbatches))


def compare_losses(losses: list, eager: list) -> dict:
    """Bit for bit, all steps that both have: a row that is merged may have
    others."""
    pairs = list(zip(losses, eager))
    steps = [step for step, (ours, theirs) in enumerate(pairs)
             if ours != theirs]
    last = max((abs(ours - theirs) for ours, theirs in zip(*pairs[-1])),
               default=0.0) if pairs else 0.0
    return {"equal": bool(pairs) and not steps,
            "steps": len(pairs),
            "all_steps": len(losses) == len(eager),
            "first_unequal_step": steps[0] if steps else None,
            "last_difference": last}


def summary(turns: list[dict], case: dict, eager: list | None) -> dict:
    """What the table says of a row."""
    def of(name):
        return spread_of([time for turn in turns for time in turn[name]])

    medians = [statistics.median(turn["device_ms"]) for turn in turns]
    memory = {name: max(turn["memory"][name] for turn in turns)
              for name in ("allocated", "reserved")}
    memory["device"] = max(turn["memory"]["device"]
                           - turn["memory"]["device_before"]
                           for turn in turns)
    if all("settled" in turn["memory"] for turn in turns):
        memory["settled"] = max(turn["memory"]["settled"]
                                - turn["memory"]["device_before"]
                                for turn in turns)
    captures = [capture_ms(turn) for turn in turns]
    firsts = [turn["first_replayed_s"] * 1e3 for turn in turns
              if turn.get("first_replayed_s") is not None]
    result = {
        "step_ms": of("device_ms"),
        "wall_ms": of("wall_ms"),
        "turns_ms": medians,
        "spread": (max(medians) - min(medians)) / min(medians),
        "host_step_us": of("step_us"),
        "host_passes_us": of("passes_us"),
        "host_layer_us": layer_us(turns, case["layers"],
                                  case["microbatches"]),
        "capture_ms": statistics.median(captures),
        "captures_ms": captures,
        "first_replayed_ms": statistics.median(firsts) if firsts else None,
        "memory": memory,
    }
    if eager is not None:
        compared = [compare_losses(turn["losses"], eager) for turn in turns]
        result["losses"] = next((c for c in compared if not c["equal"]),
                                compared[0])
    return result


def summarize(result: dict):
    """Add a summary to each row of a case, in place."""
    rows = result["rows"]
    for name, row in rows.items():
        eager = rows.get(name.split("/")[0] + "/eager", {}).get("turns")
        if row.get("turns"):
            row["summary"] = summary(
                row["turns"], result["case"],
                eager[0]["losses"] if eager else None)


# ---- targets ---------------------------------------------------------------


def judge(what: str, ours, theirs, most: float, spread: float = 0.0) -> dict:
    """ours over theirs, against the most it may be."""
    ratio = ours / theirs if theirs else float("inf")
    said = "met"
    if ratio > most:
        said = ("met within the spread"
                if ratio <= most * (1 + min(spread, MOST_SPREAD))
                else "missed")
    return {"target": what, "ours": ours, "theirs": theirs, "ratio": ratio,
            "most": most, "said": said}


def wanted(case: dict) -> list[tuple]:
    """(what, our row, their row, which number, the most)."""
    shape = shape_of(case)
    them = [("torch", "torch/graphed"), ("megatron", "megatron/local")]
    list_ = []
    for backend, peer in them:
        list_.append(("host time of a layer", f"{backend}/layer", peer,
                      "host_layer_us", MOST_HOST_RATIO))
    for backend, peer in them:
        for ours in ("layer", "chunk"):
            list_.append(("step", f"{backend}/{ours}", peer, "step_ms",
                          MOST_STEP_RATIO))
    if shape in LAUNCH_BOUND:
        list_.append(("step over the floor, launch-bound", "torch/layer",
                      "torch/step", "step_ms", MOST_LAYER_OVER_FLOOR))
    list_.append(("step over the floor", "torch/chunk", "torch/step",
                  "step_ms", MOST_CHUNK_OVER_FLOOR))
    for ours in ("megatron/layer", "megatron/chunk"):
        list_.append(("peak memory of the device", ours, "megatron/local",
                      "memory", MOST_MEMORY_RATIO))
        list_.append(("capture time", ours, "megatron/local", "capture_ms",
                      MOST_CAPTURE_RATIO))
    for what, which, most in (
            ("step", "step_ms", MOST_STEP_RATIO),
            ("host time of the passes", "host_passes_us", MOST_HOST_OVER_TE),
            ("peak memory of the device", "memory", MOST_MEMORY_RATIO),
            ("capture time", "capture_ms", MOST_CAPTURE_RATIO)):
        list_.append((what, "te/scope", "te/te", which, most))
    list_.append(("step", "te/chunk", "te/full_iteration", "step_ms",
                  MOST_CHUNK_OVER_FULL))
    for what, which in (("step", "step_ms"),
                        ("peak memory of the device", "memory")):
        list_.append((what, "te/scope+offload", "te/te+offload", which,
                      MOST_STEP_RATIO))
    list_.append(("step", "te/scope+delay", "te/te+delay", "step_ms",
                  MOST_STEP_RATIO))
    for ours in ("te/scope", "te/chunk"):
        list_.append(("time to the first replayed step, in steps", ours,
                      "te/eager", "first_replayed_ms", MOST_FIRST_STEPS))
    return list_


def number_of(row: dict, which: str):
    value = row["summary"].get(which)
    if which == "memory":
        return value["device"]
    return value["median"] if isinstance(value, dict) else value


def failed(row: dict) -> bool:
    """Also in one turn of two; but one that had no time left was not begun,
    and the turn before it stays."""
    return ("summary" not in row
            or not row.get("failed", LEFT_OUT).startswith(LEFT_OUT))


def reason(name: str, row: dict) -> str:
    return f"{name}: {row.get('failed', 'not run')}"


def targets(result: dict) -> list[dict]:
    """Where a row failed or has no such number, nothing is met or missed.
    Without a GPU there is nothing to be judged."""
    rows, judged = result["rows"], []
    if result["machine"].get("device") == "cpu":
        return judged
    for what, ours, theirs, which, most in wanted(result["case"]):
        if ours not in rows or theirs not in rows:
            continue
        what = f"{what}: {ours} against {theirs}"
        why = [reason(name, rows[name]) for name in (ours, theirs)
               if "summary" not in rows[name]]
        if not why:
            numbers = [number_of(rows[ours], which),
                       number_of(rows[theirs], "step_ms" if which
                                 == "first_replayed_ms" else which)]
            why = [f"{name}: no such time" for name, number
                   in zip((ours, theirs), numbers) if number is None]
        if why:
            judged.append({"target": what, "most": most,
                           "said": "not measured", "why": "; ".join(why)})
            continue
        spread = max(rows[name]["summary"]["spread"]
                     for name in (ours, theirs))
        judged.append(judge(what, *numbers, most,
                            spread if most == MOST_STEP_RATIO
                            and which == "step_ms" else 0.0))
    return judged


# ---- words -----------------------------------------------------------------

COLUMNS = ("row", "step ms (p10, p90)", "wall ms", "turns differ",
           "x floor", "host us a step", "host us a layer", "capture ms",
           "first replay ms", "allocated GiB", "reserved GiB", "device GiB",
           "settled GiB", "losses")


def markdown(head, body) -> str:
    """A table."""
    return "\n".join("| " + " | ".join(cells) + " |"
                     for cells in [head, ["---"] * len(head), *body]) + "\n"


def gib(count: float) -> str:
    return f"{count / 2**30:.2f}"


def words_of_losses(losses: dict | None) -> str:
    if losses is None:
        return "not compared"
    if losses["equal"]:
        return ("equal" if losses["all_steps"]
                else f"equal in {count_of(losses['steps'], 'step')}")
    if not losses["steps"]:
        return "not compared"
    return (f"UNEQUAL from step {losses['first_unequal_step']}, "
            f"last by {losses['last_difference']:.3g}")


def line_of(name: str, row: dict, floor: float | None) -> list[str]:
    words = WORDS[name]
    if "summary" not in row:
        return [words, row.get("failed", "not run")] + [""] * 12
    said = row["summary"]
    step = said["step_ms"]
    layer = said["host_layer_us"]
    memory = said["memory"]
    # The floor has torch's model, not Megatron's.
    over = (f"{step['median'] / floor:.3f}"
            if floor and name.startswith("torch/") else "")
    return [words,
            f"{step['median']:.3f} ({step['p10']:.3f}, {step['p90']:.3f})",
            f"{said['wall_ms']['median']:.3f}",
            f"{said['spread'] * 100:.1f} %" if len(said["turns_ms"]) > 1
            else "one turn",
            over,
            f"{said['host_step_us']['median']:.0f}",
            "" if layer is None else f"{layer:.1f}",
            f"{said['capture_ms']:.0f}",
            "" if said.get("first_replayed_ms") is None
            else f"{said['first_replayed_ms']:.0f}",
            gib(memory["allocated"]), gib(memory["reserved"]),
            gib(memory["device"]),
            gib(memory["settled"]) if "settled" in memory else "",
            words_of_losses(said.get("losses"))]


def theory(case: dict) -> int:
    """Bytes of what core_attn keeps for the backward, so q, k, v and what it
    gives, in each layer but the last, whose backward comes at once."""
    return (4 * 2 * case["batch"] * case["sequence"] * case["hidden"]
            * (case["layers"] - 1))


def pairs(result: dict) -> list[dict]:
    """Rows with something more, beside the same row without."""
    rows, found = result["rows"], []
    for name in ROWS:
        without = bare(name)
        if name == without or not name.startswith("te/") or any(
                "summary" not in rows.get(one, {})
                for one in (name, without)):
            continue
        said, plain = (rows[one]["summary"] for one in (name, without))
        pair = {"row": name, "step": said["step_ms"]["median"]
                / plain["step_ms"]["median"]}
        memories = [one["memory"].get("settled") for one in (plain, said)]
        if name.endswith(("+offload", "+recompute")) \
                and None not in memories:
            pair["freed"] = memories[0] - memories[1]
            pair["theory"] = theory(result["case"])
        found.append(pair)
    return found


def table_of_pairs(found: list[dict]) -> str:
    body = []
    for pair in found:
        freed = ["", "", ""]
        if "freed" in pair:
            freed = [gib(pair["freed"]), gib(pair["theory"]),
                     f"{pair['freed'] / pair['theory']:.2f}"]
        body.append([WORDS[pair["row"]], f"{pair['step']:.3f}", *freed])
    return markdown(["row", "step over the same without", "freed GiB",
                     "theory GiB", "freed over theory"], body)


def table(result: dict) -> str:
    """A case in Markdown."""
    case = result["case"]
    rows = result["rows"]
    floor = rows.get("torch/step", {}).get("summary")
    floor = floor["step_ms"]["median"] if floor else None
    kind = " ".join(filter(None, (case.get("kind"), case.get("fp8")
                                  and f"FP8 ({case['fp8']})")))
    lines = [f"## {kind + ': ' if kind else ''}"
             f"{case['layers']} layers, hidden {case['hidden']}, sequence "
             f"{case['sequence']}, batch {case['batch']}, microbatches "
             f"{case['microbatches']}", "",
             markdown(COLUMNS, [line_of(name, rows[name], floor)
                                for name in ROWS if name in rows]).rstrip()]
    notes = []
    for name in ROWS:
        row = rows.get(name, {})
        if "summary" in row and row.get("failed"):
            notes.append(f"- {WORDS[name]}, another turn: {row['failed']}")
        if "note" in row:  # of who has merged it
            notes.append(f"- {WORDS[name]}: {row['note']}")
        for turn in row.get("turns", [])[:1]:
            if turn.get("rest_failed"):
                notes.append(f"- {WORDS[name]}, without layers: "
                             f"{turn['rest_failed']}")
            # A graph that was not made, calls that had none, and whether
            # Transformer Engine's attention was a slow one.
            for key in ("refused", "eager_calls", "cudagraph_skips",
                        "attention"):
                if turn.get("stats", {}).get(key):
                    notes.append(f"- {WORDS[name]}, {key}: "
                                 f"{turn['stats'][key]}")
    if notes:
        lines += [""] + notes
    found = pairs(result)
    if found:
        lines += ["", table_of_pairs(found).rstrip()]
    return "\n".join(lines) + "\n"


def table_of_targets(judged: list[dict]) -> str:
    body = []
    for one in judged:
        said, numbers = one["said"], ["", "", ""]
        if "ratio" in one:
            numbers = [f"{one['ours']:.4g}", f"{one['theirs']:.4g}",
                       f"{one['ratio']:.3f}"]
        else:
            said = f"{said}: {one['why']}"
        body.append([one["target"], *numbers, f"{one['most']:.3g}", said])
    return markdown(["target", "ours", "theirs", "ratio", "at most", ""], body)


def count_of(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'s' if number > 1 else ''}"


def ending(results: list[dict]) -> tuple[str, bool]:
    """How it went, and whether all went well."""
    said = [one["said"] for result in results for one in result["targets"]]
    missed, unmeasured = said.count("missed"), said.count("not measured")
    broken = sum(failed(row) for result in results
                 for row in result["rows"].values())
    words = [count_of(missed, "target") + " missed" if said
             else "no target judged"]
    if unmeasured:
        words.append(count_of(unmeasured, "target") + " not measured")
    if broken:
        words.append(count_of(broken, "row") + " failed")
    return ", ".join(words), not (missed or unmeasured or broken)


def everything(results: list[dict]) -> tuple[str, bool]:
    """All cases in Markdown, and whether all went well."""
    machine = results[0].get("machine", {}) if results else {}
    commands = dict.fromkeys(command for result in results
                             for command in result.get("commands", []))
    parts = ["# graphhooks and its peers", "",
             ", ".join(f"{key} {value}" for key, value
                       in sorted(machine.items())), "",
             *(f"    {command}" for command in commands), ""]
    for result in results:
        summarize(result)
        judged = result["targets"] = targets(result)
        parts.append(table(result))
        if judged:
            parts.append(table_of_targets(judged))
    words, well = ending(results)
    return "\n".join([*parts, words]) + "\n", well


def order(result: dict) -> tuple:
    case = result["case"]
    return (case["hidden"], case["sequence"], case.get("kind", ""),
            case.get("fp8", ""), case["microbatches"])


def read(directory: str) -> list[dict]:
    results = []
    for path in glob.glob(os.path.join(directory, "peers_*.json")):
        with open(path, encoding="utf-8") as file:
            results.append(json.load(file))
    return sorted(results, key=order)


def write(path: str, text: str):
    """Whole, or not at all."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)


def finish(directory: str) -> int:
    """Summaries and targets into the files, the table beside them."""
    results = read(directory)
    words, well = everything(results)
    for result in results:
        save(directory, result)
    write(os.path.join(directory, "table.md"), words)
    print(words)
    return 0 if well else 1


def save(directory: str, result: dict):
    case = result["case"]
    name = f"peers_{shape_of(case)}m{case['microbatches']}.json"
    write(os.path.join(directory, name), json.dumps(result, indent=1) + "\n")


def size(result: dict) -> int:
    """Of what has been measured."""
    return sum(len(row.get("turns", [])) for row in result["rows"].values())


def collect(directory: str, pieces: list[str]):
    """Whole cases, as times of two machines are not for comparing."""
    there = {order(result): result for result in read(directory)}
    for piece in pieces:
        for result in read(piece):
            key = order(result)
            if key not in there or size(result) > size(there[key]):
                there[key] = result
                save(directory, result)


def folder(arguments: list[str], program: str, **words) -> str:
    """The one argument of a program, a folder with results."""
    parser = argparse.ArgumentParser(prog=program, **words)
    parser.add_argument("outdir", metavar="OUTDIR",
                        help="folder that run.py has written to")
    directory = parser.parse_args(arguments).outdir
    if not read(directory):
        print(f"{program}: no peers_*.json is in {directory}; name a folder "
              "that run.py has written to", file=sys.stderr)
        raise SystemExit(2)
    return directory


def main(arguments: list[str]) -> int:
    if len(arguments) > 1:
        os.makedirs(arguments[0], exist_ok=True)
        collect(arguments[0], arguments[1:])
    return finish(folder(
        arguments[:1], "report.py",
        description="the table and the targets of what run.py has measured",
        epilog="Exit status: 0; 1 when a target is missed or a row failed; "
        "2 when there is nothing to report."))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
