#!/usr/bin/env python3
"""table.py - one table of the JSON files that run.sh leaves in a directory.

    table.py OUTDIR

The last column compares with the target that bench/README.md predicted.
Exit status: 0, 1 when a target on a real device is missed.

SPDX-License-Identifier: Apache-2.0
"""
import glob
import json
import os
import statistics
import sys

# As bench/README.md has them.
MOST_HOOK_RATIO = 1.10
MOST_INSTRUCTIONS = 450
MOST_RECORD_RATIO = 1.2
MOST_STEP_RATIO = 1.05
MOST_PLAN_MS = 10
MOST_OPEN_MS = 20
MOST_PACKED_US = 5 # of one launch
MOST_BANKS_RATIO = 1.05
MOST_BANKS_STEP = 1.1
# Of overlap: what no compute hides where compute is longer; a run of both
# chunks over the longer of the two; with graphs over without, of the host and
# of the device; one order over the other, and at least once so.
MOST_EXPOSED = 0.05
MOST_OVER_LONGER = 1.03
MOST_OVERLAP_HOST = 0.5
MOST_NOISE = 1.01
MOST_BEST_AUTO = 0.99
# The same between ranks with a device each, where the library's copies move
# the bytes; and their rate over that of NCCL.
MOST_EXPOSED_RANKS = 0.10
MOST_OVER_LONGER_RANKS = 1.05
LEAST_OF_NCCL = 0.9
LEAST_BYTES_NCCL = 16 << 20 # that a rank sends, from so many on
LEAST_OF_BARE = 0.9 # the rate of an exchange over that of bare copies
# The same in a graph, of two ranks, by bytes to each peer.
LEAST_OF_BARE_GRAPH = {65536: 0.55, 262144: 0.60, 1048576: 0.70,
                       4194304: 0.85, 16777216: 0.90, 67108864: 0.96}
LEAST_BYTES = 4 << 20 # from so many on
MOST_PAPER = 1.1 # or its inverse: on paper over measured
# A captured step over an eager one, by models.sh's SIZE and SCOPE.
MOST_MODEL_RATIO = {"launch": {"layer": 0.92, "chunk": 0.92, "partial": 0.97},
                    "large": {"layer": 1.01, "chunk": 1.01, "partial": 1.01}}
# Of models whose kernels are long at any size: the scan of Mamba is.
MOST_SLOW_MODEL_RATIO = {"mamba": 0.97}
MOST_MODEL_HOST = {"launch": {"layer": 0.2, "chunk": 0.2, "partial": 0.6}}

missed = []


def judge(value, most, real):
    """The target's column; without a real device it is not judged."""
    if most is None:
        return ""
    if not real:
        return f"(<= {most})"
    if value <= most:
        return f"<= {most} ok"
    missed.append((value, most))
    return f"<= {most} MISSED"


def row(*columns, widths=(34, 15, 12, 12, 9, 16)):
    print("  ".join(str(c).ljust(w) if i < 2 else str(c).rjust(w)
                    for i, (c, w) in enumerate(zip(columns, widths))).rstrip())


def hook_overhead(result, real):
    print("\none replayed pass, nanoseconds of host time")
    row("graph", "launches", "bare", "hooks", "ratio", "target")
    for case in result["cases"]:
        row(f"{case['kernels']} kernels", case["launches"],
            f"{case['bare_ns']['median']:.0f}",
            f"{case['hooks_ns']['median']:.0f}", f"{case['ratio']:.3f}",
            judge(case["ratio"], MOST_HOOK_RATIO, real))


def banks(result, real):
    print("\nsequences of a microbatch, microseconds")
    row("sequences", "launches", "host", "device", "", "target")
    for case in result["packed"]:
        host, device = (case[key]["median"] / 1000
                        for key in ("host_ns", "device_ns"))
        row(case["sequences"], case["launches"], f"{host:.2f}",
            f"{device:.2f}", "",
            judge(max(host, device),
                  MOST_PACKED_US if case["launches"] == 1 else None, real))
    memory = result["memory"]
    print(f"\nmemory of {memory['lengths']} lengths over the largest alone")
    row("recorded first", "", "", "", "ratio", "target")
    for name, key in (("the largest", "ratio"),
                      ("the smallest", "ratio_smallest_first")):
        row(name, "", "", "", f"{memory[key]:.3f}",
            judge(memory[key], MOST_BANKS_RATIO, True))


def banks_torch(result, real):
    for model, rows in result["models"].items():
        one_graph = result.get("granularity") == "chunk"
        print(f"\n{model}, {result['steps']} steps on "
              f"{len(result['lengths'])} lengths, ms a step"
              + ("; one graph for all layers" if one_graph else ""))
        row("", "recordings", "replays", "median", "over fixed", "target")
        for case in rows:
            if "step_ms" in case:
                ratio = case.get("ratio")
                row(case["name"], case.get("recordings", "-"),
                    case.get("replays", "-"),
                    f"{case['step_ms']['median']:.2f}",
                    f"{ratio:.3f}" if ratio is not None else "-",
                    judge(ratio, MOST_BANKS_STEP
                          if case["name"] == "banks" else None, real))
        for case in rows:
            if "device_over_longest" in case:
                ratio = case["device_over_longest"]
                row("memory, over the longest", "", "", "", f"{ratio:.3f}",
                    judge(ratio, MOST_BANKS_RATIO, real))


def banks_select(result, real):
    hook_instructions(result, real, "banks")


def hook_instructions(result, _real, of="captured passes"):
    print("\ninstructions in enter + exit, the driver's left out")
    row(of, "counted", "", "", "count", "target")
    for case in result["cases"]:
        # Counted on the software device by intention.
        row(case["captured_passes"], case["counted"], "", "",
            case["instructions"],
            judge(case["instructions"], MOST_INSTRUCTIONS, True))


def record_cost(result, real):
    print("\none recording, microseconds of host time; device memory, KiB")
    row("graph", "KiB bare", "bare us", "hooks us", "ratio", "target")
    for case in result["cases"]:
        row(f"{case['kernels']} kernels",
            f"{case['device_bytes_per_bare_exec'] / 1024:.0f}",
            f"{case['bare_ns']['median'] / 1000:.1f}",
            f"{case['hooks_ns']['median'] / 1000:.1f}",
            f"{case['ratio']:.3f}",
            judge(case["ratio"], MOST_RECORD_RATIO, real))
    for case in result["cases"]:
        print(f"  {case['kernels']} kernels: "
              f"{case['device_bytes_per_pass'] / 1024:.0f} KiB a captured "
              "pass; over bare capture, instantiate, upload and launch "
              f"{case['ratio_with_launch']:.3f}")


def plan_cost(result, _real):
    print("\none plan, milliseconds of host time")
    row("model", "layers", "segments", "as JSON", "make", "target")
    for case in result["cases"]:
        made = case["make_ns"]["median"] / 1e6
        # The target is of 1,000 layers, and needs no device.
        row(case["name"], case["layers"], case["segments"],
            f"{case['write_json_ns']['median'] / 1e6:.2f}", f"{made:.3f}",
            judge(made, MOST_PLAN_MS if case["layers"] == 1000 else None,
                  True))


def open_cost(result, real):
    print("\na session opened, milliseconds of host time: the first of a "
          "process, the next")
    row("layers", "", "bare", "families", "ratio", "target")
    for case in result["cases"]:
        for which in ("first", "next"):
            ms = case[f"{which}_ns"]["median"] / 1e6
            row(f"{case['layers']} layers, {which}", "",
                f"{case[f'{which}_without_ns']['median'] / 1e6:.3f}",
                f"{ms:.3f}", f"{case[f'ratio_{which}']:.3f}",
                judge(ms, MOST_OPEN_MS, real))


def overlap(result, real):
    products = result["products"]
    shapes = result["shapes"]
    ranks = result.get("ranks", 1)
    real = real and ranks == result.get("devices", 1)
    most_exposed = MOST_EXPOSED if ranks == 1 else MOST_EXPOSED_RANKS
    most_longer = MOST_OVER_LONGER if ranks == 1 else MOST_OVER_LONGER_RANKS
    widths = (32 if ranks == 1 else 38, 7, 7, 10, 10, 9, 15, 9, 16)
    print(f"\noverlap{f' of {ranks} ranks' if ranks > 1 else ''}: products of "
          f"{products['n']} by {products['by']}, "
          f"{products['ns'] / 1000:.0f} us each; "
          f"{result['exchange']['bytes_per_ns']:.1f} GB/s each way"
          + (f", NCCL {result['exchange_nccl']['bytes_per_ns']:.1f}"
             if "exchange_nccl" in result else ""))
    row("shape", "graphs", "order", "comm/comp", "pair ms", "exposed",
        "target", "x longer", "target", widths=widths)
    for shape in shapes:
        for mode in shape["modes"]:
            if "exposed" not in mode:
                continue
            auto = (mode["way"] == "auto" and
                    shape.get("by") not in ("nccl", "kernel"))
            hidden = shape["comm_over_compute"] <= 1
            row(shape_name(shape), "yes" if mode["graphs"] else "no", mode["way"],
                f"{shape['comm_over_compute']:.3f}",
                f"{mode['pair_ns']['median'] / 1e6:.3f}",
                f"{mode['exposed']:.3f}",
                judge(mode["exposed"],
                      most_exposed if auto and hidden else None, real),
                f"{mode['over_longer']:.3f}",
                judge(mode["over_longer"], most_longer if auto else None,
                      real), widths=widths)
        if not shape["bitwise_equal"]:
            print(f"  {shape_name(shape)}: NOT bitwise equal")
            missed.append((shape["name"], "bitwise equal"))
    if ranks == 1:
        overlap_ratios(shapes, real)


def shape_name(shape):
    by = shape.get("by", "host")
    return f"{shape['name']} {shape['aim']:.2f}" + (
        f", {by}" if by != "host" else "")


def overlap_ratios(shapes, real):
    print("\noverlap, ratios: with graphs over without, auto over fixed; host "
          "time of a pair of layers, us")
    row("shape", "way", "eager us", "graphs us", "ratio", "target")
    for shape in shapes:
        name = f"{shape['name']} {shape['aim']:.2f}"
        host = {(m["way"], m["graphs"]): m["host_layer_pair_ns"] / 1000
                for m in shape["modes"]}
        for way in ("compute", "fixed", "auto"):
            ratio = shape[f"graphs_over_eager_host_{way}"]
            row(name, f"{way}, host", f"{host[way, False]:.1f}",
                f"{host[way, True]:.1f}", f"{ratio:.3f}",
                judge(ratio, MOST_OVERLAP_HOST if way == "auto" else None,
                      real))
        for way in ("fixed", "auto"):
            ratio = shape[f"graphs_over_eager_{way}"]
            row(name, f"{way}, device", "", "", f"{ratio:.3f}",
                judge(ratio, MOST_NOISE, real))
        ratio = shape["auto_over_fixed_graphs"]
        row(name, "auto over fixed", "", "", f"{ratio:.3f}",
            judge(ratio, MOST_NOISE, real))
    unbalanced = [shape["auto_over_fixed_graphs"] for shape in shapes
                  if shape["before"] != shape["experts"]]
    row("unbalanced, the best", "auto over fixed", "", "",
        f"{min(unbalanced):.3f}", judge(min(unbalanced), MOST_BEST_AUTO, real))


def exchange(result, real):
    apart = result.get("devices", 1) == result["ranks"]
    real = real and (result["mps"] or apart)
    where = ("a device each" if apart else
             f"{'under' if result['mps'] else 'without'} MPS")
    print(f"\nexchange of {result['ranks']} ranks, {where}, NCCL "
          f"{result['nccl'] or 'missing'}, us")
    row("bytes to the peer", "bare", "copy", "nccl", "ratio", "target")
    for case in result["copies"]:
        us = [f"{case[key]['median'] / 1000:.1f}" if key in case else ""
              for key in ("bare_ns", "copy_ns", "nccl_ns")]
        # At least so much, so the inverse is at most.
        most = (round(1 / LEAST_OF_BARE, 3) if case["bytes"] >= LEAST_BYTES
                else None)
        row(case["bytes"], *us, f"{case['bare_over_copy']:.3f}",
            judge(1 / case["bare_over_copy"], most, real))
    if "copy_gb_s" in result["copies"][0]:
        exchange_rates(result, real and apart)
    exchanges_in_graphs(result, real and apart)
    print("\nbeside products, us")
    row("by", "products", "exchange", "both", "exposed", "")
    for case in result["beside"]:
        row(case["by"], *(f"{case[key]['median'] / 1000:.1f}" for key in
                          ("products_ns", "exchange_ns", "both_ns")),
            f"{case['exposed']:.3f}")
    print("\nin a host with experts, ms; exposed")
    widths = (16, 8, 10, 10, 10, 9, 9, 9, 16)
    row("bytes", "by", "comm/comp", "fixed", "auto", "fixed", "auto", "nccl",
        "target", widths=widths)
    nccl = {case["bytes"]: case["auto_exposed"] for case in result["overlap"]
            if case["by"] == "nccl"}
    for case in result["overlap"]:
        own = case["by"] == "copy"
        most = MOST_EXPOSED if case["comm_over_compute"] <= 1 else 1
        if case["bytes"] in nccl:
            most = min(most, max(nccl[case["bytes"]], 0.001))
        row(case["bytes"], case["by"], f"{case['comm_over_compute']:.3f}",
            *(f"{case[key]['median'] / 1e6:.3f}"
              for key in ("fixed_ns", "auto_ns")),
            f"{case['fixed_exposed']:.3f}", f"{case['auto_exposed']:.3f}",
            f"{nccl[case['bytes']]:.3f}" if case["bytes"] in nccl else "",
            judge(case["auto_exposed"], round(most, 3) if own else None, real),
            widths=widths)
        if not case["bitwise_equal"]:
            print(f"  {case['by']}: NOT bitwise equal")
            missed.append((case["by"], "bitwise equal"))


def exchange_rates(result, real):
    print("\nGB/s that leave a rank")
    row("bytes", "bare", "copy", "nccl", "x nccl", "target")
    for case in result["copies"]:
        ratio = case.get("copy_over_nccl")
        # At least so much, so the inverse is at most.
        most = (round(1 / LEAST_OF_NCCL, 3)
                if case["bytes"] >= LEAST_BYTES_NCCL else None)
        row(case["bytes"],
            *(f"{case[key]:.1f}" if key in case else ""
              for key in ("bare_gb_s", "copy_gb_s", "nccl_gb_s")),
            f"{ratio:.3f}" if ratio else "",
            judge(1 / ratio, most, real) if ratio else "")


# The better of the kernel and of copies in turn, which is what counts.
def exchanges_in_graphs(result, real):
    ways = ("bare", "copy", "turns", "kernel", "auto", "nccl")
    widths = (14, *(9 for _ in ways), 9, 9, 16, 9, 16, 9, 16)
    print("\nin graphs, us for one exchange; turns: copies in turn; best: of "
          "turns and kernel, over bare copies and over NCCL")
    row("bytes a peer", *ways, "launch", "of bare", "target", "x nccl",
        "target", "auto x", "target", widths=widths)
    for case in result.get("in_graphs", []):
        best = min(case["turns_ns"], case["kernel_ns"])
        least = (LEAST_OF_BARE_GRAPH.get(case["bytes_a_peer"])
                 if result["ranks"] == 2 else None)
        # At least so much, so the inverse is at most.
        most = round(1 / least, 3) if least else None
        over = best / case["nccl_ns"] if "nccl_ns" in case else None
        chosen = case["auto_ns"] / best if "auto_ns" in case else None
        row(case["bytes_a_peer"],
            *(f"{case[way + '_ns'] / 1000:.1f}" if way + "_ns" in case else ""
              for way in ways),
            f"{case['turns_launch_ns'] / 1000:.2f}",
            f"{case['bare_ns'] / best:.3f}",
            judge(best / case["bare_ns"], most, real),
            f"{over:.3f}" if over else "",
            judge(over, 1, real) if over else "",
            f"{chosen:.3f}" if chosen else "",
            judge(chosen, 1.03, real) if chosen else "", widths=widths)


def beside(result, _real):
    print(f"\ncopies to the host and back beside operations of "
          f"{result['ranks']} ranks on {result['devices']} devices, us; how "
          "much longer each takes")
    row("operation", "copies", "operation", "copies x", "op x", "")
    for case in result["beside"]:
        row(case["operation"], f"{case['copies_ns']['median'] / 1000:.1f}",
            f"{case['work_ns']['median'] / 1000:.1f}",
            f"{case['copies_longer']:.3f}", f"{case['work_longer']:.3f}", "")
    if not result["right"]:
        print("  WRONG numbers")
        missed.append(("beside", "right"))


def scale(result, _real):
    real = "software" not in result["costs_of"]
    print(f"\noverlap on paper, nodes of {result['costs_of']}: milliseconds")
    row("shape", "order", "paper", "measured", "ratio", "target")
    for case in result["measured"]:
        ratio = case["ratio"]
        row(f"{case['shape']} {case['aim']:.2f}", case["way"],
            f"{case['paper_ns'] / 1e6:.3f}",
            f"{case['measured_ns'] / 1e6:.3f}", f"{ratio:.3f}",
            judge(max(ratio, 1 / ratio), MOST_PAPER, real))
    if result.get("links"):
        print("\nthe model of the link between "
              f"{result['links'][0]['ranks']} ranks: an exchange, us; the "
              "run by auto, ms")
        row("shape", "model", "measured", "paper", "measured", "ratio")
    for case in result.get("links", []):
        row(f"{case['shape']} {case['aim']:.2f}",
            *(f"{case[key] / 1e3:.1f}" for key in ("model_ns", "exchange_ns")),
            *(f"{case[key] / 1e6:.3f}" for key in ("paper_ns", "measured_ns")),
            f"{case['ratio']:.3f}")
    widths = (32, 6, 10, 10, 9, 9, 9, 9)
    links = None
    for case in result["scale"]:
        if case["links"] != links:
            links = case["links"]
            print(f"\noverlap on paper, {links}")
            row("shape", "ranks", "comm/comp", "longer", "fixed", "auto",
                "exposed", "exposed", widths=widths)
        row(case["shape"], case["ep"], f"{case['comm_over_compute']:.3f}",
            *(f"{case[key] / 1e6:.3f}"
              for key in ("longer_ns", "fixed_ns", "auto_ns")),
            *(f"{case[key]:.3f}" for key in ("fixed_exposed", "auto_exposed")),
            widths=widths)


def steady(times):
    """The median without the steps that warm up and record."""
    return statistics.median(times["all"][min(5, len(times["all"]) // 2):])


def step(name, result, real):
    modes = {mode["name"]: mode for mode in result["modes"]}
    floor = steady(modes["step"]["step_ms"])
    model = result["model"]
    print(f"\n{name}: {model['layers']} layers, hidden {model['hidden']}, "
          f"seq {model['seq']}, batch {model['batch']}, microbatches "
          f"{model['microbatches']}, streams {model['streams']}; bitwise "
          f"equal: {'yes' if result['bitwise_equal'] else 'NO'}")
    row("mode", "", "step ms", "host ms", "x floor", "target")
    for mode in ("eager", "graph", "step"):
        ms = steady(modes[mode]["step_ms"])
        most = (MOST_STEP_RATIO
                if mode == "graph" and name == "step_launch_bound" else None)
        row(mode, "", f"{ms:.3f}", f"{steady(modes[mode]['host_ms']):.3f}",
            f"{ms / floor:.3f}", judge(ms / floor, most, real))
    if not result["bitwise_equal"]:
        missed.append((name, "bitwise equal"))


def turns(result, name, times):
    """Of each turn of a mode, the steady time."""
    return [steady(mode[times]) for mode in result["modes"]
            if mode["name"] == name]


def ratios(result, times):
    """Captured over eager, turn by turn."""
    return [graph / eager for eager, graph in
            zip(turns(result, "eager", times), turns(result, "graph", times))]


def most_ratio(name, size, scope):
    most = MOST_MODEL_RATIO.get(size, {}).get(scope)
    return most and max(most, MOST_SLOW_MODEL_RATIO.get(name, 0))


def models(cases):
    """cases: (model, size, scope, result), in the order of the files."""
    widths = (9, 9, 9, 9, 21, 9, 8, 6, 6, 6, 15, 15)
    size_of = None

    for name, size, scope, result in sorted(
            cases, key=lambda case: (case[1], case[0])):
        model = result["model"]
        if size != size_of:
            size_of = size
            print(f"\nmodels, {size}: {model['layers']} layers, hidden "
                  f"{model['hidden']}, seq {model['seq']}, batch "
                  f"{model['batch']}, microbatches {model['microbatches']}; "
                  "milliseconds a step, in turns")
            row("model", "captured", "eager", "captured", "ratio (least, most)",
                "host", "x eager", "rec.", "repl.", "copies", "ratio's target",
                "host's target",
                widths=widths)
        step_ratios = ratios(result, "step_ms")
        ratio = statistics.median(step_ratios)
        stats = [mode for mode in result["modes"]
                 if mode["name"] == "graph"][-1]["stats"]
        host = statistics.median(ratios(result, "host_ms"))
        real = result["driver"] == "cuda"
        row(name, scope,
            f"{statistics.median(turns(result, 'eager', 'step_ms')):.3f}",
            f"{statistics.median(turns(result, 'graph', 'step_ms')):.3f}",
            f"{ratio:.3f} ({min(step_ratios):.3f}, {max(step_ratios):.3f})",
            f"{statistics.median(turns(result, 'graph', 'host_ms')):.3f}",
            f"{host:.3f}",
            stats["recordings"], stats["replays"], stats["copies"],
            judge(ratio, most_ratio(name, size, scope), real),
            judge(host, MOST_MODEL_HOST.get(size, {}).get(scope), real),
            widths=widths)
        if not result["bitwise_equal"]:
            print(f"  {name}, {scope}: NOT bitwise equal")
            missed.append((name, "bitwise equal"))


TABLES = {"hook_overhead": hook_overhead, "record_cost": record_cost,
          "hook_instructions": hook_instructions, "plan_cost": plan_cost,
          "open_cost": open_cost, "banks": banks,
          "banks_select": banks_select, "banks_torch": banks_torch,
          "banks_torch_chunk": banks_torch,
          "banks_torch_compile": banks_torch,
          "banks_torch_expandable": banks_torch,
          "overlap": overlap, "beside": beside,
          "exchange": exchange, "scale": scale}


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    results = []
    for path in sorted(glob.glob(os.path.join(sys.argv[1], "*.json"))):
        with open(path, encoding="utf-8") as file:
            results.append((os.path.basename(path)[:-len(".json")],
                            json.load(file)))
    print(", ".join(sorted({f"{r['device']}, driver {r['driver']}"
                            for _, r in results
                            if "device" in r and "driver" in r})))
    cases = []
    for name, result in results:
        real = result.get("driver", "cuda") == "cuda"
        if name.startswith("step_"):
            step(name, result, real)
        elif name.startswith("models_"):
            cases.append((*name.split("_")[1:], result))
        elif name in TABLES:
            TABLES[name](result, real)
    models(cases)
    return 1 if missed else 0


sys.exit(main())
