/*
 * capture.c - the decision of a pass, and the order of its steps.
 *
 * One pass is open at a time, from enter to exit.  What enter found out is
 * kept in `open`, so that exit decides nothing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "capture/replay.h"

#include "base/error.h"
#include "trace/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SAMPLE_EVERY 64

_Static_assert(offsetof(struct gh_pass_key, flags) ==
                   offsetof(gh_pass, flags) - offsetof(gh_pass, segment),
               "a key is a stretch of gh_pass");

static inline const struct gh_pass_key *key_of(const gh_pass *pass)
{
    return (const void *)((const char *)pass + offsetof(gh_pass, segment));
}

uint64_t gh_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static gh_status find_fates(struct gh_capture *c, gh_error *err)
{
    c->fates = calloc(c->plan->n_segments, sizeof(*c->fates));
    if (c->fates == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a session");
    }
    for (uint32_t i = 0; i < c->plan->n_segments; i++) {
        const gh_segment *segment = &c->plan->segments[i];

        c->fates[i].chunk = segment->chunk;
        if (!c->options.enabled) {
            c->fates[i].never = GH_REASON_DISABLED;
        } else if (segment->mode != GH_SEGMENT_GRAPHED) {
            c->fates[i].never = GH_REASON_PLAN;
        }
    }
    return GH_OK;
}

gh_status gh_capture_create(const struct gh_plan *plan, struct gh_device *dev,
                            const struct gh_capture_options *options,
                            struct gh_capture **capture_p, gh_error *err)
{
    struct gh_capture *c = calloc(1, sizeof(*c));
    size_t n_entries;
    gh_status status;

    if (c == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a session");
    }
    c->plan = plan;
    c->dev = dev;
    c->options = *options;
    c->last_stream = GH_NO_STREAM;
    c->timed_every = options->trace != NULL ? 1 : SAMPLE_EVERY;
    c->until_timed = 1;

    status = find_fates(c, err);
    if (status != GH_OK) {
        goto err_capture;
    }
    status = gh_slots_create(plan->n_chunks, plan->n_segments,
                             options->max_slots, &c->slots, err);
    if (status != GH_OK) {
        goto err_fates;
    }
    n_entries = (size_t)plan->n_segments * GH_DIRECTIONS * options->max_slots;
    c->entries = calloc(n_entries, sizeof(*c->entries));
    if (c->entries == NULL) {
        status = gh_fail(err, GH_ERR_NO_MEMORY, "no memory for %zu passes",
                         n_entries);
        goto err_slots;
    }
    *capture_p = c;
    return GH_OK;

err_slots:
    gh_slots_destroy(c->slots);
err_fates:
    free(c->fates);
err_capture:
    free(c);
    return status;
}

#define SUSPICIOUS_WARMUP 10000 /* passes of one step */

/* A host that forgets gh_iteration_end would never get a graph. */
static void say_no_step_ends(const struct gh_capture *c)
{
    gh_log_line(c->options.log, GH_LOG_WARN,
                "no step has ended after %llu passes, so warmup goes on: call "
                "gh_iteration_end after each step",
                (unsigned long long)c->stats.eager_by_reason[GH_REASON_WARMUP]);
}

static void destroy_device_objects(struct gh_capture *c)
{
    const size_t n =
        (size_t)c->plan->n_segments * GH_DIRECTIONS * c->options.max_slots;
    void *previous = gh_device_enter(c->dev);

    gh_edges_quiesce(c);
    for (size_t i = 0; i < n; i++) {
        gh_entry_clear(c, &c->entries[i]);
    }
    gh_edges_destroy(c);
    gh_check_destroy(c);
    gh_device_stream_destroy(c->dev, c->own_stream);
    gh_device_leave(c->dev, previous);
}

void gh_capture_destroy(struct gh_capture *c)
{
    if (c == NULL) {
        return;
    }
    gh_capture_cancel(c);
    if (c->stats.iterations == 0 &&
        c->stats.eager_by_reason[GH_REASON_WARMUP] != 0) {
        say_no_step_ends(c);
    }
    if (c->dev != NULL) {
        destroy_device_objects(c);
    }
    free(c->streams);
    free(c->entries);
    gh_slots_destroy(c->slots);
    free(c->fates);
    free(c);
}

struct gh_entry_label gh_entry_describe(const struct gh_capture *c,
                                        const struct gh_entry *entry)
{
    const size_t i = (size_t)(entry - c->entries);
    const uint32_t slots = c->options.max_slots;
    const gh_segment *s = &c->plan->segments[i / slots / GH_DIRECTIONS];
    struct gh_entry_label label;
    char where[120];

    gh_plan_extent(c->plan, s, where, sizeof(where));
    snprintf(label.text, sizeof(label.text), "%s %s, slot %u", where,
             i / slots % GH_DIRECTIONS == GH_FORWARD ? "forward" : "backward",
             (unsigned)(i % slots));
    return label;
}

static GH_COLD gh_status refuse_open(const struct gh_capture *c, gh_error *err)
{
    return gh_fail(err, GH_ERR_STATE,
                   "gh_layer_enter: segment %u, microbatch %u is still open: "
                   "call gh_layer_exit or gh_layer_cancel first",
                   c->open.key.segment, c->open.key.microbatch);
}

static GH_COLD gh_status refuse_order(const gh_pass *pass, gh_error *err)
{
    return gh_fail(err, GH_ERR_STATE,
                   "gh_layer_enter: backward of segment %u, microbatch %u "
                   "before its forward",
                   pass->segment, pass->microbatch);
}

/* Without a slot: too early, or eager, unless the host has no buffers for
 * that. */
static GH_COLD gh_status refuse_or_none(const struct gh_capture *c,
                                        const gh_pass *pass,
                                        enum gh_slots_found found,
                                        gh_error *err)
{
    if (found == GH_SLOTS_EARLY) {
        return refuse_order(pass, err);
    }
    if (!c->options.busy_fails) {
        return GH_OK;
    }
    if (found == GH_SLOTS_REPEATED) {
        return gh_fail(err, GH_ERR_BUSY,
                       "segment %u, microbatch %u: its forward still waits "
                       "for its backward, whose buffers a second one would "
                       "overwrite",
                       pass->segment, pass->microbatch);
    }
    return gh_fail(err, GH_ERR_BUSY,
                   "microbatch %u: all %u slots are in flight: raise "
                   "GRAPHHOOKS_MAX_SLOTS, or run fewer at once",
                   pass->microbatch, c->options.max_slots);
}

/* Of a pass that did not run. */
static void give_slot_up(struct gh_capture *c)
{
    if (c->open.slot != GH_SLOT_NONE) {
        gh_slots_cancel(c->slots, c->open.chunk, c->open.key.microbatch);
    }
}

/* A second forward is not counted, as no second backward will come; it is
 * kept out of the slot, whose buffers the first one's backward needs. */
static gh_status take_slot(struct gh_capture *c, const gh_pass *pass,
                           gh_error *err)
{
    enum gh_slots_found found;
    struct gh_slot *slot;
    gh_status status;

    slot =
        gh_slots_enter(c->slots, c->open.chunk, pass->microbatch, pass->segment,
                       pass->direction, &c->open.slot, &found);
    if (slot == NULL) {
        c->open.counted = found == GH_SLOTS_NONE;
        return refuse_or_none(c, pass, found, err);
    }
    if (c->open.slot >= c->stats.slots) {
        c->stats.slots = c->open.slot + 1;
    }
    if (slot->stream == pass->stream) {
        slot->marked = false;
        return GH_OK;
    }
    status = gh_edges_move(c, slot, pass->stream, found == GH_SLOTS_FRESH, err);
    if (status != GH_OK) {
        give_slot_up(c);
    }
    return status;
}

/* Why nothing may be recorded now. */
static gh_reason may_record(const struct gh_capture *c)
{
    const uint64_t warmup = c->options.warmup_steps;

    if (c->stats.iterations < warmup) {
        return GH_REASON_WARMUP;
    }
    if (c->options.freeze != 0 &&
        c->stats.iterations >= warmup + c->options.freeze) {
        return GH_REASON_FROZEN;
    }
    return GH_REASON_NONE;
}

/* Why the pass cannot have a graph at all. */
static gh_reason may_graph(const struct gh_capture *c, const gh_pass *pass)
{
    if (pass->flags != 0) {
        return GH_REASON_FORWARD_ONLY;
    }
    if (c->fates[pass->segment].never != GH_REASON_NONE) {
        return c->fates[pass->segment].never;
    }
    if (c->open.slot == GH_SLOT_NONE) {
        return GH_REASON_BUSY;
    }
    if (c->paused != 0) {
        return GH_REASON_PAUSED;
    }
    if (gh_device_is_capturing(c->dev, pass->stream)) {
        return GH_REASON_HOST_CAPTURE;
    }
    return GH_REASON_NONE;
}

static bool check_is_due(struct gh_capture *c)
{
    return c->options.check && ++c->check_turn % c->options.check_every == 0;
}

static GH_COLD void give_up_launching(struct gh_capture *c,
                                      struct gh_entry *entry)
{
    gh_entry_give_up(c, entry, GH_REASON_DEVICE, c->why.text);
    c->open.reason = GH_REASON_DEVICE;
}

static GH_COLD gh_status use_checked(struct gh_capture *c, const gh_pass *pass,
                                     struct gh_entry *entry, gh_error *err)
{
    switch (gh_check_begin(c, entry, pass, &c->why)) {
    case GH_CHECK_READY:
        c->open.reason = GH_REASON_CHECK;
        return GH_OK;
    case GH_CHECK_STANDS:
        c->open.action = GH_ACTION_REPLAYED;
        return GH_OK;
    case GH_CHECK_NOT_RUN:
        give_up_launching(c, entry);
        return GH_OK;
    default:
        return gh_fail(err, GH_ERR_DEVICE,
                       "GRAPHHOOKS_CHECK could not restore what %s updates: "
                       "%.100s",
                       gh_entry_describe(c, entry).text, c->why.text);
    }
}

static gh_status use_ready(struct gh_capture *c, const gh_pass *pass,
                           struct gh_entry *entry, gh_error *err)
{
    if (check_is_due(c)) {
        return use_checked(c, pass, entry, err);
    }
    if (gh_replay(c, entry, pass->stream, &c->why) != GH_OK) {
        give_up_launching(c, entry);
        return GH_OK;
    }
    c->open.action = GH_ACTION_REPLAYED;
    return GH_OK;
}

static GH_COLD void record(struct gh_capture *c, const gh_pass *pass,
                           struct gh_entry *entry)
{
    c->open.reason = (uint8_t)may_record(c);
    if (c->open.reason == GH_REASON_WARMUP && c->stats.iterations == 0 &&
        c->stats.eager_by_reason[GH_REASON_WARMUP] == SUSPICIOUS_WARMUP) {
        say_no_step_ends(c);
    }
    if (c->open.reason != GH_REASON_NONE) {
        return;
    }
    if (entry->state == GH_ENTRY_READY) {
        entry->unchained = true;
        gh_entry_clear(c, entry);
    }
    if (gh_record_begin(c, pass, entry)) {
        c->open.action = GH_ACTION_RECORD;
    } else {
        c->open.reason = entry->reason;
    }
}

/* Sets the action and the reason.  It fails only where going on would make
 * the numbers wrong. */
static gh_status decide(struct gh_capture *c, const gh_pass *pass,
                        gh_error *err)
{
    struct gh_entry *entry;

    c->open.entry = NULL;
    c->open.action = GH_ACTION_RUN;
    c->open.reason = (uint8_t)may_graph(c, pass);
    if (c->open.reason != GH_REASON_NONE) {
        return GH_OK;
    }

    entry = gh_entry_at(c, pass->segment, pass->direction, c->open.slot);
    c->open.entry = entry;
    if (entry->state == GH_ENTRY_EAGER) {
        c->open.reason = entry->reason;
        return GH_OK;
    }
    if (entry->state == GH_ENTRY_READY) {
        enum gh_fit fit = gh_replay_fits(entry, pass);

        if (fit == GH_FIT_YES) {
            return use_ready(c, pass, entry, err);
        }
        if (fit == GH_FIT_NO) {
            c->open.reason = GH_REASON_INPUT;
            return GH_OK;
        }
    }
    record(c, pass, entry);
    return GH_OK;
}

static void tell(const struct gh_capture *c, const gh_pass *pass,
                 gh_decision *d)
{
    const struct gh_entry *entry = c->open.entry;

    d->action = c->open.action;
    d->slot = c->open.slot;
    d->reason = c->open.reason;
    d->stream = pass->stream;
    d->n_inputs = pass->n_inputs;
    if (c->open.action == GH_ACTION_REPLAYED) {
        d->inputs = entry->inputs;
        d->n_outputs = entry->n_outputs;
        d->outputs = entry->outputs;
        return;
    }
    d->inputs = pass->inputs;
    d->n_outputs = 0;
    d->outputs = NULL;
    if (c->open.action == GH_ACTION_RECORD) {
        d->inputs = entry->inputs;
        d->stream = c->open.capture_stream;
    }
}

/* Every pass is timed where there is a trace, else one in SAMPLE_EVERY. */
static void begin_timing(struct gh_capture *c)
{
    c->open.timed = --c->until_timed == 0;
    if (c->open.timed) {
        c->until_timed = c->timed_every;
        c->open.start_ns = gh_now_ns();
    }
}

/* The legacy stream is never the last one: which it is depends on the
 * context that is current, so every pass on it comes through here. */
static GH_COLD gh_status check_stream(struct gh_capture *c, void *stream,
                                      gh_error *err)
{
    gh_status status;

    if (!gh_device_is_legacy(stream)) {
        return gh_edges_know(c, stream, err);
    }
    if (c->options.enabled && !gh_device_is_current(c->dev)) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_pass.stream is the legacy default stream, which is "
                       "of another context than the session's on this thread: "
                       "make the session's current, or give a stream");
    }
    status = gh_edges_know(c, stream, err);
    c->last_stream = GH_NO_STREAM;
    return status;
}

gh_status gh_capture_enter(struct gh_capture *c, const gh_pass *pass,
                           gh_decision *decision, gh_error *err)
{
    gh_status status;

    if (c->open.active) {
        return refuse_open(c, err);
    }
    begin_timing(c);
    if (pass->stream != c->last_stream && c->dev != NULL) {
        status = check_stream(c, pass->stream, err);
        if (status != GH_OK) {
            return status;
        }
    }

    c->open.key = *key_of(pass);
    c->open.chunk = c->fates[pass->segment].chunk;
    c->open.slot = GH_SLOT_NONE;
    c->open.stream = pass->stream;
    c->open.counted = (pass->flags & GH_PASS_FORWARD_ONLY) == 0;
    if (c->open.counted) {
        status = take_slot(c, pass, err);
        if (status != GH_OK) {
            return status;
        }
    }

    status = decide(c, pass, err);
    if (status != GH_OK) {
        give_slot_up(c);
        return status;
    }
    tell(c, pass, decision);
    c->open.active = true;
    c->enters++;
    if (c->open.timed) {
        c->stats.hook_ns += c->timed_every * (gh_now_ns() - c->open.start_ns);
    }
    return GH_OK;
}

static bool is_same(const struct gh_capture *c, const gh_pass *pass)
{
    return c->open.active && pass->stream == c->open.stream &&
           memcmp(&c->open.key, key_of(pass), sizeof(c->open.key)) == 0;
}

static GH_COLD gh_status refuse_exit(const struct gh_capture *c,
                                     const gh_pass *pass, gh_error *err)
{
    if (!c->open.active) {
        return gh_fail(err, GH_ERR_STATE,
                       "gh_layer_exit: no pass is open: call gh_layer_enter "
                       "first");
    }
    return gh_fail(err, GH_ERR_STATE,
                   "gh_layer_exit: segment %u, direction %u, microbatch %u, "
                   "but the open pass is %u, %u, %u (or its stream or "
                   "flags differ)",
                   pass->segment, pass->direction, pass->microbatch,
                   c->open.key.segment, c->open.key.direction,
                   c->open.key.microbatch);
}

/* The microbatch moves on. */
static gh_status move_on(struct gh_capture *c, const gh_pass *pass)
{
    const uint32_t slot = c->open.slot;

    c->open.active = false;
    if (!c->open.counted) {
        return GH_OK;
    }
    if (pass->direction == GH_FORWARD) {
        gh_slots_ran_forward(c->slots, c->open.chunk, pass->microbatch,
                             pass->segment);
    } else if (gh_slots_ran_backward(c->slots, c->open.chunk, pass->microbatch,
                                     pass->segment)) {
        gh_edges_give_back(c, gh_slots_at(c->slots, c->open.chunk, slot),
                           pass->stream);
    }
    return GH_OK;
}

static void add_to_trace(struct gh_capture *c, gh_status status)
{
    const struct gh_trace_record record = {
        .start_ns = c->open.start_ns,
        .end_ns = gh_now_ns(),
        .segment = c->open.key.segment,
        .microbatch = c->open.key.microbatch,
        .slot = c->open.slot,
        .direction = (uint8_t)c->open.key.direction,
        .action = c->open.action,
        .reason = c->open.reason,
        .rerun = status == GH_RERUN,
    };

    gh_trace_event(c->options.trace, &record);
}

/* What costs performance and is not an entry's own failure, which says so
 * itself: the first of its kind stands for all. */
static void say_once(struct gh_capture *c)
{
    static const char *const why[GH_REASON_COUNT] = {
        [GH_REASON_BUSY] = "all slots are in flight: raise "
                           "GRAPHHOOKS_MAX_SLOTS, or run fewer at once",
        [GH_REASON_INPUT] = "its inputs are not those it was recorded with, in "
                            "number, size or static address",
        [GH_REASON_FROZEN] = "GRAPHHOOKS_FREEZE refuses new recordings",
        [GH_REASON_HOST_CAPTURE] = "the host is capturing its stream",
    };
    const uint32_t bit = UINT32_C(1) << c->open.reason;
    char where[120];

    if (why[c->open.reason] == NULL || (c->said & bit) != 0) {
        return;
    }
    c->said |= bit;
    gh_plan_extent(c->plan, &c->plan->segments[c->open.key.segment], where,
                   sizeof(where));
    gh_log_line(c->options.log, GH_LOG_WARN,
                "%s %s, microbatch %u, ran eagerly: %s; this is said once",
                where,
                c->open.key.direction == GH_FORWARD ? "forward" : "backward",
                c->open.key.microbatch, why[c->open.reason]);
}

/* A pass that the host has run: recorded, compared or plain. */
static GH_COLD gh_status close_run(struct gh_capture *c, const gh_pass *pass,
                                   gh_error *err)
{
    gh_status status;

    if (c->open.action == GH_ACTION_RECORD) {
        status = gh_record_end(c, pass, err);
        if (status != GH_OK) {
            return status;
        }
        if (c->open.entry->state == GH_ENTRY_READY) {
            return GH_OK;
        }
        c->open.reason = c->open.entry->reason;
    } else if (c->open.reason == GH_REASON_CHECK) {
        gh_check_end(c, c->open.entry, pass);
    }
    c->stats.eager_passes++;
    c->stats.eager_by_reason[c->open.reason]++;
    say_once(c);
    return GH_OK;
}

static gh_status close_pass(struct gh_capture *c, const gh_pass *pass,
                            gh_error *err)
{
    gh_status status;

    if (c->open.action != GH_ACTION_REPLAYED) {
        status = close_run(c, pass, err);
        if (status != GH_OK) {
            c->open.active = false;
            return status;
        }
    }
    return move_on(c, pass);
}

static GH_COLD gh_status close_timed(struct gh_capture *c, const gh_pass *pass,
                                     gh_error *err)
{
    const uint64_t start = gh_now_ns();
    gh_status status = close_pass(c, pass, err);

    c->stats.hook_ns += c->timed_every * (gh_now_ns() - start);
    if (c->options.trace != NULL) {
        add_to_trace(c, status);
    }
    return status;
}

gh_status gh_capture_exit(struct gh_capture *c, const gh_pass *pass,
                          gh_error *err)
{
    if (!is_same(c, pass)) {
        return refuse_exit(c, pass, err);
    }
    c->exits++;
    if (c->open.timed) {
        return close_timed(c, pass, err);
    }
    return close_pass(c, pass, err);
}

bool gh_capture_replayed(const struct gh_capture *c)
{
    return c->open.active && c->open.action == GH_ACTION_REPLAYED;
}

void gh_capture_cancel(struct gh_capture *c)
{
    if (!c->open.active) {
        return;
    }
    if (c->open.action == GH_ACTION_RECORD) {
        gh_record_drop(c);
    }
    give_slot_up(c);
    c->open.active = false;
}

bool gh_capture_is_open(const struct gh_capture *c)
{
    return c->open.active;
}

void gh_capture_pause(struct gh_capture *c)
{
    c->paused++;
}

bool gh_capture_resume(struct gh_capture *c)
{
    if (c->paused == 0) {
        return false;
    }
    c->paused--;
    return true;
}

void gh_capture_end_step(struct gh_capture *c)
{
    uint32_t held = gh_slots_end_step(c->slots);

    if (held != 0) {
        gh_log_line(c->options.log, GH_LOG_INFO,
                    "step %llu ended with %u microbatches that ran no "
                    "backward",
                    (unsigned long long)c->stats.iterations, held);
    }
    c->stats.iterations++;
    if (c->options.trace != NULL) {
        gh_trace_step_end(c->options.trace);
    }
}

void gh_capture_stats(const struct gh_capture *c, gh_stats *stats)
{
    *stats = c->stats;
    stats->hook_calls = c->enters + c->exits;
}
