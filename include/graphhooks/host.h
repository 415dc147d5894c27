/*
 * graphhooks/host.h - services that a host may lend to the library.
 *
 * Optional, all of it: a NULL table, or a NULL slot, means what the slot's
 * comment gives as its default.  The library calls a service only from
 * inside a call that the host made, on the same thread, and none to replay a
 * pass but `launch`, by a host that launches its graphs itself.  A service
 * calls no hook: those are refused with GH_ERR_STATE.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GRAPHHOOKS_HOST_H
#define GRAPHHOOKS_HOST_H

#include <graphhooks/base.h>

GH_BEGIN_DECLS

/* Severities, as GRAPHHOOKS_LOG names them.  Values are frozen. */
typedef uint32_t gh_log_level;
enum {
    GH_LOG_WARN = 1, /* a decision that costs performance, said once */
    GH_LOG_INFO = 2, /* what was decided */
    GH_LOG_DEBUG = 3 /* every recording */
};

/* A recording, as the library tells a host of it: of which pass, and where.
 * The library sets struct_size, to its own size; a host that was built with
 * newer headers asks GH_HAS first.  It may grow at its end.  Valid during the
 * call only.  Since 0.3. */
typedef struct gh_recording {
    uint32_t struct_size;
    uint32_t slot;      /* gh_decision.slot of the pass; never GH_SLOT_NONE */
    uint32_t segment;   /* gh_pass.segment */
    uint32_t direction; /* gh_pass.direction */
    uint32_t variant;   /* gh_pass.variant */
    uint32_t bank;      /* gh_pass.bank */
    uint32_t chunk;     /* gh_layer_desc.chunk of the segment */
    uint32_t reserved;  /* 0 */
    void *stream;       /* the one that is captured: not always the pass's */
} gh_recording;

/**
 * The table.  Zero the struct, then set struct_size.  It is copied when the
 * session opens; `user` must outlive the session.
 */
typedef struct gh_host_services {
    uint32_t struct_size;
    uint32_t reserved; /* must be 0 */
    void *user;        /* handed back to every service */

    /* One line, without a newline.  Default: stderr, as "graphhooks: ...". */
    void (*log)(void *user, gh_log_level level, const char *line);

    /* Device memory for the library's static buffers.  The memory must be
     * usable on every stream that the host passes in.  Returns GH_OK, or any
     * error; *address_p is then ignored.  Both slots or neither.
     * Default: cuMemAlloc and cuMemFree. */
    gh_status (*device_alloc)(void *user, uint64_t bytes, void **address_p);
    void (*device_free)(void *user, void *address, uint64_t bytes);

    /* Around the capture of one pass: a host with an allocator of its own
     * routes allocations on recording->stream into memory that lives as long
     * as the session.  record_end is called for every record_begin that
     * returned GH_OK, with the same recording; kept says whether a graph now
     * holds those addresses.  A failing record_begin makes the pass eager for
     * good.  Both slots or neither.  Default: nothing.
     *
     * In a table that ends before before_recording, as those of 0.1 and 0.2
     * do, they take `void *stream, uint32_t slot` in place of the recording. */
    gh_status (*record_begin)(void *user, const gh_recording *recording);
    void (*record_end)(void *user, const gh_recording *recording,
                       uint32_t kept);

    /* since 0.2 */
    /* What gh_aux_bind() was given must stay alive, and may go again.  Every
     * retain that returned GH_OK has one release, at the latest when the
     * session closes; no graph that may read the object is left then.  Both
     * slots or neither.  Default: nothing. */
    gh_status (*retain)(void *user, void *object);
    void (*release)(void *user, void *object);

    /* Of a host that has to drive captures itself, as one does whose random
     * numbers are advanced by a graph object of its own.  The session's
     * context is current in each.  All four or none.  Default: the library's
     * own graphs.
     *
     * In one recording: record_begin, capture_begin, the parts, capture_end,
     * launch, record_end.
     *
     * capture_begin begins a capture of `stream` as cuStreamBeginCapture
     * does; failing, it has begun none, and the pass is eager for good.
     *
     * capture_end ends it, whatever it returns.  *object_p is the host's name
     * for what it has captured, not NULL.  *graph_p may be the CUgraph, which
     * stays the host's: its nodes are counted before the call that ends the
     * pass returns.  Left NULL, gh_stats.nodes has 0 for it, and a capture of
     * no work is taken for one of some.  Failing, nothing was captured: the
     * pass is eager for good, and run again (GH_RERUN).
     *
     * launch runs it on `stream`, which is the pass's and not always the one
     * that was captured.  Failing, it has run nothing, and the pass is eager
     * for good.  It is called for the first run; *exec_p may then be set to
     * a CUgraphExec, which stays the host's until destroy, and from then on
     * the library launches that with no service.  As long as it is left NULL,
     * launch is called in every gh_layer_enter that replays the pass;
     * GRAPHHOOKS_CHECK does not compare such a pass, whose random numbers
     * would advance twice: it is replayed.
     *
     * destroy: the object is not launched again, and no launch of it is
     * running.  One for each capture_end that returned GH_OK, at the latest
     * when the session closes; of a recording that was dropped or has failed,
     * after its record_end. */
    gh_status (*capture_begin)(void *user, void *stream);
    gh_status (*capture_end)(void *user, void *stream, void **object_p,
                             void **graph_p);
    gh_status (*launch)(void *user, void *object, void *stream, void **exec_p);
    void (*destroy)(void *user, void *object);

    /* since 0.3 */
    /* Once for each chunk of the model (gh_layer_desc.chunk), whatever the
     * granularity: before the first recording of a pass of that chunk, which
     * `recording` is, and before its record_begin.  The library captures
     * nothing then, so the host may allocate, wait, and make what has to
     * exist before a capture.  It is not asked again: after a failure no pass
     * of the chunk is recorded, and each is eager for good.
     * Default: nothing. */
    gh_status (*before_recording)(void *user, const gh_recording *recording);

    /* since 0.4 */
    /* Memory that a group was saved in with GH_OFFLOAD_OWN is the host's
     * again: gh_offload_group.object says which.  Once for each save that
     * returned GH_OK and named an object, at the latest when the session
     * closes.  The library reads it no more; work that the host itself has
     * issued may, so the memory is free in the order of the stream that the
     * pass had.
     *
     * Called when a copy has ended, which is looked at in gh_layer_enter, exit
     * and cancel, gh_flush_delayed and gh_iteration_end, and never waited for
     * before gh_session_close; and in gh_offload_commit and gh_offload_release.
     * A commit that is recorded calls it while the stream is captured: the host
     * gives the memory back to where its allocations of the recording come
     * from, and calls nothing that a capture forbids.
     * Default: groups of the host's are copied to memory of the library's. */
    void (*released)(void *user, void *object);
} gh_host_services;

GH_END_DECLS

#endif
