"""A model, layer by layer, as the library is told of it.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
from typing import Dict, Optional

from . import _abi, _library, values
from .errors import Error, check, unknown
from .values import Names, bits_of, one_of, text_of, whole


def _words(prefix: str) -> Dict[str, int]:
    """GH_LAYER_MOE_ONLY = 5 and its like as {"moe_only": 5}."""
    return {
        name[len(prefix) :].lower(): value
        for name, value in vars(_abi).items()
        if name.startswith(prefix) and not name.endswith("_COUNT")
    }


KINDS = _words("GH_LAYER_")
PARTS = _words("GH_PART_")
DISPATCHERS = _words("GH_DISPATCHER_")
BACKENDS = _words("GH_BACKEND_")
FEATURES = _words("GH_FEATURE_")
MODULES = _words("GH_MODULE_")


class Model:
    """What the layers are.  A session keeps nothing of it once it is open."""

    def __init__(self) -> None:
        self.api = _library.load()
        self.handle = ctypes.c_void_p()
        self.chunks = 0
        err = _abi.gh_error()
        check(self.api.model_create(ctypes.byref(self.handle), err), err)

    def add_layer(
        self,
        kind: str = "dense",
        *,
        name: Optional[str] = None,
        chunk: int = 0,
        family: Optional[str] = None,
        features: Names = (),
        recompute: Names = (),
        offload: Names = (),
        experts: int = 0,
        dispatcher: str = "alltoall",
        backend: str = "none",
        **others: object,
    ) -> "Model":
        """Appends a layer; the words are those of model.h in lower case."""
        for option in others:
            known = ("kind", *Model.add_layer.__kwdefaults__)
            raise unknown(option, "add_layer", known)
        desc = _abi.make(
            _abi.gh_layer_desc,
            kind=one_of("kind", KINDS, kind),
            name=text_of("name", name),
            chunk=whole("chunk", chunk),
            family=text_of("family", family),
            features=bits_of("features", FEATURES, features),
            recompute=bits_of("recompute", MODULES, recompute),
            offload=bits_of("offload", MODULES, offload),
            experts=whole("experts", experts),
            dispatcher=one_of("dispatcher", DISPATCHERS, dispatcher),
            backend=one_of("backend", BACKENDS, backend),
        )
        err = _abi.gh_error()
        check(self.api.model_add_layer(self._open(), desc, err), err)
        self.chunks = chunk + 1
        return self

    def describe(
        self, *, whole: bool = False, stage: bool = False, ep_size: int = 0,
        cp_size: int = 0
    ) -> "Model":
        """Says what holds for all layers; 0 is a size that is not said."""
        desc = _abi.make(
            _abi.gh_model_desc,
            flags=(_abi.GH_MODEL_WHOLE if whole else 0)
            | (_abi.GH_MODEL_STAGE if stage else 0),
            ep_size=values.whole("ep_size", ep_size),
            cp_size=values.whole("cp_size", cp_size),
        )
        err = _abi.gh_error()
        check(self.api.model_describe(self._open(), desc, err), err)
        return self

    def _open(self) -> ctypes.c_void_p:
        if not self.handle:
            raise Error("this model is closed", _abi.GH_ERR_STATE)
        return self.handle

    def close(self) -> None:
        if self.handle:
            self.api.model_destroy(self.handle)
            self.handle = ctypes.c_void_p()

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self.close()
