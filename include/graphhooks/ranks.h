/*
 * graphhooks/ranks.h - passes that contain collectives between ranks.
 *
 * NCCL requires that an operation is captured on all ranks of its communicator
 * or on none, so all of them have to record and replay such a pass, or all to
 * run it eagerly.  Sessions with equal options on equal models decide equally,
 * but a capture may fail on one rank alone.  The host therefore tells the
 * session which ranks share the passes of a bank, and those ranks compare
 * their decisions wherever they could differ:
 *
 *     gh_ranks ranks = { .struct_size = sizeof(ranks), .bank = bank,
 *                        .rank = rank, .size = size, .comm = comm };
 *     gh_ranks_set(session, &ranks, &err);
 *
 * A rank asks the others when it records a pass, when it compares one
 * (GRAPHHOOKS_CHECK), and when it cannot replay one that is recorded.  A
 * replayed pass asks nobody and costs the same as without ranks.  When one rank
 * cannot record a pass, all run it eagerly.  When one rank cannot replay and
 * the others do, nobody answers it: its call fails after GRAPHHOOKS_TIMEOUT
 * seconds instead of waiting for ever.
 *
 * These have to be equal on all ranks of a bank: the options, the model and its
 * plan, the order of passes in the bank, and the order in which microbatches
 * begin in a chunk, so that a microbatch has the same slot on each rank.
 * GRAPHHOOKS_CHECK=ranks compares every pass before it begins, and names the
 * first one that differs.
 *
 * GH_ERR_RANKS: another rank failed, exited, did not arrive in time, or runs
 * another pass: the ranks are lost.  The library then destroys the graphs of
 * all banks, also those that the host has captured (gh_host_services.destroy),
 * and aborts the communicators that were lent to it, so that nothing
 * waits in them.  The session can only be closed.  Work that still waits for a
 * rank then, such as an exchange by copies in a graph, is waited for during
 * GRAPHHOOKS_TIMEOUT; after that the session closes all the same, and its
 * memory is left to the context, as the driver waits where it frees.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GRAPHHOOKS_RANKS_H
#define GRAPHHOOKS_RANKS_H

#include <graphhooks/bank.h>

GH_BEGIN_DECLS

/* The ranks that share the passes of a bank.  Zero the struct, then set
 * struct_size.  Since 0.5. */
typedef struct gh_ranks {
    uint32_t struct_size;
    uint32_t bank; /* gh_bank_add(), or 0 */
    uint32_t rank; /* this session's number among them, from 0 */
    uint32_t size; /* the number of ranks; 1: nobody is asked, and the fields
                      below are not read */

    /* The ncclComm_t that the passes use, of exactly these ranks; NULL where
     * `gather` is given.  It is lent until gh_ranks_clear() or the end of the
     * session; the host destroys it after that, as graphs that hold its
     * operations have to be destroyed first.  The library asks over a
     * communicator of its own, which it splits from this one. */
    void *comm;
    /* The NCCL that `comm` belongs to: "nccl" for libnccl.so.2, "soft" for that
     * of the software device, or a path; NULL: "nccl".  It must be the copy
     * that the host has loaded, as another copy does not know the communicator.
     * GRAPHHOOKS_NCCL */
    const char *nccl;

    /* Asks the other ranks instead of NCCL; NULL: by NCCL.  An all-gather of n
     * words in host memory: all[i * n] to all[i * n + n - 1] become those of
     * rank i.  It has to return within a time limit of its own, with an error
     * if a rank does not come.  The first call brings two words by which the
     * ranks find out which of them are threads of one process.  It may be
     * called while the session captures a stream, on the capturing thread, so
     * it makes no CUDA call that a capture forbids; gloo and MPI make none.
     *
     * The library does not know the communicators of such a host.  Operations
     * of one that fails end, with numbers that are wrong: ask each by
     * ncclCommGetAsyncError before you use what a step has computed, and call
     * gh_ranks_abort() where it has failed. */
    void *user;
    gh_status (*gather)(void *user, uint32_t bank, const uint64_t *mine,
                        uint64_t *all, uint32_t n);
    /* Aborts all communicators of the host's in which work may wait.  Called
     * once for the bank, when its ranks are lost and its graphs are
     * destroyed.  ncclCommAbort frees memory, which waits for every kernel on
     * the device, so abort all communicators at once, each in a thread, and
     * wait for these with a limit: none returns while the device waits for an
     * exchange by copies or by kernel, before gh_exchange_wait() ends that.
     * Default: ncclCommAbort of the `comm` of every bank, each in a thread;
     * the host must then neither use nor destroy them. */
    void (*abort)(void *user, uint32_t bank);
} gh_ranks;

/**
 * Set the ranks that share a bank's passes, and compare their settings.
 *
 * All ranks of the bank call it, between two steps, while the bank has no
 * graphs.  A pass of the bank that holds no collective may be marked with
 * GH_PASS_LOCAL: the ranks do not compare it.
 *
 * One communicator may be lent for several banks of a session, but not to two
 * sessions at once.  Where the call fails on one rank alone, the others get
 * GH_ERR_RANKS, and the communicator cannot be used here any more.
 *
 * After a failure the communicator is the host's own again.  If it is
 * GH_ERR_RANKS because ranks did not come, abort the communicator with
 * ncclCommAbort and do not destroy it, as NCCL still splits it.  If it blocks
 * (ncclConfig_t.blocking is 1, NCCL's default), a thread of the library stays
 * in ncclCommSplit until the abort or until the ranks come, and NCCL may crash
 * when it is aborted there: make the communicator with blocking = 0 if the
 * process has to go on after such a failure.  If the session has the
 * communicator for another bank too, call gh_ranks_abort() instead.
 *
 * @param ranks  read during the call only; `comm` and `user` are lent
 *
 * @return GH_OK;
 *         GH_ERR_NOT_FOUND for an unknown bank, or when NCCL is not found,
 *         lacks a function or is older than 2.20;
 *         GH_ERR_STATE while a pass is open, or when the bank has graphs or has
 *         its ranks already;
 *         GH_ERR_CONFIG when a setting differs; on all ranks, and the text
 *         names it with both values;
 *         GH_ERR_RANKS when the others do not come within GRAPHHOOKS_TIMEOUT,
 *         or NCCL fails;
 *         GH_ERR_NO_DRIVER; GH_ERR_DEVICE; GH_ERR_NO_MEMORY; GH_ERR_INVALID,
 *         GH_ERR_ABI or GH_ERR_UNSUPPORTED for a bad struct.
 * Blocks: until all ranks have called it.  Since: 0.5.
 */
GH_API gh_status gh_ranks_set(gh_session *session, const gh_ranks *ranks,
                              gh_error *err);

/**
 * Undo gh_ranks_set(): destroy the bank's graphs and return its communicator
 * to the host.  All ranks of the bank call it.  The bank may record again, and
 * then asks nobody.
 *
 * @return GH_OK, also for a bank without ranks or with one, which keeps its
 *         graphs; GH_ERR_NOT_FOUND for an unknown bank; GH_ERR_STATE while a
 *         pass is open; GH_ERR_RANKS when work in flight does not end within
 *         GRAPHHOOKS_TIMEOUT; GH_ERR_INVALID.
 * Blocks: until the session's graphs have finished.  Since: 0.5.
 */
GH_API gh_status gh_ranks_clear(gh_session *session, uint32_t bank,
                                gh_error *err);

/**
 * Wait for a stream, but at most GRAPHHOOKS_TIMEOUT; without a limit where no
 * bank has ranks.  Call it once a step or more often in place of
 * cuStreamSynchronize, which waits for ever if a rank has died.
 *
 * @param stream  of the session's context; NULL: the legacy default stream
 *
 * @return GH_OK when all work issued there has ended; GH_ERR_RANKS when it has
 *         not in time, or a communicator that was lent has failed (gh_ranks);
 *         GH_ERR_STATE when the stream is being captured, or a pass is open;
 *         GH_ERR_INVALID; GH_ERR_DEVICE; GH_ERR_NO_DRIVER.
 * Blocks: until the work that was issued before the call has ended.
 * Since: 0.5.
 */
GH_API gh_status gh_ranks_wait(gh_session *session, void *stream,
                               gh_error *err);

/**
 * Give up the other ranks at once, without waiting for GRAPHHOOKS_TIMEOUT: for
 * a host that knows from its launcher or a watchdog that a rank has failed.
 *
 * Cancels an open pass, destroys graphs and aborts communicators, as when the
 * ranks are lost.  Every later pass is refused, and the session can only be
 * closed.
 * It acts on this rank alone: the others call it too, or notice through NCCL
 * or their own timeout.
 *
 * Call it before you abort a communicator yourself: ncclCommAbort does not
 * return while graphs hold operations of the communicator.
 *
 * @param why  a sentence for the log and for the text of GH_ERR_RANKS, read
 *             during the call only; NULL: "the host has given the ranks up"
 *
 * @return GH_OK, also when the ranks were lost before; GH_ERR_STATE when no
 *         bank has ranks, or when called from a host service; GH_ERR_INVALID.
 * Blocks: until the communicators are aborted, for at most GRAPHHOOKS_TIMEOUT:
 * a graph of the host's that holds an operation of one keeps NCCL, which goes
 * on in a thread until the host has destroyed the graph.  Since: 0.5.
 */
GH_API gh_status gh_ranks_abort(gh_session *session, const char *why,
                                gh_error *err);

GH_END_DECLS

#endif
