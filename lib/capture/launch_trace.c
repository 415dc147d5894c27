/*
 * launch_trace.c - see launch_trace.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"
#include "capture/launch_trace.h"

#include "capture/capture.h"
#include "offload/offload.h"

#include <graphhooks/overlap.h>

#include "capture/replay.h"
#include "plan/kinds.h"
#include "trace/trace.h"

/* Works that may be under way on the device at once. */
#define ROOM 4096u

gh_status gh_launch_trace_create(struct gh_capture *c, gh_error *err)
{
    struct gh_device_before before;
    gh_status status;

    if (c->options.trace == NULL || c->dev == NULL) {
        return GH_OK;
    }
    before = gh_device_enter(c->dev);
    status = gh_spans_create(c->dev, ROOM, &c->spans.all, err);
    c->spans.since_ns = gh_now_ns();
    gh_device_leave(c->dev, before);
    if (status == GH_OK && c->offload != NULL) {
        c->offload->spans = c->spans.all;
    }
    return status;
}

static const char *module_name(const struct gh_capture *c, uint32_t module)
{
    if ((module & GH_MODULE_NAMED) == 0) {
        return module != 0 ? gh_module_names[__builtin_ctz(module)] : "";
    }
    return c->offload->options.names[module & ~GH_MODULE_NAMED];
}

static void tell(void *user, const struct gh_span_what *what, void *stream,
                 uint64_t start_ns, uint64_t end_ns)
{
    static const enum gh_trace_lane lanes[] = {
        [GH_WORK_GRAPH] = GH_TRACE_GRAPHS,
        [GH_WORK_OUT] = GH_TRACE_OUT,
        [GH_WORK_BACK] = GH_TRACE_BACK,
    };
    static const char *const orders[] = { [GH_OVERLAP_OFF] = "off",
                                          [GH_OVERLAP_FIXED] = "fixed",
                                          [GH_OVERLAP_AUTO] = "auto" };
    const bool node = what->work == GH_WORK_NODE;
    struct gh_capture *c = user;
    const struct gh_trace_work work = {
        .start_ns = c->spans.since_ns + start_ns,
        .end_ns = c->spans.since_ns + end_ns,
        .lane = !node                        ? lanes[what->work]
                : what->lane == GH_LANE_COMM ? GH_TRACE_COMM
                                             : GH_TRACE_COMPUTE,
        .stream = stream,
        .direction = what->direction,
        .variant = what->variant,
        .segment = what->segment,
        .bank = what->bank,
        .microbatch = what->microbatch,
        .slot = what->slot,
        .layer = what->layer,
        .module = what->work == GH_WORK_OUT || what->work == GH_WORK_BACK
                      ? module_name(c, what->module)
                      : NULL,
        .bytes = what->bytes,
        .node = what->node,
        .first_part = what->first_part,
        .last_part = what->last_part,
        .order = node ? orders[what->order] : NULL,
    };

    gh_trace_work(c->options.trace, &work);
}

static void collect(struct gh_capture *c, bool wait)
{
    struct gh_device_before before;

    if (c->spans.all == NULL) {
        return;
    }
    before = gh_device_enter(c->dev);
    gh_trace_lose(c->options.trace,
                  gh_spans_collect(c->spans.all, wait, tell, c));
    gh_device_leave(c->dev, before);
}

void gh_launch_trace_collect(struct gh_capture *c)
{
    collect(c, false);
}

void gh_launch_trace_destroy(struct gh_capture *c)
{
    collect(c, true);
    gh_spans_destroy(c->spans.all);
    c->spans.all = NULL;
}

GH_COLD gh_status gh_launch_traced(struct gh_capture *c, struct gh_entry *entry,
                                   void *stream, gh_error *err)
{
    const struct gh_span_what what = {
        .work = GH_WORK_GRAPH,
        .direction = (uint32_t)c->open.direction,
        .variant = c->open.variant,
        .segment = c->open.segment,
        .bank = c->open.bank->number,
        .microbatch = c->open.microbatch,
        .slot = c->open.slot,
    };
    struct gh_span *span;
    gh_status status;

    if (gh_spans_are_full(c->spans.all)) {
        gh_launch_trace_collect(c);
    }
    span = gh_spans_begin(c->spans.all, &what, stream);
    status = gh_launch_bare(c, entry, stream, err);
    gh_spans_end(c->spans.all, span);
    return status;
}

bool gh_capture_is_traced(const struct gh_capture *c)
{
    return c->spans.all != NULL;
}

struct gh_span *gh_capture_node_begin(struct gh_capture *c,
                                      const struct gh_span_what *what,
                                      void *stream)
{
    if (gh_spans_are_full(c->spans.all)) {
        gh_launch_trace_collect(c);
    }
    return gh_spans_begin(c->spans.all, what, stream);
}

void gh_capture_node_end(struct gh_capture *c, struct gh_span *span)
{
    gh_spans_end(c->spans.all, span);
}
