"""What the package uses of torch beyond its documented interface.

Nothing else of the package has such a name, which tests hold it to.  All of
this is checked on the versions that versions.py lists; what has changed
between them is said where it matters.  A torch that lacks one of the names is
refused with a sentence.

Newer versions have public ways near some of these, which do not fit:

    torch.cuda.graphs.register_graph_*_hook (2.14): they are called when a
        capture ends, and one that fails does not end, which is what
        end_allocate_to_pool is for; the library, not torch, launches most
        graphs, so nobody would be called for their replays
    torch.cuda.MemPool as the pool of a capture (2.14): a failed capture
        leaves the allocator with it as with a handle of graph_pool_handle(),
        which is public in all versions
    torch.accelerator's stream and device: objects, made in every call

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import operator
import sys
import threading
import weakref

import torch
import torch.utils.checkpoint
from torch.autograd import forward_ad
from torch.nn.modules import module as _module
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parametrize

from ...errors import Error
from .names import CAPTURING

try:
    # ---- CUDA ----------------------------------------------------------
    # The number of the current stream, and of the current device.  The public
    # ways make an object, or look first whether CUDA has begun.
    from torch._C import _cuda_getCurrentRawStream as raw_stream
    from torch._C import _cuda_getDevice as current_device

    # cuBLAS's scratch memory goes to whoever asks next.
    from torch._C import _cuda_clearCublasWorkspaces as clear_workspaces

    # The allocator is led to a pool, and led back, which a failed capture does
    # not do.  A pool counts how often that was begun; given up as often, it
    # returns its memory.
    from torch._C import (
        _cuda_beginAllocateCurrentThreadToPool as begin_allocate_to_pool,
        _cuda_endAllocateToPool as end_allocate_to_pool,
        _cuda_releasePool as release_pool)

    # What makes an allocator of the addresses of two functions in C.  The
    # public way wants the names of exported ones.
    from torch._C import _cuda_customAllocator as custom_allocator

    # Pinned memory that nobody uses goes back to the system.
    from torch._C import _host_emptyCache as empty_host_cache

    # A kernel that does nothing, for a graph that is not to be empty.
    from torch.cuda import _sleep as sleep

    # ---- autograd ------------------------------------------------------
    # Which pass of autograd this thread works for, or -1; and whether that
    # pass will come to a node.
    from torch._C import _current_graph_task_id as current_pass
    from torch._C import _will_engine_execute_node as will_run

    # How many nodes of autograd's graph this thread has made.
    from torch._C._autograd import _get_sequence_nr as nodes_so_far

    # What saved tensors are given to: (pack, unpack), or None.
    from torch._C._autograd import (
        _pop_saved_tensors_default_hooks as pop_saved_tensors_hooks,
        _push_saved_tensors_default_hooks as push_saved_tensors_hooks,
        _saved_tensors_hooks_is_enabled as takes_saved_tensors_hooks,
        _top_saved_tensors_default_hooks as top_saved_tensors_hooks)

    # Whether a tensor is a batch of gradients.
    from torch._C._functorch import is_legacy_batchedtensor as is_batched

    # Whether a call is within torch.func.
    from torch._C import (
        _are_functorch_transforms_active as torch_func_is_active)

    # Another of the same memory and of a type of Python's, which is a leaf.
    make_subclass = torch.Tensor._make_subclass

    # How many tensors, or what else, have the memory of one.
    count_of_storage = torch._C._storage_Use_Count

    # Another tensor of the same memory, until one of both is written.
    lazy_clone = torch._lazy_clone

    # ---- operations ----------------------------------------------------
    # Compares types, devices, shapes and strides of many tensors at once.
    from torch._C._dynamo.guards import TensorGuards as _Forms

    # One launch for many tensors.
    foreach_copy = torch._foreach_copy_
    foreach_add = torch._foreach_add_
    foreach_sub = torch._foreach_sub
    foreach_max = torch._foreach_max

    # Backwards of attention whose seed may be on the device.
    attention_backward = \
        torch.ops.aten._scaled_dot_product_efficient_attention_backward.default
    efficient_attention_backward = \
        torch.ops.aten._efficient_attention_backward.default

    # Modes that see every operation, and the one that is on.
    from torch.utils._python_dispatch import (
        TorchDispatchMode, _get_current_dispatch_mode as dispatch_mode)

    # How many of these are on in this thread, and those that see every
    # function of torch.
    from torch._C import (
        _get_function_stack_at as function_mode_at,
        _len_torch_dispatch_stack as count_of_dispatch_modes,
        _len_torch_function_stack as count_of_function_modes)

    # What torch takes for a container, and what is in one.
    from torch.utils._pytree import (
        SUPPORTED_NODES as TREE_NODES, TreeSpec, tree_flatten)

    # What makes torch.compile leave a function alone.
    from torch._C._dynamo import eval_frame as _dynamo

    # What operations choose a kernel by, for all threads: the name that users
    # know, who reads it, and who sets it.  The public ways take some times as
    # long.
    _C = torch._C
    SWITCHES = (
        ("the default dtype", torch.get_default_dtype,
         torch.set_default_dtype),
        ("flash_sdp", _C._get_flash_sdp_enabled, _C._set_sdp_use_flash),
        ("mem_efficient_sdp", _C._get_mem_efficient_sdp_enabled,
         _C._set_sdp_use_mem_efficient),
        ("math_sdp", _C._get_math_sdp_enabled, _C._set_sdp_use_math),
        ("cudnn_sdp", _C._get_cudnn_sdp_enabled, _C._set_sdp_use_cudnn),
        ("the order of sdpa_kernel()",
         lambda: tuple(_C._get_sdp_priority_order()),
         lambda value: _C._set_sdp_priority_order([*value])),
        ("fp16_bf16_reduction_math_sdp",
         _C._get_math_sdp_allow_fp16_bf16_reduction,
         _C._set_math_sdp_allow_fp16_bf16_reduction),
        ("use_deterministic_algorithms", _C._get_deterministic_algorithms,
         _C._set_deterministic_algorithms),
        ("mha.fastpath", torch.backends.mha.get_fastpath_enabled,
         torch.backends.mha.set_fastpath_enabled),
        ("cudnn.enabled", _C._get_cudnn_enabled, _C._set_cudnn_enabled),
        ("cudnn.benchmark", _C._get_cudnn_benchmark, _C._set_cudnn_benchmark),
        ("cudnn.deterministic", _C._get_cudnn_deterministic,
         _C._set_cudnn_deterministic),
        ("allow_fp16_accumulation", _C._get_cublas_allow_fp16_accumulation,
         _C._set_cublas_allow_fp16_accumulation),
        ("allow_fp16_reduced_precision_reduction",
         _C._get_cublas_allow_fp16_reduced_precision_reduction,
         lambda value:
         _C._set_cublas_allow_fp16_reduced_precision_reduction(*value)),
        ("allow_bf16_reduced_precision_reduction",
         _C._get_cublas_allow_bf16_reduced_precision_reduction,
         lambda value:
         _C._set_cublas_allow_bf16_reduced_precision_reduction(*value)),
        *((f"fp32_precision of {what}",
           functools.partial(_C._get_fp32_precision_getter, "cuda", what),
           functools.partial(_C._set_fp32_precision_setter, "cuda", what))
          for what in ("matmul", "conv", "rnn")),
    )

    # ---- modules -------------------------------------------------------
    # Hooks of all modules.
    GLOBAL_HOOKS = [_module._global_forward_hooks,
                    _module._global_forward_pre_hooks,
                    _module._global_backward_hooks,
                    _module._global_backward_pre_hooks]

    # What checkpointing keeps for a piece.
    _Frame = torch.utils.checkpoint._CheckpointFrame
except (ImportError, AttributeError) as missing:
    raise Error(f"torch {torch.__version__} cannot have graphs: {missing}; "
                "the versions that can are in the package's README"
                ) from missing

# Of a module: its dicts, of which each name is one of a module's attributes.
REGISTRIES = ("_parameters", "_buffers", "_modules")
registries_of = operator.attrgetter(*REGISTRIES)
parameters_of = operator.attrgetter("_parameters")
buffers_of = operator.attrgetter("_buffers")
submodules_of = operator.attrgetter("_modules")

# How often a tensor has been written.
version = operator.attrgetter("_version")


def version_of(tensor) -> int:
    """One that was made in inference mode has none, and is not changed."""
    return 0 if tensor.is_inference() else version(tensor)


def hooks_of(module) -> list:
    return [module._forward_hooks, module._forward_pre_hooks,
            module._backward_hooks, module._backward_pre_hooks]


def are_heard(hooks) -> bool:
    """Whether one of these, as hooks_of() has them, would do anything now."""
    return any([not _is_idle(h) for each in hooks for h in each.values()])


@contextlib.contextmanager
def without_hooks(hooks):
    """A recording, which only idle ones may hear: what they read is nothing
    that its graph depends on."""
    kept = [(each, dict(each)) for each in hooks if each]
    for each, _ in kept:
        each.clear()
    try:
        yield
    finally:
        for each, found in kept:
            each.update(found)


def collector_of_outputs():
    """What transformers' hooks ask whether anybody wants outputs; None: it is
    not at work."""
    return getattr(sys.modules.get(CAPTURING), "_active_collector", None)


def forward_hooks_of(module) -> list:
    return list(module._forward_hooks.values())


def _is_idle(hook) -> bool:
    """One of transformers, which keeps an output for who asks for it, as with
    output_hidden_states, and stays when nobody does any more."""
    home = sys.modules.get(getattr(hook, "__module__", None))
    if home is None or home.__name__ != CAPTURING:
        return False
    asked = getattr(home, "_active_collector", None)
    closure = dict(zip(hook.__code__.co_freevars, hook.__closure__ or ()))
    if asked is None or "key" not in closure:
        return False
    outputs = asked.get()
    return outputs is None or closure["key"].cell_contents not in outputs


def check_of_forms(tensors):
    """A function of as many tensors: whether each has the type, the device,
    the shape, the strides and the need of a gradient that the one here has.
    No to what has all of that is possible, as a part of it is which modes are
    on, such as autocast."""
    return _Forms(*tensors,
                  dynamic_dims_sizes=[[*t.size()] for t in tensors],
                  dynamic_dims_strides=[[*t.stride()] for t in tensors]).check


# Of a tensor: on its gradient.
tensor_hooks = operator.attrgetter("_backward_hooks")


def has_tensor_hooks(tensor) -> bool:
    return bool(tensor_hooks(tensor))


# Of a leaf: on its gradient, and for when that has been added up.
hooks_of_leaf = operator.attrgetter("_backward_hooks",
                                    "_post_accumulate_grad_hooks")


def has_hooks(leaf) -> bool:
    return any(hooks_of_leaf(leaf))


def hooks_of_node(node) -> list:
    """The dicts in which those of a node of autograd's are: of before it and
    of after it."""
    found = []
    for register in node.register_prehook, node.register_hook:
        handle = register(_nothing)
        found.append(handle.hooks_dict_ref())
        handle.remove()
    return found


def _nothing(*_) -> None:
    pass


class Silent:
    """In the place of a hook of a leaf, for passes that are not to call it."""

    def __init__(self, hook, leaf):
        self.hook, self.leaf = hook, leaf
        self.passes: list = []  # the innermost last

    def __call__(self, *_) -> None:
        self.passes[-1].come(self.leaf)


def have_hooks(leaves, ours: int = 0, counts=None) -> bool:
    """Each has so many of ours, for when its gradient has been added up.
    counts(hooks): whether they are some; silent ones by themselves are not."""
    counts = counts or _are_heard
    for on_gradient, on_sum in map(hooks_of_leaf, leaves):
        if on_gradient and counts(on_gradient) \
                or on_sum and len(on_sum) > ours and counts(on_sum):
            return True
    return False


def have_hooks_of_sums(leaves) -> bool:
    """Which are called once a gradient has been added up."""
    return any(on_sum and _are_heard(on_sum)
               for _, on_sum in map(hooks_of_leaf, leaves))


def _are_heard(hooks) -> bool:
    return any(type(hook) is not Silent for hook in hooks.values())


def is_transformed() -> bool:
    """Whether a call is within torch.func, or forward AD."""
    return torch_func_is_active() or forward_ad._current_level >= 0


def is_in_mode() -> bool:
    """Whether somebody sees every operation of a call, or every function, and
    may give other results.  Torch's own modes for functions say where tensors
    are made, or distribute them."""
    return count_of_dispatch_modes() > 0 or count_of_function_modes() > 0 \
        and any(not type(function_mode_at(i)).__module__.startswith("torch.")
                for i in range(count_of_function_modes()))


def keeps_parametrized() -> bool:
    """Whether a call is within parametrize.cached()."""
    return parametrize._cache_enabled > 0


def is_compiled(module) -> bool:
    return type(module).__name__ == "OptimizedModule" \
        or getattr(module, "_compiled_call_impl", None) is not None


def is_fsdp1(module) -> bool:
    return type(module).__name__ == "FullyShardedDataParallel"


def is_fsdp2(module) -> bool:
    return hasattr(module, "_get_fsdp_state")


def fsdp_groups(model) -> list:
    """Of FSDP2: what is gathered together, once each."""
    found: dict = {}
    for module in model.modules():
        if is_fsdp2(module):
            state = module._get_fsdp_state()
            groups = getattr(state, "_fsdp_param_groups", None)
            found.update((group, None) for group in (
                [state._fsdp_param_group] if groups is None else groups)
                if group is not None)
    return [*found]


def fsdp_places(each) -> list:
    """Where a parameter of such a group is: modules, and its names there."""
    info = each._module_info
    return [(info.module, info.param_name),
            *zip(info.shared_modules, info.shared_param_names)]


def is_gathered_plain(each) -> bool:
    """Whether a call has it as a tensor of torch's own, and not in shards of
    another kind, or in a type of somebody's."""
    return not (each.is_dtensor or getattr(each, "is_spmd_types", False)
                or hasattr(local_shard(each.sharded_param),
                           "fsdp_post_all_gather"))


def local_shard(parameter):
    return parameter._local_tensor


def are_gathered(group) -> bool:
    return group.is_unsharded


def gathers_for_backward(group) -> bool:
    return group.unshard_in_backward


foreach_copy = torch._foreach_copy_


def ddp_runs() -> bool:
    """Whether a forward of DistributedDataParallel is on its way."""
    return DistributedDataParallel._active_ddp_module is not None


def number_of_storage(storage) -> int:
    """By which it is counted, for as long as it is there."""
    return storage._cdata


def with_field(named, name: str, value):
    """A named tuple with another value there."""
    return named._replace(**{name: value})


# ---- torch.distributed ------------------------------------------------------

gpu = torch.device("cuda")  # whose collectives a graph may hold


def gpu_groups() -> list:
    """The process groups that work on a GPU, each with its backend there."""
    if not torch.distributed.is_available() \
            or not torch.distributed.is_initialized():
        return []
    found = []
    for group in [*torch.distributed.distributed_c10d._world.pg_map]:
        try:
            found.append((group, group._get_backend(gpu)))
        except RuntimeError:  # it has none there
            continue
    return found


def default_store():
    """By which the processes have found each other."""
    return torch.distributed.distributed_c10d._get_default_store()


def collectives() -> int:
    """How many this process has issued on a GPU so far; a send or a receive
    is none."""
    return sum(backend._get_sequence_number_for_group()
               for _, backend in gpu_groups())


@contextlib.contextmanager
def name_of_groups(name: str):
    """Groups that only their ranks make get this name.  By itself torch counts
    the groups that the process has had for it, and Megatron's ranks, for one,
    have had different ones.  What torch counts stays as it was, as other ranks
    have not made them."""
    home = torch.distributed.distributed_c10d
    found = getattr(home, "_hash_ranks_to_str", None)
    if found is None:  # of a torch that has other names
        yield
        return
    before = home._world.group_count
    home._hash_ranks_to_str = lambda ranks: name
    try:
        yield
    finally:
        home._hash_ranks_to_str = found
        home._world.group_count = before


def gives_sparse(node) -> bool:
    """Whether a node of an embedding gives sparse gradients."""
    return bool(getattr(node, "_saved_sparse", False))


if hasattr(torch.autograd.graph, "queue_callback"):  # 2.15
    at_end_of_pass = torch.autograd.graph.queue_callback
else:
    def at_end_of_pass(call) -> None:
        """Of autograd's."""
        torch.autograd.Variable._execution_engine.queue_callback(call)


# Passes of all threads that keep autograd's graph: while there is one, a
# backward may come again after the pass at hand, which may be any thread's.
KEEPS: list = []


class _Begun(threading.local):
    def __init__(self):
        self.around = []  # passes, on this thread, within which one has begun
        # The next, and that at hand, is of all gradients, whatever is around.
        self.is_next_whole = self.is_whole = False


_begun = _Begun()


def is_within() -> bool:
    """Whether the pass of autograd at hand has begun within another, as that
    of a reentrant checkpoint does."""
    return bool(_begun.around)


def is_within_any(passes) -> bool:
    """Whether the pass at hand is one of these, or has begun within one."""
    return current_pass() in passes or any(
        each in passes for each in _begun.around)


@contextlib.contextmanager
def whole_pass():
    """The pass that begins here is of all gradients.  Torch forbids reentrant
    checkpoints in it where the one around it is of some, which says nothing of
    this one."""
    _begun.is_next_whole = True
    try:
        yield
    finally:
        _begun.is_next_whole = False


def is_of_all() -> bool:
    """Whether the pass at hand is of all gradients, and so are those around
    it."""
    return torch.autograd._is_checkpoint_valid()


def around_passes(run) -> None:
    """Passes of autograd that Python begins go by run(), which is given what
    begins one, and what that is given."""
    engine = torch.autograd.Variable._execution_engine

    class Engine(type(engine)):
        def is_checkpoint_valid(self):
            return _begun.is_whole or engine.is_checkpoint_valid()

        def run_backward(self, tensors, grad_tensors, keep_graph,
                         create_graph, inputs=(), *args, **kwargs):
            KEEPS.extend([None] * bool(keep_graph))
            around = current_pass()
            if around >= 0:
                _begun.around.append(around)
            before = _begun.is_whole
            _begun.is_whole = _begun.is_next_whole or before and not inputs
            _begun.is_next_whole = False
            try:
                return run(engine.run_backward, tensors, grad_tensors,
                           keep_graph, create_graph, inputs, *args, **kwargs)
            finally:
                _begun.is_whole = before
                if around >= 0:
                    _begun.around.pop()
                if keep_graph:
                    KEEPS.pop()

    torch.autograd.Variable._execution_engine = Engine()


def hide_from_compile(function, why: str) -> None:
    """torch.compiler.disable() without a function around it."""
    function._torchdynamo_disable = True
    function._torchdynamo_disable_msg = why
    _dynamo.set_code_exec_strategy(
        function.__code__, _dynamo._FrameExecStrategy(
            _dynamo._FrameAction.SKIP, _dynamo._FrameAction.SKIP))


def frame_behind(hook) -> tuple:
    """Of a hook of saved tensors: what checkpointing keeps for the piece that
    has it, and whether the piece runs once more; (None, False) for others.
    Hooks of the first run hold that frame, those of another hold it weakly,
    and are wrapped from 2.12 on, for torch.compile."""
    for cell in getattr(inspect.unwrap(hook), "__closure__", None) or ():
        held = cell.cell_contents
        again = isinstance(held, weakref.ref)
        frame = held() if again else held
        if isinstance(frame, _Frame):
            return frame, again
    return None, False


def kind_of_frame(frame) -> tuple:
    """What is equal of two pieces that checkpointing runs again alike: of
    torch's own, its flags, of which preserve_rng_state is one."""
    again = frame.recompute_fn
    flags = []
    for cell in getattr(again, "__closure__", None) or ():
        try:
            flags.append(cell.cell_contents)
        except ValueError:  # not set on the way that was taken
            flags.append(None)
    return (getattr(again, "__code__", None),
            *(f if type(f) is bool else None for f in flags))


def references(parameter) -> int:
    """How many Python has to the node that adds up a parameter's gradient.  A
    frozen one has no such node."""
    if not parameter.requires_grad:
        return 0
    return _references(parameter) - _references_of_nobody()


def _references(leaf) -> int:
    """With those of this function.  From 2.13 on torch adds one while
    something in C++ holds the node too: a view does here, in all versions."""
    with torch.inference_mode(False), torch.enable_grad():
        view = leaf.view_as(leaf)
    node = view.grad_fn.next_functions[0][0]
    return sys.getrefcount(node)


@functools.cache
def _references_of_nobody() -> int:
    with torch.inference_mode(False):
        leaf = torch.zeros(1, device="cpu", requires_grad=True)
    return _references(leaf)


def zero_bubble():
    """What torch's zero-bubble schedules go back with."""
    from torch.distributed.pipelining import _backward
    return _backward


def compiled_of(thing):
    """The function of which torch has made it by compiling, or itself."""
    return getattr(thing, "_torchdynamo_orig_callable", thing)


def nodes_of(tensors) -> list:
    """Where zero-bubble schedules begin to look for what hangs on these."""
    return [*map(zero_bubble()._get_grad_fn_or_grad_acc, tensors)]


def call_at_once(function) -> None:
    """Autograd calls its backward, and does not look first in which of torch's
    ways it is written."""
    function._backward_cls.apply = function.backward


def tell_of_outputs(function, metadata) -> None:
    """Nodes of a function in Python say this of their outputs, as torch's own
    nodes do."""
    function._backward_cls._input_metadata = property(metadata)


def tell_of_hooks(function, listen, listen_to_node) -> None:
    """listen(node, output) hears of the first hook on the gradient of an
    output of a function in Python; autograd does where that says no.  Hooks of
    its nodes are what listen_to_node(node, hook) makes of them."""
    node = function._backward_cls
    register = node._register_hook_dict
    of_node = {name: getattr(node, name)
               for name in ("register_hook", "register_prehook")}

    def ask(ctx, tensor):
        if not listen(ctx, tensor):
            register(ctx, tensor)

    node._register_hook_dict = ask
    for name, put in of_node.items():
        setattr(node, name, lambda ctx, hook, put=put:
                put(ctx, listen_to_node(ctx, hook)))


# ---- what stands in for a module's forward ---------------------------------

_REDUCE = "__reduce_ex__"  # which copy and pickle ask the object for


class Copied:
    """How a module is copied, or written to a file, in which something stands
    in: without these names, and without this.  `instead`: what makes others
    of a copy."""

    def __init__(self, module, without=("forward",), instead=()):
        self.module, self.without = module, without
        self.instead = dict(instead)

    def __call__(self, protocol):
        module = self.module
        found = [*type(module).__reduce_ex__(module, protocol)]
        if len(found) > 2 and isinstance(found[2], dict):
            found[2] = {name: value for name, value in found[2].items()
                        if value is not self and name not in self.without}
            found[2].update((n, make()) for n, make in self.instead.items())
        return tuple(found)


def copy_without(module, names, instead) -> None:
    """From now on, until copy_as_ever()."""
    if _REDUCE not in vars(module):
        setattr(module, _REDUCE, Copied(module, names, instead))


def copy_as_ever(module) -> None:
    if isinstance(vars(module).get(_REDUCE), Copied):
        delattr(module, _REDUCE)


def stand_in(module, forward) -> None:
    """From now on, in the place of the module's."""
    if not {"forward", _REDUCE} & vars(module).keys():
        setattr(module, _REDUCE, Copied(module))
    module.forward = forward


def give_back(module, forward) -> None:
    """What it had of its own, or None."""
    copy_as_ever(module)
    if forward is not None:
        module.forward = forward
    else:
        del module.forward
