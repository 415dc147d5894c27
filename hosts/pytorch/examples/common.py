"""What the examples share: options, text, the training loop, a comparison.

An example hands over a Recipe (how its model is made, and its loss) and main()
does the rest.  The loop knows nothing of graphhooks but attach() and detach();
all else that is here measures and compares.

Equal to the bit is only to be had from kernels that give the same bits twice.
determine() asks torch for them; --compare off,off shows that it is enough.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
import traceback
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
# From a checkout the examples also run without an installed package.
sys.path.append(str(HERE.parent))

# Read when CUDA starts.  cuBLAS then has one workspace of one size on every
# stream, so that a recording's stream gives the bits of the eager one.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

try:
    import torch
except ImportError:
    prog = Path(sys.argv[0]).name
    print(f"{prog}: torch is missing; pip install torch", file=sys.stderr)
    sys.exit(2)

import report  # noqa: E402
from options import Fault, Parser, check  # noqa: E402
from world import Text, World, determine  # noqa: E402

DTYPES = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
SETTLED = 3  # steps: one warms up, one records, one replays for the first time
FIRST = 8  # steps in which all is recorded


class Recipe:
    """What differs from example to example."""

    autocast = True  # or the model is of that dtype itself
    text = Text  # what is learned: a microbatch's arguments of loss()
    without_gpu = ""  # what can be done then
    shares = False  # ranks run one model together, on the same text

    def look(self, args) -> None:
        """Before all else: whether what the example needs is installed."""

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

    def training(self, args, world, run) -> "Training":
        """A model and its loop, before anything is captured."""
        return Training(args, world, self)

    def attach(self, training, run, args, world):
        """The one line that a training run needs, and its options here."""
        import graphhooks

        if run.mode == "eager":
            return graphhooks.attach(training.model, graphs=False,
                                     **options_of(run, args, world, self))
        return graphhooks.attach(training.model, granularity=run.mode,
                                 **options_of(run, args, world, self))

    def run(self, args, world, text) -> bool:
        """All of it; whether all is well."""
        return run_all(args, world, text, self)

    def determine(self) -> None:
        """Kernels that give the same bits each time."""
        determine()


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
    traced_shares: dict = field(default_factory=dict)  # of its time, in %
    peak_mib: float = 0.0  # what torch allocated
    device_mib: float = 0.0  # what the device gave, graphs included
    left_mib: float = 0.0  # what torch still held when all was freed
    recorded: list = field(default_factory=list)  # (step, recordings by then)
    memory: list = field(default_factory=list)  # MiB of kinds, at some steps
    stats: dict = field(default_factory=dict)
    explained: str = ""
    error: str = ""

    def median(self, times: list) -> float:
        settled = [
            t for i, t in enumerate(times) if i >= SETTLED and i != self.traced
        ]
        return statistics.median(settled or times or [0.0])

    def capture_s(self) -> float:
        """What the first steps took beyond as many microbatches of later
        ones: warming up, recording."""
        counts = [len(losses) for losses in self.losses]
        each = self.median([t / n for t, n in zip(self.step_ms, counts)])
        return sum(t - each * n for t, n in
                   zip(self.step_ms[:FIRST], counts)) / 1e3

    def curve(self) -> list[float]:
        return [float(losses.double().mean()) for losses in self.losses]


class Training:
    """A model, its optimizer and its loop."""

    def __init__(self, args, world: World, recipe: Recipe):
        self.args, self.world, self.recipe = args, world, recipe
        device = world.device
        torch.manual_seed(args.seed)
        self.bare = self.model = recipe.build(args, device)
        self.is_ddp = world.size > 1 and not recipe.shares
        if self.is_ddp:
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
        recipe.seed(args.seed + 1 + (0 if recipe.shares else world.rank))

    def _loss(self, *batch):
        with torch.autocast(
            self.world.device.type, DTYPES[self.args.dtype],
            enabled=self.recipe.autocast and self.args.dtype != "fp32",
        ):  # fmt: skip
            return self.recipe.loss(self.model, *batch)

    def _without_sync(self, last: bool):
        if self.is_ddp and not self.args.sync_every and not last:
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
            alone = last and self.is_ddp
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

    def state(self) -> dict:
        """What a training comes to."""
        return self.bare.state_dict()


def options_of(run: Run, args, world: World, recipe: Recipe) -> dict:
    """Those of attach()."""
    options = recipe.attach_options(run.mode)
    if args.in_flight > 8:
        options["max_slots"] = args.in_flight
    if args.trace and world.rank == 0:
        options["trace"] = f"{args.trace}-{run.name}-graphhooks.json"
    if hasattr(args, "max_banks"):
        options["max_banks"] = args.max_banks
    if args.offload:
        options["offload"] = args.offload
        options["offload_fraction"] = args.offload_fraction
        options["offload_min_bytes"] = args.offload_min_bytes
    return options


@contextlib.contextmanager
def profiled(path: str | None):
    """A timeline of what runs inside, if anywhere."""
    if path is None:
        yield
        return
    with torch.profiler.profile() as profiler:
        yield
    profiler.export_chrome_trace(path)


def timed(training, run: Run, batches, world: World, path=None) -> None:
    """A step and its times; path: of its timeline, if it gets one."""
    with profiled(path):
        start = time.perf_counter()
        losses = training.step(batches)
        issued = time.perf_counter()
        world.synchronize()
        end = time.perf_counter()
    run.host_ms.append(1e3 * (issued - start))
    run.step_ms.append(1e3 * (end - start))
    # Only the last stage of a pipeline has any.
    run.losses.append(torch.stack(losses).cpu() if losses
                      else torch.empty(0))


def alive() -> bool:
    """Whether the device still works: an error of a kernel stays, and so may
    a generator that takes a capture for unfinished."""
    try:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            torch.rand(1, device="cuda").item()
    except RuntimeError:
        return False
    return True


def ended(training, run: Run, world: World) -> None:
    """What a training has come to, before it goes."""
    run.weights = {
        name: value.detach().to("cpu", copy=True)
        for name, value in training.state().items()
        if isinstance(value, torch.Tensor)
    }
    if world.device.type == "cuda":
        free, total = torch.cuda.mem_get_info(world.device)
        run.peak_mib = torch.cuda.max_memory_allocated(world.device) / 2**20
        run.device_mib = (total - free) / 2**20


def loop(training: Training, run: Run, args, world: World, text: Text):
    traced = max(args.steps - 2, 0) if args.trace else -1
    run.traced = traced
    judges = text.judges() if args.eval_every else []
    with report.Bar(run.name, args.steps, world.rank == 0) as bar:
        for step in range(args.steps):
            count = args.microbatches[step % len(args.microbatches)]
            batches = text.microbatches(step, count)
            world.synchronize()
            path = None
            if step == traced and world.rank == 0:
                path = f"{args.trace}-{run.name}.json"
            timed(training, run, batches, world, path)
            if args.eval_every and (step + 1) % args.eval_every == 0:
                run.judged.append((step + 1, training.judge(judges)))
            bar.advance(float(run.losses[-1].mean()))
    ended(training, run, world)


def train(run: Run, args, world: World, text: Text, recipe: Recipe) -> None:
    """Trains once, fills the run, and leaves the device as it was."""
    cuda = world.device.type == "cuda"
    if cuda:
        gc.collect()  # a run that failed is still held by its traceback
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(world.device)
    training = recipe.training(args, world, run)
    attached = None
    try:
        if run.mode != "off":
            attached = recipe.attach(training, run, args, world)
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


# ---- in a process of its own ----------------------------------------------


def _in_child(run: Run, args, recipe: Recipe, path: str) -> None:
    world = World(args.device, recipe.without_gpu)
    try:
        recipe.open(world)
        recipe.determine()
        train(run, args, world, recipe.text(args, world), recipe)
        torch.save(vars(run), path)
    finally:
        world.close()


def train_apart(run: Run, args, recipe: Recipe) -> None:
    """Nothing that an engine keeps for ever is there from another mode."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run")
        child = multiprocessing.get_context("spawn").Process(
            target=_in_child, args=(run, args, recipe, path))
        child.start()
        child.join()
        if child.exitcode:
            raise RuntimeError(f"its process ended with {child.exitcode}; "
                               "what it said is above")
        vars(run).update(torch.load(path, weights_only=False))


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


def run_all(args, world: World, text: Text, recipe: Recipe) -> bool:
    runs: list[Run] = []
    for name in args.compare or [args.graphhooks]:
        before = sum(run.mode == name for run in runs)
        runs.append(Run(f"{name}-{before + 1}" if before else name, name))
        try:
            if args.apart:
                train_apart(runs[-1], args, recipe)
            else:
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


def need_gpu(args) -> None:
    if args.device == "cpu":
        raise Fault("graphs need a GPU; --device cpu goes with --graphhooks "
                    "off")


def main(parser: Parser, recipe: Recipe, argv=None) -> int:
    args = parser.parse_args(argv)
    wanted = args.compare or [args.graphhooks]
    world = None
    try:
        check(args)
        recipe.look(args)
        if set(wanted) != {"off"}:
            need_gpu(args)
        world = World(args.device, recipe.without_gpu)
        if args.sync_every and args.in_flight > 1 and world.size > 1:
            raise Fault(
                "--sync-every needs --in-flight 1: DDP adds up gradients "
                "right after the forward that it belongs to"
            )
        if args.apart and world.size > 1:
            raise Fault("--apart starts processes itself: leave torchrun out")
        text = recipe.text(args, world)
        if not args.apart:
            recipe.open(world)
        recipe.determine()
        return 0 if recipe.run(args, world, text) else 1
    except Fault as fault:
        print(f"{parser.prog}: {fault}", file=sys.stderr)
        return 2
    finally:
        if world is not None:
            world.close()
