/* Operations in graphs: a node meets its peers at each launch. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nccl/ranks.h"

static CUgraphExec record(struct rank *r, void (*body)(struct rank *r))
{
    CUgraphExec exec = NULL;
    CUgraph graph = NULL;

    says_int(r,
             drv.cuStreamBeginCapture(r->stream,
                                      CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
             0, "a capture begins");
    body(r);
    says_int(r, drv.cuStreamEndCapture(r->stream, &graph), 0,
             "a capture with an operation ends");
    says_int(r, drv.cuGraphInstantiateWithFlags(&exec, graph, 0), 0,
             "its graph is instantiated");
    drv.cuGraphDestroy(graph);
    return exec;
}

static void sum(struct rank *r)
{
    says_int(r,
             nccl.ncclAllReduce(pointer(r->send), pointer(r->recv), 64,
                                ncclFloat32, ncclSum, r->comm, r->stream),
             0, "a sum is captured");
}

static float value(struct rank *r, CUdeviceptr at)
{
    float x = -1;

    fetch(r, r->stream, &x, at, sizeof(x));
    return x;
}

static void test_launches(struct rank *r)
{
    CUgraphExec exec;

    fill(r, r->recv, 64, -5, 0);
    exec = record(r, sum);
    says(r, value(r, r->recv) == -5.0f, "a capture does nothing");
    for (int i = 1; i <= 4; i++) {
        fill(r, r->send, 64, (float)i, 0);
        says_int(r, drv.cuGraphLaunch(exec, r->stream), 0, "launch %d", i);
        says(r, value(r, r->recv) == (float)(i * r->n), "launch %d sums", i);
    }
    drv.cuGraphExecDestroy(exec);
}

static void chain(struct rank *r)
{
    nccl.ncclAllGather(pointer(r->send), pointer(r->recv), 1, ncclFloat32,
                       r->comm, r->stream);
    nccl.ncclAllReduce(pointer(r->recv), pointer(r->third), 4, ncclFloat32,
                       ncclSum, r->comm, r->stream);
    drv.cuMemcpyDtoDAsync(r->send, r->third, sizeof(float), r->stream);
}

/* Each launch makes of x: n times rank 0's x, everywhere. */
static void test_a_chain_and_eager_between(struct rank *r)
{
    CUgraphExec exec;
    float wanted = 1;

    fill(r, r->recv, 64, 0, 0);
    fill(r, r->send, 64, 1, 0);
    exec = record(r, chain);
    for (int i = 0; i < 3; i++) {
        drv.cuGraphLaunch(exec, r->stream);
        wanted *= (float)r->n;
        nccl.ncclAllReduce(pointer(r->send), pointer(r->send), 1, ncclFloat32,
                           ncclMax, r->comm, r->stream);
        nccl.ncclBroadcast(pointer(r->send), pointer(r->send), 1, ncclFloat32,
                           r->n - 1, r->comm, r->stream);
    }
    says(r, value(r, r->send) == wanted,
         "operations of graphs and eager ones take their turns");
    drv.cuGraphExecDestroy(exec);
}

/* What a rank does on a second stream, joined by events. */
static void forked(struct rank *r)
{
    CUevent fork = NULL, join = NULL;

    drv.cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING);
    drv.cuEventCreate(&join, CU_EVENT_DISABLE_TIMING);
    drv.cuEventRecord(fork, r->stream);
    drv.cuStreamWaitEvent(r->side, fork, 0);
    nccl.ncclAllReduce(pointer(r->send), pointer(r->recv), 64, ncclFloat32,
                       ncclSum, r->comm, r->side);
    drv.cuEventRecord(join, r->side);
    drv.cuMemcpyDtoDAsync(r->third, r->send, 64 * sizeof(float), r->stream);
    drv.cuStreamWaitEvent(r->stream, join, 0);
    drv.cuMemcpyDtoDAsync(r->send, r->recv, 64 * sizeof(float), r->stream);
    drv.cuEventDestroy(fork);
    drv.cuEventDestroy(join);
}

static void test_a_branch(struct rank *r)
{
    CUgraphExec exec;
    float wanted = 1;

    fill(r, r->send, 64, 1, 0);
    exec = record(r, forked);
    for (int i = 0; i < 3; i++) {
        drv.cuGraphLaunch(exec, r->stream);
        wanted *= (float)r->n;
    }
    says(r, value(r, r->send) == wanted, "an operation runs on a branch");
    says(r, value(r, r->third) == wanted / (float)r->n,
         "beside what does not wait for it");
    drv.cuGraphExecDestroy(exec);
}

static void exchange(struct rank *r)
{
    const int to = (r->rank + 1) % r->n, from = (r->rank + r->n - 1) % r->n;

    nccl.ncclGroupStart();
    nccl.ncclSend(pointer(r->send), 1, ncclFloat32, to, r->comm, r->stream);
    nccl.ncclRecv(pointer(r->recv), 1, ncclFloat32, from, r->comm, r->stream);
    says_int(r, nccl.ncclGroupEnd(), 0, "a ring is captured");
    drv.cuMemcpyDtoDAsync(r->send, r->recv, sizeof(float), r->stream);
}

static void test_a_ring(struct rank *r)
{
    CUgraphExec exec;

    fill(r, r->send, 1, (float)r->rank, 0);
    exec = record(r, exchange);
    for (int i = 0; i < r->n; i++) {
        drv.cuGraphLaunch(exec, r->stream);
    }
    says(r, value(r, r->send) == (float)r->rank,
         "after n launches a ring is where it was");
    drv.cuGraphLaunch(exec, r->stream);
    says(r, value(r, r->send) == (float)((r->rank + r->n - 1) % r->n),
         "and one on after one more");
    drv.cuGraphExecDestroy(exec);
}

/* Two graphs on two communicators, launched side by side. */
static ncclComm_t pair_of[MAX_RANKS];

static void sum_of_pair(struct rank *r)
{
    nccl.ncclAllReduce(pointer(r->third), pointer(r->third), 64, ncclFloat32,
                       ncclSum, pair_of[r->rank], r->stream);
}

static void test_two_communicators(struct rank *r)
{
    CUgraphExec all, pair;
    int members = r->rank / 2 * 2 + 1 < r->n ? 2 : 1;

    nccl.ncclCommSplit(r->comm, r->rank / 2, 0, &pair_of[r->rank], NULL);
    fill(r, r->send, 64, 1, 0);
    fill(r, r->third, 64, 1, 0);
    all = record(r, sum);
    pair = record(r, sum_of_pair);
    for (int i = 0; i < 3; i++) {
        drv.cuGraphLaunch(i % 2 == 0 ? all : pair, r->stream);
        drv.cuGraphLaunch(i % 2 == 0 ? pair : all, r->stream);
    }
    says(r, value(r, r->recv) == (float)r->n, "the one sums over all");
    says(r, value(r, r->third) == (float)(members * members * members),
         "the other over pairs");
    drv.cuGraphExecDestroy(pair);
    drv.cuGraphExecDestroy(all);
    nccl.ncclCommDestroy(pair_of[r->rank]);
}

/* A group's streams of one communicator are captured all or not at all; where
 * it has one rank only, nobody looks. */
static void test_half_captured(struct rank *r)
{
    CUgraph graph = NULL;

    drv.cuStreamBeginCapture(r->side, CU_STREAM_CAPTURE_MODE_RELAXED);
    nccl.ncclGroupStart();
    nccl.ncclAllReduce(pointer(r->send), pointer(r->recv), 1, ncclFloat32,
                       ncclSum, r->comm, r->stream);
    nccl.ncclAllReduce(pointer(r->third), pointer(r->third), 1, ncclFloat32,
                       ncclSum, r->comm, r->side);
    says_int(r, nccl.ncclGroupEnd(), r->n == 1 ? ncclSuccess : ncclInvalidUsage,
             "a group that is captured by half is refused, but for one rank");
    drv.cuStreamEndCapture(r->side, &graph);
    drv.cuGraphDestroy(graph);
}

static const struct ranks_test tests[] = {
    { "launches", test_launches, false },
    { "a chain", test_a_chain_and_eager_between, false },
    { "a branch", test_a_branch, false },
    { "a ring", test_a_ring, false },
    { "two communicators", test_two_communicators, false },
    { "half captured", test_half_captured, false },
};

int main(void)
{
    return ranks_main(tests, sizeof(tests) / sizeof(tests[0]));
}
