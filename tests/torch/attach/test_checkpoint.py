"""Activation checkpointing inside a captured layer, and around it.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import itertools
import threading

import pytest
from models import (COUNTS, DEVICE, WHOLE, WIDTH, Block, Model, Normed,
                    step_in_hooks, torch)
from torch.utils.checkpoint import (CheckpointPolicy, checkpoint,
                                    create_selective_checkpoint_contexts)

from graphhooks.torch.record import checkpoint as gh_checkpoint
from graphhooks.torch.base.tree import Unfit

HOW = pytest.mark.parametrize(
    "reentrant, preserve",
    list(itertools.product([False, True], [False, True])),
    ids=lambda value: str(value))


def inside(reentrant, preserve, dropout=0.0):
    class Inside(Block):
        def forward(self, x):
            return checkpoint(super().forward, x, use_reentrant=reentrant,
                              preserve_rng_state=preserve)

    return lambda: Inside(dropout)


@pytest.mark.parametrize("grain", WHOLE)
@HOW
def test_inside_a_layer(pair, grain, reentrant, preserve):
    pair(lambda r: r.steps(in_flight=2), grain=grain,
         make=inside(reentrant, preserve))


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("reentrant", [False, True])
def test_inside_a_layer_that_drops(pair, grain, reentrant):
    """A capture cannot read the state that checkpointing keeps."""
    pair(lambda r: r.steps(in_flight=2), grain=grain,
         make=inside(reentrant, True, dropout=0.1), replays=False,
         refused="keeps the state of random numbers")


def around(reentrant, preserve=True, more=False):
    class Around(Model):
        def run_layers(self, x):
            for layer in self.layers:
                def call(x, layer=layer):
                    x = layer(x)
                    return torch.tanh(x) * 1.5 if more else x

                x = checkpoint(call, x, use_reentrant=reentrant,
                               preserve_rng_state=preserve)
            return x

    return Around


@pytest.mark.parametrize("grain", ["layer", "part"])
@HOW
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_around_a_layer(pair, grain, reentrant, preserve, dropout):
    """Where eager draws other numbers the second time, so does this."""
    anew = dropout > 0 and not preserve and not reentrant
    run = pair(lambda r: r.steps(in_flight=2), grain=grain,
               make=lambda: Block(dropout), model=around(reentrant, preserve),
               eager=None, replays=not anew)
    assert anew == ("other random numbers" in run.attached.explain())


def replace(weight, names, name):
    names[name] = torch.nn.Parameter(weight.detach() * 1.5)


def move(weight, names, name):
    weight.data = weight.data * 1.5


def write(weight, names, name):
    with torch.no_grad():
        weight.mul_(1.5)


@pytest.mark.parametrize("grain", ["layer", "part"])
@pytest.mark.parametrize("act", [replace, move, write],
                         ids=lambda act: act.__name__)
@pytest.mark.parametrize("name", ["weight", "bias"])
@pytest.mark.parametrize("when", ["first", "later", "hooked", "twice"])
def test_weights_that_are_others_by_the_second_run(pair, grain, act, name,
                                                   when):
    """It is with those that the module has by then, and the gradients are of
    those that it had."""
    def train(run):
        run.steps([] if when == "first" else COUNTS[:2], in_flight=2)
        if when == "first":
            run.step(1)
        for i in range(4):
            run.zero()
            loss = run.loss()
            if i % 2 == 0:
                up = run.model.layers[1].mlp.up
                weight, handle = getattr(up, name), None
                if when == "hooked":
                    handle = weight.register_hook(
                        lambda grad: run.note(grad) or grad * 2)
                act(weight, up._parameters, name)
            loss.backward(retain_graph=when == "twice")
            if when == "twice":
                loss.backward()
            if i % 2 == 0:
                for each in (weight, getattr(up, name)):
                    if each.grad is not None:
                        run.note(each.grad)
                if handle is not None:
                    handle.remove()
            run.optimizer.step()

    pair(train, grain=grain, eager=None, make=lambda: Block(0.1),
         model=around(False), judge=False)


class Piece(Model):
    def run_layers(self, x):
        return checkpoint(super().run_layers, x, use_reentrant=False)


@pytest.mark.parametrize("act", [replace, write],
                         ids=lambda act: act.__name__)
def test_weights_that_are_others_in_a_chunk(pair, act):
    def train(run):
        run.steps(COUNTS[:2])
        run.zero()
        loss = run.loss()
        up = run.model.layers[1].mlp.up
        act(up.weight, up._parameters, "weight")
        loss.backward()
        run.optimizer.step()

    pair(train, grain="chunk", model=Piece, eager=None)


def test_weights_that_are_others_before_a_layer(runs):
    """What it is given would be other by then, which is said."""
    run = runs(grain="layer", model=Piece)
    run.steps(COUNTS[:2])
    loss = run.loss()
    write(run.model.layers[0].mlp.up.weight, None, None)
    assert "may not be eager's" not in run.attached.explain()
    loss.backward()
    assert "2 layers (layers.1, layers.2): weights were changed between a " \
        "forward and its backward in a checkpoint" in run.attached.explain()
    assert "may not be eager's" in run.attached.explain()


def test_weights_and_what_a_layer_was_given_are_others(runs):
    """Nothing is left to run the layer again with, which is said."""
    run = runs(grain="layer", model=around(False))
    run.steps(COUNTS[:2])
    given: list = []
    handle = run.model.layers[1].register_forward_pre_hook(
        lambda module, args: given.append(args[0]))
    loss = run.loss()
    handle.remove()
    write(run.model.layers[1].mlp.up.weight, None, None)
    with torch.no_grad():
        given[0].mul_(1.5)
    loss.backward()
    assert "gradients of such a pass are not eager's" \
        in run.attached.explain()


@pytest.mark.parametrize("grain", WHOLE)
def test_weights_that_are_stepped_on_the_way_back(pair, grain):
    """Their layers have run again by then."""
    def train(run):
        step_in_hooks(run)
        run.steps([1, 1, 1, 1])

    run = pair(train, grain=grain, model=Piece, eager=["checkpoint"])
    assert "weights were changed" not in run.attached.explain()
    assert run.attached.stats()["replays"] > 0


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("grain", WHOLE)
def test_a_late_hook_that_runs_the_model(pair, grain, trains):
    """Its backward is no graph, and no capture: states of random numbers can
    be read in it."""
    def train(run):
        def look(grad):
            with torch.set_grad_enabled(trains):
                run.note(run.model(tokens).sum())

        run.steps(COUNTS[:2])
        for i in range(3):
            tokens = run.tokens()[:, :-1]
            run.zero()
            loss = run.loss()
            weight = run.model.layers[1].mlp.up.weight
            handle = weight.register_hook(look) if i == 1 else None
            loss.backward()
            if handle is not None:
                handle.remove()
            run.optimizer.step()

    pair(train, grain=grain, eager=None, apart=None if grain == "layer"
         else "in another mode", make=lambda: Block(0.1),
         model=around(False))


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_around_the_layers_of_a_chunk_that_evaluates(pair, dropout):
    """The run without gradients is no evaluation."""
    run = pair(lambda r: r.steps([1, 1, 2, 1, 1]), grain="chunk", eval=True,
               make=lambda: Block(dropout), model=around(True), judge=False)
    assert (dropout > 0) == ("draws for all its layers at once"
                             in run.attached.explain())


class Inner(Block):
    """Checkpoints within the one around it."""

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + checkpoint(self.mlp, self.norm2(x), use_reentrant=False)


@pytest.mark.parametrize("grain", ["layer", "part"])
@pytest.mark.parametrize("preserve", [False, True])
def test_around_a_checkpoint_that_sets_back(pair, grain, preserve):
    """What the outer one lets the second run draw counts for both."""
    run = pair(lambda r: r.steps(in_flight=2), grain=grain, eager=None,
               make=lambda: Inner(0.1), model=around(False, preserve),
               judge=grain == "part", replays=preserve)
    assert preserve != ("other random numbers" in run.attached.explain())


class Shakes(Block):
    """It draws from a generator that checkpointing does not set back."""

    generator = torch.Generator(DEVICE)

    def forward(self, x):
        shaken = torch.rand(x.shape, device=x.device,
                            generator=self.generator)
        return super().forward(x * shaken)


@pytest.mark.parametrize("again", [[1, 1, 2, 1], [1, 2]])
def test_around_what_draws_from_another_generator(pair, again):
    """Also where checkpointing is new: with graphs that are there by then."""
    def train(run):
        Shakes.generator.manual_seed(3)
        if len(again) < 4:
            run.model.checkpoints = False
            run.steps([2, 2, 1])
        run.model.checkpoints = True
        run.steps(again)
        run.note(Shakes.generator.get_state())

    class Sometimes(around(False)):
        def run_layers(self, x):
            if self.checkpoints:
                return super().run_layers(x)
            return Model.run_layers(self, x)

    run = pair(train, make=Shakes, model=Sometimes, eager=None,
               generators=[Shakes.generator], replays=len(again) < 4)
    assert "the second run begins with other random numbers" \
        in run.attached.explain()


@pytest.mark.parametrize("grain", ["layer", "part"])
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_around_a_layer_and_more(pair, grain, reentrant, dropout):
    """The layer is run again where only what comes after it needs that."""
    pair(lambda r: r.steps(in_flight=2), grain=grain,
         make=lambda: Block(dropout), model=around(reentrant, more=True),
         eager=None)


def test_around_a_chunk_in_one_piece(pair):
    pair(lambda r: r.steps(in_flight=2), grain="chunk", model=Piece,
         eager=["checkpoint"])


class More(Model):
    """What is checkpointed is more than the chunk, which runs again."""

    def piece(self, x):
        x = super().run_layers(x)
        assert x.requires_grad == torch.is_grad_enabled()
        return torch.tanh(x)

    def run_layers(self, x):
        return checkpoint(self.piece, x, use_reentrant=False)


def test_an_evaluation_after_a_chunk_has_run_again(pair):
    """None of its layers keeps anything for a backward."""
    def train(run):
        for count in COUNTS:
            run.step(count)
            x = run.model.embed(run.tokens())
            with torch.no_grad():
                assert not run.model.layers[1](x).requires_grad
                run.loss()

    pair(train, grain="chunk", model=More,
         eager=["checkpoint", "forward_only"])


def test_states_of_random_numbers_in_another_thread(monkeypatch):
    """A recording in this one is not its business."""
    monkeypatch.setattr(gh_checkpoint, "_get_device_states", lambda *_: "own")
    found = []

    def ask():
        found.append(torch.utils.checkpoint.get_device_states())

    with gh_checkpoint.without_states(True):
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        with pytest.raises(Unfit):
            ask()
        with gh_checkpoint.without_states(False):
            ask()
        with pytest.raises(Unfit):
            ask()
    ask()
    assert found == ["own", ([], []), "own"]


@pytest.mark.parametrize("reentrant", [False, True])
def test_around_the_layers_of_a_chunk(pair, reentrant):
    pair(lambda r: r.steps(), grain="chunk", model=around(reentrant),
         eager=None, replays=None,
         apart="is not called" if reentrant else "hooks of saved tensors")


@pytest.mark.parametrize("grain", ["layer", "part"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_around_with_more_in_flight_than_slots(pair, grain, reentrant):
    """A layer that has run eagerly is run again when a slot is free."""
    pair(lambda r: r.steps([5] * 6, in_flight=5), grain=grain, max_slots=2,
         model=around(reentrant), eager=None)


class Recurrent(Model):
    """Calls its layers three times, and checkpoints the second."""

    def run_layers(self, x):
        for i in range(3):
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=True) if i == 1 \
                    else layer(x)
        return x


def test_around_one_call_of_several(pair):
    """It runs within a pass that is still to add up gradients of graphs:
    their slot is none for it."""
    pair(lambda r: r.steps([1, 1, 2, 1]), model=Recurrent, max_slots=8,
         eager=["forward_only", "reentrant"])


class Deep(Block):
    """A checkpoint within a checkpoint, which runs in a pass within the
    pass."""

    def piece(self, x):
        return checkpoint(lambda y: self.mlp(self.norm2(y)), x * 1.5,
                          use_reentrant=True)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + checkpoint(self.piece, x, use_reentrant=True)


class Loop(Model):
    def run_layers(self, x):
        return super().run_layers(super().run_layers(x))


def test_within_a_pass_within_a_pass(pair):
    """Autograd still has the gradients of attention, to add others to them,
    when what is checkpointed runs again."""
    def train(run):
        for count in (1, 1, 2, 1):
            run.zero()
            run.backward(count)
            for p in run.model.parameters():
                run.note(p.grad)
            run.optimizer.step()

    pair(train, grain="part", make=Deep, model=Loop, max_slots=8,
         eager=["forward_only", "reentrant"])


class First(Model):
    """Checkpoints its first layer, which runs last in a step."""

    def run_layers(self, x):
        first, *others = self.layers
        x = checkpoint(first, x, use_reentrant=True)
        for layer in others:
            x = layer(x)
        return x


def test_a_step_by_hand_ends_where_another_layer_begins(pair):
    """What runs again counts as a microbatch, of which others have none."""
    def train(run):
        for _ in range(4):
            run.model.zero_grad()
            run.backward(2, in_flight=2)
            with torch.no_grad():
                for p in run.model.parameters():
                    p -= 0.1 * p.grad

    pair(train, model=First, max_slots=4, eager=None)


class Twice(Block):
    """Its weights are in two backwards of reentrant checkpoints: autograd
    adds them one after the other."""

    def piece(self, x):
        return self.mlp(self.norm2(x))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        x = x + checkpoint(self.piece, x, use_reentrant=True)
        return x + checkpoint(self.piece, x, use_reentrant=True)


@pytest.mark.parametrize("grain", WHOLE)
def test_weights_in_two_checkpoints_of_a_layer(pair, grain):
    pair(lambda r: r.steps(COUNTS[:3]), grain=grain, make=Twice)


class Once(Block):
    """Some of its weights are in a backward of their own."""

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + checkpoint(Twice.piece.__get__(self), x, use_reentrant=True)


class Both(Block):
    """A weight is in a checkpoint and outside of it."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(WIDTH) + 0.5)

    def piece(self, x):
        return self.mlp(self.norm2(x * self.scale))

    def forward(self, x):
        x = x + self.attn(self.norm1(x * self.scale))
        return x + checkpoint(self.piece, x, use_reentrant=True)


class After(Both):
    """The same, where the checkpoint is first."""

    def forward(self, x):
        x = x + checkpoint(self.piece, x, use_reentrant=True)
        return x + self.attn(self.norm1(x * self.scale))


class Tied(Model):
    def __init__(self, make):
        super().__init__(make)
        self.layers[1].mlp.up.weight = self.layers[0].mlp.up.weight


GROWS = [1, 1, 2, 3, 1]  # microbatches: what is written is added later


@pytest.mark.parametrize("grain, make, model", [
    *((grain, make, None) for grain in WHOLE for make in (Twice, Both)),
    ("chunk", Once, Tied)])
def test_more_microbatches_of_what_checkpoints_add_one_by_one(pair, grain,
                                                              make, model):
    """Their sum is not to be added to what is there."""
    def train(run):
        for count in GROWS:
            run.zero()
            run.backward(count)
            for p in run.model.parameters():
                run.note(p.grad)
            run.optimizer.step()

    pair(train, grain=grain, make=make, model=model, verify="off")


def in_pairs(run, counts=(1, 2, 2, 3)):
    """Losses of two microbatches are summed."""
    for count in counts:
        run.zero()
        for _ in range(count):
            (run.loss() + run.loss()).backward()
        for p in run.model.parameters():
            run.note(p.grad)
        run.optimizer.step()


GIVEN = pytest.mark.parametrize("how", [{}, {"gradients": "autograd"}],
                                ids=["in place", "by autograd"])


@GIVEN
@pytest.mark.parametrize("first", [(), (1, 2), (2, 1, 2)])
@pytest.mark.parametrize("grain", WHOLE)
def test_of_several_calls_a_checkpoint_adds_its_gradients_one_by_one(
        pair, grain, first, how):
    """The others of its layer are one sum: which rounds otherwise."""
    def train(run):
        run.steps(first)
        in_pairs(run)

    pair(train, grain=grain, make=Once, eager=None, max_slots=4, **how)


@GIVEN
@pytest.mark.parametrize("first", [(), (1, 1)])
@pytest.mark.parametrize("grain", WHOLE)
def test_where_a_call_adds_several_by_themselves(pair, grain, first, how):
    def train(run):
        run.steps(first)
        in_pairs(run)

    torn = "gets gradients of several backwards within its" if how else None
    pair(train, grain=grain, make=Twice, max_slots=4, eager=None,
         replays=not how, refused=torn, **how)


class Early(Block):
    """Of its attention's output, a backward comes by no checkpoint."""

    def forward(self, x):
        x = x + checkpoint(Twice.piece.__get__(self), x, use_reentrant=True)
        return x + self.attn(self.norm1(x))


@pytest.mark.parametrize("first", [(), (1, 1), (2, 2)])
@pytest.mark.parametrize("grain", WHOLE)
def test_a_pass_that_is_asked_for_what_comes_before_a_checkpoint(pair, grain,
                                                                 first):
    """The graph of the layer runs its checkpoint too, of which torch would
    say that such a pass may not, and whose gradients nobody has asked for."""
    def train(run):
        run.steps(first)
        asked = [*run.model.layers[-1].attn.out.parameters(),
                 *run.model.head.parameters()]
        for count in (1, 2, 2, 1):
            run.zero()
            for _ in range(count):
                loss = run.loss()
                for p, gradient in zip(asked, torch.autograd.grad(loss,
                                                                  asked)):
                    run.note(gradient)
                    p.grad = gradient.clone() if p.grad is None \
                        else p.grad + gradient
            run.note(torch.tensor([p.grad is None for p
                                   in run.model.parameters()]))
            run.optimizer.step()

    pair(train, grain=grain, make=Early, eager=None)


@pytest.mark.parametrize("grain", WHOLE)
def test_a_pass_that_is_asked_for_what_an_eager_layer_has(pair, grain):
    """Nothing else of the layer is asked for then, such as what is in its
    checkpoint."""
    def train(run):
        asked = [*run.model.layers[-1].attn.out.parameters()]
        run.steps((2, 2, 2))
        for _ in range(2):
            run.zero()
            run.loss().backward()
            run.loss().backward(inputs=asked)
            run.optimizer.step()

    def hook(run):
        for p in run.model.layers[1].parameters():
            p.register_hook(lambda gradient: gradient * 2)

    pair(train, grain=grain, make=After, before=hook, eager=None,
         replays=None, refused="gets gradients of several backwards within")


@pytest.mark.parametrize("make", [Early, Twice])
@pytest.mark.parametrize("grain", WHOLE)
def test_a_checkpoint_in_a_backward_that_has_a_derivative(pair, grain, make):
    """Which the gradients of a checkpoint have none of."""
    def train(run):
        run.steps((1, 1, 1))
        run.zero()
        run.loss().backward(create_graph=True)
        for p in run.model.parameters():
            p.grad = p.grad.detach()
            run.note(p.grad)
        run.optimizer.step()

    pair(train, grain=grain, make=make, eager=None,
         refused="no derivative")


@pytest.mark.parametrize("first", [(1, 1), (2, 2)])
@pytest.mark.parametrize("make", [Both, After])
@pytest.mark.parametrize("grain", WHOLE)
def test_of_several_calls_a_weight_that_is_outside_too(pair, grain, make,
                                                       first):
    """Eager adds what comes from within at once, and the rest at the end."""
    def train(run):
        run.steps(first)
        in_pairs(run)

    run = pair(train, grain=grain, make=make, max_slots=4, eager=None,
               verify="off",
               refused="scale is used several times in it, and one backward")
    assert run.attached.stats()["replays"]


class Comes(Once):
    """Its checkpoint comes and goes."""

    is_whole = False

    def forward(self, x):
        return Block.forward(self, x) if self.is_whole else super().forward(x)


def comes_or_goes(run, *wholes):
    """The first of them is in the step that runs eagerly."""
    for whole in wholes:
        for layer in run.model.layers:
            layer.is_whole = whole
        in_pairs(run, [1] if whole is wholes[0] else (1, 2, 1))


@pytest.mark.parametrize("grain", WHOLE)
def test_a_checkpoint_that_goes_before_the_recording(pair, grain):
    """Its weights are no more added by themselves."""
    pair(lambda r: comes_or_goes(r, False, True), grain=grain, make=Comes,
         max_slots=4, verify="off", eager=None)


class Goes(Comes):
    """The same of all of it."""

    def forward(self, x):
        return super().forward(x) if self.is_whole else checkpoint(
            Block.forward.__get__(self), x, use_reentrant=True)


@pytest.mark.parametrize("grain", WHOLE)
def test_a_checkpoint_that_goes_where_weights_are_cast(pair, grain):
    """Nothing has shown by then that both calls have one cast."""
    def train(run):
        for whole in (False, True, True, True):
            for layer in run.model.layers:
                layer.is_whole = whole
            run.zero()
            with torch.autocast("cuda", torch.bfloat16), \
                    torch.autocast(DEVICE, torch.bfloat16):
                loss = run.loss() + run.loss()
            loss.backward()
            for p in run.model.parameters():
                run.note(p.grad)
            run.optimizer.step()

    pair(train, grain=grain, make=Goes, max_slots=4, verify="off",
         replays=None, refused="is cast by autocast once", eager=None)


@GIVEN
@pytest.mark.parametrize("grain", WHOLE)
def test_a_checkpoint_that_comes_before_the_recording(pair, grain, how):
    run = pair(lambda r: comes_or_goes(r, True, False), grain=grain,
               make=Comes, max_slots=4, verify="off", eager=None,
               judge=False, **how)
    assert "refused" in run.attached.stats()["eager_calls"]


@GIVEN
@pytest.mark.parametrize("kind", ["halves", "looks", "after"])
@pytest.mark.parametrize("grain", WHOLE)
def test_hooks_of_what_a_checkpoint_adds_are_called_as_often(pair, grain,
                                                             kind, how):
    """And never with nothing."""
    def listen(run):
        weight = run.model.layers[1].mlp.up.weight
        if kind == "after":
            weight.register_post_accumulate_grad_hook(
                lambda p: run.note(p.grad))
        elif kind == "looks":
            weight.register_hook(run.note)
        else:
            weight.register_hook(lambda g: g * 0.5)

    pair(lambda r: r.steps(COUNTS[:3]), grain=grain, make=Once,
         before=listen, **how)


class Whole(Model):
    def run_layers(self, x):
        return checkpoint(super().run_layers, x, use_reentrant=False)


@pytest.mark.parametrize("grain", WHOLE)
@pytest.mark.parametrize("model", [around(False), Whole])
def test_around_what_writes_buffers(pair, grain, model):
    """Eager runs it twice, and writes twice."""
    run = pair(lambda r: r.steps([1, 1, 2, 1]), grain=grain, make=Normed,
               model=model, replays=False, eager=["checkpoint"])
    assert "and it writes buffers" in run.attached.explain()


def keep_products(*_):
    def policy(context, operation, *args, **kwargs):
        if operation is torch.ops.aten.addmm.default:
            return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


class Selects(Model):
    """What is checkpointed is more than the layer."""

    def run_layers(self, x):
        for layer in self.layers:
            x = checkpoint(lambda x, layer=layer: torch.tanh(layer(x)), x,
                           use_reentrant=False, context_fn=keep_products)
        return x


def test_around_where_a_mode_keeps_some_results(pair):
    pair(lambda r: r.steps([1, 1, 2, 1]), model=Selects, replays=False,
         eager=["checkpoint"])


def test_around_in_a_capture_of_the_callers_own(pair):
    """Which forbids to ask where generators are."""
    def train(run):
        run.steps([1, 1, 2])
        x = run.model.embed(run.tokens()[:, :-1]).detach()
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            graph.capture_begin(capture_error_mode="thread_local")
            y = run.model.run_layers(x)
            graph.capture_end()
            graph.replay()
        torch.cuda.current_stream().wait_stream(stream)
        run.note(y)
        run.steps()

    pair(train, model=around(False, preserve=False), eager=None)
