"""Which versions of torch graphs are known to work with.

attach() asks here.  A version that is in the list is taken as it is.  Of
another one, what graphs rely on and torch does not promise is tried first, on
the CPU: if something is otherwise the version is refused, and else it is said
that nobody has checked it.  Tests try the same on each version of the list.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import functools
import logging

import torch
from torch.autograd.graph import get_gradient_edge
from torch.utils.checkpoint import checkpoint

from ...errors import Error
from ..base import private
from ..grad import contributions, watchers
from ..record.checkpoint import hooks, region

log = logging.getLogger("graphhooks")

CHECKED = ("2.11", "2.12", "2.13", "2.14", "2.15")


@functools.cache
def check() -> None:
    """Refuses a torch that has no graphs for others; says once that one has
    not been checked."""
    if not hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph_exec"):
        raise Error(f"torch {torch.__version__} is too old: its graphs cannot "
                    f"be launched by others; {CHECKED[0]} is the first that "
                    "has been checked")
    if is_checked(torch.__version__):
        return
    for what, holds in RELIED_ON.items():
        if not _tried(holds):
            raise Error(f"torch {torch.__version__} has not been checked, and "
                        f"graphs need to know {what}, which it does not tell "
                        f"as others do: install one of {', '.join(CHECKED)}")
    log.warning("torch %s has not been checked with graphhooks; %s have. What "
                "graphs rely on was tried and holds, but layers may run "
                "eagerly, or raise an error. Compare the losses of some steps "
                "with those of enable=False.", torch.__version__,
                ", ".join(CHECKED))


def is_checked(version: str) -> bool:
    return ".".join(version.split(".")[:2]) in CHECKED


def _tried(holds) -> bool:
    try:
        with torch.inference_mode(False), torch.enable_grad():
            return holds()
    except Exception:  # whatever a torch that is not known does instead
        return False


def _leaf():
    return torch.ones(2, device="cpu", requires_grad=True)


def _runs_are_told() -> bool:
    found = []

    def piece(x):
        found.append(region(hooks()))
        return x.sin()

    checkpoint(piece, _leaf(), use_reentrant=False,
               preserve_rng_state=False).sum().backward()
    (one, first), (two, second) = found
    return one is not None and one is two and (first, second) == (False, True)


def _casts_are_found() -> bool:
    leaf = _leaf()
    node = leaf.to(torch.float64).grad_fn
    return contributions.casts([(node, 0), (leaf.sin().grad_fn, 0)]) == [node]


def _engines_are_told_from_losses() -> bool:
    leaf = _leaf()
    loss = leaf.sin()
    alone = watchers.is_held(leaf)
    node = get_gradient_edge(leaf).node
    return (alone, watchers.is_held(leaf)) == (False, True) \
        and loss.grad_fn.next_functions[0][0] is node


def _nodes_that_are_kept_are_known() -> bool:
    leaf = _leaf()
    alone = watchers.is_watched(leaf)
    node = get_gradient_edge(leaf).node
    return (alone, watchers.is_watched(leaf), node.metadata) \
        == (False, True, {})


def _hooks_are_seen() -> bool:
    def hook(*_):
        pass

    leaf, other, module = _leaf(), _leaf(), torch.nn.Identity()
    before = private.has_hooks(leaf), any(private.hooks_of(module))
    leaf.register_hook(hook)
    other.register_post_accumulate_grad_hook(hook)
    module.register_forward_hook(hook)
    return before == (False, False) and private.has_hooks(leaf) \
        and private.have_hooks([other]) and any(private.hooks_of(module))


def _hooks_of_outputs_are_told() -> bool:
    class Same(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad

    found: list = []
    private.tell_of_hooks(Same, lambda node, out: found.append(
        (node is out.grad_fn, private.tensor_hooks(out))) or len(found) > 1,
        lambda node, hook: hook)
    called: list = []
    outs = [Same.apply(_leaf()) for _ in range(2)]
    for out in outs:
        out.register_hook(called.append)
        out.sum().backward()
    return len(called) == 1 and found == [
        (True, private.tensor_hooks(out)) for out in outs]


def _writes_are_counted() -> bool:
    tensor = _leaf().detach()
    before = private.version(tensor)
    tensor.add_(1)
    return private.version(tensor) > before


def _passes_are_told() -> bool:
    leaf, other, found = _leaf(), _leaf(), []

    def look(_):
        private.at_end_of_pass(lambda: found.append("end"))
        found.append((private.current_pass() >= 0, [
            private.will_run(get_gradient_edge(p).node)
            for p in (leaf, other)]))

    out = leaf.sin()
    out.register_hook(look)
    kept = other.sin()
    out.sum().backward()
    return kept.requires_grad and private.current_pass() == -1 \
        and found == [(True, [True, False]), "end"]


RELIED_ON = {
    "which run of a checkpointed piece is at hand": _runs_are_told,
    "what a cast is called": _casts_are_found,
    "who holds a node of autograd's": _engines_are_told_from_losses,
    "what is kept with a node of autograd's": _nodes_that_are_kept_are_known,
    "where hooks are kept": _hooks_are_seen,
    "whose output somebody listens to": _hooks_of_outputs_are_told,
    "how often a tensor was written": _writes_are_counted,
    "what a pass of autograd tells of itself": _passes_are_told,
}
