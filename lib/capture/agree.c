/*
 * agree.c - see agree.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "capture/agree.h"

#include "base/error.h"
#include "capture/abandon.h"
#include "capture/places.h"
#include "capture/ranks.h"
#include "capture/services.h"
#include "comm/comm.h"

#include <stdio.h>

/* ---- words --------------------------------------------------------------- */

/* What a rank answers.  All ranks do what the worst answer says. */
enum answer {
    GOES_ON,
    FAILED, /* eager for good */
    NOT_NOW /* eager this time */
};

struct verdict {
    enum answer answer;
    uint32_t rank; /* the first that has given it */
    gh_reason reason;
};

static void write_words(const struct gh_capture *c, enum gh_meeting place,
                        uint32_t answer, gh_reason reason, uint64_t *words)
{
    const uint32_t flags = c->open.flags & ~(uint32_t)GH_CALL_FLAGS;

    words[GH_SAID_HEAD] = gh_place_head(place, answer, reason);
    words[GH_SAID_STEP] = c->stats.iterations;
    words[GH_SAID_WORK] =
        (uint64_t)flags << 48 | (uint64_t)c->open.variant << 40 |
        (uint64_t)c->open.direction << 32 | c->open.segment;
    words[GH_SAID_SLOT] = c->open.slot;
    words[GH_SAID_MORE] = 0;
}

/* ---- asking -------------------------------------------------------------- */

/* Tells the other ranks this rank's words.  *all_p: the words of each. */
static gh_status say(struct gh_capture *c, enum gh_meeting place,
                     uint32_t answer, gh_reason reason,
                     const uint64_t **all_p, gh_error *err)
{
    uint64_t mine[GH_SAID];
    char text[320];
    gh_status status;
    gh_error why;

    write_words(c, place, answer, reason, mine);
    status = gh_place_bring(c, c->open.bank, mine, GH_SAID, all_p, &why);
    if (status != GH_OK) {
        snprintf(text, sizeof(text), "%s%s%s", why.text,
                 place != GH_AT_ENTER ? ""
                 : answer == GOES_ON  ? "; here it is recorded"
                                      : "; here it is not replayed: ",
                 place != GH_AT_ENTER || answer == GOES_ON
                     ? ""
                     : gh_reason_name(reason));
        return gh_ranks_part(c, c->open.bank, text, err);
    }
    return gh_place_compare(c, c->open.bank, mine, *all_p, err);
}

static gh_status ask(struct gh_capture *c, enum gh_meeting place,
                     enum answer answer, gh_reason reason,
                     struct verdict *verdict, gh_error *err)
{
    const uint64_t *all;
    gh_status status = say(c, place, answer, reason, &all, err);

    if (status != GH_OK) {
        return status;
    }
    *verdict = (struct verdict){ GOES_ON, 0, GH_REASON_NONE };
    for (uint32_t i = 0; i < gh_comm_size(c->open.bank->comm); i++) {
        const uint64_t *theirs = all + (size_t)i * GH_SAID;

        if (gh_place_answer(theirs) > verdict->answer) {
            *verdict =
                (struct verdict){ (enum answer)gh_place_answer(theirs), i,
                                  gh_place_reason(theirs) };
        }
    }
    return GH_OK;
}

static void give_up(struct gh_capture *c, const struct verdict *verdict,
                    const char *what)
{
    char text[160];

    snprintf(text, sizeof(text), "rank %u %s (%s), so no rank %s",
             verdict->rank, what, gh_reason_name(verdict->reason),
             "has a graph for it");
    gh_entry_give_up(c, c->open.entry, GH_REASON_RANKS, text);
}

gh_status gh_agree_follow(struct gh_capture *c, gh_error *err)
{
    struct gh_device_before before = gh_device_enter(c->dev);
    gh_error why;
    gh_status status =
        gh_comm_follow(c->open.bank->comm, c->open.stream, &why);

    gh_device_leave(c->dev, before);
    return status == GH_OK
               ? GH_OK
               : gh_ranks_part(c, c->open.bank, why.text, err);
}

/* ---- the beginning of a recording ---------------------------------------- */

static enum answer answer_at_enter(const struct gh_capture *c)
{
    if (c->open.action == GH_ACTION_RECORD) {
        return GOES_ON;
    }
    return c->open.entry->state == GH_ENTRY_EAGER ? FAILED : NOT_NOW;
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
    const enum answer mine = answer_at_enter(c);
    struct verdict verdict;
    gh_status status =
        ask(c, GH_AT_ENTER, mine, c->open.reason, &verdict, err);

    if (status == GH_OK && verdict.answer == GOES_ON) {
        return GH_OK;
    }
    if (mine == GOES_ON) {
        gh_record_drop(c);
        c->open.action = GH_ACTION_RUN;
        c->open.reason = GH_REASON_RANKS;
    }
    if (status != GH_OK) {
        return status;
    }
    if (verdict.answer == NOT_NOW) {
        forget(c);
        gh_say_rank(c, verdict.rank, verdict.reason);
    } else if (c->open.entry->state != GH_ENTRY_EAGER) {
        give_up(c, &verdict, "could not begin to record it");
    }
    return GH_OK;
}

gh_status gh_agree_to_leave(struct gh_capture *c, gh_error *err)
{
    struct verdict verdict;
    gh_status status = gh_agree_follow(c, err);

    return status == GH_OK
               ? ask(c, GH_AT_ENTER, NOT_NOW, c->open.reason, &verdict, err)
               : status;
}

/* ---- its end ------------------------------------------------------------- */

gh_status gh_agree_on_recording(struct gh_capture *c, gh_error *err)
{
    const bool whole = c->open.entry->state != GH_ENTRY_EAGER;
    struct verdict verdict;
    gh_status status = gh_agree_follow(c, err);

    if (status == GH_OK) {
        status = ask(c, GH_AT_EXIT, whole ? GOES_ON : FAILED,
                     whole ? GH_REASON_NONE : c->open.entry->reason, &verdict,
                     err);
    }
    if (status != GH_OK || verdict.answer == GOES_ON || !whole) {
        return status;
    }
    give_up(c, &verdict, "could not record it");
    return GH_RERUN;
}

void gh_agree_to_cancel(struct gh_capture *c)
{
    struct verdict verdict;

    if (c->open.entry->state != GH_ENTRY_EAGER) {
        gh_entry_give_up(c, c->open.entry, GH_REASON_CAPTURE,
                         "the host has given its recording up, and the other "
                         "ranks with it");
    }
    if (gh_agree_follow(c, NULL) == GH_OK) {
        ask(c, GH_AT_EXIT, FAILED, c->open.entry->reason, &verdict, NULL);
    }
}

gh_status gh_agree_on_check(struct gh_capture *c, gh_error *err)
{
    const bool same = c->open.entry->state == GH_ENTRY_READY;
    struct verdict verdict;
    gh_status status = gh_agree_follow(c, err);

    if (status == GH_OK) {
        status = ask(c, GH_AT_CHECK, same ? GOES_ON : FAILED,
                     same ? GH_REASON_NONE : c->open.entry->reason, &verdict,
                     err);
    }
    if (status == GH_OK && verdict.answer != GOES_ON && same) {
        give_up(c, &verdict, "has other numbers with its graph");
    }
    return status;
}

/* ---- GRAPHHOOKS_CHECK=ranks ---------------------------------------------- */

static const char *name_of(gh_action action)
{
    return action == GH_ACTION_REPLAYED ? "replays"
           : action == GH_ACTION_RECORD ? "records"
                                        : "runs eagerly";
}

static void say_unlike(struct gh_capture *c, const uint64_t *first,
                       const uint64_t *other, uint32_t rank)
{
    char where[160];

    gh_place_describe(c, first, where, sizeof(where));
    gh_log_line(c->options.log, GH_LOG_WARN,
                "GRAPHHOOKS_CHECK: the ranks of bank %u part %s, microbatch "
                "%u of this one: rank 0 %s (%s), rank %u %s (%s); all run it "
                "eagerly",
                c->open.bank->number, where, c->open.microbatch,
                name_of(gh_place_answer(first)),
                gh_reason_name(gh_place_reason(first)),
                rank, name_of(gh_place_answer(other)),
                gh_reason_name(gh_place_reason(other)));
}

gh_status gh_agree_on_pass(struct gh_capture *c, gh_action action,
                           bool *alike_p, gh_error *err)
{
    const uint64_t *all;
    gh_status status = gh_agree_follow(c, err);

    *alike_p = true;
    if (status == GH_OK) {
        status = say(c, GH_AT_PASS, action, c->open.reason, &all, err);
    }
    if (status != GH_OK) {
        return status;
    }
    c->stats.checks++;
    for (uint32_t i = 1; i < gh_comm_size(c->open.bank->comm); i++) {
        const uint64_t *theirs = all + (size_t)i * GH_SAID;

        if (gh_place_answer(theirs) != gh_place_answer(all)) {
            *alike_p = false;
            c->stats.check_failures++;
            say_unlike(c, all, theirs, i);
            break;
        }
    }
    return GH_OK;
}
