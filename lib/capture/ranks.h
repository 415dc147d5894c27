/*
 * ranks.h - the ranks of a session's banks: their beginning and their end.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_RANKS_H
#define GH_CAPTURE_RANKS_H

#include "capture/state.h"

/* The ranks of a bank can go on no further: says so, with rank and pass,
 * destroys all graphs and ends what waits for other ranks.  The status is
 * GH_ERR_RANKS, the text what was said. */
gh_status gh_ranks_part(struct gh_capture *c, const struct gh_bank *bank,
                        const char *why, gh_error *err);
/* The same sentence again, of a session whose ranks have parted. */
gh_status gh_ranks_refuse(const struct gh_capture *c, gh_error *err);

/* At the end of a step: whether NCCL has found anything.  Never waits. */
gh_status gh_ranks_look(struct gh_capture *c, gh_error *err);

/* Waits for the session's streams as long as other ranks are waited for.  The
 * last thing before its graphs are destroyed. */
void gh_ranks_rest(struct gh_capture *c);
/* No graph is left. */
void gh_ranks_close(struct gh_capture *c);

#endif
