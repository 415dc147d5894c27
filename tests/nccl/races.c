/* Races across ranks: what is sent, what is received, and what an operation
 * tells the ranks of each other.  They are the software device's to find. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nccl/ranks.h"

static void sum(struct rank *r)
{
    nccl.ncclAllReduce(pointer(r->send), pointer(r->recv), 64, ncclFloat32,
                       ncclSum, r->comm, r->stream);
}

static void write_on(CUdeviceptr at, CUstream stream)
{
    drv.cuMemsetD32Async(at, 1, 64, stream);
}

static void after(CUstream later, CUstream earlier)
{
    CUevent event = NULL;

    drv.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    drv.cuEventRecord(event, earlier);
    drv.cuStreamWaitEvent(later, event, 0);
    drv.cuEventDestroy(event);
}

/* Which wait is left out, of each rank or of one. */
static int left_out, who;

static bool waits(const struct rank *r, int which)
{
    return left_out != which || (who >= 0 && who != r->rank);
}

/* Written on one stream, summed on another, read on the first, and what was
 * sent written again: a wait between each. */
static void test_waits(struct rank *r)
{
    write_on(r->send, r->side);
    if (waits(r, 1)) {
        after(r->stream, r->side);
    }
    sum(r);
    if (waits(r, 2)) {
        after(r->side, r->stream);
    }
    if (left_out == 3) {
        write_on(r->recv, r->side);
    } else if (left_out != 4) {
        drv.cuMemcpyDtoDAsync(r->third, r->recv, 64 * sizeof(float), r->side);
    } else {
        write_on(r->send, r->side);
    }
    drv.cuCtxSynchronize();
}

static void raced(int n, int what, int rank, bool finds, const char *name)
{
    for (int seed = 0; seed < 12; seed++) {
        bool found;

        ranks_seed(seed);
        left_out = what;
        who = rank;
        ranks_run_wrong(n, name, test_waits);
        found = soft_races() != 0;
        if (found != finds) {
            ranks_seed(1);
            ok(false, "%s: %s under seed %d", name,
               finds ? "is a race" : "is in order", seed);
            return;
        }
    }
    ranks_seed(1);
    ok(true, "%s: %s", name, finds ? "is a race" : "is in order");
}

/* Rank 1 reads rank 0's result, which an all-reduce does not guard: only a
 * rank's own end comes after the operation. */
static CUdeviceptr lent[MAX_RANKS];

static void lend(struct rank *r)
{
    lent[r->rank] = r->third;
    ranks_barrier(r);
}

/* The end of an all-reduce comes after every rank's begin: what rank 0 wrote
 * before, rank 1 may read after. */
static void test_known_through(struct rank *r)
{
    lend(r);
    if (r->rank == 0) {
        write_on(r->third, r->side);
        after(r->stream, r->side);
    }
    sum(r);
    if (r->rank == 1) {
        drv.cuMemcpyDtoDAsync(r->third, lent[0], 64, r->stream);
    }
    drv.cuStreamSynchronize(r->stream);
    ranks_barrier(r);
}

/* The same in graphs. */
static CUgraphExec capture_sum(struct rank *r)
{
    CUgraphExec exec = NULL;
    CUgraph graph = NULL;

    drv.cuStreamBeginCapture(r->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    sum(r);
    drv.cuStreamEndCapture(r->stream, &graph);
    drv.cuGraphInstantiateWithFlags(&exec, graph, 0);
    drv.cuGraphDestroy(graph);
    return exec;
}

static void test_known_through_a_graph(struct rank *r)
{
    CUgraphExec exec = capture_sum(r);

    lend(r);
    if (r->rank == 0) {
        write_on(r->third, r->stream);
    }
    drv.cuGraphLaunch(exec, r->stream);
    if (r->rank == 1) {
        drv.cuMemcpyDtoDAsync(r->third, lent[0], 64, r->stream);
    }
    drv.cuStreamSynchronize(r->stream);
    drv.cuGraphExecDestroy(exec);
    ranks_barrier(r);
}

/* What rank 0 receives is written at its own end, which rank 1 does not come
 * after. */
static void read_result_of_another(struct rank *r, CUgraphExec exec)
{
    lent[r->rank] = r->recv;
    ranks_barrier(r);
    if (exec != NULL) {
        drv.cuGraphLaunch(exec, r->stream);
    } else {
        sum(r);
    }
    if (r->rank == 1) {
        drv.cuMemcpyDtoDAsync(r->third, lent[0], 64, r->stream);
    }
    drv.cuStreamSynchronize(r->stream);
    ranks_barrier(r);
}

static void test_result_of_another(struct rank *r)
{
    read_result_of_another(r, NULL);
}

static void test_result_of_another_graph(struct rank *r)
{
    CUgraphExec exec = capture_sum(r);

    read_result_of_another(r, exec);
    drv.cuGraphExecDestroy(exec);
}

/* What rank 0 sends is read at its begin, which rank 1's end comes after; and
 * rank 0 receives after rank 1's begin. */
static void write_at_another(struct rank *r, CUdeviceptr mine, bool before)
{
    lent[r->rank] = mine;
    ranks_barrier(r);
    if (before && r->rank == 1) {
        write_on(lent[0], r->stream);
    }
    sum(r);
    if (!before && r->rank == 1) {
        write_on(lent[0], r->stream);
    }
    drv.cuStreamSynchronize(r->stream);
    ranks_barrier(r);
}

static void test_write_what_was_sent(struct rank *r)
{
    write_at_another(r, r->send, false);
}

static void test_write_what_will_be_received(struct rank *r)
{
    write_at_another(r, r->recv, true);
}

/* An earlier operation has told rank 1 of what it sends in a later one. */
static void test_send_what_was_told(struct rank *r)
{
    lent[r->rank] = r->send;
    ranks_barrier(r);
    if (r->rank == 0) {
        write_on(lent[1], r->stream);
    }
    nccl.ncclAllReduce(pointer(r->third), pointer(r->third), 64, ncclFloat32,
                       ncclSum, r->comm, r->stream);
    sum(r);
    drv.cuStreamSynchronize(r->stream);
    ranks_barrier(r);
}

/* Rank 0 has waited, and told rank 1 by a barrier of their threads, which
 * nobody sees. */
static void test_barrier_of_hosts(struct rank *r)
{
    lend(r);
    if (r->rank == 0) {
        write_on(r->third, r->stream);
        drv.cuStreamSynchronize(r->stream);
    }
    ranks_barrier(r);
    if (r->rank == 1) {
        drv.cuMemcpyDtoDAsync(r->third, lent[0], 64, r->stream);
        drv.cuStreamSynchronize(r->stream);
    }
    ranks_barrier(r);
}

/* A broadcast from 0 tells rank 0 nothing of rank 1. */
static void test_not_known_through(struct rank *r)
{
    lend(r);
    if (r->rank == 1) {
        write_on(r->third, r->stream);
    }
    nccl.ncclBroadcast(pointer(r->send), pointer(r->recv), 64, ncclFloat32, 0,
                       r->comm, r->stream);
    if (r->rank == 0) {
        drv.cuMemcpyDtoDAsync(r->third, lent[1], 64, r->stream);
    }
    drv.cuStreamSynchronize(r->stream);
    ranks_barrier(r);
}

/* The begin of an operation knows nothing of the others yet: rank 1 reads
 * before its own, what rank 0 writes before its. */
static void test_read_before(struct rank *r)
{
    lend(r);
    if (r->rank == 0) {
        write_on(r->third, r->stream);
    } else {
        drv.cuMemcpyDtoDAsync(r->third, lent[0], 64, r->stream);
    }
    sum(r);
    drv.cuStreamSynchronize(r->stream);
    ranks_barrier(r);
}

/* Through two: 0 to 1, and 1 to 2. */
static void test_known_through_two(struct rank *r)
{
    lend(r);
    if (r->rank == 0) {
        write_on(r->third, r->stream);
        nccl.ncclSend(pointer(r->send), 4, ncclFloat32, 1, r->comm, r->stream);
    } else if (r->rank == 1) {
        nccl.ncclRecv(pointer(r->recv), 4, ncclFloat32, 0, r->comm, r->stream);
        nccl.ncclSend(pointer(r->recv), 4, ncclFloat32, 2, r->comm, r->stream);
    } else {
        nccl.ncclRecv(pointer(r->recv), 4, ncclFloat32, 1, r->comm, r->stream);
        drv.cuMemcpyDtoDAsync(r->third, lent[0], 64, r->stream);
    }
    drv.cuStreamSynchronize(r->stream);
    ranks_barrier(r);
}

/* Streams have gone, and a communicator has taken their places. */
static void test_in_the_place_of_a_stream(struct rank *r)
{
    ncclComm_t comms[8] = { NULL };
    CUstream streams[128];

    for (int i = 0; i < 128; i++) {
        drv.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING);
        write_on(r->third, streams[i]);
        drv.cuStreamSynchronize(streams[i]);
    }
    for (int i = 0; i < 128; i++) {
        drv.cuStreamDestroy(streams[i]);
    }
    for (int i = 0; i < 8; i++) {
        nccl.ncclCommSplit(r->comm, 0, r->rank, &comms[i], NULL);
    }
    for (int i = 0; i < 8; i++) {
        nccl.ncclAllReduce(pointer(r->send), pointer(r->recv), 64, ncclFloat32,
                           ncclSum, comms[i], r->stream);
    }
    ranks_barrier(r); /* in the order of issue, all of them have been */
    write_on(r->send, r->side);
    ranks_barrier(r); /* what one has waited for the other knows */
    drv.cuCtxSynchronize();
    for (int i = 0; i < 8; i++) {
        nccl.ncclCommDestroy(comms[i]);
    }
}

static void crosses(int n, const char *name, void (*test)(struct rank *r),
                    uint64_t wanted)
{
    ranks_run_wrong(n, name, test);
    is_int(soft_races(), wanted, "%s: so many races", name);
}

static void test_races(void)
{
    raced(2, 0, -1, false, "all waits are there");
    raced(2, 1, -1, true, "what is sent is not waited for");
    raced(3, 1, 2, true, "nor by one rank of three");
    raced(2, 2, -1, true, "the result is not waited for");
    raced(3, 2, 0, true, "nor by one rank of three");
    raced(4, 0, -1, false, "all waits are there, of four");
    raced(2, 3, -1, false, "a result that is waited for is overwritten");
    raced(2, 4, -1, false, "so is what was sent");
    ranks_know_each_other(true);
    raced(2, 2, -1, true, "nor by ranks that know each other");
    raced(2, 0, -1, false, "all waits are there, and ranks know each other");
    ranks_seed(0);
    crosses(2, "in the place of a stream", test_in_the_place_of_a_stream, 2);
    ranks_seed(1);
    crosses(2, "by a barrier of threads", test_barrier_of_hosts, 0);
    ranks_know_each_other(false);
    crosses(2, "by a barrier of processes", test_barrier_of_hosts, 1);
    crosses(2, "through an all-reduce", test_known_through, 0);
    crosses(2, "through a graph", test_known_through_a_graph, 0);
    crosses(2, "another's result", test_result_of_another, 1);
    crosses(2, "another's result, in a graph", test_result_of_another_graph, 1);
    crosses(2, "what was sent", test_write_what_was_sent, 0);
    crosses(2, "what will be received", test_write_what_will_be_received, 0);
    crosses(2, "sent when told", test_send_what_was_told, 0);
    crosses(2, "against a broadcast", test_not_known_through, 1);
    crosses(2, "before an all-reduce", test_read_before, 1);
    crosses(3, "through two messages", test_known_through_two, 0);
}

int main(void)
{
    int status;

    if (!ranks_open(&status)) {
        return status;
    }
    if (!ranks_are_soft()) {
        return skip_all("races are the software device's to find");
    }
    test_races();
    return done_testing();
}
