/* Communicators: how they start, split, are asked, fail and end. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nccl/ranks.h"

#include <string.h>
#include <time.h>

static ncclResult_t sum(struct rank *r, ncclComm_t comm)
{
    return nccl.ncclAllReduce(pointer(r->send), pointer(r->recv), 1,
                              ncclFloat32, ncclSum, comm, r->stream);
}

static float first(struct rank *r)
{
    float value = -1;

    fetch(r, r->stream, &value, r->recv, sizeof(value));
    return value;
}

static void test_questions(struct rank *r)
{
    ncclResult_t error = ncclInternalError;
    int answer = -1;

    says_int(r, nccl.ncclGetVersion(NULL), ncclInvalidArgument,
             "a version wants a place");
    says_int(r, nccl.ncclGetVersion(&answer), 0, "the version is asked");
    says(r, answer >= 22000, "it is 2.20 or newer");
    says_int(r, nccl.ncclCommCount(r->comm, &answer), 0, "a count is asked");
    says_int(r, answer, r->n, "it counts the ranks");
    says_int(r, nccl.ncclCommUserRank(r->comm, &answer), 0, "a rank is asked");
    says_int(r, answer, r->rank, "it is the rank's");
    says_int(r, nccl.ncclCommCuDevice(r->comm, &answer), 0,
             "a device is asked");
    says_int(r, answer, r->device, "it is the rank's");
    says_int(r, nccl.ncclCommGetAsyncError(r->comm, &error), 0,
             "an error is asked");
    says_int(r, error, ncclSuccess, "there is none");
    for (int i = 0; i <= ncclInProgress; i++) {
        const char *text = nccl.ncclGetErrorString(i);

        says(r, text != NULL && *text != '\0', "result %d has words", i);
    }
    says(r, nccl.ncclGetLastError(r->comm) != NULL, "the last error is a text");
}

#define ARGUMENT(call, what) says_int(r, call, ncclInvalidArgument, what)

static void test_wrong_arguments(struct rank *r)
{
    struct nccl_config config = NCCL_CONFIG_OURS;
    void *send = pointer(r->send), *recv = pointer(r->recv);
    ncclUniqueId id = ranks_id(r);
    ncclComm_t other = NULL;

    ARGUMENT(nccl.ncclGetUniqueId(NULL), "an id wants a place");
    ARGUMENT(nccl.ncclCommInitRank(NULL, r->n, id, r->rank),
             "a communicator wants a place");
    ARGUMENT(nccl.ncclCommInitRank(&other, 0, id, 0), "no rank is too few");
    ARGUMENT(nccl.ncclCommInitRank(&other, r->n, id, r->n),
             "a rank past the last is none");
    ARGUMENT(nccl.ncclCommInitRank(&other, r->n, id, -1),
             "a rank before the first is none");
    config.magic = 0;
    ARGUMENT(nccl.ncclCommInitRankConfig(&other, r->n, id, r->rank,
                                         (ncclConfig_t *)&config),
             "a configuration has its magic");
    ARGUMENT(nccl.ncclCommCount(NULL, NULL), "no communicator has no count");
    ARGUMENT(nccl.ncclCommCount(r->comm, NULL), "a count wants a place");
    ARGUMENT(nccl.ncclCommGetAsyncError(r->comm, NULL),
             "an error wants a place");
    ARGUMENT(nccl.ncclCommSplit(r->comm, 0, 0, NULL, NULL),
             "a split wants a place");
    ARGUMENT(nccl.ncclAllReduce(send, recv, 1, ncclFloat32, ncclSum, NULL,
                                r->stream),
             "an all-reduce wants a communicator");
    ARGUMENT(nccl.ncclAllReduce(send, recv, 1, 99, ncclSum, r->comm, r->stream),
             "type 99 is none");
    ARGUMENT(nccl.ncclAllReduce(send, recv, 1, -1, ncclSum, r->comm, r->stream),
             "nor is -1");
    ARGUMENT(
        nccl.ncclAllReduce(send, recv, 1, ncclFloat32, 99, r->comm, r->stream),
        "reduction 99 is none");
    ARGUMENT(nccl.ncclReduceScatter(send, recv, 1, ncclFloat32, -1, r->comm,
                                    r->stream),
             "nor is -1");
    ARGUMENT(nccl.ncclBroadcast(send, recv, 1, ncclFloat32, r->n, r->comm,
                                r->stream),
             "a root past the last rank is none");
    ARGUMENT(nccl.ncclSend(send, 1, ncclFloat32, -1, r->comm, r->stream),
             "nobody is sent to");
    ARGUMENT(nccl.ncclRecv(recv, 1, ncclFloat32, r->n, r->comm, r->stream),
             "nobody is received from");
    fill(r, r->send, 1, 1, 0);
    says_int(r, sum(r, r->comm), 0, "the communicator is as good as before");
    says(r, first(r) == (float)r->n, "and sums");
}

static void test_groups_that_are_wrong(struct rank *r)
{
    says_int(r, nccl.ncclGroupEnd(), ncclInvalidUsage,
             "a group that has not started does not end");
    nccl.ncclGroupStart();
    nccl.ncclAllReduce(pointer(r->send), pointer(r->recv), 1, 99, ncclSum,
                       r->comm, r->stream);
    says_int(r, nccl.ncclGroupEnd(), ncclInvalidArgument,
             "what is wrong in a group is wrong at its end");
    nccl.ncclGroupStart();
    nccl.ncclSend(pointer(r->send), 1, ncclFloat32, r->rank, r->comm,
                  r->stream);
    says_int(r, nccl.ncclGroupEnd(), ncclInvalidUsage,
             "a rank that sends to itself receives in the same group");
}

static void test_groups(struct rank *r)
{
    fill(r, r->send, 2, 1, 1);
    says_int(r, nccl.ncclGroupStart(), 0, "a group starts");
    says_int(r, nccl.ncclGroupStart(), 0, "and one in it");
    says_int(r, sum(r, r->comm), 0, "a sum is part of it");
    says_int(r, nccl.ncclGroupEnd(), 0, "the inner one ends");
    says_int(r,
             nccl.ncclAllReduce(pointer(r->send + sizeof(float)),
                                pointer(r->recv + sizeof(float)), 1,
                                ncclFloat32, ncclProd, r->comm, r->stream),
             0, "a product is part of it");
    says_int(r, nccl.ncclGroupEnd(), 0, "the outer one ends");
    says(r, first(r) == (float)r->n, "and the sum is right");
}

static void pause_ms(long ms)
{
    const struct timespec time = { ms / 1000, ms % 1000 * 1000000 };

    nanosleep(&time, NULL);
}

/* Odd and even ranks, the later first. */
static void test_split(struct rank *r)
{
    const int color = r->rank % 2;
    const int members = color == 0 ? (r->n + 1) / 2 : r->n / 2;
    int count = -1, rank = -1, wanted = 0;
    ncclComm_t half = NULL;

    says_int(r, nccl.ncclCommSplit(r->comm, color, -r->rank, &half, NULL), 0,
             "a communicator is split");
    nccl.ncclCommCount(half, &count);
    nccl.ncclCommUserRank(half, &rank);
    says_int(r, count, members, "a half has its ranks");
    says_int(r, rank, members - 1 - r->rank / 2, "ordered by their keys");
    fill(r, r->send, 1, (float)(r->rank + 1), 0);
    for (int i = color; i < r->n; i += 2) {
        wanted += i + 1;
    }
    says_int(r, sum(r, half), 0, "a half sums");
    says(r, first(r) == (float)wanted, "what is its own");
    says_int(r, sum(r, r->comm), 0, "the whole sums still");
    says(r, first(r) == (float)(r->n * (r->n + 1) / 2), "what is everyone's");
    says_int(r, nccl.ncclCommDestroy(half), 0, "a half is destroyed");
}

static void test_split_without(struct rank *r)
{
    ncclComm_t some = (ncclComm_t)(void *)&some;

    says_int(r,
             nccl.ncclCommSplit(r->comm, r->rank == 0 ? NCCL_SPLIT_NOCOLOR : 7,
                                r->rank, &some, NULL),
             0, "a split leaves rank 0 out");
    if (r->rank == 0) {
        says(r, some == NULL, "which has no communicator then");
    } else {
        int count = 0;

        nccl.ncclCommCount(some, &count);
        says_int(r, count, r->n - 1, "the others have one");
        says_int(r, nccl.ncclCommDestroy(some), 0, "that is destroyed");
    }
}

/* The last rank comes late, longer than a rank that waits is given. */
static void test_late_split(struct rank *r)
{
    ncclComm_t comm = NULL;

    if (r->rank == r->n - 1) {
        pause_ms(400);
    }
    says_int(r, nccl.ncclCommSplit(r->comm, 0, r->rank, &comm, NULL), 0,
             "a split waits for who comes late");
    says_int(r, nccl.ncclCommDestroy(comm), 0, "and gives a communicator");
}

static void test_finalize(struct rank *r)
{
    fill(r, r->send, 1, 2, 0);
    says_int(r, sum(r, r->comm), 0, "a sum is issued");
    says_int(r, nccl.ncclCommFinalize(r->comm), 0,
             "a communicator is finalized");
    says(r, first(r) == (float)(2 * r->n), "after what it was asked for");
    says_int(r, nccl.ncclCommFinalize(r->comm), ncclInvalidArgument,
             "once is enough");
}

/* Waits for what is in progress, for 30 seconds at most. */
static ncclResult_t settled(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;

    for (int i = 0; i < 3000 && state == ncclInProgress; i++) {
        if (nccl.ncclCommGetAsyncError(comm, &state) != ncclSuccess) {
            return ncclInternalError;
        }
        if (state == ncclInProgress) {
            pause_ms(10);
        }
    }
    return state;
}

static void test_without_blocking(struct rank *r)
{
    struct nccl_config config = NCCL_CONFIG_OURS;
    const ncclUniqueId id = ranks_id(r);
    ncclComm_t comm = NULL;
    ncclResult_t result;
    int count = 0;

    config.blocking = 0;
    if (r->rank != 0) {
        ranks_barrier(r); /* rank 0 is back before they come */
    }
    result = nccl.ncclCommInitRankConfig(&comm, r->n, id, r->rank,
                                         (ncclConfig_t *)&config);
    if (r->rank == 0) {
        ranks_barrier(r);
    }
    says(r, result == ncclSuccess || result == ncclInProgress,
         "a start that does not block is in progress");
    says_int(r, settled(comm), ncclSuccess, "and settles");
    says_int(r, nccl.ncclCommCount(comm, &count), 0, "then it is asked");
    says_int(r, count, r->n, "and counts");
    fill(r, r->send, 1, 3, 0);
    result = sum(r, comm);
    says(r, result == ncclSuccess || result == ncclInProgress,
         "and a sum is issued");
    says_int(r, settled(comm), ncclSuccess, "which settles");
    says(r, first(r) == (float)(3 * r->n), "and is right");
    ranks_barrier(r);
    nccl.ncclCommFinalize(comm);
    settled(comm);
    says_int(r, nccl.ncclCommDestroy(comm), 0, "it is destroyed");
}

static void end_settled(ncclComm_t comm)
{
    nccl.ncclCommFinalize(comm);
    settled(comm);
    nccl.ncclCommDestroy(comm);
}

/* Of a parent that does not block: rank 0 is back before the others come. */
static void split_and_go_on(struct rank *r, ncclComm_t parent)
{
    ncclResult_t result, state = ncclInProgress;
    ncclComm_t child = NULL;
    int count = 0;

    if (r->rank != 0) {
        ranks_barrier(r);
    }
    result = nccl.ncclCommSplit(parent, 0, r->rank, &child, NULL);
    if (r->rank == 0) {
        if (r->n > 1) {
            nccl.ncclCommGetAsyncError(parent, &state);
        }
        says_int(r, state, ncclInProgress,
                 "the parent is in progress while others are to come");
        ranks_barrier(r);
    }
    says(r, result == ncclSuccess || result == ncclInProgress,
         "the call of a split does not wait");
    says_int(r, settled(parent), ncclSuccess, "but the parent settles");
    says_int(r, settled(child), ncclSuccess, "and then what is split of it");
    says_int(r, nccl.ncclCommCount(child, &count), 0, "which is asked");
    says_int(r, count, r->n, "and counts");
    ranks_barrier(r);
    end_settled(child);
}

/* Whether the call of a split waits is the parent's to say, not the child's. */
static void test_split_of_one_that_blocks(struct rank *r)
{
    struct nccl_config config = NCCL_CONFIG_OURS;
    ncclResult_t state = ncclInternalError;
    ncclComm_t child = NULL;

    config.blocking = 0;
    if (r->rank == r->n - 1) {
        pause_ms(100);
    }
    says_int(r,
             nccl.ncclCommSplit(r->comm, 0, r->rank, &child,
                                (ncclConfig_t *)&config),
             0, "a parent that blocks is split");
    says(r, child != NULL, "which gives a communicator at once");
    nccl.ncclCommGetAsyncError(child, &state);
    says_int(r, state, ncclSuccess, "that is ready");
    split_and_go_on(r, child);
    ranks_barrier(r);
    end_settled(child);
}

static void test_split_of_one_that_does_not(struct rank *r)
{
    struct nccl_config config = NCCL_CONFIG_OURS;
    const ncclUniqueId id = ranks_id(r);
    ncclComm_t parent = NULL;

    config.blocking = 0;
    nccl.ncclCommInitRankConfig(&parent, r->n, id, r->rank,
                                (ncclConfig_t *)&config);
    says_int(r, settled(parent), ncclSuccess, "a parent that does not block");
    split_and_go_on(r, parent);
    ranks_barrier(r);
    end_settled(parent);
}

/* One thread, or process, that is all ranks. */
static void test_start_in_a_group(struct rank *r)
{
    ncclUniqueId id;
    ncclComm_t comm = NULL;

    nccl.ncclGetUniqueId(&id);
    says_int(r, nccl.ncclGroupStart(), 0, "a group starts");
    says_int(r, nccl.ncclCommInitRank(&comm, 1, id, 0), 0,
             "a communicator is asked for in it");
    says_int(r, nccl.ncclGroupEnd(), 0, "and is there at its end");
    fill(r, r->send, 1, 9, 0);
    says_int(r, sum(r, comm), 0, "and sums");
    says(r, first(r) == 9.0f, "over one rank");
    says_int(r, nccl.ncclCommDestroy(comm), 0, "and is destroyed");
    says_int(r, nccl.ncclCommDestroy(NULL), 0, "no communicator is destroyed");
    says_int(r, nccl.ncclCommAbort(NULL), 0, "or aborted");
}

static void test_abort(struct rank *r)
{
    fill(r, r->send, 1, 1, 0);
    sum(r, r->comm);
    drv.cuStreamSynchronize(r->stream);
    ranks_barrier(r);
    says_int(r, nccl.ncclCommAbort(r->comm), 0, "a communicator is aborted");
    r->comm = NULL;
}

static const struct ranks_test tests[] = {
    { "questions", test_questions, false },
    { "wrong arguments", test_wrong_arguments, false },
    { "wrong groups", test_groups_that_are_wrong, false },
    { "groups", test_groups, false },
    { "split", test_split, false },
    { "split without", test_split_without, false },
    { "late split", test_late_split, false },
    { "finalize", test_finalize, false },
    { "without blocking", test_without_blocking, true },
    { "split of one that blocks", test_split_of_one_that_blocks, false },
    { "split of one that does not", test_split_of_one_that_does_not, true },
    { "start in a group", test_start_in_a_group, true },
    { "abort", test_abort, false },
};

int main(void)
{
    return ranks_main(tests, sizeof(tests) / sizeof(tests[0]));
}
