/*
 * order.c - see order.h.
 *
 * A host with one stream only compares streams here, and never makes an event.
 * Each order has an event for each of the first 63 streams of the session.
 * For further streams the host's thread waits.
 *
 * A stream cannot be waited for while the host captures it, and none can
 * without a driver: such a stream is out of reach.  Work that the host has
 * captured is out of reach until the step ends, because it runs only when the
 * host launches its graph.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "order/order.h"

#include "base/error.h"

#include <stdlib.h>

void gh_order_init(struct gh_order *o)
{
    *o = (struct gh_order){ .stream = GH_NO_STREAM };
}

void gh_order_free(struct gh_order *o, struct gh_device *dev)
{
    for (int k = 0; o->events != NULL && k < GH_MAX_EDGES; k++) {
        gh_device_event_destroy(dev, o->events[k]);
    }
    free(o->events);
    o->events = NULL;
}

/* The bit of a stream in gh_order.used.  Streams after the 63rd share one. */
static uint32_t edge_of(uint32_t stream)
{
    return stream < GH_MAX_EDGES - 1 ? stream : GH_MAX_EDGES - 1;
}

static gh_status make_event(struct gh_order *o, const struct gh_streams *s,
                            uint32_t edge, gh_error *err)
{
    struct gh_device_before before;
    gh_status status;

    if (o->events == NULL) {
        o->events = calloc(GH_MAX_EDGES, sizeof(*o->events));
        if (o->events == NULL) {
            return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for events");
        }
    }
    if (o->events[edge] != NULL) {
        return GH_OK;
    }
    /* An event belongs to the context that is current when it is made. */
    before = gh_device_enter(s->dev);
    status = gh_device_event_create(s->dev, &o->events[edge], err);
    gh_device_leave(s->dev, before);
    return status;
}

static gh_status mark(struct gh_order *o, const struct gh_streams *s,
                      uint32_t edge, gh_error *err)
{
    gh_status status = make_event(o, s, edge, err);

    if (status != GH_OK) {
        return status;
    }
    return gh_device_event_record(s->dev, o->events[edge], s->all[edge], err);
}

static gh_status wait_for(struct gh_order *o, const struct gh_streams *s,
                          uint32_t edge, void *stream, gh_error *err)
{
    gh_status status = GH_OK;

    /* The user ended before there was a second stream, or was cut short, so
     * there is no mark.  Mark the order now: this once the wait is for more
     * than needed. */
    if ((o->marked & UINT64_C(1) << edge) == 0) {
        status = mark(o, s, edge, err);
    }
    if (status == GH_OK) {
        status = gh_device_event_wait(s->dev, stream, o->events[edge], err);
    }
    return status;
}

/* Whether the work on a stream can be waited for.  That needs a driver.  While
 * the host captures the stream, it also needs a mark from before the
 * capture. */
static bool is_in_reach(const struct gh_order *o, const struct gh_streams *s,
                        uint32_t edge, const void *stream)
{
    if (edge < GH_MAX_EDGES - 1) {
        return s->all[edge] == stream ||
               (s->dev != NULL &&
                ((o->marked & UINT64_C(1) << edge) != 0 ||
                 !gh_device_host_captures(s->dev, s->all[edge])));
    }
    for (uint32_t i = edge; i < s->n; i++) {
        if (s->dev == NULL || gh_device_host_captures(s->dev, s->all[i])) {
            return false;
        }
    }
    return true;
}

bool gh_order_reach(const struct gh_order *o, const struct gh_streams *s,
                    void *stream)
{
    if (o->captured && o->stream != stream) {
        return false;
    }
    for (uint64_t left = o->used; left != 0; left &= left - 1) {
        if (!is_in_reach(o, s, (uint32_t)__builtin_ctzll(left), stream)) {
            return false;
        }
    }
    return true;
}

/* Lets the stream follow what the user before did on another stream. */
static gh_status follow(struct gh_order *o, const struct gh_streams *s,
                        uint32_t edge, void *stream, gh_error *err)
{
    gh_status status = GH_OK;

    if (edge == GH_MAX_EDGES - 1) {
        for (uint32_t i = edge; i < s->n && status == GH_OK; i++) {
            status = gh_device_stream_wait(s->dev, s->all[i], err);
        }
        return status;
    }
    if (s->all[edge] == stream) {
        return GH_OK;
    }
    status = wait_for(o, s, edge, stream, err);
    if (status != GH_OK) {
        /* Without an event the host's thread can wait instead. */
        status = gh_device_stream_wait(s->dev, s->all[edge], err);
    }
    return status;
}

static gh_status follow_all(struct gh_order *o, const struct gh_streams *s,
                            void *stream, gh_error *err)
{
    struct gh_device_before before = gh_device_enter(s->dev);
    gh_status status = GH_OK;

    for (uint64_t left = o->used; left != 0 && status == GH_OK;
         left &= left - 1) {
        status = follow(o, s, (uint32_t)__builtin_ctzll(left), stream, err);
    }
    gh_device_leave(s->dev, before);
    return status;
}

gh_status gh_order_move(struct gh_order *o, const struct gh_streams *s,
                        void *stream, gh_error *err)
{
    gh_status status = GH_OK;

    if (!o->ordered) {
        status = s->dev != NULL ? follow_all(o, s, stream, err) : GH_OK;
        if (status != GH_OK) {
            return status;
        }
        o->ordered = true;
        o->used = 0;
        o->marked = 0;
    }
    o->stream = stream;
    o->used |= UINT64_C(1) << edge_of(s->at);
    return GH_OK;
}

/* If a user was on several streams, the next one has to wait for some of them,
 * whichever stream it begins on.  So no stream counts as the last. */
static void look_back(struct gh_order *o)
{
    if ((o->used & (o->used - 1)) != 0) {
        o->stream = GH_NO_STREAM;
    }
}

/* Marks the end of a user on each of its streams.  A stream that the host
 * captures now keeps the event it has, if any. */
void gh_order_end(struct gh_order *o, const struct gh_streams *s)
{
    if (s->n < 2) {
        return;
    }
    for (uint64_t left = o->used; left != 0; left &= left - 1) {
        const uint32_t edge = (uint32_t)__builtin_ctzll(left);

        if (edge == GH_MAX_EDGES - 1 || s->dev == NULL ||
            gh_device_host_captures(s->dev, s->all[edge])) {
            continue;
        }
        o->marked &= ~(UINT64_C(1) << edge);
        if (mark(o, s, edge, NULL) == GH_OK) {
            o->marked |= UINT64_C(1) << edge;
        }
    }
    look_back(o);
}

/* The bit of a stream that has its own event; 0: the stream is unknown, or
 * shares an event. */
static uint64_t bit_of(const struct gh_streams *s, const void *stream)
{
    for (uint32_t i = 0; i < s->n && i < GH_MAX_EDGES - 1; i++) {
        if (s->all[i] == stream) {
            return UINT64_C(1) << i;
        }
    }
    return 0;
}

/* A mark of `onto` is from before the join, so it no longer counts. */
void gh_order_join(struct gh_order *o, const struct gh_streams *s,
                   const void *from, void *onto)
{
    const uint64_t left = bit_of(s, from), stays = bit_of(s, onto);

    if ((o->used & left) == 0 || stays == 0) {
        return;
    }
    o->used = (o->used & ~left) | stays;
    o->marked &= ~(left | stays);
    if (o->used == stays) {
        o->stream = onto;
    }
}

/* Work that the host has captured may have been launched after the marks, so
 * they no longer count. */
void gh_order_cut(struct gh_order *o)
{
    if (!o->ordered || o->captured) {
        o->marked = 0;
    }
    o->captured = false;
    look_back(o);
}
