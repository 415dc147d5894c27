/*
 * enter.c - a pass begins: its slot, its decision.
 *
 * One pass is open at a time, from enter to exit.  What is found out here is
 * kept in `open`, so that exit decides nothing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"
#include "capture/capture.h"

#include "base/error.h"
#include "capture/abandon.h"
#include "capture/call.h"
#include "capture/check.h"
#include "capture/decide.h"
#include "capture/flight.h"
#include "capture/offloads.h"
#include "capture/replay.h"
#include "capture/watchdog.h"
#include "messages/messages.h"
#include "ranks/ranks.h"

static GH_COLD gh_status refuse_open(const struct gh_capture *c, gh_error *err)
{
    return gh_fail(err, GH_ERR_STATE,
                   "gh_layer_enter: segment %u, microbatch %u is still open%s: "
                   "call gh_layer_exit or gh_layer_cancel first",
                   c->open.segment, c->open.microbatch,
                   gh_capture_whose_open(c));
}

/* The host captures a pass in the middle of its flight, so the slot has work in
 * a graph of the host's.  That is noted also for a pass that the library never
 * captures. */
static GH_COLD void note_capture(struct gh_capture *c)
{
    if (gh_open_captured(c) == GH_CAPTURING_YES &&
        c->open.slot != GH_SLOT_NONE) {
        c->open.at->order.captured = true;
    }
}

/* Why the pass can have no graph; GH_REASON_NONE: it can. */
static gh_reason may_graph(struct gh_capture *c, const gh_pass *pass)
{
    if (!c->open.counted) {
        gh_flight_note_slotless(c);
        return pass->direction == GH_FORWARD ? GH_REASON_FORWARD_ONLY
                                             : GH_REASON_PLAN;
    }
    if (c->fixed.fates[pass->segment].never != GH_REASON_NONE) {
        note_capture(c);
        return gh_open_lacks_sequences(&c->open)
                   ? GH_REASON_PACKED
                   : c->fixed.fates[pass->segment].never;
    }
    if (gh_open_captured(c) != GH_CAPTURING_NO) {
        note_capture(c);
        return gh_open_lacks_sequences(&c->open) ? GH_REASON_PACKED
                                                 : GH_REASON_HOST_CAPTURE;
    }
    if (c->open.slot == GH_SLOT_NONE) {
        return gh_slots_why_none(c->slots, c->open.chunk, pass->microbatch);
    }
    return c->open.at->eager;
}

/* The first two launches are checked, then one in check_every.  The second is,
 * as the first may still find what the recording has left outside of the graph.
 * A graph that the host launches is never checked: a second launch could
 * advance the host's random numbers. */
static bool check_is_due(struct gh_capture *c, struct gh_entry *entry)
{
    if (entry->exec == NULL) {
        return false;
    }
    if (!gh_check_has_results(entry)) {
        gh_message_nothing_to_compare(c);
        return false;
    }
    return entry->turns++ < 2 || entry->turns % c->options.check_every == 0;
}

static GH_COLD gh_status give_up_launching(struct gh_capture *c,
                                           struct gh_entry *entry,
                                           gh_error *err)
{
    if (c->open.not_now) {
        gh_message_not_now(c);
        return gh_decide_to_leave(c, GH_REASON_INPUT, err);
    }
    gh_entry_give_up(c, entry, GH_REASON_DEVICE, c->host.why.text);
    return gh_decide_to_leave(c, GH_REASON_DEVICE, err);
}

static void replayed(struct gh_capture *c, struct gh_entry *entry)
{
    c->open.action = GH_ACTION_REPLAYED;
    entry->ran = c->open.number;
}

static GH_COLD gh_status use_checked(struct gh_capture *c, const gh_pass *pass,
                                     struct gh_entry *entry, gh_error *err)
{
    switch (gh_check_begin(c, entry, pass, &c->host.why)) {
    case GH_CHECK_READY:
        c->open.reason = GH_REASON_CHECK;
        return GH_OK;
    case GH_CHECK_STANDS:
        replayed(c, entry);
        return GH_OK;
    case GH_CHECK_NOT_RUN:
        return give_up_launching(c, entry, err);
    default:
        return gh_fail(err, GH_ERR_DEVICE,
                       "GRAPHHOOKS_CHECK could not restore what %s updates: "
                       "%.100s",
                       gh_entry_describe(c, entry).text, c->host.why.text);
    }
}

/* Launches the graph: no check is due, or all ranks have agreed to it. */
static inline gh_status launch(struct gh_capture *c, const gh_pass *pass,
                               struct gh_entry *entry, gh_error *err)
{
    if (gh_replay(c, entry, pass->stream, &c->host.why) != GH_OK) {
        return give_up_launching(c, entry, err);
    }
    replayed(c, entry);
    return GH_OK;
}

static GH_COLD gh_status check_and_use(struct gh_capture *c,
                                       const gh_pass *pass,
                                       struct gh_entry *entry, gh_error *err)
{
    gh_status status;
    bool alike;

    if (c->options.check == GH_CHECKS_BITS) {
        return check_is_due(c, entry) ? use_checked(c, pass, entry, err)
                                      : launch(c, pass, entry, err);
    }
    status = gh_decide_alike(c, GH_ACTION_REPLAYED, &alike, err);
    return status == GH_OK && alike ? launch(c, pass, entry, err) : status;
}

static gh_status use_ready(struct gh_capture *c, const gh_pass *pass,
                           struct gh_entry *entry, gh_error *err)
{
    if (gh_open_prepares(&c->open)) {
        c->open.action = GH_ACTION_REPLAYED;
        return GH_OK;
    }
    if (c->options.check != GH_CHECKS_NOTHING) {
        return check_and_use(c, pass, entry, err);
    }
    return launch(c, pass, entry, err);
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
        return gh_decide_without(c, pass, err);
    }

    entry = gh_bank_at(c->open.bank, pass->segment, pass->direction,
                       pass->variant, c->open.slot);
    c->open.entry = entry;
    if (entry->state == GH_ENTRY_EAGER) {
        c->open.reason = entry->reason;
        return gh_decide_without(c, pass, err);
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
            return gh_decide_misfit(c, pass, err);
        }
    }
    return gh_decide_to_record(c, pass, err);
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

/* The flags of a call can ask that the microbatch does not move on, and that
 * the pass needs no exit. */
static GH_ASIDE void obey_call(struct gh_capture *c, const gh_pass *pass)
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
    if (c->watchdog != NULL && c->open.action == GH_ACTION_REPLAYED &&
        !gh_open_prepares(&c->open)) {
        gh_watchdog_mark(c);
    }
}

/* No pass is open. */
static GH_COLD gh_status stopped(struct gh_capture *c, gh_status status)
{
    gh_open_end_range(c);
    return status;
}

/* Once the ranks are lost that is the error, whatever else is wrong with the
 * pass: a host that asks for GH_ERR_RANKS learns it wherever it is. */
static GH_COLD gh_status refused(struct gh_capture *c, gh_status status,
                                 gh_error *err)
{
    return stopped(c, c->ranks.lost ? gh_ranks_refuse(c, err) : status);
}

gh_status gh_capture_enter(struct gh_capture *c, const gh_pass *pass,
                           gh_decision *decision, gh_error *err)
{
    gh_status status;

    if (c->open.active) {
        return refuse_open(c, err);
    }
    c->open.timed = --c->timing.until == 0;
    if (c->open.timed) {
        gh_open_begin_timing(c, pass);
    }
    status = gh_call_begin(c, pass, err);
    if (status != GH_OK) {
        return stopped(c, status);
    }

    if (c->offload != NULL) {
        status = gh_offloads_begin(c, pass, err);
        if (status != GH_OK) {
            return refused(c, status, err);
        }
    }

    gh_open_name(&c->open, pass);
    c->open.number = c->counts.enters;
    c->open.asked = false;
    c->open.chunk = c->fixed.fates[pass->segment].chunk;
    c->open.slot = GH_SLOT_NONE;
    c->open.counted = (pass->flags & GH_PASS_FORWARD_ONLY) == 0;
    if (c->open.counted) {
        status = gh_flight_join(c, pass, err);
        if (status != GH_OK) {
            return refused(c, status, err);
        }
    }

    status = decide(c, pass, err);
    if (status != GH_OK) {
        gh_open_give_slot_up(c);
        return refused(c, status, err);
    }
    tell(c, pass, decision);
    c->open.active = true;
    c->open.thread = gh_this_thread();
    c->counts.enters++;
    if ((pass->flags & GH_CALL_FLAGS) != 0) {
        obey_call(c, pass);
    }
    if (c->open.timed) {
        end_timing(c);
    }
    return GH_OK;
}
