/*
 * Each wait of an exchange, for an event or a sign, and each sign that is taken
 * down is needed: without it something races, or a rank is missed in time.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/exchange/trader.h"

#include <string.h>

#define ROUNDS 3

static const char *const hasty[] = { "GRAPHHOOKS_TIMEOUT=1",
                                     "GRAPHHOOKS_LOG=off", NULL };
static struct trader_options options = { .kind = "copy",
                                         .environment = hasty };
static uint64_t first, last;
static bool failed[MOST_RANKS], captures;

static void note(struct rank *r, uint64_t *at)
{
    ranks_barrier(r);
    if (r->rank == 0) {
        *at = ranks_waits();
    }
    ranks_barrier(r);
}

/* What is dropped is before the last rounds, which show what it leads to. */
static void trade(struct rank *r)
{
    gh_status status = GH_OK;
    struct trader t;

    failed[r->rank] = false;
    if (!trader_open(&t, r, &options)) {
        failed[r->rank] = true;
        return;
    }
    trader_round(&t, SHAPE_FULL, false);
    trader_wait(&t);
    note(r, &first);
    if (captures) {
        status = trader_record(&t, SHAPE_FULL);
    }
    for (int i = 0; i < ROUNDS && !captures && status == GH_OK; i++) {
        status = trader_round(&t, SHAPE_FULL, false);
    }
    note(r, &last);
    for (int i = 0; i < ROUNDS && status == GH_OK; i++) {
        status = trader_round(&t, SHAPE_FULL, captures);
    }
    failed[r->rank] = trader_wait(&t) != GH_OK || status != GH_OK;
    trader_close(&t);
}

static bool any_failed(int n)
{
    bool any = false;

    for (int i = 0; i < n; i++) {
        any |= failed[i];
    }
    return any;
}

static const struct {
    const char *name;
    int n;
    bool in_graphs;
    int least; /* waits and flags */
} sweeps[] = {
    { "issued", 2, false, 2 * ROUNDS * 4 },
    { "issued by three", 3, false, 3 * ROUNDS * 6 },
    { "captured", 2, true, 2 * 4 },
    { "captured by three", 3, true, 3 * 6 },
    /* Words of four ranks, of which one has five: two words. */
    { "captured by five", 5, true, 5 * 10 },
};
static size_t sweeping;

/* Where a flag is dropped, ranks wait for a second. */
static void drop(int i)
{
    const char *name = sweeps[sweeping].name;
    bool found;

    ranks_drop_wait(first + 1 + (uint64_t)i);
    ranks_run_lost(sweeps[sweeping].n, name, trade);
    /* A capture may be refused instead: a stream has not joined it. */
    found = soft_races() != 0 || (captures && any_failed(sweeps[sweeping].n));
    ok(found, "%s: wait or flag %d, dropped, is found", name, i + 1);
}

static void sweep(size_t s)
{
    const char *name = sweeps[s].name;
    const int n = sweeps[s].n;

    sweeping = s;
    captures = sweeps[s].in_graphs;
    ranks_drop_wait(0);
    ranks_run_lost(n, name, trade);
    is_int((long long)soft_races(), 0, "%s: with all waits nothing races",
           name);
    ok(last - first >= (uint64_t)sweeps[s].least && !any_failed(n),
       "%s: %d ranks make %llu waits and flags", name, n,
       (unsigned long long)(last - first));
    tap_apart((int)(last - first), drop);
}

int main(void)
{
    int status;

    if (!ranks_open(&status)) {
        return status;
    }
    if (!ranks_are_soft()) {
        return skip_all("a real device has no race detector");
    }
    ranks_devices(MOST_RANKS);
    for (size_t i = 0; i < sizeof(sweeps) / sizeof(sweeps[0]); i++) {
        sweep(i);
    }
    return done_testing();
}
