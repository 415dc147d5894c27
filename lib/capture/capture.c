/*
 * capture.c - a session's passes: their life, their steps, their counters.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"
#include "capture/capture.h"

#include "base/error.h"
#include "capture/aux.h"
#include "capture/borders.h"
#include "capture/forecast.h"
#include "capture/offloads.h"
#include "capture/packed.h"
#include "capture/services.h"
#include "capture/launch_trace.h"
#include "capture/watchdog.h"
#include "messages/messages.h"
#include "offload/offload.h"
#include "pass/pass.h"
#include "ranks/ranks.h"
#include "trace/trace.h"

#include <stdlib.h>

#define SAMPLE_EVERY 64

/* What has no weights leaves no weight gradient to wait for. */
static gh_direction last_direction(const struct gh_capture *c,
                                   const gh_segment *segment)
{
    return (segment->flags & GH_SEGMENT_HAS_WGRAD) != 0
               ? c->options.last_direction
               : GH_BACKWARD;
}

static gh_status find_fates(struct gh_capture *c, gh_error *err)
{
    c->fixed.fates = calloc(c->plan->n_segments, sizeof(*c->fixed.fates));
    if (c->fixed.fates == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a session");
    }
    for (uint32_t i = 0; i < c->plan->n_segments; i++) {
        const gh_segment *segment = &c->plan->segments[i];

        c->fixed.fates[i].chunk = segment->chunk;
        c->fixed.fates[i].last = (uint16_t)last_direction(c, segment);
        if (!c->options.enabled) {
            c->fixed.fates[i].never = GH_REASON_DISABLED;
        } else if (segment->mode != GH_SEGMENT_GRAPHED) {
            c->fixed.fates[i].never = GH_REASON_PLAN;
        }
    }
    return GH_OK;
}

/* A device that cannot map memory has it from cuMemAlloc, and the session is
 * not suspended. */
static void open_arena(struct gh_capture *c)
{
    struct gh_device_before before;
    gh_error why;

    if (!c->options.suspends || c->dev == NULL ||
        c->options.host.device_alloc != NULL) {
        return;
    }
    before = gh_device_enter(c->dev);
    if (gh_arena_open(&c->memory.arena, c->dev, &why) != GH_OK) {
        gh_log_line(c->options.log, GH_LOG_INFO,
                    "the session cannot be suspended: %s", why.text);
    }
    gh_device_leave(c->dev, before);
}

gh_status gh_capture_create(const struct gh_plan *plan, struct gh_device *dev,
                            const struct gh_capture_options *options,
                            struct gh_capture **capture_p, gh_error *err)
{
    struct gh_capture *c = calloc(1, sizeof(*c));
    gh_status status;

    if (c == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a session");
    }
    c->plan = plan;
    c->dev = dev;
    c->options = *options;
    gh_streams_init(&c->streams, dev);
    c->streams.rest = gh_ranks_rest;
    c->streams.user = c;
    c->memory = (struct gh_memory){ .streams = &c->streams,
                                    .host = &c->options.host,
                                    .limit = options->memory_limit };
    c->timing.every =
        options->trace != NULL || options->named || options->watches
            ? 1
            : SAMPLE_EVERY;
    c->timing.until = 1;
    c->counts.enters = 1;

    open_arena(c);
    status = find_fates(c, err);
    if (status != GH_OK) {
        goto err_capture;
    }
    status = gh_services_create(c, err);
    if (status != GH_OK) {
        goto err_fates;
    }
    status = gh_slots_create(plan->n_chunks, plan->n_segments,
                             options->max_slots, &c->slots, err);
    if (status != GH_OK) {
        goto err_services;
    }
    status = gh_banks_create(&c->banks, plan->n_chunks, plan->n_segments,
                             options->max_slots, options->max_banks, &c->memory,
                             err);
    if (status != GH_OK) {
        goto err_slots;
    }
    status = gh_messages_create(plan->n_segments, &c->messages, err);
    if (status != GH_OK) {
        goto err_bank;
    }
    status = gh_borders_create(c, err);
    if (status != GH_OK) {
        goto err_messages;
    }
    if (options->offload != NULL) {
        status = gh_offload_create(options->offload, plan, dev, &c->memory,
                                   options->log, &c->offload, err);
        if (status == GH_OK) {
            c->offload->checks = options->check == GH_CHECKS_BITS;
        }
        if (status != GH_OK) {
            goto err_borders;
        }
    }
    status = gh_launch_trace_create(c, err);
    if (status != GH_OK) {
        goto err_offload;
    }
    status = gh_watchdog_create(c, err);
    if (status != GH_OK) {
        goto err_trace;
    }
    if (dev != NULL) {
        gh_memory_open(&c->memory);
    }
    *capture_p = c;
    return GH_OK;

err_trace:
    gh_launch_trace_destroy(c);
err_offload:
    gh_offload_destroy(c->offload);
err_borders:
    gh_borders_destroy(c);
err_messages:
    gh_messages_free(c->messages);
err_bank:
    gh_banks_free(&c->banks);
err_slots:
    gh_slots_destroy(c->slots);
err_services:
    gh_services_destroy(c);
err_fates:
    free(c->fixed.fates);
err_capture:
    free(c);
    return status;
}

static void free_orders(struct gh_capture *c)
{
    for (uint32_t chunk = 0; chunk < c->plan->n_chunks; chunk++) {
        for (uint32_t i = 0; i < c->options.max_slots; i++) {
            gh_order_free(&gh_slots_at(c->slots, chunk, i)->order, c->dev);
        }
    }
}

static void destroy_device_objects(struct gh_capture *c)
{
    struct gh_device_before before = gh_device_enter(c->dev);

    gh_streams_quiesce(&c->streams);
    gh_watchdog_destroy(c);
    /* The driver frees memory once all work of the context has ended, on
     * streams of the host's too, where an exchange may wait for a rank. */
    if (c->ranks.first != NULL) {
        gh_device_limit_waits(c->dev, c->options.timeout_s);
    }
    gh_packed_free(c);
    gh_banks_clear(&c->banks);
    gh_ranks_close(c);
    free_orders(c);
    gh_offloads_rest(c);
    gh_launch_trace_destroy(c);
    gh_offload_destroy(c->offload);
    gh_memory_close(&c->memory);
    gh_scratch_free(&c->check.scratch, c->dev);
    /* Where the host captures, its allocator may record events on this
     * stream even after the session has closed.  So the stream is left to
     * the context. */
    if (!gh_services_capture(c)) {
        gh_device_stream_destroy(c->dev, c->lib_stream);
    }
    if (gh_device_is_stuck(c->dev)) {
        gh_log_line(c->options.log, GH_LOG_WARN,
                    "work has not ended in %u s (GRAPHHOOKS_TIMEOUT)%s: the "
                    "library's memory is left to the context; end what waits "
                    "there, such as an exchange, before the session closes",
                    c->options.timeout_s,
                    c->ranks.lost ? " after the ranks were lost" : "");
    }
    gh_device_leave(c->dev, before);
}

void gh_capture_destroy(struct gh_capture *c)
{
    gh_stats stats;

    if (c == NULL) {
        return;
    }
    gh_capture_cancel(c);
    gh_capture_stats(c, &stats);
    gh_messages_close_summary(c, &stats);
    if (c->dev != NULL) {
        destroy_device_objects(c);
    }
    gh_aux_release_all(c);
    gh_borders_destroy(c);
    gh_streams_free(&c->streams);
    gh_messages_free(c->messages);
    gh_forecast_free(c);
    gh_banks_free(&c->banks);
    gh_slots_destroy(c->slots);
    gh_services_destroy(c);
    free(c->fixed.fates);
    free(c);
}

void gh_capture_join(struct gh_capture *c, uint32_t chunk, const void *from,
                     void *onto)
{
    for (uint32_t i = 0; i < c->options.max_slots; i++) {
        gh_order_join(&gh_slots_at(c->slots, chunk, i)->order, &c->streams,
                      from, onto);
    }
}

const char *gh_capture_whose_open(const struct gh_capture *c)
{
    return c->open.thread != gh_this_thread()
               ? ", entered by another thread, and only one may use a session "
                 "at a time"
               : "";
}

bool gh_capture_is_open(const struct gh_capture *c)
{
    return c->open.active;
}

bool gh_capture_has_replayed(const struct gh_capture *c)
{
    return c->open.action == GH_ACTION_REPLAYED;
}

/* Changes the reason of all segments that have the reason `from`. */
static void set_never(struct gh_capture *c, gh_reason from, gh_reason to)
{
    for (uint32_t i = 0; i < c->plan->n_segments; i++) {
        if (c->fixed.fates[i].never == from) {
            c->fixed.fates[i].never = (uint16_t)to;
        }
    }
}

void gh_capture_pause(struct gh_capture *c)
{
    c->host.paused++;
    set_never(c, GH_REASON_NONE, GH_REASON_PAUSED);
}

bool gh_capture_resume(struct gh_capture *c)
{
    if (c->host.paused == 0) {
        return false;
    }
    c->host.paused--;
    if (c->host.paused == 0) {
        set_never(c, GH_REASON_PAUSED, GH_REASON_NONE);
    }
    return true;
}

/* Ends the order of every slot: nothing of the step is in flight any more, nor
 * in a capture of the host's. */
static void cut_flights(struct gh_capture *c)
{
    for (uint32_t chunk = 0; chunk < c->plan->n_chunks; chunk++) {
        for (uint32_t i = 0; i < c->options.max_slots; i++) {
            struct gh_slot *slot = gh_slots_at(c->slots, chunk, i);

            gh_order_cut(&slot->order);
            slot->packed = UINT64_MAX;
        }
    }
}

gh_status gh_capture_end_step(struct gh_capture *c, gh_error *err)
{
    uint32_t held = gh_slots_end_step(c->slots);
    gh_status status = GH_OK;

    cut_flights(c);
    gh_packed_end_step(c);
    if (c->dev != NULL) {
        gh_retired_poll(&c->banks.retired, &c->memory);
    }
    if (held != 0) {
        gh_log_line(c->options.log, GH_LOG_INFO,
                    "step %llu ended with %u microbatches that did not run all "
                    "of their passes",
                    (unsigned long long)c->counts.stats.iterations, held);
    }
    gh_messages_end_step(c);
    c->counts.stats.iterations++;
    c->counts.first = c->counts.enters;
    if (c->options.trace != NULL) {
        gh_memory_stats memory = { 0 };

        gh_launch_trace_collect(c);
        gh_trace_step_end(c->options.trace);
        gh_capture_count_memory(c, &memory);
        gh_trace_memory(c->options.trace, gh_now_ns(), &memory);
    }
    if (c->offload != NULL) {
        status = gh_offload_end_step(c->offload, err);
        gh_offloads_tell(c);
    }
    if (c->forecast.foreseen != NULL) {
        gh_forecast_end_step(c);
    }
    if (status == GH_OK && c->dev != NULL) {
        status = gh_ranks_look(c, err);
    }
    return status;
}

