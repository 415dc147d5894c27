/*
 * cancel.c - the host gives up the open pass, or the other ranks.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"
#include "capture/capture.h"

#include "base/error.h"
#include "capture/abandon.h"
#include "capture/agree.h"
#include "capture/offloads.h"
#include "messages/messages.h"
#include "ranks/ranks.h"

/* After so many steps a pass counts as one whose recordings all fail. */
#define MANY_STEPS 4

/* Nothing else tells of such a pass: it runs eagerly, and the next step records
 * it again. */
static void note_dropped(struct gh_capture *c, struct gh_entry *entry)
{
    const uint64_t step = c->counts.stats.iterations + 1;

    if (entry->state != GH_ENTRY_NEW || entry->dropped == step) {
        return;
    }
    entry->dropped = step;
    if (++entry->drops == MANY_STEPS) {
        gh_message_dropped(c, entry);
    }
}

void gh_capture_cancel(struct gh_capture *c)
{
    if (!c->open.active) {
        return;
    }
    if (c->open.action == GH_ACTION_RECORD) {
        gh_record_drop(c);
        if (gh_ask_is_due(c) && !c->ranks.lost) {
            gh_agree_to_cancel(c);
        }
        note_dropped(c, c->open.entry);
    }
    gh_offloads_cancel(c);
    gh_open_give_slot_up(c);
    c->open.active = false;
    gh_open_end_range(c);
    gh_offloads_tell(c);
}

/* The driver may have ended the capture, or the ranks the recording: that is
 * noted already, and what the host says of it is logged. */
void gh_capture_fail_recording(struct gh_capture *c, const char *why)
{
    struct gh_entry *entry = c->open.recorded;

    gh_capture_cancel(c);
    c->open.bank = c->open.recorded_in; /* another pass may have come since */
    if (entry->state == GH_ENTRY_NEW &&
        entry->spoilt <= c->counts.stats.iterations) {
        gh_record_fail(c, entry, true, why);
    } else {
        gh_log_line(c->options.log, GH_LOG_WARN, "%s: its recording failed: %s",
                    gh_entry_describe(c, entry).text, why);
    }
}

/* The open pass is cancelled first: a recording holds operations, and
 * ncclCommAbort waits for it. */
gh_status gh_capture_abort_ranks(struct gh_capture *c, const char *why,
                                 gh_error *err)
{
    const struct gh_bank *bank = c->ranks.first;
    struct gh_device_before before;

    if (bank == NULL) {
        return gh_fail(err, GH_ERR_STATE, "gh_ranks_abort: no bank has ranks");
    }
    if (c->ranks.lost) {
        return GH_OK;
    }
    before = gh_device_enter(c->dev);
    gh_ranks_note_lost(c, bank, why);
    gh_capture_cancel(c);
    gh_ranks_abort_all(c);
    gh_device_leave(c->dev, before);
    return GH_OK;
}
