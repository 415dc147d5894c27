/*
 * works.c - what the device did, on lanes of its own.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "trace/private.h"

#include "plan/kinds.h"

#include <unistd.h>

/* The tid of a session's first lane.  Passes have the session's number as tid;
 * the other lanes of the session follow this one. */
#define TID_OF_WORKS(lane) (1000u + 100u * (lane))

/* The index of the work's lane among those of the session. */
static uint32_t lane_of(struct gh_trace *trace,
                        const struct gh_trace_work *work)
{
    uint32_t i = 0;

    if (work->lane != GH_TRACE_GRAPHS) {
        return work->lane;
    }
    while (i < trace->n_streams && trace->streams[i] != work->stream) {
        i++;
    }
    if (i == trace->n_streams) {
        if (i == STREAMS) {
            return GH_TRACE_GRAPHS + STREAMS - 1;
        }
        trace->streams[trace->n_streams++] = work->stream;
    }
    return GH_TRACE_GRAPHS + i;
}

static void put_lane(struct gh_trace *trace, uint32_t lane)
{
    static const char *const names[] = { "copies to the host",
                                         "copies back to the device",
                                         "overlap, compute",
                                         "overlap, comm" };
    const long pid = (long)getpid();
    const unsigned tid = TID_OF_WORKS(trace->lane) + lane;

    gh_trace_put(
        trace,
        ",\n{\"ph\":\"M\",\"pid\":%ld,\"tid\":%u,\"name\":\"thread_name\","
        "\"args\":{\"name\":\"",
        pid, tid);
    if (lane < GH_TRACE_GRAPHS) {
        gh_trace_put(trace, "%s, session %u", names[lane], trace->lane);
    } else {
        gh_trace_put(trace, "graphs on stream %u, session %u",
                     lane - GH_TRACE_GRAPHS, trace->lane);
    }
    gh_trace_put(trace, "\"}}");
}

static void put_graph(struct gh_trace *trace, const struct gh_trace_work *work)
{
    gh_trace_put(trace, "graph %s ", gh_direction_names[work->direction]);
    if (work->segment < trace->plan->n_segments) {
        gh_trace_put_segment(trace, &trace->plan->segments[work->segment]);
    }
    if (work->variant != 0) {
        gh_trace_put(trace, " variant%u", work->variant);
    }
    gh_trace_put_bank(trace, work->bank);
    gh_trace_put(trace, " mb%u", work->microbatch);
}

static void put_copy(struct gh_trace *trace, const struct gh_trace_work *work)
{
    gh_trace_put(trace, "%s ", work->lane == GH_TRACE_OUT ? "out" : "back");
    if (work->layer < trace->plan->n_layers) {
        gh_trace_put_name(trace, trace->plan->layers[work->layer].name);
    }
    gh_trace_put(trace, ", ");
    gh_trace_put_name(trace, work->module);
    gh_trace_put(trace, " mb%u", work->microbatch);
}

static bool is_node(const struct gh_trace_work *work)
{
    return work->lane == GH_TRACE_COMPUTE || work->lane == GH_TRACE_COMM;
}

/* "backward layer 3 attn..moe_preprocess mb2" */
static void put_node(struct gh_trace *trace, const struct gh_trace_work *work)
{
    gh_trace_put(trace, "%s ", gh_direction_names[work->direction]);
    if (work->layer < trace->plan->n_layers) {
        gh_trace_put_name(trace, trace->plan->layers[work->layer].name);
    }
    gh_trace_put(trace, " %s", gh_part_name(work->first_part));
    if (work->last_part != work->first_part) {
        gh_trace_put(trace, "..%s", gh_part_name(work->last_part));
    }
    gh_trace_put(trace, " mb%u", work->microbatch);
}

static void put_node_args(struct gh_trace *trace,
                          const struct gh_trace_work *work)
{
    gh_trace_put(trace,
                 "\",\"cat\":\"node\",\"args\":{\"layer\":%u,\"node\":%u,"
                 "\"direction\":\"%s\",\"order\":\"%s\",",
                 work->layer, work->node, gh_direction_names[work->direction],
                 work->order);
}

static void put_copy_args(struct gh_trace *trace,
                          const struct gh_trace_work *work)
{
    gh_trace_put(trace,
                 "\",\"cat\":\"%s\",\"args\":{\"layer\":%u,\"module\":\"",
                 work->lane == GH_TRACE_OUT ? "out" : "back", work->layer);
    gh_trace_put_name(trace, work->module);
    gh_trace_put(trace, "\",\"bytes\":%llu,", (unsigned long long)work->bytes);
}

static void put_work_args(struct gh_trace *trace,
                          const struct gh_trace_work *work)
{
    if (is_node(work)) {
        put_node_args(trace, work);
    } else if (work->lane == GH_TRACE_GRAPHS) {
        gh_trace_put(trace,
                     "\",\"cat\":\"graph\",\"args\":{\"segment\":%u,"
                     "\"direction\":\"%s\",",
                     work->segment, gh_direction_names[work->direction]);
        if (work->segment < trace->plan->n_segments) {
            const gh_segment *s = &trace->plan->segments[work->segment];

            gh_trace_put(trace, "\"first_layer\":%u,\"last_layer\":%u,",
                         s->first_layer, s->last_layer);
        }
        gh_trace_put_bank_args(trace, work->bank);
    } else {
        put_copy_args(trace, work);
    }
    if (work->slot != GH_SLOT_NONE) {
        gh_trace_put(trace, "\"slot\":%u,", work->slot);
    }
    gh_trace_put(trace, "\"microbatch\":%u}}", work->microbatch);
}

void gh_trace_work(struct gh_trace *trace, const struct gh_trace_work *work)
{
    const uint32_t lane = lane_of(trace, work);
    uint64_t start = work->start_ns, ns;

    /* Work on one lane runs in order.  Rounding of times must not make it
     * overlap. */
    if (trace->ends[lane] == 0) {
        put_lane(trace, lane);
    } else if (start < trace->ends[lane]) {
        start = trace->ends[lane];
    }
    ns = work->end_ns > start ? work->end_ns - start : 0;
    trace->ends[lane] = start + ns;
    gh_trace_put(trace,
                 ",\n{\"ph\":\"X\",\"pid\":%ld,\"tid\":%u,\"ts\":%llu.%03u,"
                 "\"dur\":%llu.%03u,\"name\":\"",
                 (long)getpid(), TID_OF_WORKS(trace->lane) + lane,
                 (unsigned long long)(start / 1000), (unsigned)(start % 1000),
                 (unsigned long long)(ns / 1000), (unsigned)(ns % 1000));
    if (work->lane == GH_TRACE_GRAPHS) {
        put_graph(trace, work);
    } else if (is_node(work)) {
        put_node(trace, work);
    } else {
        put_copy(trace, work);
    }
    put_work_args(trace, work);
    if (trace->text_used > TEXT_BYTES - EVENT_BYTES) {
        gh_trace_write(trace);
    }
}

void gh_trace_lose(struct gh_trace *trace, uint64_t works)
{
    trace->lost_works += works;
}
