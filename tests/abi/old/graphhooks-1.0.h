/*
 * graphhooks-1.0.h - the public headers as they were in ABI 1.0.
 *
 * tests/abi/old.c is built with these instead of the current ones: a caller
 * of that release, whose structs have the sizes they had then.  Never edited.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stddef.h>
#include <stdint.h>
/* Keeps headers out that have been cut out of these since. */
#define GRAPHHOOKS_H
#ifndef GRAPHHOOKS_BASE_H
#define GRAPHHOOKS_BASE_H
#ifdef __cplusplus
#define GH_BEGIN_DECLS extern "C" {
#define GH_END_DECLS }
#else
#define GH_BEGIN_DECLS
#define GH_END_DECLS
#endif
#if defined(__GNUC__)
#define GH_API __attribute__((visibility("default")))
#else
#define GH_API
#endif
GH_BEGIN_DECLS
#define GH_ABI_MAJOR 1
#define GH_ABI_MINOR 0
#define GH_ABI_VERSION (GH_ABI_MAJOR * 0x10000u + GH_ABI_MINOR)
#define GH_SIZE_THROUGH(type, field) \
    (offsetof(type, field) + sizeof(((type *)0)->field))
#define GH_HAS(ptr, type, field) \
    ((ptr)->struct_size >= GH_SIZE_THROUGH(type, field))
typedef int32_t gh_status;
enum {
    GH_OK = 0,
    GH_RERUN = 1,
    GH_ERR_INVALID = -1,
    GH_ERR_UNSUPPORTED = -2,
    GH_ERR_NOT_FOUND = -3,
    GH_ERR_STATE = -4,
    GH_ERR_BUSY = -5,
    GH_ERR_NO_MEMORY = -6,
    GH_ERR_DEVICE = -7,
    GH_ERR_NO_DRIVER = -8,
    GH_ERR_ABI = -9,
    GH_ERR_CONFIG = -10,
    GH_ERR_INTERNAL = -11,
    GH_ERR_RANKS = -12
};
typedef struct gh_error {
    char text[256];
} gh_error;
GH_API const char *gh_status_name(gh_status status);
GH_API uint32_t gh_abi_version(void);
GH_API const char *gh_version(void);
GH_END_DECLS
#endif
#ifndef GRAPHHOOKS_MODEL_H
#define GRAPHHOOKS_MODEL_H
GH_BEGIN_DECLS
typedef struct gh_model gh_model;
typedef uint32_t gh_part;
enum {
    GH_PART_ATTN = 0,
    GH_PART_MLP = 1,
    GH_PART_MOE_ROUTER = 2,
    GH_PART_MOE_PREPROCESS = 3,
    GH_PART_MOE_DISPATCH = 4,
    GH_PART_MOE_EXPERTS = 5,
    GH_PART_MOE_COMBINE = 6,
    GH_PART_MOE_POST = 7,
    GH_PART_MAMBA = 8,
    GH_PART_EMBEDDING = 9,
    GH_PART_HEAD = 10
};
#define GH_PART_COUNT 11
typedef uint32_t gh_layer_kind;
enum {
    GH_LAYER_DENSE = 0,
    GH_LAYER_MOE = 1,
    GH_LAYER_MAMBA = 2,
    GH_LAYER_ATTN_ONLY = 3,
    GH_LAYER_MLP_ONLY = 4,
    GH_LAYER_MOE_ONLY = 5
};
typedef uint32_t gh_dispatcher;
enum {
    GH_DISPATCHER_ALLTOALL = 0,
    GH_DISPATCHER_ALLGATHER = 1,
    GH_DISPATCHER_FLEX = 2
};
enum {
    GH_FEATURE_CAPACITY = 1u << 0,
    GH_FEATURE_PAD = 1u << 1,
    GH_FEATURE_SYNC_FREE = 1u << 2,
    GH_FEATURE_FP8_PADDING = 1u << 3,
    GH_FEATURE_SHARED_EXPERTS = 1u << 4,
    GH_FEATURE_SHARED_OVERLAP = 1u << 5,
    GH_FEATURE_ATTN_DROPOUT = 1u << 6,
    GH_FEATURE_HIDDEN_DROPOUT = 1u << 7,
    GH_FEATURE_ROUTER_JITTER = 1u << 8,
    GH_FEATURE_HOST_ROUTER = 1u << 9,
    GH_FEATURE_LATENT = 1u << 10,
    GH_FEATURE_PACKED = 1u << 11,
    GH_FEATURE_PACKED_PAD = 1u << 12,
    GH_FEATURE_MTP = 1u << 13,
    GH_FEATURE_EMBEDDING = 1u << 14,
    GH_FEATURE_HEAD = 1u << 15
};
typedef uint32_t gh_backend;
enum {
    GH_BACKEND_NONE = 0,
    GH_BACKEND_DEEPEP = 1,
    GH_BACKEND_HYBRIDEP = 2,
    GH_BACKEND_NCCLEP = 3
};
enum {
    GH_MODULE_ATTN_NORM = 1u << 0,
    GH_MODULE_QKV_LINEAR = 1u << 1,
    GH_MODULE_CORE_ATTN = 1u << 2,
    GH_MODULE_ATTN_PROJ = 1u << 3,
    GH_MODULE_MLP_NORM = 1u << 4,
    GH_MODULE_MLP = 1u << 5,
    GH_MODULE_MOE = 1u << 6,
    GH_MODULE_SHARED_EXPERTS = 1u << 7,
    GH_MODULE_EXPERT_FC1 = 1u << 8,
    GH_MODULE_MOE_ACT = 1u << 9,
    GH_MODULE_LAYER = 1u << 10
};
typedef struct gh_layer_desc {
    uint32_t struct_size;
    gh_layer_kind kind;
    uint32_t chunk;
    uint32_t reserved;
    const char *name;
    uint32_t features;
    uint32_t recompute;
    uint32_t offload;
    uint32_t experts;
    gh_dispatcher dispatcher;
    uint32_t reserved_end;
    const char *family;
    gh_backend backend;
    uint32_t reserved_tail;
} gh_layer_desc;
enum {
    GH_MODEL_WHOLE = 1u << 0,
    GH_MODEL_STAGE = 1u << 1
};
typedef struct gh_model_desc {
    uint32_t struct_size;
    uint32_t flags;
    uint32_t ep_size;
    uint32_t cp_size;
} gh_model_desc;
GH_API gh_status gh_model_create(gh_model **model_p, gh_error *err);
GH_API gh_status gh_model_add_layer(gh_model *model, const gh_layer_desc *desc,
                                    gh_error *err);
GH_API gh_status gh_model_describe(gh_model *model, const gh_model_desc *desc,
                                   gh_error *err);
GH_API void gh_model_destroy(gh_model *model);
GH_END_DECLS
#endif
#ifndef GRAPHHOOKS_HOST_H
#define GRAPHHOOKS_HOST_H
GH_BEGIN_DECLS
typedef uint32_t gh_log_level;
enum {
    GH_LOG_WARN = 1,
    GH_LOG_INFO = 2,
    GH_LOG_DEBUG = 3
};
typedef struct gh_recording {
    uint32_t struct_size;
    uint32_t slot;
    uint32_t segment;
    uint32_t direction;
    uint32_t variant;
    uint32_t bank;
    uint32_t chunk;
    uint32_t reserved;
    void *stream;
} gh_recording;
typedef struct gh_host_services {
    uint32_t struct_size;
    uint32_t reserved;
    void *user;
    void (*log)(void *user, gh_log_level level, const char *line);
    gh_status (*device_alloc)(void *user, uint64_t bytes, void **address_p);
    void (*device_free)(void *user, void *address, uint64_t bytes);
    gh_status (*record_begin)(void *user, const gh_recording *recording);
    void (*record_end)(void *user, const gh_recording *recording,
                       uint32_t kept);
    gh_status (*retain)(void *user, void *object);
    void (*release)(void *user, void *object);
    gh_status (*capture_begin)(void *user, void *stream);
    gh_status (*capture_end)(void *user, void *stream, void **object_p,
                             void **graph_p);
    gh_status (*launch)(void *user, void *object, void *stream, void **exec_p);
    void (*destroy)(void *user, void *object);
    gh_status (*before_recording)(void *user, const gh_recording *recording);
    void (*released)(void *user, void *object);
} gh_host_services;
GH_END_DECLS
#endif
#ifndef GRAPHHOOKS_SESSION_H
#define GRAPHHOOKS_SESSION_H
GH_BEGIN_DECLS
typedef struct gh_session gh_session;
enum {
    GH_SESSION_BUSY_FAILS = 1u << 0,
    GH_SESSION_EP_OVERLAP = 1u << 1,
    GH_SESSION_DELAY_WGRAD = 1u << 2,
    GH_SESSION_LEGACY_THREADS = 1u << 3,
    GH_SESSION_SUSPENDS = 1u << 4
};
enum {
    GH_CAN_PARTS = 1u << 0,
    GH_CAN_LAYERS = 1u << 1,
    GH_CAN_CHUNKS = 1u << 2
};
typedef struct gh_session_desc {
    uint32_t struct_size;
    uint32_t flags;
    const gh_model *model;
    const gh_host_services *host;
    const char *driver;
    void *context;
    int32_t device;
    uint32_t warmup_steps;
    const char *scope;
    const char *granularity;
    uint32_t max_slots;
    uint32_t reserved;
    const char *const *environment;
    uint32_t capabilities;
    uint32_t reserved_tail;
    const struct gh_offload_desc *offload;
} gh_session_desc;
GH_API gh_status gh_session_open(const gh_session_desc *desc,
                                 gh_session **session_p, gh_error *err);
GH_API void gh_session_close(gh_session *session);
typedef uint32_t gh_reason;
enum {
    GH_REASON_NONE = 0,
    GH_REASON_DISABLED = 1,
    GH_REASON_PLAN = 2,
    GH_REASON_WARMUP = 3,
    GH_REASON_BUSY = 4,
    GH_REASON_CAPTURE = 5,
    GH_REASON_DEVICE = 6,
    GH_REASON_INPUT = 7,
    GH_REASON_FROZEN = 8,
    GH_REASON_CHECK = 9,
    GH_REASON_MISMATCH = 10,
    GH_REASON_HOST_CAPTURE = 11,
    GH_REASON_FORWARD_ONLY = 12,
    GH_REASON_EMPTY = 13,
    GH_REASON_PAUSED = 14,
    GH_REASON_BANKS = 15,
    GH_REASON_PACKED = 16,
    GH_REASON_UNBOUND = 17,
    GH_REASON_RANKS = 18
};
GH_API const char *gh_reason_name(gh_reason reason);
typedef struct gh_stats {
    uint32_t struct_size;
    uint32_t slots;
    uint64_t iterations;
    uint64_t recordings;
    uint64_t replays;
    uint64_t eager_passes;
    uint64_t reruns;
    uint64_t copies;
    uint64_t copied_bytes;
    uint64_t static_bytes;
    uint64_t nodes;
    uint64_t hook_calls;
    uint64_t hook_ns;
    uint64_t record_ns;
    uint64_t checks;
    uint64_t check_failures;
    uint64_t agreements;
} gh_stats;
GH_API gh_status gh_session_stats(const gh_session *session, gh_stats *stats,
                                  gh_error *err);
GH_API gh_status gh_session_reasons(const gh_session *session, gh_reason reason,
                                    uint64_t *count_p, gh_error *err);
GH_END_DECLS
#endif
#ifndef GRAPHHOOKS_PLAN_H
#define GRAPHHOOKS_PLAN_H
GH_BEGIN_DECLS
typedef uint32_t gh_segment_mode;
enum {
    GH_SEGMENT_EAGER = 0,
    GH_SEGMENT_GRAPHED = 1
};
enum {
    GH_SEGMENT_HAS_WGRAD = 1u << 0
};
typedef struct gh_segment {
    uint32_t struct_size;
    uint32_t index;
    uint32_t chunk;
    gh_segment_mode mode;
    uint32_t first_layer, last_layer;
    gh_part first_part, last_part;
    const char *reason;
    uint32_t flags;
    uint32_t reserved;
} gh_segment;
GH_API uint32_t gh_plan_segment_count(const gh_session *session,
                                      uint32_t chunk);
GH_API gh_status gh_plan_segment(const gh_session *session, uint32_t chunk,
                                 uint32_t i, gh_segment *segment,
                                 gh_error *err);
typedef uint32_t gh_tensor;
enum {
    GH_TENSOR_NONE = 0,
    GH_TENSOR_HIDDEN = 1,
    GH_TENSOR_RESIDUAL = 2,
    GH_TENSOR_PROBS = 3,
    GH_TENSOR_ROUTING_MAP = 4,
    GH_TENSOR_SHARED_OUTPUT = 5,
    GH_TENSOR_DISPATCH = 6
};
#define GH_TENSOR_COUNT 7
typedef uint32_t gh_element;
enum {
    GH_ELEMENT_ACTIVATION = 0,
    GH_ELEMENT_PROB = 1,
    GH_ELEMENT_MASK = 2,
    GH_ELEMENT_INDEX = 3
};
typedef struct gh_border {
    uint32_t struct_size;
    gh_tensor tensor;
    gh_element element;
    uint32_t segment;
    uint32_t layer;
    gh_part writer;
    uint32_t readers;
    uint32_t reserved;
    const char *name;
    const char *shape;
} gh_border;
typedef uint32_t gh_side;
enum {
    GH_SIDE_IN = 0,
    GH_SIDE_OUT = 1
};
GH_API uint32_t gh_plan_border_count(const gh_session *session,
                                     uint32_t segment, gh_side side);
GH_API gh_status gh_plan_border(const gh_session *session, uint32_t segment,
                                gh_side side, uint32_t i, gh_border *border,
                                gh_error *err);
GH_API const char *gh_tensor_name(gh_tensor tensor);
typedef uint32_t gh_format;
enum {
    GH_FORMAT_TEXT = 0,
    GH_FORMAT_JSON = 1
};
typedef void gh_write_fn(void *user, const char *text, size_t bytes);
GH_API gh_status gh_plan_print(const gh_session *session, gh_format format,
                               gh_write_fn *write, void *user, gh_error *err);
typedef struct gh_pipeline_desc {
    uint32_t struct_size;
    uint32_t stages;
    uint32_t stage;
    uint32_t chunks;
    uint32_t group;
    uint32_t ahead;
} gh_pipeline_desc;
GH_API gh_status gh_plan_slots(const gh_pipeline_desc *desc, uint32_t *slots,
                               gh_error *err);
GH_END_DECLS
#endif
#ifndef GRAPHHOOKS_LAYER_H
#define GRAPHHOOKS_LAYER_H
GH_BEGIN_DECLS
typedef uint32_t gh_direction;
enum {
    GH_FORWARD = 0,
    GH_BACKWARD = 1,
    GH_WGRAD = 2
};
typedef uint32_t gh_action;
enum {
    GH_ACTION_RUN = 0,
    GH_ACTION_RECORD = 1,
    GH_ACTION_REPLAYED = 2
};
enum {
    GH_BUFFER_STATIC = 1u << 0,
    GH_BUFFER_UPDATED = 1u << 1
};
typedef struct gh_buffer {
    void *address;
    uint64_t bytes;
    uint32_t flags;
    gh_tensor tensor;
} gh_buffer;
#define GH_MAX_BUFFERS 1024u
#define GH_MAX_MICROBATCHES 16384u
#define GH_SLOT_NONE UINT32_MAX
enum {
    GH_PASS_FORWARD_ONLY = 1u << 0,
    GH_PASS_NO_WGRAD = 1u << 1,
    GH_PASS_NO_EXIT = 1u << 2,
    GH_PASS_PREPARE = 1u << 3,
    GH_PASS_LOCAL = 1u << 4
};
#define GH_VARIANTS 2u
typedef struct gh_pass {
    uint32_t struct_size;
    uint32_t segment;
    gh_direction direction;
    uint32_t microbatch;
    uint32_t flags;
    uint32_t n_inputs;
    uint32_t n_outputs;
    uint32_t variant;
    void *stream;
    const gh_buffer *inputs;
    const gh_buffer *outputs;
    uint32_t bank;
    uint32_t reserved;
    void *group;
    const uint64_t *capacities;
} gh_pass;
typedef struct gh_decision {
    uint32_t struct_size;
    gh_action action;
    uint32_t slot;
    gh_reason reason;
    void *stream;
    uint32_t n_inputs;
    uint32_t n_outputs;
    const gh_buffer *inputs;
    const gh_buffer *outputs;
} gh_decision;
GH_API gh_status gh_layer_enter(gh_session *session, const gh_pass *pass,
                                gh_decision *decision, gh_error *err);
GH_API gh_status gh_layer_exit(gh_session *session, const gh_pass *pass,
                               gh_error *err);
GH_API gh_status gh_layer_cancel(gh_session *session, gh_error *err);
GH_API gh_status gh_pre_warmup(gh_session *session, gh_error *err);
GH_API gh_status gh_post_warmup(gh_session *session, gh_error *err);
GH_API gh_status gh_flush_delayed(gh_session *session, gh_error *err);
GH_API gh_status gh_iteration_end(gh_session *session, gh_error *err);
GH_END_DECLS
#endif
#ifndef GRAPHHOOKS_RUN_H
#define GRAPHHOOKS_RUN_H
GH_BEGIN_DECLS
typedef gh_status gh_issue_fn(void *user, gh_pass *pass,
                              const gh_decision *decision, gh_error *err);
GH_API gh_status gh_run_pass(gh_session *session, gh_pass *pass,
                             gh_issue_fn *issue, void *user,
                             gh_decision *decision, gh_error *err);
GH_END_DECLS
#endif
#ifndef GRAPHHOOKS_AUX_H
#define GRAPHHOOKS_AUX_H
GH_BEGIN_DECLS
typedef struct gh_aux {
    uint32_t struct_size;
    uint32_t layer;
    const char *name;
    gh_buffer buffer;
    void *object;
    uint32_t bank;
    uint32_t reserved;
} gh_aux;
GH_API gh_status gh_aux_bind(gh_session *session, const gh_aux *aux,
                             gh_error *err);
GH_END_DECLS
#endif
#ifndef GRAPHHOOKS_BANK_H
#define GRAPHHOOKS_BANK_H
GH_BEGIN_DECLS
#define GH_BANKS 65536u
#define GH_BANK_NAME 32u
typedef struct gh_bank_desc {
    uint32_t struct_size;
    uint32_t cp_size;
    void *group;
    uint32_t tokens;
    uint32_t sequences;
    const char *name;
} gh_bank_desc;
GH_API gh_status gh_bank_add(gh_session *session, const gh_bank_desc *desc,
                             uint32_t *bank_p, gh_error *err);
typedef struct gh_bank_stats {
    uint32_t struct_size;
    uint32_t graphs;
    uint64_t recordings;
    uint64_t replays;
    uint64_t evictions;
    uint64_t bytes;
} gh_bank_stats;
GH_API gh_status gh_bank_get_stats(const gh_session *session, uint32_t bank,
                                   gh_bank_stats *stats, gh_error *err);
typedef struct gh_packed {
    uint32_t struct_size;
    uint32_t bank;
    uint32_t chunk;
    uint32_t microbatch;
    uint32_t flags;
    uint32_t n_sequences;
    void *stream;
    const int32_t *lengths;
    const int32_t *padded;
} gh_packed;
typedef struct gh_packed_buffers {
    uint32_t struct_size;
    uint32_t slot;
    gh_buffer cu_seqlens;
    gh_buffer cu_seqlens_padded;
    gh_buffer max_seqlen;
    gh_buffer n_sequences;
} gh_packed_buffers;
GH_API gh_status gh_packed_set(gh_session *session, const gh_packed *packed,
                               gh_packed_buffers *buffers, gh_error *err);
GH_END_DECLS
#endif
#ifndef GRAPHHOOKS_BORDER_H
#define GRAPHHOOKS_BORDER_H
GH_BEGIN_DECLS
typedef struct gh_border_key {
    uint32_t struct_size;
    uint32_t segment;
    gh_direction direction;
    uint32_t microbatch;
    uint32_t flags;
    gh_tensor tensor;
    uint32_t which;
} gh_border_key;
GH_API gh_status gh_border_find(const gh_session *session,
                                const gh_border_key *key, gh_buffer *buffer_p,
                                gh_error *err);
GH_END_DECLS
#endif
#ifndef GRAPHHOOKS_OFFLOAD_H
#define GRAPHHOOKS_OFFLOAD_H
GH_BEGIN_DECLS
#define GH_MAX_GROUP 32u
#define GH_MODULE_NAMED (UINT32_C(1) << 31)
typedef struct gh_offload_desc {
    uint32_t struct_size;
    uint32_t reserved;
    const char *modules;
    const char *const *names;
    const char *fraction;
    uint64_t min_bytes;
    uint64_t keep_bytes;
    uint32_t pipeline_rank;
    uint32_t buffers;
    uint64_t pool_bytes;
    uint32_t prefetch;
    uint32_t in_flight;
    uint32_t link_mb_per_s;
    uint32_t reserved_tail;
} gh_offload_desc;
typedef struct gh_offload_tensor {
    void *address;
    uint64_t bytes;
} gh_offload_tensor;
enum {
    GH_OFFLOAD_HOST_OWNED = 1u << 0
};
typedef struct gh_offload_group {
    uint32_t struct_size;
    uint32_t layer;
    uint32_t module;
    uint32_t n_tensors;
    gh_offload_tensor *tensors;
    uint32_t flags;
    uint32_t reserved;
    void *object;
} gh_offload_group;
GH_API gh_status gh_offload_save(gh_session *session, gh_offload_group *group,
                                 gh_error *err);
GH_API gh_status gh_offload_commit(gh_session *session, uint32_t layer,
                                   uint32_t module, gh_error *err);
GH_API gh_status gh_offload_load(gh_session *session, gh_offload_group *group,
                                 gh_error *err);
GH_API gh_status gh_offload_release(gh_session *session, uint32_t layer,
                                    uint32_t module, gh_error *err);
typedef struct gh_offload_declared {
    uint32_t struct_size;
    uint32_t layer;
    uint32_t module;
    uint32_t segment;
    uint64_t bytes;
    uint64_t gap_ns;
    const char *why;
    uint32_t flags;
    uint32_t reserved;
} gh_offload_declared;
enum {
    GH_DECLARED_ELSEWHERE = 1 << 0,
    GH_DECLARED_LATE = 1 << 1
};
GH_API gh_status gh_offload_declare(gh_session *session,
                                    gh_offload_declared *groups, uint32_t n,
                                    uint32_t in_flight, gh_error *err);
GH_API uint32_t gh_offload_is_on(const gh_session *session, uint32_t module);
typedef struct gh_offload_stats {
    uint32_t struct_size;
    uint32_t groups;
    uint32_t groups_offloaded;
    uint32_t reserved;
    uint64_t out_bytes, back_bytes;
    uint64_t out_copies, back_copies;
    uint64_t late;
    uint64_t flushes;
    uint64_t delayed;
    uint64_t ring_bytes;
    uint64_t kept_bytes;
    uint64_t pinned_bytes;
    uint64_t pinned_peak;
    uint64_t saved_bytes;
    uint32_t timed_steps;
    uint32_t stalls;
    uint64_t timed_ns;
    uint64_t stalled_ns;
} gh_offload_stats;
GH_API gh_status gh_offload_get_stats(const gh_session *session,
                                      gh_offload_stats *stats, gh_error *err);
GH_END_DECLS
#endif
#ifndef GRAPHHOOKS_MEMORY_H
#define GRAPHHOOKS_MEMORY_H
GH_BEGIN_DECLS
GH_API gh_status gh_session_suspend(gh_session *session, gh_error *err);
GH_API gh_status gh_session_resume(gh_session *session, gh_error *err);
typedef struct gh_memory_stats {
    uint32_t struct_size;
    uint32_t suspended;
    uint64_t device_bytes;
    uint64_t pinned_bytes;
    uint64_t lent_bytes;
    uint64_t device_given;
    uint64_t pinned_given;
    uint64_t suspends;
    uint64_t suspend_ns;
    uint64_t resume_ns;
    uint64_t slot_bytes;
    uint64_t bank_bytes;
    uint64_t offset_bytes;
    uint64_t ring_bytes;
    uint64_t kept_bytes;
    uint64_t check_bytes;
    uint64_t held_bytes;
    uint64_t spare_bytes;
    uint64_t forecast_bytes;
} gh_memory_stats;
GH_API gh_status gh_memory_get_stats(const gh_session *session,
                                     gh_memory_stats *stats, gh_error *err);
GH_END_DECLS
#endif
#ifndef GRAPHHOOKS_POOL_H
#define GRAPHHOOKS_POOL_H
GH_BEGIN_DECLS
typedef struct gh_pool gh_pool;
typedef struct gh_pool_desc {
    uint32_t struct_size;
    uint32_t flags;
    const char *driver;
    void *context;
    int32_t device;
    uint32_t reserved;
    const char *const *environment;
} gh_pool_desc;
typedef struct gh_pool_functions {
    uint32_t struct_size;
    uint32_t reserved;
    void *(*alloc)(int64_t bytes, int device, void *stream);
    void (*free)(void *address, int64_t bytes, int device, void *stream);
} gh_pool_functions;
GH_API gh_status gh_pool_create(const gh_pool_desc *desc, gh_pool **pool_p,
                                gh_error *err);
GH_API void gh_pool_destroy(gh_pool *pool);
GH_API gh_status gh_pool_get_functions(const gh_pool *pool,
                                       gh_pool_functions *functions,
                                       gh_error *err);
GH_API gh_status gh_pool_suspend(gh_pool *pool, gh_error *err);
GH_API gh_status gh_pool_resume(gh_pool *pool, gh_error *err);
typedef struct gh_pool_stats {
    uint32_t struct_size;
    uint32_t suspended;
    uint64_t bytes;
    uint64_t given;
    uint64_t suspend_ns;
    uint64_t resume_ns;
} gh_pool_stats;
GH_API gh_status gh_pool_get_stats(const gh_pool *pool, gh_pool_stats *stats,
                                   gh_error *err);
GH_END_DECLS
#endif
#ifndef GRAPHHOOKS_STASH_H
#define GRAPHHOOKS_STASH_H
GH_BEGIN_DECLS
typedef struct gh_stash gh_stash;
enum {
    GH_STASH_SUSPENDS = 1u << 0
};
typedef struct gh_stash_desc {
    uint32_t struct_size;
    uint32_t flags;
    uint32_t rank, n_ranks;
    uint64_t bytes;
    uint64_t page_bytes;
    void *comm;
    const char *nccl;
    void *user;
    gh_status (*gather)(void *user, uint32_t bank, const uint64_t *mine,
                        uint64_t *all, uint32_t n);
    const char *driver;
    void *context;
    int32_t device;
    uint32_t reserved;
    const char *const *environment;
    uint64_t spill_bytes;
} gh_stash_desc;
GH_API gh_status gh_stash_create(const gh_stash_desc *desc, gh_stash **stash_p,
                                 gh_error *err);
GH_API void gh_stash_destroy(gh_stash *stash);
GH_API gh_status gh_stash_add(gh_stash *stash, uint32_t max_rows,
                              uint32_t *entry_p, gh_error *err);
GH_API gh_status gh_stash_reserve(gh_stash *stash, uint64_t bytes,
                                  uint32_t percent, gh_error *err);
#define GH_STASH_TENSORS 16
typedef struct gh_stash_tensor {
    void *rows;
    uint64_t row_bytes;
} gh_stash_tensor;
enum {
    GH_STASH_CLEAR = 1u << 0
};
typedef struct gh_stash_op {
    uint32_t struct_size;
    uint32_t flags;
    uint32_t entry;
    uint32_t n_tensors;
    const gh_stash_tensor *tensors;
    const void *count;
    void *stream;
} gh_stash_op;
GH_API gh_status gh_stash_push(gh_stash *stash, const gh_stash_op *op,
                               gh_error *err);
GH_API gh_status gh_stash_pop(gh_stash *stash, const gh_stash_op *op,
                              gh_error *err);
GH_API gh_status gh_stash_end_step(gh_stash *stash, void *stream,
                                   uint32_t *rerun_p, gh_error *err);
GH_API gh_status gh_stash_suspend(gh_stash *stash, void *stream, gh_error *err);
GH_API gh_status gh_stash_resume(gh_stash *stash, gh_error *err);
typedef struct gh_stash_stats {
    uint32_t struct_size;
    uint32_t entries;
    uint64_t bytes;
    uint64_t page_bytes;
    uint64_t held_bytes;
    uint64_t step_peak_bytes;
    uint64_t peak_bytes;
    uint64_t worst_case_bytes;
    uint64_t steps;
    uint64_t refused;
    uint64_t reruns;
    uint64_t spill_bytes;
    uint64_t spilled;
} gh_stash_stats;
GH_API gh_status gh_stash_get_stats(const gh_stash *stash,
                                    gh_stash_stats *stats, gh_error *err);
GH_END_DECLS
#endif
#ifndef GRAPHHOOKS_GRADIENT_H
#define GRAPHHOOKS_GRADIENT_H
GH_BEGIN_DECLS
typedef uint32_t gh_number;
enum {
    GH_NUMBER_F32 = 1,
    GH_NUMBER_F16 = 2,
    GH_NUMBER_BF16 = 3
};
typedef struct gh_gradient {
    uint32_t struct_size;
    gh_number number;
    void *sum;
    const void *gradient;
    uint64_t n;
    const uint32_t *first;
} gh_gradient;
GH_API gh_status gh_gradient_add(gh_session *session,
                                 const gh_gradient *gradient, void *stream,
                                 gh_error *err);
GH_END_DECLS
#endif
#ifndef GRAPHHOOKS_WORDS_H
#define GRAPHHOOKS_WORDS_H
GH_BEGIN_DECLS
GH_API uint32_t gh_words_compare(const uint64_t *const *addresses,
                                 const uint64_t *values, uint32_t n);
GH_END_DECLS
#endif
#ifndef GRAPHHOOKS_RANKS_H
#define GRAPHHOOKS_RANKS_H
GH_BEGIN_DECLS
typedef struct gh_ranks {
    uint32_t struct_size;
    uint32_t bank;
    uint32_t rank;
    uint32_t size;
    void *comm;
    const char *nccl;
    void *user;
    gh_status (*gather)(void *user, uint32_t bank, const uint64_t *mine,
                        uint64_t *all, uint32_t n);
    void (*abort)(void *user, uint32_t bank);
} gh_ranks;
GH_API gh_status gh_ranks_set(gh_session *session, const gh_ranks *ranks,
                              gh_error *err);
GH_API gh_status gh_ranks_clear(gh_session *session, uint32_t bank,
                                gh_error *err);
GH_API gh_status gh_ranks_wait(gh_session *session, void *stream,
                               gh_error *err);
GH_API gh_status gh_ranks_abort(gh_session *session, const char *why,
                                gh_error *err);
GH_END_DECLS
#endif
#ifndef GRAPHHOOKS_EXCHANGE_H
#define GRAPHHOOKS_EXCHANGE_H
GH_BEGIN_DECLS
typedef struct gh_exchange gh_exchange;
enum {
    GH_EXCHANGE_IPC = 1u << 0,
    GH_EXCHANGE_SUSPENDS = 1u << 1
};
typedef struct gh_exchange_desc {
    uint32_t struct_size;
    uint32_t flags;
    uint32_t rank;
    uint32_t n_ranks;
    uint64_t window_bytes;
    void *window;
    const char *kind;
    void *comm;
    const char *nccl;
    void *user;
    gh_status (*gather)(void *user, uint32_t bank, const uint64_t *mine,
                        uint64_t *all, uint32_t n);
    void (*abort)(void *user);
    const char *driver;
    void *context;
    int32_t device;
    uint32_t reserved;
    const char *const *environment;
    const char *small;
} gh_exchange_desc;
GH_API gh_status gh_exchange_create(const gh_exchange_desc *desc,
                                    gh_exchange **x_p, gh_error *err);
GH_API void gh_exchange_destroy(gh_exchange *x);
GH_API void *gh_exchange_window(const gh_exchange *x);
typedef struct gh_exchange_part {
    uint64_t send_offset;
    uint64_t send_bytes;
    uint64_t peer_offset;
    uint64_t recv_offset;
    uint64_t recv_bytes;
} gh_exchange_part;
GH_API void gh_exchange_lay_out(uint32_t n_ranks, uint32_t rank,
                                const uint64_t *bytes,
                                gh_exchange_part *parts);
enum {
    GH_EXCHANGE_TURN_1 = 1u << 0,
    GH_EXCHANGE_TURN_2 = 1u << 1,
    GH_EXCHANGE_RELEASED = 1u << 2,
    GH_EXCHANGE_ALONE = 1u << 3
};
typedef struct gh_exchange_op {
    uint32_t struct_size;
    uint32_t flags;
    void *stream;
    const void *send;
    uint64_t window_offset;
    const gh_exchange_part *parts;
    uint64_t capacity;
} gh_exchange_op;
GH_API gh_status gh_exchange_all_to_all(gh_exchange *x,
                                        const gh_exchange_op *op,
                                        gh_error *err);
GH_API gh_status gh_exchange_release_window(gh_exchange *x, void *stream,
                                            gh_error *err);
GH_API gh_status gh_exchange_wait(gh_exchange *x, void *stream,
                                  gh_error *err);
GH_API gh_status gh_exchange_suspend(gh_exchange *x, void *stream,
                                     gh_error *err);
GH_API gh_status gh_exchange_resume(gh_exchange *x, gh_error *err);
typedef uint32_t gh_exchange_kind;
enum {
    GH_EXCHANGE_NCCL = 1,
    GH_EXCHANGE_COPY = 2,
    GH_EXCHANGE_KERNEL = 3
};
typedef struct gh_exchange_stats {
    uint32_t struct_size;
    gh_exchange_kind kind;
    uint64_t window_bytes;
    uint64_t calls;
    uint64_t captured;
    uint64_t copied_bytes;
    uint64_t nccl_bytes;
    uint64_t own_bytes;
    uint32_t peers_direct;
    uint32_t peers_ipc;
    uint64_t memory_ops;
    uint64_t memory_op_calls;
    uint64_t signal_copies;
    uint64_t event_waits;
    uint64_t kernel_calls;
    uint64_t small_bytes;
    uint64_t batch_copies;
    uint64_t suspends;
    uint64_t given_bytes;
} gh_exchange_stats;
GH_API gh_status gh_exchange_get_stats(const gh_exchange *x,
                                       gh_exchange_stats *stats,
                                       gh_error *err);
GH_END_DECLS
#endif
#ifndef GRAPHHOOKS_FAMILY_H
#define GRAPHHOOKS_FAMILY_H
GH_BEGIN_DECLS
#define GH_FAMILY_PARTS 16
#define GH_FAMILY_TENSORS 8
#define GH_FAMILY_NODES 16
#define GH_FAMILY_TEXT 200
#define GH_FAMILY_NAME 64
typedef uint32_t gh_lane;
enum {
    GH_LANE_COMPUTE = 0,
    GH_LANE_COMM = 1
};
typedef struct gh_family_model {
    uint32_t struct_size;
    uint32_t n_layers;
    const gh_layer_desc *const *layers;
} gh_family_model;
typedef struct gh_family_tensor {
    const char *name;
    uint32_t parts;
    uint32_t reserved;
} gh_family_tensor;
typedef struct gh_family_node {
    gh_part first, last;
    gh_lane lane;
    uint32_t reserved;
} gh_family_node;
typedef struct gh_family_layer {
    uint32_t struct_size;
    uint32_t n_parts;
    gh_part parts[GH_FAMILY_PARTS];
    uint32_t capturable;
    uint32_t n_tensors;
    gh_family_tensor tensors[GH_FAMILY_TENSORS];
    uint32_t n_nodes;
    uint32_t reserved;
    gh_family_node nodes[GH_FAMILY_NODES];
    char why_not[GH_FAMILY_TEXT];
    char note[GH_FAMILY_TEXT];
} gh_family_layer;
typedef struct gh_family {
    uint32_t struct_size;
    uint32_t caps;
    const char *name;
    gh_status (*open)(const gh_family_model *model, void **ctx_p,
                      gh_error *err);
    void (*close)(void *ctx);
    gh_status (*layer)(void *ctx, uint32_t i, gh_family_layer *layer,
                       gh_error *err);
    const char *about;
} gh_family;
#define GH_FAMILY_SYMBOL "graphhooks_family_v1"
#if defined(__cplusplus)
#define GH_FAMILY_EXTERN extern "C"
#else
#define GH_FAMILY_EXTERN extern
#endif
#define GH_FAMILY_DEFINE \
    GH_FAMILY_EXTERN GH_API const gh_family graphhooks_family_v1; \
    const gh_family graphhooks_family_v1
GH_END_DECLS
#endif
#ifndef GRAPHHOOKS_OVERLAP_H
#define GRAPHHOOKS_OVERLAP_H
GH_BEGIN_DECLS
typedef struct gh_overlap_release {
    gh_direction direction;
    uint32_t layer;
    uint32_t node;
    gh_tensor tensor;
} gh_overlap_release;
enum {
    GH_NODE_BEGINS = 1u << 0,
    GH_NODE_ENDS = 1u << 1
};
typedef struct gh_overlap_node {
    uint32_t struct_size;
    uint32_t flags;
    gh_direction direction;
    uint32_t chunk, microbatch;
    uint32_t layer;
    uint32_t node;
    gh_lane lane;
    gh_part first_part, last_part;
    uint32_t first_segment;
    uint32_t n_segments;
    void *stream;
    uint32_t n_release;
    uint32_t reserved;
    const gh_overlap_release *release;
} gh_overlap_node;
typedef gh_status gh_run_node_fn(void *user, const gh_overlap_node *node,
                                 gh_error *err);
typedef gh_status gh_agree_fn(void *user, double *numbers, uint32_t n,
                              gh_error *err);
enum {
    GH_OVERLAP_FORWARD = 1u << 0,
    GH_OVERLAP_BACKWARD = 1u << 1,
    GH_OVERLAP_EARLY_RELEASE = 1u << 2
};
typedef struct gh_overlap_pair {
    uint32_t struct_size;
    uint32_t flags;
    uint32_t forward_chunk, forward_microbatch;
    uint32_t backward_chunk, backward_microbatch;
    void *compute;
    void *comm;
    gh_run_node_fn *run_node;
    gh_agree_fn *agree;
    void *user;
} gh_overlap_pair;
GH_API gh_status gh_overlap_run(gh_session *session,
                                const gh_overlap_pair *pair, gh_error *err);
typedef uint32_t gh_overlap_order;
enum {
    GH_OVERLAP_OFF = 0,
    GH_OVERLAP_FIXED = 1,
    GH_OVERLAP_AUTO = 2
};
typedef struct gh_overlap_stats {
    uint32_t struct_size;
    gh_overlap_order order;
    uint64_t runs;
    uint64_t nodes;
    uint64_t waits;
    double predicted_ns;
    double predicted_fixed_ns;
    double compute_ns, comm_ns;
} gh_overlap_stats;
GH_API gh_status gh_overlap_get_stats(const gh_session *session,
                                      gh_overlap_stats *stats, gh_error *err);
GH_END_DECLS
#endif
#ifndef GRAPHHOOKS_LOADER_H
#define GRAPHHOOKS_LOADER_H
GH_BEGIN_DECLS
typedef struct gh_api {
    uint32_t struct_size;
    uint32_t abi_version;
    const char *(*version)(void);
    const char *(*status_name)(gh_status);
    const char *(*reason_name)(gh_reason);
    gh_status (*model_create)(gh_model **, gh_error *);
    gh_status (*model_add_layer)(gh_model *, const gh_layer_desc *, gh_error *);
    void (*model_destroy)(gh_model *);
    gh_status (*session_open)(const gh_session_desc *, gh_session **,
                              gh_error *);
    void (*session_close)(gh_session *);
    gh_status (*session_stats)(const gh_session *, gh_stats *, gh_error *);
    uint32_t (*plan_segment_count)(const gh_session *, uint32_t);
    gh_status (*plan_segment)(const gh_session *, uint32_t, uint32_t,
                              gh_segment *, gh_error *);
    gh_status (*plan_print)(const gh_session *, gh_format, gh_write_fn *,
                            void *, gh_error *);
    gh_status (*pre_warmup)(gh_session *, gh_error *);
    gh_status (*post_warmup)(gh_session *, gh_error *);
    gh_status (*layer_enter)(gh_session *, const gh_pass *, gh_decision *,
                             gh_error *);
    gh_status (*layer_exit)(gh_session *, const gh_pass *, gh_error *);
    gh_status (*layer_cancel)(gh_session *, gh_error *);
    gh_status (*flush_delayed)(gh_session *, gh_error *);
    gh_status (*iteration_end)(gh_session *, gh_error *);
    uint32_t (*plan_border_count)(const gh_session *, uint32_t, gh_side);
    gh_status (*plan_border)(const gh_session *, uint32_t, gh_side, uint32_t,
                             gh_border *, gh_error *);
    const char *(*tensor_name)(gh_tensor);
    gh_status (*border_find)(const gh_session *, const gh_border_key *,
                             gh_buffer *, gh_error *);
    gh_status (*aux_bind)(gh_session *, const gh_aux *, gh_error *);
    gh_status (*model_describe)(gh_model *, const gh_model_desc *, gh_error *);
    gh_status (*session_reasons)(const gh_session *, gh_reason, uint64_t *,
                                 gh_error *);
    gh_status (*offload_save)(gh_session *, gh_offload_group *, gh_error *);
    gh_status (*offload_commit)(gh_session *, uint32_t, uint32_t, gh_error *);
    gh_status (*offload_load)(gh_session *, gh_offload_group *, gh_error *);
    gh_status (*offload_release)(gh_session *, uint32_t, uint32_t, gh_error *);
    gh_status (*offload_get_stats)(const gh_session *, gh_offload_stats *,
                                   gh_error *);
    gh_status (*offload_declare)(gh_session *, gh_offload_declared *, uint32_t,
                                 uint32_t, gh_error *);
    gh_status (*bank_add)(gh_session *, const gh_bank_desc *, uint32_t *,
                          gh_error *);
    gh_status (*bank_get_stats)(const gh_session *, uint32_t, gh_bank_stats *,
                                gh_error *);
    gh_status (*packed_set)(gh_session *, const gh_packed *,
                            gh_packed_buffers *, gh_error *);
    gh_status (*ranks_set)(gh_session *, const gh_ranks *, gh_error *);
    gh_status (*ranks_clear)(gh_session *, uint32_t, gh_error *);
    gh_status (*ranks_wait)(gh_session *, void *, gh_error *);
    gh_status (*overlap_run)(gh_session *, const gh_overlap_pair *, gh_error *);
    gh_status (*overlap_get_stats)(const gh_session *, gh_overlap_stats *,
                                   gh_error *);
    gh_status (*exchange_create)(const gh_exchange_desc *, gh_exchange **,
                                 gh_error *);
    void (*exchange_destroy)(gh_exchange *);
    void *(*exchange_window)(const gh_exchange *);
    void (*exchange_lay_out)(uint32_t, uint32_t, const uint64_t *,
                             gh_exchange_part *);
    gh_status (*exchange_all_to_all)(gh_exchange *, const gh_exchange_op *,
                                     gh_error *);
    gh_status (*exchange_wait)(gh_exchange *, void *, gh_error *);
    gh_status (*exchange_get_stats)(const gh_exchange *, gh_exchange_stats *,
                                    gh_error *);
    gh_status (*ranks_abort)(gh_session *, const char *, gh_error *);
    gh_status (*exchange_release_window)(gh_exchange *, void *, gh_error *);
    gh_status (*plan_slots)(const gh_pipeline_desc *, uint32_t *, gh_error *);
    gh_status (*stash_create)(const gh_stash_desc *, gh_stash **, gh_error *);
    void (*stash_destroy)(gh_stash *);
    gh_status (*stash_add)(gh_stash *, uint32_t, uint32_t *, gh_error *);
    gh_status (*stash_reserve)(gh_stash *, uint64_t, uint32_t, gh_error *);
    gh_status (*stash_push)(gh_stash *, const gh_stash_op *, gh_error *);
    gh_status (*stash_pop)(gh_stash *, const gh_stash_op *, gh_error *);
    gh_status (*stash_end_step)(gh_stash *, void *, uint32_t *, gh_error *);
    gh_status (*stash_get_stats)(const gh_stash *, gh_stash_stats *,
                                 gh_error *);
    gh_status (*session_suspend)(gh_session *, gh_error *);
    gh_status (*session_resume)(gh_session *, gh_error *);
    gh_status (*memory_get_stats)(const gh_session *, gh_memory_stats *,
                                  gh_error *);
    gh_status (*stash_suspend)(gh_stash *, void *, gh_error *);
    gh_status (*stash_resume)(gh_stash *, gh_error *);
    uint32_t (*words_compare)(const uint64_t *const *, const uint64_t *,
                              uint32_t);
    gh_status (*exchange_suspend)(gh_exchange *, void *, gh_error *);
    gh_status (*exchange_resume)(gh_exchange *, gh_error *);
    gh_status (*pool_create)(const gh_pool_desc *, gh_pool **, gh_error *);
    void (*pool_destroy)(gh_pool *);
    gh_status (*pool_get_functions)(const gh_pool *, gh_pool_functions *,
                                    gh_error *);
    gh_status (*pool_suspend)(gh_pool *, gh_error *);
    gh_status (*pool_resume)(gh_pool *, gh_error *);
    gh_status (*pool_get_stats)(const gh_pool *, gh_pool_stats *, gh_error *);
    gh_status (*run_pass)(gh_session *, gh_pass *, gh_issue_fn *, void *,
                          gh_decision *, gh_error *);
    uint32_t (*offload_is_on)(const gh_session *, uint32_t);
    gh_status (*gradient_add)(gh_session *, const gh_gradient *, void *,
                              gh_error *);
} gh_api;
#define GH_GET_API_SYMBOL "gh_get_api"
typedef gh_status gh_get_api_fn(uint32_t major, const gh_api **api_p,
                                gh_error *err);
GH_API gh_status gh_get_api(uint32_t major, const gh_api **api_p,
                            gh_error *err);
GH_END_DECLS
#endif
