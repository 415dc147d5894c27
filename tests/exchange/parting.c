/*
 * A rank that dies, or never comes, is named in time, and what waits for it is
 * let go.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/exchange/trader.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LIMIT_S 20

static const char *const hasty[] = { "GRAPHHOOKS_TIMEOUT=1",
                                     "GRAPHHOOKS_LOG=off", NULL };
static struct trader_options options = { .kind = "copy",
                                         .by_host = true,
                                         .no_comm = true,
                                         .environment = hasty };
static bool replays, unwaited;
static struct trader left[16]; /* what the dead leave behind */
static int n_left;

/* The survivors go on for a while, as a host that runs ahead does. */
static void survive(struct trader *t, struct rank *r)
{
    const double start = tap_now_s();
    char wanted[32];
    gh_status status = GH_OK;

    snprintf(wanted, sizeof(wanted), "from rank %d in 1 s", r->n - 1);
    for (int i = 0; i < 3 && status == GH_OK; i++) {
        status = trader_round(t, SHAPE_FULL, replays);
    }
    says_int(r, status, GH_OK, "rounds without it are issued");
    if (unwaited) {
        return; /* the exchange is to let go by itself */
    }
    status = trader_wait(t);
    says_int(r, status, GH_ERR_RANKS, "which do not end");
    says(r, strstr(t->err.text, wanted) != NULL, "it is named: %.150s",
         t->err.text);
    says_int(r, drv.cuStreamSynchronize(r->stream), 0,
             "the stream has been let go");
    status = trader_round(t, SHAPE_FULL, false);
    says_int(r, status, GH_ERR_RANKS, "a further round is refused");
    says(r, strstr(t->err.text, "is over") != NULL, "by its sentence: %.150s",
         t->err.text);
    says(r, tap_now_s() - start < LIMIT_S, "all that in time");
}

/* A thread that ends gives its context back, and with it the memory into which
 * kernels of the others still write.  Memory of a process stays as long as
 * others have it open. */
static void stay(struct rank *r)
{
    if (ranks_are_soft()) {
        ranks_barrier(r);
    }
}

/* One dies when what it sends is there, and before it has said so. */
static void test_one_dies_untold(struct rank *r)
{
    struct trader t;

    if (!trader_open(&t, r, &options)) {
        return;
    }
    trader_round(&t, SHAPE_FULL, false);
    says(r, trader_is_exact(&t), "a round of all is exact");
    ranks_barrier(r);
    if (r->rank == r->n - 1) {
        /* The first copies to others are of parts, the second of signs; to
         * several ranks they go in one call. */
        soft_configure("SEED=0 FAIL=%s:2", r->n == 2 ? "cuMemcpyAsync"
                                                     : "cuMemcpyBatchAsync_v2");
        says_int(r, trader_round(&t, SHAPE_FULL, false), GH_ERR_DEVICE,
                 "a part is sent, and its sign is not: %.90s", t.err.text);
        says_int(r, drv.cuStreamSynchronize(r->stream), 0, "the part arrives");
        soft_configure("SEED=0");
        left[n_left++] = t;
        ranks_barrier(r);
        stay(r);
        return;
    }
    ranks_barrier(r);
    survive(&t, r);
    trader_close(&t);
    stay(r);
}

static void test_one_dies(struct rank *r)
{
    double start;
    struct trader t;

    if (!trader_open(&t, r, &options)) {
        return;
    }
    if (replays) {
        says_int(r, trader_record(&t, SHAPE_FULL), GH_OK, "it is captured");
    }
    trader_round(&t, SHAPE_FULL, replays);
    says(r, trader_is_exact(&t), "a round of all is exact");
    ranks_barrier(r);
    if (r->rank == r->n - 1) {
        left[n_left++] = t;
        stay(r);
        return; /* and does not come again */
    }
    survive(&t, r);
    start = tap_now_s();
    gh_exchange_destroy(t.x);
    t.x = NULL;
    says(r, tap_now_s() - start < LIMIT_S,
         "the exchange is given back in time");
    says_int(r, drv.cuStreamQuery(r->stream), 0, "and nothing waits for it");
    says_int(r, drv.cuStreamSynchronize(r->stream), 0,
             "the stream has been let go by then");
    trader_close(&t);
    stay(r);
}

/* What it is sent by one that has given up is no part, and its host hears. */
static void test_one_is_late(struct rank *r)
{
    const bool late = r->rank == r->n - 1;
    struct trader t;

    if (!trader_open(&t, r, &options)) {
        return;
    }
    trader_round(&t, SHAPE_FULL, false);
    says(r, trader_is_exact(&t), "a round of all is exact");
    ranks_barrier(r);
    if (!late) {
        trader_round(&t, SHAPE_FULL, false);
        says_int(r, trader_wait(&t), GH_ERR_RANKS, "a rank is late");
    }
    ranks_barrier(r);
    if (late) {
        says_int(r, trader_round(&t, SHAPE_FULL, false), GH_OK,
                 "it comes after all");
        says_int(r, trader_wait(&t), GH_ERR_RANKS, "and hears of it");
        says(r, strstr(t.err.text, "has given the exchange up") != NULL,
             "by a sentence: %.150s", t.err.text);
    }
    ranks_barrier(r);
    trader_close(&t);
}

/* For some it is over, and one has not heard of that: all come to the end, and
 * nobody waits there for a rank that does not, nor leaves anything. */
static void test_ends_in_order(struct rank *r)
{
    double start;
    struct trader t;

    if (!trader_open(&t, r, &options)) {
        return;
    }
    trader_round(&t, SHAPE_FULL, false);
    says(r, trader_is_exact(&t), "a round of all is exact");
    ranks_barrier(r);
    if (r->rank != r->n - 1) {
        trader_round(&t, SHAPE_FULL, false);
        says_int(r, trader_wait(&t), GH_ERR_RANKS, "a rank does not come");
    }
    ranks_barrier(r);
    start = tap_now_s();
    trader_close(&t);
    says(r, tap_now_s() - start < 1, "the end takes %.1f s",
         tap_now_s() - start);
}

/* What the first has asked the others is not left on the device, where what it
 * frees would wait for it. */
static void test_one_ends_alone(struct rank *r)
{
    const struct trader_options asks = { .kind = "copy",
                                         .environment = hasty };
    const double start = tap_now_s();
    struct trader t;

    if (!trader_open(&t, r, &asks)) {
        return;
    }
    trader_round(&t, SHAPE_FULL, false);
    says(r, trader_is_exact(&t), "a round of all is exact");
    ranks_barrier(r);
    if (r->rank == 0) {
        trader_close(&t);
        says(r, tap_now_s() - start < LIMIT_S / 2, "it ends in time");
    }
    ranks_barrier(r);
    if (r->rank != 0) {
        trader_close(&t);
        says(r, tap_now_s() - start < LIMIT_S, "so do the others");
    }
}

/* The context of one is lost: each call says so, and none waits. */
static void test_one_is_lost(struct rank *r)
{
    const bool lost = r->rank == r->n - 1;
    struct trader t;
    double start;

    if (!trader_open(&t, r, &options)) {
        return;
    }
    trader_round(&t, SHAPE_FULL, false);
    says(r, trader_is_exact(&t), "a round of all is exact");
    ranks_barrier(r);
    if (lost) {
        drv.cuMemcpyDtoDAsync(16, 32, 4, r->side);
        drv.cuStreamSynchronize(r->side);
        start = tap_now_s();
        says_int(r, trader_wait(&t), GH_ERR_DEVICE, "a wait says so: %.90s",
                 t.err.text);
        says_int(r, trader_round(&t, SHAPE_FULL, false), GH_ERR_DEVICE,
                 "so does a call: %.90s", t.err.text);
        for (int i = 0; i < 2; i++) {
            says_int(r, gh_exchange_wait(t.x, r->stream, &t.err),
                     GH_ERR_RANKS, "and it is over");
            says(r, strstr(t.err.text, "700") != NULL,
                 "for the driver's reason: %.150s", t.err.text);
        }
        says(r, tap_now_s() - start < 1, "all that at once: %.1f s",
             tap_now_s() - start);
    }
    ranks_barrier(r);
    start = tap_now_s();
    trader_close(&t);
    says(r, tap_now_s() - start < 2, "it ends in time: %.1f s",
         tap_now_s() - start);
}

/* One never makes it: the words of the others say so. */
static void test_one_never_comes(struct rank *r)
{
    struct trader_options by_nccl = options;
    gh_status status;
    struct trader t;

    if (r->rank == r->n - 1) {
        ranks_barrier(r);
        return;
    }
    by_nccl.by_host = by_nccl.no_comm = false;
    status = trader_try(&t, r, &by_nccl);
    says_int(r, status, GH_ERR_RANKS, "an exchange of some is none");
    says(r, strstr(t.err.text, "ranks of the exchange have not come in 1 s") !=
                    NULL ||
                strstr(t.err.text, "another rank has gone") != NULL,
         "the others have not come, or have given up: %.120s", t.err.text);
    trader_close(&t);
    ranks_barrier(r);
}

/* By NCCL: the host is to abort its communicator, once. */
static void test_one_dies_by_nccl(struct rank *r)
{
    const struct trader_options by_nccl = { .kind = "nccl",
                                            .aborts = true,
                                            .environment = hasty };
    struct trader t;

    if (!trader_open(&t, r, &by_nccl)) {
        return;
    }
    trader_round(&t, SHAPE_FULL, false);
    says(r, trader_is_exact(&t), "a round of all is exact");
    if (r->rank == r->n - 1) {
        ranks_barrier(r);
    } else {
        trader_round(&t, SHAPE_FULL, false);
        says_int(r, trader_wait(&t), GH_ERR_RANKS, "one that lacks a rank is "
                                                   "not: %.100s", t.err.text);
        says_int(r, trader_wait(&t), GH_ERR_RANKS, "nor is it later");
        says_int(r, t.aborted, 1, "the host was to abort once");
        says(r, t.asked == 1 && t.obeyed == 0,
             "and its abort can neither use the exchange nor destroy it");
        ranks_barrier(r);
    }
    trader_close(&t);
}

/* NCCL aborts the host's communicator once the host's graph is gone, which is
 * after the exchange: nobody waits for that. */
static void test_a_graph_outlives(struct rank *r)
{
    const struct trader_options by_nccl = { .kind = "nccl",
                                            .environment = hasty };
    struct trader t;
    double start;

    if (!trader_open(&t, r, &by_nccl)) {
        return;
    }
    says_int(r, trader_record(&t, SHAPE_FULL), GH_OK, "it is captured");
    trader_round(&t, SHAPE_FULL, true);
    says(r, trader_is_exact(&t), "a round of all is exact");
    ranks_barrier(r);
    if (r->rank != r->n - 1) {
        start = tap_now_s();
        trader_round(&t, SHAPE_FULL, true);
        says_int(r, trader_wait(&t), GH_ERR_RANKS, "one that lacks a rank is "
                                                   "not: %.100s", t.err.text);
        says(r, tap_now_s() - start < LIMIT_S / 4,
             "which is said in time: %.1f s", tap_now_s() - start);
        says_int(r, drv.cuStreamSynchronize(r->stream), 0,
                 "the stream has been let go");
        r->comm = NULL; /* its end is left to the library */
    }
    start = tap_now_s();
    gh_exchange_destroy(t.x);
    t.x = NULL;
    says(r, tap_now_s() - start < LIMIT_S / 4,
         "the exchange is given back in time: %.1f s", tap_now_s() - start);
    trader_close(&t);
    ranks_barrier(r);
}

/* What follows a rank that waits in vain takes seconds, so each is apart. */
static const struct {
    int n;
    const char *name;
    void (*run)(struct rank *r);
    bool bare, replays, unwaited, in_turn;
    const char *kind; /* NULL: copy */
} parts[] = {
    { 2, "one of two dies", test_one_dies, .bare = true },
    { 4, "one of four dies", test_one_dies, .bare = true },
    { 2, "one of two is late", test_one_is_late, .bare = true },
    { 3, "one of three is late", test_one_is_late, .bare = true },
    { 3, "one dies in turn", test_one_dies, .bare = true, .in_turn = true },
    { 3, "one dies by kernel, in turn", test_one_dies, .bare = true,
      .in_turn = true, .kind = "kernel" },
    { 3, "one dies by kernel, replaying", test_one_dies, .bare = true,
      .replays = true, .kind = "kernel" },
    { 3, "one is late in turn", test_one_is_late, .bare = true,
      .in_turn = true },
    { 2, "one is late by kernel", test_one_is_late, .bare = true,
      .kind = "kernel" },
    { 2, "two end in order", test_ends_in_order, .bare = true },
    { 3, "three end in order", test_ends_in_order, .bare = true },
    { 3, "one dies, nobody waits", test_one_dies, .bare = true,
      .unwaited = true },
    { 3, "one of three dies, replaying", test_one_dies, .bare = true,
      .replays = true },
    { 3, "one of three dies, replaying, nobody waits", test_one_dies,
      .bare = true, .replays = true, .unwaited = true },
    { 3, "one never comes", test_one_never_comes, .replays = true },
    { 2, "one of two ends alone", test_one_ends_alone, .replays = true },
    { 3, "one of three ends alone", test_one_ends_alone, .replays = true },
    { 2, "one of two dies by NCCL", test_one_dies_by_nccl, .replays = true },
    { 3, "a graph outlives", test_a_graph_outlives, .replays = true },
    { 2, "one is lost", test_one_is_lost, .bare = true, .replays = true },
    { 2, "one of two dies before its sign", test_one_dies_untold, .bare = true,
      .in_turn = true },
    { 4, "one of four dies before its sign", test_one_dies_untold,
      .bare = true, .in_turn = true },
};

static void run_part(int i)
{
    const uint64_t before = ranks_left();

    replays = parts[i].replays;
    unwaited = parts[i].unwaited;
    options.in_turn = parts[i].in_turn;
    options.kind = parts[i].kind != NULL ? parts[i].kind : "copy";
    (parts[i].bare ? ranks_run_wrong_bare
                   : ranks_run_wrong)(parts[i].n, parts[i].name, parts[i].run);
    if (parts[i].run == test_ends_in_order) {
        is_int((long long)ranks_left(), (long long)before,
               "%s: they leave nothing", parts[i].name);
    }
    if (parts[i].run == test_a_graph_outlives) {
        ok(soft_reported("rank 0 aborts communicator 1 while graphs hold 1") &&
               soft_reported("rank 1 aborts communicator 1 while graphs hold "
                             "1"),
           "a graph outlives: NCCL waits for it on both");
    }
}

int main(void)
{
    int status;

    if (!ranks_open_device(&status)) {
        return status;
    }
    ranks_devices(MOST_RANKS);
    ranks_know_each_other(true);
    if (ranks_are_soft()) {
        tap_apart((int)(sizeof(parts) / sizeof(parts[0])), run_part);
    } else {
        const struct ranks_test dies = { "one dies", test_one_dies, true };
        const struct ranks_test late = { "one is late", test_one_is_late,
                                         true };

        const struct ranks_test alone = { "one ends alone",
                                          test_one_ends_alone, false };

        ranks_run_all(2, &late, 1);
        ranks_run_all(2, &dies, 1);
        replays = true;
        ranks_run_all(2, &dies, 1);
        options.kind = "kernel";
        options.in_turn = true;
        ranks_run_all(2, &dies, 1);
        replays = false;
        ranks_run_all(2, &dies, 1);
        ranks_run_all(2, &late, 1);
        options.kind = "copy";
        options.in_turn = false;
        replays = true;
        ranks_run_all(2, &alone, 1);
    }
    return done_testing();
}
