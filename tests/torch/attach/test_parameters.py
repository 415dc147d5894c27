"""Parameters that are frozen, tied, unused, replaced; and buffers.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import copy

import pytest
from models import (BATCH, COUNTS, GRAINS, LAYERS, LENGTH, WHOLE, WIDTH, Block,
                    F, Mlp, Model, Normed, adamw, differing, nn,
                    note_gradients, torch)
from torch.autograd.graph import get_gradient_edge
from torch.nn.utils import parametrize

from graphhooks import Error
from graphhooks.torch.grad.away import put_gradients
from graphhooks.torch.grad.sums import Aside
from graphhooks.torch.grad.write_streams import Writes

GRAIN = pytest.mark.parametrize("grain", GRAINS)
FLIGHT = pytest.mark.parametrize("in_flight", [1, 3])


def changed(change):
    """A model with something done to it before it is attached."""
    def make_model(make):
        model = Model(make)
        change(model)
        return model

    return make_model


# ---- frozen ----------------------------------------------------------------


def frozen(*names):
    def freeze(model):
        for name, p in model.named_parameters():
            if any(name.startswith(n) or name.endswith(n) for n in names):
                p.requires_grad_(False)

    return freeze


FROZEN = {
    "biases": ["bias"],
    "the norms": ["norm1.weight", "norm1.bias", "norm2.weight",
                  "norm2.bias"],
    "a layer in the middle": ["layers.1"],
    "the embedding": ["embed"],
    "the last layer and the head": ["layers.2", "head"],
    "the attention of all": ["qkv.weight", "qkv.bias", "out.weight",
                             "out.bias"],
}


@GRAIN
@pytest.mark.parametrize("what", FROZEN)
def test_frozen(pair, grain, what):
    pair(lambda r: r.steps(in_flight=2), grain=grain,
         model=changed(frozen(*FROZEN[what])))


@pytest.mark.parametrize("grain, eager", [
    ("layer", ["input"]), ("part", ["input"]), ("chunk", [])])
def test_frozen_first_layers_with_the_embedding(pair, grain, eager):
    """Nothing is trained in them: there is no backward to wait for."""
    run = pair(lambda r: r.steps(in_flight=2), grain=grain, eager=eager,
               model=changed(frozen("embed", "layers.0")))
    if eager:
        assert "nothing in it is trained" in run.attached.explain()


# ---- tied ------------------------------------------------------------------


def tie_in_a_layer(model):
    for layer in model.layers:
        layer.norm2.weight = layer.norm1.weight


def tie_layers(model):
    model.layers[2].mlp.up.weight = model.layers[0].mlp.up.weight


def share_a_module(model):
    model.layers[2].mlp = model.layers[0].mlp


def tie_the_embedding(model):
    model.layers[1].mlp.up.weight = model.embed.weight


def tie_the_head(model):
    model.layers[1].mlp.up.weight = model.head.weight


def tie_around(model):
    model.head.weight = model.embed.weight


@GRAIN
@pytest.mark.parametrize("tie", [
    tie_in_a_layer, tie_layers, tie_the_embedding, tie_the_head, tie_around])
def test_tied(pair, grain, tie):
    pair(lambda r: r.steps(in_flight=2), grain=grain,
         model=changed(tie))


@pytest.mark.parametrize("grain", WHOLE)
def test_a_module_of_two_layers(pair, grain):
    pair(lambda r: r.steps(in_flight=2), grain=grain,
         model=changed(share_a_module))


def test_a_part_of_two_layers_is_refused(runs):
    with pytest.raises(Error, match="is a part of"):
        runs(grain="part", model=changed(share_a_module))


class Twice(Model):
    """Calls each layer more than once."""

    def run_layers(self, x):
        for _ in range(2):
            for layer in self.layers:
                x = layer(x)
        return x


@pytest.mark.parametrize("grain", ["layer", "part"])
@pytest.mark.parametrize("counts", [[1] * 5, [2] * 5, COUNTS], ids=str)
def test_a_layer_that_is_called_twice(pair, grain, counts):
    """Both calls are one gradient, which is then added to `.grad`."""
    pair(lambda r: r.steps(counts), grain=grain, model=Twice)


@GRAIN
def test_weights_in_the_loss(pair, grain):
    def train(run):
        for count in COUNTS:
            run.zero()
            for _ in range(count):
                penalty = sum(p.square().sum()
                              for p in run.model.parameters())
                (run.loss() + 0.1 * penalty).backward()
            run.optimizer.step()

    run = pair(train, grain=grain)
    for segment in run.attached.segments:
        assert not segment.parameters.own


@GRAIN
def test_two_shapes_in_one_loss(pair, grain):
    """Each of the calls has graphs."""
    def train(run):
        for count in COUNTS:
            run.zero()
            for _ in range(count):
                (run.loss() * run.loss(length=16)).backward()
            run.optimizer.step()

    pair(train, grain=grain)


@GRAIN
def test_two_shapes_in_one_loss_of_which_one_is_eager(pair, grain):
    def train(run):
        for count in COUNTS:
            run.zero()
            for _ in range(count):
                (run.loss() * run.loss(length=16)).backward()
            run.optimizer.step()

    pair(train, grain=grain, max_banks=1, eager=["banks"])


# ---- trained tensors that are none of its parameters -----------------------


class Hidden(Block):
    def forward(self, x):
        return super().forward(x * self.shared[0].weight[0])


def hide(make):
    model = Model(make)
    for layer in model.layers:
        layer.shared = (model.embed,)
    return model


@pytest.mark.parametrize("grain", WHOLE)
def test_a_trained_tensor_that_is_no_parameter_of_it(pair, grain):
    pair(lambda r: r.steps(), grain=grain, make=Hidden, model=hide,
         replays=False, refused="nor is a parameter that it had")


class Keeps(Block):
    def forward(self, x):
        y = super().forward(x)
        self.l_aux = self.mlp.up(x).square().mean()
        return y


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("in_flight", [1, 2])
def test_a_loss_that_a_layer_keeps(pair, grain, in_flight):
    def train(run):
        for count in COUNTS:
            run.zero()
            waiting = []
            for _ in range(count):
                loss = run.loss()
                for layer in run.model.layers:
                    loss = loss + 0.1 * layer.l_aux
                waiting.append(loss)
                if len(waiting) == in_flight:
                    waiting.pop(0).backward()
            for loss in waiting:
                loss.backward()
            run.optimizer.step()
        for layer in run.model.layers:
            del layer.l_aux

    pair(train, grain=grain, make=Keeps, replays=False,
         refused="keeps a tensor with a gradient in an attribute, l_aux")


# ---- unused ----------------------------------------------------------------


class Unused(Block):
    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Linear(8, 8)


@GRAIN
def test_a_parameter_that_is_not_used_has_no_gradient(pair, grain):
    run = pair(lambda r: r.steps(), grain=grain, make=Unused)
    assert run.model.layers[0].spare.weight.grad is None


# ---- buffers ---------------------------------------------------------------


class Counts(Block):
    """Keeps statistics as it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(64))

    def forward(self, x):
        self.calls.add_(1)
        self.mean.lerp_(x.detach().mean((0, 1)), 0.1)
        return super().forward(x - self.mean)


@pytest.mark.parametrize("grain", WHOLE)
@FLIGHT
def test_buffers_that_are_written(pair, grain, in_flight):
    run = pair(lambda r: r.steps(in_flight=in_flight), grain=grain,
               make=Counts)
    assert run.model.layers[0].calls.item() == sum(COUNTS)


# ---- changed after the attach ----------------------------------------------


def replace(model):
    layer = model.layers[1]
    layer.mlp.up.weight = nn.Parameter(layer.mlp.up.weight.detach() * 0.5)


def move(model):
    weight = model.layers[1].mlp.down.weight
    weight.data = weight.data.clone()


def freeze(model):
    model.layers[1].attn.out.weight.requires_grad_(False)


def load_others(model):
    state = copy.deepcopy(model.layers[1].state_dict())
    model.layers[1].load_state_dict(state, assign=True)


def convert(model):
    model.layers[1].double().float()


def another_mlp(model):
    torch.manual_seed(5)
    model.layers[1].mlp = Mlp().cuda()


def adapter(model):
    """Comes besides what is there."""
    torch.manual_seed(5)
    model.layers[1].mlp.extra = nn.Linear(2, 2).cuda()


CHANGES = [replace, move, freeze, load_others, convert, another_mlp, adapter]


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("after", [1, 3], ids=["recorded", "replayed"])
def test_weights_that_change_hands(pair, grain, change, after):
    def train(run):
        run.steps(COUNTS[:after], in_flight=2)
        change(run.model)
        run.optimizer = torch.optim.SGD(run.model.parameters(), lr=1e-2)
        run.steps(in_flight=2)

    run = pair(train, grain=grain, eager=["replaced"])
    assert_renewed(run, in_flight=2)


class Shifted(Model):
    def run_layers(self, x):
        for layer in self.layers:
            x = layer(x + 0.01)
        return x


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_attached_anew_by_an_evaluation(pair, mode):
    """With gradients that are still there, and are written afterwards."""
    def train(run):
        for _ in range(4):
            run.step(2)
            run.model.eval()
            with mode():
                run.loss()
            run.model.train()
            for p in run.model.parameters():
                p.grad.mul_(0.5)
        run.step(2, set_to_none=None)

    pair(train, grain="chunk", model=Shifted, eager=["forward_only"],
         apart="reads a tensor")


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_attached_in_a_mode(runs, mode):
    run = runs()
    run.grain = "layer"
    with mode():
        run.attach()
    run.steps()
    assert run.attached.stats()["replays"] > 0


def assert_renewed(run, times=1, **how):
    """It was attached anew, and all replays again."""
    stats = run.attached.stats()
    assert stats["renewals"] == times
    assert f"{times} times of 8 at most" in run.attached.explain()
    run.steps([2], **how)
    before = run.attached.stats()
    run.steps([2], **how)
    after = run.attached.stats()
    assert after["eager_calls"] == before["eager_calls"]
    assert after["recordings"] == before["recordings"]
    assert after["replays"] - before["replays"] == \
        4 * len(run.attached.segments)


class LastOf(Model):
    """The third microbatch of each step uses what the stack is given, and one
    of its weights, in its loss."""

    calls = 0

    def run_layers(self, x):
        self.calls += 1
        y = super().run_layers(x)
        if self.calls % 3 == 0:
            y = y + 0.3 * x * x.detach().sin() \
                + self.layers[1].mlp.up.weight.square().sum()
        return y


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("change", [move, freeze])
def test_layers_attached_anew_run_eagerly_for_a_step(pair, grain, change):
    """In which its last microbatch may be another than the first."""
    def train(run):
        run.steps([3, 3, 3])
        change(run.model)
        run.steps([3] * 5)

    pair(train, grain=grain, model=LastOf, eager=["replaced"])


@pytest.mark.parametrize("grain", WHOLE)
def test_weights_that_are_replaced_time_and_again(pair, grain):
    """In the end nobody believes that they stay."""
    def train(run):
        for _ in range(10):
            replace(run.model)
            run.optimizer = torch.optim.SGD(run.model.parameters(), lr=1e-2)
            run.steps([1, 1, 1])
        run.steps([1, 1])

    run = pair(train, grain=grain, replays=None, eager=["replaced"],
               refused="replaced, moved or frozen; detach and attach again")
    assert run.attached.stats()["renewals"] == 8


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("change", [move, freeze])
def test_a_backward_of_before_comes_after_that(pair, grain, change):
    def train(run):
        run.steps(COUNTS[:2])
        old = [*run.model.parameters()]
        late = [run.loss(), run.loss()]
        late.pop().backward()
        run.zero()
        change(run.model)
        for _ in range(4):  # and nobody writes the weights
            run.zero()
            run.backward(2)
            run.attached and run.attached.step()
        late.pop().backward()
        for p in old:
            run.note(p.grad if p.grad is not None else p)

    run = pair(train, grain=grain, eager=None)
    assert run.attached.stats()["renewals"] == 1


@pytest.mark.parametrize("grain", WHOLE)
def test_weights_that_are_lent_for_a_call(pair, grain):
    def train(run):
        run.steps(COUNTS[:3])
        lent = {n: (p.detach() * 0.5).requires_grad_()
                for n, p in run.model.named_parameters()}
        y = torch.func.functional_call(run.model, lent,
                                       (run.tokens()[:, :-1],))
        run.note(y)
        for grad in torch.autograd.grad(y.square().mean(),
                                        list(lent.values())):
            run.note(grad)
        run.steps(COUNTS[:2])

    pair(train, grain=grain, eager=None)


def test_frozen_ones_that_are_trained_later(pair):
    def train(run):
        run.steps(COUNTS[:3])
        for p in run.model.layers[0].parameters():
            p.requires_grad_(True)
        run.steps()

    run = pair(train, model=changed(frozen("layers.0")), eager=["replaced"])
    assert_renewed(run)


@GRAIN
def test_values_that_are_loaded_are_read(pair, grain):
    """In place: nothing has to be recorded again."""
    def train(run):
        state = copy.deepcopy(run.model.state_dict())
        run.steps()
        run.model.load_state_dict(state)
        run.steps()

    pair(train, grain=grain)


def test_attach_again_after_a_change(pair):
    def train(run):
        run.steps(COUNTS[:3])
        replace(run.model)
        run.optimizer = torch.optim.SGD(run.model.parameters(), lr=1e-2)
        if run.attached is not None:
            run.detach()
            run.attach()
        run.steps()

    run = pair(train)
    assert run.attached.stats()["replays"] == 2 * LAYERS * sum(COUNTS[1:])


# ---- changed within a step -------------------------------------------------


@GRAIN
def test_weights_that_are_others_for_a_pass(pair, grain):
    """SAM takes the gradient beside them, and puts them back."""
    def train(run):
        parameters = list(run.model.parameters())
        for _ in COUNTS:
            run.zero()
            run.loss().backward()
            before = [p.data for p in parameters]
            for p in parameters:
                p.data = p.data + 0.05 * p.grad
            run.zero()
            run.loss().backward()
            for p, data in zip(parameters, before):
                p.data = data
            run.optimizer.step()

    pair(train, grain=grain, eager=["replaced"])


@GRAIN
@pytest.mark.parametrize("which", ["mlp.down.weight", "bias"])
def test_some_weights_that_are_lent_for_a_call(pair, grain, which):
    """None of them is the first of its layer."""
    def train(run):
        run.steps(COUNTS[:2])
        for _ in COUNTS:
            run.zero()
            run.loss().backward()
            lent = {n: p * 0.5
                    for n, p in run.model.layers.named_parameters("layers")
                    if n.endswith(which)}
            y = torch.func.functional_call(run.model, lent,
                                           (run.tokens()[:, :-1],))
            run.note(y)
            y.square().mean().backward()
            run.optimizer.step()

    pair(train, grain=grain, eager=["replaced"])


@GRAIN
def test_a_weight_that_is_replaced_between_microbatches(pair, grain):
    def train(run):
        run.steps(COUNTS[:3])
        run.zero()
        run.loss().backward()
        mlp = run.model.layers[1].mlp
        mlp.down.weight = nn.Parameter(mlp.down.weight.detach() * 0.5)
        run.optimizer = torch.optim.SGD(run.model.parameters(), lr=1e-2)
        run.backward(2)
        run.optimizer.step()
        run.steps(COUNTS[:2])

    run = pair(train, grain=grain, eager=["replaced"])
    assert_renewed(run)


@GRAIN
def test_weights_that_are_frozen_for_a_microbatch(pair, grain):
    def train(run):
        some = [p for n, p in run.model.layers.named_parameters()
                if n.endswith(("out.weight", "down.weight"))]
        for _ in COUNTS:
            run.zero()
            run.backward(2)
            for p in some:
                p.requires_grad_(False)
            run.backward(1)
            for p in some:
                p.requires_grad_(True)
            run.backward(1)
            run.optimizer.step()

    pair(train, grain=grain, eager=["replaced"])


@GRAIN
def test_a_hook_of_a_submodule_for_a_microbatch(pair, grain):
    def train(run):
        for _ in COUNTS:
            run.zero()
            run.backward(2)
            handle = run.model.layers[1].mlp.up.register_forward_hook(
                lambda module, args, out: run.note(out, "up"))
            run.backward(1)
            handle.remove()
            run.backward(1)
            run.optimizer.step()

    pair(train, grain=grain, eager=["hooks"])


@GRAIN
@pytest.mark.parametrize("which", ["mlp.up.bias", "mlp.down.weight"])
def test_a_hook_that_comes_to_any_parameter(pair, grain, which):
    def train(run):
        run.steps(COUNTS[:3])
        run.zero()
        loss = run.loss()
        weight = run.model.layers[1].get_parameter(which)
        handle = weight.register_hook(lambda grad: grad * 0.5)
        loss.backward()
        handle.remove()
        run.optimizer.step()
        run.steps(COUNTS[:2])

    pair(train, grain=grain, eager=["backward"])


class Averages(Block):
    """Has another tensor for a buffer after each call."""

    first = 0  # of the calls that do
    calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(64))

    def forward(self, x):
        if self.calls >= self.first:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean((0, 1))
        self.calls += 1
        return super().forward(x - self.mean)


class AveragesLater(Averages):
    first = 1  # which is recorded


class MovesLater(AveragesLater):
    """Sets what its buffer holds."""

    def forward(self, x):
        if self.calls >= self.first:
            self.mean.data = 0.9 * self.mean + 0.1 * x.detach().mean((0, 1))
        self.calls += 1
        return Block.forward(self, x - 0.1 * self.mean)


class Renorms(Block):
    """Keeps a weight short, from its second call on."""

    calls = 0

    def forward(self, x):
        if self.calls >= 1:
            weight = self.mlp.up.weight
            weight.data = torch.renorm(weight.data, 2, 0, 0.3)
        self.calls += 1
        return super().forward(x)


class Swaps(Block):
    """Has another parameter from its second call on."""

    calls = 0

    def forward(self, x):
        if self.calls == 1:
            weight = self.mlp.up.weight
            self.mlp.up.weight = nn.Parameter(weight.detach() * 0.9)
        self.calls += 1
        return super().forward(x)


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("make, refused", [
    (Averages, "replace[sd]"),
    (AveragesLater, "replaces a parameter or a buffer"),
    (MovesLater, "replace[sd]"), (Renorms, "replace[sd]"),
    (Swaps, "replaces a parameter or a buffer")],
    ids=["always", "later", "data", "data of a parameter", "parameter"])
def test_what_a_layer_replaces(pair, grain, make, refused):
    """There is no warmup that shows it."""
    pair(lambda r: r.steps(), grain=grain, make=make, replays=False,
         refused=refused, eager=None, warmup_steps=0)


class Shared(Model):
    """All layers have one norm, and its buffers."""

    def __init__(self, make=Block) -> None:
        super().__init__(make)
        for layer in self.layers:
            layer.norm = self.layers[0].norm


@pytest.mark.parametrize("grain", WHOLE)
def test_layers_that_share_a_module_with_buffers(pair, grain):
    pair(lambda r: r.steps(), grain=grain, model=Shared, make=Normed)


@GRAIN
def test_buffers_are_written_before_a_late_first_backward(pair, grain):
    def train(run):
        run.step(1)
        run.loss()  # is recorded, and no backward comes
        run.step(1)
        state = run.model.state_dict()
        run.model.load_state_dict({n: t.clone() for n, t in state.items()})
        run.steps([1, 1])

    pair(train, grain=grain, make=Normed)


@GRAIN
def test_weights_that_are_lent_to_later_layers(pair, grain):
    """The first layer of the call has all that is its own."""
    class Lends(Model):
        lends = False

        def run_layers(self, x):
            first, *others = self.layers
            x = first(x)
            for layer in others:
                x = torch.func.functional_call(layer, {
                    n: p * 1.5 for n, p in layer.named_parameters()
                }, (x,)) if self.lends else layer(x)
            return x

    def train(run):
        for i, count in enumerate(COUNTS):
            run.model.lends = i in (2, 4)
            run.step(count)

    pair(train, grain=grain, model=Lends, eager=None,
         refused="other parameters or" if grain == "chunk" else None)


@pytest.mark.parametrize("grain", WHOLE)
def test_layers_that_are_frozen_for_a_part_of_each_step(pair, grain):
    """As a discriminator is, while the generator learns from it."""
    def train(run):
        layers = run.model.layers
        for _ in range(6):
            run.step(2)
            run.zero()
            layers.requires_grad_(False)
            run.loss().backward()
            layers.requires_grad_(True)
            run.note(run.model.embed.weight.grad)

    run = pair(train, grain=grain, eager=["replaced"])
    assert run.attached.stats()["replays"] >= 4 * 2 * 2


# ---- used several times, and elsewhere too ----------------------------------


class Thrice(Block):
    """Uses a weight three times in one call."""

    def forward(self, x):
        return super().forward(x + .1 * self.attn.out(self.attn.out(x)))


class Penal(Model):
    def run_layers(self, x):
        weight = self.layers[1].attn.out.weight
        return super().run_layers(x) + .01 * weight.square().sum()


@pytest.mark.parametrize("grain", WHOLE)
def test_a_weight_used_several_times(pair, grain):
    pair(lambda r: r.steps(), grain=grain, make=Thrice)


@pytest.mark.parametrize("grain, replays", [("layer", True),
                                            ("chunk", False)])
def test_a_weight_used_several_times_and_in_the_loss(pair, grain, replays):
    """Eager adds up (loss + first) + second, a graph gives first + second."""
    run = pair(lambda r: r.steps(), grain=grain, make=Thrice, model=Penal,
               replays=replays, refused=r"weight is used 3 times in it, and "
               "elsewhere too")
    assert len(run.attached.stats()["refused"]) == 1


class Views(Model):
    """Two of a batch, whose losses are summed."""

    def run_layers(self, x):
        return super().run_layers(x) - super().run_layers(x.flip(0))


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("make, replays", [(Block, True), (Thrice, False)])
def test_a_weight_used_several_times_in_two_calls(pair, grain, make, replays):
    """Eager adds up all gradients one by one, and a graph those of a call."""
    pair(lambda r: r.steps(), grain=grain, make=make, model=Views,
         replays=replays,
         refused=None if replays else "weight is used 3 times in it, and "
         "elsewhere too, or in another call")


def sums_later(run, counts=(1, 1, 3, 2)):
    """Of two losses each, after steps of one."""
    run.steps([1, 1])
    for count in counts:
        run.zero()
        for _ in range(count):
            (run.loss() + run.loss()).backward()
        note_gradients(run)
        run.optimizer.step()


class Tied(Model):
    def __init__(self, make):
        super().__init__(make)
        self.layers[2].mlp.up.weight = self.layers[0].mlp.up.weight


def listen(run):
    """To a weight that is used several times."""
    run.model.layers[1].attn.out.weight.register_post_accumulate_grad_hook(
        lambda p: run.note(p.grad))


@pytest.mark.parametrize("grain, make, model, before, how", [
    *((grain, Thrice, None, before, {}) for grain in WHOLE
      for before in (None, listen)),
    *((grain, Thrice, None, None, {"gradients": "autograd"})
      for grain in WHOLE),
    ("chunk", Block, Tied, None, {})])
def test_calls_of_one_backward_that_come_later(pair, grain, make, model,
                                               before, how):
    """Eager adds up ((a + b) + c) + d, graphs (a + b) + (c + d)."""
    run = pair(sums_later, grain=grain, make=make, model=model,
               before=before, max_slots=4, eager=None,
               refused="weight is used several times in it, and one backward",
               **how)
    # What is not used so has its graphs.
    assert run.attached.stats()["replays"] >= 2


@pytest.mark.parametrize("frozen", [True, False])
def test_calls_of_one_backward_where_weights_are_frozen(pair, frozen):
    """Between a forward and its backward."""
    def train(run):
        run.steps([1, 1])
        run.zero()
        loss = run.loss() + run.loss()
        run.model.layers[1].attn.out.weight.requires_grad_(not frozen)
        loss.backward()
        run.model.layers[1].attn.out.weight.requires_grad_(True)
        note_gradients(run)
        run.optimizer.step()

    pair(train, make=Thrice, max_slots=4, eager=None,
         refused="is used several times in it, and one backward")


@pytest.mark.parametrize("grain", WHOLE)
def test_calls_of_one_backward_where_a_weight_is_used_once(pair, grain):
    pair(sums_later, grain=grain, max_slots=4)


# ---- losses that are summed, of which some are eager -----------------------


def sum_of(losses):
    return sum(losses[1:], losses[0])


def sums(run, count=3, accumulated=2, zeros=False, again=False, early=0,
         ):
    """Of so many microbatches; `early`: one of them went back before, and so
    many came after that."""
    for _ in range(4):
        run.zero(not zeros)
        for _ in range(accumulated):
            losses = [run.loss() for _ in range(count)]
            if early:
                losses.pop(0).backward()
                losses += [run.loss() for _ in range(early)]
            loss = sum_of(losses)
            loss.backward(retain_graph=again)
            if again:
                loss.backward()
        note_gradients(run)
        run.optimizer.step()


@GRAIN
@pytest.mark.parametrize("count, slots", [(2, 1), (3, 1), (3, 2), (5, 3)])
def test_summed_losses_of_which_some_found_no_slot(pair, grain, count, slots):
    """Eager adds up (third + second) + first, and that to `.grad`."""
    pair(lambda r: sums(r, count), grain=grain, max_slots=slots,
         eager=["busy"])


@GRAIN
@pytest.mark.parametrize("limit", [1 << 14, 3 << 14])
def test_summed_losses_of_which_some_found_no_memory(pair, monkeypatch, grain,
                                                     limit):
    monkeypatch.setenv("GRAPHHOOKS_MEMORY_LIMIT", str(limit))
    run = pair(sums, grain=grain, judge=False)
    assert "elsewhere" not in run.attached.stats()["eager_calls"]


@GRAIN
@pytest.mark.parametrize("count, slots, early", [(2, 1, 1), (3, 2, 1),
                                                 (3, 3, 2), (4, 3, 1)])
def test_a_summed_loss_without_a_slot_after_some_with_one(pair, grain, count,
                                                          slots, early):
    """A graph goes back first, or last too, and then there is a slot."""
    pair(lambda r: sums(r, count, 1, early=early), grain=grain,
         max_slots=slots, eager=["busy"],
         before=lambda run: run.step(1, set_to_none=False))


@pytest.mark.parametrize("how", [
    {"zeros": True}, {"again": True}, {"zeros": True, "early": 1}])
@pytest.mark.parametrize("options", [
    {}, {"verify": "always"}, {"offload": True}, {"gradients": "autograd"}])
def test_summed_losses_in_other_ways(pair, how, options):
    pair(lambda r: sums(r, **how), max_slots=2, judge=False, **options)


@pytest.mark.parametrize("grain", WHOLE)
def test_summed_losses_where_a_weight_is_used_several_times(pair, grain):
    def train(run):
        run.steps([1, 1])
        sums(run)

    pair(train, grain=grain, make=Thrice, max_slots=2, eager=None,
         refused="weight is used several times in it, and one backward")


def test_an_eager_call_that_uses_a_weight_several_times_is_said(runs):
    """Autograd adds these up before what comes after a graph's."""
    run = runs(grain="layer", make=Thrice, max_slots=1)
    run.steps([1, 1])
    sums(run, 2, early=1)
    assert run.attached.stats()["eager_calls"]["elsewhere"] == LAYERS


class Fails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        raise ZeroDivisionError


class FailsAt(Model):
    """The way back stops behind that layer."""

    at = None

    def run_layers(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(Fails.apply(x) if i == self.at else x)
        return x


@pytest.mark.parametrize("slots", [2, 3])
@pytest.mark.parametrize("which", [0, 2])
@pytest.mark.parametrize("at", range(LAYERS))
def test_a_sum_that_fails_on_the_way(pair, at, which, slots):
    """What layers have by then is added, and no part of what others have."""
    def train(run):
        for step in range(5):
            run.zero()
            run.loss().backward()
            losses = []
            for i in range(3):
                run.model.at = at if step > 1 and i == which else None
                losses.append(run.loss())
            try:
                sum(losses).backward()
            except ZeroDivisionError:
                run.note(torch.tensor(step))
            del losses
            run.model.at = None
            note_gradients(run)
            (run.loss() + run.loss() + run.loss()).backward()
            note_gradients(run)
            run.optimizer.step()

    pair(train, model=FailsAt, max_slots=slots, judge=False)


@pytest.mark.parametrize("at", [1, 2])
def test_modules_that_a_graph_has_run_in_vain_get_nothing_of_it(pair, at):
    """What they have is added at once, also if the pass then fails."""
    def train(run):
        run.steps([1, 1])
        run.zero()
        run.loss().backward()
        run.model.at = at
        with pytest.raises(ZeroDivisionError):
            run.loss().backward()
        note_gradients(run)
        run.optimizer.step()

    pair(train, grain="chunk", model=FailsAt, refused="is called otherwise")


def test_a_sum_that_a_new_hook_waits_for(pair):
    """It is called for all that comes."""
    def train(run):
        p = run.model.layers[1].mlp.up.weight
        total = torch.zeros_like(p)

        def hook(p):
            total.add_(p.grad)
            p.grad = None

        run.steps([1, 1])
        for _ in range(2):
            run.zero()
            losses = [run.loss(), run.loss()]
            handle = p.register_post_accumulate_grad_hook(hook)
            sum_of(losses).backward()
            handle.remove()
            run.note(total)
            total.zero_()
            run.optimizer.step()

    pair(train, max_slots=1, judge=False)


class Single(nn.Module):
    """A layer of one weight."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WIDTH) / 8)

    def forward(self, x):
        return x + x * self.weight


@pytest.mark.parametrize("count, slots, early, exact", [
    (2, 1, 0, True), (2, 1, 1, True), (3, 2, 0, False), (3, 2, 1, False)])
def test_a_sum_of_a_layers_only_weight(runs, count, slots, early, exact):
    """Nothing tells when what is not of graphs has come."""
    eager, run = (runs(make=Single, **how)
                  for how in ({}, {"grain": "layer", "max_slots": slots}))
    sums(eager, count, 1, early=early)
    sums(run, count, 1, early=early)
    said = "elsewhere" in run.attached.stats()["eager_calls"]
    assert said is not exact
    assert said or differing(eager.state(), run.state()) == []


def test_a_sum_waits_for_the_stream_that_wrote_last(runs, monkeypatch):
    """Autograd adds up what it has on a stream of its own."""
    came = []

    def note(what, of, name):
        call = getattr(of, name)

        def noting(*args):
            came.append(what)
            return call(*args)

        monkeypatch.setattr(of, name, noting)

    run = runs(grain="layer", max_slots=1)
    run.steps([1, 1])
    note("order", Writes, "order")
    note("take", Aside, "take")
    sums(run, 2)
    took = [i for i, what in enumerate(came) if what == "take"]
    assert took and all(came[i - 1] == "order" for i in took)


@pytest.mark.parametrize("count, slots, early", [
    (2, 1, 0), (2, 1, 1), (3, 2, 0), (3, 2, 1), (3, 3, 2)])
def test_a_sum_for_an_engine_that_is_told(pair, count, slots, early):
    """It adds what autograd has summed up to a buffer of its own."""
    def put(p):
        if p.grad is not None:
            p.main_grad.add_(p.grad)
            p.grad = None

    def before(run):
        run.nodes = []  # which live as long as somebody has them
        for layer in run.model.layers:
            p = layer.mlp.up.weight
            p.main_grad = torch.zeros_like(p)
            put_gradients(layer, {p: put})
            run.nodes.append(get_gradient_edge(p).node)
            run.nodes[-1].register_hook(lambda *_, p=p: put(p))

    def train(run):
        run.steps([count, count])
        sums(run, count, 1, early=early)
        for layer in run.model.layers:
            run.note(layer.mlp.up.weight.main_grad)

    pair(train, max_slots=slots, before=before, eager=None,
         refused="to main_grad, and the graphs would add each")


@pytest.mark.parametrize("options", [{}, {"gradients": "autograd"}])
def test_sums_of_backwards_in_two(pair, options):
    pair(lambda r: sums(r, 2), max_slots=1, split_backward=True, judge=False,
         **options)


@pytest.mark.parametrize("options", [{}, {"gradients": "autograd"}])
def test_who_asks_a_backward_in_two_for_weights(pair, options):
    def train(run):
        run.steps([2, 2])
        for _ in range(2):
            for grad in torch.autograd.grad(
                    run.loss(), [*run.model.layers.parameters()]):
                run.note(grad)
            run.step(2)

    pair(train, split_backward=True, **options)


@pytest.mark.parametrize("first", ["embed.weight", "layers.1.mlp.up.weight"])
@pytest.mark.parametrize("second", [[], ["layers.0.norm1.weight",
                                         "layers.2.mlp.up.weight"]])
@pytest.mark.parametrize("options", [{}, {"gradients": "autograd"}])
def test_another_backward_is_no_second_of_two(pair, first, second, options):
    """It goes on to the layers before."""
    def train(run):
        run.steps([2, 2])
        for _ in range(2):
            run.zero()
            loss = run.loss()
            loss.backward(inputs=[run.model.get_parameter(first)],
                          retain_graph=True)
            loss.backward(inputs=[*map(run.model.get_parameter, second)]
                          or None)
            note_gradients(run)
            run.optimizer.step()

    pair(train, split_backward=True, eager=None, refused="second backward",
         **options)


@pytest.mark.parametrize("early", [0, 1])
@pytest.mark.parametrize("names", [["mlp.up.weight"], ["norm1.weight"],
                                   ["attn.out.bias", "norm1.weight"]])
@pytest.mark.parametrize("gives", [False, True])
@pytest.mark.parametrize("options", [{}, {"split_backward": True}])
def test_a_sum_for_who_asks_for_some(pair, names, early, gives, options):
    """As by backward(inputs=...), and by autograd.grad()."""
    def train(run):
        those = [run.model.layers[1].get_parameter(n) for n in names]
        sums(run)
        for _ in range(2):
            losses = [run.loss(), run.loss()]
            if early:
                losses.pop(0).backward()
                losses.append(run.loss())
            if gives:
                for grad in torch.autograd.grad(sum_of(losses), those):
                    run.note(grad)
            else:
                sum_of(losses).backward(inputs=those)
            note_gradients(run)

    pair(train, max_slots=1, judge=False, **options)


@pytest.mark.parametrize("early", [0, 1])
@pytest.mark.parametrize("name", ["norm1.weight", "mlp.up.weight"])
def test_a_sum_of_what_is_frozen_before_it_goes_back(pair, name, early):
    def train(run):
        p = run.model.layers[1].get_parameter(name)
        run.steps([2, 2])
        for _ in range(2):
            run.zero()
            losses = [run.loss(), run.loss()]
            if early:
                losses.pop(0).backward()
                losses.append(run.loss())
            p.requires_grad_(False)
            sum_of(losses).backward()
            p.requires_grad_(True)
            note_gradients(run)
            run.optimizer.step()

    pair(train, max_slots=1, judge=False)


@pytest.mark.parametrize("of", range(2))
def test_a_sum_in_which_somebody_detaches(pair, of):
    """Nobody notices what comes to weights from there on."""
    def train(run):
        sums(run)
        run.zero()
        losses = [run.loss() for _ in range(2)]
        losses[of].register_hook(lambda g: run.detach())
        sum_of(losses).backward()
        note_gradients(run)

    pair(train, max_slots=1, judge=False)


def test_a_weight_that_is_kept_as_it_was(pair):
    """Whoever has `.grad` of before sees what is added to it."""
    def train(run):
        for _ in range(4):
            run.zero()
            run.loss().backward()
            kept = [p.grad for p in run.model.parameters()]
            (run.loss() + run.loss() + run.loss()).backward()
            for grad in kept:
                run.note(grad)
            run.optimizer.step()

    pair(train, max_slots=2, eager=["busy"])


class Ahead(Model):
    """A weight is used on the way to the layers, and in one of them."""

    def run_layers(self, x):
        weight = self.layers[1].attn.out.weight
        return super().run_layers(x + F.linear(x, weight))


class InTheLast:
    """The microbatch that is the last of four has another loss."""

    calls = 0

    def is_last(self) -> bool:
        self.calls += 1
        return self.calls % 4 == 0


class LastPenal(InTheLast, Penal):
    def run_layers(self, x):
        return (Penal if self.is_last() else Model).run_layers(self, x)


class LastAhead(InTheLast, Ahead):
    def run_layers(self, x):
        return (Ahead if self.is_last() else Model).run_layers(self, x)


class LastSkips(InTheLast, Model):
    def run_layers(self, x):
        first, second, third = self.layers
        before = first(x)
        after = third(second(before))
        return before + after if self.is_last() else after


class Loop(Model):
    def run_layers(self, x):
        return super().run_layers(super().run_layers(x))


@pytest.mark.parametrize("grain", WHOLE)
def test_a_weight_used_on_the_way_to_its_layer(pair, grain):
    """Eager adds both to a microbatch before: .grad + (layer + way)."""
    pair(lambda r: r.steps(), grain=grain, model=Ahead)


@pytest.mark.parametrize("in_flight", [1, 3])
@pytest.mark.parametrize("grain, model", [
    ("layer", LastPenal), ("chunk", LastPenal), ("layer", LastAhead),
    ("chunk", LastAhead), ("layer", LastSkips)])
def test_what_only_the_last_microbatch_uses(pair, grain, model, in_flight):
    pair(lambda r: r.steps((4, 4, 4), in_flight=in_flight), grain=grain,
         model=model)


class Later:
    """From the second step on, of four microbatches."""

    calls = 0

    def is_later(self) -> bool:
        self.calls += 1
        return self.calls > 4


class LaterPenal(Later, Penal):
    def run_layers(self, x):
        return (Penal if self.is_later() else Model).run_layers(self, x)


class LaterAhead(Later, Ahead):
    def run_layers(self, x):
        return (Ahead if self.is_later() else Model).run_layers(self, x)


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("how", [{}, {"set_to_none": False}, {"in_flight": 3}])
def test_a_penalty_that_comes_later(pair, grain, how):
    """What comes before the graph's is added up with that."""
    pair(lambda r: r.steps((4, 4, 4), **how), grain=grain, model=LaterPenal)


@pytest.mark.parametrize("grain", WHOLE)
def test_what_comes_later_behind_a_layer_is_said(runs, caplog, grain):
    """The graph has added its own by then."""
    run = runs(grain=grain, model=LaterAhead).steps((4, 4, 4))
    assert run.attached.stats()["eager_calls"]["elsewhere"] == 8
    said = [r.message for r in caplog.records if "elsewhere" in r.message]
    assert len(said) == 1 and said[0].startswith(
        f"{run.attached.segments[-2 if grain == 'layer' else 0].name}: a "
        "parameter has got a gradient from elsewhere in a backward")
    assert "attach again before a step that does so" in said[0]


@pytest.mark.parametrize("grain", WHOLE)
def test_what_comes_later_behind_a_layer_to_one_microbatch(pair, grain):
    """There is no `.grad` that both are added to."""
    pair(lambda r: r.steps([1] * 8), grain=grain, model=LaterAhead,
         eager=["elsewhere"])


class WithHead(Block):
    """Has a module that only the loss uses."""

    def __init__(self):
        super().__init__()
        self.aux = nn.Linear(WIDTH, WIDTH)


class Supervised(Model):
    def run_layers(self, x):
        found = 0
        for layer in self.layers:
            x = layer(x)
            found = found + layer.aux(x).square().mean()
        return x + found


def test_weights_of_a_layer_that_only_the_loss_uses(pair):
    pair(lambda r: r.steps(), model=Supervised, make=WithHead)


class Scaled(Block):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((WIDTH,), 1.1))

    def forward(self, x, scale):
        return super().forward(x * scale) * self.scale


class GivesWeights(Model):
    def run_layers(self, x):
        for layer in self.layers:
            x = layer(x, layer.scale)
        return x


def test_a_weight_of_a_layer_that_it_is_given_too(pair):
    pair(lambda r: r.steps((4, 4, 4)), model=GivesWeights, make=Scaled)


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("max_slots", [1, 2, 4])
def test_a_stack_that_runs_twice(pair, grain, max_slots):
    """There may be a graph for one call only."""
    pair(lambda r: r.steps(), grain=grain, model=Loop, max_slots=max_slots,
         eager=["busy"] if max_slots == 1 else [])


def parametrized(make):
    model = Penal(make)
    for layer in model.layers:
        torch.nn.utils.parametrizations.weight_norm(layer.attn.out)
    return model


@pytest.mark.parametrize("grain", WHOLE)
def test_parametrized_weights_that_are_kept_for_a_pass(pair, grain):
    """The loss has those of the layer's call, which a recording would have
    made of its own."""
    def train(run):
        for count in COUNTS:
            run.zero()
            for _ in range(count):
                with parametrize.cached():
                    loss = run.loss()
                loss.backward()
            run.optimizer.step()

    pair(train, grain=grain, model=parametrized, replays=False,
         eager=["parametrize"])


# ---- frozen on the way, laid out otherwise, and what comes later ------------


@pytest.mark.parametrize("in_flight", [1, 2])
@pytest.mark.parametrize("counts", [[1, 1, 1], [3, 3], [1]])
@pytest.mark.parametrize("grain", GRAINS)
def test_weights_frozen_between_forward_and_backward(
        pair, grain, counts, in_flight):
    """As of a discriminator: autograd drops their gradients."""
    def train(run):
        run.steps(counts)
        run.zero()
        run.loss().backward()  # there is something to add to
        losses = [run.loss() for _ in range(in_flight)]
        run.model.layers[1].requires_grad_(False)
        for loss in losses:
            loss.backward()
        run.model.layers[1].requires_grad_(True)
        run.optimizer.step()
        run.zero()
        loss = sum(run.loss() for _ in range(in_flight))
        run.model.layers[0].attn.requires_grad_(False)
        loss.backward()
        run.model.layers[0].attn.requires_grad_(True)
        run.optimizer.step()
        run.steps(counts)

    pair(train, grain=grain, judge=False)


@pytest.mark.parametrize("grain", GRAINS)
def test_who_asks_for_gradients_of_others_when_all_are_frozen(pair, grain):
    """Between the forward and its backward: no node is asked for that there
    is none of."""
    def train(run):
        run.steps([1, 1, 1])
        loss = run.loss()
        run.model.layers.requires_grad_(False)
        run.note(*torch.autograd.grad(loss, run.model.embed.weight))
        run.model.layers.requires_grad_(True)
        run.steps([1, 1])

    pair(train, grain=grain)


@pytest.mark.parametrize("grain", GRAINS)
def test_weights_laid_out_otherwise_in_their_memory(pair, grain):
    def train(run):
        run.steps([1, 1, 1])
        for layer in run.model.layers:
            weight = layer.attn.out.weight
            weight.data = weight.data.t()
        run.steps([1, 1, 1])

    pair(train, grain=grain, eager=["replaced"], judge=False)


class Adapted(Block):
    """A frozen MLP, weights of a low rank beside it, and a buffer."""

    def __init__(self):
        super().__init__()
        self.mlp.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(8, WIDTH) / 8)
        self.up = nn.Parameter(torch.randn(WIDTH, 8) / 8)
        self.register_buffer("scale", torch.ones(8))

    def forward(self, x):
        x = super().forward(x)
        return x + F.linear(F.linear(x, self.down), self.up) * self.scale.sum()


def prune(layer):
    up, down = layer.mlp.up, layer.mlp.down
    up.weight.data, up.bias.data = up.weight.data[:WIDTH], up.bias.data[:WIDTH]
    down.weight.data = down.weight.data[:, :WIDTH]


def lower_the_rank(layer):
    layer.down.data, layer.up.data = layer.down.data[:4], layer.up.data[:, :4]


def shrink(layer):
    layer.scale.resize_(4)


@pytest.mark.parametrize("change", [prune, lower_the_rank, shrink])
@pytest.mark.parametrize("grain", WHOLE)
def test_what_becomes_a_part_of_itself(pair, grain, change):
    """Address and strides say nothing of it."""
    def train(run):
        run.steps([2, 2, 2])
        run.zero()
        for layer in run.model.layers:
            change(layer)
        run.optimizer = adamw(run.model)
        run.steps([2, 2, 2])

    run = pair(train, grain=grain, make=Adapted, eager=["replaced"])
    assert run.attached.stats()["renewals"] == 1


@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("grain", GRAINS)
def test_weights_that_are_another_type_for_a_while(pair, grain, pending):
    """Torch adds their gradients up elsewhere from then on."""
    def train(run):
        run.steps([2, 2, 2])
        run.zero()
        losses = [run.loss()] * pending
        for p in run.model.layers.parameters():
            own = p.data
            p.data = own.half()
            p.data = own
        for loss in losses:
            loss.backward()
        run.backward(2)
        run.optimizer.step()
        run.steps([2, 2])

    run = pair(train, grain=grain)
    assert "partial_backward" not in run.attached.stats()["eager_calls"]


def move(model):
    for p in model.parameters():
        p.data = p.data.clone()


@pytest.mark.parametrize("change", [move, torch.nn.Module.double])
@pytest.mark.parametrize("grain", GRAINS)
def test_weights_that_are_others_before_the_first_call(pair, grain, change):
    """As of who wraps the model after the attach."""
    def train(run):
        change(run.model)
        run.steps(COUNTS)

    run = pair(train, grain=grain)
    assert run.attached.stats()["eager_calls"].keys() == {"warmup"}


@GRAIN
@pytest.mark.parametrize("copies", [False, True])
def test_weights_that_are_others_in_each_step(pair, grain, copies):
    """As SAM's common form leaves them, and as what is said of them has it."""
    def train(run):
        for _ in range(20):
            run.zero()
            run.loss().backward()
            parameters = list(run.model.parameters())
            before = [p.data.clone() for p in parameters]
            with torch.no_grad():
                for p in parameters:
                    p.add_(0.05 * p.grad)
            run.zero()
            run.loss().backward()
            for p, data in zip(parameters, before):
                if copies:
                    p.data.copy_(data)
                else:
                    p.data = data
            run.optimizer.step()

    run = pair(train, grain=grain, judge=False)
    stats = run.attached.stats()
    if copies:
        assert stats["eager_calls"].keys() <= {"warmup", "gradients_moved"}
        assert stats["renewals"] == 0
    else:  # after the second attach anew graphs read copies
        assert stats["renewals"] == 2
        assert stats["replays"] > 20 * len(run.attached.segments)
        said = run.attached.explain()
        assert "layers.0 and 2 more have parameters that are set to other " \
            "memory time and again (p.data = ...)" in said


class Tables(Block):
    """With a buffer that the first call makes as it needs it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.zeros(()).cuda(),
                             persistent=False)

    def forward(self, x):
        if self.table.shape != x.shape:
            self.register_buffer("table", torch.linspace(
                0, 1, x.numel()).reshape(x.shape).cuda(), persistent=False)
        return super().forward(x) + self.table


@pytest.mark.parametrize("grain", GRAINS)
def test_buffers_that_a_first_call_makes(pair, grain):
    run = pair(lambda run: run.steps(COUNTS), grain=grain, make=Tables)
    stats = run.attached.stats()
    assert stats["eager_calls"].keys() == {"warmup"} and stats["replays"] > 0


class Grows(Block):
    def __init__(self):
        super().__init__()
        self.adapters = nn.ModuleList()

    def forward(self, x):
        x = super().forward(x)
        for adapter in self.adapters:
            x = x + adapter(x)
        return x * getattr(self, "scale", 1.0)


@pytest.mark.parametrize("what", ["module", "buffer"])
@pytest.mark.parametrize("grain", WHOLE)
def test_the_first_of_its_kind_that_comes_later(pair, grain, what):
    def train(run):
        run.steps([1, 1, 1])
        torch.manual_seed(3)
        for layer in run.model.layers:
            if what == "module":
                layer.adapters.append(nn.Linear(WIDTH, WIDTH).cuda())
            else:
                layer.register_buffer("scale", torch.full((), 0.5).cuda())
        run.optimizer = adamw(run.model)
        run.steps([1, 1, 1])

    pair(train, grain=grain, make=Grows, eager=["replaced"], judge=False)


@pytest.mark.parametrize("added", [True, False])
@pytest.mark.parametrize("grain", WHOLE)
def test_what_is_trained_behind_a_view_later(pair, grain, added):
    """Its `.grad` is autograd's, and not memory that a graph writes again."""
    def train(run):
        run.steps([1, 1, 1, 2])
        delta = torch.full((BATCH * LENGTH, WIDTH), 0.01).cuda()
        delta.requires_grad_()
        run.zero()
        for _ in range(3):
            x = delta.view(BATCH, LENGTH, WIDTH)
            if added:
                x = x + run.model.embed(run.tokens()[:, :-1])
            y = run.model.head(run.model.run_layers(x))
            y.logsumexp(-1).mean().backward()
            run.note(delta.grad, "delta")

    pair(train, grain=grain)
