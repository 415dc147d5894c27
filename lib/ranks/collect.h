/*
 * collect.h - what the ranks agree on between passes, for lib/schedule.
 *
 * The ranks are those of the bank that has the most: every rank that exchanges
 * tokens is among them.  If a rank does not answer, the ranks part, as in a
 * pass.  If a rank has no times it says so, and all keep the fixed order.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_RANKS_COLLECT_H
#define GH_RANKS_COLLECT_H

#include <graphhooks/layer.h>

#include <stdbool.h>

struct gh_capture;

/* Whether a bank has ranks. */
bool gh_together_can(const struct gh_capture *capture);
/* Whether runs are compared: GRAPHHOOKS_CHECK=ranks. */
bool gh_together_compares(const struct gh_capture *capture);

/*
 * Replaces each of `n` numbers by its maximum over all ranks.  Ordered after the
 * work on the stream; waits for all ranks.
 *
 * ns      n times; NULL: this rank has none
 * lacks_p GH_NO_RANK; or the first rank without times, and nothing was changed
 *
 * GH_ERR_RANKS: the ranks have parted.
 */
#define GH_NO_RANK UINT32_MAX
gh_status gh_together_largest(struct gh_capture *capture, void *stream,
                              double *ns, uint32_t n, uint32_t *lacks_p,
                              gh_error *err);

/* A run that is about to begin. */
struct gh_together_run {
    uint32_t forward, backward; /* chunks; UINT32_MAX: none */
    bool early;
    uint64_t order; /* a hash of the sequence */
};
/* Compares the run with those of the other ranks; *alike_p: the sequences are
 * equal.  GH_ERR_RANKS: the chunks differ, and the ranks have parted. */
gh_status gh_together_compare(struct gh_capture *capture, void *stream,
                              const struct gh_together_run *run, bool *alike_p,
                              gh_error *err);

#endif
