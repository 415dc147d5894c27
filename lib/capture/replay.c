/*
 * replay.c - brings inputs that have moved to where a graph reads them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "capture/replay.h"

/* Whether the graph can read as many bytes.  An input has to have as many as it
 * had in the recording.  One with the same capacity as then may have fewer. */
static inline bool has_room(const struct gh_entry *entry, const gh_pass *pass,
                            uint32_t i)
{
    const uint64_t given = pass->inputs[i].bytes;
    const uint64_t wanted = entry->inputs[i].bytes;

    if (entry->filled == NULL || entry->filled[i] == GH_ALL_FILLED) {
        return given == wanted;
    }
    return given <= wanted && pass->capacities != NULL &&
           pass->capacities[i] == wanted;
}

/* Notes how far the input is filled.  If the host has written to the buffer
 * itself, it may have filled all of it. */
static void note_filled(struct gh_entry *entry, uint32_t i,
                        const gh_buffer *given)
{
    uint64_t *filled = entry->filled, *next = entry->filled + entry->n_inputs;

    if (filled[i] == GH_ALL_FILLED) {
        return;
    }
    next[i] = given->bytes;
    if (given->address == entry->inputs[i].address) {
        filled[i] = entry->inputs[i].bytes;
    }
}

/* Whether the input is read in place and is shorter than the graph expects.
 * The bytes behind it belong to the host or to another entry, so they cannot be
 * zeroed. */
static inline bool lacks_zeros(const struct gh_entry *entry,
                               const gh_pass *pass, uint32_t i)
{
    return entry->kinds[i] != GH_INPUT_COPIED &&
           pass->inputs[i].bytes < entry->inputs[i].bytes;
}

enum gh_fit gh_replay_match(struct gh_entry *entry, const gh_pass *pass,
                            uint32_t first)
{
    enum gh_fit fit = GH_FIT_YES;
    uint32_t n = 0;

    for (uint32_t i = first; i < entry->n_inputs; i++) {
        const gh_buffer *given = &pass->inputs[i];
        const gh_buffer *wanted = &entry->inputs[i];

        if (!has_room(entry, pass, i)) {
            return GH_FIT_NO;
        }
        if (entry->filled != NULL) {
            note_filled(entry, i, given);
        }
        if (lacks_zeros(entry, pass, i)) {
            if (entry->kinds[i] == GH_INPUT_STATIC) {
                return GH_FIT_NO;
            }
            fit = GH_FIT_MOVED;
            continue;
        }
        /* This is so too if the host has written to the static buffer
         * itself. */
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
    entry->n_pending = n + (entry->filled != NULL);
    return fit;
}

/* Zeroes what earlier passes have left behind the inputs of this one.  That
 * reaches as far as this entry has filled its inputs, or to their ends if
 * another entry has written to the block since. */
static gh_status zero_tails(struct gh_capture *c, struct gh_entry *entry,
                            void *stream, gh_error *err)
{
    uint64_t *filled = entry->filled, *next = entry->filled + entry->n_inputs;
    const bool strange =
        entry->block != NULL && entry->block->writer != entry;

    for (uint32_t i = 0; i < entry->n_inputs; i++) {
        const gh_buffer *input = &entry->inputs[i];
        gh_status status = GH_OK;
        uint64_t end;

        if (filled[i] == GH_ALL_FILLED || entry->kinds[i] != GH_INPUT_COPIED) {
            continue;
        }
        end = strange ? input->bytes : filled[i];
        if (next[i] < end) {
            status = gh_device_zero(c->dev, (char *)input->address + next[i],
                                    end - next[i], stream, err);
        }
        if (status != GH_OK) {
            return status;
        }
        filled[i] = next[i];
    }
    return GH_OK;
}

gh_status gh_replay_copy_inputs(struct gh_capture *c, struct gh_entry *entry,
                                void *stream, gh_error *err)
{
    uint64_t bytes = 0;
    uint32_t n;
    gh_status status;

    if (entry->n_pending == 0) {
        return GH_OK;
    }
    if (entry->filled != NULL) {
        status = zero_tails(c, entry, stream, err);
        if (status != GH_OK) {
            return status;
        }
    }
    if (entry->block != NULL) {
        entry->block->writer = entry;
    }
    n = entry->n_pending - (entry->filled != NULL);
    if (n == 0) {
        return GH_OK;
    }
    status = gh_device_copy_launch(c->dev, entry->copy, n, stream, &bytes,
                                   err);
    if (status == GH_OK) {
        c->counts.stats.copies +=
            (n + GH_COPIES_A_LAUNCH - 1) / GH_COPIES_A_LAUNCH;
        c->counts.stats.copied_bytes += bytes;
    }
    return status;
}
