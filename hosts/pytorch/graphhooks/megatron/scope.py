"""Which part of a layer is captured, in Megatron's own words.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import types

from ..errors import Error

SEAM = "transformer_engine"  # the value of cuda_graph_impl with a seam
_BUILT = "build the model with cuda_graph_impl=\"transformer_engine\" and " \
         "these cuda_graph_modules"


AUTO = "auto"  # the largest, of which what loses is dropped


def words_of(scope, names) -> list | None:
    """The modules that a caller names: a text with commas, or a list of texts
    or of CudaGraphModule; empty: whole layers.  None: what config says."""
    if scope is None:
        return None
    words = scope.split(",") if isinstance(scope, str) else list(scope)
    words = [w.strip() if isinstance(w, str) else w.name for w in words]
    known = list(names.CudaGraphModule.__members__)
    for word in filter(None, words):
        if word not in known:
            raise Error(f"scope has {word!r}; Megatron's words are "
                        f"{', '.join(known)}")
    return [names.CudaGraphModule[w] for w in words if w]


class Settings:
    """The configs of a model's chunks, set to the seam, and put back."""

    def __init__(self, names, chunks, config, scope, whole=False,
                 offload=()):
        """`whole`: all layers together, for which nothing is set."""
        self._before: list = []
        self._given: list = []  # objects, attributes of theirs, and values
        self._layers: list = []
        self._lent: list = []
        self._names = names
        words = None if scope == AUTO else words_of(scope, names)
        if config.cuda_graph_impl not in (SEAM, "none"):
            raise Error(
                f"cuda_graph_impl is {config.cuda_graph_impl!r}, by which "
                "Megatron makes graphs itself: leave it out, or set it to "
                f"{SEAM!r}")
        shared = _lent.get(id(config))
        self.built = (shared.before[0] if shared else
                      config.cuda_graph_impl) == SEAM
        if whole:
            if words:
                raise Error("granularity \"chunk\" takes layers whole, and "
                            f"scope is {scope!r}: leave one of them out")
            if offload and offload is not True:
                raise Error("granularity \"chunk\" has one graph of all "
                            "layers, and groups are of each: leave it out, or "
                            f"the offload of {','.join(offload)}")
            self.words: list = []
            return
        offload = () if offload is True else offload
        if scope == AUTO:
            words = largest(names, chunks, config, offload)
        if words is None:
            words = list(config.cuda_graph_modules) if self.built else []
        _refuse_begun(config, words)
        same = self.built and set(words) == set(config.cuda_graph_modules)
        if shared and set(words) != set(config.cuda_graph_modules):
            raise Error("the model, or another with the same config object, "
                        "has graphs already, of another scope, which Megatron "
                        "has in the config: detach it first, or give both one "
                        "scope, or each a config of its own")
        self.words = words if same and not _is_more(config, offload) \
            else _checked(config, words, offload)
        if not same:
            _refuse_late(config)
            for chunk in chunks:
                self._set(names, chunk)

    def _set(self, names, chunk) -> None:
        configs = {id(m.config): m.config for m in chunk.modules()
                   if hasattr(getattr(m, "config", None), "cuda_graph_impl")}
        for number, config in configs.items():
            lent = _lent.setdefault(number, _Lent(config))
            lent.users += 1
            self._lent.append(lent)
            config.cuda_graph_impl = SEAM
            config.cuda_graph_modules = self.words
            self._given += ((config, "cuda_graph_impl", SEAM),
                            (config, "cuda_graph_modules", self.words))
        # Of models with the same config that are not attached.
        names.GraphableMegatronModule.cuda_graphs = ()
        for module in chunk.modules():
            if isinstance(module, names.GraphableMegatronModule) \
                    and "cuda_graphs" not in vars(module):
                module.cuda_graphs = []
                module.cuda_graph_manual_hooks = []
                module.cuda_graph_backward_dw_wrapper = None
                self._layers.append(module)
            dispatcher = getattr(module, "token_dispatcher", None)
            if isinstance(dispatcher, names.MoEAlltoAllTokenDispatcher):
                self._before.append((dispatcher, dispatcher.cuda_dtoh_point))
                preprocess = names.CudaGraphModule.moe_preprocess
                if not self.words or preprocess in self.words:
                    dispatcher.cuda_dtoh_point = "before_ep_alltoall"
                self._given.append((dispatcher, "cuda_dtoh_point",
                                    dispatcher.cuda_dtoh_point))

    @contextlib.contextmanager
    def again(self):
        """As layers were to find it, for a backward that comes when it was put
        back: its forward runs again for that."""
        before = [(thing, name, getattr(thing, name))
                  for thing, name, _ in self._given]
        for thing, name, value in self._given:
            setattr(thing, name, value)
        try:
            yield
        finally:
            for thing, name, value in before:
                setattr(thing, name, value)

    def put_back(self) -> None:
        for lent in self._lent:
            lent.users -= 1
            if lent.users == 0:
                lent.config.cuda_graph_impl, lent.config.cuda_graph_modules \
                    = lent.before
                del _lent[id(lent.config)]
        if self._lent and not _lent:
            del self._names.GraphableMegatronModule.cuda_graphs
        for dispatcher, point in reversed(self._before):
            dispatcher.cuda_dtoh_point = point
        for layer in self._layers:
            del layer.cuda_graphs, layer.cuda_graph_manual_hooks
            del layer.cuda_graph_backward_dw_wrapper
        self._before, self._layers, self._lent = [], [], []


class _Lent:
    """A config that says by now what its models' layers are to capture."""

    def __init__(self, config):
        self.config = config
        self.before = config.cuda_graph_impl, config.cuda_graph_modules
        self.users = 0  # chunks


_lent: dict = {}  # by id; chunks and models may have one object


def largest(names, chunks, config, offload) -> list:
    """The largest scope that a model can have: whole layers, where no experts
    wait for the host; else all words of its layers that Megatron allows."""
    modules = [m for chunk in chunks for m in chunk.modules()]
    has_experts = any(isinstance(m, names.MoETokenDispatcher)
                      for each in modules for m in (
                          each, getattr(each, "token_dispatcher", None)))
    whole = not has_experts or config.moe_pad_expert_input_to_capacity
    words = [word for word in names.CudaGraphModule
             if word.name != "moe" and any(
                 has_word(names, m, word) for m in modules)]
    tries = ([[]] if whole else []) + [
        [w for w in words if w.name not in left_out] for left_out in (
            (), ("mlp",), ("moe_preprocess",), ("moe_preprocess", "mlp"),
            ("moe_router", "moe_preprocess"))]
    refusal = None
    for tried in tries:
        if tried or whole:
            try:
                return _checked(config, tried, offload)
            except Error as error:
                refusal = error
    try:
        raise refusal or Error("no layer of this stage has what a scope names")
    finally:
        del refusal  # whose traceback has this frame, and that the model


def has_word(names, layer, word) -> bool:
    """Whether a layer has what a word of a scope names."""
    return names._layer_is_graphable(
        layer, types.SimpleNamespace(cuda_graph_modules=[word]))


def covered(names, layer) -> list:
    """Modules that the scope takes.  Of a latent projection before the experts
    Megatron's own list has nothing."""
    words, found = layer.config.cuda_graph_modules, \
        layer._get_submodules_under_cudagraphs()
    before = getattr(getattr(layer, "mlp", None), "fc1_latent_proj", None)
    if before is not None and entered_twice(names, layer) \
            and names.CudaGraphModule.moe_preprocess in words:
        found = [*found, before]
    return found


def entered_twice(names, layer) -> list:
    """Modules within which the scope ends: a graph has entered them, and the
    rest of the layer does so again."""
    words = layer.config.cuda_graph_modules
    ends = getattr(layer, "is_moe_layer", False) \
        and names.CudaGraphModule.moe_router in words \
        and names.CudaGraphModule.moe not in words
    return [layer.mlp] if ends else []


def spelled(names, layer, words) -> str:
    """What the scope is of a layer."""
    return ",".join(w.name for w in words
                    if has_word(names, layer, w)) or "whole layers"


def _is_more(config, offload) -> bool:
    """Whether it is not what the config was checked with."""
    return bool(offload) and not (
        config.fine_grained_activation_offloading
        and set(offload) == set(config.offload_modules))


def _checked(config, words, offload) -> list:
    """The words that Megatron's own checks leave of these; it refuses those
    that do not fit the model."""
    _refuse_begun(config, words)
    tried = copy.copy(config)
    try:
        for field in dataclasses.fields(config):
            if isinstance(getattr(config, field.name), list):
                setattr(tried, field.name,
                        list(getattr(config, field.name)))
        tried.cuda_graph_impl, tried.cuda_graph_modules = SEAM, list(words)
        tried.fine_grained_activation_offloading = bool(offload)
        tried.offload_modules = list(offload)
        tried.__post_init__()
    except (AssertionError, ValueError) as refusal:
        with_offload = f" with offload={','.join(offload)}" if offload else ""
        raise Error(f"Megatron refuses the scope "
                    f"{','.join(w.name for w in words) or 'of whole layers'}"
                    f"{with_offload}: {refusal}") from None
    return list(tried.cuda_graph_modules)


def _refuse_begun(config, words) -> None:
    """What a module begins in a graph and goes on with in the rest."""
    if getattr(config, "moe_router_padding_for_quantization", False) \
            and config.moe_token_dispatcher_type == "alltoall" \
            and not config.moe_pad_expert_input_to_capacity \
            and any(word.name == "moe_preprocess" for word in words):
        raise Error("moe_router_padding_for_quantization has moe_preprocess "
                    "wait for the host, which a graph cannot: leave "
                    "moe_preprocess out of the scope")
    if config.moe_shared_expert_overlap \
            and config.moe_shared_expert_intermediate_size \
            and config.moe_token_dispatcher_type == "alltoall" \
            and any(word.name == "moe_preprocess" for word in words):
        raise Error("moe_shared_expert_overlap begins the shared experts in "
                    "moe_preprocess, and the rest of the layer goes on with "
                    "them, which a graph cannot hand over: leave "
                    "moe_preprocess out of the scope, or the overlap out of "
                    "the config")


def remedy_of(layer) -> str | None:
    """Where a segment waits for the host, which experts do."""
    if getattr(getattr(layer, "mlp", None), "token_dispatcher", None) is None:
        return None
    words = [w.name for w in layer.config.cuda_graph_modules]
    if "sinkhorn" in _as_list(layer.config.moe_router_load_balancing_type):
        if not words:
            return "scope=\"attn\" captures what comes before the router, " \
                "which waits for the host with sinkhorn"
        waits = [w for w in ("moe_router", "moe_preprocess") if w in words]
        return f"leave {' and '.join(waits or words)} out of the scope, as " \
            "sinkhorn waits for the host in the router"
    last = next((w for w in ("moe_preprocess", "moe_router") if w in words),
                None)
    if last is not None:
        return f"leave {last} out of the scope"
    return ("scope=\"attn,moe_router,moe_preprocess\" captures what comes "
            "before the experts, which wait for the numbers of their tokens")


def _as_list(value) -> list:
    return value if isinstance(value, list) else [value]


def _refuse_late(config) -> None:
    """What layers have decided by the config when they were made."""
    if config.recompute_granularity == "selective" \
            and "layernorm" in (config.recompute_modules or ()):
        raise Error("recompute_modules has layernorm, and layers decide when "
                    f"they are made what they can recompute: {_BUILT}")
