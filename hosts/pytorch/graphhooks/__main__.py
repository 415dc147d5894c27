"""python -m graphhooks info|demo|plan|env|checkpoint|restore

The package asks the library itself: the graphhooks command, which needs
jansson, is not carried in the wheel.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import time
from pathlib import Path

from . import __version__, _abi, _library, checkpoint
from .errors import Error
from .model import FEATURES, KINDS, Model
from .options import variable_of
from .services import host_services
from .session import Session
from .variables import MEANINGS

PREFIX = variable_of("")
ENGINE = "gh-engine"
MOST_LAYERS = 1000000  # as the graphhooks command
NO_FILE = (
    "a FILE that describes a model is read by the graphhooks command alone, "
    "which is built from source: graphhooks plan FILE"
)

_LIBRARY = (
    "a path",
    "none",
    "The libgraphhooks.so.0 to load; unset, the wheel's own, else the "
    "checkout's newest build, else the prefix's, else what the loader finds.",
)


def _say_driver(name: str) -> None:
    """Whether a session can be opened on it, whatever the environment says."""
    with Model() as model:
        model.add_layer()
        try:
            Session(model, driver=name, environment={}).close()
        except Error as error:
            print(f"{name:<9} not usable: {error}")
        else:
            print(f"{name:<9} usable")


def info(_arguments: argparse.Namespace) -> int:
    # Said also where there is no library to ask.
    print(f"package   {__version__}", flush=True)
    api = _library.load()
    major, minor = api.abi
    families = Path(api.path).parent / "graphhooks"
    names = [
        path.stem
        for path in sorted(families.glob("*.so"))
        if not path.stem.startswith("lib")
    ]
    print(f"library   {api.version}, ABI {major}.{minor}, {api.path}")
    print(f"families  {', '.join(names) or 'none beside the library'}")
    drivers = ["cuda", "soft"]
    chosen = os.environ.get(variable_of("driver"), "")
    if chosen and chosen not in drivers:
        drivers.append(chosen)
    for driver in drivers:
        _say_driver(driver)
    why = checkpoint.why_not()
    print(f"checkpoint {f'not usable: {why}' if why else 'usable'}")
    return 0


def pause(arguments: argparse.Namespace) -> int:
    return _timed(arguments.pid, checkpoint.pause, arguments.timeout)


def restore(arguments: argparse.Namespace) -> int:
    return _timed(arguments.pid, checkpoint.restore)


def _timed(pid: int, do, *options) -> int:
    begin = time.perf_counter()
    do(pid, *options)
    took = time.perf_counter() - begin
    print(f"process {pid} is {checkpoint.state(pid)}, after {took:.3f} s")
    return 0


def _engine(library: Path) -> str:
    """The gh-engine of the library's build, prefix or wheel, else of the
    package's wheel, else the one that is on the path."""
    here = Path(__file__).resolve().parent
    for top in (library.parent.parent, here):
        for path in (top / "bin" / ENGINE, top / ENGINE):
            if path.is_file():
                return str(path)
    found = shutil.which(ENGINE)
    if found is None:
        raise Error(
            f"{ENGINE}, which trains, is neither in {here / 'bin'} nor beside "
            f"{library} nor on the path; install a wheel, which carries it, "
            "or Debian's graphhooks-tools, or build it from source: make",
            _abi.GH_ERR_NOT_FOUND,
        )
    return found


def demo(arguments: argparse.Namespace) -> int:
    """Becomes the engine, which by default trains a small GPT eagerly and
    with graphs: on a GPU where there is one, else on the software device."""
    library = _library.load().path
    engine = _engine(Path(library))
    sys.stdout.flush()
    # Which Python ignores: a reader that has had enough is to end the engine.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execv(engine, [engine, "--library", library, *arguments.rest])
    except OSError as error:
        raise Error(
            f"{engine} cannot run: {error.strerror}; install the wheel anew, "
            "by pip",
            _abi.GH_ERR_NOT_FOUND,
        ) from None


def plan(arguments: argparse.Namespace) -> int:
    """What a stack of equal layers would be planned as; needs no device."""
    if arguments.file is not None:
        raise Error(f"{arguments.file} is not read: {NO_FILE}")
    options = {
        "scope": arguments.scope,
        "granularity": arguments.granularity,
    }
    # No pass is run, so the driver is not asked for.
    environment = {**os.environ, variable_of("enable"): "0"}
    environment.pop(variable_of("trace"), None)
    with Model() as model:
        for _ in range(arguments.layers):
            model.add_layer(
                arguments.kind,
                family=arguments.family,
                features=arguments.features,
                experts=arguments.experts,
            )
        with Session(model, environment=environment, **options) as session:
            if arguments.json:
                print(session._print(1).rstrip("\n"))
            else:
                print(session.explain().rstrip("\n"))
    return 0


def _shown(value: str, most: int = 79) -> str:
    """A value comes from outside: cut short, and on one line."""
    clean = "".join(c if c.isprintable() else "?" for c in value)
    return clean if len(clean) <= most else clean[: most - 3] + "..."


def _print_variable(name: str, texts: tuple, wrong: str) -> None:
    values, default, meaning = texts
    value = os.environ.get(name)
    if value:
        print(f"{name}={_shown(value)}  (set)")
    else:
        print(f"{name}={'' if default in ('all', 'none') else default}")
    if wrong:
        print(f"    wrong: {wrong}")
    print(f"    {meaning}\n    {values}; default {default}\n")


def _try(name: str, lines: list) -> str:
    """What is wrong with one variable, alone, so that none hides another.

    A model without layers is refused only after the variables were read,
    and before anything is opened: no driver is loaded, no trace written.
    """
    lent = host_services(log=lambda _level, line: lines.append(line))
    alone = {name: os.environ[name]}
    with Model() as model:
        try:
            Session(model, services=lent, environment=alone)
        except Error as error:
            if error.name == "GH_ERR_CONFIG":
                return str(error)
    return ""


def env(_arguments: argparse.Namespace) -> int:
    """Each variable, what is set, and what the library says of it."""
    missing = None
    wrong: dict = {}
    lines: list = []
    try:
        _library.load()
        for name in os.environ:
            if name.startswith(PREFIX):
                wrong[name] = _try(name, lines)
    except Error as error:
        missing = error
    for option, texts in MEANINGS.items():
        name = variable_of(option)
        _print_variable(name, texts, wrong.get(name, ""))
    _print_variable(_library.VARIABLE, _LIBRARY, "")
    for line in lines:
        print(f"note: {line}")
    if missing is not None:
        print("note: without the library, no value was looked at")
        raise missing
    return 1 if any(wrong.values()) else 0


def _layers(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= number <= MOST_LAYERS:
        raise argparse.ArgumentTypeError(
            f"{text} is no number from 1 to {MOST_LAYERS}"
        )
    return number


def _add_plan(commands) -> None:
    words = commands.add_parser(
        "plan",
        help="what would be captured, and why",
        description="What would be captured of a stack of equal layers, and "
        f"why; {NO_FILE}.",
    )
    words.set_defaults(run=plan)
    words.add_argument("file", metavar="FILE", nargs="?",
                       help=argparse.SUPPRESS)  # fmt: skip
    add = words.add_argument
    add("--layers", type=_layers, default=2, metavar="N",
        help="how many there are; default 2")  # fmt: skip
    add("--kind", choices=list(KINDS), default="dense",
        help="what one is made of; default dense")  # fmt: skip
    add("--family", metavar="NAME",
        help="the plugin that knows its parts, as in gpt")  # fmt: skip
    add("--features", default="", metavar="LIST",
        help=f"with commas, of {', '.join(FEATURES)}")  # fmt: skip
    add("--experts", type=int, default=0, metavar="N",
        help="of the whole model, for a kind that has them")  # fmt: skip
    for option in ("scope", "granularity"):
        values, default, meaning = MEANINGS[option]
        add(f"--{option}", metavar=option.upper(),
            help=f"{meaning} {values}; default {default}")  # fmt: skip
    add("--json", action="store_true", help="the plan for programs")


def _add_checkpoint(commands) -> None:
    """For whom runs them beside a training: doc/memory.md."""
    words = commands.add_parser(
        "checkpoint",
        help="take a process off its GPUs",
        description="Copies what a process has on its GPUs to the host's "
        "memory, and lets go of the GPUs, by the CUDA driver's own "
        "checkpoint; call attached.suspend() there first.",
    )
    words.set_defaults(run=pause)
    words.add_argument("--timeout", type=float, default=60,
                       metavar="SECONDS",
                       help="for work of the GPUs to end; default 60")
    again = commands.add_parser(
        "restore",
        help="put a process back on its GPUs",
        description="Gives a process that was checkpointed its GPUs and all "
        "their memory back, and lets it go on.",
    )
    again.set_defaults(run=restore)
    for command in words, again:
        command.add_argument("pid", type=int, metavar="PID",
                             help="the number of the process")


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m graphhooks")
    top.add_argument("--version", action="version", version=__version__)
    commands = top.add_subparsers(dest="command", required=True)
    commands.add_parser(
        "info", help="versions, the library, the drivers"
    ).set_defaults(run=info)
    commands.add_parser(
        "demo", add_help=False,
        help="train a small GPT eagerly and with graphs, and compare; takes "
        f"the options of {ENGINE}",
    ).set_defaults(run=demo)  # fmt: skip
    commands.add_parser(
        "env", help="the variables, and whether they are right"
    ).set_defaults(run=env)

    _add_plan(commands)
    _add_checkpoint(commands)
    return top


def main() -> int:
    top = parser()
    arguments, arguments.rest = top.parse_known_args()
    if arguments.rest and arguments.run is not demo:
        top.error(f"unrecognized arguments: {' '.join(arguments.rest)}")
    try:
        status = arguments.run(arguments)
        sys.stdout.flush()
        return status
    except Error as error:
        sys.stdout.flush()
        print(f"graphhooks: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader has had enough; the interpreter is not to say so at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    sys.exit(main())
