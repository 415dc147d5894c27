/*
 * replay.c - brings inputs that have moved to where a graph reads them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "capture/replay.h"

enum gh_fit gh_replay_match(struct gh_entry *entry, const gh_pass *pass,
                            uint32_t first)
{
    enum gh_fit fit = GH_FIT_YES;
    uint32_t n = 0;

    for (uint32_t i = first; i < entry->n_inputs; i++) {
        const gh_buffer *given = &pass->inputs[i];
        const gh_buffer *wanted = &entry->inputs[i];

        if (given->bytes != wanted->bytes) {
            return GH_FIT_NO;
        }
        /* True also of a host that wrote to the static buffer itself. */
        if (given->address == wanted->address || given->bytes == 0) {
            continue;
        }
        if (entry->kinds[i] == GH_INPUT_COPIED) {
            gh_device_copy_set(entry->copy, n++, wanted->address,
                               given->address, given->bytes);
        } else if (entry->kinds[i] == GH_INPUT_CHAINED) {
            fit = GH_FIT_MOVED;
        } else {
            return GH_FIT_NO;
        }
    }
    entry->n_pending = n;
    return fit;
}

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
        c->stats.copies += (entry->n_pending + GH_COPIES_A_LAUNCH - 1) /
                           GH_COPIES_A_LAUNCH;
        c->stats.copied_bytes += bytes;
    }
    return status;
}
