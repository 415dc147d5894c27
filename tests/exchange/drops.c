/*
 * Each wait of an exchange, for an event or a sign, and each sign that is taken
 * down is needed: without it something races, or a rank is missed in time.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/exchange/trader.h"

#include <string.h>

#define ROUNDS 3
#define ROUNDS_OF_TURNS 9 /* in which all have been twice */
#define SEEDS 16

static const char *const hasty[] = { "GRAPHHOOKS_TIMEOUT=1",
                                     "GRAPHHOOKS_LOG=off", NULL };
static struct trader_options options = { .environment = hasty };
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
    const int more = options.in_turn ? ROUNDS_OF_TURNS : ROUNDS;
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
    for (int i = 0; i < more && status == GH_OK; i++) {
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
    const char *kind;
    bool in_graphs, in_turn;
    int least;  /* waits and flags */
    bool lanes; /* the driver has no call for several copies */
} sweeps[] = {
    { .name = "issued", .n = 2, .kind = "copy",
      .least = 2 * ROUNDS * 4 },
    { .name = "issued by three", .n = 3, .kind = "copy",
      .least = 3 * ROUNDS * 4 },
    { .name = "issued by three, on lanes", .n = 3, .kind = "copy",
      .least = 3 * ROUNDS * 6, .lanes = true },
    { .name = "issued in turn", .n = 2, .kind = "copy", .in_turn = true,
      .least = 2 * ROUNDS * 2 },
    { .name = "issued in turn by three", .n = 3, .kind = "copy",
      .in_turn = true, .least = 3 * ROUNDS * 2 },
    { .name = "issued in turn by three, on lanes", .n = 3, .kind = "copy",
      .in_turn = true, .least = 3 * ROUNDS * 4, .lanes = true },
    { .name = "captured", .n = 2, .kind = "copy", .in_graphs = true,
      .least = 2 * 4 },
    { .name = "captured by three", .n = 3, .kind = "copy", .in_graphs = true,
      .least = 3 * 6 },
    { .name = "captured in turn by three", .n = 3, .kind = "copy",
      .in_graphs = true, .in_turn = true, .least = 3 * 14 },
    { .name = "a kernel in turn", .n = 3, .kind = "kernel", .in_turn = true,
      .least = 3 * ROUNDS * 2 },
    { .name = "a captured kernel", .n = 3, .kind = "kernel", .in_graphs = true,
      .least = 3 * 4 },
    /* Some ranks by copies and others by the kernel, in one call. */
    { .name = "by copies and a kernel", .n = 3, .kind = "auto",
      .in_turn = true, .least = 3 * ROUNDS * 2 },
    { .name = "captured, by copies and a kernel", .n = 3, .kind = "auto",
      .in_graphs = true, .least = 3 * 5 },
    /* Words of four ranks, of which one has five: two words. */
    { .name = "captured by five", .n = 5, .kind = "copy", .in_graphs = true,
      .least = 5 * 10 },
};
static size_t sweeping;

/* Where a flag is dropped, ranks wait for a second.  A flag that is not taken
 * down is seen where its rank is ahead of the next one, as in some orders. */
static void drop(int i)
{
    const char *name = sweeps[sweeping].name;
    bool found = false;

    for (int seed = 1; seed <= SEEDS && !found; seed++) {
        ranks_seed(seed);
        ranks_drop_wait(first + 1 + (uint64_t)i);
        ranks_run_lost(sweeps[sweeping].n, name, trade);
        /* A capture may be refused instead: a stream has not joined it. */
        found = soft_races() != 0 ||
                (captures && any_failed(sweeps[sweeping].n));
    }
    ok(found, "%s: wait or flag %d, dropped, is found", name, i + 1);
}

static void sweep(size_t s)
{
    const char *name = sweeps[s].name;
    const int n = sweeps[s].n;

    sweeping = s;
    captures = sweeps[s].in_graphs;
    options.in_turn = sweeps[s].in_turn;
    options.kind = sweeps[s].kind;
    ranks_refuse(sweeps[s].lanes ? "cuMemcpyBatchAsync_v2" : NULL,
                 CUDA_ERROR_NOT_SUPPORTED);
    options.alone = strcmp(sweeps[s].kind, "auto") == 0;
    options.small = "300";
    ranks_drop_wait(0);
    ranks_run_lost(n, name, trade);
    is_int((long long)soft_races(), 0, "%s: with all waits nothing races",
           name);
    ok(last - first >= (uint64_t)sweeps[s].least && !any_failed(n),
       "%s: %d ranks make %llu waits and flags", name, n,
       (unsigned long long)(last - first));
    tap_apart((int)(last - first), drop);
}

/* What a host promises of calls in turn is needed, too. */
static void break_promises(int n)
{
    options = (struct trader_options){ .kind = "copy",
                                       .environment = hasty,
                                       .in_turn = true,
                                       .one_half = true };
    captures = false;
    ranks_drop_wait(0);
    ranks_run_lost(n, "one half", trade);
    ok(soft_races() != 0, "%d ranks in turn in one half of the window race", n);
    options.one_half = false;
    options.takes_late = true;
    ranks_run_lost(n, "taken late", trade);
    ok(soft_races() != 0, "%d ranks that read after the next call race", n);
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
    ranks_refuse(NULL, 0);
    break_promises(2);
    break_promises(3);
    return done_testing();
}
