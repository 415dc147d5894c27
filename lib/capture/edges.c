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

#include <stdlib.h>

gh_status gh_edges_know(struct gh_capture *c, void *stream, gh_error *err)
{
    gh_status status;
    void **streams;

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
    streams = realloc(c->streams, (c->n_streams + 1) * sizeof(*streams));
    if (streams == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a stream");
    }
    c->streams = streams;
    c->streams[c->n_streams++] = stream;
    c->last_stream = stream;
    return GH_OK;
}

static gh_status make_event(struct gh_capture *c, struct gh_slot *slot,
                            gh_error *err)
{
    void *previous;
    gh_status status;

    if (slot->event != NULL) {
        return GH_OK;
    }
    /* An event is of the context that is current when it is made. */
    previous = gh_device_enter(c->dev);
    status = gh_device_event_create(c->dev, &slot->event, err);
    gh_device_leave(c->dev, previous);
    return status;
}

static gh_status mark(struct gh_capture *c, struct gh_slot *slot, gh_error *err)
{
    gh_status status = make_event(c, slot, err);

    if (status != GH_OK) {
        return status;
    }
    return gh_device_event_record(c->dev, slot->event, slot->stream, err);
}

static gh_status wait_for(struct gh_capture *c, struct gh_slot *slot,
                          void *stream, gh_error *err)
{
    gh_status status = GH_OK;

    /* Given back before a second stream was seen: mark the order now, which
     * covers more than is needed, this once. */
    if (!slot->marked) {
        status = mark(c, slot, err);
    }
    if (status == GH_OK) {
        status = gh_device_event_wait(c->dev, stream, slot->event, err);
    }
    return status;
}

/*
 * Work that the host is capturing has not run, and runs when the host says
 * so: there is no order to keep, and an event would tie the two streams into
 * one capture.  The slot then stays with who had it.
 */
gh_status gh_edges_move(struct gh_capture *c, struct gh_slot *slot,
                        void *stream, bool fresh, gh_error *err)
{
    gh_status status = GH_OK;
    void *previous;

    if (c->dev != NULL && gh_device_host_captures(c->dev, stream)) {
        return GH_OK;
    }
    if (c->dev != NULL && fresh && slot->stream != GH_NO_STREAM &&
        (slot->marked || !gh_device_host_captures(c->dev, slot->stream))) {
        previous = gh_device_enter(c->dev);
        status = wait_for(c, slot, stream, err);
        if (status != GH_OK) {
            /* No event to be had: the host's thread can wait instead. */
            status = gh_device_stream_wait(c->dev, slot->stream, err);
        }
        gh_device_leave(c->dev, previous);
    }
    if (status == GH_OK) {
        slot->stream = stream;
        slot->marked = false;
    }
    return status;
}

void gh_edges_give_back(struct gh_capture *c, struct gh_slot *slot,
                        void *stream)
{
    if (c->n_streams < 2 || c->dev == NULL || slot->stream != stream ||
        gh_device_host_captures(c->dev, stream)) {
        return;
    }
    slot->marked = mark(c, slot, NULL) == GH_OK;
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
