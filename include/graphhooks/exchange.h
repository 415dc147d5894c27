/*
 * graphhooks/exchange.h - the exchange of tokens between ranks of experts.
 *
 * Each rank sends a part to each rank, of any size, and has a part of each.
 * What comes is written into the rank's window: device memory that all ranks
 * of the exchange can reach, of a size that does not change.
 *
 *     gh_exchange_create(&desc, &x, &err);          all ranks, once
 *     window = gh_exchange_window(x);
 *     ...
 *     gh_exchange_lay_out(n, rank, bytes, parts);   bytes[i * n + j]: i to j
 *     gh_exchange_all_to_all(x, &(gh_exchange_op){
 *         .struct_size = sizeof(gh_exchange_op), .stream = comm,
 *         .send = tokens, .parts = parts }, &err);
 *     ...
 *     gh_exchange_wait(x, comm, &err);    in the place of a synchronize
 *     gh_exchange_destroy(x);             all ranks
 *
 * Two kinds move the same bytes to the same places:
 *
 *     nccl   a group of sends and receives, on the host's communicator
 *     copy   the library's own: copies straight into the peers' windows, so
 *            that no multiprocessor is taken from the compute beside it.  A
 *            peer waits for them by stream memory operations.
 *
 * `copy` wants ranks that reach each other's memory: threads of one process,
 * or processes on one machine with CUDA IPC.
 *
 * An exchange is used by one thread at a time.  Its calls, and launches of
 * graphs that hold some, are in one order, which streams or events keep, and
 * in the same order on all ranks: two calls of one exchange are never under
 * way at once on a rank.  A host with two streams of exchanges makes two.
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
    /* Ranks that are threads of one process reach each other by CUDA IPC too:
     * for a device whose threads stand for processes. */
    GH_EXCHANGE_IPC = 1u << 0
};

/**
 * How to make an exchange.  Zero the struct, then set struct_size.  An
 * environment variable wins over what is said here, as for a session.
 */
typedef struct gh_exchange_desc {
    uint32_t struct_size;
    uint32_t flags;   /* GH_EXCHANGE_* */
    uint32_t rank;    /* among those that exchange, from 0 */
    uint32_t n_ranks; /* 1 to 1024; 1: parts are copied within the device */

    /* Bytes of this rank's window: the most that comes to it in a call, times
     * the calls whose parts are to stay.  May differ between ranks. */
    uint64_t window_bytes;
    /* Device memory of the host's for it, from cuMemAlloc (cudaMalloc), lent
     * until the exchange is destroyed; NULL: the library's. */
    void *window;

    /* "nccl", "copy" or "auto": copy where all ranks reach each other, else
     * nccl; NULL: "auto".  Equal on all ranks.  GRAPHHOOKS_EP_EXCHANGE */
    const char *kind;

    /* An ncclComm_t of exactly these ranks, lent until the exchange is
     * destroyed; for nccl, and without `gather` also for creation.  NULL: there
     * is `gather`, and the exchange is by copy. */
    void *comm;
    /* Whose it is, as gh_ranks.nccl.  GRAPHHOOKS_NCCL */
    const char *nccl;

    /* Brings n words of each rank to all, up to 24, as gh_ranks.gather does,
     * with bank 0: all[i * n] is where those of rank i begin.  Called in
     * creation and in destruction only, as often on all ranks.  Fails, or ends, within a
     * time of its own.  NULL: by NCCL. */
    void *user;
    gh_status (*gather)(void *user, uint32_t bank, const uint64_t *mine,
                        uint64_t *all, uint32_t n);
    /* Once, when a rank has not come: ends what waits in `comm`.  For a host
     * that has lent it elsewhere too.  Default: ncclCommAbort, after which the
     * host neither uses nor destroys it. */
    void (*abort)(void *user);

    const char *driver; /* as gh_session_desc.driver.  GRAPHHOOKS_DRIVER */
    void *context;      /* as gh_session_desc.context */
    int32_t device;     /* as gh_session_desc.device */
    uint32_t reserved;  /* must be 0 */
    /* As gh_session_desc.environment.  Read during the call. */
    const char *const *environment;
} gh_exchange_desc;

/**
 * Make an exchange.  All its ranks call it; they agree on the kind, and on
 * failure all of them fail.
 *
 * @param      desc  read during the call only; `comm`, `window` and what
 *                   `user` is are lent
 * @param[out] x_p   the exchange, until gh_exchange_destroy()
 *
 * @return GH_OK; GH_ERR_CONFIG for a bad option; GH_ERR_UNSUPPORTED when the
 *         kind is copy and ranks do not reach each other, and the text names
 *         them; GH_ERR_NOT_FOUND when NCCL is wanted and there is none;
 *         GH_ERR_RANKS when ranks do not come within GRAPHHOOKS_TIMEOUT, or
 *         one of them has failed, which the text names; GH_ERR_NO_DRIVER;
 *         GH_ERR_DEVICE; GH_ERR_NO_MEMORY; GH_ERR_INVALID or GH_ERR_ABI for a
 *         bad description.
 * Blocks: until all have called it.  Allocates the window.  Since: 0.5.
 */
GH_API gh_status gh_exchange_create(const gh_exchange_desc *desc,
                                    gh_exchange **x_p, gh_error *err);

/**
 * Destroy an exchange; NULL is allowed.  All ranks call it, after the graphs
 * that hold its calls have ended and are destroyed.  Without the others the
 * window stays, as one of them may still write to it.
 *
 * Blocks: until what was issued has ended here, and the others have come; each
 * GRAPHHOOKS_TIMEOUT at most.  Since: 0.5.
 */
GH_API void gh_exchange_destroy(gh_exchange *x);

/** This rank's window.  Blocks: never.  Since: 0.5. */
GH_API void *gh_exchange_window(const gh_exchange *x);

/* What goes to a rank, and what comes from it, in bytes.  Frozen: arrays of it
 * cross the ABI. */
typedef struct gh_exchange_part {
    uint64_t from;  /* where what goes to the rank begins, in `send` */
    uint64_t bytes; /* how much; 0: nothing */
    uint64_t there; /* where it goes in that rank's window, from its `at` */
    uint64_t here;  /* where what comes from the rank begins in the window, from
                       `at`: that rank's `there` of this one */
    uint64_t comes; /* how much: that rank's `bytes` of this one */
} gh_exchange_part;

/**
 * Fill in parts that lie one behind the other, in the order of the ranks, both
 * in `send` and in the windows.
 *
 * @param      n_ranks, rank  as of the exchange
 * @param      bytes  n_ranks * n_ranks: bytes[i * n_ranks + j] go from rank i
 *                    to rank j
 * @param[out] parts  n_ranks of them
 *
 * Blocks: never.  Threads: any.  Since: 0.5.
 */
GH_API void gh_exchange_lay_out(uint32_t n_ranks, uint32_t rank,
                                const uint64_t *bytes,
                                gh_exchange_part *parts);

/** One exchange.  Zero the struct, then set struct_size. */
typedef struct gh_exchange_op {
    uint32_t struct_size;
    uint32_t flags; /* none defined; must be 0 */
    void *stream;   /* the host's CUstream */
    /* Device memory that this rank's parts come from, outside of what is
     * written in the window; may be NULL where nothing goes. */
    const void *send;
    uint64_t at; /* where in the window; equal on all ranks */
    /* One for each rank, this one included; read during the call.  NULL:
     * `capacity` bytes go to rank i from i * capacity on in `send`, and what
     * rank i sends comes to i * capacity from `at` on: nothing has to be known
     * of how much of it is in use. */
    const gh_exchange_part *parts;
    uint64_t capacity; /* without parts */
} gh_exchange_op;

/**
 * Send a part to each rank, and have a part of each.
 *
 * The parts of the window that are written may be overwritten from where the
 * call stands on `stream`; no rank writes before.  What follows on `stream`
 * comes after all parts have come, and `send` may be overwritten there.  No
 * byte outside of the parts is written.
 *
 * May be captured: each launch of the graph is one call.  A graph in whose
 * capture it has failed is not launched.
 *
 * @param op  read during the call only
 *
 * @return GH_OK; GH_ERR_INVALID when a part is outside of a window;
 *         GH_ERR_RANKS after another rank has not come, or when NCCL fails;
 *         GH_ERR_DEVICE when the driver fails: the others will miss this
 *         rank, and the exchange is over unless it was captured; GH_ERR_ABI
 *         or GH_ERR_UNSUPPORTED for a bad struct.
 * Stream: enqueues on op->stream, and on streams of the exchange's that are
 * joined to it.  Blocks: never.  Allocates nothing.  Since: 0.5.
 */
GH_API gh_status gh_exchange_all_to_all(gh_exchange *x,
                                        const gh_exchange_op *op,
                                        gh_error *err);

/**
 * Wait for a stream that exchanges are issued on, and for other ranks no longer
 * than GRAPHHOOKS_TIMEOUT: in the place of cuStreamSynchronize, once a step or
 * oftener.
 *
 * GRAPHHOOKS_TIMEOUT has to be longer than what is issued between two waits
 * takes on the device.
 *
 * @return GH_OK: all that was issued there has ended; GH_ERR_RANKS when a rank
 *         has not come, or has given the exchange up, which the text names.  The exchange is over then: what
 *         waits for it on the stream is let go, with wrong numbers, and every
 *         further call fails; GH_ERR_INVALID; GH_ERR_DEVICE.
 * Blocks: until the stream has come so far.  Since: 0.5.
 */
GH_API gh_status gh_exchange_wait(gh_exchange *x, void *stream,
                                  gh_error *err);

/* Values are frozen. */
typedef uint32_t gh_exchange_kind;
enum {
    GH_EXCHANGE_NCCL = 1,
    GH_EXCHANGE_COPY = 2
};

/** Counters since the exchange was made.  Set struct_size before the call. */
typedef struct gh_exchange_stats {
    uint32_t struct_size;
    gh_exchange_kind kind;   /* that the ranks have agreed on */
    uint64_t window_bytes;
    uint64_t calls;          /* issued; a captured one counts once */
    uint64_t captured;       /* of them in a capture */
    uint64_t copied_bytes;   /* that this rank has sent to others by copies */
    uint64_t nccl_bytes;     /* the same by NCCL */
    uint64_t own_bytes;      /* that have stayed on this rank */
    uint32_t peers_direct;   /* peers that are reached as threads of one
                                process */
    uint32_t peers_ipc;      /* over CUDA IPC */
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
