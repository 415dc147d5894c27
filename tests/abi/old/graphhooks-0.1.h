/*
 * graphhooks-0.1.h - the public headers as they were in ABI 0.1.
 *
 * tests/abi/old.c is built with these instead of the current ones: a caller
 * of the first release, whose structs have the sizes they had then.  Never
 * edited.
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
#define GH_ABI_MAJOR 0
#define GH_ABI_MINOR 1
#define GH_SIZE_THROUGH(type,field) \
    (offsetof(type, field) + sizeof(((type *)0)->field))
#define GH_HAS(ptr,type,field) \
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
    GH_ERR_INTERNAL = -11
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
    GH_PART_MLP = 1
};
typedef uint32_t gh_layer_kind;
enum {
    GH_LAYER_DENSE = 0
};
typedef struct gh_layer_desc {
    uint32_t struct_size;
    gh_layer_kind kind;
    uint32_t chunk;
    uint32_t reserved;
    const char *name;
} gh_layer_desc;
GH_API gh_status gh_model_create(gh_model **model_p, gh_error *err);
GH_API gh_status gh_model_add_layer(gh_model *model, const gh_layer_desc *desc,
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
typedef struct gh_host_services {
    uint32_t struct_size;
    uint32_t reserved;
    void *user;
    void (*log)(void *user, gh_log_level level, const char *line);
    gh_status (*device_alloc)(void *user, uint64_t bytes, void **address_p);
    void (*device_free)(void *user, void *address, uint64_t bytes);
    gh_status (*record_begin)(void *user, void *stream, uint32_t slot);
    void (*record_end)(void *user, void *stream, uint32_t slot, uint32_t kept);
} gh_host_services;
GH_END_DECLS
#endif
#ifndef GRAPHHOOKS_SESSION_H
#define GRAPHHOOKS_SESSION_H
GH_BEGIN_DECLS
typedef struct gh_session gh_session;
enum {
    GH_SESSION_BUSY_FAILS = 1u << 0
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
    GH_REASON_PAUSED = 14
};
#define GH_REASON_COUNT 16
GH_API const char *gh_reason_name(gh_reason reason);
typedef struct gh_stats {
    uint32_t struct_size;
    uint32_t slots;
    uint64_t iterations;
    uint64_t recordings;
    uint64_t replays;
    uint64_t eager_passes;
    uint64_t eager_by_reason[GH_REASON_COUNT];
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
} gh_stats;
GH_API gh_status gh_session_stats(const gh_session *session, gh_stats *stats,
                                  gh_error *err);
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
typedef struct gh_segment {
    uint32_t struct_size;
    uint32_t index;
    uint32_t chunk;
    gh_segment_mode mode;
    uint32_t first_layer, last_layer;
    gh_part first_part, last_part;
    const char *reason;
} gh_segment;
GH_API uint32_t gh_plan_segment_count(const gh_session *session,
                                      uint32_t chunk);
GH_API gh_status gh_plan_segment(const gh_session *session, uint32_t chunk,
                                 uint32_t i, gh_segment *segment,
                                 gh_error *err);
typedef uint32_t gh_format;
enum {
    GH_FORMAT_TEXT = 0,
    GH_FORMAT_JSON = 1
};
typedef void gh_write_fn(void *user, const char *text, size_t bytes);
GH_API gh_status gh_plan_print(const gh_session *session, gh_format format,
                               gh_write_fn *write, void *user, gh_error *err);
GH_END_DECLS
#endif
#ifndef GRAPHHOOKS_LAYER_H
#define GRAPHHOOKS_LAYER_H
GH_BEGIN_DECLS
typedef uint32_t gh_direction;
enum {
    GH_FORWARD = 0,
    GH_BACKWARD = 1
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
    uint32_t reserved;
} gh_buffer;
#define GH_MAX_BUFFERS 128u
#define GH_MAX_MICROBATCHES 16384u
#define GH_SLOT_NONE UINT32_MAX
enum {
    GH_PASS_FORWARD_ONLY = 1u << 0
};
typedef struct gh_pass {
    uint32_t struct_size;
    uint32_t segment;
    gh_direction direction;
    uint32_t microbatch;
    uint32_t flags;
    uint32_t n_inputs;
    uint32_t n_outputs;
    uint32_t reserved;
    void *stream;
    const gh_buffer *inputs;
    const gh_buffer *outputs;
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
    gh_status (*model_add_layer)(gh_model *, const gh_layer_desc *,
                                 gh_error *);
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
} gh_api;
#define GH_GET_API_SYMBOL "gh_get_api"
typedef gh_status gh_get_api_fn(uint32_t major, const gh_api **api_p,
                                gh_error *err);
GH_API gh_status gh_get_api(uint32_t major, const gh_api **api_p,
                            gh_error *err);
GH_END_DECLS
#endif
