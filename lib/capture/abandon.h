/*
 * abandon.h - a recording ends without a graph, and an entry is eager for good.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_ABANDON_H
#define GH_CAPTURE_ABANDON_H

#include <graphhooks/session.h>

#include <stdbool.h>

struct gh_capture;
struct gh_entry;

/* The entry runs eagerly from now on; frees what it holds.  The end of the
 * step says so. */
void gh_entry_give_up(struct gh_capture *c, struct gh_entry *entry,
                      gh_reason reason, const char *text);

/* The host gives the pass up.  It is recorded another time, unless the capture
 * is already lost: what has failed then would fail again. */
void gh_record_drop(struct gh_capture *c);

/* The capture has failed, and was `spoilt` or not. */
void gh_record_fail(struct gh_capture *c, struct gh_entry *entry, bool spoilt,
                    const char *text);
/* Ends the capture of the open pass. */
gh_status gh_record_end_capture(struct gh_capture *c, struct gh_entry *entry,
                                void **graph_p, uint64_t *n_nodes_p,
                                gh_error *err);

#endif
