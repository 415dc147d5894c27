/*
 * ranks.c - see ranks.h.
 *
 * Graphs go before communicators, and that is so at every end: a bank that
 * loses its ranks loses its graphs first.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "ranks/ranks.h"

#include "base/error.h"
#include "base/setting.h"
#include "comm/comm.h"
#include "device/device.h"
#include "pass/pass.h"

#include <stdio.h>
#include <string.h>

/* ---- settings ------------------------------------------------------------ */

static uint64_t hash(uint64_t hash, uint64_t word)
{
    for (uint32_t i = 0; i < 8; i++) {
        hash = (hash ^ (word >> 8 * i & 0xff)) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* 24 bits: it is shown to people, who only see that it differs. */
static uint64_t hash_plan(const struct gh_plan *plan)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (uint32_t i = 0; i < plan->n_segments; i++) {
        const gh_segment *s = &plan->segments[i];

        h = hash(h, (uint64_t)s->chunk << 32 | s->mode);
        h = hash(h, (uint64_t)s->first_layer << 32 | s->last_layer);
        h = hash(h, (uint64_t)s->first_part << 32 | s->last_part);
    }
    return h >> 40;
}

/* What has to be equal besides the options.  The first is the rank itself. */
#define OWN_SETTINGS 8

static void write_own(const struct gh_capture *c, const gh_ranks *ranks,
                      const struct gh_bank *bank, struct gh_setting *own)
{
    const struct {
        const char *name;
        uint64_t word;
    } rows[OWN_SETTINGS] = {
        { "gh_ranks.rank", ranks->rank },
        { "gh_ranks.size", ranks->size },
        { "gh_abi_version()", GH_ABI_VERSION },
        { "gh_iteration_end, the number of calls,",
          c->counts.stats.iterations },
        { "the plan", hash_plan(c->plan) },
        { "gh_bank_desc.cp_size", bank->cp_size },
        { "gh_bank_desc.tokens", bank->tokens },
        { "gh_bank_desc.sequences", bank->sequences },
    };

    for (uint32_t i = 0; i < OWN_SETTINGS; i++) {
        own[i].name = rows[i].name;
        own[i].word = rows[i].word;
        snprintf(own[i].text, sizeof(own[i].text), "%llu",
                 (unsigned long long)rows[i].word);
    }
}

/* All ranks have found the same difference, and show each other the values. */
static gh_status refuse_setting(struct gh_comm *comm,
                                const struct gh_setting *setting, uint32_t rank,
                                gh_error *err)
{
    enum {
        WORDS = sizeof(setting->text) / sizeof(uint64_t)
    };
    uint64_t mine[WORDS];
    const uint64_t *all;
    gh_status status;

    _Static_assert(WORDS <= GH_COMM_WORDS, "more than a rank can say at once");
    memcpy(mine, setting->text, sizeof(mine));
    status = gh_comm_gather(comm, mine, WORDS, &all, err);
    return status != GH_OK
               ? status
               : gh_fail(err, GH_ERR_CONFIG,
                         "%s is %.47s on rank %u, and %.47s on rank 0: ranks "
                         "that share a bank have the same",
                         setting->name,
                         (const char *)(all + (size_t)rank * WORDS), rank,
                         (const char *)all);
}

/* Compares up to GH_COMM_WORDS settings with those of rank 0, so that all ranks
 * find the same one. */
static gh_status compare(struct gh_comm *comm,
                         const struct gh_setting *settings, uint32_t n,
                         bool numbered, gh_error *err)
{
    uint64_t mine[GH_COMM_WORDS];
    const uint64_t *all;
    gh_status status;

    for (uint32_t k = 0; k < n; k++) {
        mine[k] = settings[k].word;
    }
    status = gh_comm_gather(comm, mine, n, &all, err);
    if (status == GH_OK && numbered) {
        status = gh_comm_check_numbers(gh_comm_size(comm), all, n,
                                       settings[0].name, err);
    }
    for (uint32_t i = 0; i < gh_comm_size(comm) && status == GH_OK; i++) {
        const uint64_t *theirs = all + (size_t)i * n;

        for (uint32_t k = numbered; k < n; k++) {
            if (theirs[k] != all[k]) {
                return refuse_setting(comm, &settings[k], i, err);
            }
        }
    }
    return status;
}

static gh_status compare_all(const struct gh_capture *c, const gh_ranks *ranks,
                             const struct gh_bank *bank, struct gh_comm *comm,
                             gh_error *err)
{
    struct gh_setting own[OWN_SETTINGS] = { 0 };
    gh_status status;

    write_own(c, ranks, bank, own);
    status = compare(comm, own, OWN_SETTINGS, true, err);
    for (uint32_t i = 0; i < c->options.n_settings && status == GH_OK;
         i += GH_COMM_WORDS) {
        const uint32_t left = c->options.n_settings - i;

        status = compare(comm, &c->options.settings[i],
                         left < GH_COMM_WORDS ? left : GH_COMM_WORDS, false,
                         err);
    }
    return status;
}

/* ---- beginning and end --------------------------------------------------- */

static gh_status find(const struct gh_capture *c, const char *call,
                      uint32_t number, struct gh_bank **bank_p, gh_error *err)
{
    if (number >= c->banks.n) {
        return gh_fail(err, GH_ERR_NOT_FOUND,
                       "%s: there is no bank %u: declare it with gh_bank_add "
                       "first",
                       call, number);
    }
    *bank_p = c->banks.all[number];
    return GH_OK;
}

static gh_status check_fresh(const struct gh_bank *bank, gh_error *err)
{
    if (bank->comm != NULL) {
        return gh_fail(err, GH_ERR_STATE,
                       "gh_ranks_set: bank %u has its ranks already: call "
                       "gh_ranks_clear first",
                       bank->number);
    }
    if (bank->n_graphs != 0) {
        return gh_fail(err, GH_ERR_STATE,
                       "gh_ranks_set: bank %u has %u graphs, which this rank "
                       "has recorded alone: say its ranks before its first "
                       "pass",
                       bank->number, bank->n_graphs);
    }
    return GH_OK;
}

/* Keeps the list of banks that have ranks in the order of their numbers, which
 * is the same on all ranks. */
static void share(struct gh_capture *c, struct gh_bank *bank,
                  struct gh_comm *comm)
{
    struct gh_bank **at = &c->ranks.first;

    while (*at != NULL && (*at)->number < bank->number) {
        at = &(*at)->next_shared;
    }
    bank->comm = comm;
    bank->next_shared = *at;
    *at = bank;
}

/* Takes the bank out of that list.  None of its graphs is left. */
static void unshare(struct gh_capture *c, struct gh_bank *bank)
{
    struct gh_bank **at = &c->ranks.first;

    while (*at != bank) {
        at = &(*at)->next_shared;
    }
    *at = bank->next_shared;
    gh_comm_close(bank->comm, NULL);
    bank->comm = NULL;
    bank->next_shared = NULL;
}

static gh_status open_comm(struct gh_capture *c, const gh_ranks *ranks,
                           struct gh_bank *bank, gh_error *err)
{
    struct gh_comm *comm;
    gh_status status = gh_comm_open(c->dev, ranks, NULL, c->options.timeout_s,
                                    c->options.gate, c->options.log, &comm,
                                    err);

    if (status != GH_OK) {
        return status;
    }
    status = compare_all(c, ranks, bank, comm, err);
    if (status != GH_OK) {
        gh_comm_close(comm, NULL);
        return status;
    }
    c->memory.holds |= gh_comm_has_threads(comm);
    share(c, bank, comm);
    return GH_OK;
}

gh_status gh_ranks_open(struct gh_capture *c, const gh_ranks *ranks,
                        gh_error *err)
{
    struct gh_device_before before;
    struct gh_bank *bank = NULL;
    gh_status status = find(c, "gh_ranks_set", ranks->bank, &bank, err);

    if (status == GH_OK) {
        status =
            c->ranks.lost ? gh_ranks_refuse(c, err) : check_fresh(bank, err);
    }
    if (status != GH_OK || ranks->size == 1 || c->dev == NULL) {
        return status;
    }
    before = gh_device_enter(c->dev);
    status = open_comm(c, ranks, bank, err);
    gh_device_leave(c->dev, before);
    if (status == GH_OK) {
        gh_log_line(c->options.log, GH_LOG_INFO,
                    "bank %u is shared by %u ranks, of which this is rank %u",
                    bank->number, ranks->size, ranks->rank);
    }
    return status;
}

gh_status gh_ranks_leave(struct gh_capture *c, uint32_t number,
                         gh_error *err)
{
    struct gh_device_before before;
    struct gh_bank *bank = NULL;
    gh_status status = find(c, "gh_ranks_clear", number, &bank, err);

    if (status != GH_OK || bank->comm == NULL) {
        return status;
    }
    before = gh_device_enter(c->dev);
    gh_streams_quiesce(&c->streams);
    gh_bank_clear_all(bank);
    bank->used = 0; /* nothing more is lost with it: it is evicted first */
    unshare(c, bank);
    gh_device_leave(c->dev, before);
    return c->ranks.lost ? gh_ranks_refuse(c, err) : GH_OK;
}

void gh_ranks_close(struct gh_capture *c)
{
    while (c->ranks.first != NULL) {
        unshare(c, c->ranks.first);
    }
}
