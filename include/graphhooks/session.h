/*
 * graphhooks/session.h - open a session, read its plan and its statistics.
 *
 * A session belongs to one device of one rank.  One thread uses it at a time,
 * and that thread may change between calls.  Different sessions may be used
 * at the same time.  While a session records, no thread may wait for the whole
 * context (cuCtxSynchronize): the driver refuses the call with 900
 * CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, and the recording is lost.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GRAPHHOOKS_SESSION_H
#define GRAPHHOOKS_SESSION_H

#include <graphhooks/base.h>
#include <graphhooks/host.h>
#include <graphhooks/model.h>

GH_BEGIN_DECLS

typedef struct gh_session gh_session;

/* gh_session_desc.flags */
enum {
    GH_SESSION_BUSY_FAILS = 1u << 0, /* no free slot: GH_ERR_BUSY, instead of
                                        an eager pass */
    /* since 0.2 */
    GH_SESSION_EP_OVERLAP = 1u << 1, /* expert-parallel communication overlaps
                                        the compute of another microbatch, so
                                        no graph may hold any of it */
    GH_SESSION_DELAY_WGRAD = 1u << 2, /* weight gradients are passes of their
                                         own: GH_WGRAD */
    /* since 0.3 */
    /* Other threads use the legacy default stream of the session's context
     * while a pass is recorded.
     *
     * The legacy stream cannot be captured, so a pass on it is recorded on a
     * stream of the library's.  By default that is a blocking stream: the
     * driver then refuses work that is issued on the legacy stream meanwhile
     * (906 CUDA_ERROR_STREAM_CAPTURE_IMPLICIT; cuBLAS: status 13 or 14), since
     * it would be missing from the graph, and the pass runs again eagerly.
     * The driver refuses the work of other threads there as well.
     * With this flag it is a non-blocking stream: other threads are not
     * disturbed, but work that the pass itself issues on the legacy stream is
     * missing from the graph, and nothing reports it but GRAPHHOOKS_CHECK. */
    GH_SESSION_LEGACY_THREADS = 1u << 3,
    /* since 1.0 */
    GH_SESSION_SUSPENDS = 1u << 4 /* gh_session_suspend() may be called: the
                                     session's device memory lies at addresses
                                     that are reserved, in regions of 2 to
                                     32 MiB (graphhooks/memory.h) */
};

/* gh_session_desc.capabilities.  Since 0.3. */
enum {
    GH_CAN_PARTS = 1u << 0,  /* some parts of a layer */
    GH_CAN_LAYERS = 1u << 1, /* one layer, whole */
    GH_CAN_CHUNKS = 1u << 2  /* several layers */
};

/**
 * How to open a session.  Zero the struct, then set struct_size.
 *
 * An environment variable wins over the field that names it, and the field
 * wins over the default, so a run can be changed without changing the host.
 * Since 0.1.
 */
typedef struct gh_session_desc {
    uint32_t struct_size;
    uint32_t flags;               /* GH_SESSION_* */
    const gh_model *model;        /* required; read during the call only */
    const gh_host_services *host; /* NULL: none; copied */

    /* "cuda", "soft", or the path of a driver library; NULL: "cuda".
     * GRAPHHOOKS_DRIVER */
    const char *driver;
    void *context;  /* the host's CUcontext; NULL: the one that is current on
                       the calling thread, else the device's primary one */
    int32_t device; /* ordinal; read only when no context is given or current */

    /* Steps that run eagerly before the first recording.  0 means 1, since the
     * first step of a process still allocates memory and tunes kernels.
     * GRAPHHOOKS_WARMUP_STEPS */
    uint32_t warmup_steps;

    /* What to capture: names separated by commas, of attn, mlp, moe,
     * moe_router, moe_preprocess and mamba; NULL or "": whole layers.
     * GRAPHHOOKS_SCOPE */
    const char *scope;
    /* The most that one graph may cover: "part", "layer" or "chunk"; NULL:
     * "layer".  GRAPHHOOKS_GRANULARITY */
    const char *granularity;

    /* Microbatches in flight that get graphs of their own, 1 to 64; 0: 8.
     * GRAPHHOOKS_MAX_SLOTS */
    uint32_t max_slots;
    uint32_t reserved; /* must be 0 */

    /* NAME=value strings, ended by NULL, to read in place of the process
     * environment; NULL: the process environment.  Read during the call. */
    const char *const *environment;

    /* since 0.3 */
    /* GH_CAN_*: the segments that the host can run; 0: not said.  Options that
     * ask for other segments then fail the open.  Without it the host would
     * never enter those segments, and they would run eagerly unnoticed. */
    uint32_t capabilities;
    uint32_t reserved_tail; /* must be 0 */

    /* since 0.4 */
    /* What is offloaded; NULL: what the environment says.  Read during the
     * call.  If it is given, the hooks of offload.h serve the host also where
     * nothing is offloaded (since 1.0). */
    const struct gh_offload_desc *offload;
} gh_session_desc;

/**
 * Open a session: read the options, load the driver, make the plan.
 *
 * @param      desc       read during the call only
 * @param[out] session_p  the session, until gh_session_close()
 *
 * @return GH_OK; GH_ERR_CONFIG for a bad value of an option, or when the plan
 *         has segments that the host cannot run; GH_ERR_NO_DRIVER;
 *         GH_ERR_INVALID, GH_ERR_ABI or GH_ERR_UNSUPPORTED for a bad
 *         description; GH_ERR_DEVICE; GH_ERR_NO_MEMORY.
 *
 * With GRAPHHOOKS_ENABLE=0 the session opens without a driver, and every pass
 * runs eagerly.  Without a driver the library cannot order streams, so a slot
 * that was used on one stream is not given to a microbatch on another.
 * Blocks: while the driver loads.  Since: 0.1.
 */
GH_API gh_status gh_session_open(const gh_session_desc *desc,
                                 gh_session **session_p, gh_error *err);

/**
 * Close a session; NULL is allowed.  Ends an open capture, waits for graphs
 * in flight, frees graphs and memory, and writes the trace.
 *
 * Inside a service of the host's (graphhooks/host.h) it has no effect.  The log
 * says so, except where the service is the log itself or the session closes.
 * In a child that the host has forked it has no effect either: graphs, memory
 * and the trace are the parent's.
 *
 * Any later call with the session returns GH_ERR_STATE, and closing it again
 * does nothing: a few hundred bytes are never freed, so that the library can
 * tell.  Where the host captures by itself (gh_host_services.capture_begin),
 * the stream that stood in for the legacy one is not destroyed either, as the
 * host's allocator may go on using it.
 * Blocks: until the session's graphs have finished.  Since: 0.1.
 */
GH_API void gh_session_close(gh_session *session);

/* Why a pass that could have been graphed ran eagerly.  Values are frozen.
 * Since 0.1. */
typedef uint32_t gh_reason;
enum {
    GH_REASON_NONE = 0,          /* it is recorded or replayed */
    GH_REASON_DISABLED = 1,      /* GRAPHHOOKS_ENABLE=0 */
    GH_REASON_PLAN = 2,          /* the segment is eager in the plan */
    GH_REASON_WARMUP = 3,        /* warmup steps are not over, or something else
                                    has ended its capture in this step */
    GH_REASON_BUSY = 4,          /* every slot was in flight when the
                                    microbatch began */
    GH_REASON_CAPTURE = 5,       /* its capture failed, twice if something else
                                    may have ended it; eager from now on */
    GH_REASON_DEVICE = 6,        /* a driver call failed; eager from now on */
    GH_REASON_INPUT = 7,         /* unlike at the recording: the size or number
                                    of inputs, the address of a static one,
                                    the flags of the pass, or the address of a
                                    group that it offloads; or an offload
                                    buffer is too small */
    GH_REASON_FROZEN = 8,        /* GRAPHHOOKS_FREEZE: no new recordings */
    GH_REASON_CHECK = 9,         /* GRAPHHOOKS_CHECK runs this pass both ways,
                                    to compare them */
    GH_REASON_MISMATCH = 10,     /* GRAPHHOOKS_CHECK found that the two differ;
                                    eager from now on */
    GH_REASON_HOST_CAPTURE = 11, /* the host is capturing this stream, or was
                                    when the microbatch began */
    GH_REASON_FORWARD_ONLY = 12, /* GH_PASS_FORWARD_ONLY is never graphed */
    GH_REASON_EMPTY = 13,        /* its capture held no work; eager from now
                                    on */
    GH_REASON_PAUSED = 14,       /* between gh_pre_warmup and
                                    gh_post_warmup */
    /* since 0.4 */
    GH_REASON_BANKS = 15,        /* GRAPHHOOKS_MAX_BANKS banks have graphs, and
                                    each of them is in flight */
    GH_REASON_PACKED = 16,       /* gh_packed_set() has refused its sequences */
    GH_REASON_UNBOUND = 17,      /* a tensor that it reads lost its binding
                                    when its bank was evicted, and was not
                                    bound again: gh_aux_bind() */
    /* since 0.5 */
    GH_REASON_RANKS = 18         /* another rank of the bank could not record
                                    it, or could not replay it this time */
};

/**
 * The name of a reason, such as "warmup".
 * @return static text; "?" for an unknown value.
 * Blocks: never.  Threads: any.  Since: 0.1.
 */
GH_API const char *gh_reason_name(gh_reason reason);

/**
 * Counters since the session was opened.  Set struct_size before the call.
 * Since 0.1.
 */
typedef struct gh_stats {
    uint32_t struct_size;
    uint32_t slots; /* distinct slots used so far */
    uint64_t iterations;
    uint64_t recordings;   /* passes captured, each ready to replay */
    uint64_t replays;      /* graph launches, the one that follows a recording
                              included */
    uint64_t eager_passes; /* the sum of gh_session_reasons() */
    uint64_t reruns;       /* GH_RERUN results */
    uint64_t copies;       /* launches of the input copy */
    uint64_t copied_bytes; /* bytes that those copied */
    uint64_t static_bytes; /* device memory of the library's own buffers */
    uint64_t nodes;        /* in all live graphs */
    uint64_t hook_calls;   /* gh_layer_enter and gh_layer_exit; of a replayed
                              pass with GH_PASS_NO_EXIT only the former */
    uint64_t hook_ns;      /* host time in those calls, driver calls included;
                              extrapolated from one pass in 64, or exact where
                              a trace is written */
    uint64_t record_ns;    /* host time in those calls while they record */
    uint64_t checks;       /* passes compared by GRAPHHOOKS_CHECK */
    uint64_t check_failures; /* differences found; on the software device also
                                reads of memory that nothing had written */
    /* since 0.5 */
    uint64_t agreements; /* times that the ranks of a bank compared decisions:
                            graphhooks/ranks.h */
} gh_stats;

/**
 * Read the counters.
 *
 * @param[in,out] stats  struct_size says how much is written
 *
 * @return GH_OK; GH_ERR_INVALID; GH_ERR_ABI for a size below 120;
 *         GH_ERR_UNSUPPORTED for a larger struct with a non-zero tail.
 * Blocks: never.  Since: 0.1.
 */
GH_API gh_status gh_session_stats(const gh_session *session, gh_stats *stats,
                                  gh_error *err);

/**
 * How many passes ran eagerly for a reason since the session was opened.  To
 * read all, count up from 0 until there is no such reason.
 *
 * @return GH_OK; GH_ERR_NOT_FOUND for a reason that this library does not
 *         know; GH_ERR_INVALID.
 * Blocks: never.  Since: 0.4.
 */
GH_API gh_status gh_session_reasons(const gh_session *session, gh_reason reason,
                                    uint64_t *count_p, gh_error *err);

GH_END_DECLS

#endif
