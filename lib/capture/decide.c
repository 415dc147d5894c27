/*
 * decide.c - see decide.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"
#include "capture/decide.h"

#include "base/error.h"
#include "capture/agree.h"
#include "capture/aux.h"
#include "capture/forecast.h"
#include "capture/packed.h"
#include "capture/record.h"
#include "capture/replay.h"
#include "capture/services.h"
#include "messages/messages.h"
#include "offload/offload.h"
#include "pass/capacity.h"
#include "ranks/ranks.h"

gh_status gh_decide_alike(struct gh_capture *c, gh_action action, bool *alike_p,
                          gh_error *err)
{
    gh_status status = GH_OK;

    *alike_p = true;
    if (c->options.check == GH_CHECKS_RANKS && c->open.counted &&
        gh_ask_is_due(c) && !gh_open_prepares(&c->open)) {
        status = gh_ask_about_pass(c, action, alike_p, err);
        if (!*alike_p && c->open.reason == GH_REASON_NONE) {
            c->open.reason = GH_REASON_RANKS;
        }
    }
    return status;
}

gh_status gh_decide_to_leave(struct gh_capture *c, gh_reason reason,
                             gh_error *err)
{
    c->open.reason = (uint8_t)reason;
    return gh_ask_is_due(c) ? gh_agree_to_leave(c, err) : GH_OK;
}

/* Why nothing may be recorded now; GH_REASON_NONE: it may. */
static gh_reason may_record(const struct gh_capture *c)
{
    uint64_t warmup = c->options.warmup_steps;

    if (c->counts.stats.iterations < warmup ||
        (c->offload != NULL &&
         gh_offload_is_profiling(c->offload, c->counts.stats.iterations))) {
        return GH_REASON_WARMUP;
    }
    /* A profile that takes longer than the warmup counts as warmup. */
    if (c->offload != NULL && c->offload->profile_steps > warmup) {
        warmup = c->offload->profile_steps;
    }
    if (c->options.freeze != 0 &&
        c->counts.stats.iterations >= warmup + c->options.freeze) {
        return GH_REASON_FROZEN;
    }
    return GH_REASON_NONE;
}

/* Drops the graph and those of the later directions.  Where the host allocates
 * in a recording, these read memory that goes with the graph. */
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

static void begin_recording(struct gh_capture *c, const gh_pass *pass)
{
    struct gh_entry *entry;

    if (!gh_capacities_hold(pass)) {
        c->open.reason = GH_REASON_INPUT;
        gh_message_overflow(c, pass);
    }
    if (c->open.reason == GH_REASON_NONE) {
        c->open.reason = (uint8_t)gh_capture_find_entry(c, pass);
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
        c->open.recorded = entry;
        c->open.recorded_in = c->open.bank;
    } else {
        c->open.reason = entry->reason;
    }
}

/* All ranks of a bank know alike whether anything may be recorded now, so
 * nobody is asked.  Whether this pass can be recorded may differ, so the ranks
 * ask each other. */
gh_status gh_decide_to_record(struct gh_capture *c, const gh_pass *pass,
                              gh_error *err)
{
    const bool due = gh_ask_is_due(c);
    gh_status status;
    bool alike;

    c->open.reason = (uint8_t)may_record(c);
    if (c->open.reason == GH_REASON_WARMUP && !c->forecast.done) {
        gh_forecast_inputs(c, pass);
    }
    if (c->open.entry->spoilt > c->counts.stats.iterations) {
        c->open.reason = GH_REASON_WARMUP; /* ranks have none */
    }
    if (c->open.reason == GH_REASON_WARMUP && c->counts.stats.iterations == 0 &&
        c->counts.eager[GH_REASON_WARMUP] == SUSPICIOUS_WARMUP) {
        gh_message_no_step_ends(c);
    }
    status = gh_decide_alike(c,
                             c->open.reason == GH_REASON_NONE
                                 ? GH_ACTION_RECORD
                                 : GH_ACTION_RUN,
                             &alike, err);
    if (status == GH_OK && c->open.reason == GH_REASON_NONE && due) {
        status = gh_ask_follow(c, err);
    }
    if (status != GH_OK || c->open.reason != GH_REASON_NONE) {
        return status;
    }
    begin_recording(c, pass);
    return due ? gh_agree_to_record(c, err) : GH_OK;
}

gh_status gh_decide_without(struct gh_capture *c, const gh_pass *pass,
                            gh_error *err)
{
    bool alike;

    if (c->open.reason == GH_REASON_PACKED &&
        gh_open_lacks_sequences(&c->open)) {
        return gh_packed_refuse_none(pass, c->open.bank, err);
    }
    if (c->ranks.lost) {
        return gh_ranks_refuse(c, err);
    }
    /* Its sequences may be missing on this rank only. */
    if (c->open.reason == GH_REASON_PACKED && gh_ask_is_due(c) &&
        c->options.check != GH_CHECKS_RANKS) {
        return gh_agree_to_leave(c, err);
    }
    return gh_decide_alike(c, GH_ACTION_RUN, &alike, err);
}

gh_status gh_decide_misfit(struct gh_capture *c, const gh_pass *pass,
                           gh_error *err)
{
    gh_message_misfit(c, c->open.entry, pass);
    c->open.reason = GH_REASON_INPUT;
    if (c->options.check == GH_CHECKS_RANKS) {
        bool alike;

        return gh_decide_alike(c, GH_ACTION_RUN, &alike, err);
    }
    return gh_decide_to_leave(c, GH_REASON_INPUT, err);
}
