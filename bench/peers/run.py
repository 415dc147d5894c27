#!/usr/bin/env python3
"""run.py - graphhooks and its peers, side by side on one GPU.

    run.py OUTDIR [--rows torch/layer,...] [--shapes h1024s256,...] [--quick]

Every row runs in a process of its own.  All processes import what they need
at the beginning, and then have the device one at a time; all rows run once,
and then all of them again, so that a drift is seen.  OUTDIR gets a JSON file
for each case, table.md, and a log for each process.  With --merge, rows that
are there and not run now stay.

Exit status: 0, 1 when a target of bench/README.md is missed.

SPDX-License-Identifier: Apache-2.0
"""
from __future__ import annotations

import argparse
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


class Worker:
    """A process that has one row."""

    def __init__(self, row: str, turn: int, work: list, options, env: dict):
        self.row = row
        self.turn = turn
        self.work = work
        self.options = options
        self.env = env
        self.lines: queue.Queue = queue.Queue()
        self.log_path = os.path.join(
            options.outdir, "logs",
            f"{row.replace('/', '_')}.{turn}.{work[0].name}.log")
        with open(self.log_path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [sys.executable, os.path.join(HERE, "worker.py"), row,
                 "--cases", json.dumps([case.to_dict() for case in work]),
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
        self.outdir = options.outdir
        self.results = {}
        there = ({report.order(result): result
                  for result in report.read(options.outdir)}
                 if options.merge else {})
        for case in work:
            fresh = {"case": case.to_dict(), "machine": {}, "commands": [],
                     "steps": vars(options.steps), "rows": {}}
            result = there.get(report.order(fresh), fresh)
            result["commands"].append(command)
            for row in options.rows:
                result["rows"][row] = {"turns": []}
            self.results[case.name] = result

    def add(self, row: str, turn: int, case: str, said: dict):
        result = self.results[case]
        if "failed" in said:
            result["rows"][row]["failed"] = said["failed"]
        else:
            result["rows"][row]["turns"].append(
                {"turn": turn, **said["result"]})
            result["machine"].update(said["machine"])
        report.save(self.outdir, result)


def drive(worker: Worker, book: Book, started: float):
    """One process at the device, and another for what it leaves undone."""
    while True:
        left = list(worker.work)
        worker.go()
        while left:
            said = worker.next(worker.options.case_limit)
            book.add(worker.row, worker.turn, left[0].name, said)
            print(f"{time.monotonic() - started:6.1f} s  {worker.row}, turn "
                  f"{worker.turn}, {left[0].name}"
                  + (f": {said['failed']}" if "failed" in said else ""),
                  file=sys.stderr, flush=True)
            left.pop(0)
            if "failed" in said:
                break
        worker.end()
        if not left:
            return
        worker = Worker(worker.row, worker.turn, left, worker.options,
                        worker.env)
        if not ready(worker, book):
            return


def ready(worker: Worker, book: Book) -> bool:
    said = worker.next(worker.options.start_limit)
    if "ready" in said:
        return True
    for case in worker.work:
        book.add(worker.row, worker.turn, case.name, said)
    print(f"{worker.row}: {said['failed']}", file=sys.stderr)
    worker.end()
    return False


def jobs_of(options, work: list) -> list[tuple]:
    jobs = []
    for turn in range(options.turns):
        for row in options.rows:
            if turn and row in cases.ONE_TURN:
                continue
            apart = options.apart or row in cases.APART
            parts = [[case] for case in work] if apart else [work]
            jobs += [(row, turn, part) for part in parts]
    return jobs


def run(options, work: list, env: dict) -> Book:
    started = time.monotonic()
    book = Book(options, work, shlex.join(["bench/peers/run.py",
                                           *sys.argv[1:]]))
    jobs = jobs_of(options, work)
    while jobs:
        batch, jobs = jobs[:options.together], jobs[options.together:]
        workers = [Worker(*job, options, env) for job in batch]
        there = [worker for worker in workers if ready(worker, book)]
        for worker in there:
            if options.budget and time.monotonic() - started > options.budget:
                leave(worker, book)
            else:
                drive(worker, book, started)
    return book


def leave(worker: Worker, book: Book):
    """No time is left for it; what its turn before has said stays."""
    worker.end()
    said = f"left out: {worker.options.budget} s are over"
    for case in worker.work:
        book.add(worker.row, worker.turn, case.name, {"failed": said})


def chosen(text: str | None, known, what: str) -> list[str]:
    """Words of a list, or all."""
    if text is None:
        return list(known)
    words = [word for word in text.split(",") if word]
    for word in words:
        if word not in known:
            raise SystemExit(f"run.py: no {what} {word}; there are "
                             f"{', '.join(known)}")
    return words


def parse(arguments: list[str]):
    parser = argparse.ArgumentParser(
        prog="run.py", description="graphhooks and its peers on one GPU")
    parser.add_argument("outdir")
    parser.add_argument("--rows", help="BACKEND/ROW,...; all by default")
    parser.add_argument("--shapes", help="h1024s256,...; all by default")
    parser.add_argument("--microbatches", default="1,4")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--timed", type=int, help="steps timed in a turn")
    parser.add_argument("--quick", action="store_true",
                        help="small shapes, few steps, one turn")
    parser.add_argument("--apart", action="store_true",
                        help="a process for each case: memory to the byte")
    parser.add_argument("--merge", action="store_true",
                        help="keep rows that are in OUTDIR")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--prepare-limit", type=int, default=60,
                        help="seconds a case may record or compile")
    parser.add_argument("--budget", type=int, default=0,
                        help="seconds after which no row is started")
    parser.add_argument("--case-limit", type=int, default=150)
    parser.add_argument("--start-limit", type=int, default=180)
    parser.add_argument("--together", type=int, default=24,
                        help="processes that import at a time")
    options = parser.parse_args(arguments)
    shapes = cases.QUICK_SHAPES if options.quick else cases.SHAPES
    options.rows = chosen(options.rows, cases.ROWS, "row")
    names = chosen(options.shapes, shapes, "shape")
    options.steps = cases.QUICK_STEPS if options.quick else cases.Steps()
    if options.timed:
        options.steps = cases.dataclasses.replace(options.steps,
                                                  timed=options.timed)
    if options.quick:
        options.turns = 1
    counts = [int(count) for count in options.microbatches.split(",")]
    work = [case for case in cases.cases(shapes, counts)
            if case.shape in names]
    return options, work


def main() -> int:
    options, work = parse(sys.argv[1:])
    os.makedirs(os.path.join(options.outdir, "logs"), exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="peers-") as inductor:
        run(options, work, environment(inductor))
    return report.finish(options.outdir)


if __name__ == "__main__":
    sys.exit(main())
