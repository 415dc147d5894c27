"""Chunks of a Megatron model, their graphs and how these end.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import contextlib
import logging
import re

import torch

from ..errors import Error
from ..torch import attach as attach_torch
from . import environment, exchange, names as megatron_names, order
from .chunk import Whole
from .fp8 import Quantization
from .gradients import add_in_graphs
from .groups import OF_MICROBATCH, group_of
from .hooks import ParameterHooks
from .offload import Offloading, words_of as offload_words
from .random import Generators
from .schedule import Schedule
from .scope import AUTO, Settings, has_word
from .seam import Seam

log = logging.getLogger("graphhooks")

# Of a plan's text: what its layers are to the library, and a line of segments.
_OF_STACK = re.compile(r"^family stack: .*\n(?:  .*\n)*", re.M)
_OF_LAYERS = re.compile(r"^( *(\d+)(?:\.\.(\d+))?  .*) mlp: no scope is set, "
                        "which means whole layers$", re.M)


def attach(model_chunks, config=None, scope=None, offload=None, **options):
    """Captures the layers of a Megatron model by Megatron's own seam.

    ``model_chunks``: a model, or the list of chunks that a pipeline stage has,
    wrapped as Megatron wraps them (DistributedDataParallel, Float16Module).
    ``config``: its TransformerConfig; that of the first chunk by default.
    ``scope``: Megatron's words, "attn,moe_router"; by default
    ``config.cuda_graph_modules``.  Empty: whole layers.  "auto": the largest
    that the model can have; the first steps measure it, part by part, and what
    is slower than eager has no graphs from then on.
    ``offload``: Megatron's names of what goes to the host's memory and comes
    back, "core_attn,attn_proj"; by default what ``config`` offloads.
    ``overlap``: "fixed" or "auto" where the config overlaps exchanges of
    experts: the library's order of forward and backward nodes in the place of
    Megatron's; "auto" by measured times, the same on all ranks.
    ``exchange``: "auto", "copy" or "kernel" for the library's exchange in the
    place of the token dispatcher's all-to-alls; "auto" where all ranks reach
    each other's memory.  Its window has room for as many tokens as a rank has
    in the first microbatch, or ``exchange_tokens``; what is more goes by
    torch.distributed.
    ``options``: as graphhooks.attach; each chunk has a session of its own.
    With ``granularity="chunk"`` all layers of a chunk are one segment.

    Call it when the model is wrapped, before the first step; it does what
    Megatron's TECudaGraphHelper would.  Returns an ``Attached``.  Raises
    ``Error``; the model is then as it was.
    """
    names = megatron_names.load()
    if options.get("eval"):
        raise Error("eval=True: Megatron's layers call graphs only while they "
                    "train, and evaluate eagerly: leave eval out")
    chunks = _chunks(model_chunks)
    for chunk in chunks:
        environment.refuse_fsdp(chunk)
        _cast_back(chunk)
    config = _config_of(chunks, config)
    return Attached(names, chunks, config, scope, offload, options)


def _cast_back(chunk) -> None:
    """Routers keep what they add to scores in fp32, and see to it in their
    first forward after a cast of the model; graphs would read the memory that
    it had before."""
    for module in chunk.modules():
        getattr(module, "_maintain_float32_expert_bias", lambda: None)()


def _config_of(chunks, given):
    """That of the model, which its layers read, whatever is given."""
    of = {id(m.config): m.config for chunk in chunks for m in chunk.modules()
          if hasattr(getattr(m, "config", None), "cuda_graph_impl")}
    if not of:
        raise Error(f"model_chunks has {type(chunks[0]).__name__}, without a "
                    "TransformerConfig; it takes Megatron's models, one or a "
                    "list of chunks")
    if given is None:
        return next(iter(of.values()))
    if id(given) not in of:
        raise Error("config is another object than the model's, and layers "
                    "read their own: leave config out, or give model.config")
    return given


def _chunks(given) -> list:
    chunks = list(given) if isinstance(given, (list, tuple)) else [given]
    for chunk in chunks:
        if not isinstance(chunk, torch.nn.Module):
            raise Error(f"model_chunks has {chunk!r}; it takes Megatron's "
                        "models, one or a list of chunks")
    if len(set(chunks)) < len(chunks):
        raise Error("model_chunks has one chunk twice: give each once")
    if not chunks:
        raise Error("model_chunks is empty: there is no layer to attach to")
    return chunks


def _all_or_none(chunks, call: str, undo: str) -> None:
    done: list = []
    try:
        for attached in chunks:
            getattr(attached, call)()
            done.append(attached)
    except Error:
        for attached in done:
            with contextlib.suppress(Error):
                getattr(attached, undo)()
        raise


class Attached:
    """Graphs of a model's chunks; ``detach`` gives its layers back."""

    def __init__(self, names, chunks, config, scope, offload, options):
        whole = self._is_whole = options.get("granularity") == "chunk"
        words = offload_words(config, offload)
        self._settings = Settings(names, chunks, config, scope, whole, words)
        if scope == AUTO:
            options = {**options, "scope": AUTO}
        self._offloading: Offloading | None = None
        self._seams: list = []
        self._hooks: list = []
        self.chunks: list = []  # of graphhooks.attach, one for each
        self._notes = environment.notes_of(config, chunks)
        self._quantization = None
        options = dict(options)
        word = options.pop("overlap", None)
        way = [options.pop(n, None) for n in ("exchange",
                                              "exchange_tokens")]
        self._order = self._exchanges = None
        self.schedule = Schedule(names, config, len(chunks))
        self._notes += self.schedule.notes(options)
        try:
            self._exchanges = exchange.of(names, config, *way, chunks,
                                          self._settings.words)
            if self._exchanges is not None and self._exchanges.note:
                self._notes.append(self._exchanges.note)
            self._random = Generators(names)
            self._quantization = Quantization.of(config, self._settings)
            attach_one = self._attach_whole if whole else self._attach
            if words is True:
                options = {**options, "offload": True}
            elif words or getattr(
                    config, "fine_grained_activation_offloading", False):
                self._offloading = Offloading(names, chunks, config, words,
                                              options)
                options = self._offloading.options if words else options
            for i, chunk in enumerate(chunks):
                attach_one(names, config, chunk,
                           i if len(chunks) > 1 else None,
                           self.schedule.options(i, options))
            self._note_words(names, chunks)
            self._order = order.of(names, config, word, [
                [layer for name, layer in layers_of(names, chunk)
                 if not name.startswith("vision")] for chunk in chunks])
        except BaseException:
            self._take_back()
            raise

    def _attach(self, names, config, chunk, number, options) -> None:
        seams = []
        _refuse_whole(_decoder_of(names, chunk))
        for name, layer in layers_of(names, chunk):
            if not names._layer_is_graphable(layer, config):
                continue
            _refuse_graphs(name, layer)
            seams.append(Seam(names, layer, _named(number, name),
                              self._random, self._settings,
                              self._quantization))
            self._seams.append(seams[-1])
        if not seams:
            return
        self._hooks.append(ParameterHooks(chunk, seams))
        if self._offloading is not None:
            marks = self._offloading.of_chunk(layers_of(names, chunk), seams)
            if marks.names:
                options = {**options, "offload": marks}
        self._open(names, config, chunk, [seam.layer for seam in seams],
                   seams, options)

    def _attach_whole(self, names, config, chunk, number, options) -> None:
        decoder = _decoder_of(names, chunk)
        if decoder is None:
            return
        _refuse_whole(decoder)
        for name, layer in layers_of(names, chunk):
            _refuse_graphs(name, layer)
        whole = Whole(decoder, _named(number, "decoder"), self._random,
                      self._settings, self._quantization)
        self._seams.append(whole)
        self._hooks.append(ParameterHooks(chunk, [whole]))
        # One body is one segment, by whatever word.
        self._open(names, config, chunk, decoder.layers, self._seams[-1:],
                   {**options, "granularity": "layer"})

    def _open(self, names, config, chunk, layers, seams, options) -> None:
        options = {"generators": self._random.all, **options}
        group = options.get("group")
        words = self._settings.words
        if group is None:
            group = group_of(names, config, words, layers)
            if group is not None and environment.is_apart(config) \
                    and environment.has_attention(words):
                environment.refuse_apart()
            if group is None and environment.is_apart(config):
                group = OF_MICROBATCH
        elif environment.is_apart(config) and not isinstance(group, str):
            environment.refuse_apart()
        options["group"] = group
        environment.refuse_registration(options["group"])
        add_in_graphs(chunk, [seam.body for seam in seams])
        self.chunks.append(attach_torch(
            chunk, [seam.body for seam in seams], **options))

    def _note_words(self, names, chunks) -> None:
        """That no layer has, as Megatron is silent of them."""
        layers = [layer for chunk in chunks
                  for _, layer in layers_of(names, chunk)]
        idle = [word.name for word in self._settings.words
                if not any(has_word(names, layer, word) for layer in layers)]
        stays = self._offloading.missing() if self._offloading else []
        if not layers:
            self._notes.append("this stage has no layer, and so no graph")
        elif idle:
            self._notes.append("no layer of this stage has what the scope "
                               f"{','.join(idle)} names, which is of no "
                               "consequence for the others")
        if layers and stays:
            self._notes.append("no layer of this stage has what the offload "
                               f"{','.join(stays)} names, which is of no "
                               "consequence for the others")
        for note in self._notes:
            log.warning("%s", note)

    def stats(self) -> dict:
        """As graphhooks.attach, of all chunks together; ``chunks`` has those
        of each."""
        each = [attached.stats() for attached in self.chunks]
        total: dict = {"recordings": 0, "replays": 0, "eager_calls": {},
                       "refused": {}}  # of a stage without layers
        for stats in each:
            for key, value in stats.items():
                if isinstance(value, (int, float)):
                    total[key] = total.get(key, 0) + value
                elif isinstance(value, dict):
                    _add(total.setdefault(key, {}), value)
                elif isinstance(value, list):  # a row for each scope
                    total[key] = total.get(key, []) + value
        if self._order is not None:
            total["overlap"] = self._order.stats()
        if self._exchanges is not None:
            total["exchange"] = self._exchanges.stats()
        return {**total, "chunks": each, "schedule": self.schedule.slots}

    def explain(self) -> str:
        return "\n".join([*map(self._in_words, self.chunks),
                          *filter(None, [str(self.schedule),
                                         str(self._exchanges or "")]),
                          *self._notes])

    def _in_words(self, attached) -> str:
        """What the library says of segments, which it has as layers of any
        stack, in the words of scopes."""
        def of_layers(found):
            first, last = int(found[2]), int(found[3] or found[2])
            scopes = dict.fromkeys(layer.module.scope for layer
                                   in attached.layers[first:last + 1])
            return f"{found[1]}: {'; '.join(scopes)}"

        text = _OF_STACK.sub("", attached.explain())
        if self._is_whole:
            text = text.replace("granularity layer", "granularity chunk", 1)
        return _OF_LAYERS.sub(of_layers, text)

    def set_hooks(self) -> None:
        """Those of Megatron's DistributedDataParallel that wait for
        parameters, once more, should others have been there since."""
        for hooks in self._hooks:
            hooks.set()

    def offload_summary(self) -> str:
        """What goes to the host's memory, by name and rank.  With several
        ranks all have to call it."""
        if self._offloading is None or not self._offloading.words:
            return "nothing is offloaded by Megatron's names\n"
        return self._offloading.summary(self.chunks)

    def disable_offload(self) -> None:
        """Until enable_offload() eager passes move nothing, and nothing is
        recorded or replayed: for forwards that are no part of the training,
        as Megatron's warm-up before a capture."""
        self._pause(True)

    def enable_offload(self) -> None:
        self._pause(False)

    def _pause(self, paused: bool) -> None:
        for marks in self._offloading.marks if self._offloading else ():
            if marks.paused != paused:
                marks.paused = paused
                owner = marks.offload.owner
                owner.pause() if paused else owner.unpause()

    def suspend(self) -> None:
        """As graphhooks.attach, of all chunks or of none."""
        _all_or_none(self.chunks, "suspend", "resume")

    def resume(self) -> None:
        """As graphhooks.attach, of all chunks or of none."""
        _all_or_none(self.chunks, "resume", "suspend")

    def step(self) -> None:
        """Ends a step, where no optimizer of torch's does."""
        for attached in self.chunks:
            attached.step()

    def detach(self) -> None:
        """Gives the layers back; twice is allowed."""
        self._take_back()

    def _take_back(self) -> None:
        for attached in self.chunks:
            attached.detach()
        for seam in self._seams:
            seam.detach()
        for hooks in self._hooks:
            hooks.put_back()
        if self._offloading is not None:
            self._offloading.put_back()
        if self._order is not None:
            self._order.put_back()
        if self._exchanges is not None:
            self._exchanges.put_back()
        self._seams, self._hooks, self._offloading = [], [], None
        self._settings.put_back()

    def __enter__(self) -> "Attached":
        return self

    def __exit__(self, *_) -> None:
        self.detach()


def _refuse_graphs(name: str, layer) -> None:
    if len(getattr(layer, "cuda_graphs", ())):
        raise Error(f"{name} has graphs already: detach those first, or leave "
                    "Megatron's TECudaGraphHelper out")


def _refuse_whole(decoder) -> None:
    if isinstance(vars(decoder).get("forward") if decoder is not None
                  else None, Whole):
        raise Error("the decoder has graphs already: detach those first")


def _add(total: dict, value: dict) -> None:
    for key, number in value.items():
        if isinstance(number, (int, float)) and isinstance(
                total.get(key, 0), (int, float)):
            total[key] = total.get(key, 0) + number
        else:
            total[key] = number


def _named(number, name: str) -> str:
    return name if number is None else f"chunk {number}: {name}"


def _inner(names, chunk):
    """What has the decoder, or None."""
    try:
        return names.get_attr_wrapped_model(
            chunk, "decoder", allow_none=False, return_model_obj=True)
    except RuntimeError:
        return None


def _decoder_of(names, chunk):
    return getattr(_inner(names, chunk), "decoder", None)


def layers_of(names, chunk) -> list:
    """Those of the decoder, of multi-token prediction and of a vision model,
    and their names in the chunk; once, where one comes by several times."""
    found = []
    inner = _inner(names, chunk)
    if inner is not None:
        found += [(f"decoder.layers.{i}", layer)
                  for i, layer in enumerate(inner.decoder.layers)]
        mtp = getattr(inner, "mtp", None)
        if mtp is not None:
            found += [(f"mtp.layers.{i}.mtp_model_layer",
                       layer.mtp_model_layer)
                      for i, layer in enumerate(mtp.layers)]
    try:
        outer = names.get_attr_wrapped_model(
            chunk, "vision_model", allow_none=True, return_model_obj=True)
    except RuntimeError:
        outer = None
    vision = getattr(getattr(outer, "vision_model", None), "decoder", None)
    found += [(f"vision_model.decoder.layers.{i}", layer)
              for i, layer in enumerate(getattr(vision, "layers", ()))]
    once: dict = {}
    for name, layer in found:
        once.setdefault(layer, name)
    return [(name, layer) for layer, name in once.items()]
