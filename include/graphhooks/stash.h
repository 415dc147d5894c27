/*
 * graphhooks/stash.h - rows whose number only the device knows, kept from the
 * forward to the backward.
 *
 * How many tokens an expert gets is known on the device alone, so a graph has
 * to keep its activations in buffers of the worst case.  With a stash they all
 * share one buffer of that size, and what the backward needs is kept in pages,
 * as many as there are tokens:
 *
 *     gh_stash_create(&desc, &stash, &err);
 *     gh_stash_add(stash, max_rows, &entry, &err);    each layer and slot
 *     ...
 *     gh_stash_push(stash, &op, &err);                 in the forward
 *     gh_stash_pop(stash, &op, &err);                  in the backward
 *     ...
 *     gh_stash_end_step(stash, stream, &rerun, &err);  once a step
 *     gh_stash_destroy(stash);
 *
 * Pushes and pops may be captured, and each launch then moves as many rows as
 * there are at that time.  Nothing waits on the host but gh_stash_end_step().
 *
 * A push that finds too few pages, in spill_bytes too, keeps nothing and writes
 * nothing, and its pop brings no rows: the results of the step are wrong.
 * gh_stash_end_step() says so on all ranks, and the host then runs the step
 * once more, with gradients zeroed first, on the same data, eagerly and without
 * the stash, before the optimizer uses them.
 *
 * How many bytes of pages a run needs depends on its routing.  A stash that is
 * made without pages counts: the host runs steps without it, but pushes and
 * pops, and then calls gh_stash_reserve() with a factor, at the latest in
 * gh_host_services.before_recording.
 *
 * Threads: one at a time.  Order: pushes and pops of one stash never run at the
 * same time, so the host orders them by streams or events.  A gather must not
 * use its stash.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GRAPHHOOKS_STASH_H
#define GRAPHHOOKS_STASH_H

#include <graphhooks/base.h>

GH_BEGIN_DECLS

typedef struct gh_stash gh_stash;

/* gh_stash_desc.flags */
enum {
    GH_STASH_SUSPENDS = 1u << 0 /* gh_stash_suspend() may be called: pages lie
                                   at addresses that are reserved, and take
                                   whole pieces of 2 MiB */
};

/** A stash of one rank.  Zero the struct, then set struct_size.  Since 1.0. */
typedef struct gh_stash_desc {
    uint32_t struct_size;
    uint32_t flags; /* GH_STASH_SUSPENDS, or 0 */
    /* The ranks that run a step once more together; n_ranks 0 or 1: this one
     * alone. */
    uint32_t rank, n_ranks;
    /* Device memory for pages; 0: none yet, pushes are only counted.  It may
     * differ between the ranks. */
    uint64_t bytes;
    /* The bytes of a page: a multiple of 256; 0: 256 KiB.  A push takes whole
     * pages, so half of one is unused each time. */
    uint64_t page_bytes;

    /* As gh_exchange_desc.comm, nccl, user and gather.  Read only for more than
     * one rank, and one of comm and gather is then required. */
    void *comm;
    const char *nccl;
    void *user;
    gh_status (*gather)(void *user, uint32_t bank, const uint64_t *mine,
                        uint64_t *all, uint32_t n);

    const char *driver; /* as gh_session_desc.driver.  GRAPHHOOKS_DRIVER */
    void *context;      /* as gh_session_desc.context */
    int32_t device;     /* as gh_session_desc.device */
    uint32_t reserved;  /* must be 0 */
    /* As gh_session_desc.environment.  Read during the call. */
    const char *const *environment;

    /* Pinned memory of the host for pages, made with those of the device; 0:
     * none.  A push that finds too few pages there is kept here, and the link
     * to the host then carries its rows both ways. */
    uint64_t spill_bytes;
} gh_stash_desc;

/**
 * Make a stash.  All its ranks call this.
 *
 * @param      desc     read during the call only; `comm` and `user` are lent
 * @param[out] stash_p  the stash, until gh_stash_destroy()
 *
 * @return GH_OK; GH_ERR_CONFIG for a bad option; GH_ERR_RANKS when a rank does
 *         not come within GRAPHHOOKS_TIMEOUT or has failed; GH_ERR_STATE in a
 *         capture as of gh_stash_add(); GH_ERR_NOT_FOUND; GH_ERR_NO_DRIVER;
 *         GH_ERR_DEVICE; GH_ERR_NO_MEMORY; GH_ERR_INVALID or GH_ERR_ABI for a
 *         bad description.
 * Blocks: until all ranks have called it.  Allocates the pages.  Since: 1.0.
 */
GH_API gh_status gh_stash_create(const gh_stash_desc *desc, gh_stash **stash_p,
                                 gh_error *err);

/**
 * Destroy a stash; NULL is allowed.  All ranks call it, after the graphs that
 * hold its pushes and pops were destroyed.
 *
 * Blocks: until the device has ended what uses the stash.  Since: 1.0.
 */
GH_API void gh_stash_destroy(gh_stash *stash);

/**
 * Add an entry: what one push keeps until its pop.  Each layer needs one for
 * each microbatch that is in flight at a time, such as one for each slot
 * (gh_decision.slot).  Not while a stream is captured, as it allocates: refused
 * if the legacy stream waits for that stream; other captures are not known.
 *
 * @param      max_rows  the most rows that a push may have, at least 1
 * @param[out] entry_p   its number, from 0
 *
 * @return GH_OK; GH_ERR_STATE in such a capture; GH_ERR_NO_MEMORY;
 *         GH_ERR_DEVICE; GH_ERR_INVALID.
 * Blocks: until its few bytes are zeroed.  Since: 1.0.
 */
GH_API gh_status gh_stash_add(gh_stash *stash, uint32_t max_rows,
                              uint32_t *entry_p, gh_error *err);

/**
 * Make pages, in place of those that there are.  Before any push is captured,
 * as graphs have the addresses, and while no entry holds rows.
 *
 * @param bytes    memory for pages on this rank; 0: what the steps of any rank
 *                 have needed at most, so far, times percent / 100.  All ranks
 *                 then call it, with equal arguments
 * @param percent  read only if `bytes` is 0; at least 100
 *
 * @return GH_OK; GH_ERR_STATE when a push was captured, when an entry holds
 *         rows, when `bytes` is 0 and no step has ended that pushed, or in a
 *         capture as of gh_stash_add();
 *         GH_ERR_RANKS when `bytes` is 0 and a rank does not come or has
 *         failed; GH_ERR_NO_MEMORY; GH_ERR_DEVICE; GH_ERR_INVALID.
 * Blocks: until the device has freed the old pages, and, if `bytes` is 0, all
 * ranks have called it.  Since: 1.0.
 */
GH_API gh_status gh_stash_reserve(gh_stash *stash, uint64_t bytes,
                                  uint32_t percent, gh_error *err);

#define GH_STASH_TENSORS 16 /* of one push, at most */

/* Rows that follow each other in device memory.  Frozen: arrays of it cross the
 * ABI.  Since 1.0. */
typedef struct gh_stash_tensor {
    void *rows;         /* the first */
    uint64_t row_bytes; /* of each; fastest where it is a multiple of 16 */
} gh_stash_tensor;

/* gh_stash_op.flags */
enum {
    /* Of a pop: rows after the last one that was kept, up to the entry's
     * max_rows, become 0.  For kernels that read all rows. */
    GH_STASH_CLEAR = 1u << 0
};

/** A push or a pop.  Zero the struct, then set struct_size.  Since 1.0. */
typedef struct gh_stash_op {
    uint32_t struct_size;
    uint32_t flags; /* as above, or 0 */
    uint32_t entry; /* from gh_stash_add() */
    uint32_t n_tensors;
    /* Read during the call only.  All have the same number of rows, and a pop
     * has as many as the push, with equal row_bytes; the memory may be another.
     * The sum of row_bytes is at most page_bytes. */
    const gh_stash_tensor *tensors;
    /* Where the device has the number of rows, an int32_t, aligned as one, that
     * is read when the push runs, and below 0 counts as 0; NULL: max_rows.  A
     * pop does not read it. */
    const void *count;
    void *stream; /* the host's CUstream */
} gh_stash_op;

/**
 * Keep rows.  After it on the stream, their memory is the host's again.  An
 * entry that holds rows loses them.
 *
 * More rows than max_rows, or more than there are pages for, are refused: the
 * push keeps none, and gh_stash_end_step() will say so.  A stash without pages
 * keeps none either, and only counts.
 *
 * @param op  read during the call only
 *
 * @return GH_OK; GH_ERR_INVALID for a bad struct or an unknown entry;
 *         GH_ERR_DEVICE; GH_ERR_ABI; GH_ERR_UNSUPPORTED.
 * Stream: enqueues two kernels on op->stream; may be captured.
 * Blocks: never.  Allocates nothing.  Since: 1.0.
 */
GH_API gh_status gh_stash_push(gh_stash *stash, const gh_stash_op *op,
                               gh_error *err);

/**
 * Bring an entry's rows back, and free its pages.  Entries may be popped in any
 * order.  What a push was refused brings no rows; with GH_STASH_CLEAR, zeros.
 * A stash without pages writes nothing.
 *
 * @param op  read during the call only
 *
 * @return as gh_stash_push()
 * Stream, Blocks: as gh_stash_push().  Since: 1.0.
 */
GH_API gh_status gh_stash_pop(gh_stash *stash, const gh_stash_op *op,
                              gh_error *err);

/**
 * Ask whether a push of this step was refused on any rank.  All ranks call it,
 * once a step, after the last pop and before the optimizer.  The first time
 * that a step has to run again, and whenever one has needed more than any
 * before, the log has a line with what it needed and what there is
 * (GH_LOG_WARN).
 *
 * @param      stream   where pushes and pops were issued last
 * @param[out] rerun_p  1: run the step once more without the stash; 0: go on.
 *                      Equal on all ranks
 *
 * @return GH_OK; GH_ERR_STATE when the stream is captured; GH_ERR_RANKS when a
 *         rank does not come or has failed; GH_ERR_DEVICE; GH_ERR_INVALID.
 * Blocks: until the work on the stream has ended, and all ranks have called it.
 * Since: 1.0.
 */
GH_API gh_status gh_stash_end_step(gh_stash *stash, void *stream,
                                   uint32_t *rerun_p, gh_error *err);

/**
 * Give the memory of the pages back; graphs keep their addresses.  No entry may
 * hold rows, and no push or pop may be issued until gh_stash_resume().  Pinned
 * pages, and a few bytes for each page and entry, stay.  Where ranks are
 * threads of one process, as gh_session_suspend().
 *
 * @param stream  where pushes and pops were issued last
 *
 * @return GH_OK; GH_ERR_STATE when entries hold rows, when the stream is
 *         captured, or when it is suspended; GH_ERR_UNSUPPORTED without
 *         GH_STASH_SUSPENDS, or where the device cannot map memory to reserved
 *         addresses; GH_ERR_DEVICE; GH_ERR_INVALID.
 * Blocks: until the work on the stream has ended.  Since: 1.0.
 */
GH_API gh_status gh_stash_suspend(gh_stash *stash, void *stream, gh_error *err);

/**
 * Take memory for the pages, at the addresses that graphs hold.
 *
 * @return GH_OK; GH_ERR_STATE for a stash that is not suspended;
 *         GH_ERR_NO_MEMORY or GH_ERR_DEVICE: it is suspended still;
 *         GH_ERR_INVALID.
 * Blocks: while the driver allocates.  Since: 1.0.
 */
GH_API gh_status gh_stash_resume(gh_stash *stash, gh_error *err);

/** Counters.  Set struct_size before the call.  Since 1.0. */
typedef struct gh_stash_stats {
    uint32_t struct_size;
    uint32_t entries;
    uint64_t bytes; /* of all pages, also while they are suspended */
    uint64_t page_bytes;
    uint64_t held_bytes;      /* pages in use at the end of the last step: 0, or
                                 pushes were not popped */
    uint64_t step_peak_bytes; /* what the last step needed at most at a time */
    uint64_t peak_bytes;      /* what any step needed at most */
    uint64_t worst_case_bytes; /* what all entries with all rows need together,
                                  with the row_bytes of their last push */
    uint64_t steps;
    uint64_t refused;     /* pushes of this rank, in steps that have ended */
    uint64_t reruns;      /* steps that some rank had to run once more */
    uint64_t spill_bytes; /* pinned, for pages */
    uint64_t spilled;     /* pushes that were kept there, in steps that have
                             ended */
} gh_stash_stats;

/**
 * Read the counters.
 *
 * @param[in,out] stats  struct_size says how much is written
 *
 * @return GH_OK; GH_ERR_INVALID; GH_ERR_ABI; GH_ERR_UNSUPPORTED.
 * Blocks: never.  Since: 1.0.
 */
GH_API gh_status gh_stash_get_stats(const gh_stash *stash,
                                    gh_stash_stats *stats, gh_error *err);

GH_END_DECLS

#endif
