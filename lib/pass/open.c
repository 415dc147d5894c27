/*
 * open.c - see open.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "pass/open.h"

#include "pass/pass.h"
#include "trace/nvtx.h"
#include "trace/trace.h"

#include <stdio.h>

void gh_open_give_slot_up(struct gh_capture *c)
{
    if (c->open.slot != GH_SLOT_NONE) {
        gh_slots_cancel(c->slots, c->open.chunk, c->open.microbatch);
    }
}

static void begin_range(struct gh_capture *c, const gh_pass *pass)
{
    char extent[160], name[200];

    gh_plan_extent(c->plan, &c->plan->segments[pass->segment], extent,
                   sizeof(extent));
    snprintf(name, sizeof(name), "%s %s", extent,
             gh_direction_names[pass->direction]);
    gh_nvtx_push(name);
    c->open.ranged = true;
}

void gh_open_end_range(struct gh_capture *c)
{
    if (c->open.ranged) {
        gh_nvtx_pop();
        c->open.ranged = false;
    }
}

void gh_open_begin_timing(struct gh_capture *c, const gh_pass *pass)
{
    if (c->options.named) {
        begin_range(c, pass);
    }
    c->timing.until = c->timing.every;
    c->open.start_ns = gh_now_ns();
}

void gh_open_end_timing(struct gh_capture *c, uint64_t start_ns)
{
    c->counts.stats.hook_ns += c->timing.every * (gh_now_ns() - start_ns);
    if (!c->open.active) {
        gh_open_end_range(c);
    }
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
