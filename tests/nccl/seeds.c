/* One program of collectives on two communicators and two streams, in 200
 * orders: the same numbers in each, and no wait in it that may be lost. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nccl/ranks.h"

#include <stdio.h>
#include <string.h>

enum {
    N = 64, /* floats in a buffer */
    PART = N / 4,
    STEPS = 5,
    SEEDS = 200
};

/* What every rank's x holds at the end, by the arithmetic of one thread. */
static float x[MAX_RANKS][N], y[MAX_RANKS][N], z[MAX_RANKS][N];

static float at_first(int rank, int i)
{
    return (float)(i % 7 + 3 * rank + 1);
}

static void simulate_step(int n, int step)
{
    float from[PART], best;

    for (int r = 0; r < n; r++) {
        for (int i = 0; i < N; i++) {
            y[r][i] = 0;
            for (int k = r % 2; k < n; k += 2) {
                y[r][i] += x[k][i];
            }
        }
        for (int k = 0; k < n; k++) {
            memcpy(&z[r][k * PART], &x[k][0], sizeof(from));
        }
    }
    for (int r = 0; r < n; r++) {
        memcpy(&x[r][PART], &y[(r + n - 1) % n][0], sizeof(from));
    }
    for (int r = 0; r < n; r++) {
        for (int i = 0; i < PART; i++) {
            best = z[0][r * PART + i];
            for (int k = 1; k < n; k++) {
                best = z[k][r * PART + i] > best ? z[k][r * PART + i] : best;
            }
            x[r][i] = best + 0;
        }
    }
    memcpy(from, &x[step % n][PART], sizeof(from));
    for (int r = 0; r < n; r++) {
        memcpy(&x[r][2 * PART], from, sizeof(from));
    }
}

static void simulate(int n)
{
    for (int r = 0; r < n; r++) {
        for (int i = 0; i < N; i++) {
            x[r][i] = at_first(r, i);
            z[r][i] = 0;
        }
    }
    for (int step = 0; step < STEPS; step++) {
        simulate_step(n, step);
    }
}

static CUdeviceptr part(CUdeviceptr buffer, int i)
{
    return buffer + (CUdeviceptr)(i * PART) * sizeof(float);
}

/* x is send, y is recv, z is third.  The half sums on the side stream; all
 * else is on the rank's own. */
static void issue_step(struct rank *r, ncclComm_t half, const CUevent events[2],
                       int root)
{
    const int to = (r->rank + 1) % r->n, from = (r->rank + r->n - 1) % r->n;

    drv.cuEventRecord(events[0], r->stream);
    drv.cuStreamWaitEvent(r->side, events[0], 0);
    nccl.ncclAllReduce(pointer(r->send), pointer(r->recv), N, ncclFloat32,
                       ncclSum, half, r->side);
    drv.cuEventRecord(events[1], r->side);
    nccl.ncclAllGather(pointer(r->send), pointer(r->third), PART, ncclFloat32,
                       r->comm, r->stream);
    drv.cuStreamWaitEvent(r->stream, events[1], 0);
    nccl.ncclGroupStart();
    nccl.ncclSend(pointer(r->recv), PART, ncclFloat32, to, r->comm, r->stream);
    nccl.ncclRecv(pointer(part(r->send, 1)), PART, ncclFloat32, from, r->comm,
                  r->stream);
    nccl.ncclGroupEnd();
    nccl.ncclReduceScatter(pointer(r->third), pointer(r->send), PART,
                           ncclFloat32, ncclMax, r->comm, r->stream);
    nccl.ncclBroadcast(pointer(part(r->send, 1)), pointer(part(r->send, 2)),
                       PART, ncclFloat32, root, r->comm, r->stream);
}

static void prepare(struct rank *r, ncclComm_t *half_p, CUevent events[2])
{
    float values[N];

    nccl.ncclCommSplit(r->comm, r->rank % 2, 0, half_p, NULL);
    drv.cuEventCreate(&events[0], CU_EVENT_DISABLE_TIMING);
    drv.cuEventCreate(&events[1], CU_EVENT_DISABLE_TIMING);
    for (int i = 0; i < N; i++) {
        values[i] = at_first(r->rank, i);
    }
    drv.cuMemcpyHtoDAsync(r->send, values, sizeof(values), r->stream);
}

static void compare(struct rank *r)
{
    float values[N];

    fetch(r, r->stream, values, r->send, sizeof(values));
    says(r, memcmp(values, x[r->rank], sizeof(values)) == 0,
         "the numbers are those of one thread");
    drv.cuCtxSynchronize();
}

static void finish(ncclComm_t half, const CUevent events[2])
{
    drv.cuEventDestroy(events[0]);
    drv.cuEventDestroy(events[1]);
    nccl.ncclCommDestroy(half);
}

static void eager(struct rank *r)
{
    ncclComm_t half = NULL;
    CUevent events[2];

    prepare(r, &half, events);
    for (int step = 0; step < STEPS; step++) {
        issue_step(r, half, events, step % r->n);
    }
    compare(r);
    finish(half, events);
}

/* Each step a graph of its own, or eager where it is the third. */
static void graphs(struct rank *r)
{
    CUgraphExec execs[STEPS] = { NULL };
    ncclComm_t half = NULL;
    CUevent events[2];

    prepare(r, &half, events);
    for (int step = 0; step < STEPS; step++) {
        CUgraph graph = NULL;

        if (step == 2) {
            issue_step(r, half, events, step % r->n);
            drv.cuEventRecord(events[0], r->side);
            drv.cuStreamWaitEvent(r->stream, events[0], 0);
            continue;
        }
        drv.cuStreamBeginCapture(r->stream,
                                 CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        issue_step(r, half, events, step % r->n);
        drv.cuStreamEndCapture(r->stream, &graph);
        if (says_int(r, drv.cuGraphInstantiateWithFlags(&execs[step], graph, 0),
                     0, "a step is a graph")) {
            drv.cuGraphLaunch(execs[step], r->stream);
        }
        drv.cuGraphDestroy(graph);
    }
    compare(r);
    for (int step = 0; step < STEPS; step++) {
        if (execs[step] != NULL) {
            drv.cuGraphExecDestroy(execs[step]);
        }
    }
    finish(half, events); /* graphs go before communicators */
}

static void orders(int n, const char *name, void (*test)(struct rank *r),
                   int seeds)
{
    uint64_t races = 0, reports = 0;
    char text[80];

    simulate(n);
    ranks_quiet(true);
    for (int seed = 0; seed < seeds; seed++) {
        ranks_seed(seed);
        snprintf(text, sizeof(text), "%s, seed %d", name, seed);
        ranks_run(n, text, test);
        races += soft_races();
        reports += soft_reports();
    }
    ranks_quiet(false);
    ok(races + reports == 0,
       "%s: %d orders of %d ranks are told apart by "
       "nothing",
       name, seeds, n);
}

/* Each wait of the program is one without which it is wrong. */
static void lose_each(int n)
{
    uint64_t waits, missed = 0;

    simulate(n);
    ranks_quiet(true);
    ranks_seed(7);
    ranks_run_wrong(n, "all waits", eager);
    waits = ranks_waits();
    is_int(waits, 2 * STEPS * n, "a program of %d ranks has its waits", n);
    for (uint64_t i = 1; i <= waits; i++) {
        ranks_drop_wait(i);
        ranks_seed((int)i);
        ranks_run_lost(n, "a wait is lost", eager);
        if (soft_races() == 0) {
            diag("wait %llu is not missed", (unsigned long long)i);
            missed++;
        }
    }
    ranks_drop_wait(0);
    ranks_quiet(false);
    is_int(missed, 0, "each wait that %d ranks lose is a race", n);
}

int main(void)
{
    int status;

    if (!ranks_open(&status)) {
        return status;
    }
    if (!ranks_are_soft()) {
        for (int n = 2; n <= MAX_RANKS; n++) {
            simulate(n);
            ranks_run(n, "eager", eager);
            ranks_run(n, "graphs", graphs);
        }
        skip(1, "orders are the software device's to choose");
        return done_testing();
    }
    orders(4, "eager", eager, SEEDS);
    orders(4, "graphs", graphs, SEEDS);
    orders(3, "eager", eager, 40);
    orders(2, "graphs", graphs, 40);
    lose_each(4);
    lose_each(2);
    return done_testing();
}
