/*
 * exit.c - a pass ends: recorded, compared, counted, or given up.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"
#include "capture/capture.h"

#include "base/error.h"
#include "capture/abandon.h"
#include "capture/agree.h"
#include "capture/borders.h"
#include "capture/check.h"
#include "capture/flight.h"
#include "capture/forecast.h"
#include "capture/offloads.h"
#include "capture/record.h"
#include "messages/messages.h"
#include "trace/trace.h"

#include <string.h>

static GH_COLD gh_status refuse_exit(const struct gh_capture *c,
                                     const gh_pass *pass, gh_error *err)
{
    if (!c->open.active) {
        return gh_fail(err, GH_ERR_STATE,
                       "gh_layer_exit: no pass is open: call gh_layer_enter "
                       "first%s",
                       gh_open_needs_no_exit(&c->open)
                           ? " (the last one was replayed "
                             "with GH_PASS_NO_EXIT, so enter "
                             "has ended it)"
                           : "");
    }
    return gh_fail(err, GH_ERR_STATE,
                   "gh_layer_exit: segment %u, direction %u, microbatch %u, "
                   "but the open pass is %u, %u, %u%s (or its variant, "
                   "stream or flags differ)",
                   pass->segment, pass->direction, pass->microbatch,
                   c->open.segment, c->open.direction,
                   c->open.microbatch, gh_capture_whose_open(c));
}

/* A pass that the host has run: recorded, compared or plain. */
static GH_COLD gh_status close_run(struct gh_capture *c, const gh_pass *pass,
                                   gh_error *err)
{
    gh_status status;

    if (c->open.action == GH_ACTION_RECORD) {
        status = gh_record_end(c, pass, err);
        if (status != GH_OK) {
            if (c->open.entry->state != GH_ENTRY_READY) {
                gh_offloads_drop(c);
            }
            return status;
        }
        if (c->open.entry->state == GH_ENTRY_READY) {
            return GH_OK;
        }
        gh_offloads_drop(c);
        c->open.reason = c->open.entry->reason;
    }
    if (gh_open_prepares(&c->open)) {
        return GH_OK;
    }
    if (c->open.reason == GH_REASON_CHECK) {
        status = gh_check_end(c, c->open.entry, pass, err);
        if (status != GH_OK) {
            return status;
        }
        if (gh_ask_is_due(c)) {
            status = gh_agree_on_check(c, err);
            if (status != GH_OK) {
                return status;
            }
        }
    }
    gh_borders_keep(c, pass);
    if (c->open.reason == GH_REASON_WARMUP) {
        gh_forecast_outputs(c, pass);
    }
    c->counts.stats.eager_passes++;
    c->counts.eager[c->open.reason]++;
    gh_message_eager(c);
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
        if (c->options.strict && !gh_open_prepares(&c->open)) {
            status = gh_message_strictly(c, err);
            gh_flight_go_on(c, pass);
            return status;
        }
    }
    gh_flight_go_on(c, pass);
    return GH_OK;
}

static GH_COLD gh_status close_timed(struct gh_capture *c, const gh_pass *pass,
                                     gh_error *err)
{
    const uint64_t start = gh_now_ns();
    gh_status status = close_pass(c, pass, err);

    gh_open_end_timing(c, start);
    if (c->options.trace != NULL) {
        gh_open_trace(c, status);
    }
    return status;
}

/* Closes the pass, and tells the host which of its memory the library has
 * finished reading. */
static GH_COLD gh_status close_and_tell(struct gh_capture *c,
                                        const gh_pass *pass, gh_error *err)
{
    gh_status status = c->open.timed ? close_timed(c, pass, err)
                                     : close_pass(c, pass, err);

    gh_offloads_tell(c);
    return status;
}

bool gh_capture_ends_replayed(struct gh_capture *c, const gh_pass *pass)
{
    if (c->open.action != GH_ACTION_REPLAYED || c->open.timed ||
        !gh_open_is(&c->open, pass)) {
        return false;
    }
    c->counts.exits++;
    gh_flight_go_on(c, pass);
    return true;
}

gh_status gh_capture_exit(struct gh_capture *c, const gh_pass *pass,
                          gh_error *err)
{
    if (!gh_open_is(&c->open, pass)) {
        return refuse_exit(c, pass, err);
    }
    c->counts.exits++;
    if (c->offload != NULL) {
        return close_and_tell(c, pass, err);
    }
    if (c->open.timed) {
        return close_timed(c, pass, err);
    }
    return close_pass(c, pass, err);
}

