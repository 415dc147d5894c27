"""Passes that do not train, and derivatives that are not summed up.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib

import pytest
from models import COUNTS, GRAINS, SEGMENTS, Block, Deep, Model, Run, torch
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

from graphhooks import Error  # noqa: E402

GRAIN = pytest.mark.parametrize("grain", GRAINS)


@contextlib.contextmanager
def evaluating(model):
    model.eval()
    try:
        yield
    finally:
        model.train()


MODES = {
    "no_grad": lambda model: torch.no_grad(),
    "inference_mode": lambda model: torch.inference_mode(),
    "eval": evaluating,
}


@GRAIN
@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_a_capture_of_the_callers_own(pair, grain, steps, rate):
    """Before anything is recorded, with comparisons that wait, and later."""
    def train(run):
        run.steps([2] * steps)
        x = run.model.embed(run.tokens()[:, :-1]).detach()
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            with torch.no_grad():  # what is made at its first use
                run.model.run_layers(x)
            graph.capture_begin(capture_error_mode="thread_local")
            y = run.model.run_layers(x)
            graph.capture_end()
            graph.replay()
            graph.replay()
        torch.cuda.current_stream().wait_stream(stream)
        run.note(y)
        run.steps()

    pair(train, grain=grain, make=lambda: Block(rate),
         eager=["forward_only", "host_capture"])


@GRAIN
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", [Block, lambda: Block(dropout=0.1)],
                         ids=["plain", "dropout"])
def test_evaluation_is_eager_and_takes_no_slot(pair, grain, mode, make):
    def train(run):
        with MODES[mode](run.model):
            run.loss()
        for count in COUNTS:
            run.step(count)
            for batch in (2, 1):
                with MODES[mode](run.model):
                    run.loss(batch)

    run = pair(train, grain=grain, make=make, eager=["forward_only"])
    stats = run.attached.stats()
    assert stats["slots"] == 1
    assert stats["eager_calls"]["forward_only"] == \
        SEGMENTS[grain] * (1 + 2 * len(COUNTS))


@GRAIN
def test_a_gradient_in_eval_is_eager(pair, grain):
    def train(run):
        run.steps(COUNTS[:3])
        with evaluating(run.model):
            run.steps([2, 1])
        run.steps(COUNTS[:2])

    pair(train, grain=grain, eager=["forward_only"])


class Sees(Model):
    def run_layers(self, x):
        self.x = x
        return super().run_layers(x)


@GRAIN
def test_autograd_grad_leaves_the_parameters_alone(pair, grain):
    """autograd.grad() returns what is asked for, and touches no `.grad`."""
    def train(run):
        for count in COUNTS:
            run.zero()
            run.backward(count)
            loss = run.loss()
            run.note(torch.autograd.grad(loss, run.model.x)[0])
            run.optimizer.step()

    pair(train, grain=grain, model=Sees)


class Skips(Model):
    """What goes into the stack is used elsewhere too."""

    def run_layers(self, x):
        return super().run_layers(x) + x


def penalized(run):
    """A weight of the stack is used by the loss too."""
    weight = run.model.layers[1].mlp.up.weight
    return run.loss() + 0.01 * weight.square().sum()


@GRAIN
@pytest.mark.parametrize("model, loss", [(Skips, Run.loss),
                                         (Model, penalized)])
def test_a_first_backward_into_an_input_shows_no_uses(pair, grain, model,
                                                      loss):
    """The next one does, and is eager too."""
    def train(run):
        x = run.model.embed(run.tokens()[:, :-1]).detach().requires_grad_()
        run.note(torch.autograd.grad(run.model.run_layers(x).square().sum(),
                                     x)[0])
        for _ in range(4):
            for _ in range(3):
                loss(run).backward()
            run.optimizer.step()
            run.zero()

    run = pair(train, grain=grain, model=model, warmup_steps=0)
    assert run.attached.stats()["eager_calls"] == {
        "warmup": 2 * SEGMENTS[grain]}


def grads_of_parameters(run):
    named = list(run.model.parameters())
    for count in COUNTS:
        run.zero()
        run.backward(count)
        for grad in torch.autograd.grad(run.loss(), named):
            run.note(grad)
        run.optimizer.step()


GRADIENTS = pytest.mark.parametrize("gradients", ["graph", "autograd"])


@GRAIN
@GRADIENTS
def test_autograd_grad_of_parameters(pair, grain, gradients):
    pair(grads_of_parameters, grain=grain, gradients=gradients)


@GRAIN
@GRADIENTS
def test_a_training_by_autograd_grad_alone(pair, grain, gradients):
    """No parameter's gradient is ever added up by autograd."""
    def train(run):
        named = list(run.model.parameters())
        for count in COUNTS[:3]:
            for _ in range(count):
                for p, grad in zip(named, torch.autograd.grad(run.loss(),
                                                              named)):
                    p.grad = grad if p.grad is None else p.grad + grad
            run.optimizer.step()
            run.zero()

    pair(train, grain=grain, gradients=gradients,
         replays=None if gradients == "graph" else True)


def of_the_second(run) -> dict:
    return dict(run.model.layers[1].named_parameters())


SOME = {
    "a bias": lambda run: [of_the_second(run)["mlp.up.bias"]],
    "the first": lambda run: [of_the_second(run)["norm1.weight"]],
    "several": lambda run: [p for name, p in run.model.named_parameters()
                            if name.endswith("bias")],
    "an edge": lambda run: [torch.autograd.graph.get_gradient_edge(
        of_the_second(run)["attn.qkv.bias"])],
    "one of the head": lambda run: [run.model.head.bias],
    "between": lambda run: [run.model.hidden[1],
                            of_the_second(run)["attn.out.bias"]],
}


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@GRAIN
@GRADIENTS
@pytest.mark.parametrize("since", [0, 2])
@pytest.mark.parametrize("of", SOME)
def test_a_backward_into_some_parameters(pair, grain, gradients, since, of):
    """From the first step on, or later."""
    def train(run):
        run.steps([2] * since)
        for count in (1, 3, 2, 2):
            run.zero()
            for _ in range(count):
                loss = run.loss()
                loss.backward(inputs=SOME[of](run))
            for x in run.model.hidden:
                if x.grad is not None:
                    run.note(x.grad)
            assert {name for name, p in run.model.named_parameters()
                    if p.grad is not None} == {
                name for name, p in run.model.named_parameters()
                if any(p is getattr(getattr(t, "node", None), "variable", t)
                       for t in SOME[of](run))}
            run.optimizer.step()
        run.steps([2, 1])

    if of == "between" and grain == "chunk":
        pytest.skip("a chunk keeps it to itself")
    pair(train, grain=grain, model=Deep, gradients=gradients, judge=False)


@GRAIN
@GRADIENTS
@pytest.mark.parametrize("in_flight", [1, 3])
def test_a_backward_into_some_parameters_beside_others(pair, grain, gradients,
                                                       in_flight):
    """Of several losses in one pass; and what is in `.grad` stays."""
    def train(run):
        for count in COUNTS:
            run.zero()
            run.backward(count)
            losses = [run.loss() for _ in range(in_flight)]
            sum(losses).backward(inputs=SOME["several"](run))
            run.optimizer.step()

    pair(train, grain=grain, gradients=gradients)


@GRAIN
@GRADIENTS
@pytest.mark.parametrize("in_flight", [1, 2])
@pytest.mark.parametrize("of", [s for s in SOME if s != "between"])
def test_autograd_grad_of_some_parameters(pair, grain, gradients, in_flight,
                                          of):
    """What it returns is the caller's, and `.grad` stays."""
    def train(run):
        for count in COUNTS[:4]:
            run.zero()
            run.backward(count)
            kept = [torch.autograd.grad(
                sum(run.loss() for _ in range(in_flight)), SOME[of](run))
                for _ in range(2)]
            run.backward(1)
            for grads in kept:
                for grad in grads:
                    run.note(grad)
            run.optimizer.step()

    pair(train, grain=grain, gradients=gradients)


@GRAIN
def test_autograd_grad_of_what_a_loss_does_not_depend_on(runs, grain):
    run = runs(grain=grain).steps(COUNTS[:3])
    named = of_the_second(run)["mlp.up.bias"], run.model.head.weight
    loss = run.model.run_layers(run.model.embed(run.tokens())).sum()
    with pytest.raises(RuntimeError, match="not have been used in the graph"):
        torch.autograd.grad(loss, named)
    loss = run.model.run_layers(run.model.embed(run.tokens())).sum()
    found = torch.autograd.grad(loss, named, allow_unused=True)
    assert found[0] is not None and found[1] is None


@GRAIN
def test_a_call_that_is_eager_is_asked_for_no_other_parameter(pair, grain):
    """As that of a new shape is, beside graphs."""
    def train(run):
        run.steps(COUNTS[:3])
        for length in (24, 16, 8):
            run.zero()
            run.loss(length=length).backward(inputs=SOME["a bias"](run))
            run.optimizer.step()

    pair(train, grain=grain, eager=["input"])


@GRAIN
def test_backward_into_all_parameters(pair, grain):
    def train(run):
        for count in COUNTS:
            run.zero()
            for _ in range(count):
                run.loss().backward(inputs=list(run.model.parameters()))
            run.optimizer.step()

    pair(train, grain=grain)


@GRAIN
def test_gradients_that_autograd_grad_returns_are_the_callers(pair, grain):
    def train(run):
        for count in COUNTS:
            run.step(count)
            kept = [torch.autograd.grad(run.loss(), run.model.x)[0]
                    for _ in range(3)]
            for grad in kept:
                run.note(grad)

    pair(train, grain=grain, model=Sees)


@GRAIN
@pytest.mark.parametrize("leaf", [True, False])
def test_gradients_of_an_input_of_a_stack_that_is_frozen(pair, grain, leaf):
    """As in an attack on a model, or a picture of what it looks at."""
    def before(run):
        for p in run.model.layers.parameters():
            p.requires_grad_(False)

    def train(run):
        kept = []
        for _ in COUNTS:
            x = run.model.embed(run.tokens()[:, :-1])
            if leaf:
                x = x.detach().requires_grad_()
            loss = run.model.run_layers(x).square().sum()
            kept.append(torch.autograd.grad(loss, x)[0])
            run.optimizer.step()
        for grad in kept:
            run.note(grad)

    pair(train, grain=grain, before=before)


@GRAIN
def test_backward_into_some_inputs_only(pair, grain):
    def train(run):
        wanted = [run.model.embed.weight]
        for count in COUNTS:
            run.zero()
            run.backward(count)
            run.loss().backward(inputs=wanted)
            run.optimizer.step()

    run = pair(train, grain=grain)
    assert run.attached.stats()["eager_calls"]["partial_backward"] > 0
    assert "asked for some gradients alone" in run.attached.explain()


def twice(run, loss):
    loss.backward(retain_graph=True)
    loss.backward()


def one_by_one(run, loss):
    """Two losses of one forward."""
    other = run.model.hidden[-1].square().mean()
    loss.backward(retain_graph=True)
    other.backward()


def looks_first(run, loss):
    """As who balances losses by their gradients."""
    weight = run.model.embed.weight
    run.note(torch.autograd.grad(loss, weight, retain_graph=True)[0])
    loss.backward()


@GRAIN
@pytest.mark.parametrize("back", [twice, one_by_one, looks_first])
def test_a_second_backward_of_one_forward(pair, grain, back):
    """Which the first step has shown."""
    def train(run):
        for count in COUNTS[:3]:
            run.zero()
            for _ in range(count):
                back(run, run.loss())
            run.optimizer.step()

    pair(train, grain=grain, model=Deep, replays=False,
         refused="a second backward goes through one forward")


@GRAIN
def test_a_pass_between_the_steps(pair, grain):
    """A forward after the optimizer that nobody trains by."""
    def train(run):
        for count in COUNTS:
            run.step(count)
            run.loss()

    pair(train, grain=grain)


# ---- what looks into autograd ----------------------------------------------


def pack(tensor):
    return tensor.dtype, tensor.bfloat16() if tensor.dtype == torch.float32 \
        else tensor


def unpack(packed):
    dtype, tensor = packed
    return tensor.to(dtype)


@GRAIN
def test_saved_tensors_that_are_rounded(pair, grain):
    def train(run):
        run.steps(COUNTS[:2])
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            run.steps(COUNTS[:2])
        run.steps(COUNTS[:2])

    pair(train, grain=grain, eager=["saved_tensors"])


@GRAIN
def test_saved_tensors_that_go_to_the_CPU(pair, grain):
    """Graphs keep theirs."""
    def train(run):
        with torch.autograd.graph.save_on_cpu():
            run.steps()

    pair(train, grain=grain)


class Rounds(torch.overrides.TorchFunctionMode):
    """As one that tries out another precision."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function is torch.nn.functional.linear:
            result = result.bfloat16().float()
        return result


class Counts(torch.utils._python_dispatch.TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function is torch.ops.aten.addmm.default
        return function(*args, **(kwargs or {}))


@GRAIN
def test_functions_that_a_mode_changes(pair, grain):
    """For a step, and in an evaluation."""
    def train(run):
        run.steps(COUNTS[:3])
        with Rounds():
            run.steps([2])
            with torch.no_grad():
                run.loss()
        run.steps(COUNTS[:2])

    pair(train, grain=grain, eager=["modes"], eval=True)


@GRAIN
def test_a_mode_that_comes_first_is_not_recorded(pair, grain):
    def train(run):
        with Rounds():
            run.steps(COUNTS[:3])
        run.steps(COUNTS[:3])

    pair(train, grain=grain, eager=["modes"])


@GRAIN
def test_operations_that_a_mode_counts(pair, grain):
    def train(run):
        run.steps(COUNTS[:3])
        with Counts() as mode:
            run.step(2)
        run.note(torch.tensor(mode.count))

    pair(train, grain=grain, eager=["modes"])


@GRAIN
def test_where_tensors_are_made_is_no_such_mode(pair, grain):
    def train(run):
        with torch.device(run.model.head.weight.device):
            run.steps()

    pair(train, grain=grain)


@GRAIN
@pytest.mark.parametrize("count", [0, 2], ids=["first", "within"])
def test_gradients_by_torch_func(pair, grain, count):
    """As the first pass of a step, and as a later one."""
    def train(run):
        run.steps(COUNTS[:3])
        run.backward(count)
        x = run.model.embed(run.tokens()[:, :-1]).detach()
        run.note(torch.func.grad(
            lambda x: run.model.run_layers(x).square().mean())(x))
        run.steps(COUNTS[:2])

    pair(train, grain=grain, eager=["torch_func"])


@GRAIN
@pytest.mark.parametrize("count", [0, 2], ids=["first", "within"])
def test_a_derivative_that_comes_along_with_a_forward(pair, grain, count):
    """What goes in is as ever but for its tangent, which no graph knows."""
    def train(run):
        run.steps(COUNTS[:3])
        run.backward(count)
        x = run.model.embed(run.tokens()[:, :-1])
        with forward_ad.dual_level(), sdpa_kernel(SDPBackend.MATH):
            y = run.model.run_layers(
                forward_ad.make_dual(x, torch.ones_like(x)))
            run.note(forward_ad.unpack_dual(y).tangent)
        run.steps(COUNTS[:2])

    pair(train, grain=grain, eager=["torch_func"])


@GRAIN
def test_anomalies_are_looked_for_in_the_first_steps(pair, grain):
    def train(run):
        with torch.autograd.set_detect_anomaly(True):
            run.steps(COUNTS[:2])
        run.steps()

    run = pair(train, grain=grain, eager=["anomaly"])
    assert "its graphs come once that is off" in run.attached.explain()


@contextlib.contextmanager
def tf32():
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = "none"


@contextlib.contextmanager
def deterministic():
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextlib.contextmanager
def doubles():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def slowpath():
    """Of attention in an evaluation."""
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


class Makes(Block):
    """Of the default dtype."""

    def forward(self, x):
        return super().forward(x) * (1 + torch.full((1,), 0.1, device=x.device
                                              ).to(x.dtype))


@GRAIN
@pytest.mark.parametrize("chosen", [
    lambda: sdpa_kernel(SDPBackend.MATH), tf32, deterministic, doubles,
    slowpath],
    ids=["attention", "tf32", "deterministic", "dtype", "mha"])
def test_other_kernels_have_graphs_of_their_own(pair, grain, chosen):
    """A graph has those that were chosen when it was recorded."""
    def train(run):
        run.steps([2, 2, 2])
        before = run.attached and run.attached.stats()["recordings"]
        for count in [2, 2, 2]:
            with chosen():
                run.step(count)
        if run.attached:
            assert run.attached.stats()["recordings"] > before
        run.steps([2])

    run = pair(train, grain=grain, eager=["input"], make=Makes)
    assert any(word in run.attached.explain() for word in (
        "sdp", "fp32_precision", "use_deterministic_algorithms", "dtype",
        "mha.fastpath"))
