/*
 * Whatever driver call fails on one rank, what every rank has is right, or it
 * is told in time, with a sentence.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/exchange/trader.h"

#include <string.h>
#include <time.h>

#define ROUNDS 3
#define LIMIT_S 10
#define MOST 4 /* faults of an entry that are tried, evenly over its calls */

static const char *const hasty[] = { "GRAPHHOOKS_TIMEOUT=1",
                                     "GRAPHHOOKS_LOG=off", NULL };
static struct trader_options options = { .kind = "copy",
                                         .flags = GH_EXCHANGE_IPC,
                                         .environment = hasty };

/* What became of each rank. */
static struct outcome {
    bool wrong, silent, late, whole;
} outcomes[MOST_RANKS];

static bool trade(struct trader *t, struct outcome *o)
{
    gh_status status = trader_record(t, SHAPE_UNEVEN);
    uint32_t wrong = UINT32_MAX;

    for (int i = 0; i < ROUNDS && status == GH_OK; i++) {
        status = trader_round(t, SHAPE_FULL, false);
        if (status == GH_OK) {
            status = trader_round(t, SHAPE_UNEVEN, true);
        }
    }
    if (status == GH_OK) {
        wrong = trader_wrong(t);
    }
    if (wrong == UINT32_MAX) {
        o->silent = t->err.text[0] == '\0' && status != GH_ERR_DEVICE;
        return false;
    }
    o->wrong = wrong != 0;
    return true;
}

static void work(struct rank *r)
{
    struct outcome *o = &outcomes[r->rank];
    struct timespec start, end;
    struct trader t;

    memset(o, 0, sizeof(*o));
    clock_gettime(CLOCK_MONOTONIC, &start);
    if (trader_try(&t, r, &options) != GH_OK) {
        o->silent = t.err.text[0] == '\0';
    } else {
        o->whole = trade(&t, o);
    }
    trader_close(&t);
    clock_gettime(CLOCK_MONOTONIC, &end);
    o->late = end.tv_sec - start.tv_sec > LIMIT_S;
}

static bool all_are_right(int n)
{
    bool right = true;

    for (int i = 0; i < n; i++) {
        right &= outcomes[i].whole && !outcomes[i].wrong;
    }
    return right;
}

/* Of three ranks the second peer is reached by a lane. */
static const struct {
    const char *name;
    int n_ranks;
    bool by_kernel; /* and in turn */
    bool measures;  /* how fast either kind is */
} entries[] = {
    { .name = "cuStreamCreateWithPriority", .n_ranks = 3 },
    { .name = "cuEventCreate", .n_ranks = 2 },
    { .name = "cuEventRecord", .n_ranks = 3 },
    { .name = "cuMemcpyBatchAsync_v2", .n_ranks = 4 },
    { .name = "cuEventQuery", .n_ranks = 2 },
    { .name = "cuStreamWaitEvent", .n_ranks = 3 },
    { .name = "cuStreamWriteValue32", .n_ranks = 2 },
    { .name = "cuStreamBatchMemOp", .n_ranks = 2 },
    { .name = "cuMemcpyAsync", .n_ranks = 2 },
    { .name = "cuMemcpyDtoDAsync", .n_ranks = 2 },
    { .name = "cuMemsetD8Async", .n_ranks = 2 },
    { .name = "cuMemGetAddressRange", .n_ranks = 2 },
    { .name = "cuIpcGetMemHandle", .n_ranks = 2 },
    { .name = "cuIpcOpenMemHandle", .n_ranks = 2 },
    { .name = "cuIpcCloseMemHandle", .n_ranks = 2 },
    { .name = "cuStreamIsCapturing", .n_ranks = 2 },
    { .name = "cuStreamQuery", .n_ranks = 2 },
    { .name = "cuModuleLoadData", .n_ranks = 2 },
    { .name = "cuMemAlloc", .n_ranks = 2 },
    { .name = "cuLaunchKernel", .n_ranks = 3, .by_kernel = true },
    { .name = "cuStreamBatchMemOp", .n_ranks = 2, .by_kernel = true },
    { .name = "cuEventElapsedTime", .n_ranks = 3, .measures = true },
    { .name = "cuEventRecord", .n_ranks = 2, .measures = true },
    { .name = "cuLaunchKernel", .n_ranks = 2, .measures = true },
    { .name = "cuMemcpyAsync", .n_ranks = 3, .measures = true },
};

static void sweep(int i)
{
    const char *entry = entries[i].name;
    const int n_ranks = entries[i].n_ranks;
    uint64_t calls, stride, tried = 0, wrong = 0, silent = 0, late = 0;
    uint32_t whole = 0;

    options.kind = entries[i].by_kernel ? "kernel" : "copy";
    options.in_turn = entries[i].by_kernel;
    if (entries[i].measures) { /* in windows with room for that */
        options.kind = NULL;
        options.small = "measure";
        options.alone = true;
        options.unit = 20000;
    }
    ranks_fail(entry, 0);
    ranks_run_lost(n_ranks, entry, work);
    calls = ranks_calls(entry);
    ok(all_are_right(n_ranks),
       "%s: without a fault all is right", entry);
    stride = calls / MOST + 1;
    for (uint64_t n = 1 + stride / 2; n <= calls; n += stride) {
        ranks_fail(entry, n);
        ranks_run_lost(n_ranks, entry, work);
        tried++;
        for (int k = 0; k < n_ranks; k++) {
            const struct outcome *o = &outcomes[k];

            if (o->wrong || o->silent || o->late) {
                diag("%s: call %llu, rank %d:%s%s%s", entry,
                     (unsigned long long)n, k, o->wrong ? " wrong" : "",
                     o->silent ? " without a word" : "",
                     o->late ? " late" : "");
            }
            wrong += o->wrong;
            silent += o->silent;
            late += o->late;
            whole += o->whole;
        }
    }
    ranks_fail(entry, 0);
    ok(tried != 0 && wrong == 0 && silent == 0 && late == 0,
       "%s: %llu of %llu calls fail: %u ranks go on, %llu wrong, %llu without "
       "a word, %llu late",
       entry, (unsigned long long)tried, (unsigned long long)calls, whole,
       (unsigned long long)wrong, (unsigned long long)silent,
       (unsigned long long)late);
}

/* ---- in a capture -------------------------------------------------------- */

static const char *const captured[] = {
    "cuStreamIsCapturing", "cuMemcpyAsync",     "cuMemcpyDtoDAsync",
    "cuStreamBatchMemOp",  "cuEventRecord",     "cuStreamWaitEvent",
};
static struct {
    uint64_t calls, failed; /* of the entry at hand */
    bool more;
} capture_faults;
static uint32_t wrong_after[MOST_RANKS];

/* The n-th call of an entry fails while rank 0 captures; no other rank does
 * anything then. */
static void capture_with_fault(struct trader *t, const char *entry, uint64_t n)
{
    gh_status status;

    soft_configure("SEED=0 PROCESSES=1 FAIL=%s:%llu", entry,
                   (unsigned long long)n);
    status = trader_record(t, SHAPE_FULL);
    capture_faults.calls = ranks_calls(entry);
    capture_faults.more = n <= capture_faults.calls;
    capture_faults.failed += status != GH_OK;
    soft_configure("SEED=0 PROCESSES=1");
    if (t->graphs[SHAPE_FULL][0] != NULL) {
        drv.cuGraphExecDestroy(t->graphs[SHAPE_FULL][0]);
        t->graphs[SHAPE_FULL][0] = NULL;
    }
}

static void walk_captures(struct trader *t, const char *entry)
{
    struct rank *r = t->r;
    uint64_t n = 1;

    if (r->rank == 0) {
        capture_faults.failed = 0;
    }
    wrong_after[r->rank] = 0;
    do {
        ranks_barrier(r);
        if (r->rank == 0) {
            capture_with_fault(t, entry, n);
        }
        ranks_barrier(r);
        wrong_after[r->rank] +=
            trader_round(t, SHAPE_FULL, false) != GH_OK ||
            trader_wrong(t) != 0;
        n++;
    } while (capture_faults.more);
    ranks_barrier(r);
    says(r, capture_faults.calls != 0, "%s: %llu of %llu faults fail a capture",
         entry, (unsigned long long)capture_faults.failed,
         (unsigned long long)capture_faults.calls);
    says_int(r, wrong_after[r->rank], 0, "%s: the next exchange is right",
             entry);
    ranks_barrier(r);
}

static void test_captures(struct rank *r)
{
    struct trader_options own = options;
    struct trader t;

    own.by_host = own.no_comm = true;
    if (!trader_open(&t, r, &own)) {
        return;
    }
    for (size_t i = 0; i < sizeof(captured) / sizeof(captured[0]); i++) {
        walk_captures(&t, captured[i]);
    }
    trader_record(&t, SHAPE_FULL);
    trader_round(&t, SHAPE_FULL, true);
    says_int(r, trader_wrong(&t), 0, "and so is one that is captured after all");
    trader_close(&t);
}

/* ---- in a wait ----------------------------------------------------------- */

static struct {
    uint64_t calls, named;
} wait_faults;

/* Of a stream that has ended: what fails is only how that is found out, so
 * the wait fails by the driver's name, and nobody is accused. */
static bool wait_with_fault(struct trader *t, const char *entry, uint64_t n)
{
    gh_status status;

    soft_configure("SEED=0 PROCESSES=1 FAIL=%s:%llu", entry,
                   (unsigned long long)n);
    status = gh_exchange_wait(t->x, t->r->stream, &t->err);
    wait_faults.calls = ranks_calls(entry);
    soft_configure("SEED=0 PROCESSES=1");
    if (n > wait_faults.calls) {
        return false;
    }
    wait_faults.named += status == GH_ERR_DEVICE &&
                         strstr(t->err.text, entry) != NULL;
    return true;
}

static void walk_waits(struct trader *t, const char *entry)
{
    struct rank *r = t->r;

    trader_round(t, SHAPE_FULL, false);
    wrong_after[r->rank] = trader_wrong(t);
    ranks_barrier(r);
    if (r->rank == 0) {
        uint64_t n = 1;

        wait_faults.named = 0;
        while (wait_with_fault(t, entry, n)) {
            n++;
        }
    }
    ranks_barrier(r);
    says(r, wait_faults.calls != 0 && wait_faults.named == wait_faults.calls,
         "%s: %llu of %llu faults of a wait are named", entry,
         (unsigned long long)wait_faults.named,
         (unsigned long long)wait_faults.calls);
    wrong_after[r->rank] += trader_round(t, SHAPE_FULL, false) != GH_OK ||
                            trader_wrong(t) != 0;
    says_int(r, wrong_after[r->rank], 0, "%s: the next exchange is right",
             entry);
    ranks_barrier(r);
}

static void test_waits(struct rank *r)
{
    struct trader_options own = options;
    struct trader t;

    own.by_host = own.no_comm = true;
    if (!trader_open(&t, r, &own)) {
        return;
    }
    walk_waits(&t, "cuStreamQuery");
    walk_waits(&t, "cuMemcpyDtoHAsync");
    trader_close(&t);
}

/* Nothing is left of what failed beside other ranks that do nothing. */
static void sweep_alone(void)
{
    static const struct ranks_test tests[] = {
        { "captures", test_captures, true },
        { "waits", test_waits, true },
    };
    const uint64_t left = ranks_left();

    ranks_fail("cuInit", 0);
    ranks_run_all(3, tests, 2);
    is_int((long long)ranks_left(), (long long)left,
           "captures and waits that have failed leave nothing");
}

int main(void)
{
    int status;

    if (!ranks_open(&status)) {
        return status;
    }
    if (!ranks_are_soft()) {
        return skip_all("only the software device fails on demand");
    }
    ranks_devices(MOST_RANKS);
    sweep_alone();
    tap_apart((int)(sizeof(entries) / sizeof(entries[0])), sweep);
    return done_testing();
}
