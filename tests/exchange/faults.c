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
static void sweep(const char *entry, int n_ranks)
{
    uint64_t calls, stride, tried = 0, wrong = 0, silent = 0, late = 0;
    uint32_t whole = 0;

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
        for (int i = 0; i < n_ranks; i++) {
            const struct outcome *o = &outcomes[i];

            if (o->wrong || o->silent || o->late) {
                diag("%s: call %llu, rank %d:%s%s%s", entry,
                     (unsigned long long)n, i, o->wrong ? " wrong" : "",
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

int main(void)
{
    static const struct {
        const char *name;
        int n_ranks;
    } entries[] = {
        { "cuStreamCreateWithPriority", 3 },
        { "cuEventCreate", 2 },         { "cuEventRecord", 3 },
        { "cuEventQuery", 2 },          { "cuStreamWaitEvent", 3 },
        { "cuStreamWriteValue32", 2 },  { "cuStreamBatchMemOp", 2 },
        { "cuMemcpyAsync", 2 },         { "cuMemcpyDtoDAsync", 2 },
        { "cuMemsetD8Async", 2 },       { "cuMemGetAddressRange", 2 },
        { "cuIpcGetMemHandle", 2 },     { "cuIpcOpenMemHandle", 2 },
        { "cuIpcCloseMemHandle", 2 },   { "cuStreamIsCapturing", 2 },
        { "cuStreamQuery", 2 },         { "cuModuleLoadData", 2 },
        { "cuMemAlloc", 2 },
    };
    int status;

    if (!ranks_open(&status)) {
        return status;
    }
    if (!ranks_are_soft()) {
        return skip_all("only the software device fails on demand");
    }
    ranks_devices(MOST_RANKS);
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        sweep(entries[i].name, entries[i].n_ranks);
    }
    return done_testing();
}
