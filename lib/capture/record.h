/*
 * record.h - a pass becomes an entry with a graph.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_RECORD_H
#define GH_CAPTURE_RECORD_H

#include "bank/entry.h"

struct gh_capture;

/* False: the pass runs eagerly, and entry->reason says why. */
bool gh_record_begin(struct gh_capture *c, const gh_pass *pass,
                     struct gh_entry *entry);
gh_status gh_record_end(struct gh_capture *c, const gh_pass *pass,
                        gh_error *err);
/* The host gives the pass up.  It is recorded another time, unless the capture
 * is already lost: what has failed then would fail again. */
void gh_record_drop(struct gh_capture *c);

/* The entry runs eagerly from now on; frees what it holds.  The end of the
 * step says so. */
void gh_entry_give_up(struct gh_capture *c, struct gh_entry *entry,
                      gh_reason reason, const char *text);

#endif
