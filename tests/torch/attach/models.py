"""A small GPT, its training, and what must be the same of two trainings.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import collections
import gc

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

WIDTH, HEADS, LENGTH, BATCH, LAYERS, WORDS = 64, 4, 32, 2, 3, 256
COUNTS = [4, 6, 8, 3, 5]
# What attach() is told, and how many segments the stack then has.
GRAINS = {
    "layer": {},
    "chunk": {"granularity": "chunk"},
    "part": {"granularity": "part", "scope": "attn,mlp"},
}
SEGMENTS = {"layer": LAYERS, "chunk": 1, "part": 2 * LAYERS}
WHOLE = ["layer", "chunk"]  # where layers are called as they are
NO_PIECES = {"Block": []}  # no graph is of a part of it, if it waits


HAS_GPU = torch.cuda.device_count() > 0  # else softtorch.py stands in
DEVICE = "cuda" if HAS_GPU else "cpu"


def need_gpu() -> None:
    """For the head of a file that says nothing elsewhere."""
    if not HAS_GPU:
        pytest.skip("torch sees no GPU", allow_module_level=True)


def on_a_gpu(why: str):
    """For a test that says nothing elsewhere."""
    return pytest.mark.skipif(not HAS_GPU,
                              reason=f"torch sees no GPU: {why}")


def collect() -> None:
    """What nobody holds is gone.  Autograd's thread may hold the last node of
    a backward for longer than that takes, but not beyond the next one."""
    torch.zeros((), device=DEVICE, requires_grad=True).sum().backward()
    gc.collect()


# ---- the model -------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        b, t, c = x.shape
        qkv = self.qkv(x).view(b, t, 3, HEADS, c // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(
            q, k, v, is_causal=True,
            dropout_p=self.dropout if self.training else 0.0)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Mlp(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        return self.drop(self.down(F.gelu(self.up(x))))


class Block(nn.Module):
    """A layer; what is to differ in a test overrides forward()."""

    def __init__(self, dropout: float = 0.0, attention: float = 0.0) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attn = Attention(attention)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = Mlp(dropout)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Normed(Block):
    """Has buffers that a forward changes, and autograd keeps."""

    def __init__(self, *rates) -> None:
        super().__init__(*rates)
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x):
        return super().forward(self.norm(x.transpose(1, 2)).transpose(1, 2))


class Counted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, layer):
        ctx.layer = layer
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        ctx.layer.backwards += 1  # which no replay would
        return grad, None


class Refused(Block):
    """Its forward gets a graph, and its backward cannot."""

    backwards = 0

    def forward(self, x):
        return Counted.apply(super().forward(x), self)


class Model(nn.Module):
    """run_layers() is what tests override."""

    def __init__(self, make=Block) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(make() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WORDS)

    def run_layers(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

    def forward(self, tokens):
        return self.head(self.run_layers(self.embed(tokens)))


class Deep(Model):
    """Keeps what leaves each layer."""

    def run_layers(self, x):
        self.hidden = []
        for layer in self.layers:
            x = layer(x)
            self.hidden.append(x)
        return x


def adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


# ---- a training ------------------------------------------------------------


class Run:
    """A model and its training, the same for the same arguments."""

    def __init__(self, make=None, model=None, grain=None, before=None,
                 **options) -> None:
        torch.manual_seed(7)
        self.model = (model or Model)(make or Block).cuda()
        self.optimizer = adamw(self.model)
        self.generator = torch.Generator().manual_seed(1)
        self.notes: list = []
        self.kinds: list = []  # of them
        self.attached = None
        self.grain = grain
        if before is not None:
            before(self)
        if grain is not None:
            self.attach(**options)
        torch.manual_seed(8)

    def attach(self, **options):
        import graphhooks

        self.attached = graphhooks.attach(
            self.model, **{**GRAINS[self.grain], **options})
        return self.attached

    def detach(self) -> None:
        if self.attached is not None:
            self.attached.detach()
        self.attached = None

    def tokens(self, batch=BATCH, length=LENGTH):
        """Not waited for: what runs may wait for a rank that has gone."""
        return torch.randint(0, WORDS, (batch, length + 1), device="cpu",
                             generator=self.generator).cuda(non_blocking=True)

    def loss(self, batch=BATCH, length=LENGTH):
        tokens = self.tokens(batch, length)
        logits = self.model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(),
                               tokens[:, 1:].flatten())
        self.note(loss)
        return loss

    def note(self, tensor, of="note") -> None:
        """Something that is to be the same in both trainings, in the order
        of its kind."""
        self.notes.append(tensor.detach().clone())
        self.kinds.append(of)

    def zero(self, set_to_none=True) -> None:
        """None: never."""
        if set_to_none is not None:
            self.optimizer.zero_grad(set_to_none=set_to_none)

    def backward(self, count: int, in_flight: int = 1) -> None:
        """Microbatches, first in first out."""
        waiting: list = []
        for _ in range(count):
            waiting.append(self.loss())
            if len(waiting) == in_flight:
                waiting.pop(0).backward()
        for loss in waiting:
            loss.backward()

    def step(self, count: int, in_flight: int = 1, set_to_none=True) -> None:
        self.zero(set_to_none)
        self.backward(count, in_flight)
        self.optimizer.step()

    def steps(self, counts=COUNTS, **how) -> "Run":
        for count in counts:
            self.step(count, **how)
        return self

    def state(self) -> dict:
        """All that a training leaves, by name."""
        torch.cuda.synchronize()
        found = {}
        count = collections.Counter()
        for of, tensor in zip(self.kinds, self.notes):
            found[f"{of} {count[of]}"] = tensor
            count[of] += 1
        found.update(self.model.state_dict())
        for name, p in self.model.named_parameters():
            found[f"{name}.grad"] = p.grad
        found["random numbers"] = torch.cuda.get_rng_state()
        return found

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_) -> None:
        self.detach()


def step_in_hooks(run) -> None:
    """Weights of layers are stepped inside the backward, once each of them has
    its gradient."""
    def step(p):
        optimizers[p].step()
        optimizers[p].zero_grad()

    run.optimizer = torch.optim.SGD(run.model.embed.parameters(), lr=0)
    optimizers = {p: torch.optim.SGD([p], lr=0.1)
                  for p in run.model.layers.parameters()}
    for p in optimizers:
        p.register_post_accumulate_grad_hook(step)


def note_gradients(run) -> None:
    for p in run.model.parameters():
        if p.grad is not None:
            run.note(p.grad)


# ---- the same bits ---------------------------------------------------------


def bits(tensor):
    """Bit patterns: zeros have a sign, and a NaN equals itself."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def same(a, b) -> bool:
    if a is None or b is None:
        return a is b
    return a.shape == b.shape and a.dtype == b.dtype \
        and torch.equal(bits(a), bits(b))


def differing(eager: dict, graphed: dict) -> list:
    assert eager.keys() == graphed.keys()
    return [name for name in eager if not same(eager[name], graphed[name])]
