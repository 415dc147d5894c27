/*
 * edges.c - the order between the streams that share a slot's buffers.
 *
 * Within one microbatch the host orders its own passes, as it must without
 * this library.  Which microbatch follows which in a slot is the library's
 * choice, so that order is its to keep: the first pass of a flight waits for
 * all streams that the flight before it was on, as a weight gradient on a
 * stream of its own may still read what the next forward overwrites.  A host
 * with one stream never gets here past the first comparison.
 *
 * A stream that the host is capturing cannot be waited for, and without a
 * driver none can: a slot that was last on such a stream is not given to a
 * flight on another.
 *
 * Each slot has an event for each of the first 63 streams of the session;
 * for those past them the host's thread waits.
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
            c->this_stream = i;
            c->last_stream = stream;
            return GH_OK;
        }
    }

    status = c->dev != NULL ? gh_device_check_stream(c->dev, stream, err)
                            : GH_OK;
    if (status != GH_OK) {
        return status;
    }
    streams = realloc(c->streams, (c->n_streams + 1) * sizeof(*streams));
    if (streams == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a stream");
    }
    c->streams = streams;
    c->this_stream = c->n_streams;
    c->streams[c->n_streams++] = stream;
    c->last_stream = stream;
    return GH_OK;
}

/* The bit of a stream in gh_slot.used.  Those past the last share one. */
static uint32_t edge_of(uint32_t stream)
{
    return stream < GH_MAX_EDGES - 1 ? stream : GH_MAX_EDGES - 1;
}

static gh_status make_event(struct gh_capture *c, struct gh_slot *slot,
                            uint32_t edge, gh_error *err)
{
    struct gh_device_before before;
    gh_status status;

    if (slot->events == NULL) {
        slot->events = calloc(GH_MAX_EDGES, sizeof(*slot->events));
        if (slot->events == NULL) {
            return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for events");
        }
    }
    if (slot->events[edge] != NULL) {
        return GH_OK;
    }
    /* An event is of the context that is current when it is made. */
    before = gh_device_enter(c->dev);
    status = gh_device_event_create(c->dev, &slot->events[edge], err);
    gh_device_leave(c->dev, before);
    return status;
}

static gh_status mark(struct gh_capture *c, struct gh_slot *slot, uint32_t edge,
                      gh_error *err)
{
    gh_status status = make_event(c, slot, edge, err);

    if (status != GH_OK) {
        return status;
    }
    return gh_device_event_record(c->dev, slot->events[edge], c->streams[edge],
                                  err);
}

static gh_status wait_for(struct gh_capture *c, struct gh_slot *slot,
                          uint32_t edge, void *stream, gh_error *err)
{
    gh_status status = GH_OK;

    /* Given back before a second stream was seen, or at the end of a step:
     * mark the order now, which covers more than is needed, this once. */
    if ((slot->marked & UINT64_C(1) << edge) == 0) {
        status = mark(c, slot, edge, err);
    }
    if (status == GH_OK) {
        status = gh_device_event_wait(c->dev, stream, slot->events[edge], err);
    }
    return status;
}

/* Whether what is on the stream can be waited for: not without a driver, and
 * not while the host captures it, unless it was marked before. */
static bool is_in_reach(const struct gh_capture *c, const struct gh_slot *slot,
                        uint32_t edge, const void *stream)
{
    if (edge < GH_MAX_EDGES - 1) {
        return c->streams[edge] == stream ||
               (c->dev != NULL &&
                ((slot->marked & UINT64_C(1) << edge) != 0 ||
                 !gh_device_host_captures(c->dev, c->streams[edge])));
    }
    for (uint32_t i = edge; i < c->n_streams; i++) {
        if (c->dev == NULL || gh_device_host_captures(c->dev, c->streams[i])) {
            return false;
        }
    }
    return true;
}

bool gh_edges_reach(const struct gh_capture *c, const struct gh_slot *slot,
                    void *stream)
{
    if (c->dev != NULL && gh_device_host_captures(c->dev, stream)) {
        return true; /* what is captured now has nothing to wait for */
    }
    for (uint64_t left = slot->used; left != 0; left &= left - 1) {
        if (!is_in_reach(c, slot, (uint32_t)__builtin_ctzll(left), stream)) {
            return false;
        }
    }
    return true;
}

/* The flight before was on this stream: what comes now follows it. */
static gh_status follow(struct gh_capture *c, struct gh_slot *slot,
                        uint32_t edge, void *stream, gh_error *err)
{
    gh_status status = GH_OK;

    if (edge == GH_MAX_EDGES - 1) {
        for (uint32_t i = edge; i < c->n_streams && status == GH_OK; i++) {
            status = gh_device_stream_wait(c->dev, c->streams[i], err);
        }
        return status;
    }
    if (c->streams[edge] == stream) {
        return GH_OK;
    }
    status = wait_for(c, slot, edge, stream, err);
    if (status != GH_OK) {
        /* No event to be had: the host's thread can wait instead. */
        status = gh_device_stream_wait(c->dev, c->streams[edge], err);
    }
    return status;
}

static gh_status follow_all(struct gh_capture *c, struct gh_slot *slot,
                            void *stream, gh_error *err)
{
    struct gh_device_before before = gh_device_enter(c->dev);
    gh_status status = GH_OK;

    for (uint64_t left = slot->used; left != 0 && status == GH_OK;
         left &= left - 1) {
        status = follow(c, slot, (uint32_t)__builtin_ctzll(left), stream, err);
    }
    gh_device_leave(c->dev, before);
    return status;
}

GH_COLD gh_status gh_edges_refuse(const void *stream, gh_error *err)
{
    return gh_fail(err, GH_ERR_STATE,
                   "gh_layer_enter: stream %p cannot wait for the stream that "
                   "its slot was last used on, as the host is capturing that "
                   "one: end the capture first, or raise GRAPHHOOKS_MAX_SLOTS",
                   stream);
}

/*
 * Work that the host is capturing has not run, and runs when the host says
 * so: there is no order to keep, and an event would tie the two streams into
 * one capture.  The slot then stays with who had it, until a pass of the
 * flight is not captured: that one waits.
 */
gh_status gh_edges_move(struct gh_capture *c, struct gh_slot *slot,
                        void *stream, gh_error *err)
{
    gh_status status = GH_OK;

    if (c->dev != NULL && gh_device_host_captures(c->dev, stream)) {
        return GH_OK;
    }
    if (!slot->ordered) {
        if (!gh_edges_reach(c, slot, stream)) {
            return gh_edges_refuse(stream, err);
        }
        status = c->dev != NULL ? follow_all(c, slot, stream, err) : GH_OK;
        if (status != GH_OK) {
            return status;
        }
        slot->ordered = true;
        slot->used = 0;
        slot->marked = 0;
    }
    slot->stream = stream;
    slot->used |= UINT64_C(1) << edge_of(c->this_stream);
    return GH_OK;
}

/* After a flight on several streams the next one has something to wait for,
 * whichever stream it begins on. */
static void look_back(struct gh_slot *slot)
{
    if ((slot->used & (slot->used - 1)) != 0) {
        slot->stream = GH_NO_STREAM;
    }
}

/* A stream that the host captures now keeps the event that it has, if any. */
void gh_edges_give_back(struct gh_capture *c, struct gh_slot *slot)
{
    if (c->n_streams < 2) {
        return;
    }
    for (uint64_t left = slot->used; left != 0; left &= left - 1) {
        const uint32_t edge = (uint32_t)__builtin_ctzll(left);

        if (edge == GH_MAX_EDGES - 1 || c->dev == NULL ||
            gh_device_host_captures(c->dev, c->streams[edge])) {
            continue;
        }
        slot->marked &= ~(UINT64_C(1) << edge);
        if (mark(c, slot, edge, NULL) == GH_OK) {
            slot->marked |= UINT64_C(1) << edge;
        }
    }
    look_back(slot);
}

void gh_edges_forget(struct gh_capture *c)
{
    for (uint32_t chunk = 0; chunk < c->plan->n_chunks; chunk++) {
        for (uint32_t i = 0; i < c->options.max_slots; i++) {
            struct gh_slot *slot = gh_slots_at(c->slots, chunk, i);

            if (!slot->ordered) {
                slot->marked = 0;
            }
            look_back(slot);
        }
    }
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

            for (uint32_t k = 0; slot->events != NULL && k < GH_MAX_EDGES;
                 k++) {
                gh_device_event_destroy(c->dev, slot->events[k]);
            }
            free(slot->events);
            slot->events = NULL;
        }
    }
}
