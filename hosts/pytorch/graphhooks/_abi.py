"""The C ABI in ctypes: include/graphhooks/*.h, name by name.

What a host calls and fills in; family.h is for plugins, and not here.
tests/torch/package/test_abi.py holds every offset and value to
tests/abi/layout.def.  Importing this module loads nothing.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, Structure
from ctypes import c_char, c_char_p, c_double, c_int, c_int32, c_int64
from ctypes import c_size_t, c_uint32, c_uint64, c_void_p

# ---- base.h ----------------------------------------------------------------

GH_ABI_MAJOR = 1
GH_ABI_MINOR = 0
GH_ABI_VERSION = GH_ABI_MAJOR << 16 | GH_ABI_MINOR

gh_status = c_int32
GH_OK = 0
GH_RERUN = 1
GH_ERR_INVALID = -1
GH_ERR_UNSUPPORTED = -2
GH_ERR_NOT_FOUND = -3
GH_ERR_STATE = -4
GH_ERR_BUSY = -5
GH_ERR_NO_MEMORY = -6
GH_ERR_DEVICE = -7
GH_ERR_NO_DRIVER = -8
GH_ERR_ABI = -9
GH_ERR_CONFIG = -10
GH_ERR_INTERNAL = -11
GH_ERR_RANKS = -12


class gh_error(Structure):
    _fields_ = [("text", c_char * 256)]


def make(struct: type, **fields):
    """A struct of this type, zeroed, with struct_size and these fields."""
    return struct(struct_size=ctypes.sizeof(struct), **fields)


# ---- host.h ----------------------------------------------------------------

GH_LOG_WARN = 1
GH_LOG_INFO = 2
GH_LOG_DEBUG = 3


class gh_recording(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("slot", c_uint32),
        ("segment", c_uint32),
        ("direction", c_uint32),
        ("variant", c_uint32),
        ("bank", c_uint32),
        ("chunk", c_uint32),
        ("reserved", c_uint32),
        ("stream", c_void_p),
    ]


# A Python function that C is to call is wrapped in one of these, and the
# object is kept for as long as C may call it.
LOG_FN = CFUNCTYPE(None, c_void_p, c_uint32, c_char_p)
DEVICE_ALLOC_FN = CFUNCTYPE(gh_status, c_void_p, c_uint64, POINTER(c_void_p))
DEVICE_FREE_FN = CFUNCTYPE(None, c_void_p, c_void_p, c_uint64)
RECORD_BEGIN_FN = CFUNCTYPE(gh_status, c_void_p, POINTER(gh_recording))
RECORD_END_FN = CFUNCTYPE(None, c_void_p, POINTER(gh_recording), c_uint32)
RETAIN_FN = CFUNCTYPE(gh_status, c_void_p, c_void_p)
RELEASE_FN = CFUNCTYPE(None, c_void_p, c_void_p)
CAPTURE_BEGIN_FN = CFUNCTYPE(gh_status, c_void_p, c_void_p)
CAPTURE_END_FN = CFUNCTYPE(
    gh_status, c_void_p, c_void_p, POINTER(c_void_p), POINTER(c_void_p)
)
LAUNCH_FN = CFUNCTYPE(
    gh_status, c_void_p, c_void_p, c_void_p, POINTER(c_void_p)
)
DESTROY_FN = CFUNCTYPE(None, c_void_p, c_void_p)
BEFORE_RECORDING_FN = CFUNCTYPE(gh_status, c_void_p, POINTER(gh_recording))
RELEASED_FN = CFUNCTYPE(None, c_void_p, c_void_p)


class gh_host_services(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("user", c_void_p),
        ("log", LOG_FN),
        ("device_alloc", DEVICE_ALLOC_FN),
        ("device_free", DEVICE_FREE_FN),
        ("record_begin", RECORD_BEGIN_FN),
        ("record_end", RECORD_END_FN),
        ("retain", RETAIN_FN),
        ("release", RELEASE_FN),
        ("capture_begin", CAPTURE_BEGIN_FN),
        ("capture_end", CAPTURE_END_FN),
        ("launch", LAUNCH_FN),
        ("destroy", DESTROY_FN),
        ("before_recording", BEFORE_RECORDING_FN),
        ("released", RELEASED_FN),
    ]


# ---- model.h ---------------------------------------------------------------

GH_PART_ATTN = 0
GH_PART_MLP = 1
GH_PART_MOE_ROUTER = 2
GH_PART_MOE_PREPROCESS = 3
GH_PART_MOE_DISPATCH = 4
GH_PART_MOE_EXPERTS = 5
GH_PART_MOE_COMBINE = 6
GH_PART_MOE_POST = 7
GH_PART_MAMBA = 8
GH_PART_EMBEDDING = 9
GH_PART_HEAD = 10
GH_PART_COUNT = 11

GH_LAYER_DENSE = 0
GH_LAYER_MOE = 1
GH_LAYER_MAMBA = 2
GH_LAYER_ATTN_ONLY = 3
GH_LAYER_MLP_ONLY = 4
GH_LAYER_MOE_ONLY = 5

GH_DISPATCHER_ALLTOALL = 0
GH_DISPATCHER_ALLGATHER = 1
GH_DISPATCHER_FLEX = 2

GH_FEATURE_CAPACITY = 1 << 0
GH_FEATURE_PAD = 1 << 1
GH_FEATURE_SYNC_FREE = 1 << 2
GH_FEATURE_FP8_PADDING = 1 << 3
GH_FEATURE_SHARED_EXPERTS = 1 << 4
GH_FEATURE_SHARED_OVERLAP = 1 << 5
GH_FEATURE_ATTN_DROPOUT = 1 << 6
GH_FEATURE_HIDDEN_DROPOUT = 1 << 7
GH_FEATURE_ROUTER_JITTER = 1 << 8
GH_FEATURE_HOST_ROUTER = 1 << 9
GH_FEATURE_LATENT = 1 << 10
GH_FEATURE_PACKED = 1 << 11
GH_FEATURE_PACKED_PAD = 1 << 12
GH_FEATURE_MTP = 1 << 13
GH_FEATURE_EMBEDDING = 1 << 14
GH_FEATURE_HEAD = 1 << 15

GH_BACKEND_NONE = 0
GH_BACKEND_DEEPEP = 1
GH_BACKEND_HYBRIDEP = 2
GH_BACKEND_NCCLEP = 3

GH_MODEL_WHOLE = 1 << 0
GH_MODEL_STAGE = 1 << 1

GH_MODULE_ATTN_NORM = 1 << 0
GH_MODULE_QKV_LINEAR = 1 << 1
GH_MODULE_CORE_ATTN = 1 << 2
GH_MODULE_ATTN_PROJ = 1 << 3
GH_MODULE_MLP_NORM = 1 << 4
GH_MODULE_MLP = 1 << 5
GH_MODULE_MOE = 1 << 6
GH_MODULE_SHARED_EXPERTS = 1 << 7
GH_MODULE_EXPERT_FC1 = 1 << 8
GH_MODULE_MOE_ACT = 1 << 9
GH_MODULE_LAYER = 1 << 10


class gh_layer_desc(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("kind", c_uint32),
        ("chunk", c_uint32),
        ("reserved", c_uint32),
        ("name", c_char_p),
        ("features", c_uint32),
        ("recompute", c_uint32),
        ("offload", c_uint32),
        ("experts", c_uint32),
        ("dispatcher", c_uint32),
        ("reserved_end", c_uint32),
        ("family", c_char_p),
        ("backend", c_uint32),
        ("reserved_tail", c_uint32),
    ]


class gh_model_desc(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("ep_size", c_uint32),
        ("cp_size", c_uint32),
    ]


# ---- session.h -------------------------------------------------------------

GH_SESSION_BUSY_FAILS = 1 << 0
GH_SESSION_EP_OVERLAP = 1 << 1
GH_SESSION_DELAY_WGRAD = 1 << 2
GH_SESSION_LEGACY_THREADS = 1 << 3
GH_SESSION_SUSPENDS = 1 << 4
GH_CAN_PARTS = 1 << 0
GH_CAN_LAYERS = 1 << 1
GH_CAN_CHUNKS = 1 << 2

GH_REASON_NONE = 0
GH_REASON_DISABLED = 1
GH_REASON_PLAN = 2
GH_REASON_WARMUP = 3
GH_REASON_BUSY = 4
GH_REASON_CAPTURE = 5
GH_REASON_DEVICE = 6
GH_REASON_INPUT = 7
GH_REASON_FROZEN = 8
GH_REASON_CHECK = 9
GH_REASON_MISMATCH = 10
GH_REASON_HOST_CAPTURE = 11
GH_REASON_FORWARD_ONLY = 12
GH_REASON_EMPTY = 13
GH_REASON_PAUSED = 14
GH_REASON_BANKS = 15
GH_REASON_PACKED = 16
GH_REASON_UNBOUND = 17
GH_REASON_RANKS = 18


class gh_offload_desc(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("modules", c_char_p),
        ("names", POINTER(c_char_p)),
        ("fraction", c_char_p),
        ("min_bytes", c_uint64),
        ("keep_bytes", c_uint64),
        ("pipeline_rank", c_uint32),
        ("buffers", c_uint32),
        ("pool_bytes", c_uint64),
        ("prefetch", c_uint32),
        ("in_flight", c_uint32),
        ("link_mb_per_s", c_uint32),
        ("reserved_tail", c_uint32),
    ]


class gh_offload_tensor(Structure):
    _fields_ = [("address", c_void_p), ("bytes", c_uint64)]


class gh_offload_group(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("layer", c_uint32),
        ("module", c_uint32),
        ("n_tensors", c_uint32),
        ("tensors", POINTER(gh_offload_tensor)),
        ("flags", c_uint32),
        ("reserved", c_uint32),
        ("object", c_void_p),
    ]


class gh_offload_declared(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("layer", c_uint32),
        ("module", c_uint32),
        ("segment", c_uint32),
        ("bytes", c_uint64),
        ("gap_ns", c_uint64),
        ("why", c_char_p),
        ("flags", c_uint32),
        ("reserved", c_uint32),
    ]


class gh_offload_stats(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("groups", c_uint32),
        ("groups_offloaded", c_uint32),
        ("reserved", c_uint32),
        ("out_bytes", c_uint64),
        ("back_bytes", c_uint64),
        ("out_copies", c_uint64),
        ("back_copies", c_uint64),
        ("late", c_uint64),
        ("flushes", c_uint64),
        ("delayed", c_uint64),
        ("ring_bytes", c_uint64),
        ("kept_bytes", c_uint64),
        ("pinned_bytes", c_uint64),
        ("pinned_peak", c_uint64),
        ("saved_bytes", c_uint64),
        ("timed_steps", c_uint32),
        ("stalls", c_uint32),
        ("timed_ns", c_uint64),
        ("stalled_ns", c_uint64),
    ]


class gh_session_desc(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("model", c_void_p),
        ("host", POINTER(gh_host_services)),
        ("driver", c_char_p),
        ("context", c_void_p),
        ("device", c_int32),
        ("warmup_steps", c_uint32),
        ("scope", c_char_p),
        ("granularity", c_char_p),
        ("max_slots", c_uint32),
        ("reserved", c_uint32),
        ("environment", POINTER(c_char_p)),
        ("capabilities", c_uint32),
        ("reserved_tail", c_uint32),
        ("offload", POINTER(gh_offload_desc)),
    ]


class gh_stats(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("slots", c_uint32),
        ("iterations", c_uint64),
        ("recordings", c_uint64),
        ("replays", c_uint64),
        ("eager_passes", c_uint64),
        ("reruns", c_uint64),
        ("copies", c_uint64),
        ("copied_bytes", c_uint64),
        ("static_bytes", c_uint64),
        ("nodes", c_uint64),
        ("hook_calls", c_uint64),
        ("hook_ns", c_uint64),
        ("record_ns", c_uint64),
        ("checks", c_uint64),
        ("check_failures", c_uint64),
        ("agreements", c_uint64),
    ]


# ---- plan.h ----------------------------------------------------------------

GH_SEGMENT_EAGER = 0
GH_SEGMENT_GRAPHED = 1
GH_SEGMENT_HAS_WGRAD = 1 << 0

GH_TENSOR_NONE = 0
GH_TENSOR_HIDDEN = 1
GH_TENSOR_RESIDUAL = 2
GH_TENSOR_PROBS = 3
GH_TENSOR_ROUTING_MAP = 4
GH_TENSOR_SHARED_OUTPUT = 5
GH_TENSOR_DISPATCH = 6
GH_TENSOR_COUNT = 7

GH_ELEMENT_ACTIVATION = 0
GH_ELEMENT_PROB = 1
GH_ELEMENT_MASK = 2
GH_ELEMENT_INDEX = 3

GH_SIDE_IN = 0
GH_SIDE_OUT = 1

GH_FORMAT_TEXT = 0
GH_FORMAT_JSON = 1

# The text has a length and no zero byte: ctypes.string_at(text, size).
WRITE_FN = CFUNCTYPE(None, c_void_p, POINTER(c_char), c_size_t)


class gh_segment(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("index", c_uint32),
        ("chunk", c_uint32),
        ("mode", c_uint32),
        ("first_layer", c_uint32),
        ("last_layer", c_uint32),
        ("first_part", c_uint32),
        ("last_part", c_uint32),
        ("reason", c_char_p),
        ("flags", c_uint32),
        ("reserved", c_uint32),
    ]


class gh_pipeline_desc(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("stages", c_uint32),
        ("stage", c_uint32),
        ("chunks", c_uint32),
        ("group", c_uint32),
        ("ahead", c_uint32),
    ]


class gh_border(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("tensor", c_uint32),
        ("element", c_uint32),
        ("segment", c_uint32),
        ("layer", c_uint32),
        ("writer", c_uint32),
        ("readers", c_uint32),
        ("reserved", c_uint32),
        ("name", c_char_p),
        ("shape", c_char_p),
    ]


# ---- layer.h ---------------------------------------------------------------

GH_FORWARD = 0
GH_BACKWARD = 1
GH_WGRAD = 2

GH_ACTION_RUN = 0
GH_ACTION_RECORD = 1
GH_ACTION_REPLAYED = 2

GH_BUFFER_STATIC = 1 << 0
GH_BUFFER_UPDATED = 1 << 1

GH_MAX_BUFFERS = 1024
GH_MAX_GROUP = 32
GH_MODULE_NAMED = 1 << 31
GH_OFFLOAD_HOST_OWNED = 1 << 0
GH_DECLARED_ELSEWHERE = 1 << 0
GH_DECLARED_LATE = 1 << 1
GH_MAX_MICROBATCHES = 16384
GH_SLOT_NONE = 0xFFFFFFFF

GH_PASS_FORWARD_ONLY = 1 << 0
GH_PASS_NO_WGRAD = 1 << 1
GH_PASS_NO_EXIT = 1 << 2
GH_PASS_PREPARE = 1 << 3
GH_PASS_LOCAL = 1 << 4
GH_VARIANTS = 2


class gh_buffer(Structure):
    _fields_ = [
        ("address", c_void_p),
        ("bytes", c_uint64),
        ("flags", c_uint32),
        ("tensor", c_uint32),
    ]


class gh_pass(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("segment", c_uint32),
        ("direction", c_uint32),
        ("microbatch", c_uint32),
        ("flags", c_uint32),
        ("n_inputs", c_uint32),
        ("n_outputs", c_uint32),
        ("variant", c_uint32),
        ("stream", c_void_p),
        ("inputs", POINTER(gh_buffer)),
        ("outputs", POINTER(gh_buffer)),
        ("bank", c_uint32),
        ("reserved", c_uint32),
        ("group", c_void_p),
        ("capacities", POINTER(c_uint64)),
    ]


class gh_decision(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("action", c_uint32),
        ("slot", c_uint32),
        ("reason", c_uint32),
        ("stream", c_void_p),
        ("n_inputs", c_uint32),
        ("n_outputs", c_uint32),
        ("inputs", POINTER(gh_buffer)),
        ("outputs", POINTER(gh_buffer)),
    ]


ISSUE_FN = CFUNCTYPE(
    gh_status, c_void_p, POINTER(gh_pass), POINTER(gh_decision),
    POINTER(gh_error)
)


class gh_border_key(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("segment", c_uint32),
        ("direction", c_uint32),
        ("microbatch", c_uint32),
        ("flags", c_uint32),
        ("tensor", c_uint32),
        ("which", c_uint32),
    ]


class gh_aux(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("layer", c_uint32),
        ("name", c_char_p),
        ("buffer", gh_buffer),
        ("object", c_void_p),
        ("bank", c_uint32),
        ("reserved", c_uint32),
    ]


# ---- bank.h ----------------------------------------------------------------

class gh_bank_desc(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("cp_size", c_uint32),
        ("group", c_void_p),
        ("tokens", c_uint32),
        ("sequences", c_uint32),
        ("name", c_char_p),
    ]


class gh_bank_stats(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("graphs", c_uint32),
        ("recordings", c_uint64),
        ("replays", c_uint64),
        ("evictions", c_uint64),
        ("bytes", c_uint64),
    ]


class gh_packed(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("bank", c_uint32),
        ("chunk", c_uint32),
        ("microbatch", c_uint32),
        ("flags", c_uint32),
        ("n_sequences", c_uint32),
        ("stream", c_void_p),
        ("lengths", POINTER(c_int32)),
        ("padded", POINTER(c_int32)),
    ]


class gh_packed_buffers(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("slot", c_uint32),
        ("cu_seqlens", gh_buffer),
        ("cu_seqlens_padded", gh_buffer),
        ("max_seqlen", gh_buffer),
        ("n_sequences", gh_buffer),
    ]


# ---- ranks.h ---------------------------------------------------------------

GATHER_FN = CFUNCTYPE(
    gh_status,
    c_void_p,
    c_uint32,
    POINTER(c_uint64),
    POINTER(c_uint64),
    c_uint32,
)
ABORT_FN = CFUNCTYPE(None, c_void_p, c_uint32)


class gh_ranks(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("bank", c_uint32),
        ("rank", c_uint32),
        ("size", c_uint32),
        ("comm", c_void_p),
        ("nccl", c_char_p),
        ("user", c_void_p),
        ("gather", GATHER_FN),
        ("abort", ABORT_FN),
    ]


# ---- overlap.h -------------------------------------------------------------

GH_NODE_BEGINS = 1 << 0
GH_NODE_ENDS = 1 << 1


class gh_overlap_release(Structure):
    _fields_ = [
        ("direction", c_uint32),
        ("layer", c_uint32),
        ("node", c_uint32),
        ("tensor", c_uint32),
    ]


class gh_overlap_node(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("direction", c_uint32),
        ("chunk", c_uint32),
        ("microbatch", c_uint32),
        ("layer", c_uint32),
        ("node", c_uint32),
        ("lane", c_uint32),
        ("first_part", c_uint32),
        ("last_part", c_uint32),
        ("first_segment", c_uint32),
        ("n_segments", c_uint32),
        ("stream", c_void_p),
        ("n_release", c_uint32),
        ("reserved", c_uint32),
        ("release", POINTER(gh_overlap_release)),
    ]


RUN_NODE_FN = CFUNCTYPE(
    gh_status, c_void_p, POINTER(gh_overlap_node), POINTER(gh_error)
)
AGREE_FN = CFUNCTYPE(
    gh_status, c_void_p, POINTER(c_double), c_uint32, POINTER(gh_error)
)

GH_OVERLAP_FORWARD = 1 << 0
GH_OVERLAP_BACKWARD = 1 << 1
GH_OVERLAP_EARLY_RELEASE = 1 << 2


class gh_overlap_pair(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("forward_chunk", c_uint32),
        ("forward_microbatch", c_uint32),
        ("backward_chunk", c_uint32),
        ("backward_microbatch", c_uint32),
        ("compute", c_void_p),
        ("comm", c_void_p),
        ("run_node", RUN_NODE_FN),
        ("agree", AGREE_FN),
        ("user", c_void_p),
    ]


GH_OVERLAP_OFF = 0
GH_OVERLAP_FIXED = 1
GH_OVERLAP_AUTO = 2


class gh_overlap_stats(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("order", c_uint32),
        ("runs", c_uint64),
        ("nodes", c_uint64),
        ("waits", c_uint64),
        ("predicted_ns", c_double),
        ("predicted_fixed_ns", c_double),
        ("compute_ns", c_double),
        ("comm_ns", c_double),
    ]


# ---- exchange.h ------------------------------------------------------------

GH_EXCHANGE_IPC = 1 << 0
GH_EXCHANGE_SUSPENDS = 1 << 1

EXCHANGE_ABORT_FN = CFUNCTYPE(None, c_void_p)


class gh_exchange_desc(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("rank", c_uint32),
        ("n_ranks", c_uint32),
        ("window_bytes", c_uint64),
        ("window", c_void_p),
        ("kind", c_char_p),
        ("comm", c_void_p),
        ("nccl", c_char_p),
        ("user", c_void_p),
        ("gather", GATHER_FN),
        ("abort", EXCHANGE_ABORT_FN),
        ("driver", c_char_p),
        ("context", c_void_p),
        ("device", c_int32),
        ("reserved", c_uint32),
        ("environment", POINTER(c_char_p)),
        ("small", c_char_p),
    ]


class gh_exchange_part(Structure):
    _fields_ = [
        ("send_offset", c_uint64),
        ("send_bytes", c_uint64),
        ("peer_offset", c_uint64),
        ("recv_offset", c_uint64),
        ("recv_bytes", c_uint64),
    ]


GH_EXCHANGE_TURN_1 = 1 << 0
GH_EXCHANGE_TURN_2 = 1 << 1
GH_EXCHANGE_RELEASED = 1 << 2
GH_EXCHANGE_ALONE = 1 << 3


class gh_exchange_op(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("stream", c_void_p),
        ("send", c_void_p),
        ("window_offset", c_uint64),
        ("parts", POINTER(gh_exchange_part)),
        ("capacity", c_uint64),
    ]


GH_EXCHANGE_NCCL = 1
GH_EXCHANGE_COPY = 2
GH_EXCHANGE_KERNEL = 3


class gh_exchange_stats(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("kind", c_uint32),
        ("window_bytes", c_uint64),
        ("calls", c_uint64),
        ("captured", c_uint64),
        ("copied_bytes", c_uint64),
        ("nccl_bytes", c_uint64),
        ("own_bytes", c_uint64),
        ("peers_direct", c_uint32),
        ("peers_ipc", c_uint32),
        ("memory_ops", c_uint64),
        ("memory_op_calls", c_uint64),
        ("signal_copies", c_uint64),
        ("event_waits", c_uint64),
        ("kernel_calls", c_uint64),
        ("small_bytes", c_uint64),
        ("batch_copies", c_uint64),
        ("suspends", c_uint64),
        ("given_bytes", c_uint64),
    ]


# ---- pool.h ----------------------------------------------------------------

POOL_ALLOC_FN = CFUNCTYPE(c_void_p, c_int64, c_int, c_void_p)
POOL_FREE_FN = CFUNCTYPE(None, c_void_p, c_int64, c_int, c_void_p)


class gh_pool_desc(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("driver", c_char_p),
        ("context", c_void_p),
        ("device", c_int32),
        ("reserved", c_uint32),
        ("environment", POINTER(c_char_p)),
    ]


class gh_pool_functions(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("reserved", c_uint32),
        ("alloc", POOL_ALLOC_FN),
        ("free", POOL_FREE_FN),
    ]


class gh_pool_stats(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("suspended", c_uint32),
        ("bytes", c_uint64),
        ("given", c_uint64),
        ("suspend_ns", c_uint64),
        ("resume_ns", c_uint64),
    ]


# ---- stash.h ---------------------------------------------------------------

GH_STASH_SUSPENDS = 1 << 0

GH_STASH_CLEAR = 1 << 0


class gh_stash_desc(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("rank", c_uint32),
        ("n_ranks", c_uint32),
        ("bytes", c_uint64),
        ("page_bytes", c_uint64),
        ("comm", c_void_p),
        ("nccl", c_char_p),
        ("user", c_void_p),
        ("gather", GATHER_FN),
        ("driver", c_char_p),
        ("context", c_void_p),
        ("device", c_int32),
        ("reserved", c_uint32),
        ("environment", POINTER(c_char_p)),
        ("spill_bytes", c_uint64),
    ]


class gh_stash_tensor(Structure):
    _fields_ = [
        ("rows", c_void_p),
        ("row_bytes", c_uint64),
    ]


class gh_stash_op(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("flags", c_uint32),
        ("entry", c_uint32),
        ("n_tensors", c_uint32),
        ("tensors", POINTER(gh_stash_tensor)),
        ("count", c_void_p),
        ("stream", c_void_p),
    ]


class gh_stash_stats(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("entries", c_uint32),
        ("bytes", c_uint64),
        ("page_bytes", c_uint64),
        ("held_bytes", c_uint64),
        ("step_peak_bytes", c_uint64),
        ("peak_bytes", c_uint64),
        ("worst_case_bytes", c_uint64),
        ("steps", c_uint64),
        ("refused", c_uint64),
        ("reruns", c_uint64),
        ("spill_bytes", c_uint64),
        ("spilled", c_uint64),
    ]


# ---- memory.h --------------------------------------------------------------


class gh_memory_stats(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("suspended", c_uint32),
        ("device_bytes", c_uint64),
        ("pinned_bytes", c_uint64),
        ("lent_bytes", c_uint64),
        ("device_given", c_uint64),
        ("pinned_given", c_uint64),
        ("suspends", c_uint64),
        ("suspend_ns", c_uint64),
        ("resume_ns", c_uint64),
        ("slot_bytes", c_uint64),
        ("bank_bytes", c_uint64),
        ("offset_bytes", c_uint64),
        ("ring_bytes", c_uint64),
        ("kept_bytes", c_uint64),
        ("check_bytes", c_uint64),
        ("held_bytes", c_uint64),
        ("spare_bytes", c_uint64),
        ("forecast_bytes", c_uint64),
    ]


# ---- gradient.h ------------------------------------------------------------

GH_NUMBER_F32 = 1
GH_NUMBER_F16 = 2
GH_NUMBER_BF16 = 3


class gh_gradient(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("number", c_uint32),
        ("sum", c_void_p),
        ("gradient", c_void_p),
        ("n", c_uint64),
        ("first", c_void_p),
    ]


# ---- loader.h --------------------------------------------------------------

_session = c_void_p
_exchange = c_void_p
_pool = c_void_p
_stash = c_void_p
_model = c_void_p
_err = POINTER(gh_error)


def _call(*arguments):
    """A function that can fail.  ctypes lets the interpreter's lock go while
    it runs: a launch may wait for room in the driver's queue, and what it
    waits for may need the lock."""
    return CFUNCTYPE(gh_status, *arguments, _err)


class gh_api(Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("abi_version", c_uint32),
        ("version", CFUNCTYPE(c_char_p)),
        ("status_name", CFUNCTYPE(c_char_p, gh_status)),
        ("reason_name", CFUNCTYPE(c_char_p, c_uint32)),
        ("model_create", _call(POINTER(_model))),
        ("model_add_layer", _call(_model, POINTER(gh_layer_desc))),
        ("model_destroy", CFUNCTYPE(None, _model)),
        ("session_open", _call(POINTER(gh_session_desc), POINTER(_session))),
        ("session_close", CFUNCTYPE(None, _session)),
        ("session_stats", _call(_session, POINTER(gh_stats))),
        ("plan_segment_count", CFUNCTYPE(c_uint32, _session, c_uint32)),
        (
            "plan_segment",
            _call(_session, c_uint32, c_uint32, POINTER(gh_segment)),
        ),
        ("plan_print", _call(_session, c_uint32, WRITE_FN, c_void_p)),
        ("pre_warmup", _call(_session)),
        ("post_warmup", _call(_session)),
        (
            "layer_enter",
            _call(_session, POINTER(gh_pass), POINTER(gh_decision)),
        ),
        ("layer_exit", _call(_session, POINTER(gh_pass))),
        ("layer_cancel", _call(_session)),
        ("flush_delayed", _call(_session)),
        ("iteration_end", _call(_session)),
        (
            "plan_border_count",
            CFUNCTYPE(c_uint32, _session, c_uint32, c_uint32),
        ),
        (
            "plan_border",
            _call(_session, c_uint32, c_uint32, c_uint32, POINTER(gh_border)),
        ),
        ("tensor_name", CFUNCTYPE(c_char_p, c_uint32)),
        (
            "border_find",
            _call(_session, POINTER(gh_border_key), POINTER(gh_buffer)),
        ),
        ("aux_bind", _call(_session, POINTER(gh_aux))),
        ("model_describe", _call(_model, POINTER(gh_model_desc))),
        ("session_reasons", _call(_session, c_uint32, POINTER(c_uint64))),
        ("offload_save", _call(_session, POINTER(gh_offload_group))),
        ("offload_commit", _call(_session, c_uint32, c_uint32)),
        ("offload_load", _call(_session, POINTER(gh_offload_group))),
        ("offload_release", _call(_session, c_uint32, c_uint32)),
        ("offload_get_stats", _call(_session, POINTER(gh_offload_stats))),
        (
            "offload_declare",
            _call(_session, POINTER(gh_offload_declared), c_uint32, c_uint32),
        ),
        (
            "bank_add",
            _call(_session, POINTER(gh_bank_desc), POINTER(c_uint32)),
        ),
        (
            "bank_get_stats",
            _call(_session, c_uint32, POINTER(gh_bank_stats)),
        ),
        (
            "packed_set",
            _call(
                _session, POINTER(gh_packed), POINTER(gh_packed_buffers)
            ),
        ),
        ("ranks_set", _call(_session, POINTER(gh_ranks))),
        ("ranks_clear", _call(_session, c_uint32)),
        ("ranks_wait", _call(_session, c_void_p)),
        ("overlap_run", _call(_session, POINTER(gh_overlap_pair))),
        ("overlap_get_stats", _call(_session, POINTER(gh_overlap_stats))),
        (
            "exchange_create",
            _call(POINTER(gh_exchange_desc), POINTER(_exchange)),
        ),
        ("exchange_destroy", CFUNCTYPE(None, _exchange)),
        ("exchange_window", CFUNCTYPE(c_void_p, _exchange)),
        (
            "exchange_lay_out",
            CFUNCTYPE(
                None,
                c_uint32,
                c_uint32,
                POINTER(c_uint64),
                POINTER(gh_exchange_part),
            ),
        ),
        ("exchange_all_to_all", _call(_exchange, POINTER(gh_exchange_op))),
        ("exchange_wait", _call(_exchange, c_void_p)),
        ("exchange_get_stats", _call(_exchange, POINTER(gh_exchange_stats))),
        ("ranks_abort", _call(_session, c_char_p)),
        ("exchange_release_window", _call(_exchange, c_void_p)),
        ("plan_slots",
         _call(POINTER(gh_pipeline_desc), POINTER(c_uint32))),
        ("stash_create", _call(POINTER(gh_stash_desc), POINTER(_stash))),
        ("stash_destroy", CFUNCTYPE(None, _stash)),
        ("stash_add", _call(_stash, c_uint32, POINTER(c_uint32))),
        ("stash_reserve", _call(_stash, c_uint64, c_uint32)),
        ("stash_push", _call(_stash, POINTER(gh_stash_op))),
        ("stash_pop", _call(_stash, POINTER(gh_stash_op))),
        ("stash_end_step", _call(_stash, c_void_p, POINTER(c_uint32))),
        ("stash_get_stats", _call(_stash, POINTER(gh_stash_stats))),
        ("session_suspend", _call(_session)),
        ("session_resume", _call(_session)),
        ("memory_get_stats", _call(_session, POINTER(gh_memory_stats))),
        ("stash_suspend", _call(_stash, c_void_p)),
        ("stash_resume", _call(_stash)),
        (
            "words_compare",
            CFUNCTYPE(
                c_uint32, POINTER(c_void_p), POINTER(c_uint64), c_uint32
            ),
        ),
        ("exchange_suspend", _call(_exchange, c_void_p)),
        ("exchange_resume", _call(_exchange)),
        ("pool_create", _call(POINTER(gh_pool_desc), POINTER(_pool))),
        ("pool_destroy", CFUNCTYPE(None, _pool)),
        (
            "pool_get_functions",
            _call(_pool, POINTER(gh_pool_functions)),
        ),
        ("pool_suspend", _call(_pool)),
        ("pool_resume", _call(_pool)),
        ("pool_get_stats", _call(_pool, POINTER(gh_pool_stats))),
        ("run_pass",
         _call(_session, POINTER(gh_pass), ISSUE_FN, c_void_p,
               POINTER(gh_decision))),
        ("offload_is_on", CFUNCTYPE(c_uint32, _session, c_uint32)),
        ("gradient_add", _call(_session, POINTER(gh_gradient), c_void_p)),
    ]


GH_GET_API_SYMBOL = "gh_get_api"
GET_API_FN = _call(c_uint32, POINTER(POINTER(gh_api)))


def unconverted(function, kind=CFUNCTYPE):
    """The same function for calls whose arguments are objects of ctypes, and
    are not looked at: half as long is between a hook and C.  With PYFUNCTYPE
    the interpreter's lock is kept."""
    address = ctypes.cast(function, c_void_p).value
    return kind(function.restype)(address)


class Api:
    """The library's table: api.layer_enter(session, pass_, decision, err).

    Each slot is an attribute that holds ctypes' own function object, made
    once: nothing of Python's is between a hook and C.  Besides them, `path`
    is the file, `version` the package's version such as "1.0.0", and `abi`
    the pair (major, minor).
    """

    def __init__(self, table: gh_api, path: str) -> None:
        self.path = path
        self.abi = (table.abi_version >> 16, table.abi_version & 0xFFFF)
        for name, _ in gh_api._fields_[2:]:
            setattr(self, name, getattr(table, name))
        self.version: str = self.version().decode()

    def __repr__(self) -> str:
        return f"<graphhooks {self.version}, {self.path}>"
