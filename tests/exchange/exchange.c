/*
 * Both kinds of exchange bring each part where it belongs, of any shape, issued
 * and replayed, in any order that a device may choose.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/exchange/trader.h"
#include "words/exchange.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct trader_options wanted;
static bool refuses; /* the driver several copies in one call */

static void test_shapes(struct rank *r)
{
    struct trader t;

    if (!trader_open(&t, r, &wanted)) {
        return;
    }
    for (int shape = 0; shape < N_SHAPES; shape++) {
        for (int i = 0; i < 3; i++) {
            gh_status status = trader_round(&t, shape, false);

            says(r, status == GH_OK, "shape %d, round %d is issued%s%.120s",
                 shape, i, status == GH_OK ? "" : ": ",
                 status == GH_OK ? "" : t.err.text);
        }
    }
    says_int(r, trader_wrong(&t), 0, "all parts are where they belong");
    for (int shape = 0; shape < N_SHAPES; shape++) {
        trader_round(&t, shape, false);
        says(r, trader_is_exact(&t), "shape %d is exact alone", shape);
    }
    trader_close(&t);
}

/* Each shape is replayed five times, and issued in between. */
static void test_replayed(struct rank *r)
{
    struct trader t;
    int broken = 0;

    if (!trader_open(&t, r, &wanted)) {
        return;
    }
    trader_round(&t, SHAPE_FULL, false);
    says(r, trader_is_exact(&t), "a first exchange is exact");
    for (int shape = 0; shape < N_SHAPES; shape++) {
        gh_status status = trader_record(&t, shape);

        says(r, status == GH_OK, "shape %d is captured%s%.120s", shape,
             status == GH_OK ? "" : ": ", status == GH_OK ? "" : t.err.text);
    }
    if (trader_stats(&t).kind != GH_EXCHANGE_NCCL) {
        says_int(r, trader_record_broken(&t, SHAPE_FULL), GH_ERR_DEVICE,
                 "in a capture that is broken a call fails");
        broken = 1;
    }
    for (int i = 0; i < 5; i++) {
        for (int shape = 0; shape < N_SHAPES; shape++) {
            trader_round(&t, shape, true);
            if ((shape + i) % 3 == 0) {
                trader_round(&t, (shape + 1) % N_SHAPES, false);
            }
        }
        if (i == 1 || i == 4) {
            says_int(r, trader_wrong(&t), 0,
                     "replayed and issued in turn, all are exact");
        }
    }
    /* NCCL wants a call captured on all ranks, or on none. */
    for (int i = 0; i < 2 * N_SHAPES && broken; i++) {
        trader_round(&t, i % N_SHAPES, (i + r->rank) % 2 == 0);
    }
    says_int(r, trader_wrong(&t), 0,
             "one rank may replay what another issues");
    says_int(r, (long long)trader_stats(&t).captured,
             N_SHAPES * (wanted.in_turn ? 3 : 1) + broken,
             "captures are counted");
    trader_close(&t);
}

/* Words of four ranks in each of two rows, waited for and taken down; a row is
 * one call.  In turn there is one row.  On a GPU the kernel waits for one
 * itself. */
static void are_as_few_as_said(struct rank *r, const gh_exchange_stats *stats)
{
    const bool kernel = stats->kind == GH_EXCHANGE_KERNEL;
    const long long others = r->n - 1, lanes = others - 1;
    const long long words = (r->n + 3) / 4, rows = wanted.in_turn ? 1 : 2;
    const long long calls = rows - (kernel && !ranks_are_soft());

    says_int(r, (long long)stats->memory_ops, 2 * 2 * calls * words,
             "of %d ranks two exchanges wait for few words", r->n);
    says_int(r, (long long)stats->memory_op_calls, 2 * calls,
             "in %lld calls of the driver each", calls);
    if (kernel) {
        says_int(r, (long long)stats->signal_copies, 2 * (rows - 1) * others,
                 "the kernel itself says what has arrived");
        says_int(r, (long long)stats->event_waits, 0, "and uses no event");
        return;
    }
    says_int(r, (long long)stats->signal_copies, 2 * rows * others,
             "tell each other rank %lld things", rows);
    if (stats->batch_copies != 0) { /* of parts, and of each row of signs */
        says_int(r, (long long)stats->batch_copies, 2 * (1 + rows) - (rows - 1),
                 "and have one call for all parts and one for all signs, but "
                 "for signs before the first parts");
        says_int(r, (long long)stats->event_waits, 0, "and use no event");
        return;
    }
    says(r, lanes == 0 || refuses || !ranks_are_soft(),
         "parts of several ranks go in one call where the driver has it");
    says_int(r, (long long)stats->event_waits,
             lanes > 0 ? 2 * (1 + 3 * lanes) : 0,
             "and use events for the second peer and on");
}

static void test_counted(struct rank *r)
{
    static const char *const names[] = {
#define ROW(id, word) [GH_EXCHANGE_##id] = #word,
        EXCHANGE_KINDS(ROW)
#undef ROW
    };
    gh_exchange_stats stats;
    uint64_t sent = 0;
    struct trader t;
    bool copied;

    if (!trader_open(&t, r, &wanted)) {
        return;
    }
    trader_round(&t, SHAPE_FULL, false);
    trader_round(&t, SHAPE_UNEVEN, false);
    says(r, trader_is_exact(&t), "two exchanges are exact");
    for (int i = 0; i < r->n; i++) {
        sent += i == r->rank ? 0 : trader_bytes(&t, SHAPE_FULL, r->rank, i) +
                                       trader_bytes(&t, SHAPE_UNEVEN, r->rank,
                                                    i);
    }
    stats = trader_stats(&t);
    copied = stats.kind != GH_EXCHANGE_NCCL;
    says_int(r, stats.calls, 2, "calls are counted");
    says_int(r, (long long)stats.copied_bytes, copied ? (long long)sent : 0,
             "so are bytes by copy");
    says_int(r, (long long)stats.nccl_bytes, copied ? 0 : (long long)sent,
             "and by NCCL");
    says_int(r, stats.peers_direct + stats.peers_ipc,
             copied ? r->n - 1 : 0, "and peers that are reached");
    if (copied && r->n > 1) {
        are_as_few_as_said(r, &stats);
    }
    says(r, wanted.kind == NULL ||
                strcmp(wanted.kind, names[stats.kind]) == 0,
         "the kind is the one that was asked for");
    trader_close(&t);
}

/* A thread that comes back from the end goes on to an operation for which it
 * needs the others. */
static void test_ended(struct rank *r)
{
    struct trader t;

    if (!trader_open(&t, r, &wanted)) {
        return;
    }
    trader_round(&t, SHAPE_FULL, false);
    says(r, trader_is_exact(&t), "an exchange is exact");
    gh_exchange_destroy(t.x);
    t.x = NULL;
    if (ranks_have_nccl()) {
        says_int(r,
                 nccl.ncclAllReduce(pointer(r->send), pointer(r->recv), 64,
                                    ncclFloat32, ncclSum, r->comm, r->stream),
                 0, "a sum follows right after the end");
    }
    says_int(r, drv.cuStreamSynchronize(r->stream), 0, "and ends");
    ranks_barrier(r);
    trader_close(&t);
}

/* With the host's window, two at once, and words by the host. */
static void test_variants(struct rank *r)
{
    struct trader_options options = wanted;
    struct trader a, b;

    options.own_window = true;
    if (!trader_open(&a, r, &options)) {
        return;
    }
    options.own_window = false;
    options.in_turn = false;
    options.releases = true;
    if (trader_open(&b, r, &options)) {
        for (int i = 0; i < 4; i++) {
            trader_round(&a, SHAPE_FULL, false);
            trader_round(&b, SHAPE_LATER, false);
        }
        says(r, trader_is_exact(&a), "in the host's window all is exact");
        says(r, trader_is_exact(&b), "and in another exchange beside it");
        trader_close(&b);
    }
    trader_close(&a);
}

/* Rank 0 issues a step before the others have begun: it gets ahead of them by as
 * much as calls allow. */
static void test_one_ahead(struct rank *r)
{
    const int first = ranks_have_nccl() ? 6 : TRADER_ROUNDS;
    struct trader t;

    if (!trader_open(&t, r, &wanted)) {
        return;
    }
    says_int(r, trader_record(&t, SHAPE_FULL), GH_OK, "a call is captured");
    if (r->rank != 0) {
        ranks_barrier(r);
    }
    for (int i = 0; i < first; i++) {
        trader_round(&t, i % 3 == 1 ? SHAPE_FULL : i % N_SHAPES, i % 3 == 1);
    }
    if (r->rank == 0) {
        ranks_barrier(r);
    }
    says_int(r, trader_wrong(&t), 0, "a rank may be a step ahead");
    trader_close(&t);
}

/* A flag is a byte that is set and cleared, and counts nothing: nothing changes
 * after 256 calls. */
static void test_many(struct rank *r)
{
    uint32_t wrong = 0;
    struct trader t;

    if (!trader_open(&t, r, &wanted)) {
        return;
    }
    for (int i = 0; i < 300; i++) {
        trader_round(&t, i % N_SHAPES, false);
        if (i % 30 == 29) {
            wrong += trader_wrong(&t);
        }
    }
    says_int(r, wrong, 0, "300 exchanges are exact");
    trader_close(&t);
}

/* The exchange is destroyed while graphs that hold it are on their way: it ends
 * after them, and nothing is freed that they write. */
static void test_destroyed_under_graphs(struct rank *r)
{
    struct trader t;

    if (!trader_open(&t, r, &wanted)) {
        return;
    }
    says_int(r, trader_record(&t, SHAPE_FULL), GH_OK, "a call is captured");
    for (int i = 0; i < 8; i++) {
        trader_round(&t, SHAPE_FULL, true);
    }
    gh_exchange_destroy(t.x);
    t.x = NULL;
    says_int(r, drv.cuStreamSynchronize(r->stream), 0, "graphs end");
    says_int(r, trader_wrong_after(&t), 0, "with all parts");
    trader_close(&t);
}

static const struct ranks_test faults[] = {
    { "ahead", test_one_ahead, false },
    { "many", test_many, false },
    { "destroyed", test_destroyed_under_graphs, false },
};

/* By each kind that waits for flags, in turn, released and neither. */
static void run_faults(int n)
{
    static const char *const by[] = { "copy", "kernel", "auto" };

    for (int i = 0; i < 3; i++) {
        for (int how = 0; how < 3; how++) {
            wanted = (struct trader_options){ .kind = by[i],
                                              .alone = true,
                                              .small = "300",
                                              .in_turn = how == 1,
                                              .releases = how == 2 };
            ranks_run_all(n, faults, sizeof(faults) / sizeof(faults[0]));
        }
    }
}

static const struct ranks_test tests[] = {
    { "shapes", test_shapes, false },
    { "replayed", test_replayed, false },
    { "counted", test_counted, false },
    { "variants", test_variants, false },
    { "ended", test_ended, false },
};

static void run_kind(const char *kind, uint32_t flags, bool in_turn, int most)
{
    static const int sizes[] = { 2, 3, 4, 8 };

    wanted = (struct trader_options){ .kind = kind,
                                      .flags = flags,
                                      .in_turn = in_turn };
    for (int i = 0; i < 4 && sizes[i] <= most; i++) {
        ranks_run_all(sizes[i], tests, sizeof(tests) / sizeof(tests[0]));
    }
}

/* A driver without calls for several words, or with none in a capture. */
static void run_one_by_one(void)
{
    static const int codes[] = { CUDA_ERROR_NOT_SUPPORTED,
                                 CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED };

    wanted = (struct trader_options){ .kind = "copy" };
    for (int i = 0; i < 2; i++) {
        ranks_refuse("cuStreamBatchMemOp", codes[i]);
        ranks_run(2, "one by one", test_replayed);
        ok(ranks_calls("cuStreamWaitValue32") != 0,
           "where a call is %d words are waited for one by one", codes[i]);
    }
    is_int((long long)ranks_calls("cuStreamWaitValue32"), 4,
           "and where it is 900 no other call is");
    ranks_refuse("cuStreamBatchMemOp", CUDA_ERROR_NOT_SUPPORTED);
    ranks_run(2, "one by one", test_shapes);
    is_int((long long)ranks_calls("cuStreamBatchMemOp"), 2,
           "a driver that lacks it is asked once by each rank");
    ranks_refuse(NULL, 0);
}

/* A driver without calls for several copies, and one that refuses them. */
static void run_without_batches(void)
{
    static const int codes[] = { CUDA_ERROR_NOT_SUPPORTED,
                                 CUDA_ERROR_INVALID_VALUE,
                                 CUDA_ERROR_UNKNOWN };
    static const struct ranks_test few[] = {
        { "shapes", test_shapes, false },
        { "replayed", test_replayed, false },
        { "counted", test_counted, false },
    };

    refuses = true;
    for (int i = 0; i < 6; i++) {
        wanted = (struct trader_options){ .kind = "copy", .in_turn = i >= 3 };
        ranks_refuse("cuMemcpyBatchAsync_v2", codes[i % 3]);
        ranks_run_all(3, few, 3);
        is_int((long long)ranks_calls("cuMemcpyBatchAsync_v2"), 3,
               "where a call is %d for several copies each rank asks once",
               codes[i % 3]);
    }
    refuses = false;
    ranks_refuse(NULL, 0);
}

static const char *const talking[] = { "GRAPHHOOKS_TIMEOUT=20",
                                       "GRAPHHOOKS_LOG=info", NULL };

static void test_said(struct rank *r)
{
    struct trader_options options = { .kind = "copy", .environment = talking };
    struct trader t;

    if (trader_open(&t, r, &options)) {
        trader_close(&t);
    }
}

static char said[8192];

/* What the log has is on stderr.  False: it cannot be read, or there is none. */
static bool run_heard(int n, const char *name, void (*test)(struct rank *r))
{
    FILE *file = tmpfile();
    int before = dup(STDERR_FILENO);
    bool have_run;

    if (file == NULL || before < 0) {
        return false;
    }
    dup2(fileno(file), STDERR_FILENO);
    have_run = ranks_run(n, name, test);
    fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(before);
    rewind(file);
    said[fread(said, 1, sizeof(said) - 1, file)] = '\0';
    fclose(file);
    return have_run;
}

static void run_said(void)
{
    if (!run_heard(2, "said", test_said)) {
        skip(2, "there is no log to read");
        return;
    }
    ok(strstr(said, "exchange: rank 0 of 2: copy, a window of 1600 bytes") !=
           NULL,
       "the log has the kind and the size");
    ok(strstr(said, ranks_are_soft()
                        ? "rank 1 to rank 0: threads of one process, by copy "
                          "engine, into its window of 1600 bytes"
                        : "rank 1 to rank 0: by CUDA IPC, ") != NULL,
       "and how each peer is reached");
}

static void test_measured(struct rank *r);

static void run_measured(int n)
{
    if (run_heard(n, "measured", test_measured)) {
        ok(strstr(said, ": 65536 bytes to each: copies ") != NULL &&
               strstr(said, "where nothing runs beside and no part has more "
                            "than ") != NULL,
           "%d ranks: the log has what was measured, and what follows", n);
    }
}

static void test_by_host(struct rank *r)
{
    struct trader_options options = { .kind = "auto",
                                      .by_host = true,
                                      .no_comm = true };
    struct trader t;

    if (trader_open(&t, r, &options)) {
        trader_round(&t, SHAPE_FULL, false);
        trader_round(&t, SHAPE_UNEVEN, false);
        says(r, trader_is_exact(&t), "words may be brought by the host");
        says_int(r, trader_stats(&t).kind, GH_EXCHANGE_COPY,
                 "auto is copy where all are reached");
        trader_close(&t);
        says(r, t.asked > 0 && t.obeyed == 0,
             "a gather at the end neither uses the exchange nor ends it");
    }
}

static void test_alone(struct rank *r)
{
    struct trader_options options = { .kind = NULL, .no_comm = true };
    struct trader t;

    if (trader_open(&t, r, &options)) {
        trader_round(&t, SHAPE_FULL, false);
        trader_round(&t, SHAPE_CAPACITY, false);
        says(r, trader_is_exact(&t), "one rank keeps its parts");
        trader_close(&t);
    }
}

/* Of two ranks rank 0 sends 192 bytes in each round, and rank 1 sends 384. */
static void goes_by_kernel(struct rank *r, struct trader_options options,
                           bool first, bool second, const char *what)
{
    struct trader t;

    if (!trader_open(&t, r, &options)) {
        return;
    }
    for (int i = 0; i < 4; i++) {
        trader_round(&t, SHAPE_FULL, false);
    }
    says(r, trader_is_exact(&t), "auto, %s: all is exact", what);
    says_int(r, (long long)trader_stats(&t).kernel_calls,
             (r->rank == 0 ? first : second) ? 4 : 0,
             "auto, %s: who sends small parts takes the kernel", what);
    says_int(r, trader_stats(&t).kind, GH_EXCHANGE_COPY,
             "auto, %s: the kind is copy", what);
    trader_close(&t);
}

static void test_auto(struct rank *r)
{
    struct trader_options options = { .alone = true };

    goes_by_kernel(r, options, true, true, "alone");
    options.small = "200";
    goes_by_kernel(r, options, true, false, "alone, of unequal ranks");
    options.small = "384";
    options.in_turn = true;
    goes_by_kernel(r, options, true, true, "in turn");
    options.small = "383";
    options.in_turn = false;
    options.releases = true;
    goes_by_kernel(r, options, true, false, "released");
    options.small = "0";
    goes_by_kernel(r, options, false, false, "with no small parts");
    options.small = NULL;
    options.alone = false;
    goes_by_kernel(r, options, false, false, "beside compute");
    options.kind = "copy";
    options.alone = true;
    goes_by_kernel(r, options, false, false, "where copy was asked for");
}

/* No kernel waits on a device for a rank that shares it. */
static void test_shared(struct rank *r)
{
    struct trader_options options = { .alone = true,
                                      .by_host = true,
                                      .no_comm = true };
    struct trader t;

    if (!trader_open(&t, r, &options)) {
        return;
    }
    trader_round(&t, SHAPE_FULL, false);
    says(r, trader_is_exact(&t), "auto on a shared device is exact");
    says_int(r, (long long)trader_stats(&t).kernel_calls, 0,
             "and goes by copies");
    trader_close(&t);
}

static uint64_t measured[MOST_RANKS]; /* by threads */

static void test_measured(struct rank *r)
{
    /* Windows have room for parts of 64 KiB, and for no larger ones. */
    struct trader_options options = { .small = "measure",
                                      .alone = true,
                                      .in_turn = true,
                                      .unit = 20000,
                                      .environment = talking };
    gh_exchange_stats stats;
    struct trader t;

    if (!trader_open(&t, r, &options)) {
        return;
    }
    stats = trader_stats(&t);
    measured[r->rank] = stats.small_bytes;
    says(r, stats.small_bytes == 0 || stats.small_bytes == 65536,
         "measured: up to %llu bytes are small",
         (unsigned long long)stats.small_bytes);
    says(r,
         stats.calls == 0 && stats.copied_bytes == 0 && stats.memory_ops == 0,
         "measured: what was exchanged for that is not counted");
    ranks_barrier(r);
    says(r, !ranks_are_soft() || measured[0] == measured[r->rank],
         "measured: all ranks agree");
    for (int i = 0; i < 4; i++) {
        trader_round(&t, SHAPE_FULL, false);
    }
    says(r, trader_is_exact(&t), "measured: exchanges are exact afterwards");
    trader_close(&t);
    options.unit = 0;
    options.environment = NULL;
    if (trader_open(&t, r, &options)) {
        says_int(r, (long long)trader_stats(&t).small_bytes, 4 << 20,
                 "measured: small windows leave the default");
        trader_close(&t);
    }
}

int main(void)
{
    int status, most;

    if (!ranks_open_device(&status)) {
        return status;
    }
    most = ranks_are_soft() ? MOST_RANKS : MAX_RANKS;
    ranks_devices(MOST_RANKS);
    run_kind("copy", 0, false, most);
    run_kind("copy", 0, true, most);
    run_kind("kernel", 0, false, most);
    run_kind("kernel", 0, true, most);
    if (ranks_are_soft()) {
        run_kind("copy", GH_EXCHANGE_IPC, false, most);
        ok(ranks_calls("cuIpcOpenMemHandle") >= 2 &&
               ranks_calls("cuIpcOpenMemHandle") ==
                   ranks_calls("cuIpcCloseMemHandle"),
           "what was opened of other processes is closed");
    }
    if (ranks_are_soft()) {
        run_one_by_one();
        run_without_batches();
    }
    run_said();
    if (ranks_have_nccl()) {
        run_kind("nccl", 0, false, most);
        run_kind("nccl", 0, true, 2);
    }
    run_kind(NULL, 0, false, 2);
    run_faults(2);
    run_faults(most < 4 ? 2 : 4);
    ranks_run(2, "auto", test_auto);
    run_measured(2);
    if (most > 2) {
        run_measured(3);
    }
    ranks_know_each_other(true);
    ranks_run(2, "by the host", test_by_host);
    ranks_run(1, "alone", test_alone);
    if (ranks_are_soft()) {
        const struct ranks_test one[] = {
            { "one device", test_by_host, true },
            { "auto on one device", test_shared, true },
        };

        ranks_devices(1);
        ranks_run_all(3, one, 2);
        ranks_devices(MOST_RANKS);
    }
    ranks_know_each_other(false);
    if (ranks_are_soft()) {
        const char *given = getenv("GRAPHHOOKS_TEST_SEEDS");
        const int seeds = given != NULL ? atoi(given) : 20;

        ranks_quiet(true);
        for (int seed = 2; seed < 2 + seeds; seed++) {
            ranks_seed(seed);
            wanted = (struct trader_options){
                .kind = seed % 4 == 0 ? "nccl"
                        : seed % 4 == 3 ? "kernel"
                                        : "copy",
                .flags = seed % 4 == 1 || seed % 8 == 7 ? GH_EXCHANGE_IPC : 0,
                .in_turn = seed % 2 == 1 || seed % 8 == 2,
                .releases = seed % 8 == 6,
            };
            if (seed % 8 == 6 || seed % 8 == 1) { /* each rank by its parts */
                wanted.kind = "auto";
                wanted.alone = true;
                wanted.small = "300";
            }
            ranks_run(2 + seed % 3, "seeds", test_replayed);
        }
        ranks_quiet(false);
        ok(true, "%d seeds are exact, and have no race", seeds);
    }
    return done_testing();
}
