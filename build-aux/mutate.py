#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mutate.py - breaks functions by rule, and says which break no test notices.

    build-aux/mutate.py [--seed N] [--most N] [--list] [ROOM...]

A ROOM is a folder of sources, or one source; without one, each folder of
lib/, softcuda and softnccl.  The rules below find places to break in its
functions; --most (40; 0: all) of them are taken in each room, as --seed (1)
draws them.  --list prints those, and breaks nothing.

The tree is copied, without a build, so it may be edited meanwhile, and built
there twice: with gcov in the rooms, which tells the lines that each program of
make check reaches, and without, which tells the time that it takes.  Each break
is then compiled without gcov, whose counters slow down what forks, and the
programs that reach its line run, the fastest first, until one fails.  A break
that none notices is printed with its place and the difference, and at the end a
line for each room; one that the compiler makes the same code of is none:

    ROOM: N of M noticed (P %), N survived, N where no program comes

    SCRATCH=DIR  work there and leave it, so that the next run builds little;
                 by default a new folder, removed at the end
    JOBS=N       make's jobs (every core)
    LIMIT=N      seconds after which no more programs begin for one break (60).
                 One that takes 10 s, and ten times what it took before, hangs:
                 that is noticed
    SLOW=N       a program that takes more seconds than this is left out (5)
    CONFIGURE=   options for configure: --enable-sanitizer sees leaks
"""

import argparse
import difflib
import filecmp
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

TOP = pathlib.Path(__file__).resolve().parent.parent
# What programs load at run time; the rest is linked into those that run.
SHARED = ["libgraphhooks.la", "libgraphhooks-softcuda.la", "libsoftnccl.la"]


def die(words):
    sys.exit(f"mutate.py: {words}")


# ---- the rules -------------------------------------------------------------

class Break(NamedTuple):
    """Puts `new` in the place of what is from `begin` to `end`."""

    path: str
    line: int
    begin: int
    end: int
    new: str
    rule: str

    def applied(self, text):
        return text[:self.begin] + self.new + text[self.end:]


SWAPS = [(re.compile(pattern), new, rule) for pattern, new, rule in [
    (r"(?<= )&&(?=\s)", "||", "and becomes or"),
    (r"(?<= )\|\|(?=\s)", "&&", "or becomes and"),
    (r"(?<= )<(?= )", "<=", "a bound moves"),
    (r"(?<= )<=(?= )", "<", "a bound moves"),
    (r"(?<= )>(?= )", ">=", "a bound moves"),
    (r"(?<= )>=(?= )", ">", "a bound moves"),
    (r"(?<= )==(?=\s)", "!=", "equal becomes different"),
    (r"(?<= )!=(?=\s)", "==", "different becomes equal"),
    (r"(?<= )\+(?=\s)", "-", "a sum becomes a difference"),
    (r"(?<= )-(?=\s)", "+", "a difference becomes a sum"),
    (r"(?<![\w.{])(?<!\{ )0(?![\w.])", "1", "0 becomes 1"),
    (r"(?<![\w.])1(?![\w.])", "0", "1 becomes 0"),
    (r"\btrue\b", "false", "true becomes false"),
    (r"\bfalse\b", "true", "false becomes true"),
]]
# Not code: comments, strings, and lines of the preprocessor.
NO_CODE = re.compile(r"/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'"
                     r"|(?:^|(?<=\n))[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.S)
FUNCTION = re.compile(r"^(\w[^;{}]*\))\n\{\n(.*?)^\}", re.S | re.M)
CONDITION = re.compile(r"\b(if|while) (?=\()")
# A call or a change of something: no declaration, and no word of control.
STATEMENT = re.compile(r"(?<=[;{}:])\s*\n\s+"
                       r"(\*?[a-z_][\w.>\[\]()-]*(?:\(| [-+*|&]?= |\+\+;|--;)"
                       r"[^;{}]*;|\*?[a-z_][\w.>\[\]-]*(?:\+\+|--);)")
# What begins as a number, and a member of a struct that is set by its name.
VALUE = re.compile(r"(?<=[;{}:])\s*\n\s+(?:const )?\w+ \w+ = ([^;{}]+);")
MEMBER = re.compile(r"\n\s+(\.\w+ = [^;{},]+,)\n")
RETURN = re.compile(r"\breturn ([^;]+);")
SMALL = {"0", "1", "true", "false"}
# Of two that are equal it is the same which is taken.
TIE = re.compile(r"(?P<a>(?:\(\w+\))?[\w.>\[\]-]+) [<>]=? "
                 r"(?P<b>(?:\(\w+\))?[\w.>\[\]-]+)\s*\?\s*"
                 r"(?:(?P=a)\s*:\s*(?P=b)|(?P=b)\s*:\s*(?P=a))(?![\w.(\[])")


def closing(code, begin):
    """Where the parenthesis at `begin` closes."""
    depth = 0
    for at in range(begin, len(code)):
        depth += (code[at] == "(") - (code[at] == ")")
        if depth == 0:
            return at
    return len(code)


def breaks_of(path, text):
    """All breaks of a source."""
    def blank(found):
        return re.sub(r"[^\n]", " ", found[0])

    code = NO_CODE.sub(blank, text)
    found = []

    def put(begin, end, new, rule):
        new += "\n" * text.count("\n", begin, end)
        found.append(Break(path, 1 + text.count("\n", 0, begin), begin, end,
                           new, rule))

    for function in FUNCTION.finditer(code):
        begin, end = function.span(2)
        if re.match(r"(?:static )?(?:inline )?void \w", function[1]):
            put(begin, begin, "    return; ", "it returns at once")
        ties = [at.span() for at in TIE.finditer(code, begin, end)]
        for pattern, new, rule in SWAPS:
            for at in pattern.finditer(code, begin, end):
                if rule != "a bound moves" or not any(
                        a <= at.start() < b for a, b in ties):
                    put(*at.span(), new, rule)
        for at in CONDITION.finditer(code, begin, end):
            close = closing(code, at.end())
            whole = text[at.end():close + 1]
            put(at.end(), close + 1, f"(!{whole})" if at[1] == "if" else
                f"(0 && {whole})", f"{at[1]} does not hold when it did")
        for at in STATEMENT.finditer(code, begin - 2, end):
            put(*at.span(1), ";", "a statement is gone")
        for at in VALUE.finditer(code, begin - 2, end):
            if at[1] not in SMALL | {"NULL", "GH_OK"}:
                put(*at.span(1), "0", "a value is zero")
        for at in MEMBER.finditer(code, begin, end):
            put(*at.span(1), "", "a member is not set")
        for at in RETURN.finditer(code, begin, end):
            if at[1] not in SMALL | {"NULL"}:
                put(*at.span(1), "-1" if at[1] == "GH_OK" else "0",
                    "another value returns")
    return sorted(set(found), key=lambda b: (b.begin, b.end, b.new))


def sources_of(tree, room):
    whole = tree / room
    if whole.is_file():
        return [whole]
    return sorted(p for p in whole.rglob("*.[ch]"))


def drawn(tree, room, seed, most):
    """The breaks to try of a room, in the order of its sources."""
    found = [b for path in sources_of(tree, room)
             for b in breaks_of(str(path.relative_to(tree)), path.read_text())]
    if not found:
        die(f"{room}: it has no function to break")
    if most and len(found) > most:
        found = random.Random(f"{seed} {room}").sample(found, most)
    return sorted(found)


# ---- the build -------------------------------------------------------------

# How often as long a program may take that counts lines.
COUNTING = 20


class Build:
    """A copy of the tree, what is built of it, and what each program reaches."""

    def __init__(self, scratch):
        self.tree, self.folder = scratch / "tree", scratch / "build"
        self.counting = scratch / "counting"  # the build with gcov
        self.jobs = os.environ.get("JOBS", str(os.cpu_count()))
        self.seconds = {}  # of each program
        self.reached = {}  # the programs that reach each source and line
        self.environment = {
            **{name: value for name, value in os.environ.items()
               if not name.startswith("GRAPHHOOKS_")},
            "srcdir": str(self.tree),
            "GRAPHHOOKS_TEST_SEEDS": "3", "OMP_NUM_THREADS": "1"}

    def call(self, *words, folder=None):
        done = subprocess.run(words, cwd=folder or self.folder, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True)
        return done.returncode == 0, done.stdout + done.stderr

    def must(self, *words, folder=None):
        good, said = self.call(*words, folder=folder)
        if not good:
            die(f"{' '.join(words)}: {said[-2000:]}")
        return said

    def make(self, *targets):
        return self.call("make", "-s", f"-j{self.jobs}", *targets)[0]

    def prepare(self, rooms):
        for folder in (self.folder, self.counting):
            folder.mkdir(parents=True, exist_ok=True)
        names = self.must("git", "ls-files", "-co", "--exclude-standard",
                          folder=TOP).splitlines()
        for name in names:
            old, new = TOP / name, self.tree / name
            if old.is_file() and not (
                    new.is_file() and filecmp.cmp(old, new, shallow=False)):
                new.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(old, new)
        if not (self.tree / "configure").exists():
            self.must("autoreconf", "-fi", folder=self.tree)
        for folder, flags in ((self.folder, ["CFLAGS=-O1"]),
                              (self.counting, ["CFLAGS=-O0",
                                               "LDFLAGS=--coverage"])):
            if not (folder / "Makefile").exists():
                self.must(str(self.tree / "configure"), "-q", *flags,
                          *os.environ.get("CONFIGURE", "").split(),
                          folder=folder)
            self.must("make", "-s", f"-j{self.jobs}", "build-tests",
                      folder=folder)
        # Each process writes the counters of each source, so that no others
        # have any.
        for folder in {self.counting / self.folder_of(room) for room in rooms}:
            for path in [*folder.rglob("*.lo"), *folder.rglob("*.o")]:
                path.unlink()
        self.must("make", "-s", f"-j{self.jobs}", "CFLAGS=-O0 --coverage",
                  "build-tests", folder=self.counting)
        self.sound = {room: self.objects(self.folder_of(room))
                      for room in rooms}

    def objects(self, folder):
        return {path: path.read_bytes()
                for path in (self.folder / folder).rglob("*.o")}

    def folder_of(self, room):
        return room if (self.tree / room).is_dir() else os.path.dirname(room)

    def passes(self, program, limit, folder=None):
        """Whether a program does, in that time."""
        folder = folder or self.folder
        with subprocess.Popen(
                [folder / program], cwd=folder,
                env={**self.environment, "builddir": str(folder),
                     "LD_LIBRARY_PATH": str(folder / ".libs")},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True) as running:
            try:
                return running.wait(timeout=limit) in (0, 77)
            except subprocess.TimeoutExpired:
                return False
            finally:
                try:
                    os.killpg(running.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def counted(self, rooms):
        """The sources of the rooms and the lines of them that have run."""
        data = [p for room in rooms
                for p in (self.counting / self.folder_of(room)).rglob(
                    "*.gcda")]
        if not data:
            return set()
        _, said = self.call("gcov", "--json-format", "--stdout",
                            *map(str, data), folder=self.counting)
        lines = set()
        for line in said.splitlines():
            if not line.startswith("{"):
                continue
            for file in json.loads(line)["files"]:
                path = os.path.relpath(
                    os.path.join(self.counting, file["file"]), self.tree)
                for at in file["lines"]:
                    self.lines.setdefault(path, set()).add(at["line_number"])
                    if at["count"]:
                        lines.add((path, at["line_number"]))
        return lines

    def look(self, rooms):
        """Runs each program once in each build."""
        slow = float(os.environ.get("SLOW", "5"))
        self.lines = {}
        for program in self.must("make", "-s", "print-programs").split():
            for path in self.counting.rglob("*.gcda"):
                path.unlink()
            begin = time.monotonic()
            if not self.passes(program, slow):
                print(f"left out: {program}: it fails, or takes more than"
                      f" {slow:g} s")
                continue
            self.seconds[program] = time.monotonic() - begin
            # What it reaches in time counts, whether it passes or not.
            self.passes(program, COUNTING * slow, self.counting)
            for at in self.counted(rooms):
                self.reached.setdefault(at, []).append(program)

    def programs(self, path, line):
        """Those that reach a line, or else the statement that it is part of."""
        before = [n for n in self.lines.get(path, ()) if n <= line]
        if path.endswith(".h"):  # other rooms run what it has too
            room = os.path.dirname(path)
            found = {program for at, programs in self.reached.items()
                     if os.path.dirname(at[0]) == room for program in programs}
        else:
            found = self.reached.get((path, max(before)), []) if before else []
        return sorted(found, key=self.seconds.get)

    def notices(self, program):
        # What loads the library has a script of libtool's in its place; what
        # has the library inside is linked again.
        loads = (self.folder / program).parent / ".libs" / \
            os.path.basename(program)
        if not loads.exists() and not self.make(program):
            return True
        return not self.passes(program, max(10, 10 * self.seconds[program]))

    def verdict(self, room, one, text):
        """What becomes of a break: a word, and the program that noticed."""
        programs = self.programs(one.path, one.line)
        if not programs:
            return "unreached", ""
        file = self.tree / one.path
        try:
            file.write_text(one.applied(text))
            if not self.make(*SHARED):
                return "refused", ""
            # A header is in objects of other rooms too.
            if one.path.endswith(".c") and \
                    self.objects(self.folder_of(room)) == self.sound[room]:
                return "the same", ""
            ends = time.monotonic() + float(os.environ.get("LIMIT", "60"))
            for program in programs:
                if time.monotonic() >= ends:
                    break
                if self.notices(program):
                    return "noticed", program
            return "survived", ""
        finally:
            file.write_text(text)


# ---- main ------------------------------------------------------------------

def difference(one, text):
    lines = difflib.unified_diff(text.splitlines(),
                                 one.applied(text).splitlines(), n=0,
                                 lineterm="")
    return "\n".join("    " + line for line in list(lines)[3:])


def try_room(build, room, tried):
    counts = dict.fromkeys(["noticed", "survived", "unreached", "refused",
                            "the same"], 0)
    for one in tried:
        text = (build.tree / one.path).read_text()
        word, program = build.verdict(room, one, text)
        counts[word] += 1
        print(f"{word}: {one.path}:{one.line}: {one.rule}"
              f"{' [' + program + ']' if program else ''}")
        if word in ("survived", "unreached"):
            print(difference(one, text), flush=True)
    n = len(tried) - counts["refused"] - counts["the same"]
    return (f"{room}: {counts['noticed']} of {n} noticed"
            f" ({100 * counts['noticed'] // max(n, 1)} %),"
            f" {counts['survived']} survived,"
            f" {counts['unreached']} where no program comes")


def all_rooms(tree):
    return sorted({str(p.parent.relative_to(tree))
                   for folder in ("lib", "softcuda", "softnccl")
                   for p in (tree / folder).rglob("*.c")})


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int, default=40)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("rooms", metavar="ROOM", nargs="*")
    options = parser.parse_args()
    rooms = [room.rstrip("/") for room in options.rooms] or all_rooms(TOP)

    if options.list:
        for room in rooms:
            for one in drawn(TOP, room, options.seed, options.most):
                print(f"{one.path}:{one.line}: {one.rule}")
                print(difference(one, (TOP / one.path).read_text()))
        return
    kept = os.environ.get("SCRATCH")
    scratch = pathlib.Path(kept or tempfile.mkdtemp()).absolute()
    try:
        build = Build(scratch)
        build.prepare(rooms)
        build.look(rooms)
        print("\n".join([
            "", *[try_room(build, room,
                           drawn(build.tree, room, options.seed, options.most))
                  for room in rooms]]))
    finally:
        if not kept:
            shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
