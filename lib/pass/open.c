/*
 * open.c - see open.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "pass/open.h"

#include "pass/pass.h"
#include "trace/trace.h"

void gh_open_give_slot_up(struct gh_capture *c)
{
    if (c->open.slot != GH_SLOT_NONE) {
        gh_slots_cancel(c->slots, c->open.chunk, c->open.microbatch);
    }
}

void gh_open_begin_timing(struct gh_capture *c)
{
    c->timing.until = c->timing.every;
    c->open.start_ns = gh_now_ns();
}

void gh_open_end_timing(struct gh_capture *c, uint64_t start_ns)
{
    c->counts.stats.hook_ns += c->timing.every * (gh_now_ns() - start_ns);
}

void gh_open_trace(struct gh_capture *c, gh_status status)
{
    const bool failed = status == GH_RERUN &&
                        c->open.entry->state != GH_ENTRY_READY;
    const struct gh_trace_record record = {
        .start_ns = c->open.start_ns,
        .end_ns = gh_now_ns(),
        .segment = c->open.segment,
        .microbatch = c->open.microbatch,
        .slot = c->open.slot,
        .bank = c->open.bank->number,
        .direction = (uint8_t)c->open.direction,
        .variant = (uint8_t)c->open.variant,
        .prepares = gh_open_prepares(&c->open),
        .action = c->open.action,
        .reason = c->open.reason,
        .rerun = failed,
    };

    gh_trace_event(c->options.trace, &record);
}
