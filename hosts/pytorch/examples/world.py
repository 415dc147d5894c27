"""Where an example runs, and on what text: processes, devices, bytes.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import os
import sys

import torch
from options import Fault


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
            if os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1":
                index %= torch.cuda.device_count()  # which ranks may share
            if index >= torch.cuda.device_count():
                raise Fault(
                    f"local rank {index} has no GPU of its own; this machine "
                    f"has {torch.cuda.device_count()}"
                )
            self.device = torch.device("cuda", index)
            torch.cuda.set_device(self.device)
        if self.size > 1:
            cuda = self.device.type == "cuda"
            # The store may still have what processes said that torchrun has
            # started before these.
            store, rank, size = next(torch.distributed.rendezvous("env://"))
            starts = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
            torch.distributed.init_process_group(
                "nccl" if cuda else "gloo", rank=rank, world_size=size,
                store=torch.distributed.PrefixStore(f"start {starts}", store),
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
    """Bytes to learn, and the last tenth to be judged by, which is to hold a
    sequence only where somebody asks for the loss on it."""

    def __init__(self, args, world: World, shared: bool = False):
        """`shared`: the same for all ranks."""
        try:
            data = args.text.read_bytes()
        except OSError as failure:
            raise Fault(
                f"no text is at {args.text} ({failure.strerror}); give one "
                "with --text FILE"
            ) from None
        self.args, self.world = args, world
        self.rank, self.ranks = (0, 1) if shared else (world.rank, world.size)
        self.window = args.sequence + 1
        split = len(data) * 9 // 10
        parts = {"has": split}
        if getattr(args, "eval_every", 0):
            parts["holds out"] = len(data) - split
        for has, size in parts.items():
            if size < self.window:
                raise Fault(
                    f"--text {args.text} {has} {size} bytes, fewer than the "
                    f"{self.window} of a sequence; take a longer text or a "
                    "smaller --sequence"
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
            (self.args.seed * self.ranks + self.rank) * 1_000_003 + step
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
