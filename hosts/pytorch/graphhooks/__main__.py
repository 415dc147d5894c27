"""python -m graphhooks info|plan|env

The package asks the library itself: the graphhooks command, which needs
jansson, is not carried in the wheel.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from . import __version__, _library
from .errors import Error
from .model import FEATURES, KINDS, Model
from .options import variable_of
from .services import host_services
from .session import Session

PREFIX = variable_of("")
MOST_LAYERS = 1000000  # as the graphhooks command
NO_FILE = (
    "a FILE that describes a model is read by the graphhooks command alone, "
    "which is built from source: graphhooks plan FILE"
)

# What each variable is for; the library tells nobody, so this is README's
# table, which a test holds it to: values, default, meaning.
MEANINGS = {
    "enable": (
        "0 or 1",
        "1",
        "Record and replay graphs. 0: every pass runs eagerly, and a "
        "session opens without a driver.",
    ),
    "scope": (
        "one or more, with commas, of attn, mlp, moe, moe_router, "
        "moe_preprocess, mamba",
        "all",
        "The parts of a layer that may be captured; unset: whole layers.",
    ),
    "granularity": (
        "part or layer or chunk",
        "layer",
        "How far one graph may reach.",
    ),
    "warmup_steps": (
        "a number from 0 to 1000000",
        "1",
        "Steps run eagerly before the first recording.",
    ),
    "max_slots": (
        "a number from 1 to 64",
        "8",
        "Microbatches in flight that get graphs of their own.",
    ),
    "max_banks": (
        "a number from 1 to 1024",
        "16",
        "The most banks that have graphs at the same time; one more evicts "
        "the least recently used.",
    ),
    "driver": (
        "cuda or soft or a path with a /",
        "cuda",
        "The driver: CUDA's, the software device's, or the path of one.",
    ),
    "log": (
        "off or warn or info or debug",
        "warn",
        "What is logged. warn: what costs performance; info: also what was "
        "decided; debug: also every recording.",
    ),
    "trace": (
        "a path",
        "none",
        "Write a timeline here for Perfetto and chrome://tracing; %p "
        "becomes the process id.",
    ),
    "check": (
        "off or bitwise or ranks",
        "off",
        "bitwise: run each recorded pass eagerly too, and compare every "
        "byte of the outputs. ranks: compare what the ranks of a bank "
        "decide, at each pass.",
    ),
    "check_every": (
        "a number from 1 to 1000000",
        "1",
        "With CHECK: compare only every n-th recorded pass.",
    ),
    "verify": (
        "off or auto or always",
        "auto",
        "With PyTorch: run some replayed passes eagerly too, and compare "
        "every bit. auto: at growing distances, for at most 1 % of the time; "
        "always: each.",
    ),
    "nccl": (
        "nccl or soft or a path with a /",
        "nccl",
        "The NCCL that the host has loaded: libnccl.so.2, the software "
        "device's, or the path of one.",
    ),
    "timeout": (
        "a number from 1 to 86400",
        "60",
        "How many seconds a rank waits for other ranks before it gives up.",
    ),
    "freeze": (
        "a number from 0 to 1000000",
        "0",
        "Refuse new recordings from the n-th step after warmup on; 0: "
        "never.",
    ),
    "plugin_path": (
        "directories separated by colons",
        "none",
        "Directories that are searched for a model family's NAME.so before "
        "those of the library.",
    ),
    "offload": (
        "names separated by commas",
        "none",
        "Modules whose activations are copied to the host's memory and "
        "back; unset: none.",
    ),
    "offload_fraction": (
        "a number from 0 to 1, or auto",
        "1",
        "The share of the groups that is offloaded; the latest groups stay."
        " auto: the groups whose copies hide behind compute, by the times "
        "of a step.",
    ),
    "offload_min_bytes": (
        "a number of bytes",
        "1048576",
        "Tensors smaller than this stay on the device.",
    ),
    "offload_buffers": (
        "a number from 2 to 8",
        "2",
        "Device buffers in each ring; the groups of a module take them in "
        "turn.",
    ),
    "offload_pool_bytes": (
        "a number of bytes",
        "0",
        "The most pinned memory; 0: no limit. A group that finds none stays"
        " on the device.",
    ),
    "offload_keep_bytes": (
        "a number of bytes",
        "0",
        "This times the pipeline rank, so many bytes of the earliest groups "
        "of a chunk stay on the device.",
    ),
    "offload_prefetch": (
        "a number from 0 to 16",
        "0",
        "How many groups come back ahead of the one that is needed; 0: as "
        "many as the rings hold or, with FRACTION auto, what the measured "
        "times suggest.",
    ),
    "offload_in_flight": (
        "a number from 0 to 64",
        "0",
        "The most copies out of a ring that may be under way; one more "
        "makes the stream wait for the oldest. 0: no limit.",
    ),
    "offload_delay": (
        "0 or 1",
        "0",
        "1: copies start in gh_flush_delayed, in the gap after a launch.",
    ),
    "offload_apart": (
        "0 or 1",
        "0",
        "1: with OFFLOAD_DELAY, copies to the host begin when an exchange of "
        "gh_overlap_run has ended, not beside it.",
    ),
    "overlap": (
        "off or fixed or auto",
        "fixed",
        "The order of nodes in gh_overlap_run: off, one chunk after the "
        "other; fixed, the published one; auto, the best by measured times.",
    ),
    "ep_exchange": (
        "auto or nccl or copy or kernel",
        "auto",
        "How an exchange of tokens moves bytes: nccl; copy, by copies into "
        "the peers' memory; kernel, by a kernel that writes there; auto, copy "
        "where all ranks reach each other, and kernel for small parts where "
        "nothing runs beside.",
    ),
    "ep_exchange_small": (
        "a number of bytes, or measure",
        "4194304",
        "With EP_EXCHANGE auto: the largest part of an exchange that goes by "
        "the kernel where nothing runs beside; 0: none does. measure: what "
        "some milliseconds of exchanges say when one is made.",
    ),
}
_LIBRARY = (
    "a path",
    "none",
    "The libgraphhooks.so.0 to load; unset, the wheel's own, else the "
    "checkout's newest build, else what the loader finds.",
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
    return 0


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


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m graphhooks")
    top.add_argument("--version", action="version", version=__version__)
    commands = top.add_subparsers(dest="command", required=True)
    commands.add_parser(
        "info", help="versions, the library, the drivers"
    ).set_defaults(run=info)
    commands.add_parser(
        "env", help="the variables, and whether they are right"
    ).set_defaults(run=env)

    _add_plan(commands)
    return top


def main() -> int:
    arguments = parser().parse_args()
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
