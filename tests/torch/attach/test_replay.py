"""What stands in autograd's graph for a graph; needs no GPU.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import traceback
from types import SimpleNamespace

import pytest
from models import same, torch

from graphhooks import Error
from graphhooks.torch.record.instance import Instance
from graphhooks.torch.step.replay import replay


class Segment:
    """Its graph has written `results` for what it was given."""

    name = "layer 0"
    owner = SimpleNamespace(steps=0)
    draws = False
    split = None
    around = None  # nothing is around its calls
    region = None  # no checkpointing either
    untold = ()  # nobody waits for a gradient
    copies = False
    sums = SimpleNamespace(note_again=lambda node: None,
                           note_late=lambda instance: None)

    def __init__(self, results, returned=(), sample=()):
        self.results = results
        self.came = []
        self.parameters = SimpleNamespace(
            behind=returned + sample, all=[1], version=lambda: 0,
            handed=[], hand_over=lambda results, behind: results)

    def backward(self, instance, microbatch, grads):
        self.came.append((instance, microbatch, grads))
        return self.results

    def backward_instead(self, run, *given):
        return run(*given)


def instance(*outputs, constant=(), again=(), unused=()):
    made = Instance()
    made.outputs, made.constant, made.again = outputs, constant, again
    made.unused, made.call = unused, None
    return made


def ones(value=1):
    return torch.full((2,), float(value))


def test_gradients_go_where_they_belong():
    x, y, p, own = (ones().requires_grad_() for _ in range(4))
    segment = Segment((ones(2), None, ones(3), None, ones(4)), (p,), (own,))
    place = instance(ones(7), again=[0])
    out = replay(segment, place, 5, [x, y])
    assert same(out, ones(7)) and out is not place.outputs[0]
    assert out.data_ptr() == place.outputs[0].data_ptr()
    out.backward(ones(9))
    (which, microbatch, grads), = segment.came
    assert which is place and microbatch == 5
    assert len(grads) == 1 and same(grads[0], ones(9))
    assert same(x.grad, ones(6)) and same(p.grad, ones(3))
    assert y.grad is None and own.grad is None


def test_autograd_calls_its_backward_itself():
    """Torch has two functions between them, which take time."""
    files = []

    def backward(*_):
        files.extend(f.filename for f in traceback.extract_stack())
        return (ones(),)

    segment = Segment(())
    segment.backward = backward
    replay(segment, instance(ones()), 0, [ones().requires_grad_()]).backward(
        ones())
    assert files and not [f for f in files
                          if f.endswith("autograd/function.py")]


def test_a_gradient_that_may_be_kept_is_a_copy():
    latents = ones().requires_grad_()
    segment = Segment((ones(2)[None],))
    for _ in range(2):  # .grad is not what the next backward writes
        replay(segment, instance(ones()), 0,
               [latents[None]]).backward(ones())
    assert same(segment.results[0], ones(2)[None])
    assert same(latents.grad, ones(4))


def test_no_gradient_comes_to_what_is_not_used():
    x, y, p = (ones().requires_grad_() for _ in range(3))
    came = []
    given = x * 1, y * 1
    given[1].grad_fn.register_prehook(came.append)
    segment = Segment((ones(2), None, ones(3)), (p,))
    replay(segment, instance(ones(), unused=[1]), 0, given).backward(ones())
    assert same(x.grad, ones(2)) and same(p.grad, ones(3))
    assert y.grad is None and came == []


def test_outputs_that_need_no_gradient_say_so():
    x = ones().requires_grad_()
    segment = Segment((ones(2),))
    one, two = replay(segment, instance(ones(), ones(), constant=[1]), 0, [x])
    assert one.requires_grad and not two.requires_grad
    one.sum().backward()
    (_, _, grads), = segment.came
    assert same(grads[0], ones()) and grads[1] is None


def test_its_node_is_known_as_long_as_it_lives():
    place = instance(ones())
    out = replay(Segment((None,)), place, 0,
                 [ones().requires_grad_()])
    assert place.node() is out.grad_fn
    del out
    assert place.node() is None


def test_there_is_no_second_derivative():
    x = ones().requires_grad_()
    out = replay(Segment((ones(),)), instance(ones()), 0, [x])
    with pytest.raises(Error, match="layer 0: a graph has no derivative"):
        torch.autograd.grad(out.sum(), x, create_graph=True)


def test_it_has_no_backward_of_a_batch():
    x = ones().requires_grad_()
    out = replay(Segment((ones(),)), instance(ones()), 0, [x])
    with pytest.raises(Error, match="is_grads_batched"):
        torch.autograd.grad(out, x, torch.ones(3, 2), is_grads_batched=True)


def test_nor_has_a_later_output():
    x = ones().requires_grad_()
    out = replay(Segment((ones(),)), instance(ones(), ones()), 0, [x])
    with pytest.raises(Error, match="is_grads_batched"):
        torch.autograd.grad(out[1], x, torch.ones(3, 2), is_grads_batched=True)


def test_there_is_no_second_backward():
    x = ones().requires_grad_()
    segment = Segment((ones(),))
    out = replay(segment, instance(ones()), 0, [x])
    segment.backward = lambda place, *_: (setattr(place, "node", None),
                                          (ones(), None))[1]
    out.backward(ones(), retain_graph=True)
    with pytest.raises(Error, match="layer 0: a second backward"):
        out.backward(ones())


@pytest.mark.parametrize("steps, why", [
    (1, "after the step of its forward"), (-1, "after detach")])
def test_a_backward_that_comes_late_is_said(steps, why):
    x = ones().requires_grad_()
    segment = Segment((ones(),))
    segment.owner = SimpleNamespace(steps=0)
    out = replay(segment, instance(ones()), 0, [x])
    segment.owner.steps = steps
    with pytest.raises(Error, match=why):
        out.backward(ones())
    assert segment.came == []
