/*
 * edges.c - the order between the streams that share a slot's buffers.
 *
 * Within one microbatch the host orders its own passes, as it must without
 * this library.  Which microbatch follows which in a slot is the library's
 * choice, so that order is its to keep: the first pass on a stream other
 * than the one the slot was given back on waits for what was issued there.
 * A host with one stream never gets here past the first comparison.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "capture/private.h"

#include "base/error.h"

gh_status gh_edges_know(struct gh_capture *c, void *stream, gh_error *err)
{
    gh_status status;

    for (uint32_t i = 0; i < c->n_streams; i++) {
        if (c->streams[i] == stream) {
            c->last_stream = stream;
            return GH_OK;
        }
    }

    status = gh_device_check_stream(c->dev, stream, err);
    if (status != GH_OK) {
        return status;
    }
    if (c->n_streams < GH_KNOWN_STREAMS) {
        c->streams[c->n_streams++] = stream;
    } else {
        c->streams[c->next_stream++ % GH_KNOWN_STREAMS] = stream;
    }
    c->last_stream = stream;
    return GH_OK;
}

static gh_status wait_for(struct gh_capture *c, struct gh_slot *slot,
                          void *stream, gh_error *err)
{
    gh_status status;

    /* Given back before a second stream was seen: mark the order now, which
     * covers more than is needed, this once. */
    if (!slot->marked) {
        if (slot->event == NULL) {
            status = gh_device_event_create(c->dev, &slot->event, err);
            if (status != GH_OK) {
                return status;
            }
        }
        status = gh_device_event_record(c->dev, slot->event, slot->stream, err);
        if (status != GH_OK) {
            return status;
        }
    }
    return gh_device_event_wait(c->dev, stream, slot->event, err);
}

gh_status gh_edges_take(struct gh_capture *c, struct gh_slot *slot,
                        void *stream, gh_error *err)
{
    gh_status status;
    void *previous;

    if (c->dev == NULL) {
        return GH_OK;
    }
    /* A wait from inside the host's own capture would break it. */
    if (gh_device_is_capturing(c->dev, stream)) {
        return GH_OK;
    }

    previous = gh_device_enter(c->dev);
    status = wait_for(c, slot, stream, err);
    if (status != GH_OK) {
        /* No event to be had: the host's thread can wait instead. */
        status = gh_device_stream_wait(c->dev, slot->stream, err);
    }
    gh_device_leave(c->dev, previous);
    return status;
}

void gh_edges_give_back(struct gh_capture *c, struct gh_slot *slot,
                        void *stream)
{
    if (c->n_streams < 2 || c->dev == NULL) {
        return;
    }
    if (slot->event == NULL &&
        gh_device_event_create(c->dev, &slot->event, NULL) != GH_OK) {
        return;
    }
    slot->marked =
        gh_device_event_record(c->dev, slot->event, stream, NULL) == GH_OK;
}

void gh_edges_quiesce(struct gh_capture *c)
{
    for (uint32_t i = 0; i < c->n_streams; i++) {
        if (!gh_device_is_capturing(c->dev, c->streams[i])) {
            gh_device_stream_wait(c->dev, c->streams[i], NULL);
        }
    }
}

void gh_edges_destroy(struct gh_capture *c)
{
    for (uint32_t chunk = 0; chunk < c->plan->n_chunks; chunk++) {
        for (uint32_t i = 0; i < c->options.max_slots; i++) {
            struct gh_slot *slot = gh_slots_at(c->slots, chunk, i);

            gh_device_event_destroy(c->dev, slot->event);
            slot->event = NULL;
        }
    }
}
