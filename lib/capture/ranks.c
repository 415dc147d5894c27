/*
 * ranks.c - see ranks.h.
 *
 * Graphs go before communicators, and that is so at every end: a bank that
 * loses its ranks loses its graphs first.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "capture/ranks.h"

#include "base/error.h"
#include "comm/comm.h"
#include "device/device.h"

#include <stdio.h>
#include <string.h>

/* ---- settings ------------------------------------------------------------ */

/* What has to be equal, in this order in what ranks say. */
static const char *const settings[] = {
    "gh_ranks.rank",
    "gh_ranks.size",
    "GH_ABI_MINOR",
    "gh_iteration_end, the number of calls,",
    "the plan",
    "GRAPHHOOKS_ENABLE",
    "GRAPHHOOKS_WARMUP_STEPS",
    "GRAPHHOOKS_FREEZE",
    "GRAPHHOOKS_MAX_SLOTS",
    "GRAPHHOOKS_MAX_BANKS",
    "GRAPHHOOKS_CHECK",
    "GRAPHHOOKS_CHECK_EVERY",
    "GRAPHHOOKS_TIMEOUT",
    "GRAPHHOOKS_OFFLOAD",
    "GRAPHHOOKS_OVERLAP",
    "gh_bank_desc.cp_size",
    "gh_bank_desc.tokens",
    "gh_bank_desc.sequences",
};
#define SETTINGS (sizeof(settings) / sizeof(settings[0]))
_Static_assert(SETTINGS <= GH_COMM_WORDS, "more than a rank can say at once");

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

static void write_settings(const struct gh_capture *c, const gh_ranks *ranks,
                           const struct gh_bank *bank, uint64_t *words)
{
    const struct gh_capture_options *o = &c->options;
    const uint64_t ours[SETTINGS] = {
        ranks->rank,
        ranks->size,
        GH_ABI_MINOR,
        c->stats.iterations,
        hash_plan(c->plan),
        o->enabled,
        o->warmup_steps,
        o->freeze,
        o->max_slots,
        o->max_banks,
        o->check,
        o->check_every,
        o->timeout_s,
        c->offload != NULL,
        o->overlap,
        bank->cp_size,
        bank->tokens,
        bank->sequences,
    };

    memcpy(words, ours, sizeof(ours));
}

static gh_status compare(const gh_ranks *ranks, const uint64_t *mine,
                         const uint64_t *all, gh_error *err)
{
    for (uint32_t i = 0; i < ranks->size; i++) {
        const uint64_t *theirs = all + i * SETTINGS;

        if (theirs[0] != i) {
            return gh_fail(err, GH_ERR_CONFIG,
                           "gh_ranks.rank is %llu where rank %u is: give each "
                           "its own, in the order of the communicator",
                           (unsigned long long)theirs[0], i);
        }
        for (uint32_t k = 1; k < SETTINGS; k++) {
            if (theirs[k] != mine[k]) {
                return gh_fail(err, GH_ERR_CONFIG,
                               "%s is %llu on rank %u, and %llu on rank %u: "
                               "ranks that share a bank have the same",
                               settings[k], (unsigned long long)theirs[k], i,
                               (unsigned long long)mine[k], ranks->rank);
            }
        }
    }
    return GH_OK;
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
    struct gh_bank **at = &c->shared;

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
    struct gh_bank **at = &c->shared;

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
    uint64_t mine[SETTINGS];
    const uint64_t *all;
    struct gh_comm *comm;
    gh_status status = gh_comm_open(c->dev, ranks, NULL, c->options.timeout_s,
                                    c->options.gate, &comm, err);

    if (status != GH_OK) {
        return status;
    }
    write_settings(c, ranks, bank, mine);
    status = gh_comm_gather(comm, mine, SETTINGS, &all, err);
    if (status == GH_OK) {
        status = compare(ranks, mine, all, err);
    }
    if (status != GH_OK) {
        gh_comm_close(comm, NULL);
        return status;
    }
    c->memory.holds |= gh_comm_has_threads(comm);
    share(c, bank, comm);
    return GH_OK;
}

gh_status gh_capture_set_ranks(struct gh_capture *c, const gh_ranks *ranks,
                               gh_error *err)
{
    struct gh_device_before before;
    struct gh_bank *bank = NULL;
    gh_status status = find(c, "gh_ranks_set", ranks->bank, &bank, err);

    if (status == GH_OK) {
        status = c->parted ? gh_ranks_refuse(c, err) : check_fresh(bank, err);
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

gh_status gh_capture_clear_ranks(struct gh_capture *c, uint32_t number,
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
    unshare(c, bank);
    gh_device_leave(c->dev, before);
    return c->parted ? gh_ranks_refuse(c, err) : GH_OK;
}

void gh_ranks_close(struct gh_capture *c)
{
    while (c->shared != NULL) {
        unshare(c, c->shared);
    }
}
