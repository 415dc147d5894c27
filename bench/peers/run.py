#!/usr/bin/env python3
"""run.py - graphhooks and its peers, side by side on one GPU.

    run.py OUTDIR [--rows torch/layer,...] [--shapes h1024s256,...] [--quick]
    run.py OUTDIR --rows te [--cases moe:4,...] [--budget 480] [--resume]

Every row has a process of its own for each case.  The processes import what
they need beforehand, some at a time, and then have the device one after the
other; all rows run once, and then all of them again, so that a drift is seen.
OUTDIR gets a JSON file for each case, table.md, and a log for each process.
With --merge, rows that are there and not run now stay; with --resume only what
is not there runs.

Exit status: 0; 1 when a target of bench/README.md is missed or a row failed;
2, with one sentence, when the arguments are wrong or a package or a GPU is
missing.

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import queue
import shlex
import subprocess
import sys
import tempfile
import threading
import time

import cases
import report

HERE = os.path.dirname(os.path.abspath(__file__))
HOST = os.path.join(HERE, "..", "..", "hosts", "pytorch")


# In a process of its own: this one leaves the device alone.
LOOK = """
import importlib.util, json
said = {"torch": "", "gpu": False, "megatron": False, "te": False,
        "mamba": False}
try:
    import torch
    said["gpu"] = torch.cuda.is_available()
except Exception as error:
    said["torch"] = str(error) or type(error).__name__
for name, module in (("megatron", "megatron.core"), ("mamba", "mamba_ssm"),
                     ("te", "transformer_engine")):
    try:
        said[name] = importlib.util.find_spec(module) is not None
    except ImportError:
        pass
print(json.dumps(said))
"""


def stop(sentence: str):
    """What the user can mend."""
    print(f"run.py: {sentence}", file=sys.stderr)
    raise SystemExit(2)


def environment(inductor: str) -> dict:
    """What the processes share."""
    env = dict(os.environ)
    if importlib.util.find_spec("graphhooks") is None:
        env["PYTHONPATH"] = os.pathsep.join(
            [os.path.abspath(HOST)] + [p for p in [env.get("PYTHONPATH")]
                                       if p])
    # As large as it is anyway; cuBLAS asks for it by name.
    env.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    env.setdefault("TORCHINDUCTOR_CACHE_DIR", inductor)
    return env


def look(env: dict) -> dict:
    """What there is for the rows; torch: why it cannot be imported."""
    done = subprocess.run([sys.executable, "-c", LOOK], env=env, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        words = done.stderr.splitlines() or [f"it ended with "
                                             f"{done.returncode}"]
        return {"torch": words[-1], "gpu": False, "megatron": False,
                "te": False, "mamba": False}


def lacking(row: str, found: dict, device: str) -> str:
    """Why a row cannot run here, and the remedy; or nothing."""
    if found["torch"]:
        return (f"torch cannot be imported ({found['torch']}); "
                "pip install torch")
    if device == "cpu":
        return ("" if row in cases.ON_CPU else "without a GPU there are only "
                f"the rows {', '.join(cases.ON_CPU)}; leave --device cpu out")
    if row.startswith(("megatron/", "te/")) and not found["megatron"]:
        return ("megatron-core is missing; pip install megatron-core, or put "
                "it in PYTHONPATH")
    if row.startswith("te/") and not found["te"]:
        return ("transformer_engine is missing; pip install "
                "transformer_engine[pytorch], or put it in PYTHONPATH")
    if not found["gpu"]:
        return ("torch sees no GPU; --device cpu --quick is a look without "
                "one")
    return ""


def able(rows: list[str], found: dict, device: str) -> list[str]:
    """The rows that can run; the others are named, with the reason."""
    why = {row: lacking(row, found, device) for row in rows}
    there = [row for row in rows if not why[row]]
    if not there:
        stop(why[rows[0]])
    for sentence in dict.fromkeys(filter(None, why.values())):
        out = [row for row in rows if why[row] == sentence]
        print(f"run.py: {', '.join(out)} left out: {sentence}",
              file=sys.stderr)
    return there


def without_mamba(work: list, found: dict) -> list:
    """The cases that can run."""
    there = [case for case in work if found["mamba"] or case.kind != "mamba"]
    if len(there) < len(work):
        sentence = ("mamba_ssm is missing, of which Mamba layers are made; "
                    "pip install mamba-ssm")
        if not there:
            stop(sentence)
        print(f"run.py: mamba left out: {sentence}", file=sys.stderr)
    return there


class Worker:
    """A process that has one row and one case."""

    def __init__(self, row: str, turn: int, case, options, env: dict):
        self.job = self.row, self.turn, self.case = row, turn, case
        self.options = options
        self.lines: queue.Queue = queue.Queue()
        self.log_path = os.path.join(
            options.outdir, "logs",
            f"{row.replace('/', '_')}.{turn}.{case.name}.log")
        with open(self.log_path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [sys.executable, os.path.join(HERE, "worker.py"), row,
                 "--case", json.dumps(case.to_dict()),
                 "--steps", json.dumps(vars(options.steps)),
                 "--device", options.device,
                 "--prepare-limit", str(options.prepare_limit)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                text=True, env=env)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(json.loads(line))
        self.lines.put(None)

    def next(self, seconds: float):
        """What it says next; a dict with the reason when it says nothing."""
        try:
            said = self.lines.get(timeout=seconds)
        except queue.Empty:
            self.process.kill()
            return {"failed": f"out of time: nothing in {seconds:.0f} s"}
        if said is None:
            code = self.process.wait()
            return {"failed": f"the process ended with {code}: "
                              f"{self.last_words()}"}
        return said

    def last_words(self) -> str:
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            lines = [line.strip() for line in log if line.strip()]
        return lines[-1][:200] if lines else "no words"

    def go(self):
        try:
            self.process.stdin.write("go\n")
            self.process.stdin.close()
        except OSError:
            pass  # next() says why

    def end(self):
        """It ends by itself; memory has to be free before the next."""
        if self.process.stdin and not self.process.stdin.closed:
            self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Book:
    """All results, saved whenever there is one more."""

    def __init__(self, options, work: list, command: str):
        self.outdir, self.resumed = options.outdir, options.resume
        self.results = {}
        there = ({report.order(result): result
                  for result in report.read(options.outdir)}
                 if options.merge or options.resume else {})
        for case in work:
            fresh = {"case": case.to_dict(), "machine": {}, "commands": [],
                     "steps": vars(options.steps), "rows": {}}
            result = there.get(report.order(fresh), fresh)
            result["commands"].append(command)
            for row in [row for row in options.rows
                        if cases.fits(row, case.kind)]:
                if not options.resume or self.left(result, row):
                    result["rows"].setdefault(row, {}).pop("failed", None)
                if not options.resume or "turns" not in result["rows"][row]:
                    result["rows"][row] = {"turns": []}
            self.results[case.name] = result

    @staticmethod
    def left(result: dict, row: str) -> bool:
        """Whether no time was left for it."""
        said = result["rows"].get(row, {}).get("failed", report.LEFT_OUT)
        return said.startswith(report.LEFT_OUT)

    def has(self, row: str, turn: int, case) -> bool:
        """Of an earlier run, which this one goes on with."""
        there = self.results[case.name]["rows"][row]
        return self.resumed and ("failed" in there or any(
            one["turn"] == turn for one in there["turns"]))

    def add(self, row: str, turn: int, case, said: dict):
        result = self.results[case.name]
        there = result["rows"][row]
        if "failed" in said:
            there["failed"] = said["failed"]
        else:
            there["turns"].append({"turn": turn, **said["result"]})
            result["machine"].update(said["machine"])
        report.save(self.outdir, result)


def drive(worker: Worker, book: Book, started: float):
    """One process at the device."""
    worker.go()
    said = worker.next(worker.options.case_limit)
    book.add(*worker.job, said)
    print(f"{time.monotonic() - started:6.1f} s  {worker.row}, turn "
          f"{worker.turn}, {worker.case.name}"
          + (f": {said['failed']}" if "failed" in said else ""),
          file=sys.stderr, flush=True)
    worker.end()


def ready(worker: Worker, book: Book) -> bool:
    said = worker.next(worker.options.start_limit)
    if "ready" in said:
        return True
    book.add(*worker.job, said)
    print(f"{worker.row}, {worker.case.name}: {said['failed']}",
          file=sys.stderr)
    worker.end()
    return False


def jobs_of(options, work: list) -> list[tuple]:
    jobs = []
    for turn in range(options.turns):
        jobs += [(row, turn, case) for row in options.rows for case in work
                 if cases.fits(row, case.kind)
                 and not (turn and row in cases.ONE_TURN)]
    if options.by_case:
        jobs.sort(key=lambda job: work.index(job[2]))
    return jobs


def run(options, work: list, env: dict) -> Book:
    started = time.monotonic()
    book = Book(options, work, shlex.join(["bench/peers/run.py",
                                           *sys.argv[1:]]))
    jobs = [job for job in jobs_of(options, work) if not book.has(*job)]

    def late(row, _turn, case) -> bool:
        lasts = cases.seconds(row, case, options.steps)
        return bool(options.budget) and (time.monotonic() - started + lasts
                                         > options.budget)

    while jobs:
        batch, jobs = jobs[:options.together], jobs[options.together:]
        # Else many would import for nothing.
        workers = [Worker(*job, options, env) for job in batch
                   if not late(*job)]
        there = [worker for worker in workers if ready(worker, book)]
        ran = []
        for worker in there:
            if late(*worker.job):
                worker.end()
            else:
                ran.append(worker.job)
                drive(worker, book, started)
        failed = [worker.job for worker in workers if worker not in there]
        for job in batch:
            if job not in ran + failed:
                leave(job, options.budget, book)
    return book


def leave(job: tuple, budget: int, book: Book):
    """No time is left for it; what its turn before has said stays."""
    book.add(*job, {"failed": f"{report.LEFT_OUT}{budget} s are over"})


def listed(options, work: list) -> str:
    """The cases and about how long they take."""
    lines, sum_ = [], 0.0
    for case in work:
        lasts = [(row, cases.seconds(row, case, options.steps))
                 for row, _turn, of in jobs_of(options, work) if of is case]
        sum_ += sum(number for _, number in lasts)
        rows = ", ".join(dict.fromkeys(f"{row} {number:.0f}"
                                       for row, number in lasts))
        lines.append(f"{case.name}: {sum(n for _, n in lasts):.0f} s, "
                     f"{sum_:.0f} in all ({rows} s a turn)")
    return "\n".join(lines)


def chosen(text: str | None, known, what: str, usual=None) -> list[str]:
    """Words of a list, or the usual ones."""
    if text is None:
        return list(usual or known)
    words = [word for word in text.split(",") if word]
    for word in words:
        if word not in known:
            stop(f"no {what} {word}; there are {', '.join(known)}")
    if not words:
        stop(f"no {what} is named; there are {', '.join(known)}")
    return words


def at_least(least: int):
    """A type of arguments."""
    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(
                f"'{text}' is no number from {least} on")
        return int(text)

    return number


def counts(text: str) -> list[int]:
    return [at_least(1)(word) for word in text.split(",")]


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="run.py", description="graphhooks and its peers on one GPU",
        epilog="Exit status: 0; 1 when a target is missed or a row failed; "
        "2 for wrong arguments and for what is missing.")
    add = parser.add_argument
    add("outdir", metavar="OUTDIR",
        help="folder of the JSON files, table.md and the logs")
    add("--rows", metavar="BACKEND/ROW,...",
        help="what is compared; by default: " + ", ".join(cases.DEFAULT_ROWS)
        + "; others: " + ", ".join(cases.OFFLOAD_ROWS) + "; or a set of them: "
        + ", ".join(cases.SETS))
    add("--shapes", metavar="SHAPE,...",
        help="sizes of the model; by default: " + ", ".join(cases.SHAPES)
        + "; others: " + ", ".join(cases.LONG_SHAPES) + "; with --quick: "
        + ", ".join(cases.QUICK_SHAPES))
    add("--microbatches", type=counts, metavar="N,...",
        help="a case for each number of microbatches a step; "
        + ",".join(map(str, cases.MICROBATCHES)) + " by default")
    add("--cases", metavar="SHAPE:N,...",
        help="cases of the te rows in this order, in the place of --shapes "
        "and --microbatches; by default, in the order of importance: "
        + " ".join(cases.TE_CASES))
    add("--list", action="store_true",
        help="print the cases, and about how long the te rows take")
    add("--in-flight", type=at_least(1), default=1, metavar="N",
        help="forwards of torch's rows before the first backward, as in 1F1B; "
        "%(default)s by default")
    add("--turns", type=at_least(1), default=2, metavar="N",
        help="how often all rows run; %(default)s by default")
    add("--timed", type=at_least(2), metavar="N",
        help=f"steps timed in a turn; {cases.Steps.timed} by default, "
        f"{cases.QUICK_STEPS.timed} with --quick")
    add("--issued", type=at_least(2), metavar="N",
        help="steps whose host time is taken; "
        f"{cases.Steps.issued} by default, {cases.QUICK_STEPS.issued} with "
        "--quick")
    add("--quick", action="store_true",
        help="small shapes, few steps, one turn")
    add("--by-case", action="store_true",
        help="all rows of a case after each other, so that --budget leaves "
        "whole cases out")
    add("--merge", action="store_true", help="keep rows that are in OUTDIR")
    add("--resume", action="store_true",
        help="go on with what is in OUTDIR: run what no time was left for")
    add("--device", choices=("cuda", "cpu"), default="cuda",
        help="cpu: a look without a GPU, best with --quick; torch/eager, and "
        "torch/compile where it is named, and no targets")
    add("--prepare-limit", type=at_least(1), default=60, metavar="S",
        help="seconds a case may record or compile; %(default)s by default")
    add("--budget", type=at_least(0), default=0, metavar="S",
        help="seconds that all may take: what would not end within them is "
        "left out; 0, the default: no limit")
    add("--case-limit", type=at_least(1), default=150, metavar="S",
        help="seconds a case may take; %(default)s by default")
    add("--start-limit", type=at_least(1), default=180, metavar="S",
        help="seconds a process may import; %(default)s by default")
    add("--together", type=at_least(1), default=24, metavar="N",
        help="processes that import at a time; %(default)s by default")
    return parser


def parse(arguments: list[str]):
    options = make_parser().parse_args(arguments)
    shapes = cases.QUICK_SHAPES if options.quick else cases.SHAPES
    if options.device == "cpu":
        for name in ("merge", "resume"):
            if getattr(options, name):
                stop(f"--{name} is for results of a GPU, so not for --device "
                     "cpu")
        if options.rows is None:
            options.rows = ",".join(cases.ON_CPU_BY_DEFAULT)
    for name, rows in cases.SETS.items():
        if options.rows == name:
            options.rows = ",".join(rows)
    options.rows = chosen(options.rows, cases.ROWS, "row", cases.DEFAULT_ROWS)
    te = [row for row in options.rows if row in cases.TE_ROWS]
    if te and te != options.rows:
        stop("rows of te have shapes of their own: name them alone, --rows "
             "te")
    usual, shapes = shapes, shapes if options.quick \
        else {**shapes, **cases.LONG_SHAPES}
    if te:
        usual = shapes = cases.TE_KINDS
    elif options.cases:
        stop("--cases is for the te rows: add --rows te")
    names = chosen(options.shapes, shapes, "shape", usual)
    options.steps = cases.QUICK_STEPS if options.quick \
        else cases.TE_STEPS if te else cases.Steps()
    asked = {name: count for name in ("timed", "issued")
             if (count := getattr(options, name)) is not None}
    options.steps = dataclasses.replace(options.steps, **asked)
    if options.quick:
        options.turns = 1
    if te:
        return options, te_work(options, names)
    options.microbatches = options.microbatches or cases.MICROBATCHES
    work = [case for case in cases.cases(shapes, options.microbatches,
                                         options.in_flight)
            if case.shape in names]
    return options, work


def te_work(options, kinds: list) -> list:
    """Case by case, so that --budget leaves whole ones out."""
    options.by_case = True
    known = [f"{kind}:{count}" for kind in kinds
             for count in options.microbatches or ()]
    if not options.shapes and not options.microbatches:
        known = cases.TE_CASES
    elif not options.microbatches:
        known = [word for word in cases.TE_CASES
                 if word.split(":")[0] in kinds]
    words = options.cases.split(",") if options.cases else known
    for word in words:
        kind, _, count = word.partition(":")
        if kind not in cases.TE_KINDS or not count.isdecimal() \
                or int(count) < 1:
            stop(f"no case {word}; there are {', '.join(cases.TE_KINDS)}, "
                 "each with a number of microbatches, such as moe:4")
    return cases.te_cases(words)


def main() -> int:
    options, work = parse(sys.argv[1:])
    if options.list:
        print(listed(options, work))
        return 0
    try:
        os.makedirs(os.path.join(options.outdir, "logs"), exist_ok=True)
    except OSError as error:
        stop(f"{options.outdir} is no folder to write to: {error.strerror}")
    with tempfile.TemporaryDirectory(prefix="peers-") as inductor:
        env = environment(inductor)
        found = look(env)
        options.rows = able(options.rows, found, options.device)
        run(options, without_mamba(work, found), env)
    return report.finish(options.outdir)


if __name__ == "__main__":
    sys.exit(main())
