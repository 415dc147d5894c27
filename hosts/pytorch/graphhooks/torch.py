"""Captures the layers of a stack of modules, and replays them.

``attach(model)`` finds the stack, describes it to the library as one layer
for each module, and brackets every call of a module and its backward.  The
library decides; this file obeys:

    recorded  the module runs once inside a capture, on inputs at addresses
              that stay; autograd's graph of it is kept until the backward
              has been recorded too
    replayed  the graph has been launched; the outputs are where they were
    run       the module runs as if nobody were attached

Memory.  What a recording allocates comes from a pool of the flight that it is
made in: of one microbatch in one slot, from its first forward to its last
backward.  Passes of a flight come in the same order every time, so what one
frees the next may use.  A layer that is recorded in a later flight, as its
input has moved, gets other memory: in the order of replays it runs between
passes that were recorded before it, and what they have freed is theirs.

Gradients of parameters are returned at fixed addresses and stay referenced
here, so autograd adds them to ``.grad`` and never takes them for its own.

A layer is left to run as it is, and says so once, when it cannot be recorded
(it waits for the device, draws random numbers, returns something else than
tensors), when a call differs from the one that was recorded (shapes, dtypes,
autocast, keyword arguments), and when its parameters are no longer those that
were there.  Without gradients or in eval() it always does.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import ctypes
import logging

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from . import _abi
from . import _library
from .errors import Error
from .session import Model, Session, services

__all__ = ["attach", "Attached"]

log = logging.getLogger("graphhooks")


class _Memory:
    """A range of device memory, for ``torch.as_tensor``."""

    def __init__(self, address: int, nbytes: int):
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": (nbytes,),
            "typestr": "|u1",
            "version": 3,
        }


def _tensor_at(address: int, like: torch.Tensor) -> torch.Tensor:
    """A tensor of the shape and strides of ``like`` at another address."""
    nbytes = like.numel() * like.element_size()
    flat = torch.as_tensor(_Memory(address, nbytes), device=like.device)
    return flat.view(like.dtype).as_strided(like.size(), like.stride())


def _is_dense(t: torch.Tensor) -> bool:
    """Whether a copy of numel elements is a copy of the tensor."""
    return t.is_contiguous() or torch.ops.aten.is_non_overlapping_and_dense(t)


def _like(tensor: torch.Tensor, layout) -> torch.Tensor:
    """The same values with these strides."""
    if tensor.stride() == layout:
        return tensor
    copy = torch.empty_strided(tensor.size(), layout, dtype=tensor.dtype,
                               device=tensor.device)
    return copy.copy_(tensor)


def _signature(args) -> tuple:
    """What a recording is good for; the library compares bytes alone."""
    return (
        torch.is_autocast_enabled("cuda"),
        torch.get_autocast_dtype("cuda"),
        *((a.size(), a.stride(), a.dtype, a.requires_grad) for a in args),
    )


def _fill(buffer, tensor: torch.Tensor) -> None:
    buffer.address = tensor.data_ptr()
    buffer.bytes = tensor.numel() * tensor.element_size()


@contextlib.contextmanager
def _uncached_autocast():
    """What autocast has cached outside of a graph goes when its region ends,
    and the graph would go on reading it."""
    cached = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(cached)


class _Instance:
    """One layer in one slot: what its graphs read and write."""

    __slots__ = ("inputs", "parameters", "outputs", "live",
                 "layouts", "chained", "grads")

    def __init__(self):
        self.inputs = ()  # tensors at the graph's own addresses
        self.parameters = ()  # other tensors at the parameters' addresses
        self.outputs = ()  # as the forward was recorded, with autograd's graph
        self.live = False  # autograd's graph is still there
        self.layouts = ()  # the strides of the outputs' gradients
        self.chained = ()  # gradients read where the next layer wrote them
        self.grads = None  # what the backward writes, one for each input


class _Replay(torch.autograd.Function):
    """Stands in autograd's graph for a layer that a graph has run."""

    @staticmethod
    def forward(ctx, layer, instance, microbatch, *tensors):
        ctx.layer = layer
        ctx.instance = instance
        ctx.microbatch = microbatch
        ctx.set_materialize_grads(True)
        outputs = tuple(o.detach() for o in instance.outputs)
        ctx.mark_non_differentiable(
            *(o for o, r in zip(outputs, instance.outputs)
              if not r.requires_grad))
        return outputs

    @staticmethod
    def backward(ctx, *grads):
        with torch.no_grad():
            out = ctx.layer.backward(ctx.instance, ctx.microbatch, grads)
        return (None, None, None) + out


class _Layer:
    """One module of the stack."""

    def __init__(self, owner: "Attached", index: int, module):
        self.owner = owner
        self.index = index
        self.module = module
        self.forward = module.forward
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self.places = [(m, name, p) for m in module.modules()
                       for name, p in m._parameters.items()
                       if p is not None and p.requires_grad]
        self.instances: dict[int, _Instance] = {}
        self.microbatch = 0  # of the step, the next one
        self.refused: str | None = None  # why it is eager for good
        self.signature = None  # of the calls that are recorded
        self.state = self._look()
        self.passes = [self._make_pass(d) for d in (0, 1)]
        self.decision = _abi.make(_abi.gh_decision)

    def _look(self) -> tuple:
        """Where a graph would find what belongs to the module."""
        return tuple(
            (id(t), t.data_ptr(), t.requires_grad)
            for m in self.module.modules()
            for held in (m._parameters, m._buffers)
            for t in held.values()
            if t is not None)

    def refuse(self, why: str) -> None:
        self.refused = why
        log.warning("layer %d runs eagerly from now on: %s", self.index, why)

    def check_state(self) -> None:
        if self.refused is None and self._look() != self.state:
            self.refuse("its parameters or buffers were replaced, moved or "
                        "frozen; detach and attach again")

    def _make_pass(self, direction: int):
        buffers = (_abi.gh_buffer * _abi.GH_MAX_BUFFERS)()
        outputs = (_abi.gh_buffer * _abi.GH_MAX_BUFFERS)()
        pass_ = _abi.make(_abi.gh_pass, segment=self.index,
                          direction=direction, inputs=buffers)
        pass_.buffers = buffers  # ctypes keeps no reference to them
        pass_.output_buffers = outputs
        return pass_

    # ---- calls ----------------------------------------------------------

    def __call__(self, *args, **kwargs):
        owner = self.owner
        if self.refused is not None or not self._may_graph(args, kwargs):
            return self.forward(*args, **kwargs)
        if owner.stepped:
            owner.step()
        microbatch = self.microbatch
        self.microbatch += 1
        action = self._enter(self.passes[0], args, microbatch)
        if action == _abi.GH_ACTION_REPLAYED:
            owner.check(self._exit(self.passes[0], ()))
            instance = self.instances[self.decision.slot]
        elif action == _abi.GH_ACTION_RECORD:
            instance = self._record(args)
        else:
            owner.cancel(self.decision.reason)
            instance = None
        if instance is None:
            return self.forward(*args)
        outputs = _Replay.apply(self, instance, microbatch, *args,
                                *self.parameters)
        return outputs if len(outputs) > 1 else outputs[0]

    def _may_graph(self, args, kwargs) -> bool:
        if not (torch.is_grad_enabled() and self.module.training):
            self.owner.count("forward_only")
            return False
        if kwargs or not args or not all(
                isinstance(a, torch.Tensor) and a.is_cuda and _is_dense(a)
                for a in args):
            self.owner.count("input")
            return False
        signature = _signature(args)
        if self.signature is None:
            self.signature = signature
        if signature != self.signature:
            self.owner.count("input")
            return False
        return True

    def _enter(self, pass_, tensors, microbatch: int) -> int:
        owner = self.owner
        stream = torch.cuda.current_stream().cuda_stream
        pass_.microbatch = owner.microbatch = microbatch
        pass_.stream = stream or None
        pass_.n_inputs = len(tensors)
        for buffer, tensor in zip(pass_.buffers, tensors):
            _fill(buffer, tensor)
        owner.check(owner.api.layer_enter(
            owner.handle, ctypes.byref(pass_), ctypes.byref(self.decision),
            ctypes.byref(owner.error)))
        return self.decision.action

    def _exit(self, pass_, outputs) -> int:
        owner = self.owner
        pass_.n_outputs = len(outputs)
        for buffer, tensor in zip(pass_.output_buffers, outputs):
            _fill(buffer, tensor)
        pass_.outputs = ctypes.cast(pass_.output_buffers,
                                    ctypes.POINTER(_abi.gh_buffer))
        return owner.api.layer_exit(owner.handle, ctypes.byref(pass_),
                                    ctypes.byref(owner.error))

    def _inputs_at(self, pass_, tensors):
        """Where the library wants the pass to read."""
        return tuple(
            t.detach() if self.decision.inputs[i].address == t.data_ptr()
            else _tensor_at(self.decision.inputs[i].address, t)
            for i, t in enumerate(tensors[:pass_.n_inputs]))

    def _run_captured(self, pass_, run):
        """Runs on the stream of the recording; None: it failed, and the
        pass is no longer open."""
        owner = self.owner
        stream = torch.cuda.ExternalStream(self.decision.stream)
        try:
            with torch.cuda.stream(stream):
                outputs = run()
        except Exception as failure:  # whatever the module raises
            owner.cancel(None)
            text = f"{type(failure).__name__}: {failure}"
            self.refuse(text.splitlines()[0])
            return None
        status = self._exit(pass_, [o for o in outputs if o is not None])
        if status == _abi.GH_RERUN:
            return None
        owner.check(status)
        return outputs

    @contextlib.contextmanager
    def _aliased(self):
        """The module with other tensors for its parameters, at the same
        addresses: what autograd keeps of a recording has then nothing to do
        with what it keeps of the training, such as the stream on which a
        parameter's gradient is added up."""
        alias = {p: p.detach().requires_grad_() for p in self.parameters}
        try:
            for module, name, parameter in self.places:
                module._parameters[name] = alias[parameter]
            yield tuple(alias[p] for p in self.parameters)
        finally:
            for module, name, parameter in self.places:
                module._parameters[name] = parameter

    # ---- forward --------------------------------------------------------

    def _record(self, args) -> _Instance | None:
        instance = _Instance()
        inputs = self._inputs_at(self.passes[0], args)
        for tensor, arg in zip(inputs, args):
            tensor.requires_grad_(arg.requires_grad)

        def run():
            with torch.enable_grad(), _uncached_autocast(), \
                    self._aliased() as parameters:
                result = self.forward(*inputs)
            instance.parameters = parameters
            result = result if isinstance(result, tuple) else (result,)
            if not all(isinstance(r, torch.Tensor) for r in result):
                raise TypeError("a layer returns a tensor or a tuple of them")
            return result

        outputs = self._run_captured(self.passes[0], run)
        if outputs is None:
            return None
        instance.inputs = inputs
        instance.outputs = outputs
        instance.live = True
        self.instances[self.decision.slot] = instance
        return instance

    # ---- backward -------------------------------------------------------

    def _grad(self, instance: _Instance, grads):
        wanted = [t for t in (*instance.inputs, *instance.parameters)
                  if t.requires_grad]
        pairs = [(o, g) for o, g in zip(instance.outputs, grads)
                 if o.requires_grad]
        found = iter(torch.autograd.grad(
            [o for o, _ in pairs], wanted, [g for _, g in pairs],
            retain_graph=True, allow_unused=True))
        return tuple(next(found) if t.requires_grad else None
                     for t in (*instance.inputs, *instance.parameters))

    def backward(self, instance: _Instance, microbatch: int, grads):
        if not instance.layouts:
            instance.layouts = tuple(
                g.stride() if _is_dense(g) else g.contiguous().stride()
                for g in grads)
        grads = tuple(map(_like, grads, instance.layouts))
        if instance.grads is not None:
            grads = self._back_in_place(instance, grads)
        if self.refused is not None:
            return self._backward_eagerly(instance, microbatch, grads)
        pass_ = self.passes[1]
        action = self._enter(pass_, grads, microbatch)
        if action == _abi.GH_ACTION_REPLAYED:
            self.owner.check(self._exit(pass_, ()))
            return instance.grads
        if action == _abi.GH_ACTION_RECORD:
            static = self._inputs_at(pass_, grads)
            found = self._run_captured(
                pass_, lambda: self._grad(instance, static))
            if found is not None:
                instance.grads = found
                instance.chained = tuple(
                    s if s.data_ptr() == g.data_ptr() else None
                    for s, g in zip(static, grads))
                self._let_go(instance)
                return found
            return self._backward_eagerly(instance, microbatch, grads)
        return self._run_backward(instance, grads)

    @staticmethod
    def _back_in_place(instance: _Instance, grads):
        """A gradient that the graph reads where the next layer's graph wrote
        it, and that now comes from elsewhere: to record the backward again,
        autograd would need what was let go, so the gradient moves instead."""
        return tuple(
            g if c is None or c.data_ptr() == g.data_ptr() else c.copy_(g)
            for c, g in zip(instance.chained, grads))

    def _run_backward(self, instance: _Instance, grads):
        """Of a pass that is open."""
        if not instance.live:
            self.owner.cancel(None)
            raise Error("the backward of layer %d must run eagerly, and what "
                        "autograd needs for that is gone" % self.index)
        found = self._grad(instance, grads)
        self.owner.check(self._exit(self.passes[1], ()))
        return found

    def _backward_eagerly(self, instance: _Instance, microbatch: int, grads):
        """The forward was a graph, the backward is not: it reads what the
        forward has left at its own addresses."""
        owner = self.owner
        owner.pause()
        try:
            self._enter(self.passes[1], grads, microbatch)
            return self._run_backward(instance, grads)
        finally:
            owner.resume()

    def _let_go(self, instance: _Instance) -> None:
        """Autograd's graph is needed no more: its memory may be reused by
        what is recorded after it."""
        instance.outputs = tuple(
            o.detach().requires_grad_(o.requires_grad)
            for o in instance.outputs)
        instance.inputs = instance.parameters = ()
        instance.live = False


class Attached:
    """A stack of modules with graphs; ``detach`` gives them back."""

    def __init__(self, modules, **options):
        self.modules = list(modules)
        self._check(options)
        self.pools: dict[tuple, torch.cuda.MemPool] = {}
        self.routes = []
        self.steps = 0
        self.microbatch = 0  # of the pass at hand
        self.session = Session(
            self._describe(), device=torch.cuda.current_device(),
            services=services(record_begin=self._route,
                              record_end=self._end_route), **options)
        self.api = self.session.api
        self.handle = self.session.handle
        self.error = _abi.gh_error()
        self.eager: dict[str, int] = {}
        self.layers = [_Layer(self, i, m) for i, m in enumerate(self.modules)]
        for module, layer in zip(self.modules, self.layers):
            # By name: its module takes seconds to import.
            if type(module).__name__ == "OptimizedModule":
                layer.refuse("it is compiled by torch.compile")
            else:
                module.forward = layer
        self.stepped = False  # an optimizer has, and no forward came since
        self.hook = register_optimizer_step_post_hook(self._note_step)

    def _check(self, options) -> None:
        if not self.modules:
            raise Error("there is no layer to attach to")
        if options.get("granularity", "layer") != "layer":
            raise Error("granularity is %r; a stack of modules is captured "
                        "layer by layer" % options["granularity"])
        for i, module in enumerate(self.modules):
            if isinstance(vars(module).get("forward"), _Layer):
                raise Error(f"layer {i} is attached already: detach it first")

    def _describe(self) -> Model:
        model = Model()
        for module in self.modules:
            model.add_layer("mlp_only", name=type(module).__name__)
        return model

    def _route(self, stream, slot) -> None:
        """What this thread allocates from now on is the flight's."""
        flight = (slot, self.steps, self.microbatch)
        if flight not in self.pools:
            self.pools[flight] = torch.cuda.MemPool()
        # A graph holds the address of cuBLAS's scratch; one made here is of
        # this flight, and so is never shared by two that run at once.
        torch._C._cuda_clearCublasWorkspaces()
        route = torch.cuda.use_mem_pool(self.pools[flight])
        route.__enter__()
        self.routes.append(route)

    def _end_route(self, stream, slot, kept) -> None:
        torch._C._cuda_clearCublasWorkspaces()
        self.routes.pop().__exit__(None, None, None)

    def check(self, status: int) -> None:
        if status < 0:
            raise Error(self.error.text.decode(), status)

    def cancel(self, reason) -> None:
        """The open pass runs as if nobody were attached."""
        self.check(self.api.layer_cancel(self.handle,
                                         ctypes.byref(self.error)))
        if reason is not None:
            self.count(self.api.reason_name(reason).decode())

    def count(self, reason: str) -> None:
        """A call of a layer that ran as if nobody were attached."""
        self.eager[reason] = self.eager.get(reason, 0) + 1

    def _note_step(self, *_) -> None:
        """The next forward begins a step.  Not now: an optimizer that works
        inside the backward steps once for each parameter."""
        self.stepped = True

    def pause(self) -> None:
        """Nothing is recorded or replayed until resume()."""
        self.check(self.api.pre_warmup(self.handle,
                                       ctypes.byref(self.error)))

    def resume(self) -> None:
        self.check(self.api.post_warmup(self.handle,
                                        ctypes.byref(self.error)))

    def step(self) -> None:
        """A training step is over; after an optimizer's step the next forward
        calls it."""
        self.stepped = False
        self.steps += 1
        for layer in self.layers:
            layer.microbatch = 0
            layer.check_state()
        self.check(self.api.iteration_end(self.handle,
                                          ctypes.byref(self.error)))

    def stats(self) -> dict:
        """The library's counters, and how often a layer's call ran eagerly
        and why; ``refused`` has the layers that do for good."""
        stats = self.session.stats()
        stats["eager_calls"] = dict(self.eager)
        stats["refused"] = {layer.index: layer.refused
                            for layer in self.layers if layer.refused}
        return stats

    def explain(self) -> str:
        """The plan as text, and what has become of it."""
        lines = [self.session.explain().rstrip("\n")]
        lines += [f"layer {layer.index} runs eagerly: {layer.refused}"
                  for layer in self.layers if layer.refused]
        return "\n".join(lines) + "\n"

    def detach(self) -> None:
        self.hook.remove()
        for module, layer in zip(self.modules, self.layers):
            vars(module).pop("forward", None)
            layer.instances.clear()
        torch.cuda.synchronize()
        self.session.close()
        self.pools.clear()

    def __enter__(self) -> "Attached":
        return self

    def __exit__(self, *_) -> None:
        self.detach()


def attach(model: torch.nn.Module, layers=None, **options) -> Attached:
    """Captures a stack of layers of ``model``.

    ``layers`` is an ``nn.ModuleList`` or any sequence of modules; without it
    the longest ``nn.ModuleList`` of the model is taken.
    """
    if layers is None:
        lists = [m for m in model.modules()
                 if isinstance(m, torch.nn.ModuleList)]
        if not lists:
            raise Error("the model has no nn.ModuleList: say which layers")
        layers = max(lists, key=len)
    return Attached(layers, **options)
