/*
 * agree.c - see agree.h.
 *
 * What ranks say begins with where they are: the same step, pass and slot.
 * Microbatches are not compared: they have numbers of each rank's own.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "capture/agree.h"

#include "base/error.h"
#include "capture/ranks.h"
#include "capture/record.h"
#include "comm/comm.h"

#include <stdio.h>

/* ---- words --------------------------------------------------------------- */

enum {
    HEAD,  /* where it is asked, the answer and its reason */
    STEP,  /* that has not ended */
    PASS,  /* segment, direction, variant and flags */
    PLACE, /* the slot */
    WORDS
};

/* Where it is asked.  Values are compared between ranks of one library. */
enum place {
    AT_ENTER = 1,
    AT_EXIT,
    AT_CHECK,
    AT_PASS
};

/* The worst of all ranks' is what all do. */
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

static uint64_t head_of(enum place place, uint32_t answer, gh_reason reason)
{
    return (uint64_t)GH_ABI_MINOR << 32 | (uint64_t)place << 16 |
           (uint64_t)answer << 8 | reason;
}

static enum place place_in(const uint64_t *words)
{
    return (enum place)(words[HEAD] >> 16 & 0xff);
}

static uint32_t answer_in(const uint64_t *words)
{
    return words[HEAD] >> 8 & 0xff;
}

static gh_reason reason_in(const uint64_t *words)
{
    return words[HEAD] & 0xff;
}

static void write_words(const struct gh_capture *c, uint64_t *words)
{
    const uint32_t flags = c->open.flags & ~(uint32_t)GH_CALL_FLAGS;

    words[STEP] = c->stats.iterations;
    words[PASS] = (uint64_t)flags << 48 | (uint64_t)c->open.variant << 40 |
                  (uint64_t)c->open.direction << 32 | c->open.segment;
    words[PLACE] = c->open.slot;
}

/* ---- a rank that is elsewhere -------------------------------------------- */

static bool is_same_place(const uint64_t *a, const uint64_t *b)
{
    return place_in(a) == place_in(b) && a[STEP] == b[STEP] &&
           a[PASS] == b[PASS] && a[PLACE] == b[PLACE];
}

/* "step 7, layer 3 attn..mlp forward, slot 1", of another rank too: the plans
 * are alike. */
static void describe(const struct gh_capture *c, const uint64_t *words,
                     char *text, size_t bytes)
{
    static const char *const where[] = {
        [AT_ENTER] = "", [AT_EXIT] = " (its end)", [AT_CHECK] = " (compared)",
        [AT_PASS] = ""
    };
    const uint32_t segment = (uint32_t)words[PASS];
    const uint32_t direction = words[PASS] >> 32 & 0xff;
    const enum place place = place_in(words);
    char slot[24] = "no slot", extent[80];

    if (segment >= c->plan->n_segments || direction > GH_WGRAD ||
        place < AT_ENTER || place > AT_PASS) {
        snprintf(text, bytes, "where no pass is");
        return;
    }
    if ((uint32_t)words[PLACE] != GH_SLOT_NONE) {
        snprintf(slot, sizeof(slot), "slot %u", (uint32_t)words[PLACE]);
    }
    gh_plan_extent(c->plan, &c->plan->segments[segment], extent,
                   sizeof(extent));
    snprintf(text, bytes, "in step %llu at %s %s%s, %s%s",
             (unsigned long long)words[STEP], extent,
             gh_direction_names[direction],
             (words[PASS] >> 40 & 0xff) == 0 ? "" : " (variant 1)", slot,
             where[place]);
}

static gh_status refuse_elsewhere(struct gh_capture *c, const uint64_t *mine,
                                  const uint64_t *theirs, uint32_t rank,
                                  gh_error *err)
{
    char here[160], there[160], text[420];

    describe(c, mine, here, sizeof(here));
    describe(c, theirs, there, sizeof(there));
    snprintf(text, sizeof(text),
             "rank %u is %s, and this rank %s: enter the passes of a bank in "
             "one order, and flights too",
             rank, there, here);
    return gh_ranks_part(c, text, err);
}

/* ---- asking -------------------------------------------------------------- */

/* *all_p: what each has said. */
static gh_status say(struct gh_capture *c, enum place place, uint32_t answer,
                     gh_reason reason, const uint64_t **all_p, gh_error *err)
{
    struct gh_comm *comm = c->open.bank->comm;
    const bool was_serving = c->serving, was_active = c->open.active;
    uint64_t mine[WORDS] = { head_of(place, answer, reason) };
    struct gh_device_before before;
    char text[320];
    gh_status status;
    gh_error why;

    write_words(c, mine);
    c->stats.asked++;
    before = gh_device_enter(c->dev);
    c->open.active = c->serving = true; /* gather is a service too */
    status = gh_comm_gather(comm, mine, WORDS, all_p, &why);
    c->open.active = was_active;
    c->serving = was_serving;
    gh_device_leave(c->dev, before);
    if (status != GH_OK) {
        snprintf(text, sizeof(text), "%s%s%s", why.text,
                 place != AT_ENTER    ? ""
                 : answer == GOES_ON ? "; here it is recorded"
                                      : "; here it is not replayed: ",
                 place != AT_ENTER || answer == GOES_ON
                     ? ""
                     : gh_reason_name(reason));
        return gh_ranks_part(c, text, err);
    }
    for (uint32_t i = 0; i < gh_comm_size(comm); i++) {
        const uint64_t *theirs = *all_p + (size_t)i * WORDS;

        if (!is_same_place(mine, theirs)) {
            return refuse_elsewhere(c, mine, theirs, i, err);
        }
    }
    return GH_OK;
}

static gh_status ask(struct gh_capture *c, enum place place, enum answer answer,
                     gh_reason reason, struct verdict *verdict, gh_error *err)
{
    const uint64_t *all;
    gh_status status = say(c, place, answer, reason, &all, err);

    if (status != GH_OK) {
        return status;
    }
    *verdict = (struct verdict){ GOES_ON, 0, GH_REASON_NONE };
    for (uint32_t i = 0; i < gh_comm_size(c->open.bank->comm); i++) {
        const uint64_t *theirs = all + (size_t)i * WORDS;

        if (answer_in(theirs) > verdict->answer) {
            *verdict = (struct verdict){ (enum answer)answer_in(theirs), i,
                                         reason_in(theirs) };
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
    return status == GH_OK ? GH_OK : gh_ranks_part(c, why.text, err);
}

/* ---- the beginning of a recording ---------------------------------------- */

static enum answer answer_at_enter(const struct gh_capture *c)
{
    if (c->open.action == GH_ACTION_RECORD) {
        return GOES_ON;
    }
    return c->open.entry->state == GH_ENTRY_EAGER ? FAILED : NOT_NOW;
}

/* It is as if this rank had never tried.  The entry of a bank that may have no
 * graphs now is everybody's, and stays as it is. */
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
        ask(c, AT_ENTER, mine, c->open.reason, &verdict, err);

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
               ? ask(c, AT_ENTER, NOT_NOW, c->open.reason, &verdict, err)
               : status;
}

/* ---- its end ------------------------------------------------------------- */

gh_status gh_agree_on_recording(struct gh_capture *c, gh_error *err)
{
    const bool whole = c->open.entry->state != GH_ENTRY_EAGER;
    struct verdict verdict;
    gh_status status = gh_agree_follow(c, err);

    if (status == GH_OK) {
        status = ask(c, AT_EXIT, whole ? GOES_ON : FAILED,
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
        ask(c, AT_EXIT, FAILED, c->open.entry->reason, &verdict, NULL);
    }
}

gh_status gh_agree_on_check(struct gh_capture *c, gh_error *err)
{
    const bool same = c->open.entry->state == GH_ENTRY_READY;
    struct verdict verdict;
    gh_status status = gh_agree_follow(c, err);

    if (status == GH_OK) {
        status = ask(c, AT_CHECK, same ? GOES_ON : FAILED,
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

    describe(c, first, where, sizeof(where));
    gh_log_line(c->options.log, GH_LOG_WARN,
                "GRAPHHOOKS_CHECK: the ranks of bank %u part %s, microbatch "
                "%u of this one: rank 0 %s (%s), rank %u %s (%s); all run it "
                "eagerly",
                c->open.bank->number, where, c->open.microbatch,
                name_of(answer_in(first)), gh_reason_name(reason_in(first)),
                rank, name_of(answer_in(other)),
                gh_reason_name(reason_in(other)));
}

gh_status gh_agree_on_pass(struct gh_capture *c, gh_action action,
                           bool *alike_p, gh_error *err)
{
    const uint64_t *all;
    gh_status status = gh_agree_follow(c, err);

    *alike_p = true;
    if (status == GH_OK) {
        status = say(c, AT_PASS, action, c->open.reason, &all, err);
    }
    if (status != GH_OK) {
        return status;
    }
    c->stats.checks++;
    for (uint32_t i = 1; i < gh_comm_size(c->open.bank->comm); i++) {
        const uint64_t *theirs = all + (size_t)i * WORDS;

        if (answer_in(theirs) != answer_in(all)) {
            *alike_p = false;
            c->stats.check_failures++;
            say_unlike(c, all, theirs, i);
            break;
        }
    }
    return GH_OK;
}
