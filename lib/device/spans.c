/*
 * spans.c - see spans.h.
 *
 * The spans are a ring of pairs of events.  The driver gives the time between
 * two events as a float of milliseconds, which loses microseconds over long
 * times.  So the event that times are counted from is exchanged now and then
 * for a later one that was collected.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "device/spans.h"

#include "base/error.h"

#include <stdlib.h>

/* How far apart events may be.  A float has 24 bits, so it is still exact to
 * 0.1 us here. */
#define FAR_NS 1e9

struct gh_span {
    struct gh_span_what what;
    void *stream, *begin, *end;
    bool open; /* its end was not recorded yet */
};

struct gh_spans {
    struct gh_device *dev;
    void *from;     /* the event that times are counted from */
    double from_ns; /* its time */
    uint32_t room, first, n;
    uint64_t lost;
    struct gh_span *ring;
};

static gh_status start_counting(struct gh_spans *spans, gh_error *err)
{
    void *stream = NULL;
    gh_status status;

    status = gh_device_stream_create(spans->dev, false, &stream, err);
    if (status != GH_OK) {
        return status;
    }
    status = gh_device_event_create_timed(spans->dev, &spans->from, err);
    if (status == GH_OK) {
        status = gh_device_event_record(spans->dev, spans->from, stream, err);
    }
    if (status == GH_OK) {
        status = gh_device_stream_wait(spans->dev, stream, err);
    }
    gh_device_stream_destroy(spans->dev, stream);
    return status;
}

gh_status gh_spans_create(struct gh_device *dev, uint32_t n,
                          struct gh_spans **spans_p, gh_error *err)
{
    struct gh_spans *spans = calloc(1, sizeof(*spans));
    gh_status status = GH_OK;

    if (spans != NULL) {
        spans->dev = dev;
        spans->ring = calloc(n, sizeof(*spans->ring));
    }
    if (spans == NULL || spans->ring == NULL) {
        gh_spans_destroy(spans);
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a trace");
    }
    for (; spans->room < n && status == GH_OK; spans->room++) {
        struct gh_span *span = &spans->ring[spans->room];

        status = gh_device_event_create_timed(dev, &span->begin, err);
        if (status == GH_OK) {
            status = gh_device_event_create_timed(dev, &span->end, err);
        }
    }
    if (status == GH_OK) {
        status = start_counting(spans, err);
    }
    if (status != GH_OK) {
        gh_spans_destroy(spans);
        return status;
    }
    *spans_p = spans;
    return GH_OK;
}

void gh_spans_destroy(struct gh_spans *spans)
{
    if (spans == NULL) {
        return;
    }
    for (uint32_t i = 0; i < spans->room; i++) {
        gh_device_event_destroy(spans->dev, spans->ring[i].begin);
        gh_device_event_destroy(spans->dev, spans->ring[i].end);
    }
    gh_device_event_destroy(spans->dev, spans->from);
    free(spans->ring);
    free(spans);
}

bool gh_spans_are_full(const struct gh_spans *spans)
{
    return spans->n == spans->room;
}

struct gh_span *gh_spans_begin(struct gh_spans *spans,
                               const struct gh_span_what *what, void *stream)
{
    struct gh_span *span;

    if (spans == NULL) {
        return NULL;
    }
    if (gh_spans_are_full(spans)) {
        spans->lost++;
        return NULL;
    }
    span = &spans->ring[(spans->first + spans->n) % spans->room];
    if (gh_device_event_record(spans->dev, span->begin, stream, NULL) !=
        GH_OK) {
        return NULL;
    }
    span->what = *what;
    span->stream = stream;
    span->open = true;
    spans->n++;
    return span;
}

void gh_spans_end(struct gh_spans *spans, struct gh_span *span)
{
    if (span != NULL) {
        span->open = false;
        (void)gh_device_event_record(spans->dev, span->end, span->stream,
                                     NULL);
    }
}

static void exchange(struct gh_spans *spans, struct gh_span *span,
                     double end_ns)
{
    void *event = spans->from;

    spans->from = span->end;
    spans->from_ns = end_ns;
    span->end = event;
}

/* Hands over one span.  False: it has not ended.  If an event could not be
 * recorded or asked, the span is dropped. */
static bool collect(struct gh_spans *spans, struct gh_span *span, bool wait,
                    gh_span_fn *call, void *user)
{
    double begin, end;

    if (span->open) {
        return false;
    }
    if (wait) {
        (void)gh_device_event_sync(spans->dev, span->end, NULL);
    } else if (!gh_device_event_has_ended(spans->dev, span->end)) {
        return false;
    }
    if (gh_device_event_elapsed(spans->dev, spans->from, span->begin, &begin,
                                NULL) != GH_OK ||
        gh_device_event_elapsed(spans->dev, spans->from, span->end, &end,
                                NULL) != GH_OK) {
        return true;
    }
    begin += spans->from_ns;
    end += spans->from_ns;
    if (begin >= 0.0 && end >= begin) {
        call(user, &span->what, span->stream, (uint64_t)begin, (uint64_t)end);
    }
    if (end - spans->from_ns > FAR_NS) {
        exchange(spans, span, end);
    }
    return true;
}

uint64_t gh_spans_collect(struct gh_spans *spans, bool wait, gh_span_fn *call,
                          void *user)
{
    const uint64_t lost = spans->lost;

    while (spans->n != 0 &&
           collect(spans, &spans->ring[spans->first], wait, call, user)) {
        spans->first = (spans->first + 1) % spans->room;
        spans->n--;
    }
    spans->lost = 0;
    return lost;
}
