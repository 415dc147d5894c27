/*
 * agree.h - where the ranks of a bank could part, and what they ask then.
 *
 * All ranks ask at the same places: when they record a pass, when they end its
 * recording, and when they compare it.  A rank that cannot replay asks too, and
 * gets an answer only if the others cannot replay either.  A replay calls
 * nothing of this.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_AGREE_H
#define GH_CAPTURE_AGREE_H

#include "capture/state.h"

/* Whether the open pass is in a bank with ranks, and the other ranks make it
 * too. */
static inline bool gh_agree_is_due(const struct gh_capture *c)
{
    return c->open.bank->comm != NULL &&
           (c->open.flags & GH_PASS_LOCAL) == 0;
}

/*
 * Each of these is called where gh_agree_is_due(), and fails with GH_ERR_RANKS
 * alone: the ranks have parted, and no graph is left.
 */

/* Before the capture begins: what is asked next comes after the stream's
 * work. */
gh_status gh_agree_follow(struct gh_capture *c, gh_error *err);
/* The capture of the open pass has begun, or has failed to.  Where one rank
 * does not record, none does: sets the action and the reason. */
gh_status gh_agree_to_record(struct gh_capture *c, gh_error *err);
/* The recording has ended, and nothing has run.  GH_RERUN: it was whole on this
 * rank, but not on another, and the entry is given up. */
gh_status gh_agree_on_recording(struct gh_capture *c, gh_error *err);
/* The pass has a graph, and open.reason keeps this rank from launching it. */
gh_status gh_agree_to_leave(struct gh_capture *c, gh_error *err);
/* The pass was compared.  Where it differs on one rank, it is eager on all. */
gh_status gh_agree_on_check(struct gh_capture *c, gh_error *err);
/* The host gives a recording up, so all ranks do. */
void gh_agree_to_cancel(struct gh_capture *c);

/* GRAPHHOOKS_CHECK=ranks: the action is decided, and nothing has run.
 * *alike_p: whether it is the same on all ranks. */
gh_status gh_agree_on_pass(struct gh_capture *c, gh_action action,
                           bool *alike_p, gh_error *err);

#endif
