/*
 * replay.c - brings inputs that have moved to where a graph reads them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "capture/private.h"

gh_status gh_replay_copy_inputs(struct gh_capture *c, struct gh_entry *entry,
                                void *stream, gh_error *err)
{
    uint64_t bytes = 0;
    gh_status status;

    if (entry->n_pending == 0) {
        return GH_OK;
    }
    status = gh_device_copy_launch(c->dev, entry->copy, entry->n_pending,
                                   stream, &bytes, err);
    if (status == GH_OK) {
        c->stats.copies++;
        c->stats.copied_bytes += bytes;
    }
    return status;
}
