/*
 * agree.h - where the ranks of a bank could part, and what they ask then.
 *
 * Every rank that is asked at one place is asked there: all record a pass, all
 * end its recording, all compare it.  A rank that cannot replay asks too, and
 * hears of the others only when they cannot either.  Nothing here is on the way
 * of a replay.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_AGREE_H
#define GH_CAPTURE_AGREE_H

#include "capture/state.h"

/* Whether other ranks make the open pass too. */
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
/* The capture of the open pass has begun, or could not.  Where one rank does
 * not record, none does: sets the action and the reason. */
gh_status gh_agree_to_record(struct gh_capture *c, gh_error *err);
/* The recording has ended, and nothing has run.  GH_RERUN: it was whole, and
 * another rank's was not; the entry is given up. */
gh_status gh_agree_on_recording(struct gh_capture *c, gh_error *err);
/* The pass has a graph, and open.reason keeps this rank from launching it. */
gh_status gh_agree_to_leave(struct gh_capture *c, gh_error *err);
/* The pass was compared.  Where it differs on one rank, it is eager on all. */
gh_status gh_agree_on_check(struct gh_capture *c, gh_error *err);
/* The host gives a recording up: so do all. */
void gh_agree_to_cancel(struct gh_capture *c);

/* GRAPHHOOKS_CHECK=ranks: the action is decided, and nothing has run.
 * *alike_p: on all ranks so. */
gh_status gh_agree_on_pass(struct gh_capture *c, gh_action action,
                           bool *alike_p, gh_error *err);

#endif
