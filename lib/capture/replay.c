/*
 * replay.c - launches a ready entry.
 *
 * The step path: no allocation, no lock, no search, no log.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "capture/private.h"

enum gh_fit gh_replay_fits(const struct gh_entry *entry, const gh_pass *pass)
{
    if (pass->n_inputs != entry->n_inputs) {
        return GH_FIT_NO;
    }
    for (uint32_t i = 0; i < entry->n_inputs; i++) {
        const gh_buffer *given = &pass->inputs[i];
        const gh_buffer *wanted = &entry->inputs[i];

        if (given->bytes != wanted->bytes) {
            return GH_FIT_NO;
        }
        if (given->address == wanted->address ||
            entry->kinds[i] == GH_INPUT_COPIED) {
            continue;
        }
        return entry->kinds[i] == GH_INPUT_CHAINED ? GH_FIT_MOVED : GH_FIT_NO;
    }
    return GH_FIT_YES;
}

gh_status gh_replay_copy_inputs(struct gh_capture *c, struct gh_entry *entry,
                                const gh_pass *pass, gh_error *err)
{
    uint64_t bytes = 0;
    uint32_t n = 0;
    gh_status status;

    if (entry->n_copies == 0) {
        return GH_OK;
    }
    for (uint32_t i = 0; i < entry->n_inputs; i++) {
        const gh_buffer *to = &entry->inputs[i];
        const void *from = pass->inputs[i].address;

        /* A host that wrote to the static buffer itself has saved a copy. */
        if (entry->kinds[i] == GH_INPUT_COPIED && from != to->address) {
            gh_device_copy_set(entry->copy, n++, to->address, from,
                               to->bytes);
            bytes += to->bytes;
        }
    }
    if (n == 0) {
        return GH_OK;
    }

    status = gh_device_copy_launch(c->dev, entry->copy, n, pass->stream, err);
    if (status == GH_OK) {
        c->stats.copies++;
        c->stats.copied_bytes += bytes;
    }
    return status;
}

gh_status gh_replay(struct gh_capture *c, struct gh_entry *entry,
                    const gh_pass *pass, gh_error *err)
{
    gh_status status;

    status = gh_replay_copy_inputs(c, entry, pass, err);
    if (status != GH_OK) {
        return status;
    }
    status = gh_device_launch(c->dev, entry->exec, pass->stream, err);
    if (status == GH_OK) {
        c->stats.replays++;
    }
    return status;
}
