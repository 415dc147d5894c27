/*
 * offloads.h - what a pass offloads: the open one, and one that is launched.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_OFFLOADS_H
#define GH_CAPTURE_OFFLOADS_H

#include <graphhooks/layer.h>

#include "base/path.h"
#include "capture/check.h"

struct gh_capture;
struct gh_entry;

/* A pass begins: tells the host what has ended, and issues the commits that are
 * queued, unless their forward goes on or gh_capture_hold() keeps them. */
GH_ASIDE gh_status gh_offloads_begin(struct gh_capture *c, const gh_pass *pass,
                                     gh_error *err);

/* After a launch that GRAPHHOOKS_CHECK compares: if an eager pass follows, that
 * one moves what is offloaded, and else the launch does. */
void gh_offloads_after_check(struct gh_capture *c, struct gh_entry *entry,
                             enum gh_check_begun begun);

/* The open pass is given up. */
void gh_offloads_cancel(struct gh_capture *c);
/* The open pass has no recording after all: ends the loans of that
 * recording. */
void gh_offloads_drop(struct gh_capture *c);

/* Tells the host which copies out of its own memory have ended.  The library
 * records no pass meanwhile. */
GH_ASIDE void gh_offloads_tell(struct gh_capture *c);
/* The session closes: waits for all copies, and tells the host. */
void gh_offloads_rest(struct gh_capture *c);

#endif
