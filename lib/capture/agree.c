/*
 * agree.c - see agree.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "capture/agree.h"

#include "base/error.h"
#include "capture/abandon.h"
#include "messages/messages.h"

#include <stdio.h>

static void give_up(struct gh_capture *c, const struct gh_verdict *verdict,
                    const char *what)
{
    char text[160];

    snprintf(text, sizeof(text), "rank %u %s (%s), so no rank %s",
             verdict->rank, what, gh_reason_name(verdict->reason),
             "has a graph for it");
    gh_entry_give_up(c, c->open.entry, GH_REASON_RANKS, text);
}

/* ---- the beginning of a recording ---------------------------------------- */

static enum gh_rank_answer answer_at_enter(const struct gh_capture *c)
{
    if (c->open.action == GH_ACTION_RECORD) {
        return GH_RANK_GOES_ON;
    }
    return c->open.entry->state == GH_ENTRY_EAGER ? GH_RANK_FAILED
                                                  : GH_RANK_NOT_NOW;
}

/* Clears the entry, as if this rank had never tried to record it.  Without
 * admission the bank has no entries of its own, only those that all such banks
 * share: these stay as they are. */
static void forget(struct gh_capture *c)
{
    if (c->open.bank->admitted) {
        gh_bank_clear(c->open.bank, c->open.entry);
    }
}

gh_status gh_agree_to_record(struct gh_capture *c, gh_error *err)
{
    const enum gh_rank_answer mine = answer_at_enter(c);
    struct gh_verdict verdict;
    gh_status status =
        gh_ask(c, GH_AT_ENTER, mine, c->open.reason, &verdict, err);

    if (status == GH_OK && verdict.answer == GH_RANK_GOES_ON) {
        return GH_OK;
    }
    if (mine == GH_RANK_GOES_ON) {
        gh_record_drop(c);
        c->open.action = GH_ACTION_RUN;
        c->open.reason = GH_REASON_RANKS;
    }
    if (status != GH_OK) {
        return status;
    }
    if (verdict.answer == GH_RANK_NOT_NOW) {
        forget(c);
        gh_message_rank(c, verdict.rank, verdict.reason);
    } else if (c->open.entry->state != GH_ENTRY_EAGER) {
        give_up(c, &verdict, "could not begin to record it");
    }
    return GH_OK;
}

gh_status gh_agree_to_leave(struct gh_capture *c, gh_error *err)
{
    struct gh_verdict verdict;
    gh_status status = gh_ask_follow(c, err);

    return status == GH_OK
               ? gh_ask(c, GH_AT_ENTER, GH_RANK_NOT_NOW, c->open.reason,
                        &verdict, err)
               : status;
}

/* ---- its end ------------------------------------------------------------- */

gh_status gh_agree_on_recording(struct gh_capture *c, gh_error *err)
{
    const bool whole = c->open.entry->state != GH_ENTRY_EAGER;
    struct gh_verdict verdict;
    gh_status status = gh_ask_follow(c, err);

    if (status == GH_OK) {
        status = gh_ask(c, GH_AT_EXIT,
                        whole ? GH_RANK_GOES_ON : GH_RANK_FAILED,
                        whole ? GH_REASON_NONE : c->open.entry->reason,
                        &verdict, err);
    }
    if (status != GH_OK || verdict.answer == GH_RANK_GOES_ON || !whole) {
        return status;
    }
    give_up(c, &verdict, "could not record it");
    return GH_RERUN;
}

void gh_agree_to_cancel(struct gh_capture *c)
{
    struct gh_verdict verdict;

    if (c->open.entry->state != GH_ENTRY_EAGER) {
        gh_entry_give_up(c, c->open.entry, GH_REASON_CAPTURE,
                         "the host has given its recording up, and the other "
                         "ranks with it");
    }
    if (gh_ask_follow(c, NULL) == GH_OK) {
        gh_ask(c, GH_AT_EXIT, GH_RANK_FAILED, c->open.entry->reason, &verdict,
               NULL);
    }
}

gh_status gh_agree_on_check(struct gh_capture *c, gh_error *err)
{
    const bool same = c->open.entry->state == GH_ENTRY_READY;
    struct gh_verdict verdict;
    gh_status status = gh_ask_follow(c, err);

    if (status == GH_OK) {
        status = gh_ask(c, GH_AT_CHECK,
                        same ? GH_RANK_GOES_ON : GH_RANK_FAILED,
                        same ? GH_REASON_NONE : c->open.entry->reason,
                        &verdict, err);
    }
    if (status == GH_OK && verdict.answer != GH_RANK_GOES_ON && same) {
        give_up(c, &verdict, "has other numbers with its graph");
    }
    return status;
}
