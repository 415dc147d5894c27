/*
 * ranks.h - the ranks of a session's banks: their beginning and their end.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_RANKS_RANKS_H
#define GH_RANKS_RANKS_H

#include <graphhooks/ranks.h>

struct gh_bank;
struct gh_capture;

/* Gives a bank its ranks.  `ranks` has a communicator or a gather. */
gh_status gh_ranks_open(struct gh_capture *c, const gh_ranks *ranks,
                        gh_error *err);
/* The bank has no ranks any more, nor graphs. */
gh_status gh_ranks_leave(struct gh_capture *c, uint32_t bank, gh_error *err);

/* The ranks of a bank cannot go on together.  Says so, with rank and pass,
 * destroys all graphs, and ends what waits for other ranks.  Returns
 * GH_ERR_RANKS with the same text. */
gh_status gh_ranks_lost(struct gh_capture *c, const struct gh_bank *bank,
                        const char *why, gh_error *err);
/* Its two halves: no pass is recorded nor replayed any more, and graphs and
 * communicators end. */
void gh_ranks_note_lost(struct gh_capture *c, const struct gh_bank *bank,
                        const char *why);
void gh_ranks_abort_all(struct gh_capture *c);
/* The same error again, for a session whose ranks are lost. */
gh_status gh_ranks_refuse(const struct gh_capture *c, gh_error *err);

/* Which of a bank's ranks this one is; of 0, if it has none. */
struct gh_rank_of {
    uint32_t rank, n;
};
struct gh_rank_of gh_ranks_which(const struct gh_bank *bank);

/* Asks NCCL, at the end of a step, whether it has found an error.  Never
 * waits. */
gh_status gh_ranks_look(struct gh_capture *c, gh_error *err);

/* Waits for a stream, for a host that is capturing none. */
gh_status gh_ranks_wait_stream(struct gh_capture *c, void *stream,
                               gh_error *err);
/* Waits for a stream, and for other ranks in it at most GRAPHHOOKS_TIMEOUT.
 * Where no bank has ranks, it does not wait. */
gh_status gh_ranks_await(struct gh_capture *c, void *stream, gh_error *err);
/* The same for all streams of the session, a struct gh_capture.  Whoever has
 * not come is given up. */
void gh_ranks_rest(void *capture);
/* Ends the communicators.  No graph is left. */
void gh_ranks_close(struct gh_capture *c);

#endif
