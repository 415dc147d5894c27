/*
 * Ranks that are processes write into each other's windows by CUDA IPC, and
 * miss the one that ends.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/exchange/trader.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const hasty[] = { "GRAPHHOOKS_TIMEOUT=1",
                                     "GRAPHHOOKS_LOG=off", NULL };
static struct trader_options options;

static void test_rounds(struct rank *r)
{
    struct trader t;

    if (!trader_open(&t, r, &options)) {
        return;
    }
    says_int(r, trader_stats(&t).peers_ipc, r->n - 1,
             "each other rank is reached by CUDA IPC");
    for (int shape = 0; shape < N_SHAPES; shape++) {
        says_int(r, trader_record(&t, shape), GH_OK, "shape %d is captured",
                 shape);
    }
    for (int i = 0; i < 4 * N_SHAPES; i++) {
        trader_round(&t, i % N_SHAPES, i / N_SHAPES % 2 == 1);
    }
    says_int(r, trader_wrong(&t), 0,
             "issued and replayed, all parts are where they belong");
    trader_close(&t);
}

static void test_one_ends(struct rank *r)
{
    const double start = tap_now_s();
    char wanted[32];
    struct trader t;

    options.environment = hasty;
    if (!trader_open(&t, r, &options)) {
        return;
    }
    trader_round(&t, SHAPE_FULL, false);
    says(r, trader_is_exact(&t), "a round of all is exact");
    ranks_barrier(r);
    if (r->rank == r->n - 1) {
        _exit(0); /* as a process that is killed: nothing is given back */
    }
    snprintf(wanted, sizeof(wanted), "from rank %d in 1 s", r->n - 1);
    trader_round(&t, SHAPE_FULL, false);
    says_int(r, trader_wait(&t), GH_ERR_RANKS, "a round without one fails");
    says(r, strstr(t.err.text, wanted) != NULL, "it is named: %.150s",
         t.err.text);
    trader_close(&t);
    says(r, tap_now_s() - start < 20, "all that in time");
}

static const struct ranks_test all[] = {
    { "between processes", test_rounds, true },
    { "one ends", test_one_ends, true },
};

static void run_kind(const char *kind, int n, bool in_turn, bool ends)
{
    options = (struct trader_options){
        .kind = kind, .by_host = true, .no_comm = true, .in_turn = in_turn
    };
    ranks_run_all(n, all, ends ? 2 : 1);
}

int main(void)
{
    int status;

    if (!ranks_open_device(&status)) {
        return status;
    }
    if (!ranks_are_soft()) {
        return skip_all("ranks are processes in the other programs, too");
    }
    ranks_as_processes();
    run_kind("copy", 2, false, false);
    run_kind("copy", 4, true, true);
    run_kind("kernel", 2, true, true);
    run_kind("kernel", 3, false, false);
    run_kind("auto", 4, true, false);
    return done_testing();
}
