/*
 * replay.h - launches a ready entry.
 *
 * The step path, inline: no allocation, no lock, no search, no log.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_REPLAY_H
#define GH_CAPTURE_REPLAY_H

#include "capture/private.h"

enum gh_fit {
    GH_FIT_YES,
    GH_FIT_MOVED, /* a chained input is elsewhere: record it again, copied */
    GH_FIT_NO     /* the graph cannot serve these inputs */
};

/* On GH_FIT_YES the copies that the launch needs are prepared. */
static inline enum gh_fit gh_replay_fits(struct gh_entry *entry,
                                         const gh_pass *pass)
{
    enum gh_fit fit = GH_FIT_YES;
    uint32_t n = 0;

    if (pass->n_inputs != entry->n_inputs) {
        return GH_FIT_NO;
    }
    for (uint32_t i = 0; i < entry->n_inputs; i++) {
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

static inline gh_status gh_replay(struct gh_capture *c, struct gh_entry *entry,
                                  void *stream, gh_error *err)
{
    gh_status status;

    if (entry->n_pending != 0) {
        status = gh_replay_copy_inputs(c, entry, stream, err);
        if (status != GH_OK) {
            return status;
        }
    }
    status = gh_device_launch(c->dev, entry->exec, stream, err);
    c->stats.replays += status == GH_OK;
    return status;
}

#endif
