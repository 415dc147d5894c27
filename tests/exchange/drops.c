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
    ranks_meet(r);
    if (r->rank == 0) {
        *at = ranks_waits();
    }
    ranks_meet(r);
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

static void sweep(const char *name, int n, bool in_graphs, int least)
{
    uint64_t from, to, caught = 0;

    captures = in_graphs;
    ranks_drop_wait(0);
    ranks_run_lost(n, name, trade);
    is_int((long long)soft_races(), 0, "%s: with all waits nothing races",
           name);
    from = first;
    to = last;
    ok(to - from >= (uint64_t)least && !any_failed(n),
       "%s: %d ranks make %llu waits and flags", name, n,
       (unsigned long long)(to - from));
    for (uint64_t i = from + 1; i <= to; i++) {
        bool found;

        ranks_drop_wait(i);
        ranks_run_lost(n, name, trade);
        /* A capture may be refused instead: a stream has not joined it. */
        found = soft_races() != 0 || (in_graphs && any_failed(n));
        if (!found) {
            diag("%s: wait %llu can be dropped", name, (unsigned long long)i);
        }
        caught += found;
    }
    ranks_drop_wait(0);
    is_int((long long)caught, (long long)(to - from),
           "%s: each of them, dropped, is found", name);
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
    sweep("issued", 2, false, 2 * ROUNDS * 4);
    sweep("issued by three", 3, false, 3 * ROUNDS * 6);
    sweep("captured", 2, true, 2 * 4);
    sweep("captured by three", 3, true, 3 * 6);
    /* Words of four ranks, of which one has five: two words. */
    sweep("captured by five", 5, true, 5 * 10);
    return done_testing();
}
