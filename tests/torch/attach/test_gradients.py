"""How gradients get into `.grad`; on the CPU, where the test plays the graphs.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
from models import nn, same, torch

from graphhooks import Error
from graphhooks.torch.attach import attached
from graphhooks.torch.base import tree
from graphhooks.torch.grad import gradients, sums
from graphhooks.torch.grad.gradient_buffers import Home
from graphhooks.torch.grad.parameters import Parameters
from graphhooks.torch.grad.strides import like
from graphhooks.torch.grad.watchers import is_held, is_watched
from graphhooks.torch.record.flights import Flights, Waiting
from graphhooks.torch.record.instance import Backward

N = 3


class Segment:
    """One that was recorded, and its instance too: its parameters, and the
    graphs of a backward, which this class plays."""

    mixed = -1  # no step

    def __init__(self, owner, adds=True, used=(True, True, True)):
        self.owner = owner
        self.module = nn.ParameterList(nn.Parameter(torch.ones(2))
                                       for _ in range(N))
        self.parameters = Parameters([self.module])
        self.parameters.sort(lambda p: False)
        self.parameters.decide(adds)
        owner.serial += 1
        self.forward = owner.serial
        own = [p for p, u in zip(self.parameters.own, used) if u]
        places = [torch.full((2,), 9.0) for _ in own]
        owner.serial += 1
        home = self.parameters.home()
        self.backward = Backward(home, (0, 0))
        self.backward.own, self.backward.gradients = own, places
        self.backward.serial = owner.serial
        home.put(zip(own, places))
        home.serial = 0 if adds else owner.serial
        self.parameters.homes.append(home)
        owner.segments.append(self)

    def copy_out(self):
        """Nobody keeps what was `.grad`."""

    def note_taken_back(self, home):
        self.backward.gradients = [home.gradients[p]
                                   for p in self.backward.own]

    def replay(self, values):
        adds = self.parameters.adds
        foreign = gradients.prepare(self, self.backward)
        for place, value in zip(self.backward.gradients, values):
            if adds:
                place.add_(value)
            else:
                place.copy_(value)
        gradients.finish(adds, self.backward, foreign)
        return foreign


class Owner:
    make_way = attached.Attached.make_way
    steps = 0

    def __init__(self):
        self.segments, self.serial, self.moved = [], 0, 0
        self.flights = Flights(self.segments)
        self.nothing = gradients.Nothing()

    def move_gradients_out(self):
        self.moved += 1
        for segment in self.segments:
            segment.parameters.move_out()


def values(number):
    return [torch.tensor([number + i, -0.0]) for i in range(N)]


def grads(segment):
    return [p.grad for p in segment.parameters.all]


# ---- one segment -----------------------------------------------------------


ANY = pytest.mark.parametrize("kind", [{"adds": True}, {"adds": False}],
                              ids=["adds", "writes"])


@ANY
def test_the_first_gradient_is_in_place(kind):
    segment = Segment(Owner(), **kind)
    assert segment.replay(values(1)) == []
    for p, place in segment.backward.home.gradients.items():
        assert p.grad is place
    assert all(map(same, grads(segment), values(1)))  # -0.0 stays -0.0


def test_a_later_one_is_added_in_place():
    segment = Segment(Owner())
    segment.replay(values(1))
    assert segment.replay(values(10)) == []
    for i, (p, place) in enumerate(segment.backward.home.gradients.items()):
        assert p.grad is place
        assert same(p.grad, torch.tensor([11.0 + 2 * i, -0.0]))


@ANY
def test_nothing_and_something_keep_signs(kind):
    segment = Segment(Owner(), **kind)
    first, *rest = segment.parameters.all
    first.grad = torch.tensor([0.5, 0.0])
    segment.replay(values(1))
    assert same(first.grad, torch.tensor([1.5, 0.0]))
    for p, value in zip(rest, values(1)[1:]):
        assert same(p.grad, value)


@ANY
def test_a_gradient_of_the_users_stays_the_users_tensor(kind):
    segment = Segment(Owner(), **kind)
    mine = [torch.tensor([0.5, 0.0]) for _ in range(N)]
    for p, grad in zip(segment.parameters.all, mine):
        p.grad = grad
    segment.replay(values(1))
    segment.replay(values(1))
    for i, (p, grad) in enumerate(zip(segment.parameters.all, mine)):
        assert p.grad is grad
        assert same(grad, torch.tensor([0.5 + 2 * (1 + i), 0.0]))


def test_where_graphs_write_the_gradients_before_make_room():
    owner = Owner()
    segment = Segment(owner, adds=False)
    segment.replay(values(1))
    assert owner.moved == 0
    segment.replay(values(10))
    assert owner.moved == 1
    assert same(segment.parameters.all[0].grad, torch.tensor([11.0, -0.0]))
    assert not segment.parameters.are_written()


@pytest.mark.parametrize("several, at_forward, at_backward, adds", [
    (False, False, False, False), (True, False, False, True),
    (False, True, False, True), (False, False, True, True)])
def test_what_graphs_do(several, at_forward, at_backward, adds):
    """They write where a step has one microbatch and none is there before."""
    module = nn.Linear(2, 2)
    parameters = Parameters([module])
    parameters.sort(lambda p: False)
    module.bias.grad = torch.ones(2) if at_forward else None
    parameters.note_old()
    module.bias.grad = torch.ones(2) if at_backward else None
    parameters.decide(several)
    assert parameters.adds is adds
    parameters.decide(not several)
    assert parameters.adds is adds
    assert set(parameters.places_to_add(parameters.home())) == set(
        parameters.own if adds else ())


def test_places_are_laid_out_as_autograd_has_gradients():
    base = torch.arange(24.0).view(4, 6)
    for data in (base, base.t(), base[:, ::2], base[0].expand(3, 6)):
        p = nn.Parameter(data)
        assert p.stride() == data.stride()
        (p * 2).sum().backward()
        assert like(p).stride() == p.grad.stride()


def test_nothing_is_negative_zeros_of_any_shape_and_dtype():
    like = [torch.empty(2, 3), torch.empty(5, 4).t(), torch.empty(()),
            torch.empty(3, dtype=torch.bfloat16),
            torch.empty(2, dtype=torch.complex64)]
    nothing = gradients.Nothing()
    for places in (like, like[:2]):
        for g in places:
            g.fill_(3)
        nothing.fill(*nothing.pieces(places))
        for g in places:
            real = torch.view_as_real(g) if g.is_complex() else g
            assert (real == 0).all() and torch.signbit(real).all()


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 8, 13])
def test_nothing_comes_in_pieces(monkeypatch, size):
    monkeypatch.setattr(gradients, "_PIECE", 4)
    place = torch.ones(size + 1)
    nothing = gradients.Nothing()
    places, zeros = nothing.pieces([place[:size]])
    assert len(places) == max(1, -(-size // 4))
    nothing.fill(places, zeros)
    assert torch.signbit(place[:size]).all() and place[size] == 1


def test_a_parameter_that_is_not_used_gets_none():
    segment = Segment(Owner(), used=(True, False, True))
    segment.replay(values(1))
    segment.replay(values(1))
    assert segment.parameters.all[1].grad is None


# ---- whole trainings -------------------------------------------------------


def reference(state, number):
    """What autograd does."""
    for i, value in enumerate(values(number)):
        state[i] = value if state[i] is None else state[i] + value


def disturb(choice, rng, segment, state):
    """What a training does to `.grad` between backwards."""
    all_ = segment.parameters.all
    chosen = [i for i in range(N) if rng.random() < 0.5]
    for i in range(N) if choice in ("none", "zeros") else chosen:
        p = all_[i]
        if choice in ("none", "some none"):
            p.grad = state[i] = None
        elif choice == "zeros" and p.grad is not None:
            p.grad.zero_()
            state[i] = torch.zeros(2)
        elif choice == "preset":
            p.grad = torch.tensor([0.25, 0.0])
            state[i] = p.grad.clone()
        elif choice == "replace" and p.grad is not None:
            p.grad = p.grad * 0.5
            state[i] = state[i] * 0.5


@ANY
@pytest.mark.parametrize("seed", range(20))
def test_any_training_has_the_bits_of_autograd(kind, seed):
    rng = random.Random(seed)
    owner = Owner()
    segments = [Segment(owner, **kind) for _ in range(3)]
    states = [[None] * N for _ in segments]
    for step in range(40):
        for segment in segments:
            owner.make_way(segment.forward)
            assert not any(late.parameters.are_written(segment.forward)
                           for late in segments)
        choice = rng.choice(["none", "some none", "zeros", "preset",
                             "replace", "nothing"])
        for segment, state in zip(segments, states):
            disturb(choice, rng, segment, state)
        for segment, state in zip(segments, states):
            segment.replay(values(step % 5 - 2))
            reference(state, step % 5 - 2)
            assert all(map(same, grads(segment), state)), (step, choice)


# ---- the order of recordings -----------------------------------------------


def test_nothing_runs_below_gradients_of_later_recordings():
    """Their memory is what it frees on its way."""
    owner = Owner()
    early, late = Segment(owner, adds=False), Segment(owner, adds=False)
    late.replay(values(1))
    for serial in (early.forward, early.backward.serial, late.forward):
        assert not owner.flights.may_run(serial)
    assert owner.flights.may_run(late.backward.serial + 1)
    for p in late.parameters.all:
        p.grad = None
    assert owner.flights.may_run(early.forward)


def test_a_forward_finds_gradients_in_its_way():
    owner = Owner()
    segment = Segment(owner, adds=False)
    for number in (1, 2):
        owner.make_way(segment.forward)
        segment.replay(values(number))
    assert owner.moved == 1
    owner.make_way(segment.forward)
    assert owner.moved == 1  # they have their own memory since the first
    for p in segment.parameters.all:
        p.grad = None
    segment.replay(values(3))
    owner.make_way(segment.forward)
    assert owner.moved == 2
    assert all(map(same, grads(segment), values(3)))


def test_gradients_apart_from_graphs_are_in_nobodys_way():
    owner = Owner()
    segments = [Segment(owner, adds=True) for _ in range(2)]
    for segment in (*reversed(segments), *segments):
        owner.make_way(segment.forward)
        segment.replay(values(1))
    assert owner.moved == 0


def test_gradients_of_two_banks_at_one_address():
    """They are of the one whose tensor is `.grad`."""
    first, second = Home(0), Home(1)
    p = nn.Parameter(torch.ones(2))
    parameters = Parameters([nn.ParameterList([p])])
    parameters.homes = [first, second]
    place = torch.full((2,), 9.0)
    for serial, home in enumerate(parameters.homes, 1):
        home.put([(p, place.data)])
        home.serial = serial
    p.grad = second.gradients[p]
    assert not parameters.are_written_for_others(1)
    assert not parameters.are_written(2, 1)
    assert parameters.are_written_for_others(0)
    assert parameters.are_written(1, 1)
    p.grad = place.data  # nobody knows whose
    assert parameters.are_written_for_others(0)
    assert parameters.are_written_for_others(1)


def test_gradients_that_were_moved_out_are_in_nobodys_way():
    owner = Owner()
    early, late = Segment(owner, adds=False), Segment(owner, adds=False)
    late.replay(values(1))
    assert early.replay(values(1)) == [] and owner.moved == 1
    assert same(late.parameters.all[0].grad, values(1)[0])
    assert not late.parameters.are_written()


def test_backwards_in_their_order_move_nothing():
    owner = Owner()
    segments = [Segment(owner, adds=False) for _ in range(3)]
    for segment in segments:
        segment.replay(values(1))
    assert owner.moved == 0


def test_a_backward_that_comes_after_a_later_one_looks_again():
    owner = Owner()
    first, second, third = (Segment(owner, adds=False) for _ in range(3))
    for segment in (first, third):
        segment.replay(values(1))
    assert owner.moved == 0
    second.replay(values(1))
    assert owner.moved == 1 and not third.parameters.are_written()


# ---- what is in `.grad` put aside ----


def summed(segment, *numbers):
    """Backwards of one pass of autograd."""
    aside = sums.Aside(segment.parameters)
    for number in numbers:
        with aside.summing():
            segment.replay(values(number))
        aside.keep()
    return aside


@ANY
def test_what_was_there_is_there_until_the_sum_is_complete(kind):
    """Whoever looks on the way, or when the pass has failed."""
    segment = Segment(Owner(), **kind)
    segment.replay(values(1))
    before = [g.clone() for g in grads(segment)]
    aside = summed(segment, 5)
    assert all(map(same, grads(segment), before))
    with pytest.raises(KeyError), aside.summing():
        raise KeyError
    assert all(map(same, grads(segment), before))


def test_a_sum_is_in_no_pool_between_two_backwards():
    """What is recorded may use that memory."""
    segment = Segment(Owner(), adds=False)
    aside = summed(segment, 1)
    for place in segment.backward.gradients:
        place.fill_(7)
    aside.add()
    assert all(map(same, grads(segment), values(1)))


def test_a_sum_is_added_to_what_was_there():
    """1e8 + (2 + 2 + 2 + 2) is not (1e8 + 2) + 2 + 2 + 2."""
    segment = Segment(Owner())
    segment.replay(values(1e8))
    places = grads(segment)
    summed(segment, 2, 2, 2, 2).add()
    total = torch.tensor(1e8) + torch.tensor(8.0)
    assert same(segment.parameters.all[0].grad[0], total)
    assert total != torch.tensor(1e8) + 2 + 2 + 2 + 2
    for p, place in zip(segment.parameters.all, places):
        assert p.grad is place


def test_a_sum_is_added_to_the_users_tensor():
    segment = Segment(Owner())
    mine = [torch.full((2,), 0.5) for _ in range(N)]
    for p, grad in zip(segment.parameters.all, mine):
        p.grad = grad
    summed(segment, 1, 2).add()
    for i, (p, grad) in enumerate(zip(segment.parameters.all, mine)):
        assert p.grad is grad
        assert same(grad, torch.tensor([3.5 + 2 * i, 0.5]))


def test_a_sum_where_nothing_was_is_the_gradient():
    segment = Segment(Owner())
    summed(segment, 1, 2).add()
    assert same(segment.parameters.all[0].grad, torch.tensor([3.0, -0.0]))


def test_a_sum_that_comes_to_nothing_leaves_what_was_there():
    segment = Segment(Owner())
    segment.replay(values(1))
    places = grads(segment)
    summed(segment).add()
    assert all(map(same, grads(segment), values(1)))
    for p, place in zip(segment.parameters.all, places):
        assert p.grad is place


@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_sum_for_somebody_else_leaves_no_trace(before):
    segment = Segment(Owner())
    for number in range(before):
        segment.replay(values(1))
    kept = [None if g is None else g.clone() for g in grads(segment)]
    summed(segment, 5, 6).restore()
    assert all(map(same, grads(segment), kept))
    segment.replay(values(1))
    reference(kept, 1)
    assert all(map(same, grads(segment), kept))


# ---- the order of backwards in a pool ----


class Pools(Flights):
    def __init__(self):
        super().__init__([])

    def record(self, index, slot=0, flight=(1, 0)):
        instance = SimpleNamespace(slot=slot, flight=flight)
        pools = SimpleNamespace(of_backward=lambda i: i.flight)
        segment = SimpleNamespace(index=index,
                                  owner=SimpleNamespace(pools=pools))
        flight = self.of_backward(segment, instance)
        self.note_backward(segment, instance, flight)
        return flight


def test_backwards_from_the_last_to_the_first_share_memory():
    """With each other and the forwards of their flight."""
    pools = Pools()
    assert {pools.record(i) for i in (3, 2, 0)} == {(1, 0)}


def test_a_backward_that_was_left_out_has_memory_of_its_own():
    """A pass through half of the stack came first: what it has let go is
    taken, and would be read when the rest has run before."""
    pools = Pools()
    half = {pools.record(i) for i in (1, 0)}
    rest = {pools.record(i) for i in (3, 2)}
    assert half == {(1, 0)} and len(rest) == 1 and half != rest
    assert pools.record(3) not in half | rest


def test_slots_do_not_ask_for_each_others_order():
    pools = Pools()
    assert pools.record(0, slot=0) == pools.record(2, slot=1)


# ---- what C refuses ----


def test_a_sentence_of_the_librarys_has_pythons_names():
    text = b"gh_session_desc.max_slots is \"300\""
    owner = SimpleNamespace(error=SimpleNamespace(text=text))
    with pytest.raises(Error, match='^max_slots is "300"'):
        attached.Attached.check(owner, -1)
    attached.Attached.check(owner, 0)


# ---- who watches -----------------------------------------------------------


def watched(prepare):
    p = nn.Parameter(torch.ones(2))
    kept = prepare(p)
    return is_watched(p), kept


@pytest.mark.parametrize("prepare", [
    lambda p: p.register_hook(lambda g: None),
    lambda p: p.register_post_accumulate_grad_hook(lambda p: None),
    lambda p: torch.autograd.graph.get_gradient_edge(p).node,
], ids=["a hook", "a post-accumulate hook", "a node that is kept"])
def test_somebody_watches(prepare):
    assert watched(prepare)[0]


def test_an_engine_that_holds_a_node_is_told_from_a_loss():
    p = nn.Parameter(torch.ones(2))
    assert not is_held(p)
    loss = (p * 2).sum()
    loss.backward()
    assert not is_held(p) and is_watched(p)
    node = loss.grad_fn.next_functions[0][0].next_functions[0][0]
    assert is_held(p)
    del node
    assert not is_held(p)


def test_what_has_gradients_from_elsewhere_is_autograds():
    module = nn.Linear(2, 2)
    parameters = Parameters([module])
    parameters.shares.found.add(module.bias)
    parameters.sort(lambda p: False)
    assert parameters.returned == (module.bias,)
    assert parameters.own == [module.weight]


def test_what_an_attach_holds_goes_with_it():
    module = nn.Linear(2, 2)
    one = Parameters([module])
    one.sort(lambda p: False)
    assert is_held(one.sample[0])
    one.release()
    two = Parameters([module])
    two.sort(lambda p: False)
    assert two.returned == ()


def test_others_in_the_place_of_parameters_stay_there():
    """They are not put in for a recording, nor taken out by one."""
    module = nn.Linear(2, 2)
    parameters = Parameters([module])
    lent = module._parameters["weight"] = torch.ones(2, 2)
    with pytest.raises(tree.Unfit, match="other tensors stand in"):
        with parameters.replaced_by(parameters.aliases()):
            pass
    assert module.weight is lent


@pytest.mark.parametrize("prepare", [
    lambda p: None,
    lambda p: p.register_hook(lambda g: None).remove(),
    lambda p: (p * 2).sum().backward(),
], ids=["nothing", "a hook that went", "a backward that is over"])
def test_nobody_watches(prepare):
    assert not watched(prepare)[0]
    assert not watched(prepare)[0]


@pytest.mark.parametrize("kind", ["hook", "post_accumulate_grad_hook"])
def test_a_hook_is_found_whenever_it_comes(kind):
    """Torch keeps the dict in which one has been."""
    module = nn.Linear(2, 2)
    parameters = Parameters([module])
    parameters.sort(lambda p: False)
    for _ in range(3):
        assert not parameters.have_hooks()
        assert not parameters.have_hooks()
        handle = getattr(module.bias, f"register_{kind}")(lambda _: None)
        assert parameters.have_hooks()
        assert parameters.have_hooks()
        handle.remove()


# ---- modules with other parameters -----------------------------------------


def test_aliases_are_the_same_memory_and_go_again():
    module = nn.Linear(2, 2)
    module.weight.tag = "kept"
    parameters = Parameters([module])
    weight = module.weight
    leaves = parameters.aliases()
    with parameters.replaced_by(leaves):
        assert module.weight is not weight
        assert module.weight.data_ptr() == weight.data_ptr()
        assert module.weight.tag == "kept"
        assert leaves[0] is module.weight and leaves[0].is_leaf
    assert module.weight is weight


def test_an_optimizer_does_not_age_aliases():
    """What a recording saved of them may be used steps later."""
    module = nn.Linear(2, 2)
    weight, _ = Parameters([module]).aliases()
    with torch.no_grad():
        module.weight.add_(1)
    assert weight._version == 0
    assert same(weight, module.weight)


def test_aliases_go_when_the_module_raises():
    module = nn.Linear(2, 2)
    weight = module.weight
    with pytest.raises(ValueError):
        parameters = Parameters([module])
        with parameters.replaced_by(parameters.aliases()):
            raise ValueError
    assert module.weight is weight


def test_tied_parameters_are_one():
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    module[1].weight = module[0].weight
    parameters = Parameters([module])
    assert len(parameters.all) == 3
    with parameters.replaced_by(parameters.aliases()):
        assert module[1].weight is module[0].weight


def test_frozen_parameters_are_left_out():
    module = nn.Linear(2, 2)
    module.bias.requires_grad_(False)
    assert Parameters([module]).all == [module.weight]


# ---- the order of forwards in a pool ----


def forwards(*flights):
    """Segments of one slot, recorded one after the other."""
    return [SimpleNamespace(instances={(0, 0): SimpleNamespace(
        slot=0, flight=flight, serial=i + 1, backward=None)})
        for i, flight in enumerate(flights)]


def ran(segments, order):
    """Those that may come in this order of a microbatch."""
    flights = Flights(segments)
    found = []
    for i in order:
        if flights.may_follow(segments[i], 0, 0):
            flights.ran(segments[i].instances[0, 0], 0)
            found.append(i)
    return found


@pytest.mark.parametrize("order, served", [
    ((0, 1, 2), [0, 1, 2]), ((0, 2), [0, 2]), ((2, 1, 0), [2]),
    ((1, 0, 2), [1, 2])], ids=str)
def test_forwards_come_in_the_order_of_their_recordings(order, served):
    assert ran(forwards((1, 0), (1, 0), (1, 0)), order) == served


def test_a_forward_of_another_flight_hides_none():
    segments = forwards((1, 0), (1, 0), (2, 0))
    assert ran(segments, (1, 2, 0)) == [1, 2]
    assert ran(segments, (2, 0, 1)) == [2, 0, 1]


def test_each_slot_that_a_microbatch_has_had_is_asked():
    """One that came several times has been in several."""
    segments = forwards((1, 0), (1, 0))
    for s in segments:
        s.instances[0, 1] = SimpleNamespace(**vars(s.instances[0, 0]) | {"slot": 1})
    flights = Flights(segments)
    flights.ran(segments[0].instances[0, 0], 0)
    flights.ran(segments[1].instances[0, 1], 0)
    assert not flights.may_follow(segments[0], 0, 0)
    assert not flights.may_follow(segments[1], 0, 0)
    before, after = (s.instances for s in segments)
    for slot in before:
        segments[0].instances = {slot: before[slot]}
        assert not flights.may_follow(segments[0], 0, 0)
    segments[1].instances = {(0, 0): after[0, 0]}
    assert flights.may_follow(segments[1], 0, 0)


def test_another_microbatch_begins_anew():
    one, two = forwards((1, 0), (1, 0))
    flights = Flights([one, two])
    flights.ran(two.instances[0, 0], 0)
    assert not flights.may_follow(one, 0, 0)
    assert flights.may_follow(one, 1, 0)
    flights.end_step()
    assert flights.may_follow(one, 0, 0)


# ---- backwards that have not come yet ----


class Open:
    """An instance whose forward has run."""

    def __init__(self, serial, is_alive=True, flight=(1, 0)):
        self.flight = flight
        self.backward = SimpleNamespace(serial=serial)
        self.node = lambda: is_alive or None


def before(serial, *instances):
    waiting = Waiting()
    for instance in instances:
        waiting.add(instance)
    return [i.backward.serial for i in waiting.before((1, 0), serial)]


@pytest.mark.parametrize("serial, serials, found", [
    (4, (7, 6, 5), []),         # the usual order: the last comes next
    (6, (7, 6, 5), [5]), (9, (7, 6, 5), [7, 6, 5]),
    (5, (2, 10), [2]), (5, (10, 2, 8), [2]), (5, (), [])])
def test_backwards_that_were_recorded_before_and_have_not_come(serial, serials,
                                                               found):
    assert before(serial, *map(Open, serials)) == found


def test_who_has_dropped_a_loss_waits_for_nothing():
    assert before(9, Open(7), Open(6, is_alive=False), Open(5)) == [7, 5]


def test_other_memory_is_nobodys_business():
    assert before(9, Open(7, flight=(1, 0, 1)), Open(5)) == [5]


def test_one_that_has_come_waits_no_more():
    waiting = Waiting()
    one, two = Open(7), Open(5)
    for instance in (one, two):
        waiting.add(instance)
    waiting.all.pop(two)
    assert waiting.before((1, 0), 6) == []
    assert waiting.before((1, 0), 9) == [one]


def test_a_backward_that_fails_in_a_sum_leaves_gradients(monkeypatch):
    """At once: who catches it may look, or set them to none."""
    segment = Segment(Owner())
    segment.replay(values(1))
    segment.instances = {0: SimpleNamespace(node=lambda: segment)}
    monkeypatch.setattr(sums, "will_run", lambda node: True)
    monkeypatch.setattr(sums, "current_pass", lambda: number)
    monkeypatch.setattr(sums, "at_end_of_pass", lambda call: None)

    def fails(*_):
        segment.parameters.all[1].grad = torch.ones(2)
        raise KeyError

    found = sums.Sums(segment)
    number = 1
    with pytest.raises(KeyError):
        found.run_back(fails, None, 0, ())
    assert all(map(same, grads(segment), values(1)))
    segment.parameters.all[0].grad = None
    monkeypatch.setattr(sums, "will_run", lambda node: False)
    number = 2
    found.run_back(lambda *_: segment.replay(values(10)), None, 0, ())
    assert same(segment.parameters.all[0].grad, values(10)[0])
    assert same(segment.parameters.all[1].grad,
                values(1)[1] + values(10)[1])
