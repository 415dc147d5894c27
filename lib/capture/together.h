/*
 * together.h - what the ranks of a session settle between its passes.
 *
 * lib/schedule asks.  Those who are asked are the ranks of the bank that has
 * the most of them: every rank that exchanges tokens is one.  A rank that
 * cannot be heard any more has parted, as in a pass; a rank that has nothing to
 * say says so, and all take what needs no agreement.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_TOGETHER_H
#define GH_CAPTURE_TOGETHER_H

#include "capture/capture.h"

/* Whether a bank has ranks. */
bool gh_together_can(const struct gh_capture *capture);
/* Whether runs are compared: GRAPHHOOKS_CHECK=ranks. */
bool gh_together_compares(const struct gh_capture *capture);

/*
 * Makes each of `n` times the largest on any rank.  It comes after what has
 * been issued on the stream, and waits for all ranks.
 *
 * ns      NULL: this rank has none
 * lacks_p the first rank that has none, and nothing was changed; GH_NO_RANK:
 *         all have some
 *
 * GH_ERR_RANKS: they have parted.
 */
#define GH_NO_RANK UINT32_MAX
gh_status gh_together_largest(struct gh_capture *capture, void *stream,
                              double *ns, uint32_t n, uint32_t *lacks_p,
                              gh_error *err);

/* A run that is about to begin.  A chunk is UINT32_MAX where there is none. */
struct gh_together_run {
    uint32_t forward, backward;
    bool early;
    uint64_t order; /* a hash of it */
};
/* Compares it: *alike_p.  GH_ERR_RANKS: the chunks are others, and the ranks
 * have parted. */
gh_status gh_together_compare(struct gh_capture *capture, void *stream,
                              const struct gh_together_run *run, bool *alike_p,
                              gh_error *err);

#endif
