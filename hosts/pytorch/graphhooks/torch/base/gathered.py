"""Parameters that lie elsewhere in each call: those of FSDP2 (fully_shard),
which are gathered for the calls of their layer and let go after it, and those
that a loop sets to other memory time and again, p.data = ...

A graph reads fixed addresses.  So they are copied to memory that stays, before
the graph of a forward and before that of its backward.  Layers run one after
the other, so those whose parameters are alike share that memory.  FSDP's hooks
run around the layer's forward and backward as ever.

Gradients leave a graph in memory that is shared as well, and autograd is given
copies of its own, which FSDP reduces and lets go as ever.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import torch

from ...errors import Error
from . import private

LAYERS = ("sharded by FSDP (fully_shard), which gathers the parameters of a "
          "layer for its calls: graphs read copies of them, and each layer "
          "has graphs of its own")
MOVED = ("parameters that are set to other memory time and again "
         "(p.data = ...): graphs read copies of them, and each layer has "
         "graphs of its own; p.data.copy_() needs no copies")
_NOT_FOR_BACKWARD = ("FSDP is told to gather no parameters for its backward, "
                     "set_unshard_in_backward(False), and a graph reads all")


class Gathering:
    """What FSDP has of a model, and `moved`, parameters that a loop moves;
    none of it mostly."""

    def __init__(self, model, moved):
        self._moved = moved
        self._groups: dict = {}  # by (id of a dict of parameters, name)
        self._all: list = []  # FSDP's own records of parameters
        self._unlike: set = set()  # as those keys, of what graphs do not take
        self.layers: list = []  # names of those of which FSDP has some
        self.others: list = []  # and of those that have others
        self._pool = Pool()
        for group in private.fsdp_groups(model):
            self._all += group.fsdp_params
            for each in group.fsdp_params:
                for module, name in private.fsdp_places(each):
                    key = id(private.parameters_of(module)), name
                    self._groups[key] = group
                    if not private.is_gathered_plain(each):
                        self._unlike.add(key)

    def has(self, modules) -> bool:
        """Whether some of theirs move."""
        return bool(self._groups or self._moved) and bool(self._held(modules))

    def has_shards(self, modules) -> bool:
        """Whether some of theirs are FSDP's."""
        return any((id(registry), name) in self._groups
                   for registry, name, _ in self._held(modules))

    def note(self, layer) -> bool:
        """One of the stack; whether some of its parameters move."""
        if not self.has([layer.module]):
            return False
        (self.layers if self.has_shards([layer.module])
         else self.others).append(layer.name)
        return True

    def holds(self, module, name: str) -> bool:
        """Whether that parameter of it is FSDP's, in shards by now or not."""
        return (id(private.parameters_of(module)), name) in self._groups

    def has_unlike(self, modules) -> bool:
        return any((id(registry), name) in self._unlike
                   for registry, name, _ in self._held(modules))

    def _held(self, modules) -> list:
        return [(registry, name, p)
                for module in modules for m in module.modules()
                for registry in [private.parameters_of(m)]
                for name, p in registry.items()
                if p is not None and ((id(registry), name) in self._groups
                                      or p in self._moved)]

    def of(self, modules) -> "Gathered | None":
        """In a call of theirs; None: nothing is gathered."""
        held = self._held(modules) if self._groups or self._moved else ()
        groups = {self._groups.get((id(registry), name)): None
                  for registry, name, _ in held}
        groups.pop(None, None)
        if not held or not all(map(private.are_gathered, groups)):
            return None
        return Gathered(held, [*groups], self._pool)

    def devices(self, module) -> set:
        """On which calls of it have its parameters and buffers."""
        held = self._held([module])
        groups = [self._groups.get((id(registry), name))
                  for registry, name, _ in held]
        moving = {id(p) for _, _, p in held}
        return {group.device if group else p.device
                for (_, _, p), group in zip(held, groups)} | {
            t.device for t in (*module.parameters(), *module.buffers())
            if id(t) not in moving}

    def version(self) -> int:
        """Another once somebody has stepped the first or the last shard."""
        return sum(private.version(t) for each in self._all[:1]
                   + self._all[-1:] for p in [each.sharded_param]
                   for t in (p, private.local_shard(p)))

    def nbytes(self) -> int:
        """Of the memory that layers share."""
        return self._pool.nbytes()

    def lines(self) -> list:
        return [names[0] + (f" and {len(names) - 1} more {several} "
                            if names[1:] else f" {one} ") + what
                for names, one, several, what in (
                    (self.layers, "is", "are", LAYERS),
                    (self.others, "has", "have", MOVED)) if names]


class Pool:
    """Memory that layers have in turn."""

    def __init__(self):
        self._known: dict = {}
        self._stream = None  # of who had it last

    def like(self, use: str, i: int, tensor):
        """For the i-th of a layer."""
        key = use, i, tensor.size(), tensor.stride(), tensor.dtype
        if key not in self._known:
            self._known[key] = torch.empty_strided(
                tensor.size(), tensor.stride(), dtype=tensor.dtype,
                device=tensor.device)
        return self._known[key]

    def nbytes(self) -> int:
        return sum(t.nbytes for t in self._known.values())

    def take(self) -> None:
        """Who comes on another stream than the last one waits for it."""
        stream = torch.cuda.current_stream()
        if self._stream not in (None, stream):
            stream.wait_stream(self._stream)
        self._stream = stream


class Gathered:
    """Those of a segment."""

    def __init__(self, held, groups, pool: Pool):
        self._groups, self._pool = groups, pool
        own = [*dict.fromkeys(p for _, _, p in held)]
        self._own = own
        self._places = [pool.like("weight", i, p) for i, p in enumerate(own)]
        self._of = dict(zip(own, self._places))
        self._gradients = {p: pool.like("gradient", i, p)
                           for i, p in enumerate(own) if p.requires_grad}
        self._left = {id(place) for place in self._gradients.values()}
        # (dict, name, parameter) of those that are not trained.
        self.frozen = [each for each in held if not each[2].requires_grad]

    def come(self, segment) -> bool:
        """Before a forward's graph; False: it is refused."""
        if not all(map(private.gathers_for_backward, self._groups)):
            segment.refuse(_NOT_FOR_BACKWARD)
            return False
        self.fill(segment)
        return True

    def fill(self, segment) -> None:
        if not all(map(private.are_gathered, self._groups)):
            raise Error(f"{segment.name}: {_NOT_FOR_BACKWARD}: say so before "
                        "the forward")
        self._pool.take()
        with torch.no_grad():
            private.foreach_copy(self._places, self._own)

    def has(self, tensor) -> bool:
        return isinstance(tensor, torch.nn.Parameter) and tensor in self._of

    def data_of(self, parameter):
        """What graphs read of it."""
        return self._of.get(parameter, parameter).data

    def stand_ins(self) -> list:
        """For those that are not trained."""
        return [private.make_subclass(type(p), self.data_of(p), False)
                for _, _, p in self.frozen]

    def land(self, parameters, gradients) -> list:
        """In a recording: the graph leaves them where all layers do."""
        return [gradient if gradient is None or not _are_alike(
                    gradient, self._gradients.get(p))
                else self._gradients[p].copy_(gradient)
                for p, gradient in zip(parameters, gradients)]

    def is_shared(self, tensor) -> bool:
        return id(tensor) in self._left

    def take(self, results) -> list:
        """After a replay: copies of those, for autograd."""
        return [r.clone() if id(r) in self._left else r for r in results]


def _are_alike(gradient, place) -> bool:
    return place is not None and gradient.dtype == place.dtype \
        and gradient.size() == place.size() \
        and gradient.stride() == place.stride()
