/*
 * enter.c - a pass begins: its slot, its decision.
 *
 * One pass is open at a time, from enter to exit.  What is found out here is
 * kept in `open`, so that exit decides nothing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "capture/state.h"

#include "base/error.h"
#include "capture/check.h"
#include "capture/flight.h"
#include "capture/offloads.h"
#include "capture/record.h"
#include "capture/replay.h"

static GH_COLD gh_status refuse_open(const struct gh_capture *c, gh_error *err)
{
    return gh_fail(err, GH_ERR_STATE,
                   "gh_layer_enter: segment %u, microbatch %u is still open: "
                   "call gh_layer_exit or gh_layer_cancel first",
                   c->open.segment, c->open.microbatch);
}

/* Why nothing may be recorded now. */
static gh_reason may_record(const struct gh_capture *c)
{
    uint64_t warmup = c->options.warmup_steps;

    if (c->stats.iterations < warmup ||
        (c->offload != NULL &&
         gh_offload_is_profiling(c->offload, c->stats.iterations))) {
        return GH_REASON_WARMUP;
    }
    /* A profile that is longer than the warmup is one. */
    if (c->offload != NULL && c->offload->profile_steps > warmup) {
        warmup = c->offload->profile_steps;
    }
    if (c->options.freeze != 0 &&
        c->stats.iterations >= warmup + c->options.freeze) {
        return GH_REASON_FROZEN;
    }
    return GH_REASON_NONE;
}

/* A pass in the middle of its flight goes into the host's own graph, also one
 * that the library would never capture. */
static GH_COLD void note_capture(struct gh_capture *c)
{
    if (gh_open_captured(c) == GH_CAPTURING_YES &&
        c->open.slot != GH_SLOT_NONE) {
        c->open.at->order.captured = true;
    }
}

/* Whether the microbatch holds a slot whose offsets are another one's. */
static bool lacks_sequences(const struct gh_capture *c)
{
    return c->open.slot != GH_SLOT_NONE &&
           c->open.at->eager == GH_REASON_PACKED &&
           !gh_slot_is_packed(c->open.at);
}

/* Why the pass cannot have a graph at all. */
static gh_reason may_graph(struct gh_capture *c, const gh_pass *pass)
{
    if (!c->open.counted) {
        gh_packed_note_loose(c);
        return GH_REASON_FORWARD_ONLY;
    }
    if (c->fates[pass->segment].never != GH_REASON_NONE) {
        note_capture(c);
        return lacks_sequences(c) ? GH_REASON_PACKED
                                  : c->fates[pass->segment].never;
    }
    if (gh_open_captured(c) != GH_CAPTURING_NO) {
        note_capture(c);
        return lacks_sequences(c) ? GH_REASON_PACKED : GH_REASON_HOST_CAPTURE;
    }
    if (c->open.slot == GH_SLOT_NONE) {
        return gh_slots_why_none(c->slots, c->open.chunk, pass->microbatch);
    }
    return c->open.at->eager;
}

/* The first launch always, and the second, as what a recording has left
 * outside of the graph is still there in the first; then one in check_every.
 * What the host launches may advance its random numbers: not twice. */
static bool check_is_due(struct gh_capture *c, struct gh_entry *entry)
{
    if (!c->options.check || entry->exec == NULL) {
        return false;
    }
    if (!gh_check_has_results(entry)) {
        gh_say_nothing_to_compare(c);
        return false;
    }
    return entry->turns++ < 2 || entry->turns % c->options.check_every == 0;
}

static GH_COLD void give_up_launching(struct gh_capture *c,
                                      struct gh_entry *entry)
{
    if (c->open.not_now) {
        gh_say_not_now(c);
        c->open.reason = GH_REASON_INPUT;
        return;
    }
    gh_entry_give_up(c, entry, GH_REASON_DEVICE, c->why.text);
    c->open.reason = GH_REASON_DEVICE;
}

static void replayed(struct gh_capture *c, struct gh_entry *entry)
{
    c->open.action = GH_ACTION_REPLAYED;
    entry->ran = c->open.number;
}

static GH_COLD gh_status use_checked(struct gh_capture *c, const gh_pass *pass,
                                     struct gh_entry *entry, gh_error *err)
{
    switch (gh_check_begin(c, entry, pass, &c->why)) {
    case GH_CHECK_READY:
        c->open.reason = GH_REASON_CHECK;
        return GH_OK;
    case GH_CHECK_STANDS:
        replayed(c, entry);
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
    if (gh_open_prepares(&c->open)) {
        c->open.action = GH_ACTION_REPLAYED;
        return GH_OK;
    }
    if (check_is_due(c, entry)) {
        return use_checked(c, pass, entry, err);
    }
    if (gh_replay(c, entry, pass->stream, &c->why) != GH_OK) {
        give_up_launching(c, entry);
        return GH_OK;
    }
    replayed(c, entry);
    return GH_OK;
}

/* A host that allocates in a recording keeps there what the later directions
 * read: they were recorded against what goes now. */
static void clear_from(struct gh_capture *c, const gh_pass *pass)
{
    gh_bank_clear(c->open.bank, c->open.entry);
    for (gh_direction d = pass->direction + 1; d < GH_DIRECTIONS; d++) {
        for (uint32_t v = 0; v < GH_VARIANTS; v++) {
            struct gh_entry *entry =
                gh_bank_at(c->open.bank, pass->segment, d, v, c->open.slot);

            if (entry->state == GH_ENTRY_READY) {
                gh_bank_clear(c->open.bank, entry);
            }
        }
    }
}

#define SUSPICIOUS_WARMUP 10000 /* passes of one step */

static GH_COLD void record(struct gh_capture *c, const gh_pass *pass)
{
    struct gh_entry *entry;

    c->open.reason = (uint8_t)may_record(c);
    if (c->open.reason == GH_REASON_WARMUP && c->stats.iterations == 0 &&
        c->eager[GH_REASON_WARMUP] == SUSPICIOUS_WARMUP) {
        gh_say_no_step_ends(c);
    }
    if (c->open.reason == GH_REASON_NONE && !gh_replay_holds(pass)) {
        c->open.reason = GH_REASON_INPUT;
        gh_say_overflow(c, pass);
    }
    if (c->open.reason == GH_REASON_NONE) {
        c->open.reason = (uint8_t)gh_capture_find_place(c, pass);
    }
    if (c->open.reason != GH_REASON_NONE) {
        return;
    }
    entry = c->open.entry;
    if (entry->state == GH_ENTRY_READY) {
        entry->unchained = true;
        clear_from(c, pass);
    }
    c->open.refused = false;
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
        return c->open.reason == GH_REASON_PACKED && lacks_sequences(c)
                   ? gh_packed_refuse_none(pass, c->open.bank, err)
                   : GH_OK;
    }

    entry = gh_bank_at(c->open.bank, pass->segment, pass->direction,
                       pass->variant, c->open.slot);
    c->open.entry = entry;
    if (entry->state == GH_ENTRY_EAGER) {
        c->open.reason = entry->reason;
        return GH_OK;
    }
    if (entry->state == GH_ENTRY_READY) {
        enum gh_fit fit = gh_replay_fits(entry, pass);

        if (((entry->flags ^ pass->flags) & ~GH_CALL_FLAGS) != 0) {
            fit = GH_FIT_NO;
        }

        if (fit == GH_FIT_YES) {
            return use_ready(c, pass, entry, err);
        }
        if (fit == GH_FIT_NO) {
            c->open.reason = GH_REASON_INPUT;
            gh_say_misfit(c, entry, pass);
            return GH_OK;
        }
    }
    record(c, pass);
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
    } else if (c->open.reason == GH_REASON_CHECK && entry->filled != NULL) {
        d->inputs = entry->inputs; /* of the sizes that the graph has seen */
    }
}

/* What the flags of the call ask for: not to move on, and not to stay open. */
static __attribute__((noinline)) void obey_call(struct gh_capture *c,
                                                const gh_pass *pass)
{
    if (gh_open_prepares(&c->open)) {
        c->open.counted = false;
    }
    if (gh_open_needs_no_exit(&c->open)) {
        gh_flight_go_on(c, pass);
    }
}

static GH_COLD void end_timing(struct gh_capture *c)
{
    gh_open_end_timing(c, c->open.start_ns);
    if (!c->open.active && c->options.trace != NULL) {
        gh_open_trace(c, GH_OK);
    }
}

/* The legacy stream is never the last one: which it is depends on the
 * context that is current, so every pass on it comes through here. */
static GH_COLD gh_status check_stream(struct gh_capture *c, void *stream,
                                      gh_error *err)
{
    gh_status status;

    if (!gh_device_is_legacy(stream)) {
        return gh_streams_know(&c->streams, stream, err);
    }
    if (c->options.enabled && !gh_device_is_current(c->dev)) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_pass.stream is the legacy default stream, which is "
                       "of another context than the session's on this thread: "
                       "make the session's current, or give a stream");
    }
    status = gh_streams_know(&c->streams, stream, err);
    c->streams.last = GH_NO_STREAM;
    return status;
}

/* O(1), whatever the number of banks. */
static inline gh_status select_bank(struct gh_capture *c, const gh_pass *pass,
                                    gh_error *err)
{
    if (pass->bank < c->banks.n) {
        c->open.bank = c->banks.all[pass->bank];
        if (pass->group == NULL || pass->group == c->open.bank->group) {
            return GH_OK;
        }
    }
    return gh_capture_refuse_bank(c, pass, err);
}

static inline gh_status begin_call(struct gh_capture *c, const gh_pass *pass,
                                   gh_error *err)
{
    if (c->ended != NULL) {
        gh_order_end(&c->ended->order, &c->streams);
        c->ended = NULL;
    }
    if (pass->stream != c->streams.last) {
        gh_status status = check_stream(c, pass->stream, err);

        if (status != GH_OK) {
            return status;
        }
    }
    return select_bank(c, pass, err);
}

gh_status gh_capture_begin_call(struct gh_capture *c, const gh_pass *pass,
                                gh_error *err)
{
    return begin_call(c, pass, err);
}

gh_status gh_capture_enter(struct gh_capture *c, const gh_pass *pass,
                           gh_decision *decision, gh_error *err)
{
    gh_status status;

    if (c->open.active) {
        return refuse_open(c, err);
    }
    c->open.timed = --c->until_timed == 0;
    if (c->open.timed) {
        gh_open_begin_timing(c);
    }
    status = begin_call(c, pass, err);
    if (status != GH_OK) {
        return status;
    }

    if (c->offload != NULL) {
        c->open.not_now = false;
        gh_offloads_tell(c);
        status = gh_offloads_turn(c, pass, err);
        if (status != GH_OK) {
            return status;
        }
    }

    gh_open_name(&c->open, pass);
    c->open.number = c->enters;
    c->open.asked = false;
    c->open.chunk = c->fates[pass->segment].chunk;
    c->open.slot = GH_SLOT_NONE;
    c->open.counted = (pass->flags & GH_PASS_FORWARD_ONLY) == 0;
    if (c->open.counted) {
        status = gh_flight_join(c, pass, err);
        if (status != GH_OK) {
            return status;
        }
    }

    status = decide(c, pass, err);
    if (status != GH_OK) {
        gh_open_give_slot_up(c);
        return status;
    }
    tell(c, pass, decision);
    c->open.active = true;
    c->enters++;
    if ((pass->flags & GH_CALL_FLAGS) != 0) {
        obey_call(c, pass);
    }
    if (c->open.timed) {
        end_timing(c);
    }
    return GH_OK;
}
