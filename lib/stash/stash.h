/*
 * stash.h - pages on the device for rows that are kept until the backward.
 *
 * lib/abi is the caller, and has checked the host's arguments.  The context
 * must be current in every call.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_STASH_STASH_H
#define GH_STASH_STASH_H

#include <graphhooks/stash.h>

#include "base/log.h"
#include "device/device.h"

struct gh_stash_options {
    uint32_t timeout_s;
    struct gh_log log;
};

/* Opens a stash; all ranks must call it.  The stash has the device from then
 * on, if it opens. */
gh_status gh_stash_open(struct gh_device *dev, const gh_stash_desc *desc,
                        const struct gh_stash_options *options,
                        gh_stash **stash_p, gh_error *err);
/* Closes it and its device; all ranks must call it. */
void gh_stash_close(gh_stash *stash);
/* Whether its gather is not called just now. */
bool gh_stash_is_free(const gh_stash *stash);
const struct gh_log *gh_stash_log(const gh_stash *stash);
struct gh_device *gh_stash_device(const gh_stash *stash);
void gh_stash_count(const gh_stash *stash, gh_stash_stats *stats);

gh_status gh_stash_make_entry(gh_stash *stash, uint32_t max_rows,
                              uint32_t *entry_p, gh_error *err);
gh_status gh_stash_make_pages(gh_stash *stash, uint64_t bytes, uint32_t percent,
                              gh_error *err);
gh_status gh_stash_issue(gh_stash *stash, const gh_stash_op *op, bool pushes,
                         gh_error *err);
/* Gives the pages' memory back, once the stream is idle, and takes it. */
gh_status gh_stash_give(gh_stash *stash, void *stream, gh_error *err);
gh_status gh_stash_take(gh_stash *stash, gh_error *err);
bool gh_stash_is_suspended(const gh_stash *stash);
gh_status gh_stash_ask(gh_stash *stash, void *stream, uint32_t *rerun_p,
                       gh_error *err);

#endif
