/*
 * spans.h - when work on a stream began and ended on the device.
 *
 * These are for the trace alone.  A session that is not traced has no spans,
 * and its events have no times.  Calls here wait for nothing unless `wait`
 * says so, and change no order.  A call that fails is not reported: its span
 * is missing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_DEVICE_SPANS_H
#define GH_DEVICE_SPANS_H

#include "device/device.h"

struct gh_spans;
struct gh_span;

enum gh_work {
    GH_WORK_GRAPH,
    GH_WORK_OUT, /* a copy to the host's memory */
    GH_WORK_BACK,
    GH_WORK_NODE /* of an overlap; it may contain graphs */
};

/* What the work is.  lib/device does not read it. */
struct gh_span_what {
    enum gh_work work;
    uint32_t direction, variant, segment, bank; /* GRAPH */
    uint32_t layer, module;                     /* OUT, BACK; NODE: layer */
    uint32_t node, lane, order;                 /* NODE, and its direction */
    uint32_t first_part, last_part;             /* NODE */
    uint32_t microbatch, slot;
    uint64_t bytes;
};

/* Makes room for `n` spans that are not collected yet.  Times are counted from
 * the moment when this returns; the stream is idle then. */
gh_status gh_spans_create(struct gh_device *dev, uint32_t n,
                          struct gh_spans **spans_p, gh_error *err);
/* NULL is allowed. */
void gh_spans_destroy(struct gh_spans *spans);

/* Whether there is no room for a span until some are collected. */
bool gh_spans_are_full(const struct gh_spans *spans);
/* Begins a span: it covers what is issued on the stream until the end.  Returns
 * NULL, which gh_spans_end() allows, if there are no spans or no room. */
struct gh_span *gh_spans_begin(struct gh_spans *spans,
                               const struct gh_span_what *what, void *stream);
void gh_spans_end(struct gh_spans *spans, struct gh_span *span);

/* Hands over the spans that have ended, oldest first, in nanoseconds since time
 * 0; with `wait` it waits for all of them.  Returns how many spans had no room
 * since the last call. */
typedef void gh_span_fn(void *user, const struct gh_span_what *what,
                        void *stream, uint64_t start_ns, uint64_t end_ns);
uint64_t gh_spans_collect(struct gh_spans *spans, bool wait, gh_span_fn *call,
                          void *user);

#endif
