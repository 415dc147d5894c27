/*
 * banks.c - which banks have graphs, and which one goes for another.
 *
 * Nothing here is on the way of a replay.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"
#include "capture/aux.h"

#include "base/error.h"
#include "capture/capture.h"
#include "capture/services.h"
#include "pass/pass.h"
#include "trace/trace.h"

gh_status gh_capture_add_bank(struct gh_capture *c, const gh_bank_desc *desc,
                              uint32_t *bank_p, gh_error *err)
{
    gh_status status;

    if (c->open.active) {
        return gh_fail(err, GH_ERR_STATE,
                       "gh_bank_add: a pass is open: call gh_layer_exit or "
                       "gh_layer_cancel first");
    }
    if (c->banks.n >= GH_BANKS) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_bank_add: the session has %u banks, and may have no "
                       "more: declare a shape once",
                       c->banks.n);
    }
    status = gh_banks_add(&c->banks, desc, bank_p, err);
    if (status == GH_OK) {
        gh_log_line(c->options.log, GH_LOG_DEBUG,
                    "bank %u is %s: CP size %u, %u tokens, %u sequences",
                    *bank_p, desc->name == NULL ? "unnamed" : desc->name,
                    desc->cp_size, desc->tokens, desc->sequences);
        if (c->options.trace != NULL) {
            gh_trace_name_bank(c->options.trace, *bank_p,
                               c->banks.all[*bank_p]->name);
        }
    }
    return status;
}

bool gh_capture_count_bank(const struct gh_capture *c, uint32_t number,
                           gh_bank_stats *stats)
{
    const struct gh_bank *bank;

    if (number >= c->banks.n) {
        return false;
    }
    bank = c->banks.all[number];
    stats->graphs = bank->n_graphs;
    stats->recordings = bank->recordings;
    stats->replays = bank->replays;
    stats->evictions = bank->evictions;
    stats->bytes = bank->bytes;
    return true;
}

/* Whether a microbatch of the bank holds a slot. */
static bool is_in_flight(const struct gh_capture *c,
                         const struct gh_bank *bank)
{
    for (uint32_t i = 0; i < c->slots->n_chunks; i++) {
        uint64_t held = c->slots->all & ~c->slots->chunks[i].free;

        for (; held != 0; held &= held - 1) {
            const uint32_t slot = (uint32_t)__builtin_ctzll(held);

            if (gh_slots_at(c->slots, i, slot)->bank == bank) {
                return true;
            }
        }
    }
    return false;
}

/* A bank with ranks never gives way: this rank alone must not drop graphs that
 * all its ranks have. */
static struct gh_bank *least_recently_used(const struct gh_capture *c)
{
    struct gh_bank *least = NULL;

    for (uint32_t i = 0; i < c->banks.n; i++) {
        struct gh_bank *bank = c->banks.all[i];

        if (bank->admitted && bank->comm == NULL &&
            (least == NULL || bank->used < least->used) &&
            !is_in_flight(c, bank)) {
            least = bank;
        }
    }
    return least;
}

static void evict(struct gh_capture *c, struct gh_bank *bank)
{
    struct gh_device_before before = gh_device_enter(c->dev);
    uint32_t n = 0;
    void **objects = gh_aux_give_up(c, bank, &n);

    gh_log_line(c->options.log, GH_LOG_INFO,
                "%s, the least recently used, gives way: %u graphs go, as "
                "GRAPHHOOKS_MAX_BANKS is %u",
                gh_bank_describe(bank).text, bank->n_graphs, c->banks.most);
    gh_banks_evict(&c->banks, bank, objects, n);
    gh_device_leave(c->dev, before);
}

/* Lets the bank have graphs.  If there are as many such banks as may be,
 * another one gives way. */
static gh_reason admit(struct gh_capture *c, struct gh_bank *bank)
{
    struct gh_bank *least;

    gh_retired_poll(&c->banks.retired, &c->memory);
    if (c->banks.n_admitted >= c->banks.most) {
        least = least_recently_used(c);
        if (least == NULL) {
            return GH_REASON_BANKS;
        }
        evict(c, least);
    }
    return gh_banks_admit(&c->banks, bank, &c->host.why) == GH_OK
               ? GH_REASON_NONE
               : GH_REASON_BANKS;
}

/* Finds an entry for the graph.  The bank is admitted first if it may have no
 * graphs yet. */
gh_reason gh_capture_find_entry(struct gh_capture *c, const gh_pass *pass)
{
    gh_reason reason = gh_aux_is_void(c, c->open.bank, pass->segment)
                           ? GH_REASON_UNBOUND
                           : GH_REASON_NONE;

    if (reason == GH_REASON_NONE && !c->open.bank->admitted) {
        reason = admit(c, c->open.bank);
    }
    if (reason == GH_REASON_NONE) {
        c->open.entry = gh_bank_at(c->open.bank, pass->segment, pass->direction,
                                   pass->variant, c->open.slot);
    }
    return reason;
}

