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

static void sweep(const char *entry)
{
    uint64_t calls, stride, tried = 0, wrong = 0, silent = 0, late = 0;
    uint32_t whole = 0;

    ranks_fail(entry, 0);
    ranks_run_lost(2, entry, work);
    calls = ranks_calls(entry);
    ok(outcomes[0].whole && outcomes[1].whole && !outcomes[0].wrong &&
           !outcomes[1].wrong,
       "%s: without a fault all is right", entry);
    stride = calls / MOST + 1;
    for (uint64_t n = 1 + stride / 2; n <= calls; n += stride) {
        ranks_fail(entry, n);
        ranks_run_lost(2, entry, work);
        tried++;
        for (int i = 0; i < 2; i++) {
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
    static const char *const entries[] = {
        "cuStreamCreateWithPriority", "cuEventCreate", "cuEventRecord",
        "cuEventQuery", "cuStreamWaitEvent", "cuStreamWaitValue32",
        "cuStreamWriteValue32", "cuMemcpyAsync", "cuMemcpyDtoDAsync",
        "cuMemsetD8Async", "cuMemGetAddressRange", "cuIpcGetMemHandle",
        "cuIpcOpenMemHandle", "cuIpcCloseMemHandle", "cuStreamIsCapturing",
        "cuStreamQuery", "cuModuleLoadData", "cuMemAlloc",
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
        sweep(entries[i]);
    }
    return done_testing();
}
