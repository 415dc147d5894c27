/*
 * offloads.h - what a pass offloads: the open one, and one that is launched.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_OFFLOADS_H
#define GH_CAPTURE_OFFLOADS_H

#include "capture/check.h"
#include "capture/state.h"

/* A pass begins: commits that wait for a flush wait no longer when their
 * forward is over. */
gh_status gh_offloads_begin(struct gh_capture *c, const gh_pass *pass,
                            gh_error *err);

static inline gh_status gh_offloads_turn(struct gh_capture *c,
                                         const gh_pass *pass, gh_error *err)
{
    if ((pass->flags & GH_PASS_FORWARD_ONLY) == 0 && c->paused == 0) {
        c->offload->trains = true;
    }
    return c->offload->first_queued == NULL ? GH_OK
                                            : gh_offloads_begin(c, pass, err);
}

/* A launch that GRAPHHOOKS_CHECK compares: the eager pass moves what is
 * offloaded, or, when none follows, the launch. */
void gh_offloads_after_check(struct gh_capture *c, struct gh_entry *entry,
                             enum gh_check_begun begun);

/* The open pass is given up. */
void gh_offloads_cancel(struct gh_capture *c);
/* Its recording was, and it is not to be repeated as one. */
void gh_offloads_drop(struct gh_capture *c);

/* offloads.c */
void gh_offloads_tell_host(struct gh_capture *c);

/* Copies out of the host's own memory that have ended: the host hears of them.
 * No pass of the library's is being recorded. */
static inline void gh_offloads_tell(struct gh_capture *c)
{
    if (c->offload != NULL && (c->offload->loans.leaving.first != NULL ||
                               c->offload->loans.ended.first != NULL)) {
        gh_offloads_tell_host(c);
    }
}
/* The session closes: of all of them, once they have. */
void gh_offloads_rest(struct gh_capture *c);

#endif
