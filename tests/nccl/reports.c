/* What softnccl reports: ranks that are in different operations, nobody left
 * to come, and what races across ranks.  NCCL hangs there, or gives wrong
 * numbers, so these points are softnccl's alone. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nccl/ranks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Whether the processor is taken from a thread for a second at each look at the
 * clock.  The software device looks by this function, too. */
static atomic_bool stalls;

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock,
                                                         struct timespec *time)
{
    static atomic_int lost;
    const int seconds = stalls ? ++lost : lost;
    const int status = (int)syscall(SYS_clock_gettime, clock, time);

    time->tv_sec += clock == CLOCK_MONOTONIC ? seconds : 0;
    return status;
}

static ncclResult_t sum_on(struct rank *r, CUstream stream)
{
    return nccl.ncclAllReduce(pointer(r->send), pointer(r->recv), 64,
                              ncclFloat32, ncclSum, r->comm, stream);
}

static ncclResult_t error_of(struct rank *r)
{
    ncclResult_t error = ncclInternalError;

    nccl.ncclCommGetAsyncError(r->comm, &error);
    return error;
}

/* One run of a test that must be reported in these words, `times` times. */
static void reported(int n, const char *name, void (*test)(struct rank *r),
                     uint64_t times, const char *words)
{
    ranks_run_wrong(n, name, test);
    is_int(soft_reports(), times, "%s: so many reports", name);
    ok(soft_reported(words), "%s: \"%s\" is reported", name, words);
    for (uint64_t i = 0; i < soft_reports() && !soft_reported(words); i++) {
        diag("but: %s", soft_report(i));
    }
}

/* ---- mismatches ---------------------------------------------------------- */

static CUgraphExec captured_sum(struct rank *r)
{
    CUgraphExec exec = NULL;
    CUgraph graph = NULL;

    drv.cuStreamBeginCapture(r->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    sum_on(r, r->stream);
    drv.cuStreamEndCapture(r->stream, &graph);
    drv.cuGraphInstantiateWithFlags(&exec, graph, 0);
    drv.cuGraphDestroy(graph);
    return exec;
}

static void test_kinds(struct rank *r)
{
    CUgraphExec exec = captured_sum(r);
    float value = -1;

    fill(r, r->send, 64, 1, 0);
    sum_on(r, r->stream);
    drv.cuMemsetD32Async(r->send, 0x40A00000, 64, r->stream); /* 5.0 */
    if (r->rank == 1) {
        nccl.ncclAllGather(pointer(r->send), pointer(r->recv), 64, ncclFloat32,
                           r->comm, r->stream);
    } else {
        sum_on(r, r->stream);
    }
    says_int(r, drv.cuStreamSynchronize(r->stream), 0,
             "a mismatch does not hang");
    says_int(r, error_of(r), ncclInvalidUsage, "it is the ranks' error");
    says(r, strstr(nccl.ncclGetLastError(r->comm), "operation 2") != NULL,
         "whose text says where");
    says_int(r, sum_on(r, r->stream), ncclInvalidUsage,
             "the communicator is of no use then");
    fetch(r, r->stream, &value, r->recv, sizeof(value));
    says(r, value == (float)r->n, "and what was received is as it was");
    if (r->rank == 0) {
        says_int(r, drv.cuGraphLaunch(exec, r->stream), 0,
                 "a graph on it is launched");
        says_int(r, drv.cuStreamSynchronize(r->stream), 0,
                 "and waits for nobody");
    }
    drv.cuGraphExecDestroy(exec);
}

static void test_counts(struct rank *r)
{
    nccl.ncclAllReduce(pointer(r->send), pointer(r->recv),
                       r->rank == 0 ? 64 : 32, ncclFloat32, ncclSum, r->comm,
                       r->stream);
    drv.cuStreamSynchronize(r->stream);
    says_int(r, error_of(r), ncclInvalidUsage, "counts have to be equal");
}

static void test_types(struct rank *r)
{
    nccl.ncclAllReduce(pointer(r->send), pointer(r->recv), 64,
                       r->rank == 0 ? ncclFloat32 : ncclInt32, ncclSum, r->comm,
                       r->stream);
    drv.cuStreamSynchronize(r->stream);
    says_int(r, error_of(r), ncclInvalidUsage, "types have to be equal");
}

static void test_ops(struct rank *r)
{
    nccl.ncclAllReduce(pointer(r->send), pointer(r->recv), 64, ncclFloat32,
                       r->rank == 0 ? ncclMax : ncclMin, r->comm, r->stream);
    drv.cuStreamSynchronize(r->stream);
    says_int(r, error_of(r), ncclInvalidUsage, "reductions have to be equal");
}

static void test_roots(struct rank *r)
{
    nccl.ncclBroadcast(pointer(r->send), pointer(r->recv), 64, ncclFloat32,
                       r->rank, r->comm, r->stream);
    drv.cuStreamSynchronize(r->stream);
    says_int(r, error_of(r), ncclInvalidUsage, "roots have to be equal");
}

static void test_messages(struct rank *r)
{
    if (r->rank == 0) {
        nccl.ncclSend(pointer(r->send), 16, ncclFloat32, 1, r->comm, r->stream);
    } else {
        nccl.ncclRecv(pointer(r->recv), 8, ncclFloat32, 0, r->comm, r->stream);
    }
    drv.cuStreamSynchronize(r->stream);
    says_int(r, error_of(r), ncclInvalidUsage, "what is sent is received");
}

static void test_capture_of_one(struct rank *r)
{
    CUgraphExec exec = NULL;
    CUgraph graph = NULL;

    if (r->rank == 0) {
        drv.cuStreamBeginCapture(r->stream,
                                 CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        sum_on(r, r->stream);
        drv.cuStreamEndCapture(r->stream, &graph);
        drv.cuGraphInstantiateWithFlags(&exec, graph, 0);
        drv.cuGraphLaunch(exec, r->stream);
    } else {
        sum_on(r, r->stream);
    }
    drv.cuStreamSynchronize(r->stream);
    says_int(r, error_of(r), ncclInvalidUsage,
             "what one rank captures another does not issue eagerly");
    if (r->rank == 0) {
        drv.cuGraphExecDestroy(exec);
        drv.cuGraphDestroy(graph);
    }
}

/* ---- deadlocks ----------------------------------------------------------- */

static void test_one_does_not_come(struct rank *r)
{
    if (r->rank == 0) {
        sum_on(r, r->stream);
        says_int(r, drv.cuStreamSynchronize(r->stream), 0,
                 "a rank that waits alone goes on");
        says_int(r, error_of(r), ncclRemoteError, "with an error");
    }
}

/* A thread that frees memory waits for what others have issued.  One that is to
 * end frees it before. */
static void free_memory(struct rank *r)
{
    drv.cuMemFree(r->send);
    drv.cuMemFree(r->recv);
    drv.cuMemFree(r->third);
    r->send = r->recv = r->third = 0;
}

/* The thread of rank 1 is gone, and has left its communicator. */
static ncclComm_t left;

static void test_thread_ends(struct rank *r)
{
    if (r->rank == 1) {
        left = r->comm;
        r->comm = NULL;
        free_memory(r);
        ranks_barrier(r);
        return;
    }
    ranks_barrier(r);
    sum_on(r, r->stream);
    says_int(r, drv.cuStreamSynchronize(r->stream), 0,
             "who waits for a thread that has ended goes on");
    says_int(r, error_of(r), ncclRemoteError, "with an error");
    nccl.ncclCommDestroy(left);
}

static void test_crossed(struct rank *r)
{
    const int peer = 1 - r->rank;

    nccl.ncclSend(pointer(r->send), 4, ncclFloat32, peer, r->comm, r->stream);
    nccl.ncclRecv(pointer(r->recv), 4, ncclFloat32, peer, r->comm, r->stream);
    says_int(r, drv.cuStreamSynchronize(r->stream), 0,
             "two that both send first go on");
    says_int(r, error_of(r), ncclRemoteError, "with an error");
}

/* Rank 0 sums over all and then over the pair; rank 1 the other way about,
 * each waiting in between. */
static void test_two_orders(struct rank *r)
{
    ncclComm_t pair = NULL;

    nccl.ncclCommSplit(r->comm, 0, 0, &pair, NULL);
    for (int i = 0; i < 2; i++) {
        nccl.ncclAllReduce(pointer(r->send), pointer(r->recv), 4, ncclFloat32,
                           ncclSum, i == r->rank ? r->comm : pair, r->stream);
        says_int(r, drv.cuStreamSynchronize(r->stream), 0,
                 "communicators in two orders do not hang");
    }
    nccl.ncclCommDestroy(pair);
}

static void test_split_alone(struct rank *r)
{
    ncclComm_t half = NULL;

    if (r->rank == 0) {
        says_int(r, nccl.ncclCommSplit(r->comm, 0, 0, &half, NULL),
                 ncclRemoteError, "a split that one rank does not come to");
        says(r, half == NULL, "makes nothing");
    }
}

/* The error that somebody else is to make, once it is there: 8 s at most. */
static ncclResult_t error_to_come(struct rank *r)
{
    const struct timespec time = { 0, 20000000 };
    ncclResult_t error = error_of(r);

    for (int i = 0; i < 400 && error == ncclSuccess; i++) {
        nanosleep(&time, NULL);
        error = error_of(r);
    }
    return error;
}

/* Its peer runs, and asks; it never comes. */
static void test_timeout(struct rank *r)
{
    if (r->rank == 0) {
        sum_on(r, r->stream);
        drv.cuStreamSynchronize(r->stream);
        says_int(r, error_of(r), ncclRemoteError,
                 "a rank that runs may come for so long");
    } else {
        says_int(r, error_to_come(r), ncclRemoteError,
                 "the other learns of it");
    }
}

/* Nobody sleeps: both only ask whether it is done. */
static void test_poll(struct rank *r)
{
    const struct timespec time = { 0, 5000000 };
    CUresult code = CUDA_ERROR_NOT_READY;

    if (r->rank == 0) {
        sum_on(r, r->stream);
        for (int i = 0; i < 1000 && code == CUDA_ERROR_NOT_READY; i++) {
            code = drv.cuStreamQuery(r->stream);
            nanosleep(&time, NULL);
        }
        says_int(r, code, 0, "a rank that polls for nobody goes on");
        says_int(r, error_of(r), ncclRemoteError, "with an error");
    }
}

/* Both ranks have issued all, so a poll that has run an operation finds another
 * one, however long that took. */
static void test_slow_poll(struct rank *r)
{
    CUresult code = CUDA_ERROR_NOT_READY;

    for (int i = 0; i < 4; i++) {
        sum_on(r, r->stream);
    }
    ranks_barrier(r);
    if (r->rank == 0) {
        stalls = true;
        for (int i = 0; i < 1000 && code == CUDA_ERROR_NOT_READY; i++) {
            code = drv.cuStreamQuery(r->stream);
        }
        stalls = false;
        says_int(r, code, 0, "a rank that polls slowly comes to the end");
        says_int(r, error_of(r), ncclSuccess, "without an error");
    }
    ranks_barrier(r);
}

/* ---- abort --------------------------------------------------------------- */

static void *abort_soon(void *comm)
{
    const struct timespec time = { 0, 50000000 };

    nanosleep(&time, NULL);
    nccl.ncclCommAbort(comm);
    return NULL;
}

/* Rank 1's comes when rank 0 has been aborted from a thread. */
static void test_abort_releases(struct rank *r)
{
    pthread_t thread;
    int count;

    if (r->rank == 0) {
        pthread_create(&thread, NULL, abort_soon, r->comm);
        sum_on(r, r->stream);
        says_int(r, drv.cuStreamSynchronize(r->stream), 0,
                 "an abort releases who waits");
        pthread_join(thread, NULL);
        says_int(r, nccl.ncclCommCount(r->comm, &count), ncclInvalidUsage,
                 "what is aborted is of no use");
        says_int(r, nccl.ncclCommDestroy(r->comm), ncclInvalidUsage,
                 "nor destroyed");
        r->comm = NULL;
    } else {
        says_int(r, error_to_come(r), ncclRemoteError,
                 "the other learns of it");
        says_int(r, sum_on(r, r->stream), ncclRemoteError,
                 "and issues no more");
    }
}

/* Its communicator is not to block, but its parent does. */
static void test_abort_releases_a_split(struct rank *r)
{
    struct nccl_config config = NCCL_CONFIG_OURS;
    ncclComm_t child = NULL;
    pthread_t thread;

    config.blocking = 0;
    if (r->rank == 0) {
        pthread_create(&thread, NULL, abort_soon, r->comm);
        says_int(r,
                 nccl.ncclCommSplit(r->comm, 0, 0, &child,
                                    (ncclConfig_t *)&config),
                 ncclRemoteError, "an abort releases who waits in a split");
        says(r, child == NULL, "which makes nothing");
        pthread_join(thread, NULL);
        r->comm = NULL;
    } else {
        says_int(r, error_to_come(r), ncclRemoteError,
                 "the other learns of it");
        says_int(r, nccl.ncclCommSplit(r->comm, 0, 1, &child, NULL),
                 ncclRemoteError, "and does not split it");
    }
}

static ncclComm_t start_without_blocking(struct rank *r)
{
    struct nccl_config config = NCCL_CONFIG_OURS;
    const ncclUniqueId id = ranks_id(r);
    ncclResult_t state = ncclInProgress;
    ncclComm_t comm = NULL;

    config.blocking = 0;
    nccl.ncclCommInitRankConfig(&comm, r->n, id, r->rank,
                                (ncclConfig_t *)&config);
    while (state == ncclInProgress) {
        nccl.ncclCommGetAsyncError(comm, &state);
    }
    return comm;
}

/* Nobody waits for it, so there is a handle of what has failed. */
static void test_abort_of_a_parent_in_progress(struct rank *r)
{
    ncclComm_t parent = start_without_blocking(r), child = NULL;
    ncclResult_t error = ncclInProgress;

    ranks_barrier(r);
    if (r->rank == 0) {
        nccl.ncclCommSplit(parent, 0, 0, &child, NULL);
        says(r, child == NULL, "a split in progress has written nothing");
        says_int(r, nccl.ncclCommSplit(parent, 0, 0, &child, NULL),
                 ncclInvalidArgument, "and its parent is not split meanwhile");
    }
    ranks_barrier(r);
    nccl.ncclCommAbort(parent);
    ranks_barrier(r);
    if (r->rank == 0) {
        says(r, child != NULL, "it writes what the abort of its parent ends");
        nccl.ncclCommGetAsyncError(child, &error);
        says_int(r, error, ncclRemoteError, "that has failed");
        says_int(r, nccl.ncclCommAbort(child), 0, "and is aborted too");
    }
}

/* What its thread has done wrong before is not why. */
static void test_abort_by_one_that_erred(struct rank *r)
{
    ncclComm_t parent = start_without_blocking(r), child = NULL;
    ncclResult_t error = ncclInProgress;
    int n;

    if (r->rank == 0) {
        nccl.ncclCommSplit(parent, 0, 0, &child, NULL);
    }
    ranks_barrier(r);
    if (r->rank != 0) {
        nccl.ncclCommCount(NULL, &n);
        nccl.ncclCommAbort(parent);
    }
    ranks_barrier(r);
    if (r->rank == 0) {
        nccl.ncclCommGetAsyncError(parent, &error);
        says_int(r, error, ncclRemoteError, "a split has failed");
        says(r, strstr(nccl.ncclGetLastError(parent), "has aborted") != NULL,
             "as another rank has aborted: %s", nccl.ncclGetLastError(parent));
        nccl.ncclCommAbort(parent);
        nccl.ncclCommAbort(child);
    }
}

static void test_after_the_end(struct rank *r)
{
    ncclComm_t other = NULL;

    nccl.ncclCommSplit(r->comm, 0, r->rank, &other, NULL);
    nccl.ncclCommDestroy(other);
    says_int(r,
             nccl.ncclAllReduce(pointer(r->send), pointer(r->recv), 1,
                                ncclFloat32, ncclSum, other, r->stream),
             ncclInvalidUsage, "what is destroyed is not used");
    says_int(r, nccl.ncclCommAbort(other), ncclInvalidUsage, "nor aborted");
    says_int(r, nccl.ncclCommAbort((ncclComm_t)(void *)&other),
             ncclInvalidArgument, "and what never was is none");
    nccl.ncclCommFinalize(r->comm);
    says_int(r, sum_on(r, r->stream), ncclInvalidUsage,
             "what is finalized takes no more");
}

static void outlive(struct rank *r, ncclResult_t (*end)(ncclComm_t))
{
    CUgraphExec exec = NULL;
    CUgraph graph = NULL;
    float value = 0;
    double start;

    drv.cuStreamBeginCapture(r->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    drv.cuMemsetD32Async(r->third, 0x3F800000, 64, r->stream); /* 1.0 */
    sum_on(r, r->stream);
    drv.cuMemcpyDtoDAsync(r->recv, r->third, 64 * sizeof(float), r->stream);
    drv.cuStreamEndCapture(r->stream, &graph);
    drv.cuGraphInstantiateWithFlags(&exec, graph, 0);
    drv.cuGraphDestroy(graph);
    start = tap_now_s();
    says_int(r, end(r->comm), 0, "a communicator goes before its graph");
    says(r, tap_now_s() - start > 0.9, "for which it waits");
    r->comm = NULL;
    says_int(r, drv.cuGraphLaunch(exec, r->stream), 0, "which is launched");
    says_int(r, drv.cuStreamSynchronize(r->stream), 0, "and meets nobody");
    fetch(r, r->stream, &value, r->recv, sizeof(value));
    says(r, value == 1.0f, "but keeps its order");
    drv.cuGraphExecDestroy(exec);
}

static void test_graph_outlives(struct rank *r)
{
    outlive(r, nccl.ncclCommDestroy);
}

static void test_graph_outlives_an_abort(struct rank *r)
{
    outlive(r, nccl.ncclCommAbort);
}

static void test_one_device(struct rank *r)
{
    const ncclUniqueId id = ranks_id(r);
    const struct timespec late = { 0, 30000000 };
    ncclComm_t comm = NULL;
    float value = 0;

    says_int(r, nccl.ncclCommInitRank(&comm, r->n, id, r->rank),
             ncclInvalidUsage, "ranks do not share a device");
    says(r, comm == NULL, "and have no communicator");
    says(r, strstr(nccl.ncclGetLastError(NULL), "device 0") != NULL,
         "each is told why");
    ranks_barrier(r);
    if (r->rank == 0) {
        setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    }
    says_int(r, nccl.ncclCommInitRank(&comm, r->n, ranks_id(r), r->rank), 0,
             "unless they are allowed to");
    fill(r, r->send, 64, (float)(r->rank + 1), 0);
    nccl.ncclAllReduce(pointer(r->send), pointer(r->recv), 64, ncclFloat32,
                       ncclSum, comm, r->stream);
    fetch(r, r->stream, &value, r->recv, sizeof(value));
    says(r, value == (float)(r->n * (r->n + 1) / 2), "and sum then");

    /* Rank 0 waits for the device that all are on, while the others go on
     * to what waits for rank 0. */
    if (r->rank != 0) {
        nanosleep(&late, NULL);
    }
    for (int i = 0; i < 2; i++) {
        nccl.ncclAllReduce(pointer(r->send), pointer(r->recv), 64,
                           ncclFloat32, ncclSum, comm, r->stream);
        if (r->rank == 0) {
            says_int(r, drv.cuCtxSynchronize(), 0,
                     "a context is waited for as it is");
        }
    }
    drv.cuStreamSynchronize(r->stream);
    nccl.ncclCommDestroy(comm);
}

static void test_same_rank_twice(struct rank *r)
{
    const ncclUniqueId id = ranks_id(r);
    ncclComm_t comm = NULL;

    says_int(r, nccl.ncclCommInitRank(&comm, 2, id, 0), ncclInvalidUsage,
             "two ranks are not the same");
    says(r, comm == NULL, "and have no communicator");
}

/* ---- one thread ---------------------------------------------------------- */

/* One thread that is two ranks, on two devices. */
static void test_one_thread(struct rank *r)
{
    ncclComm_t comms[2] = { NULL };
    CUcontext contexts[2] = { r->ctx, NULL };
    CUstream streams[2] = { r->stream, NULL };
    CUdeviceptr memory[2] = { r->send, 0 };
    float value[2] = { 0 };
    ncclUniqueId id;

    drv.cuDevicePrimaryCtxRetain(&contexts[1], 1);
    drv.cuCtxSetCurrent(contexts[1]);
    drv.cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING);
    drv.cuMemAlloc(&memory[1], sizeof(float));
    nccl.ncclGetUniqueId(&id);
    nccl.ncclGroupStart();
    for (int i = 0; i < 2; i++) {
        drv.cuCtxSetCurrent(contexts[i]);
        says_int(r, nccl.ncclCommInitRank(&comms[i], 2, id, i), 0,
                 "rank %d is asked for", i);
    }
    says_int(r, nccl.ncclGroupEnd(), 0, "and both are there at the end");
    for (int i = 0; i < 2; i++) {
        drv.cuCtxSetCurrent(contexts[i]);
        drv.cuMemsetD32Async(memory[i], 0x40000000, 1, streams[i]); /* 2.0 */
    }
    nccl.ncclGroupStart();
    for (int i = 0; i < 2; i++) {
        nccl.ncclAllReduce(pointer(memory[i]), pointer(memory[i]), 1,
                           ncclFloat32, ncclSum, comms[i], streams[i]);
    }
    says_int(r, nccl.ncclGroupEnd(), 0, "a sum is issued for both");
    for (int i = 0; i < 2; i++) {
        nccl.ncclAllReduce(pointer(memory[i]), pointer(memory[i]), 1,
                           ncclFloat32, ncclProd, comms[i], streams[i]);
    }
    for (int i = 0; i < 2; i++) {
        fetch(r, streams[i], &value[i], memory[i], sizeof(value[i]));
        says(r, value[i] == 16.0f, "rank %d has what both have", i);
        nccl.ncclCommDestroy(comms[i]);
    }
    drv.cuStreamDestroy(streams[1]);
    drv.cuMemFree(memory[1]);
    drv.cuDevicePrimaryCtxRelease(1);
    drv.cuCtxSetCurrent(r->ctx);
}

/* ---- the virtual clock --------------------------------------------------- */

/* Rank 0 sets the costs, when the ranks have been configured. */
static void test_clock(struct rank *r)
{
    if (r->rank == 0) {
        soft_costs("kernel all-reduce 5000000\n");
    }
    ranks_barrier(r);
    for (int i = 0; i < 3; i++) {
        sum_on(r, r->stream);
    }
    drv.cuStreamSynchronize(r->stream);
}

/* ---- memory -------------------------------------------------------------- */

static void test_wild(struct rank *r)
{
    static float host[64];

    nccl.ncclAllReduce(r->rank == 0 ? pointer(r->send) : host, pointer(r->recv),
                       64, ncclFloat32, ncclSum, r->comm, r->stream);
    says_int(r, drv.cuStreamSynchronize(r->stream),
             r->rank == 0 ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS,
             "a wild address is the error of its rank's device");
    says_int(r, error_of(r), ncclUnhandledCudaError, "and of all ranks");
}

static void test_null(struct rank *r)
{
    says_int(r,
             nccl.ncclAllReduce(NULL, pointer(r->recv), 64, ncclFloat32,
                                ncclSum, r->comm, r->stream),
             ncclInvalidArgument, "what is sent is somewhere");
    says_int(r,
             nccl.ncclAllReduce(pointer(r->send), NULL, 64, ncclFloat32,
                                ncclSum, r->comm, r->stream),
             ncclInvalidArgument, "and what is received");
    says_int(r, nccl.ncclSend(NULL, 1, ncclFloat32, 0, r->comm, r->stream),
             ncclInvalidArgument, "a message is somewhere too");
}

int main(void)
{
    int status;

    if (!ranks_open(&status)) {
        return status;
    }
    if (!ranks_are_soft()) {
        return skip_all("what softnccl reports: NCCL hangs, or reads what is "
                        "not there");
    }
    reported(2, "kinds", test_kinds, 1,
             "mismatch: operation 2 of communicator 1: rank ");
    ok(soft_reported("all-gather (64 float32)") &&
           soft_reported("all-reduce (64 float32, sum)"),
       "kinds: the report names both operations");
    reported(2, "counts", test_counts, 1, "all-reduce (32 float32, sum)");
    reported(2, "types", test_types, 1, "all-reduce (64 int32, sum)");
    reported(2, "ops", test_ops, 1, "all-reduce (64 float32, min)");
    reported(2, "roots", test_roots, 1, "root 1)");
    reported(2, "messages", test_messages, 1,
             "send 1 from rank 0 to rank 1 of communicator 1: rank 0 sends 16 "
             "float32, rank 1 receives 8 float32");
    reported(2, "capture of one", test_capture_of_one, 1,
             "capture: rank 0 launches all-reduce 1 of communicator 1 in a "
             "graph, rank 1 issues it eagerly");
    reported(2, "one does not come", test_one_does_not_come, 1,
             "deadlock: all-reduce 1 of communicator 1 can never end: rank 0 "
             "is in it, rank 1 has");
    reported(2, "thread ends", test_thread_ends, 1,
             "can never end: rank 0 is in it, rank 1 has not come, and its "
             "thread has ended");
    reported(2, "crossed", test_crossed, 2, "deadlock: send 1 from rank 0");
    reported(2, "two orders", test_two_orders, 2,
             "all-reduce 1 of communicator 1 can never end: rank 0 is in it, "
             "rank 1 has not come, and its thread waits");
    reported(2, "split alone", test_split_alone, 1,
             "split 1 of communicator 1 can never end: of its ranks 1 never "
             "came");
    setenv("SOFTNCCL_TIMEOUT", "1", 1);
    reported(2, "timeout", test_timeout, 1,
             "has waited too long: rank 0 is "
             "in it, rank 1 has not come");
    unsetenv("SOFTNCCL_TIMEOUT");
    reported(2, "poll", test_poll, 1, "deadlock: all-reduce 1");
    ranks_run_wrong(2, "slow poll", test_slow_poll);
    is_int(soft_reports(), 0, "slow poll: it is no deadlock");
    ranks_run_wrong(2, "abort", test_abort_releases);
    is_int(soft_reports(), 0, "abort: it is no fault");
    ranks_run_wrong(2, "abort in a split", test_abort_releases_a_split);
    is_int(soft_reports(), 0, "abort in a split: it is no fault");
    ranks_run_wrong_bare(2, "abort of a parent",
                         test_abort_of_a_parent_in_progress);
    soft_is_clean("abort of a parent");
    ranks_run_wrong_bare(2, "abort by one that erred",
                         test_abort_by_one_that_erred);
    soft_is_clean("abort by one that erred");
    ranks_run_wrong(2, "after the end", test_after_the_end);
    setenv("SOFTNCCL_TIMEOUT", "1", 1);
    reported(1, "graph outlives", test_graph_outlives, 2,
             "rank 0 destroys communicator 1 while graphs hold 1 of its "
             "operations");
    reported(1, "graph outlives an abort", test_graph_outlives_an_abort, 2,
             "rank 0 aborts communicator 1 while graphs hold 1 of its "
             "operations");
    unsetenv("SOFTNCCL_TIMEOUT");
    reported(2, "same rank", test_same_rank_twice, 1,
             "rank 0 of 2 has come already");
    ranks_run_wrong(2, "null", test_null);
    ranks_run_wrong_bare(1, "one thread", test_one_thread);
    soft_is_clean("one thread");
    ranks_run_wrong(2, "clock", test_clock);
    ok(soft_clock() >= 15000000 && soft_clock() < 16000000,
       "clock: three operations of 5 ms take 15, and took %llu ns",
       (unsigned long long)soft_clock());
    ranks_devices(1);
    ranks_run_wrong_bare(3, "one device", test_one_device);
    is_int(soft_reports(), 1, "one device: it is reported");
    ok(soft_reported("ranks 0 and 1 of a communicator are on device 0; set"),
       "one device: with the remedy");
    unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
    ranks_devices(MAX_RANKS);
    reported(2, "wild", test_wild, 1, "memory: all-reduce 1");
    return done_testing();
}
