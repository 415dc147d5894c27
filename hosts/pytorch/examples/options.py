"""The options of the examples, and what is said of wrong ones.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

# That of the checkout; where an example was copied to there is none.
HERE = Path(__file__).resolve().parent
TEXT = HERE.parent.parent / "engine/data/shakespeare.txt"
MODES = ("off", "part", "layer", "chunk", "eager")
DTYPES = ("fp32", "bf16", "fp16")


class Fault(Exception):
    """What the user can mend, in one sentence."""


class Help(argparse.ArgumentDefaultsHelpFormatter):
    """Says defaults, where there is something to say."""

    def _get_help_string(self, action):
        if action.default is None or action.default is False:
            return action.help
        return super()._get_help_string(action)


class Parser(argparse.ArgumentParser):
    """A wrong argument is answered with one sentence, without the usage."""

    def error(self, message: str):
        self.exit(2, f"{self.prog}: {message}\n")


def counts(text: str) -> list[int]:
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        numbers = [0]
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError(
            f"'{text}' is no list of numbers from 1 on, such as 4,6,8,3"
        )
    return numbers


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no number from 1 on")
    return int(text)


def number(text: str, zero: bool = True) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 <= value < math.inf) or (value == 0 and not zero):
        raise argparse.ArgumentTypeError(
            f"'{text}' is no number {'from 0 on' if zero else 'above 0'}"
        )
    return value


def above_zero(text: str) -> float:
    return number(text, zero=False)


def interval(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is no number from 0 on")
    return int(text)


def rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < 1.0:
        raise argparse.ArgumentTypeError(
            f"'{text}' is no rate from 0 to below 1"
        )
    return value


def mode_of(known):
    """A type of arguments."""
    def mode(text: str) -> str:
        if text not in known:
            raise argparse.ArgumentTypeError(
                f"'{text}' is no mode; there are {', '.join(known)}"
            )
        return text

    return mode


def modes_of(known):
    one = mode_of(known)

    def modes(text: str) -> list[str]:
        found = [one(word) for word in text.split(",")]
        if len(found) < 2:
            raise argparse.ArgumentTypeError(
                f"'{text}' is one mode; comparing takes two or more, "
                "such as off,layer"
            )
        return found

    return modes


mode, modes = mode_of(MODES), modes_of(MODES)


def make_parser(description: str, dtypes=DTYPES, modes=MODES) -> Parser:
    parser = Parser(description=description, formatter_class=Help)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--graphhooks", type=mode_of(modes), default="layer", metavar="MODE",
        help=f"one run: {', '.join(modes[:-1])} or {modes[-1]}",
    )  # fmt: skip
    which.add_argument(
        "--compare", type=modes_of(modes), metavar="MODES",
        help="runs from the same start, compared bit by bit: off,layer,chunk",
    )  # fmt: skip
    add = parser.add_argument
    add("--steps", type=positive, default=50, help="optimizer steps")
    add("--microbatches", type=counts, default="4", metavar="N,...",
        help="of a step; several numbers take turns")  # fmt: skip
    add("--in-flight", type=positive, default=1, metavar="N",
        help="forwards before the first backward, as in 1F1B")  # fmt: skip
    add("--dtype", choices=dtypes, default="bf16", help="of arithmetic")
    add("--dropout", type=rate, default=0.0, help="everywhere in the model")
    add("--layers", type=positive, default=12, help="of the stack")
    add("--hidden", type=positive, default=768, help="width of the model")
    add("--heads", type=positive, default=12, help="of attention")
    add("--sequence", type=positive, default=256, help="tokens of a sequence")
    add("--batch", type=positive, default=4, help="sequences of a microbatch")
    add("--rate", type=above_zero, default=1e-3, help="of learning")
    add("--clip", type=number, default=1.0, help="norm of gradients; 0: none")
    add("--seed", type=int, default=1, help="of weights, text and dropout")
    add("--text", type=Path, default=TEXT, metavar="FILE",
        help="what is learned, as bytes")  # fmt: skip
    add("--eval-every", type=interval, default=0, metavar="N",
        help="steps between losses on held-out text; 0: none")  # fmt: skip
    add("--offload", metavar="WHAT",
        help="what goes to the host's memory and back, in all modes but off: "
             "layer, or attn, mlp or both")  # fmt: skip
    add("--offload-fraction", default="1", metavar="F",
        help="the share of it")  # fmt: skip
    add("--offload-min-bytes", type=interval, default=1 << 20, metavar="N",
        help="smaller tensors stay")  # fmt: skip
    add("--json", type=Path, metavar="FILE", help="write all that is known")
    add("--plot", type=Path, metavar="PNG",
        help="draw the losses; needs matplotlib")  # fmt: skip
    add("--trace", metavar="PREFIX",
        help="write timelines of a late step for Perfetto")  # fmt: skip
    add("--apart", action="store_true",
        help="train each mode in a process of its own")  # fmt: skip
    add("--explain", action="store_true", help="say what was captured")
    return parser


def check(args) -> None:
    """What no single option can see."""
    if args.hidden % args.heads:
        raise Fault(
            f"--hidden {args.hidden} is not divisible by --heads {args.heads}"
        )
    if args.in_flight > 64:
        raise Fault(
            f"--in-flight {args.in_flight} is more than the 64 that can "
            "have graphs"
        )
    if "eager" in (args.compare or [args.graphhooks]) and not args.offload:
        raise Fault("eager is without graphs, for --offload: name off for a "
                    "training without either")
    most = max(args.microbatches)
    if args.in_flight > most:
        raise Fault(
            f"--in-flight {args.in_flight} is more than the {most} "
            "microbatches of a step; ask for fewer, or for more "
            "--microbatches"
        )
    check_files(args)


def check_files(args) -> None:
    """What is written at the end should not fail there."""
    if args.plot and args.plot.suffix.lower() != ".png":
        raise Fault(f"--plot {args.plot} does not end in .png")
    trace = Path(f"{args.trace or ''}x")  # with what comes behind a prefix
    for option, path in (
        ("--json", args.json), ("--plot", args.plot), ("--trace", trace),
    ):  # fmt: skip
        if path is not None and not path.parent.is_dir():
            raise Fault(f"{option}: there is no folder {path.parent}")
    for option, path in (("--json", args.json), ("--plot", args.plot)):
        if path is not None and path.is_dir():
            raise Fault(
                f"{option} {path} is a folder; name a file, such as "
                f"{path / ('x.json' if option == '--json' else 'x.png')}"
            )
    if args.plot:
        try:
            import matplotlib  # noqa: F401
        except ImportError as failure:
            raise Fault(
                f"--plot needs matplotlib ({failure}); pip install "
                "matplotlib, or leave --plot out"
            ) from None
