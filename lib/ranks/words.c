/*
 * words.c - see words.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "ranks/words.h"

#include "comm/comm.h"
#include "plan/kinds.h"
#include "ranks/ranks.h"

#include <stdio.h>

uint64_t gh_rank_words_head(enum gh_rendezvous rendezvous, uint32_t answer,
                            gh_reason reason)
{
    return (uint64_t)GH_ABI_VERSION << 32 | (uint64_t)rendezvous << 16 |
           (uint64_t)answer << 8 | reason;
}

static enum gh_rendezvous rendezvous_in(const uint64_t *words)
{
    return (enum gh_rendezvous)(words[GH_WORD_HEAD] >> 16 & 0xff);
}

uint32_t gh_rank_words_answer(const uint64_t *words)
{
    return words[GH_WORD_HEAD] >> 8 & 0xff;
}

gh_reason gh_rank_words_reason(const uint64_t *words)
{
    return words[GH_WORD_HEAD] & 0xff;
}

static bool is_same_rendezvous(const uint64_t *a, const uint64_t *b)
{
    return rendezvous_in(a) == rendezvous_in(b) &&
           a[GH_WORD_STEP] == b[GH_WORD_STEP] &&
           a[GH_WORD_WORK] == b[GH_WORD_WORK] &&
           a[GH_WORD_SLOT] == b[GH_WORD_SLOT];
}

/* ---- for people ---------------------------------------------------------- */

static void chunk_text(uint32_t chunk, char *text, size_t bytes)
{
    if (chunk == 0) {
        snprintf(text, bytes, "none");
    } else {
        snprintf(text, bytes, "%u", chunk - 1);
    }
}

static void describe_run(const uint64_t *words, char *text, size_t bytes)
{
    const uint64_t work = words[GH_WORD_WORK];
    char forward[24], backward[24];

    chunk_text(work & 0xffff, forward, sizeof(forward));
    chunk_text(work >> 16 & 0xffff, backward, sizeof(backward));
    snprintf(text, bytes, "in step %llu at a run (forward %s, backward %s%s)",
             (unsigned long long)words[GH_WORD_STEP], forward, backward,
             (work >> 32 & 1) != 0 ? ", early" : "");
}

static void describe_pass(const struct gh_capture *c, const uint64_t *words,
                          char *text, size_t bytes)
{
    static const char *const where[] = { [GH_AT_ENTER] = "",
                                         [GH_AT_EXIT] = " (its end)",
                                         [GH_AT_CHECK] = " (compared)",
                                         [GH_AT_PASS] = "" };
    const uint32_t segment = (uint32_t)words[GH_WORD_WORK];
    const uint32_t direction = words[GH_WORD_WORK] >> 32 & 0xff;
    char slot[24] = "no slot", extent[46];

    if (segment >= c->plan->n_segments || direction > GH_WGRAD) {
        snprintf(text, bytes, "where no pass is");
        return;
    }
    if ((uint32_t)words[GH_WORD_SLOT] != GH_SLOT_NONE) {
        snprintf(slot, sizeof(slot), "slot %u", (uint32_t)words[GH_WORD_SLOT]);
    }
    gh_plan_extent(c->plan, &c->plan->segments[segment], extent,
                   sizeof(extent));
    snprintf(text, bytes, "in step %llu at %s %s%s, %s%s",
             (unsigned long long)words[GH_WORD_STEP], extent,
             gh_direction_names[direction],
             (words[GH_WORD_WORK] >> 40 & 0xff) == 0 ? "" : " (variant 1)",
             slot, where[rendezvous_in(words)]);
}

void gh_rank_words_describe(const struct gh_capture *c, const uint64_t *words,
                            char *text, size_t bytes)
{
    switch (rendezvous_in(words)) {
    case GH_AT_ENTER:
    case GH_AT_EXIT:
    case GH_AT_CHECK:
    case GH_AT_PASS:
        describe_pass(c, words, text, bytes);
        break;
    case GH_AT_TIMES:
        snprintf(text, bytes, "in step %llu at the times of %llu nodes",
                 (unsigned long long)words[GH_WORD_STEP],
                 (unsigned long long)words[GH_WORD_WORK]);
        break;
    case GH_AT_RUN:
        describe_run(words, text, bytes);
        break;
    case GH_AT_SUSPEND:
    case GH_AT_RESUME:
        snprintf(text, bytes, "in step %llu at gh_session_%s",
                 (unsigned long long)words[GH_WORD_STEP],
                 rendezvous_in(words) == GH_AT_SUSPEND ? "suspend" : "resume");
        break;
    default:
        snprintf(text, bytes, "where no pass is");
    }
}

/* ---- collecting ---------------------------------------------------------- */

gh_status gh_rank_words_collect(struct gh_capture *c, struct gh_bank *bank,
                                const uint64_t *mine, uint32_t n,
                                const uint64_t **all_p, gh_error *err)
{
    struct gh_device_before before = gh_device_enter(c->dev);
    gh_status status;

    c->counts.stats.agreements++;
    status = gh_comm_gather(bank->comm, mine, n, all_p, err);
    gh_device_leave(c->dev, before);
    return status;
}

static gh_status refuse_elsewhere(struct gh_capture *c,
                                  const struct gh_bank *bank,
                                  const uint64_t *mine, const uint64_t *theirs,
                                  uint32_t rank, gh_error *err)
{
    char here[160], there[160], text[448];

    gh_rank_words_describe(c, mine, here, sizeof(here));
    gh_rank_words_describe(c, theirs, there, sizeof(there));
    snprintf(text, sizeof(text),
             "rank %u is %s: enter passes in the same order on all ranks; "
             "this rank is %s",
             rank, there, here);
    return gh_ranks_lost(c, bank, text, err);
}

gh_status gh_rank_words_compare(struct gh_capture *c,
                                const struct gh_bank *bank,
                                const uint64_t *mine, const uint64_t *all,
                                gh_error *err)
{
    for (uint32_t i = 0; i < gh_comm_size(bank->comm); i++) {
        const uint64_t *theirs = all + (size_t)i * GH_WORDS;

        if (!is_same_rendezvous(mine, theirs)) {
            return refuse_elsewhere(c, bank, mine, theirs, i, err);
        }
    }
    return GH_OK;
}
