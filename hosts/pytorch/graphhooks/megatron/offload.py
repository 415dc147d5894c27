"""Activations that go to the host's memory, by Megatron's names.

Megatron brackets what each of its modules keeps for the backward: a group is
what autograd saves between `__enter__` and `__exit__` of its interface, and
`group_offload` says that the memory may go.  While a layer of an attach runs,
these calls mark groups of graphhooks.torch (offload/marks.py); of any other
layer they stay Megatron's.  Megatron's own manager has nothing to do then, so
the option that turns it on is off until the detach.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import logging
import os

import torch

from ..errors import Error
from ..torch.offload.marks import Marks

log = logging.getLogger("graphhooks")

NAMES = ("attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm",
         "expert_fc1", "moe_act", "fused_group_mlp", "gdp_qkv")
# What modules decide when they are made: `offload_` and a name.
_FLAG = "offload_"
_ALSO = {"core_attention": "core_attn"}
_OPTIONS = {  # of an attach, by those of a config
    "offload_fraction": "activation_offload_fraction",
    "offload_keep_bytes": "delta_offload_bytes_across_pp_ranks",
    "offload_in_flight": "fine_grained_offloading_max_inflight_offloads",
    "offload_delay": "delay_offload_until_cuda_graph",
}


def words_of(config, given):
    """The names that a caller asks for, or the config; () for none, and True
    for all that segments keep, which is no matter of names."""
    told = os.environ.get("GRAPHHOOKS_OFFLOAD")
    if told:
        given = told
    if given is None:
        if not getattr(config, "fine_grained_activation_offloading", False):
            return ()
        given = config.offload_modules
    if given is True or not given:
        return given or ()
    words = given.split(",") if isinstance(given, str) else list(given)
    words = [str(word).strip() for word in words]
    for word in words:
        if word not in NAMES:
            raise Error(f"offload has {word!r}; Megatron's names are "
                        f"{', '.join(NAMES)}")
    return tuple(name for name in NAMES if name in words)


class Offloading:
    """Of one attach: the flags of its modules, and what its groups are."""

    def __init__(self, names, chunks, config, words, options):
        self._before: list = []
        self._names = names
        self._told: set = set()
        self._had: set = set()  # names that some module has a flag of
        self.words = words
        self.marks: list = []  # of each chunk
        self._least = config.min_offloaded_tensor_size
        self._counts_bytes = bool(
            options.get("offload_min_bytes")
            or os.environ.get("GRAPHHOOKS_OFFLOAD_MIN_BYTES"))
        self.options = self._options(config, options)
        late = bool(self.options.pop("offload_delay", False))
        interface.install(names)
        try:
            for chunk in chunks:
                for each in {id(m.config): m.config for m in chunk.modules()
                             if hasattr(getattr(m, "config", None),
                                        "cuda_graph_impl")}.values():
                    self._set(each, "fine_grained_activation_offloading",
                              False)
                    self._set(each, "delay_offload_until_cuda_graph", late)
        except BaseException:
            self.put_back()
            raise

    def _options(self, config, options) -> dict:
        rank = self._names.parallel_state.get_pipeline_model_parallel_rank() \
            if self._names.parallel_state.model_parallel_is_initialized() \
            else 0
        found = {"pipeline_rank": rank}
        for option, of_config in _OPTIONS.items():
            value = getattr(config, of_config, None)
            if option == "offload_in_flight" and value is not None:
                value = max(1, value)  # here 0 means no limit
            if value is not None:
                found[option] = value
        if not self._counts_bytes:
            found["offload_min_bytes"] = 1  # Megatron counts elements
        return {**found, **options}

    def of_chunk(self, layers, seams) -> Marks:
        """`layers` by name; of some there are seams, in their order."""
        owned = {seam.layer: seam for seam in seams}
        found = [(seam.body.name, seam.layer, True) for seam in seams]
        found += [(name, layer, False) for name, layer in layers
                  if layer not in owned]
        marks = Marks(self.words, found, self._may_go)
        for i, (_, layer, has_segment) in enumerate(found):
            self._flag(layer, layer.config if has_segment else None)
            if has_segment:
                owned[layer].offloads(marks, i)
            else:
                self._stand_in(layer, marks, i)
            experts = getattr(getattr(layer, "mlp", None), "experts", None)
            if experts is not None and has_segment and getattr(
                    layer.config, "overlap_moe_expert_parallel_comm", False):
                self._stand_in(experts, marks, i)  # called beside the layer
        self.marks.append(marks)
        return marks

    def missing(self) -> list:
        """Words that no layer has."""
        return [word for word in self.words if word not in self._had]

    def _may_go(self, tensor) -> bool:
        if getattr(tensor, "_TE_do_not_offload", False) \
                or getattr(tensor, "_do_not_offload", False):
            return False
        return self._counts_bytes or tensor.numel() >= self._least

    # ---- flags ----------------------------------------------------------

    def _set(self, thing, name: str, value) -> None:
        self._before.append((thing, name, getattr(thing, name, None)))
        setattr(thing, name, value)

    def _flag(self, layer, config) -> None:
        """Modules of a layer say what they offload; `config` that of a
        captured layer."""
        inside = self._boundaries(layer, config) if config is not None else ()
        for module in layer.modules():
            for attribute, value in list(vars(module).items()):
                if not attribute.startswith(_FLAG) \
                        or type(value) is not bool:
                    continue
                name = attribute[len(_FLAG):]
                name = _ALSO.get(name, name)
                self._had.add(name)
                goes = name in self.words and name not in inside
                self._set(module, attribute, goes)
                if goes and name == "expert_fc1":
                    self._save_input(module)
        for name, norm in (("attn_norm", "input_layernorm"),
                           ("mlp_norm", "pre_mlp_layernorm")):
            if isinstance(getattr(layer, norm, None), self._names.IdentityOp):
                self._set(layer, _FLAG + name, False)

    def _save_input(self, experts) -> None:
        """Quantized experts that are made for an offload save what they are
        given, and not what they quantize of it."""
        fc1 = getattr(experts, "linear_fc1", None)
        if experts.config.fp8_recipe != "mxfp8" \
                and not getattr(experts.config, "fp4", None) \
                and hasattr(fc1, "save_original_input"):
            self._set(fc1, "save_original_input", True)

    def _boundaries(self, layer, config) -> list:
        """Groups that begin or end at the border of a graph, whose tensors
        stay in place for it; Megatron leaves them out too."""
        module = self._names.CudaGraphModule
        scope = set(config.cuda_graph_modules or ())
        attn, mlp = module.attn in scope, module.mlp in scope
        is_moe = getattr(layer, "is_moe_layer", False)  # Mamba has none
        found = []
        if attn or not scope:
            found.append("attn_norm")
        if is_moe and (attn or module.moe_router in scope) \
                or not is_moe and attn != mlp:
            found.append("mlp_norm")
        words = ",".join(sorted(w.name for w in scope)) or "of whole layers"
        for name in found:
            if name in self.words and (name, words) not in self._told:
                self._told.add((name, words))
                log.warning("%s is not offloaded under the scope %s: its "
                            "tensor is one that a graph reads or leaves, "
                            "which stays where it is", name, words)
        return found

    def _stand_in(self, module, marks, index: int) -> None:
        """Of what is called beside any seam: its forward marks groups."""
        forward = module.forward
        here = marks, index, False

        def marked(*args, **kwargs):
            before = interface.enter(here)
            try:
                return forward(*args, **kwargs)
            finally:
                interface.leave(before)

        self._before.append((module, None, None))
        module.forward = marked

    def put_back(self) -> None:
        for thing, name, value in reversed(self._before):
            if name is None:
                vars(thing).pop("forward", None)
            else:
                setattr(thing, name, value)
        self._before = []
        interface.remove()

    # ---- what a person asks ---------------------------------------------

    def summary(self, attached) -> str:
        """What of a microbatch goes, by rank; of all ranks, each of which has
        to ask, where there is a process group."""
        mine = dict.fromkeys(self.words, 0)
        for each in attached:
            for key, why in each.offload.why.items():
                if why is None:
                    mine[key[1]] += each.offload.sizes[key]
        rows = [mine]
        if torch.distributed.is_initialized():
            rows = [None] * torch.distributed.get_world_size()
            torch.distributed.all_gather_object(rows, mine)
        columns = [n for n in NAMES if any(n in row for row in rows)]
        lines = ["MiB of a microbatch that go to the host's memory:",
                 " ".join(["rank", *(f"{c:>12}" for c in columns),
                           f"{'total':>12}"])]
        for rank, row in enumerate(rows):
            sizes = [row.get(c, 0) for c in columns]
            lines.append(" ".join(
                [f"{rank:>4}", *(f"{s / (1 << 20):>12.3f}"
                                 for s in (*sizes, sum(sizes)))]))
        return "\n".join(lines) + "\n"


class _Nothing:
    """Of a group that stays."""

    def end(self) -> None:
        pass

    def commit(self, late: bool) -> None:
        pass


class _Interface:
    """Megatron's, whose calls are answered here while a layer of an attach
    runs."""

    def __init__(self):
        self._users = 0
        self._replaced: dict = {}
        self._class = None
        self._here = None  # marks, the layer, and whether its segment runs

    def enter(self, here):
        before, self._here = self._here, here
        return before

    def leave(self, before) -> None:
        self._here = before

    def install(self, names) -> None:
        self._users += 1
        if self._users > 1:
            return
        self._class = names.FineGrainedActivationOffloadingInterface
        theirs = {name: vars(self._class)[name] for name in (
            "__enter__", "__exit__", "group_offload", "enter_replay",
            "exit_replay", "flush_delayed_groups")}
        self._replaced = theirs
        manager = names.PipelineOffloadManager
        nothing = _Nothing()

        def start(self):
            if not self.offload or interface._here is None \
                    and manager.OFFLOAD_MGR is not None:
                return theirs["__enter__"](self)
            if interface._here is None:  # an evaluation, as a rule
                self.marked = nothing
                return self.tensor
            marks, layer, inside = interface._here
            self.marked = marks.begin(layer, self.name, inside) or nothing
            return self.tensor

        def end(self, *args):
            marked = vars(self).get("marked")
            if marked is None:
                return theirs["__exit__"](self, *args)
            return marked.end()

        def commit(self, tensor, forced_released_tensors=None,
                   delay_offload=False):
            marked = vars(self).get("marked")
            if marked is None:
                return theirs["group_offload"](
                    self, tensor, forced_released_tensors, delay_offload)
            marked.commit(delay_offload)
            return tensor

        def switch(name):
            def of_others():
                if interface._here is None:
                    theirs[name].__func__()

            return staticmethod(of_others)

        def flush():
            if interface._here is None:
                return theirs["flush_delayed_groups"].__func__()
            return interface._here[0].flush()

        for name, ours in (("__enter__", start), ("__exit__", end),
                           ("group_offload", commit),
                           ("enter_replay", switch("enter_replay")),
                           ("exit_replay", switch("exit_replay")),
                           ("flush_delayed_groups", staticmethod(flush))):
            setattr(self._class, name, ours)

    def remove(self) -> None:
        self._users -= 1
        if self._users == 0:
            for name, theirs in self._replaced.items():
                setattr(self._class, name, theirs)


interface = _Interface()
