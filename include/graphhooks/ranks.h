/*
 * graphhooks/ranks.h - passes that several ranks make together.
 *
 * A graph with a collective in it is launched by all ranks of the collective or
 * by none: NCCL wants an operation captured on each of them, or on none.  What
 * a session decides follows from what is equal on all ranks, but a capture
 * fails on one of them alone.  So a host tells the session which ranks share
 * the passes of a bank, and those ask each other where they would part:
 *
 *     gh_ranks ranks = { .struct_size = sizeof(ranks), .bank = bank,
 *                        .rank = rank, .size = size, .comm = comm };
 *     gh_ranks_set(session, &ranks, &err);
 *
 * They ask when they record a pass, when they compare one (GRAPHHOOKS_CHECK),
 * and when a recorded one cannot be replayed.  One that is replayed asks
 * nobody, and costs what it costs without ranks.  When one rank cannot record,
 * all run the pass eagerly; when one would leave the others, which replay, it
 * learns that nobody asks back, and its call fails within GRAPHHOOKS_TIMEOUT
 * seconds instead of waiting for ever.
 *
 * What has to be equal on the ranks of a bank: the options, the model and its
 * plan, the order of passes in the bank, and of flights in a chunk, so that a
 * microbatch has the same slot on each.  GRAPHHOOKS_CHECK=ranks compares every
 * pass before it begins, and names the first that differs.
 *
 * GH_ERR_RANKS: another rank has failed, gone or never come, or does another
 * thing.  The graphs of all banks are destroyed then, the communicators that
 * were lent are aborted, so that nothing waits for them, and the session only
 * closes.
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
    uint32_t rank; /* of this session among them, from 0 */
    uint32_t size; /* how many they are; 1: nobody is asked, and the rest of the
                      struct is not looked at */

    /* An ncclComm_t of exactly these ranks, the one that the passes use.  It is
     * lent until gh_ranks_clear() or the session's end: the host destroys it
     * after that, as graphs go before communicators.  The library asks on one
     * of its own, which it splits from it.  NULL: `gather` is given. */
    void *comm;
    /* Whose it is: "nccl" for libnccl.so.2, "soft" for the one of the software
     * device, or a path; NULL: "nccl".  The host has loaded it: a second copy
     * knows nothing of the communicator.  GRAPHHOOKS_NCCL */
    const char *nccl;

    /* In the place of NCCL.  Brings n words of each rank to all: all[i * n]
     * is where those of rank i begin.  Fails, or ends, within a time of its
     * own.  It may be called while the session captures a stream, on the
     * thread that does: it uses the host's memory, as gloo and MPI do, and
     * nothing that a capture forbids.  NULL: by NCCL. */
    void *user;
    gh_status (*gather)(void *user, uint32_t bank, const uint64_t *mine,
                        uint64_t *all, uint32_t n);
    /* Once for the bank, when its ranks have parted and its graphs are
     * destroyed: ends what waits in the host's communicators, all of them.
     * ncclCommAbort frees memory, which waits for every kernel of the device:
     * call it for all communicators at once, each in a thread of its own.
     * Default: ncclCommAbort of the `comm` of every bank, each in a thread;
     * the host then neither uses nor destroys them. */
    void (*abort)(void *user, uint32_t bank);
} gh_ranks;

/**
 * Say which ranks share a bank's passes.  All of them call it, between two
 * steps, with nothing of the bank recorded; their settings are compared.
 *
 * A pass of the bank that holds no collective says GH_PASS_LOCAL: nobody is
 * asked of it.
 *
 * One communicator may be lent for several banks of a session, and for those
 * of one session at a time.  Where the call fails on one rank alone, the others
 * get GH_ERR_RANKS, and the communicator is of no further use here.
 *
 * @param ranks  read during the call only; `comm`, and what `user` is, are
 *               lent
 *
 * @return GH_OK; GH_ERR_NOT_FOUND for an unknown bank, or when there is no such
 *         NCCL, or an entry is missing in it, or it is older than 2.20;
 *         GH_ERR_STATE while a pass is open, when graphs of the bank are
 *         recorded, or when it has its ranks already; GH_ERR_CONFIG when a
 *         setting differs, which the text names with the rank; GH_ERR_RANKS
 *         when they do not come within GRAPHHOOKS_TIMEOUT, or NCCL fails;
 *         GH_ERR_NO_DRIVER; GH_ERR_DEVICE; GH_ERR_NO_MEMORY; GH_ERR_INVALID,
 *         GH_ERR_ABI or GH_ERR_UNSUPPORTED for a bad struct.
 * Blocks: until all have called it.  Since: 0.5.
 */
GH_API gh_status gh_ranks_set(gh_session *session, const gh_ranks *ranks,
                              gh_error *err);

/**
 * The bank's communicator is the host's again: its graphs are destroyed, and
 * it is as it was before gh_ranks_set(): what is recorded then is recorded
 * without asking.  All ranks of the bank call it.
 *
 * @return GH_OK, also for a bank without ranks or of one, which keeps its
 *         graphs; GH_ERR_NOT_FOUND for an unknown bank; GH_ERR_STATE while a
 *         pass is open; GH_ERR_RANKS when what is in flight does not end
 *         within GRAPHHOOKS_TIMEOUT; GH_ERR_INVALID.
 * Blocks: until the session's graphs have finished.  Since: 0.5.
 */
GH_API gh_status gh_ranks_clear(gh_session *session, uint32_t bank,
                                gh_error *err);

/**
 * Wait for a stream, and for other ranks no longer than GRAPHHOOKS_TIMEOUT: in
 * the place of cuStreamSynchronize, once a step or oftener, where a rank that
 * has died would be waited for for ever.
 *
 * @param stream  of the session's context; NULL: the legacy default one
 *
 * @return GH_OK: all that was issued there has ended; GH_ERR_RANKS when it has
 *         not in time, or a communicator has failed; GH_ERR_STATE when the
 *         stream is being captured, or a pass is open; GH_ERR_INVALID;
 *         GH_ERR_DEVICE; GH_ERR_NO_DRIVER.
 * Blocks: until the stream has come so far.  Since: 0.5.
 */
GH_API gh_status gh_ranks_wait(gh_session *session, void *stream,
                               gh_error *err);

/**
 * End at once what waits for other ranks: the host has heard that one of them
 * has failed, from its launcher or a watchdog of its own, and need not wait
 * for GRAPHHOOKS_TIMEOUT.  An open pass is cancelled, graphs are destroyed, and
 * communicators are aborted as where ranks part; every pass is refused from
 * then on, and the session closes.  Done on this rank alone: the others call
 * it too, or learn of it by NCCL or by waiting.
 *
 * A host that aborts a communicator itself while graphs hold its operations
 * waits in NCCL for good: call this before.
 *
 * @param why  a sentence for the log and for GH_ERR_RANKS, read during the
 *             call only; NULL: "the host has given the ranks up"
 *
 * @return GH_OK, also when the ranks have parted before; GH_ERR_STATE when no
 *         bank has ranks, or inside a host service; GH_ERR_INVALID.
 * Blocks: until the communicators are aborted.  Since: 0.5.
 */
GH_API gh_status gh_ranks_abort(gh_session *session, const char *why,
                                gh_error *err);

GH_END_DECLS

#endif
