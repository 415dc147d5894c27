/*
 * graphhooks/host.h - services that a host may lend to the library.
 *
 * Every service is optional: where the table or a slot is NULL, the default
 * in the slot's comment applies.  The library calls a service only from inside
 * a call of the host's, on the same thread.  To replay a pass it calls none
 * except `launch`, and that only where the host launches its graphs itself.
 *
 * A service must not use its session, which is in the middle of a change: every
 * call of it returns GH_ERR_STATE, and gh_session_close() has no effect.  Only
 * the plan (gh_plan_*) and the counters (gh_session_stats() and the like) may
 * be read, except while the session closes.  The same holds for the other
 * functions that a host hands over: gh_ranks.gather and abort,
 * gh_overlap_pair.agree, and what gh_plan_print() writes with.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GRAPHHOOKS_HOST_H
#define GRAPHHOOKS_HOST_H

#include <graphhooks/base.h>

GH_BEGIN_DECLS

/* Severities, as GRAPHHOOKS_LOG names them.  Values are frozen.  Since 0.1. */
typedef uint32_t gh_log_level;
enum {
    GH_LOG_WARN = 1, /* a decision that costs performance; each once */
    GH_LOG_INFO = 2, /* what was decided */
    GH_LOG_DEBUG = 3 /* every recording */
};

/* Which pass is recorded, and on which stream.  The library sets struct_size
 * to the size that it knows, so a host checks GH_HAS before it reads a newer
 * field.  Valid during the call only.  Since 0.4. */
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
 * session opens; `user` must outlive the session.  Since 0.1.
 */
typedef struct gh_host_services {
    uint32_t struct_size;
    uint32_t reserved; /* must be 0 */
    void *user;        /* handed back to every service */

    /* One line, without a newline.  Default: stderr, as "graphhooks: ...". */
    void (*log)(void *user, gh_log_level level, const char *line);

    /* Device memory for the library's static buffers.  The memory must be
     * usable on every stream that the host passes in.  Returns GH_OK, or any
     * error; *address_p is then ignored.  Both slots or neither.  Where ranks
     * that are threads of one process share a bank, device_free must not wait
     * for the device, as cuMemFree does (doc/ranks.md).
     * Default: cuMemAlloc and cuMemFree. */
    gh_status (*device_alloc)(void *user, uint64_t bytes, void **address_p);
    void (*device_free)(void *user, void *address, uint64_t bytes);

    /* Called before and after the capture of one pass.  A host with a caching
     * allocator serves allocations on recording->stream, between the two, from
     * memory that lives as long as the session.  record_end is called once for
     * every record_begin that returned GH_OK, with the same recording; `kept`
     * says whether a graph now holds those addresses.  When record_begin fails
     * the pass runs eagerly from then on.  Both slots or neither.
     * Default: nothing. */
    gh_status (*record_begin)(void *user, const gh_recording *recording);
    void (*record_end)(void *user, const gh_recording *recording,
                       uint32_t kept);

    /* since 0.2 */
    /* Keep gh_aux.object alive, and let it go.  Every retain that returned
     * GH_OK is followed by one release, once no graph that may read the object
     * is left, at the latest when the session closes.  Both slots or neither.
     * Default: nothing. */
    gh_status (*retain)(void *user, void *object);
    void (*release)(void *user, void *object);

    /* For a host that has to capture and launch graphs by itself, such as one
     * whose graph objects advance its random number generators.  The session's
     * context is current in each call.  All four or none.  Default: the
     * library captures and launches.
     *
     * In one recording: record_begin, capture_begin, the parts, capture_end,
     * launch, record_end.
     *
     * capture_begin begins a capture of `stream`, as cuStreamBeginCapture
     * does.  When it fails it has begun none, and the pass runs eagerly from
     * then on.
     *
     * capture_end ends the capture, whatever it returns.  *object_p becomes
     * the host's handle of the graph, not NULL.  *graph_p may be set to the
     * CUgraph, which the host owns; the library counts its nodes before the
     * hook returns.  Where *graph_p stays NULL, gh_stats.nodes counts 0 for it,
     * and an empty capture is not noticed.  When capture_end fails there is no
     * graph: the pass runs again (GH_RERUN), eagerly from then on.
     *
     * launch runs the graph on `stream`: the pass's stream, not always the
     * one that was captured.  When it fails it has run nothing, and the pass
     * runs eagerly from then on.  The first launch may set *exec_p to a
     * CUgraphExec, which the host owns and keeps until destroy: the library
     * launches that from then on, without a service.  Where *exec_p stays NULL,
     * launch is called in every gh_layer_enter that replays the pass, and
     * GRAPHHOOKS_CHECK replays the pass without a comparison, which would
     * advance its random numbers twice.
     *
     * destroy destroys the graph and frees the object, which is not launched
     * again.  No launch of it is running, except where ranks are lost
     * (graphhooks/ranks.h): a launch may then wait for a rank that does not
     * come, and ncclCommAbort would wait for the graph.  Where a bank has
     * ranks, destroy therefore waits for nothing on the device, destroys the
     * CUgraph and the CUgraphExec before it returns, and leaves the memory that
     * the graph uses alone until the session is closed.
     *
     * Called once for each capture_end that returned GH_OK, at the latest when
     * the session closes; after record_end, where the recording was cancelled
     * or failed, unless ranks were lost in it. */
    gh_status (*capture_begin)(void *user, void *stream);
    gh_status (*capture_end)(void *user, void *stream, void **object_p,
                             void **graph_p);
    gh_status (*launch)(void *user, void *object, void *stream, void **exec_p);
    void (*destroy)(void *user, void *object);

    /* since 0.4 */
    /* Called once for each chunk of the model (gh_layer_desc.chunk), before
     * record_begin of the chunk's first recording, which `recording` names.
     * The library captures nothing at that time, so the host may allocate,
     * wait, and make what has to exist before a capture.  When it fails no pass
     * of the chunk is ever recorded: all run eagerly.  Default: nothing. */
    gh_status (*before_recording)(void *user, const gh_recording *recording);

    /* The library is done with memory that a group was saved in with
     * GH_OFFLOAD_HOST_OWNED; `object` is that of gh_offload_group.  Called once
     * for each save that returned GH_OK and named an object, at the latest when
     * the session closes.  Work that the host itself has issued may still use
     * the memory, so the host frees it in the order of the stream of the pass
     * that is open or being entered, and of the one that saved it, where they
     * differ.
     *
     * It is called from gh_layer_enter, gh_layer_exit, gh_layer_cancel,
     * gh_flush_delayed or gh_iteration_end, once they find that the copy has
     * ended, and from gh_offload_commit and gh_offload_release.  Only
     * gh_session_close and gh_session_suspend wait for copies.  A commit in a
     * recording calls it while the stream is captured: the host then gives the
     * memory back to the pool that serves the recording, and calls nothing that
     * a capture forbids.
     * Default: groups of the host's are copied to memory of the library's. */
    void (*released)(void *user, void *object);
} gh_host_services;

GH_END_DECLS

#endif
