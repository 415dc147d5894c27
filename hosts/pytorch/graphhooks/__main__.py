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
from .session import KINDS, OPTIONS, Model, Session, services, variable_of


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


def env(_arguments: argparse.Namespace) -> int:
    """Each variable with what is set, then what the library says of it."""
    for option in OPTIONS:
        value = os.environ.get(variable_of(option))
        shown = f"={value}" if value else "  (not set)"
        print(f"{variable_of(option)}{shown}")

    # Read as any session's are; what else may be missing is for info to say.
    environment = dict(os.environ)
    environment.pop(variable_of("trace"), None)
    lent = services(log=lambda _level, line: print(line))
    with Model() as model:
        model.add_layer()
        try:
            Session(model, services=lent, environment=environment).close()
        except Error as error:
            if error.name == "GH_ERR_CONFIG":
                print(f"wrong: {error}")
                return 1
    return 0


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

    words = commands.add_parser("plan", help="what would be captured, and why")
    words.set_defaults(run=plan)
    words.add_argument("--layers", type=int, default=2)
    words.add_argument("--kind", choices=list(KINDS), default="dense")
    words.add_argument("--family")
    words.add_argument("--features", default="", help="with commas")
    words.add_argument("--experts", type=int, default=0)
    words.add_argument("--scope")
    words.add_argument("--granularity")
    words.add_argument("--json", action="store_true")
    return top


def main() -> int:
    arguments = parser().parse_args()
    try:
        status = arguments.run(arguments)
        sys.stdout.flush()
        return status
    except Error as error:
        print(f"graphhooks: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader has had enough; the interpreter is not to say so at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    sys.exit(main())
