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
#endif
