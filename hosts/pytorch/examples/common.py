"""What the examples share: options, text, the training loop, a comparison.

An example hands over a Recipe (how its model is made, and its loss) and main()
does the rest.  The loop knows nothing of graphhooks but attach() and detach();
all else that is here measures and compares.

Equal to the bit is only to be had from kernels that give the same bits twice.
determine() asks torch for them; --compare off,off shows that it is enough.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import statistics
import sys
import time
import traceback
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
# From a checkout the examples also run without an installed package.
sys.path.append(str(HERE.parent))
TEXT = HERE.parents[1] / "engine" / "data" / "shakespeare.txt"

# Read when CUDA starts.  cuBLAS then has one workspace of one size on every
# stream, so that a recording's stream gives the bits of the eager one.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

try:
    import torch
except ImportError:
    sys.exit("torch is missing; pip install torch")

import report  # noqa: E402

MODES = ("off", "part", "layer", "chunk")
DTYPES = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
SETTLED = 3  # steps: one warms up, one records, one replays for the first time


class Fault(Exception):
    """What the user can mend, in one sentence."""


class Recipe:
    """What differs from example to example."""

    autocast = True  # or the model is of that dtype itself
    without_gpu = ""  # what can be done then

    def open(self, world) -> None:
        """Once, before the first run."""

    def build(self, args, device) -> torch.nn.Module:
        """The model, on the device, from the seed that has been set."""
        raise NotImplementedError

    def loss(self, model, tokens, targets) -> torch.Tensor:
        return model(tokens, targets)

    def seed(self, seed: int) -> None:
        """For what a training draws; the weights are there already."""
        torch.manual_seed(seed)

    def attach_options(self, mode: str) -> dict:
        return {"scope": "attn,mlp"} if mode == "part" else {}


# ---- options ---------------------------------------------------------------


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


def mode(text: str) -> str:
    if text not in MODES:
        raise argparse.ArgumentTypeError(
            f"'{text}' is no mode; there are {', '.join(MODES)}"
        )
    return text


def modes(text: str) -> list[str]:
    found = [mode(word) for word in text.split(",")]
    if len(found) < 2:
        raise argparse.ArgumentTypeError(
            f"'{text}' is one mode; comparing takes two or more, "
            "such as off,layer"
        )
    return found


def make_parser(description: str, dtypes=tuple(DTYPES)) -> Parser:
    parser = Parser(
        description=description,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--graphhooks", type=mode, default="layer", metavar="MODE",
        help="one run: off, part, layer or chunk",
    )  # fmt: skip
    which.add_argument(
        "--compare", type=modes, metavar="MODES",
        help="runs from the same start, compared bit by bit: off,layer,chunk",
    )  # fmt: skip
    add = parser.add_argument
    add("--steps", type=positive, default=50, help="optimizer steps")
    add("--microbatches", type=counts, default=[4], metavar="N,...",
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
    add("--rate", type=float, default=1e-3, help="of learning")
    add("--clip", type=float, default=1.0, help="norm of gradients; 0: none")
    add("--seed", type=int, default=1, help="of weights, text and dropout")
    add("--text", type=Path, default=TEXT, help="what is learned, as bytes")
    add("--eval-every", type=int, default=0, metavar="N",
        help="steps between losses on held-out text; 0: none")  # fmt: skip
    add("--json", type=Path, metavar="FILE", help="write all that is known")
    add("--plot", type=Path, metavar="PNG", help="draw the losses")
    add("--trace", metavar="PREFIX",
        help="write timelines of a late step for Perfetto")  # fmt: skip
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
    for path in (args.json, args.plot, Path(args.trace or "x")):
        if path is not None and not path.parent.is_dir():
            raise Fault(f"{path}: there is no folder {path.parent}")


# ---- where it runs ---------------------------------------------------------


class World:
    """This process among those of torchrun; alone without it."""

    def __init__(self, device: str, remedy: str):
        self.rank = int(os.environ.get("RANK", 0))
        self.size = int(os.environ.get("WORLD_SIZE", 1))
        if device == "cpu":
            self.device = torch.device("cpu")
        elif not torch.cuda.is_available():
            raise Fault("torch sees no GPU" + remedy)
        else:
            index = int(os.environ.get("LOCAL_RANK", 0))
            if index >= torch.cuda.device_count():
                raise Fault(
                    f"local rank {index} has no GPU of its own; this machine "
                    f"has {torch.cuda.device_count()}"
                )
            self.device = torch.device("cuda", index)
            torch.cuda.set_device(self.device)
        if self.size > 1:
            cuda = self.device.type == "cuda"
            torch.distributed.init_process_group(
                "nccl" if cuda else "gloo",
                device_id=self.device if cuda else None,
            )

    def gather(self, mine) -> list:
        """What each rank has, in their order."""
        if self.size == 1:
            return [mine]
        everyone = [None] * self.size
        torch.distributed.all_gather_object(everyone, mine)
        return everyone

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def close(self) -> None:
        sys.stdout.flush()
        if torch.distributed.is_initialized():
            if self.size > 1:
                torch.distributed.barrier()
            torch.distributed.destroy_process_group()


def determine() -> None:
    """Kernels that give the same bits each time.

    Attention is what needs it: the backwards of its flash and its memory
    saving kernel add up with atomics in any order, unless told not to, and
    cuDNN's is left out.  The sums of embeddings' gradients are sorted first.
    Where no such kernel exists torch raises an error, and does not guess.
    """
    torch.use_deterministic_algorithms(True)
    # It also fills what torch.empty() makes, for the sake of programs that
    # read it.  Nothing here does, and it would be a kernel for each tensor.
    torch.utils.deterministic.fill_uninitialized_memory = False


class Text:
    """Bytes to learn, and the last tenth to be judged by."""

    def __init__(self, args, world: World):
        try:
            data = args.text.read_bytes()
        except OSError as failure:
            raise Fault(f"--text {args.text}: {failure.strerror}") from None
        self.args, self.world = args, world
        self.window = args.sequence + 1
        split = len(data) * 9 // 10
        if len(data) - split < self.window:
            raise Fault(
                f"--text {args.text} holds out {len(data) - split} bytes, "
                f"fewer than the {self.window} of a sequence; take a longer "
                "text or a smaller --sequence"
            )
        values = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        self.train, self.held_out = values[:split], values[split:]

    def _batch(self, text, starts):
        at = starts[:, None] + torch.arange(self.window)
        both = text[at].long().to(self.world.device)
        return both[:, :-1].contiguous(), both[:, 1:].contiguous()

    def microbatches(self, step: int, count: int) -> list:
        """The same for each run; other ones for each step and rank."""
        generator = torch.Generator().manual_seed(
            (self.args.seed * self.world.size + self.world.rank) * 1_000_003
            + step
        )
        return [
            self._batch(self.train, torch.randint(
                len(self.train) - self.window + 1, (self.args.batch,),
                generator=generator))
            for _ in range(count)
        ]  # fmt: skip

    def judges(self) -> list:
        last = len(self.held_out) - self.window
        return [
            self._batch(self.held_out, starts)
            for starts in torch.linspace(0, last, 4 * self.args.batch)
            .long()
            .chunk(4)
        ]


# ---- one run ---------------------------------------------------------------


@dataclass
class Run:
    """One mode's training, and what it came to."""

    name: str
    mode: str
    losses: list = field(default_factory=list)  # of steps, of microbatches
    judged: list = field(default_factory=list)  # (step, loss on held-out text)
    weights: dict = field(default_factory=dict)  # as they ended
    step_ms: list = field(default_factory=list)
    host_ms: list = field(default_factory=list)
    traced: int = -1  # the step that a profiler slowed down
    peak_mib: float = 0.0  # what torch allocated
    device_mib: float = 0.0  # what the device gave, graphs included
    left_mib: float = 0.0  # what torch still held when all was freed
    stats: dict = field(default_factory=dict)
    explained: str = ""
    error: str = ""

    def median(self, times: list) -> float:
        settled = [
            t for i, t in enumerate(times) if i >= SETTLED and i != self.traced
        ]
        return statistics.median(settled or times or [0.0])

    def curve(self) -> list[float]:
        return [float(losses.double().mean()) for losses in self.losses]


class Training:
    """A model, its optimizer and its loop."""

    def __init__(self, args, world: World, recipe: Recipe):
        self.args, self.world, self.recipe = args, world, recipe
        device = world.device
        torch.manual_seed(args.seed)
        self.bare = self.model = recipe.build(args, device)
        if world.size > 1:
            cuda = device.type == "cuda"
            self.model = torch.nn.parallel.DistributedDataParallel(
                self.bare, device_ids=[device.index] if cuda else None
            )
        # The fused optimizer leaves a step with infinite gradients out on
        # the device; any other waits for the host to see them.
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=args.rate, betas=(0.9, 0.95),
            weight_decay=0.1, fused=device.type == "cuda",
        )  # fmt: skip
        self.scaler = torch.amp.GradScaler(
            device.type, enabled=args.dtype == "fp16"
        )
        recipe.seed(args.seed + 1 + world.rank)

    def _loss(self, tokens, targets):
        with torch.autocast(
            self.world.device.type, DTYPES[self.args.dtype],
            enabled=self.recipe.autocast and self.args.dtype != "fp32",
        ):  # fmt: skip
            return self.recipe.loss(self.model, tokens, targets)

    def _without_sync(self, last: bool):
        if self.world.size > 1 and not self.args.sync_every and not last:
            return self.model.no_sync()
        return contextlib.nullcontext()

    def step(self, batches) -> list:
        """One optimizer step; the loss of each microbatch, on the device."""
        losses, waiting = [], deque()

        def backward():
            loss = waiting.popleft() / len(batches)
            self.scaler.scale(loss).backward()

        for i, batch in enumerate(batches):
            last = i + 1 == len(batches)
            # DDP gets ready to add up gradients in the forward, and takes
            # any backward that follows for that forward's.
            alone = last and self.world.size > 1
            while len(waiting) >= (1 if alone else self.args.in_flight):
                backward()
            with self._without_sync(last):
                loss = self._loss(*batch)
            losses.append(loss.detach())
            waiting.append(loss)
        while waiting:
            backward()
        if self.args.clip:
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(
                self.model.parameters(), self.args.clip
            )
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return losses

    def judge(self, batches) -> float:
        ddp, self.model = self.model, self.bare
        self.model.eval()
        with torch.no_grad():
            losses = [self._loss(*batch) for batch in batches]
        self.model.train()
        self.model = ddp
        return float(torch.stack(losses).double().mean())


def attach(model, run: Run, args, world: World, recipe: Recipe):
    """The one line that a training run needs, and its options here."""
    import graphhooks

    options = recipe.attach_options(run.mode)
    if args.in_flight > 8:
        options["max_slots"] = args.in_flight
    if args.trace and world.rank == 0:
        options["trace"] = f"{args.trace}-{run.name}-graphhooks.json"
    return graphhooks.attach(model, granularity=run.mode, **options)


@contextlib.contextmanager
def profiled(path: str | None):
    """A timeline of what runs inside, if anywhere."""
    if path is None:
        yield
        return
    with torch.profiler.profile() as profiler:
        yield
    profiler.export_chrome_trace(path)


def loop(training: Training, run: Run, args, world: World, text: Text):
    traced = max(args.steps - 2, 0) if args.trace else -1
    run.traced = traced
    cuda = world.device.type == "cuda"
    judges = text.judges() if args.eval_every else []
    with report.Bar(run.name, args.steps, world.rank == 0) as bar:
        for step in range(args.steps):
            count = args.microbatches[step % len(args.microbatches)]
            batches = text.microbatches(step, count)
            world.synchronize()
            path = None
            if step == traced and world.rank == 0:
                path = f"{args.trace}-{run.name}.json"
            with profiled(path):
                start = time.perf_counter()
                losses = training.step(batches)
                issued = time.perf_counter()
                world.synchronize()
                end = time.perf_counter()
            run.host_ms.append(1e3 * (issued - start))
            run.step_ms.append(1e3 * (end - start))
            run.losses.append(torch.stack(losses).cpu())
            if args.eval_every and (step + 1) % args.eval_every == 0:
                run.judged.append((step + 1, training.judge(judges)))
            bar.advance(float(run.losses[-1].mean()))
    run.weights = {
        name: value.detach().to("cpu", copy=True)
        for name, value in training.bare.state_dict().items()
        if isinstance(value, torch.Tensor)
    }
    if cuda:
        free, total = torch.cuda.mem_get_info(world.device)
        run.peak_mib = torch.cuda.max_memory_allocated(world.device) / 2**20
        run.device_mib = (total - free) / 2**20


def train(run: Run, args, world: World, text: Text, recipe: Recipe) -> None:
    """Trains once, fills the run, and leaves the device as it was."""
    cuda = world.device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats(world.device)
    training = Training(args, world, recipe)
    attached = None
    try:
        if run.mode != "off":
            attached = attach(training.model, run, args, world, recipe)
        loop(training, run, args, world, text)
        if attached is not None:
            run.stats = attached.stats()
            run.explained = attached.explain()
    finally:
        if attached is not None:
            attached.detach()
        del training, attached
        gc.collect()
        if cuda:
            torch.cuda.empty_cache()
            run.left_mib = torch.cuda.memory_allocated(world.device) / 2**20


# ---- all of it -------------------------------------------------------------


def compared(runs: list[Run], world: World) -> bool:
    """Whether all runs of all ranks are those of the first, to the bit."""
    mine = [
        line
        for other in runs[1:]
        for line in report.differences(runs[0], other)
    ]
    everyone = world.gather(mine)
    if world.rank == 0:
        report.verdict(runs[0], everyone)
    return not any(everyone)


def run_all(args, world: World, recipe: Recipe) -> bool:
    text = Text(args, world)
    runs: list[Run] = []
    for name in args.compare or [args.graphhooks]:
        before = sum(run.mode == name for run in runs)
        runs.append(Run(f"{name}-{before + 1}" if before else name, name))
        try:
            train(runs[-1], args, world, text, recipe)
        except Fault:
            raise
        except Exception as failure:  # the other runs are still worth it
            if world.size > 1:
                raise  # the other ranks wait for this one
            traceback.print_exc()
            text_of = str(failure).strip() or type(failure).__name__
            runs[-1].error = text_of.splitlines()[0]
    if world.rank == 0:
        report.table(runs)
        if args.explain:
            report.explain(runs)
    equal = not any(run.error for run in runs)
    if args.compare:
        equal = compared(runs, world)
    if world.rank == 0:
        if args.json:
            report.write_json(args, world, runs, equal)
        if args.plot:
            report.plot(args, runs)
    return equal


def main(parser: Parser, recipe: Recipe, argv=None) -> int:
    args = parser.parse_args(argv)
    wanted = args.compare or [args.graphhooks]
    world = None
    try:
        check(args)
        if args.device == "cpu" and set(wanted) != {"off"}:
            raise Fault(
                "graphs need a GPU; --device cpu goes with --graphhooks off"
            )
        world = World(args.device, recipe.without_gpu)
        if args.sync_every and args.in_flight > 1 and world.size > 1:
            raise Fault(
                "--sync-every needs --in-flight 1: DDP adds up gradients "
                "right after the forward that it belongs to"
            )
        recipe.open(world)
        determine()
        return 0 if run_all(args, world, recipe) else 1
    except Fault as fault:
        print(f"{parser.prog}: {fault}", file=sys.stderr)
        return 2
    finally:
        if world is not None:
            world.close()
