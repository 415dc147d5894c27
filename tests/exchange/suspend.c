/*
 * A suspended exchange has no window, and a resumed one replays the graphs of
 * before with the same bytes; all ranks have one, or none has.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/exchange/trader.h"

#include <stdlib.h>
#include <string.h>

#define GRANULE ((uint64_t)2 << 20)

static struct trader_options wanted;

static uint64_t given(struct trader *t)
{
    return trader_stats(t).given_bytes;
}

/* Points, if it is not so. */
static bool suspends(struct trader *t)
{
    gh_status status;

    t->err.text[0] = '\0';
    status = gh_exchange_suspend(t->x, t->r->stream, &t->err);
    return status == GH_OK ||
           says(t->r, false, "it is suspended: %.200s", t->err.text);
}

static bool resumes(struct trader *t)
{
    gh_status status;

    t->err.text[0] = '\0';
    status = gh_exchange_resume(t->x, &t->err);
    return status == GH_OK ||
           says(t->r, false, "it is resumed: %.200s", t->err.text);
}

/* As another program would, where a rank has a device of its own. */
static void use_memory(uint64_t bytes)
{
    CUdeviceptr memory = 0;

    if (drv.cuMemAlloc(&memory, bytes) == CUDA_SUCCESS) {
        drv.cuMemFree(memory);
    }
}

static void test_replayed(struct rank *r)
{
    struct trader t;

    if (!trader_open(&t, r, &wanted)) {
        return;
    }
    for (int shape = 0; shape < N_SHAPES; shape++) {
        gh_status status = trader_record(&t, shape);

        says(r, status == GH_OK, "shape %d is captured%s%.120s", shape,
             status == GH_OK ? "" : ": ", status == GH_OK ? "" : t.err.text);
    }
    for (int i = 0; i < 3; i++) {
        for (int shape = 0; shape < N_SHAPES; shape++) {
            trader_round(&t, shape, true);
            if ((shape + i) % 3 == 0) {
                trader_round(&t, (shape + 1) % N_SHAPES, false);
            }
        }
        says_int(r, trader_wrong(&t), 0, "replayed and issued, all are exact");
        trader_round(&t, SHAPE_FULL, true); /* nobody has waited for it */
        if (!suspends(&t)) {
            break;
        }
        says(r, given(&t) >= t.window_bytes && given(&t) % GRANULE == 0,
             "the window is given back");
        use_memory(given(&t));
        if (!resumes(&t)) {
            break;
        }
        says(r, gh_exchange_window(t.x) == t.window, "it is where it was");
    }
    says_int(r, (long long)trader_stats(&t).suspends, 3, "three times");
    trader_round(&t, SHAPE_FULL, true);
    says_int(r, trader_wrong(&t), 0, "the last replay is exact");
    trader_close(&t);
}

static void test_refused(struct rank *r)
{
    const gh_exchange_op op = { .struct_size = sizeof(op) };
    CUgraph graph = NULL;
    struct trader t;
    gh_error err;

    if (!trader_open(&t, r, &wanted)) {
        return;
    }
    says_int(r, gh_exchange_resume(t.x, &err), GH_ERR_STATE,
             "what is not suspended is not resumed");
    says(r, strstr(err.text, "gh_exchange_suspend first") != NULL,
         "and the text says so");
    trader_round(&t, SHAPE_FULL, false);
    if (r->rank == 0) {
        drv.cuStreamBeginCapture(r->side, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    }
    says_int(r,
             gh_exchange_suspend(t.x, r->rank == 0 ? r->side : r->stream, &err),
             GH_ERR_STATE, "while one rank captures, none is suspended");
    says(r,
         strstr(err.text, r->rank == 0 ? "end the capture first"
                                       : "rank 0 cannot") != NULL,
         "and each is told why");
    if (r->rank == 0) {
        drv.cuStreamEndCapture(r->side, &graph);
        drv.cuGraphDestroy(graph);
    }
    says_int(r, trader_wrong(&t), 0, "the exchange goes on");
    if (suspends(&t)) {
        says_int(r, gh_exchange_suspend(t.x, r->stream, &err), GH_ERR_STATE,
                 "nothing is suspended twice");
        says_int(r, gh_exchange_all_to_all(t.x, &op, &err), GH_ERR_STATE,
                 "no call is issued");
        says(r, strstr(err.text, "gh_exchange_resume first") != NULL,
             "and the text says what to do");
        says_int(r, gh_exchange_release_window(t.x, r->stream, &err),
                 GH_ERR_STATE, "no window is released");
        says_int(r, gh_exchange_wait(t.x, r->stream, &err), GH_ERR_STATE,
                 "nothing is waited for");
    }
    trader_close(&t); /* suspended */
}

static void test_without_the_flag(struct rank *r)
{
    struct trader t;
    gh_error err;

    if (trader_open(&t, r, &wanted)) {
        says_int(r, gh_exchange_suspend(t.x, r->stream, &err),
                 GH_ERR_UNSUPPORTED, "without the flag it is not suspended");
        says(r, strstr(err.text, "GH_EXCHANGE_SUSPENDS") != NULL,
             "and the text names the flag");
        trader_close(&t);
    }
}

/* As where a driver shares no descriptors of memory. */
static void test_by_handles(struct rank *r)
{
    struct trader t;
    gh_error err;

    if (!trader_open(&t, r, &wanted)) {
        return;
    }
    trader_round(&t, SHAPE_FULL, false);
    says_int(r, trader_wrong(&t), 0, "handles reach the window");
    says_int(r, gh_exchange_suspend(t.x, r->stream, &err), GH_ERR_UNSUPPORTED,
             "whose memory stays");
    says(r, strstr(err.text, "open it by CUDA IPC") != NULL,
         "as the text says");
    trader_round(&t, SHAPE_FULL, false);
    says_int(r, trader_wrong(&t), 0, "and the exchange goes on");
    trader_close(&t);
}

/* A replay in between finds no memory. */
static void test_gone(struct rank *r)
{
    struct trader t;

    if (!trader_open(&t, r, &wanted)) {
        return;
    }
    trader_record(&t, SHAPE_FULL);
    if (suspends(&t)) {
        drv.cuGraphLaunch(t.graphs[SHAPE_FULL][0], r->stream);
        drv.cuStreamSynchronize(r->stream);
    }
    trader_close(&t);
}

/* ---- faults -------------------------------------------------------------- */

static const char *const hasty[] = { "GRAPHHOOKS_TIMEOUT=1",
                                     "GRAPHHOOKS_LOG=off", NULL };
static bool wrong[MOST_RANKS], parted[MOST_RANKS], silent[MOST_RANKS];

/* Suspends, resumes until that works, and trades. */
static void try_it(struct rank *r)
{
    gh_status status;
    struct trader t;

    wrong[r->rank] = parted[r->rank] = silent[r->rank] = false;
    status = trader_try(&t, r, &wanted);
    if (status == GH_OK) {
        status = trader_record(&t, SHAPE_FULL);
    }
    for (int i = 0; i < 2 && status == GH_OK; i++) {
        status = gh_exchange_suspend(t.x, r->stream, &t.err);
        for (int k = 0; k < 3; k++) {
            if (status != GH_OK) {
                break;
            }
            status = gh_exchange_resume(t.x, &t.err);
            if (status == GH_OK) {
                break;
            }
            silent[r->rank] |= t.err.text[0] == '\0';
            status = status == GH_ERR_RANKS ? status : GH_OK;
        }
        if (status == GH_ERR_STATE || status == GH_ERR_DEVICE ||
            status == GH_ERR_UNSUPPORTED) {
            status = GH_OK; /* not suspended: it goes on */
        }
        if (status == GH_OK) {
            status = trader_round(&t, SHAPE_FULL, i == 1);
        }
    }
    if (status == GH_OK) {
        const uint32_t n = trader_wrong(&t);

        wrong[r->rank] = n != 0 && n != UINT32_MAX;
        parted[r->rank] = n == UINT32_MAX;
    } else {
        parted[r->rank] = true;
        silent[r->rank] |= t.err.text[0] == '\0';
    }
    trader_close(&t);
}

/* `closes`: what is left of calls that fail while exchanges are closed. */
static void sweep(const char *entry, int n, int closes)
{
    uint64_t calls, tried = 0, bad = 0, left = 0;

    ranks_fail(entry, 0);
    ranks_run_lost(n, entry, try_it);
    calls = ranks_calls(entry);
    ok(calls > 0 && !wrong[0] && !parted[0], "%s: without a fault all is right",
       entry);
    for (uint64_t k = 1; k <= calls; k += calls / 12 + 1) {
        const uint64_t had = ranks_left();

        ranks_fail(entry, k);
        ranks_run_lost(n, entry, try_it);
        tried++;
        if (!parted[0] && !parted[1]) { /* a window stays where ranks part */
            left += ranks_left() - had;
        }
        for (int i = 0; i < n; i++) {
            bad += wrong[i] || silent[i];
            if (wrong[i] || silent[i]) {
                diag("%s: call %llu, rank %d%s%s", entry, (unsigned long long)k,
                     i, wrong[i] ? " wrong" : "",
                     silent[i] ? " without a word" : "");
            }
        }
    }
    ranks_fail(entry, 0);
    is_int((long long)bad, 0,
           "%s: each of %llu faults is told, and no number "
           "is wrong",
           entry, (unsigned long long)tried);
    is_int((long long)left, closes, "%s: nothing is left", entry);
}

/* One rank has no memory, once. */
static void test_no_memory(struct rank *r)
{
    CUdeviceptr all[64] = { 0 };
    size_t bytes = (size_t)1 << 36;
    struct trader t;
    gh_error err;
    int n = 0;

    if (!trader_open(&t, r, &wanted)) {
        return;
    }
    trader_record(&t, SHAPE_FULL);
    if (suspends(&t)) {
        while (r->rank == 1 && n < 64 && bytes >= GRANULE / 2) {
            if (drv.cuMemAlloc(&all[n], bytes) == CUDA_SUCCESS) {
                n++;
            } else {
                bytes /= 2;
            }
        }
        says_int(r, gh_exchange_resume(t.x, &err), GH_ERR_NO_MEMORY,
                 "while one rank has no memory, none is resumed");
        says(r, r->rank == 1 || strstr(err.text, "rank 1 cannot") != NULL,
             "and the others name it: %.120s", r->rank == 1 ? "" : err.text);
        for (int i = 0; i < n; i++) {
            drv.cuMemFree(all[i]);
        }
        ranks_barrier(r);
        if (resumes(&t)) {
            trader_round(&t, SHAPE_FULL, true);
            says_int(r, trader_wrong(&t), 0, "once there is, it replays");
        }
    }
    trader_close(&t);
}

/* The last rank does not come. */
static void test_one_is_missing(struct rank *r)
{
    struct trader t;
    gh_error err;

    if (!trader_open(&t, r, &wanted)) {
        return;
    }
    trader_round(&t, SHAPE_FULL, false);
    says_int(r, trader_wrong(&t), 0, "all trade");
    if (r->rank != r->n - 1) {
        says_int(r, gh_exchange_suspend(t.x, r->stream, &err), GH_ERR_RANKS,
                 "a rank that does not come is told of");
        says_int(r, gh_exchange_suspend(t.x, r->stream, &err), GH_ERR_RANKS,
                 "and the exchange is over");
    }
    trader_close(&t);
}

/* The calls that map windows. */
static void sweep_mapping(int closes)
{
    sweep("cuMemUnmap", 2, closes);
    sweep("cuMemMap", 2, 0);
    sweep("cuMemCreate", 2, 0);
    sweep("cuMemSetAccess", 3, 0);
    sweep("cuMemAddressReserve", 2, 0);
}

/* ---- the whole ----------------------------------------------------------- */

static void run_all(const char *kind, int n, bool in_turn)
{
    wanted = (struct trader_options){ .kind = kind,
                                      .flags = GH_EXCHANGE_SUSPENDS,
                                      .in_turn = in_turn };
    ranks_run(n, kind, test_replayed);
    ranks_run(n, kind, test_refused);
}

int main(void)
{
    int status;

    setenv("SOFTCUDA_MEMORY", "268435456", 1); /* one rank takes all of it */
    if (!ranks_open_device(&status)) {
        return status;
    }
    if (!ranks_are_soft()) { /* ranks are processes here */
        wanted = (struct trader_options){ .kind = "copy",
                                          .flags = GH_EXCHANGE_SUSPENDS,
                                          .by_host = true,
                                          .no_comm = true };
        ranks_run(2, "copy", test_replayed);
        return done_testing();
    }
    ranks_devices(MOST_RANKS);
    run_all("copy", 2, false);
    run_all("copy", 3, true);
    run_all("kernel", 2, true);
    run_all("kernel", 4, false);
    run_all("nccl", 2, false);
    wanted = (struct trader_options){ .flags = GH_EXCHANGE_SUSPENDS,
                                      .by_host = true,
                                      .alone = true };
    ranks_run(2, "auto, by the host", test_replayed);
    ranks_run(1, "alone", test_replayed);
    ranks_run(2, "no memory", test_no_memory);
    wanted.own_window = true;
    wanted.flags = 0;
    ranks_run(2, "without the flag", test_without_the_flag);
    wanted = (struct trader_options){
        .kind = "copy", .flags = GH_EXCHANGE_SUSPENDS | GH_EXCHANGE_IPC
    };
    ranks_refuse("cuMemExportToShareableHandle", 801);
    ranks_run(2, "by handles", test_by_handles);
    ranks_refuse(NULL, 0);
    for (int n = 2; n <= 3; n++) {
        ranks_run(n, "by descriptors", test_replayed);
        ranks_run(n, "by descriptors", test_refused);
    }
    ranks_run(2, "by descriptors, no memory", test_no_memory);

    wanted = (struct trader_options){ .kind = "copy",
                                      .flags = GH_EXCHANGE_SUSPENDS,
                                      .environment = hasty };
    wanted.by_host = true;
    wanted.no_comm = true;
    wanted.flags |= GH_EXCHANGE_IPC;
    sweep_mapping(6);
    sweep("cuMemExportToShareableHandle", 2, 0);
    sweep("cuMemImportFromShareableHandle", 3, 0);
    wanted.flags = GH_EXCHANGE_SUSPENDS;
    sweep_mapping(4);
    sweep("cuMemGetAllocationGranularity", 2, 0);
    sweep("cuStreamQuery", 2, 0);
    sweep("cuStreamIsCapturing", 2, 0);
    sweep("cuMemcpyAsync", 2, 0);
    ranks_run_lost(3, "one is missing", test_one_is_missing);
    wanted.by_host = wanted.no_comm = false;
    for (int i = 0; i < 2; i++) {
        wanted.kind = i == 0 ? "copy" : "nccl";
        ranks_run_lost(2, "gone", test_gone);
        ok(soft_unmapped() != 0, "%s: a replay without a window is reported",
           wanted.kind);
    }
    return done_testing();
}
