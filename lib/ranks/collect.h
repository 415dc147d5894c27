/*
 * collect.h - what the ranks agree on between passes, for lib/schedule.
 *
 * The ranks are those of the bank that has the most: every rank that exchanges
 * tokens is among them.  If a rank does not answer, the ranks are lost, as in
 * a pass.  If a rank has no times it says so, and all keep the fixed order.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_RANKS_COLLECT_H
#define GH_RANKS_COLLECT_H

#include <graphhooks/layer.h>

#include <stdbool.h>

struct gh_capture;

/* Whether a bank has ranks. */
bool gh_rank_collect_can(const struct gh_capture *capture);
/* Whether runs are compared: GRAPHHOOKS_CHECK=ranks. */
bool gh_rank_collect_compares(const struct gh_capture *capture);

/*
 * Replaces each of `n` numbers by its maximum over all ranks.  Ordered after
 * the work on the stream; waits for all ranks.
 *
 * ns      n times; NULL: this rank has none
 * lacks_p GH_NO_RANK; or the first rank without times, and nothing was changed
 *
 * GH_ERR_RANKS: the ranks are lost.
 */
#define GH_NO_RANK UINT32_MAX
gh_status gh_rank_collect_largest(struct gh_capture *capture, void *stream,
                                  double *ns, uint32_t n, uint32_t *lacks_p,
                                  gh_error *err);

/*
 * Meets the other ranks where all suspend their sessions, or resume them.
 *
 * failed    this rank cannot
 * failed_p  GH_NO_RANK; or the first rank that cannot
 *
 * GH_ERR_RANKS: the ranks are lost.  Without ranks it does nothing.
 */
gh_status gh_rank_collect_rest(struct gh_capture *capture, bool resumes,
                               bool failed, uint32_t *failed_p, gh_error *err);

/* A run that is about to begin. */
struct gh_rank_run {
    uint32_t forward, backward; /* chunks; UINT32_MAX: none */
    bool early;
    uint64_t order; /* a hash of the sequence */
};
/* Compares the run with those of the other ranks; *alike_p: the sequences are
 * equal.  GH_ERR_RANKS: the chunks differ, and the ranks are lost. */
gh_status gh_rank_collect_run(struct gh_capture *capture, void *stream,
                              const struct gh_rank_run *run, bool *alike_p,
                              gh_error *err);

#endif
