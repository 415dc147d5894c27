/*
 * offloads.h - what a pass offloads: the open one, and one that is launched.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_OFFLOADS_H
#define GH_CAPTURE_OFFLOADS_H

#include "capture/check.h"
#include "offload/offload.h"
#include "pass/pass.h"

/* A pass begins: issues the commits that are queued, unless their forward goes
 * on or gh_capture_hold() keeps them. */
gh_status gh_offloads_begin(struct gh_capture *c, const gh_pass *pass,
                            gh_error *err);

static inline gh_status gh_offloads_turn(struct gh_capture *c,
                                         const gh_pass *pass, gh_error *err)
{
    if ((pass->flags & GH_PASS_FORWARD_ONLY) == 0 && c->host.paused == 0) {
        c->offload->trains = true;
    }
    return c->offload->first_queued == NULL ? GH_OK
                                            : gh_offloads_begin(c, pass, err);
}

/* After a launch that GRAPHHOOKS_CHECK compares: if an eager pass follows, that
 * one moves what is offloaded, and else the launch does. */
void gh_offloads_after_check(struct gh_capture *c, struct gh_entry *entry,
                             enum gh_check_begun begun);

/* The open pass is given up. */
void gh_offloads_cancel(struct gh_capture *c);
/* The open pass has no recording after all: ends the loans of that
 * recording. */
void gh_offloads_drop(struct gh_capture *c);

/* offloads.c */
void gh_offloads_tell_host(struct gh_capture *c);

/* Tells the host which copies out of its own memory have ended.  The library
 * records no pass meanwhile. */
static inline void gh_offloads_tell(struct gh_capture *c)
{
    if (c->offload != NULL && (c->offload->loans.leaving.first != NULL ||
                               c->offload->loans.ended.first != NULL)) {
        gh_offloads_tell_host(c);
    }
}
/* The session closes: waits for all copies, and tells the host. */
void gh_offloads_rest(struct gh_capture *c);

#endif
