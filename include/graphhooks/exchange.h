/*
 * graphhooks/exchange.h - an all-to-all of tokens between expert ranks.
 *
 * Each rank sends a part of any size to each rank, and receives one from each.
 * Received parts are written to the rank's window: device memory of a fixed
 * size that all ranks of the exchange can write.
 *
 *     gh_exchange_create(&desc, &x, &err);          all ranks, once
 *     window = gh_exchange_window(x);
 *     ...
 *     gh_exchange_lay_out(n, rank, bytes, parts);   bytes[i * n + j]: from i
 *                                                   to j
 *     gh_exchange_all_to_all(x, &(gh_exchange_op){
 *         .struct_size = sizeof(gh_exchange_op), .stream = comm,
 *         .send = tokens, .parts = parts }, &err);
 *     ...
 *     gh_exchange_wait(x, comm, &err);    instead of cuStreamSynchronize
 *     gh_exchange_destroy(x);             all ranks
 *
 * There are three kinds.  All move the same bytes to the same places.
 *
 *     nccl   a group of sends and receives on the host's communicator
 *     copy   copies straight into the windows of the peers, by copy engines,
 *            so that concurrent compute keeps all multiprocessors.  A peer
 *            waits for them with stream memory operations.
 *     kernel one kernel of a few blocks, which writes into the windows of the
 *            peers and waits for theirs.  The fastest way for small parts; the
 *            blocks take a few multiprocessors from concurrent compute.  For up
 *            to 64 ranks.
 *
 * `copy` and `kernel` require ranks that can map each other's memory: threads
 * of one process, or processes on one machine with CUDA IPC.
 *
 * A function that the host hands over (gather, abort) must not use its
 * exchange: the calls return GH_ERR_STATE, and gh_exchange_destroy() has no
 * effect.
 *
 * Threads: one at a time.  Order: two calls of one exchange never run at the
 * same time on a rank, so the host orders the calls, and the launches of graphs
 * that hold calls, by streams or events; the order is the same on all ranks.
 * A host that exchanges on two streams at once makes two exchanges.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GRAPHHOOKS_EXCHANGE_H
#define GRAPHHOOKS_EXCHANGE_H

#include <graphhooks/base.h>

GH_BEGIN_DECLS

typedef struct gh_exchange gh_exchange;

/* gh_exchange_desc.flags */
enum {
    /* Use CUDA IPC also between ranks that are threads of one process.  For
     * the software device, where threads stand for processes. */
    GH_EXCHANGE_IPC = 1u << 0,
    /* gh_exchange_suspend() may be called: the window lies at addresses that
     * are reserved, and takes whole pieces of 2 MiB.  Other processes map it
     * by its file descriptor, which a Unix socket brings.  Equal on all ranks.
     * Since 1.0 */
    GH_EXCHANGE_SUSPENDS = 1u << 1
};

/**
 * How to make an exchange.  Zero the struct, then set struct_size.  An
 * environment variable wins over the field that names it.  Since 0.5.
 */
typedef struct gh_exchange_desc {
    uint32_t struct_size;
    uint32_t flags;   /* GH_EXCHANGE_* */
    uint32_t rank;    /* this rank's number in the exchange, from 0 */
    uint32_t n_ranks; /* 1 to 1024; 1: parts are copied within the device */

    /* Bytes of this rank's window: the most that it receives in one call,
     * times the number of calls whose parts are kept at the same time.  May
     * differ between ranks. */
    uint64_t window_bytes;
    /* The host's device memory for the window, from cuMemAlloc or cudaMalloc,
     * lent until the exchange is destroyed; NULL: the library allocates it. */
    void *window;

    /* "nccl", "copy", "kernel" or "auto"; NULL: "auto", which is copy if all
     * ranks can map each other's windows, else nccl.  Where it is copy, calls
     * with GH_EXCHANGE_ALONE whose parts are small go by the kernel.  Equal on
     * all ranks.  GRAPHHOOKS_EP_EXCHANGE */
    const char *kind;

    /* An ncclComm_t of exactly these ranks, lent until the exchange is
     * destroyed.  Required for kind nccl, and if `gather` is NULL.  Otherwise
     * it may be NULL, and the kind is copy or kernel. */
    void *comm;
    /* The NCCL that `comm` belongs to, as gh_ranks.nccl.  GRAPHHOOKS_NCCL */
    const char *nccl;

    /* An all-gather in host memory, of up to 24 words a rank, as
     * gh_ranks.gather with bank 0; NULL: by NCCL.  Called only while the
     * exchange is created, suspended, resumed or destroyed, equally often on
     * all ranks.  It has to return within a time limit of its own, with an
     * error if a rank does not come. */
    void *user;
    gh_status (*gather)(void *user, uint32_t bank, const uint64_t *mine,
                        uint64_t *all, uint32_t n);
    /* Aborts `comm`; called once, when a rank has not come.  For a host that
     * uses the communicator elsewhere too.  Default: ncclCommAbort, after which
     * the host must neither use nor destroy it.  NCCL ends it once no graph
     * holds the exchange: a thread waits for that, and the call does not. */
    void (*abort)(void *user);

    const char *driver; /* as gh_session_desc.driver.  GRAPHHOOKS_DRIVER */
    void *context;      /* as gh_session_desc.context */
    int32_t device;     /* as gh_session_desc.device */
    uint32_t reserved;  /* must be 0 */
    /* As gh_session_desc.environment.  Read during the call. */
    const char *const *environment;

    /* The largest part that is small, for kind auto: bytes as digits, or
     * "measure": the ranks exchange parts of growing size by copies and by the
     * kernel, for some milliseconds, and agree on the largest for which the
     * kernel is not slower.  That writes into the window.  NULL: 4 MiB.  Equal
     * on all ranks.  GRAPHHOOKS_EP_EXCHANGE_SMALL.  Since 1.0 */
    const char *small;
} gh_exchange_desc;

/**
 * Make an exchange.  All its ranks call this and agree on the kind.  If it
 * fails on one rank, it fails on all.  After GH_ERR_RANKS because a rank did
 * not come, abort `comm` and do not destroy it, as after gh_ranks_set().
 *
 * @param      desc  read during the call only; `comm`, `window` and `user` are
 *                   lent
 * @param[out] x_p   the exchange, until gh_exchange_destroy()
 *
 * @return GH_OK;
 *         GH_ERR_CONFIG for a bad option;
 *         GH_ERR_UNSUPPORTED when the kind is copy or kernel and two ranks
 *         cannot map each other's windows, whose text names them, or when
 *         kind kernel is for fewer ranks;
 *         GH_ERR_NOT_FOUND when NCCL is needed and not found;
 *         GH_ERR_RANKS when a rank does not come within GRAPHHOOKS_TIMEOUT or
 *         has failed; the text names it;
 *         GH_ERR_NO_DRIVER; GH_ERR_DEVICE; GH_ERR_NO_MEMORY; GH_ERR_INVALID or
 *         GH_ERR_ABI for a bad description, also for a window that goes on
 *         behind the end of its allocation.
 * Blocks: until all ranks have called it.  Allocates the window.  Since: 0.5.
 */
GH_API gh_status gh_exchange_create(const gh_exchange_desc *desc,
                                    gh_exchange **x_p, gh_error *err);

/**
 * Destroy an exchange; NULL is allowed.  All ranks call it, after the graphs
 * that hold its calls have ended and were destroyed, also where the exchange is
 * over: the others wait for this call.  If a rank does not come, the library's
 * window is not freed, as that rank may still write to it.  Several exchanges
 * are destroyed in one order on all ranks, as they are made.
 *
 * Blocks: until this rank's calls have ended, and then until the other ranks
 * come; for each at most GRAPHHOOKS_TIMEOUT.  Where calls of kind copy or
 * kernel were captured, until all work of the context has ended, for as long.
 * Since: 0.5.
 */
GH_API void gh_exchange_destroy(gh_exchange *x);

/** This rank's window: a device address.  Blocks: never.  Since: 0.5. */
GH_API void *gh_exchange_window(const gh_exchange *x);

/* What this rank sends to one rank, its peer, and receives from it: sizes and
 * offsets in bytes.  An offset in a window is from gh_exchange_op.window_offset
 * on.  Frozen: arrays of it cross the ABI.  Since 0.5, under these names since
 * 1.0. */
typedef struct gh_exchange_part {
    uint64_t send_offset; /* in `send`, of the part for the peer */
    uint64_t send_bytes;  /* its size; 0: nothing is sent */
    uint64_t peer_offset; /* in the peer's window, of the same part */
    uint64_t recv_offset; /* in this rank's window, of the part from the peer;
                             equals `peer_offset` there */
    uint64_t recv_bytes;  /* its size; equals `send_bytes` there */
} gh_exchange_part;

/**
 * Fill in parts that lie one behind the other in the order of the ranks, both
 * in `send` and in the windows.
 *
 * @param      n_ranks  as in gh_exchange_desc
 * @param      rank     as in gh_exchange_desc
 * @param      bytes    n_ranks * n_ranks values: bytes[i * n_ranks + j] is
 *                      what rank i sends to rank j
 * @param[out] parts    n_ranks of them
 *
 * Blocks: never.  Threads: any.  Since: 0.5.
 */
GH_API void gh_exchange_lay_out(uint32_t n_ranks, uint32_t rank,
                                const uint64_t *bytes,
                                gh_exchange_part *parts);

/* gh_exchange_op.flags: 0, or one of the first three, and GH_EXCHANGE_ALONE
 * with any of them.  Equal on all ranks.  Since: 1.0.
 *
 * Calls in turn are faster, as no rank has to tell the others that its window
 * is free.  By such a flag the host promises:
 *
 *     - the call before this one, issued or in a graph, has another flag, or
 *       0, and writes other parts of each window, even if nobody reads them;
 *     - work that uses the parts of this rank's window that the call writes is
 *       before that call, in the order that streams and events give; before
 *       the first call of an exchange nothing uses them.
 *
 * So a host that is done with what one call has received before it makes the
 * next call divides its window in two, and writes the halves in turn.  A host
 * that breaks the promise gets parts that are overwritten too early, or
 * GH_ERR_RANKS.  With kind nccl, which needs no promise, nothing is faster.
 *
 * A host that cannot promise it calls gh_exchange_release_window() as early as
 * it can, once before each call with GH_EXCHANGE_RELEASED.
 *
 * GH_EXCHANGE_ALONE says that the host computes nothing on the device while the
 * call runs.  Kind auto then moves small parts (gh_exchange_desc.small) by the
 * kernel, whose blocks take multiprocessors from work beside it, unless ranks
 * share this rank's device.  It is a hint: results do not depend on it, and the
 * other kinds ignore it. */
enum {
    GH_EXCHANGE_TURN_1 = 1u << 0,
    GH_EXCHANGE_TURN_2 = 1u << 1,
    GH_EXCHANGE_RELEASED = 1u << 2,
    GH_EXCHANGE_ALONE = 1u << 3
};

/** One exchange.  Zero the struct, then set struct_size.  Since 0.5. */
typedef struct gh_exchange_op {
    uint32_t struct_size;
    uint32_t flags; /* as above, or 0 */
    void *stream;   /* the host's CUstream */
    /* Device memory that holds the parts to send; it must not overlap the parts
     * of the window that the call writes.  May be NULL if nothing is sent. */
    const void *send;
    uint64_t window_offset; /* of the parts in every window, in bytes; equal on
                               all ranks */
    /* n_ranks of them, this rank included; read during the call only.  NULL:
     * every part has `capacity` bytes.  The part for rank i is at i * capacity
     * in `send`, and the part from rank i comes to window_offset + i * capacity
     * in the window, so the host need not know how much of a part is used. */
    const gh_exchange_part *parts;
    uint64_t capacity; /* bytes of each part; read only if `parts` is NULL */
} gh_exchange_op;

/**
 * Send a part to each rank and receive one from each.
 *
 * The call is ordered on `stream`.  Work before it may use the parts of the
 * window that it writes: no rank writes them earlier, unless the call has one
 * of the flags.  Work after it finds all parts received, and may overwrite
 * `send`.  Bytes of the window outside of the parts are not written.
 *
 * It may be captured: each launch of the graph is then one call.  If it fails
 * in a capture, do not launch the graph.
 *
 * @param op  read during the call only
 *
 * @return GH_OK;
 *         GH_ERR_INVALID when a part is outside of a window, or two calls of
 *         one turn come after each other;
 *         GH_ERR_RANKS when another rank has not come before, or NCCL fails;
 *         GH_ERR_DEVICE when a driver call fails: outside of a capture the
 *         other ranks then miss this one, and the exchange is over;
 *         GH_ERR_STATE when the window was released and the call has not
 *         GH_EXCHANGE_RELEASED, or the other way round;
 *         GH_ERR_ABI or GH_ERR_UNSUPPORTED for a bad struct.
 * Stream: enqueues on op->stream, and on streams of the library's that are
 * joined to it.  Blocks: never.  Allocates nothing.  Since: 0.5.
 */
GH_API gh_status gh_exchange_all_to_all(gh_exchange *x,
                                        const gh_exchange_op *op,
                                        gh_error *err);

/**
 * Tell the other ranks that this rank's window is free for the next call, which
 * then has the flag GH_EXCHANGE_RELEASED and does not tell it again.  All ranks
 * call it, once between two calls.  The message takes its way while this rank
 * still computes what the next call sends.
 *
 * The release is after the call before, after all work that uses the parts of
 * the window that the next call writes, and before the next call, in the order
 * that streams and events give.  It may be captured: each launch of the graph
 * is then one release.
 *
 * @param stream  a CUstream of the host
 *
 * @return GH_OK; GH_ERR_STATE when it was called since the last call of
 *         gh_exchange_all_to_all(), or in a function of the host's;
 *         GH_ERR_RANKS; GH_ERR_DEVICE; GH_ERR_INVALID.
 * Stream: enqueues on `stream`; with kind nccl, nothing.  Blocks: never.
 * Since: 1.0.
 */
GH_API gh_status gh_exchange_release_window(gh_exchange *x, void *stream,
                                            gh_error *err);

/**
 * Wait for a stream on which exchanges were issued, but at most
 * GRAPHHOOKS_TIMEOUT.  Call it once a step or more often in place of
 * cuStreamSynchronize, which waits for ever if a rank has died.
 * GRAPHHOOKS_TIMEOUT must be longer than the device needs for the work that is
 * issued between two waits.
 *
 * @return GH_OK when all work issued there has ended;
 *         GH_ERR_RANKS when a rank has not come or has given the exchange up;
 *         the text names it.  The exchange is then over: work that waits for it
 *         goes on with wrong data, and every later call fails;
 *         GH_ERR_STATE on a stream that captures, or in a function of the
 *         host's;
 *         GH_ERR_INVALID; GH_ERR_DEVICE.
 * Blocks: until the work that was issued before the call has ended.
 * Since: 0.5.
 */
GH_API gh_status gh_exchange_wait(gh_exchange *x, void *stream,
                                  gh_error *err);

/**
 * Give the memory of the window back; graphs keep its address.  All ranks call
 * it, and all suspend or none does.  What the window held is lost.  A window of
 * the host's stays with the host, which may take its memory away until it calls
 * gh_exchange_resume().  Until then every call but that one, those that count
 * and gh_exchange_destroy() returns GH_ERR_STATE, and no graph that holds calls
 * is launched.  The flags that ranks give each other, 2 MiB, stay.
 *
 * @param stream  a CUstream.  This rank's calls, its launches of graphs that
 *                hold calls, and all work that uses the window are before it,
 *                in the order that streams and events give.
 *
 * @return GH_OK; GH_ERR_STATE when it is suspended, when the stream captures,
 *         or when another rank cannot; GH_ERR_UNSUPPORTED without
 *         GH_EXCHANGE_SUSPENDS, where the device cannot map memory to reserved
 *         addresses, or where other processes have opened the window by CUDA
 *         IPC, as file descriptors of memory do not reach them;
 *         GH_ERR_RANKS as gh_exchange_wait(), or when a rank does not come: the
 *         exchange is over; GH_ERR_DEVICE; GH_ERR_INVALID.
 * Blocks: as gh_exchange_wait(), and until all ranks have called it.
 * Since: 1.0.
 */
GH_API gh_status gh_exchange_suspend(gh_exchange *x, void *stream,
                                     gh_error *err);

/**
 * Take memory for the window, at the address that graphs hold, and let the
 * other ranks reach it.  All ranks call it, and all resume or none does.
 *
 * @return GH_OK; GH_ERR_STATE for an exchange that is not suspended;
 *         GH_ERR_NO_MEMORY or GH_ERR_DEVICE: all ranks are suspended still, and
 *         call it again; GH_ERR_RANKS when a rank does not come: the exchange
 *         is over; GH_ERR_INVALID.
 * Blocks: while the driver allocates, and until all ranks have called it.
 * Since: 1.0.
 */
GH_API gh_status gh_exchange_resume(gh_exchange *x, gh_error *err);

/* Values are frozen.  Since 0.5. */
typedef uint32_t gh_exchange_kind;
enum {
    GH_EXCHANGE_NCCL = 1,
    GH_EXCHANGE_COPY = 2,
    GH_EXCHANGE_KERNEL = 3 /* since 1.0 */
};

/** Counters since the exchange was made.  Set struct_size before the call.
 * Since 0.5. */
typedef struct gh_exchange_stats {
    uint32_t struct_size;
    gh_exchange_kind kind;   /* the kind that the ranks have agreed on; auto is
                                GH_EXCHANGE_COPY or GH_EXCHANGE_NCCL */
    uint64_t window_bytes;
    uint64_t calls;          /* calls issued; a captured one counts once,
                                however often its graph is launched */
    uint64_t captured;       /* those of them that were captured */
    uint64_t copied_bytes;   /* sent to other ranks by copies or by kernel */
    uint64_t nccl_bytes;     /* sent to other ranks by NCCL */
    uint64_t own_bytes;      /* sent by this rank to itself */
    uint32_t peers_direct;   /* peers whose windows are reached directly, as
                                threads of this process */
    uint32_t peers_ipc;      /* peers whose windows are reached by CUDA IPC or,
                                with GH_EXCHANGE_SUSPENDS, file descriptors */

    /* What kinds copy and kernel have issued besides the parts. */
    uint64_t memory_ops;     /* words of memory that a stream waits for or
                                writes (cuStreamBatchMemOp) */
    uint64_t memory_op_calls; /* driver calls for those words */
    uint64_t signal_copies;  /* one-byte copies that signal another rank */
    uint64_t event_waits;    /* events recorded and waited for */

    /* Since 1.0 */
    uint64_t kernel_calls;   /* those of `calls` that go by the kernel */
    uint64_t small_bytes;    /* the largest part that kind auto moves by the
                                kernel; 0 for other kinds */
    uint64_t batch_copies;   /* driver calls that copy parts or signals of
                                several ranks (cuMemcpyBatchAsync) */
    uint64_t suspends;       /* times that it was suspended */
    uint64_t given_bytes;    /* that the last time gave back */
} gh_exchange_stats;

/**
 * Read the counters.
 *
 * @param[in,out] stats  struct_size says how much is written
 *
 * @return GH_OK; GH_ERR_INVALID; GH_ERR_ABI; GH_ERR_UNSUPPORTED.
 * Blocks: never.  Since: 0.5.
 */
GH_API gh_status gh_exchange_get_stats(const gh_exchange *x,
                                       gh_exchange_stats *stats,
                                       gh_error *err);

GH_END_DECLS

#endif
