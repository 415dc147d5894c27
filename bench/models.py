#!/usr/bin/env python3
"""models.py - a training step of models that people train, in PyTorch.

    models.py OUT.json [--models NAMES] [--rows ROWS] [--budget SECONDS]
    models.py --list
    models.py --table FILE.json...
    models.py --memory FILE.json...
    models.py --picture FILE.json... > models.svg

Models of transformers, timm and diffusers with random weights train in the
default loop of their library, one microbatch a step:

    eager            torch as it is
    compile          torch.compile(model)
    reduce-overhead  torch.compile(model, mode="reduce-overhead")
    layer, chunk     graphhooks.attach(model, granularity=...)
    part             the same, "part"
    auto             graphhooks.attach(model, scope="auto")
    limited          layer, with GRAPHHOOKS_MEMORY_LIMIT at half the inputs

Those of torch.compile have a process each, the others of a model one.  Several
models get ready at once, those to compile as well; then one process after the
other is timed, alone on the machine.  Losses and weights of the first steps
are compared with eager's bit by bit.  OUT.json has what is done when the
budget ends; the same command goes on with the rest.

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import argparse
import importlib.util
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "models"))
WORKER = HERE / "models" / "worker.py"
COMPILED = ("compile", "reduce-overhead")
ROWS = ("eager", "layer", "chunk", "auto", *COMPILED)
ALL = (*ROWS, "part", "limited")  # limited after layer
END = 20  # seconds of the budget in which nothing begins


class Worker:
    """A process that measures some rows of a model."""

    def __init__(self, name: str, rows: list, options, folder: Path):
        self.name, self.rows = name, rows
        self.limit = options.limit
        self.file = folder / f"{name}-{rows[0]}.json"
        self.log = open(folder / f"{name}-{rows[0]}.log", "w")
        asked = {"name": name, "rows": rows, "out": str(self.file),
                 **{key: getattr(options, key) for key in
                    ("device", "size", "limit", "first", "seconds",
                     "deterministic")}}
        environment = {"TORCHINDUCTOR_COMPILE_THREADS": "2",
                       "TOKENIZERS_PARALLELISM": "false", **os.environ}
        self.begin = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), json.dumps(asked)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
            env=environment, start_new_session=True)

    def wait_ready(self, until: float) -> bool:
        """Whether it is, by then."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while (rest := until - time.monotonic()) > 0:
                if selector.select(rest):
                    line = self.process.stdout.readline()
                    if not line or line == b"ready\n":
                        return bool(line)
        return False

    def measure(self, until: float) -> None:
        self.process.stdin.write(b"go\n")
        self.process.stdin.flush()
        self.process.wait(max(1.0, until - time.monotonic()))

    def end(self, why: str) -> dict:
        """What it has left; `why` of rows that it has not."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        self.log.close()
        found = json.loads(self.file.read_text()) if self.file.exists() \
            else {"rows": {}}
        if self.process.returncode not in (0, -signal.SIGKILL):
            lines = Path(self.log.name).read_text(
                errors="replace").strip().splitlines()
            why = f"exit {self.process.returncode}: " \
                f"{lines[-1] if lines else ''}"
        for row in self.rows:
            found["rows"].setdefault(row, {"failed": why[:600]})
        return found


def workers_of(name: str, options, folder: Path) -> list:
    """Those that are compiled last, as they take longest to get ready."""
    asked = options.rows
    one = [row for row in asked if row not in COMPILED]
    several = [one] * bool(one) + [[row] for row in asked if row in COMPILED]
    return [Worker(name, rows, options, folder) for rows in several]


def wave(names: list, options, document: dict, end: float,
         folder: Path) -> None:
    """Some models: all get ready, and then one after the other is timed."""
    workers = [each for name in names
               for each in workers_of(name, options, folder)]
    try:
        until = min(end, time.monotonic() + options.limit)
        late = [each for each in workers if not each.wait_ready(until)]
        for name in names:
            row = document["models"].setdefault(name, {"rows": {}})
            for each in [w for w in workers if w.name == name]:
                limit = options.limit * len(each.rows)
                why = f"not ready after {time.monotonic() - each.begin:.0f} s"
                if each not in late:
                    why = "not done in time"
                    try:
                        each.measure(min(end, time.monotonic() + limit))
                    except (subprocess.TimeoutExpired, OSError):
                        pass
                found = each.end(why)
                row["rows"].update(found.pop("rows"))
                row.update(found)
            judge(row)
            options.out.write_text(json.dumps(document, indent=1) + "\n")
            print(line_of(name, row), flush=True)
    finally:
        for each in workers:
            if each.process.poll() is None:
                each.end("")


def judge(model: dict) -> None:
    """Whether rows have eager's bits."""
    eager = model["rows"].get("eager", {})
    for row in model["rows"].values():
        if "losses" in row and "losses" in eager:
            row["equal"] = (row["losses"] == eager["losses"]
                            and row["weights"] == eager["weights"])


# ---- what is read ----------------------------------------------------------

def ratio(model: dict, row: str) -> float | None:
    """The step over eager's."""
    found, eager = (model["rows"].get(each, {}).get("step_ms")
                    for each in (row, "eager"))
    return found / eager if found and eager else None


def replayed(row: dict) -> float:
    return row["ran"] / row["calls"] if row.get("calls") else 0.0


def best(model: dict) -> str | None:
    """The row of graphhooks with the shortest step, of those that replay."""
    rows = {name: row for name, row in model["rows"].items()
            if row.get("step_ms")
            and name not in ("eager", "limited", *COMPILED)}
    return min(rows, key=lambda name: (
        replayed(rows[name]) < 0.95, rows[name]["step_ms"])) if rows else None


def cell(model: dict, row: str) -> str:
    found = model["rows"].get(row)
    if found is None:
        return ""
    if "failed" in found:
        return "failed"
    value = ratio(model, row)
    if value is None:
        return f"{found['step_ms']:.1f} ms"
    marks = "" if found.get("equal", True) or row in COMPILED else " other"
    if "calls" in found and replayed(found) < 0.95:
        marks += f" ({100 * replayed(found):.0f} %)"
    return f"{value:.2f}{marks}"


def line_of(name: str, model: dict) -> str:
    eager = model["rows"].get("eager", {}).get("step_ms")
    return f"  {name:14} eager {eager or 0:8.2f} ms  " + "  ".join(
        f"{row} {cell(model, row)}" for row in ALL
        if row != "eager" and row in model["rows"])


def first_of(model: dict, row: str | None) -> str:
    found = model["rows"].get(row, {}).get("ready_s")
    return "" if found is None else f"{found:.1f}"


def table(document: dict) -> str:
    """In Markdown; a number is the step over eager's."""
    rows = [row for row in (*COMPILED, "layer", "chunk", "part", "auto")
            if any(row in model["rows"]
                   for model in document["models"].values())]
    head = ["model", "eager, ms", *rows, "replayed, %", "bits",
            "ready, s: reduce-overhead", "graphhooks"]
    lines = [head, ["---"] * len(head)]
    for name, model in document["models"].items():
        eager = model["rows"].get("eager", {}).get("step_ms")
        mine = best(model)
        row = model["rows"].get(mine, {})
        equal = {True: "equal", False: "other", None: ""}[row.get("equal")]
        lines.append([
            name, f"{eager:.2f}" if eager else "failed",
            *(cell(model, each) for each in rows),
            f"{100 * replayed(row):.0f}" if row else "", equal,
            first_of(model, "reduce-overhead"), first_of(model, mine)])
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    failed = [f"- {name}, {each}: {' '.join(row['failed'].split())[:300]}"
              for name, model in document["models"].items()
              for each, row in model["rows"].items() if "failed" in row]
    refused = [f"- {name}, {each}: {layer} runs eagerly: {why}"
               for name, model in document["models"].items()
               for each, row in model["rows"].items()
               for layer, why in list(row.get("refused", {}).items())[:1]]
    return "\n".join([text, *([""] if failed or refused else []),
                      *failed, *refused]) + "\n"


def memory_table(document: dict) -> str:
    """What forecast() said before the first recording, and what graphs have
    then, in Markdown; MiB."""
    def mib(value) -> str:
        return "" if value is None else f"{value / (1 << 20):.2f}"

    head = ["model", "graphs", "inputs foretold", "inputs", "pools foretold",
            "pools", "ratio", "limit", "bits"]
    lines = [head, ["---"] * len(head)]
    for name, model in document["models"].items():
        for row, found in model["rows"].items():
            has = found.get("memory")
            if has is None:
                continue
            told = has["foretold_pools"]
            lines.append([
                name, f"{row}, {100 * replayed(found):.0f} %",
                mib(has["foretold_inputs"]), mib(has["inputs"]), mib(told),
                mib(has["pools"]),
                f"{told / has['pools']:.2f}" if told and has["pools"] else "",
                mib(has["limit"] or None),
                {True: "equal", False: "other"}.get(found.get("equal"), "")])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def merged(files: list) -> dict:
    document: dict = {"bench": "models", "models": {}}
    for file in files:
        found = json.loads(Path(file).read_text())
        for name, model in found.pop("models").items():
            there = document["models"].setdefault(name, {"rows": {}})
            there["rows"].update(model.pop("rows"))
            there.update(model)
        document.update(found)
    for model in document["models"].values():
        judge(model)
    return document


# ---- the command -----------------------------------------------------------

def parse(arguments):
    parser = argparse.ArgumentParser(
        description="Trains models eagerly, compiled and with graphs.")
    add = parser.add_argument
    add("files", nargs="*", type=Path, metavar="OUT.json")
    add("--list", action="store_true", help="the models, and what they need")
    add("--table", action="store_true", help="of files, in Markdown")
    add("--memory", action="store_true",
        help="of files, what was foretold and what graphs have, in Markdown")
    add("--picture", action="store_true", help="of files, as SVG")
    add("--models", default="", help="names; all that can be imported")
    add("--rows", default=",".join(ROWS), help="of " + ", ".join(ALL))
    add("--budget", type=float, default=480.0, help="seconds for all")
    add("--limit", type=float, default=150.0,
        help="seconds in which a row has to get ready, and again to be timed")
    add("--at-once", type=int, default=8, help="models that get ready at once")
    add("--first", type=int, default=12, help="steps that get a row ready")
    add("--seconds", type=float, default=1.0, help="of steps that are timed")
    add("--size", choices=("full", "tiny"), default="full")
    add("--device", choices=("cuda", "soft"), default="cuda",
        help="soft: a simulated GPU, to see whether it works")
    add("--any-order", dest="deterministic", action="store_false",
        help="without torch.use_deterministic_algorithms(True)")
    o = parser.parse_args(arguments)
    o.rows = o.rows.split(",")
    for row in o.rows:
        if row not in ALL:
            parser.error(f"--rows has {row}; there are {', '.join(ALL)}")
    if o.first < 5:
        parser.error("--first has to be at least 5")
    if not o.list and not o.files:
        parser.error("name a file for the results")
    if "limited" in o.rows and "layer" not in o.rows:
        parser.error("--rows has limited, which needs layer")
    o.rows.sort(key=ALL.index)
    if not (o.list or o.table or o.memory or o.picture):
        if len(o.files) > 1:
            parser.error("name one file for the results")
        o.out = o.files[0]
    return o, parser


def measure(o, parser) -> int:
    import zoo

    names = o.models.split(",") if o.models else [
        name for name, (library, _) in zoo.MODELS.items()
        if importlib.util.find_spec(library)]
    for name in names:
        if name not in zoo.MODELS:
            parser.error(f"--models has {name}; there are "
                         f"{', '.join(zoo.MODELS)}")
    end = time.monotonic() + o.budget
    document = merged([o.out]) if o.out.exists() else {
        "bench": "models", "models": {}}
    document["size"] = o.size
    names = [name for name in names if not set(o.rows) <= set(
        document["models"].get(name, {"rows": {}})["rows"])]
    with tempfile.TemporaryDirectory() as folder:
        while names and time.monotonic() < end - END:
            few, names = names[:o.at_once], names[o.at_once:]
            wave(few, o, document, end, Path(folder))
    print("\n" + table(document), end="")
    if names:
        print(f"\nleft for another run: {','.join(names)}")
    return 0


def main(arguments=None) -> int:
    o, parser = parse(arguments)
    if o.list:
        import zoo

        for name, (library, _) in zoo.MODELS.items():
            there = importlib.util.find_spec(library) is not None
            print(f"{name:14} {library}{'' if there else ', not installed'}")
        return 0
    if o.table or o.memory or o.picture:
        document = merged(o.files)
        if o.picture:
            import drawing

            sys.stdout.write(drawing.picture(document))
        elif o.memory:
            sys.stdout.write(memory_table(document))
        else:
            sys.stdout.write(table(document))
        return 0
    return measure(o, parser)


if __name__ == "__main__":
    sys.exit(main())
