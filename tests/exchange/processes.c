/*
 * Ranks that are processes write into each other's windows by CUDA IPC, and
 * miss the one that ends.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/exchange/trader.h"

#include <dirent.h>
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

static int descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int n = 0;

    while (folder != NULL && readdir(folder) != NULL) {
        n++;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return n;
}

/* Of memory that other processes have, or may have: two for each piece. */
static int mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int n = 0;

    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        n += strstr(line, "memfd:softcuda") != NULL;
    }
    if (maps != NULL) {
        fclose(maps);
    }
    return n;
}

static void test_suspended(struct rank *r)
{
    const int before = descriptors();
    int open = 0, had;
    struct trader t;

    options.flags = GH_EXCHANGE_SUSPENDS;
    if (!trader_open(&t, r, &options)) {
        return;
    }
    for (int shape = 0; shape < N_SHAPES; shape++) {
        says_int(r, trader_record(&t, shape), GH_OK, "shape %d is captured",
                 shape);
    }
    for (int i = 0; i < 4; i++) {
        for (int shape = 0; shape < N_SHAPES; shape++) {
            trader_round(&t, shape, true);
        }
        says_int(r, trader_wrong(&t), 0, "replayed %d, all parts are exact", i);
        trader_round(&t, SHAPE_FULL, true); /* nobody has waited for it */
        had = mappings();
        says_int(r, gh_exchange_suspend(t.x, r->stream, &t.err), GH_OK,
                 "it is suspended%s%.150s", t.err.text[0] != '\0' ? ": " : "",
                 t.err.text);
        says(r, trader_stats(&t).given_bytes >= t.window_bytes,
             "the window is given back");
        says_int(r, had - mappings(), 2 * r->n,
                 "and no window is mapped any more");
        says_int(r, gh_exchange_resume(t.x, &t.err), GH_OK,
                 "it is resumed%s%.150s", t.err.text[0] != '\0' ? ": " : "",
                 t.err.text);
        if (i == 0) {
            open = descriptors();
        }
        says_int(r, descriptors(), open, "no descriptor is left");
    }
    trader_round(&t, SHAPE_FULL, false);
    trader_round(&t, SHAPE_FULL, true);
    says_int(r, trader_wrong(&t), 0, "issued and replayed, it is exact");
    says(r, gh_exchange_window(t.x) == t.window, "the window is where it was");
    says_int(r, (long long)(soft_unmapped() + soft_reports()), 0,
             "nothing that was given back was used");
    ranks_barrier(r);
    trader_close(&t);
    says_int(r, descriptors(), before, "at the end none is open");
}

/* A replay finds the windows of the others no more than its own. */
static void test_replayed_suspended(struct rank *r)
{
    struct trader t;

    options.flags = GH_EXCHANGE_SUSPENDS;
    if (!trader_open(&t, r, &options)) {
        return;
    }
    says_int(r, trader_record(&t, SHAPE_FULL), GH_OK, "it is captured");
    says_int(r, gh_exchange_suspend(t.x, r->stream, &t.err), GH_OK,
             "it is suspended");
    drv.cuGraphLaunch(t.graphs[SHAPE_FULL][0], r->stream);
    drv.cuStreamSynchronize(r->stream);
    says(r, soft_unmapped() != 0, "the software device reports the replay");
    ranks_barrier(r);
}

static void test_one_does_not_suspend(struct rank *r)
{
    const bool stays = r->rank == r->n - 1;
    const double start = tap_now_s();
    struct trader t;

    options.flags = GH_EXCHANGE_SUSPENDS;
    options.environment = hasty;
    if (!trader_open(&t, r, &options)) {
        return;
    }
    trader_round(&t, SHAPE_FULL, false);
    says(r, trader_is_exact(&t), "a round of all is exact");
    if (!stays) {
        says_int(r, gh_exchange_suspend(t.x, r->stream, &t.err), GH_ERR_RANKS,
                 "the others are told: %.150s", t.err.text);
        says(r, tap_now_s() - start < 20, "in time");
    }
    ranks_barrier(r);
    trader_close(&t);
}

/* The driver shares no descriptors: handles do, and the window stays. */
static void test_by_handles(struct rank *r)
{
    struct trader t;

    options.flags = GH_EXCHANGE_SUSPENDS;
    if (r->rank == 0) {
        soft_configure("SEED=1 FAIL=cuMemExportToShareableHandle:1");
    }
    if (!trader_open(&t, r, &options)) {
        return;
    }
    says_int(r, gh_exchange_suspend(t.x, r->stream, &t.err), GH_ERR_UNSUPPORTED,
             "it is not suspended");
    says(r, strstr(t.err.text, "open it by CUDA IPC") != NULL,
         "and the text says why");
    trader_round(&t, SHAPE_FULL, false);
    says_int(r, trader_wrong(&t), 0, "and goes on");
    trader_close(&t);
}

static const struct ranks_test suspended[] = {
    { "suspended between processes", test_suspended, true },
    { "by handles", test_by_handles, true },
    { "one does not suspend", test_one_does_not_suspend, true },
};
static const struct ranks_test replayed = { "replayed while suspended",
                                            test_replayed_suspended, true };

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

static void run_suspended(const char *kind, int n, bool in_turn)
{
    options = (struct trader_options){
        .kind = kind, .by_host = true, .no_comm = true, .in_turn = in_turn
    };
    ranks_run_all(n, suspended, sizeof(suspended) / sizeof(*suspended));
    ranks_run_all(n, &replayed, 1);
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
    run_suspended("copy", 2, false);
    run_suspended("kernel", 3, true);
    return done_testing();
}
