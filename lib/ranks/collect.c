/*
 * collect.c - see collect.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "ranks/collect.h"

#include "comm/comm.h"
#include "ranks/ranks.h"
#include "ranks/words.h"

#include <stdio.h>
#include <string.h>

/* The bank with the most ranks; of equals the one that was declared first.
 * NULL: none has ranks. */
static struct gh_bank *widest(const struct gh_capture *c)
{
    struct gh_bank *found = NULL;

    for (struct gh_bank *b = c->ranks.first; b != NULL; b = b->next_shared) {
        if (found == NULL ||
            gh_comm_size(b->comm) > gh_comm_size(found->comm)) {
            found = b;
        }
    }
    return found;
}

bool gh_rank_collect_can(const struct gh_capture *c)
{
    return c->ranks.first != NULL;
}

bool gh_rank_collect_compares(const struct gh_capture *c)
{
    return c->options.check == GH_CHECKS_RANKS && c->ranks.first != NULL;
}

/* ---- collecting ---------------------------------------------------------- */

static gh_status follow(struct gh_capture *c, struct gh_bank *bank,
                        void *stream, gh_error *err)
{
    struct gh_device_before before;
    gh_status status;
    gh_error why;

    if (c->ranks.lost) {
        return gh_ranks_refuse(c, err);
    }
    before = gh_device_enter(c->dev);
    status = gh_comm_follow(bank->comm, stream, &why);
    gh_device_leave(c->dev, before);
    return status == GH_OK ? GH_OK : gh_ranks_lost(c, bank, why.text, err);
}

static gh_status collect(struct gh_capture *c, struct gh_bank *bank,
                         const uint64_t *mine, uint32_t n,
                         const uint64_t **all_p, gh_error *err)
{
    gh_error why;
    gh_status status = gh_rank_words_collect(c, bank, mine, n, all_p, &why);

    return status == GH_OK ? GH_OK : gh_ranks_lost(c, bank, why.text, err);
}

/* Collects the words of all ranks.  The ranks are lost unless all are at the
 * same position. */
static gh_status collect_at(struct gh_capture *c, struct gh_bank *bank,
                            void *stream, const uint64_t *mine,
                            const uint64_t **all_p, gh_error *err)
{
    gh_status status = follow(c, bank, stream, err);

    if (status == GH_OK) {
        status = collect(c, bank, mine, GH_WORDS, all_p, err);
    }
    return status == GH_OK ? gh_rank_words_compare(c, bank, mine, *all_p, err)
                           : status;
}

/* ---- times --------------------------------------------------------------- */

static uint32_t first_that_lacks(const struct gh_bank *bank,
                                 const uint64_t *all)
{
    for (uint32_t i = 0; i < gh_comm_size(bank->comm); i++) {
        if (gh_rank_words_answer(all + (size_t)i * GH_WORDS) != 0) {
            return i;
        }
    }
    return GH_NO_RANK;
}

/* Takes the maximum of as many times as ranks can tell each other at once. */
static gh_status take_largest(struct gh_capture *c, struct gh_bank *bank,
                              double *ns, uint32_t n, gh_error *err)
{
    uint64_t mine[GH_COMM_WORDS];
    const uint64_t *all;
    gh_status status;

    _Static_assert(sizeof(*ns) == sizeof(*mine), "a time is a word");
    memcpy(mine, ns, n * sizeof(*mine));
    status = collect(c, bank, mine, n, &all, err);
    for (uint32_t i = 0; i < gh_comm_size(bank->comm) && status == GH_OK; i++) {
        for (uint32_t k = 0; k < n; k++) {
            double theirs;

            memcpy(&theirs, &all[(size_t)i * n + k], sizeof(theirs));
            ns[k] = theirs > ns[k] ? theirs : ns[k];
        }
    }
    return status;
}

gh_status gh_rank_collect_largest(struct gh_capture *c, void *stream,
                                  double *ns, uint32_t n, uint32_t *lacks_p,
                                  gh_error *err)
{
    struct gh_bank *bank = widest(c);
    const uint64_t mine[GH_WORDS] = {
        [GH_WORD_HEAD] =
            gh_rank_words_head(GH_AT_TIMES, ns == NULL, GH_REASON_NONE),
        [GH_WORD_STEP] = c->counts.stats.iterations,
        [GH_WORD_WORK] = n,
    };
    const uint64_t *all;
    gh_status status = collect_at(c, bank, stream, mine, &all, err);

    *lacks_p = status == GH_OK ? first_that_lacks(bank, all) : GH_NO_RANK;
    if (status != GH_OK || *lacks_p != GH_NO_RANK) {
        return status;
    }
    for (uint32_t i = 0; i < n && status == GH_OK; i += GH_COMM_WORDS) {
        status = take_largest(c, bank, ns + i,
                              n - i < GH_COMM_WORDS ? n - i : GH_COMM_WORDS,
                              err);
    }
    return status;
}

/* ---- memory -------------------------------------------------------------- */

gh_status gh_rank_collect_rest(struct gh_capture *c, bool resumes, bool failed,
                               uint32_t *failed_p, gh_error *err)
{
    struct gh_bank *bank = widest(c);
    const uint64_t mine[GH_WORDS] = {
        [GH_WORD_HEAD] = gh_rank_words_head(
            resumes ? GH_AT_RESUME : GH_AT_SUSPEND, failed, GH_REASON_NONE),
        [GH_WORD_STEP] = c->counts.stats.iterations,
    };
    const uint64_t *all;
    gh_status status;

    *failed_p = GH_NO_RANK;
    if (bank == NULL) {
        return GH_OK;
    }
    /* All streams are idle, or this rank does not suspend. */
    status = collect(c, bank, mine, GH_WORDS, &all, err);
    if (status == GH_OK) {
        status = gh_rank_words_compare(c, bank, mine, all, err);
    }
    if (status == GH_OK) {
        *failed_p = first_that_lacks(bank, all);
    }
    return status;
}

/* ---- runs ---------------------------------------------------------------- */

gh_status gh_rank_collect_run(struct gh_capture *c, void *stream,
                              const struct gh_rank_run *run, bool *alike_p,
                              gh_error *err)
{
    struct gh_bank *bank = widest(c);
    const uint64_t mine[GH_WORDS] = {
        [GH_WORD_HEAD] = gh_rank_words_head(GH_AT_RUN, 0, GH_REASON_NONE),
        [GH_WORD_STEP] = c->counts.stats.iterations,
        [GH_WORD_WORK] = (uint64_t)run->early << 32 |
                         (uint64_t)(run->backward + 1) << 16 |
                         (run->forward + 1),
        [GH_WORD_MORE] = run->order,
    };
    const uint64_t *all;
    gh_status status = collect_at(c, bank, stream, mine, &all, err);
    char where[160];

    *alike_p = true;
    if (status != GH_OK) {
        return status;
    }
    c->counts.stats.checks++;
    for (uint32_t i = 1; i < gh_comm_size(bank->comm) && *alike_p; i++) {
        const uint64_t *theirs = all + (size_t)i * GH_WORDS;

        if (theirs[GH_WORD_MORE] != all[GH_WORD_MORE]) {
            *alike_p = false;
            c->counts.stats.check_failures++;
            gh_rank_words_describe(c, mine, where, sizeof(where));
            gh_log_line(c->options.log, GH_LOG_WARN,
                        "GRAPHHOOKS_CHECK: the ranks of bank %u part %s: rank "
                        "%u issues the nodes in another order than rank 0; "
                        "all take the fixed order from now on",
                        bank->number, where, i);
        }
    }
    return GH_OK;
}
