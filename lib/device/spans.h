/*
 * spans.h - when work on a stream began and ended on the device.
 *
 * For the trace alone: a session that is not traced has none of this, and no
 * event of its own can be timed.  What is asked for here waits for nothing,
 * changes no order, and fails without a word: a span is then missing.
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
    GH_WORK_NODE /* of an overlap; it may have graphs inside */
};

/* What the work is; nothing here reads it. */
struct gh_span_what {
    enum gh_work work;
    uint32_t direction, variant, segment, bank; /* GRAPH */
    uint32_t layer, module;                     /* OUT, BACK; NODE: layer */
    uint32_t node, lane, order;                 /* NODE, and its direction */
    uint32_t first_part, last_part;             /* NODE */
    uint32_t microbatch, slot;
    uint64_t bytes;
};

/* Room for `n` spans that have not been collected.  The stream that they are
 * counted from is idle when this returns: that moment is time 0. */
gh_status gh_spans_create(struct gh_device *dev, uint32_t n,
                          struct gh_spans **spans_p, gh_error *err);
/* NULL is allowed. */
void gh_spans_destroy(struct gh_spans *spans);

/* Whether the next one has no room until some are collected. */
bool gh_spans_are_full(const struct gh_spans *spans);
/* What is issued on the stream until the end.  NULL, which the end allows, when
 * there are no spans or there is no room. */
struct gh_span *gh_spans_begin(struct gh_spans *spans,
                               const struct gh_span_what *what, void *stream);
void gh_spans_end(struct gh_spans *spans, struct gh_span *span);

/* Hands over the spans that are over, oldest first, with nanoseconds since time
 * 0; with `wait`, all of them.  Returns how many had no room since the last
 * time. */
typedef void gh_span_fn(void *user, const struct gh_span_what *what,
                        void *stream, uint64_t start_ns, uint64_t end_ns);
uint64_t gh_spans_collect(struct gh_spans *spans, bool wait, gh_span_fn *call,
                          void *user);

#endif
