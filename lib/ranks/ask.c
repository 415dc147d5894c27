/*
 * ask.c - see ask.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "ranks/ask.h"

#include "base/error.h"
#include "comm/comm.h"
#include "ranks/ranks.h"

#include <stdio.h>

/* ---- words --------------------------------------------------------------- */

static void write_words(const struct gh_capture *c,
                        enum gh_rendezvous rendezvous, uint32_t answer,
                        gh_reason reason, uint64_t *words)
{
    const uint32_t flags = c->open.flags & ~(uint32_t)GH_CALL_FLAGS;

    words[GH_WORD_HEAD] = gh_rank_words_head(rendezvous, answer, reason);
    words[GH_WORD_STEP] = c->counts.stats.iterations;
    words[GH_WORD_WORK] = (uint64_t)flags << 48 |
                          (uint64_t)c->open.variant << 40 |
                          (uint64_t)c->open.direction << 32 | c->open.segment;
    words[GH_WORD_SLOT] = c->open.slot;
    words[GH_WORD_MORE] = 0;
}

/* ---- asking -------------------------------------------------------------- */

/* Tells the other ranks this rank's words, and collects theirs in *all_p. */
static gh_status collect_words(struct gh_capture *c,
                               enum gh_rendezvous rendezvous, uint32_t answer,
                               gh_reason reason, const uint64_t **all_p,
                               gh_error *err)
{
    uint64_t mine[GH_WORDS];
    char text[320];
    gh_status status;
    gh_error why;

    write_words(c, rendezvous, answer, reason, mine);
    status =
        gh_rank_words_collect(c, c->open.bank, mine, GH_WORDS, all_p, &why);
    if (status != GH_OK) {
        snprintf(text, sizeof(text), "%s%s%s", why.text,
                 rendezvous != GH_AT_ENTER   ? ""
                 : answer == GH_RANK_GOES_ON ? "; here it is recorded"
                                             : "; here it is not replayed: ",
                 rendezvous != GH_AT_ENTER || answer == GH_RANK_GOES_ON
                     ? ""
                     : gh_reason_name(reason));
        return gh_ranks_lost(c, c->open.bank, text, err);
    }
    return gh_rank_words_compare(c, c->open.bank, mine, *all_p, err);
}

gh_status gh_ask(struct gh_capture *c, enum gh_rendezvous rendezvous,
                 enum gh_rank_answer answer, gh_reason reason,
                 struct gh_verdict *verdict, gh_error *err)
{
    const uint64_t *all;
    gh_status status = collect_words(c, rendezvous, answer, reason, &all, err);

    if (status != GH_OK) {
        return status;
    }
    *verdict = (struct gh_verdict){ GH_RANK_GOES_ON, 0, GH_REASON_NONE };
    for (uint32_t i = 0; i < gh_comm_size(c->open.bank->comm); i++) {
        const uint64_t *theirs = all + (size_t)i * GH_WORDS;

        if (gh_rank_words_answer(theirs) > verdict->answer) {
            *verdict = (struct gh_verdict){
                (enum gh_rank_answer)gh_rank_words_answer(theirs), i,
                gh_rank_words_reason(theirs)
            };
        }
    }
    return GH_OK;
}

gh_status gh_ask_follow(struct gh_capture *c, gh_error *err)
{
    struct gh_device_before before = gh_device_enter(c->dev);
    gh_error why;
    gh_status status =
        gh_comm_follow(c->open.bank->comm, c->open.stream, &why);

    gh_device_leave(c->dev, before);
    return status == GH_OK ? GH_OK
                           : gh_ranks_lost(c, c->open.bank, why.text, err);
}

/* ---- GRAPHHOOKS_CHECK=ranks ---------------------------------------------- */

static const char *name_of(gh_action action)
{
    return action == GH_ACTION_REPLAYED ? "replays"
           : action == GH_ACTION_RECORD ? "records"
                                        : "runs eagerly";
}

static void log_difference(struct gh_capture *c, const uint64_t *first,
                           const uint64_t *other, uint32_t rank)
{
    char where[160];

    gh_rank_words_describe(c, first, where, sizeof(where));
    gh_log_line(c->options.log, GH_LOG_WARN,
                "GRAPHHOOKS_CHECK: the ranks of bank %u part %s, microbatch "
                "%u of this one: rank 0 %s (%s), rank %u %s (%s); all run it "
                "eagerly",
                c->open.bank->number, where, c->open.microbatch,
                name_of(gh_rank_words_answer(first)),
                gh_reason_name(gh_rank_words_reason(first)), rank,
                name_of(gh_rank_words_answer(other)),
                gh_reason_name(gh_rank_words_reason(other)));
}

gh_status gh_ask_about_pass(struct gh_capture *c, gh_action action,
                            bool *alike_p, gh_error *err)
{
    const uint64_t *all;
    gh_status status = gh_ask_follow(c, err);

    *alike_p = true;
    if (status == GH_OK) {
        status =
            collect_words(c, GH_AT_PASS, action, c->open.reason, &all, err);
    }
    if (status != GH_OK) {
        return status;
    }
    c->counts.stats.checks++;
    for (uint32_t i = 1; i < gh_comm_size(c->open.bank->comm); i++) {
        const uint64_t *theirs = all + (size_t)i * GH_WORDS;

        if (gh_rank_words_answer(theirs) != gh_rank_words_answer(all)) {
            *alike_p = false;
            c->counts.stats.check_failures++;
            log_difference(c, all, theirs, i);
            break;
        }
    }
    return GH_OK;
}
